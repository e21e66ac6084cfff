//! What a detector cannot work with, and what a beat finds out too late.

use core::time::Duration;

use thiserror::Error;

/// A setting out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The window has too few intervals for a deviation, or too many.
    #[error("window must be 2 to {max}, not {got}")]
    Window {
        /// What was asked for.
        got: usize,
        /// The most that is accepted.
        max: usize,
    },
    /// A phi that is no suspicion, or none that can be reached.
    #[error("threshold must be above 0 and finite, not {0}")]
    Threshold(f64),
    /// Without a deviation every silence is either nothing or certain.
    #[error("min_deviation must be longer than zero")]
    MinDeviation,
    /// Beats that are expected all the time.
    #[error("first_interval must be longer than zero")]
    FirstInterval,
    /// A silence of nothing is no sign of anything.
    #[error("suspect_after must be longer than zero")]
    SuspectAfter,
    /// Nothing dies before it is suspected.
    #[error("dead_after must be at least suspect_after ({suspect_after:?}), not {dead_after:?}")]
    DeadAfter {
        /// After which silence it is suspected.
        suspect_after: Duration,
        /// What was asked for.
        dead_after: Duration,
    },
    /// Nothing dies before it is suspected.
    #[error("dead_at must be at least suspect_at ({suspect_at}) and finite, not {dead_at}")]
    DeadAt {
        /// From which phi on it is suspected.
        suspect_at: f64,
        /// What was asked for.
        dead_at: f64,
    },
    /// A judge that looks all the time.
    #[error("period must be longer than zero")]
    Period,
}

/// The beater was given up: it was silent for too long, and somebody may have taken its place. It stays
/// dead; to be heard again, register anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it was silent for too long and was given up")]
pub struct GivenUp;
