//! How long attempts take, and how long jobs wait for a worker: histograms, one set a worker.
//!
//! A worker counts in its own set, two plain stores a sample; whoever publishes sums them up. An attempt
//! costs one precise reading of the clock: its beginning is the end of the one before, if the worker went
//! straight from that to this. Of the waits one in eight is measured, and counts for eight: which, a hash of
//! the job's number says, so that no rhythm of the submitter's meets one of ours.

use core::cell::Cell;
use core::time::Duration;
use std::sync::Arc;

use crate::clock::{Clock, Timestamp, nanos_saturating};
use crate::runtime::cell::JobRef;
use crate::runtime::shared::Shared;
use crate::runtime::stats::Count;
use crate::runtime::worker::Local;

/// The upper bounds of the buckets, in nanoseconds; above the last one there is one more.
pub(crate) const BOUNDS: [u64; 22] = {
    const MICRO: u64 = 1_000;
    const MILLI: u64 = 1_000_000;
    const SECOND: u64 = 1_000_000_000;
    [
        10 * MICRO,
        25 * MICRO,
        50 * MICRO,
        100 * MICRO,
        250 * MICRO,
        500 * MICRO,
        MILLI,
        2 * MILLI + MILLI / 2,
        5 * MILLI,
        10 * MILLI,
        25 * MILLI,
        50 * MILLI,
        100 * MILLI,
        250 * MILLI,
        500 * MILLI,
        SECOND,
        2 * SECOND + SECOND / 2,
        5 * SECOND,
        10 * SECOND,
        25 * SECOND,
        50 * SECOND,
        100 * SECOND,
    ]
};

/// One in so many waits is measured.
const SAMPLED: u64 = 8;

/// Whether the wait of this job is measured.
pub(crate) fn is_sampled(job: u64) -> bool {
    job.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61 == 0
}

/// Samples by size, and their sum.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [Count; BOUNDS.len() + 1],
    nanos: Count,
}

/// A histogram, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) buckets: [u64; BOUNDS.len() + 1],
    pub(crate) nanos: u64,
}

impl Histogram {
    fn new() -> Self {
        Self { buckets: core::array::from_fn(|_| Count::new()), nanos: Count::new() }
    }

    fn bucket(nanos: u64) -> usize {
        BOUNDS.partition_point(|bound| *bound < nanos)
    }

    /// Only the owner of the set.
    fn own(&self, nanos: u64, weight: u64) {
        self.buckets[Self::bucket(nanos)].own_many(weight);
        self.nanos.own_many(nanos.saturating_mul(weight));
    }

    fn absorb(&self, other: &Self) {
        for (mine, theirs) in self.buckets.iter().zip(&other.buckets) {
            mine.share(theirs.get());
        }
        self.nanos.share(other.nanos.get());
    }

    fn add_to(&self, sum: &mut Sum) {
        for (to, from) in sum.buckets.iter_mut().zip(&self.buckets) {
            *to = to.wrapping_add(from.get());
        }
        sum.nanos = sum.nanos.wrapping_add(self.nanos.get());
    }
}

/// One set: durations by name (the first: all other names, and none), and waits.
#[derive(Debug)]
pub(crate) struct Meter {
    names: Arc<[Arc<str>]>,
    durations: Box<[Histogram]>,
    waits: Histogram,
    /// The set that takes over what this one has counted.
    heir: Option<Arc<Meter>>,
}

/// Sums over all sets.
#[derive(Debug)]
pub(crate) struct Sums {
    pub(crate) durations: Vec<Sum>,
    pub(crate) waits: Sum,
}

impl Meter {
    /// The set that all share, for these names.
    pub(crate) fn shared(names: Arc<[Arc<str>]>) -> Arc<Self> {
        Arc::new(Self::new(names, None))
    }

    fn new(names: Arc<[Arc<str>]>, heir: Option<Arc<Self>>) -> Self {
        Self {
            durations: (0..=names.len()).map(|_| Histogram::new()).collect(),
            waits: Histogram::new(),
            names,
            heir,
        }
    }

    /// A worker's own.
    pub(crate) fn for_worker(self: &Arc<Self>) -> Box<Self> {
        Box::new(Self::new(Arc::clone(&self.names), Some(Arc::clone(self))))
    }

    pub(crate) fn names(&self) -> &Arc<[Arc<str>]> {
        &self.names
    }

    /// The worker ends: what it has counted is the heir's.
    pub(crate) fn hand_over(&self) {
        let Some(heir) = &self.heir else { return };
        for (theirs, mine) in heir.durations.iter().zip(&self.durations) {
            theirs.absorb(mine);
        }
        heir.waits.absorb(&self.waits);
    }

    pub(crate) fn sums(&self) -> Sums {
        let mut sums =
            Sums { durations: vec![Sum::default(); self.durations.len()], waits: Sum::default() };
        self.add_to(&mut sums);
        sums
    }

    pub(crate) fn add_to(&self, sums: &mut Sums) {
        for (to, from) in sums.durations.iter_mut().zip(&self.durations) {
            from.add_to(to);
        }
        self.waits.add_to(&mut sums.waits);
    }

    fn of(&self, job: &JobRef) -> &Histogram {
        let name = job.options.as_deref().and_then(|o| o.name.as_ref());
        let at = name.and_then(|name| self.names.iter().position(|known| known == name));
        &self.durations[at.map_or(0, |at| at + 1)]
    }
}

/// Where a worker's last attempt ended: in which turn, and when.
#[derive(Debug, Default)]
pub(crate) struct LastEnd(Cell<(u32, Timestamp)>);

/// An attempt that is measured.
pub(crate) struct Measured<'a> {
    local: &'a Local,
    meter: &'a Meter,
    job: &'a JobRef,
    began: Timestamp,
}

impl<'a> Measured<'a> {
    #[inline]
    pub(crate) fn begin(local: &'a Local, job: &'a JobRef) -> Option<Self> {
        let meter = local.member.meter.as_deref()?;
        let turn = local.turn_number();
        let began = match local.last_end.0.get() {
            // Straight from the one before, and not on top of one.
            (last, at) if last.wrapping_add(1) == turn && local.is_outermost() => at,
            _ => local.shared.clock.now(),
        };
        if let Some(queued) = job.take_queued() {
            let wait = nanos_saturating(began.saturating_since(queued));
            meter.waits.own(wait, SAMPLED);
        }
        Some(Self { local, meter, job, began })
    }

    #[inline]
    pub(crate) fn end(self) {
        let Self { local, meter, job, began } = self;
        let now = local.shared.clock.now();
        local.last_end.0.set((local.turn_number(), now));
        meter.of(job).own(nanos_saturating(now.saturating_since(began)), 1);
    }
}

impl Shared {
    /// The job is about to be queued.
    #[inline]
    pub(crate) fn stamp(&self, job: &JobRef) {
        if self.meter.is_some() && is_sampled(job.id) {
            job.set_queued(self.clock.now());
        }
    }
}

/// A bound as a number of seconds, as Prometheus writes it.
pub(crate) fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

#[cfg(all(test, not(tenure_loom)))]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_grow() {
        assert!(BOUNDS.is_sorted());
        assert_eq!(Histogram::bucket(0), 0);
        for (i, bound) in BOUNDS.into_iter().enumerate() {
            assert_eq!((Histogram::bucket(bound), Histogram::bucket(bound + 1)), (i, i + 1));
        }
        assert_eq!(Histogram::bucket(u64::MAX), BOUNDS.len());
    }

    #[test]
    fn one_in_eight_is_sampled_whatever_the_stride() {
        for stride in 1..50 {
            let sampled = (0..8_000_u64).filter(|i| is_sampled(i * stride)).count();
            assert!((900..1_100).contains(&sampled), "stride {stride}: {sampled}");
        }
    }

    #[test]
    fn a_worker_that_ends_leaves_its_counts() {
        let names: Arc<[Arc<str>]> = Arc::from([Arc::from("a")]);
        let shared = Meter::shared(names);
        let own = shared.for_worker();
        own.durations[1].own(7, 1);
        own.durations[0].own(BOUNDS[3], 2);
        own.waits.own(u64::MAX, SAMPLED);
        own.hand_over();
        let sums = shared.sums();
        assert_eq!((sums.durations[1].buckets[0], sums.durations[1].nanos), (1, 7));
        assert_eq!(sums.durations[0].buckets[3], 2);
        assert_eq!((sums.waits.buckets[BOUNDS.len()], sums.waits.nanos), (SAMPLED, u64::MAX));
    }
}
