//! The jobs on the runtime: each with its destination as key, its retries, and somebody who notices
//! when it is settled.
//!
//! Nobody waits for a single job. Its handle lies in the window; when the job is over, its waker (a
//! [`Bell`]) settles it, on the thread that ended it. So there is no thread per job and no list of
//! handles that grows with the tree.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tenure::retry::{Jitter, RetryPolicy};
use tenure::runtime::{ConfigError, DeadLetter, JobCtx, JobError, JobHandle, Outcome, Runtime};

use crate::failure::Failure;
use crate::job::{Done, Job};
use crate::report::{Failed, show_path};
use crate::run::Run;
use crate::turn::Turn;
use crate::window::Ticket;

/// The first delay before a file is tried again; it doubles.
const BASE: Duration = Duration::from_millis(20);
/// The longest one.
const LONGEST: Duration = Duration::from_secs(2);
/// The longest one where attempts fail by chance: waiting does not help against that.
const LONGEST_IN_CHAOS: Duration = Duration::from_millis(100);

/// The running runtime.
#[derive(Debug)]
pub(crate) struct Engine {
    runtime: Runtime,
    run: Arc<Run>,
}

/// How it went, as the runtime counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    /// Attempts made again.
    pub(crate) retried: u64,
    /// Attempts that hung, and whose job was given to another one.
    pub(crate) taken_over: u64,
    /// Attempts that came back too late to say anything.
    pub(crate) fenced: u64,
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotStarted {
    /// A retry policy out of range.
    #[error(transparent)]
    Retry(#[from] tenure::retry::ConfigError),
    /// A runtime option out of range, or no threads.
    #[error(transparent)]
    Runtime(#[from] ConfigError),
}

impl Engine {
    /// Starts the workers.
    pub(crate) fn start(run: &Arc<Run>) -> Result<Self, NotStarted> {
        let options = &run.options;
        let chaos = options.chaos > 0.0;
        let retry = RetryPolicy::exponential(BASE)
            .max_delay(if chaos { LONGEST_IN_CHAOS } else { LONGEST })
            .jitter(Jitter::Full)
            .max_attempts(options.attempts())
            .build()?;
        let workers = options.workers();
        let runtime = Runtime::builder()
            .workers(workers)
            .thread_name("mirror")
            .attempt_timeout(options.attempt_timeout())
            .retry(retry)
            // Each job's letter comes with its own result; nobody reads the collection.
            .dead_letters(0)
            // A hang is as likely as anything here, and each costs a thread for a while.
            .max_stuck_workers(64.max(8 * workers))
            .build()?;
        Ok(Self { runtime, run: run.clone() })
    }

    /// Hands in a job that has been admitted to the window.
    pub(crate) fn submit(&self, ticket: Ticket, job: Arc<Job>) {
        let key = job.path();
        let (this, run) = (job.clone(), self.run.clone());
        let attempt = move |ctx: &JobCtx| match this.attempt(&run, &Turn::new(ctx, &run)) {
            Ok(done) => Outcome::Done(done),
            Err(Failure::Cancelled) => Outcome::Cancel,
            Err(failure) => Outcome::retry(failure),
        };
        match self.runtime.job(attempt).key(key).submit() {
            Ok(handle) => look(&self.run, ticket, handle),
            // It shuts down, and we were too slow to notice.
            Err(_) => self.run.settle(ticket, &job, None),
        }
    }

    /// Tells how many attempts were made again so far.
    pub(crate) fn retries(&self) -> impl Fn() -> u64 + Send + 'static {
        let runtime = self.runtime.clone();
        move || runtime.stats().retried
    }

    /// Ends it: what waits is cancelled, what runs has `grace` to come to an end. All jobs are settled
    /// afterwards.
    pub(crate) fn shutdown(&self, grace: Duration) -> Counts {
        // What its report counts is settled job by job, like everything else.
        let _ = self.runtime.shutdown(grace);
        let stats = self.runtime.stats();
        Counts { retried: stats.retried, taken_over: stats.timed_out, fenced: stats.fenced }
    }
}

/// Rings when a job is over.
struct Bell {
    run: Arc<Run>,
    ticket: Ticket,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if let Some(handle) = self.run.window.ring(self.ticket) {
            look(&self.run, self.ticket, handle);
        }
    }
}

/// Settles the job if it is over; else puts its handle where the bell finds it.
fn look(run: &Arc<Run>, ticket: Ticket, mut handle: JobHandle<Done>) {
    let bell = Waker::from(Arc::new(Bell { run: run.clone(), ticket }));
    loop {
        if let Poll::Ready(result) = Pin::new(&mut handle).poll(&mut Context::from_waker(&bell)) {
            return settle(run, ticket, result);
        }
        match run.window.keep(ticket, handle) {
            // It rang before the handle was in its place.
            Some(back) => handle = back,
            None => return,
        }
    }
}

fn settle(run: &Arc<Run>, ticket: Ticket, result: Result<Done, JobError>) {
    let Some(job) = run.window.job(ticket) else { return };
    let end = match result {
        Ok(done) => Some(Ok(done)),
        Err(JobError::Dead(letter)) => Some(Err(failed(&job, &letter))),
        Err(JobError::Cancelled | JobError::Shutdown) => None,
        // Neither can be: a result is taken here only, and nobody waits.
        Err(error) => Some(Err(Failed::at_once(&job.path(), &error))),
    };
    run.settle(ticket, &job, end);
}

fn failed(job: &Job, letter: &DeadLetter) -> Failed {
    let mut history: Vec<String> =
        letter.history.iter().map(|attempt| attempt.cause.to_string()).collect();
    if letter.omitted > 0 {
        history.push(format!("({} attempts in between are not listed)", letter.omitted));
    }
    Failed {
        path: show_path(&job.path()),
        error: letter.last_error().map_or_else(|| letter.stop.to_string(), ToString::to_string),
        attempts: letter.attempts(),
        stopped_by: letter.stop.to_string(),
        history,
    }
}
