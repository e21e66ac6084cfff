//! The payload: what the phase says lies there.

use core::mem::ManuallyDrop;

use super::super::error::EventualError;
use super::super::state::Last;
use super::{CorePtr, Outcome, Payload};

impl<T, E> CorePtr<T, E> {
    #[inline]
    pub(super) unsafe fn with_payload<R>(self, f: impl FnOnce(*mut Payload<T, E>) -> R) -> R {
        // SAFETY: the caller's promise; only the cell is borrowed.
        unsafe { &(*self.0.as_ptr()).payload }.with_mut(|at| f(at.cast()))
    }

    /// # Safety
    ///
    /// Only by the writer before a phase is set, or by the sole owner of an empty payload.
    #[inline]
    pub(crate) unsafe fn write_value(self, value: T) {
        // SAFETY: the caller's promise.
        unsafe { self.with_payload(|at| at.write(Payload { value: ManuallyDrop::new(value) })) };
    }

    /// # Safety
    ///
    /// As `write_value`. Settle with `Last::of(&outcome)`, taken before.
    #[inline(always)]
    pub(crate) unsafe fn write_outcome(self, outcome: Outcome<T, E>) {
        let payload = match outcome {
            Ok(value) => Payload { value: ManuallyDrop::new(value) },
            Err(EventualError::Failed(error)) => Payload { error: ManuallyDrop::new(error) },
            Err(EventualError::Panicked(panic)) => Payload { panic: ManuallyDrop::new(panic) },
            Err(
                EventualError::Broken
                | EventualError::Cancelled
                | EventualError::TimedOut
                | EventualError::Rejected
                | EventualError::Taken,
            ) => return,
        };
        // SAFETY: the caller's promise.
        unsafe { self.with_payload(|at| at.write(payload)) };
    }

    /// Moves the outcome out, and does `then` when the payload has been read. (Not the other way
    /// round, and not in two calls: the value stays in registers like this.)
    ///
    /// # Safety
    ///
    /// The payload is full as `last` says and the caller's to take: the reader that saw the phase
    /// with Acquire, the sole owner, or the writer that was refused. Once. `then` does not unwind.
    #[inline(always)]
    pub(crate) unsafe fn take_outcome(self, last: Last, then: impl FnOnce()) -> Outcome<T, E> {
        // SAFETY: the caller's promise: `last` says which variant was written.
        unsafe {
            match last {
                Last::Value => {
                    let value = self.with_payload(|at| ManuallyDrop::take(&mut (*at).value));
                    then();
                    Ok(value)
                }
                Last::Failed => {
                    let error = self.with_payload(|at| ManuallyDrop::take(&mut (*at).error));
                    then();
                    Err(EventualError::Failed(error))
                }
                Last::Panicked => {
                    let panic = self.with_payload(|at| ManuallyDrop::take(&mut (*at).panic));
                    then();
                    Err(EventualError::Panicked(panic))
                }
                Last::Broken => {
                    then();
                    Err(EventualError::Broken)
                }
                Last::Cancelled => {
                    then();
                    Err(EventualError::Cancelled)
                }
                Last::Rejected => {
                    then();
                    Err(EventualError::Rejected)
                }
                Last::TimedOut => {
                    then();
                    Err(EventualError::TimedOut)
                }
                Last::Taken => {
                    then();
                    Err(EventualError::Taken)
                }
            }
        }
    }

    /// Moves the value out.
    ///
    /// # Safety
    ///
    /// As `take_outcome`, of a `Last::Value`.
    #[inline(always)]
    pub(crate) unsafe fn take_value(self) -> T {
        // SAFETY: the caller's promise.
        unsafe { self.with_payload(|at| ManuallyDrop::take(&mut (*at).value)) }
    }

    /// Moves the value out, and frees the core.
    ///
    /// # Safety
    ///
    /// As `take_outcome`, of a `Last::Value`, by the sole owner, who gives the core up.
    #[inline(always)]
    pub(crate) unsafe fn take_value_alone(self) -> T {
        // SAFETY: the caller's promise.
        unsafe {
            let value = self.take_value();
            self.free();
            value
        }
    }

    /// Moves the outcome out of a core that is complete and the caller's alone, and frees it.
    ///
    /// # Safety
    ///
    /// The caller is the sole owner and gives the core up; the slot is empty.
    #[inline(always)]
    pub(crate) unsafe fn take_alone(self) -> Outcome<T, E> {
        // SAFETY: sole owner.
        unsafe {
            // Always complete: only complete cores run.
            let last = self.state().peek().last().unwrap_or(Last::Broken);
            self.take_outcome(last, || self.free())
        }
    }
}

impl Last {
    #[inline(always)]
    pub(crate) fn of<T, E>(outcome: &Outcome<T, E>) -> Self {
        match outcome {
            Ok(_) => Self::Value,
            Err(EventualError::Failed(_)) => Self::Failed,
            Err(EventualError::Broken) => Self::Broken,
            Err(EventualError::Cancelled) => Self::Cancelled,
            Err(EventualError::TimedOut) => Self::TimedOut,
            Err(EventualError::Rejected) => Self::Rejected,
            Err(EventualError::Panicked(_)) => Self::Panicked,
            Err(EventualError::Taken) => Self::Taken,
        }
    }
}
