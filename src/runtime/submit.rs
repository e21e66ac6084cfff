//! A job that is being described.

use core::error::Error;
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;
use std::sync::{Arc, Weak};

use super::cell::{self, Body, JobRef, Many, Once};
use super::ctx::JobCtx;
use super::error::SubmitError;
use super::handle::JobHandle;
use super::keys::Serial;
use super::options::{Hedge, JobKey, Options, Priority};
use super::outcome::IntoOutcome;
use super::policy::line::Host;
use super::policy::{Gate, Gates, Judge, Queued, Stage, adapters};
use super::shared::Shared;
use super::state::{State, StateCell};
use super::waiting::blocking;
use crate::breaker::{CircuitBreaker, Verdict};
use crate::clock::{Clock, Timestamp};
use crate::limit::{
    AdaptiveLimit, ConcurrencyLimit, Importance, KeyedConcurrency, KeyedRateLimit, LoadShedder,
    RateLimit,
};
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
    /// What was said about it.
    options: Option<Box<Options>>,
    shedder: Option<(LoadShedder, Importance)>,
    kind: PhantomData<Kind>,
}

impl<'r, F, Kind> Job<'r, F, Kind> {
    pub(crate) fn new(shared: &'r Arc<Shared>, closure: F) -> Self {
        Self {
            shared,
            closure,
            priority: Priority::Normal,
            delay: Duration::ZERO,
            options: None,
            shedder: None,
            kind: PhantomData,
        }
    }

    fn say(&mut self) -> &mut Options {
        self.options.get_or_insert_default()
    }

    /// What the job is called in errors, events and dead letters. Defaults to nothing.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.say().name = Some(name.into());
        self
    }

    /// Jobs with equal keys run one after another, in the order in which they were submitted: the
    /// next one begins when the one before has ended, its retries included. Defaults to none.
    ///
    /// A job that waits for another one in line for its own key is refused
    /// ([`JobError::WouldDeadlock`](super::JobError::WouldDeadlock)).
    pub fn key(mut self, key: impl Into<JobKey>) -> Self {
        self.say().serial = Some(Serial::new(key.into()));
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
        self.say().attempt_timeout = Some(Some(timeout.max(Duration::from_nanos(1))));
        self
    }

    /// Lets its attempts run for ever, whatever the runtime's default.
    pub fn without_attempt_timeout(mut self) -> Self {
        self.say().attempt_timeout = Some(None);
        self
    }

    /// When the job's time is up, from the submit on, by the runtime's clock. If no attempt runs then, it is
    /// dead there and then, wherever it waits; if one runs, that may finish, and there is no other. In the
    /// dead letter this is [`Stop::Deadline`](crate::retry::Stop::Deadline). Zero is dead at once; one that is
    /// longer than the clock's range is none. Defaults to none.
    ///
    /// To bound the attempt that runs, give it an [`attempt_timeout`](Self::attempt_timeout), or have it ask
    /// [`JobCtx::deadline`].
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.say().time = Some(deadline);
        self
    }

    /// Of all live jobs with this unique key there is one: while it is not over, the submit of another one
    /// gives that back as [`SubmitError::Duplicate`], with the id of the live one. Unique keys have nothing
    /// to do with the serial ones of [`key`](Self::key). Defaults to none.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// let runtime = tenure::Runtime::builder().workers(1).build()?;
    /// let tidy = |_: &tenure::JobCtx| Ok::<_, String>(());
    /// let first = runtime.job(tidy).unique("tidy up").delay(Duration::MAX).submit()?;
    /// let second = runtime.job(tidy).unique("tidy up").submit();
    /// assert_eq!(second.unwrap_err().live().map(|live| live.id()), Some(first.id()));
    /// first.cancel();
    /// runtime.job(tidy).unique("tidy up").submit()?.get()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn unique(mut self, key: impl Into<JobKey>) -> Self {
        self.say().unique = Some(key.into());
        self
    }

    /// So many attempts in a time: see [`RateLimit`]. One that is refused waits, Suspended, and uses no
    /// attempt. Several limits may be given; each job passes rate limits first, then concurrency limits, then
    /// breakers, whatever was said first. Defaults to none.
    pub fn rate_limit(self, limit: &RateLimit) -> Self {
        self.gate(Stage::Rate, Arc::new(limit.clone()))
    }

    /// The same for each key. Defaults to none.
    pub fn rate_limit_per_key(
        self,
        limit: &KeyedRateLimit<JobKey>,
        key: impl Into<JobKey>,
    ) -> Self {
        self.gate(Stage::Rate, Arc::new(adapters::OfKey::new(limit, key.into())))
    }

    /// So many attempts at once, of this job and of whatever else stands behind the same limit: see
    /// [`ConcurrencyLimit`]. One that is refused waits, Suspended, in the order of refusals, and uses no
    /// attempt. An attempt that is given up gives its permit back then, though it may still run. Defaults to
    /// none.
    ///
    /// An attempt that waits for a job behind the same limit waits with its permit in hand: if all who have
    /// one do, they wait for ever.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tenure::limit::ConcurrencyLimit;
    /// let runtime = tenure::Runtime::builder().workers(4).build()?;
    /// let two = ConcurrencyLimit::new(2);
    /// let jobs = (0..10).map(|n| {
    ///     let limit = two.clone();
    ///     let job = move |_: &tenure::JobCtx| Ok::<_, String>((n, limit.in_use() <= 2));
    ///     runtime.job(job).concurrency(&two).submit()
    /// });
    /// let jobs: Vec<_> = jobs.collect::<Result<_, _>>()?;
    /// for job in jobs {
    ///     assert!(job.get()?.1);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn concurrency(self, limit: &ConcurrencyLimit) -> Self {
        self.gate(Stage::Concurrency, Arc::new(limit.clone()))
    }

    /// The same for each key. Defaults to none.
    pub fn concurrency_per_key(
        self,
        limit: &KeyedConcurrency<JobKey>,
        key: impl Into<JobKey>,
    ) -> Self {
        self.gate(Stage::Concurrency, Arc::new(adapters::OfKey::new(limit, key.into())))
    }

    /// As many attempts at once as go well: see [`AdaptiveLimit`]. An attempt with a value is a success, with
    /// the time since it was let through as its signal; one that was given up for its time is overload; other
    /// errors say nothing. Defaults to none.
    pub fn adaptive_concurrency(self, limit: &AdaptiveLimit) -> Self {
        self.gate(Stage::Concurrency, Arc::new(limit.clone()))
    }

    /// Attempts only while the breaker lets them through: see [`CircuitBreaker`]. Behind one that is open the
    /// job waits, Suspended, and uses no attempt; the breaker's probes are jobs that wait, the first ones
    /// first. An attempt with a value is a success; an error is a failure, unless
    /// [`judged_by`](Self::judged_by) says otherwise; so is a panic and a time-out; one that was cancelled or
    /// snoozed says nothing. Defaults to none.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tenure::breaker::{CircuitBreaker, State};
    /// let runtime = tenure::Runtime::builder().workers(1).build()?;
    /// let breaker = CircuitBreaker::builder().build()?;
    /// breaker.force_open();
    /// let job = runtime.job(|ctx| Ok::<_, String>(ctx.attempt())).breaker(&breaker).submit()?;
    /// breaker.reset();
    /// assert_eq!(job.get()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn breaker(self, breaker: &CircuitBreaker) -> Self {
        self.gate(Stage::Breaker, Arc::new(breaker.clone()))
    }

    /// What an attempt's error says about those it called, to the job's breakers: all of them, whether they
    /// are named before or after. Like the `judge` of [`CircuitBreaker::call_judged`], it keeps apart "no
    /// answer" and "answered: no". [`Verdict::Ignore`] says nothing, and a probe with it is made again;
    /// [`Verdict::Success`] says that they are well. (An [adaptive limit](Self::adaptive_concurrency) takes
    /// a success for a sample, too.) Whether the job is tried again does not depend on it: that is the
    /// [`Outcome`](super::Outcome)'s.
    ///
    /// Runs on the worker, after the closure, as part of the attempt and its time: keep it short. It is asked
    /// about errors only: not about values, panics, time-outs, nor once the job is to be cancelled. (About that of
    /// an attempt that was given up, too, which then is a failure already.) A panic in it counts as a failure and
    /// goes no further. Defaults to every error being a [`Verdict::Failure`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tenure::breaker::{CircuitBreaker, State, Verdict, Window};
    /// use tenure::runtime::Outcome;
    ///
    /// #[derive(Debug, thiserror::Error)]
    /// #[error("status {0}")]
    /// struct Status(u16);
    ///
    /// let runtime = tenure::Runtime::builder().workers(1).build()?;
    /// let host = CircuitBreaker::builder().window(Window::Count(1)).build()?;
    /// let post = |status| {
    ///     let job = runtime.job(move |_| Outcome::<()>::fail(Status(status)));
    ///     job.breaker(&host).judged_by(|error| match error.downcast_ref() {
    ///         Some(Status(400..500)) => Verdict::Success, // It is up, and does not want this one.
    ///         _ => Verdict::Failure,
    ///     })
    /// };
    /// assert!(post(404).submit()?.get().is_err());
    /// assert_eq!(host.state(), State::Closed);
    /// assert!(post(503).submit()?.get().is_err());
    /// assert_eq!(host.state(), State::Open);
    /// # Ok(())
    /// # }
    /// ```
    pub fn judged_by(
        mut self,
        judge: impl Fn(&(dyn Error + Send + Sync + 'static)) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        self.say().judge = Some(Judge::new(judge));
        self
    }

    /// Has a [`LoadShedder`] refuse the job at the submit, if too much waits or waits too long:
    /// [`SubmitError::Shed`]. The job has a place in the shedder's queue from the submit until its first
    /// attempt is about to begin (a [`delay`](Self::delay) included), or until it is over. Defaults to none.
    pub fn shed_by(mut self, shedder: &LoadShedder, importance: Importance) -> Self {
        self.shedder = Some((shedder.clone(), importance));
        self
    }

    /// One more gate before each attempt.
    pub(crate) fn gate(mut self, stage: Stage, gate: Arc<dyn Gate>) -> Self {
        let home: Weak<Shared> = self.shared.weak();
        let line = self.shared.lines.before(gate, home as Weak<dyn Host>);
        self.say().gates.get_or_insert_with(|| Box::new(Gates::new())).add(stage, line);
        self
    }

    pub(crate) fn hand_in<B: Body>(
        self,
        body: impl FnOnce(F) -> B,
        patience: Patience,
    ) -> Result<JobHandle<B::Value>, SubmitError<F>> {
        let Self { shared, closure, priority, delay, mut options, shedder, .. } = self;
        if shared.closing.has_begun() {
            return Err(SubmitError::Closed(closure));
        }
        if let Some((shedder, importance)) = shedder {
            match shedder.try_acquire(importance) {
                Ok(place) => options.get_or_insert_default().place = Some(Queued::new(place)),
                Err(limited) => {
                    let retry_after = limited.retry_after;
                    return Err(SubmitError::Shed { job: closure, retry_after });
                }
            }
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
        let options = Options::complete(options, shared);
        let keyed = options.as_ref().is_some_and(|o| o.serial.is_some());
        let first = match (delay.is_zero(), keyed) {
            (false, _) => State::Scheduled,
            (true, true) => State::Suspended,
            (true, false) => State::Ready,
        };
        let (job, handle) = match options.as_ref().and_then(|o| o.unique.clone()) {
            None => {
                let word = StateCell::new(first);
                let (home, id) = (shared.address(), shared.next_id());
                JobRef::new(body(closure), word, home, id, priority, options)
            }
            Some(key) => {
                let mut given = Some((closure, options));
                let made = shared.uniques.admit(&key, || {
                    let Some((closure, options)) = given.take() else { unreachable!("made once") };
                    let word = StateCell::new(first);
                    let (home, id) = (shared.address(), shared.next_id());
                    JobRef::new(body(closure), word, home, id, priority, options)
                });
                match (made, given) {
                    (Ok(made), _) => made,
                    (Err(live), Some((job, options))) => {
                        shared.room.give_back();
                        drop(options);
                        return Err(SubmitError::Duplicate { job, live });
                    }
                    (Err(_), None) => unreachable!("what was not made is still here"),
                }
            }
        };
        let watched = Shared::deadline_of(&job).map(|at| (job.clone(), at));
        if delay.is_zero() {
            shared.take_in(job);
        } else {
            shared.arm(job, 0, shared.after(delay));
        }
        if let Some((job, at)) = watched {
            shared.watch_deadline(job, at);
        }
        Ok(JobHandle::new(handle))
    }
}

impl<F> Job<'_, F, Retried> {
    /// Whether its closure is kept with its letter, should it die, so that it can be replayed: see
    /// [`DeadLetters`](super::DeadLetters). Defaults to the runtime's.
    pub fn replayable(mut self, replayable: bool) -> Self {
        self.say().replayable = Some(replayable);
        self
    }

    /// When and how often it is tried again. Defaults to the runtime's.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.say().retry = Some(policy);
        self
    }

    /// Says that the job is *idempotent* (its effects may happen twice, at the same time), and that an
    /// attempt that takes so long gets a second one beside it, once. The first to have a value wins; the
    /// other one is fenced, and can see that ([`JobCtx::is_cancelled`]). The first to fail leaves it to
    /// the other, unless it says [`Outcome::Fail`](super::Outcome::Fail) or
    /// [`Outcome::Cancel`](super::Outcome::Cancel). Both count as one attempt, have one token, and are given
    /// up together when the first one is out of time. Zero is at once; one that is longer than the clock's
    /// range is never. Defaults to never.
    ///
    /// The second one needs permits from the job's gates like the first one; if one refuses, there is none.
    pub fn hedge_after(mut self, delay: Duration) -> Self {
        self.say().hedge = Some(Hedge::new(delay));
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
        self.say().retry = Some(policy);
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

/// Hands in a job of which nothing is to be said: what [`Job::submit`] does, without a [`Job`].
#[inline]
pub(crate) fn submit_plain<F, B: Body>(
    shared: &Shared,
    closure: F,
    body: impl FnOnce(F) -> B,
) -> Result<JobHandle<B::Value>, SubmitError<F>> {
    if shared.closing.has_begun() || !shared.room.take() {
        return Err(shared.refusal(closure));
    }
    let options = Options::complete(None, shared);
    let word = StateCell::new(State::Ready);
    let (home, id) = (shared.address(), shared.next_id());
    let (job, handle) = JobRef::new(body(closure), word, home, id, Priority::Normal, options);
    shared.push(job);
    Ok(JobHandle::new(handle))
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

    #[cold]
    fn refusal<F>(&self, job: F) -> SubmitError<F> {
        if self.closing.has_begun() { SubmitError::Closed(job) } else { SubmitError::Full(job) }
    }

    /// A new job: Ready, or Suspended if it has a key.
    pub(crate) fn take_in(&self, job: JobRef) {
        let Some(serial) = job.options.as_ref().and_then(|o| o.serial.as_ref()) else {
            return self.push(job);
        };
        if self.keys.admit(&serial.key, &job) {
            if job.state.resume() {
                self.push(job);
            } else {
                // Ended by somebody who did not know yet that it had its key.
                self.pass_key_on(&job);
                self.stale(&job, None);
            }
        } else if self.closing.sees_begun() {
            self.sweep();
        }
    }
}
