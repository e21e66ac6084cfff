//! What a retry policy costs: eight delays from 100 ms, doubling, at most 30 s.

use std::hint::black_box;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use criterion::{Criterion, criterion_group, criterion_main};
use tenure::retry::{Jitter, RetryPolicy};
use tokio_retry::strategy::{ExponentialBackoff, jitter};

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

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = eight_delays
}
criterion_main!(benches);
