//! The mutex, with both of its unlocks.
//!
//! Each model guards a loom cell, which fails the model when two threads are in it at once or when
//! one does not see what the one before it wrote. A lost wake is a deadlock, which loom reports.

use lock_api::{RawMutex, RawMutexTimed};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::time::Duration;
use tenure::lock::{AsymmetricUnlock, RawAdaptiveMutex, SymmetricUnlock, Unlock};

/// A lock and what it protects.
struct Guarded<U: Unlock> {
    lock: RawAdaptiveMutex<U>,
    value: UnsafeCell<u32>,
}

// SAFETY: the cell is entered under the lock alone; loom checks that.
unsafe impl<U: Unlock> Sync for Guarded<U> {}

impl<U: Unlock> Guarded<U> {
    /// The lock's words come to life here, on the model's main thread, before anybody is spawned.
    fn new() -> Arc<Self> {
        let this = Self { lock: RawAdaptiveMutex::new(), value: UnsafeCell::new(0) };
        assert!(!this.lock.is_locked());
        let _ = format!("{:?}", this.lock);
        Arc::new(this)
    }

    fn enter(&self, guard: lock_api::GuardNoSend) {
        // SAFETY: under the lock.
        self.value.with_mut(|value| unsafe { *value += 1 });
        // SAFETY: the guard of this acquisition.
        unsafe { self.lock.unlock(guard) };
    }

    fn count(&self) {
        self.enter(self.lock.lock());
    }

    fn try_count_for(&self, time: Duration) -> u32 {
        self.lock.try_lock_for(time).map_or(0, |guard| {
            self.enter(guard);
            1
        })
    }

    /// Owned by nobody in particular, so that whoever is spawned first finds it taken.
    fn held() -> Arc<Self> {
        let this = Self::new();
        let _ = this.lock.lock();
        this
    }

    /// Ends what `held` began.
    fn unlock(&self) {
        // SAFETY: the lock is owned, and this is the one call that gives it up.
        unsafe { self.lock.unlock(lock_api::GuardNoSend::new()) };
    }

    /// Counts as one that has been overtaken for too long.
    fn count_overtaken(&self, time: Option<Duration>) -> u32 {
        if !self.lock.lock_overtaken(time) {
            return 0;
        }
        self.enter(lock_api::GuardNoSend::new());
        1
    }

    fn value(&self) -> u32 {
        let guard = self.lock.try_lock().expect("free at the end");
        // SAFETY: under the lock.
        let value = self.value.with(|value| unsafe { *value });
        // SAFETY: the guard of this acquisition.
        unsafe { self.lock.unlock(guard) };
        value
    }

    /// Nobody owns it, and after one more unlock (in `value`) nothing is left of those who waited.
    fn is_at_rest(&self) {
        assert!(!self.lock.is_locked());
        let words = format!("{:?}", self.lock);
        assert!(words.contains("sleeping: false, starving: false, promised: false"), "{words}");
    }
}

/// A thread for each number, which locks as often as that.
fn lock_x_lock<U: Unlock>(rounds: &[u32]) {
    let guarded = Guarded::<U>::new();
    let threads: Vec<_> = rounds
        .iter()
        .map(|&rounds| {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || (0..rounds).for_each(|_| guarded.count()))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(guarded.value(), rounds.iter().sum());
    guarded.is_at_rest();
}

/// Two lock, and somebody wakes whoever sleeps on the words' addresses, as the late wake of a lock
/// that lay there before would.
fn lock_x_lock_x_stray_wake<U: Unlock>() {
    let guarded = Guarded::<U>::new();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.count())
        })
        .collect();
    let stray = thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || guarded.lock.stray_wake()
    });
    threads.into_iter().for_each(|t| t.join().unwrap());
    stray.join().unwrap();
    assert_eq!(guarded.value(), 2);
    guarded.is_at_rest();
}

/// The owner, two who sleep, and one of those is woken and gives up: the other must not be left.
fn woken_gives_up<U: Unlock>() {
    let guarded = Guarded::<U>::new();
    let plain = thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || (0..2).for_each(|_| guarded.count())
    });
    let sleeper = thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || guarded.count()
    });
    let timed = thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || guarded.try_count_for(Duration::from_secs(1))
    });
    plain.join().unwrap();
    sleeper.join().unwrap();
    let won = timed.join().unwrap();
    assert_eq!(guarded.value(), 3 + won);
    guarded.is_at_rest();
}

/// A sleeper loses a race to a barger, asks to be handed the lock, and is. In a model patience is
/// over at once, so that each second sleep is that of a starving waiter.
fn starving_x_barging<U: Unlock>(fires: bool) {
    let guarded = Guarded::<U>::new();
    let barging = thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || (0..2).for_each(|_| guarded.count())
    });
    let starving = thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || {
            if fires {
                guarded.try_count_for(Duration::from_secs(1))
            } else {
                guarded.count();
                1
            }
        }
    });
    barging.join().unwrap();
    let won = starving.join().unwrap();
    assert_eq!(guarded.value(), 2 + won);
    guarded.is_at_rest();
}

/// One locks, `timed` others try for a while (which ends at once or never, as the model says).
fn timed_x_lock<U: Unlock>(timed: usize, fires: bool) {
    let guarded = Guarded::<U>::new();
    let plain = thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || guarded.count()
    });
    let timed: Vec<_> = (0..timed)
        .map(|_| {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.try_count_for(Duration::from_secs(1)))
        })
        .collect();
    plain.join().unwrap();
    let tried = timed.len() as u32;
    let won: u32 = timed.into_iter().map(|t| t.join().unwrap()).sum();
    assert!(fires || won == tried, "a deadline that never passes was taken for one that did");
    assert_eq!(guarded.value(), 1 + won);
    guarded.is_at_rest();
}

/// A sleeper, one whose deadline passes, and the owner: the wake must not go down with the second.
fn timed_x_lock_x_unlock<U: Unlock>() {
    let guarded = Guarded::<U>::new();
    let lockers: Vec<_> = (0..2)
        .map(|_| {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.count())
        })
        .collect();
    let timed = thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || guarded.try_count_for(Duration::from_secs(1))
    });
    lockers.into_iter().for_each(|t| t.join().unwrap());
    let won = timed.join().unwrap();
    assert_eq!(guarded.value(), 2 + won);
    guarded.is_at_rest();
}

/// Two have been overtaken for too long; one of them is handed the lock, the other is next.
fn starving_x_starving<U: Unlock>() {
    let guarded = Guarded::<U>::held();
    let starving: Vec<_> = (0..2)
        .map(|_| {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.count_overtaken(None))
        })
        .collect();
    let owner = thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || guarded.unlock()
    });
    owner.join().unwrap();
    let won: u32 = starving.into_iter().map(|t| t.join().unwrap()).sum();
    assert_eq!((won, guarded.value()), (2, 2));
    guarded.is_at_rest();
}

/// The starving one gives up while the owner promises it the lock; `others` sleep meanwhile.
fn starving_leaves_x_unlock<U: Unlock>(others: u32) {
    let guarded = Guarded::<U>::held();
    let starving = thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || guarded.count_overtaken(Some(Duration::from_secs(1)))
    });
    let sleepers: Vec<_> = (0..others)
        .map(|_| {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.count())
        })
        .collect();
    let owner = thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || guarded.unlock()
    });
    owner.join().unwrap();
    let won = starving.join().unwrap();
    sleepers.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(guarded.value(), others + won);
    guarded.is_at_rest();
}

/// The owner leaves the contended mode while a waiter comes and wants to be handed the lock.
fn leaves_contended_x_starving<U: Unlock>() {
    let guarded = Guarded::<U>::held();
    guarded.lock.was_contended();
    let owner = thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || {
            // One wakes nobody, one is quiet, one leaves the mode.
            guarded.unlock();
            (0..2).for_each(|_| guarded.count());
        }
    });
    let starving = thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || guarded.count_overtaken(None)
    });
    owner.join().unwrap();
    assert_eq!(starving.join().unwrap(), 1);
    assert_eq!(guarded.value(), 3);
    guarded.is_at_rest();
}

models! { "lock";
    /// Two threads, once each.
    asymmetric_2x1 { lock_x_lock::<AsymmetricUnlock>(&[1, 1]); }
    /// Two threads, twice each: barging, and a second sleep in contended mode.
    asymmetric_2x2 [bound: 3] { lock_x_lock::<AsymmetricUnlock>(&[2, 2]); }
    /// Three threads: one wakes a second while a third barges.
    asymmetric_3x1 [bound: 2, once] { lock_x_lock::<AsymmetricUnlock>(&[1, 1, 1]); }
    /// Three threads, twice each.
    asymmetric_3x2 [bound: 1] { lock_x_lock::<AsymmetricUnlock>(&[2, 2, 2]); }
    /// Four threads: while one wake is under way, unlocks skip theirs.
    asymmetric_4x1 [bound: 1, once] { lock_x_lock::<AsymmetricUnlock>(&[1, 1, 1, 1]); }
    /// Contended mode is entered, left after a quiet unlock (one is enough in a model), and entered.
    asymmetric_enters_and_leaves [bound: 2] { lock_x_lock::<AsymmetricUnlock>(&[4, 1]); }
    /// Two threads, once each.
    symmetric_2x1 { lock_x_lock::<SymmetricUnlock>(&[1, 1]); }
    /// Two threads, twice each.
    symmetric_2x2 [bound: 3] { lock_x_lock::<SymmetricUnlock>(&[2, 2]); }
    /// Three threads.
    symmetric_3x1 [bound: 2, once] { lock_x_lock::<SymmetricUnlock>(&[1, 1, 1]); }
    /// Three threads, twice each.
    symmetric_3x2 [bound: 1] { lock_x_lock::<SymmetricUnlock>(&[2, 2, 2]); }
    /// Four threads.
    symmetric_4x1 [bound: 1, once] { lock_x_lock::<SymmetricUnlock>(&[1, 1, 1, 1]); }
    /// A wake that nobody of this lock sent.
    asymmetric_x_stray_wake [bound: 2, once] { lock_x_lock_x_stray_wake::<AsymmetricUnlock>(); }
    /// A deadline that passes at once, while the owner unlocks.
    asymmetric_timed_fires [fires] { timed_x_lock::<AsymmetricUnlock>(1, true); }
    /// A deadline that never passes.
    asymmetric_timed_never { timed_x_lock::<AsymmetricUnlock>(1, false); }
    /// Two deadlines that pass at once.
    asymmetric_two_timed_fire [bound: 1, fires] { timed_x_lock::<AsymmetricUnlock>(2, true); }
    /// A deadline that passes while the wake that was meant for it is under way.
    asymmetric_timed_x_sleeper_x_unlock [bound: 1, fires] { timed_x_lock_x_unlock::<AsymmetricUnlock>(); }
    /// The same, with an owner who takes the lock again from under the woken one.
    asymmetric_woken_gives_up [bound: 1, fires, once] { woken_gives_up::<AsymmetricUnlock>(); }
    /// A deadline that passes at once, while the owner unlocks.
    symmetric_timed_fires [fires] { timed_x_lock::<SymmetricUnlock>(1, true); }
    /// A deadline that never passes.
    symmetric_timed_never { timed_x_lock::<SymmetricUnlock>(1, false); }
    /// A deadline that passes while the wake that was meant for it is under way.
    symmetric_timed_x_sleeper_x_unlock [bound: 1, fires] { timed_x_lock_x_unlock::<SymmetricUnlock>(); }
    /// A barger takes the lock from under a woken sleeper, which is handed it then.
    asymmetric_starving_x_barging [bound: 3] { starving_x_barging::<AsymmetricUnlock>(false); }
    /// The same, and the starving one's deadline passes as it is handed the lock.
    asymmetric_starving_x_barging_timed [bound: 3, fires] { starving_x_barging::<AsymmetricUnlock>(true); }
    /// A barger takes the lock from under a woken sleeper, which is handed it then.
    symmetric_starving_x_barging [bound: 3] { starving_x_barging::<SymmetricUnlock>(false); }
    /// The second starving one must not take what was handed to the first.
    asymmetric_starving_x_starving [bound: 1] { starving_x_starving::<AsymmetricUnlock>(); }
    /// The second starving one must not take what was handed to the first.
    symmetric_starving_x_starving [bound: 1] { starving_x_starving::<SymmetricUnlock>(); }
    /// A promise that is made while the starving one gives up is kept by both.
    asymmetric_starving_leaves_x_unlock [bound: 4, fires] { starving_leaves_x_unlock::<AsymmetricUnlock>(0); }
    /// The same, and somebody sleeps whom this unlock left to the starving one.
    asymmetric_starving_leaves_x_unlock_x_lock [bound: 2, fires, once] { starving_leaves_x_unlock::<AsymmetricUnlock>(1); }
    /// A promise that is made while the starving one gives up is kept by both.
    symmetric_starving_leaves_x_unlock [bound: 4, fires] { starving_leaves_x_unlock::<SymmetricUnlock>(0); }
    /// The word goes back to plain unlocks while the starving one comes.
    asymmetric_leaves_contended_x_starving [bound: 3] { leaves_contended_x_starving::<AsymmetricUnlock>(); }
}
