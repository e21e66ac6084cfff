//! A worker runs an attempt, and does what its end asks for.

use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::time::Duration;

use super::Local;
use crate::clock::Timestamp;
use crate::lease::FencingToken;
use crate::retry::Stop;
use crate::runtime::cell::{Failure, JobRef, Ran};
use crate::runtime::ctx::JobCtx;
use crate::runtime::error::{AttemptError, AttemptRecord};
use crate::runtime::keys::{Held, NoLease};
use crate::runtime::observe::Watched;
use crate::runtime::policy::shared::Entrance;
use crate::runtime::policy::{self, Permits, Turn, Verdict};
use crate::runtime::seat::Seat;
use crate::runtime::state::{Lost, Parked, Start, State, Then, Word};

/// Below this, an attempt timeout is measured from a precise clock reading.
const PRECISE_BELOW: Duration = Duration::from_secs(1);

/// An attempt that came to nothing.
struct Tried {
    turn: Turn,
    attempt: u32,
    began: Timestamp,
    token: FencingToken,
    held: Option<Held>,
}

/// An attempt on its seat. Stands up when dropped, also while its thread unwinds: the driver would
/// find a job there that is freed by then.
struct Taken<'a> {
    depth: &'a Cell<usize>,
    seat: &'a Seat,
    job: ManuallyDrop<JobRef>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.depth.set(self.depth.get() - 1);
        if self.seat.stand() {
            // SAFETY: once, here. Otherwise the driver holds our seat, and drops the reference for us.
            unsafe { ManuallyDrop::drop(&mut self.job) };
        }
    }
}

/// Gives the key's lease back, if the attempt had one and it is not revoked by now.
fn release(held: Option<Held>) {
    if let Some(held) = held {
        let _ = held.release();
    }
}

impl Local {
    /// Runs one attempt of a job, if it is Ready.
    pub(crate) fn run(&self, job: JobRef) {
        let shared = &*self.shared;
        let permits = match &job.options {
            Some(options) if options.guarded => match self.enter(&job) {
                Entrance::Open(permits) => permits,
                Entrance::Shut => return,
                Entrance::Stale(word) => return self.stale(job, word),
            },
            _ => None,
        };
        match job.state.start(job.is_task()) {
            Start::Stale(word) => {
                if let Some(permits) = permits {
                    permits.end(Verdict::Unused);
                }
                self.stale(job, word);
            }
            Start::UsedUp => {
                if let Some(permits) = permits {
                    permits.end(Verdict::Unused);
                }
                self.record(
                    &job,
                    0,
                    shared.clock.coarse(),
                    FencingToken::of(0, 0),
                    AttemptError::UsedUp,
                );
                shared.bury(&job, Stop::MaxAttempts, false, Some(&self.member));
            }
            Start::Run { epoch, attempt } => {
                self.sit(job, Turn { epoch, second: false }, attempt, permits);
            }
        }
    }

    /// May an attempt begin? What is asked may call foreign code: so the job is on the seat meanwhile, and
    /// a worker that does not come back is missed as in an attempt, and the job found by a shutdown.
    fn enter(&self, job: &JobRef) -> Entrance {
        let word = job.state.peek();
        if word.state() != State::Ready {
            // Whoever makes it Ready from here on pushes an entry: `start` might find it that, with no
            // gate asked.
            return Entrance::Stale(word);
        }
        self.seated(job.clone(), |job, seat| {
            let (began, deadline, timeout) = self.time_for(job);
            seat.sit(job, word.epoch(), deadline, timeout, began);
            if !deadline.is_never() {
                self.shared.bell.ring_for(deadline);
            }
            self.shared.enter(job, &self.member)
        })
    }

    /// An entry of a job that was not Ready: it is for a second attempt, or left over.
    fn stale(&self, job: JobRef, word: Word) {
        if word.state() == State::Leased && self.is_asked_for(&job, word.epoch()) {
            self.run_beside(job, word.epoch());
        } else {
            self.shared.stale(&job, Some(&self.member));
        }
    }

    fn is_asked_for(&self, job: &JobRef, epoch: u32) -> bool {
        job.options.as_ref().and_then(|o| o.hedge.as_ref()).is_some_and(|hedge| hedge.take(epoch))
    }

    /// Runs a second attempt beside one that takes long.
    #[cold]
    fn run_beside(&self, job: JobRef, epoch: u32) {
        let shared = &*self.shared;
        // A gate that refuses: then there is none.
        let Some(permits) = shared.enter_beside(&job) else { return };
        match job.state.hedge(epoch) {
            Some(attempt) => {
                self.member.counters.hedged.own();
                self.sit(job, Turn { epoch, second: true }, attempt, permits);
            }
            None => {
                if let Some(permits) = permits {
                    permits.end(Verdict::Unused);
                }
                shared.stale(&job, Some(&self.member));
            }
        }
    }

    /// An attempt has begun: it gets a seat.
    #[inline]
    fn sit(&self, job: JobRef, turn: Turn, attempt: u32, permits: Option<Permits>) {
        if let Some(permits) = permits
            && let Some(gates) = policy::gates(&job)
        {
            gates.hold(turn, permits);
        }
        self.seated(job, |job, seat| self.attempt(job, turn, attempt, seat));
    }

    /// Has `f` sit down on a seat of its own, which is left when it is done.
    #[inline]
    fn seated<R>(&self, job: JobRef, f: impl FnOnce(&JobRef, &Seat) -> R) -> R {
        let depth = self.depth.get();
        let nested = (depth > 0).then(|| self.member.nested_seat(depth));
        let seat = nested.as_deref().unwrap_or(&self.member.seat);
        let taken = Taken { depth: &self.depth, seat, job: ManuallyDrop::new(job) };
        self.depth.set(depth + 1);
        f(&taken.job, seat)
    }

    /// What begins now, with this job: when, until when, how long.
    #[inline]
    fn time_for(&self, job: &JobRef) -> (Timestamp, Timestamp, Duration) {
        let clock = &self.shared.clock;
        match self.shared.attempt_timeout(job) {
            None => (clock.coarse(), Timestamp::NEVER, Duration::MAX),
            Some(timeout) if timeout < PRECISE_BELOW => {
                let now = clock.now();
                (now, now.saturating_add(timeout), timeout)
            }
            Some(timeout) => {
                let now = clock.coarse();
                (now, now.saturating_add(clock.coarse_lag()).saturating_add(timeout), timeout)
            }
        }
    }

    /// One attempt.
    fn attempt(&self, job: &JobRef, turn: Turn, attempt: u32, seat: &Seat) {
        let shared = &*self.shared;
        let epoch = turn.epoch;
        self.member.counters.started.own();
        let (began, deadline, timeout) = self.time_for(job);
        seat.sit(job, epoch, deadline, timeout, began);
        if !deadline.is_never() {
            shared.bell.ring_for(deadline);
        }
        let serial = match &job.options {
            None => None,
            Some(options) => {
                shared.watch_hedge(job, turn);
                options.serial.as_ref()
            }
        };
        let lease = match serial {
            // The first one holds the lease for both.
            Some(serial) if turn.second => {
                let ran = self.call_keyed(job, turn, attempt, serial.token());
                return self.end(
                    job,
                    Tried { turn, attempt, began, token: serial.token(), held: None },
                    ran,
                );
            }
            serial => {
                serial.map(|serial| shared.keys.lease(serial, || job.state.is_current(epoch)))
            }
        };
        let (held, token, ran) = match lease {
            Some(Err(no_lease)) => {
                // The closure was not called.
                if let Some(gates) = policy::gates(job) {
                    gates.settle(turn, Verdict::Ignored);
                }
                let ran = match no_lease {
                    NoLease::Fenced => Ran::Fenced,
                    NoLease::Refused(refused) => {
                        let cause = AttemptError::NoLease(refused);
                        Ran::Failed(Box::new(Failure { cause, retryable: true, delay: None }))
                    }
                };
                (None, FencingToken::of(0, 0), ran)
            }
            Some(Ok(held)) => {
                let token = held.token();
                (Some(held), token, self.call_keyed(job, turn, attempt, token))
            }
            None => {
                let token = FencingToken::of(0, u64::from(epoch));
                (None, token, self.call(job, turn, attempt, token))
            }
        };
        self.end(job, Tried { turn, attempt, began, token, held }, ran);
    }

    /// An attempt is out of the closure, or did not get into it.
    #[inline]
    fn end(&self, job: &JobRef, tried: Tried, ran: Ran) {
        if let Ran::Written = ran {
            let shared = &*self.shared;
            self.member.counters.succeeded.own();
            shared.live.deposit(&self.budget);
            // Before anybody else may begin on the key: a lease in the way would be revoked.
            release(tried.held);
            let ended = job.state.publish(State::Succeeded, true);
            shared.finish(job, ended, false);
        } else {
            self.end_without_value(job, tried, ran);
        }
    }

    #[inline(never)]
    fn end_without_value(&self, job: &JobRef, tried: Tried, ran: Ran) {
        let shared = &*self.shared;
        let Tried { turn, attempt, held, .. } = tried;
        let epoch = turn.epoch;
        match ran {
            Ran::Written => unreachable!("that has a value"),
            Ran::Fenced => {
                release(held);
                shared.late(job, attempt, &self.member);
            }
            Ran::Failed(failure) => {
                self.failed(job, Tried { held, ..tried }, *failure);
            }
            Ran::Pending => self.pending(job, epoch, attempt),
            Ran::Snoozed(delay) if job.retryable() => {
                if shared.would_be_late(job, delay) {
                    let failure = Failure {
                        cause: AttemptError::Snoozed { delay },
                        retryable: true,
                        delay: Some(delay),
                    };
                    return self.failed(job, Tried { held, ..tried }, failure);
                }
                self.snoozed(job, epoch, attempt, held, Then::Snooze, delay);
            }
            Ran::Snoozed(_) => {
                let failure =
                    Failure { cause: AttemptError::CannotSnooze, retryable: false, delay: None };
                self.failed(job, Tried { held, ..tried }, failure);
            }
            Ran::Cancelled => {
                self.snoozed(job, epoch, attempt, held, Then::Cancel, Duration::ZERO);
            }
        }
    }

    /// Runs the closure of a job with a key.
    #[inline(never)]
    fn call_keyed(&self, job: &JobRef, turn: Turn, attempt: u32, token: FencingToken) -> Ran {
        let key = job.options.as_ref().and_then(|o| o.serial.as_ref()).map(|s| &s.key);
        if let Some(key) = key {
            self.keys.borrow_mut().push(key.clone());
        }
        let ran = self.call(job, turn, attempt, token);
        if key.is_some() {
            self.keys.borrow_mut().pop();
        }
        ran
    }

    /// Runs the closure. In line: what comes out is looked at where it was put.
    #[inline(always)]
    fn call(&self, job: &JobRef, turn: Turn, attempt: u32, token: FencingToken) -> Ran {
        // SAFETY: the job outlives the call, and the context with it: `attempt` gives its reference
        // up at the earliest when it has stood up.
        let ctx =
            unsafe { JobCtx::new(NonNull::new_unchecked(job.as_raw()), turn, attempt, token) };
        let watched = Watched::begin(self, job, turn.epoch, attempt);
        // SAFETY: `start` gave us this epoch, and we have not left.
        let ran = unsafe { job.attempt(&ctx) };
        watched.end(&ran);
        ran
    }

    /// Whether this thread runs an attempt that owns the key which `job` waits for.
    pub(crate) fn is_in_the_way_of(&self, job: &JobRef) -> bool {
        let key = job.options.as_ref().and_then(|o| o.serial.as_ref()).map(|s| &s.key);
        job.home == self.shared.address()
            && job.state.peek().state() == State::Suspended
            && key.is_some_and(|key| self.keys.borrow().contains(key))
    }

    fn failed(&self, job: &JobRef, tried: Tried, failure: Failure) {
        let shared = &*self.shared;
        let Tried { turn, attempt, began, token, held } = tried;
        let epoch = turn.epoch;
        let Failure { cause, retryable, delay } = failure;
        // Nothing is drawn for one that is not the current one, or the last one anyway.
        let word = job.state.peek();
        let draws = word.state() == State::Leased && !word.cancel_requested();
        let decision = match cause {
            AttemptError::Snoozed { .. } => Err(Stop::Deadline),
            _ => shared.decide(job, attempt, began, (retryable, draws), delay),
        };
        let then = match decision {
            Ok(_) => Then::Retry,
            Err(Stop::NotRetryable) => Then::Fail,
            Err(_) => Then::Die,
        };
        let lost = job.state.fail(epoch, then);
        release(held);
        if matches!(lost, Lost::Backoff { .. } | Lost::Dying | Lost::Cancelled(_) | Lost::Outlived)
        {
            self.record(job, attempt, began, token, cause);
        } else {
            // The error is foreign, and nobody will see it.
            shared.contained("drop of an error", move || drop(cause));
        }
        match (lost, decision) {
            (Lost::Backoff { epoch }, Ok(delay)) => {
                shared.retry(job.clone(), epoch, attempt + 1, delay, Some(&self.member));
            }
            (Lost::Dying, Err(stop)) => shared.bury(job, stop, true, Some(&self.member)),
            (Lost::Cancelled(ended), _) => shared.cancelled(job, ended, Some(&self.member)),
            (Lost::Fenced, _) => shared.late(job, attempt, &self.member),
            (Lost::Outlived, _) => {}
            (Lost::Backoff { .. } | Lost::Dying | Lost::Alive, _) => {
                unreachable!("`fail` does what it was told to")
            }
        }
    }

    fn pending(&self, job: &JobRef, epoch: u32, attempt: u32) {
        let shared = &*self.shared;
        match job.state.suspend(epoch) {
            Parked::Suspended => {}
            // To the back of the queue: a task that wakes itself does not keep the worker.
            Parked::Again => shared.push_back(job.clone()),
            Parked::Cancelled(ended) => shared.cancelled(job, ended, Some(&self.member)),
            Parked::Fenced => shared.late(job, attempt, &self.member),
        }
    }

    /// The attempt asks for another turn, or for the end.
    fn snoozed(
        &self,
        job: &JobRef,
        epoch: u32,
        attempt: u32,
        held: Option<Held>,
        then: Then,
        delay: Duration,
    ) {
        let shared = &*self.shared;
        let lost = job.state.fail(epoch, then);
        release(held);
        match lost {
            Lost::Backoff { epoch } => {
                let at = shared.after(delay);
                self.member.counters.snoozed.own();
                shared.arm(job.clone(), epoch, at);
            }
            Lost::Cancelled(ended) => shared.cancelled(job, ended, Some(&self.member)),
            Lost::Fenced => shared.late(job, attempt, &self.member),
            Lost::Outlived => {}
            Lost::Dying | Lost::Alive => unreachable!("`fail` does what it was told to"),
        }
    }

    fn record(
        &self,
        job: &JobRef,
        number: u32,
        started: Timestamp,
        token: FencingToken,
        cause: AttemptError,
    ) {
        let ended = self.shared.clock.now();
        let record = AttemptRecord { number, token, started, ended, cause };
        self.shared.record(job, record, Some(&self.member));
    }
}
