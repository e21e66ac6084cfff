//! Where a rate limit's waiters sleep until time passes or a setting changes.

use core::convert::Infallible;
use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Weak};

use crate::clock::{AdvanceListener, Clock};
use crate::lock::Mutex;
use crate::promise::{Eventual, Promise, promise};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::park;
use crate::wait::Deadline;

/// See the [file's docs](self).
pub(super) struct Pause(Arc<Bell>);

/// Rung when a sleeper has to look again.
struct Bell {
    /// Counts the rings, and wraps; waited on.
    rings: AtomicU32,
    futures: Mutex<Vec<Promise<(), Infallible>>>,
}

impl Bell {
    fn ring(&self) {
        // ORDERING: Release: pairs with the Acquire in `look`: who sees the ring sees what it is about.
        self.rings.fetch_add(1, Ordering::Release);
        park::wake_all(&raw const self.rings);
        let waiting = core::mem::take(&mut *self.futures.lock());
        for promise in waiting {
            // Foreign code: the waker. No lock is held.
            let _ = promise.set(());
        }
    }
}

impl AdvanceListener for Bell {
    fn clock_advanced(&self) {
        self.ring();
    }
}

impl Pause {
    pub(super) fn new(clock: &impl Clock) -> Self {
        let bell = Arc::new(Bell { rings: AtomicU32::new(0), futures: Mutex::new(Vec::new()) });
        let listener: Weak<dyn AdvanceListener> = Arc::downgrade(&bell) as _;
        clock.on_advance(listener);
        Self(bell)
    }

    /// The rings so far. Look before you try, so that a ring after it is not missed.
    pub(super) fn look(&self) -> u32 {
        // ORDERING: Acquire: pairs with the Release in `ring`.
        self.0.rings.load(Ordering::Acquire)
    }

    /// Sleeps until the next ring after `seen`, for `left` at most if there is one, and until `deadline`.
    pub(super) fn sleep(&self, seen: u32, left: Option<Duration>, deadline: Deadline) {
        let left = match (left, deadline.remaining()) {
            (Some(left), Some(remaining)) => Some(left.min(remaining)),
            (left, remaining) => left.or(remaining),
        };
        // However it ended: the caller looks again.
        let _ = park::wait(&self.0.rings, seen, left);
    }

    /// Ready at the next ring.
    pub(super) fn changed(&self) -> Eventual<(), Infallible> {
        let (promise, eventual) = promise();
        let mut gone = Vec::new();
        let mut list = self.0.futures.lock();
        // Those who gave up, whenever the list would grow: so it stays in proportion.
        if list.len() == list.capacity() {
            let (left, here) = list.drain(..).partition(Promise::is_cancelled);
            (gone, *list) = (left, here);
        }
        list.push(promise);
        drop(list);
        drop(gone);
        eventual
    }

    /// Has all who sleep look again.
    pub(super) fn tell(&self) {
        self.0.ring();
    }
}

impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pause")
    }
}
