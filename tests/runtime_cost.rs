//! What a runtime costs when it does nothing, and what a job costs while it waits.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tenure::runtime::Runtime;

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

fn factor() -> u64 {
    std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1)
}

/// Context switches of the runtime's threads so far, and how many threads there are.
#[cfg(target_os = "linux")]
fn switches(name: &str) -> (u64, usize) {
    let mut sum = (0, 0);
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if !read("comm").starts_with(name) {
            continue;
        }
        sum.1 += 1;
        for line in read("status").lines().filter(|line| line.contains("ctxt_switches")) {
            sum.0 += line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
        }
    }
    sum
}

fn drained(rt: &Runtime, jobs: u64) {
    let begun = Instant::now();
    while rt.stats().succeeded < jobs {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
}

/// One test, so that nothing else allocates or runs meanwhile.
#[test]
fn an_idle_runtime_and_waiting_jobs_cost_what_they_should() {
    let rt = Runtime::builder()
        .workers(3)
        .thread_name("cost")
        .attempt_timeout(Duration::from_millis(5))
        .build()
        .unwrap();

    // Bytes of a job that waits, its queue entry and its handle.
    rt.pause();
    let jobs = 10_000_u64;
    let mut handles = Vec::with_capacity(jobs as usize);
    let (bytes, calls) = (BYTES.load(Relaxed), CALLS.load(Relaxed));
    for i in 0..jobs {
        handles.push(rt.submit(move |_| Ok::<_, std::convert::Infallible>(i)).unwrap());
    }
    let each = (BYTES.load(Relaxed) - bytes) as f64 / jobs as f64;
    let calls = (CALLS.load(Relaxed) - calls) as f64 / jobs as f64;
    println!("a waiting job: {each:.1} bytes in {calls:.2} allocations");
    assert!(each <= 256.0, "{each} bytes a job");
    assert!(calls < 1.1, "{calls} allocations a job");
    rt.resume();
    for (i, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.get().unwrap(), i as u64);
    }

    // Memory and threads stay where they are.
    let wave = 20_000 * factor();
    let mut marks = Vec::new();
    for round in 1..=5 {
        for i in 0..wave {
            drop(rt.submit(move |_| Ok::<_, std::convert::Infallible>(i)).unwrap());
        }
        drained(&rt, jobs + round * wave);
        marks.push(BYTES.load(Relaxed));
    }
    println!("bytes after each wave of {wave} jobs: {marks:?}");
    // The queues keep some blocks; nothing grows with the number of jobs.
    assert!(marks[4] - marks[0] < 512 * 1024, "{marks:?}");

    // Nothing happens when there is nothing to do: each wake-up of a thread is a context switch.
    #[cfg(target_os = "linux")]
    {
        let (_, threads) = switches("cost");
        assert!((4..=5).contains(&threads), "three workers, the driver, perhaps its sentinel");
        let window = Duration::from_millis(500) * factor() as u32;
        let quiet = (0..20).any(|_| {
            let (before, _) = switches("cost");
            // This measures real time passing; there is nothing to wait for.
            std::thread::sleep(window);
            let (after, _) = switches("cost");
            println!("idle for {window:?}: {} context switches", after - before);
            after == before
        });
        assert!(quiet, "an idle runtime has no wake-ups");
    }
}
