//! The worker threads, those in the pool and those that are stuck.

use core::ptr::null_mut;
use core::time::Duration;
use std::sync::Arc;

use crossbeam_deque::{Steal, Stealer};
use crossbeam_utils::CachePadded;

use super::cell::{Header, JobRef};
#[cfg(feature = "metrics")]
use super::observe::meter::Meter;
use super::seat::{Seat, Sitting};
use super::stats::{Counters, Stats};
use crate::clock::Timestamp;
use crate::lock::Mutex;
use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// In the pool.
const ACTIVE: u32 = 0;
/// Stuck, and another one has taken its place: it ends when it comes back.
const REPLACED: u32 = 1;
/// Stuck, and nobody has taken its place: it goes on when it comes back.
const MISSED: u32 = 2;
/// Waits, inside a job, for the shutdown of its own runtime: the shutdown does not wait for it.
const EXEMPT: u32 = 3;
/// Gone.
const GONE: u32 = 4;

/// A worker, as others see it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) index: usize,
    standing: AtomicU32,
    stealer: Stealer<JobRef>,
    /// The job that this worker pushed last.
    lifo: CachePadded<AtomicPtr<Header>>,
    pub(crate) seat: CachePadded<Seat>,
    /// Seats of attempts that run inside a waiting attempt.
    nested: Mutex<Vec<Arc<Seat>>>,
    nested_count: AtomicUsize,
    pub(crate) counters: CachePadded<Counters>,
    /// How often it is held up, and how often it waits, inside each other; OUT: these are not in the
    /// pool's sums.
    held: AtomicU32,
    #[cfg(feature = "metrics")]
    pub(crate) meter: Option<Box<Meter>>,
}

const ONE_HELD: u32 = 1;
const ONE_WAIT: u32 = 1 << 15;
const OUT: u32 = 1 << 31;

/// A worker's standing, for who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Active,
    Stuck { replaced: bool },
    Leaving,
}

/// What was on a seat.
pub(crate) struct Seen {
    pub(crate) job: JobRef,
    pub(crate) sitting: Sitting,
    pub(crate) deadline: Timestamp,
    pub(crate) timeout: Duration,
    pub(crate) since: Timestamp,
}

/// So many of a worker's levels are held up, and wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    pub(crate) held: usize,
    pub(crate) waits: usize,
}

impl Member {
    pub(crate) fn new(index: usize, stealer: Stealer<JobRef>) -> Self {
        Self {
            index,
            standing: AtomicU32::new(ACTIVE),
            stealer,
            lifo: CachePadded::new(AtomicPtr::new(null_mut())),
            seat: CachePadded::new(Seat::new()),
            nested: Mutex::new(Vec::new()),
            nested_count: AtomicUsize::new(0),
            counters: CachePadded::new(Counters::new()),
            held: AtomicU32::new(0),
            #[cfg(feature = "metrics")]
            meter: None,
        }
    }

    /// With a set of histograms of its own.
    #[cfg(feature = "metrics")]
    pub(crate) fn measured(mut self, shared: Option<&Arc<Meter>>) -> Self {
        self.meter = shared.map(Meter::for_worker);
        self
    }

    /// One more level is held up. True: the pool's sums are to be told.
    #[must_use]
    pub(crate) fn hold(&self, waits: bool) -> bool {
        let one = ONE_HELD + if waits { ONE_WAIT } else { 0 };
        // ORDERING: Relaxed: a number; who is first, we or `take_out`, is the word's own order.
        self.held.fetch_add(one, Ordering::Relaxed) & OUT == 0
    }

    /// One less. True: the pool's sums are to be told.
    #[must_use]
    pub(crate) fn let_go(&self, waits: bool) -> bool {
        let one = ONE_HELD + if waits { ONE_WAIT } else { 0 };
        // ORDERING: Relaxed: as in `hold`.
        self.held.fetch_sub(one, Ordering::Relaxed) & OUT == 0
    }

    /// It is retired: what it holds up does not count any more. Says how much that is.
    pub(crate) fn take_out(&self) -> Levels {
        // ORDERING: Relaxed: as in `hold`.
        Self::levels(self.held.fetch_or(OUT, Ordering::Relaxed))
    }

    /// It is back: what it holds up counts. Says how much that is.
    pub(crate) fn put_back(&self) -> Levels {
        // ORDERING: Relaxed: as in `hold`.
        Self::levels(self.held.fetch_and(!OUT, Ordering::Relaxed))
    }

    fn levels(held: u32) -> Levels {
        Levels {
            held: (held & (ONE_WAIT - 1)) as usize,
            waits: ((held & !OUT) / ONE_WAIT) as usize,
        }
    }

    /// Puts a job into the slot; the one that was there comes back.
    pub(crate) fn put_lifo(&self, job: JobRef) -> Option<JobRef> {
        // ORDERING: Release: pairs with the Acquire in `take_lifo`: the job. What was there is our own:
        // nobody but the owner puts.
        let old = self.lifo.swap(job.into_raw(), Ordering::Release);
        // SAFETY: a reference that `put_lifo` left; the swap took it out, once.
        (!old.is_null()).then(|| unsafe { JobRef::from_raw(old) })
    }

    pub(crate) fn take_lifo(&self) -> Option<JobRef> {
        // ORDERING: Relaxed: a look, so that an empty slot costs no write.
        if self.lifo.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // ORDERING: Acquire: pairs with `put_lifo`.
        let job = self.lifo.swap(null_mut(), Ordering::Acquire);
        // SAFETY: as in `put_lifo`.
        (!job.is_null()).then(|| unsafe { JobRef::from_raw(job) })
    }

    /// Something to steal?
    pub(crate) fn has_work(&self) -> bool {
        // ORDERING: Relaxed: ordered by the fences of `Sleepers`.
        !self.stealer.is_empty() || !self.lifo.load(Ordering::Relaxed).is_null()
    }

    /// One job from its queue.
    pub(crate) fn steal(&self) -> Option<JobRef> {
        loop {
            match self.stealer.steal() {
                Steal::Success(job) => return Some(job),
                Steal::Empty => return None,
                Steal::Retry => {}
            }
        }
    }

    /// Half of its queue, into another one; the first of them comes back.
    pub(crate) fn steal_into(&self, deque: &crossbeam_deque::Worker<JobRef>) -> Option<JobRef> {
        loop {
            match self.stealer.steal_batch_and_pop(deque) {
                Steal::Success(job) => return Some(job),
                Steal::Empty => return None,
                Steal::Retry => {}
            }
        }
    }

    /// One job from its queue or its slot.
    pub(crate) fn steal_any(&self) -> Option<JobRef> {
        self.steal().or_else(|| self.take_lifo())
    }

    /// The seat for an attempt that runs `depth` attempts deep (1 and up).
    pub(crate) fn nested_seat(&self, depth: usize) -> Arc<Seat> {
        let mut nested = self.nested.lock();
        while nested.len() < depth {
            nested.push(Arc::new(Seat::new()));
        }
        let seat = Arc::clone(&nested[depth - 1]);
        // ORDERING: Relaxed: the driver looks at these after the fences that `sit` and it make.
        self.nested_count.store(nested.len(), Ordering::Relaxed);
        seat
    }

    /// Calls `f` for each of its seats.
    pub(crate) fn each_seat(&self, mut f: impl FnMut(&Seat)) {
        f(&self.seat);
        // ORDERING: Relaxed: see `nested_seat`.
        if self.nested_count.load(Ordering::Relaxed) > 0 {
            let nested = self.nested.lock().clone();
            for seat in &nested {
                f(seat);
            }
        }
    }

    /// Whether this sitting is still on the seat at this address.
    pub(crate) fn sits(&self, seat: usize, sitting: Sitting) -> bool {
        let mut sits = false;
        self.each_seat(|at| {
            if core::ptr::from_ref(at).addr() == seat {
                sits = at.glance().is_some_and(|(now, _)| now == sitting);
            }
        });
        sits
    }

    fn standing(&self) -> u32 {
        // ORDERING: Relaxed: it says what becomes of the thread, and hands nothing over.
        self.standing.load(Ordering::Relaxed)
    }

    /// Whether somebody has its place: it begins nothing more.
    pub(crate) fn is_replaced(&self) -> bool {
        self.standing() == REPLACED
    }

    pub(crate) fn condition(&self) -> Condition {
        match self.standing() {
            ACTIVE => Condition::Active,
            REPLACED => Condition::Stuck { replaced: true },
            MISSED => Condition::Stuck { replaced: false },
            _ => Condition::Leaving,
        }
    }

    /// Whether it is held up: it waits for a job, or is in a blocking section.
    pub(crate) fn waits(&self) -> bool {
        // ORDERING: Relaxed: a number.
        self.held.load(Ordering::Relaxed) & !OUT != 0
    }

    /// How many jobs lie in its queue and its slot.
    pub(crate) fn queued(&self) -> usize {
        // ORDERING: Relaxed: a look.
        self.stealer.len() + usize::from(!self.lifo.load(Ordering::Relaxed).is_null())
    }

    /// Whether its thread should end at the next turn: somebody has its place. Asked by itself, and if
    /// true, decided.
    pub(crate) fn must_end(&self) -> bool {
        self.standing() == REPLACED && self.leave(REPLACED, GONE)
    }

    fn is_active(&self) -> bool {
        self.standing() == ACTIVE
    }

    pub(crate) fn is_stuck(&self) -> bool {
        matches!(self.standing(), REPLACED | MISSED)
    }

    pub(crate) fn is_exempt(&self) -> bool {
        self.standing() == EXEMPT
    }

    fn leave(&self, from: u32, to: u32) -> bool {
        // ORDERING: Relaxed: only who moves it matters; see `standing`.
        self.standing.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.take_lifo());
    }
}

/// A snapshot of the threads.
pub(crate) type Crew = Arc<[Arc<Member>]>;

/// All of them. Changes are rare; who walks over them often keeps a snapshot and its version.
#[derive(Debug)]
pub(crate) struct Members {
    version: CachePadded<AtomicU64>,
    crew: Mutex<(u64, Crew)>,
    next_index: AtomicUsize,
    /// Threads that the shutdown waits for.
    active: AtomicUsize,
    /// Held for one pin: the driver's, or that of somebody who asks how the workers are.
    pins: Mutex<()>,
}

impl Members {
    pub(crate) fn new() -> Self {
        Self {
            version: CachePadded::new(AtomicU64::new(0)),
            crew: Mutex::new((0, Arc::from([]))),
            next_index: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            pins: Mutex::new(()),
        }
    }

    /// What is on a seat, held in its place while it is read. `None`: nothing, or it is over by now.
    pub(crate) fn look_at(&self, seat: &Seat) -> Option<Seen> {
        let (sitting, _) = seat.glance()?;
        self.hold(seat, sitting)
    }

    /// The same for a sitting that was glanced at.
    pub(crate) fn hold(&self, seat: &Seat, sitting: Sitting) -> Option<Seen> {
        // Nothing foreign happens under it: with a reference of our own, what the worker may leave to us
        // is not the last one.
        let _one = self.pins.lock();
        let pinned = seat.pin(sitting)?;
        let (deadline, timeout, since) = (pinned.deadline, pinned.timeout, pinned.since);
        Some(Seen { job: pinned.job(), sitting, deadline, timeout, since })
    }

    pub(crate) fn all(&self) -> Crew {
        Arc::clone(&self.crew.lock().1)
    }

    /// Brings a snapshot up to date.
    pub(crate) fn refresh(&self, version: &mut u64, crew: &mut Crew) {
        // ORDERING: Relaxed: a look; the lock orders the rest. That a new member with work is not
        // missed by somebody about to sleep is the fences' business, see `Sleepers`.
        if self.version.load(Ordering::Relaxed) != *version {
            let lock = self.crew.lock();
            *version = lock.0;
            *crew = Arc::clone(&lock.1);
        }
    }

    pub(crate) fn next_index(&self) -> usize {
        // ORDERING: Relaxed: unique is enough.
        self.next_index.fetch_add(1, Ordering::Relaxed)
    }

    fn change(&self, to: impl FnOnce(&Crew) -> Crew) {
        let mut lock = self.crew.lock();
        lock.1 = to(&lock.1);
        lock.0 += 1;
        // ORDERING: Relaxed: see `refresh`.
        self.version.store(lock.0, Ordering::Relaxed);
    }

    pub(crate) fn join(&self, member: &Arc<Member>) {
        // ORDERING: Relaxed: whoever brings a worker is counted itself, or is the driver, which asks.
        self.active.fetch_add(1, Ordering::Relaxed);
        self.change(|crew| crew.iter().chain([member]).cloned().collect());
    }

    /// The thread of `member` is at its end. True: it was still one the shutdown waits for.
    pub(crate) fn part(&self, member: &Arc<Member>, counters: &Counters) -> bool {
        let before = member.standing();
        let active = before == ACTIVE && member.leave(ACTIVE, GONE);
        let mut lock = self.crew.lock();
        // Under the lock, so that sums over both never miss or double a set.
        counters.absorb(&member.counters);
        #[cfg(feature = "metrics")]
        if let Some(meter) = &member.meter {
            meter.hand_over();
        }
        lock.1 = lock.1.iter().filter(|other| !Arc::ptr_eq(other, member)).cloned().collect();
        lock.0 += 1;
        // ORDERING: Relaxed: see `refresh`.
        self.version.store(lock.0, Ordering::Relaxed);
        drop(lock);
        if active {
            self.leave_active();
        }
        active
    }

    /// Whether more than `needed` are active: for a look, before [`step_down`](Self::step_down).
    pub(crate) fn is_surplus(&self, needed: usize) -> bool {
        // ORDERING: Relaxed: ordered by the fences of `Sleepers`, for who goes to sleep.
        self.active.load(Ordering::Relaxed) > needed
    }

    /// Takes a worker out that is one too many: more than `needed` are active. True: it is out.
    ///
    /// `needed` is asked again when the worker is counted out: who began to block in between still
    /// counted on it, and brought nobody.
    pub(crate) fn step_down(&self, member: &Member, needed: impl Fn() -> usize) -> bool {
        // ORDERING: Relaxed: a stale value fails the exchange.
        let mut seen = self.active.load(Ordering::Relaxed);
        loop {
            if seen <= needed() || !member.is_active() {
                return false;
            }
            // ORDERING: Release: as in `leave_active`.
            match self.active.compare_exchange(seen, seen - 1, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // ORDERING: SeqCst fence: pairs with the one in `Local::hold`: either the one who blocks sees
        // us gone, or we see that it blocks.
        fence(Ordering::SeqCst);
        if seen - 1 < needed() {
            // ORDERING: Relaxed: a number; whatever we did is released when we leave.
            self.active.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        // It is idle, so nobody calls it stuck, and it is counted out by now.
        let out = member.leave(ACTIVE, GONE);
        if !out {
            // ORDERING: Relaxed: as above.
            self.active.fetch_add(1, Ordering::Relaxed);
        }
        out
    }

    fn leave_active(&self) {
        // ORDERING: Release: pairs with the Acquire in `active`: who sees the count at zero has seen
        // what they did. (All that move it are RMWs, which carry each other's release on.)
        self.active.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn active(&self) -> usize {
        // ORDERING: Acquire: pairs with `leave_active`.
        self.active.load(Ordering::Acquire)
    }

    /// Takes a stuck worker out of the pool. False: it was out already. `replaced`: somebody takes
    /// its place.
    pub(crate) fn retire(&self, member: &Member, replaced: bool) -> bool {
        let out = member.leave(ACTIVE, if replaced { REPLACED } else { MISSED });
        if out {
            self.leave_active();
        }
        out
    }

    /// A worker is back from the job it was stuck in. True: it goes on; false: its thread ends; `None`:
    /// the driver has seen that it is back.
    pub(crate) fn come_back(&self, member: &Member) -> Option<bool> {
        if member.leave(MISSED, ACTIVE) {
            // ORDERING: Relaxed: a number; whatever it does is released when it leaves.
            self.active.fetch_add(1, Ordering::Relaxed);
            // Back at its turn, it is not held up.
            let _ = member.put_back();
            return Some(true);
        }
        member.must_end().then_some(false)
    }

    /// A worker was just retired because of a sitting. True: it had come back, and is in the pool as
    /// before. False: it sits there yet, or has seen that it was out, and acts on that.
    pub(crate) fn keep(&self, member: &Member, sits: impl FnOnce() -> bool) -> bool {
        // ORDERING: SeqCst fence: RetireFence, pairs with SleepFence in `Sleepers::sleep`: a worker that
        // has stood up since we looked sees, before it sleeps, that it is out; or we see that it has
        // stood up.
        fence(Ordering::SeqCst);
        !sits() && self.reinstate(member)
    }

    fn reinstate(&self, member: &Member) -> bool {
        let back = member.leave(REPLACED, ACTIVE) || member.leave(MISSED, ACTIVE);
        if back {
            // ORDERING: Relaxed: as in `come_back`.
            self.active.fetch_add(1, Ordering::Relaxed);
        }
        back
    }

    /// The shutdown does not wait for this one: it waits for the shutdown.
    pub(crate) fn exempt(&self, member: &Member) {
        if member.leave(ACTIVE, EXEMPT) {
            self.leave_active();
        }
    }

    pub(crate) fn stuck(&self) -> usize {
        self.all().iter().filter(|member| member.is_stuck()).count()
    }

    /// Sums all histograms.
    #[cfg(feature = "metrics")]
    pub(crate) fn meters(&self, shared: &Meter) -> super::observe::meter::Sums {
        let lock = self.crew.lock();
        let mut sums = shared.sums();
        for meter in lock.1.iter().filter_map(|member| member.meter.as_ref()) {
            meter.add_to(&mut sums);
        }
        sums
    }

    /// Sums all counters.
    pub(crate) fn with_counters(&self, shared: &Counters, stats: &mut Stats) {
        let lock = self.crew.lock();
        shared.add_to(stats);
        for member in lock.1.iter() {
            member.counters.add_to(stats);
            match member.standing() {
                REPLACED | MISSED => stats.stuck_workers += 1,
                GONE => {}
                _ => stats.workers += 1,
            }
        }
        drop(lock);
        // ORDERING: Acquire fence: pairs with the Release of `Count`: what is asked after this call
        // is no older than the ends counted in it.
        fence(Ordering::Acquire);
    }
}
