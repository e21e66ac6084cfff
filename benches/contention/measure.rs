//! One slice of one case, and what becomes of many.

use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;

use crate::cases::{Case, Kind};
use crate::peers::{Lock, Tenure};

/// How many turns of [`spend`] a nanosecond has, and how many ticks of [`ticks`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    turns_per_nano: f64,
    ticks_per_nano: f64,
}

/// Work that nothing can shorten: each turn needs the one before. Not inlined, so that all peers
/// run the same instructions.
#[inline(never)]
pub(crate) fn spend(turns: u64) -> u64 {
    let mut value = turns | 1;
    for _ in 0..turns {
        value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005) ^ (value >> 29));
    }
    value
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

impl Work {
    /// The fastest of several tries: what the machine does beside it makes it slower only.
    pub(crate) fn calibrate() -> Self {
        const TURNS: u64 = 200_000;
        let tries = (0..15).map(|_| {
            let (start, first) = (Instant::now(), ticks());
            std::hint::black_box(spend(TURNS));
            let (nanos, last) = (start.elapsed().as_nanos() as f64, ticks());
            (nanos, (last - first) as f64 / nanos)
        });
        let (nanos, ticks_per_nano) =
            tries.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are some");
        Self { turns_per_nano: TURNS as f64 / nanos, ticks_per_nano }
    }

    /// How many turns of [`spend`] take so long.
    pub(crate) fn turns(&self, nanos: u64) -> u64 {
        (nanos as f64 * self.turns_per_nano) as u64
    }
}

/// What one slice showed.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    wall: Duration,
    /// Turns under the lock, thread by thread.
    turns: Vec<u64>,
    /// Waits in nanoseconds; empty if they were not timed.
    waits: Histogram<u64>,
    processor: Duration,
    switches: u64,
}

/// Medians over the slices of one case and peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) per_second: f64,
    /// The least-served thread's turns over the mean.
    pub(crate) least_share: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) longest: f64,
    /// Processors kept busy.
    pub(crate) processors: f64,
    /// Voluntary switches for each turn.
    pub(crate) switches: f64,
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

impl Summary {
    /// As they are saved.
    pub(crate) fn numbers(&self) -> [f64; 8] {
        let Self { per_second, least_share, p50, p99, p999, longest, processors, switches } = *self;
        [per_second, least_share, p50, p99, p999, longest, processors, switches]
    }

    pub(crate) fn from_numbers(numbers: [f64; 8]) -> Self {
        let [per_second, least_share, p50, p99, p999, longest, processors, switches] = numbers;
        Self { per_second, least_share, p50, p99, p999, longest, processors, switches }
    }

    pub(crate) fn of(plain: &[Slice], timed: &[Slice]) -> Self {
        let over = |slices: &[Slice], f: &dyn Fn(&Slice) -> f64| {
            median(slices.iter().map(f).collect::<Vec<_>>())
        };
        let total = |slice: &Slice| slice.turns.iter().sum::<u64>().max(1) as f64;
        Self {
            per_second: over(plain, &|s| total(s) / s.wall.as_secs_f64()),
            least_share: over(plain, &|s| {
                let least = s.turns.iter().min().copied().unwrap_or(0) as f64;
                least * s.turns.len() as f64 / total(s)
            }),
            p50: over(timed, &|s| s.waits.value_at_quantile(0.5) as f64),
            p99: over(timed, &|s| s.waits.value_at_quantile(0.99) as f64),
            p999: over(timed, &|s| s.waits.value_at_quantile(0.999) as f64),
            longest: over(timed, &|s| s.waits.max() as f64),
            processors: over(plain, &|s| s.processor.as_secs_f64() / s.wall.as_secs_f64()),
            switches: over(plain, &|s| s.switches as f64 / total(s)),
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("bounds are in order")
}

/// Processor time and voluntary switches of the calling thread.
fn usage() -> (Duration, u64) {
    // SAFETY: all zeroes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a place for the answer that lives in this frame.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    (time(usage.ru_utime) + time(usage.ru_stime), usage.ru_nvcsw as u64)
}

/// Keeps the calling thread on one processor.
fn pin(processor: usize) {
    // SAFETY: all zeroes are the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set lives in this frame, and the number is below its capacity.
    unsafe {
        libc::CPU_SET(processor % thread::available_parallelism().map_or(1, usize::from), &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Runs one slice: `case.threads` threads against one lock for `length`.
pub(crate) fn contend<L: Lock>(case: &Case, work: &Work, length: Duration, timed: bool) -> Slice {
    // Each on lines of its own: a flag beside the lock costs a factor.
    let lock = CachePadded::new(L::new());
    let over = CachePadded::new(AtomicBool::new(false));
    let gate = Barrier::new(case.threads + 1);
    let (section, outside) = (work.turns(case.section), work.turns(case.outside));
    let (short, long) = (work.turns(100), work.turns(200_000));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..case.threads)
            .map(|number| {
                let (lock, over, gate) = (&lock, &over, &gate);
                scope.spawn(move || {
                    match case.kind {
                        Kind::Pinned => pin(number),
                        Kind::OneProcessor => pin(0),
                        Kind::Plain | Kind::Bimodal | Kind::Hogs => {}
                    }
                    let mut random = fastrand::Rng::with_seed(number as u64);
                    let mut waits = histogram();
                    let mut turns = 0_u64;
                    gate.wait();
                    let before = usage();
                    while !over.load(Ordering::Relaxed) {
                        let section = match case.kind {
                            Kind::Bimodal if random.u32(..100) == 0 => long,
                            Kind::Bimodal => short,
                            _ => section,
                        };
                        if timed {
                            let asked = ticks();
                            let got = lock.with(|value| {
                                let got = ticks();
                                *value = value.wrapping_add(spend(section));
                                got
                            });
                            let nanos = got.saturating_sub(asked) as f64 / work.ticks_per_nano;
                            waits.saturating_record(nanos as u64);
                        } else {
                            lock.with(|value| *value = value.wrapping_add(spend(section)));
                        }
                        turns += 1;
                        if outside > 0 {
                            std::hint::black_box(spend(outside));
                        }
                    }
                    let after = usage();
                    (turns, waits, after.0.saturating_sub(before.0), after.1 - before.1)
                })
            })
            .collect();
        gate.wait();
        let start = Instant::now();
        thread::sleep(length);
        over.store(true, Ordering::Relaxed);
        let wall = start.elapsed();
        let mut slice = Slice {
            wall,
            turns: Vec::new(),
            waits: histogram(),
            processor: Duration::ZERO,
            switches: 0,
        };
        for thread in threads {
            let (turns, waits, processor, switches) = thread.join().expect("no thread panics");
            slice.turns.push(turns);
            slice.waits.add(waits).expect("the same bounds");
            slice.processor += processor;
            slice.switches += switches;
        }
        slice
    })
}

/// Threads that burn processors until they are dropped.
pub(crate) struct Hogs {
    over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Hogs {
    pub(crate) fn start(count: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let threads = (0..count)
            .map(|_| {
                let over = Arc::clone(&over);
                thread::spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::black_box(spend(1_000));
                    }
                })
            })
            .collect();
        Self { over, threads }
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Eight threads with 50 µs of patience against holds of 100 µs.
pub(crate) fn timed(length: Duration, rounds: usize) {
    println!(
        "\ntimed: 8 threads, at most 50 µs, holds of 100 µs\n  {:<22}{:>9}{:>9}{:>16}{:>10}{:>10}",
        "", "tries", "got it", "overshoot p50", "p99 µs", "longest"
    );
    timed_of::<Tenure>("tenure", length, rounds);
    timed_of::<parking_lot::Mutex<u64>>("parking_lot 0.13", length, rounds);
    timed_of::<parking_lot_12::Mutex<u64>>("parking_lot 0.12", length, rounds);
}

fn timed_of<L: Lock>(name: &str, length: Duration, rounds: usize) {
    const PATIENCE: Duration = Duration::from_micros(50);
    let work = Work::calibrate();
    let lock = CachePadded::new(L::new());
    let over = CachePadded::new(AtomicBool::new(false));
    let hold = work.turns(100_000);
    let (mut tries, mut won, mut overshoot) = (0_u64, 0_u64, histogram());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let (mut tries, mut won, mut overshoot) = (0_u64, 0_u64, histogram());
                    while !over.load(Ordering::Relaxed) {
                        let asked = Instant::now();
                        tries += 1;
                        let got = lock.with_for(PATIENCE, |value| *value += spend(hold) & 1);
                        match got {
                            Some(()) => won += 1,
                            None => {
                                let late = asked.elapsed().saturating_sub(PATIENCE);
                                overshoot.saturating_record(late.as_nanos() as u64);
                            }
                        }
                    }
                    (tries, won, overshoot)
                })
            })
            .collect();
        thread::sleep(length * rounds as u32);
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            let one = thread.join().expect("no thread panics");
            tries += one.0;
            won += one.1;
            overshoot.add(one.2).expect("the same bounds");
        }
    });
    assert!(!lock.is_locked(), "{name}: locked by nobody");
    println!(
        "  {:<22}{:>9}{:>8.1}%{:>16.1}{:>10.1}{:>10.0}",
        name,
        tries,
        won as f64 * 100.0 / tries.max(1) as f64,
        overshoot.value_at_quantile(0.5) as f64 / 1e3,
        overshoot.value_at_quantile(0.99) as f64 / 1e3,
        overshoot.max() as f64 / 1e3
    );
}
