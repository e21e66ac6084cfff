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
use super::members::{Crew, Seen};
use super::policy::line::Line;
use super::shared::{Notice, Shared, Unfired};
use super::shutdown::Abandoned;
use super::sweep::Swept;
use crate::clock::{Clock, Timestamp};
use crate::timer::crew::{self, Drive};
use crate::timer::helm::{Helm, PERIOD};
use crate::timer::{TimerKey, Wheel};

/// Graces for one attempt; see the file's docs.
const GRACES: u32 = 3;
/// After the system refused a thread, how long until it is asked again.
const THREAD_RETRY: Duration = Duration::from_millis(100);

/// What may run foreign code.
enum Deed {
    /// A timer is due.
    Due(Timed),
    /// A timer found that its job is over.
    Stale(JobRef),
    /// The same, and its key has to go on.
    Owner(JobRef),
    /// We were late by so much.
    TellLate(Duration),
    /// A lease is out of time.
    Judge(Case),
    /// A reference is no longer needed; it may be the last one.
    Release(JobRef),
    /// The same of what a timer was for.
    Drop(Timed),
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
    Judged { place: Place, note: Note },
}

/// What a timer is for.
enum Timed {
    /// The job waits for this, with this epoch.
    Job(JobRef, u32),
    /// Its time is up then.
    Deadline(JobRef),
    /// A second attempt begins beside the one with this epoch.
    Hedge(JobRef, u32),
    /// The head of the line asks again.
    Line(Arc<Line>, Timestamp),
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
    wheel: Wheel<Timed>,
    notes: HashMap<Place, Note>,
    crew: (u64, Crew),
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
                        let swept = self.shared.note_queued(&job);
                        return Some(Deed::Cancel(job, swept));
                    }
                    None => self.see_through(),
                },
                Stage::Fire => match self.wheel.expire(self.now) {
                    Some(Timed::Job(job, epoch)) => match self.shared.fire_quietly(job, epoch) {
                        None => Stage::Fire,
                        Some(Unfired::Release(job)) => return Some(Deed::Release(job)),
                        Some(Unfired::Stale(job)) => return Some(Deed::Stale(job)),
                        Some(Unfired::Owner(job)) => return Some(Deed::Owner(job)),
                    },
                    Some(timed) => return Some(Deed::Due(timed)),
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
            Deed::Due(Timed::Job(job, epoch)) => shared.fire(job, epoch),
            Deed::Due(Timed::Deadline(job)) => shared.expire(&job),
            Deed::Due(Timed::Hedge(job, epoch)) => shared.hedge(job, epoch),
            Deed::Due(Timed::Line(line, at)) => line.tick(at),
            Deed::Stale(job) => shared.stale(&job, None),
            Deed::Owner(job) => {
                shared.pass_key_on(&job);
                shared.stale(&job, None);
            }
            Deed::TellLate(lag) => shared.subscribers.tell(|| Event::DriverLate { lag }),
            Deed::Judge(case) => {
                let (place, note) = case.judge(shared);
                return Outcome::Judged { place, note };
            }
            Deed::Release(job) => drop(job),
            Deed::Drop(timed) => drop(timed),
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
            Outcome::Judged { place, note } => {
                self.notes.insert(place, note);
            }
        }
    }
}

impl Driver {
    /// Awake: takes the time, and what came in.
    fn begin(&mut self, helm: &Helm) -> Stage {
        let shared = Arc::clone(&self.shared);
        self.now = shared.clock.now();
        shared.bell.awake(self.now);
        self.lag = self.now.saturating_since(self.planned);
        self.planned = Timestamp::NEVER;
        self.hear_lag(helm);
        self.take_in();
        self.closing = shared.closing.has_begun();
        if self.closing {
            // Those in line for a key first, as in `Shared::sweep`.
            // Counted here, so that the report has them, however slow we are to end them.
            self.todo.extend(shared.drain_lines().into_iter().map(|job| {
                let swept = shared.note_swept(&job);
                Deed::Cancel(job, swept)
            }));
            self.todo.extend(self.wheel.drain().map(|timed| match timed {
                Timed::Job(job, _) => {
                    let swept = shared.note_swept(&job);
                    Deed::Cancel(job, swept)
                }
                // Their jobs run, or wait elsewhere.
                other => Deed::Drop(other),
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
        if shared.repay() {
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
        for notice in taken.into_iter().rev() {
            match notice {
                Notice::Arm { job, epoch, at } if job.state.waits_for(epoch) => {
                    let key = self.wheel.insert(at, Timed::Job(job.clone(), epoch));
                    job.past(|past| past.timer = Some(key));
                }
                // Cancelled on its way here, perhaps by somebody who did not know whom to tell: a timer
                // that finds nothing counts that.
                Notice::Arm { job, epoch, .. } => {
                    self.todo.push_back(Deed::Due(Timed::Job(job, epoch)));
                }
                // Over before we heard of it: who ended it may have told us before.
                Notice::Deadline { job, .. } | Notice::Hedge { job, .. }
                    if job.state.peek().state().is_final() =>
                {
                    self.todo.push_back(Deed::Release(job));
                }
                Notice::Deadline { job, at } => {
                    let key = self.wheel.insert(at, Timed::Deadline(job.clone()));
                    job.past(|past| past.deadline_timer = Some(key));
                }
                Notice::Hedge { job, epoch, at } => {
                    let key = self.wheel.insert(at, Timed::Hedge(job.clone(), epoch));
                    let before = job.past(|past| past.hedge_timer.replace(key));
                    self.let_go(before);
                }
                Notice::Line { line, at } => {
                    self.wheel.insert(at, Timed::Line(line, at));
                }
                Notice::Forget(job) => {
                    let keys = job.past(|past| {
                        [past.timer.take(), past.deadline_timer.take(), past.hedge_timer.take()]
                    });
                    for key in keys {
                        self.let_go(key);
                    }
                    self.todo.push_back(Deed::Release(job));
                }
            }
        }
    }

    /// A timer is not needed any more.
    fn let_go(&mut self, key: Option<TimerKey>) {
        if let Some(timed) = key.and_then(|key| self.wheel.cancel(key)) {
            self.todo.push_back(Deed::Drop(timed));
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
                    && let Some(Seen { job, deadline, timeout, .. }) =
                        self.shared.members.hold(seat, sitting)
                {
                    if has_grace && late >= timeout / 4 {
                        note.graces += 1;
                        note.until = note.until.max(now.saturating_add(late.min(timeout)));
                    }
                    if note.until > now {
                        self.todo.push_back(Deed::Release(job));
                    } else if deadline > now {
                        // What we glanced at was torn: the pinned one is true.
                        note.until = deadline;
                        self.todo.push_back(Deed::Release(job));
                    } else {
                        let member = Arc::clone(member);
                        let case = Case { member, place, note, job, deadline, timeout, now };
                        self.todo.push_back(Deed::Judge(case));
                        // What it comes to says until when. Nothing, if somebody takes over from us
                        // meanwhile: then it is looked at again, and is not there, or shows life.
                        note.until = now.saturating_add(timeout);
                    }
                } else if note.until <= now {
                    // Over by now; whoever sits there next has rung, or will be seen before we sleep.
                    note.until = Timestamp::NEVER;
                }
                kept.insert(place, note);
            });
        }
        self.notes = kept;
        if !worst.is_zero() && worst >= self.shared.config.driver_late_after {
            self.todo.push_back(Deed::TellLate(worst));
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
                let Some(Seen { job, sitting, .. }) = self.shared.members.look_at(seat) else {
                    return;
                };
                let attempt = u32::from(job.state.peek().attempts()) + 1;
                self.abandoned.push(Abandoned::new(&job, attempt, member.index));
                let evicted = evict(&self.shared, &job, sitting.epoch());
                self.rescued += usize::from(evicted.rescued);
                self.todo.push_back(Deed::Evict(job, evicted));
            });
        }
    }
}
