//! The condition variable: no notification is lost between unlocking and sleeping.

use loom::sync::Arc;
use loom::thread;
use std::time::Duration;
use tenure::lock::{AdaptiveCondvar, AdaptiveMutex};

/// A number that is waited for.
struct Waited {
    lock: AdaptiveMutex<u32>,
    changed: AdaptiveCondvar,
}

impl Waited {
    /// The words come to life here, on the model's main thread.
    fn new() -> Arc<Self> {
        let this = Self { lock: AdaptiveMutex::new(0), changed: AdaptiveCondvar::new() };
        drop(this.lock.lock());
        let _ = this.changed.notify_all();
        Arc::new(this)
    }
}

models! { "lock";
    /// The notifier changes the condition and notifies after it unlocked.
    condvar_wait_x_notify_one [bound: 3] {
        let waited = Waited::new();
        let waiter = thread::spawn({
            let waited = Arc::clone(&waited);
            move || waited.changed.wait_while(&mut waited.lock.lock(), |value| *value == 0)
        });
        let notifier = thread::spawn(move || {
            *waited.lock.lock() = 1;
            waited.changed.notify_one();
        });
        waiter.join().unwrap();
        notifier.join().unwrap();
    }

    /// Two wait, and one call wakes both.
    condvar_wait_x_wait_x_notify_all [bound: 1] {
        let waited = Waited::new();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let waited = Arc::clone(&waited);
                thread::spawn(move || {
                    waited.changed.wait_while(&mut waited.lock.lock(), |value| *value == 0);
                })
            })
            .collect();
        let notifier = thread::spawn(move || {
            *waited.lock.lock() = 1;
            waited.changed.notify_all();
        });
        waiters.into_iter().for_each(|t| t.join().unwrap());
        notifier.join().unwrap();
    }

    /// A wait whose time is up while it is notified returns with the lock held either way.
    condvar_wait_for_x_notify_one [bound: 3, fires] {
        let waited = Waited::new();
        let waiter = thread::spawn({
            let waited = Arc::clone(&waited);
            move || {
                let mut value = waited.lock.lock();
                let result = waited.changed.wait_while_for(
                    &mut value,
                    |value| *value == 0,
                    Duration::from_secs(1),
                );
                assert_eq!(*value == 0, result.timed_out());
            }
        });
        let notifier = thread::spawn({
            let waited = Arc::clone(&waited);
            move || {
                *waited.lock.lock() = 1;
                waited.changed.notify_one();
            }
        });
        waiter.join().unwrap();
        notifier.join().unwrap();
        assert!(!waited.lock.is_locked());
    }
}
