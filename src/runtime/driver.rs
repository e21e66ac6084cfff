//! The driver: fires timers, watches the seats, and sees the shutdown through.
//!
//! It sleeps until the earliest deadline there is, exactly, and for ever if there is none: an idle
//! runtime wakes nobody. Its sleep is ended early by a pusher with an earlier deadline (see
//! [`intake`](super::intake)), by a clock that is moved by hand, and by the shutdown.
//!
//! # Held up
//!
//! A driver calls foreign code: listeners of events, wakers, the drops of users' values. So all that may
//! do that is a [`Deed`], done with the driver's token put down: if it does not come back, another thread
//! drives on (see [`helm`](crate::timer::helm)). What it was about to do with the rest of the deed waits
//! for its return: so a deed does first what the job needs, and calls then.
//!
//! # Late by itself
//!
//! A driver that wakes up L later than it meant to (the machine was suspended, or starved) cannot
//! know which attempts made progress meanwhile. It extends every lease by L; and where L is a quarter
//! of a lease or more, the lease lasts at least until L from now, or its own length if that is
//! shorter: three times for one attempt, so that a machine that is always late still finds out who is
//! stuck. An attempt that was overdue before the driver first saw it is treated the same. While the
//! driver is awake, or is held up, it cannot know; then L is what its sentinel woke up too late, on a
//! clock that goes by itself.

use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::cell::JobRef;
use super::events::Event;
use super::judge::{Case, Evicted, Note, Place, evict};
use super::members::Crew;
use super::shared::{Errand, Notice, Shared, Swept};
use super::shutdown::Abandoned;
use super::worker;
use crate::clock::{Clock, Timestamp};
use crate::timer::Wheel;
use crate::timer::crew::{self, Drive};
use crate::timer::helm::{Helm, PERIOD};

/// Graces for one attempt; see the file's docs.
const GRACES: u32 = 3;
/// After the system refused a thread, how long until it is asked again.
const THREAD_RETRY: Duration = Duration::from_millis(100);

/// What may run foreign code.
enum Deed {
    /// A timer is due.
    Fire(JobRef, u32),
    /// We were late by so much.
    TellLate(Duration),
    /// A lease is out of time.
    Judge(Case),
    /// A reference is no longer needed; it may be the last one.
    Release(JobRef),
    /// The end: what waited was cancelled.
    Cancel(JobRef, Swept),
    /// The end: an attempt is no longer waited for.
    Evict(JobRef, Evicted),
    /// The end: nobody is told of anything any more.
    Hush,
    /// The end: nothing is replayed any more.
    LetGo,
}

/// What a deed came to.
enum Outcome {
    Done,
    Judged { place: Place, note: Note, owed: bool },
}

/// Where in its round the driver is.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Begin,
    /// Everything that waits in a queue is cancelled, one after another.
    Sweep,
    Fire,
    Watch,
    Sleep,
    /// The report is next.
    Report,
    Ended,
}

struct Driver {
    shared: Arc<Shared>,
    wheel: Wheel<(JobRef, u32)>,
    notes: HashMap<Place, Note>,
    crew: (u64, Crew),
    /// Workers that the system gave no thread for.
    owed: usize,
    stage: Stage,
    todo: VecDeque<Deed>,
    /// When this round began, and whether the end had begun by then.
    now: Timestamp,
    closing: bool,
    lag: Duration,
    /// Until when there was nothing to do, as far as it knew.
    planned: Timestamp,
    /// Until then, a lag that the sentinel tells of is one that we saw ourselves.
    excused: Timestamp,
    abandoned: Vec<Abandoned>,
    rescued: usize,
}

/// Starts the driver's thread.
pub(crate) fn spawn(shared: &Arc<Shared>) -> std::io::Result<()> {
    let name = format!("{}-driver", shared.config.thread_name);
    let now = shared.clock.now();
    let driver = Driver {
        shared: Arc::clone(shared),
        wheel: Wheel::new(now),
        notes: HashMap::new(),
        crew: (0, Arc::from([])),
        owed: 0,
        stage: Stage::Begin,
        todo: VecDeque::new(),
        now,
        closing: false,
        lag: Duration::ZERO,
        planned: Timestamp::NEVER,
        excused: Timestamp::ORIGIN,
        abandoned: Vec::new(),
        rescued: 0,
    };
    let clock = Arc::clone(&shared.clock);
    crew::start(name, Arc::new(Helm::new()), Arc::clone(shared), clock, driver)
}

impl Drive for Driver {
    type Common = Shared;
    type Deed = Deed;
    type Outcome = Outcome;

    fn step(&mut self, helm: &Helm) -> Option<Deed> {
        loop {
            if let Some(deed) = self.todo.pop_front() {
                return Some(deed);
            }
            self.stage = match self.stage {
                Stage::Begin => self.begin(helm),
                Stage::Sweep => match self.shared.next_queued() {
                    Some(job) => {
                        let swept = self.shared.note_swept(&job);
                        return Some(Deed::Cancel(job, swept));
                    }
                    None => self.see_through(),
                },
                Stage::Fire => match self.wheel.expire(self.now) {
                    Some((job, epoch)) => return Some(Deed::Fire(job, epoch)),
                    None => Stage::Watch,
                },
                Stage::Watch => {
                    self.watch();
                    Stage::Sleep
                }
                Stage::Sleep => {
                    self.sleep(helm);
                    Stage::Begin
                }
                Stage::Report => {
                    let abandoned = core::mem::take(&mut self.abandoned);
                    self.shared.closing.finish(abandoned, self.rescued);
                    self.todo.extend([Deed::Hush, Deed::LetGo]);
                    Stage::Ended
                }
                // What was pushed after the sweep was swept by its pusher, who saw the phase.
                Stage::Ended => return None,
            };
        }
    }

    fn perform(shared: &Arc<Shared>, deed: Deed) -> Outcome {
        match deed {
            Deed::Fire(job, epoch) => shared.fire(job, epoch),
            Deed::TellLate(lag) => shared.subscribers.tell(|| Event::DriverLate { lag }),
            Deed::Judge(case) => {
                let (place, note, owed) = case.judge(shared);
                return Outcome::Judged { place, note, owed };
            }
            Deed::Release(job) => drop(job),
            Deed::Cancel(job, swept) => shared.end_swept(&job, swept),
            Deed::Evict(job, evicted) => evicted.end(shared, &job),
            Deed::Hush => shared.subscribers.close(),
            Deed::LetGo => shared.letters.close(),
        }
        Outcome::Done
    }

    fn settle(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done => {}
            Outcome::Judged { place, note, owed } => {
                self.notes.insert(place, note);
                self.owed += usize::from(owed);
            }
        }
    }
}

impl Driver {
    /// Awake: takes the time, and what came in.
    fn begin(&mut self, helm: &Helm) -> Stage {
        let shared = Arc::clone(&self.shared);
        shared.bell.awake();
        self.now = shared.clock.now();
        self.lag = self.now.saturating_since(self.planned);
        self.planned = Timestamp::NEVER;
        self.hear_lag(helm);
        self.take_in();
        self.closing = shared.closing.has_begun();
        if self.closing {
            // Those in line for a key first, as in `Shared::sweep`.
            let lines = shared.keys.drain().into_iter().chain(shared.tasks.drain());
            let timers = self.wheel.drain().map(|(job, _)| job);
            // Counted here, so that the report has them, however slow we are to end them.
            self.todo.extend(lines.chain(timers).map(|job| {
                let swept = shared.note_swept(&job);
                Deed::Cancel(job, swept)
            }));
            return Stage::Sweep;
        }
        Stage::Fire
    }

    /// The end: nothing waits in a queue. Is it time for the report?
    fn see_through(&mut self) -> Stage {
        if self.shared.members.active() > 0 && self.now < self.shared.closing.deadline() {
            return Stage::Fire;
        }
        self.abandon_all();
        Stage::Report
    }

    /// Whether the machine stood still while we were awake: the sentinel knows.
    fn hear_lag(&mut self, helm: &Helm) {
        let heard = helm.take_lag();
        if self.lag >= PERIOD {
            self.excused = self.now.saturating_add(4 * PERIOD);
        } else if self.now >= self.excused
            && !heard.is_zero()
            && self.shared.clock.real_time_until(self.now.saturating_add(PERIOD)).is_some()
        {
            self.lag = self.lag.max(heard);
        }
    }

    /// Sleeps until the earliest moment at which there is something to do.
    fn sleep(&mut self, helm: &Helm) {
        let shared = Arc::clone(&self.shared);
        let mut next = self.earliest();
        if let Some(timer) = self.wheel.next_deadline() {
            next = next.min(timer);
        }
        if self.closing {
            next = next.min(shared.closing.deadline());
        }
        if self.owed > 0 {
            self.repay();
            next = next.min(self.now.saturating_add(THREAD_RETRY));
        }
        // Also if it does not sleep: what it finds out later than this is late.
        self.planned = next;
        shared.bell.announce(next);
        if !shared.intake.is_empty()
            || shared.closing.has_begun() != self.closing
            || self.earliest() < next
        {
            return;
        }
        helm.plan(next);
        shared.bell.listen(shared.clock.real_time_until(next));
    }

    fn take_in(&mut self) {
        let taken: Vec<_> = self.shared.intake.take().collect();
        for Notice { job, what } in taken.into_iter().rev() {
            match what {
                Errand::Arm { epoch, at } if job.state.waits_for(epoch) => {
                    let key = self.wheel.insert(at, (job.clone(), epoch));
                    job.past(|past| past.timer = Some(key));
                }
                // Cancelled on its way here, perhaps by somebody who did not know whom to tell: a timer
                // that finds nothing counts that.
                Errand::Arm { epoch, .. } => self.todo.push_back(Deed::Fire(job, epoch)),
                Errand::Forget => {
                    let key = job.past(|past| past.timer.take());
                    if let Some((timed, _)) = key.and_then(|key| self.wheel.cancel(key)) {
                        self.todo.push_back(Deed::Release(timed));
                    }
                    self.todo.push_back(Deed::Release(job));
                }
            }
        }
    }

    // --- watching -------------------------------------------------------------------------------

    /// Looks over the seats: extends the leases, if we were late, and finds those to be judged.
    fn watch(&mut self) {
        let (now, lag) = (self.now, self.lag);
        self.shared.members.refresh(&mut self.crew.0, &mut self.crew.1);
        let crew = Arc::clone(&self.crew.1);
        let mut worst = lag;
        let mut notes = core::mem::take(&mut self.notes);
        let mut kept = HashMap::with_capacity(notes.len());
        for member in crew.iter() {
            member.each_seat(|seat| {
                let Some((sitting, deadline)) = seat.glance() else { return };
                if deadline.is_never() {
                    return;
                }
                let place = (member.index, core::ptr::from_ref(seat).addr());
                let known = notes.remove(&place).filter(|note| note.sitting == sitting);
                let (mut note, mut late) = match known {
                    Some(note) => (note, lag),
                    None => (
                        Note { sitting, until: deadline, graces: 0, over: false },
                        now.saturating_since(deadline),
                    ),
                };
                if note.until.is_never() {
                    late = Duration::ZERO;
                }
                worst = worst.max(late);
                note.until = note.until.saturating_add(late);
                let has_grace = !late.is_zero() && note.graces < GRACES;
                if (has_grace || note.until <= now)
                    && let Some(pinned) = seat.pin(sitting)
                {
                    // Nothing foreign happens under the pin: it is one at a time, whoever drives.
                    let (job, deadline) = (pinned.job(), pinned.deadline);
                    drop(pinned);
                    let timeout = self.shared.attempt_timeout(&job);
                    if let Some(timeout) =
                        timeout.filter(|timeout| has_grace && late >= *timeout / 4)
                    {
                        note.graces += 1;
                        note.until = note.until.max(now.saturating_add(late.min(timeout)));
                    }
                    if note.until > now {
                        self.todo.push_back(Deed::Release(job));
                    } else if deadline > now {
                        // What we glanced at was torn: the pinned one is true.
                        note.until = deadline;
                        self.todo.push_back(Deed::Release(job));
                    } else if let Some(timeout) = timeout {
                        let member = Arc::clone(member);
                        let case = Case { member, place, note, job, deadline, timeout, now };
                        self.todo.push_back(Deed::Judge(case));
                        // What it comes to says until when. Nothing, if somebody takes over from us
                        // meanwhile: then it is looked at again, and is not there, or shows life.
                        note.until = now.saturating_add(timeout);
                    } else {
                        self.todo.push_back(Deed::Release(job));
                    }
                } else if note.until <= now {
                    // Over by now; whoever sits there next has rung, or will be seen before we sleep.
                    note.until = Timestamp::NEVER;
                }
                kept.insert(place, note);
            });
        }
        self.notes = kept;
        if !worst.is_zero() {
            self.todo.push_back(Deed::TellLate(worst));
        }
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

    /// The end: who still sits is written down, and no longer waited for.
    fn abandon_all(&mut self) {
        let all = self.shared.members.all();
        for member in all.iter().filter(|member| !member.is_exempt()) {
            member.each_seat(|seat| {
                let Some((sitting, _)) = seat.glance() else { return };
                let Some(pinned) = seat.pin(sitting) else { return };
                let job = pinned.job();
                drop(pinned);
                let attempt = u32::from(job.state.peek().attempts()) + 1;
                self.abandoned.push(Abandoned::new(&job, attempt, member.index));
                let evicted = evict(&self.shared, &job, sitting.epoch());
                self.rescued += usize::from(evicted.rescued);
                self.todo.push_back(Deed::Evict(job, evicted));
            });
        }
    }
}
