//! A question to an actor, and its answer.

use core::fmt;

use thiserror::Error as ThisError;

use crate::promise::{EventualError, Promise, SetError};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::cell::UnsafeCell;
use crate::timer::TimerHandle;

/// Why a question did not reach the actor. Everything that happens later is told by the
/// [`EventualError`] around it: no answer in time is [`TimedOut`](EventualError::TimedOut), a dropped
/// [`Reply`] is [`Broken`](EventualError::Broken).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum AskError {
    /// Its mailbox is full.
    #[error("the actor's mailbox is full")]
    Full,
    /// It takes no more messages.
    #[error("the actor has stopped")]
    Stopped,
}

/// The answering end of an [`ask`](super::ActorRef::ask): goes into the message, and is used once.
///
/// Dropping it unused breaks the question: whoever asked gets
/// [`Broken`](EventualError::Broken). So does an actor that ends with the question in its mailbox.
#[must_use = "a reply that is dropped breaks the question"]
pub struct Reply<T> {
    end: End<T>,
}

enum End<T> {
    Untimed(Promise<T, AskError>),
    Timed(Arc<Race<T>>, Option<TimerHandle>),
    Used,
}

/// A promise that the answer and the time limit race for.
pub(crate) struct Race<T> {
    claimed: AtomicBool,
    promise: UnsafeCell<Option<Promise<T, AskError>>>,
}

// SAFETY: the promise's cell is touched by the one winner of the claim, or by the last to drop.
unsafe impl<T: Send> Sync for Race<T> {}
// SAFETY: a promise of these is `Send`.
unsafe impl<T: Send> Send for Race<T> {}

impl<T> Race<T> {
    pub(super) fn new(promise: Promise<T, AskError>) -> Self {
        Self { claimed: AtomicBool::new(false), promise: UnsafeCell::new(Some(promise)) }
    }

    fn claim(&self) -> Option<Promise<T, AskError>> {
        // ORDERING: Relaxed: one winner, by the exchange alone; what the promise holds was there before the
        // race was shared.
        if self.claimed.swap(true, Ordering::Relaxed) {
            return None;
        }
        // SAFETY: we won: nobody else touches the cell.
        self.promise.with_mut(|cell| unsafe { (*cell).take() })
    }

    /// The time is up.
    pub(crate) fn time_out(&self) {
        if let Some(promise) = self.claim() {
            let _ = promise.settle(Err(EventualError::TimedOut));
        }
    }

    fn is_claimed(&self) -> bool {
        // ORDERING: Relaxed: an answer that may be out of date when it is read.
        self.claimed.load(Ordering::Relaxed)
    }
}

impl<T> Reply<T> {
    pub(super) fn untimed(promise: Promise<T, AskError>) -> Self {
        Self { end: End::Untimed(promise) }
    }

    pub(super) fn timed(race: Arc<Race<T>>, timer: Option<TimerHandle>) -> Self {
        Self { end: End::Timed(race, timer) }
    }

    #[cfg(any(tenure_loom, tenure_shuttle))]
    pub(crate) fn for_model(promise: Promise<T, AskError>) -> (Self, Arc<Race<T>>) {
        let race = Arc::new(Race::new(promise));
        (Self::timed(Arc::clone(&race), None), race)
    }

    /// Answers. What waits for the answer (a callback, a waker) runs in here, on this thread.
    ///
    /// # Errors
    /// [`Late`] gives the answer back if nobody waits for it any more: the time was up, or the question was
    /// dropped. Ignoring that is right unless the answer has to go somewhere.
    pub fn send(mut self, value: T) -> Result<(), Late<T>> {
        match core::mem::replace(&mut self.end, End::Used) {
            End::Untimed(promise) => {
                promise.set(value).map_err(|back| Late(SetError::into_inner(back)))
            }
            End::Timed(race, timer) => match race.claim() {
                Some(promise) => {
                    cancel(timer);
                    promise.set(value).map_err(|back| Late(back.into_inner()))
                }
                None => Err(Late(value)),
            },
            End::Used => Err(Late(value)),
        }
    }

    /// Whether somebody still seems to wait for the answer.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        match &self.end {
            End::Untimed(promise) => !promise.is_cancelled(),
            End::Timed(race, _) => !race.is_claimed(),
            End::Used => false,
        }
    }
}

fn cancel(timer: Option<TimerHandle>) {
    if let Some(timer) = timer {
        timer.cancel();
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let End::Timed(race, timer) = core::mem::replace(&mut self.end, End::Used)
            && let Some(promise) = race.claim()
        {
            cancel(timer);
            drop(promise);
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("is_wanted", &self.is_wanted()).finish()
    }
}

/// An answer that nobody waits for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[error("nobody waits for the answer any more")]
pub struct Late<T>(pub T);
