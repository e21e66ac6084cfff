//! What stands before the queues: the number of the next job, the places of a bounded runtime, the
//! pause.

use crossbeam_utils::CachePadded;

use super::sleep::Sleepers;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The numbers of jobs, from 1; so also how many were taken in.
#[derive(Debug)]
pub(crate) struct Numbers(CachePadded<AtomicU64>);

impl Numbers {
    pub(crate) fn new() -> Self {
        Self(CachePadded::new(AtomicU64::new(0)))
    }

    pub(crate) fn next(&self) -> u64 {
        // ORDERING: Relaxed: unique is enough.
        self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    pub(crate) fn so_far(&self) -> u64 {
        // ORDERING: Relaxed: who has counted ends before is ordered by the fence of
        // `Members::with_counters`.
        self.0.load(Ordering::Relaxed)
    }
}

/// Places for jobs that are not known to be over; counted only if there is a limit.
#[derive(Debug)]
pub(crate) struct Places {
    capacity: Option<usize>,
    taken: CachePadded<AtomicUsize>,
}

impl Places {
    pub(crate) fn new(capacity: Option<usize>) -> Self {
        Self { capacity, taken: CachePadded::new(AtomicUsize::new(0)) }
    }

    /// Takes a place for one more job. False: there is none.
    #[must_use]
    pub(crate) fn take(&self) -> bool {
        let Some(capacity) = self.capacity else { return true };
        // ORDERING: Relaxed: only the number matters. Taken first and given back if it was too
        // much, so that the limit holds at every moment for those who got a place.
        if self.taken.fetch_add(1, Ordering::Relaxed) >= capacity {
            self.taken.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// A job is over.
    pub(crate) fn give_back(&self) {
        if self.capacity.is_some() {
            // ORDERING: Relaxed: only the number matters.
            self.taken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Whether workers take jobs.
#[derive(Debug)]
pub(crate) struct Pause(AtomicBool);

impl Pause {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    pub(crate) fn set(&self, paused: bool, sleepers: &Sleepers) {
        // ORDERING: Relaxed: a worker looks before each job; and who goes to sleep while the pause ends
        // is ordered by the fences of `notify_all` and `sleep`, like after a push.
        self.0.store(paused, Ordering::Relaxed);
        if !paused {
            sleepers.notify_all();
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        // ORDERING: Relaxed: see `set`.
        self.0.load(Ordering::Relaxed)
    }
}
