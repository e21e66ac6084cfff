//! Breaker and limits against simple models of them, over random sequences.

use std::time::Duration;

use proptest::prelude::*;
use tenure::breaker::*;
use tenure::clock::{Clock, ManualClock};
use tenure::limit::*;

/// What a call does, and how much later the next one is.
fn calls() -> impl Strategy<Value = Vec<(bool, u64)>> {
    prop::collection::vec((any::<bool>(), 0_u64..40), 1..300)
}

fn make(call: &mut impl FnMut() -> bool, breaker: &CircuitBreaker) {
    let good = call();
    let result = breaker.call(|| if good { Ok(()) } else { Err(()) });
    assert!(!matches!(result, Err(CallError::Rejected(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// A count window holds the last so many calls, and opens exactly when one of them fails while the
    /// rate is reached.
    #[test]
    fn a_count_window_is_the_last_calls(
        calls in calls(), length in 1_u32..30, min in 1_u32..30, percent in 1_u32..=100, stripes in 1_usize..4,
    ) {
        let min = min.min(length);
        let breaker = CircuitBreaker::builder()
            .window(Window::Count(length))
            .min_calls(min)
            .failure_rate(f64::from(percent) / 100.0)
            .stripes(stripes)
            .clock(ManualClock::new())
            .build()
            .unwrap();
        let mut all: Vec<bool> = Vec::new();
        for (good, _) in calls {
            make(&mut || good, &breaker);
            all.push(good);
            let window: Vec<_> = all.iter().rev().take(length as usize).collect();
            let failed = window.iter().filter(|good| !***good).count() as u64;
            let count = window.len() as u64;
            let opens = !good && count >= u64::from(min) && failed * 100 >= count * u64::from(percent);
            let snapshot = breaker.snapshot();
            if opens {
                prop_assert_eq!(snapshot.state, State::Open);
                breaker.reset();
                all.clear();
            } else {
                prop_assert_eq!((snapshot.state, snapshot.calls, snapshot.failed), (State::Closed, count, failed));
            }
        }
    }

    /// A time window holds the calls of its buckets: at least those of the time it says, at most an eighth
    /// more.
    #[test]
    fn a_time_window_is_the_latest_calls(calls in calls(), window in 0_u64..5000, scale in 1_u64..50) {
        let clock = ManualClock::new();
        let breaker = CircuitBreaker::builder()
            .window(Window::Time(Duration::from_nanos(window)))
            .min_calls(u32::MAX)
            .clock(clock.clone())
            .build()
            .unwrap();
        let bucket = 1_u64 << window.max(1).ilog2().saturating_sub(3);
        let reach = window.max(1).div_ceil(bucket) * bucket;
        prop_assert!(reach - window.max(1) <= window / 8);
        let mut all: Vec<(u64, bool)> = Vec::new();
        for (good, later) in calls {
            make(&mut || good, &breaker);
            all.push((clock.now().as_nanos(), good));
            clock.advance(Duration::from_nanos(later * scale));
            let now = clock.now().as_nanos();
            let live: Vec<_> = all
                .iter()
                .filter(|(at, _)| now / bucket - at / bucket < reach / bucket)
                .collect();
            let failed = live.iter().filter(|(_, good)| !good).count();
            let snapshot = breaker.snapshot();
            prop_assert_eq!((snapshot.calls, snapshot.failed), (live.len() as u64, failed as u64));
        }
        let totals = breaker.snapshot().totals;
        prop_assert_eq!(totals.succeeded + totals.failed, all.len() as u64);
    }

    /// In no interval more than the burst and what its length pays for; never refused at the pace; and
    /// after the time in a refusal there is one.
    #[test]
    fn a_rate_is_never_exceeded(
        count in 1_u32..50, period in 1_u64..2000, burst in 1_u32..20,
        asks in prop::collection::vec((0_u64..200, 1_u32..4), 1..200),
    ) {
        let clock = ManualClock::new();
        let rate = Rate::per(count, Duration::from_nanos(period)).unwrap().burst(burst).unwrap();
        let interval = rate.interval().as_nanos() as u64;
        let limit = RateLimit::with_clock(rate, clock.clone());
        let keyed = KeyedRateLimit::with_max_keys(rate, 4, clock.clone()).unwrap();
        let mut let_through: Vec<(u64, u64)> = Vec::new();
        for (later, many) in asks {
            clock.advance(Duration::from_nanos(later));
            let now = clock.now().as_nanos();
            let taken = limit.try_acquire_many(many);
            prop_assert_eq!(taken.as_ref().map(drop).map_err(|l| *l), keyed.try_acquire_many(&(), many));
            match taken {
                Ok(_) => let_through.push((now, u64::from(many))),
                Err(limited) => {
                    prop_assert_eq!(limited.retry_after.is_some(), many <= burst);
                    if let Some(wait) = limited.retry_after {
                        clock.advance(wait - Duration::from_nanos(1));
                        prop_assert!(limit.try_acquire_many(many).is_err());
                        clock.advance(Duration::from_nanos(1));
                        prop_assert!(limit.try_acquire_many(many).is_ok());
                        prop_assert!(keyed.try_acquire_many(&(), many).is_ok());
                        let_through.push((clock.now().as_nanos(), u64::from(many)));
                    }
                }
            }
        }
        for (i, (from, _)) in let_through.iter().enumerate() {
            let mut sum = 0;
            for (to, many) in &let_through[i..] {
                sum += many;
                prop_assert!(sum <= u64::from(burst) + (to - from) / interval);
            }
        }
        clock.advance(Duration::from_nanos(interval * u64::from(burst)));
        for _ in 0..20 {
            prop_assert!(limit.try_acquire().is_ok());
            clock.advance(rate.interval());
        }
    }

    /// However calls end: the limit stays within its bounds, rises by one at a time, and falls once in a
    /// window at most.
    #[test]
    fn an_adaptive_limit_stays_within_its_bounds(
        initial in 0_u32..50, least in 1_u32..10, more in 0_u32..40, window in 0_u64..100,
        calls in prop::collection::vec((0_u64..40, 0_u8..4), 1..400),
    ) {
        let clock = ManualClock::new();
        let most = least + more;
        let limit = AdaptiveLimit::builder()
            .initial(initial)
            .bounds(least, most)
            .target(Duration::from_nanos(20))
            .window(Duration::from_nanos(window))
            .clock(clock.clone())
            .build()
            .unwrap();
        let mut lowered: Option<u64> = None;
        let mut out = Vec::new();
        for (time, end) in calls {
            let before = limit.limit();
            prop_assert!((least..=most).contains(&before));
            if let Ok(permit) = limit.try_acquire() {
                out.push(permit);
            }
            clock.advance(Duration::from_nanos(time));
            if end == 3 || limit.try_acquire().is_err() {
                let permit = out.remove(time as usize % out.len());
                match end {
                    0 => permit.success(),
                    1 => permit.overloaded(),
                    2 => permit.ignore(),
                    _ => permit.success_with(Duration::from_nanos(time)),
                }
            }
            prop_assert_eq!(limit.in_use() as usize, out.len());
            let after = limit.limit();
            prop_assert!(after <= before + 1);
            if after < before {
                let now = clock.now().as_nanos();
                prop_assert!(lowered.is_none_or(|last| now - last >= window));
                lowered = Some(now);
            }
        }
    }
}
