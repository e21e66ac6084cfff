//! The tools' own specimens.

use shuttle::sync::Arc;
use shuttle::thread;
use tenure::sync::specimen::Sleepy;

use crate::schedules::{finds_fault, try_schedules};

fn eight_lock() {
    let lock = Arc::new(Sleepy::new(0));
    let racers: Vec<_> = (0..8)
        .map(|_| {
            let lock = lock.clone();
            thread::spawn(move || {
                for _ in 0..5 {
                    lock.with(|n| *n += 1);
                }
            })
        })
        .collect();
    for racer in racers {
        racer.join().unwrap();
    }
    assert_eq!(lock.with(|n| *n), 40);
}

#[test]
fn eight_threads_lock_the_sleeping_lock() {
    try_schedules("specimen::eight_lock", 1_000, eight_lock);
}

/// The lock with its faults planted: the tool has to find them.
#[test]
fn finds_a_lost_wake_and_an_overlap() {
    // Unlocks by a store and wakes only whom it saw beforehand.
    assert!(finds_fault(5_000, || {
        let lock = Arc::new(Sleepy::new(0));
        let racers: Vec<_> = (0..3)
            .map(|_| {
                let lock = lock.clone();
                thread::spawn(move || lock.with_forgotten_wake(|n| *n += 1))
            })
            .collect();
        for racer in racers {
            racer.join().unwrap();
        }
    }));
    // Takes the lock by a look and a store.
    assert!(finds_fault(5_000, || {
        let lock = Arc::new(Sleepy::new(0));
        let racers: Vec<_> = (0..3)
            .map(|_| {
                let lock = lock.clone();
                thread::spawn(move || lock.with_torn_lock(|n| *n += 1))
            })
            .collect();
        for racer in racers {
            racer.join().unwrap();
        }
    }));
}
