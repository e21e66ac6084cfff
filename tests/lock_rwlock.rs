//! `AdaptiveRwLock` and `AdaptiveCondvar` through their public faces, and `PoisonMutex`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use tenure::lock::{AdaptiveCondvar, AdaptiveMutex, AdaptiveRwLock, PoisonMutex};

#[test]
fn readers_share_and_a_writer_does_not() {
    static LOCK: AdaptiveRwLock<u32> = AdaptiveRwLock::new(1);
    assert_eq!(size_of::<AdaptiveRwLock<()>>(), 8);
    let first = LOCK.read();
    let second = LOCK.try_read().expect("readers share");
    assert!(LOCK.try_write().is_none());
    assert!(LOCK.try_write_for(Duration::from_millis(2)).is_none());
    drop((first, second));
    *LOCK.try_write_for(Duration::MAX).expect("free") += 1;
    let writer = LOCK.write();
    assert!(LOCK.try_read().is_none());
    assert!(LOCK.try_read_for(Duration::from_millis(2)).is_none());
    assert!(LOCK.try_read_until(Instant::now()).is_none());
    drop(writer);
    assert_eq!(*LOCK.read(), 2);
}

#[test]
fn a_writer_gets_in_between_readers_who_never_stop() {
    let lock = AdaptiveRwLock::new(0_u32);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = *lock.read();
                }
            });
        }
        let writes = scope.spawn(|| (0..200).for_each(|_| *lock.write() += 1));
        writes.join().unwrap();
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(lock.into_inner(), 200);
}

#[test]
fn a_writer_that_gives_up_lets_readers_in_again() {
    let lock = AdaptiveRwLock::new(());
    let reader = lock.read();
    thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_write_for(Duration::from_millis(5)).is_none()));
    });
    assert!(lock.try_read().is_some(), "kept out by a writer that is gone");
    drop(reader);
    assert!(lock.try_write().is_some());
}

/// Writers change both halves; a reader that sees them differ was let in beside a writer.
#[test]
fn readers_and_writers_stress() {
    let factor: f64 =
        std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1.0);
    let lock = AdaptiveRwLock::new((0_u64, 0_u64));
    let over = AtomicBool::new(false);
    let (written, read) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for id in 0..6_u64 {
            let (lock, over, written, read) = (&lock, &over, &written, &read);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(id);
                while !over.load(Ordering::Relaxed) {
                    let limit = Duration::from_micros(random.u64(..60));
                    let write = match random.u32(..8) {
                        0 => Some(lock.write()),
                        1 => lock.try_write_for(limit),
                        _ => None,
                    };
                    if let Some(mut pair) = write {
                        pair.0 += 1;
                        (0..random.u32(..50)).for_each(|_| std::hint::spin_loop());
                        pair.1 += 1;
                        written.fetch_add(1, Ordering::Relaxed);
                    } else if let Some(pair) = lock.try_read_for(limit) {
                        assert_eq!(pair.0, pair.1);
                        read.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        thread::sleep(Duration::from_secs_f64(0.8 * factor));
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(lock.into_inner().0, u64::from(written.load(Ordering::Relaxed)));
    assert!(read.into_inner() > 0);
}

#[test]
fn a_condition_is_waited_for_and_a_deadline_ends_the_wait() {
    let lock = AdaptiveMutex::new(0);
    let changed = AdaptiveCondvar::new();
    let mut value = lock.lock();
    for time in [Duration::ZERO, Duration::from_millis(3)] {
        let start = Instant::now();
        assert!(changed.wait_for(&mut value, time).timed_out());
        assert!(start.elapsed() >= time);
    }
    assert!(changed.wait_until(&mut value, Instant::now()).timed_out());
    assert!(lock.is_locked(), "the guard is whole again");
    thread::scope(|scope| {
        scope.spawn(|| {
            *lock.lock() = 1;
            changed.notify_one();
        });
        let result = changed.wait_while_for(&mut value, |value| *value == 0, Duration::MAX);
        assert!(!result.timed_out());
        assert_eq!(*value, 1);
        drop(value);
    });
}

#[test]
fn notify_all_wakes_sixteen() {
    let shared = Arc::new((AdaptiveMutex::new(0_u32), AdaptiveCondvar::new(), Barrier::new(17)));
    for round in 1..=20 {
        let waiters: Vec<_> = (0..16)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (lock, changed, gate) = &*shared;
                    let mut value = lock.lock();
                    gate_without(&mut value, gate);
                    changed.wait_while(&mut value, |value| *value < round);
                })
            })
            .collect();
        shared.2.wait();
        *shared.0.lock() = round;
        shared.1.notify_all();
        waiters.into_iter().for_each(|t| t.join().unwrap());
    }
}

/// Meets the others without the lock.
fn gate_without(value: &mut tenure::lock::AdaptiveMutexGuard<'_, u32>, gate: &Barrier) {
    lock_api::MutexGuard::unlocked(value, || gate.wait());
}

#[test]
fn a_panic_poisons_and_the_poison_can_be_cleared() {
    let lock = PoisonMutex::new(vec![1]);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = lock.lock().unwrap();
        guard.push(2);
        panic!("half done");
    }));
    assert!(panicked.is_err());
    assert!(lock.is_poisoned());
    assert!(matches!(lock.try_lock(), Some(Err(_))));
    let guard = lock.lock().unwrap_err().into_inner();
    assert_eq!(*guard, [1, 2]);
    assert!(lock.try_lock().is_none(), "a poisoned guard holds the lock");
    drop(guard);
    lock.clear_poison();
    assert!(lock.lock().is_ok());
    assert_eq!(lock.into_inner().unwrap(), [1, 2]);
}

/// A guard that is made and dropped while its thread unwinds for another reason does not poison.
#[test]
fn unwinding_for_another_reason_does_not_poison() {
    struct LocksInDrop<'a>(&'a PoisonMutex<u32>);
    impl Drop for LocksInDrop<'_> {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    let lock = PoisonMutex::new(0);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _locks = LocksInDrop(&lock);
        panic!("elsewhere");
    }));
    assert!(panicked.is_err());
    assert_eq!(*lock.lock().unwrap(), 1);
}
