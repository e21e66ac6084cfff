//! Waiting for a condition: `lock_api`'s raw condition variable.
//!
//! ```text
//! | word      | meaning                                         | who writes it              |
//! |-----------|-------------------------------------------------|----------------------------|
//! | `events`  | how often anybody was notified (wraps)          | notifiers, +1              |
//! | `waiters` | how many wait, or are about to, or just woke up | each waiter, +1 and −1     |
//!
//! | edge                    | Release in              | Acquire in       | makes visible  |
//! |-------------------------|-------------------------|------------------|----------------|
//! | waiter counts itself    | the mutex's unlock      | the mutex's lock | the count, to whoever changes the condition afterwards |
//! | notifier's change       | the mutex's unlock      | the mutex's lock | the condition  |
//! ```
//!
//! A waiter reads `events` under the mutex, unlocks, and sleeps only while `events` is what it was:
//! whoever changes the condition under the mutex after that, and notifies, changes `events` too.

use core::fmt;
use core::time::Duration;
use std::time::Instant;

use lock_api::{GuardNoSend, RawMutex};

use super::raw::RawAdaptiveMutex;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Wait, park};
use crate::wait::Deadline;

/// [`AdaptiveCondvar`](super::AdaptiveCondvar) for `lock_api`: eight bytes, any mutex, several at once.
///
/// Wake-ups may be spurious, so `notify_one` always answers `false` and `notify_all` zero, as
/// `lock_api` asks of such a condition variable; both wake whom they should.
pub struct RawAdaptiveCondvar {
    events: AtomicU32,
    waiters: AtomicU32,
}

impl RawAdaptiveCondvar {
    const fn new() -> Self {
        Self { events: AtomicU32::const_new(0), waiters: AtomicU32::const_new(0) }
    }

    /// Unlocks, sleeps, locks again. True: the deadline passed.
    ///
    /// # Safety
    ///
    /// The calling thread owns `mutex`.
    unsafe fn wait_until_deadline(&self, mutex: &RawAdaptiveMutex, deadline: Deadline) -> bool {
        // ORDERING: Relaxed, both: under the mutex, which orders them before whoever changes the
        // condition next.
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let events = self.events.load(Ordering::Relaxed);
        // SAFETY: the caller owns the mutex, by this function's contract.
        unsafe { mutex.unlock(GuardNoSend::new()) };
        let remaining = deadline.remaining();
        let timed_out = remaining.is_some_and(|left| left.is_zero())
            || park::wait(&self.events, events, remaining) == Wait::TimedOut;
        // ORDERING: Relaxed: a count; a notifier that still sees this waiter wakes nobody for it.
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        // The state of this acquisition is in no value: the caller's guard stands for it again.
        let _ = mutex.lock();
        timed_out
    }

    /// Whether anybody may have to be woken.
    fn notify(&self) -> bool {
        // ORDERING: Relaxed: a waiter that the notifier has to wake counted itself under the mutex
        // before the notifier had it; for others a notification has no meaning.
        if self.waiters.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // ORDERING: Relaxed: the waiter's last look is a compare in the kernel; what it has to see
        // beside this it sees through the mutex.
        self.events.fetch_add(1, Ordering::Relaxed);
        true
    }
}

impl fmt::Debug for RawAdaptiveCondvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ORDERING: Relaxed: a look for people.
        f.debug_struct("Condvar").field("waiters", &self.waiters.load(Ordering::Relaxed)).finish()
    }
}

// SAFETY: `wait` reads the event count before it unlocks and sleeps only while the count is the
// same, so no notification is lost between the two; it locks again before it returns; nothing in
// it unwinds.
unsafe impl lock_api::RawCondvar for RawAdaptiveCondvar {
    const INIT: Self = Self::new();

    type RawMutex = RawAdaptiveMutex;

    unsafe fn wait(&self, mutex: &RawAdaptiveMutex, _guard: &mut GuardNoSend) {
        // SAFETY: the caller owns the mutex, by this function's contract.
        unsafe { self.wait_until_deadline(mutex, Deadline::NEVER) };
    }

    fn notify_one(&self) -> bool {
        if self.notify() {
            park::wake_one(&raw const self.events);
        }
        false
    }

    fn notify_all(&self) -> usize {
        if self.notify() {
            park::wake_all(&raw const self.events);
        }
        0
    }
}

// SAFETY: as above; a wait whose time is up locks again as well.
unsafe impl lock_api::RawCondvarTimed for RawAdaptiveCondvar {
    fn checked_duration_to_instant(timeout: &Duration) -> Option<Instant> {
        Instant::now().checked_add(*timeout)
    }

    unsafe fn wait_until(
        &self,
        mutex: &RawAdaptiveMutex,
        _guard: &mut GuardNoSend,
        timeout: &Instant,
    ) -> bool {
        // SAFETY: the caller owns the mutex, by this function's contract.
        unsafe { self.wait_until_deadline(mutex, Deadline::at(*timeout)) }
    }

    unsafe fn wait_for(
        &self,
        mutex: &RawAdaptiveMutex,
        _guard: &mut GuardNoSend,
        timeout: &Duration,
    ) -> bool {
        // SAFETY: the caller owns the mutex, by this function's contract.
        unsafe { self.wait_until_deadline(mutex, Deadline::after(*timeout)) }
    }
}
