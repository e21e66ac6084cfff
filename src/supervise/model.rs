//! The room's private protocols, for the loom models. Not for users; it changes as they need.
//!
//! Everything here is the real code but the runtime: an actor's turns are taken by whoever calls
//! [`Stage::turn`], and its waker is the model's.
#![allow(missing_docs, clippy::missing_panics_doc, reason = "not for users")]

use core::fmt;
use core::task::Waker;
use std::sync::{Arc as StdArc, Mutex as StdMutex, Weak};
use std::task::Wake;

use super::actor::core::{Core, Entry, Order};
use super::actor::living::Living;
use super::actor::{Actor, ActorId, ActorRef, AskError, Reply};
use super::tree::Address;
use super::tree::model as tree;
use crate::promise::{Eventual, promise};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, Wait, park};

/// An actor whose turns the model takes.
pub struct Stage<A: Actor>(Living<A>);

/// An actor that begins queued for its first turn, with one reference.
pub fn stage<A: Actor>(actor: A, capacity: usize) -> (Stage<A>, ActorRef<A::Message>) {
    let core = Arc::new(Core::new(capacity, ActorId::next(), None, None));
    let first = ActorRef::first(Arc::clone(&core));
    (Stage(Living::with(core, actor, None)), first)
}

impl<A: Actor> Stage<A> {
    /// One turn. True: it was the last one.
    pub fn turn(&mut self, waker: &Waker) -> bool {
        Living::turn(&mut self.0, || true, waker)
    }
}

impl<A: Actor> fmt::Debug for Stage<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stage")
    }
}

/// The queue of a model's only worker: what the runtime's is for an actor's job.
struct Queue {
    woken: AtomicU32,
}

impl Wake for Queue {
    fn wake(self: StdArc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &StdArc<Self>) {
        // ORDERING: Relaxed: the actor takes nothing over from its waker, though the runtime's orders more.
        self.woken.swap(1, Ordering::Relaxed);
        park::wake_one(&raw const self.woken);
    }
}

/// Takes turns until the last one, each when the actor was woken. A lost wake is a deadlock.
pub fn live<A: Actor>(mut stage: Stage<A>) {
    let queue = StdArc::new(Queue { woken: AtomicU32::new(0) });
    let waker = Waker::from(StdArc::clone(&queue));
    while !stage.turn(&waker) {
        // ORDERING: Relaxed: as in `wake_by_ref`.
        while queue.woken.swap(0, Ordering::Relaxed) == 0 {
            match park::wait(&queue.woken, 0, None) {
                Wait::Woken | Wait::Changed | Wait::TimedOut => {}
            }
        }
    }
}

/// The control lane of an actor, without a reference.
pub struct Lane<M>(Arc<Core<M>>);

impl<M: Send + 'static> Lane<M> {
    pub fn of(actor: &ActorRef<M>) -> Self {
        Self(Arc::clone(actor.core()))
    }

    pub fn own(&self, message: M) {
        self.0.control(Entry::Own(message));
    }
}

impl<M> fmt::Debug for Lane<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lane")
    }
}

/// The actor comes to the address, as a child does when it has started.
pub fn come<M: Send + 'static>(address: &Address<M>, actor: &ActorRef<M>) {
    address.come(actor.clone());
}

/// A question with a time limit; the model is the clock.
pub fn timed_question() -> (Reply<u32>, Limit, Eventual<u32, AskError>) {
    let (writer, answer) = promise();
    let (reply, race) = Reply::for_model(writer);
    (reply, Limit(race), answer)
}

/// The time limit of a question.
pub struct Limit(Arc<super::actor::Race<u32>>);

impl Limit {
    pub fn is_up(&self) {
        self.0.time_out();
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Limit")
    }
}

// --- supervisors -----------------------------------------------------------------------------------

/// What a supervisor does with the model's child.
pub trait Puppet: Send + Sync + 'static {
    /// Incarnation `n` is started; it lives until it [ends](Strings::end).
    fn start(&self, n: u64, strings: Strings);
    /// It is told to stop.
    fn stop(&self, n: u64);
}

/// By these the model's child tells its supervisor.
#[derive(Clone)]
pub struct Strings(tree::Strings);

impl Strings {
    pub fn ready(&self) {
        self.0.ready();
    }

    pub fn end(&self, fails: bool) {
        self.0.end(fails);
    }
}

impl fmt::Debug for Strings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Strings")
    }
}

/// A supervisor with one child, which may be started again twice.
pub fn supervisor(puppet: impl Puppet) -> (Stage<impl Actor>, Chief) {
    let puppet: StdArc<dyn Puppet> = StdArc::new(puppet);
    let chief = tree::chief(puppet);
    let (stage, first) = stage(chief, 1);
    (stage, Chief(StdMutex::new(Some(Box::new(move || first.core().order(Order::Stop))))))
}

/// The way to stop a model's supervisor. (Dropping it is one, too.)
pub struct Chief(StdMutex<Option<Box<dyn FnOnce() + Send>>>);

impl Chief {
    pub fn stop(&self) {
        let stop = self.0.lock().ok().and_then(|mut stop| stop.take());
        if let Some(stop) = stop {
            stop();
        }
    }
}

impl fmt::Debug for Chief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chief")
    }
}

pub(super) fn strings(strings: tree::Strings) -> Strings {
    Strings(strings)
}

pub(super) fn nowhere() -> Weak<crate::runtime::Shared> {
    Weak::new()
}

pub use super::tree::StopToken;

pub fn token() -> StopToken {
    StopToken::new()
}

pub fn tell_to_stop(token: &StopToken) {
    token.stop();
}
