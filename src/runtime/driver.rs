//! The driver: a thread that fires timers, watches the seats, and sees the shutdown through.
//!
//! It sleeps until the earliest deadline there is, exactly, and for ever if there is none: an idle
//! runtime wakes nobody. Its sleep is ended early by a pusher with an earlier deadline (see
//! [`intake`](super::intake)), by a clock that is moved by hand, and by the shutdown.
//!
//! # Late by itself
//!
//! A driver that wakes up L later than it meant to (the machine was suspended, or starved) cannot
//! know which attempts made progress meanwhile. It extends every lease by L; and where L is a quarter
//! of a lease or more, the lease lasts at least until L from now, or its own length if that is
//! shorter: three times for one attempt, so that a machine that is always late still finds out who is
//! stuck. An attempt that was overdue before the driver first saw it is treated the same.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use super::cell::JobRef;
use super::error::{AttemptError, AttemptRecord};
use super::events::Event;
use super::members::{Crew, Member};
use super::options::JobId;
use super::seat::{Seat, Sitting};
use super::shared::Shared;
use super::shutdown::Abandoned;
use super::state::{Lost, Then};
use super::worker;
use crate::clock::{Clock, Timestamp, nanos_saturating};
use crate::lease::FencingToken;
use crate::sync::thread;
use crate::timer::Wheel;

/// Graces for one attempt; see the file's docs.
const GRACES: u32 = 3;
/// After the system refused a thread, how long until it is asked again.
const THREAD_RETRY: Duration = Duration::from_millis(100);

/// What the driver knows about a sitting.
#[derive(Debug)]
struct Note {
    sitting: Sitting,
    /// Until when it is left alone.
    until: Timestamp,
    graces: u32,
    /// It was over, by its word, but its worker had not stood up.
    over: bool,
}

struct Driver {
    shared: Arc<Shared>,
    wheel: Wheel<(JobRef, u32)>,
    /// By worker, whose number is never used again, and seat.
    notes: HashMap<(usize, usize), Note>,
    crew: (u64, Crew),
    /// Workers that the system gave no thread for.
    owed: usize,
}

/// Starts the driver's thread.
pub(crate) fn spawn(shared: &Arc<Shared>) -> std::io::Result<()> {
    let name = format!("{}-driver", shared.config.thread_name);
    let driver = Driver {
        shared: Arc::clone(shared),
        wheel: Wheel::new(shared.clock.now()),
        notes: HashMap::new(),
        crew: (0, Arc::from([])),
        owed: 0,
    };
    thread::Builder::new().name(name).spawn(move || driver.main()).map(drop)
}

impl Driver {
    fn main(mut self) {
        let shared = Arc::clone(&self.shared);
        let _ = shared.driver.set(std::thread::current().id());
        let mut planned = Timestamp::NEVER;
        loop {
            shared.bell.awake();
            let now = shared.clock.now();
            let lag = now.saturating_since(planned);
            planned = Timestamp::NEVER;
            self.take_in();
            let closing = shared.closing.has_begun();
            if closing {
                self.sweep();
                if self.close(now) {
                    return;
                }
            }
            self.fire(now);
            let mut next = self.watch(now, lag);
            if let Some(timer) = self.wheel.next_deadline() {
                next = next.min(timer);
            }
            if closing {
                next = next.min(shared.closing.deadline());
            }
            if self.owed > 0 {
                self.repay();
                next = next.min(now.saturating_add(THREAD_RETRY));
            }
            shared.bell.announce(next);
            if !shared.intake.is_empty()
                || shared.closing.has_begun() != closing
                || self.earliest() < next
            {
                continue;
            }
            planned = next;
            shared.bell.listen(shared.clock.real_time_until(next));
        }
    }

    fn take_in(&mut self) {
        let taken: Vec<_> = self.shared.intake.take().collect();
        for arming in taken.into_iter().rev() {
            self.wheel.insert(arming.at, (arming.job, arming.epoch));
        }
    }

    fn fire(&mut self, now: Timestamp) {
        while let Some((job, epoch)) = self.wheel.expire(now) {
            self.shared.fire(job, epoch);
        }
    }

    // --- watching -------------------------------------------------------------------------------

    /// Judges the seats. The earliest moment at which one has to be judged again.
    fn watch(&mut self, now: Timestamp, lag: Duration) -> Timestamp {
        let shared = Arc::clone(&self.shared);
        let mut worst = lag;
        shared.members.refresh(&mut self.crew.0, &mut self.crew.1);
        let crew = Arc::clone(&self.crew.1);
        let mut next = Timestamp::NEVER;
        let mut notes = core::mem::take(&mut self.notes);
        let mut kept = HashMap::new();
        for member in crew.iter() {
            member.each_seat(|seat| {
                let Some((sitting, deadline)) = seat.glance() else { return };
                if deadline.is_never() {
                    return;
                }
                let at = (member.index, core::ptr::from_ref(seat).addr());
                let known = notes.remove(&at).filter(|note| note.sitting == sitting);
                let (mut note, late) = match known {
                    Some(note) => (note, lag),
                    None => (
                        Note { sitting, until: deadline, graces: 0, over: false },
                        now.saturating_since(deadline),
                    ),
                };
                if !late.is_zero() && !note.until.is_never() {
                    worst = worst.max(late);
                    self.extend(seat, &mut note, now, late);
                }
                if note.until <= now {
                    self.judge(member, seat, &mut note, now);
                }
                next = next.min(note.until);
                kept.insert(at, note);
            });
        }
        self.notes = kept;
        if !worst.is_zero() {
            shared.subscribers.tell(|| Event::DriverLate { lag: worst });
        }
        next
    }

    /// We were late: see the file's docs.
    fn extend(&self, seat: &Seat, note: &mut Note, now: Timestamp, late: Duration) {
        note.until = note.until.saturating_add(late);
        if note.graces == GRACES {
            return;
        }
        let Some(pinned) = seat.pin(note.sitting) else { return };
        let Some(timeout) = self.shared.attempt_timeout(&pinned.job()) else { return };
        if late >= timeout / 4 {
            note.graces += 1;
            note.until = note.until.max(now.saturating_add(late.min(timeout)));
        }
    }

    /// A lease is out of time.
    fn judge(&mut self, member: &Arc<Member>, seat: &Seat, note: &mut Note, now: Timestamp) {
        let Some(pinned) = seat.pin(note.sitting) else {
            // Over by now; whoever sits there next has rung, or will be seen before we sleep.
            note.until = Timestamp::NEVER;
            return;
        };
        if pinned.deadline > now {
            // What we glanced at was torn: the pinned one is true.
            note.until = pinned.deadline;
            return;
        }
        let job = pinned.job();
        let epoch = note.sitting.epoch();
        let shared = Arc::clone(&self.shared);
        let Some(timeout) = shared.attempt_timeout(&job) else { return };
        let attempt = u32::from(job.state.peek().attempts()) + 1;
        let began = Timestamp::from_nanos(
            pinned.deadline.as_nanos().saturating_sub(nanos_saturating(timeout)),
        );
        let decision = self.shared.decide(&job, attempt, began, true, None);
        let then = if decision.is_ok() { Then::Retry } else { Then::Die };
        let lost = job.state.rescue(epoch, then, false);
        match lost {
            Lost::Alive => {
                note.until = now.saturating_add(timeout);
                return;
            }
            Lost::Fenced if !note.over => {
                // Its word has moved on, so its worker is on its way out of here: in the drop of a
                // value or a waker at worst, which is foreign code, too. One more period.
                note.over = true;
                note.until = now.saturating_add(timeout);
                return;
            }
            Lost::Fenced => {}
            Lost::Backoff { .. } | Lost::Dying | Lost::Cancelled(_) => {
                let cause = AttemptError::TimedOut { after: timeout };
                let serial = job.options.as_ref().and_then(|o| o.serial.as_ref());
                if let Some(serial) = serial {
                    shared.keys.revoke(serial);
                }
                let token = serial
                    .map_or_else(|| FencingToken::of(0, u64::from(epoch)), |serial| serial.token());
                let record =
                    AttemptRecord { number: attempt, token, started: began, ended: now, cause };
                self.shared.record(&job, record, None);
            }
        }
        note.until = Timestamp::NEVER;
        self.replace(member, &job, attempt);
        match (lost, decision) {
            (Lost::Backoff { epoch }, Ok(delay)) => {
                self.shared.retry(job, epoch, attempt + 1, delay, None);
            }
            (Lost::Dying, Err(stop)) => self.shared.bury(&job, stop, false, None),
            (Lost::Cancelled(ended), _) => self.shared.cancelled(&job, ended, None),
            (Lost::Fenced, _) => {}
            (Lost::Backoff { .. } | Lost::Dying | Lost::Alive, _) => {
                unreachable!("`rescue` does what it was told to")
            }
        }
    }

    /// Takes a stuck worker out and puts another one in its place.
    fn replace(&mut self, member: &Arc<Member>, job: &JobRef, attempt: u32) {
        let shared = &self.shared;
        if member.is_stuck() {
            return;
        }
        let room = shared.members.stuck() < shared.config.max_stuck_workers;
        if !shared.members.retire(member, room) {
            return;
        }
        // It may have stood up meanwhile, and sleep: it has to notice.
        shared.sleepers.notify_all();
        shared.counters.replaced_workers.share(1);
        let mut replacement = None;
        if room && !shared.closing.has_begun() {
            match worker::spawn(shared) {
                Ok(index) => replacement = Some(index),
                Err(_) => {
                    self.owed += 1;
                }
            }
        }
        shared.subscribers.tell(|| Event::WorkerStuck {
            worker: member.index,
            job: JobId(job.id),
            attempt,
            replacement,
        });
    }

    /// Asks the system again for the threads that it refused.
    fn repay(&mut self) {
        while self.owed > 0 && worker::spawn(&self.shared).is_ok() {
            self.owed -= 1;
        }
    }

    /// The earliest moment at which a seat has to be looked at, by what is known now. For the look
    /// between announcing a sleep and sleeping.
    fn earliest(&mut self) -> Timestamp {
        self.shared.members.refresh(&mut self.crew.0, &mut self.crew.1);
        let mut next = Timestamp::NEVER;
        for member in self.crew.1.iter() {
            member.each_seat(|seat| {
                let Some((sitting, deadline)) = seat.glance() else { return };
                let at = (member.index, core::ptr::from_ref(seat).addr());
                let until = match self.notes.get(&at) {
                    Some(note) if note.sitting == sitting => note.until,
                    _ => deadline,
                };
                next = next.min(until);
            });
        }
        next
    }

    // --- the end --------------------------------------------------------------------------------

    /// Cancels everything that has not begun.
    fn sweep(&mut self) {
        self.shared.sweep();
        let timers: Vec<_> = self.wheel.drain().collect();
        for (job, _) in timers {
            self.shared.cancel_by_shutdown(&job);
        }
    }

    /// True: all is over.
    fn close(&mut self, now: Timestamp) -> bool {
        let shared = &*self.shared;
        if shared.members.active() > 0 && now < shared.closing.deadline() {
            return false;
        }
        let mut abandoned = Vec::new();
        let mut rescued = 0;
        for member in shared.members.all().iter().filter(|member| !member.is_exempt()) {
            member.each_seat(|seat| {
                let Some((sitting, _)) = seat.glance() else { return };
                let Some(pinned) = seat.pin(sitting) else { return };
                let job = pinned.job();
                // Not Leased, if the attempt that sits here is a late one: then it ends like others.
                shared.cancel_by_shutdown(&job);
                let attempt = u32::from(job.state.peek().attempts()) + 1;
                let lost = job.state.rescue(sitting.epoch(), Then::Die, true);
                abandoned.push(Abandoned::new(&job, attempt, member.index));
                if let Some(serial) = job.options.as_ref().and_then(|o| o.serial.as_ref()) {
                    shared.keys.revoke(serial);
                }
                if let Lost::Cancelled(ended) = lost {
                    shared.cancelled(&job, ended, None);
                    rescued += 1;
                }
            });
        }
        shared.closing.finish(abandoned, rescued);
        shared.subscribers.close();
        // What was pushed after the sweep was swept by its pusher, who saw the phase.
        true
    }
}
