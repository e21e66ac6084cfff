//! `SharedPromise`: many writers, of whom the first wins.

use core::fmt;

use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::cell::UnsafeCell;

use super::cancel::NodeRef;
use super::error::{EventualError, SetError};
use super::writer::Promise;

/// A [`Promise`] that any number of writers hold: the first to set wins, every other gets its value
/// back.
///
/// Made from a promise by [`From`]. When the last clone is dropped and nobody has set, it is broken.
///
/// # Examples
///
/// ```
/// use tenure::promise::{SharedPromise, promise};
///
/// let (writer, eventual) = promise::<u32, ()>();
/// let first = SharedPromise::from(writer);
/// let second = first.clone();
/// first.try_set(1)?;
/// assert_eq!(second.try_set(2).map_err(|back| back.into_inner()), Err(2));
/// assert_eq!(eventual.get().ok(), Some(1));
/// # Ok::<(), tenure::promise::SetError<u32>>(())
/// ```
pub struct SharedPromise<T, E> {
    race: Arc<Race<T, E>>,
}

struct Race<T, E> {
    claimed: AtomicBool,
    /// Full until the claim is won; then the winner's to take.
    promise: UnsafeCell<Option<Promise<T, E>>>,
    node: NodeRef,
}

// SAFETY: the promise's cell is touched by the one winner of the claim, or by the last to drop.
unsafe impl<T: Send, E: Send> Sync for Race<T, E> {}
// SAFETY: a promise of these is `Send`.
unsafe impl<T: Send, E: Send> Send for Race<T, E> {}

impl<T, E> From<Promise<T, E>> for SharedPromise<T, E> {
    fn from(mut promise: Promise<T, E>) -> Self {
        let node = promise.cancel_node();
        let promise = UnsafeCell::new(Some(promise));
        Self { race: Arc::new(Race { claimed: AtomicBool::new(false), promise, node }) }
    }
}

impl<T, E> SharedPromise<T, E> {
    /// The same, for a promise that has its hook.
    pub(super) fn from_hooked(promise: Promise<T, E>) -> Self {
        Self::from(promise)
    }

    fn claim(&self) -> Option<Promise<T, E>> {
        // ORDERING: AcqRel: one winner; a loser sees what the winner did before it claimed.
        if self.race.claimed.swap(true, Ordering::AcqRel) {
            return None;
        }
        // SAFETY: we won: nobody else touches the cell.
        self.race.promise.with_mut(|cell| unsafe { (*cell).take() })
    }

    /// Sets the value, if nobody has set anything yet.
    ///
    /// # Errors
    ///
    /// [`SetError`] gives the value back when another was first, or when no reader is left.
    pub fn try_set(&self, value: T) -> Result<(), SetError<T>> {
        match self.claim() {
            Some(promise) => promise.set(value),
            None => Err(SetError::new(value)),
        }
    }

    /// Sets the error, if nobody has set anything yet.
    ///
    /// # Errors
    ///
    /// As [`try_set`](SharedPromise::try_set).
    pub fn try_set_error(&self, error: E) -> Result<(), SetError<E>> {
        match self.claim() {
            Some(promise) => promise.set_error(error),
            None => Err(SetError::new(error)),
        }
    }

    /// Sets the value or the error, if nobody has set anything yet.
    ///
    /// # Errors
    ///
    /// As [`try_set`](SharedPromise::try_set).
    pub fn try_complete(&self, result: Result<T, E>) -> Result<(), SetError<Result<T, E>>> {
        match self.claim() {
            Some(promise) => promise.complete(result),
            None => Err(SetError::new(result)),
        }
    }

    /// Settles with any outcome, if nobody has; says whether it did.
    pub(super) fn try_settle(&self, outcome: Result<T, EventualError<E>>) -> bool {
        self.claim().is_some_and(|promise| promise.settle(outcome).is_none())
    }

    /// Whether a writer has won. Its result may still be on the way.
    pub fn is_claimed(&self) -> bool {
        // ORDERING: Acquire pairs with the winner's swap.
        self.race.claimed.load(Ordering::Acquire)
    }

    /// Whether a reader asked for cancellation, or left.
    pub fn is_cancelled(&self) -> bool {
        self.race.node.is_cancelled()
    }
}

impl<T, E> Clone for SharedPromise<T, E> {
    fn clone(&self) -> Self {
        Self { race: Arc::clone(&self.race) }
    }
}

impl<T, E> fmt::Debug for SharedPromise<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPromise")
            .field("is_claimed", &self.is_claimed())
            .field("is_cancelled", &self.is_cancelled())
            .finish()
    }
}
