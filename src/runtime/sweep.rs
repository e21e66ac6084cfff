//! The end of everything that waits, once a shutdown has begun.

use crossbeam_deque::Steal;

use super::cell::JobRef;
use super::shared::{Notice, Shared};
use super::shutdown::Closing;
use super::state::{Cancel, Ended, State, Word};

/// A job that the shutdown cancelled, counted; nobody was told of it.
#[derive(Clone, Copy)]
#[must_use]
pub(crate) struct Swept {
    /// Out of which state, and what is left to do. `None`: it runs, or ended before.
    ended: Option<(State, Ended)>,
    /// Whether it is ours to tell of.
    tell: bool,
}

impl Shared {
    /// Cancels everything that is queued. For whoever sees that the shutdown has begun.
    #[cold]
    pub(crate) fn sweep(&self) {
        // Those in line for a key first: the end of a key's owner would hand the key to the next one,
        // push that, and so sweep again, inside this sweep, once for each in line.
        for job in self.drain_lines() {
            self.cancel_by_shutdown(&job);
        }
        while let Some(job) = self.next_queued() {
            self.cancel_by_shutdown(&job);
        }
    }

    /// All who wait in no queue of ours: in line for a key, or at a gate, or as tasks to be woken.
    pub(crate) fn drain_lines(&self) -> Vec<JobRef> {
        let mut all = self.keys.drain();
        all.extend(self.lines.drain());
        all.extend(self.tasks.drain());
        all
    }

    /// One of the jobs that [`sweep`](Self::sweep) cancels, out of its queue.
    pub(crate) fn next_queued(&self) -> Option<JobRef> {
        for injector in &self.injectors {
            loop {
                match injector.steal() {
                    Steal::Success(job) => return Some(job),
                    Steal::Empty => break,
                    Steal::Retry => {}
                }
            }
        }
        self.members.all().iter().find_map(|member| member.steal_any())
    }

    /// Cancels every timer on its way to the driver.
    #[cold]
    pub(crate) fn sweep_intake(&self) {
        for notice in self.intake.take() {
            match notice {
                Notice::Arm { job, .. } => self.cancel_by_shutdown(&job),
                // Their jobs run, or are swept from where they wait.
                Notice::Deadline { .. }
                | Notice::Hedge { .. }
                | Notice::Line { .. }
                | Notice::Forget(_) => {}
            }
        }
    }

    pub(crate) fn cancel_by_shutdown(&self, job: &JobRef) {
        let swept = self.note_queued(job);
        self.end_swept(job, swept);
    }

    /// As [`note_swept`](Self::note_swept), for a job that was found in a queue. One that runs all the same
    /// may finish: the entry was left over, or was for a second attempt.
    pub(crate) fn note_queued(&self, job: &JobRef) -> Swept {
        if job.state.peek().state().is_leased() {
            return Swept { ended: None, tell: false };
        }
        self.note_swept(job)
    }

    /// The part that calls no foreign code: the job's word is final, and it is in the report.
    pub(crate) fn note_swept(&self, job: &JobRef) -> Swept {
        match job.state.cancel(true) {
            Cancel::Now { from, ended } => self.note_ended(job, from, ended),
            // An entry left over: its job runs, or is over.
            Cancel::Requested | Cancel::TooLate => {
                let over = job.state.peek().state() == State::Cancelled;
                Swept { ended: None, tell: over && self.note_cancelled(job, None) }
            }
        }
    }

    /// The same for a job whose word somebody has just made final.
    pub(crate) fn note_ended(&self, job: &JobRef, from: State, ended: Ended) -> Swept {
        Swept { ended: Some((from, ended)), tell: self.note_cancelled(job, None) }
    }

    /// The other part. Once, by whoever has it from the first.
    pub(crate) fn end_swept(&self, job: &JobRef, swept: Swept) {
        if let Some((from, ended)) = swept.ended {
            self.sign_off(job);
            if from.has_its_key() {
                self.pass_key_on(job);
            }
            self.clear_up(job, ended);
        }
        if swept.tell {
            self.tell_cancelled(job);
        }
    }
}

impl Closing {
    /// A job was cancelled; if by the shutdown, it belongs into the report.
    pub(super) fn swept(&self, word: Word) {
        if word.by_shutdown() {
            self.report_swept(word.attempts() > 0);
        }
    }
}
