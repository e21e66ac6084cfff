//! Deadlines as ticks, and the clock in two stages.
//!
//! A tick is a millisecond since the table was made. A deadline is rounded *up* to a tick and the
//! time *down*, so a lease lasts at least as long as it was asked for.
//!
//! Most looks at the clock are far from any deadline. They read the coarse clock (6 ns, a few
//! milliseconds late); only a look within the coarse clock's lag of the deadline reads the precise
//! one (25–40 ns). The answer is always the one that the precise clock would have given, as long as
//! the coarse clock lags no more than it [says](Clock::coarse_lag).
//!
//! It can: a hypervisor that holds up the processor which ticks leaves the others with an old coarse
//! time. Even so no lease is believed in by its holder after others found it over. Both sides ask the
//! *same* coarse clock whether the precise one has to be read; it never goes back; so once a contender
//! was sent to the precise clock, so is every holder who asks later. What such a lag does cost: a lease
//! that nobody wants may be used longer, a contender waits longer, and a lease that started on the
//! coarse clock (one of more than 64 lags) ends earlier by what the lag exceeds its bound.

use core::time::Duration;

use super::word::TICK_LAST;
use crate::clock::{Clock, Timestamp};

/// Nanoseconds a tick.
const TICK_NANOS: u64 = 1_000_000;

/// A lease of at least this many lags may start at the coarse time: it lasts longer by less than
/// one part in that number.
const COARSE_GRANT: u64 = 64;

/// The table's clock.
#[derive(Debug)]
pub(super) struct Ticks<C> {
    clock: C,
    origin: u64,
    /// The precise tick is at most this far ahead of the coarse one.
    lag: u64,
    lag_nanos: u64,
}

impl<C: Clock> Ticks<C> {
    pub(super) fn new(clock: C) -> Self {
        let lag_nanos = crate::clock::nanos_saturating(clock.coarse_lag());
        // Nanoseconds apart by less than n ticks lie in ticks apart by at most n.
        let lag = lag_nanos.div_ceil(TICK_NANOS);
        Self { origin: clock.now().as_nanos(), lag, lag_nanos, clock }
    }

    pub(super) fn clock(&self) -> &C {
        &self.clock
    }

    #[inline]
    fn tick_of(&self, at: Timestamp) -> u64 {
        at.as_nanos().saturating_sub(self.origin) / TICK_NANOS
    }

    /// The tick now, precisely.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.tick_of(self.clock.now())
    }

    /// Whether now < `deadline`: its owner may act.
    #[inline]
    pub(super) fn is_before(&self, deadline: u64) -> bool {
        let coarse = self.tick_of(self.clock.coarse());
        if coarse.saturating_add(self.lag) < deadline {
            return true;
        }
        coarse < deadline && self.lag != 0 && self.now() < deadline
    }

    /// Whether now > `deadline`: others may take over.
    #[inline]
    pub(super) fn is_after(&self, deadline: u64) -> bool {
        let coarse = self.tick_of(self.clock.coarse());
        if coarse > deadline {
            return true;
        }
        coarse.saturating_add(self.lag) > deadline && self.now() > deadline
    }

    /// The deadline of a lease that starts now; `None` if the range has no such tick.
    #[inline]
    pub(super) fn deadline(&self, ttl: Duration) -> Option<u64> {
        let ttl = u64::try_from(ttl.as_nanos()).ok()?;
        let now = if self.lag_nanos != 0 && ttl / COARSE_GRANT >= self.lag_nanos {
            self.clock.coarse().as_nanos().checked_add(self.lag_nanos)?
        } else {
            self.clock.now().as_nanos()
        };
        let end = now.saturating_sub(self.origin).checked_add(ttl)?;
        let tick = end.div_ceil(TICK_NANOS);
        (tick <= TICK_LAST).then_some(tick)
    }

    /// The deadline of one that starts now, for who may act until `deadline`: by one look at the coarse
    /// clock. `None`: it is near, or the ttl too short or out of range; ask the long way.
    #[inline]
    pub(super) fn renewal(&self, deadline: u64, ttl: Duration) -> Option<u64> {
        let ttl = u64::try_from(ttl.as_nanos()).ok()?;
        if ttl / COARSE_GRANT < self.lag_nanos {
            return None;
        }
        let coarse = self.clock.coarse();
        if self.tick_of(coarse).saturating_add(self.lag) >= deadline {
            return None;
        }
        let now = coarse.as_nanos().saturating_sub(self.origin);
        let end = now.checked_add(self.lag_nanos)?.checked_add(ttl)?;
        let tick = end.div_ceil(TICK_NANOS);
        (tick <= TICK_LAST).then_some(tick)
    }

    /// The longest lease that can be asked for now.
    pub(super) fn longest(&self) -> Duration {
        let left = TICK_LAST.saturating_sub(self.now().saturating_add(self.lag).saturating_add(1));
        Duration::from_millis(left)
    }

    /// How long until `deadline`; zero if it is here.
    pub(super) fn until(&self, deadline: u64) -> Duration {
        self.moment(deadline).saturating_since(self.clock.now())
    }

    /// When `deadline` is, on the clock.
    pub(super) fn moment(&self, deadline: u64) -> Timestamp {
        Timestamp::from_nanos(self.origin.saturating_add(deadline.saturating_mul(TICK_NANOS)))
    }

    /// When to look at `tick` again: then, or in a tick, if it is past and was found not to be.
    pub(super) fn look_at(&self, tick: u64) -> Timestamp {
        let (at, now) = (self.moment(tick), self.clock.now());
        if at > now { at } else { now.saturating_add(Duration::from_nanos(TICK_NANOS)) }
    }

    /// How long a contender has to wait before it may take over from a holder until `deadline`; at
    /// least one tick.
    pub(super) fn retry_after(&self, deadline: u64) -> Duration {
        self.until(deadline.saturating_add(1)).max(Duration::from_nanos(TICK_NANOS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::sync::atomic::{AtomicU32, Ordering};

    /// A clock whose coarse reading lags 4 ms behind, and which counts precise readings.
    #[derive(Clone, Debug)]
    struct Lagging(ManualClock, std::sync::Arc<AtomicU32>);

    impl Clock for Lagging {
        fn now(&self) -> Timestamp {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.now()
        }
        fn coarse(&self) -> Timestamp {
            Timestamp::from_nanos(self.0.now().as_nanos().saturating_sub(3_999_999))
        }
        fn coarse_lag(&self) -> Duration {
            Duration::from_millis(4)
        }
        fn real_time_until(&self, _: Timestamp) -> Option<Duration> {
            None
        }
    }

    #[test]
    fn two_stages_answer_as_the_precise_clock_and_read_it_only_near_the_deadline() {
        let manual = ManualClock::new();
        manual.advance(Duration::from_secs(1));
        let reads = std::sync::Arc::new(AtomicU32::new(0));
        let ticks = Ticks::new(Lagging(manual.clone(), reads.clone()));
        for micros in (0..40_000).step_by(333) {
            let precise = micros / 1000;
            for deadline in 0..60 {
                reads.store(0, Ordering::Relaxed);
                assert_eq!(ticks.is_before(deadline), precise < deadline, "{micros} {deadline}");
                assert_eq!(ticks.is_after(deadline), precise > deadline, "{micros} {deadline}");
                if precise.abs_diff(deadline) > 9 {
                    assert_eq!(reads.load(Ordering::Relaxed), 0, "{micros} {deadline}");
                }
            }
            manual.advance(Duration::from_micros(333));
        }
    }

    /// A clock that says it lags 4 ms behind and, for as long as a test likes, stands still.
    #[derive(Clone, Debug)]
    struct Stuck {
        precise: ManualClock,
        coarse: ManualClock,
    }

    impl Clock for Stuck {
        fn now(&self) -> Timestamp {
            self.precise.now()
        }
        fn coarse(&self) -> Timestamp {
            self.coarse.now()
        }
        fn coarse_lag(&self) -> Duration {
            Duration::from_millis(4)
        }
        fn real_time_until(&self, _: Timestamp) -> Option<Duration> {
            None
        }
    }

    #[test]
    fn a_coarse_clock_that_stands_still_makes_nobody_believe_in_a_lease_that_another_may_take() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let clock = Stuck { precise: ManualClock::new(), coarse: ManualClock::new() };
            let ticks = Ticks::new(clock.clone());
            let deadline = rng.u64(1..80);
            let mut over = false;
            for _ in 0..40 {
                clock.precise.advance(Duration::from_micros(rng.u64(0..5_000)));
                if rng.u8(0..6) == 0 {
                    clock.coarse.advance_to(clock.precise.now());
                }
                over |= ticks.is_after(deadline);
                assert!(!(over && ticks.is_before(deadline)), "{clock:?} {deadline}");
            }
            clock.coarse.advance_to(clock.precise.now());
            assert_eq!(ticks.is_after(deadline), ticks.now() > deadline);
            assert_eq!(ticks.is_before(deadline), ticks.now() < deadline);
        }
    }

    #[test]
    fn who_looks_in_vain_looks_again_later_and_not_at_once() {
        let manual = ManualClock::new();
        let ticks = Ticks::new(manual.clone());
        assert_eq!(ticks.look_at(7), ticks.moment(7));
        manual.advance(Duration::from_millis(9));
        assert!(ticks.look_at(7) > manual.now());
    }

    #[test]
    fn a_deadline_is_never_early_and_hardly_late() {
        let manual = ManualClock::new();
        let reads = std::sync::Arc::new(AtomicU32::new(0));
        let ticks = Ticks::new(Lagging(manual.clone(), reads));
        manual.advance(Duration::from_nanos(1_234_567));
        assert_eq!(ticks.deadline(Duration::ZERO), Some(2));
        assert_eq!(ticks.deadline(Duration::from_millis(10)), Some(12));
        assert_eq!(ticks.deadline(Duration::MAX), None);
        manual.advance(Duration::from_secs(1));
        let asked = Duration::from_secs(4);
        assert_eq!(ticks.renewal(2_000, asked), ticks.deadline(asked));
        assert_eq!(ticks.renewal(1_001, asked), None, "too near to trust the coarse clock");
        assert_eq!(ticks.renewal(2_000, Duration::from_millis(200)), None, "too short");
        assert_eq!(ticks.renewal(2_000, Duration::MAX), None);
        let until = ticks.until(ticks.deadline(asked).expect("in range"));
        assert!(until >= asked && until <= asked + Duration::from_millis(5), "{until:?}");
        assert_eq!(ticks.deadline(ticks.longest()).map(|t| t <= TICK_LAST), Some(true));
    }
}
