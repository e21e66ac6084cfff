//! Counters that threads share by a few: what is counted for each call.
//!
//! A thread has a number, given at its first call; it counts in the stripe of that number. Two threads
//! in one stripe are slower, not wrong. Only who needs a sum looks at all of them.

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Buckets in a stripe, of which a time window uses 8 to 16, unless it has fewer nanoseconds.
pub(super) const BUCKETS: usize = 16;

/// A bucket: turn of the ring 32 | successes 32.
///
/// What it counted in an earlier turn is overwritten by the first who comes in a later one, so nothing
/// has to be cleared as time passes.
#[derive(Clone, Copy)]
struct Bucket(u64);

impl Bucket {
    /// Not counted beyond: far above what a bucket sees, and far below the turn's bits.
    const MOST: u32 = u32::MAX / 2;

    const fn new(turn: u32, count: u32) -> Self {
        Self((turn as u64) << 32 | count as u64)
    }

    const fn turn(self) -> u32 {
        (self.0 >> 32) as u32
    }

    const fn count(self) -> u32 {
        self.0 as u32
    }
}

/// Which bucket of the ring a tick has, and which turn of it that is.
const fn place(tick: u64) -> (usize, u32) {
    (tick as usize % BUCKETS, (tick / BUCKETS as u64) as u32)
}

#[derive(Debug)]
struct Stripe {
    /// Successes of a count window, and those that left a time window's buckets.
    ok: AtomicU64,
    rejected: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// See the [file's docs](self).
#[derive(Debug)]
pub(super) struct Stripes(Box<[CachePadded<Stripe>]>);

/// Numbers for threads.
static THREADS: AtomicUsize = AtomicUsize::const_new(0);

#[cfg(not(any(tenure_loom, tenure_shuttle)))]
crate::sync::thread_local! {
    static NUMBER: core::cell::Cell<usize> = const { core::cell::Cell::new(usize::MAX) };
}
// Models' have no constant form.
#[cfg(any(tenure_loom, tenure_shuttle))]
crate::sync::thread_local! {
    static NUMBER: core::cell::Cell<usize> = core::cell::Cell::new(usize::MAX);
}

#[cold]
fn number_this_thread() -> usize {
    // ORDERING: Relaxed: any number will do, different ones are better.
    let number = THREADS.fetch_add(1, Ordering::Relaxed) & (usize::MAX >> 1);
    NUMBER.with(|cell| cell.set(number));
    number
}

#[inline]
fn thread_number() -> usize {
    let number = NUMBER.with(core::cell::Cell::get);
    if number == usize::MAX { number_this_thread() } else { number }
}

impl Stripes {
    /// As many as a power of two has, `stripes` or more.
    pub(super) fn new(stripes: usize) -> Self {
        let stripe = || {
            CachePadded::new(Stripe {
                ok: AtomicU64::new(0),
                rejected: AtomicU64::new(0),
                buckets: core::array::from_fn(|_| AtomicU64::new(0)),
            })
        };
        Self((0..stripes.next_power_of_two()).map(|_| stripe()).collect())
    }

    #[inline]
    fn own(&self) -> &Stripe {
        &self.0[thread_number() & (self.0.len() - 1)]
    }

    /// A success in a count window.
    #[inline]
    pub(super) fn succeed(&self) {
        // ORDERING: Relaxed: a count.
        self.own().ok.fetch_add(1, Ordering::Relaxed);
    }

    /// A success in a time window, at `tick`.
    pub(super) fn succeed_at(&self, tick: u64) {
        let stripe = self.own();
        let (slot, turn) = place(tick);
        let bucket = &stripe.buckets[slot];
        // ORDERING: Relaxed: counts; the exchange checks what it replaces.
        let mut seen = Bucket(bucket.load(Ordering::Relaxed));
        loop {
            if seen.turn() == turn {
                if seen.count() < Bucket::MOST {
                    // ORDERING: Relaxed: a count. If the bucket's next turn began just now it counts there.
                    bucket.fetch_add(1, Ordering::Relaxed);
                }
                return;
            }
            // Somebody's later look at the clock: this success is out of the window by now. (Much later is
            // what a window with shorter buckets left behind, and is replaced.)
            if seen.turn().wrapping_sub(turn) <= 2 {
                // ORDERING: Relaxed: a count.
                stripe.ok.fetch_add(1, Ordering::Relaxed);
                return;
            }
            // ORDERING: Relaxed: counts.
            match bucket.compare_exchange_weak(
                seen.0,
                Bucket::new(turn, 1).0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // ORDERING: Relaxed: a count, which goes from the bucket to the sum of all.
                    stripe.ok.fetch_add(u64::from(seen.count()), Ordering::Relaxed);
                    return;
                }
                Err(now) => seen = Bucket(now),
            }
        }
    }

    #[inline]
    pub(super) fn reject(&self) {
        // ORDERING: Relaxed: a count.
        self.own().rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// All successes outside of buckets. Never less than it was for whoever is ordered after.
    pub(super) fn ok(&self) -> u64 {
        // ORDERING: Relaxed: each only grows; the sum is of some moment for each.
        self.0.iter().map(|stripe| stripe.ok.load(Ordering::Relaxed)).sum()
    }

    /// All that were turned away.
    pub(super) fn rejected(&self) -> u64 {
        // ORDERING: Relaxed: a count.
        self.0.iter().map(|stripe| stripe.rejected.load(Ordering::Relaxed)).sum()
    }

    /// All successes in the buckets, in the window or not.
    pub(super) fn in_buckets(&self) -> u64 {
        self.sum(|bucket| bucket.count())
    }

    /// Successes in the `length` ticks up to `tick`.
    pub(super) fn since(&self, tick: u64, length: u64) -> u64 {
        (0..length.min(BUCKETS as u64))
            .map_while(|age| tick.checked_sub(age))
            .map(|tick| {
                let (slot, turn) = place(tick);
                let live = |stripe: &CachePadded<Stripe>| {
                    // ORDERING: Relaxed: a count.
                    let bucket = Bucket(stripe.buckets[slot].load(Ordering::Relaxed));
                    if bucket.turn() == turn { u64::from(bucket.count()) } else { 0 }
                };
                self.0.iter().map(live).sum::<u64>()
            })
            .sum()
    }

    /// Empties the buckets: what they counted is of another generation.
    pub(super) fn empty(&self) {
        for stripe in &self.0 {
            for bucket in &stripe.buckets {
                // ORDERING: Relaxed: a success that races it may be counted in the next window.
                let old = Bucket(bucket.swap(0, Ordering::Relaxed));
                // ORDERING: Relaxed: a count, which goes from the bucket to the sum of all.
                stripe.ok.fetch_add(u64::from(old.count()), Ordering::Relaxed);
            }
        }
    }

    fn sum(&self, f: impl Fn(Bucket) -> u32) -> u64 {
        // ORDERING: Relaxed: counts.
        let read = |bucket: &AtomicU64| u64::from(f(Bucket(bucket.load(Ordering::Relaxed))));
        self.0.iter().flat_map(|stripe| stripe.buckets.iter().map(read)).sum()
    }
}

#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_used_again_after_a_turn_and_nothing_is_lost_from_the_sum() {
        let stripes = Stripes::new(1);
        for tick in 0..100 {
            stripes.succeed_at(tick);
        }
        assert_eq!(stripes.since(99, 16), 16);
        assert_eq!(stripes.since(99, 10), 10);
        assert_eq!(stripes.since(105, 10), 4);
        assert_eq!(stripes.since(u64::MAX, 16), 0);
        assert_eq!(stripes.ok() + stripes.in_buckets(), 100);
        // Late by a turn: not in the window, but counted.
        stripes.succeed_at(83);
        assert_eq!(stripes.since(99, 16), 16);
        assert_eq!(stripes.ok() + stripes.in_buckets(), 101);
        stripes.empty();
        assert_eq!((stripes.ok(), stripes.in_buckets()), (101, 0));
    }

    #[test]
    fn what_a_shorter_bucket_left_is_replaced() {
        let stripes = Stripes::new(1);
        stripes.succeed_at(1 << 40);
        stripes.succeed_at(16);
        stripes.succeed_at(16);
        assert_eq!(stripes.since(16, 1), 2);
        assert_eq!(stripes.ok(), 1);
    }
}
