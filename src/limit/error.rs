//! What the limits refuse with.

use core::time::Duration;

use thiserror::Error;

/// There is no permit now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("the limit is reached")]
#[non_exhaustive]
pub struct Limited {
    /// After this long, time alone may have freed a permit. `None`: time does not; a permit that is
    /// returned or a setting that is changed may, and a [`Listener`](super::Listener) is told of both.
    pub retry_after: Option<Duration>,
}

impl Limited {
    pub(crate) const fn new(retry_after: Option<Duration>) -> Self {
        Self { retry_after }
    }

    /// Time does not help.
    pub(crate) const UNTIL_RETURNED: Self = Self::new(None);
}

/// An option that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A rate of no permits at all.
    #[error("a rate needs at least 1 permit a period")]
    Rate,
    /// A burst of nothing.
    #[error("burst must be at least 1")]
    Burst,
    /// The bounds of an adaptive limit.
    #[error("bounds are {least} to {most}, must be at least 1 and in order")]
    Bounds {
        /// The lower one.
        least: u32,
        /// The upper one.
        most: u32,
    },
    /// By how much an adaptive limit falls.
    #[error("decrease is {0}, must be above 0 and below 1")]
    Decrease(f64),
    /// The most that wait in a shedder's queue.
    #[error("max_depth must be at least 1")]
    MaxDepth,
    /// The most keys.
    #[error("max_keys must be at least 1")]
    MaxKeys,
}
