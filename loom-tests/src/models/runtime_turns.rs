//! Attempts that must not meet, places that are waited for, a worker that is taken out while it comes
//! back.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use tenure::runtime::model::{Crewman, End, Places, job, job_mut};

/// A capture that an attempt changes: loom fails the model if two of them meet, or if one does not see
/// what the one before did.
struct Tally(UnsafeCell<u32>);

// SAFETY: one attempt at a time; loom checks that.
unsafe impl Send for Tally {}

impl Tally {
    fn add(&mut self) -> u32 {
        // SAFETY: one attempt at a time; loom checks that.
        self.0.with_mut(|n| unsafe {
            *n += 1;
            *n
        })
    }
}

/// An attempt runs; the driver gives it up, and makes the next one, in whichever thread may.
fn given_up(cancelled: bool) {
    let mut tally = Tally(UnsafeCell::new(0));
    let (job, handle) = job_mut(move |_| Ok::<u32, _>(tally.add()));
    let (worker, driver) = (job.clone(), job.clone());
    let worker = thread::spawn(move || worker.drive(2));
    let driver = thread::spawn(move || driver.rescue(1, 2, true));
    let canceller = cancelled.then(|| {
        let job = job.clone();
        thread::spawn(move || job.cancel(false))
    });
    let mut ends = vec![worker.join().unwrap(), driver.join().unwrap()];
    ends.extend(canceller.map(|thread| thread.join().unwrap()));
    assert!(job.is_over(), "nobody made the job's last attempt");
    let over = |end: &&End| matches!(end, End::Succeeded | End::Dead | End::Cancelled);
    assert_eq!(ends.iter().filter(over).count(), 1, "{ends:?}");
    let mut handle = handle;
    match handle.try_get().expect("over") {
        Ok(runs) => assert!((1..=2).contains(&runs)),
        Err(error) => assert!(cancelled, "{error}"),
    }
}

models! { "runtime";
    /// A late attempt leaves while the retry's time comes.
    exit_x_fire_in_turn [bound: 4] {
        given_up(false);
    }
    /// The same, while somebody cancels the job.
    exit_x_fire_x_cancel_in_turn [bound: 2] {
        given_up(true);
    }
    /// A place is given back while somebody begins to wait for one.
    give_back_x_take {
        let places = Arc::new(Places::new(1));
        assert!(places.take());
        let (leaver, waiter) = (Arc::clone(&places), Arc::clone(&places));
        let leaver = thread::spawn(move || leaver.give_back());
        let waiter = thread::spawn(move || assert!(waiter.take_when_there_is_one(|| false)));
        leaver.join().unwrap();
        waiter.join().unwrap();
        assert!(!places.take(), "it is taken");
    }
    /// One place for two who wait, each of whom gives it back.
    give_back_x_take_x_take [bound: 1] {
        let places = Arc::new(Places::new(1));
        assert!(places.take());
        let (leaver, one, other) = (Arc::clone(&places), Arc::clone(&places), Arc::clone(&places));
        let leaver = thread::spawn(move || leaver.give_back());
        let waiters = [one, other].map(|places| {
            thread::spawn(move || {
                assert!(places.take_when_there_is_one(|| false));
                places.give_back();
            })
        });
        leaver.join().unwrap();
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert!(places.take(), "it is free");
    }
    /// The end comes while somebody begins to wait for a place.
    close_x_take {
        let places = Arc::new(Places::new(1));
        assert!(places.take());
        let over = Arc::new(AtomicBool::new(false));
        let (closer, waiter) = (Arc::clone(&places), Arc::clone(&places));
        let (set, seen) = (Arc::clone(&over), Arc::clone(&over));
        let closer = thread::spawn(move || {
            set.store(true, Ordering::Relaxed);
            closer.tell();
        });
        let waiter = thread::spawn(move || {
            assert!(!waiter.take_when_there_is_one(|| seen.load(Ordering::Relaxed)));
        });
        closer.join().unwrap();
        waiter.join().unwrap();
    }
    /// A worker stands up and goes to sleep while the driver takes it out: it is not forgotten there.
    retire_x_stand [bound: 3] {
        let shared = Arc::new((Crewman::default(), AtomicBool::new(false)));
        let (worker, driver) = (Arc::clone(&shared), Arc::clone(&shared));
        let (idle, _handle) = job(false, |_| Ok::<(), _>(()));
        shared.0.sit(&idle, 1);
        let worker = thread::spawn(move || {
            let (crewman, over) = &*worker;
            crewman.stand(idle);
            crewman.idle(|| over.load(Ordering::Relaxed))
        });
        let driver = thread::spawn(move || {
            let (crewman, over) = &*driver;
            let out = crewman.retire();
            over.store(true, Ordering::Relaxed);
            crewman.wake_all();
            out
        });
        let stays = worker.join().unwrap();
        let out = driver.join().unwrap();
        // Out, it may have come to see the end first; but it never slept through that it was out.
        assert!(stays || out);
        assert_eq!(shared.0.active(), usize::from(!out));
    }
}
