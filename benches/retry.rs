//! What a retry policy costs: a call that succeeds at once, beside the call itself; eight delays from
//! 100 ms, doubling, at most 30 s. And what a retry budget costs: a success, and a retry that two successes
//! pay for.

use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use backon::{BackoffBuilder, BlockingRetryable, ExponentialBuilder, Retryable};
use criterion::{Criterion, criterion_group, criterion_main};
use tenure::retry::{Jitter, RetryBudget, RetryPolicy};
use tokio_retry::strategy::{ExponentialBackoff, jitter};
use tower::retry::budget::{Budget, TpsBudget};

const BASE: Duration = Duration::from_millis(100);
const CAP: Duration = Duration::from_secs(30);

/// Uses each delay, as a caller does who sleeps it.
fn take(delays: impl Iterator<Item = Duration>) {
    for delay in delays.take(8) {
        black_box(delay);
    }
}

fn policy(jitter: Jitter) -> RetryPolicy {
    RetryPolicy::exponential(BASE).max_delay(CAP).jitter(jitter).max_attempts(9).build().unwrap()
}

/// 2 · 50 ms, 4 · 50 ms, …: this crate's base is the power's base.
fn tokio_retry() -> ExponentialBackoff {
    ExponentialBackoff::from_millis(black_box(2)).factor(50).max_delay(CAP)
}

fn backon() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(black_box(BASE))
        .with_max_delay(CAP)
        .with_factor(2.0)
        .with_max_times(8)
}

/// What succeeds at once.
#[inline]
fn call(n: u64) -> Result<u64, u64> {
    if black_box(n) == u64::MAX { Err(n) } else { Ok(n) }
}

/// Its value: so that no row is timed with the moves of its own type of error.
#[inline]
fn value<E>(result: Result<u64, E>) -> u64 {
    result.unwrap_or(0)
}

/// What such a future comes to, without an executor around it.
#[inline]
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("it has nothing to wait for"),
    }
}

fn no_sleep(_: Duration) -> Ready<()> {
    ready(())
}

fn successes(c: &mut Criterion) {
    let plain = policy(Jitter::Full);
    let timed = RetryPolicy::exponential(BASE).max_elapsed(CAP).build().unwrap();
    let mut n = 0;
    let mut next = move || {
        n += 1;
        black_box(n)
    };
    let mut group = c.benchmark_group("retry/a success at once");
    group.bench_function("the call alone", |b| b.iter(|| value(call(next()))));
    group.bench_function("tenure", |b| {
        b.iter(|| {
            let n = next();
            value(black_box(&plain).run(|| call(n)))
        });
    });
    group.bench_function("tenure, runner", |b| {
        b.iter(|| {
            let n = next();
            value(black_box(&plain).runner().retry_if(|error| *error > 7).run(|_| call(n)))
        });
    });
    group.bench_function("tenure, limit of time", |b| {
        b.iter(|| {
            let n = next();
            value(black_box(&timed).run(|| call(n)))
        });
    });
    group.bench_function("backon", |b| {
        b.iter(|| {
            let n = next();
            value((|| call(n)).retry(backon().with_jitter()).sleep(std::thread::sleep).call())
        });
    });
    group.finish();

    let mut group = c.benchmark_group("retry/a success at once, async");
    group.bench_function("the call alone", |b| {
        b.iter(|| {
            let n = next();
            value(at_once(async move { call(n) }))
        });
    });
    group.bench_function("tenure", |b| {
        b.iter(|| {
            let n = next();
            value(at_once(black_box(&plain).run_async(move || async move { call(n) }, no_sleep)))
        });
    });
    group.bench_function("backon", |b| {
        b.iter(|| {
            let n = next();
            let retry = (move || async move { call(n) }).retry(backon().with_jitter());
            value(at_once(retry.sleep(no_sleep).into_future()))
        });
    });
    group.bench_function("tokio-retry", |b| {
        b.iter(|| {
            let n = next();
            let delays = tokio_retry().map(jitter).take(8);
            value(at_once(tokio_retry::Retry::start(delays, move || async move { call(n) })))
        });
    });
    group.finish();
}

fn eight_delays(c: &mut Criterion) {
    let expected: Vec<_> = policy(Jitter::None).delays(0).collect();
    assert_eq!(expected, tokio_retry().take(8).collect::<Vec<_>>());
    // This crate's factor is an `f32`: some nanoseconds off.
    let close = |(a, b): (&Duration, Duration)| a.abs_diff(b) < Duration::from_micros(1);
    assert!(expected.iter().zip(backon().build()).all(close));

    let mut group = c.benchmark_group("retry/eight delays");
    let none = policy(Jitter::None);
    group.bench_function("tenure", |b| b.iter(|| take(black_box(&none).delays(1))));
    group.bench_function("tokio-retry", |b| b.iter(|| take(tokio_retry())));
    group.bench_function("backon", |b| b.iter(|| take(backon().build())));
    let odd = RetryPolicy::exponential(BASE).factor(1.7).max_delay(CAP).jitter(Jitter::None);
    let odd = odd.max_attempts(9).build().unwrap();
    group.bench_function("tenure, factor 1.7", |b| b.iter(|| take(black_box(&odd).delays(1))));
    group.finish();

    let mut group = c.benchmark_group("retry/eight delays with jitter");
    for (name, jitter) in [
        ("tenure, full", Jitter::Full),
        ("tenure, equal", Jitter::Equal),
        ("tenure, decorrelated", Jitter::Decorrelated),
    ] {
        let policy = policy(jitter);
        group.bench_function(name, |b| b.iter(|| take(black_box(&policy).delays(black_box(1)))));
    }
    group.bench_function("tokio-retry", |b| b.iter(|| take(tokio_retry().map(jitter))));
    group.bench_function("backon", |b| b.iter(|| take(backon().with_jitter().build())));
    group.finish();
}

/// What is measured of each budget.
trait Purse: Sync {
    fn deposit(&self);
    fn withdraw(&self) -> bool;
}

impl Purse for RetryBudget {
    fn deposit(&self) {
        RetryBudget::deposit(self);
    }

    fn withdraw(&self) -> bool {
        RetryBudget::withdraw(self)
    }
}

impl Purse for TpsBudget {
    fn deposit(&self) {
        Budget::deposit(self);
    }

    fn withdraw(&self) -> bool {
        Budget::withdraw(self)
    }
}

/// The same on `threads` threads at a time; the time of each, all in all.
fn on(threads: u64, iters: u64, f: impl Fn() + Sync) -> Duration {
    let barrier = std::sync::Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        let times: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    let begin = std::time::Instant::now();
                    for _ in 0..iters {
                        f();
                    }
                    begin.elapsed()
                })
            })
            .collect();
        times.into_iter().map(|time| time.join().unwrap()).max().unwrap()
    })
}

fn budgets(c: &mut Criterion) {
    // One retry for two successes, ten a second, ten seconds' worth.
    let ours = RetryBudget::builder().ratio(0.5).per_second(10).burst(100).build().unwrap();
    let tower = TpsBudget::new(Duration::from_secs(10), 10, 0.5);
    let flat = RetryBudget::builder().ratio(0.5).per_second(0).burst(100).build().unwrap();
    let all: [(&str, &dyn Purse); 3] =
        [("tenure", &ours), ("tenure, successes only", &flat), ("tower", &tower)];
    for threads in [1, 2] {
        let mut group = c.benchmark_group(format!("retry/budget, a success, {threads} thread(s)"));
        for (name, purse) in all {
            group.bench_function(name, |b| b.iter_custom(|n| on(threads, n, || purse.deposit())));
        }
        group.finish();
        let title = format!("retry/budget, two successes and a retry, {threads} thread(s)");
        let mut group = c.benchmark_group(title);
        for (name, purse) in all {
            let retry = || {
                purse.deposit();
                purse.deposit();
                black_box(purse.withdraw());
            };
            group.bench_function(name, |b| b.iter_custom(|n| on(threads, n, retry)));
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = successes, eight_delays, budgets
}
criterion_main!(benches);
