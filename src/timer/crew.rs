//! The threads around a [`Helm`]: one drives, one watches, some may be held up in foreign code.

use core::cell::Cell;
use core::ptr;
use std::sync::Arc;

use super::helm::{Call, Helm, PERIOD};
use crate::clock::{Clock, MonotonicClock, Timestamp};
use crate::sync::cell::UnsafeCell;
use crate::sync::thread;

/// What a driver does, told by its owner.
pub(crate) trait Drive: Send + 'static {
    /// What it shares with all others.
    type Common: Send + Sync + 'static;
    /// Something that may run foreign code.
    type Deed;
    /// What it came to.
    type Outcome;

    /// Works and sleeps until there is something to do that may run foreign code. `None`: it is all
    /// over.
    fn step(&mut self, helm: &Helm) -> Option<Self::Deed>;

    /// Does it. Must not unwind. The driver's state may be in other hands meanwhile.
    fn perform(common: &Arc<Self::Common>, deed: Self::Deed) -> Self::Outcome;

    /// The deed was done in time. (One that was not has no outcome.)
    fn settle(&mut self, outcome: Self::Outcome);

    /// The driver has ended, and all that were held up are back. May be called twice.
    fn all_back(common: &Self::Common) {
        let _ = common;
    }
}

/// The helm, and what is driven. Only its threads have it.
pub(crate) struct Crew<D: Drive> {
    helm: Arc<Helm>,
    common: Arc<D::Common>,
    clock: Arc<dyn Clock>,
    name: String,
    driver: UnsafeCell<D>,
}

// SAFETY: the driver is reached by the token's holder only, one after another (see `drive`), and it is
// `Send`.
unsafe impl<D: Drive> Sync for Crew<D> {}
// SAFETY: all of it is `Send`.
unsafe impl<D: Drive> Send for Crew<D> {}

crate::sync::thread_local! {
    /// For whom this thread drives, or did before it was held up.
    static ABOARD: Cell<*const ()> = const_cell();
}

fn const_cell() -> Cell<*const ()> {
    Cell::new(ptr::null())
}

/// Whether this thread is one that drives for `common`, or is held up by a deed of its.
pub(crate) fn is_aboard<T>(common: &T) -> bool {
    ABOARD.try_with(Cell::get).is_ok_and(|at| ptr::eq(at, ptr::from_ref(common).cast()))
}

/// The same by the address of what they share.
pub(crate) fn is_aboard_at(common: usize) -> bool {
    ABOARD.try_with(Cell::get).is_ok_and(|at| at.addr() == common && common != 0)
}

/// Starts the driver's thread. The sentinel's is started when there is something to watch.
pub(crate) fn start<D: Drive>(
    name: String,
    helm: Arc<Helm>,
    common: Arc<D::Common>,
    clock: Arc<dyn Clock>,
    driver: D,
) -> std::io::Result<()> {
    let crew =
        Arc::new(Crew { helm, common, clock, name: name.clone(), driver: UnsafeCell::new(driver) });
    thread::Builder::new().name(name).spawn(move || crew.drive()).map(drop)
}

impl<D: Drive> Crew<D> {
    /// Drives, with the token held, until the end or until it is lost; then watches, if need be.
    fn drive(self: Arc<Self>) {
        sharpen_sleep();
        let _ = ABOARD.try_with(|aboard| aboard.set(Arc::as_ptr(&self.common).cast()));
        loop {
            while self.turn() {}
            if self.helm.leave() {
                // Nothing is touched after this: who waits for it may free what is shared.
                D::all_back(&self.common);
                return;
            }
            if !(self.helm.fill() && self.keep_watch()) {
                return;
            }
        }
    }

    /// One deed. False: the token is gone, for good or to somebody else.
    fn turn(self: &Arc<Self>) -> bool {
        let step = self.driver.with_mut(|driver| {
            // SAFETY: the token is held by this thread, and nobody else looks at the state without it.
            // What the last holder did was acquired with the token.
            unsafe { (*driver).step(&self.helm) }
        });
        let Some(deed) = step else {
            self.helm.end();
            return false;
        };
        let out = self.helm.put_down();
        // No thread is started in a model: those are about the driver, or about the helm.
        if cfg!(not(any(tenure_loom, tenure_shuttle))) {
            match self.helm.calls_for(|| MonotonicClock::new().now()) {
                Call::Nobody => {}
                Call::Sentinel => self.helm.call(),
                Call::Another => self.start_sentinel(),
            }
        }
        let outcome = D::perform(&self.common, deed);
        if !self.helm.take_back(out) {
            return false;
        }
        self.driver.with_mut(|driver| {
            // SAFETY: as above: the token is back.
            unsafe { (*driver).settle(outcome) }
        });
        true
    }

    #[cold]
    fn start_sentinel(self: &Arc<Self>) {
        if !self.helm.has_room() || !self.helm.fill() {
            return;
        }
        let crew = Arc::clone(self);
        let watch = move || {
            if crew.keep_watch() {
                crew.drive();
            }
        };
        // Refused: the next deed asks again.
        if thread::Builder::new().name(self.name.clone()).spawn(watch).is_err() {
            self.helm.vacate();
        }
    }

    /// On the post. True: the token is this thread's now. False: the end.
    fn keep_watch(&self) -> bool {
        let helm = &*self.helm;
        let real = MonotonicClock::new();
        let mut seen = helm.look();
        loop {
            let since = real.now();
            let whole = helm.watch();
            if helm.is_over() {
                return false;
            }
            if !whole {
                continue;
            }
            let late = real.now().saturating_since(since).saturating_sub(PERIOD);
            let now = helm.look();
            if late >= PERIOD {
                // We stood still, so the driver may have, too: it gets a whole period from now.
                helm.add_lag(late);
                seen = now;
            } else if now != seen {
                seen = now;
            } else if now.is_out() {
                match helm.take_over(now) {
                    Ok(()) => return true,
                    Err(false) => {}
                    Err(true) => {
                        D::all_back(&self.common);
                        return false;
                    }
                }
            } else {
                // A clock that is moved by hand never ends a sleep by itself.
                let plan = helm.planned();
                let left = self.clock.real_time_until(plan);
                let until = left.map_or(Timestamp::NEVER, |left| real.now().saturating_add(left));
                if helm.rest(now, until) {
                    helm.sleep(left);
                }
                seen = helm.look();
            }
        }
    }
}

/// Asks the system to end this thread's sleeps when they are over, and not up to 50 µs later.
fn sharpen_sleep() {
    #[cfg(all(target_os = "linux", not(any(tenure_loom, tenure_shuttle))))]
    // SAFETY: takes one number, and concerns the calling thread alone.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
    }
}
