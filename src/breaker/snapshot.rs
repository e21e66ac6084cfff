//! How a breaker stands, for people and for metrics.

use std::sync::Arc;

use super::word::State;
use crate::clock::Timestamp;

/// How a breaker stood at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// What it is called.
    pub name: Option<Arc<str>>,
    /// Where it stands. An opening whose time is over is still open here: the next call makes it
    /// half-open.
    pub state: State,
    /// How many changes of state there were (it wraps after 2²⁹).
    pub generation: u32,
    /// Calls in the window; 0 unless it is closed.
    pub calls: u64,
    /// Of those, how many failed.
    pub failed: u64,
    /// Of those, how many were slow.
    pub slow: u64,
    /// Probes that are under way.
    pub probes_in_flight: u32,
    /// Probes that went well.
    pub probes_passed: u32,
    /// Until when it is open, or waits for its probes.
    pub until: Option<Timestamp>,
    /// Since it was made.
    pub totals: Totals,
}

impl Snapshot {
    /// The part of the window's calls that failed, from 0 to 1.
    #[must_use]
    pub fn failure_rate(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.failed as f64 / self.calls as f64 }
    }
}

/// What a breaker has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Calls that went well, and were not slow.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that were slow, failed or not.
    pub slow: u64,
    /// Bad calls, and probes, that ended after the breaker had changed its state: they count for
    /// nothing.
    pub late: u64,
    /// Calls that were refused.
    pub rejected: u64,
    /// Panics of the listener.
    pub listener_panics: u64,
}
