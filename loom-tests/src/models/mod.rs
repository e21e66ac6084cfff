//! The models, a file a room.

use crate::harness::Model;

pub mod breaker;
pub mod clock;
pub mod health;
pub mod lease;
pub mod lease_faults;
pub mod lease_values;
pub mod lease_wait;
pub mod limit;
pub mod lock;
pub mod lock_condvar;
pub mod lock_rwlock;
pub mod promise;
pub mod promise_cancel;
pub mod promise_groups;
pub mod promise_many;
pub mod retry;
pub mod runtime;
pub mod runtime_letters;
pub mod runtime_policies;
pub mod runtime_pool;
pub mod runtime_staff;
pub mod runtime_turns;
pub mod specimen;
pub mod supervise;
pub mod supervise_tree;
pub mod timer;
pub mod timer_helm;
pub mod wait;

/// Every model of every room.
#[must_use]
pub fn all() -> Vec<Model> {
    [
        breaker::MODELS,
        clock::MODELS,
        health::MODELS,
        lease::MODELS,
        lease_values::MODELS,
        lease_faults::MODELS,
        lease_wait::MODELS,
        limit::MODELS,
        lock::MODELS,
        promise::MODELS,
        promise_cancel::MODELS,
        retry::MODELS,
        promise_groups::MODELS,
        runtime::MODELS,
        runtime_letters::MODELS,
        runtime_policies::MODELS,
        runtime_pool::MODELS,
        runtime_staff::MODELS,
        runtime_turns::MODELS,
        promise_many::MODELS,
        specimen::MODELS,
        supervise::MODELS,
        supervise_tree::MODELS,
        timer::MODELS,
        timer_helm::MODELS,
        lock_condvar::MODELS,
        lock_rwlock::MODELS,
        wait::MODELS,
    ]
    .concat()
}
