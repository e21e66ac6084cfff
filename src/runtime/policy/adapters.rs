//! The breaker and the limits, as gates.

use core::time::Duration;
use std::sync::Weak;

use super::gate::{Gate, GateId, Pass, Verdict};
use crate::breaker::{self, CircuitBreaker};
use crate::limit::{
    AdaptiveLimit, AdaptivePermit, ConcurrencyLimit, KeyedConcurrency, KeyedPermit, KeyedRateLimit,
    Listener, Permit, RateLimit, RatePermit,
};
use crate::runtime::options::JobKey;

type Answer = Result<Box<dyn Pass>, Option<Duration>>;

impl Gate for CircuitBreaker {
    fn try_pass(&self) -> Answer {
        match self.try_acquire() {
            Ok(permit) => Ok(Box::new(permit)),
            Err(open) => Err(open.retry_after),
        }
    }

    fn watch(&self, listener: Weak<dyn Listener>) {
        self.watch(listener);
    }

    fn id(&self) -> GateId {
        (self.address(), None)
    }
}

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

impl Gate for RateLimit {
    fn try_pass(&self) -> Answer {
        match self.try_acquire() {
            Ok(permit) => Ok(Box::new(permit)),
            Err(limited) => Err(limited.retry_after),
        }
    }

    fn watch(&self, listener: Weak<dyn Listener>) {
        self.watch(listener);
    }

    fn id(&self) -> GateId {
        (self.address(), None)
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

impl Gate for ConcurrencyLimit {
    fn try_pass(&self) -> Answer {
        match self.try_acquire() {
            Ok(permit) => Ok(Box::new(permit)),
            Err(limited) => Err(limited.retry_after),
        }
    }

    fn watch(&self, listener: Weak<dyn Listener>) {
        self.watch(listener);
    }

    fn id(&self) -> GateId {
        (self.address(), None)
    }
}

impl Pass for Permit {
    fn end(self: Box<Self>, _verdict: Verdict) {}
}

impl Gate for AdaptiveLimit {
    fn try_pass(&self) -> Answer {
        match self.try_acquire() {
            Ok(permit) => Ok(Box::new(permit)),
            Err(limited) => Err(limited.retry_after),
        }
    }

    fn watch(&self, listener: Weak<dyn Listener>) {
        self.watch(listener);
    }

    fn id(&self) -> GateId {
        (self.address(), None)
    }
}

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

impl Gate for OfKey<KeyedConcurrency<JobKey>> {
    fn try_pass(&self) -> Answer {
        match self.limit.try_acquire(&self.key) {
            Ok(permit) => Ok(Box::new(permit)),
            Err(limited) => Err(limited.retry_after),
        }
    }

    fn watch(&self, listener: Weak<dyn Listener>) {
        self.limit.watch(listener);
    }

    fn id(&self) -> GateId {
        (self.limit.address(), Some(self.key.clone()))
    }
}

impl Pass for KeyedPermit<JobKey> {
    fn end(self: Box<Self>, _verdict: Verdict) {}
}

impl Gate for OfKey<KeyedRateLimit<JobKey>> {
    fn try_pass(&self) -> Answer {
        match self.limit.try_acquire(&self.key) {
            Ok(()) => Ok(Box::new(UsedUp)),
            Err(limited) => Err(limited.retry_after),
        }
    }

    fn watch(&self, listener: Weak<dyn Listener>) {
        self.limit.watch(listener);
    }

    fn id(&self) -> GateId {
        (self.limit.address(), Some(self.key.clone()))
    }
}

/// A permit that was used up when it was given.
struct UsedUp;

impl Pass for UsedUp {
    fn end(self: Box<Self>, _verdict: Verdict) {}
}
