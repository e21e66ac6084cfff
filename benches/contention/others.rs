//! The condition variable and the reader-writer lock, beside their peers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use tenure::lock::{AdaptiveCondvar, AdaptiveMutex, AdaptiveRwLock};

use crate::measure::{Work, median, spend};

/// A number that can be waited for.
trait Waited: Sync {
    fn new() -> Self;
    /// Adds one, and tells everybody.
    fn add(&self) -> u64;
    /// Waits until it is at least that.
    fn wait(&self, value: u64);
}

macro_rules! waited {
    ($name:ident, $mutex:ty, $condvar:ty, |$lock:ident| $locked:expr, |$changed:ident, $guard:ident| $wait:expr) => {
        struct $name($mutex, $condvar);
        impl Waited for $name {
            fn new() -> Self {
                Self(<$mutex>::new(0), <$condvar>::new())
            }
            fn add(&self) -> u64 {
                let $lock = &self.0;
                let mut value = $locked;
                *value += 1;
                let now = *value;
                drop(value);
                self.1.notify_all();
                now
            }
            fn wait(&self, least: u64) {
                let ($lock, $changed) = (&self.0, &self.1);
                let mut $guard = $locked;
                while *$guard < least {
                    $wait;
                }
            }
        }
    };
}

waited!(Tenure, AdaptiveMutex<u64>, AdaptiveCondvar, |lock| lock.lock(), |changed, guard| changed
    .wait(&mut guard));
waited!(
    ParkingLot,
    parking_lot::Mutex<u64>,
    parking_lot::Condvar,
    |lock| lock.lock(),
    |changed, guard| { changed.wait(&mut guard) }
);
waited!(
    Std,
    std::sync::Mutex<u64>,
    std::sync::Condvar,
    |lock| lock.lock().unwrap(),
    |changed, guard| { guard = changed.wait(guard).unwrap() }
);

/// Nanoseconds for one round: sixteen wait, one call wakes all, and the last of them says so.
fn wake_sixteen<W: Waited>(rounds: u64) -> f64 {
    const THREADS: u64 = 16;
    let (go, done) = (W::new(), W::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 1..=rounds {
                    go.wait(round);
                    done.add();
                }
            });
        }
        let start = Instant::now();
        for round in 1..=rounds {
            go.add();
            done.wait(round * THREADS);
        }
        start.elapsed().as_nanos() as f64 / rounds as f64
    })
}

/// One call wakes sixteen.
pub(crate) fn condvar(rounds: usize) {
    println!(
        "\ncondvar: notify_all of 16, and 16 notifications back\n  {:<22}{:>12}",
        "", "µs a round"
    );
    type Run = fn(u64) -> f64;
    let peers: [(&str, Run); 3] = [
        ("tenure", wake_sixteen::<Tenure>),
        ("std", wake_sixteen::<Std>),
        ("parking_lot 0.13", wake_sixteen::<ParkingLot>),
    ];
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        for (peer, times) in peers.iter().zip(&mut times) {
            times.push((peer.1)(200));
        }
    }
    for ((name, _), times) in peers.iter().zip(times) {
        println!("  {:<22}{:>12.1}", name, median(times) / 1e3);
    }
}

/// A number that many read and few write.
trait Shared: Sync {
    fn new() -> Self;
    fn read(&self, turns: u64) -> u64;
    fn write(&self, turns: u64);
}

macro_rules! shared {
    ($lock:ty, |$this:ident| $read:expr, $write:expr) => {
        impl Shared for $lock {
            fn new() -> Self {
                Self::new(0)
            }
            fn read(&self, turns: u64) -> u64 {
                let $this = self;
                *$read ^ spend(turns)
            }
            fn write(&self, turns: u64) {
                let $this = self;
                *$write ^= spend(turns);
            }
        }
    };
}

shared!(AdaptiveRwLock<u64>, |this| this.read(), this.write());
shared!(parking_lot::RwLock<u64>, |this| this.read(), this.write());
shared!(std::sync::RwLock<u64>, |this| this.read().unwrap(), this.write().unwrap());

/// Turns a second of `threads` threads, one turn in `writes` of which writes.
fn read_mostly<L: Shared>(threads: u64, writes: u32, section: u64, length: Duration) -> f64 {
    let lock = CachePadded::new(L::new());
    let over = CachePadded::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|id| {
                let (lock, over) = (&lock, &over);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(id);
                    let mut turns = 0_u64;
                    while !over.load(Ordering::Relaxed) {
                        if random.u32(..writes) == 0 {
                            lock.write(section);
                        } else {
                            std::hint::black_box(lock.read(section));
                        }
                        turns += 1;
                    }
                    turns
                })
            })
            .collect();
        let start = Instant::now();
        thread::sleep(length);
        over.store(true, Ordering::Relaxed);
        let turns: u64 = threads.into_iter().map(|t| t.join().expect("no thread panics")).sum();
        turns as f64 / start.elapsed().as_secs_f64()
    })
}

/// Many readers, few writers.
pub(crate) fn rwlock(length: Duration, rounds: usize) {
    let section = Work::calibrate().turns(600);
    println!(
        "\nrwlock: sections of 600 ns, k op/s\n  {:<22}{:>14}{:>14}{:>14}",
        "", "2 x 1 of 100", "4 x 1 of 100", "4 x 1 of 10"
    );
    type Run = fn(u64, u32, u64, Duration) -> f64;
    let peers: [(&str, Run); 3] = [
        ("tenure", read_mostly::<AdaptiveRwLock<u64>>),
        ("std", read_mostly::<std::sync::RwLock<u64>>),
        ("parking_lot 0.13", read_mostly::<parking_lot::RwLock<u64>>),
    ];
    const SHAPES: [(u64, u32); 3] = [(2, 100), (4, 100), (4, 10)];
    let mut all = [const { [const { Vec::new() }; 3] }; 3];
    for _ in 0..rounds {
        for (peer, own) in peers.iter().zip(&mut all) {
            for (shape, rates) in SHAPES.iter().zip(own) {
                rates.push((peer.1)(shape.0, shape.1, section, length));
            }
        }
    }
    for ((name, _), own) in peers.iter().zip(all) {
        let [a, b, c] = own.map(|rates| median(rates) / 1e3);
        println!("  {name:<22}{a:>14.0}{b:>14.0}{c:>14.0}");
    }
}
