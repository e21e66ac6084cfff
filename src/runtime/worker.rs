//! A worker thread: find a job, run an attempt, do what its end asks for.

use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;
use core::ptr::{NonNull, null};
use core::time::Duration;
use std::sync::Arc;

use crossbeam_deque::{Steal, Worker as Deque};

use super::cell::{Failure, JobRef, Ran};
use super::ctx::JobCtx;
use super::error::{AttemptError, AttemptRecord};
use super::events::Event;
use super::keys::{Held, NoLease};
use super::members::{Crew, Member};
use super::observe::Watched;
use super::options::{JobKey, Priority};
use super::policy::live::Known;
use super::policy::shared::Entrance;
use super::policy::{self, Permits, Turn, Verdict};
use super::seat::Seat;
use super::shared::Shared;
use super::state::{Lost, Parked, Start, State, Then};
use crate::clock::Timestamp;
use crate::lease::FencingToken;
use crate::retry::Stop;
use crate::sync::thread;

/// Every so many turns the order of the queues is turned round, so that no queue starves another.
const FAIR_TURN: u32 = 61;
/// Jobs in a row from the slot of the job pushed last; then the others get a turn.
const LIFO_STREAK: u32 = 3;
/// Rounds of searching before a worker goes to sleep, each of which yields the processor.
const SEARCH_ROUNDS: u32 = 24;
/// Below this, an attempt timeout is measured from a precise clock reading.
const PRECISE_BELOW: Duration = Duration::from_secs(1);

/// Where the stack is now, about.
#[inline(never)]
fn stack_pointer() -> usize {
    let here = 0_u8;
    (&raw const here).addr()
}

crate::sync::thread_local! {
    static LOCAL: Cell<*const Local> = const_cell();
}

fn const_cell() -> Cell<*const Local> {
    Cell::new(null())
}

/// A worker, as its own thread sees it.
pub(crate) struct Local {
    pub(crate) shared: Arc<Shared>,
    pub(crate) member: Arc<Member>,
    deque: Deque<JobRef>,
    tick: Cell<u32>,
    streak: Cell<u32>,
    /// Attempts that wait inside each other on this thread.
    depth: Cell<usize>,
    /// Where the thread's stack begins, about.
    stack: Cell<usize>,
    /// The keys of those that have one.
    keys: RefCell<Vec<JobKey>>,
    others: RefCell<(u64, Crew)>,
    random: Cell<u64>,
    /// The retry budget, as it was when we last asked.
    budget: RefCell<Known>,
    #[cfg(feature = "metrics")]
    pub(crate) last_end: super::observe::meter::LastEnd,
}

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

/// Starts a worker thread and makes it a member.
pub(crate) fn spawn(shared: &Arc<Shared>) -> std::io::Result<usize> {
    let deque = Deque::new_fifo();
    let index = shared.members.next_index();
    let member = Member::new(index, deque.stealer());
    #[cfg(feature = "metrics")]
    let member = member.measured(shared.meter.as_ref());
    let member = Arc::new(member);
    let builder = thread::Builder::new()
        .name(format!("{}-{index}", shared.config.thread_name))
        .stack_size(shared.config.stack_size);
    let local = Local {
        shared: Arc::clone(shared),
        member: Arc::clone(&member),
        deque,
        tick: Cell::new(0),
        streak: Cell::new(0),
        depth: Cell::new(0),
        stack: Cell::new(0),
        keys: RefCell::new(Vec::new()),
        others: RefCell::new((0, Arc::from([]))),
        random: Cell::new(
            shared.config.seed ^ (index as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93),
        ),
        budget: RefCell::new(Known::default()),
        #[cfg(feature = "metrics")]
        last_end: super::observe::meter::LastEnd::default(),
    };
    shared.members.join(&member);
    match builder.spawn(move || local.main()) {
        // Detached: a stuck thread cannot be waited for, and the others are counted.
        Ok(_) => Ok(index),
        Err(error) => {
            shared.members.part(&member, &shared.counters);
            Err(error)
        }
    }
}

/// Calls `f` with this thread's worker, if it is one.
pub(crate) fn with_local<R>(f: impl FnOnce(Option<&Local>) -> R) -> R {
    let local = LOCAL.try_with(Cell::get).unwrap_or(null());
    // SAFETY: set by `main` of this very thread for as long as the worker is on its stack.
    f(unsafe { local.as_ref() })
}

/// Keeps a job on this thread if it is a worker of `shared`; else gives it back.
pub(crate) fn push_local(shared: &Shared, job: JobRef) -> Option<JobRef> {
    with_local(|local| match local {
        Some(local) if core::ptr::eq(&raw const *local.shared, shared) => {
            if let Some(older) = local.member.put_lifo(job) {
                local.deque.push(older);
            }
            None
        }
        _ => Some(job),
    })
}

impl Local {
    fn main(self) {
        LOCAL.with(|slot| slot.set(&raw const self));
        self.stack.set(stack_pointer());
        let shared = Arc::clone(&self.shared);
        if let Some(hook) = &shared.config.on_start {
            shared.contained("start hook", || hook(self.member.index));
        }
        while self.turn() {}
        if let Some(hook) = &shared.config.on_stop {
            shared.contained("stop hook", || hook(self.member.index));
        }
        LOCAL.with(|slot| slot.set(null()));
        self.leave();
    }

    /// Whether another attempt may be run on top of what is on the stack: half of it is free. The
    /// other half is for what that attempt does itself.
    pub(crate) fn has_stack(&self) -> bool {
        self.stack.get().abs_diff(stack_pointer()) < self.shared.config.stack_size / 2
    }

    /// One job, or one sleep. False: the thread ends.
    fn turn(&self) -> bool {
        if !self.come_back() || self.shared.closing.has_begun() {
            return false;
        }
        if let Some(job) = self.next() {
            self.run(job);
            return true;
        }
        let sleepers = &self.shared.sleepers;
        sleepers.begin_search();
        let mut surplus = false;
        let found = loop {
            // Taken out as stuck while it stood up: the driver was a moment too late to see that.
            if self.shared.closing.has_begun() || self.member.is_stuck() {
                break None;
            }
            if let Some(job) = self.search() {
                break Some(job);
            }
            if self.steps_down() {
                surplus = true;
                break None;
            }
            self.member.counters.parks.own();
            sleepers.sleep(|| {
                self.has_work()
                    || self.shared.closing.has_begun()
                    || self.member.is_stuck()
                    || self.is_surplus()
            });
        };
        sleepers.end_search(|| self.has_work());
        if let Some(job) = found {
            self.run(job);
        }
        !surplus
    }

    /// Between jobs: is the thread still wanted?
    fn come_back(&self) -> bool {
        if !self.member.is_stuck() {
            return true;
        }
        let Some(goes_on) = self.shared.members.come_back(&self.member) else { return true };
        self.member.counters.returned_workers.own();
        self.shared.subscribers.tell(|| Event::WorkerReturned { worker: self.member.index });
        goes_on
    }

    fn leave(self) {
        let Self { shared, member, deque, .. } = self;
        // What is left goes to the others; push sweeps if there are none any more.
        while let Some(job) = member.take_lifo().or_else(|| deque.pop()) {
            shared.push(job);
        }
        shared.members.part(&member, &shared.counters);
        if shared.closing.has_begun() {
            shared.bell.ring();
        }
    }

    // --- finding --------------------------------------------------------------------------------

    fn next(&self) -> Option<JobRef> {
        let shared = &*self.shared;
        if shared.is_paused() {
            return None;
        }
        let tick = self.tick.get().wrapping_add(1);
        self.tick.set(tick);
        if tick.is_multiple_of(FAIR_TURN) {
            // Whose turn it is; the others if there is nothing.
            let turn = tick / FAIR_TURN;
            for other in 0..3 {
                let job = match (turn + other) % 3 {
                    0 => self.inject_one(Priority::Low),
                    1 => self.inject_one(Priority::Normal),
                    _ => self.deque.pop().or_else(|| self.member.take_lifo()),
                };
                if job.is_some() {
                    return job;
                }
            }
        }
        if let Some(job) = self.inject_one(Priority::High) {
            return Some(job);
        }
        if self.streak.get() < LIFO_STREAK
            && let Some(job) = self.member.take_lifo()
        {
            self.streak.set(self.streak.get() + 1);
            return Some(job);
        }
        self.streak.set(0);
        self.deque
            .pop()
            .or_else(|| self.member.take_lifo())
            .or_else(|| self.inject_batch())
            .or_else(|| self.inject_one(Priority::Low))
    }

    fn inject_one(&self, priority: Priority) -> Option<JobRef> {
        let injector = self.shared.injector(priority);
        if injector.is_empty() {
            return None;
        }
        loop {
            match injector.steal() {
                Steal::Success(job) => return Some(job),
                Steal::Empty => return None,
                Steal::Retry => {}
            }
        }
    }

    fn inject_batch(&self) -> Option<JobRef> {
        let injector = self.shared.injector(Priority::Normal);
        if injector.is_empty() {
            return None;
        }
        loop {
            match injector.steal_batch_and_pop(&self.deque) {
                Steal::Success(job) => return Some(job),
                Steal::Empty => return None,
                Steal::Retry => {}
            }
        }
    }

    /// Looks everywhere, for a while.
    fn search(&self) -> Option<JobRef> {
        for round in 0..SEARCH_ROUNDS {
            if let Some(job) = self.next() {
                return Some(job);
            }
            if self.shared.is_paused() {
                return None;
            }
            // The slots of others last: what lies there is about to be run where it is warm.
            if let Some(job) = self.steal(round + 1 == SEARCH_ROUNDS) {
                self.member.counters.steals.own();
                return Some(job);
            }
            thread::yield_now();
        }
        None
    }

    fn steal(&self, slots: bool) -> Option<JobRef> {
        let mut others = self.others.borrow_mut();
        let (version, crew) = &mut *others;
        self.shared.members.refresh(version, crew);
        // A step of xorshift: where to begin need not be more random than that.
        let mut random = self.random.get() | 1;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        let count = crew.len();
        let first = if count == 0 { 0 } else { random as usize % count };
        let turn = (0..count).map(|i| &crew[(first + i) % count]);
        let mut turn = turn.filter(|other| !Arc::ptr_eq(other, &self.member));
        if slots {
            turn.find_map(|other| other.steal_any())
        } else {
            turn.find_map(|other| other.steal_into(&self.deque))
        }
    }

    fn has_work(&self) -> bool {
        if self.shared.is_paused() {
            return false;
        }
        let mut others = self.others.borrow_mut();
        let (version, crew) = &mut *others;
        self.shared.members.refresh(version, crew);
        self.shared.has_injected() || crew.iter().any(|other| other.has_work())
    }

    /// Counts its turns: two in a row are next to each other.
    #[cfg(feature = "metrics")]
    pub(crate) fn turn_number(&self) -> u32 {
        self.tick.get()
    }

    /// Whether the attempt that runs is not on top of another one.
    #[cfg(feature = "metrics")]
    pub(crate) fn is_outermost(&self) -> bool {
        self.depth.get() <= 1
    }

    // --- running --------------------------------------------------------------------------------

    /// Runs one attempt of a job, if it is Ready.
    pub(crate) fn run(&self, job: JobRef) {
        let shared = &*self.shared;
        let permits = match &job.options {
            Some(options) if options.guarded => match shared.enter(&job, &self.member) {
                Entrance::Open(permits) => permits,
                Entrance::Shut => return,
            },
            _ => None,
        };
        match job.state.start(job.is_task()) {
            Start::Stale(word) => {
                if let Some(permits) = permits {
                    permits.end(Verdict::Unused);
                }
                if word.state() == State::Leased && self.is_asked_for(&job, word.epoch()) {
                    self.run_beside(job, word.epoch());
                } else {
                    shared.stale(&job, Some(&self.member));
                }
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

    fn is_asked_for(&self, job: &JobRef, epoch: u32) -> bool {
        job.options.as_ref().and_then(|o| o.hedge.as_ref()).is_some_and(|hedge| hedge.take(epoch))
    }

    /// Runs a second attempt beside one that takes long.
    #[cold]
    fn run_beside(&self, job: JobRef, epoch: u32) {
        let shared = &*self.shared;
        // A gate that refuses: then there is none.
        let Entrance::Open(permits) = shared.enter_beside(&job) else { return };
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
        let depth = self.depth.get();
        let nested = (depth > 0).then(|| self.member.nested_seat(depth));
        let seat = nested.as_deref().unwrap_or(&self.member.seat);
        let taken = Taken { depth: &self.depth, seat, job: ManuallyDrop::new(job) };
        self.depth.set(depth + 1);
        self.attempt(&taken.job, turn, attempt, seat);
    }

    /// One attempt.
    fn attempt(&self, job: &JobRef, turn: Turn, attempt: u32, seat: &Seat) {
        let shared = &*self.shared;
        let epoch = turn.epoch;
        self.member.counters.started.own();
        let timeout = shared.attempt_timeout(job);
        let (began, deadline) = match timeout {
            None => (shared.clock.coarse(), Timestamp::NEVER),
            Some(timeout) if timeout < PRECISE_BELOW => {
                let now = shared.clock.now();
                (now, now.saturating_add(timeout))
            }
            Some(timeout) => {
                let now = shared.clock.coarse();
                (now, now.saturating_add(shared.clock.coarse_lag()).saturating_add(timeout))
            }
        };
        seat.sit(job, epoch, deadline, timeout.unwrap_or(Duration::MAX), began);
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
                let ran = self.call(job, turn, attempt, serial.token());
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
                        Ran::Failed(Failure { cause, retryable: true, delay: None })
                    }
                };
                (None, FencingToken::of(0, 0), ran)
            }
            Some(Ok(held)) => {
                let token = held.token();
                (Some(held), token, self.call(job, turn, attempt, token))
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
        let shared = &*self.shared;
        let Tried { turn, attempt, held, .. } = tried;
        let epoch = turn.epoch;
        match ran {
            Ran::Written => {
                self.member.counters.succeeded.own();
                shared.live.deposit(&self.budget);
                // Before anybody else may begin on the key: a lease in the way would be revoked.
                release(held);
                let ended = job.state.publish(State::Succeeded, true);
                shared.finish(job, ended, false);
            }
            Ran::Fenced => {
                release(held);
                shared.late(job, attempt, &self.member);
            }
            Ran::Failed(failure) => {
                self.failed(job, Tried { held, ..tried }, failure);
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

    /// Runs the closure.
    fn call(&self, job: &JobRef, turn: Turn, attempt: u32, token: FencingToken) -> Ran {
        // SAFETY: the job outlives the call, and the context with it: `attempt` gives its reference
        // up at the earliest when it has stood up.
        let ctx =
            unsafe { JobCtx::new(NonNull::new_unchecked(job.as_raw()), turn, attempt, token) };
        let key = job.options.as_ref().and_then(|o| o.serial.as_ref()).map(|s| &s.key);
        if let Some(key) = key {
            self.keys.borrow_mut().push(key.clone());
        }
        let watched = Watched::begin(self, job, turn.epoch, attempt);
        // SAFETY: `start` gave us this epoch, and we have not left.
        let ran = unsafe { job.attempt(&ctx) };
        watched.end(&ran);
        if key.is_some() {
            self.keys.borrow_mut().pop();
        }
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
