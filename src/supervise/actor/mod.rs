//! Actors: state that one message at a time may touch.
//!
//! An [`Actor`] lives on the runtime's workers, never on two at once, and has a mailbox. It takes no
//! thread while that is empty. [`actor`] starts one by itself; as a child of a
//! [supervisor](crate::supervise) it is started again when it fails.
//!
//! # The word
//!
//! Everything that senders and the actor agree on is one 64-bit word: the position of the next message
//! (56 bits) above these flags and the phase.
//!
//! ```text
//! | phase     | meaning                              | who may leave it           |
//! |-----------|--------------------------------------|----------------------------|
//! | Idle      | nothing to do; no job entry, no turn | whoever brings something   |
//! | Scheduled | the actor's job was woken            | the turn that follows      |
//! | Running   | a worker is inside                   | that turn                  |
//! | Stopping  | no more messages; being cleared up   | the last turn              |
//! | Stopped   | over                                 | nobody (final)             |
//!
//! | flag    | says                                                  | set by                        | cleared by |
//! |---------|-------------------------------------------------------|-------------------------------|------------|
//! | SIGNAL  | look at the control lane, the orders, the references  | `control`, `order`, last drop | `take_flags` |
//! | WAITERS | look at the list of senders that wait for room        | a sender that waits           | `take_flags` |
//!
//!   claim, signal            begin               close            end
//!  Idle ────────────► Scheduled ────► Running ────────► Stopping ────► Stopped
//!    ▲                    ▲              │ │
//!    │                    └─── again ────┘ │
//!    └──────────────── rest ───────────────┘
//! ```
//!
//! - **A1** A message is sent by one exchange of the word, which claims its place, and one store, which
//!   stamps its slot. The exchange that finds Idle makes it Scheduled, and its owner wakes the actor: there is
//!   no second word to look at, so nothing to fence.
//! - **A2** An actor rests only by an exchange that finds no flag and no place claimed beyond its head. So it
//!   never sleeps over a message, a signal, or a sender that waits.
//! - **A3** After `close` no place is claimed. Every one that was is written, and goes to `undelivered`.
//! - **A4** An entry on the control lane comes before its signal. If that finds Stopped, who brought it takes
//!   it off again; else the `end` comes after, and takes it off.
//!
//! | edge | Release in | Acquire in | makes visible |
//! |---|---|---|---|
//! | free → full | `Ring::push` | `Ring::pop` | the message |
//! | full → free | `Ring::pop` | `Ring::push` | that it was moved out |
//! | Running → Idle | `rest` | `claim`, `signal` | the waker |
//! | + SIGNAL | `signal` | `take_flags`, `close`, `end` | the entry, the order, the count |
//! | + WAITERS | `announce_waiter` | `take_flags`, `close` | that somebody is in the list |
//! | room made | `rest` | `announce_waiter` | the slots that are free now |
//! | ordered | `order` | `orders` | what came before the order |
//! | last reference | `one_reference_less` | `is_forsaken` | what was sent through it |
//! | → Stopped | `end` | `is_over` | what the actor did and dropped |
//!
//! # Who runs what
//!
//! | call | thread |
//! |---|---|
//! | `started`, `handle`, `stopping`, `stopped`, `undelivered`, the drop | a worker; if the runtime shuts down, or the actor was taken for stuck, whoever drops its job |
//! | a watcher's callback, what waits for an answer | whoever ends the actor, or answers |
//! | time limits of questions | the thread of the runtime's timers |
//!
//! # Left out
//!
//! Handlers are plain functions: there are no asynchronous ones. An actor that has to wait for something
//! has its outcome come as a message ([`Ctx::pipe`]), and handles others meanwhile. There is no mailbox
//! without a bound, and no actor on another machine.

mod ask;
mod context;
pub(crate) mod core;
mod error;
mod exit;
pub(crate) mod living;
mod mailbox;
mod reference;
mod registry;
mod room;
mod sending;
pub(crate) mod spawn;
mod watch;
mod word;

use ::core::fmt;

#[cfg(any(tenure_loom, tenure_shuttle))]
pub(super) use ask::Race;
pub use ask::{AskError, Late, Reply};
pub use context::{Ctx, TimerId};
pub use error::{SpawnError, TellError, TryTellError};
pub use exit::{Down, Exit, ShutdownCause};
pub use reference::ActorRef;
pub use registry::{RegisterError, Registry};
pub use sending::Telling;
pub use spawn::Spawn;
pub use word::Phase;

use crate::runtime::BoxError;
use crate::sync::atomic::{AtomicU64, Ordering};

/// What a handler returns: an error ends the actor, as [`Exit::Failed`].
pub type Handled = Result<(), BoxError>;

/// Something that handles messages, one at a time.
///
/// A panic in any method, and an error from [`started`](Self::started) or [`handle`](Self::handle), is the
/// actor's end: its watchers, and so its supervisor, hear why. All methods run on a worker of the runtime; one
/// that blocks for long should say so ([`runtime::blocking`](crate::runtime::blocking)).
///
/// Up to 64 messages are handled in a row before other actors and jobs have their turn.
pub trait Actor: Send + 'static {
    /// What it is sent.
    type Message: Send + 'static;

    /// Called once, before the first message.
    ///
    /// # Errors
    /// One that fails, or panics, was never there: [`stopped`](Self::stopped) is not called. A supervisor
    /// takes it for a failed start.
    fn started(&mut self, ctx: &mut Ctx<Self::Message>) -> Handled {
        let _ = ctx;
        Ok(())
    }

    /// Called for each message.
    ///
    /// # Errors
    /// The actor ends with [`Exit::Failed`].
    fn handle(&mut self, message: Self::Message, ctx: &mut Ctx<Self::Message>) -> Handled;

    /// Called when the actor is told to stop, by [`ActorRef::stop`] or its supervisor, with the exit that it
    /// will have. By answering [`Stopping::Later`] it goes on, with messages too, until it calls
    /// [`Ctx::stop`] (its exit is then the one it chooses), or is told something stronger.
    fn stopping(&mut self, exit: &Exit, ctx: &mut Ctx<Self::Message>) -> Stopping {
        let _ = (exit, ctx);
        Stopping::Now
    }

    /// Called last, if the actor had started, whatever its end: also after a panic in
    /// [`handle`](Self::handle), which may have left it half changed. Not if it was
    /// [killed](ActorRef::kill).
    fn stopped(&mut self, exit: &Exit) {
        let _ = exit;
    }

    /// Called after [`stopped`](Self::stopped) for each message that was not handled, in their order.
    /// Whatever this does, they are counted in [`Down::undelivered`]. Defaults to dropping it.
    fn undelivered(&mut self, message: Self::Message) {
        drop(message);
    }
}

/// What an actor says when it is told to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stopping {
    /// It stops. Messages that wait are returned to [`Actor::undelivered`].
    #[default]
    Now,
    /// It stops later, by [`Ctx::stop`].
    Later,
}

/// Which actor: no two in a process have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorId(u64);

impl ActorId {
    pub(crate) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::const_new(0);
        // ORDERING: Relaxed: only that no two are the same.
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Settings for an actor to be started by itself, without a supervisor.
///
/// ```
/// use tenure::supervise::{self, Actor, Ctx};
///
/// struct Printer;
/// impl Actor for Printer {
///     type Message = &'static str;
///     fn handle(&mut self, said: &'static str, _: &mut Ctx<&'static str>) -> supervise::Handled {
///         println!("{said}");
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = tenure::Runtime::builder().workers(1).build()?;
/// let printer = supervise::actor(Printer).capacity(16).spawn(&runtime)?;
/// printer.tell("hello")?;
/// let end = printer.watch();
/// drop(printer);
/// assert!(!end.get()?.exit.is_abnormal());
/// # Ok(())
/// # }
/// ```
pub fn actor<A: Actor>(actor: A) -> Spawn<A> {
    Spawn::new(actor)
}
