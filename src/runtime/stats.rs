//! Counters: one set a worker, written by that worker alone, and one that everybody else shares.

use crate::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident),* $(,)?) => {
        /// What the runtime did so far. Sums of counters that are read one after another while
        /// others write: each is exact, together they may be a moment apart.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            /// Jobs taken in.
            pub submitted: u64,
            $($(#[$doc])+ pub $name: u64,)*
            /// Workers in the pool now; stuck ones are not in it.
            pub workers: usize,
            /// Stuck workers that have not come back yet.
            pub stuck_workers: usize,
        }

        /// One set.
        #[derive(Debug)]
        pub(crate) struct Counters { $(pub(crate) $name: Count,)* }

        impl Counters {
            pub(crate) fn new() -> Self {
                Self { $($name: Count(AtomicU64::new(0)),)* }
            }

            pub(crate) fn add_to(&self, stats: &mut Stats) {
                $(stats.$name = stats.$name.wrapping_add(self.$name.get());)*
            }

            /// Takes over what a worker that ends has counted.
            pub(crate) fn absorb(&self, other: &Self) {
                $(self.$name.share(other.$name.get());)*
            }
        }
    };
}

counters! {
    /// Attempts begun.
    started,
    /// Jobs that ended with a value.
    succeeded,
    /// Attempts that came to nothing: errors, panics, timeouts.
    failed_attempts,
    /// Of those, panics.
    panicked,
    /// Of those, timeouts.
    timed_out,
    /// Retries scheduled.
    retried,
    /// Turns asked for by jobs that were not ready yet.
    snoozed,
    /// Times a gate (a rate or concurrency limit, a breaker) let a job wait.
    gated,
    /// Second attempts begun beside a first one that took long.
    hedged,
    /// Jobs that ended dead.
    dead,
    /// Jobs that ended cancelled, by a shutdown or otherwise.
    cancelled,
    /// Attempts that ended after they had lost their lease.
    fenced,
    /// Workers taken out of the pool because they were stuck.
    replaced_workers,
    /// Of those, the ones that came back.
    returned_workers,
    /// Times a worker went to sleep.
    parks,
    /// Jobs taken from another worker.
    steals,
    /// Dead letters that were dropped, or not kept, because there were too many.
    letters_lost,
    /// Dead letters that were thrown away by a purge.
    letters_purged,
    /// Dead letters whose jobs were handed in again.
    replayed,
}

/// One counter.
#[derive(Debug)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[cfg(feature = "metrics")]
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts `by`, in the set that only this thread writes.
    #[cfg(feature = "metrics")]
    #[inline]
    pub(crate) fn own_many(&self, by: u64) {
        // ORDERING: Relaxed, both: a count that is read by itself.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// Counts one, in the set that only this thread writes.
    #[inline]
    pub(crate) fn own(&self) {
        // ORDERING: Relaxed: our own last store. Release: pairs with the fence in
        // `Members::with_counters`: who has counted an end sees that the job was taken in.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Counts `by`, in the set that everybody shares.
    pub(crate) fn share(&self, by: u64) {
        // ORDERING: Release: as in `own`.
        self.0.fetch_add(by, Ordering::Release);
    }

    pub(crate) fn get(&self) -> u64 {
        // ORDERING: Relaxed: a count; ordered by the fence in `Members::with_counters`.
        self.0.load(Ordering::Relaxed)
    }
}
