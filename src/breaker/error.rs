//! What a breaker refuses with.

use core::time::Duration;

use thiserror::Error;

use super::word::State;

/// The breaker lets nothing through now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("the circuit breaker is {state}")]
#[non_exhaustive]
pub struct Open {
    /// After this long it is worth asking again: the time of the opening is over, or that of probes
    /// which do not come back. `None`: time does not help.
    pub retry_after: Option<Duration>,
    /// [`State::Open`]; [`State::HalfOpen`], while as many probes as may are under way;
    /// [`State::ForcedOpen`].
    pub state: State,
}

/// Why a call did not give its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CallError<E> {
    /// It was not made.
    #[error(transparent)]
    Rejected(#[from] Open),
    /// It was made, and gave this error.
    #[error("{0}")]
    Failed(#[source] E),
}

impl<E> CallError<E> {
    /// The call's own error, if it was made.
    pub fn into_failed(self) -> Option<E> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Rejected(_) => None,
        }
    }

    /// Whether the call was not made.
    pub const fn is_rejected(&self) -> bool {
        matches!(self, Self::Rejected(_))
    }
}

/// An option that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The failure rate.
    #[error("failure_rate is {0}, must be above 0 and at most 1")]
    FailureRate(f64),
    /// The rate of slow calls.
    #[error("slow rate is {0}, must be above 0 and at most 1")]
    SlowRate(f64),
    /// The length of a count window.
    #[error("a window of {0} calls, must be 1 to 65536")]
    Window(u32),
    /// The calls before anything is judged.
    #[error("min_calls must be at least 1, and at most the length of a window by count")]
    MinCalls(u32),
    /// The probes.
    #[error("probes is {0}, must be 1 to 65535")]
    Probes(u32),
    /// By what the time of an opening grows.
    #[error("open_growth is {0}, must be 1 to 1000")]
    OpenGrowth(f64),
    /// The most that it grows to.
    #[error("open_growth goes up to {most:?}, must be at least open_for, {open_for:?}")]
    OpenMost {
        /// The most.
        most: Duration,
        /// The first.
        open_for: Duration,
    },
}
