//! What all threads of a runtime share, and what they do with a job between attempts.

use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Weak};

use crossbeam_deque::Injector;
use crossbeam_utils::CachePadded;

use super::builder::Config;
use super::cell::{JobRef, contained};
use super::clockwork::{Clockwork, Wound};
use super::drain::Drainers;
use super::events::{Event, Subscribers};
use super::gates::{Numbers, Pause};
use super::health::Monitor;
use super::intake::{Bell, Intake};
use super::keys::Keys;
use super::letters::Letters;
use super::members::{Member, Members};
use super::options::Priority;
use super::policy::line::Line;
use super::policy::live::Live;
use super::policy::shared::Lines;
use super::policy::unique::Uniques;
use super::room::Room;
use super::shutdown::Closing;
use super::sleep::Sleepers;
use super::state::Fired;
use super::stats::{Count, Counters, Stats};
use super::task::Tasks;
use super::waiting::HeldUp;
use super::worker;
use crate::clock::{AdvanceListener, Clock, Timestamp};
use crate::retry::{Decision, Stop};
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Something on its way to the driver.
#[derive(Debug)]
pub(crate) enum Notice {
    /// At `at`, fire the job's `epoch`.
    Arm { job: JobRef, epoch: u32, at: Timestamp },
    /// At `at`, the job's time is up.
    Deadline { job: JobRef, at: Timestamp },
    /// At `at`, a second attempt is to begin beside that with this epoch.
    Hedge { job: JobRef, epoch: u32, at: Timestamp },
    /// At `at`, the head of the line may ask again.
    Line { line: Arc<Line>, at: Timestamp },
    /// The job is over: let go of its timers.
    Forget(JobRef),
}

/// A job whose timer led to no queue: what is left to do with it may call foreign code.
pub(crate) enum Unfired {
    /// Nothing but to drop the reference.
    Release(JobRef),
    /// It may be over, and not counted.
    Stale(JobRef),
    /// It is over, and who ended it did not see that it had its key.
    Owner(JobRef),
}

/// See the [file's docs](self).
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// For those who are to find the runtime if it still lives.
    me: Weak<Self>,
    pub(crate) clock: Arc<dyn Clock>,
    wound: Wound,
    pub(super) injectors: [CachePadded<Injector<JobRef>>; 3],
    pub(crate) sleepers: CachePadded<Sleepers>,
    pub(crate) closing: Closing,
    paused: Pause,
    pub(crate) members: Members,
    pub(crate) intake: Intake<Notice>,
    pub(crate) bell: CachePadded<Bell>,
    pub(crate) drainers: Drainers,
    pub(crate) tasks: Tasks,
    pub(crate) held_up: CachePadded<HeldUp>,
    pub(crate) keys: Keys,
    pub(crate) uniques: Uniques,
    pub(crate) lines: Lines,
    pub(crate) live: CachePadded<Live>,
    /// Workers that the system gave no thread for.
    pub(crate) owed: AtomicUsize,
    pub(crate) subscribers: Subscribers,
    pub(crate) counters: CachePadded<Counters>,
    pub(crate) letters: Letters,
    pub(crate) monitor: Monitor,
    /// What all workers' histograms come to in the end, if anything is measured.
    #[cfg(feature = "metrics")]
    pub(crate) meter: Option<Arc<super::observe::meter::Meter>>,
    /// The number of the job taken in last.
    ids: Numbers,
    pub(crate) room: CachePadded<Room>,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        live: Live,
        clock: Arc<dyn Clock>,
        subscribers: Subscribers,
        letters: Letters,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            room: CachePadded::new(Room::new(config.capacity)),
            #[cfg(feature = "metrics")]
            meter: config
                .metrics
                .as_ref()
                .map(|metrics| super::observe::meter::Meter::shared(metrics.names())),
            config,
            injectors: std::array::from_fn(|_| CachePadded::new(Injector::new())),
            sleepers: CachePadded::new(Sleepers::new()),
            closing: Closing::new(),
            paused: Pause::new(),
            wound: Wound::default(),
            members: Members::new(),
            intake: Intake::new(),
            bell: CachePadded::new(Bell::new()),
            drainers: Drainers::new(),
            tasks: Tasks::new(),
            held_up: CachePadded::new(HeldUp::new()),
            keys: Keys::new(Arc::clone(&clock)),
            uniques: Uniques::new(),
            lines: Lines::new(),
            live: CachePadded::new(live),
            owed: AtomicUsize::new(0),
            subscribers,
            counters: CachePadded::new(Counters::new()),
            letters,
            monitor: Monitor::new(),
            ids: Numbers::new(),
            clock,
        })
    }

    /// For those who are to find the runtime if it still lives.
    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    // --- queues ---------------------------------------------------------------------------------

    pub(crate) fn injector(&self, priority: Priority) -> &Injector<JobRef> {
        match priority {
            Priority::High => &self.injectors[0],
            Priority::Normal => &self.injectors[1],
            Priority::Low => &self.injectors[2],
        }
    }

    pub(crate) fn has_injected(&self) -> bool {
        self.injectors.iter().any(|injector| !injector.is_empty())
    }

    /// Queues an entry for a job that is Ready, and wakes a worker if need be.
    pub(crate) fn push(&self, job: JobRef) {
        #[cfg(feature = "metrics")]
        self.stamp(&job);
        match job.priority {
            Priority::Normal => {
                if let Some(job) = worker::push_local(self, job) {
                    self.injector(Priority::Normal).push(job);
                }
            }
            other => self.injector(other).push(job),
        }
        // The fence in there is also the one that orders the push before the look at the phase.
        self.sleepers.notify();
        if self.closing.has_begun() {
            self.sweep();
        }
    }

    /// The same, behind everything that waits.
    pub(crate) fn push_back(&self, job: JobRef) {
        #[cfg(feature = "metrics")]
        self.stamp(&job);
        self.injector(job.priority).push(job);
        self.sleepers.notify();
        if self.closing.has_begun() {
            self.sweep();
        }
    }

    /// Queues entries for jobs that are Ready; wakes at most as many workers as there are jobs.
    pub(crate) fn push_all(&self, jobs: Vec<JobRef>) {
        let count = jobs.len();
        for job in jobs {
            #[cfg(feature = "metrics")]
            self.stamp(&job);
            self.injector(job.priority).push(job);
        }
        for _ in 0..count {
            if !self.sleepers.notify() {
                break;
            }
        }
        if self.closing.has_begun() {
            self.sweep();
        }
    }

    pub(crate) fn pause(&self, paused: bool) {
        self.paused.set(paused, &self.sleepers);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.is_on()
    }

    // --- time -----------------------------------------------------------------------------------

    /// Timers that run callbacks.
    pub(crate) fn timers(&self) -> Result<Arc<Clockwork>, crate::timer::StartError> {
        self.wound.timers(&self.clock)
    }

    /// The moment after `delay`; `None` is now.
    pub(crate) fn after(&self, delay: Duration) -> Option<Timestamp> {
        (!delay.is_zero()).then(|| self.clock.now().saturating_add(delay))
    }

    /// Has the driver fire `epoch` at `at`. The job is in Backoff or Scheduled.
    pub(crate) fn arm(&self, job: JobRef, epoch: u32, at: Option<Timestamp>) {
        let Some(at) = at else { return self.fire(job, epoch) };
        // Whoever cancels it from here on tells us, and the driver lets go of it.
        job.past(|past| past.home = self.weak());
        self.send(Notice::Arm { job, epoch, at }, at);
    }

    /// Tells the driver of something that is to happen at `at`.
    pub(crate) fn send(&self, notice: Notice, at: Timestamp) {
        self.intake.push(notice);
        // The fence in there also orders the push before the look at the phase.
        self.bell.ring_for(at);
        if self.closing.has_begun() {
            self.sweep_intake();
        }
    }

    /// A timer is due: the same as [`fire`](Self::fire), for the driver with its token held. What may call
    /// foreign code is left to it.
    ///
    /// So what it fires is in a queue, or in a line, before anybody else can drive, and a sweep finds it.
    /// It does not sweep itself: the driver looks at the phase before it sleeps.
    pub(crate) fn fire_quietly(&self, job: JobRef, epoch: u32) -> Option<Unfired> {
        let serial = job.options.as_ref().and_then(|o| o.serial.as_ref());
        let fired = if job.is_alone() {
            job.state.fire_alone(epoch, serial.is_some())
        } else {
            job.state.fire(epoch, serial.is_some())
        };
        match (fired, serial) {
            (Fired::InLine, Some(serial)) if !self.keys.admit(&serial.key, &job) => {
                return Some(Unfired::Release(job));
            }
            (Fired::InLine, _) if !job.state.resume() => return Some(Unfired::Owner(job)),
            (Fired::InLine | Fired::Ready, _) => {}
            (Fired::Marked, _) => return Some(Unfired::Release(job)),
            (Fired::Stale, _) => return Some(Unfired::Stale(job)),
        }
        #[cfg(feature = "metrics")]
        self.stamp(&job);
        self.injector(job.priority).push(job);
        self.sleepers.notify();
        None
    }

    /// A timer is due.
    pub(crate) fn fire(&self, job: JobRef, epoch: u32) {
        let serial = job.options.as_ref().and_then(|o| o.serial.as_ref());
        let fired = if job.is_alone() {
            job.state.fire_alone(epoch, serial.is_some())
        } else {
            job.state.fire(epoch, serial.is_some())
        };
        match fired {
            Fired::Ready => self.push(job),
            Fired::InLine => self.take_in(job),
            // The late attempt that is inside has a reference, and pushes it.
            Fired::Marked => {}
            Fired::Stale => self.stale(&job, None),
        }
    }

    /// What to do after an attempt came to nothing: a delay, or who says no. `draws`: a retry is taken
    /// out of the budget; not if it is likely that nothing will come of it.
    pub(crate) fn decide(
        &self,
        job: &JobRef,
        attempt: u32,
        began: Timestamp,
        (worth_it, draws): (bool, bool),
        wish: Option<Duration>,
    ) -> Result<Duration, Stop> {
        if !worth_it {
            return Err(Stop::NotRetryable);
        }
        // A closure that can be called once, or a word whose attempts have no more room.
        if !job.retryable() || attempt >= u32::from(u16::MAX) {
            return Err(Stop::MaxAttempts);
        }
        let own = job.options.as_ref().and_then(|o| o.retry);
        let policy = own.unwrap_or_else(|| self.live.retry());
        let (previous, began) = job.past(|past| (past.delay, past.began.unwrap_or(began)));
        let now = self.clock.now();
        let elapsed = now.saturating_since(began);
        let decision = match wish {
            Some(delay) => policy.admit(attempt, elapsed, delay),
            None => {
                let seed = self.config.seed ^ job.id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(u64::from(attempt)));
                policy.next(attempt, previous, elapsed, &mut rng)
            }
        };
        let delay = match decision {
            Decision::Retry(delay) => delay,
            Decision::GiveUp(stop) => return Err(stop),
        };
        if Self::deadline_of(job).is_some_and(|deadline| now.saturating_add(delay) >= deadline) {
            return Err(Stop::Deadline);
        }
        // Last, since it is used up by that.
        if draws && !self.live.withdraw() {
            return Err(Stop::Budget);
        }
        Ok(delay)
    }

    pub(crate) fn attempt_timeout(&self, job: &JobRef) -> Option<Duration> {
        match job.options.as_ref().and_then(|o| o.attempt_timeout) {
            Some(own) => own,
            None => self.live.attempt_timeout(),
        }
    }

    /// A worker was taken out, and the system gave no thread for another.
    pub(crate) fn owe_a_worker(&self) {
        // ORDERING: Relaxed: the ring comes after it, and the driver looks after it has heard that.
        self.owed.fetch_add(1, Ordering::Relaxed);
        self.bell.ring();
    }

    /// The driver: asks the system again for the threads that it refused. True: it still refuses.
    pub(crate) fn repay(self: &Arc<Self>) -> bool {
        // ORDERING: Relaxed: see `owe_a_worker`.
        let mut owed = self.owed.load(Ordering::Relaxed);
        while owed > 0 && worker::spawn(self).is_ok() {
            // ORDERING: Relaxed: a number.
            owed = self.owed.fetch_sub(1, Ordering::Relaxed) - 1;
        }
        owed > 0
    }

    // --- counting -------------------------------------------------------------------------------

    /// Counts in the member's own set, or in the shared one.
    pub(crate) fn count(&self, member: Option<&Member>, which: impl Fn(&Counters) -> &Count) {
        match member {
            Some(member) => which(&member.counters).own(),
            None => which(&self.counters).share(1),
        }
    }

    /// What tells this runtime from all others that live.
    pub(crate) fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.next()
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.members.with_counters(&self.counters, &mut stats);
        // After the ends, so that there are never more of those.
        stats.submitted = self.ids.so_far();
        stats
    }

    /// Runs foreign code; a panic in it is told and goes no further.
    pub(crate) fn contained(&self, place: &'static str, f: impl FnOnce()) {
        if contained(f) {
            self.subscribers.tell(|| Event::ForeignPanic { place });
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A clock that is moved by hand wakes the driver.
impl AdvanceListener for Shared {
    fn clock_advanced(&self) {
        self.bell.ring();
    }
}
