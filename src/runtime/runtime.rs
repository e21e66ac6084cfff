//! The runtime, as its users hold it.

use core::fmt;
use core::future::Future;
use core::num::NonZeroUsize;
use core::time::Duration;
use std::sync::Arc;

use super::builder::Builder;
use super::cell::{self, Handed};
use super::ctx::JobCtx;
use super::dead_letters::DeadLetters;
use super::error::{ConfigError, NotCounted, SubmitError};
use super::events::Events;
use super::handle::JobHandle;
use super::health::RuntimeHealth;
use super::leases::JobLeases;
use super::many::{self, SubmitManyError};
#[cfg(feature = "metrics")]
use super::observe::metrics::PublishError;
use super::outcome::IntoOutcome;
use super::schedule::Schedule;
use super::series::Repeated;
use super::shared::Shared;
use super::shutdown::ShutdownReport;
use super::stats::Stats;
use super::submit::{self, InTurn, Job, OneAttempt, Patience, Retried};
use super::task;
use crate::clock::{Clock, Timestamp};
use crate::executor::{Executor, Task};
use crate::retry::{RetryBudget, RetryPolicy};

/// How many events a subscription holds if nothing else is said.
const EVENTS: usize = 1024;

/// A pool of workers that runs jobs, tries them again, and notices when they get stuck.
///
/// Clones are the same runtime, and jobs may hold one. See the
/// [room's docs](super) for the tour.
///
/// # Cancellation and drop
///
/// Dropping the last clone does not block: jobs that wait are cancelled
/// ([`JobError::Shutdown`](super::JobError::Shutdown)), attempts that run may finish, then the
/// threads end. Call [`shutdown`](Self::shutdown) to wait for that, and to bound it.
#[derive(Clone)]
pub struct Runtime {
    owner: Arc<Owner>,
}

struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close(Timestamp::NEVER);
    }
}

impl Runtime {
    /// A runtime with the default settings.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub fn new_default() -> Result<Self, ConfigError> {
        Self::builder().build()
    }

    /// Settings to choose.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { owner: Arc::new(Owner { shared }) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// Runs a job. It may be tried again, also while a late attempt of it is still running; so it is
    /// `Fn + Sync`. For a closure that can only run once see [`submit_once`](Self::submit_once).
    ///
    /// # Errors
    /// [`SubmitError`] gives the closure back: the runtime shuts down, or is full.
    #[inline]
    pub fn submit<F, R>(&self, job: F) -> Result<JobHandle<R::Value>, SubmitError<F>>
    where
        F: Fn(&JobCtx) -> R + Send + Sync + 'static,
        R: IntoOutcome,
        R::Value: Send + 'static,
    {
        submit::submit_plain(self.shared(), job, cell::Many)
    }

    /// Runs many jobs. Workers are woken once for all of them.
    ///
    /// # Errors
    /// [`SubmitManyError`] has the handles of those that were taken, and gives the others back.
    #[expect(clippy::type_complexity, reason = "the error gives all of it back")]
    pub fn submit_many<F, R>(
        &self,
        jobs: impl IntoIterator<Item = F>,
    ) -> Result<Vec<JobHandle<R::Value>>, SubmitManyError<F, R::Value>>
    where
        F: Fn(&JobCtx) -> R + Send + Sync + 'static,
        R: IntoOutcome,
        R::Value: Send + 'static,
    {
        many::submit_many(self.shared(), jobs)
    }

    /// Runs a job that has one attempt.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    #[inline]
    pub fn submit_once<F, R>(&self, job: F) -> Result<JobHandle<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&JobCtx) -> R + Send + 'static,
        R: IntoOutcome,
        R::Value: Send + 'static,
    {
        submit::submit_plain(self.shared(), job, |job| cell::Once(Some(job)))
    }

    /// Runs a job that may be tried again, but never while a late attempt of it is still running: so it
    /// may change what it has captured (`FnMut`). If an attempt is given up and never comes back, there
    /// is no further one until it does. One that panics leaves its captures as they are.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = tenure::Runtime::builder().workers(1).build()?;
    /// let mut tries = Vec::new();
    /// let job = runtime.submit_mut(move |ctx| {
    ///     tries.push(ctx.attempt());
    ///     if tries.len() < 3 { Err("not yet") } else { Ok(std::mem::take(&mut tries)) }
    /// })?;
    /// assert_eq!(job.get()?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    #[inline]
    pub fn submit_mut<F, R>(&self, job: F) -> Result<JobHandle<R::Value>, SubmitError<F>>
    where
        F: FnMut(&JobCtx) -> R + Send + 'static,
        R: IntoOutcome,
        R::Value: Send + 'static,
    {
        submit::submit_plain(self.shared(), job, cell::InTurn)
    }

    /// A job to say more about (key, name, retries, priority, …) before it is submitted.
    pub fn job<F, R>(&self, job: F) -> Job<'_, F, Retried>
    where
        F: Fn(&JobCtx) -> R + Send + Sync + 'static,
    {
        Job::new(self.shared(), job)
    }

    /// The same for a job whose attempts change what it has captured: see
    /// [`submit_mut`](Self::submit_mut).
    pub fn job_mut<F, R>(&self, job: F) -> Job<'_, F, InTurn>
    where
        F: FnMut(&JobCtx) -> R + Send + 'static,
    {
        Job::new(self.shared(), job)
    }

    /// The same for a job that has one attempt.
    pub fn job_once<F, R>(&self, job: F) -> Job<'_, F, OneAttempt>
    where
        F: FnOnce(&JobCtx) -> R + Send + 'static,
    {
        Job::new(self.shared(), job)
    }

    /// Runs a job again and again, as a [`Schedule`] says: periodically, or (with the feature `cron`) by a
    /// cron line. Two of its runs never overlap.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tenure::clock::ManualClock;
    /// use tenure::runtime::{Runtime, Schedule};
    ///
    /// let clock = ManualClock::new();
    /// let runtime = Runtime::builder().workers(1).clock(clock.clone()).build()?;
    /// let (send, ran) = std::sync::mpsc::channel();
    /// let series = runtime
    ///     .repeat(Schedule::every(Duration::from_secs(60)), move |_| send.send(()))
    ///     .name("tidy up")
    ///     .start()?;
    /// clock.advance(Duration::from_secs(60));
    /// ran.recv()?;
    /// series.cancel();
    /// # Ok(())
    /// # }
    /// ```
    pub fn repeat<F, R>(&self, schedule: Schedule, job: F) -> Repeated<'_, F>
    where
        F: Fn(&JobCtx) -> R + Send + Sync + 'static,
    {
        Repeated::new(self.shared(), schedule, job)
    }

    /// Runs a future on the workers. Each poll is watched like an attempt; there are no retries, and
    /// no reactor: what the future waits for must wake it (a channel, an `Eventual`, a tokio socket
    /// inside a tokio context, …). To cancel it, cancel the handle: the future is dropped at its next
    /// `await`.
    ///
    /// ```
    /// use tenure::runtime::Runtime;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder().workers(1).build()?;
    /// let job = runtime.submit(|_| Ok::<_, String>(20))?;
    /// let task = runtime.spawn(async move { job.await.map(|n| n + 1) })?;
    /// assert_eq!(task.get()??, 21);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SubmitError`] gives the future back: the runtime shuts down, or is full.
    pub fn spawn<F>(&self, future: F) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        task::spawn(self.shared(), future)
    }

    /// Subscribes to what happens from now on. Events that do not fit (1024 of them) are dropped and
    /// counted.
    #[must_use]
    pub fn events(&self) -> Events {
        self.events_with_capacity(EVENTS)
    }

    /// Subscribes, with room for so many events (at least 1).
    #[must_use]
    pub fn events_with_capacity(&self, events: usize) -> Events {
        self.shared().subscribers.subscribe(events)
    }

    /// The jobs that ended dead: to look through, to replay, to throw away.
    #[must_use]
    pub fn dead_letters(&self) -> DeadLetters<'_> {
        DeadLetters::new(self.shared())
    }

    /// The leases that running attempts hold on their jobs' keys: to list, peek and subscribe to.
    /// Revoking one fences its attempt at resources that check tokens; the job goes on.
    #[must_use]
    pub fn leases(&self) -> JobLeases<'_> {
        JobLeases::new(&self.shared().keys.leases)
    }

    /// How it is: what each worker runs and for how long, who is stuck, what waits; and a
    /// [verdict](RuntimeHealth::verdict) for probes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = tenure::Runtime::builder().workers(2).build()?;
    /// assert!(runtime.health().verdict().is_live());
    /// runtime.pause();
    /// assert_eq!(runtime.health().verdict().to_string(), "not ready: paused");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The caller looks at each worker in turn; the workers do nothing for it.
    #[must_use]
    pub fn health(&self) -> RuntimeHealth {
        self.shared().health()
    }

    /// Tells the recorder of the crate [`metrics`](https://docs.rs/metrics) what was done so far, what waits
    /// and how it is. Call it when somebody asks: at each scrape, or from time to time. Between two calls
    /// nothing is told; the workers count for themselves.
    ///
    /// | name | kind, labels |
    /// |---|---|
    /// | `tenure_jobs_total` | counter; `outcome`: `succeeded`, `dead`, `cancelled` |
    /// | `tenure_attempts_total` | counter; `outcome`: `succeeded`, `failed`, `panicked`, `timed_out`, `snoozed`, `fenced` |
    /// | `tenure_jobs_submitted_total`, `tenure_attempts_started_total`, `tenure_retries_total`, `tenure_replays_total`, `tenure_hedges_total`, `tenure_gated_total` | counters |
    /// | `tenure_events_lost_total`, `tenure_dead_letters_lost_total`, `tenure_dead_letters_purged_total` | counters |
    /// | `tenure_workers_replaced_total`, `tenure_parks_total`, `tenure_steals_total` | counters |
    /// | `tenure_queue_depth` | gauge; `queue`: `high`, `normal`, `low`, `local`, `in_line` |
    /// | `tenure_workers` | gauge; `state`: `idle`, `running`, `waiting`, `suspect`, `stuck`, `leaving` |
    /// | `tenure_dead_letters`, `tenure_jobs_held`, `tenure_jobs_capacity` | gauges |
    /// | `tenure_driver_late_seconds`, `tenure_live`, `tenure_ready` | gauges |
    /// | `tenure_job_duration_seconds` | histogram; `name`: those that were allowed, and `other` |
    /// | `tenure_queue_wait_seconds` | histogram |
    ///
    /// The histograms are there with [`Builder::metrics`]. They are told as Prometheus has them, in counters
    /// `…_bucket` with the label `le`, `…_count`, and a gauge `…_sum`: summed up here, they cost the recorder
    /// the same however many jobs there were, and `histogram_quantile` reads them.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tenure::runtime::{Metrics, Runtime};
    ///
    /// let metrics = Metrics::new().job_name("mail");
    /// let runtime = Runtime::builder().workers(1).metrics(metrics).build()?;
    /// runtime.job(|_| Ok::<_, String>(())).name("mail").submit()?.get()?;
    /// runtime.publish_metrics()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PublishError`] if the recorder panics.
    #[cfg(feature = "metrics")]
    pub fn publish_metrics(&self) -> Result<(), PublishError> {
        self.shared().publish()
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared().stats()
    }

    /// Begins no further attempts until [`resume`](Self::resume). Those that run go on; timers fire,
    /// and their jobs wait with the others.
    pub fn pause(&self) {
        self.shared().pause(true);
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&self) {
        self.shared().pause(false);
    }

    /// Waits until every job that was taken in has ended: also those that are delayed, wait for a
    /// retry, or come while it waits. False: the time (real time) was up first. Nothing is closed.
    ///
    /// A job that was cancelled before it ran counts as ended when a worker meets its queue entry.
    ///
    /// # Blocking
    /// For at most `timeout`. Not inside a job, which would wait for itself.
    #[must_use]
    pub fn drain(&self, timeout: Duration) -> bool {
        self.shared().drain(timeout)
    }

    /// The runtime's clock.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.shared().clock
    }

    /// Replaces the retry policy. It decides about every attempt that comes to nothing from now on, also
    /// of jobs that have been tried before; retries that are planned stay as they are. A job with a policy
    /// of its own keeps that.
    pub fn set_retry(&self, policy: RetryPolicy) {
        self.shared().live.set_retry(policy);
    }

    /// Replaces the attempt timeout; `None` is for ever, zero counts as one nanosecond. It counts for
    /// attempts that begin from now on; one that runs keeps the timeout that it began with. A job with a
    /// timeout of its own keeps that.
    pub fn set_attempt_timeout(&self, timeout: impl Into<Option<Duration>>) {
        self.shared().live.set_attempt_timeout(timeout.into());
    }

    /// Replaces the retry budget. The next retry is drawn from the new one.
    pub fn set_retry_budget<C: Clock>(&self, budget: impl Into<Arc<RetryBudget<C>>>) {
        self.shared().live.set_budget(Some(budget.into()));
    }

    /// From now on no budget bounds the retries.
    pub fn remove_retry_budget(&self) {
        self.shared().live.set_budget(None);
    }

    /// Replaces the [capacity](Builder::capacity), and lets those in who wait for room. Jobs that were taken
    /// stay, also if there are more of them than may be: then there is no room until enough of them are
    /// over.
    ///
    /// # Errors
    /// [`NotCounted`] if the runtime was built without a capacity: then it does not count what it holds,
    /// which costs every job something. Build it with a capacity of `usize::MAX`.
    pub fn set_capacity(&self, jobs: NonZeroUsize) -> Result<(), NotCounted> {
        self.shared().room.resize(jobs.get()).then_some(()).ok_or(NotCounted)
    }

    /// Whether a shutdown has begun.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.shared().closing.has_begun()
    }

    /// Takes no more jobs, cancels those that wait, lets attempts that run finish for `timeout` (of
    /// the runtime's clock), and abandons those that do not. Says how it went.
    ///
    /// May be called from anywhere, several times, also at once: the earliest deadline counts, and
    /// all callers get the same report. From inside a job of the same runtime it does not wait for
    /// that job, which finishes as it would. From a waker or a drop that the end itself meets it does not
    /// wait at all, and says how far it has come.
    ///
    /// # Blocking
    /// For at most `timeout`; a second more if somebody's waker or drop holds up the driver.
    pub fn shutdown(&self, timeout: Duration) -> ShutdownReport {
        self.shared().shut_down(timeout)
    }
}

/// The workers run the tasks, as jobs with one attempt: they are watched like others, and answered
/// through whatever hangs on them. Given back if the runtime shuts down or is full; one that is taken
/// and then ended by a shutdown is rejected.
impl Executor for Runtime {
    fn execute(&self, task: Task) -> Result<(), Task> {
        let job = Job::<Task, OneAttempt>::new(self.shared(), task);
        match job.hand_in(|task| Handed(Some(task)), Patience::None) {
            Ok(handle) => {
                drop(handle);
                Ok(())
            }
            Err(refused) => Err(refused.into_inner()),
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("shared", self.shared()).finish()
    }
}
