//! The driver: one thread that owns the wheel, sleeps until the next deadline and runs callbacks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

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
    /// 1 once the driver touched its last timer.
    done: AtomicU32,
}

/// Each has one writer at a time: the driver, but for `cancelled`.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) fired: AtomicU64,
    pub(super) panicked: AtomicU64,
    pub(super) discarded: AtomicU64,
    pub(super) cancelled: AtomicU64,
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
            },
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
        // ORDERING: Relaxed: statistics; the driver is the only writer.
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// So many timers are linked before those that are due get their turn again.
const BATCH: u32 = 256;

/// The driver's own state. Only its thread has it.
pub(super) struct Driver<C: Clock> {
    shared: Arc<Shared>,
    clock: C,
    wheel: Wheel<Timer>,
    /// The first of the timers that were taken off the stack and not looked at yet.
    backlog: Option<Timer>,
    /// The clock's last reading.
    now: Timestamp,
    closing: bool,
}

impl<C: Clock> Driver<C> {
    pub(super) fn new(shared: Arc<Shared>, clock: C) -> Self {
        let now = clock.now();
        Self { shared, clock, wheel: Wheel::new(now), backlog: None, now, closing: false }
    }

    /// Until somebody closes the intake.
    pub(super) fn run(mut self) {
        sharpen_sleep();
        loop {
            self.take_in();
            if self.closing {
                break;
            }
            if self.fire() || self.backlog.is_some() {
                // Time went by, or there is more to take in.
                continue;
            }
            let next = self.wheel.next_deadline().unwrap_or(Timestamp::NEVER);
            if self.shared.intake.prepare_sleep(next) {
                let left = self.clock.real_time_until(next);
                let due = left.is_some_and(|left| left.is_zero()) || self.clock.now() >= next;
                if !due {
                    self.shared.intake.sleep(left);
                }
            }
        }
        self.end();
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
            // SAFETY: the stack was taken, this timer is not linked from it yet, and this is the
            // driver's thread. After `link`, or the release, its `next` may be another's.
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
                // SAFETY: the driver's thread.
                unsafe { timer.set_key(key) };
            }
            // SAFETY: the driver's hold, and the last that this thread does with the timer.
            Link::Cancelled => unsafe { timer.release_driver() },
        }
    }

    /// Runs what is due, until something new comes in. False if nothing was due.
    fn fire(&mut self) -> bool {
        self.now = self.clock.now();
        let mut fired = false;
        while let Some(timer) = self.wheel.expire(self.now) {
            fired = true;
            // The callback may have closed the intake, or inserted what is due before the next.
            if self.dispatch(timer, Timer::run, &self.shared.counters.fired)
                && self.shared.intake.has_news()
            {
                break;
            }
        }
        fired
    }

    /// Takes a timer's callback and does with it; false if it was cancelled.
    fn dispatch(&self, timer: Timer, what: unsafe fn(Timer), counter: &AtomicU64) -> bool {
        if !timer.header().state.take() {
            // Its canceller has pushed it, or is about to: the hold goes with that.
            return false;
        }
        count(counter);
        // Foreign code, with no lock held and no state half written: the timer is out of the wheel,
        // its phase final. It may panic, or call back into the timers.
        // SAFETY: taken just now.
        guarded(&self.shared.counters.panicked, || unsafe { what(timer) });
        // SAFETY: the driver's hold, and the last that this thread does with the timer.
        unsafe { timer.release_driver() };
        true
    }

    /// Drops what is left, unrun, and lets the intake end.
    fn end(mut self) {
        loop {
            for timer in self.wheel.drain() {
                self.dispatch(timer, Timer::discard, &self.shared.counters.discarded);
            }
            if self.backlog.is_none() && self.shared.intake.finish() {
                break;
            }
            self.take_in();
        }
        self.shared.finish();
    }
}

/// Runs foreign code; its panic ends here, counted.
fn guarded(panicked: &AtomicU64, foreign: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(foreign)) {
        count(panicked);
        // The payload is foreign, too: its drop may panic with another.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            core::mem::forget(again);
        }
    }
}

/// Asks the system to end this thread's sleeps when they are over, and not up to 50 µs later.
fn sharpen_sleep() {
    #[cfg(all(target_os = "linux", not(tenure_loom)))]
    // SAFETY: takes one number, and concerns the calling thread alone.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
    }
}
