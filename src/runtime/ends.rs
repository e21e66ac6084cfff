//! How attempts and jobs end: what is counted, remembered and told, and what is cleared up.
//!
//! Where a function comes in two parts, the first calls no foreign code: it is for the driver, with its
//! token held.

use core::time::Duration;
use std::sync::Arc;

use super::cell::JobRef;
use super::error::{AttemptError, AttemptRecord, DeadLetter, JobError, Unkept};
use super::events::Event;
use super::letters::{Entry, Kept};
use super::members::Member;
use super::options::JobId;
use super::shared::{Notice, Shared};
use super::state::{Ended, Left, State};
use crate::retry::Stop;

/// An attempt that came to nothing, and that nobody was told of.
pub(crate) struct Failed {
    id: JobId,
    attempt: u32,
    cause: AttemptError,
    forgotten: Option<AttemptRecord>,
}

/// A job that is dead, and that nobody was told of.
pub(crate) struct Dead {
    letter: Arc<DeadLetter>,
    surplus: Option<Surplus>,
}

/// What there was no room for.
struct Surplus {
    /// `None`: it is the new one itself.
    older: Option<Arc<DeadLetter>>,
    kept: Result<Kept, Unkept>,
}

impl Shared {
    /// An attempt came to nothing: count, remember, tell. The caller owns the job's next step.
    pub(crate) fn record(&self, job: &JobRef, record: AttemptRecord, member: Option<&Member>) {
        let told = self.note_failure(job, record, member);
        self.tell_failure(told);
    }

    /// The part of [`record`](Self::record) that calls no foreign code.
    pub(crate) fn note_failure(
        &self,
        job: &JobRef,
        record: AttemptRecord,
        member: Option<&Member>,
    ) -> Failed {
        self.count(member, |c| &c.failed_attempts);
        match record.cause {
            AttemptError::Panicked(_) => self.count(member, |c| &c.panicked),
            AttemptError::TimedOut { .. } => self.count(member, |c| &c.timed_out),
            _ => {}
        }
        let (id, attempt, cause) = (JobId(job.id), record.number, record.cause.clone());
        Failed { id, attempt, cause, forgotten: job.past(|past| past.record(record)) }
    }

    /// The other part.
    pub(crate) fn tell_failure(&self, failed: Failed) {
        let Failed { id, attempt, cause, forgotten } = failed;
        self.subscribers.tell(|| Event::AttemptFailed { job: id, attempt, cause: cause.clone() });
        // Errors are the user's: their drop runs without a lock, and may panic, each by itself.
        self.contained("drop of an error", move || drop(cause));
        // Contains its own.
        drop(forgotten);
    }

    /// The job goes into Backoff with this delay, and its record is written: arm it.
    pub(crate) fn retry(
        &self,
        job: JobRef,
        epoch: u32,
        next: u32,
        delay: Duration,
        member: Option<&Member>,
    ) {
        self.note_retry(&job, delay, member);
        let id = JobId(job.id);
        self.arm(job, epoch, self.after(delay));
        self.tell_retry(id, next, delay);
    }

    pub(crate) fn note_retry(&self, job: &JobRef, delay: Duration, member: Option<&Member>) {
        self.count(member, |c| &c.retried);
        job.past(|past| past.delay = delay);
    }

    pub(crate) fn tell_retry(&self, job: JobId, attempt: u32, delay: Duration) {
        self.subscribers.tell(|| Event::RetryScheduled { job, attempt, delay });
    }

    /// The caller owns Completing, and the attempts are recorded: the job is dead.
    pub(crate) fn bury(&self, job: &JobRef, stop: Stop, leaving: bool, member: Option<&Member>) {
        let (dead, ended) = self.die(job, stop, leaving, member);
        self.tell_dead(dead);
        self.finish(job, ended, false);
    }

    /// The part of [`bury`](Self::bury) before anybody is told: the job's word is final.
    pub(crate) fn die(
        &self,
        job: &JobRef,
        stop: Stop,
        leaving: bool,
        member: Option<&Member>,
    ) -> (Dead, Ended) {
        let (history, omitted) =
            job.past(|past| (core::mem::take(&mut past.history), past.omitted));
        let (kept, leaving) = self.letters.closure_of(job, leaving);
        let options = job.options.as_deref();
        let origin = options.and_then(|o| o.origin);
        let letter = Arc::new(DeadLetter {
            id: JobId(job.id),
            name: options.and_then(|o| o.name.clone()),
            key: options.and_then(|o| o.serial.as_ref()).map(|s| s.key.clone()),
            history,
            omitted,
            stop,
            died: self.clock.now(),
            replay_of: origin.map(|origin| origin.letter),
            replays: origin.map_or(0, |origin| origin.replays),
        });
        // Whoever has the result finds the letter.
        let surplus = self.letters.put(Entry { letter: Arc::clone(&letter), kept });
        let surplus = surplus.map(|Entry { letter: lost, kept }| {
            self.counters.letters_lost.share(1);
            Surplus { older: (!Arc::ptr_eq(&lost, &letter)).then_some(lost), kept }
        });
        self.count(member, |c| &c.dead);
        // SAFETY: the caller owns Completing.
        let ended = unsafe { job.die(JobError::Dead(Arc::clone(&letter)), leaving) };
        (Dead { letter, surplus }, ended)
    }

    /// The other part.
    pub(crate) fn tell_dead(&self, Dead { letter, surplus }: Dead) {
        self.subscribers.tell(|| Event::JobDead(Arc::clone(&letter)));
        // The letters may be the last ones by now: they go without the lock, and each error in them is
        // contained there.
        if let Some(Surplus { older, kept }) = surplus {
            if let Some(hook) = &self.config.on_letter_lost {
                self.contained("hook for lost letters", || hook(older.as_ref().unwrap_or(&letter)));
            }
            drop(older);
            self.contained("drop of a closure", move || drop(kept));
        }
        drop(letter);
    }

    /// Somebody made the job's word Cancelled.
    pub(crate) fn cancelled(&self, job: &JobRef, ended: Ended, member: Option<&Member>) {
        let tell = self.note_cancelled(job, member);
        self.finish(job, ended, true);
        if tell {
            self.tell_cancelled(job);
        }
    }

    fn count_cancelled(&self, job: &JobRef, member: Option<&Member>) {
        if self.note_cancelled(job, member) {
            self.tell_cancelled(job);
        }
    }

    /// The part that calls no foreign code. True: it is the caller's to tell of.
    #[must_use]
    pub(super) fn note_cancelled(&self, job: &JobRef, member: Option<&Member>) -> bool {
        if !job.state.count_once() {
            return false;
        }
        self.count(member, |c| &c.cancelled);
        self.closing.swept(job.state.peek());
        self.room.give_back();
        self.drainers.job_ended();
        true
    }

    pub(super) fn tell_cancelled(&self, job: &JobRef) {
        let by_shutdown = job.state.peek().by_shutdown();
        self.subscribers.tell(|| Event::JobCancelled { job: JobId(job.id), by_shutdown });
    }

    /// An entry that led nowhere: if its job was cancelled, nobody may have counted that yet.
    pub(crate) fn stale(&self, job: &JobRef, member: Option<&Member>) {
        if job.state.peek().state() == State::Cancelled {
            self.count_cancelled(job, member);
        }
    }

    /// The job's word is final: let the next one have the key, wake who waits, clean up.
    pub(crate) fn finish(&self, job: &JobRef, ended: Ended, cancelled: bool) {
        if !cancelled {
            self.room.give_back();
            self.closing.done();
            self.drainers.job_ended();
        }
        self.sign_off(job);
        self.pass_key_on(job);
        self.clear_up(job, ended);
    }

    /// The same for a job that ended without a value while it waited, in this state.
    pub(crate) fn finish_from(&self, job: &JobRef, ended: Ended, from: State) {
        self.room.give_back();
        self.closing.done();
        self.drainers.job_ended();
        self.sign_off(job);
        if from.has_its_key() {
            self.pass_key_on(job);
        }
        self.clear_up(job, ended);
    }

    /// Wakes who waits for an ended job, then has it leave its gates, and drops what nobody will use.
    pub(super) fn clear_up(&self, job: &JobRef, ended: Ended) {
        // SAFETY: `ended` is from this job's word, and used once, by this thread or after it was handed
        // to it.
        if let Some(waker) = unsafe { job.take_waker(&ended) } {
            self.contained("waker", move || waker.wake());
        }
        Self::leave_gates(job);
        // SAFETY: as above. Contained in there.
        unsafe { job.drop_rest(ended) };
    }

    /// The owner of a key is at its end.
    pub(crate) fn pass_key_on(&self, job: &JobRef) {
        if let Some(serial) = job.options.as_ref().and_then(|o| o.serial.as_ref())
            && let Some(next) = self.keys.release(&serial.key)
        {
            self.push(next);
        }
    }

    /// A handle made the job's word Cancelled, out of this state.
    pub(crate) fn cancelled_by_handle(&self, job: &JobRef, from: State) {
        self.count_cancelled(job, None);
        self.sign_off(job);
        if matches!(from, State::Scheduled | State::Backoff) {
            // Its timer may be far away, and keeps it.
            self.intake.push(Notice::Forget(job.clone()));
            self.bell.ring();
            if self.closing.sees_begun() {
                self.sweep_intake();
            }
        }
        if from.has_its_key() {
            self.pass_key_on(job);
        }
        Self::leave_gates(job);
    }

    /// An attempt that had lost its lease came to an end.
    pub(crate) fn late(&self, job: &JobRef, attempt: u32, member: &Member) {
        member.counters.fenced.own();
        if let Some(serial) = job.options.as_ref().and_then(|o| o.serial.as_ref()) {
            self.keys.left_late(&serial.key);
        }
        self.subscribers.tell(|| Event::LateAttempt { job: JobId(job.id), attempt });
        let left = match job.is_alone() {
            true => job.state.exit_alone(),
            false if job.state.exit() => Left::Closure,
            false => Left::Nothing,
        };
        match left {
            Left::Nothing => {}
            // SAFETY: the word says so.
            Left::Closure => unsafe { job.drop_closure() },
            Left::Ready => self.push(job.clone()),
        }
    }
}
