//! Empty jobs with a result, beside the pools that people use, all with two workers.
//!
//! | group | what one iteration is |
//! |---|---|
//! | `outside` | 1,000 jobs handed in by a thread that is no worker, then all results taken; time per job |
//! | `batches_of_64` | 64 jobs handed in, 64 results taken; time per job |
//! | `inside` | a job hands in 1,000 jobs; the outside takes their results; time per job |
//! | `full` | as `outside`, with a watched attempt, a retry policy and the result |
//! | `idle` | one job handed to workers that sleep, until its result is there |
//!
//! A job of ours always has a lease, a state that cancels and retries, and a result; those of the
//! peers get a result by a one-shot channel (`oneshot`, the fastest), except tokio, whose tasks have
//! one.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tenure::retry::RetryPolicy;
use tenure::runtime::{JobHandle, Runtime};

const WORKERS: usize = 2;
const JOBS: u64 = 1000;

/// A pool, as the benches see it.
trait Pool {
    type Handle;
    fn submit(&self, i: u64) -> Self::Handle;
    fn get(&self, handle: Self::Handle) -> u64;
    /// A job that hands in `jobs` others, whose handles come back.
    fn submit_inside(&self, jobs: u64) -> Vec<Self::Handle>;

    fn round(&self, jobs: u64) {
        let handles: Vec<_> = (0..jobs).map(|i| self.submit(i)).collect();
        for handle in handles {
            black_box(self.get(handle));
        }
    }

    fn round_inside(&self, jobs: u64) {
        for handle in self.submit_inside(jobs) {
            black_box(self.get(handle));
        }
    }
}

struct Tenure(Runtime);

impl Tenure {
    fn bare() -> Self {
        Self(Runtime::builder().workers(WORKERS).build().expect("threads"))
    }

    fn full() -> Self {
        let policy = RetryPolicy::exponential(Duration::from_millis(1)).max_attempts(5);
        Self(
            Runtime::builder()
                .workers(WORKERS)
                .attempt_timeout(Duration::from_secs(5))
                .retry(policy.build().expect("a policy"))
                .build()
                .expect("threads"),
        )
    }
}

fn take(runtime: &Runtime, i: u64) -> JobHandle<u64> {
    match runtime.submit(move |_| Ok::<_, std::convert::Infallible>(i)) {
        Ok(handle) => handle,
        Err(_) => unreachable!("open, and without limit"),
    }
}

impl Pool for Tenure {
    type Handle = JobHandle<u64>;
    fn submit(&self, i: u64) -> JobHandle<u64> {
        take(&self.0, i)
    }
    fn get(&self, handle: JobHandle<u64>) -> u64 {
        handle.get().expect("a value")
    }
    fn submit_inside(&self, jobs: u64) -> Vec<JobHandle<u64>> {
        let inner = self.0.clone();
        let outer = self.0.submit_once(move |_| {
            Ok::<_, std::convert::Infallible>((0..jobs).map(|i| take(&inner, i)).collect())
        });
        outer.expect("open").get().expect("handles")
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take boxed closures from a channel.
struct Channel(crossbeam_channel::Sender<Job>);

impl Channel {
    fn new() -> Self {
        let (send, receive) = crossbeam_channel::unbounded::<Job>();
        for _ in 0..WORKERS {
            let receive = receive.clone();
            std::thread::spawn(move || {
                for job in receive {
                    job();
                }
            });
        }
        Self(send)
    }
}

fn channel_take(send: &crossbeam_channel::Sender<Job>, i: u64) -> oneshot::Receiver<u64> {
    let (answer, handle) = oneshot::channel();
    let job: Job = Box::new(move || {
        let _ = answer.send(i);
    });
    send.send(job).expect("open");
    handle
}

impl Pool for Channel {
    type Handle = oneshot::Receiver<u64>;
    fn submit(&self, i: u64) -> Self::Handle {
        channel_take(&self.0, i)
    }
    fn get(&self, handle: Self::Handle) -> u64 {
        handle.recv().expect("a value")
    }
    fn submit_inside(&self, jobs: u64) -> Vec<Self::Handle> {
        let (answer, handles) = oneshot::channel();
        let inner = self.0.clone();
        let job: Job = Box::new(move || {
            let _ = answer.send((0..jobs).map(|i| channel_take(&inner, i)).collect());
        });
        self.0.send(job).expect("open");
        handles.recv().expect("handles")
    }
}

struct Rayon(Arc<rayon::ThreadPool>);

impl Rayon {
    fn new() -> Self {
        Self(Arc::new(
            rayon::ThreadPoolBuilder::new().num_threads(WORKERS).build().expect("threads"),
        ))
    }
}

impl Pool for Rayon {
    type Handle = oneshot::Receiver<u64>;
    fn submit(&self, i: u64) -> Self::Handle {
        let (answer, handle) = oneshot::channel();
        self.0.spawn(move || {
            let _ = answer.send(i);
        });
        handle
    }
    fn get(&self, handle: Self::Handle) -> u64 {
        handle.recv().expect("a value")
    }
    fn submit_inside(&self, jobs: u64) -> Vec<Self::Handle> {
        let (answer, handles) = oneshot::channel();
        let inner = Arc::clone(&self.0);
        self.0.spawn(move || {
            let handles = (0..jobs).map(|i| Rayon(Arc::clone(&inner)).submit(i)).collect();
            let _ = answer.send(handles);
        });
        handles.recv().expect("handles")
    }
}

struct Tokio(tokio::runtime::Runtime);

impl Tokio {
    fn new() -> Self {
        Self(
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(WORKERS)
                .build()
                .expect("threads"),
        )
    }
}

impl Pool for Tokio {
    type Handle = tokio::task::JoinHandle<u64>;
    fn submit(&self, i: u64) -> Self::Handle {
        self.0.spawn(async move { i })
    }
    fn get(&self, handle: Self::Handle) -> u64 {
        futures::executor::block_on(handle).expect("a value")
    }
    fn submit_inside(&self, jobs: u64) -> Vec<Self::Handle> {
        let outer = self
            .0
            .spawn(async move { (0..jobs).map(|i| tokio::spawn(async move { i })).collect() });
        futures::executor::block_on(outer).expect("handles")
    }
}

/// The time from handing in one job to having its result, with the workers asleep.
fn one_idle(pool: &impl Pool, rounds: u64) -> Duration {
    let mut total = Duration::ZERO;
    for i in 0..rounds {
        std::thread::sleep(Duration::from_micros(300));
        let begun = Instant::now();
        black_box(pool.get(pool.submit(i)));
        total += begun.elapsed();
    }
    total
}

fn benches(c: &mut Criterion) {
    let tenure = Tenure::bare();
    let full = Tenure::full();
    let channel = Channel::new();
    let rayon = Rayon::new();
    let tokio = Tokio::new();

    macro_rules! group {
        ($name:literal, $elements:expr, |$pool:ident| $round:expr, $($label:literal: $which:expr),+) => {
            let mut group = c.benchmark_group($name);
            group.throughput(Throughput::Elements($elements));
            $(group.bench_function($label, |b| { let $pool = &$which; b.iter(|| $round) });)+
            group.finish();
        };
    }
    group!("outside", JOBS, |pool| pool.round(JOBS),
        "tenure": tenure, "channel": channel, "rayon": rayon, "tokio": tokio);
    group!("batches_of_64", 64, |pool| pool.round(64),
        "tenure": tenure, "channel": channel, "rayon": rayon, "tokio": tokio);
    group!("inside", JOBS, |pool| pool.round_inside(JOBS),
        "tenure": tenure, "channel": channel, "rayon": rayon, "tokio": tokio);
    group!("full", JOBS, |pool| pool.round(JOBS), "tenure": full, "channel": channel);

    let mut group = c.benchmark_group("idle");
    group.bench_function("tenure", |b| b.iter_custom(|n| one_idle(&tenure, n)));
    group.bench_function("channel", |b| b.iter_custom(|n| one_idle(&channel, n)));
    group.bench_function("rayon", |b| b.iter_custom(|n| one_idle(&rayon, n)));
    group.bench_function("tokio", |b| b.iter_custom(|n| one_idle(&tokio, n)));
    group.finish();
}

criterion_group! {
    name = all;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = benches
}
criterion_main!(all);
