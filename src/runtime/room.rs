//! Places for jobs, where there is a limit, and who waits for one.
//!
//! ```text
//! leaver: GiveBack, LeaveFence, ReadWaiting       waiter: IncWaiting, WaitFence, Take
//! ```
//!
//! The two fences have one order. If LeaveFence comes first, Take finds the place. If WaitFence comes
//! first, ReadWaiting sees the waiter, and the leaver moves `freed`, which the waiter read before it
//! tried: so it does not sleep, or is woken.

use core::time::Duration;
use std::time::Instant;

use crate::sync::Wait;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use crate::sync::park;

/// See the [file's docs](self).
#[derive(Debug)]
pub(crate) struct Room {
    /// Whether there is a limit, and so a count.
    counted: bool,
    limit: AtomicUsize,
    /// Jobs taken in and not yet known to be over; kept only if there is a capacity.
    live: AtomicUsize,
    waiting: AtomicU32,
    /// Counts places given back while somebody waits; waited on.
    freed: AtomicU32,
}

impl Room {
    pub(crate) fn new(capacity: Option<usize>) -> Self {
        Self {
            counted: capacity.is_some(),
            limit: AtomicUsize::new(capacity.unwrap_or(usize::MAX)),
            live: AtomicUsize::new(0),
            waiting: AtomicU32::new(0),
            freed: AtomicU32::new(0),
        }
    }

    /// Takes a place for one more job. False: there is none.
    #[must_use]
    #[inline]
    pub(crate) fn take(&self) -> bool {
        !self.counted || self.take_below(self.limit())
    }

    fn limit(&self) -> usize {
        // ORDERING: Relaxed: a number. Who waits is told when it grows, see `resize`.
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. False: there is no count to be limited.
    pub(crate) fn resize(&self, capacity: usize) -> bool {
        if self.counted {
            // ORDERING: Relaxed: `tell` releases it to those who wait, and who begins to wait looks
            // after it has read `freed`.
            self.limit.store(capacity, Ordering::Relaxed);
            self.tell();
        }
        self.counted
    }

    fn take_below(&self, capacity: usize) -> bool {
        // ORDERING: Relaxed: a stale value fails the exchange.
        let mut seen = self.live.load(Ordering::Relaxed);
        // Never above the limit, not even for a moment: a waiter might see that as full.
        while seen < capacity {
            // ORDERING: Relaxed, both: only the number matters.
            match self.live.compare_exchange_weak(
                seen,
                seen + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Takes a place that there may not be: for what was promised before.
    pub(crate) fn take_anyway(&self) {
        if self.counted {
            // ORDERING: Relaxed: only the number matters.
            self.live.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The same as `take`, but waits for up to `timeout`, unless `given_up`.
    #[must_use]
    pub(crate) fn take_within(&self, timeout: Duration, given_up: impl Fn() -> bool) -> bool {
        if self.take() {
            return true;
        }
        let until = Instant::now().checked_add(timeout);
        // ORDERING: Relaxed: IncWaiting, ordered by the fence.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // ORDERING: SeqCst fence: WaitFence, pairs with LeaveFence in `give_back`.
        fence(Ordering::SeqCst);
        let taken = loop {
            // ORDERING: Acquire: pairs with the Release in `tell`: `given_up` sees what came before.
            let seen = self.freed.load(Ordering::Acquire);
            if self.take() {
                break true;
            }
            let left = until.map(|at| at.saturating_duration_since(Instant::now()));
            if given_up() || left.is_some_and(|left| left.is_zero()) {
                break false;
            }
            match park::wait(&self.freed, seen, left) {
                Wait::Woken | Wait::Changed | Wait::TimedOut => {}
            }
        };
        // ORDERING: Relaxed: who sees us too long tells nobody.
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        taken
    }

    /// How many places are taken, and how many there are, if they are counted.
    pub(crate) fn taken_of(&self) -> Option<(usize, usize)> {
        // ORDERING: Relaxed: a number.
        self.counted.then(|| (self.live.load(Ordering::Relaxed), self.limit()))
    }

    /// A job is over.
    #[inline]
    pub(crate) fn give_back(&self) {
        if !self.counted {
            return;
        }
        // ORDERING: Relaxed: GiveBack, ordered by the fence.
        self.live.fetch_sub(1, Ordering::Relaxed);
        // ORDERING: SeqCst fence: LeaveFence, pairs with WaitFence in `take_within`.
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed: ordered by the fence.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.tell();
        }
    }

    /// Has all who wait look again.
    #[cold]
    pub(crate) fn tell(&self) {
        // ORDERING: Release: pairs with the Acquire in `take_within`.
        self.freed.fetch_add(1, Ordering::Release);
        park::wake_all(&raw const self.freed);
    }
}
