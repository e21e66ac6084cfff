//! When to stop waiting.

use core::time::Duration;
use std::time::Instant;

use crate::clock::Timestamp;
#[cfg(not(any(tenure_loom, tenure_shuttle)))]
use crate::clock::{Clock, MonotonicClock};

/// When a blocking call gives up, in real time. [`Deadline::NEVER`]: it does not.
///
/// Any [`Duration`] is fine: a sum that is out of range is `NEVER`, which is as close to it as
/// anybody will live to see. Reading the clock costs 25–40 ns; [`Deadline::NEVER`] reads none.
///
/// ```
/// use std::time::Duration;
/// use tenure::wait::Deadline;
///
/// assert!(Deadline::after(Duration::ZERO).has_passed());
/// assert!(!Deadline::after(Duration::MAX).has_passed());
/// assert_eq!(Deadline::after(Duration::MAX).remaining(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Timestamp);

/// Real time. A model has none: there every deadline but a zero one lies ahead, and the model
/// decides whether a timed wait fires.
fn now() -> Timestamp {
    #[cfg(any(tenure_loom, tenure_shuttle))]
    let now = Timestamp::ORIGIN;
    #[cfg(not(any(tenure_loom, tenure_shuttle)))]
    let now = MonotonicClock::new().now();
    now
}

impl Deadline {
    /// No deadline: wait for as long as it takes.
    pub const NEVER: Self = Self(Timestamp::NEVER);

    /// `timeout` from now.
    #[must_use]
    pub fn after(timeout: Duration) -> Self {
        Self(now().saturating_add(timeout))
    }

    /// At `instant`; at once if that has passed.
    #[must_use]
    pub fn at(instant: Instant) -> Self {
        Self::after(instant.saturating_duration_since(Instant::now()))
    }

    /// Whether this is [`Deadline::NEVER`].
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0.is_never()
    }

    /// How long until then: zero if it has passed, `None` if there is no deadline.
    #[must_use]
    pub fn remaining(self) -> Option<Duration> {
        (!self.is_never()).then(|| self.0.saturating_since(now()))
    }

    /// Whether it is time to give up.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.remaining() == Some(Duration::ZERO)
    }
}

/// How long something has taken so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Timestamp);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(now())
    }

    /// In a model, which has no time: for ever, so that whatever waits for a time has its turn.
    pub(crate) fn elapsed(self) -> Duration {
        if super::IN_A_MODEL { Duration::MAX } else { now().saturating_since(self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_in_the_past_has_passed_and_one_ahead_has_not() {
        let now = Instant::now();
        assert!(Deadline::at(now).has_passed());
        if let Some(ahead) = now.checked_add(Duration::from_secs(3600)) {
            let left = Deadline::at(ahead).remaining().unwrap();
            assert!(left > Duration::from_secs(3500) && left <= Duration::from_secs(3600));
        }
    }

    #[test]
    fn never_is_later_than_all_others_and_reads_no_clock() {
        assert_eq!(Deadline::NEVER.remaining(), None);
        assert!(!Deadline::NEVER.has_passed());
        assert!(Deadline::after(Duration::from_secs(1 << 40)) == Deadline::NEVER);
        assert!(Deadline::after(Duration::from_secs(1)) < Deadline::NEVER);
    }
}
