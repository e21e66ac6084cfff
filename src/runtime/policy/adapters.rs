//! The breaker and the limits, as gates.

use core::time::Duration;
use std::sync::Weak;

use super::gate::{Answer, Gate, GateId, Pass, Verdict};
use crate::breaker::{self, CircuitBreaker};
use crate::limit::{
    AdaptiveLimit, AdaptivePermit, ConcurrencyLimit, KeyedConcurrency, KeyedPermit, KeyedRateLimit,
    Listener, Permit, RateLimit, RatePermit,
};
use crate::runtime::options::JobKey;

/// The answer of whatever says yes with a permit, or no with a time.
fn answer<P: Pass + 'static>(asked: Result<P, Option<Duration>>) -> Answer {
    asked.map(|permit| Box::new(permit) as Box<dyn Pass>)
}

/// What is one gate for everybody.
macro_rules! gates {
    ($($gate:ty),*) => {$(
        impl Gate for $gate {
            fn try_pass(&self) -> Answer {
                answer(self.try_acquire().map_err(|refused| refused.retry_after))
            }

            fn watch(&self, listener: Weak<dyn Listener>) {
                self.watch(listener);
            }

            fn id(&self) -> GateId {
                (self.address(), None)
            }
        }
    )*};
}

gates!(CircuitBreaker, RateLimit, ConcurrencyLimit, AdaptiveLimit);

/// What has a gate for each key.
macro_rules! gates_of_keys {
    ($($limit:ident: $passed:expr),*) => {$(
        impl Gate for OfKey<$limit<JobKey>> {
            fn try_pass(&self) -> Answer {
                let asked = self.limit.try_acquire(&self.key).map($passed);
                answer(asked.map_err(|refused| refused.retry_after))
            }

            fn watch(&self, listener: Weak<dyn Listener>) {
                self.limit.watch(listener);
            }

            fn id(&self) -> GateId {
                (self.limit.address(), Some(self.key.clone()))
            }
        }
    )*};
}

gates_of_keys!(KeyedConcurrency: |permit| permit, KeyedRateLimit: |()| UsedUp);

impl Pass for breaker::Permit {
    fn end(self: Box<Self>, verdict: Verdict) {
        match verdict {
            Verdict::Success => self.success(),
            Verdict::Failure | Verdict::Late => self.failure(),
            Verdict::Ignored | Verdict::Unused => self.ignore(),
        }
    }

    fn is_current(&self) -> bool {
        self.is_current()
    }

    fn begin(&mut self) {
        self.restart();
    }
}

impl Pass for RatePermit {
    fn end(self: Box<Self>, verdict: Verdict) {
        if verdict == Verdict::Unused {
            // Somebody has taken one since: then it stays used.
            self.give_back();
        }
    }
}

impl Pass for Permit {}

impl Pass for AdaptivePermit {
    fn end(self: Box<Self>, verdict: Verdict) {
        match verdict {
            Verdict::Success => self.success(),
            Verdict::Late => self.overloaded(),
            Verdict::Failure | Verdict::Ignored | Verdict::Unused => self.ignore(),
        }
    }
}

/// One key's part of a limit with keys.
pub(crate) struct OfKey<L> {
    limit: L,
    key: JobKey,
}

impl<L: Clone> OfKey<L> {
    pub(crate) fn new(limit: &L, key: JobKey) -> Self {
        Self { limit: limit.clone(), key }
    }
}

impl Pass for KeyedPermit<JobKey> {}

/// A permit that was used up when it was given.
struct UsedUp;

impl Pass for UsedUp {}
