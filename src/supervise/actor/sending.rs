//! Waiting for room in a mailbox: asynchronously, and by blocking.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc as StdArc;
use std::task::Wake;
use std::time::Instant;

use super::core::Core;
use super::error::TellError;
use super::mailbox::Refusal;
use super::room::Ticket;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Wait, park};

/// A message on its way into a mailbox that may be full. See
/// [`ActorRef::tell_async`](super::ActorRef::tell_async).
#[must_use = "a future does nothing unless it is polled"]
pub struct Telling<'a, M: Send + 'static> {
    core: &'a Arc<Core<M>>,
    message: Option<M>,
    ticket: Option<Ticket>,
}

impl<'a, M: Send + 'static> Telling<'a, M> {
    pub(super) fn new(core: &'a Arc<Core<M>>, message: M) -> Self {
        Self { core, message: Some(message), ticket: None }
    }

    /// Leaves the list; passes a wake on that was for us.
    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take()
            && !self.core.room.leave(ticket)
        {
            self.core.room.wake(1);
        }
    }

    /// `None`: full.
    fn attempt(&mut self) -> Option<Result<(), TellError<M>>> {
        let message = self.message.take()?;
        match self.core.push(message) {
            Ok(()) => Some(Ok(())),
            Err((Refusal::Closed, message)) => Some(Err(TellError::Stopped(message))),
            Err((Refusal::Full, message)) => {
                self.message = Some(message);
                None
            }
        }
    }
}

impl<M: Send + 'static> Future for Telling<'_, M> {
    type Output = Result<(), TellError<M>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(done) = this.attempt() {
            this.leave();
            return Poll::Ready(done);
        }
        // A waker's clone is foreign: before anything is changed.
        let waker = cx.waker().clone();
        if let Some(ticket) = this.ticket.take() {
            this.core.room.leave(ticket);
        }
        this.ticket = Some(this.core.room.enter(waker));
        let _ = this.core.announce_waiter();
        match this.attempt() {
            Some(done) => {
                this.leave();
                Poll::Ready(done)
            }
            None => Poll::Pending,
        }
    }
}

// It pins nothing.
impl<M: Send + 'static> Unpin for Telling<'_, M> {}

impl<M: Send + 'static> Drop for Telling<'_, M> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<M: Send + 'static> fmt::Debug for Telling<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telling").field("is_waiting", &self.ticket.is_some()).finish()
    }
}

/// A waker that wakes a blocked thread.
pub(super) struct Alarm {
    rung: AtomicU32,
}

impl Alarm {
    pub(super) fn new() -> Self {
        Self { rung: AtomicU32::new(0) }
    }

    /// Before it is put on a list.
    pub(super) fn reset(&self) {
        // ORDERING: Relaxed: it is on no list. A ring for the place that it had before may come late, and
        // costs one look.
        self.rung.store(0, Ordering::Relaxed);
    }

    /// Sleeps until it is rung, or for so long.
    pub(super) fn wait(&self, limit: Option<Duration>) {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        // ORDERING: Relaxed: what the sender goes on with is ordered by the list's lock and the actor's word.
        while self.rung.load(Ordering::Relaxed) == 0 {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return;
            }
            match park::wait(&self.rung, 0, left) {
                Wait::TimedOut => return,
                Wait::Woken | Wait::Changed => {}
            }
        }
    }
}

impl Wake for Alarm {
    fn wake(self: StdArc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &StdArc<Self>) {
        // ORDERING: Relaxed: as in `wait`.
        self.rung.store(1, Ordering::Relaxed);
        park::wake_one(&raw const self.rung);
    }
}
