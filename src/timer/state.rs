//! The word of one timer: where it is, and who still holds its memory.

use core::fmt;

use crate::sync::atomic::{AtomicU32, Ordering};

// The phase, in the two low bits. Values in the order of a timer's life, so that a dump reads well.
const PHASE: u32 = 0b11;
/// On the intake stack; the driver has not seen it.
const INTAKE: u32 = 0;
/// In the driver's wheel.
const LINKED: u32 = 1;
/// The driver took the callback, to run it or (at shutdown) to drop it. Final.
const TAKEN: u32 = 2;
/// A handle took the callback, to drop it. Final.
const CANCELLED: u32 = 3;
// Who holds the memory. Whoever clears the second of the two frees it.
/// The handle exists.
const HANDLE: u32 = 1 << 2;
/// The driver's side holds it: it is on the stack, in the wheel, or being run.
const DRIVER: u32 = 1 << 3;

/// What the driver does with a timer that it found on the intake stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Link {
    /// It is the wheel's now.
    Linked,
    /// It was cancelled: let go of it.
    Cancelled,
}

/// What a handle does after it asked to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Cancel {
    /// The callback is the caller's. The timer is on the stack, where the driver will find it.
    Unseen,
    /// The callback is the caller's, and the timer must go onto the stack once more, so that the
    /// driver takes it out of the wheel.
    Unlink,
    /// Too late: somebody has the callback.
    TooLate,
}

/// Whether the caller was the last to hold the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Release {
    /// The other side still holds it: do not touch it again.
    Held,
    /// Free it.
    Free,
}

pub(super) struct StateCell(AtomicU32);

impl StateCell {
    /// A timer that is about to be pushed, with its handle.
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(INTAKE | HANDLE | DRIVER))
    }

    /// Driver only, once, for a timer fresh from the stack.
    pub(super) fn link(&self) -> Link {
        // A timer leaves INTAKE for LINKED here and for CANCELLED in `cancel`: bit 0 does both.
        // ORDERING: Release: the driver has read `next`; pairs with the Acquire in `cancel`, after
        // which the canceller writes it. A loser needs nothing: it touches no field but this word.
        let linked = self.advance(INTAKE, LINKED, Ordering::Release);
        if linked { Link::Linked } else { Link::Cancelled }
    }

    /// Driver only: takes the callback of a timer that it took out of the wheel. False if a handle
    /// has it; then the timer is, or soon will be, on the stack once more.
    #[must_use]
    pub(super) fn take(&self) -> bool {
        // ORDERING: Relaxed: the callback came with the push (Acquire in `Intake::take`).
        self.advance(LINKED, TAKEN, Ordering::Relaxed)
    }

    /// Any holder of the handle.
    pub(super) fn cancel(&self) -> Cancel {
        // ORDERING: Relaxed: a guess, which the compare-and-exchange checks.
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let found = match seen & PHASE {
                INTAKE => Cancel::Unseen,
                LINKED => Cancel::Unlink,
                _ => return Cancel::TooLate,
            };
            // ORDERING: Acquire: pairs with the Release in `link`: the driver has read `next`
            // before this thread writes it again. Relaxed where it fails: looked at anew.
            match self.0.compare_exchange(
                seen,
                seen | CANCELLED,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return found,
                Err(now) => seen = now,
            }
        }
    }

    /// Whether the callback is still to come.
    pub(super) fn is_pending(&self) -> bool {
        // ORDERING: Relaxed: an answer that may be out of date when it is read.
        matches!(self.0.load(Ordering::Relaxed) & PHASE, INTAKE | LINKED)
    }

    /// The handle goes.
    pub(super) fn release_handle(&self) -> Release {
        // ORDERING: Acquire: pairs with the Release in `release` of a driver that is through: then the
        // word is this side's alone.
        if self.0.load(Ordering::Acquire) & DRIVER == 0 {
            return Release::Free;
        }
        self.release(HANDLE, DRIVER)
    }

    /// The handle took the timer back before the driver saw it, so the driver's hold is gone.
    pub(super) fn withdrawn(&self) {
        // ORDERING: Relaxed: nobody else writes: the driver never sees it, and other cancels are too
        // late. The handle's other borrowers only look.
        let word = self.0.load(Ordering::Relaxed);
        self.0.store(word & !DRIVER, Ordering::Relaxed);
    }

    /// The driver's side goes.
    pub(super) fn release_driver(&self) -> Release {
        self.release(DRIVER, HANDLE)
    }

    fn release(&self, mine: u32, theirs: u32) -> Release {
        // ORDERING: AcqRel: Release, all that this side did to the timer is done; Acquire, so is
        // all that the other side did, if it went first. Both calls are each other's other end.
        let before = self.0.fetch_and(!mine, Ordering::AcqRel);
        if before & theirs == 0 { Release::Free } else { Release::Held }
    }

    /// Moves from one phase to another, whatever the holders' bits. Fails if the phase is another.
    fn advance(&self, from: u32, to: u32, order: Ordering) -> bool {
        // ORDERING: Relaxed: a guess, which the compare-and-exchange checks.
        let mut seen = self.0.load(Ordering::Relaxed);
        while seen & PHASE == from {
            // ORDERING: on success the caller's; Relaxed where it fails: looked at anew.
            match self.0.compare_exchange(seen, seen & !PHASE | to, order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }
}

impl fmt::Debug for StateCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ORDERING: Relaxed: for the eye only.
        let word = self.0.load(Ordering::Relaxed);
        let phase = match word & PHASE {
            INTAKE => "INTAKE",
            LINKED => "LINKED",
            TAKEN => "TAKEN",
            _ => "CANCELLED",
        };
        f.write_str(phase)?;
        if word & HANDLE != 0 {
            f.write_str("|HANDLE")?;
        }
        if word & DRIVER != 0 {
            f.write_str("|DRIVER")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_taken_once_and_freed_by_the_last() {
        let state = StateCell::new();
        assert_eq!(format!("{state:?}"), "INTAKE|HANDLE|DRIVER");
        assert_eq!(state.link(), Link::Linked);
        assert!(state.take());
        assert!(!state.take());
        assert_eq!(state.cancel(), Cancel::TooLate);
        assert_eq!(state.release_driver(), Release::Held);
        // The last one has it alone, and leaves the word as it is.
        assert_eq!(state.release_handle(), Release::Free);
        assert_eq!(format!("{state:?}"), "TAKEN|HANDLE");
    }

    #[test]
    fn a_cancel_says_whether_the_driver_has_seen_the_timer() {
        let unseen = StateCell::new();
        assert_eq!(unseen.cancel(), Cancel::Unseen);
        assert_eq!(unseen.cancel(), Cancel::TooLate);
        assert_eq!(unseen.link(), Link::Cancelled);
        let linked = StateCell::new();
        assert_eq!(linked.link(), Link::Linked);
        assert!(linked.is_pending());
        assert_eq!(linked.cancel(), Cancel::Unlink);
        assert!(!linked.take() && !linked.is_pending());
        assert_eq!(linked.release_handle(), Release::Held);
        assert_eq!(linked.release_driver(), Release::Free);
    }
}
