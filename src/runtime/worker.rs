//! A worker thread: it finds a job, runs an attempt (`worker/attempt.rs`), and sleeps when there is none.

mod attempt;

use core::cell::{Cell, RefCell};
use core::ptr::null;
use std::sync::Arc;

use crossbeam_deque::{Steal, Worker as Deque};

use super::cell::JobRef;
use super::events::Event;
use super::members::{Crew, Member};
use super::options::{JobKey, Priority};
use super::policy::live::Known;
use super::shared::Shared;
use crate::sync::thread;

/// Every so many turns the order of the queues is turned round, so that no queue starves another.
const FAIR_TURN: u32 = 61;
/// Every so many turns a job from outside comes before those that the worker's own jobs handed in.
const OUTSIDE_TURN: u32 = 8;
/// Jobs in a row from the slot of the job pushed last; then the others get a turn.
const LIFO_STREAK: u32 = 3;
/// Rounds of searching before a worker goes to sleep, each of which yields the processor.
const SEARCH_ROUNDS: u32 = 24;

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
        if tick.is_multiple_of(OUTSIDE_TURN)
            && let Some(job) = self.inject_one(Priority::Normal)
        {
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
}
