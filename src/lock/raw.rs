//! The lock without its data: `lock_api`'s raw mutex.

use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;
use std::time::Instant;

use lock_api::{GuardNoSend, RawMutex, RawMutexTimed};

use super::state::{Announced, Released, Starved, State};
use super::unlock::{PlatformUnlock, Unlock};
use crate::sync::Wait;
use crate::wait::{Deadline, IN_A_MODEL, Spin, SpinPolicy, Stopwatch};

/// How long a sleeper sleeps when no unlock may be counted on to wake it.
const UNSURE_SLEEP: Duration = Duration::from_millis(1);

/// How long a waiter lets others overtake it before it asks to be handed the lock.
///
/// It asks when it has been woken and found the lock taken once more, so it runs, and a hand-over
/// costs little more than one unlock. Where it went back to sleep before its turn came, a hand-over
/// costs a switch of threads, during which nobody works under the lock.
const PATIENCE: Duration = Duration::from_micros(500);

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
    /// An unlocked lock that spins for a moment ([`SpinPolicy::Auto`]).
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

    /// Wakes whoever sleeps on the words' addresses, as the late wake of a lock that lay there before
    /// this one would.
    #[cfg(any(tenure_loom, tenure_shuttle))]
    #[doc(hidden)]
    pub fn stray_wake(&self) {
        self.state.wake_one();
        self.state.wake_starving();
    }

    /// Locks as one that has been overtaken for too long and asks to be handed the lock; as others
    /// do where somebody else has asked. For models that begin there: the way to it is long.
    #[cfg(any(tenure_loom, tenure_shuttle))]
    #[doc(hidden)]
    pub fn lock_overtaken(&self, timeout: Option<Duration>) -> bool {
        let deadline = timeout.map_or(Deadline::NEVER, Deadline::after);
        let mut trip = Trip::default();
        if self.state.announce_starving::<U>().is_some() {
            self.starve(deadline, None, &mut trip)
        } else {
            self.wait(deadline, &mut trip)
        }
    }

    /// Leaves the words of a lock somebody waited for, and gave up.
    #[cfg(any(tenure_loom, tenure_shuttle))]
    #[doc(hidden)]
    pub fn was_contended(&self) {
        let _ = self.state.announce::<U>();
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
        let budget = self.state.queue().budget();
        if self.spin(budget.for_newcomer()) {
            return true;
        }
        if deadline.has_passed() {
            return self.state.try_take();
        }
        let since = Stopwatch::start();
        loop {
            let (queue, short) = match self.state.announce::<U>() {
                Announced::Seen(queue) => (queue, None),
                Announced::Unsure(queue) => (queue, Some(UNSURE_SLEEP)),
            };
            // The last look before the sleep.
            if self.state.try_take() {
                return true;
            }
            trip.sleeps += 1;
            match self.state.sleep(queue, sooner(deadline.remaining(), short)) {
                Wait::Woken => {
                    // The wake took the flag away while others may sleep: say so again, before
                    // this thread takes the lock or gives up.
                    let _ = self.state.announce::<U>();
                    if self.spin(budget.for_woken()) {
                        return true;
                    }
                }
                Wait::Changed => {}
                Wait::TimedOut if deadline.has_passed() || IN_A_MODEL => {
                    return self.state.try_take();
                }
                Wait::TimedOut => {}
            }
            if deadline.has_passed() {
                return self.state.try_take();
            }
            if since.elapsed() >= PATIENCE {
                match self.state.announce_starving::<U>() {
                    Some(Announced::Seen(_)) => return self.starve(deadline, None, trip),
                    Some(Announced::Unsure(_)) => {
                        return self.starve(deadline, Some(UNSURE_SLEEP), trip);
                    }
                    // Somebody else starves; this one's turn comes.
                    None => {}
                }
            }
        }
    }

    /// Tries for a while, whether or not somebody sleeps.
    fn spin(&self, mut spin: Spin) -> bool {
        loop {
            if !self.state.is_held() && self.state.try_take() {
                return true;
            }
            if !spin.round() {
                return false;
            }
        }
    }

    /// Waits as the starving one, who is handed the lock by whoever unlocks it next. Handing it to a
    /// thread that runs is cheap, so this one stays awake for a moment.
    fn starve(&self, deadline: Deadline, short: Option<Duration>, trip: &mut Trip) -> bool {
        trip.handed = true;
        let mut spin = self.state.queue().budget().for_starving();
        loop {
            if self.state.take_starving() {
                return true;
            }
            if !spin.round() {
                break;
            }
        }
        loop {
            trip.sleeps += 1;
            match self.state.sleep_starving(sooner(deadline.remaining(), short), deadline) {
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

// SAFETY: the same transitions as above; who gives up takes back or leaves a flag in the queue, and takes
// the word only as above.
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
