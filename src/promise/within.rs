//! A time limit on an eventual, kept by whatever timer there is.

use core::time::Duration;
use std::sync::Arc;

use crate::executor::Task;
use crate::lock::AdaptiveMutex;

use super::error::EventualError;
use super::eventual::Eventual;
use super::racing::SharedPromise;
use super::trampoline::guarded;

/// Something that runs a task later.
///
/// Implemented for closures `Fn(Duration, Task) -> Entry`.
pub trait Timer {
    /// Stands for one task: dropping it takes the task back, if it has not run.
    type Entry: Send + 'static;

    /// Runs `task` once, `delay` from now, on a thread of its choosing. Every delay is legal:
    /// [`Duration::MAX`] may mean never. A task that it drops, because it is full or shutting down,
    /// simply never limits anything.
    fn after(&self, delay: Duration, task: Task) -> Self::Entry;
}

impl<F: Fn(Duration, Task) -> R, R: Send + 'static> Timer for F {
    type Entry = R;

    fn after(&self, delay: Duration, task: Task) -> R {
        self(delay, task)
    }
}

impl<T: Send + 'static, E: Send + 'static> Eventual<T, E> {
    /// The same, unless `limit` passes first: then it ends as
    /// [`TimedOut`](EventualError::TimedOut), and the writer is asked to stop. When the result comes
    /// first the timer's entry is dropped, so that nothing lingers there.
    ///
    /// A limit of zero asks only whether the outcome is there now.
    pub fn within<M: Timer>(mut self, limit: Duration, timer: &M) -> Self {
        if let Some(outcome) = self.try_get() {
            return Self::complete(outcome);
        }
        if limit.is_zero() {
            return Self::complete(Err(EventualError::TimedOut));
        }
        let (mut promise, limited) = super::promise();
        let upstream = self.canceller();
        let ask = upstream.clone();
        promise.on_cancel(move || ask.cancel());
        let race = SharedPromise::from_hooked(promise);
        let entry = Arc::new(AdaptiveMutex::new(Entry::Coming));
        let (late, kept) = (race.clone(), Arc::clone(&entry));
        let task = Task::new(move || {
            if late.try_settle(Err(EventualError::TimedOut)) {
                upstream.cancel();
            }
        });
        self.on_complete(move |outcome| {
            race.try_settle(outcome);
            let old = core::mem::replace(&mut *kept.lock(), Entry::Unneeded);
            guarded(|| drop(old));
        });
        // The timer is foreign: nothing is locked while it runs. It may run the task at once.
        let made = timer.after(limit, task);
        let mut slot = entry.lock();
        if matches!(*slot, Entry::Coming) {
            *slot = Entry::Kept(made);
        } else {
            drop(slot);
            drop(made);
        }
        limited
    }
}

/// Where a limit's timer entry is.
enum Entry<R> {
    /// The timer has not given it yet.
    Coming,
    Kept(#[allow(dead_code, reason = "kept for its drop")] R),
    /// The result came first.
    Unneeded,
}
