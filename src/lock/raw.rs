//! The lock without its data: `lock_api`'s raw mutex.

use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;
use std::time::Instant;

use lock_api::{GuardNoSend, RawMutex, RawMutexTimed};

use super::state::{Announced, Released, State};
use super::unlock::{PlatformUnlock, Unlock};
use crate::sync::{Wait, thread};
use crate::wait::{DEFAULT_ROUNDS, Deadline, Spin};

/// How long a sleeper sleeps when no unlock may be counted on to wake it.
const UNSURE_SLEEP: Duration = Duration::from_millis(1);

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slept {
    /// Look again.
    ForAWhile,
    /// The caller's deadline passed.
    ToTheEnd,
}

/// [`AdaptiveMutex`](super::AdaptiveMutex) without its data, for `lock_api`.
///
/// Eight bytes; no allocation; nothing to drop.
pub struct RawAdaptiveMutex<U: Unlock = PlatformUnlock> {
    state: State,
    unlock: PhantomData<U>,
}

impl<U: Unlock> RawAdaptiveMutex<U> {
    /// An unlocked lock.
    #[must_use]
    pub const fn new() -> Self {
        Self { state: State::new(), unlock: PhantomData }
    }

    /// Spins, then sleeps, until this thread owns the lock (true) or the deadline passed (false).
    #[cold]
    fn lock_slow(&self, deadline: Deadline) -> bool {
        loop {
            let mut spin = Spin::rounds(DEFAULT_ROUNDS);
            loop {
                if !self.state.is_held() && self.state.try_take() {
                    return true;
                }
                // While somebody sleeps, spinning would only overtake it.
                if self.state.queue().sleepers() > 0 || !spin.round() {
                    break;
                }
            }
            let remaining = deadline.remaining();
            if remaining.is_some_and(|left| left.is_zero()) {
                return self.state.try_take();
            }
            let slept = self.sleep_once(remaining);
            if self.state.try_take() {
                return true;
            }
            if slept == Slept::ToTheEnd {
                return false;
            }
        }
    }

    /// Sleeps once, for at most `limit`, unless the lock is free by then.
    fn sleep_once(&self, limit: Option<Duration>) -> Slept {
        let short = match self.state.announce::<U>() {
            Announced::Seen => None,
            Announced::Unsure => {
                Some(UNSURE_SLEEP).filter(|short| limit.is_none_or(|limit| *short < limit))
            }
            Announced::Full => {
                thread::yield_now();
                return Slept::ForAWhile;
            }
        };
        // The last look before the sleep is the kernel's own, at the moment it puts us to sleep.
        let woken = self.state.sleep(short.or(limit));
        if woken != Wait::Woken {
            self.state.withdraw();
        }
        // A wake that was spent on us and finds the lock taken again is not lost: who took it came
        // after the release, and its own unlock counts whoever still sleeps.
        if woken == Wait::TimedOut && short.is_none() { Slept::ToTheEnd } else { Slept::ForAWhile }
    }

    #[inline]
    fn acquire(&self, deadline: impl FnOnce() -> Deadline) -> bool {
        self.state.try_take() || self.lock_slow(deadline())
    }
}

impl<U: Unlock> Default for RawAdaptiveMutex<U> {
    fn default() -> Self {
        Self::new()
    }
}

/// Shows the words; never blocks.
impl<U: Unlock> fmt::Debug for RawAdaptiveMutex<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.state, f)
    }
}

// SAFETY: the word goes FREE → HELD by one compare-and-exchange (Acquire) and back by its owner's
// store (Release), so one owner at a time and each sees what the one before it did. A locked lock
// that is moved or dropped by its only owner has no waiter, and nothing to clean up. Nothing here
// unwinds.
unsafe impl<U: Unlock> RawMutex for RawAdaptiveMutex<U> {
    const INIT: Self = Self::new();

    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        self.acquire(|| Deadline::NEVER);
        GuardNoSend::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        self.state.try_take().then(GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        match self.state.release::<U>() {
            Released::Done => {}
            Released::Wake => self.state.wake_one(),
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.state.is_held()
    }
}

// SAFETY: the same transitions as above; giving up touches the count of sleepers alone.
unsafe impl<U: Unlock> RawMutexTimed for RawAdaptiveMutex<U> {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        self.acquire(|| Deadline::after(timeout)).then(GuardNoSend::new)
    }

    #[inline]
    fn try_lock_until(&self, timeout: Instant) -> Option<GuardNoSend> {
        self.acquire(|| Deadline::at(timeout)).then(GuardNoSend::new)
    }
}
