//! Jobs that come again: periodic ones, and those of a cron line.
//!
//! Each tick is a job of its own, with its own attempts and retries, and the next one is planned when it
//! is over: so two ticks of a series never overlap. What happens to ticks whose time passes meanwhile is
//! the series' [`Missed`].
//!
//! ```text
//!            time           end of the job (value, death)
//!  planned ────────► job ─────────────────────────────────► planned …
//!     └── cancel, shutdown: over ◄── cancel, shutdown ──┘
//! ```

use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Weak};

use super::cell::JobRef;
use super::ctx::JobCtx;
use super::error::{JobError, SubmitError};
use super::handle::{self, JobHandle};
use super::options::{JobKey, Priority};
use super::outcome::IntoOutcome;
use super::promised::after;
use super::schedule::{Missed, Schedule, Tick};
use super::shared::Shared;
use super::submit::{Job, Patience, Retried};
use crate::clock::{Clock, Timestamp};
use crate::lock::{Unseen, UnseenGuard};
use crate::retry::RetryPolicy;

/// A series that is being described. From [`Runtime::repeat`](super::Runtime::repeat).
#[must_use = "a series begins when it is started"]
pub struct Repeated<'r, F> {
    shared: &'r Arc<Shared>,
    schedule: Schedule,
    closure: F,
    about: About,
    first: Option<Timestamp>,
}

/// What is said of each of its jobs.
#[derive(Clone, Debug, Default)]
struct About {
    missed: Missed,
    name: Option<Arc<str>>,
    key: Option<JobKey>,
    retry: Option<RetryPolicy>,
    attempt_timeout: Option<Duration>,
    priority: Priority,
}

impl<'r, F> Repeated<'r, F> {
    pub(crate) fn new(shared: &'r Arc<Shared>, schedule: Schedule, closure: F) -> Self {
        Self { shared, schedule, closure, about: About::default(), first: None }
    }

    /// What becomes of ticks that pass while the one before is not over. Defaults to
    /// [`Missed::Skip`].
    pub fn missed(mut self, missed: Missed) -> Self {
        self.about.missed = missed;
        self
    }

    /// The first tick is at this time, and the schedule goes on from there. Defaults to the schedule's
    /// own first one: a period from now, or the next of the cron line.
    pub fn first_at(mut self, at: Timestamp) -> Self {
        self.first = Some(at);
        self
    }

    /// As [`Job::name`].
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.about.name = Some(name.into());
        self
    }

    /// As [`Job::key`]: beside the other ticks, which never overlap anyway, it is in line with other jobs
    /// of that key.
    pub fn key(mut self, key: impl Into<JobKey>) -> Self {
        self.about.key = Some(key.into());
        self
    }

    /// When and how often one tick's job is tried again. Defaults to the runtime's.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.about.retry = Some(policy);
        self
    }

    /// As [`Job::attempt_timeout`].
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.about.attempt_timeout = Some(timeout);
        self
    }

    /// As [`Job::priority`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.about.priority = priority;
        self
    }

    /// Begins. A series counts as one job against the runtime's capacity, if there is one; its ticks have
    /// a place, also if others have taken all of them between two.
    ///
    /// # Errors
    /// [`SubmitError`] gives the closure back: the runtime shuts down, or is full.
    pub fn start<R>(self) -> Result<Series, SubmitError<F>>
    where
        F: Fn(&JobCtx) -> R + Send + Sync + 'static,
        R: IntoOutcome,
        R::Value: Send + 'static,
    {
        let Self { shared, schedule, closure, about, first } = self;
        if shared.closing.has_begun() {
            return Err(SubmitError::Closed(closure));
        }
        if !shared.room.take() {
            return Err(SubmitError::Full(closure));
        }
        let now = shared.clock.now();
        let tick = match first {
            Some(at) => Some(Tick { at, wall: None, skipped: 0 }),
            None => schedule.next(None, now, about.missed),
        };
        let tasks = Arc::new(Inner {
            home: shared.weak(),
            schedule,
            about,
            closure,
            state: Unseen::new(Progress::default()),
        });
        let series = Series(Arc::clone(&tasks) as Arc<dyn Steps>);
        match tick {
            Some(tick) => tasks.go_on(tick),
            None => tasks.lock().stopped = true,
        }
        // The jobs take places of their own, whether there are any or not; this one was asked for.
        shared.room.give_back();
        Ok(series)
    }
}

impl<F> fmt::Debug for Repeated<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repeated")
            .field("schedule", &self.schedule)
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}

/// How far a series has come.
#[derive(Debug, Default)]
struct Progress {
    /// The job of the tick that is planned or running.
    current: Option<JobRef>,
    planned: Option<Timestamp>,
    stopped: bool,
    succeeded: u64,
    failed: u64,
    skipped: u64,
}

struct Inner<F> {
    home: Weak<Shared>,
    schedule: Schedule,
    about: About,
    closure: F,
    // A lock, once a tick. No foreign code under it.
    state: Unseen<Progress>,
}

impl<F> Inner<F> {
    fn lock(&self) -> UnseenGuard<'_, Progress> {
        self.state.lock()
    }

    /// A tick's job is over. The next tick, if there is one.
    fn ended(&self, tick: Tick, succeeded: Option<bool>) -> Option<Tick> {
        let home = self.home.upgrade();
        // The wall clock is foreign: asked without the lock.
        let next = home
            .and_then(|home| self.schedule.next(Some(tick), home.clock.now(), self.about.missed));
        let mut state = self.lock();
        match succeeded {
            Some(true) => state.succeeded += 1,
            Some(false) => state.failed += 1,
            None => state.stopped = true,
        }
        let last = state.current.take();
        state.planned = None;
        let next = next.filter(|_| !state.stopped);
        match &next {
            Some(next) => state.skipped = state.skipped.saturating_add(next.skipped),
            None => state.stopped = true,
        }
        drop(state);
        drop(last);
        next
    }
}

impl<F, R> Inner<F>
where
    F: Fn(&JobCtx) -> R + Send + Sync + 'static,
    R: IntoOutcome,
    R::Value: Send + 'static,
{
    fn submit(self: &Arc<Self>, home: &Arc<Shared>, at: Timestamp) -> Option<JobHandle<R::Value>> {
        let me = Arc::clone(self);
        let about = &self.about;
        let mut job =
            Job::<_, Retried>::new(home, move |ctx: &JobCtx| (me.closure)(ctx).into_outcome())
                .run_at(at)
                .priority(about.priority);
        if let Some(name) = &about.name {
            job = job.name(Arc::clone(name));
        }
        if let Some(key) = &about.key {
            job = job.key(key.clone());
        }
        if let Some(policy) = about.retry {
            job = job.retry(policy);
        }
        if let Some(timeout) = about.attempt_timeout {
            job = job.attempt_timeout(timeout);
        }
        job.hand_in(super::cell::Many, Patience::Promised).ok()
    }

    /// Plans a tick, and whatever follows when its job is over: at once, in this loop, if that is so by
    /// the time we have its handle.
    fn go_on(self: &Arc<Self>, mut tick: Tick) {
        loop {
            let handle = self.home.upgrade().and_then(|home| self.submit(&home, tick.at));
            let Some(job_handle) = handle else {
                self.lock().stopped = true;
                return;
            };
            let job = job_handle.job_ref();
            let mut state = self.lock();
            state.current = Some(job.clone());
            state.planned = Some(tick.at);
            let stopped = state.stopped;
            drop(state);
            if stopped {
                // Stopped while there was no job to cancel.
                handle::cancel(&job);
            }
            let me = Arc::clone(self);
            let rest =
                after(job_handle.into_handle(), move |result: Result<R::Value, JobError>| {
                    let succeeded = verdict(&result);
                    super::cell::contained(move || drop(result));
                    if let Some(next) = me.ended(tick, succeeded) {
                        me.go_on(next);
                    }
                });
            // Over already: what would have been called is this loop.
            let Err((mut handle, _)) = rest else { return };
            let result = handle.take().flatten().unwrap_or(Err(JobError::Taken));
            let succeeded = verdict(&result);
            super::cell::contained(move || drop(result));
            match self.ended(tick, succeeded) {
                Some(next) => tick = next,
                None => return,
            }
        }
    }
}

/// Whether a tick went well; `None`: the series is over.
fn verdict<T>(result: &Result<T, JobError>) -> Option<bool> {
    match result {
        Ok(_) => Some(true),
        Err(JobError::Cancelled | JobError::Shutdown) => None,
        Err(_) => Some(false),
    }
}

trait Steps: Send + Sync {
    fn progress(&self) -> UnseenGuard<'_, Progress>;
}

impl<F: Send + Sync> Steps for Inner<F> {
    fn progress(&self) -> UnseenGuard<'_, Progress> {
        self.lock()
    }
}

/// A job that comes again. Dropping this lets it go on; [`cancel`](Self::cancel) ends it, and so does
/// the end of the runtime. A tick whose job is dead does not end the series; one that returns
/// [`Outcome::Cancel`](super::Outcome::Cancel) does.
#[derive(Clone)]
pub struct Series(Arc<dyn Steps>);

impl Series {
    /// Ends it: there are no further ticks, and the one that runs sees the request, as with
    /// [`JobHandle::cancel`]. True if it was not over.
    pub fn cancel(&self) -> bool {
        let mut state = self.0.progress();
        let first = !core::mem::replace(&mut state.stopped, true);
        let current = state.current.clone();
        drop(state);
        if let Some(job) = current {
            handle::cancel(&job);
        }
        first
    }

    /// Whether there are no further ticks.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.progress().stopped
    }

    /// When the tick is or was due whose job is waiting or running; `None` between two, and at the end.
    #[must_use]
    pub fn planned(&self) -> Option<Timestamp> {
        self.0.progress().planned
    }

    /// How many ticks' jobs ended with a value.
    #[must_use]
    pub fn succeeded(&self) -> u64 {
        self.0.progress().succeeded
    }

    /// How many ended dead.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.0.progress().failed
    }

    /// How many ticks were left out.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.0.progress().skipped
    }
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.progress().fmt(f)
    }
}
