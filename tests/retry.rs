//! Retry policies through their public API. No test sleeps.

use std::cell::Cell;
use std::future::ready;
use std::time::Duration;

use proptest::prelude::*;
use tenure::clock::{Clock, ManualClock};
use tenure::retry::{ConfigError, Decision, Jitter, RetryPolicy, Stop};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// The table in the docs of `RetryPolicy`, row by row.
#[test]
fn the_defaults_are_those_of_the_table() {
    let policy = RetryPolicy::default();
    let built = RetryPolicy::exponential(100 * MS).build().unwrap();
    assert_eq!(policy, built);
    assert_eq!(built, RetryPolicy::exponential(100 * MS).factor(2.0).build().unwrap());
    assert_eq!(policy.max_delay(), 30 * SEC);
    assert_eq!(policy.jitter(), Jitter::Full);
    assert_eq!(policy.max_attempts(), Some(5));
    assert_eq!(policy.max_elapsed(), None);
    let bare = RetryPolicy::exponential(100 * MS).jitter(Jitter::None).build().unwrap();
    assert_eq!(bare.delays(0).collect::<Vec<_>>(), [100 * MS, 200 * MS, 400 * MS, 800 * MS]);
}

#[test]
fn each_option_out_of_range_is_named() {
    let base = || RetryPolicy::exponential(SEC);
    assert_eq!(base().factor(0.5).build(), Err(ConfigError::Factor(0.5)));
    assert!(matches!(base().factor(f64::NAN).build(), Err(ConfigError::Factor(_))));
    assert_eq!(base().max_attempts(0).build(), Err(ConfigError::MaxAttempts));
    assert_eq!(RetryPolicy::fixed(SEC).factor(2.0).build(), Err(ConfigError::FactorUnused));
    let error = base().max_delay(MS).build().unwrap_err();
    assert_eq!(error, ConfigError::MaxDelay { max_delay: MS, base: SEC });
    assert_eq!(error.to_string(), "max_delay is 1ms, must be at least the base, 1s");
    assert_eq!(RetryPolicy::exponential(60 * SEC).build().unwrap().max_delay(), 60 * SEC);
}

#[test]
fn the_curves_grow_as_they_say() {
    let delays = |policy: tenure::retry::RetryPolicyBuilder| {
        let policy = policy.jitter(Jitter::None).max_attempts(5).build().unwrap();
        policy.delays(0).map(|d| d.as_millis()).collect::<Vec<_>>()
    };
    assert_eq!(delays(RetryPolicy::fixed(7 * MS)), [7, 7, 7, 7]);
    assert_eq!(delays(RetryPolicy::linear(7 * MS)), [7, 14, 21, 28]);
    assert_eq!(delays(RetryPolicy::exponential(8 * MS).factor(1.5)), [8, 12, 18, 27]);
    assert_eq!(delays(RetryPolicy::exponential(8 * MS).factor(10.0)), [8, 80, 800, 8000]);
    assert_eq!(delays(RetryPolicy::exponential(8 * MS).max_delay(20 * MS)), [8, 16, 20, 20]);
    assert_eq!(delays(RetryPolicy::immediate()), [0, 0, 0, 0]);
    assert_eq!(RetryPolicy::never().delays(0).count(), 0);
}

fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => (any::<u64>(), 0u32..64).prop_map(|(n, shift)| Duration::from_nanos(n >> shift)),
        1 => Just(Duration::MAX),
        1 => Just(Duration::ZERO),
    ]
}

proptest! {
    /// Whatever the numbers: no panic, no delay beyond the cap, the same for the same seed, and a
    /// decision that agrees with the limits.
    #[test]
    fn a_policy_is_total_and_pure(
        base in any_duration(), cap in any_duration(), factor in 1.0f64..=1000.0,
        jitter in prop::sample::select(vec![Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated]),
        attempt in prop_oneof![0u32..100, Just(u32::MAX), any::<u32>()],
        most in prop::option::of(prop_oneof![1u32..100, Just(u32::MAX)]),
        limit in prop::option::of(any_duration()),
        previous in any_duration(), elapsed in any_duration(), seed in any::<u64>(),
    ) {
        let mut policy = RetryPolicy::exponential(base).factor(factor).jitter(jitter).max_delay(cap.max(base));
        policy = match most { Some(most) => policy.max_attempts(most), None => policy.without_max_attempts() };
        if let Some(limit) = limit { policy = policy.max_elapsed(limit); }
        let policy = policy.build().unwrap();

        let rng = || fastrand::Rng::with_seed(seed);
        let delay = policy.delay(attempt, previous, &mut rng());
        prop_assert!(delay <= policy.max_delay());
        prop_assert_eq!(delay, policy.delay(attempt, previous, &mut rng()));
        match policy.next(attempt, previous, elapsed, &mut rng()) {
            Decision::Retry(next) => {
                prop_assert_eq!(next, delay);
                prop_assert!(most.is_none_or(|most| attempt < most));
                prop_assert!(limit.is_none_or(|limit| elapsed.saturating_add(delay) <= limit));
            }
            Decision::GiveUp(Stop::MaxAttempts) => prop_assert!(attempt >= most.unwrap()),
            Decision::GiveUp(stop) => {
                prop_assert_eq!(stop, Stop::MaxElapsed);
                prop_assert!(elapsed.saturating_add(delay) > limit.unwrap());
            }
        }
    }

    #[test]
    fn the_iterator_agrees_with_the_policy(
        jitter in prop::sample::select(vec![Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated]),
        factor in 1.0f64..4.0, most in 1u32..40, seed in any::<u64>(), limit in any_duration(),
    ) {
        let policy = RetryPolicy::exponential(MS).factor(factor).jitter(jitter)
            .max_attempts(most).max_elapsed(limit).build().unwrap();
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut attempt, mut previous, mut elapsed) = (1, Duration::ZERO, Duration::ZERO);
        for delay in policy.delays(seed) {
            prop_assert_eq!(policy.next(attempt, previous, elapsed, &mut rng), Decision::Retry(delay));
            (attempt, previous, elapsed) = (attempt + 1, delay, elapsed + delay);
        }
        let last = policy.next(attempt, previous, elapsed, &mut rng);
        prop_assert!(matches!(last, Decision::GiveUp(_)), "{:?}", last);
    }
}

#[test]
fn without_limits_the_delays_never_end() {
    let policy = RetryPolicy::exponential(SEC).without_max_delay().without_max_attempts();
    let policy = policy.jitter(Jitter::None).build().unwrap();
    let mut delays = policy.delays(0);
    assert_eq!(delays.nth(100_000), Some(Duration::from_nanos(u64::MAX)));
    let bounded = RetryPolicy::fixed(SEC).jitter(Jitter::None).max_elapsed(3 * SEC);
    assert_eq!(bounded.build().unwrap().delays(0).count(), 3);
}

#[test]
fn a_crowd_at_the_cap_is_spread_over_it() {
    for jitter in [Jitter::Full, Jitter::Equal, Jitter::Decorrelated] {
        let policy =
            RetryPolicy::exponential(SEC).jitter(jitter).max_delay(10 * SEC).build().unwrap();
        let mut rng = fastrand::Rng::with_seed(5);
        let delays: Vec<_> =
            (0..1000).map(|_| policy.delay(u32::MAX, 10 * SEC, &mut rng)).collect();
        let (least, most) = (*delays.iter().min().unwrap(), *delays.iter().max().unwrap());
        assert!(most <= 10 * SEC && most > 9 * SEC, "{jitter:?}: {most:?}");
        assert!(least < 6 * SEC, "{jitter:?}: {least:?}");
    }
}

#[test]
fn a_foreign_delay_passes_the_limits_and_not_the_cap() {
    let policy = RetryPolicy::fixed(SEC).max_delay(SEC).max_elapsed(60 * SEC).build().unwrap();
    assert_eq!(policy.admit(1, SEC, 30 * SEC), Decision::Retry(30 * SEC));
    assert_eq!(policy.admit(1, SEC, Duration::MAX), Decision::GiveUp(Stop::MaxElapsed));
    assert_eq!(policy.admit(5, SEC, 30 * SEC), Decision::GiveUp(Stop::MaxAttempts));
}

#[test]
fn a_run_ends_at_the_first_success() {
    let policy = RetryPolicy::default();
    let runs = Cell::new(0);
    let clock = ManualClock::new();
    let sleeps = std::sync::Mutex::new(Vec::new());
    let seen = std::sync::Mutex::new(Vec::new());
    let answer = policy
        .runner()
        .clock(clock.clone())
        .seed(1)
        .sleep_with(|delay| {
            sleeps.lock().unwrap().push(delay);
            clock.advance(delay);
        })
        .on_retry(|error: &u32, attempt, delay| {
            seen.lock().unwrap().push((*error, attempt.number, delay));
        })
        .run(|attempt| {
            runs.set(runs.get() + 1);
            assert_eq!(attempt.elapsed, clock.now().saturating_since(Default::default()));
            if attempt.number == 3 { Ok("there") } else { Err(attempt.number * 10) }
        });
    assert_eq!((answer, runs.get()), (Ok("there"), 3));
    let sleeps = sleeps.into_inner().unwrap();
    assert_eq!(sleeps, policy.delays(1).take(2).collect::<Vec<_>>());
    assert_eq!(seen.into_inner().unwrap(), [(10, 1, sleeps[0]), (20, 2, sleeps[1])]);
}

#[test]
fn a_run_that_gives_up_hands_back_the_last_error_and_says_why() {
    let policy = RetryPolicy::immediate().max_attempts(3).build().unwrap();
    let mut n = 0;
    let gave_up = policy
        .run(|| -> Result<(), i32> {
            n += 1;
            Err(n)
        })
        .unwrap_err();
    assert_eq!((gave_up.error, gave_up.attempts, gave_up.stop), (3, 3, Stop::MaxAttempts));
    assert_eq!(gave_up.to_string(), "gave up after 3 attempt(s): all attempts were made");
    assert_eq!(gave_up.into_error(), 3);
}

#[test]
fn an_error_not_worth_a_retry_ends_the_run() {
    let policy = RetryPolicy::immediate().without_max_attempts().build().unwrap();
    let mut n = 0;
    let run = policy.runner().retry_if(|error: &i32| *error < 4);
    let gave_up = run
        .run(|_| -> Result<(), i32> {
            n += 1;
            Err(n)
        })
        .unwrap_err();
    assert_eq!((gave_up.error, gave_up.attempts, gave_up.stop), (4, 4, Stop::NotRetryable));
}

#[test]
fn a_slow_operation_uses_up_the_time_for_retries() {
    let policy =
        RetryPolicy::immediate().without_max_attempts().max_elapsed(10 * SEC).build().unwrap();
    let clock = ManualClock::new();
    let run = policy.runner().clock(clock.clone());
    let gave_up = run
        .run(|_| -> Result<(), ()> {
            clock.advance(3 * SEC);
            Err(())
        })
        .unwrap_err();
    assert_eq!((gave_up.attempts, gave_up.elapsed, gave_up.stop), (4, 12 * SEC, Stop::MaxElapsed));
}

/// Counts how often it is read.
#[derive(Clone, Debug)]
struct Watched(ManualClock, std::sync::Arc<std::sync::atomic::AtomicU32>);

impl Clock for Watched {
    fn now(&self) -> tenure::clock::Timestamp {
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.0.now()
    }

    fn real_time_until(&self, deadline: tenure::clock::Timestamp) -> Option<Duration> {
        self.0.real_time_until(deadline)
    }
}

#[test]
fn time_counts_from_the_beginning_where_it_is_limited_and_else_from_the_first_failure() {
    let clock = ManualClock::new();
    let elapsed = |policy: RetryPolicy| {
        let mut seen = Vec::new();
        let run = policy.runner().clock(clock.clone());
        let gave_up = run
            .run(|attempt| -> Result<(), ()> {
                seen.push(attempt.elapsed);
                clock.advance(3 * SEC);
                Err(())
            })
            .unwrap_err();
        (seen, gave_up.elapsed)
    };
    let three = || RetryPolicy::immediate().max_attempts(3);
    let timed = three().max_elapsed(Duration::MAX).build().unwrap();
    assert_eq!(elapsed(timed), (vec![Duration::ZERO, 3 * SEC, 6 * SEC], 9 * SEC));
    assert_eq!(
        elapsed(three().build().unwrap()),
        (vec![Duration::ZERO, Duration::ZERO, 3 * SEC], 6 * SEC)
    );

    let watched = Watched(clock.clone(), Default::default());
    let reads = || watched.1.swap(0, std::sync::atomic::Ordering::Relaxed);
    let untimed = three().build().unwrap().runner::<()>().clock(watched.clone());
    assert_eq!((untimed.run(|_| Ok(1)), reads()), (Ok(1), 0), "nothing asks for the time");
    let timed = timed.runner::<()>().clock(watched.clone());
    assert_eq!((timed.run(|_| Ok(1)), reads()), (Ok(1), 1));
}

#[test]
fn a_future_is_retried_by_its_own_sleep() {
    let policy = RetryPolicy::exponential(SEC).jitter(Jitter::None).build().unwrap();
    let (runs, slept) = (Cell::new(0), Cell::new(Duration::ZERO));
    let operation = || {
        runs.set(runs.get() + 1);
        ready(if runs.get() < 4 { Err("busy") } else { Ok(runs.get()) })
    };
    let sleep = |delay| {
        slept.set(slept.get() + delay);
        ready(())
    };
    let answer = futures::executor::block_on(policy.run_async(operation, sleep));
    assert_eq!((answer, slept.get()), (Ok(4), 7 * SEC));
}

#[test]
fn a_run_of_futures_can_be_sent() {
    fn sent<T: Send>(value: T) -> T {
        value
    }
    let policy = RetryPolicy::default();
    let run = sent(policy.runner::<&str>().run_async(|_| ready(Ok(1)), |_| ready(())));
    assert_eq!(futures::executor::block_on(run), Ok(1));
    // Its errors need not be: none is held while it waits.
    let policy = RetryPolicy::immediate().max_attempts(2).build().unwrap();
    let fails = || async { Err::<(), _>(std::rc::Rc::new("busy")) };
    let run = sent(policy.run_async(fails, |_| ready(())));
    assert_eq!(*futures::executor::block_on(run).unwrap_err().error, "busy");
    let run = sent(policy.runner().run_async(|_| fails(), |_| ready(())));
    assert_eq!(futures::executor::block_on(run).unwrap_err().attempts, 2);
}

#[test]
fn a_panic_is_not_retried() {
    let policy = RetryPolicy::immediate().build().unwrap();
    let runs = Cell::new(0);
    let run = std::panic::AssertUnwindSafe(|| {
        policy.run(|| -> Result<(), ()> {
            runs.set(runs.get() + 1);
            std::panic::resume_unwind(Box::new("boom"))
        })
    });
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!(runs.get(), 1);
}
