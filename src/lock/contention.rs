//! Counting contention, lock by lock (feature `lock-contention`).

use core::fmt;
use core::time::Duration;

use crate::sync::atomic::{AtomicU64, Ordering};

/// How many classes of waits there are: one for each power of two of nanoseconds, the last for
/// everything from 2.1 s on.
const CLASSES: usize = 32;

/// A lock's counters. Written by threads that wait, never by an uncontended lock or unlock.
pub(super) struct Counters {
    contended: AtomicU64,
    spun: AtomicU64,
    slept: AtomicU64,
    handed: AtomicU64,
    gave_up: AtomicU64,
    waits: [AtomicU64; CLASSES],
}

/// How a contended acquisition went.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trip {
    pub(super) sleeps: u64,
    pub(super) handed: bool,
    pub(super) won: bool,
}

impl Counters {
    pub(super) const fn new() -> Self {
        Self {
            contended: AtomicU64::const_new(0),
            spun: AtomicU64::const_new(0),
            slept: AtomicU64::const_new(0),
            handed: AtomicU64::const_new(0),
            gave_up: AtomicU64::const_new(0),
            waits: [const { AtomicU64::const_new(0) }; CLASSES],
        }
    }

    pub(super) fn record(&self, trip: Trip, waited: Duration) {
        // ORDERING: Relaxed, all: counters, read by people.
        let add = |counter: &AtomicU64, much: u64| counter.fetch_add(much, Ordering::Relaxed);
        add(&self.contended, 1);
        add(&self.spun, u64::from(trip.won && trip.sleeps == 0));
        add(&self.slept, trip.sleeps);
        add(&self.handed, u64::from(trip.handed));
        add(&self.gave_up, u64::from(!trip.won));
        if let Some(counter) = self.waits.get(class_of(waited)) {
            add(counter, 1);
        }
    }

    pub(super) fn read(&self) -> Contention {
        // ORDERING: Relaxed: as in `record`; the parts may be of slightly different moments.
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Contention {
            contended: get(&self.contended),
            spun_and_won: get(&self.spun),
            sleeps: get(&self.slept),
            handed_over: get(&self.handed),
            gave_up: get(&self.gave_up),
            waits: core::array::from_fn(|class| get(&self.waits[class])),
        }
    }
}

fn class_of(waited: Duration) -> usize {
    let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX).max(1);
    (nanos.ilog2() as usize).min(CLASSES - 1)
}

/// What a lock has seen of contention since it was made. See [`ContentionExt`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contention {
    /// Acquisitions that found the lock held.
    pub contended: u64,
    /// Those of them that got it without sleeping.
    pub spun_and_won: u64,
    /// How often a thread went to sleep.
    pub sleeps: u64,
    /// Acquisitions that had been overtaken for so long that they asked to be handed the lock.
    pub handed_over: u64,
    /// Timed acquisitions that gave up.
    pub gave_up: u64,
    waits: [u64; CLASSES],
}

impl Contention {
    /// How many contended acquisitions waited for how long: the upper end of each class, not
    /// included, and its number. Classes are powers of two of nanoseconds; empty ones are left out.
    pub fn waits(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.waits.iter().enumerate().filter(|(_, count)| **count > 0).map(|(class, count)| {
            let end =
                if class == CLASSES - 1 { Duration::MAX } else { Duration::from_nanos(2 << class) };
            (end, *count)
        })
    }
}

impl fmt::Debug for Contention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contention")
            .field("contended", &self.contended)
            .field("spun_and_won", &self.spun_and_won)
            .field("sleeps", &self.sleeps)
            .field("handed_over", &self.handed_over)
            .field("gave_up", &self.gave_up)
            .field("waits", &self.waits().collect::<Vec<_>>())
            .finish()
    }
}

/// Reads the counters of an [`AdaptiveMutex`](super::AdaptiveMutex).
pub trait ContentionExt {
    /// What it has seen of contention since it was made. Never blocks.
    fn contention(&self) -> Contention;
}

impl<T: ?Sized> ContentionExt for super::AdaptiveMutex<T> {
    fn contention(&self) -> Contention {
        // SAFETY: the raw lock is only looked at: nothing is locked or unlocked through it.
        unsafe { self.raw() }.contention()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_counted_in_their_class() {
        let counters = Counters::new();
        for nanos in [0, 1, 2, 3, 1000, u64::MAX] {
            let trip = Trip { sleeps: 2, handed: false, won: true };
            counters.record(trip, Duration::from_nanos(nanos));
        }
        let read = counters.read();
        assert_eq!((read.contended, read.sleeps, read.spun_and_won, read.gave_up), (6, 12, 0, 0));
        let waits: Vec<_> = read.waits().collect();
        assert_eq!(
            waits,
            [
                (Duration::from_nanos(2), 2),
                (Duration::from_nanos(4), 2),
                (Duration::from_nanos(1024), 1),
                (Duration::MAX, 1)
            ]
        );
    }
}
