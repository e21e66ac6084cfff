//! How late timers are: 10,000 of them over a second, on an idle machine and beside busy threads.
//!
//! ```text
//! cargo bench --bench timer_lateness [-- ROUNDS]
//! ```
//!
//! The contenders take turns, so that a noisy moment hits all of them. Prints the median over the
//! rounds of each percentile, in microseconds, and the processor time a timer cost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use tenure::clock::{Clock, MonotonicClock};
use tenure::timer::Timers;

const COUNT: usize = 10_000;

fn delays(seed: u64) -> Vec<Duration> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let second = 1_000_000_000;
    // A tenth of a second's head start, to insert them all.
    (0..COUNT).map(|_| Duration::from_nanos(100_000_000 + rng.u64(..second))).collect()
}

fn tenure(delays: &[Duration]) -> Vec<Duration> {
    let timers = Timers::start(MonotonicClock::new()).unwrap();
    let (sender, receiver) = channel();
    // Only the last wakes this thread: the others' lateness must not pay for that.
    let all = Arc::new(Mutex::new((Vec::with_capacity(COUNT), sender)));
    let start = timers.clock().now();
    for &delay in delays {
        let (due, all) = (start.saturating_add(delay), Arc::clone(&all));
        let callback = move || {
            let late = MonotonicClock::new().now().saturating_since(due);
            let (lates, done) = &mut *all.lock().unwrap();
            lates.push(late);
            if lates.len() == COUNT {
                done.send(std::mem::take(lates)).unwrap();
            }
        };
        timers.insert(due, callback).unwrap();
    }
    receiver.recv().unwrap()
}

fn async_io(delays: &[Duration]) -> Vec<Duration> {
    let start = Instant::now();
    let timers: FuturesUnordered<_> = delays
        .iter()
        .map(|&delay| async move {
            async_io::Timer::at(start + delay).await;
            start.elapsed().saturating_sub(delay)
        })
        .collect();
    async_io::block_on(timers.collect())
}

fn tokio(delays: &[Duration]) -> Vec<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let start = Instant::now();
        let timers: FuturesUnordered<_> = delays
            .iter()
            .map(|&delay| async move {
                tokio::time::sleep_until((start + delay).into()).await;
                start.elapsed().saturating_sub(delay)
            })
            .collect();
        timers.collect().await
    })
}

/// A sorted map, a lock and a condition variable.
fn map(delays: &[Duration]) -> Vec<Duration> {
    let shared = Arc::new((Mutex::new(BTreeMap::new()), Condvar::new()));
    let start = Instant::now();
    let driver = {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || {
            let (map, changed) = &*shared;
            let mut late = Vec::with_capacity(COUNT);
            let mut timers = map.lock().unwrap();
            while late.len() < COUNT {
                let now = start.elapsed();
                timers = match timers.first_key_value() {
                    Some((&(due, _), ())) if due <= now => {
                        timers.pop_first();
                        late.push(start.elapsed().saturating_sub(due));
                        timers
                    }
                    Some((&(due, _), ())) => changed.wait_timeout(timers, due - now).unwrap().0,
                    None => changed.wait(timers).unwrap(),
                };
            }
            late
        })
    };
    for (n, &delay) in delays.iter().enumerate() {
        let mut map = shared.0.lock().unwrap();
        map.insert((delay, n), ());
        if map.first_key_value().is_some_and(|(first, ())| *first == (delay, n)) {
            shared.1.notify_one();
        }
    }
    driver.join().unwrap()
}

/// Processor time of this process, user and system, by the kernel's count.
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid clock id, and a place for the answer that lives in this frame.
    let _ = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn percentile(sorted: &[Duration], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part) as usize].as_nanos() as f64 / 1000.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

type Contender = (&'static str, fn(&[Duration]) -> Vec<Duration>);

fn compare(title: &str, rounds: u64) {
    const CONTENDERS: [Contender; 4] =
        [("tenure", tenure), ("async-io", async_io), ("tokio", tokio), ("map + condvar", map)];
    let mut results = vec![Vec::new(); CONTENDERS.len()];
    for round in 0..rounds {
        let delays = delays(round);
        for ((_, run), results) in CONTENDERS.iter().zip(&mut results) {
            let before = cpu();
            let mut late = run(&delays);
            let cost = (cpu() - before).as_nanos() as f64 / 1000.0 / COUNT as f64;
            assert_eq!(late.len(), COUNT);
            late.sort_unstable();
            let mut row: Vec<_> =
                [0.5, 0.9, 0.99, 0.999].iter().map(|&part| percentile(&late, part)).collect();
            row.push(cost);
            results.push(row);
        }
    }
    println!("{title}: median of {rounds} rounds, in µs");
    println!("{:<16}{:>9}{:>9}{:>9}{:>9}{:>12}", "", "p50", "p90", "p99", "p99.9", "CPU/timer");
    for ((name, _), rows) in CONTENDERS.iter().zip(results) {
        print!("{name:<16}");
        for column in 0..5 {
            let width = if column == 4 { 12 } else { 9 };
            print!("{:>width$.1}", median(rows.iter().map(|row| row[column]).collect()));
        }
        println!();
    }
}

/// How often the thread of this name has slept and woken, by the kernel's count.
fn wakes(thread: &str) -> Option<u64> {
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
        if field("Name:")?.trim() == thread {
            return field("voluntary_ctxt_switches:")?.trim().parse().ok();
        }
    }
    None
}

/// Ten seconds of timers that have nothing to do: what that costs.
fn idle() {
    let timers = Timers::start(MonotonicClock::new()).unwrap();
    let handle = timers.after(Duration::from_secs(3600), || ()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let before = wakes("tenure-timers");
    std::thread::sleep(Duration::from_secs(10));
    let after = wakes("tenure-timers");
    println!("idle, with a timer in an hour: {before:?} wakes, and {after:?} after 10 s");
    handle.cancel();
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(5);
    idle();
    compare("alone", rounds);
    let stop = Arc::new(AtomicBool::new(false));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let busy: Vec<_> = (0..cores)
        .map(|_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
        })
        .collect();
    compare(&format!("beside {cores} busy threads"), rounds);
    println!("(the busy threads' own time is in CPU/timer)");
    stop.store(true, Ordering::Relaxed);
    for thread in busy {
        thread.join().unwrap();
    }
}
