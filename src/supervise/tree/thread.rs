//! Users' threads as children, and how they are told to stop.

use core::convert::Infallible;
use core::fmt;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use crate::lock::Mutex;
use crate::promise::{Eventual, Promise, promise, ready};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Wait, park};

/// Tells a thread that it should return. Clones are the same token.
///
/// A thread cannot be killed: one that does not look is [abandoned](super::Shutdown).
///
/// ```
/// use std::time::Duration;
/// use tenure::supervise::{ChildSpec, StopToken, Supervisor};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = tenure::Runtime::builder().workers(1).build()?;
/// let poll = |stop: &StopToken| {
///     while !stop.wait_timeout(Duration::from_secs(60)) {
///         // One round of work; an error from here, or a panic, has the child started again.
///     }
/// };
/// let tree = Supervisor::builder("polls").child(ChildSpec::thread("poll", poll)).start(&runtime)?;
/// assert!(tree.shutdown(Duration::from_secs(5)).is_some()); // In the middle of its minute.
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StopToken {
    stop: Arc<Stop>,
}

struct Stop {
    /// 1 once it is to stop; waited on.
    told: AtomicU32,
    waiting: Mutex<Vec<Promise<(), Infallible>>>,
}

impl StopToken {
    pub(crate) fn new() -> Self {
        let stop = Stop { told: AtomicU32::new(0), waiting: Mutex::new(Vec::new()) };
        Self { stop: Arc::new(stop) }
    }

    pub(crate) fn stop(&self) {
        // ORDERING: Release: pairs with the Acquire in `is_stopped`.
        self.stop.told.store(1, Ordering::Release);
        park::wake_all(&raw const self.stop.told);
        let waiting = core::mem::take(&mut *self.stop.waiting.lock());
        for promise in waiting {
            let _ = promise.set(());
        }
    }

    /// Whether it is time to return.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release in `stop`.
        self.stop.told.load(Ordering::Acquire) != 0
    }

    /// Waits until it is time to return.
    ///
    /// # Blocking
    /// Until the supervisor says so.
    pub fn wait(&self) {
        while !self.is_stopped() {
            match park::wait(&self.stop.told, 0, None) {
                Wait::Woken | Wait::Changed | Wait::TimedOut => {}
            }
        }
    }

    /// The same, for so long (of real time) at most: a pause between two rounds of work. True: return.
    ///
    /// # Blocking
    /// For at most `timeout`.
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let until = Instant::now().checked_add(timeout);
        loop {
            if self.is_stopped() {
                return true;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            match park::wait(&self.stop.told, 0, left) {
                Wait::Woken | Wait::Changed | Wait::TimedOut => {}
            }
        }
    }

    /// Ready when it is time to return: for a thread that runs futures.
    pub fn stopped(&self) -> Eventual<(), Infallible> {
        let mut waiting = self.stop.waiting.lock();
        // Under the lock: `stop` takes the list after it has said so.
        if self.is_stopped() {
            drop(waiting);
            return ready(());
        }
        // Those that nobody waits for any more go, so that a thread may ask in a loop. Dropped after the lock.
        let mut left = Vec::new();
        if waiting.len() >= 16 && waiting.len().is_power_of_two() {
            (left, *waiting) =
                core::mem::take(&mut *waiting).into_iter().partition(Promise::is_cancelled);
        }
        let (promise, eventual) = promise();
        waiting.push(promise);
        drop(waiting);
        drop(left);
        eventual
    }
}

impl fmt::Debug for StopToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopToken").field("is_stopped", &self.is_stopped()).finish()
    }
}
