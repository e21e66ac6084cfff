//! What being watched costs: a beat, a check, a phi; a job that is measured.
//!
//! | group | what one iteration is |
//! |---|---|
//! | `beat` | one beat, by the coarse clock and by a time that was read before; beside a plain store |
//! | `check` | a look at 100 who beat, by deadline and by phi |
//! | `phi` | one phi, near and far from the mean |
//! | `ask` | `Runtime::health` of an idle runtime with two workers |
//! | `job` | 1,000 empty jobs handed in from outside, then all results taken; time per job |
//!
//! `job/plain` without the features `metrics` and `tracing` is what a job costs; with them, what it costs
//! that they are there; `job/measured`, that durations and waits are measured; `job/no span wanted`, a
//! subscriber that wants warnings alone; `job/each span kept by a registry`, one that wants all and does
//! nothing with them.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tenure::Runtime;
use tenure::clock::{Clock, MonotonicClock, Timestamp};
use tenure::health::{Detector, Health, PhiAccrual};

const JOBS: u64 = 1_000;

fn detector() -> Detector {
    Detector::deadline(Duration::from_secs(60), Duration::from_secs(600)).expect("in range")
}

fn phi() -> PhiAccrual {
    let mut phi = PhiAccrual::builder().build().expect("in range");
    for beat in 0..300 {
        phi.beat(Timestamp::from_nanos(beat * 1_000_000_000));
    }
    phi
}

fn watching(c: &mut Criterion) {
    let mut group = c.benchmark_group("beat");
    let health = Health::new();
    let beat = health.register("bench", detector());
    group.bench_function("beat", |b| b.iter(|| black_box(beat.beat())));
    let now = MonotonicClock::new().now();
    group.bench_function("beat_at", |b| b.iter(|| black_box(beat.beat_at(black_box(now)))));
    let word = AtomicU64::new(0);
    group.bench_function("a store", |b| b.iter(|| word.store(black_box(7), Ordering::Relaxed)));
    group.finish();

    let mut group = c.benchmark_group("check");
    for (name, by_phi) in [("100 by deadline", false), ("100 by phi", true)] {
        let health = Health::new();
        let beats: Vec<_> = (0..100)
            .map(|_| {
                let detector = match by_phi {
                    true => Detector::phi(phi(), 1e6).expect("in range"),
                    false => detector(),
                };
                health.register("bench", detector)
            })
            .collect();
        group.bench_function(name, |b| b.iter(|| black_box(health.check())));
        drop(beats);
    }
    group.finish();

    let mut group = c.benchmark_group("phi");
    let phi = phi();
    for (name, silence) in [("near", 1_100), ("far", 60_000)] {
        let silence = Duration::from_millis(silence);
        group.bench_function(name, |b| b.iter(|| black_box(phi.phi_after(black_box(silence)))));
    }
    group.finish();
}

fn jobs(c: &mut Criterion) {
    let mut group = c.benchmark_group("ask");
    let plain = Runtime::builder().workers(2).build().expect("threads");
    group.bench_function("health", |b| b.iter(|| black_box(plain.health())));
    group.finish();

    let mut group = c.benchmark_group("job");
    group.throughput(Throughput::Elements(JOBS));
    let mut outside = |name: &str, runtime: &Runtime| {
        group.bench_function(name, |b| {
            b.iter(|| {
                let jobs: Vec<_> = (0..JOBS)
                    .map(|i| runtime.submit(move |_| Ok::<_, String>(i)).expect("open"))
                    .collect();
                for job in jobs {
                    black_box(job.get().expect("succeeds"));
                }
            });
        });
    };
    outside("plain", &plain);
    #[cfg(feature = "metrics")]
    {
        let metrics = tenure::runtime::Metrics::new();
        let measured = Runtime::builder().workers(2).metrics(metrics).build().expect("threads");
        outside("measured", &measured);
        outside("plain again", &plain);
        outside("measured again", &measured);
    }
    // Last, because what was set once stays set.
    #[cfg(feature = "tracing")]
    {
        use tracing_subscriber::filter::LevelFilter;
        use tracing_subscriber::util::SubscriberInitExt;
        use tracing_subscriber::{Layer, Registry, layer::SubscriberExt, reload};

        struct Nothing;
        impl<S: tracing::Subscriber> Layer<S> for Nothing {}

        let (filter, level) = reload::Layer::new(LevelFilter::WARN);
        Registry::default().with(filter).with(Nothing).init();
        outside("no span wanted", &plain);
        level.reload(LevelFilter::TRACE).expect("it is there");
        outside("each span kept by a registry", &plain);
    }
    group.finish();
}

criterion_group!(benches, watching, jobs);
criterion_main!(benches);
