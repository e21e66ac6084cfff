//! How long a job waits until it starts, on an idle pool and on a busy one: p50, p99, p99.9.
//!
//! Prints a table of its own: a latency is a distribution, not a time per iteration. `idle`: the workers
//! sleep (a pause of 300 µs comes before each job). `busy`: both workers are kept at work by jobs of
//! 5 µs, 64 of which wait at any time; what is timed is one more of these.
//!
//! `cargo bench --bench runtime_latency [-- <jobs>]`, 2,000 jobs a case by default. The pools take
//! turns, five rounds of them. A pool that lets a job from outside wait while jobs from inside keep it at
//! work may never start it: 100 ms are recorded then, and that round of that pool is over.

mod pools;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use pools::{AsyncExecutor, Channel, Pool, Rayon, Tenure, ThreadPool, Tokio, work};

/// Longer than this counts as never.
const LIMIT: Duration = Duration::from_millis(100);

fn started<P: Pool>(pool: &P) -> Option<u64> {
    let (send, told) = mpsc::sync_channel(1);
    let begun = Instant::now();
    let handle = pool.submit(move || {
        let _ = send.send(begun.elapsed().as_nanos() as u64);
        0
    });
    match told.recv_timeout(LIMIT) {
        Ok(waited) => {
            P::get(handle);
            Some(waited)
        }
        Err(_) => {
            P::detach(handle);
            None
        }
    }
}

fn idle<P: Pool>(pool: &P, jobs: usize, into: &mut Vec<u64>) {
    for _ in 0..jobs {
        std::thread::sleep(Duration::from_micros(300));
        into.push(started(pool).unwrap_or(LIMIT.as_nanos() as u64));
    }
}

fn busy<P: Pool>(pool: &P, jobs: usize, into: &mut Vec<u64>) {
    fn again<P: Pool>(pool: P, stop: Arc<AtomicBool>) {
        let inner = pool.clone();
        P::detach(pool.submit(move || {
            let x = work(1, 5_000);
            if !stop.load(Ordering::Relaxed) {
                again(inner, stop);
            }
            x
        }));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..64 {
        again(pool.clone(), Arc::clone(&stop));
    }
    for _ in 0..jobs {
        std::thread::sleep(Duration::from_micros(100));
        let waited = started(pool);
        into.push(waited.unwrap_or(LIMIT.as_nanos() as u64));
        if waited.is_none() {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    // Until the others are through.
    std::thread::sleep(Duration::from_millis(5));
}

fn main() {
    pools::calibrate();
    let jobs = std::env::args().filter_map(|a| a.parse().ok()).next_back().unwrap_or(2_000_usize);
    let rounds = 5;
    let (tenure, channel, rayon, tokio) =
        (Tenure::full(), Channel::new(), Rayon::new(), Tokio::new());
    let (executor, threadpool) = (AsyncExecutor::new(), ThreadPool::new());
    for (case, is_busy) in [("idle", false), ("busy", true)] {
        let mut all: [Vec<u64>; 6] = Default::default();
        for _ in 0..rounds {
            macro_rules! each {
                ($($at:literal: $pool:expr),+) => {$(
                    if is_busy {
                        busy($pool, jobs / rounds, &mut all[$at]);
                    } else {
                        idle($pool, jobs / rounds, &mut all[$at]);
                    }
                )+};
            }
            each!(0: &tenure);
            each!(1: &channel);
            each!(2: &rayon);
            each!(3: &tokio);
            each!(4: &executor);
            each!(5: &threadpool);
        }
        println!("{case:>24} {:>10} {:>10} {:>10}  (µs)", "p50", "p99", "p99.9");
        let names = ["tenure", "channel", "rayon", "tokio", "async-executor", "threadpool"];
        for (name, waits) in names.into_iter().zip(&mut all) {
            waits.sort_unstable();
            let at = |share: f64| {
                let last = waits.len() - 1;
                waits[((waits.len() as f64 * share) as usize).min(last)] as f64 / 1000.0
            };
            println!("{name:>24} {:>10.1} {:>10.1} {:>10.1}", at(0.5), at(0.99), at(0.999));
        }
    }
}
