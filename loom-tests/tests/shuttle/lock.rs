//! The lock, with more threads and rounds than loom can explore.

use shuttle::rand::Rng as _;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;
use std::time::Duration;

use tenure::lock::{AsymmetricUnlock, RawAdaptiveMutex, SymmetricUnlock, Unlock};
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
