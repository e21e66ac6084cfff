//! The locks under real threads: exclusion, no lost wake, nothing left behind.
//!
//! `TENURE_STRESS=10` runs ten times as long.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lock_api::{RawMutex, RawMutexTimed};
use tenure::lock::{AsymmetricUnlock, RawAdaptiveMutex, SymmetricUnlock, Unlock};

fn seconds(base: f64) -> Duration {
    let factor = std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1.0);
    Duration::from_secs_f64(base * factor)
}

/// Two counters that differ while somebody is inside.
struct Guarded<U: Unlock> {
    lock: RawAdaptiveMutex<U>,
    pair: UnsafeCell<(u64, u64)>,
    turns: AtomicU64,
}

// SAFETY: the pair is touched under the lock; that is what is tested.
unsafe impl<U: Unlock> Sync for Guarded<U> {}

impl<U: Unlock> Guarded<U> {
    fn new() -> Self {
        Self {
            lock: RawAdaptiveMutex::new(),
            pair: UnsafeCell::new((0, 0)),
            turns: AtomicU64::new(0),
        }
    }

    fn enter(&self, guard: lock_api::GuardNoSend, work: u32) {
        // SAFETY: under the lock.
        let pair = unsafe { &mut *self.pair.get() };
        assert_eq!(pair.0, pair.1, "two threads under one lock");
        pair.0 += 1;
        (0..work).for_each(|_| std::hint::spin_loop());
        pair.1 += 1;
        // SAFETY: the guard of this acquisition.
        unsafe { self.lock.unlock(guard) };
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    fn check(self) {
        let turns = self.turns.into_inner();
        // SAFETY: all threads are gone.
        assert_eq!(unsafe { *self.pair.get() }, (turns, turns));
        assert!(turns > 0);
        // One more unlock, and nothing is left of whoever waited.
        let guard = self.lock.try_lock().expect("free");
        // SAFETY: the guard of this acquisition.
        unsafe { self.lock.unlock(guard) };
        let words = format!("{:?}", self.lock);
        assert!(words.contains("sleeping: false, starving: false, promised: false"), "{words}");
    }
}

/// Threads of every kind against one lock: short and long sections, patient and impatient.
fn everybody<U: Unlock>(threads: u32, time: Duration) {
    let guarded = Guarded::<U>::new();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for id in 0..threads {
            let (guarded, over) = (&guarded, &over);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(u64::from(id) + 1);
                while !over.load(Ordering::Relaxed) {
                    let work = if random.u32(..100) == 0 { 2_000 } else { random.u32(..20) };
                    match random.u32(..8) {
                        0 => {
                            if let Some(guard) = guarded.lock.try_lock() {
                                guarded.enter(guard, work);
                            }
                        }
                        1 => {
                            let limit = Duration::from_micros(random.u64(..100));
                            if let Some(guard) = guarded.lock.try_lock_for(limit) {
                                guarded.enter(guard, work);
                            }
                        }
                        _ => guarded.enter(guarded.lock.lock(), work),
                    }
                    if random.u32(..16) == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
    });
    guarded.check();
}

#[test]
fn everybody_against_one_lock() {
    for threads in [2, 4, 12] {
        everybody::<AsymmetricUnlock>(threads, seconds(0.4));
        everybody::<SymmetricUnlock>(threads, seconds(0.4));
    }
}

/// Quiet and contended by turns, so that the mode is entered and left all the time: the window
/// that the barrier closes is passed on each entry.
fn ping_pong<U: Unlock>(time: Duration) {
    let guarded = Guarded::<U>::new();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut round = 0_u32;
                while !over.load(Ordering::Relaxed) {
                    round = round.wrapping_add(1);
                    // Most rounds are quick; some hold on for so long that the other one sleeps.
                    let work = if round.is_multiple_of(5_000) { 3_000 } else { 0 };
                    guarded.enter(guarded.lock.lock(), work);
                }
            });
        }
        let start = Instant::now();
        let (mut before, mut moved) = (0, start);
        while start.elapsed() < time {
            thread::sleep(Duration::from_millis(100));
            let now = guarded.turns.load(Ordering::Relaxed);
            if now > before {
                (before, moved) = (now, Instant::now());
            }
        }
        // A machine under load may not run us for a while; a lost wake lasts for ever.
        while guarded.turns.load(Ordering::Relaxed) == before {
            assert!(moved.elapsed() < Duration::from_secs(60), "nobody moves: {:?}", guarded.lock);
            thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
    });
    guarded.check();
}

#[test]
fn contended_mode_comes_and_goes() {
    ping_pong::<AsymmetricUnlock>(seconds(1.0));
    ping_pong::<SymmetricUnlock>(seconds(0.3));
}
