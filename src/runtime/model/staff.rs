//! For the models: the workers' list, what they count, the keys' leases, the limits.

use core::time::Duration;
use std::sync::Arc;

use crossbeam_deque::Worker as Deque;

use super::{Job, Pool};
use crate::clock::{Clock, ManualClock, Timestamp};
use crate::runtime::gates::{Numbers, Pause};
use crate::runtime::keys::{self, Keys, NoLease, Serial};
use crate::runtime::members::{Crew, Member, Members};
use crate::runtime::options::JobKey;
use crate::runtime::room::Room as Places;
use crate::runtime::seat::Seat;
use crate::runtime::stats::{Counters, Stats};
use crate::runtime::waiting::HeldUp;

/// The pool's workers, without their threads.
#[derive(Debug)]
pub struct Staff {
    members: Members,
    held_up: HeldUp,
    counters: Counters,
    numbers: Numbers,
    pub pool: Pool,
    workers: usize,
}

/// One worker. Whoever made it keeps it until all threads are joined.
#[derive(Clone, Debug)]
pub struct Hand(Arc<Member>);

/// The seat of an attempt inside an attempt.
#[derive(Debug)]
pub struct Nested(Arc<Seat>);

impl Nested {
    pub fn stand(self, job: Job) {
        if !self.0.stand() {
            core::mem::forget(job);
        }
    }
}

/// A snapshot of the list.
#[derive(Debug)]
pub struct Snapshot(u64, Crew);

impl Default for Snapshot {
    fn default() -> Self {
        Self(0, Arc::from([]))
    }
}

/// What a worker that is about to block finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The pool would be a worker short: bring one.
    pub short: bool,
    /// All workers wait for jobs.
    pub stuck: bool,
}

impl Staff {
    /// A pool that should have so many workers awake.
    pub fn new(workers: usize) -> Self {
        Self {
            members: Members::new(),
            held_up: HeldUp::new(),
            counters: Counters::new(),
            numbers: Numbers::new(),
            pool: Pool::default(),
            workers,
        }
    }

    pub fn hire(&self) -> Hand {
        let index = self.members.next_index();
        let member = Arc::new(Member::new(index, Deque::new_fifo().stealer()));
        self.members.join(&member);
        Hand(member)
    }

    /// The thread is at its end. True: it was one that the shutdown waits for.
    pub fn part(&self, hand: &Hand) -> bool {
        self.members.part(&hand.0, &self.counters)
    }

    fn needed(&self) -> usize {
        self.workers + self.held_up.blocked()
    }

    pub fn step_down(&self, hand: &Hand) -> bool {
        self.members.step_down(&hand.0, || self.needed())
    }

    pub fn is_surplus(&self) -> bool {
        self.members.is_surplus(self.needed())
    }

    /// As a worker that is about to block.
    pub fn hold(&self, waits: bool) -> Held {
        let (blocked, waiting) = self.held_up.one_more(waits);
        Held {
            short: self.active().saturating_sub(blocked) < self.workers,
            stuck: waiting >= self.active(),
        }
    }

    /// As a worker that goes on.
    pub fn let_go(&self, waits: bool) {
        let blocked = self.held_up.one_less(waits);
        if self.members.is_surplus(self.workers + blocked) {
            self.pool.notify_all();
        }
    }

    pub fn active(&self) -> usize {
        self.members.active()
    }

    pub fn retire(&self, hand: &Hand, replaced: bool) -> bool {
        self.members.retire(&hand.0, replaced)
    }

    pub fn come_back(&self, hand: &Hand) -> bool {
        self.members.come_back(&hand.0).unwrap_or(true)
    }

    pub fn exempt(&self, hand: &Hand) {
        self.members.exempt(&hand.0);
    }

    pub fn refresh(&self, snapshot: &mut Snapshot) {
        self.members.refresh(&mut snapshot.0, &mut snapshot.1);
    }

    /// The job of this number is taken in.
    pub fn submit(&self) -> u64 {
        self.numbers.next()
    }

    /// A job has ended on this worker, or (`None`) elsewhere.
    pub fn end(&self, hand: Option<&Hand>) {
        match hand {
            Some(hand) => hand.0.counters.succeeded.own(),
            None => self.counters.succeeded.share(1),
        }
    }

    /// How many ended; then, how many were taken in.
    pub fn sums(&self) -> (u64, u64) {
        let mut stats = Stats::default();
        self.members.with_counters(&self.counters, &mut stats);
        (stats.succeeded, self.numbers.so_far())
    }
}

impl Snapshot {
    pub fn take(&self) -> Option<Job> {
        self.1.iter().find_map(|member| member.steal_any()).map(Job)
    }

    pub fn has_work(&self) -> bool {
        self.1.iter().any(|member| member.has_work())
    }
}

impl Hand {
    pub fn index(&self) -> usize {
        self.0.index
    }

    pub fn is_stuck(&self) -> bool {
        self.0.is_stuck()
    }

    pub fn put(&self, job: Job) -> Option<Job> {
        self.0.put_lifo(job.0).map(Job)
    }

    pub fn take(&self) -> Option<Job> {
        self.0.take_lifo().map(Job)
    }

    /// An attempt inside an attempt.
    pub fn sit_nested(&self, job: &Job, epoch: u32, deadline: u64) -> Nested {
        let seat = self.0.nested_seat(1);
        seat.sit(&job.0, epoch, Timestamp::from_nanos(deadline), Duration::ZERO, Timestamp::ORIGIN);
        Nested(seat)
    }

    /// The earliest deadline that a glance at its seats shows.
    pub fn earliest(&self) -> Option<u64> {
        let mut earliest = None;
        self.0.each_seat(|seat| {
            if let Some((_, deadline)) = seat.glance() {
                let deadline = deadline.as_nanos();
                earliest = Some(earliest.map_or(deadline, |e: u64| e.min(deadline)));
            }
        });
        earliest
    }
}

/// A key, as the attempts of one job lease it.
#[derive(Debug)]
pub struct Keyed {
    keys: Keys,
    serial: Serial,
}

/// A lease on it.
#[derive(Debug)]
pub struct Granted(keys::Held);

impl Default for Keyed {
    fn default() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
        Self { keys: Keys::new(clock), serial: Serial::new(JobKey::from(1)) }
    }
}

impl Keyed {
    /// As the attempt `epoch`, which has begun. `None`: it is not the current one.
    pub fn lease(&self, job: &Job, epoch: u32) -> Option<Granted> {
        match self.keys.lease(&self.serial, || job.0.state.is_current(epoch)) {
            Ok(held) => Some(Granted(held)),
            Err(NoLease::Fenced) => None,
            Err(NoLease::Refused(refused)) => panic!("{refused:?}"),
        }
    }

    /// As the driver that has given an attempt up.
    pub fn revoke(&self) {
        self.keys.revoke(&self.serial);
    }

    /// The number of the latest token, as histories and revocations name it.
    pub fn latest(&self) -> u64 {
        u64::from_be_bytes(self.serial.token().to_bytes())
    }
}

impl Granted {
    pub fn number(&self) -> u64 {
        u64::from_be_bytes(self.0.token().to_bytes())
    }

    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }
}

/// The places of a bounded runtime, and its pause.
#[derive(Debug)]
pub struct Limits {
    places: Places,
    pause: Pause,
}

impl Limits {
    pub fn new(capacity: usize) -> Self {
        Self { places: Places::new(Some(capacity)), pause: Pause::new() }
    }

    pub fn take(&self) -> bool {
        self.places.take()
    }

    pub fn give_back(&self) {
        self.places.give_back();
    }

    pub fn pause(&self, paused: bool, pool: &Pool) {
        self.pause.set(paused, &pool.0);
    }

    pub fn is_paused(&self) -> bool {
        self.pause.is_on()
    }
}
