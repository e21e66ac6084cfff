//! What can go wrong with a job, with handing one in, and with the runtime's settings.

use core::any::Any;
use core::fmt;
use core::time::Duration;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error as ThisError;

use super::cell::contained;
use super::options::{JobId, JobKey};
use super::policy::unique::LiveJob;
use crate::clock::Timestamp;
use crate::lease::{AcquireError, FencingToken};
use crate::retry::Stop;

/// Why a job has no value.
#[derive(Clone, Debug, ThisError)]
#[non_exhaustive]
pub enum JobError {
    /// No further attempt will be made. The letter says what each attempt ran into, and what
    /// stopped the job.
    #[error("{0}")]
    Dead(Arc<DeadLetter>),
    /// Somebody cancelled the job before it had a value.
    #[error("the job was cancelled")]
    Cancelled,
    /// The runtime was shut down before the job had a value.
    #[error("the runtime was shut down before the job had a value")]
    Shutdown,
    /// The result was taken already, by an earlier call on this handle.
    #[error("the result was taken already")]
    Taken,
    /// Waiting here would wait for ever: for the caller itself, in the end.
    #[error("waiting here would wait for the waiter itself")]
    WouldDeadlock,
}

impl JobError {
    /// The dead letter, if that is what it is.
    #[must_use]
    pub fn dead_letter(&self) -> Option<&Arc<DeadLetter>> {
        match self {
            Self::Dead(letter) => Some(letter),
            _ => None,
        }
    }
}

/// What is left of a job that will not be tried again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The job.
    pub id: JobId,
    /// Its name, if it was given one.
    pub name: Option<Arc<str>>,
    /// Its key, if it has one.
    pub key: Option<JobKey>,
    /// Its attempts, the first one first. Of a very long life the first and the last are kept: see
    /// [`omitted`](Self::omitted).
    pub history: Vec<AttemptRecord>,
    /// How many attempts between the first and the last ones are not in `history`.
    pub omitted: u64,
    /// What said that there would be no further attempt.
    pub stop: Stop,
    /// When that was, by the runtime's clock.
    pub died: Timestamp,
    /// The job whose letter this one's job was a replay of.
    pub replay_of: Option<JobId>,
    /// How many replays led here: 0 for a job that was submitted.
    pub replays: u32,
}

impl DeadLetter {
    /// What the last attempt ran into.
    #[must_use]
    pub fn last_error(&self) -> Option<&AttemptError> {
        self.history.last().map(|attempt| &attempt.cause)
    }

    /// How many attempts were made.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.omitted.saturating_add(self.history.len() as u64)
    }
}

impl fmt::Display for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}", self.id)?;
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        write!(f, " is dead after {} attempts: {}", self.attempts(), self.stop)?;
        if let Some(cause) = self.last_error() {
            write!(f, "; last: {cause}")?;
        }
        Ok(())
    }
}

/// One attempt that came to nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// Which, from 1.
    pub number: u32,
    /// The token it held.
    pub token: FencingToken,
    /// When it began, by the runtime's clock.
    pub started: Timestamp,
    /// When it ended, or was taken for lost.
    pub ended: Timestamp,
    /// What it ran into.
    pub cause: AttemptError,
}

/// The error is foreign, and a history is dropped as a whole: of two that panic the second would abort the
/// process.
impl Drop for AttemptRecord {
    fn drop(&mut self) {
        let cause = core::mem::replace(&mut self.cause, AttemptError::UsedUp);
        contained(move || drop(cause));
    }
}

/// What an attempt ran into.
#[derive(Clone, Debug, ThisError)]
#[non_exhaustive]
pub enum AttemptError {
    /// The closure returned this error.
    #[error("{0}")]
    Failed(#[source] Arc<dyn Error + Send + Sync>),
    /// The closure panicked.
    #[error("panicked: {0}")]
    Panicked(JobPanic),
    /// It ran for longer than its timeout and showed no life. It may still be running; what it says
    /// when it comes back is not heard.
    #[error("no end and no heartbeat within {after:?}")]
    TimedOut {
        /// The attempt timeout.
        after: Duration,
    },
    /// It asked for another turn, but a job that runs once has none.
    #[error("a job that runs once cannot snooze")]
    CannotSnooze,
    /// It asked for another turn after so long, which is after the job's deadline.
    #[error("it asked for another turn after the deadline, in {delay:?}")]
    Snoozed {
        /// When, from then.
        delay: Duration,
    },
    /// The lease on the job's key was refused.
    #[error("no lease on the key: {0}")]
    NoLease(#[source] AcquireError),
    /// The job's counters have no room for one more attempt.
    #[error("the job was started too often, or too many of its late attempts are still running")]
    UsedUp,
}

/// What a panic carried. Clones share it.
#[derive(Clone)]
pub struct JobPanic {
    message: Arc<str>,
    // `std`'s lock: an error stays `UnwindSafe`.
    payload: Arc<Mutex<Option<Box<dyn Any + Send>>>>,
}

impl JobPanic {
    pub(crate) fn new(payload: Box<dyn Any + Send>) -> Self {
        let message = payload
            .downcast_ref::<&'static str>()
            .map(|s| Arc::from(*s))
            .or_else(|| payload.downcast_ref::<String>().map(|s| Arc::from(s.as_str())))
            .unwrap_or_else(|| Arc::from("(a payload that is not text)"));
        Self { message, payload: Arc::new(Mutex::new(Some(payload))) }
    }

    /// The panic's message, if it was text.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The payload itself, for [`std::panic::resume_unwind`]. The first of all clones gets it.
    #[must_use]
    pub fn take(&self) -> Option<Box<dyn Any + Send>> {
        self.payload.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for JobPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JobPanic").field(&self.message).finish()
    }
}

impl fmt::Display for JobPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Why a job was not taken. The job comes back.
#[derive(ThisError)]
#[non_exhaustive]
pub enum SubmitError<F> {
    /// The runtime is shutting down, or has shut down.
    #[error("the runtime takes no more jobs")]
    Closed(F),
    /// As many jobs as the runtime's capacity are waiting or running.
    #[error("the runtime holds as many jobs as it may")]
    Full(F),
    /// A load shedder keeps its queue short. It is better not to come back soon.
    #[error("too much waits already")]
    Shed {
        /// The job that was not taken.
        job: F,
        /// How long until it may be worth while to come back, if time helps.
        retry_after: Option<Duration>,
    },
    /// A job with the same unique key is live.
    #[error("job {} has the same unique key, and is not over", .live.id())]
    Duplicate {
        /// The job that was not taken.
        job: F,
        /// The one that has the key.
        live: LiveJob,
    },
}

impl<F> SubmitError<F> {
    /// The job.
    pub fn into_inner(self) -> F {
        match self {
            Self::Closed(job)
            | Self::Full(job)
            | Self::Shed { job, .. }
            | Self::Duplicate { job, .. } => job,
        }
    }

    /// The job that has the unique key, if that is why.
    pub fn live(&self) -> Option<&LiveJob> {
        match self {
            Self::Duplicate { live, .. } => Some(live),
            Self::Closed(_) | Self::Full(_) | Self::Shed { .. } => None,
        }
    }

    pub(crate) fn map<G>(self, f: impl FnOnce(F) -> G) -> SubmitError<G> {
        match self {
            Self::Closed(job) => SubmitError::Closed(f(job)),
            Self::Full(job) => SubmitError::Full(f(job)),
            Self::Shed { job, retry_after } => SubmitError::Shed { job: f(job), retry_after },
            Self::Duplicate { job, live } => SubmitError::Duplicate { job: f(job), live },
        }
    }
}

impl<F> fmt::Debug for SubmitError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed(_) => "Closed(..)",
            Self::Full(_) => "Full(..)",
            Self::Shed { .. } => "Shed { .. }",
            Self::Duplicate { .. } => "Duplicate { .. }",
        })
    }
}

/// Why a dead letter was not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum ReplayError {
    /// There is no letter of this job: it was replayed, purged, taken, pushed out by newer ones, or
    /// never there.
    #[error("there is no letter of this job")]
    NoSuchLetter,
    /// The letter has no closure that could be called.
    #[error("the job cannot be replayed: {0}")]
    NotKept(#[source] Unkept),
    /// The job makes values of another type.
    #[error("the job makes values of another type")]
    OtherValue,
    /// The runtime is shutting down, or has shut down.
    #[error("the runtime takes no more jobs")]
    Closed,
    /// As many jobs as the runtime's capacity are waiting or running. Try again later.
    #[error("the runtime holds as many jobs as it may")]
    Full,
    /// This job has the same unique key, and is not over.
    #[error("job {0} has the same unique key, and is not over")]
    Duplicate(JobId),
}

/// Why a letter has no closure that could be called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Unkept {
    /// Nobody asked that it be kept: [`Builder::replayable`](super::Builder::replayable).
    #[error("its closure was not to be kept")]
    NotAsked,
    /// It is one that can be called once, and was.
    #[error("its closure can be called once only")]
    OneAttempt,
    /// It may change what it has captured, so it is not what it was when the job began.
    #[error("its attempts change what they have captured")]
    InTurn,
    /// It is a future, which was polled to its end, or dropped.
    #[error("it is a future")]
    Task,
    /// Too many late attempts are still inside.
    #[error("too many of its late attempts are still running")]
    LateAttempts,
    /// The runtime has ended, and dropped it.
    #[error("the runtime has ended")]
    Ended,
}

/// The attempt is no longer the current one: it ran out of time, and its job was given to another
/// attempt or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[error("attempt {attempt} is no longer the current one")]
pub struct Fenced {
    /// The attempt, from 1.
    pub attempt: u32,
}

/// The runtime was built without a capacity, and so does not count the jobs that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[error("the runtime was built without a capacity and does not count what it holds")]
pub struct NotCounted;

/// A setting that the runtime cannot work with, or a thread that the system refused.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum ConfigError {
    /// `workers` is 0 or above the limit.
    #[error("workers must be 1 to {max}, not {got}")]
    Workers {
        /// What was asked for.
        got: usize,
        /// The most that is accepted.
        max: usize,
    },
    /// An attempt timeout of zero would rescue every attempt at once.
    #[error("attempt_timeout must be longer than zero")]
    AttemptTimeout,
    /// A capacity of zero takes no job.
    #[error("capacity must be at least 1")]
    Capacity,
    /// The system gave no thread.
    #[error("a thread could not be started")]
    Thread(#[source] std::io::Error),
}
