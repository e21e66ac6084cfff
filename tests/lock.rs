//! `AdaptiveMutex` through its public face.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use lock_api::{MutexGuard, RawMutex, RawMutexTimed};
use tenure::lock::{AdaptiveMutex, AsymmetricUnlock, RawAdaptiveMutex, SymmetricUnlock, Unlock};

/// Runs `waiter` on a thread while `lock` is held, and lets go once it sleeps.
fn while_held<U: Unlock, R: Send>(
    lock: &RawAdaptiveMutex<U>,
    waiter: impl FnOnce() -> R + Send,
) -> R {
    let guard = lock.lock();
    thread::scope(|scope| {
        let waiter = scope.spawn(waiter);
        until(|| has_waiters(lock) || waiter.is_finished());
        // SAFETY: the guard of this acquisition.
        unsafe { lock.unlock(guard) };
        waiter.join().unwrap()
    })
}

fn until(mut condition: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < give_up, "it never came to that");
        thread::yield_now();
    }
}

/// Whether somebody sleeps, or is about to, as the lock's `Debug` tells it. True for one unlock more
/// than that: a waiter that leaves does not know whether it was the last.
fn has_waiters<U: Unlock>(lock: &RawAdaptiveMutex<U>) -> bool {
    let words = format!("{lock:?}");
    assert!(words.contains("sleeping: ") && words.contains("starving: "), "{words}");
    ["sleeping: true", "starving: true", "promised: true"].iter().any(|flag| words.contains(flag))
}

/// After one unlock, nothing is left of whoever waited.
fn is_at_rest<U: Unlock>(lock: &RawAdaptiveMutex<U>) -> bool {
    let guard = lock.try_lock().expect("free");
    // SAFETY: the guard of this acquisition.
    unsafe { lock.unlock(guard) };
    !lock.is_locked() && !has_waiters(lock)
}

/// Both unlocks, for each behaviour that differs in them.
macro_rules! both {
    ($($name:ident => $body:ident;)*) => {$(
        mod $name {
            #[test]
            fn asymmetric() { super::$body::<super::AsymmetricUnlock>(); }
            #[test]
            fn symmetric() { super::$body::<super::SymmetricUnlock>(); }
        }
    )*};
}

both! {
    a_sleeper_is_woken => sleeper_is_woken;
    a_deadline_that_passes_leaves_no_trace => passed_deadline_leaves_no_trace;
    every_duration_is_legal => every_duration_is_legal_body;
    a_wake_is_not_lost_with_one_who_gave_up => wake_survives_timeouts;
    a_forgotten_guard_keeps_it_locked => forgotten_guard;
    stray_wakes_cost_nobody_anything => stray_wakes;
}

/// A futex wake names an address, so a late wake of a lock that lay there before may hit this one. Once
/// that left a sleeper counted for good, and each later unlock made a system call.
#[cfg(all(target_os = "linux", not(tenure_portable_park)))]
fn stray_wakes<U: Unlock>() {
    let lock = RawAdaptiveMutex::<U>::new();
    let words = (&raw const lock).cast::<u32>();
    let guard = lock.lock();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let guard = lock.lock();
                    // SAFETY: the guard of this acquisition.
                    unsafe { lock.unlock(guard) };
                })
            })
            .collect();
        until(|| has_waiters(&lock));
        // Both words, until two sleepers were hit by each.
        let hits = |offset: usize| {
            // SAFETY: the address is a key only: FUTEX_WAKE (private) reads nothing behind it.
            let woken = unsafe {
                let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
                libc::syscall(libc::SYS_futex, words.wrapping_add(offset), op, 1)
            };
            usize::try_from(woken).unwrap_or(0)
        };
        let mut hit = 0;
        until(|| {
            hit += hits(0) + hits(1);
            hit >= 5
        });
        assert!(lock.is_locked(), "still this thread's");
        // SAFETY: the guard of this acquisition.
        unsafe { lock.unlock(guard) };
        waiters.into_iter().for_each(|t| t.join().unwrap());
    });
    assert!(is_at_rest(&lock), "{lock:?}");
}

#[cfg(not(all(target_os = "linux", not(tenure_portable_park))))]
fn stray_wakes<U: Unlock>() {}

fn sleeper_is_woken<U: Unlock>() {
    let lock = RawAdaptiveMutex::<U>::new();
    for _ in 0..50 {
        while_held(&lock, || {
            let guard = lock.lock();
            // SAFETY: the guard of this acquisition.
            unsafe { lock.unlock(guard) };
        });
        assert!(is_at_rest(&lock));
    }
}

fn passed_deadline_leaves_no_trace<U: Unlock>() {
    let lock = RawAdaptiveMutex::<U>::new();
    let guard = lock.lock();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let start = Instant::now();
                assert!(lock.try_lock_for(Duration::from_millis(5)).is_none());
                assert!(start.elapsed() >= Duration::from_millis(5), "gave up early");
                assert!(lock.try_lock_for(Duration::ZERO).is_none());
                assert!(lock.try_lock_until(start).is_none());
            });
        }
    });
    // SAFETY: the guard of this acquisition.
    unsafe { lock.unlock(guard) };
    assert!(is_at_rest(&lock));
}

fn every_duration_is_legal_body<U: Unlock>() {
    let lock = RawAdaptiveMutex::<U>::new();
    for time in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(1), Duration::MAX] {
        let guard = lock.try_lock_for(time).expect("free");
        // SAFETY: the guard of this acquisition.
        unsafe { lock.unlock(guard) };
    }
    for time in [Duration::MAX, Duration::from_secs(u64::MAX >> 1), Duration::from_secs(60)] {
        let won = while_held(&lock, || {
            lock.try_lock_for(time).is_some_and(|guard| {
                // SAFETY: the guard of this acquisition.
                unsafe { lock.unlock(guard) };
                true
            })
        });
        assert!(won, "{time:?}");
    }
}

/// Many short deadlines around one patient sleeper, which must get its turn.
fn wake_survives_timeouts<U: Unlock>() {
    let lock = RawAdaptiveMutex::<U>::new();
    let won = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for micros in (1..400).map(|n| n % 80) {
                    if let Some(guard) = lock.try_lock_for(Duration::from_micros(micros)) {
                        won.fetch_add(1, Ordering::Relaxed);
                        // SAFETY: the guard of this acquisition.
                        unsafe { lock.unlock(guard) };
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..2_000 {
                let guard = lock.lock();
                thread::yield_now();
                // SAFETY: the guard of this acquisition.
                unsafe { lock.unlock(guard) };
            }
        });
    });
    assert!(is_at_rest(&lock));
    assert!(won.load(Ordering::Relaxed) > 0);
}

fn forgotten_guard<U: Unlock>() {
    let lock = lock_api::Mutex::<RawAdaptiveMutex<U>, u32>::new(1);
    std::mem::forget(lock.lock());
    assert!(lock.try_lock().is_none());
    // Moved and taken apart while it is locked: it has one owner, so it has no waiter.
    let moved = Box::new(lock);
    assert!(moved.is_locked());
    assert_eq!(moved.into_inner(), 1);
}

#[test]
fn it_lives_in_a_static_and_is_eight_bytes() {
    static LOCK: AdaptiveMutex<u32> = AdaptiveMutex::new(7);
    *LOCK.lock() += 1;
    assert_eq!(*LOCK.lock(), 8);
    if cfg!(not(feature = "lock-contention")) {
        assert_eq!(size_of::<AdaptiveMutex<()>>(), 8);
        assert_eq!(size_of::<RawAdaptiveMutex<SymmetricUnlock>>(), 8);
    }
    assert!(!std::mem::needs_drop::<AdaptiveMutex<u32>>());
}

#[test]
fn debug_never_blocks() {
    let lock = AdaptiveMutex::new(3);
    assert!(format!("{lock:?}").contains('3'));
    let _guard = lock.lock();
    assert!(format!("{lock:?}").contains("<locked>"));
}

#[test]
fn a_panic_under_the_lock_unlocks_it() {
    let lock = AdaptiveMutex::new(0);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut value = lock.lock();
        *value = 5;
        panic!("under the lock");
    }));
    assert!(panicked.is_err());
    assert_eq!(*lock.try_lock().expect("unlocked"), 5);
}

#[test]
fn a_mapped_guard_unlocks_when_it_is_dropped() {
    let lock = AdaptiveMutex::new((1, String::from("a")));
    let mut name = MutexGuard::map(lock.lock(), |pair| &mut pair.1);
    name.push('b');
    assert!(lock.is_locked());
    drop(name);
    assert_eq!(lock.lock().1, "ab");
}

#[test]
fn an_owned_guard_outlives_every_other_handle() {
    let lock = Arc::new(AdaptiveMutex::new(1));
    let weak = Arc::downgrade(&lock);
    let mut guard = lock.try_lock_arc_for(Duration::MAX).expect("free");
    drop(lock);
    *guard += 1;
    assert_eq!(*guard, 2);
    drop(guard);
    assert!(weak.upgrade().is_none());
}

/// The last unlock frees the lock: each thread drops its handle right after it unlocked.
#[test]
fn the_next_owner_may_drop_the_last_handle() {
    for _ in 0..2_000 {
        let lock = Arc::new(AdaptiveMutex::new(0_u32));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || *lock.lock_arc() += 1)
            })
            .collect();
        drop(lock);
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}

/// A lock that slept through `thread::park` would eat the token, or leave one behind.
#[test]
fn the_threads_own_park_token_is_left_alone() {
    let lock = Arc::new(AdaptiveMutex::new(()));
    let guard = lock.lock();
    let (started, begin) = mpsc::channel();
    let waiter = thread::spawn({
        let lock = Arc::clone(&lock);
        move || {
            thread::current().unpark();
            started.send(()).unwrap();
            drop(lock.lock());
            // The token is still there: this returns at once...
            thread::park();
            // ...and no second one is.
            let start = Instant::now();
            thread::park_timeout(Duration::from_millis(20));
            start.elapsed()
        }
    });
    begin.recv().unwrap();
    // SAFETY: nothing is locked or unlocked through it, only looked at.
    until(|| has_waiters(unsafe { lock.raw() }));
    drop(guard);
    assert!(waiter.join().unwrap() >= Duration::from_millis(19));
}

/// Locks, contended, in a thread-local's destructor.
#[test]
fn it_works_while_thread_locals_are_torn_down() {
    static LOCK: AdaptiveMutex<u32> = AdaptiveMutex::new(0);

    struct AtExit;
    impl Drop for AtExit {
        fn drop(&mut self) {
            for _ in 0..1_000 {
                *LOCK.lock() += 1;
            }
        }
    }
    thread_local! {
        static AT_EXIT: AtExit = const { AtExit };
    }

    let threads = 4;
    let gate = Arc::new(Barrier::new(threads));
    let threads: Vec<_> = (0..threads)
        .map(|_| {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                AT_EXIT.with(|_| gate.wait());
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(*LOCK.lock(), 4_000);
}

/// More threads than processors, and none of them waits for ever.
#[test]
fn sixty_four_threads_all_get_their_turns() {
    let lock = AdaptiveMutex::new(0_u32);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| (0..200).for_each(|_| *lock.lock() += 1));
        }
    });
    assert_eq!(lock.into_inner(), 64 * 200);
}

/// A crowd leaves nothing behind: contended mode is left, and unlocking is a plain store again.
#[test]
fn a_convoy_dissolves() {
    let lock = RawAdaptiveMutex::<AsymmetricUnlock>::new();
    let round = || {
        let guard = lock.lock();
        // SAFETY: the guard of this acquisition.
        unsafe { lock.unlock(guard) };
    };
    for _ in 0..20 {
        // Everybody has come before anybody gets in.
        while_held(&lock, || {
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| (0..50).for_each(|_| round()));
                }
            });
        });
        (0..5_000).for_each(|_| round());
        let words = format!("{lock:?}");
        assert!(words.contains("contended: false"), "{words}");
        assert!(is_at_rest(&lock));
    }
}

/// What the counters say of a story whose every acquisition is known.
#[cfg(feature = "lock-contention")]
#[test]
fn contention_is_counted_end_to_end() {
    use tenure::lock::ContentionExt;

    let lock = AdaptiveMutex::new(0_u32);
    *lock.lock() += 1;
    assert_eq!(lock.contention().contended, 0, "nobody waited");

    // One who gives up without sleeping, and one after a sleep.
    let guard = lock.lock();
    assert!(lock.try_lock_for(Duration::ZERO).is_none());
    assert!(lock.try_lock_for(Duration::from_millis(2)).is_none());
    let seen = lock.contention();
    assert_eq!((seen.contended, seen.gave_up, seen.spun_and_won), (2, 2, 0));
    assert!(seen.sleeps >= 1);
    let waits: u64 = seen.waits().map(|(_, count)| count).sum();
    assert_eq!(waits, 2);
    assert!(seen.waits().any(|(end, _)| end > Duration::from_millis(2)), "{seen:?}");
    drop(guard);

    // One who sleeps and is woken.
    let guard = lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| *lock.lock() += 1);
        until(|| {
            // SAFETY: nothing is locked or unlocked through it, only looked at.
            has_waiters(unsafe { lock.raw() })
        });
        drop(guard);
    });
    let last = lock.contention();
    assert_eq!((last.contended, last.gave_up), (3, 2));
    assert_eq!(last.waits().map(|(_, count)| count).sum::<u64>(), 3);
    assert!(format!("{last:?}").contains("spun_and_won"));
    assert_eq!(*lock.lock(), 2);
}
