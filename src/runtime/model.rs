//! The room's private protocols, for the loom models. Not for users; it changes as they need.
//!
//! [`Job`] goes through the real word, cell and handle; only the queues are left out: what the
//! runtime would push or arm, the caller of `drive` and `rescue` does at once, on its own thread.
#![allow(missing_docs, clippy::missing_panics_doc, reason = "not for users")]

mod letters;
mod parts;
mod policies;
mod staff;

use core::ptr::NonNull;

use super::cell::{Body, InTurn, JobRef, Many, Ran};
use super::ctx::JobCtx;
use super::error::{AttemptError, DeadLetter, JobError};
use super::handle::JobHandle;
use super::options::{JobId, Priority};
use super::outcome::Outcome;
use super::policy::Turn;
use super::state::{Cancel, Ended, Fired, Left, Lost, Parked, Start, State, StateCell, Then};
use crate::clock::Timestamp;
use crate::lease::FencingToken;
use crate::retry::Stop;
pub use letters::Post;
pub use parts::{Crewman, Door, Phase, Places, Pool, Watched};
pub use policies::{Asked, Borrowed, Gatehouse, OneKey, Replaced, Seats};
pub use staff::{Granted, Hand, Held, Keyed, Limits, Nested, Snapshot, Staff};

/// One reference to a job.
#[derive(Clone, Debug)]
pub struct Job(JobRef);

/// How a call left the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// This call ended it, with a value.
    Succeeded,
    /// This call ended it, without one.
    Dead,
    /// This call ended it, because of a request.
    Cancelled,
    /// Its attempt was fenced, or its entry was stale.
    Nothing,
    /// Asked for.
    Requested,
}

/// An attempt that is inside.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    pub epoch: u32,
    attempt: u32,
    second: bool,
}

/// A job that begins Ready (with one entry), or Suspended.
pub fn job<T, F>(ready: bool, closure: F) -> (Job, JobHandle<T>)
where
    T: Send + 'static,
    F: Fn(&JobCtx) -> Result<T, &'static str> + Send + Sync + 'static,
{
    let first = StateCell::new(if ready { State::Ready } else { State::Suspended });
    let (job, handle) = JobRef::new(Many(closure), first, 0, 1, Priority::Normal, None);
    (Job(job), JobHandle::new(handle))
}

/// One whose attempts must not meet; it begins Ready, with one entry.
pub fn job_mut<T, F>(closure: F) -> (Job, JobHandle<T>)
where
    T: Send + 'static,
    F: FnMut(&JobCtx) -> Result<T, &'static str> + Send + 'static,
{
    let first = StateCell::new(State::Ready);
    let (job, handle) = JobRef::new(InTurn(closure), first, 0, 1, Priority::Normal, None);
    (Job(job), JobHandle::new(handle))
}

/// What a model's task does when polled: `None` is pending.
type Polled<T> = Box<dyn Fn() -> Option<T> + Send + Sync>;

struct Polls<T>(Polled<T>);

impl<T: Send + 'static> Body for Polls<T> {
    type Value = T;
    const RETRYABLE: bool = false;
    const TASK: bool = true;

    unsafe fn call(this: *mut Self, _ctx: &JobCtx) -> Option<Outcome<T>> {
        // SAFETY: the caller is inside.
        unsafe { (*this).0() }.map(Outcome::Done)
    }
}

/// A task that begins Ready, woken by [`Job::wake`].
pub fn task<T: Send + 'static>(
    poll: impl Fn() -> Option<T> + Send + Sync + 'static,
) -> (Job, JobHandle<T>) {
    let first = StateCell::new(State::Ready);
    let body = Polls(Box::new(poll) as Polled<T>);
    let (job, handle) = JobRef::new(body, first, 0, 1, Priority::Normal, None);
    (Job(job), JobHandle::new(handle))
}

impl Job {
    fn finish(&self, ended: Ended) {
        // SAFETY: each caller has it from this job's word, and uses it once.
        let waker = unsafe { self.0.take_waker(&ended) };
        if let Some(waker) = waker {
            waker.wake();
        }
        // SAFETY: as above.
        unsafe { self.0.drop_rest(ended) };
    }

    fn bury(&self, leaving: bool) {
        let letter = DeadLetter {
            id: JobId(1),
            name: None,
            key: None,
            history: Vec::new(),
            omitted: 0,
            stop: Stop::MaxAttempts,
            died: Timestamp::ORIGIN,
            replay_of: None,
            replays: 0,
        };
        // SAFETY: each caller owns Completing.
        let ended = unsafe { self.0.die(JobError::Dead(std::sync::Arc::new(letter)), leaving) };
        self.finish(ended);
    }

    /// As a worker that took an entry; its retries (up to `most` attempts) run here, too.
    pub fn drive(&self, most: u32) -> End {
        match self.begin() {
            Ok(begun) => self.go_on(begun, most),
            Err(end) => end,
        }
    }

    /// The first half of `drive`: the attempt is inside.
    pub fn begin(&self) -> Result<Begun, End> {
        match self.0.state.start(self.0.is_task()) {
            Start::Run { epoch, attempt } => Ok(Begun { epoch, attempt, second: false }),
            Start::Stale(_) => Err(End::Nothing),
            Start::UsedUp => {
                self.bury(false);
                Err(End::Dead)
            }
        }
    }

    /// The second half of `drive`: what is inside runs.
    pub fn go_on(&self, mut begun: Begun, most: u32) -> End {
        loop {
            let Begun { epoch, attempt, second } = begun;
            let turn = Turn { epoch, second };
            // SAFETY: `self` outlives the call.
            let ctx = unsafe {
                let at = NonNull::new_unchecked(self.0.as_raw());
                JobCtx::new(at, turn, attempt, FencingToken::of(0, u64::from(epoch)))
            };
            // SAFETY: `start` gave us the epoch, and we have not left.
            let failure = match unsafe { self.0.attempt(&ctx) } {
                Ran::Written => {
                    let ended = self.0.state.publish(State::Succeeded, true);
                    self.finish(ended);
                    return End::Succeeded;
                }
                Ran::Fenced => return self.late(most),
                Ran::Failed(failure) => failure,
                Ran::Pending => match self.0.state.suspend(epoch) {
                    Parked::Suspended => return End::Nothing,
                    Parked::Again => match self.begin() {
                        Ok(again) => {
                            begun = again;
                            continue;
                        }
                        Err(end) => return end,
                    },
                    Parked::Cancelled(ended) => {
                        self.finish(ended);
                        return End::Cancelled;
                    }
                    Parked::Fenced => return self.late(most),
                },
                Ran::Snoozed(_) | Ran::Cancelled => unreachable!("the closure returns a Result"),
            };
            // A failed model inside the closure must not pass for a failed attempt.
            if let AttemptError::Panicked(payload) = failure.cause {
                std::panic::resume_unwind(payload.take().expect("the first to take it"));
            }
            let then = if attempt < most { Then::Retry } else { Then::Die };
            match self.0.state.fail(epoch, then) {
                Lost::Backoff { epoch } => {
                    if self.0.state.fire(epoch, false) != Fired::Ready {
                        return End::Nothing;
                    }
                    match self.begin() {
                        Ok(next) => begun = next,
                        Err(end) => return end,
                    }
                }
                Lost::Dying => {
                    self.bury(true);
                    return End::Dead;
                }
                Lost::Cancelled(ended) => {
                    self.finish(ended);
                    return End::Cancelled;
                }
                Lost::Fenced => return self.late(most),
                Lost::Outlived => return End::Nothing,
                Lost::Alive => unreachable!("only a rescue"),
            }
        }
    }

    /// Runs what is inside. True: it failed; else it was the job's end.
    fn fails(&self, begun: Begun) -> bool {
        let Begun { epoch, attempt, second } = begun;
        let turn = Turn { epoch, second };
        // SAFETY: `self` outlives the call.
        let ctx = unsafe {
            let at = NonNull::new_unchecked(self.0.as_raw());
            JobCtx::new(at, turn, attempt, FencingToken::of(0, u64::from(epoch)))
        };
        // SAFETY: `start` gave us the epoch, and we have not left.
        match unsafe { self.0.attempt(&ctx) } {
            Ran::Written => {
                let ended = self.0.state.publish(State::Succeeded, true);
                self.finish(ended);
                false
            }
            Ran::Failed(failure) => {
                // A failed model inside the closure must not pass for a failed attempt.
                if let AttemptError::Panicked(payload) = failure.cause {
                    std::panic::resume_unwind(payload.take().expect("the first to take it"));
                }
                true
            }
            Ran::Fenced | Ran::Snoozed(_) | Ran::Cancelled | Ran::Pending => {
                unreachable!("the closure returns an error, or is the current one")
            }
        }
    }

    fn late(&self, most: u32) -> End {
        let left = match self.0.is_alone() {
            true => self.0.state.exit_alone(),
            false if self.0.state.exit() => Left::Closure,
            false => Left::Nothing,
        };
        match left {
            Left::Nothing => End::Nothing,
            Left::Closure => {
                // SAFETY: the word says so.
                unsafe { self.0.drop_closure() };
                End::Nothing
            }
            Left::Ready => self.drive(most),
        }
    }

    /// As the driver that finds `epoch` out of time; the retry runs here.
    pub fn rescue(&self, epoch: u32, most: u32, force: bool) -> End {
        let attempts = u32::from(self.0.state.peek().attempts()) + 1;
        let then = if attempts < most { Then::Retry } else { Then::Die };
        match self.0.state.rescue(epoch, then, force) {
            Lost::Backoff { epoch } => self.fire(epoch, most),
            Lost::Dying => {
                self.bury(false);
                End::Dead
            }
            Lost::Cancelled(ended) => {
                self.finish(ended);
                End::Cancelled
            }
            Lost::Alive => self.rescue(epoch, most, force),
            Lost::Fenced | Lost::Outlived => End::Nothing,
        }
    }

    /// As the driver, one look at `epoch`, which has no further attempt. True: it showed life.
    pub fn judge(&self, epoch: u32) -> bool {
        match self.0.state.rescue(epoch, Then::Die, false) {
            Lost::Alive => return true,
            Lost::Dying => self.bury(false),
            Lost::Cancelled(ended) => self.finish(ended),
            Lost::Backoff { .. } | Lost::Fenced | Lost::Outlived => {}
        }
        false
    }

    /// As the driver that gives `epoch` up, and the worker that takes the next attempt.
    pub fn take_over(&self, epoch: u32, given_up: impl FnOnce()) -> Option<Begun> {
        let Lost::Backoff { epoch } = self.0.state.rescue(epoch, Then::Retry, true) else {
            return None;
        };
        given_up();
        (self.0.state.fire(epoch, false) == Fired::Ready).then(|| self.begin().ok()).flatten()
    }

    /// Whether this call is the first to count the job's end.
    pub fn count(&self) -> bool {
        self.0.state.count_once()
    }

    pub fn cancel(&self, by_shutdown: bool) -> End {
        match self.0.state.cancel(by_shutdown) {
            Cancel::Now { ended, .. } => {
                self.finish(ended);
                End::Cancelled
            }
            Cancel::Requested => End::Requested,
            Cancel::TooLate => End::Nothing,
        }
    }

    /// As a timer made for this epoch; runs the job if it became Ready.
    pub fn fire(&self, epoch: u32, most: u32) -> End {
        let fired = if self.0.is_alone() {
            self.0.state.fire_alone(epoch, false)
        } else {
            self.0.state.fire(epoch, false)
        };
        match fired {
            Fired::Ready => self.drive(most),
            Fired::InLine | Fired::Marked | Fired::Stale => End::Nothing,
        }
    }

    /// As the key's last owner; runs the job if it became Ready.
    pub fn resume(&self, most: u32) -> End {
        if self.0.state.resume() { self.drive(most) } else { End::Nothing }
    }

    /// As a task's waker; polls it here if it became Ready.
    pub fn wake(&self) -> End {
        if self.0.state.wake() { self.drive(1) } else { End::Nothing }
    }

    pub fn heartbeat(&self, epoch: u32) -> bool {
        self.0.state.heartbeat(epoch)
    }

    pub fn is_over(&self) -> bool {
        self.0.state.settled().is_some()
    }
}
