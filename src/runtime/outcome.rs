//! What a job's closure may return.

use core::time::Duration;

use super::BoxError;
use super::policy::Verdict;

/// How an attempt ended, in the job's own words.
///
/// A closure may also return a plain `Result<T, E>`: `Ok` is [`Done`](Self::Done), `Err` is
/// [`Retry`](Self::Retry).
///
/// ```
/// use std::time::Duration;
/// use tenure::runtime::{JobCtx, Outcome};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = tenure::Runtime::builder().workers(1).build()?;
/// let answers = [503, 429, 404];
/// let job = runtime.submit(move |ctx: &JobCtx| match answers[ctx.attempt() as usize - 1] {
///     200 => Outcome::Done("taken"),
///     429 => Outcome::retry_after("asked to wait", Duration::from_millis(1)),
///     404 => Outcome::fail("not there"),
///     _ => Outcome::retry("unwell"),
/// })?;
/// let letter = job.get().unwrap_err().dead_letter().cloned().ok_or("not dead")?;
/// assert_eq!((letter.attempts(), letter.stop), (3, tenure::retry::Stop::NotRetryable));
/// # Ok(())
/// # }
/// ```
///
/// What an error says to the job's breaker is another question:
/// [`Job::judged_by`](super::Job::judged_by).
#[derive(Debug)]
pub enum Outcome<T> {
    /// The value; the job has succeeded.
    Done(T),
    /// An error; try again as the retry policy says.
    Retry(BoxError),
    /// An error; try again after this delay (the policy still limits the attempts).
    RetryAfter(BoxError, Duration),
    /// An error that no further attempt can mend; the job is dead.
    Fail(BoxError),
    /// Not now: another turn after this delay, which uses no attempt. A job that runs once cannot
    /// snooze: it is dead.
    Snooze(Duration),
    /// End as if somebody had cancelled the job.
    Cancel,
}

impl<T> Outcome<T> {
    /// [`Outcome::Fail`] with anything that makes an error.
    pub fn fail(error: impl Into<BoxError>) -> Self {
        Self::Fail(error.into())
    }

    /// [`Outcome::Retry`] with anything that makes an error.
    pub fn retry(error: impl Into<BoxError>) -> Self {
        Self::Retry(error.into())
    }

    /// [`Outcome::RetryAfter`] with anything that makes an error.
    pub fn retry_after(error: impl Into<BoxError>, delay: Duration) -> Self {
        Self::RetryAfter(error.into(), delay)
    }

    /// Its error, if it has one.
    pub(crate) fn error(&self) -> Option<&BoxError> {
        match self {
            Self::Retry(error) | Self::RetryAfter(error, _) | Self::Fail(error) => Some(error),
            Self::Done(_) | Self::Snooze(_) | Self::Cancel => None,
        }
    }

    /// What it says about that which the job was to reach, unless the job says otherwise.
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::Done(_) => Verdict::Success,
            Self::Retry(_) | Self::RetryAfter(..) | Self::Fail(_) => Verdict::Failure,
            Self::Snooze(_) | Self::Cancel => Verdict::Ignored,
        }
    }
}

/// What a job's closure may return: `Result<T, E>` or [`Outcome<T>`].
pub trait IntoOutcome {
    /// The job's value.
    type Value;
    /// Says it as an [`Outcome`].
    fn into_outcome(self) -> Outcome<Self::Value>;
}

impl<T> IntoOutcome for Outcome<T> {
    type Value = T;

    fn into_outcome(self) -> Self {
        self
    }
}

impl<T, E: Into<BoxError>> IntoOutcome for Result<T, E> {
    type Value = T;

    fn into_outcome(self) -> Outcome<T> {
        match self {
            Ok(value) => Outcome::Done(value),
            Err(error) => Outcome::Retry(error.into()),
        }
    }
}
