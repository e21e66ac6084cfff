//! Jobs with a result, beside the pools that people use, all with two workers.
//!
//! | group | what one iteration is |
//! |---|---|
//! | `outside/…` | 1,000 jobs handed in by a thread that is no worker, then all results taken; time per job |
//! | `batches_of_64` | 64 jobs handed in, 64 results taken; time per job |
//! | `inside/…` | a job hands in 1,000 jobs; the outside takes their results; time per job |
//! | `chained/…` | 1,000 jobs, each of which hands in the next one; time per job |
//! | `many` | 1,000 jobs handed in by one call, where there is one; time per job |
//! | `full` | as `outside`, with a watched attempt, a retry policy and the result; see `retried` for what peers do |
//! | `full, one failure` | the same where the first attempt fails and is made again at once |
//!
//! Each of the first four with empty jobs, and (but for the batches) with jobs of 1 and 20 µs. The time
//! from handing in to starting is in `runtime_latency`.
//!
//! What came of it stands in the documentation of `tenure::runtime`.

mod pools;
mod retried;

use std::hint::black_box;
use std::sync::mpsc;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use pools::{AsyncExecutor, Channel, Pool, Rayon, Tenure, ThreadPool, Tokio, work};
use retried::Retrying;

const JOBS: u64 = 1000;

fn outside<P: Pool>(pool: &P, jobs: u64, nanos: u64) {
    for handle in pool.submit_all(jobs, nanos) {
        black_box(P::get(handle));
    }
}

fn inside<P: Pool>(pool: &P, jobs: u64, nanos: u64) {
    let (send, handles) = mpsc::sync_channel(1);
    let inner = pool.clone();
    let outer = pool.submit(move || {
        let _ = send.send(inner.submit_all(jobs, nanos));
        0
    });
    for handle in handles.recv().expect("the handles") {
        black_box(P::get(handle));
    }
    P::get(outer);
}

fn chain<P: Pool>(pool: P, left: u64, nanos: u64, done: mpsc::SyncSender<()>) -> P::Handle {
    let inner = pool.clone();
    pool.submit(move || {
        let x = work(left, nanos);
        if left == 0 {
            let _ = done.send(());
        } else {
            P::detach(chain(inner, left - 1, nanos, done));
        }
        x
    })
}

fn chained<P: Pool>(pool: &P, jobs: u64, nanos: u64) {
    let (send, done) = mpsc::sync_channel(1);
    P::detach(chain(pool.clone(), jobs - 1, nanos, send));
    done.recv().expect("the last one");
}

type Group<'a> = BenchmarkGroup<'a, WallTime>;

fn one<P: Pool>(group: &mut Group<'_>, name: &str, pool: &P, round: impl Fn(&P)) {
    group.bench_function(name, |b| b.iter(|| round(pool)));
}

macro_rules! all {
    ($group:expr, $pools:expr, $round:expr) => {{
        let (tenure, channel, rayon, tokio, executor, threadpool) = $pools;
        one($group, "tenure", tenure, $round);
        one($group, "channel", channel, $round);
        one($group, "rayon", rayon, $round);
        one($group, "tokio", tokio, $round);
        one($group, "async-executor", executor, $round);
        one($group, "threadpool", threadpool, $round);
    }};
}

fn benches(c: &mut Criterion) {
    pools::calibrate();
    let tenure = Tenure::bare();
    let full = Tenure::full();
    let (channel, rayon, tokio) = (Channel::new(), Rayon::new(), Tokio::new());
    let (executor, threadpool) = (AsyncExecutor::new(), ThreadPool::new());
    let pools = (&tenure, &channel, &rayon, &tokio, &executor, &threadpool);

    for (nanos, label) in [(0, "empty"), (1_000, "1us"), (20_000, "20us")] {
        // Long jobs: fewer of them tell the same.
        let jobs = if nanos == 20_000 { JOBS / 10 } else { JOBS };
        let mut group = c.benchmark_group(format!("outside/{label}"));
        group.throughput(Throughput::Elements(jobs));
        all!(&mut group, pools, |pool| outside(pool, jobs, nanos));
        group.finish();
        let mut group = c.benchmark_group(format!("inside/{label}"));
        group.throughput(Throughput::Elements(jobs));
        all!(&mut group, pools, |pool| inside(pool, jobs, nanos));
        group.finish();
        let mut group = c.benchmark_group(format!("chained/{label}"));
        group.throughput(Throughput::Elements(jobs));
        all!(&mut group, pools, |pool| chained(pool, jobs, nanos));
        group.finish();
    }

    let mut group = c.benchmark_group("batches_of_64");
    group.throughput(Throughput::Elements(64));
    all!(&mut group, pools, |pool| outside(pool, 64, 0));
    group.finish();

    let mut group = c.benchmark_group("many");
    group.throughput(Throughput::Elements(JOBS));
    group.bench_function("tenure", |b| {
        b.iter(|| {
            let jobs = (0..JOBS).map(|i| move |_: &_| Ok::<_, std::convert::Infallible>(i));
            for handle in tenure.0.submit_many(jobs).expect("open") {
                black_box(handle.get().expect("a value"));
            }
        });
    });
    one(&mut group, "channel", &channel, |pool| outside(pool, JOBS, 0));
    group.finish();

    let peers = (retried::Tokio::new(), retried::Apalis::new());
    let actors = (retried::Ractor::new(), retried::Kameo::new());
    let ours = retried::Tenure::new();
    for (title, failures) in [("full", 0), ("full, one failure", 1)] {
        let mut group = c.benchmark_group(title);
        group.throughput(Throughput::Elements(JOBS));
        if failures == 0 {
            one(&mut group, "tenure", &full, |pool| outside(pool, JOBS, 0));
            one(&mut group, "channel, bare", &channel, |pool| outside(pool, JOBS, 0));
            one(&mut group, "tokio, bare", &tokio, |pool| outside(pool, JOBS, 0));
        } else {
            again(&mut group, "tenure", &ours, failures);
        }
        again(&mut group, "tokio, by hand", &peers.0, failures);
        again(&mut group, "apalis", &peers.1, failures);
        again(&mut group, "ractor", &actors.0, failures);
        again(&mut group, "kameo", &actors.1, failures);
        group.finish();
    }
}

/// As `outside`, with jobs that are watched and tried again.
fn again<R: Retrying>(group: &mut Group<'_>, name: &str, pool: &R, failures: u32) {
    group.bench_function(name, |b| {
        b.iter(|| {
            let handles: Vec<_> = (0..JOBS).map(|n| pool.submit(n, failures)).collect();
            for (n, handle) in (0..JOBS).zip(handles) {
                assert_eq!(R::get(handle), n);
            }
        });
    });
}

criterion_group! {
    name = all;
    config = Criterion::default()
        .sample_size(15)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600));
    targets = benches
}
criterion_main!(all);
