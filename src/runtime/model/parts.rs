//! The pool's parts, each by itself: the event count, a seat, the way into the driver, the phase, places.

use core::time::Duration;

use super::Job;
use crate::clock::Timestamp;
use crate::runtime::intake::{Bell, Intake};
use crate::runtime::members::{Member, Members};
use crate::runtime::room::Room;
use crate::runtime::seat::Seat;
use crate::runtime::shutdown::Closing;
use crate::runtime::sleep::Sleepers;

/// The event count, around queues of the model's own.
#[derive(Debug)]
pub struct Pool(pub(super) Sleepers);

impl Default for Pool {
    fn default() -> Self {
        Self(Sleepers::new())
    }
}

impl Pool {
    pub fn notify(&self) -> bool {
        self.0.notify()
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    pub fn begin_search(&self) {
        self.0.begin_search();
    }

    pub fn end_search(&self, has_work: impl FnOnce() -> bool) {
        self.0.end_search(has_work);
    }

    pub fn sleep(&self, recheck: impl FnOnce() -> bool) {
        self.0.sleep(recheck);
    }

    pub fn is_clear(&self) -> bool {
        self.0.is_clear()
    }
}

/// The seat of one worker.
#[derive(Debug)]
pub struct Watched(Seat);

impl Default for Watched {
    fn default() -> Self {
        Self(Seat::new())
    }
}

impl Watched {
    /// Sits, does `meanwhile`, stands, and drops the reference if it is still its own.
    pub fn hold(&self, job: Job, epoch: u32, deadline: u64, meanwhile: impl FnOnce(&Job)) {
        self.sit(&job, epoch, deadline);
        meanwhile(&job);
        self.stand(job);
    }

    /// All its times are the deadline.
    pub fn sit(&self, job: &Job, epoch: u32, deadline: u64) {
        let at = Timestamp::from_nanos(deadline);
        self.0.sit(&job.0, epoch, at, Duration::from_nanos(deadline), at);
    }

    pub fn stand(&self, job: Job) {
        if !self.0.stand() {
            core::mem::forget(job);
        }
    }

    /// As the driver: what it found, with epoch and deadline, given to `f` while pinned.
    pub fn look(&self, f: impl FnOnce(&Job, u32, u64)) -> bool {
        let Some((sitting, _)) = self.0.glance() else { return false };
        let Some(pinned) = self.0.pin(sitting) else { return false };
        let at = pinned.deadline;
        assert_eq!(
            (pinned.timeout, pinned.since),
            (Duration::from_nanos(at.as_nanos()), at),
            "torn"
        );
        f(&Job(pinned.job()), sitting.epoch(), at.as_nanos());
        true
    }

    /// The deadline that a glance shows.
    pub fn deadline(&self) -> Option<u64> {
        self.0.glance().map(|(_, deadline)| deadline.as_nanos())
    }
}

/// The way into the driver, and its bell.
#[derive(Debug)]
pub struct Door<T> {
    intake: Intake<T>,
    bell: Bell,
}

impl<T> Default for Door<T> {
    fn default() -> Self {
        Self { intake: Intake::new(), bell: Bell::new() }
    }
}

impl<T> Door<T> {
    pub fn push(&self, entry: T, deadline: u64) {
        self.intake.push(entry);
        self.ring_for(deadline);
    }

    pub fn ring_for(&self, deadline: u64) {
        self.bell.ring_for(Timestamp::from_nanos(deadline));
    }

    pub fn ring(&self) {
        self.bell.ring();
    }

    pub fn take(&self) -> Vec<T> {
        self.bell.awake(Timestamp::ORIGIN);
        self.intake.take().collect()
    }

    /// As somebody who sweeps while the driver is elsewhere.
    pub fn sweep(&self) -> Vec<T> {
        self.intake.take().collect()
    }

    /// As the driver, with nothing to do until `until`: sleeps, unless the intake or `recheck` say
    /// that there is.
    pub fn sleep(&self, until: u64, recheck: impl FnOnce() -> bool) {
        self.bell.announce(Timestamp::from_nanos(until));
        if self.intake.is_empty() && !recheck() {
            self.bell.listen((until != u64::MAX).then_some(Duration::from_nanos(until)));
        }
    }
}

/// The phase.
#[derive(Debug)]
pub struct Phase(Closing);

impl Default for Phase {
    fn default() -> Self {
        Self(Closing::new())
    }
}

impl Phase {
    pub fn begin(&self) -> bool {
        self.0.begin()
    }

    /// For a pusher that has fenced, in `Pool::notify` or `Door::push`.
    pub fn has_begun(&self) -> bool {
        self.0.has_begun()
    }

    pub fn sees_begun(&self) -> bool {
        self.0.sees_begun()
    }

    /// The deadline of the shutdown, asked for and read.
    pub fn hurry(&self, deadline: u64) {
        self.0.hurry(Timestamp::from_nanos(deadline));
    }

    pub fn deadline(&self) -> u64 {
        self.0.deadline().as_nanos()
    }

    /// A job came to its own end.
    pub fn done(&self) {
        self.0.done();
    }

    /// A job was cancelled by the shutdown.
    pub fn swept(&self, had_begun: bool) {
        self.0.report_swept(had_begun);
    }

    pub fn finish(&self) {
        self.0.finish(Vec::new(), 0);
    }

    /// What the report says: done, requeued, cancelled.
    pub fn wait(&self) -> (usize, usize, usize) {
        let report = self.0.wait(|| None);
        (report.done, report.requeued, report.cancelled)
    }
}

/// Places for jobs.
#[derive(Debug)]
pub struct Places(Room);

impl Places {
    pub fn new(capacity: usize) -> Self {
        Self(Room::new(Some(capacity)))
    }

    pub fn take(&self) -> bool {
        self.0.take()
    }

    /// Waits for as long as it takes, unless given up.
    pub fn take_when_there_is_one(&self, given_up: impl Fn() -> bool) -> bool {
        self.0.take_within(Duration::MAX, given_up)
    }

    pub fn give_back(&self) {
        self.0.give_back();
    }

    pub fn resize(&self, places: usize) -> bool {
        self.0.resize(places)
    }

    pub fn tell(&self) {
        self.0.tell();
    }
}

/// One worker, between the pool and its seat.
#[derive(Debug)]
pub struct Crewman {
    members: Members,
    member: std::sync::Arc<Member>,
    sleepers: Sleepers,
}

impl Default for Crewman {
    fn default() -> Self {
        let members = Members::new();
        let stealer = crossbeam_deque::Worker::new_fifo().stealer();
        let member = std::sync::Arc::new(Member::new(0, stealer));
        members.join(&member);
        Self { members, member, sleepers: Sleepers::new() }
    }
}

impl Crewman {
    pub fn sit(&self, job: &Job, epoch: u32) {
        self.member.seat.sit(
            &job.0,
            epoch,
            Timestamp::from_nanos(1),
            Duration::ZERO,
            Timestamp::ORIGIN,
        );
    }

    pub fn stand(&self, job: Job) {
        if !self.member.seat.stand() {
            core::mem::forget(job);
        }
    }

    /// As the worker with nothing to do, until the end: false if its thread ends before that, because
    /// somebody has its place.
    pub fn idle(&self, over: impl Fn() -> bool) -> bool {
        loop {
            if self.member.is_stuck() && self.members.come_back(&self.member) == Some(false) {
                return false;
            }
            if over() {
                return true;
            }
            self.sleepers.begin_search();
            let slept = core::cell::Cell::new(false);
            self.sleepers.sleep(|| {
                let stays = over() || self.member.is_stuck();
                slept.set(!stays);
                stays
            });
            self.sleepers.end_search(|| false);
            // Only the shutdown wakes it here, and the driver was done before that.
            assert!(!slept.get() || !self.member.is_stuck(), "forgotten in its sleep");
        }
    }

    /// As the driver that gives up what sits there, if somebody does. True: the worker is out.
    pub fn retire(&self) -> bool {
        let Some((sitting, _)) = self.member.seat.glance() else { return false };
        let seat = core::ptr::from_ref::<Seat>(&self.member.seat).addr();
        self.members.retire(&self.member, true)
            && !self.members.keep(&self.member, || self.member.sits(seat, sitting))
    }

    /// As the shutdown, which has made `over` true.
    pub fn wake_all(&self) {
        self.sleepers.notify_all();
    }

    pub fn active(&self) -> usize {
        self.members.active()
    }

    /// Out of the pool, and its thread does not know.
    pub fn is_stuck(&self) -> bool {
        self.member.is_stuck()
    }
}
