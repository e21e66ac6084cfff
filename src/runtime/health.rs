//! How a runtime is: its workers and what they run, its queues, its driver; and what follows.
//!
//! Nobody pays for this but who asks. A worker's seat says what it runs since when, and is there for the
//! driver anyway; who asks holds it in its place for the moment that it takes to read it, as the driver
//! does, one of them at a time.
//!
//! # Who is suspect
//!
//! | an attempt | is judged by |
//! |---|---|
//! | with an attempt timeout | the driver, to the nanosecond: its worker is stuck, and leaves the pool |
//! | without | how long attempts take, here, usually (phi accrual over those that were seen to run): its worker is suspect, and stays. A heartbeat makes it young again |
//!
//! An attempt with a timeout is not suspected as well: whoever set the limit knows how long this job may take, and
//! that others are over sooner says nothing against it. Its heartbeats are the driver's to hear, besides: one that
//! somebody else takes note of would be missing when the driver judges. How far it is, is told by
//! [`Running::elapsed`] and [`Running::deadline`].
//!
//! A worker that is stuck has left the pool before it is given another job: the driver takes it out,
//! what lies in its queue is the others', it begins nothing more, and its thread ends when it comes back.

use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use super::members::{Condition, Member, Seen};
use super::options::{JobId, JobKey, Priority};
use super::shared::Shared;
use super::state::State;
use super::stats::Stats;
use crate::clock::{Clock, Timestamp};
use crate::health::{PhiAccrual, Reason, Verdict};
use crate::lock::Mutex;

/// From here on a driver that should have woken up is worth a word, and work is better sent elsewhere.
const DRIVER_LATE: Duration = Duration::from_secs(1);
/// And from here on it will not wake up any more.
const DRIVER_LOST: Duration = Duration::from_secs(60);
/// Once in a hundred million.
const SUSPICIOUS: f64 = 8.0;

/// How a runtime was at one time. From [`Runtime::health`](super::Runtime::health).
///
/// Read from many places one after another while all of it moves: each figure is right, together they may
/// be a moment apart.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuntimeHealth {
    /// When, by the runtime's clock.
    pub at: Timestamp,
    /// Every worker that has a thread, by number.
    pub workers: Vec<WorkerHealth>,
    /// How many workers were asked for.
    pub wanted: usize,
    /// How many are in the pool, the stand-ins included.
    pub active: usize,
    /// Those beyond what was asked for, who stand in for workers that wait.
    pub stand_ins: usize,
    /// What waits.
    pub queues: QueueHealth,
    /// Who fires timers and watches attempts.
    pub driver: DriverHealth,
    /// Whether no attempts are begun: [`Runtime::pause`](super::Runtime::pause).
    pub paused: bool,
    /// Whether the runtime is shutting down.
    pub closing: bool,
    /// Dead letters that are kept.
    pub dead_letters: usize,
    /// Events that did not fit into subscriptions so far.
    pub events_lost: u64,
    /// What was done so far.
    pub stats: Stats,
}

/// A worker, at one time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerHealth {
    /// Its number.
    pub worker: usize,
    /// How it is.
    pub status: WorkerStatus,
    /// What it runs: nothing, one attempt, or several on top of each other, of which all but the last
    /// wait for the one above.
    pub running: Vec<Running>,
    /// How surprising it is that what it runs takes so long; 0 if it has an attempt timeout.
    pub phi: f64,
}

/// How a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkerStatus {
    /// It sleeps, or looks for a job.
    Idle,
    /// It runs an attempt.
    Running,
    /// Its attempt waits for another job, or is in a [`blocking`](super::blocking) section.
    Waiting,
    /// It runs an attempt without a timeout that takes longer than is usual.
    Suspect,
    /// It did not come back from an attempt that was out of time. It is out of the pool.
    Stuck {
        /// Whether another one has its place. If so, its thread ends when it comes back.
        replaced: bool,
    },
    /// It is out of the pool and about to end: a stand-in that is not needed, or the one that waits for
    /// the shutdown that its own job began.
    Leaving,
}

/// An attempt that runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Running {
    /// The job.
    pub job: JobId,
    /// Its name, if it was given one.
    pub name: Option<Arc<str>>,
    /// Its key, if it has one.
    pub key: Option<JobKey>,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// For how long it has run, to the clock's coarse reading.
    pub elapsed: Duration,
    /// Until when it may without a heartbeat; `None`: for ever.
    pub deadline: Option<Timestamp>,
    /// Whether it has lost its lease: what it returns is not heard.
    pub late: bool,
}

/// What waits for a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueHealth {
    /// Jobs of [`Priority::High`].
    pub high: usize,
    /// Jobs of [`Priority::Normal`] that no worker has taken to itself.
    pub normal: usize,
    /// Jobs of [`Priority::Low`].
    pub low: usize,
    /// Jobs in the workers' own queues.
    pub local: usize,
    /// Jobs in line for a key.
    pub in_line: usize,
    /// Jobs that were taken in and are not over, if the runtime has a capacity.
    pub held: Option<usize>,
    /// The capacity.
    pub capacity: Option<usize>,
}

impl QueueHealth {
    /// Jobs that wait for a worker and nothing else.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.high + self.normal + self.low + self.local
    }

    /// Whether there is no room for another job.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.held.zip(self.capacity).is_some_and(|(held, capacity)| held >= capacity)
    }
}

/// The driver, at one time.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DriverHealth {
    /// Until when it sleeps; `None`: it is awake, or sleeps until something comes up.
    pub sleeps_until: Option<Timestamp>,
    /// By how much it is later than it meant to be, or has been awake without getting on. Zero by a clock
    /// that is moved by hand.
    pub late: Duration,
}

impl RuntimeHealth {
    /// What follows. Not ready: paused, shutting down, full, no workers, a driver that is late by a second.
    /// Not live: no workers and none to come, a driver that is late by a minute. Workers that are stuck
    /// or suspect are named, and change neither: they are replaced, or still at it.
    pub fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::well();
        if self.closing {
            verdict.add(Reason::Closing, true, false);
        }
        if self.paused {
            verdict.add(Reason::Paused, true, false);
        }
        if self.queues.is_full() {
            verdict.add(Reason::Full, true, false);
        }
        if self.active == 0 && !self.closing {
            verdict.add(Reason::NoWorkers, false, false);
        }
        if self.driver.late >= DRIVER_LATE {
            let live = self.driver.late < DRIVER_LOST;
            verdict.add(Reason::DriverLate(self.driver.late), live, false);
        }
        let count = |is: fn(WorkerStatus) -> bool| {
            self.workers.iter().filter(|worker| is(worker.status)).count()
        };
        let stuck = count(|status| matches!(status, WorkerStatus::Stuck { .. }));
        if stuck > 0 {
            verdict.add(Reason::WorkersStuck(stuck), true, true);
        }
        let suspect = count(|status| status == WorkerStatus::Suspect);
        if suspect > 0 {
            verdict.add(Reason::WorkersSuspect(suspect), true, true);
        }
        verdict
    }
}

/// What is remembered between two who ask: how long attempts take, usually.
pub(crate) struct Monitor(Mutex<Memory>);

struct Memory {
    usual: PhiAccrual,
    /// By worker: what it was seen to run.
    seen: HashMap<usize, Watched>,
}

#[derive(Clone, Copy)]
struct Watched {
    sitting: u64,
    since: Timestamp,
    /// Its last sign of life.
    heard: Timestamp,
}

impl Monitor {
    pub(crate) fn new() -> Self {
        let usual = PhiAccrual::builder()
            .window(128)
            .min_deviation(Duration::from_secs(1))
            .threshold(SUSPICIOUS)
            .build();
        // The settings are in range; if they were not, everything would be usual.
        let usual = usual.map(|mut usual| {
            usual.observe(Duration::from_secs(1));
            usual.observe(Duration::from_secs(10));
            usual
        });
        let usual = usual.unwrap_or_else(|_| PhiAccrual::unsuspecting());
        Self(Mutex::new(Memory { usual, seen: HashMap::new() }))
    }

    /// How suspicious each worker is, of those that run an attempt without a deadline.
    fn look(&self, now: Timestamp, workers: &[(usize, Option<Glimpse>)]) -> Vec<f64> {
        let mut memory = self.0.lock();
        let Memory { usual, seen } = &mut *memory;
        let mut before = core::mem::take(seen);
        let mut phis = Vec::with_capacity(workers.len());
        for (worker, glimpse) in workers {
            let known = before.remove(worker);
            let same = known.filter(|known| glimpse.is_some_and(|g| g.sitting == known.sitting));
            if let (Some(known), None) = (known, same) {
                // It has come to its end since: it took so long at most.
                usual.observe(now.saturating_since(known.since));
            }
            let Some(Glimpse { sitting, since, beats }) = *glimpse else {
                phis.push(0.0);
                continue;
            };
            let heard = if beats { now } else { same.map_or(since, |known| known.heard) };
            phis.push(usual.phi_after(now.saturating_since(heard)));
            seen.insert(*worker, Watched { sitting, since, heard });
        }
        phis
    }
}

/// What is seen of an attempt without a deadline.
#[derive(Clone, Copy)]
struct Glimpse {
    sitting: u64,
    since: Timestamp,
    /// It has shown life since somebody looked.
    beats: bool,
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

impl Shared {
    /// See [`Runtime::health`](super::Runtime::health).
    pub(crate) fn health(&self) -> RuntimeHealth {
        let now = self.clock.now();
        let crew = self.members.all();
        let mut workers = Vec::with_capacity(crew.len());
        let mut glimpses = Vec::with_capacity(crew.len());
        for member in crew.iter() {
            let (worker, glimpse) = self.look_at(member, now);
            glimpses.push((member.index, glimpse));
            workers.push(worker);
        }
        let phis = self.monitor.look(now, &glimpses);
        for (worker, phi) in workers.iter_mut().zip(phis) {
            worker.phi = phi;
            if phi >= SUSPICIOUS
                && matches!(worker.status, WorkerStatus::Running | WorkerStatus::Waiting)
            {
                worker.status = WorkerStatus::Suspect;
            }
        }
        workers.sort_unstable_by_key(|worker| worker.worker);
        let active = self.members.active();
        RuntimeHealth {
            at: now,
            workers,
            wanted: self.config.workers,
            active,
            stand_ins: active.saturating_sub(self.config.workers),
            queues: self.queue_health(&crew),
            driver: self.driver_health(now),
            paused: self.is_paused(),
            closing: self.closing.has_begun(),
            dead_letters: self.letters.len(),
            events_lost: self.subscribers.lost(),
            stats: self.stats(),
        }
    }

    fn look_at(&self, member: &Member, now: Timestamp) -> (WorkerHealth, Option<Glimpse>) {
        let mut running = Vec::new();
        let mut glimpse = None;
        member.each_seat(|seat| {
            let Some(Seen { job, sitting, deadline, since, .. }) = self.members.look_at(seat)
            else {
                return;
            };
            let epoch = sitting.epoch();
            let word = job.state.peek();
            // Its gates are asked.
            let begins =
                matches!(word.state(), State::Ready | State::Gated) && word.epoch() == epoch;
            let options = job.options.as_deref();
            running.push(Running {
                job: JobId(job.id),
                name: options.and_then(|o| o.name.clone()),
                key: options.and_then(|o| o.serial.as_ref()).map(|s| s.key.clone()),
                attempt: u32::from(word.attempts()) + 1,
                elapsed: now.saturating_since(since),
                deadline: (!deadline.is_never()).then_some(deadline),
                late: !begins && !job.state.is_current(epoch),
            });
            // The innermost one is what the thread is at.
            glimpse = deadline.is_never().then(|| Glimpse {
                sitting: sitting.number(),
                since,
                // With a deadline that is the driver's to ask.
                beats: job.state.hear(epoch),
            });
            // It may be the last reference by now: contained in there.
            drop(job);
        });
        let status = match member.condition() {
            Condition::Stuck { replaced } => WorkerStatus::Stuck { replaced },
            Condition::Leaving => WorkerStatus::Leaving,
            Condition::Active if running.is_empty() => WorkerStatus::Idle,
            Condition::Active if member.waits() => WorkerStatus::Waiting,
            Condition::Active => WorkerStatus::Running,
        };
        (WorkerHealth { worker: member.index, status, running, phi: 0.0 }, glimpse)
    }

    fn queue_health(&self, crew: &[Arc<Member>]) -> QueueHealth {
        let (held, capacity) = self.room.taken_of().unzip();
        QueueHealth {
            high: self.injector(Priority::High).len(),
            normal: self.injector(Priority::Normal).len(),
            low: self.injector(Priority::Low).len(),
            local: crew.iter().map(|member| member.queued()).sum(),
            in_line: self.keys.in_line(),
            held,
            capacity,
        }
    }

    fn driver_health(&self, now: Timestamp) -> DriverHealth {
        let (woke, until) = self.bell.plan();
        // By a clock that is moved by hand nothing is late: it is told, and comes.
        let by_itself =
            self.clock.real_time_until(now.saturating_add(Duration::from_secs(1))).is_some();
        let over = self.closing.is_over();
        let late = match until {
            _ if !by_itself || over => Duration::ZERO,
            None => woke.map_or(Duration::ZERO, |woke| now.saturating_since(woke)),
            Some(until) => now.saturating_since(until),
        };
        DriverHealth { sleeps_until: until.filter(|until| !until.is_never()), late }
    }
}
