//! The reader-writer lock.
//!
//! A loom cell is read and written under it: overlap of a writer with anybody fails the model, and
//! so does a reader that does not see the last write.

use lock_api::{RawRwLock, RawRwLockTimed};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::time::Duration;
use tenure::lock::RawAdaptiveRwLock;

/// A lock and what it protects.
struct Guarded {
    lock: RawAdaptiveRwLock,
    value: UnsafeCell<u32>,
}

// SAFETY: the cell is entered under the lock alone; loom checks that.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// The words come to life here, on the model's main thread.
    fn new() -> Arc<Self> {
        let this = Self { lock: RawAdaptiveRwLock::INIT, value: UnsafeCell::new(0) };
        this.write();
        this.value.with_mut(|value| {
            // SAFETY: not shared yet.
            unsafe { *value = 0 }
        });
        Arc::new(this)
    }

    fn read(&self) -> u32 {
        let guard = self.lock.lock_shared();
        // SAFETY: under the lock.
        let value = self.value.with(|value| unsafe { *value });
        // SAFETY: the guard of this acquisition.
        unsafe { self.lock.unlock_shared(guard) };
        value
    }

    fn write(&self) {
        self.add(self.lock.lock_exclusive());
    }

    fn write_for(&self) -> u32 {
        self.lock.try_lock_exclusive_for(Duration::from_secs(1)).map_or(0, |guard| {
            self.add(guard);
            1
        })
    }

    fn add(&self, guard: lock_api::GuardNoSend) {
        // SAFETY: under the lock.
        self.value.with_mut(|value| unsafe { *value += 1 });
        // SAFETY: the guard of this acquisition.
        unsafe { self.lock.unlock_exclusive(guard) };
    }
}

/// A thread of the model, with the lock.
fn spawn(guarded: &Arc<Guarded>, f: impl FnOnce(&Guarded) + 'static) -> thread::JoinHandle<()> {
    let guarded = Arc::clone(guarded);
    thread::spawn(move || f(&guarded))
}

models! { "lock";
    /// A writer and a reader.
    rwlock_write_x_read [bound: 4] {
        let guarded = Guarded::new();
        let writer = spawn(&guarded, Guarded::write);
        let reader = spawn(&guarded, |g| assert!(g.read() <= 1));
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(guarded.read(), 1);
    }

    /// Two writers.
    rwlock_write_x_write [bound: 4] {
        let guarded = Guarded::new();
        let writers = [spawn(&guarded, Guarded::write), spawn(&guarded, Guarded::write)];
        writers.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(guarded.read(), 2);
    }

    /// Two readers keep a writer out, and the last of them lets it in.
    rwlock_write_x_read_x_read [bound: 1] {
        let guarded = Guarded::new();
        let writer = spawn(&guarded, Guarded::write);
        let readers =
            [spawn(&guarded, |g| assert!(g.read() <= 1)), spawn(&guarded, |g| assert!(g.read() <= 1))];
        writer.join().unwrap();
        readers.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(guarded.read(), 1);
    }

    /// A waiting writer keeps readers out, gives up, and lets them in again.
    rwlock_write_x_write_for_x_read [bound: 1, fires] {
        let guarded = Guarded::new();
        let writer = spawn(&guarded, Guarded::write);
        let timed = spawn(&guarded, |g| {
            g.write_for();
        });
        let reader = spawn(&guarded, |g| assert!(g.read() <= 2));
        for thread in [writer, timed, reader] {
            thread.join().unwrap();
        }
        assert!((1..=2).contains(&guarded.read()));
    }

    /// A deadline that never passes is not taken for one that did.
    rwlock_write_x_write_for_never [bound: 4] {
        let guarded = Guarded::new();
        let writer = spawn(&guarded, Guarded::write);
        let timed = spawn(&guarded, |g| assert_eq!(g.write_for(), 1));
        writer.join().unwrap();
        timed.join().unwrap();
        assert_eq!(guarded.read(), 2);
    }
}
