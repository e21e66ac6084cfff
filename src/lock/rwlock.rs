//! Many readers or one writer: `lock_api`'s raw reader-writer lock.
//!
//! ```text
//! | `state` bits | name           | meaning                                | who writes it           |
//! |--------------|----------------|----------------------------------------|-------------------------|
//! | 0–28         | READERS        | how many own it for reading            | readers ±1              |
//! | 29           | WRITER_WAITING | new readers queue up behind a writer   | a waiting writer sets; a leaving writer, or one that gives up, clears |
//! | 30           | WAITERS        | somebody sleeps, or is about to        | waiters set; whoever wakes them clears |
//! | 31           | WRITER         | one owns it for writing                | the writer              |
//!
//! `events` counts how often sleepers were woken (wraps).
//!
//!            lock_shared, unless WRITER or WRITER_WAITING
//!   free ◄────────────────────────────────────────────────► READERS = n
//!     ▲
//!     └──────────────────────────────► WRITER
//!            lock_exclusive, if READERS = 0
//!
//! | edge                        | Release in            | Acquire in        | makes visible      |
//! |-----------------------------|-----------------------|-------------------|--------------------|
//! | writer leaves → anybody in  | `unlock_exclusive`    | `try_*`           | the data           |
//! | reader leaves → writer in   | `unlock_shared`       | `try_exclusive`   | that it is not read any more |
//! | sleepers woken              | `wake_everybody`      | `block_while`     | that WAITERS was cleared |
//! ```
//!
//! **No wake is lost.** A waiter reads `events` (W1), sets WAITERS over a state that keeps it out
//! (W2), and sleeps while `events` is what W1 read (W3). Who lets it in clears WAITERS (R1), adds to
//! `events` (R2) and wakes all. If R1 comes after W2, R2 comes after W1 did, so W3 either does not
//! sleep or is woken. If W1 read what R2 wrote (Release, Acquire), R1 came before W2, and WAITERS is
//! set again for the next one.

use core::fmt;
use core::time::Duration;
use std::time::Instant;

use lock_api::GuardNoSend;

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Wait, park, thread};
use crate::wait::{DEFAULT_ROUNDS, Deadline, IN_A_MODEL, Spin};

const READERS: u32 = WRITER_WAITING - 1;
const WRITER_WAITING: u32 = 1 << 29;
const WAITERS: u32 = 1 << 30;
const WRITER: u32 = 1 << 31;

/// [`AdaptiveRwLock`](super::AdaptiveRwLock) without its data, for `lock_api`. Eight bytes.
pub struct RawAdaptiveRwLock {
    state: AtomicU32,
    events: AtomicU32,
}

/// What a thread wants of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Read,
    Write,
}

impl Want {
    /// The state after entering; `None` if that state keeps this thread out.
    fn entered(self, state: u32) -> Option<u32> {
        match self {
            Self::Read if state & (WRITER | WRITER_WAITING) != 0 => None,
            // Full: 536,870,911 readers.
            Self::Read if state & READERS == READERS => None,
            Self::Read => Some(state + 1),
            Self::Write => (state & (WRITER | READERS) == 0).then_some(state | WRITER),
        }
    }

    /// What a thread that sleeps leaves in the state.
    fn mark(self) -> u32 {
        match self {
            Self::Read => WAITERS,
            Self::Write => WAITERS | WRITER_WAITING,
        }
    }
}

impl RawAdaptiveRwLock {
    const fn new() -> Self {
        Self { state: AtomicU32::const_new(0), events: AtomicU32::const_new(0) }
    }

    #[inline]
    fn try_enter(&self, want: Want) -> bool {
        // ORDERING: Relaxed: only a guess for the comparison below.
        let mut state = self.state.load(Ordering::Relaxed);
        while let Some(entered) = want.entered(state) {
            // ORDERING: Acquire: pairs with the Releases in `leave_*`. Relaxed failure: nothing was
            // entered.
            match self.state.compare_exchange_weak(
                state,
                entered,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Spins, then sleeps, until this thread is in (true) or the deadline passed (false).
    #[cold]
    fn enter_slow(&self, want: Want, deadline: Deadline) -> bool {
        loop {
            let mut spin = Spin::rounds(DEFAULT_ROUNDS);
            loop {
                if self.try_enter(want) {
                    return true;
                }
                // ORDERING: Relaxed: a hint.
                if self.state.load(Ordering::Relaxed) & WAITERS != 0 || !spin.round() {
                    break;
                }
            }
            let remaining = deadline.remaining();
            let timed_out = remaining.is_some_and(|left| left.is_zero())
                || self.block(want, remaining) == Some(Wait::TimedOut);
            if timed_out && (deadline.has_passed() || IN_A_MODEL) {
                return self.try_enter(want) || self.give_up(want);
            }
        }
    }

    /// Sleeps once; `None` if there is no need to.
    fn block(&self, want: Want, limit: Option<Duration>) -> Option<Wait> {
        // ORDERING: Acquire: pairs with the Release in `wake_everybody`; and it keeps the marking
        // below behind it (W1, W2 in the proof).
        let events = self.events.load(Ordering::Acquire);
        // ORDERING: Relaxed: only a guess for the comparison below.
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if want.entered(state).is_some() {
                return None;
            }
            if state & READERS == READERS {
                // Not kept out by anybody who will wake: wait for room.
                thread::yield_now();
                return None;
            }
            // ORDERING: Relaxed: whoever clears the mark finds it in the same word.
            match self.state.compare_exchange_weak(
                state,
                state | want.mark(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        Some(park::wait(&self.events, events, limit))
    }

    /// Leaves without having entered. A writer may have kept readers out, and they have to know.
    fn give_up(&self, want: Want) -> bool {
        if want == Want::Write {
            // Other waiting writers wake up and keep them out again.
            // ORDERING: Relaxed: publishes nothing but itself.
            let before = self.state.fetch_and(!(WRITER_WAITING | WAITERS), Ordering::Relaxed);
            if before & WAITERS != 0 {
                self.wake_everybody();
            }
        }
        false
    }

    #[inline]
    fn leave_shared(&self) {
        // ORDERING: Release: pairs with the Acquire in `try_enter`: the writer comes after us.
        let after = self.state.fetch_sub(1, Ordering::Release) - 1;
        if after & READERS == 0 && after & WAITERS != 0 {
            self.last_reader_left();
        }
    }

    /// WRITER_WAITING stays: it is the writer's turn.
    #[cold]
    fn last_reader_left(&self) {
        // ORDERING: Relaxed: the release is done; this elects who wakes.
        if self.state.fetch_and(!WAITERS, Ordering::Relaxed) & WAITERS != 0 {
            self.wake_everybody();
        }
    }

    #[inline]
    fn leave_exclusive(&self) {
        // ORDERING: Release: pairs with the Acquire in `try_enter`: the data.
        let before = self.state.fetch_and(!(WRITER | WAITERS | WRITER_WAITING), Ordering::Release);
        if before & WAITERS != 0 {
            self.wake_everybody();
        }
    }

    #[cold]
    fn wake_everybody(&self) {
        // ORDERING: Release: pairs with the Acquire in `block`: who reads this sees WAITERS cleared.
        self.events.fetch_add(1, Ordering::Release);
        park::wake_all(&raw const self.events);
    }
}

impl fmt::Debug for RawAdaptiveRwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ORDERING: Relaxed: a look for people.
        let state = self.state.load(Ordering::Relaxed);
        f.debug_struct("RwLock")
            .field("readers", &(state & READERS))
            .field("writer", &(state & WRITER != 0))
            .field("writer_waiting", &(state & WRITER_WAITING != 0))
            .field("waiters", &(state & WAITERS != 0))
            .finish()
    }
}

// SAFETY: a writer enters only a state without readers and writer, a reader only one without writer,
// each by one compare-and-exchange (Acquire) that pairs with the Release of those who left. Nothing
// unwinds, and nothing is left to clean up when a locked one is moved or dropped.
unsafe impl lock_api::RawRwLock for RawAdaptiveRwLock {
    const INIT: Self = Self::new();

    type SharedGuard = GuardNoSend;
    type ExclusiveGuard = GuardNoSend;

    #[inline]
    fn lock_shared(&self) -> GuardNoSend {
        let _ = self.try_enter(Want::Read) || self.enter_slow(Want::Read, Deadline::NEVER);
        GuardNoSend::new()
    }

    #[inline]
    fn try_lock_shared(&self) -> Option<GuardNoSend> {
        self.try_enter(Want::Read).then(GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock_shared(&self, _guard: GuardNoSend) {
        self.leave_shared();
    }

    #[inline]
    fn lock_exclusive(&self) -> GuardNoSend {
        let _ = self.try_enter(Want::Write) || self.enter_slow(Want::Write, Deadline::NEVER);
        GuardNoSend::new()
    }

    #[inline]
    fn try_lock_exclusive(&self) -> Option<GuardNoSend> {
        self.try_enter(Want::Write).then(GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock_exclusive(&self, _guard: GuardNoSend) {
        self.leave_exclusive();
    }

    fn is_locked(&self) -> bool {
        // ORDERING: Relaxed: a hint.
        self.state.load(Ordering::Relaxed) & (WRITER | READERS) != 0
    }

    fn is_locked_exclusive(&self) -> bool {
        // ORDERING: Relaxed: a hint.
        self.state.load(Ordering::Relaxed) & WRITER != 0
    }
}

// SAFETY: the same transitions; giving up clears marks alone.
unsafe impl lock_api::RawRwLockTimed for RawAdaptiveRwLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        let entered =
            self.try_enter(Want::Read) || self.enter_slow(Want::Read, Deadline::after(timeout));
        entered.then(GuardNoSend::new)
    }

    fn try_lock_shared_until(&self, timeout: Instant) -> Option<GuardNoSend> {
        let entered =
            self.try_enter(Want::Read) || self.enter_slow(Want::Read, Deadline::at(timeout));
        entered.then(GuardNoSend::new)
    }

    fn try_lock_exclusive_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        let entered =
            self.try_enter(Want::Write) || self.enter_slow(Want::Write, Deadline::after(timeout));
        entered.then(GuardNoSend::new)
    }

    fn try_lock_exclusive_until(&self, timeout: Instant) -> Option<GuardNoSend> {
        let entered =
            self.try_enter(Want::Write) || self.enter_slow(Want::Write, Deadline::at(timeout));
        entered.then(GuardNoSend::new)
    }
}
