//! The word, taken apart: its fields, its flags, and the steps that verbs are made of.

use core::fmt;

pub(super) const STATE_MASK: u64 = 0xF;
pub(super) const ONE_RUNNER: u64 = 1 << 4;
pub(super) const RUNNERS_SHIFT: u32 = 4;
pub(super) const RUNNERS_MASK: u64 = 0xF << RUNNERS_SHIFT;
/// Attempts inside the closure at one time: the field's range.
pub(crate) const MAX_RUNNERS: u64 = 15;

/// Somebody asked that the job end; looked at when an attempt fails or is rescued.
pub(super) const CANCEL_REQUESTED: u64 = 1 << 8;
/// The handle's waker is in the waiter slot.
pub(super) const WAITER: u64 = 1 << 9;
/// The handle is gone: nobody will take the result.
pub(super) const DETACHED: u64 = 1 << 10;
/// The attempt showed life since it began, or since the watcher last looked.
pub(super) const HEARTBEAT_SEEN: u64 = 1 << 11;
/// The cancellation came from a shutdown.
pub(super) const BY_SHUTDOWN: u64 = 1 << 12;
/// The job's end is in the counters.
pub(super) const COUNTED: u64 = 1 << 13;
/// A task was woken while it was being polled.
pub(super) const NOTIFIED: u64 = 1 << 14;

/// Its time has come, but a late attempt is inside a closure that takes one at a time: whoever leaves
/// it last makes the job Ready.
pub(super) const DUE: u64 = 1 << 15;

pub(super) const ONE_ATTEMPT: u64 = 1 << 16;
pub(super) const ATTEMPT_SHIFT: u32 = 16;
pub(super) const ATTEMPT_MASK: u64 = 0xFFFF << ATTEMPT_SHIFT;
pub(super) const ONE_EPOCH: u64 = 1 << 32;
pub(super) const EPOCH_SHIFT: u32 = 32;

/// Where a job is. Succeeded, Dead and Cancelled are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Waits for its first moment; the driver holds a timer for it.
    Scheduled = 0,
    /// Waits for a worker; a queue holds an entry for it.
    Ready = 1,
    /// An attempt runs; the word's epoch is its token.
    Leased = 2,
    /// One thread owns the result slot and runs no user code until it publishes.
    Completing = 3,
    /// Waits for its next attempt; the driver holds a timer for it.
    Backoff = 4,
    /// Waits for something that is not time: its key.
    Suspended = 5,
    /// Ended well; the slot holds the value, or held it.
    Succeeded = 6,
    /// Ended badly; the slot holds the error, or held it.
    Dead = 7,
    /// Ended because somebody asked; the slot was never written.
    Cancelled = 8,
    /// Leased, by two attempts that share the epoch: a second one was started because the first one
    /// takes long. (Leased, and one bit.)
    Hedged = 10,
    /// Suspended at a gate, whose queue holds it; other than in line for its key, it has that. (Suspended,
    /// and one bit.)
    Gated = 13,
}

impl State {
    pub(super) const fn of(word: u64) -> Self {
        match word & STATE_MASK {
            0 => Self::Scheduled,
            1 => Self::Ready,
            2 => Self::Leased,
            3 => Self::Completing,
            4 => Self::Backoff,
            5 => Self::Suspended,
            6 => Self::Succeeded,
            7 => Self::Dead,
            10 => Self::Hedged,
            13 => Self::Gated,
            _ => Self::Cancelled,
        }
    }

    /// Whether a job with a key owns it in this state. (One without counts as an owner of nothing.)
    pub(crate) const fn has_its_key(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Suspended)
    }

    /// Whether an attempt holds the job.
    pub(crate) const fn is_leased(self) -> bool {
        matches!(self, Self::Leased | Self::Hedged)
    }

    /// Whether nothing leads out of it.
    pub(crate) const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Dead | Self::Cancelled)
    }
}

/// A copy of the word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(super) u64);

impl Word {
    pub(crate) const fn state(self) -> State {
        State::of(self.0)
    }

    pub(crate) const fn epoch(self) -> u32 {
        (self.0 >> EPOCH_SHIFT) as u32
    }

    /// Attempts that ended.
    pub(crate) const fn attempts(self) -> u16 {
        ((self.0 & ATTEMPT_MASK) >> ATTEMPT_SHIFT) as u16
    }

    /// Attempts inside the closure now, the late ones included.
    pub(crate) const fn runners(self) -> u64 {
        (self.0 & RUNNERS_MASK) >> RUNNERS_SHIFT
    }

    pub(crate) const fn cancel_requested(self) -> bool {
        self.0 & CANCEL_REQUESTED != 0
    }

    /// Whether a rescue of this epoch would give the attempt up.
    pub(crate) const fn would_be_rescued(self, epoch: u32) -> bool {
        self.is_leased(epoch) && !self.has(HEARTBEAT_SEEN) && !self.cancel_requested()
    }

    pub(crate) const fn by_shutdown(self) -> bool {
        self.0 & BY_SHUTDOWN != 0
    }

    /// Whether attempts with this epoch hold the job: Leased or Hedged, which are the only states
    /// with these three bits.
    pub(super) const fn is_leased(self, epoch: u32) -> bool {
        self.0 & 0b111 == State::Leased as u64 && self.epoch() == epoch
    }

    pub(super) const fn is(self, state: State, epoch: u32) -> bool {
        self.0 & STATE_MASK == state as u64 && self.epoch() == epoch
    }

    pub(super) const fn to(self, state: State) -> Self {
        Self((self.0 & !STATE_MASK) | state as u64)
    }

    pub(super) const fn with(self, flag: u64) -> Self {
        Self(self.0 | flag)
    }

    pub(super) const fn without(self, flag: u64) -> Self {
        Self(self.0 & !flag)
    }

    pub(super) const fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    pub(super) const fn next_epoch(self) -> Self {
        // `start` refuses the last epochs, so a lease always has one more above it.
        Self(self.0.wrapping_add(ONE_EPOCH))
    }

    pub(super) const fn attempt_ended(self) -> Self {
        // Saturates: the field cannot carry into the epoch.
        if self.0 & ATTEMPT_MASK == ATTEMPT_MASK { self } else { Self(self.0 + ONE_ATTEMPT) }
    }

    pub(super) const fn runner_in(self) -> Self {
        Self(self.0 + ONE_RUNNER)
    }

    pub(super) const fn runner_out(self) -> Self {
        Self(self.0 - ONE_RUNNER)
    }

    /// What the thread that made this final word owes.
    pub(super) const fn ended(self) -> Ended {
        Ended {
            wake: self.has(WAITER),
            drop_result: self.has(DETACHED) && !matches!(self.state(), State::Cancelled),
            drop_closure: self.runners() == 0,
        }
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} epoch {} attempts {} runners {}",
            self.state(),
            self.epoch(),
            self.attempts(),
            self.runners()
        )?;
        for (flag, name) in [
            (CANCEL_REQUESTED, "CANCEL_REQUESTED"),
            (WAITER, "WAITER"),
            (DETACHED, "DETACHED"),
            (HEARTBEAT_SEEN, "HEARTBEAT_SEEN"),
            (BY_SHUTDOWN, "BY_SHUTDOWN"),
            (COUNTED, "COUNTED"),
            (NOTIFIED, "NOTIFIED"),
            (DUE, "DUE"),
        ] {
            if self.has(flag) {
                write!(f, " {name}")?;
            }
        }
        Ok(())
    }
}

/// What the thread that ended a job does next, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Ended {
    /// The waiter slot holds a waker: take it, wake it last.
    pub(crate) wake: bool,
    /// Nobody will take the result: drop it.
    pub(crate) drop_result: bool,
    /// Nobody is inside the closure: drop it.
    pub(crate) drop_closure: bool,
}
