//! What a job costs in memory while it waits: bytes and allocations for each, its handle and its place
//! in the queue among them.
//!
//! Prints a table of its own: these are counted, not timed, and the same each time, but for how a queue
//! grows. 10,000 jobs that answer a number wait behind workers that are kept.
//!
//! `cargo bench --bench runtime_memory`.

mod pools;
mod retried;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};

use pools::{AsyncExecutor, Channel, Pool, Rayon, Tenure, ThreadPool, Tokio, WORKERS};
use retried::Retrying;

/// Counts what is allocated.
struct Counting;

static BYTES: AtomicI64 = AtomicI64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as i64, Relaxed);
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: as given to `alloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const JOBS: u64 = 10_000;

/// Keeps the workers until it is dropped.
struct Kept {
    gate: Arc<Mutex<()>>,
    all: Arc<Barrier>,
}

impl Kept {
    fn new() -> Self {
        Self { gate: Arc::default(), all: Arc::new(Barrier::new(WORKERS + 1)) }
    }

    /// What each worker is to run.
    fn hold(&self) -> impl FnOnce() + Send + 'static {
        let (gate, all) = (Arc::clone(&self.gate), Arc::clone(&self.all));
        move || {
            all.wait();
            drop(gate.lock());
        }
    }
}

/// Hands in the jobs while the workers are kept, and counts.
fn count<H>(name: &str, keep: impl Fn(&Kept), submit: impl Fn(u64) -> H, get: impl Fn(H) -> u64) {
    let kept = Kept::new();
    let guard = kept.gate.lock().expect("no panic");
    keep(&kept);
    kept.all.wait();
    let mut handles = Vec::with_capacity(JOBS as usize);
    let (bytes, calls) = (BYTES.load(Relaxed), CALLS.load(Relaxed));
    for n in 0..JOBS {
        handles.push(submit(n));
    }
    let bytes = (BYTES.load(Relaxed) - bytes) as f64 / JOBS as f64;
    let calls = (CALLS.load(Relaxed) - calls) as f64 / JOBS as f64;
    drop(guard);
    for (n, handle) in (0..JOBS).zip(handles) {
        assert_eq!(get(handle), n);
    }
    println!("{name:>24} {bytes:>10.1} {calls:>12.2} {:>10}", size_of::<H>());
}

fn pool<P: Pool>(name: &str, pool: &P) {
    let keep = |kept: &Kept| {
        for _ in 0..WORKERS {
            let hold = kept.hold();
            P::detach(pool.submit(move || {
                hold();
                0
            }));
        }
    };
    count(name, keep, |n| pool.submit(move || n), P::get);
}

fn keep_tokio(runtime: &tokio::runtime::Runtime) -> impl Fn(&Kept) {
    move |kept| {
        for _ in 0..WORKERS {
            let hold = kept.hold();
            runtime.spawn(async { hold() });
        }
    }
}

fn main() {
    println!("{:>24} {:>10} {:>12} {:>10}", "a waiting job", "bytes", "allocations", "handle");
    let tenure = Tenure::bare();
    let (channel, rayon, tokio) = (Channel::new(), Rayon::new(), Tokio::new());
    let (executor, threadpool) = (AsyncExecutor::new(), ThreadPool::new());
    pool("tenure, one attempt", &tenure);
    pool("channel", &channel);
    pool("rayon", &rayon);
    pool("tokio", &tokio);
    pool("async-executor", &executor);
    pool("threadpool", &threadpool);

    let full = retried::Tenure::new();
    let keep = |kept: &Kept| {
        for _ in 0..WORKERS {
            let hold = kept.hold();
            let job = full.0.submit_once(move |_| {
                hold();
                Ok::<_, std::convert::Infallible>(())
            });
            drop(job.unwrap_or_else(|_| unreachable!("open, and without limit")));
        }
    };
    count("tenure, watched, retried", keep, |n| full.submit(n, 0), retried::Tenure::get);
    let tokio = retried::Tokio::new();
    let get = retried::Tokio::get;
    count("tokio, by hand", keep_tokio(&tokio.0), |n| tokio.submit(n, 0), get);
    let apalis = retried::Apalis::new();
    let get = retried::Apalis::get;
    count("apalis", keep_tokio(&apalis.runtime), |n| apalis.submit(n, 0), get);
    let ractor = retried::Ractor::new();
    let get = retried::Ractor::get;
    count("ractor", keep_tokio(&ractor.runtime), |n| ractor.submit(n, 0), get);
    let kameo = retried::Kameo::new();
    let get = retried::Kameo::get;
    count("kameo", keep_tokio(&kameo.runtime), |n| kameo.submit(n, 0), get);
}
