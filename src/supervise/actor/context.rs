//! What an actor may do from inside.

use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc as StdArc;

use super::ActorId;
use super::core::{Core, Entry};
use super::exit::{Down, Exit};
use super::reference::ActorRef;
use super::watch::Hears;
use crate::clock::{Clock, Timestamp};
use crate::promise::{Eventual, EventualError};
use crate::sync::Arc;
use crate::timer::TimerHandle;

/// One of an actor's own timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId(u64);

struct Timer<M> {
    /// `None` if the timers are shut down: it never comes.
    handle: Option<TimerHandle>,
    what: What<M>,
}

enum What<M> {
    Once(M),
    Every { period: Duration, due: Timestamp, make: Box<dyn FnMut() -> M + Send> },
}

/// Handed to an actor's methods: itself, its timers, its end.
///
/// Everything here goes through the control lane: it is never refused, takes no room in the mailbox, and
/// comes before the messages that wait there.
pub struct Ctx<M: Send + 'static> {
    core: Arc<Core<M>>,
    timers: HashMap<u64, Timer<M>>,
    next_timer: u64,
    end: Option<Exit>,
}

impl<M: Send + 'static> Ctx<M> {
    pub(super) fn new(core: Arc<Core<M>>) -> Self {
        Self { core, timers: HashMap::new(), next_timer: 0, end: None }
    }

    /// The actor.
    #[must_use]
    pub fn id(&self) -> ActorId {
        self.core.id
    }

    /// Its name, if it was given one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.core.name.as_deref()
    }

    /// A reference to the actor itself. One that it keeps keeps it alive: see
    /// [`ActorRef`](ActorRef#how-it-ends).
    #[must_use]
    pub fn me(&self) -> ActorRef<M> {
        ActorRef::another(&self.core)
    }

    /// Has the actor end normally after this call. Messages that wait go to
    /// [`undelivered`](super::Actor::undelivered).
    pub fn stop(&mut self) {
        self.end_with(Exit::Normal);
    }

    /// Has the actor end after this call, as if it had returned the error.
    pub fn fail(&mut self, error: impl Into<crate::runtime::BoxError>) {
        self.end_with(Exit::failed(error));
    }

    /// The first one counts.
    pub(crate) fn end_with(&mut self, exit: Exit) {
        self.end.get_or_insert(exit);
    }

    pub(super) fn take_end(&mut self) -> Option<Exit> {
        self.end.take()
    }

    pub(crate) fn core(&self) -> &Arc<Core<M>> {
        &self.core
    }

    /// The time now, on the runtime's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.core.timers.as_ref().map_or(Timestamp::ORIGIN, |timers| timers.clock().now())
    }

    /// Sends the actor `message` after `delay`, on the runtime's clock. [`Duration::MAX`] is never; zero is
    /// as soon as this call is over. Ends with the actor.
    pub fn send_after(&mut self, delay: Duration, message: M) -> TimerId {
        let due = self.now().saturating_add(delay);
        self.add(due, What::Once(message))
    }

    /// The same at a moment.
    pub(crate) fn send_at(&mut self, due: Timestamp, message: M) -> TimerId {
        self.add(due, What::Once(message))
    }

    /// Sends the actor what `make` makes, every `period`, the first time one period from now. A beat that
    /// falls due while the last one has not been handled is left out; those that follow keep their times. A
    /// period of zero is one beat after another. Ends with the actor.
    pub fn send_interval(
        &mut self,
        period: Duration,
        make: impl FnMut() -> M + Send + 'static,
    ) -> TimerId {
        let due = self.now().saturating_add(period);
        self.add(due, What::Every { period, due, make: Box::new(make) })
    }

    /// Takes a timer back: its message does not come any more, also if it was due. False: there is none of
    /// this number; it has come.
    pub fn cancel_timer(&mut self, timer: TimerId) -> bool {
        let Some(timer) = self.timers.remove(&timer.0) else { return false };
        if let Some(handle) = &timer.handle {
            handle.cancel();
        }
        // The message is foreign, and its drop may panic: like one in the handler that called this.
        true
    }

    fn add(&mut self, due: Timestamp, what: What<M>) -> TimerId {
        let id = self.next_timer;
        self.next_timer += 1;
        let handle = self.arm(id, due);
        self.timers.insert(id, Timer { handle, what });
        TimerId(id)
    }

    fn arm(&self, id: u64, due: Timestamp) -> Option<TimerHandle> {
        let core = Arc::clone(&self.core);
        let timers = self.core.timers.as_ref()?;
        timers.insert(due, move || core.control(Entry::Fired(id))).ok()
    }

    /// A timer has fired: its message. `None`: it was taken back.
    pub(super) fn fired(&mut self, id: u64) -> Option<M> {
        match self.timers.get_mut(&id)?.what {
            What::Once(_) => match self.timers.remove(&id)?.what {
                What::Once(message) => Some(message),
                What::Every { .. } => None,
            },
            What::Every { ref mut make, .. } => Some(make()),
        }
    }

    /// The message of this timer has been handled: the next beat, if it is one of several.
    pub(super) fn rearm(&mut self, id: u64) {
        let now = self.now();
        let Some(Timer { what: What::Every { period, due, .. }, .. }) = self.timers.get_mut(&id)
        else {
            return;
        };
        *due = next_beat(*due, *period, now);
        let due = *due;
        let handle = self.arm(id, due);
        if let Some(timer) = self.timers.get_mut(&id) {
            timer.handle = handle;
        }
    }

    /// Gives up all timers; their messages are dropped by the caller.
    pub(super) fn drop_timers(&mut self) -> impl Drop + use<M> {
        for timer in self.timers.values() {
            if let Some(handle) = &timer.handle {
                handle.cancel();
            }
        }
        Timers(core::mem::take(&mut self.timers))
    }

    /// Has the end of another actor come as a message, exactly once; at once if it is over already. Watching
    /// twice gives two. It does not keep either of them alive. `message` runs on whichever thread ends the
    /// other one, or on this one; not at all if this actor is over by then.
    pub fn watch<N: Send + 'static>(
        &self,
        other: &ActorRef<N>,
        message: impl FnOnce(Down) -> M + Send + 'static,
    ) {
        let watch = Watch { core: Arc::clone(&self.core), message };
        other.core().watchers.watch_for(Box::new(watch));
    }

    /// Has the outcome of an eventual come as a message: the way to use an [`ask`](ActorRef::ask), or a job,
    /// without blocking a worker. `message` runs on whichever thread completes it.
    pub fn pipe<T: Send + 'static, E: Send + 'static>(
        &self,
        eventual: Eventual<T, E>,
        message: impl FnOnce(Result<T, EventualError<E>>) -> M + Send + 'static,
    ) {
        let core = Arc::clone(&self.core);
        eventual.on_complete(move |outcome| core.control(Entry::Own(message(outcome))));
    }

    /// The runtime's clock.
    #[must_use]
    pub fn clock(&self) -> Option<StdArc<dyn Clock>> {
        self.core.timers.as_ref().map(|timers| StdArc::clone(timers.clock()))
    }
}

/// What an actor watches another one with.
struct Watch<M, F> {
    core: Arc<Core<M>>,
    message: F,
}

impl<M: Send, F: FnOnce(Down) -> M + Send> Hears for Watch<M, F> {
    fn is_gone(&self) -> bool {
        self.core.is_over()
    }

    fn hear(self: Box<Self>, down: Down) {
        if !self.is_gone() {
            self.core.control(Entry::Own((self.message)(down)));
        }
    }
}

/// Messages of timers that never came.
struct Timers<M>(HashMap<u64, Timer<M>>);

impl<M> Drop for Timers<M> {
    fn drop(&mut self) {
        for (_, timer) in self.0.drain() {
            crate::runtime::contained(move || drop(timer.what));
        }
    }
}

/// The first moment after `now` that lies whole periods after `due`.
fn next_beat(due: Timestamp, period: Duration, now: Timestamp) -> Timestamp {
    let next = due.saturating_add(period);
    if next > now {
        return next;
    }
    let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
    if period == 0 {
        return now;
    }
    let behind = now.as_nanos() - due.as_nanos();
    let whole = (behind / period).saturating_add(1);
    Timestamp::from_nanos(due.as_nanos().saturating_add(whole.saturating_mul(period)))
}

impl<M: Send + 'static> fmt::Debug for Ctx<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx")
            .field("id", &self.core.id)
            .field("name", &self.core.name)
            .field("timers", &self.timers.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_keep_their_times_and_leave_out_what_was_missed() {
        let at = Timestamp::from_nanos;
        let beat = |due, period, now| next_beat(at(due), Duration::from_nanos(period), at(now));
        assert_eq!(beat(100, 10, 101), at(110));
        assert_eq!(beat(100, 10, 110), at(120), "the one that is due now is this one's successor");
        assert_eq!(beat(100, 10, 135), at(140));
        assert_eq!(beat(100, 0, 135), at(135));
        assert_eq!(next_beat(at(5), Duration::MAX, at(7)), Timestamp::NEVER);
        assert_eq!(next_beat(at(5), Duration::from_nanos(1), at(u64::MAX - 1)), Timestamp::NEVER);
    }
}
