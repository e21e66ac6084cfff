//! The actor's word: how far its senders have come, what it does, and what waits for it.
//!
//! The table, the diagram and the ordering pairs are in the [room's docs](super). Bits do not leave this
//! module.

use core::fmt;

use crate::sync::atomic::{AtomicU64, Ordering};

/// One message's step of the position, which lies above the flags.
pub(super) const ONE: u64 = 1 << 8;
const FLAGS: u64 = ONE - 1;
const PHASE: u64 = 0b111;
/// The control lane, the orders or the count of references want to be looked at.
const SIGNAL: u64 = 1 << 3;
/// A sender waits for room.
const WAITERS: u64 = 1 << 4;

/// What an actor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Nothing to do.
    Idle = 0,
    /// Queued for a turn on a worker.
    Scheduled = 1,
    /// A worker runs it.
    Running = 2,
    /// It takes no more messages and is being cleared up.
    Stopping = 3,
    /// Over.
    Stopped = 4,
}

impl Phase {
    fn of(bits: u64) -> Self {
        match bits & PHASE {
            0 => Self::Idle,
            1 => Self::Scheduled,
            2 => Self::Running,
            3 => Self::Stopping,
            _ => Self::Stopped,
        }
    }

    /// Whether it takes messages.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Idle | Self::Scheduled | Self::Running)
    }
}

/// What the word said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    pub(super) fn phase(self) -> Phase {
        Phase::of(self.0)
    }

    pub(super) fn is_open(self) -> bool {
        self.phase().is_open()
    }

    /// Where the next message goes, in steps of [`ONE`].
    pub(super) fn position(self) -> u64 {
        self.0 & !FLAGS
    }

    fn with_phase(self, phase: Phase) -> Self {
        Self(self.0 & !PHASE | phase as u64)
    }

    pub(super) fn has_waiters(self) -> bool {
        self.0 & WAITERS != 0
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.phase(), self.position() / ONE)?;
        if self.0 & SIGNAL != 0 {
            f.write_str(" + SIGNAL")?;
        }
        if self.has_waiters() {
            f.write_str(" + WAITERS")?;
        }
        Ok(())
    }
}

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Signalled {
    /// The actor was idle, and is scheduled by this: wake it.
    Wake,
    /// It will look.
    Seen,
    /// It is over: whatever was left for it is the caller's to clear up.
    Over,
}

/// What an actor finds that would like to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Rested {
    /// It is idle; whoever brings something wakes it.
    Idle,
    /// A flag is up: take the flags and look.
    Flags,
    /// A message is on its way: its sender has the place, and has not written it yet.
    Coming,
}

/// The word.
pub(super) struct WordCell(AtomicU64);

impl WordCell {
    /// Of an actor that is queued for its first turn.
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(Phase::Scheduled as u64))
    }

    /// What it says now. A stale answer is harmless: whoever acts on one acts by an exchange.
    #[inline]
    pub(super) fn peek(&self) -> Word {
        // ORDERING: Relaxed: advisory, see above.
        Word(self.0.load(Ordering::Relaxed))
    }

    /// Whether the actor is over. If so, all that it did is visible.
    pub(super) fn is_over(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release in `end`.
        Word(self.0.load(Ordering::Acquire)).phase() == Phase::Stopped
    }

    /// A sender claims the place at `seen`'s position, which it found free. `Ok(true)`: the actor was idle
    /// and is scheduled by this: write the message, then wake it.
    #[inline]
    pub(super) fn claim(&self, seen: Word) -> Result<bool, Word> {
        let idle = seen.phase() == Phase::Idle;
        let next = if idle { seen.with_phase(Phase::Scheduled) } else { seen };
        // ORDERING: Acquire: pairs with the Release in `rest`: the waker. The message is published by its
        // slot's stamp, so nothing is released here. Relaxed on failure: looked at anew.
        let claimed = self.0.compare_exchange_weak(
            seen.0,
            next.0.wrapping_add(ONE),
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        claimed.map(|_| idle).map_err(Word)
    }

    /// Something other than a message waits for the actor.
    pub(super) fn signal(&self) -> Signalled {
        // ORDERING: Relaxed: a stale word fails the exchange.
        let mut seen = Word(self.0.load(Ordering::Relaxed));
        loop {
            let next = match seen.phase() {
                Phase::Idle => seen.with_phase(Phase::Scheduled),
                Phase::Scheduled | Phase::Running | Phase::Stopping => seen,
                Phase::Stopped => return Signalled::Over,
            };
            // ORDERING: AcqRel: Release: what was left (an entry of the lane, an order, the count of
            // references) is visible to `take_flags`, `close` and `end`; Acquire: the waker, from `rest`.
            match self.0.compare_exchange_weak(
                seen.0,
                next.0 | SIGNAL,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) if seen.phase() == Phase::Idle => return Signalled::Wake,
                Ok(_) => return Signalled::Seen,
                Err(now) => seen = Word(now),
            }
        }
    }

    /// A sender has entered itself into the list of those who wait for room, and will look once more.
    pub(super) fn announce_waiter(&self) -> Word {
        // ORDERING: AcqRel: Acquire: pairs with the Release in `rest`: if the actor rested before, the look
        // that follows sees the room that it made. Release: pairs with the Acquire in `take_flags` and
        // `close`: if it looks after, it sees that the list is not empty.
        Word(self.0.fetch_or(WAITERS, Ordering::AcqRel) | WAITERS)
    }

    /// A turn begins.
    pub(super) fn begin(&self) {
        // ORDERING: Relaxed: turns are ordered by the word of the job that they are attempts of.
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        debug_assert_eq!(Phase::of(before), Phase::Scheduled);
    }

    /// Nothing was found: the actor would be idle from `head` on.
    pub(super) fn rest(&self, head: u64) -> Rested {
        let running = head | Phase::Running as u64;
        // ORDERING: Release: pairs with the Acquire in `claim` and `signal`: the waker; and with the one in
        // `announce_waiter`: the room that was made. Relaxed on failure: `take_flags` looks.
        match self.0.compare_exchange(
            running,
            head | Phase::Idle as u64,
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            Ok(_) => Rested::Idle,
            Err(seen) if seen & (SIGNAL | WAITERS) != 0 => Rested::Flags,
            Err(_) => Rested::Coming,
        }
    }

    /// Takes the flags down, to look at what they stand for.
    pub(super) fn take_flags(&self) -> Word {
        // ORDERING: Acquire: pairs with the Release in `signal` and `announce_waiter`. Who announces itself
        // later may not see the room that was made, and is seen before the actor rests.
        Word(self.0.fetch_and(!(SIGNAL | WAITERS), Ordering::Acquire))
    }

    /// The turn is over, and another one follows.
    pub(super) fn again(&self) {
        // ORDERING: Relaxed: as in `begin`; the flags stay up.
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert_eq!(Phase::of(before), Phase::Running);
    }

    /// Enters the actor from wherever it rests: its job is thrown away, and nobody else will run it.
    pub(super) fn seize(&self) {
        // ORDERING: Relaxed: a stale word fails the exchange.
        let mut seen = Word(self.0.load(Ordering::Relaxed));
        loop {
            let next = seen.with_phase(Phase::Running);
            // ORDERING: Relaxed: `close` follows, which acquires.
            match self.0.compare_exchange(seen.0, next.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = Word(now),
            }
        }
    }

    /// Running → Stopping: no place is claimed any more; those that are will be written.
    pub(super) fn close(&self) -> Word {
        // ORDERING: Acquire: as in `take_flags`.
        let before = self.0.fetch_add(1, Ordering::Acquire);
        debug_assert_eq!(Phase::of(before), Phase::Running);
        Word(before)
    }

    /// Stopping → Stopped.
    pub(super) fn end(&self) {
        // ORDERING: AcqRel: Acquire: pairs with the Release in `signal`: the lane's last entries. Release:
        // pairs with the Acquire in `is_over`: all that the actor did and dropped.
        let before = self.0.fetch_add(1, Ordering::AcqRel);
        debug_assert_eq!(Phase::of(before), Phase::Stopping);
    }
}

impl fmt::Debug for WordCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peek().fmt(f)
    }
}
