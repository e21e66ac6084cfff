//! The lock without its data: `lock_api`'s raw mutex.

use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;
use std::time::Instant;

use lock_api::{GuardNoSend, RawMutex, RawMutexTimed};

use super::state::{Announced, Released, Starved, State};
use super::unlock::{PlatformUnlock, Unlock};
use crate::sync::{Wait, thread};
use crate::wait::{Deadline, IN_A_MODEL, Spin, SpinPolicy, Stopwatch, is_lesson};

/// How long a sleeper sleeps when no unlock may be counted on to wake it.
const UNSURE_SLEEP: Duration = Duration::from_millis(1);

/// How long a waiter lets others overtake it before it asks to be handed the lock.
///
/// A backstop against starvation, not a schedule: each hand-over costs a switch of threads, during
/// which nobody works under the lock.
const PATIENCE: Duration = Duration::from_millis(4);

/// How a contended acquisition went, for those who count.
#[cfg(feature = "lock-contention")]
use super::contention::Trip;
/// How a contended acquisition went, if anybody counted.
#[cfg(not(feature = "lock-contention"))]
#[derive(Default)]
struct Trip {
    sleeps: u64,
    handed: bool,
}

/// [`AdaptiveMutex`](super::AdaptiveMutex) without its data, for `lock_api`.
///
/// Eight bytes; no allocation; nothing to drop.
pub struct RawAdaptiveMutex<U: Unlock = PlatformUnlock> {
    state: State,
    unlock: PhantomData<U>,
    #[cfg(feature = "lock-contention")]
    counters: super::contention::Counters,
}

impl<U: Unlock> RawAdaptiveMutex<U> {
    /// An unlocked lock that learns how long to spin.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_policy(SpinPolicy::Auto)
    }

    /// An unlocked lock that spins as told. Around data:
    ///
    /// ```
    /// use tenure::lock::{AdaptiveMutex, RawAdaptiveMutex};
    /// use tenure::wait::SpinPolicy;
    ///
    /// static LOCK: AdaptiveMutex<u32> =
    ///     AdaptiveMutex::from_raw(RawAdaptiveMutex::with_policy(SpinPolicy::Never), 0);
    /// *LOCK.lock() += 1;
    /// ```
    #[must_use]
    pub const fn with_policy(policy: SpinPolicy) -> Self {
        Self {
            state: State::new(policy),
            unlock: PhantomData,
            #[cfg(feature = "lock-contention")]
            counters: super::contention::Counters::new(),
        }
    }

    /// What it has seen of contention since it was made. Never blocks.
    #[cfg(feature = "lock-contention")]
    pub fn contention(&self) -> super::Contention {
        self.counters.read()
    }

    #[cold]
    fn lock_slow(&self, deadline: Deadline) -> bool {
        let mut trip = Trip::default();
        #[cfg(feature = "lock-contention")]
        let since = Stopwatch::start();
        let won = self.wait(deadline, &mut trip);
        #[cfg(feature = "lock-contention")]
        self.counters.record(Trip { won, ..trip }, since.elapsed());
        won
    }

    /// Spins, then sleeps, until this thread owns the lock (true) or the deadline passed (false).
    #[inline]
    fn wait(&self, deadline: Deadline, trip: &mut Trip) -> bool {
        let mut waiting: Option<Stopwatch> = None;
        loop {
            if self.spin() {
                return true;
            }
            let mut remaining = deadline.remaining();
            if remaining.is_some_and(|left| left.is_zero()) {
                return self.state.try_take();
            }
            let is_starving = waiting.is_some_and(|since| since.elapsed() >= PATIENCE);
            waiting.get_or_insert_with(Stopwatch::start);
            if is_starving {
                match self.state.announce_starving::<U>() {
                    Announced::Seen => return self.starve(deadline, None, trip),
                    Announced::Unsure => {
                        return self.starve(deadline, Some(UNSURE_SLEEP), trip);
                    }
                    // Somebody else starves; this one's turn comes.
                    Announced::Full => {}
                }
            }
            match self.state.announce::<U>() {
                Announced::Seen => {}
                Announced::Unsure => remaining = sooner(remaining, Some(UNSURE_SLEEP)),
                Announced::Full => {
                    thread::yield_now();
                    continue;
                }
            }
            // The last look before the sleep is the kernel's own, as it puts us to sleep.
            trip.sleeps += 1;
            let woken = self.state.sleep(remaining);
            if woken != Wait::Woken {
                self.state.withdraw();
            }
            // A wake that was spent on us and finds the lock taken again is not lost: who took it
            // came after the release, and its own unlock counts whoever still sleeps.
            if self.state.try_take() {
                return true;
            }
            if woken == Wait::TimedOut && (deadline.has_passed() || IN_A_MODEL) {
                return false;
            }
        }
    }

    /// Tries for a while, unless somebody sleeps already: spinning would only overtake him.
    fn spin(&self) -> bool {
        let budget = self.state.queue().budget();
        let mut spin = Spin::of(budget);
        let won = loop {
            if !self.state.is_held() && self.state.try_take() {
                break true;
            }
            if self.state.queue().has_waiters() {
                return false;
            }
            if !spin.round() {
                break false;
            }
        };
        if is_lesson()
            && let Some(learned) = budget.taught_by(&spin, won)
        {
            self.state.teach(self.state.queue(), learned);
        }
        won
    }

    /// Waits as the starving one, who is handed the lock by whoever unlocks it next.
    fn starve(&self, deadline: Deadline, short: Option<Duration>, trip: &mut Trip) -> bool {
        trip.handed = true;
        loop {
            trip.sleeps += 1;
            let remaining = deadline.remaining();
            match self.state.sleep_starving(sooner(remaining, short), deadline) {
                Starved::Owner => return true,
                Starved::Again => {}
                Starved::TimedOut => return false,
            }
        }
    }

    #[inline]
    fn acquire(&self, deadline: impl FnOnce() -> Deadline) -> bool {
        self.state.try_take() || self.lock_slow(deadline())
    }
}

/// The shorter of two limits.
fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (limit, None) | (None, limit) => limit,
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
            Released::WakeStarving => self.state.wake_starving(),
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
