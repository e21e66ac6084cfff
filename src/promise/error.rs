//! What a reader may get instead of a value, and what a writer gets back.

use core::any::Any;
use core::fmt;
use std::error::Error;

/// Why an [`Eventual`](super::Eventual) has no value.
///
/// `E` is the writer's own error; everything else says what happened to the promise itself.
#[derive(Debug, thiserror::Error)]
pub enum EventualError<E> {
    /// The writer set this error.
    #[error("{0}")]
    Failed(#[source] E),
    /// The promise was dropped without a result. Nobody will ever set one.
    #[error("the promise was dropped without a result")]
    Broken,
    /// The work was given up because a reader asked for it.
    #[error("cancelled")]
    Cancelled,
    /// The time was up. A timed `get` leaves the eventual usable: ask again.
    #[error("timed out")]
    TimedOut,
    /// The executor that should have run a callback refused it or threw it away.
    #[error("the executor did not run the work")]
    Rejected,
    /// A callback panicked; this is what it panicked with.
    #[error("panicked: {0}")]
    Panicked(PanicPayload),
    /// The result was taken before: an eventual gives it once.
    #[error("the result was taken before")]
    Taken,
}

impl<E> EventualError<E> {
    /// Turns the writer's error into another; leaves everything else as it is.
    pub fn map_failed<F>(self, f: impl FnOnce(E) -> F) -> EventualError<F> {
        match self {
            Self::Failed(error) => EventualError::Failed(f(error)),
            Self::Broken => EventualError::Broken,
            Self::Cancelled => EventualError::Cancelled,
            Self::TimedOut => EventualError::TimedOut,
            Self::Rejected => EventualError::Rejected,
            Self::Panicked(payload) => EventualError::Panicked(payload),
            Self::Taken => EventualError::Taken,
        }
    }

    /// The writer's error, if that is what it is.
    pub fn failed(self) -> Option<E> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Broken
            | Self::Cancelled
            | Self::TimedOut
            | Self::Rejected
            | Self::Panicked(_)
            | Self::Taken => None,
        }
    }
}

/// What a panic carried, kept whole.
pub struct PanicPayload(Box<dyn Any + Send>);

// SAFETY: through a shared reference the payload can only be asked whether it is a `&str` or a
// `String` (`message`), which are `Sync`; everything else takes it by value.
unsafe impl Sync for PanicPayload {}

impl PanicPayload {
    /// Keeps what `catch_unwind` or a thread's `join` gave.
    #[must_use]
    pub fn new(payload: Box<dyn Any + Send>) -> Self {
        Self(payload)
    }

    /// The panic's message, if it was a string (what `panic!` makes).
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        match self.0.downcast_ref::<&'static str>() {
            Some(message) => Some(message),
            None => self.0.downcast_ref::<String>().map(String::as_str),
        }
    }

    /// The payload, to look at or to hand to another `catch_unwind`.
    #[must_use]
    pub fn into_inner(self) -> Box<dyn Any + Send> {
        self.0
    }

    /// Goes on panicking with it, here.
    pub fn resume(self) -> ! {
        std::panic::resume_unwind(self.0)
    }
}

impl fmt::Debug for PanicPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PanicPayload").field(&self.message().unwrap_or("not a string")).finish()
    }
}

impl fmt::Display for PanicPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message().unwrap_or("with something that is not a string"))
    }
}

/// Nobody can receive this any more: every reader is gone. Holds what was to be set.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SetError<T>(T);

impl<T> SetError<T> {
    pub(super) fn new(back: T) -> Self {
        Self(back)
    }

    /// What was to be set.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for SetError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SetError(..)")
    }
}

impl<T> fmt::Display for SetError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody is left to receive the result")
    }
}

impl<T> Error for SetError<T> {}
