//! One run: what all its threads share, and what happens when a job is settled.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::chaos::Chaos;
use crate::failure::Failure;
use crate::fence::Unclosed;
use crate::job::{Done, Job};
use crate::names::TempNames;
use crate::options::Options;
use crate::report::{Failed, Report, show_path};
use crate::window::{Ticket, Window};

/// How long a settled job's late attempts may keep a worker from going on. They hold the fence for
/// a system call or two; who holds it longer is looked at again at the end.
const BRIEFLY: Duration = Duration::from_millis(20);

/// What all threads of a run share.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) options: Options,
    pub(crate) chaos: Chaos,
    pub(crate) temps: TempNames,
    /// The identity of SRC.
    pub(crate) src: (u64, u64),
    /// Leftovers of earlier runs may be removed: nobody else is writing into DST.
    pub(crate) exclusive: bool,
    pub(crate) report: Report,
    pub(crate) window: Window,
    stopping: AtomicBool,
    /// Settled jobs whose fence could not be closed yet.
    unclosed: Mutex<Vec<Arc<Job>>>,
}

impl Run {
    /// A run that has done nothing yet.
    pub(crate) fn new(
        options: Options,
        chaos: Chaos,
        temps: TempNames,
        src: (u64, u64),
        exclusive: bool,
        room: usize,
    ) -> Self {
        Self {
            report: Report::new(options.dry_run && !options.json),
            options,
            chaos,
            temps,
            src,
            exclusive,
            window: Window::new(room),
            stopping: AtomicBool::new(false),
            unclosed: Mutex::default(),
        }
    }

    /// Ends the walk; what is in hand is up to the engine.
    pub(crate) fn stop(&self) {
        // Relaxed: the flag says all there is to say; the window's lock wakes who sleeps.
        self.stopping.store(true, Ordering::Relaxed);
        self.window.close();
    }

    /// Whether the run is to end early.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// The job will not be tried again: it is done, or it failed. `None`: it was cancelled.
    pub(crate) fn settle(&self, ticket: Ticket, job: &Arc<Job>, end: Option<Result<Done, Failed>>) {
        if job.may_have_late_attempts(matches!(end, Some(Ok(_))))
            && self.close(job, BRIEFLY).is_err()
        {
            self.unclosed.lock().unwrap_or_else(PoisonError::into_inner).push(job.clone());
        }
        match end {
            Some(Ok(done)) => self.report.done(done, || job.path()),
            Some(Err(failed)) => self.report.failed(failed),
            None => self.report.unfinished.add(1),
        }
        self.report.settled.add(1);
        job.directory
            .clone()
            .settle_one(&mut |path, failure| self.directory_failed(&path, &failure));
        self.window.leave(ticket);
    }

    /// The job was found but not taken on: the run is ending.
    pub(crate) fn withdraw(&self, job: &Job) {
        self.settle_directory(job);
    }

    /// A directory could not be made, listed or finished.
    pub(crate) fn directory_failed(&self, path: &[u8], failure: &Failure) {
        self.report.failed(Failed::at_once(path, failure));
    }

    fn close(&self, job: &Job, patience: Duration) -> Result<(), Unclosed> {
        job.fence.close(job.directory.dst.as_ref().map(|copy| copy.fd.as_fd()), patience)
    }

    /// The end: closes what is still open, and warns of what cannot be closed. `rest`: the jobs that
    /// nobody could stop.
    pub(crate) fn close_all(&self, rest: Vec<Arc<Job>>, patience: Duration) {
        let unclosed =
            std::mem::take(&mut *self.unclosed.lock().unwrap_or_else(PoisonError::into_inner));
        for job in &unclosed {
            self.close_or_warn(job, patience);
        }
        for job in &rest {
            self.report.unfinished.add(1);
            if self.close_or_warn(job, patience) {
                self.settle_directory(job);
            }
        }
    }

    fn close_or_warn(&self, job: &Job, patience: Duration) -> bool {
        let warning = match self.close(job, patience) {
            Ok(()) => return true,
            Err(Unclosed::Busy) => {
                "an attempt hangs inside the system; its change may still come, and leave a temporary file"
            }
            Err(Unclosed::Leftover) => "a temporary file beside it could not be removed",
        };
        self.report.warn(format!("{}: {warning}", show_path(&job.path())));
        false
    }

    fn settle_directory(&self, job: &Job) {
        job.directory
            .clone()
            .settle_one(&mut |path, failure| self.directory_failed(&path, &failure));
    }
}

#[cfg(test)]
impl Run {
    /// A run that copies nothing, for tests of what only needs to know one.
    pub(crate) fn of_a_test() -> Arc<Self> {
        use clap::Parser as _;
        let options = Options::parse_from(["mirror", "/", "/"]);
        let chaos = Chaos::new(0.0, 0, options.attempt_timeout());
        let anywhere = rustix::fs::stat("/").unwrap();
        Arc::new(Self::new(
            options,
            chaos,
            TempNames::new(&anywhere),
            crate::attributes::identity(&anywhere),
            false,
            1,
        ))
    }
}
