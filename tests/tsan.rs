//! The rooms' hand-offs, written for ThreadSanitizer: `bash .ci/sanitize thread` runs it.
//!
//! The standard library is not instrumented there, so whatever is synchronised inside it looks like a
//! race. Hence no test harness, no scoped threads and no `Arc` or channel in this file: threads share
//! through statics and leaked boxes, and each value that is handed over is plain memory, so that a
//! hand-off without an edge is reported. It is an ordinary test, too, and a short one.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tenure::clock::ManualClock;
use tenure::lease::{FencedCell, LeaseRequest, LeaseTable};
use tenure::lock::{AsymmetricUnlock, RawAdaptiveMutex, SymmetricUnlock, Unlock};
use tenure::promise::{Eventual, Promise, promise};

fn rounds(base: u64) -> u64 {
    let factor = std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1.0);
    ((base as f64 * factor) as u64).max(1)
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("no panic in a thread");
    }
}

/// Plain memory under a lock.
struct Guarded<U: Unlock> {
    lock: RawAdaptiveMutex<U>,
    pair: UnsafeCell<(u64, u64)>,
}

// SAFETY: the pair is touched under the lock; that is what is tested.
unsafe impl<U: Unlock> Sync for Guarded<U> {}

fn locks<U: Unlock>() {
    use lock_api::{RawMutex as _, RawMutexTimed as _};
    let guarded: &'static Guarded<U> = Box::leak(Box::new(Guarded {
        lock: RawAdaptiveMutex::new(),
        pair: UnsafeCell::new((0, 0)),
    }));
    let each = rounds(100_000);
    let enter = move |add: u64| {
        // SAFETY: under the lock.
        let pair = unsafe { &mut *guarded.pair.get() };
        assert_eq!(pair.0, pair.1);
        pair.0 += add;
        pair.1 += add;
    };
    let threads = (0..4)
        .map(|id| {
            thread::spawn(move || {
                for i in 0..each {
                    let guard = if (i + id).is_multiple_of(7) {
                        let Some(guard) = guarded.lock.try_lock_for(Duration::from_micros(50))
                        else {
                            continue;
                        };
                        guard
                    } else {
                        guarded.lock.lock()
                    };
                    enter(1);
                    // SAFETY: the guard of this acquisition.
                    unsafe { guarded.lock.unlock(guard) };
                }
            })
        })
        .collect();
    join(threads);
    let guard = guarded.lock.lock();
    enter(0);
    // SAFETY: the guard of this acquisition.
    unsafe { guarded.lock.unlock(guard) };
}

/// One place through which a box is passed to another thread.
struct Slot<T>(AtomicPtr<T>);

impl<T> Slot<T> {
    const fn empty() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    fn put(&self, value: T) {
        let new = Box::into_raw(Box::new(value));
        while self
            .0
            .compare_exchange(std::ptr::null_mut(), new, Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            thread::yield_now();
        }
    }

    fn take(&self) -> T {
        loop {
            let old = self.0.swap(std::ptr::null_mut(), Ordering::Acquire);
            if old.is_null() {
                thread::yield_now();
            } else {
                // SAFETY: `put` leaked this box, and only one swap sees it.
                return *unsafe { Box::from_raw(old) };
            }
        }
    }
}

/// Whose number says how it is to end.
type Numbered = (u64, Promise<Box<u64>, Box<u64>>);
type Answer = Result<Box<u64>, tenure::promise::EventualError<Box<u64>>>;

fn check(answer: Answer, i: u64) {
    match answer {
        Ok(value) => assert_eq!(*value, i),
        Err(tenure::promise::EventualError::Failed(error)) => assert_eq!(*error, i),
        Err(tenure::promise::EventualError::Broken) => assert_eq!(i % 5, 4),
        Err(other) => panic!("{other:?}"),
    }
}

/// Each way to end a promise against each way to take what came of it.
fn promises() {
    static HANDED: Slot<Numbered> = Slot::empty();
    static CALLED: AtomicU64 = AtomicU64::new(0);
    let total = rounds(20_000);
    let writer = thread::spawn(move || {
        for _ in 0..total {
            let (i, promise) = HANDED.take();
            match i % 5 {
                0 | 1 => drop(promise.set(Box::new(i))),
                2 => drop(promise.set_error(Box::new(i))),
                3 => drop(promise.complete(Ok(Box::new(i)))),
                _ => drop(promise),
            }
        }
    });
    let reader = thread::spawn(move || {
        for i in 0..total {
            let (promise, mut eventual): (_, Eventual<Box<u64>, Box<u64>>) = promise();
            HANDED.put((i, promise));
            match i % 7 {
                0 | 1 => check(eventual.get(), i),
                2 => loop {
                    if let Some(answer) = eventual.try_get() {
                        break check(answer, i);
                    }
                    thread::yield_now();
                },
                3 => eventual.on_complete(move |answer| {
                    check(answer, i);
                    CALLED.fetch_add(1, Ordering::Relaxed);
                }),
                4 => check(eventual.map(|value| value).get(), i),
                5 => eventual.detach(),
                _ => {
                    eventual.cancel();
                }
            }
        }
    });
    join(vec![writer, reader]);
    let expected = (0..total).filter(|i| i % 7 == 3).count() as u64;
    assert_eq!(CALLED.load(Ordering::Relaxed), expected);
}

/// Leases of one key, and a cell that takes only writes with a current token.
fn leases() {
    let clock = ManualClock::new();
    let table: &'static LeaseTable<u32, Box<u64>, ManualClock> =
        Box::leak(Box::new(LeaseTable::with_clock(clock.clone())));
    let cell: &'static FencedCell<u64> = Box::leak(Box::new(FencedCell::new(0)));
    let total = rounds(40_000);
    table.insert(1, Box::new(0)).map_err(|_| "taken").expect("a new key");
    let owners = (0..3).map(|_| {
        thread::spawn(move || {
            let handle = table.handle(&1).expect("the key is there");
            let mut done = 0;
            while done < total {
                let Ok(mut lease) =
                    handle.try_acquire(LeaseRequest::new(Duration::from_millis(500)))
                else {
                    thread::yield_now();
                    continue;
                };
                **lease += 1;
                let _ = cell.write(lease.token(), |value| *value += 1);
                let _ = lease.commit();
                done += 1;
            }
        })
    });
    let mover = thread::spawn(move || {
        for _ in 0..total / 10 {
            clock.advance(Duration::from_millis(100));
            thread::yield_now();
        }
    });
    join(owners.chain([mover]).collect());
    let counted = *table.peek(&1).expect("the key is there").value;
    assert!(counted > 0 && counted <= total * 3);
}

fn main() {
    // The test command of a workspace passes the harness's own arguments: there are no tests to list.
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    for (name, test) in [
        ("locks, asymmetric", locks::<AsymmetricUnlock> as fn()),
        ("locks, symmetric", locks::<SymmetricUnlock>),
        ("promises", promises),
        ("leases", leases),
    ] {
        let start = std::time::Instant::now();
        test();
        println!("tsan {name}: ok in {} ms", start.elapsed().as_millis());
    }
}
