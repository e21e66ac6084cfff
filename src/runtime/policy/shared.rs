//! What a runtime does for its jobs' policies.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::line::{Host, Line};
use super::{Gate, GateId, Turn, Verdict, gates};
use crate::clock::{Clock, Timestamp};
use crate::limit::Listener;
use crate::lock::Mutex;
use crate::retry::Stop;
use crate::runtime::cell::JobRef;
use crate::runtime::members::Member;
use crate::runtime::shared::{Notice, Shared};
use crate::runtime::state::Word;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// After so many jobs that ended with a timer left, the driver is woken to let go of them, should it
/// still be asleep.
const CLEAR_UP: usize = 256;

/// The lines before gates, the tickets of those who wait there, the timers left behind.
pub(crate) struct Lines {
    // No foreign code under it.
    lines: Mutex<HashMap<GateId, Weak<Line>>>,
    /// The next ticket.
    tickets: AtomicU64,
    left_behind: AtomicUsize,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self {
            lines: Mutex::new(HashMap::new()),
            tickets: AtomicU64::new(0),
            left_behind: AtomicUsize::new(0),
        }
    }

    /// This runtime's line before a gate.
    pub(crate) fn before(&self, gate: Arc<dyn Gate>, host: Weak<dyn Host>) -> Arc<Line> {
        let id = gate.id();
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get(&id).and_then(Weak::upgrade) {
            return line;
        }
        let line = Line::new(Arc::clone(&gate), host);
        if lines.len() >= 32 && lines.len().is_power_of_two() {
            lines.retain(|_, line| line.strong_count() > 0);
        }
        lines.insert(id, Arc::downgrade(&line));
        drop(lines);
        let listener = Arc::downgrade(&line);
        gate.watch(listener as Weak<dyn Listener>);
        // What came before it watched.
        line.pump();
        line
    }

    fn next_ticket(&self) -> u64 {
        // ORDERING: Relaxed: unique, and in some order, is enough.
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// All who wait in a line, out of it.
    pub(crate) fn drain(&self) -> Vec<JobRef> {
        let lines: Vec<_> = self.lines.lock().values().filter_map(Weak::upgrade).collect();
        lines.iter().flat_map(|line| line.drain()).collect()
    }
}

/// What a worker that took a job's entry is to do.
pub(crate) enum Entrance {
    /// Start it; with these permits, if it has gates.
    Open(Option<super::Permits>),
    /// Nothing: it waits, or is over.
    Shut,
    /// The job was not Ready: what to do with such an entry.
    Stale(Word),
}

impl Shared {
    /// A worker took an entry of a job with policies, which was Ready: may an attempt begin?
    pub(crate) fn enter(&self, job: &JobRef, member: &Member) -> Entrance {
        if self.is_late(job) {
            self.expire(job);
            return Entrance::Shut;
        }
        if let Some(place) = job.options.as_ref().and_then(|o| o.place.as_ref()) {
            place.start();
        }
        let Some(gates) = gates(job) else { return Entrance::Open(None) };
        if let Some(grant) = gates.take_grant() {
            if grant.are_current() {
                return Entrance::Open(Some(grant.spend()));
            }
            grant.give_back();
        }
        match gates.try_pass(None) {
            Ok(permits) => Entrance::Open(Some(permits)),
            Err(refusal) => {
                let ticket = gates.ticket_or(|| self.lines.next_ticket());
                if job.state.gate() {
                    // Another worker's attempt may have come and gone meanwhile, and the ticket with it.
                    gates.keep_ticket(ticket);
                    member.counters.gated.own();
                    refusal.line.enter(job.clone(), ticket);
                } else {
                    self.stale(job, Some(member));
                }
                Entrance::Shut
            }
        }
    }

    /// The same for a second attempt, which does not wait: with what it may begin, if it may.
    #[expect(clippy::option_option, reason = "refused, or let through with or without gates")]
    pub(crate) fn enter_beside(&self, job: &JobRef) -> Option<Option<super::Permits>> {
        match gates(job) {
            None => Some(None),
            Some(gates) => gates.try_pass(None).ok().map(Some),
        }
    }

    /// The driver gave an attempt up.
    pub(crate) fn settle_lost(&self, job: &JobRef, epoch: u32, verdict: Verdict) {
        if let Some(gates) = gates(job) {
            gates.settle_all(epoch, verdict);
        }
    }

    // --- deadlines ------------------------------------------------------------------------------

    /// When the job's deadline is.
    pub(crate) fn deadline_of(job: &JobRef) -> Option<Timestamp> {
        job.options.as_ref().and_then(|o| o.deadline)
    }

    fn is_late(&self, job: &JobRef) -> bool {
        Self::deadline_of(job).is_some_and(|deadline| deadline <= self.clock.now())
    }

    /// Whether nothing of the job may begin after so long.
    pub(crate) fn would_be_late(&self, job: &JobRef, delay: Duration) -> bool {
        Self::deadline_of(job)
            .is_some_and(|deadline| self.clock.now().saturating_add(delay) >= deadline)
    }

    /// Has a job looked at when its deadline comes.
    pub(crate) fn watch_deadline(&self, job: JobRef, at: Timestamp) {
        self.send(Notice::Deadline { job, at }, at);
    }

    /// The deadline has come. One that runs is left alone; when it fails, there is no other attempt.
    pub(crate) fn expire(&self, job: &JobRef) {
        let Some(from) = job.state.expire() else { return };
        let (dead, ended) = self.die(job, Stop::Deadline, false, None);
        self.finish_from(job, ended, from);
        self.tell_dead(dead);
    }

    // --- second attempts ------------------------------------------------------------------------

    /// An attempt has begun: if it takes long, another one is to begin beside it.
    pub(crate) fn watch_hedge(&self, job: &JobRef, turn: Turn) {
        let Some(hedge) = job.options.as_ref().and_then(|o| o.hedge.as_ref()) else { return };
        if turn.second {
            return;
        }
        let at = self.clock.now().saturating_add(hedge.after);
        if !at.is_never() {
            self.send(Notice::Hedge { job: job.clone(), epoch: turn.epoch, at }, at);
        }
    }

    /// The attempt takes long: a worker is to begin another one beside it.
    pub(crate) fn hedge(&self, job: JobRef, epoch: u32) {
        let Some(hedge) = job.options.as_ref().and_then(|o| o.hedge.as_ref()) else { return };
        if job.state.is_current(epoch) {
            hedge.ask(epoch);
            self.push(job);
        }
    }

    // --- ends -----------------------------------------------------------------------------------

    /// The job is over: it leaves the lists that it is in. (A plain job is in none.) Calls no foreign code.
    pub(crate) fn sign_off(&self, job: &JobRef) {
        let Some(options) = &job.options else { return };
        self.tasks.remove(job);
        if let Some(key) = &options.unique {
            self.uniques.remove(key, job);
        }
        if options.leaves_timers() {
            self.intake.push(Notice::Forget(job.clone()));
            // ORDERING: Relaxed: a number.
            let left = self.lines.left_behind.fetch_add(1, Ordering::Relaxed);
            if left % CLEAR_UP == CLEAR_UP - 1 {
                self.bell.ring();
            }
            if self.closing.sees_begun() {
                self.sweep_intake();
            }
        }
    }

    /// The job is over: it leaves its gates, and gives back what it was granted there. Calls foreign code, which
    /// may not return: so after its key was passed on, and who waits for it was woken.
    pub(crate) fn leave_gates(job: &JobRef) {
        let Some(options) = &job.options else { return };
        if let Some(gates) = &options.gates {
            gates.leave();
        }
        if let Some(place) = &options.place {
            place.leave();
        }
    }
}

/// The lines' runtime.
impl Host for Shared {
    fn go_on(&self, job: JobRef) {
        self.push(job);
    }

    fn gone(&self, job: &JobRef) {
        self.stale(job, None);
    }

    fn lined_up(&self) {
        if self.closing.sees_begun() {
            self.sweep();
        }
    }

    fn most_granted(&self) -> usize {
        self.config.workers
    }

    fn moment_after(&self, delay: Duration) -> Timestamp {
        self.clock.now().saturating_add(delay)
    }

    fn call_at(&self, line: Arc<Line>, at: Timestamp) {
        self.send(Notice::Line { line, at }, at);
    }
}
