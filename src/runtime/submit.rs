//! A job that is being described.

use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;
use std::sync::Arc;

use super::cell::{self, Body, JobRef, Many, Once};
use super::ctx::JobCtx;
use super::error::SubmitError;
use super::handle::JobHandle;
use super::keys::Serial;
use super::options::{JobKey, Options, Priority};
use super::outcome::IntoOutcome;
use super::shared::Shared;
use super::state::{State, StateCell};
use super::waiting::blocking;
use crate::clock::{Clock, Timestamp};
use crate::retry::RetryPolicy;
use crate::timer::crew;

/// Marks a [`Job`] that may be tried again.
#[derive(Debug)]
pub enum Retried {}

/// Marks a [`Job`] that may be tried again, but not while a late attempt of it is still running.
#[derive(Debug)]
pub enum InTurn {}

/// Marks a [`Job`] that has one attempt.
#[derive(Debug)]
pub enum OneAttempt {}

/// What to do when there is no room.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Say so.
    None,
    /// Wait so long.
    For(Duration),
    /// It has a place already, in a manner of speaking.
    Promised,
}

/// A job and what is to be said about it, not yet handed in. From
/// [`Runtime::job`](super::Runtime::job).
#[must_use = "a job runs once it is submitted"]
pub struct Job<'r, F, Kind> {
    shared: &'r Arc<Shared>,
    closure: F,
    priority: Priority,
    delay: Duration,
    options: Options,
    /// Whether anything was said that needs a place of its own.
    special: bool,
    kind: PhantomData<Kind>,
}

impl<'r, F, Kind> Job<'r, F, Kind> {
    pub(crate) fn new(shared: &'r Arc<Shared>, closure: F) -> Self {
        let options = Options::default();
        Self {
            shared,
            closure,
            priority: Priority::Normal,
            delay: Duration::ZERO,
            options,
            special: false,
            kind: PhantomData,
        }
    }

    /// What the job is called in errors, events and dead letters. Defaults to nothing.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.options.name = Some(name.into());
        self.special = true;
        self
    }

    /// Jobs with equal keys run one after another, in the order in which they were submitted: the
    /// next one begins when the one before has ended, its retries included. Defaults to none.
    ///
    /// A job that waits for another one in line for its own key is refused
    /// ([`JobError::WouldDeadlock`](super::JobError::WouldDeadlock)).
    pub fn key(mut self, key: impl Into<JobKey>) -> Self {
        self.options.serial = Some(Serial::new(key.into()));
        self.special = true;
        self
    }

    /// Which queue it waits in. Defaults to [`Priority::Normal`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// How long it waits before it is queued (or lines up for its key), by the runtime's clock. One
    /// that is longer than the clock's range is for ever: until it is cancelled. Defaults to zero.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// When it is queued (or lines up for its key), by the runtime's clock. A time that has passed is
    /// now; [`Timestamp::NEVER`] is never. Defaults to now.
    pub fn run_at(mut self, at: Timestamp) -> Self {
        self.delay = at.saturating_since(self.shared.clock.now());
        self
    }

    /// How long an attempt may run without a heartbeat; zero counts as one nanosecond. Defaults to
    /// the runtime's.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.options.attempt_timeout = Some(Some(timeout.max(Duration::from_nanos(1))));
        self.special = true;
        self
    }

    /// Lets its attempts run for ever, whatever the runtime's default.
    pub fn without_attempt_timeout(mut self) -> Self {
        self.options.attempt_timeout = Some(None);
        self.special = true;
        self
    }

    pub(crate) fn hand_in<B: Body>(
        self,
        body: impl FnOnce(F) -> B,
        patience: Patience,
    ) -> Result<JobHandle<B::Value>, SubmitError<F>> {
        let Self { shared, closure, priority, delay, mut options, special, .. } = self;
        if shared.closing.has_begun() {
            return Err(SubmitError::Closed(closure));
        }
        let room = match patience {
            Patience::None => shared.room.take(),
            Patience::For(timeout) => shared.wait_for_room(timeout),
            Patience::Promised => {
                shared.room.take_anyway();
                true
            }
        };
        if !room {
            return Err(shared.refusal(closure));
        }
        let options = special.then(|| {
            options.home = shared.weak();
            Box::new(options)
        });
        let keyed = options.as_ref().is_some_and(|o| o.serial.is_some());
        let first = match (delay.is_zero(), keyed) {
            (false, _) => State::Scheduled,
            (true, true) => State::Suspended,
            (true, false) => State::Ready,
        };
        let (job, handle) = JobRef::new(
            body(closure),
            StateCell::new(first),
            shared.address(),
            shared.next_id(),
            priority,
            options,
        );
        if delay.is_zero() {
            shared.take_in(job);
        } else {
            shared.arm(job, 0, shared.after(delay));
        }
        Ok(JobHandle::new(handle))
    }
}

impl<F> Job<'_, F, Retried> {
    /// Whether its closure is kept with its letter, should it die, so that it can be replayed: see
    /// [`DeadLetters`](super::DeadLetters). Defaults to the runtime's.
    pub fn replayable(mut self, replayable: bool) -> Self {
        self.options.replayable = Some(replayable);
        self.special = true;
        self
    }

    /// When and how often it is tried again. Defaults to the runtime's.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = Some(policy);
        self.special = true;
        self
    }

    /// Hands it in.
    ///
    /// # Errors
    /// [`SubmitError`] gives the closure back: the runtime shuts down, or is full.
    pub fn submit<R>(self) -> Result<JobHandle<R::Value>, SubmitError<F>>
    where
        F: Fn(&JobCtx) -> R + Send + Sync + 'static,
        R: IntoOutcome,
        R::Value: Send + 'static,
    {
        self.hand_in(Many, Patience::None)
    }

    /// Hands it in; if the runtime is full, waits for room first.
    ///
    /// # Errors
    /// [`SubmitError`] gives the closure back: the runtime shuts down, or was full for all of `timeout`
    /// (real time).
    ///
    /// # Blocking
    /// For at most `timeout`. Inside a job a stand-in takes this worker's place meanwhile.
    pub fn submit_timeout<R>(self, timeout: Duration) -> Result<JobHandle<R::Value>, SubmitError<F>>
    where
        F: Fn(&JobCtx) -> R + Send + Sync + 'static,
        R: IntoOutcome,
        R::Value: Send + 'static,
    {
        self.hand_in(Many, Patience::For(timeout))
    }
}

impl<F> Job<'_, F, InTurn> {
    /// When and how often it is tried again. Defaults to the runtime's.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = Some(policy);
        self.special = true;
        self
    }

    /// Hands it in.
    ///
    /// # Errors
    /// [`SubmitError`] gives the closure back: the runtime shuts down, or is full.
    pub fn submit<R>(self) -> Result<JobHandle<R::Value>, SubmitError<F>>
    where
        F: FnMut(&JobCtx) -> R + Send + 'static,
        R: IntoOutcome,
        R::Value: Send + 'static,
    {
        self.hand_in(cell::InTurn, Patience::None)
    }

    /// Hands it in; if the runtime is full, waits for room first.
    ///
    /// # Errors
    /// [`SubmitError`] gives the closure back: the runtime shuts down, or was full for all of `timeout`
    /// (real time).
    ///
    /// # Blocking
    /// For at most `timeout`. Inside a job a stand-in takes this worker's place meanwhile.
    pub fn submit_timeout<R>(self, timeout: Duration) -> Result<JobHandle<R::Value>, SubmitError<F>>
    where
        F: FnMut(&JobCtx) -> R + Send + 'static,
        R: IntoOutcome,
        R::Value: Send + 'static,
    {
        self.hand_in(cell::InTurn, Patience::For(timeout))
    }
}

impl<F> Job<'_, F, OneAttempt> {
    /// Hands it in.
    ///
    /// # Errors
    /// [`SubmitError`] gives the closure back: the runtime shuts down, or is full.
    pub fn submit<R>(self) -> Result<JobHandle<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&JobCtx) -> R + Send + 'static,
        R: IntoOutcome,
        R::Value: Send + 'static,
    {
        self.hand_in(|closure| Once(Some(closure)), Patience::None)
    }

    /// Hands it in; if the runtime is full, waits for room first.
    ///
    /// # Errors
    /// [`SubmitError`] gives the closure back: the runtime shuts down, or was full for all of `timeout`
    /// (real time).
    ///
    /// # Blocking
    /// For at most `timeout`. Inside a job a stand-in takes this worker's place meanwhile.
    pub fn submit_timeout<R>(self, timeout: Duration) -> Result<JobHandle<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&JobCtx) -> R + Send + 'static,
        R: IntoOutcome,
        R::Value: Send + 'static,
    {
        self.hand_in(|closure| Once(Some(closure)), Patience::For(timeout))
    }
}

/// Not all of many jobs were taken.
#[derive(thiserror::Error)]
#[error("{} jobs were taken, {} were not: {reason}", .taken.len(), .rest.len())]
pub struct SubmitManyError<F, T> {
    /// The handles of those that were taken.
    pub taken: Vec<JobHandle<T>>,
    /// The others, in their order.
    pub rest: Vec<F>,
    /// Why.
    pub reason: SubmitError<()>,
}

impl<F, T> fmt::Debug for SubmitManyError<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitManyError")
            .field("taken", &self.taken.len())
            .field("rest", &self.rest.len())
            .field("reason", &self.reason)
            .finish()
    }
}

/// Hands in many jobs, and wakes workers once.
#[expect(clippy::type_complexity, reason = "the error gives all of it back")]
pub(crate) fn submit_many<F, R>(
    shared: &Shared,
    jobs: impl IntoIterator<Item = F>,
) -> Result<Vec<JobHandle<R::Value>>, SubmitManyError<F, R::Value>>
where
    F: Fn(&JobCtx) -> R + Send + Sync + 'static,
    R: IntoOutcome,
    R::Value: Send + 'static,
{
    // The iterator is foreign code: it runs before anything is promised to anybody.
    let mut jobs = jobs.into_iter().collect::<Vec<_>>().into_iter();
    let mut taken = Vec::with_capacity(jobs.len());
    let mut entries = Vec::with_capacity(jobs.len());
    let mut reason = None;
    while jobs.len() > 0 {
        if shared.closing.has_begun() {
            reason = Some(SubmitError::Closed(()));
            break;
        }
        if !shared.room.take() {
            reason = Some(SubmitError::Full(()));
            break;
        }
        let Some(closure) = jobs.next() else { break };
        let (job, handle) = JobRef::new(
            Many(closure),
            StateCell::new(State::Ready),
            shared.address(),
            shared.next_id(),
            Priority::Normal,
            None,
        );
        entries.push(job);
        taken.push(JobHandle::new(handle));
    }
    shared.push_all(entries);
    match reason {
        None => Ok(taken),
        Some(reason) => Err(SubmitManyError { taken, rest: jobs.collect(), reason }),
    }
}

impl<F, Kind> fmt::Debug for Job<'_, F, Kind> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("priority", &self.priority)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Waits for a place. Not on the driver's thread, which is who makes some.
    fn wait_for_room(&self, timeout: Duration) -> bool {
        if crew::is_aboard(self) {
            return self.room.take();
        }
        blocking(|| self.room.take_within(timeout, || self.closing.has_begun()))
    }

    fn refusal<F>(&self, job: F) -> SubmitError<F> {
        if self.closing.has_begun() { SubmitError::Closed(job) } else { SubmitError::Full(job) }
    }

    /// A new job: Ready, or Suspended if it has a key.
    pub(crate) fn take_in(&self, job: JobRef) {
        let Some(serial) = job.options.as_ref().and_then(|o| o.serial.as_ref()) else {
            return self.push(job);
        };
        if self.keys.admit(&serial.key, &job) {
            // False: a shutdown was faster.
            if job.state.resume() {
                self.push(job);
            } else {
                self.stale(&job, None);
            }
        } else if self.closing.sees_begun() {
            self.sweep();
        }
    }
}
