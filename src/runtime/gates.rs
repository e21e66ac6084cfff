//! What stands before the queues, beside the places of a bounded runtime (`room.rs`): the number of the
//! next job, the
//! pause.

use crossbeam_utils::CachePadded;

use super::sleep::Sleepers;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
