//! The lock, with more threads and rounds than loom can explore.

use shuttle::rand::Rng as _;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;
use std::time::Duration;

use tenure::lock::{
    AdaptiveCondvar, AdaptiveMutex, AdaptiveRwLock, AsymmetricUnlock, RawAdaptiveMutex,
    SymmetricUnlock, Unlock,
};
use tenure::sync::specimen::Watch;

use crate::schedules::try_schedules;

struct Guarded<U: Unlock> {
    lock: RawAdaptiveMutex<U>,
    watch: Watch,
    entered: AtomicU32,
}

impl<U: Unlock + 'static> Guarded<U> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lock: RawAdaptiveMutex::new(),
            watch: Watch::default(),
            entered: AtomicU32::new(0),
        })
    }

    fn enter(&self, guard: lock_api::GuardNoSend) {
        // The watch notices a second thread inside.
        self.watch.enter();
        self.entered.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the guard of this acquisition.
        unsafe { lock_api::RawMutex::unlock(&self.lock, guard) };
    }
}

fn patient<U: Unlock + 'static>(threads: u32, rounds: u32) {
    let guarded = Guarded::<U>::new();
    let racers: Vec<_> = (0..threads)
        .map(|_| {
            let guarded = guarded.clone();
            thread::spawn(move || {
                for _ in 0..rounds {
                    guarded.enter(lock_api::RawMutex::lock(&guarded.lock));
                }
            })
        })
        .collect();
    for racer in racers {
        racer.join().unwrap();
    }
    assert_eq!(guarded.entered.load(Ordering::SeqCst), threads * rounds);
    assert!(!lock_api::RawMutex::is_locked(&guarded.lock));
}

/// Some give up after a while: a wake that was spent on one of them must not be lost to the others.
fn impatient<U: Unlock + 'static>() {
    let guarded = Guarded::<U>::new();
    let racers: Vec<_> = (0..8)
        .map(|id| {
            let guarded = guarded.clone();
            thread::spawn(move || {
                for _ in 0..3 {
                    if id % 2 == 0 {
                        guarded.enter(lock_api::RawMutex::lock(&guarded.lock));
                        continue;
                    }
                    let limit = Duration::from_micros(shuttle::rand::thread_rng().gen_range(1..9));
                    let taken = lock_api::RawMutexTimed::try_lock_for(&guarded.lock, limit);
                    if let Some(guard) = taken {
                        guarded.enter(guard);
                    }
                }
            })
        })
        .collect();
    for racer in racers {
        racer.join().unwrap();
    }
    assert!(guarded.entered.load(Ordering::SeqCst) >= 12);
    assert!(!lock_api::RawMutex::is_locked(&guarded.lock));
}

#[test]
fn eight_threads_take_turns() {
    try_schedules("lock::symmetric_8x5", 2_000, || patient::<SymmetricUnlock>(8, 5));
    try_schedules("lock::asymmetric_8x5", 2_000, || patient::<AsymmetricUnlock>(8, 5));
}

#[test]
fn eight_threads_of_which_four_give_up() {
    try_schedules("lock::symmetric_impatient", 2_000, impatient::<SymmetricUnlock>);
    try_schedules("lock::asymmetric_impatient", 2_000, impatient::<AsymmetricUnlock>);
}

/// Readers and writers, some of whom give up: a writer is alone, and nobody is left asleep.
fn readers_and_writers() {
    struct Inside {
        lock: AdaptiveRwLock<()>,
        readers: AtomicU32,
        writers: AtomicU32,
    }
    let inside = Arc::new(Inside {
        lock: AdaptiveRwLock::new(()),
        readers: AtomicU32::new(0),
        writers: AtomicU32::new(0),
    });
    let threads: Vec<_> = (0..8)
        .map(|id| {
            let inside = inside.clone();
            thread::spawn(move || {
                for _ in 0..3 {
                    let limit = Duration::from_micros(shuttle::rand::thread_rng().gen_range(1..9));
                    if id % 3 == 0 {
                        let guard = if id == 0 {
                            Some(inside.lock.write())
                        } else {
                            inside.lock.try_write_for(limit)
                        };
                        let Some(_guard) = guard else { continue };
                        assert_eq!(inside.writers.fetch_add(1, Ordering::SeqCst), 0, "two writers");
                        assert_eq!(inside.readers.load(Ordering::SeqCst), 0, "a reader, too");
                        inside.writers.fetch_sub(1, Ordering::SeqCst);
                    } else {
                        let guard = if id % 3 == 1 {
                            Some(inside.lock.read())
                        } else {
                            inside.lock.try_read_for(limit)
                        };
                        let Some(_guard) = guard else { continue };
                        inside.readers.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(inside.writers.load(Ordering::SeqCst), 0, "a writer, too");
                        inside.readers.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(!inside.lock.is_locked());
}

/// A queue of two places between four who put and four who take: no notification is lost.
fn bounded_queue() {
    struct Queue {
        filled: AdaptiveMutex<u32>,
        changed: AdaptiveCondvar,
    }
    let queue = Arc::new(Queue { filled: AdaptiveMutex::new(0), changed: AdaptiveCondvar::new() });
    let threads: Vec<_> = (0..8)
        .map(|id| {
            let queue = queue.clone();
            thread::spawn(move || {
                for _ in 0..3 {
                    let mut filled = queue.filled.lock();
                    if id % 2 == 0 {
                        queue.changed.wait_while(&mut filled, |filled| *filled == 2);
                        *filled += 1;
                    } else {
                        queue.changed.wait_while(&mut filled, |filled| *filled == 0);
                        *filled -= 1;
                    }
                    drop(filled);
                    // Both kinds wait for the one condition variable, so all are told.
                    let _ = queue.changed.notify_all();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*queue.filled.lock(), 0);
}

#[test]
fn eight_readers_and_writers() {
    try_schedules("lock::rwlock_8x3", 2_000, readers_and_writers);
}

#[test]
fn eight_threads_around_a_condition() {
    try_schedules("lock::condvar_8x3", 2_000, bounded_queue);
}
