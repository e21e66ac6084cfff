//! The retry budget through its public API. Time is a clock that the test moves.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tenure::clock::{Clock, ManualClock, MonotonicClock, Timestamp};
use tenure::retry::{ConfigError, Decision, Jitter, RetryBudget, RetryPolicy, Stop};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// The table in the docs of `RetryBudget`.
#[test]
fn the_defaults_are_those_of_the_table() {
    let clock = ManualClock::new();
    let budget = RetryBudget::builder().clock(clock.clone()).build().unwrap();
    assert_eq!((budget.burst(), budget.balance()), (100, 100));
    assert_eq!(RetryBudget::default().burst(), 100);
    for _ in 0..100 {
        assert!(budget.withdraw());
    }
    assert!(!budget.withdraw());
    for _ in 0..5 {
        budget.deposit();
    }
    assert_eq!(budget.balance(), 1);
    clock.advance(SEC);
    assert_eq!(budget.balance(), 11);
}

#[test]
fn each_option_out_of_range_is_named() {
    let base = RetryBudget::builder;
    for bad in [-0.1, 1000.1, f64::INFINITY] {
        assert_eq!(base().ratio(bad).build().unwrap_err(), ConfigError::Ratio(bad));
    }
    assert!(matches!(base().ratio(f64::NAN).build(), Err(ConfigError::Ratio(_))));
    assert_eq!(base().burst(0).build().unwrap_err(), ConfigError::Burst);
    let error = base().per_second(1_000_001).build().unwrap_err();
    assert_eq!(error, ConfigError::PerSecond(1_000_001));
    assert_eq!(error.to_string(), "per_second is 1000001, must be at most 1000000");
    let most = base().per_second(1_000_000).burst(u32::MAX).ratio(1000.0).build().unwrap();
    assert_eq!(most.balance(), u32::MAX);
    let slow = base().per_second(1).burst(u32::MAX).build().unwrap();
    assert_eq!(slow.balance(), u32::MAX);
}

#[test]
fn a_budget_refills_by_time_up_to_its_burst_and_no_further() {
    let clock = ManualClock::new();
    let budget =
        RetryBudget::builder().per_second(4).burst(3).clock(clock.clone()).build().unwrap();
    while budget.withdraw() {}
    clock.advance(249 * MS);
    assert!(!budget.withdraw());
    clock.advance(MS);
    assert!(budget.withdraw());
    assert!(!budget.withdraw());
    clock.advance(1_000_000 * SEC);
    assert_eq!(budget.balance(), 3);
    // As far as a clock goes.
    clock.advance_to(Timestamp::from_nanos(u64::MAX - 1));
    assert_eq!(budget.balance(), 3);
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Deposit,
    Withdraw,
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Deposit),
        4 => Just(Op::Withdraw),
        2 => (any::<u64>(), 20u32..64).prop_map(|(bits, shift)| Op::Advance(bits >> shift)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Beside a plain bucket that is refilled at each look.
    #[test]
    fn a_budget_is_a_bucket(
        ratio in 0.0f64..4.0, per_second in prop_oneof![Just(0u32), 1u32..2000],
        burst in 1u32..50, start in 0u64..1 << 50, ops in vec(op(), 1..300),
    ) {
        let clock = ManualClock::new();
        clock.advance_to(Timestamp::from_nanos(start));
        let builder = RetryBudget::builder().ratio(ratio).per_second(per_second).burst(burst);
        let budget = builder.clock(clock.clone()).build().unwrap();
        // What a retry costs, in nanoseconds; without a rate those are only a scale.
        let cost = 1_000_000_000u64.checked_div(per_second.into()).unwrap_or(1_000_000_000);
        let gain = (ratio * cost as f64).ceil() as u128;
        let (cost, full) = (u128::from(cost), u128::from(cost) * u128::from(burst));
        let mut bucket = full;
        for op in ops {
            match op {
                Op::Deposit => {
                    budget.deposit();
                    bucket = (bucket + gain).min(full);
                }
                Op::Withdraw => {
                    let enough = bucket >= cost;
                    prop_assert_eq!(budget.withdraw(), enough);
                    if enough {
                        bucket -= cost;
                    }
                }
                Op::Advance(nanos) => {
                    clock.advance(Duration::from_nanos(nanos));
                    if per_second > 0 {
                        bucket = (bucket + u128::from(nanos)).min(full);
                    }
                }
            }
            prop_assert_eq!(u128::from(budget.balance()), bucket / cost);
        }
    }

    /// Whatever the base, the factor, the cap, the attempt and the seed: a delay is inside the
    /// envelope that the curve and the jitter draw, and the same seed gives the same delay.
    #[test]
    fn every_delay_is_inside_its_envelope(
        base in any::<u64>().prop_flat_map(|b| (0u32..64).prop_map(move |s| b >> s)),
        factor in 1.0f64..=1000.0, more in any::<u64>(), attempt in any::<u32>(),
        previous in any::<u64>(), seed in any::<u64>(),
    ) {
        let cap = base.saturating_add(more >> (seed % 64));
        let (low, high) = (Duration::from_nanos(base), Duration::from_nanos(cap));
        let previous = Duration::from_nanos(previous);
        let policy = |jitter| {
            let policy = RetryPolicy::exponential(low).factor(factor).max_delay(high);
            policy.jitter(jitter).without_max_attempts().build().unwrap()
        };
        let delay = |jitter| {
            let rng = || fastrand::Rng::with_seed(seed);
            let delay = policy(jitter).delay(attempt, previous, &mut rng());
            assert_eq!(policy(jitter).delay(attempt, previous, &mut rng()), delay);
            delay
        };
        let bare = delay(Jitter::None);
        prop_assert!(low <= bare && bare <= high);
        // The curve, by logarithms, where they are exact enough to tell.
        let steps = f64::from(attempt.max(1) - 1);
        let grown = (base as f64).ln() + steps * factor.ln();
        if base > 0 && grown < (cap as f64).ln() - 0.01 && grown < 43.0 {
            let off = ((bare.as_nanos() as f64).ln() - grown).abs();
            prop_assert!(off < 0.01 || bare.as_nanos() < 1000, "{bare:?}, off by {off}");
        } else if grown > (cap as f64).ln() + 0.01 {
            prop_assert_eq!(bare, high);
        }
        prop_assert!(delay(Jitter::Full) <= bare);
        let equal = delay(Jitter::Equal);
        prop_assert!(bare / 2 <= equal && equal <= bare);
        let decorrelated = delay(Jitter::Decorrelated);
        prop_assert!(low <= decorrelated && decorrelated <= high);
        prop_assert!(decorrelated <= previous.saturating_mul(3).max(low));
    }
}

/// 10,000 callers whose service goes down at once, and comes back after five seconds.
#[test]
fn a_retry_storm_is_spread_and_under_the_budget() {
    const CALLERS: u32 = 10_000;
    const RATE: u32 = 200;
    const BURST: u32 = 1_000;
    const RATIO: f64 = 0.1;
    let back = Timestamp::ORIGIN.saturating_add(5 * SEC);
    let clock = ManualClock::new();
    let budget = RetryBudget::builder().ratio(RATIO).per_second(RATE).burst(BURST);
    let budget = budget.clock(clock.clone()).build().unwrap();
    let policy = RetryPolicy::exponential(200 * MS).max_delay(4 * SEC).max_attempts(8);
    let policy = policy.build().unwrap();

    // When each makes which attempt.
    let mut queue = BinaryHeap::new();
    for caller in 0..CALLERS {
        queue.push(Reverse((Timestamp::ORIGIN, caller, 1)));
    }
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut retries, mut refused, mut successes) = (Vec::new(), 0, 0u32);
    while let Some(Reverse((at, caller, attempt))) = queue.pop() {
        clock.advance_to(at);
        if attempt > 1 {
            retries.push(at);
        }
        if at >= back {
            budget.deposit();
            successes += 1;
            continue;
        }
        match policy.next(attempt, Duration::ZERO, Duration::ZERO, &mut rng) {
            Decision::Retry(delay) if budget.withdraw() => {
                queue.push(Reverse((at.saturating_add(delay), caller, attempt + 1)));
            }
            _ => refused += 1,
        }
    }
    assert_eq!(refused + successes, CALLERS);
    assert!(refused > CALLERS / 2, "{refused}");

    // A retry is withdrawn up to the longest delay before it is made; no second sees more than all that
    // could be withdrawn since.
    let most = |window: Duration| {
        let time = (window + policy.max_delay()).as_secs_f64() * f64::from(RATE);
        f64::from(BURST) + time + f64::from(successes) * RATIO
    };
    let window = |length: Duration| {
        let mut first = 0;
        (0..retries.len())
            .map(|last| {
                while retries[last].saturating_since(retries[first]) > length {
                    first += 1;
                }
                last - first + 1
            })
            .max()
            .unwrap()
    };
    assert!((window(SEC) as f64) <= most(SEC), "{}", window(SEC));
    assert!((retries.len() as f64) <= most(5 * SEC), "{}", retries.len());
    // The first wave is spread over its delay: a thousand over 200 ms are five a millisecond.
    assert!(window(MS) < 25, "{} in a millisecond", window(MS));
}

/// Real threads: what goes out is what was there and what came in, to the last one.
#[test]
fn nothing_is_lost_or_spent_twice_among_threads() {
    let budget = RetryBudget::builder().ratio(0.5).per_second(0).burst(1000).build().unwrap();
    let (budget, out) = (Arc::new(budget), AtomicU64::new(0));
    while budget.withdraw() {}
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..600 {
                    budget.deposit();
                }
            });
            scope.spawn(|| {
                for _ in 0..600 {
                    out.fetch_add(budget.withdraw().into(), Ordering::Relaxed);
                }
            });
        }
    });
    // 1,800 deposits are 900 retries, less than the burst: none is forgone.
    assert_eq!(out.into_inner() + u64::from(budget.balance()), 900);
}

#[test]
fn runs_share_a_budget_and_successes_pay_it_back() {
    let policy = RetryPolicy::immediate().max_attempts(4).build().unwrap();
    let budget = RetryBudget::builder().ratio(1.0).per_second(0).burst(3).build().unwrap();
    let fail = || policy.runner().budget(&budget).run(|_| Err::<(), _>("down"));
    assert_eq!(fail().unwrap_err().stop, Stop::MaxAttempts);
    assert_eq!(fail().unwrap_err().stop, Stop::Budget);
    assert_eq!(policy.runner().budget(&budget).run(|_| Ok::<_, ()>(1)), Ok(1));
    assert_eq!(budget.balance(), 1);
    // An error that is not worth it costs nothing.
    let run = policy.runner().budget(&budget).retry_if(|_: &&str| false);
    assert_eq!(run.run(|_| Err::<(), _>("never")).unwrap_err().stop, Stop::NotRetryable);
    assert_eq!(budget.balance(), 1);
    let run = policy.runner().budget(&budget);
    let end = futures::executor::block_on(
        run.run_async(|_| std::future::ready(Err::<(), _>("down")), |_| std::future::ready(())),
    );
    let end = end.unwrap_err();
    assert_eq!((end.attempts, end.stop), (2, Stop::Budget));
}

#[test]
fn a_budget_goes_where_it_must() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<RetryBudget>();
    shared::<RetryBudget<ManualClock>>();
    let budget = RetryBudget::builder().burst(7).build().unwrap();
    assert_eq!(format!("{budget:?}"), "RetryBudget { balance: 7, burst: 7, .. }");
    assert!(MonotonicClock::new().now() > Timestamp::ORIGIN);
}
