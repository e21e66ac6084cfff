//! The shared timers: a handle on the driver's thread.

use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Weak};

use thiserror::Error;

use super::crew;
use super::driver::{Driver, Shared};
use super::intake::Below;
use super::node::Timer;
use super::state::Cancel;
use crate::clock::{AdvanceListener, Clock, MonotonicClock, Timestamp};
use crate::promise::{Eventual, promise};
use crate::sync::atomic::Ordering;

/// After so many cancels that left work behind the driver is woken to clear up, should it still be
/// asleep.
const CLEAR_UP: u64 = 4096;

/// Timers for any thread: a callback runs when its time has come.
///
/// One thread of their own (the *driver*) sleeps until the earliest deadline, exactly; while there
/// is none it does not wake at all. A second one, which sleeps as long, takes its place when a callback
/// does not return. Insert from anywhere, and cancel from anywhere, without a lock.
///
/// ```
/// use std::time::Duration;
/// use tenure::clock::MonotonicClock;
/// use tenure::timer::Timers;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let timers = Timers::start(MonotonicClock::new())?;
/// let (sender, receiver) = std::sync::mpsc::channel();
/// timers.after(Duration::from_millis(1), move || {
///     let _ = sender.send("rang");
/// })?;
/// let never = timers.after(Duration::MAX, || unreachable!())?;
/// assert!(never.cancel());
/// assert_eq!(receiver.recv()?, "rang");
/// assert!(timers.shutdown(Duration::from_secs(1)).is_complete());
/// # Ok(())
/// # }
/// ```
///
/// # Which thread runs what
///
/// Callbacks run on the driver, one after another, in the order of their deadlines (one that has
/// passed at the time of the insert counts as now): each should be short, and hand long work on. One
/// that panics is counted ([`TimerStats::panicked`]) and harms nobody else. One that takes longer than
/// 20 to 40 ms is left behind: another thread drives on, so callbacks behind it run beside it. Up to 16
/// may be left behind at a time ([`TimerStats::held_up`]); the one after those holds up the timers
/// until one of them returns. A callback that is cancelled is dropped on the thread that cancels it;
/// one that is left at the end, on the driver.
///
/// # Cancellation and drop
///
/// Dropping a [`TimerHandle`] leaves the timer as it is. Dropping the `Timers` asks the driver to
/// end and does not wait: a callback that runs is finished, all others are dropped unrun.
/// [`shutdown`](Self::shutdown) waits.
pub struct Timers<C: Clock = MonotonicClock> {
    shared: Arc<Shared>,
    clock: Arc<C>,
}

impl<C: Clock> Timers<C> {
    /// Starts the driver.
    ///
    /// With a [`ManualClock`](crate::clock::ManualClock) it sleeps until the clock is moved.
    ///
    /// # Errors
    ///
    /// [`StartError`] if the system gives no thread.
    pub fn start(clock: C) -> Result<Self, StartError> {
        let shared = Arc::new(Shared::new());
        let clock = Arc::new(clock);
        // The clock keeps a weak one: this outlives its timers by nothing.
        let listener: Weak<Shared> = Arc::downgrade(&shared);
        clock.on_advance(listener as Weak<dyn AdvanceListener>);
        let driver = Driver::new(Arc::clone(&shared), Arc::clone(&clock));
        let helm = Arc::clone(&shared.helm);
        let time = Arc::clone(&clock) as Arc<dyn Clock>;
        crew::start("tenure-timers".into(), helm, Arc::clone(&shared), time, driver)
            .map_err(StartError)?;
        Ok(Self { shared, clock })
    }

    /// The clock that deadlines are on.
    #[must_use]
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Runs `callback` on the driver once the clock has reached `deadline`; at once if it has. At
    /// [`Timestamp::NEVER`] the timer only waits to be cancelled.
    ///
    /// Costs the caller one allocation, and a wake of the driver (some microseconds) if the
    /// deadline is earlier than all others.
    ///
    /// # Errors
    ///
    /// [`InsertError`] gives the callback back when the timers were shut down.
    pub fn insert<F>(&self, deadline: Timestamp, callback: F) -> Result<TimerHandle, InsertError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let timer = Timer::new(deadline, callback);
        match self.shared.intake.insert(timer) {
            Ok(below) => Ok(TimerHandle { timer, below, shared: Arc::clone(&self.shared) }),
            // SAFETY: made above with this callback; refused, so nobody else has seen it.
            Err(_) => Err(InsertError { callback: unsafe { timer.into_callback() } }),
        }
    }

    /// Runs `callback` on the driver after `delay`, by the clock. See [`insert`](Self::insert).
    ///
    /// # Errors
    ///
    /// [`InsertError`] gives the callback back when the timers were shut down.
    pub fn after<F>(&self, delay: Duration, callback: F) -> Result<TimerHandle, InsertError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.insert(self.clock.now().saturating_add(delay), callback)
    }

    /// An eventual that is ready after `delay`, by the clock. Its callbacks run on the driver.
    ///
    /// It ends as [`Broken`](crate::promise::EventualError::Broken) if the timers are shut down
    /// first. Cancelling or dropping it leaves the timer where it is until it is due; what is to be
    /// taken back early is better a callback and its [`TimerHandle`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::clock::MonotonicClock;
    /// use tenure::timer::Timers;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let timers = Timers::start(MonotonicClock::new())?;
    /// let nap = timers.sleep::<()>(Duration::from_millis(1));
    /// assert!(nap.map(|()| "awake").get().is_ok_and(|said| said == "awake"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn sleep<E: Send + 'static>(&self, delay: Duration) -> Eventual<(), E> {
        let (promise, eventual) = promise();
        let ready = move || {
            // Refused if nobody waits any more.
            let _ = promise.set(());
        };
        // Refused, the callback goes and takes the promise with it: broken.
        drop(self.after(delay, ready));
        eventual
    }

    /// What the timers did so far.
    #[must_use]
    pub fn stats(&self) -> TimerStats {
        let counters = &self.shared.counters;
        // ORDERING: Relaxed: numbers of about now; each only grows.
        TimerStats {
            fired: counters.fired.load(Ordering::Relaxed),
            cancelled: counters.cancelled.load(Ordering::Relaxed),
            discarded: counters.discarded.load(Ordering::Relaxed),
            panicked: counters.panicked.load(Ordering::Relaxed),
            held_up: self.shared.helm.held_up(),
        }
    }

    /// Ends the timers: a callback that runs is finished, all others are dropped unrun.
    ///
    /// From here on [`insert`](Self::insert) fails; an insert that raced this either failed or its
    /// callback was dropped. Cancelling still works. Any thread may call it, more than once.
    ///
    /// # Blocking
    ///
    /// Waits for the driver's end, but no longer than `most` (in real time). From a callback it does
    /// not wait, as the driver cannot end before it returns.
    pub fn shutdown(&self, most: Duration) -> Shutdown {
        let real = MonotonicClock::new();
        let deadline = real.now().saturating_add(most);
        self.shared.intake.close();
        let own = crew::is_aboard(&*self.shared);
        let complete =
            if own { self.shared.is_done() } else { self.shared.wait_done(&real, deadline) };
        Shutdown { complete, discarded: self.stats().discarded }
    }
}

/// For [`Eventual::within`](crate::promise::Eventual::within): the limit is a timer, which is
/// cancelled when the outcome comes first. After the shutdown nothing is limited any more.
impl<C: Clock> crate::promise::Timer for Timers<C> {
    type Entry = Option<TimerGuard>;

    fn after(&self, delay: Duration, task: crate::executor::Task) -> Option<TimerGuard> {
        self.after(delay, move || task.run()).ok().map(TimerHandle::cancel_on_drop)
    }
}

impl<C: Clock> Drop for Timers<C> {
    fn drop(&mut self) {
        self.shared.intake.close();
    }
}

impl<C: Clock> fmt::Debug for Timers<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers")
            .field("clock", &self.clock)
            .field("closing", &self.shared.intake.is_closing())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// A timer that was inserted. Dropping it leaves the timer as it is.
pub struct TimerHandle {
    timer: Timer,
    below: Below,
    shared: Arc<Shared>,
}

// SAFETY: `below` is an address that is never followed; the rest is `Send`.
unsafe impl Send for TimerHandle {}
// SAFETY: as above: the rest is `Sync`.
unsafe impl Sync for TimerHandle {}

impl TimerHandle {
    /// Takes the callback away before it runs, and drops it on this thread. False if it has begun,
    /// has run, was cancelled, or was dropped at the end of its [`Timers`].
    ///
    /// After `true` the callback never runs. After `false` it may still be running.
    ///
    /// # Panics
    ///
    /// Only if dropping what the callback holds does.
    pub fn cancel(&self) -> bool {
        match self.timer.header().state.cancel() {
            Cancel::TooLate => return false,
            Cancel::Unseen => {
                // What is taken back at once leaves no work behind.
                if self.shared.intake.withdraw(self.timer, self.below) {
                    self.timer.header().state.withdrawn();
                    self.count_cancelled();
                } else {
                    self.leave_behind();
                }
            }
            Cancel::Unlink => {
                if self.shared.intake.unlink(self.timer).is_err() {
                    // SAFETY: the driver is gone and will not take the timer off the stack; its
                    // hold falls to the canceller. The handle's own keeps the memory.
                    unsafe { self.timer.release_driver() };
                }
                self.leave_behind();
            }
        }
        // Last, as it is foreign and may panic.
        // SAFETY: the callback was taken just now.
        unsafe { self.timer.discard() };
        true
    }

    fn count_cancelled(&self) {
        // A model would try each order of this with everything else, and learn nothing.
        if cfg!(not(tenure_loom)) {
            // ORDERING: Relaxed: statistics.
            self.shared.counters.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It was cancelled and is the driver's to clear up.
    fn leave_behind(&self) {
        self.count_cancelled();
        if cfg!(tenure_loom) {
            // No model has so many.
            return;
        }
        // ORDERING: Relaxed: a number.
        let before = self.shared.counters.left_behind.fetch_add(1, Ordering::Relaxed);
        if before % CLEAR_UP == CLEAR_UP - 1 {
            self.shared.intake.notify();
        }
    }

    /// Whether the callback is still to come.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.timer.header().state.is_pending()
    }

    /// When the timer is due.
    #[must_use]
    pub fn deadline(&self) -> Timestamp {
        self.timer.header().deadline
    }

    /// Makes the timer end with this handle: dropping the guard cancels it.
    pub fn cancel_on_drop(self) -> TimerGuard {
        TimerGuard { handle: self, armed: true }
    }
}

impl Drop for TimerHandle {
    fn drop(&mut self) {
        // SAFETY: the handle's hold, once.
        unsafe { self.timer.release_handle() };
    }
}

impl fmt::Debug for TimerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerHandle").field("timer", &self.timer).finish_non_exhaustive()
    }
}

/// Cancels its timer when dropped. See [`TimerHandle::cancel_on_drop`].
#[derive(Debug)]
#[must_use = "dropping the guard cancels the timer"]
pub struct TimerGuard {
    handle: TimerHandle,
    armed: bool,
}

impl TimerGuard {
    /// Drops the guard and leaves the timer as it is.
    pub fn disarm(mut self) {
        self.armed = false;
    }
}

impl core::ops::Deref for TimerGuard {
    type Target = TimerHandle;

    fn deref(&self) -> &TimerHandle {
        &self.handle
    }
}

impl Drop for TimerGuard {
    fn drop(&mut self) {
        if self.armed {
            self.handle.cancel();
        }
    }
}

/// What timers did since they were started. Numbers of about now; all but `held_up` only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimerStats {
    /// Callbacks that were run.
    pub fired: u64,
    /// Timers that were cancelled before they ran.
    pub cancelled: u64,
    /// Callbacks that were dropped at the end.
    pub discarded: u64,
    /// Callbacks that panicked while they ran or were dropped by the driver.
    pub panicked: u64,
    /// Callbacks that took so long that another thread drives, and have not returned yet.
    pub held_up: u32,
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Shutdown {
    complete: bool,
    discarded: u64,
}

impl Shutdown {
    /// Whether the driver has ended and every callback has returned. If not, one still runs.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// How many callbacks have been dropped unrun, so far.
    #[must_use]
    pub fn discarded(&self) -> u64 {
        self.discarded
    }
}

/// The system gave no thread for the driver.
#[derive(Debug, Error)]
#[error("no thread for the timers")]
pub struct StartError(#[source] std::io::Error);

/// The timers were shut down; the callback comes back, unrun.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[error("the timers were shut down")]
pub struct InsertError<F> {
    callback: F,
}

impl<F> InsertError<F> {
    /// The callback that was not inserted.
    pub fn into_callback(self) -> F {
        self.callback
    }
}

impl<F> fmt::Debug for InsertError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InsertError")
    }
}
