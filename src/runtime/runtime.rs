//! The runtime, as its users hold it.

use core::fmt;
use core::future::Future;
use core::time::Duration;
use std::sync::Arc;

use super::builder::Builder;
use super::ctx::JobCtx;
use super::error::{ConfigError, DeadLetter, SubmitError};
use super::events::Events;
use super::handle::JobHandle;
use super::options::JobKey;
use super::outcome::IntoOutcome;
use super::shared::Shared;
use super::shutdown::ShutdownReport;
use super::stats::Stats;
use super::submit::{self, Job, OneAttempt, Retried, SubmitManyError};
use super::task;
use crate::clock::{Clock, Timestamp};
use crate::lease::LeaseTable;

/// How many events a subscription holds if nothing else is said.
const EVENTS: usize = 1024;

/// A pool of workers that runs jobs, tries them again, and notices when they get stuck.
///
/// Cheap to clone; clones are the same runtime, and jobs may hold one. See the
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
    pub fn submit<F, R>(&self, job: F) -> Result<JobHandle<R::Value>, SubmitError<F>>
    where
        F: Fn(&JobCtx) -> R + Send + Sync + 'static,
        R: IntoOutcome,
        R::Value: Send + 'static,
    {
        self.job(job).submit()
    }

    /// Runs many jobs; cheaper than one by one, because workers are woken once.
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
        submit::submit_many(self.shared(), jobs)
    }

    /// Runs a job that has one attempt.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_once<F, R>(&self, job: F) -> Result<JobHandle<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&JobCtx) -> R + Send + 'static,
        R: IntoOutcome,
        R::Value: Send + 'static,
    {
        self.job_once(job).submit()
    }

    /// A job to say more about (key, name, retries, priority, …) before it is submitted.
    pub fn job<F, R>(&self, job: F) -> Job<'_, F, Retried>
    where
        F: Fn(&JobCtx) -> R + Send + Sync + 'static,
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

    /// The dead letters that are kept, the oldest first.
    #[must_use]
    pub fn dead_letters(&self) -> Vec<Arc<DeadLetter>> {
        self.shared().letters()
    }

    /// Takes the dead letters out.
    #[must_use]
    pub fn take_dead_letters(&self) -> Vec<Arc<DeadLetter>> {
        self.shared().take_letters()
    }

    /// The leases that running attempts hold on their jobs' keys: to list, peek and subscribe to.
    /// Revoking one fences its attempt at resources that check tokens; the job goes on.
    #[must_use]
    pub fn leases(&self) -> &LeaseTable<JobKey, (), Arc<dyn Clock>> {
        &self.shared().keys.leases
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
    /// that job, which finishes as it would. From a listener, a waker or a drop that the driver's
    /// thread runs it does not wait at all: the driver is who ends things; it says how far it has come.
    ///
    /// # Blocking
    /// For at most `timeout`; a second more if somebody's waker or drop holds up the driver.
    pub fn shutdown(&self, timeout: Duration) -> ShutdownReport {
        self.shared().shut_down(timeout)
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("shared", self.shared()).finish()
    }
}
