//! The event count: when a pushed job wakes a worker, and when a worker may sleep.
//!
//! One word counts who searches and who sleeps; a second one is a heap of permits to wake up.
//! Sleepers are nameless: whoever takes a permit is the one who was woken.
//!
//! ```text
//! threads in `sleep`  =  counts.sleeping  +  permits given and not yet taken
//! ```
//!
//! # No job is left lying
//!
//! ```text
//! pusher: Push, PushFence, ReadCounts        sleeper: IncSleeping, SleepFence, Recheck
//! ```
//!
//! The two fences have one order. If PushFence comes first, Recheck sees the push. If SleepFence
//! comes first, ReadCounts sees the sleeper, and wakes one, unless somebody searches. A searcher
//! that finds work may have been the reason for not waking: so the last one stops being counted, and
//! looks again behind a fence of its own. If PushFence comes before that, it sees the push, and wakes
//! one in the pusher's place; if after, ReadCounts sees that nobody searches. A searcher that finds
//! nothing becomes a sleeper, by the same rule.
//!
//! A permit hands nothing over. Who was woken and does not see yet why goes to sleep by the same rule,
//! and sees it then.

use crate::sync::Wait;
use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::park;

const ONE_SEARCHING: u32 = 1;
const SEARCHING_MASK: u32 = 0xFFFF;
const ONE_SLEEPING: u32 = 1 << 16;
const SLEEPING_SHIFT: u32 = 16;

const fn searching(counts: u32) -> u32 {
    counts & SEARCHING_MASK
}

const fn sleeping(counts: u32) -> u32 {
    counts >> SLEEPING_SHIFT
}

/// The workers that have nothing to do. See the [file's docs](self).
#[derive(Debug)]
pub(crate) struct Sleepers {
    counts: AtomicU32,
    permits: AtomicU32,
}

impl Sleepers {
    pub(crate) fn new() -> Self {
        Self { counts: AtomicU32::new(0), permits: AtomicU32::new(0) }
    }

    /// A job was pushed: wake a worker, unless one is searching or none sleeps. True: woke one.
    #[inline]
    pub(crate) fn notify(&self) -> bool {
        // ORDERING: SeqCst fence: PushFence, pairs with SleepFence in `sleep`.
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed: ordered by the fence.
        let seen = self.counts.load(Ordering::Relaxed);
        if searching(seen) > 0 || sleeping(seen) == 0 {
            return false;
        }
        self.wake_slow(false)
    }

    /// Wakes every worker that sleeps now.
    pub(crate) fn notify_all(&self) {
        // ORDERING: SeqCst fence: as in `notify`; what changed may be the closed flag.
        fence(Ordering::SeqCst);
        while self.wake_slow(true) {}
    }

    #[cold]
    fn wake_slow(&self, whatever: bool) -> bool {
        // ORDERING: Relaxed: a stale value fails the exchange.
        let mut seen = self.counts.load(Ordering::Relaxed);
        loop {
            if sleeping(seen) == 0 || (!whatever && searching(seen) > 0) {
                return false;
            }
            let next = seen - ONE_SLEEPING + ONE_SEARCHING;
            // ORDERING: Relaxed: only the count changes hands.
            match self.counts.compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // ORDERING: Relaxed: a permit hands nothing over, see the file's docs.
        self.permits.fetch_add(1, Ordering::Relaxed);
        park::wake_one(&raw const self.permits);
        true
    }

    /// The caller, a worker, begins to search.
    pub(crate) fn begin_search(&self) {
        // ORDERING: Relaxed: that we search only ever keeps others from waking somebody, and they
        // read it after their fence; we search until `end_search` or `sleep` has looked after it.
        self.counts.fetch_add(ONE_SEARCHING, Ordering::Relaxed);
    }

    /// The caller, who searched, has found work or leaves. Wakes another if there is more to do, as
    /// `has_work` says: a wake costs as much as many jobs, and would come before the one that was found.
    pub(crate) fn end_search(&self, has_work: impl FnOnce() -> bool) {
        // ORDERING: Relaxed: ordered by the fence below.
        let before = self.counts.fetch_sub(ONE_SEARCHING, Ordering::Relaxed);
        if searching(before) > 1 {
            return;
        }
        // A pusher may have counted on us; what it pushed may not be what we found.
        // ORDERING: SeqCst fence: EndFence, pairs with PushFence in `notify`.
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed: ordered by the fence.
        let seen = self.counts.load(Ordering::Relaxed);
        if searching(seen) == 0 && sleeping(seen) > 0 && has_work() {
            self.wake_slow(false);
        }
    }

    /// The caller, who searched, has found nothing: sleeps until woken, or not at all if `recheck`
    /// says that there is something to do. Searching again when it returns.
    pub(crate) fn sleep(&self, recheck: impl FnOnce() -> bool) {
        // ORDERING: Relaxed: ordered by the fence below.
        self.counts.fetch_add(ONE_SLEEPING.wrapping_sub(ONE_SEARCHING), Ordering::Relaxed);
        // ORDERING: SeqCst fence: SleepFence, pairs with PushFence in `notify`.
        fence(Ordering::SeqCst);
        if recheck() && self.stay_awake() {
            return;
        }
        self.take_permit();
    }

    /// Leaves the sleepers. False: all who sleep have a permit coming, so take that.
    fn stay_awake(&self) -> bool {
        // ORDERING: Relaxed: a stale value fails the exchange.
        let mut seen = self.counts.load(Ordering::Relaxed);
        loop {
            if sleeping(seen) == 0 {
                return false;
            }
            let next = seen - ONE_SLEEPING + ONE_SEARCHING;
            // ORDERING: Relaxed: only the count changes hands.
            match self.counts.compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    fn take_permit(&self) {
        // ORDERING: Relaxed: a stale value fails the exchange, or is looked at again by `wait`.
        let mut seen = self.permits.load(Ordering::Relaxed);
        loop {
            if seen == 0 {
                let (Wait::Woken | Wait::Changed | Wait::TimedOut) =
                    park::wait(&self.permits, 0, None);
                // ORDERING: Relaxed: as above.
                seen = self.permits.load(Ordering::Relaxed);
                continue;
            }
            // ORDERING: Relaxed: see `wake_slow`.
            match self.permits.compare_exchange(
                seen,
                seen - 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Nobody searches and nobody sleeps: what the models expect when all workers are gone.
    #[cfg(any(tenure_loom, tenure_shuttle))]
    pub(crate) fn is_clear(&self) -> bool {
        // ORDERING: Relaxed: asked after every thread was joined.
        self.counts.load(Ordering::Relaxed) == 0 && self.permits.load(Ordering::Relaxed) == 0
    }
}
