//! Waiting until nothing is left to do.

use core::time::Duration;
use std::time::Instant;

use super::shared::Shared;
use crate::sync::Wait;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::park;

/// A job that ends while a drainer goes to sleep may not see it; so it looks again after this long.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Who waits for the runtime to run dry.
#[derive(Debug)]
pub(crate) struct Drainers {
    waiting: AtomicU32,
    /// Counts ends while somebody waits; waited on.
    ends: AtomicU32,
}

impl Drainers {
    pub(crate) fn new() -> Self {
        Self { waiting: AtomicU32::new(0), ends: AtomicU32::new(0) }
    }

    /// A job has ended, and is counted.
    #[inline]
    pub(crate) fn job_ended(&self) {
        // ORDERING: Relaxed: who misses a drainer lets it look again by itself, see `LOOK_AGAIN`.
        if self.waiting.load(Ordering::Relaxed) != 0 {
            // ORDERING: Relaxed: only that it moves matters. Whether the runtime is dry is read from
            // the counters, which have an order of their own.
            self.ends.fetch_add(1, Ordering::Relaxed);
            park::wake_all(&raw const self.ends);
        }
    }
}

impl Shared {
    /// Whether every job that was taken in has ended.
    fn is_dry(&self) -> bool {
        // Ends are read before what was taken in, so the two agree only if nothing was left.
        let stats = self.stats();
        stats.succeeded + stats.dead + stats.cancelled >= stats.submitted
    }

    /// Waits until there is no job left, for `timeout` of real time at most.
    pub(crate) fn drain(&self, timeout: Duration) -> bool {
        let until = Instant::now().checked_add(timeout);
        // ORDERING: Relaxed: see `job_ended`.
        self.drainers.waiting.fetch_add(1, Ordering::Relaxed);
        let dry = loop {
            // ORDERING: Relaxed: see `job_ended`.
            let seen = self.drainers.ends.load(Ordering::Relaxed);
            if self.is_dry() {
                break true;
            }
            let left =
                until.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break false;
            }
            match park::wait(&self.drainers.ends, seen, Some(left.min(LOOK_AGAIN))) {
                Wait::Woken | Wait::Changed | Wait::TimedOut => {}
            }
        };
        // ORDERING: Relaxed: as above.
        self.drainers.waiting.fetch_sub(1, Ordering::Relaxed);
        dry
    }
}
