//! The policy: a curve, a cap, a jitter and the limits; validated once, then only read.

use core::num::NonZeroU32;
use core::time::Duration;

use thiserror::Error;

use super::backoff::{Curve, Factor, Jitter};
use crate::clock::nanos_saturating;

/// When to try again, and when not. Small, `Copy`, and pure: share it, store it, replace it.
///
/// Made by [`exponential`](Self::exponential), [`linear`](Self::linear), [`fixed`](Self::fixed) or
/// [`immediate`](Self::immediate) and [`build`](RetryPolicyBuilder::build), or as
/// [`RetryPolicy::default`]:
///
/// | option | default | range |
/// |---|---|---|
/// | curve | exponential, from 100 ms | any base; zero retries at once |
/// | [`factor`](RetryPolicyBuilder::factor) | 2.0 | 1.0 to 1000.0 |
/// | [`max_delay`](RetryPolicyBuilder::max_delay) | 30 s | any; at least the base |
/// | [`jitter`](RetryPolicyBuilder::jitter) | [`Jitter::Full`] | |
/// | [`max_attempts`](RetryPolicyBuilder::max_attempts) | 5, the first one included | 1 to `u32::MAX` |
/// | [`max_elapsed`](RetryPolicyBuilder::max_elapsed) | none | any |
///
/// Delays of more than `u64::MAX` nanoseconds (584 years) are that long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    curve: Curve,
    base: u64,
    cap: u64,
    jitter: Jitter,
    /// `None`: no limit.
    max_attempts: Option<NonZeroU32>,
    /// `None`: no limit.
    max_elapsed: Option<Duration>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            curve: Curve::Doubling(1),
            base: 100_000_000,
            cap: 30_000_000_000,
            jitter: Jitter::Full,
            max_attempts: NonZeroU32::new(5),
            max_elapsed: None,
        }
    }
}

impl RetryPolicy {
    /// A policy whose delays grow by a factor: `base`, `base · f`, `base · f²`, …
    ///
    /// The other options start at their defaults; a `base` above the default cap raises the cap.
    pub fn exponential(base: Duration) -> RetryPolicyBuilder {
        RetryPolicyBuilder::new(Shape::Exponential, base)
    }

    /// A policy whose delays grow by their base: `base`, `2 · base`, `3 · base`, …
    pub fn linear(base: Duration) -> RetryPolicyBuilder {
        RetryPolicyBuilder::new(Shape::Linear, base)
    }

    /// A policy that always waits the same time, before the jitter.
    pub fn fixed(delay: Duration) -> RetryPolicyBuilder {
        RetryPolicyBuilder::new(Shape::Fixed, delay)
    }

    /// A policy that never waits.
    pub fn immediate() -> RetryPolicyBuilder {
        Self::fixed(Duration::ZERO).jitter(Jitter::None)
    }

    /// The policy that gives up at the first failure.
    #[must_use]
    pub fn never() -> Self {
        Self { max_attempts: Some(NonZeroU32::MIN), ..Self::default() }
    }

    /// The delay after attempt number `attempt` failed (the first is 1; 0 counts as 1).
    ///
    /// `previous` is the delay before that attempt ([`Duration::ZERO`] for the first); only
    /// [`Jitter::Decorrelated`] looks at it. The limits play no part here: see [`next`](Self::next).
    #[inline]
    #[must_use]
    pub fn delay(&self, attempt: u32, previous: Duration, rng: &mut fastrand::Rng) -> Duration {
        let delay = self.curve.at(self.base, attempt.saturating_sub(1), self.cap);
        let previous = nanos_saturating(previous);
        Duration::from_nanos(self.jitter.apply(delay, self.base, self.cap, previous, rng))
    }

    /// What to do after attempt number `attempt` failed, `elapsed` after the first one began.
    ///
    /// `previous` is as in [`delay`](Self::delay).
    #[inline]
    pub fn next(
        &self,
        attempt: u32,
        previous: Duration,
        elapsed: Duration,
        rng: &mut fastrand::Rng,
    ) -> Decision {
        if self.is_last(attempt) {
            return Decision::GiveUp(Stop::MaxAttempts);
        }
        self.admit(attempt, elapsed, self.delay(attempt, previous, rng))
    }

    /// Like [`next`](Self::next) for a delay that came from elsewhere: a `Retry-After` header, a
    /// job that names its own. The delay is taken as it is, the cap does not apply; the limits do.
    pub fn admit(&self, attempt: u32, elapsed: Duration, delay: Duration) -> Decision {
        if self.is_last(attempt) {
            return Decision::GiveUp(Stop::MaxAttempts);
        }
        match self.max_elapsed {
            Some(limit) if elapsed.saturating_add(delay) > limit => {
                Decision::GiveUp(Stop::MaxElapsed)
            }
            _ => Decision::Retry(delay),
        }
    }

    #[inline]
    fn is_last(&self, attempt: u32) -> bool {
        self.max_attempts.is_some_and(|most| attempt >= most.get())
    }

    /// The delays between attempts, one after another: at most `max_attempts − 1` of them.
    ///
    /// The same seed gives the same delays. With [`max_elapsed`](RetryPolicyBuilder::max_elapsed)
    /// the iterator counts the delays it gave, as if attempts took no time.
    #[must_use]
    pub fn delays(&self, seed: u64) -> Delays {
        let limit = self.max_elapsed.map_or(u64::MAX, nanos_saturating);
        Delays {
            curve: self.curve,
            base: self.base,
            cap: self.cap,
            jitter: self.jitter,
            given: 0,
            most: self.max_attempts.map_or(Delays::NO_LIMIT, |most| most.get() - 1),
            previous: 0,
            left: limit,
            spent: if limit == u64::MAX { 0 } else { u64::MAX },
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// The most attempts, the first included; `None` without limit.
    #[must_use]
    pub fn max_attempts(&self) -> Option<u32> {
        self.max_attempts.map(NonZeroU32::get)
    }

    /// No retry starts later than this after the first attempt began; `None` without limit.
    #[must_use]
    pub fn max_elapsed(&self) -> Option<Duration> {
        self.max_elapsed
    }

    /// The longest delay that [`delay`](Self::delay) gives.
    #[must_use]
    pub fn max_delay(&self) -> Duration {
        Duration::from_nanos(self.cap)
    }

    /// How delays are spread.
    #[must_use]
    pub fn jitter(&self) -> Jitter {
        self.jitter
    }
}

/// The answer of a policy: once more, or no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// Try again after this long.
    Retry(Duration),
    /// Do not try again, for this reason.
    GiveUp(Stop),
}

/// Who said that there will be no further attempt. The first to say so is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum Stop {
    /// The policy's [`max_attempts`](RetryPolicyBuilder::max_attempts) were made.
    #[error("all attempts were made")]
    MaxAttempts,
    /// The next attempt would start after the policy's
    /// [`max_elapsed`](RetryPolicyBuilder::max_elapsed).
    #[error("the time for retries was up")]
    MaxElapsed,
    /// The next attempt would start after the caller's own deadline.
    #[error("the deadline would have passed")]
    Deadline,
    /// The error is not one that a retry can help.
    #[error("the error is not worth a retry")]
    NotRetryable,
    /// The retry budget that the caller shares with others was empty.
    #[error("the retry budget was empty")]
    Budget,
    /// A circuit breaker was open.
    #[error("the circuit breaker was open")]
    Breaker,
    /// Somebody cancelled.
    #[error("it was cancelled")]
    Cancelled,
}

/// The delays of a policy. See [`RetryPolicy::delays`].
#[derive(Clone, Debug)]
pub struct Delays {
    curve: Curve,
    base: u64,
    cap: u64,
    jitter: Jitter,
    /// How many were given; stays below `NO_LIMIT`.
    given: u32,
    most: u32,
    previous: u64,
    /// How much of `max_elapsed` is left.
    left: u64,
    /// Which bits of a delay are taken from `left`: all, or none where there is no limit.
    spent: u64,
    rng: fastrand::Rng,
}

impl Delays {
    /// A `most` that is never reached.
    const NO_LIMIT: u32 = u32::MAX;
}

impl Iterator for Delays {
    type Item = Duration;

    #[inline]
    fn next(&mut self) -> Option<Duration> {
        if self.given == self.most {
            return None;
        }
        let delay = self.curve.at(self.base, self.given, self.cap);
        let delay = self.jitter.apply(delay, self.base, self.cap, self.previous, &mut self.rng);
        // Where there is no limit all is left, for ever.
        self.left = self.left.checked_sub(delay & self.spent)?;
        self.given = (self.given + 1).min(Self::NO_LIMIT - 1);
        self.previous = delay;
        Some(Duration::from_nanos(delay))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Fixed,
    Linear,
    Exponential,
}

/// Collects a policy's options; [`build`](Self::build) checks them.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct RetryPolicyBuilder {
    shape: Shape,
    base: Duration,
    factor: Option<f64>,
    max_delay: Option<Duration>,
    jitter: Jitter,
    max_attempts: Option<u32>,
    max_elapsed: Option<Duration>,
}

impl RetryPolicyBuilder {
    fn new(shape: Shape, base: Duration) -> Self {
        let default = RetryPolicy::default();
        Self {
            shape,
            base,
            factor: None,
            max_delay: None,
            jitter: default.jitter,
            max_attempts: default.max_attempts(),
            max_elapsed: default.max_elapsed,
        }
    }

    /// By how much an exponential delay grows with each attempt: 1.0 to 1000.0, rounded to the
    /// nearest multiple of 2⁻²⁰. Defaults to 2.0.
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = Some(factor);
        self
    }

    /// The longest delay, jitter included. At least the base. Defaults to 30 s, or to the base if
    /// that is longer.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = Some(delay);
        self
    }

    /// Lets delays grow without a cap (up to 584 years).
    pub fn without_max_delay(self) -> Self {
        self.max_delay(Duration::MAX)
    }

    /// How delays are spread. Defaults to [`Jitter::Full`].
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The most attempts, the first one included: 1 means no retry. Defaults to 5.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Sets no limit on the number of attempts.
    pub fn without_max_attempts(mut self) -> Self {
        self.max_attempts = None;
        self
    }

    /// No retry starts later than this after the first attempt began: when the delay would end
    /// after it, the policy gives up at once instead of waiting in vain. An attempt that runs is
    /// not interrupted. Defaults to no limit.
    pub fn max_elapsed(mut self, elapsed: Duration) -> Self {
        self.max_elapsed = Some(elapsed);
        self
    }

    /// The policy.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the first option that is out of its range.
    pub fn build(self) -> Result<RetryPolicy, ConfigError> {
        let curve = match (self.shape, self.factor) {
            (Shape::Fixed, None) => Curve::Fixed,
            (Shape::Linear, None) => Curve::Linear,
            (Shape::Exponential, None) => RetryPolicy::default().curve,
            (Shape::Exponential, Some(factor)) => match Factor::new(factor) {
                Some(factor) => factor.curve(),
                None => return Err(ConfigError::Factor(factor)),
            },
            (Shape::Fixed | Shape::Linear, Some(_)) => return Err(ConfigError::FactorUnused),
        };
        let base = nanos_saturating(self.base);
        let cap = match self.max_delay {
            None => RetryPolicy::default().cap.max(base),
            Some(cap) if cap < self.base => {
                return Err(ConfigError::MaxDelay { max_delay: cap, base: self.base });
            }
            Some(cap) => nanos_saturating(cap),
        };
        let max_attempts = match self.max_attempts {
            None => None,
            Some(attempts) => match NonZeroU32::new(attempts) {
                Some(attempts) => Some(attempts),
                None => return Err(ConfigError::MaxAttempts),
            },
        };
        let max_elapsed = self.max_elapsed;
        Ok(RetryPolicy { curve, base, cap, jitter: self.jitter, max_attempts, max_elapsed })
    }
}

/// An option that is out of its range. Nothing was built.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// [`factor`](RetryPolicyBuilder::factor) is not a number from 1.0 to 1000.0.
    #[error("factor is {0}, must be from 1.0 to 1000.0")]
    Factor(f64),
    /// [`factor`](RetryPolicyBuilder::factor) was set for a curve that has none.
    #[error("factor only applies to an exponential policy")]
    FactorUnused,
    /// [`max_delay`](RetryPolicyBuilder::max_delay) is less than the base.
    #[error("max_delay is {max_delay:?}, must be at least the base, {base:?}")]
    MaxDelay {
        /// The cap that was asked for.
        max_delay: Duration,
        /// The delay after the first failure.
        base: Duration,
    },
    /// [`max_attempts`](RetryPolicyBuilder::max_attempts) is zero.
    #[error("max_attempts is 0, must be at least 1")]
    MaxAttempts,
    /// A budget's [`ratio`](super::RetryBudgetBuilder::ratio) is not a number from 0.0 to 1000.0.
    #[error("ratio is {0}, must be from 0.0 to 1000.0")]
    Ratio(f64),
    /// A budget's [`per_second`](super::RetryBudgetBuilder::per_second) is too large.
    #[error("per_second is {0}, must be at most 1000000")]
    PerSecond(u32),
    /// A budget's [`burst`](super::RetryBudgetBuilder::burst) is zero.
    #[error("burst is 0, must be at least 1")]
    Burst,
}
