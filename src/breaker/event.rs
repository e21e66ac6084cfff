//! What is told of a breaker.

use crate::clock::Timestamp;

use super::word::State;

/// A change of state. By the time anybody hears of it the breaker may have moved on; where two are told
/// at once, the generation says which came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerEvent {
    /// What it was.
    pub from: State,
    /// What it became.
    pub to: State,
    /// Why.
    pub cause: Cause,
    /// How many changes there were up to this one (it wraps after 2²⁹).
    pub generation: u32,
    /// When, on the breaker's clock.
    pub at: Timestamp,
}

/// Why a breaker changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Too many calls of the window failed.
    FailureRate,
    /// Too many calls of the window were slow.
    SlowRate,
    /// The time of the opening was over.
    TimeOver,
    /// A probe failed, or was slow.
    ProbeFailed,
    /// The probes did not come back in time.
    ProbeTimeout,
    /// All probes went well.
    ProbesPassed,
    /// Somebody said so.
    Asked,
}

/// Where events go.
pub(super) type Sink = Box<dyn Fn(&BreakerEvent) + Send + Sync>;
