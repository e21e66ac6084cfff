//! Somebody's code that stands on `tenure`: an expensive answer, computed by one caller at a time.
//!
//! Whoever gets the lease computes; the others wait for an eventual. An owner that took longer than
//! its lease is fenced: its answer is dropped, and its successor's counts.

use std::time::Duration;

use tenure::clock::{Clock, ManualClock};
use tenure::lease::{LeaseRequest, LeaseTable};
use tenure::lock::AdaptiveMutex;
use tenure::promise::{Eventual, Promise, promise};

/// How long one may compute.
pub const TURN: Duration = Duration::from_secs(1);

/// One answer for many callers.
#[derive(Debug)]
pub struct Answer {
    table: LeaseTable<(), Option<u64>, ManualClock>,
    waiting: AdaptiveMutex<Vec<Promise<u64, ()>>>,
}

/// What a caller is to do.
#[derive(Debug)]
pub enum Turn {
    /// Compute, then `finish`.
    Yours(tenure::lease::OwnedLease<(), Option<u64>, ManualClock>),
    /// Wait: somebody computes.
    Theirs(Eventual<u64, ()>),
    /// The answer is there.
    Known(u64),
}

impl Answer {
    /// No answer yet.
    #[must_use]
    pub fn new(clock: ManualClock) -> Self {
        let table = LeaseTable::with_clock(clock);
        let _ = table.insert((), None);
        Self { table, waiting: AdaptiveMutex::new(Vec::new()) }
    }

    /// Whose turn it is.
    pub fn turn(&self) -> Turn {
        // Under the lock, so that nobody queues up behind an owner who has just served the queue.
        let mut waiting = self.waiting.lock();
        if let Some(value) = self.table.peek(&()).and_then(|peek| peek.value) {
            return Turn::Known(value);
        }
        let handle = self.table.handle(&()).expect("put there by `new`, never removed");
        match handle.try_acquire_owned(LeaseRequest::new(TURN)) {
            Ok(lease) => Turn::Yours(lease),
            Err(_) => {
                let (promise, eventual) = promise();
                waiting.push(promise);
                Turn::Theirs(eventual)
            }
        }
    }

    /// Hands an answer in; false if it came too late, and somebody else's counts.
    pub fn finish(
        &self,
        mut lease: tenure::lease::OwnedLease<(), Option<u64>, ManualClock>,
        value: u64,
    ) -> bool {
        lease.set(Some(value));
        let served = {
            let mut waiting = self.waiting.lock();
            if lease.commit().is_err() {
                return false;
            }
            std::mem::take(&mut *waiting)
        };
        // Outside the lock: a callback of theirs may call us.
        for promise in served {
            let _ = promise.set(value);
        }
        true
    }

    /// As [`finish`](Self::finish), with a fault that the models find: it commits before it takes the
    /// lock, so that somebody may still queue up behind it and wait for ever.
    pub fn finish_too_early(
        &self,
        mut lease: tenure::lease::OwnedLease<(), Option<u64>, ManualClock>,
        value: u64,
    ) -> bool {
        let served = std::mem::take(&mut *self.waiting.lock());
        for promise in served {
            let _ = promise.set(value);
        }
        lease.set(Some(value));
        lease.commit().is_ok()
    }

    /// The time on the table's clock.
    pub fn now(&self) -> tenure::clock::Timestamp {
        self.table.clock().now()
    }
}
