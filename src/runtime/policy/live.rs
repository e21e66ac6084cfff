//! The policies of a runtime that can be replaced while it runs.
//!
//! | policy | read | so a new one counts for |
//! |---|---|---|
//! | attempt timeout | when an attempt begins | attempts that begin from then on; one that runs keeps its own |
//! | retry policy | when an attempt has come to nothing | every decision from then on, also about jobs that have been tried |
//! | retry budget | when a retry is about to be planned, and when a job has succeeded | the same |
//!
//! A job with a policy of its own keeps that.

use core::time::Duration;
use std::sync::Arc;

use crate::clock::{Clock, nanos_saturating};
use crate::lock::Mutex;
use crate::retry::{RetryBudget, RetryPolicy};
use crate::sync::atomic::{AtomicU64, Ordering};

/// A budget of whatever clock.
pub(crate) trait Budget: Send + Sync {
    fn deposit(&self);
    fn withdraw(&self) -> bool;
}

impl<C: Clock> Budget for RetryBudget<C> {
    fn deposit(&self) {
        self.deposit();
    }

    fn withdraw(&self) -> bool {
        self.withdraw()
    }
}

/// No timeout.
const FOR_EVER: u64 = u64::MAX;

/// See the [file's docs](self).
pub(crate) struct Live {
    /// In nanoseconds.
    attempt_timeout: AtomicU64,
    // Taken when an attempt has come to nothing.
    retry: Mutex<RetryPolicy>,
    /// How often the budget was replaced; 0: there never was one.
    budgets: AtomicU64,
    budget: Mutex<Option<Arc<dyn Budget>>>,
}

/// The budget as a thread knew it that asks often.
#[derive(Default)]
pub(crate) struct Known {
    budgets: u64,
    budget: Option<Arc<dyn Budget>>,
}

impl Live {
    pub(crate) fn new(
        attempt_timeout: Option<Duration>,
        retry: RetryPolicy,
        budget: Option<Arc<dyn Budget>>,
    ) -> Self {
        Self {
            attempt_timeout: AtomicU64::new(attempt_timeout.map_or(FOR_EVER, nanos_saturating)),
            retry: Mutex::new(retry),
            budgets: AtomicU64::new(u64::from(budget.is_some())),
            budget: Mutex::new(budget),
        }
    }

    /// `None`: for ever.
    #[inline]
    pub(crate) fn attempt_timeout(&self) -> Option<Duration> {
        // ORDERING: Relaxed: a number; who reads it sooner or later than another is as good.
        match self.attempt_timeout.load(Ordering::Relaxed) {
            FOR_EVER => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    pub(crate) fn set_attempt_timeout(&self, timeout: Option<Duration>) {
        // Zero counts as the shortest.
        let nanos = timeout.map_or(FOR_EVER, |timeout| nanos_saturating(timeout).max(1));
        // ORDERING: Relaxed: as above.
        self.attempt_timeout.store(nanos, Ordering::Relaxed);
    }

    pub(crate) fn retry(&self) -> RetryPolicy {
        *self.retry.lock()
    }

    pub(crate) fn set_retry(&self, policy: RetryPolicy) {
        *self.retry.lock() = policy;
    }

    pub(crate) fn set_budget(&self, budget: Option<Arc<dyn Budget>>) {
        let mut lock = self.budget.lock();
        let before = core::mem::replace(&mut *lock, budget);
        // ORDERING: Relaxed: who sees the number takes the lock.
        self.budgets.fetch_add(1, Ordering::Relaxed);
        drop(lock);
        // Its clock is foreign.
        drop(before);
    }

    fn budget(&self) -> Option<Arc<dyn Budget>> {
        self.budget.lock().clone()
    }

    /// Whether the budget has a retry left, or there is no budget. Takes it.
    pub(crate) fn withdraw(&self) -> bool {
        // ORDERING: Relaxed: a budget that is being set may be missed.
        if self.budgets.load(Ordering::Relaxed) == 0 {
            return true;
        }
        self.budget().is_none_or(|budget| budget.withdraw())
    }

    /// A job has succeeded. `known`: the caller's own.
    #[inline]
    pub(crate) fn deposit(&self, known: &core::cell::RefCell<Known>) {
        // ORDERING: Relaxed: as in `withdraw`.
        let budgets = self.budgets.load(Ordering::Relaxed);
        if budgets != 0 {
            self.deposit_into(known, budgets);
        }
    }

    #[cold]
    fn deposit_into(&self, known: &core::cell::RefCell<Known>, budgets: u64) {
        let budget = {
            let mut known = known.borrow_mut();
            if known.budgets != budgets {
                let before = core::mem::replace(&mut known.budget, self.budget());
                known.budgets = budgets;
                drop(before);
            }
            known.budget.clone()
        };
        // Its clock is foreign.
        if let Some(budget) = budget {
            budget.deposit();
        }
    }
}
