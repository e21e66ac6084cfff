//! The pools that the benches compare, all with two workers, behind one trait.
//!
//! A job of ours always has a lease, a state that cancels and retries, and a result; those of the peers
//! get a result by a one-shot channel (`oneshot`, the fastest), except tokio and async-executor, whose
//! tasks have one, and the actors, which answer.

#![allow(dead_code, reason = "each bench uses its own part")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tenure::retry::RetryPolicy;
use tenure::runtime::{JobHandle, Runtime};

pub(crate) const WORKERS: usize = 2;

/// A pool, as the benches see it. Clones are the same pool.
pub(crate) trait Pool: Clone + Send + Sync + 'static {
    type Handle: Send + 'static;
    /// Hands in a job with a result.
    fn submit<F: FnOnce() -> u64 + Send + 'static>(&self, job: F) -> Self::Handle;
    fn get(handle: Self::Handle) -> u64;
    /// Lets the job go on, its result unwanted.
    fn detach(handle: Self::Handle) {
        drop(handle);
    }
    /// Hands in many; their handles come back.
    fn submit_all(&self, jobs: u64, nanos: u64) -> Vec<Self::Handle> {
        (0..jobs).map(|i| self.submit(move || work(i, nanos))).collect()
    }
}

/// So much work, about: what it takes is calibrated once.
#[inline]
pub(crate) fn work(i: u64, nanos: u64) -> u64 {
    if nanos == 0 {
        return i;
    }
    let mut x = i | 1;
    for _ in 0..nanos * rate() / 1024 {
        x = std::hint::black_box(x.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(7));
    }
    x
}

/// Steps of `work` in 1024 ns.
fn rate() -> u64 {
    static RATE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *RATE.get_or_init(|| {
        let steps = 1 << 22;
        let best = (0..5).map(|_| {
            let begun = std::time::Instant::now();
            let mut x = 1_u64;
            for _ in 0..steps {
                x = std::hint::black_box(x.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(7));
            }
            begun.elapsed().as_nanos() as u64
        });
        (steps * 1024 / best.min().unwrap_or(1).max(1)).max(1)
    })
}

/// Before anything is timed.
pub(crate) fn calibrate() {
    std::hint::black_box(work(1, 1));
}

#[derive(Clone)]
pub(crate) struct Tenure(pub(crate) Runtime);

impl Tenure {
    /// Jobs that may be tried again, without a deadline.
    pub(crate) fn bare() -> Self {
        Self(Runtime::builder().workers(WORKERS).build().expect("threads"))
    }

    /// With a watched deadline for each attempt, and a retry policy.
    pub(crate) fn full() -> Self {
        let policy = RetryPolicy::exponential(Duration::from_millis(1)).max_attempts(5);
        let builder = Runtime::builder().workers(WORKERS).attempt_timeout(Duration::from_secs(5));
        Self(builder.retry(policy.build().expect("a policy")).build().expect("threads"))
    }
}

impl Pool for Tenure {
    type Handle = JobHandle<u64>;
    fn submit<F: FnOnce() -> u64 + Send + 'static>(&self, job: F) -> JobHandle<u64> {
        match self.0.submit_once(move |_| Ok::<_, Infallible>(job())) {
            Ok(handle) => handle,
            Err(_) => unreachable!("open, and without limit"),
        }
    }
    fn get(handle: JobHandle<u64>) -> u64 {
        handle.get().expect("a value")
    }
    // As `submit` of the runtime is: these could be tried again.
    fn submit_all(&self, jobs: u64, nanos: u64) -> Vec<JobHandle<u64>> {
        (0..jobs)
            .map(|i| match self.0.submit(move |_| Ok::<_, Infallible>(work(i, nanos))) {
                Ok(handle) => handle,
                Err(_) => unreachable!("open, and without limit"),
            })
            .collect()
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take boxed closures from a channel.
#[derive(Clone)]
pub(crate) struct Channel(crossbeam_channel::Sender<Job>);

impl Channel {
    pub(crate) fn new() -> Self {
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

impl Pool for Channel {
    type Handle = oneshot::Receiver<u64>;
    fn submit<F: FnOnce() -> u64 + Send + 'static>(&self, job: F) -> Self::Handle {
        let (answer, handle) = oneshot::channel();
        let job: Job = Box::new(move || {
            let _ = answer.send(job());
        });
        self.0.send(job).expect("open");
        handle
    }
    fn get(handle: Self::Handle) -> u64 {
        handle.recv().expect("a value")
    }
}

#[derive(Clone)]
pub(crate) struct Rayon(Arc<rayon::ThreadPool>);

impl Rayon {
    pub(crate) fn new() -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(WORKERS).build();
        Self(Arc::new(pool.expect("threads")))
    }
}

impl Pool for Rayon {
    type Handle = oneshot::Receiver<u64>;
    fn submit<F: FnOnce() -> u64 + Send + 'static>(&self, job: F) -> Self::Handle {
        let (answer, handle) = oneshot::channel();
        self.0.spawn(move || {
            let _ = answer.send(job());
        });
        handle
    }
    fn get(handle: Self::Handle) -> u64 {
        handle.recv().expect("a value")
    }
}

#[derive(Clone)]
pub(crate) struct ThreadPool(threadpool::ThreadPool);

impl ThreadPool {
    pub(crate) fn new() -> Self {
        Self(threadpool::ThreadPool::new(WORKERS))
    }
}

// Its handle has a `Sender`, which is `Sync` in today's `std`.
impl Pool for ThreadPool {
    type Handle = oneshot::Receiver<u64>;
    fn submit<F: FnOnce() -> u64 + Send + 'static>(&self, job: F) -> Self::Handle {
        let (answer, handle) = oneshot::channel();
        self.0.execute(move || {
            let _ = answer.send(job());
        });
        handle
    }
    fn get(handle: Self::Handle) -> u64 {
        handle.recv().expect("a value")
    }
}

#[derive(Clone)]
pub(crate) struct Tokio(Arc<tokio::runtime::Runtime>);

impl Tokio {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).build();
        Self(Arc::new(runtime.expect("threads")))
    }
}

impl Pool for Tokio {
    type Handle = tokio::task::JoinHandle<u64>;
    fn submit<F: FnOnce() -> u64 + Send + 'static>(&self, job: F) -> Self::Handle {
        self.0.spawn(async move { job() })
    }
    fn get(handle: Self::Handle) -> u64 {
        futures::executor::block_on(handle).expect("a value")
    }
}

#[derive(Clone)]
pub(crate) struct AsyncExecutor(Arc<async_executor::Executor<'static>>);

impl AsyncExecutor {
    pub(crate) fn new() -> Self {
        let executor = Arc::new(async_executor::Executor::new());
        for _ in 0..WORKERS {
            let executor = Arc::clone(&executor);
            std::thread::spawn(move || {
                async_io::block_on(executor.run(std::future::pending::<()>()))
            });
        }
        Self(executor)
    }
}

impl Pool for AsyncExecutor {
    type Handle = async_executor::Task<u64>;
    fn submit<F: FnOnce() -> u64 + Send + 'static>(&self, job: F) -> Self::Handle {
        self.0.spawn(async move { job() })
    }
    fn get(handle: Self::Handle) -> u64 {
        futures::executor::block_on(handle)
    }
    // Dropped, it would be cancelled.
    fn detach(handle: Self::Handle) {
        handle.detach();
    }
}
