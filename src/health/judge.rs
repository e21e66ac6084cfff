//! A thread that checks a registry from time to time.
//!
//! While nobody is registered it sleeps for ever. One that wakes up late, because the machine stood still
//! or was starved, cannot tell who was silent from who was not let run: it takes its own lag off
//! everybody's silence.

use core::time::Duration;
use std::sync::{Arc, Weak};

use super::error::ConfigError;
use super::registry::{Health, Inner};
use crate::clock::{Clock, Timestamp};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{Wait, park, thread};

/// What the judge sleeps on.
#[derive(Debug)]
pub(super) struct Rest {
    /// Counts rings; waited on.
    rings: AtomicU32,
}

impl Rest {
    pub(super) fn new() -> Self {
        Self { rings: AtomicU32::new(0) }
    }

    /// Wakes the judges.
    pub(super) fn ring(&self) {
        // ORDERING: Release: pairs with the Acquire in `seen`: a judge that sees the ring sees why.
        self.rings.fetch_add(1, Ordering::Release);
        park::wake_all(&raw const self.rings);
    }

    fn seen(&self) -> u32 {
        // ORDERING: Acquire: pairs with the Release in `ring`.
        self.rings.load(Ordering::Acquire)
    }

    /// Sleeps until rung after `seen`, or for `limit`.
    fn wait(&self, seen: u32, limit: Option<Duration>) {
        let (Wait::Woken | Wait::Changed | Wait::TimedOut) = park::wait(&self.rings, seen, limit);
    }
}

/// A thread that checks; ends when this is dropped, or the last [`Health`] and its beats are.
///
/// # Cancellation and drop
///
/// Dropping it does not wait for the thread, which may be in the listener.
///
/// ```
/// use std::time::Duration;
/// use tenure::health::{Change, Detector, Health};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (send, told) = std::sync::mpsc::channel();
/// let health = Health::builder()
///     .on_change(move |event| {
///         if let Change::Died { .. } = event.change {
///             let _ = send.send(event.name.to_string());
///         }
///     })
///     .build();
/// let milliseconds = Duration::from_millis;
/// let poller = health.register("poller", Detector::deadline(milliseconds(1), milliseconds(2))?);
/// let judge = health.start_judge(milliseconds(1))?;
/// assert_eq!(told.recv()?, "poller"); // It never beats.
/// assert!(poller.is_given_up());
/// drop(judge);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the judge"]
pub struct Judge {
    stop: Arc<AtomicBool>,
    rest: Arc<Rest>,
}

impl Drop for Judge {
    fn drop(&mut self) {
        // ORDERING: Relaxed: released by the ring.
        self.stop.store(true, Ordering::Relaxed);
        self.rest.ring();
    }
}

impl Health {
    /// Starts a thread that [checks](Self::check) once a `period` of the registry's clock, as long as
    /// anybody is registered. It reads silences to a period, so choose a fraction of the shortest that
    /// matters.
    ///
    /// # Errors
    /// A period of zero, or no thread from the system.
    pub fn start_judge(&self, period: Duration) -> Result<Judge, JudgeError> {
        if period.is_zero() {
            return Err(JudgeError::Period(ConfigError::Period));
        }
        let (judge, sits) = self.judge(period);
        let builder = thread::Builder::new().name("tenure-judge".into());
        builder.spawn(sits).map_err(JudgeError::Thread)?;
        Ok(judge)
    }

    /// A judge, and what its thread does.
    pub(super) fn judge(&self, period: Duration) -> (Judge, impl FnOnce() + Send + use<>) {
        let stop = Arc::new(AtomicBool::new(false));
        let rest = Arc::clone(&self.inner.rest);
        let judge = Judge { stop: Arc::clone(&stop), rest: Arc::clone(&rest) };
        let home = Arc::downgrade(&self.inner);
        (judge, move || sit(&home, &rest, &stop, period))
    }
}

/// Why there is no judge.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JudgeError {
    /// It would look all the time.
    #[error(transparent)]
    Period(ConfigError),
    /// The system gave no thread.
    #[error("a thread could not be started")]
    Thread(#[source] std::io::Error),
}

fn sit(home: &Weak<Inner>, rest: &Rest, stop: &AtomicBool, period: Duration) {
    let mut planned = None;
    loop {
        let seen = rest.seen();
        // ORDERING: Relaxed: ordered by the ring that `seen` acquired; one that comes later wakes us.
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // The registry is only borrowed for a look: the last of its owners rings when it goes.
        let Some(home) = home.upgrade() else { return };
        let limit = look(&home, &mut planned, period);
        drop(home);
        rest.wait(seen, limit);
    }
}

/// Checks, if it is time. How long to sleep.
fn look(home: &Inner, planned: &mut Option<Timestamp>, period: Duration) -> Option<Duration> {
    if home.is_empty() {
        *planned = None;
        return None;
    }
    let now = home.clock.now();
    let at = planned.unwrap_or(now);
    if now < at {
        return home.clock.real_time_until(at);
    }
    let next = now.saturating_add(period);
    let until_next = home.clock.real_time_until(next);
    // A clock that is moved by hand is not late.
    let late = until_next.map_or(Duration::ZERO, |_| now.saturating_since(at));
    let _ = home.check(late);
    *planned = Some(next);
    home.clock.real_time_until(next)
}
