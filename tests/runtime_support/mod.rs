//! What the tests of the runtime share.
//!
//! A test never asserts that another thread has already, or has not yet, done something: it waits for
//! a condition, for as long as only a hang takes. A clock that is moved by hand is moved only when the
//! deadline that it is moved to has been computed: an attempt has its deadline before its closure is
//! called, a retry has its moment before it is told.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tenure::clock::ManualClock;
use tenure::retry::RetryPolicy;
use tenure::runtime::{Event, Events, JobError, Runtime, Stats};

/// Long enough that only a hang gets there.
pub(crate) const LONG: Duration = Duration::from_secs(60);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Tried again at once.
pub(crate) fn at_once(attempts: u32) -> RetryPolicy {
    RetryPolicy::immediate().max_attempts(attempts).build().unwrap()
}

/// A runtime whose clock is moved by hand, with attempts that last a second.
pub(crate) fn timed(workers: usize, attempts: u32) -> (Runtime, ManualClock) {
    let clock = ManualClock::new();
    let rt = Runtime::builder()
        .workers(workers)
        .clock(clock.clone())
        .attempt_timeout(SECOND)
        .retry(at_once(attempts))
        .build()
        .unwrap();
    (rt, clock)
}

/// Waits for a condition.
#[track_caller]
pub(crate) fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::yield_now();
    }
}

/// Waits for an event that fits.
#[track_caller]
pub(crate) fn until_event(events: &Events, fits: impl Fn(&Event) -> bool) -> Event {
    loop {
        let event = events.next_timeout(LONG).expect("the event comes");
        if fits(&event) {
            return event;
        }
    }
}

/// Waits for the counters.
#[track_caller]
pub(crate) fn until_stats(rt: &Runtime, fits: impl Fn(&Stats) -> bool) {
    let begun = Instant::now();
    while !fits(&rt.stats()) {
        assert!(begun.elapsed() < LONG, "{:?}", rt.stats());
        std::thread::yield_now();
    }
}

/// Lets the time of `clock` go on, in such steps, until something has come of it. A driver that looks
/// late gives grace for its own lag, so one step may not be enough.
#[track_caller]
pub(crate) fn advance_until(
    clock: &ManualClock,
    step: Duration,
    what: &str,
    done: impl Fn() -> bool,
) {
    until(what, || {
        done() || {
            clock.advance(step);
            false
        }
    });
}

/// A gate that attempts hang at until it is opened.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    open: Arc<(Mutex<bool>, Condvar)>,
    waiting: Arc<AtomicUsize>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn pass(&self) {
        self.waiting.fetch_add(1, SeqCst);
        let mut open = self.open.0.lock().unwrap();
        while !*open {
            open = self.open.1.wait(open).unwrap();
        }
    }

    pub(crate) fn open(&self) {
        *self.open.0.lock().unwrap() = true;
        self.open.1.notify_all();
    }

    /// How many attempts have come to it, in all.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Until so many attempts have come to it, in all.
    #[track_caller]
    pub(crate) fn wait_for(&self, waiting: usize) {
        until("they come to the gate", || self.waiting.load(SeqCst) >= waiting);
    }
}

/// A job that waits for a job that waits for a job, so deep.
pub(crate) fn descend(rt: &Runtime, depth: u32) -> Result<u32, JobError> {
    if depth == 0 {
        return Ok(0);
    }
    let inner = rt.clone();
    let child = rt.job(move |_| descend(&inner, depth - 1)).retry(RetryPolicy::never());
    child.submit().map_err(|_| JobError::Shutdown)?.get().map(|n| n + 1)
}

/// Panics of the jobs are meant; those of the test are not.
pub(crate) fn hush() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let meant = info.payload().downcast_ref::<&str>().is_some_and(|m| *m == "meant");
            if !meant {
                before(info);
            }
        }));
    });
}
