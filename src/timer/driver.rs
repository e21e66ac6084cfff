//! The driver: owns the wheel, sleeps until the next deadline and has callbacks run.
//!
//! Which thread that is, and what happens when a callback does not return: see [`helm`](super::helm).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::crew::Drive;
use super::helm::Helm;
use super::intake::Intake;
use super::node::Timer;
use super::state::Link;
use super::wheel::Wheel;
use crate::clock::{AdvanceListener, Clock, Timestamp};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::park;

/// What handles, the driver and the clock's listener share. In a `std` [`Arc`], as listeners are.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) intake: Intake,
    pub(super) counters: Counters,
    pub(super) helm: Arc<Helm>,
    /// 1 once the last callback has come back and the driver touched its last timer.
    done: AtomicU32,
}

/// `fired` and `discarded` are written by whoever drives, the others by anybody.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) fired: AtomicU64,
    pub(super) panicked: AtomicU64,
    pub(super) discarded: AtomicU64,
    pub(super) cancelled: AtomicU64,
    /// Of those, the ones that the driver has to clear up.
    pub(super) left_behind: AtomicU64,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            intake: Intake::new(),
            counters: Counters {
                fired: AtomicU64::new(0),
                panicked: AtomicU64::new(0),
                discarded: AtomicU64::new(0),
                cancelled: AtomicU64::new(0),
                left_behind: AtomicU64::new(0),
            },
            helm: Arc::new(Helm::new()),
            done: AtomicU32::new(0),
        }
    }

    /// Whether the driver is through.
    pub(super) fn is_done(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release in `finish`: what the driver ran and dropped
        // happened before its end is seen.
        self.done.load(Ordering::Acquire) == 1
    }

    /// Waits for the driver's end, until `deadline` on a real clock.
    pub(super) fn wait_done(&self, clock: &impl Clock, deadline: Timestamp) -> bool {
        while !self.is_done() {
            let left = clock.real_time_until(deadline);
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            let _ = park::wait(&self.done, 0, left);
        }
        true
    }

    fn finish(&self) {
        // ORDERING: Release: pairs with the Acquire in `is_done`.
        self.done.store(1, Ordering::Release);
        park::wake_all(&raw const self.done);
    }
}

impl AdvanceListener for Shared {
    fn clock_advanced(&self) {
        self.intake.notify();
    }
}

fn count(counter: &AtomicU64) {
    // A model would try each order of these with everything else, and learn nothing.
    if cfg!(not(tenure_loom)) {
        // ORDERING: Relaxed: statistics; whoever drives is the only writer.
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// So many timers are linked before those that are due get their turn again.
const BATCH: u32 = 256;

/// What to do with a callback that was taken.
#[derive(Clone, Copy)]
enum Fate {
    Run,
    Drop,
}

/// A timer whose callback was taken, and what becomes of it.
pub(super) struct Deed {
    timer: Timer,
    fate: Fate,
}

/// The driver's own state. Only whoever drives has it.
pub(super) struct Driver<C: Clock> {
    shared: Arc<Shared>,
    clock: C,
    wheel: Wheel<Timer>,
    /// The first of the timers that were taken off the stack and not looked at yet.
    backlog: Option<Timer>,
    /// The clock's last reading.
    now: Timestamp,
    /// What is due at `now` is being taken out; whether any was.
    firing: Option<bool>,
    closing: bool,
    /// At the end: what was in the wheel, to be dropped.
    left: Vec<Timer>,
}

impl<C: Clock> Driver<C> {
    pub(super) fn new(shared: Arc<Shared>, clock: C) -> Self {
        let now = clock.now();
        Self {
            shared,
            clock,
            wheel: Wheel::new(now),
            backlog: None,
            now,
            firing: None,
            closing: false,
            left: Vec::new(),
        }
    }

    /// Links what is new and unlinks what was cancelled, some of it.
    fn take_in(&mut self) {
        if self.backlog.is_none() {
            let taken = self.shared.intake.take();
            self.closing |= taken.closing;
            self.backlog = Timer::from_ptr(taken.first);
        }
        for _ in 0..BATCH {
            let Some(timer) = self.backlog else { return };
            // SAFETY: the stack was taken, this timer is not linked from it yet, and this thread
            // drives. After `link`, or the release, its `next` may be another's.
            unsafe {
                self.backlog = Timer::from_ptr(timer.next());
                match timer.key() {
                    None => self.link(timer),
                    Some(key) => {
                        // `None` if it was due just before: it is out of the wheel either way.
                        let _ = self.wheel.cancel(key);
                        timer.release_driver();
                    }
                }
            }
        }
    }

    /// # Safety
    ///
    /// The timer was taken off the stack for the first time, and its `next` was read.
    unsafe fn link(&mut self, timer: Timer) {
        match timer.header().state.link() {
            Link::Linked => {
                // What came too late is due now, and not before all that was due in time: else a
                // callback that keeps inserting starves the others.
                let deadline = timer.header().deadline.max(self.now);
                let key = self.wheel.insert(deadline, timer);
                // SAFETY: this thread drives.
                unsafe { timer.set_key(key) };
            }
            // SAFETY: the driver's hold, and the last that this thread does with the timer.
            Link::Cancelled => unsafe { timer.release_driver() },
        }
    }

    /// The next timer that is due, its callback taken. `None` if there is none any more.
    fn due(&mut self) -> Option<Timer> {
        while let Some(timer) = self.wheel.expire(self.now) {
            self.firing = Some(true);
            // Else its canceller has pushed it, or is about to: the hold goes with that.
            if timer.header().state.take() {
                count(&self.shared.counters.fired);
                return Some(timer);
            }
        }
        None
    }

    /// At the end: the next timer that is left, its callback taken.
    fn left(&mut self) -> Option<Timer> {
        loop {
            while let Some(timer) = self.left.pop() {
                if timer.header().state.take() {
                    count(&self.shared.counters.discarded);
                    return Some(timer);
                }
            }
            self.left = self.wheel.drain().collect();
            if self.left.is_empty() {
                if self.backlog.is_none() && self.shared.intake.finish() {
                    return None;
                }
                self.take_in();
            }
        }
    }

    fn sleep(&self, next: Timestamp, helm: &Helm) {
        if self.shared.intake.prepare_sleep(next) {
            let left = self.clock.real_time_until(next);
            let due = left.is_some_and(|left| left.is_zero()) || self.clock.now() >= next;
            if !due {
                helm.plan(next);
                self.shared.intake.sleep(left);
            }
        }
    }
}

impl<C: Clock> Drive for Driver<C> {
    type Common = Shared;
    type Deed = Deed;
    type Outcome = ();

    /// Until somebody closes the intake.
    fn step(&mut self, helm: &Helm) -> Option<Deed> {
        while !self.closing {
            if self.firing.is_none() {
                self.take_in();
                if self.closing {
                    break;
                }
                self.now = self.clock.now();
                self.firing = Some(false);
            }
            if let Some(timer) = self.due() {
                return Some(Deed { timer, fate: Fate::Run });
            }
            let fired = self.firing.take() == Some(true);
            // Unless time went by, or there is more to take in.
            if !fired && self.backlog.is_none() {
                let next = self.wheel.next_deadline().unwrap_or(Timestamp::NEVER);
                self.sleep(next, helm);
            }
        }
        self.left().map(|timer| Deed { timer, fate: Fate::Drop })
    }

    /// Foreign code, with no lock held and no state half written: the timer is out of the wheel, its
    /// phase final. It may panic, call back into the timers, or never return.
    fn perform(shared: &Arc<Shared>, Deed { timer, fate }: Deed) {
        guarded(&shared.counters.panicked, || match fate {
            // SAFETY: taken just now, by whoever made the deed; done once.
            Fate::Run => unsafe { timer.run() },
            // SAFETY: as above.
            Fate::Drop => unsafe { timer.discard() },
        });
        // SAFETY: the driver's hold, and the last that this thread does with the timer.
        unsafe { timer.release_driver() };
    }

    fn settle(&mut self, (): ()) {
        // The callback may have closed the intake, or inserted what is due before the next.
        if self.shared.intake.has_news() {
            self.firing = None;
        }
    }

    fn all_back(shared: &Shared) {
        shared.finish();
    }
}

/// Runs foreign code; its panic ends here, counted.
fn guarded(panicked: &AtomicU64, foreign: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(foreign)) {
        // ORDERING: Relaxed: statistics; several may panic at a time, if one was held up.
        panicked.fetch_add(1, Ordering::Relaxed);
        // The payload is foreign, too: its drop may panic with another.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            core::mem::forget(again);
        }
    }
}
