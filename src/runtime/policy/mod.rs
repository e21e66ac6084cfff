//! What stands around a job's attempts: deadline, unique and serial keys, gates, second attempts.
//!
//! The order is fixed, and the same for every job, in whatever order they were asked for:
//!
//! ```text
//! retry ┌► deadline ─► unique, serial key ─► rate limit ─► concurrency ─► breaker ─► attempt timeout ─► closure
//!       └──────────────────────────────────── backoff ◄──────────────────────────────────────────────────┘
//! ```
//!
//! | policy | asked | no means |
//! |---|---|---|
//! | deadline | when an attempt would begin, when a retry is planned, and by a timer | the job is dead: [`Stop::Deadline`](crate::retry::Stop::Deadline) |
//! | unique key | at the submit | [`SubmitError::Duplicate`](super::SubmitError::Duplicate) |
//! | serial key | once, before the first attempt | it waits in line; the key is its own to its end |
//! | gates: rate, concurrency, breaker | before each attempt | it is Suspended in that gate's [`Line`]; no attempt is used |
//! | attempt timeout | while an attempt runs | the attempt is given up |
//! | retry policy, budget | after each attempt | the job is dead, and its letter says who said so |
//!
//! # Gates
//!
//! A worker that takes a job asks its gates, one after another. If all give a permit, the attempt
//! begins; if one refuses, the permits are given back unused, and the job waits in that gate's line
//! ([`line`]). Whoever gives a permit back, and the timer that a refusal asked for, let the head of the
//! line try; it holds its permits when it goes back into a worker's queue, so that nobody is woken in
//! vain. If a breaker has opened when a worker takes it, it waits again, in its old place.
//!
//! The attempt's permits are kept with the job, by the attempt's epoch: whoever ends the attempt takes
//! them out, and so gives each back once: the worker when the closure has returned, or the driver when
//! the attempt is given up. A late attempt finds none. What an error says about whoever was called, the job
//! may decide ([`judged`]): it is asked before they are taken out, so that the driver finds them if it does
//! not come back.
//!
//! # Foreign code
//!
//! A gate may call some while it is asked and when a permit comes back: a breaker's listener, a clock. A
//! panic there goes no further; a gate that panics when asked has refused, and is asked again a little
//! later. If it never comes back, it has its thread, and the job that it was asked for, until that is
//! cancelled, out of time, or the runtime ends. A worker that asks has the job on its seat: so it is
//! missed like one that hangs in an attempt, and replaced. The others in the lines that the thread was
//! pumping go on after a second at most ([`line`]).

pub(crate) mod adapters;
mod gate;
mod judged;
pub(crate) mod line;
pub(crate) mod live;
pub(crate) mod shared;
pub(crate) mod unique;

mod tests;

use core::fmt;
use std::sync::Arc;

#[cfg(any(test, tenure_loom, tenure_shuttle))]
pub(crate) use gate::Pass;
pub(crate) use gate::{Gate, GateId, Permits, Stage, Verdict};
pub(crate) use judged::Judge;
use line::{Grant, Line, Refusal};

use super::cell::{JobRef, contained};
use crate::limit::Place;
use crate::lock::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Which attempt: two that share an epoch are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) epoch: u32,
    /// It was started beside another one.
    pub(crate) second: bool,
}

/// No place in any line.
pub(crate) const NO_TICKET: u64 = u64::MAX;

/// The gates that one job stands behind, and what it holds of theirs.
pub(crate) struct Gates {
    /// In the order in which they are asked.
    lines: Vec<(Stage, Arc<Line>)>,
    /// Its place among all that wait; it keeps that until it begins.
    ticket: AtomicU64,
    // No foreign code under it.
    held: Mutex<Held>,
}

/// What a job holds.
#[derive(Default)]
struct Held {
    /// For its next attempt.
    grant: Option<Grant>,
    /// Of its running ones.
    turns: Vec<(Turn, Permits)>,
}

impl Gates {
    pub(crate) fn new() -> Self {
        Self {
            lines: Vec::new(),
            ticket: AtomicU64::new(NO_TICKET),
            held: Mutex::new(Held::default()),
        }
    }

    /// The same gates for another job.
    pub(crate) fn again(&self) -> Self {
        let mut again = Self::new();
        again.lines.clone_from(&self.lines);
        again
    }

    /// One more gate, behind those of earlier stages and of its own.
    pub(crate) fn add(&mut self, stage: Stage, line: Arc<Line>) {
        let at = self.lines.partition_point(|(other, _)| *other <= stage);
        self.lines.insert(at, (stage, line));
    }

    /// Asks all gates. `own`: for its head, whose turn it is there.
    pub(crate) fn try_pass(&self, own: Option<&Arc<Line>>) -> Result<Permits, Refusal> {
        let ticket = self.ticket();
        let mut permits = Permits::default();
        for (_, line) in &self.lines {
            let is_own = own.is_some_and(|own| Arc::ptr_eq(own, line));
            // Behind those who were here before. Not by more than that: two lines whose heads send
            // each other to the back would go round for ever.
            let answer = if !is_own && line.oldest() < ticket { Err(None) } else { line.ask() };
            match answer {
                Ok(pass) => permits.add(pass),
                Err(retry_after) => {
                    permits.end(Verdict::Unused);
                    return Err(Refusal { line: Arc::clone(line), retry_after });
                }
            }
        }
        Ok(permits)
    }

    pub(crate) fn ticket(&self) -> u64 {
        // ORDERING: Relaxed: written before the job is put into a line, whose lock orders it.
        self.ticket.load(Ordering::Relaxed)
    }

    /// Its ticket; a new one if it has none. (A job may have two entries in the queues, and so two
    /// workers that ask.)
    pub(crate) fn ticket_or(&self, new: impl FnOnce() -> u64) -> u64 {
        if self.ticket() == NO_TICKET {
            // ORDERING: Relaxed: as above. Refused, another worker was faster, and that one's counts.
            let _ = self.ticket.compare_exchange(
                NO_TICKET,
                new(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        self.ticket()
    }

    /// It waits with this ticket.
    pub(crate) fn keep_ticket(&self, ticket: u64) {
        // ORDERING: Relaxed: as in `ticket`. The caller has made the job Gated, so nobody else changes it.
        self.ticket.store(ticket, Ordering::Relaxed);
    }

    /// Permits for the next attempt.
    fn grant(&self, grant: Grant) {
        let before = self.held.lock().grant.replace(grant);
        debug_assert!(before.is_none(), "one line at a time");
        if let Some(before) = before {
            before.give_back();
        }
    }

    /// Takes the permits for the next attempt, if it was granted some.
    pub(crate) fn take_grant(&self) -> Option<Grant> {
        self.held.lock().grant.take()
    }

    /// An attempt has begun with these.
    pub(crate) fn hold(&self, turn: Turn, permits: Permits) {
        // ORDERING: Relaxed: as in `ticket`.
        self.ticket.store(NO_TICKET, Ordering::Relaxed);
        self.held.lock().turns.push((turn, permits));
    }

    /// An attempt has come to this: its permits go back, those that nobody was faster to give back. Calls
    /// foreign code.
    ///
    /// One after another, the last one first: where a listener does not come back, whoever gives the
    /// attempt up finds the others.
    pub(crate) fn settle(&self, turn: Turn, verdict: Verdict) {
        while let Some(pass) = self.take_pass(turn) {
            gate::end(pass, verdict);
        }
    }

    fn take_pass(&self, turn: Turn) -> Option<Box<dyn gate::Pass>> {
        let mut held = self.held.lock();
        let at = held.turns.iter().position(|(other, _)| *other == turn)?;
        let pass = held.turns[at].1.pop();
        if pass.is_none() {
            drop(held.turns.swap_remove(at));
        }
        pass
    }

    /// The same for all attempts with this epoch.
    pub(crate) fn settle_all(&self, epoch: u32, verdict: Verdict) {
        for second in [false, true] {
            self.settle(Turn { epoch, second }, verdict);
        }
    }

    /// The job is over, or is about to be: it leaves the line, and gives back what it was granted.
    pub(crate) fn leave(&self) {
        let ticket = self.ticket();
        if ticket != NO_TICKET {
            for (_, line) in &self.lines {
                drop(line.withdraw(ticket));
            }
        }
        if let Some(grant) = self.take_grant() {
            grant.give_back();
        }
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        // With the last reference: nobody runs it, and nobody will.
        let held = core::mem::take(&mut *self.held.lock());
        if let Some(grant) = held.grant {
            grant.give_back();
        }
        for (_, permits) in held.turns {
            permits.end(Verdict::Ignored);
        }
    }
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lines.iter().map(|(stage, _)| stage)).finish()
    }
}

/// A place in a shedder's queue.
#[derive(Debug)]
pub(crate) struct Queued(Mutex<Option<Place>>);

impl Queued {
    pub(crate) fn new(place: Place) -> Self {
        Self(Mutex::new(Some(place)))
    }

    /// The job begins. Calls foreign code: the shedder's clock and listeners.
    pub(crate) fn start(&self) {
        let place = self.0.lock().take();
        if let Some(place) = place {
            contained(move || {
                place.start();
            });
        }
    }

    /// The job is over, and may not have begun.
    pub(crate) fn leave(&self) {
        let place = self.0.lock().take();
        if let Some(place) = place {
            contained(move || drop(place));
        }
    }
}

/// A job's gates. Of one that is in a line: it has some.
pub(crate) fn gates(job: &JobRef) -> Option<&Gates> {
    job.options.as_ref()?.gates.as_deref()
}
