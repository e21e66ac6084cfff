//! The end of a runtime: bounded, reported, and safe to race.
//!
//! 1. The phase becomes Closing: `submit` gives jobs back, workers take no more jobs.
//! 2. Everything that waits (in queues, in line for a key, for a timer) is cancelled.
//! 3. Attempts that run may finish. One that fails is not retried: its job ends as if it had waited.
//! 4. When all workers are done, or the time is up, what still runs is abandoned: its job ends, its
//!    late result is fenced, its thread ends when it comes back.
//!
//! What races it:
//!
//! | call | before 1 | after 1 |
//! |---|---|---|
//! | `submit` | taken; the job may still end as [`JobError::Shutdown`](super::JobError::Shutdown) | [`SubmitError::Closed`](super::SubmitError::Closed) gives it back |
//! | `get`, `.await` | wait for the job's end, which comes | the same |
//! | `cancel` | as ever | as ever; who is first decides what the handle says |
//! | `shutdown` | begins it | waits for the same end, and gets the same report |
//!
//! ```text
//! pusher: Push, PushFence, ReadPhase          closer: WritePhase, CloseFence, Sweep
//! ```
//!
//! The two fences have one order: either the sweep sees what was pushed, or the pusher sees the
//! phase, and sweeps itself. Nothing is left in a queue that nobody reads any more.

use core::time::Duration;
use std::sync::Arc;

use super::cell::JobRef;
use super::events::Event;
use super::options::{JobId, JobKey};
use super::shared::Shared;
use super::worker;
use crate::clock::{Clock, Timestamp};
use crate::lock::Mutex;
use crate::sync::Wait;
use crate::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::park;
use crate::timer::crew;

const OPEN: u32 = 0;
const CLOSING: u32 = 1;

/// How a shutdown went.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Jobs whose running attempt came to the job's end in time.
    pub done: usize,
    /// Jobs that had been tried before and waited for another attempt, or whose running attempt
    /// failed and would have been retried. Whoever keeps jobs elsewhere should put them back.
    pub requeued: usize,
    /// Jobs that had not begun.
    pub cancelled: usize,
    /// Attempts that were still running at the end, or about to: what a gate calls had not come back.
    pub abandoned: Vec<Abandoned>,
}

/// An attempt that a shutdown did not wait for. Its thread cannot be killed and may still run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Abandoned {
    /// The job.
    pub id: JobId,
    /// Its name, if it was given one.
    pub name: Option<Arc<str>>,
    /// Its key, if it has one.
    pub key: Option<JobKey>,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The worker that runs it.
    pub worker: usize,
}

impl Abandoned {
    pub(crate) fn new(job: &JobRef, attempt: u32, worker: usize) -> Self {
        let options = job.options.as_ref();
        Self {
            id: JobId(job.id),
            name: options.and_then(|o| o.name.clone()),
            key: options.and_then(|o| o.serial.as_ref()).map(|s| s.key.clone()),
            attempt,
            worker,
        }
    }
}

/// How far the end has come.
#[derive(Debug)]
pub(crate) struct Closing {
    phase: AtomicU32,
    deadline: AtomicU64,
    done: AtomicUsize,
    requeued: AtomicUsize,
    cancelled: AtomicUsize,
    /// 1 when the report is there; waited on.
    finished: AtomicU32,
    report: Mutex<Option<ShutdownReport>>,
}

impl Closing {
    pub(crate) fn new() -> Self {
        Self {
            phase: AtomicU32::new(OPEN),
            deadline: AtomicU64::new(Timestamp::NEVER.as_nanos()),
            done: AtomicUsize::new(0),
            requeued: AtomicUsize::new(0),
            cancelled: AtomicUsize::new(0),
            finished: AtomicU32::new(0),
            report: Mutex::new(None),
        }
    }

    /// Whether the phase has left Open.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        // ORDERING: Relaxed: who must not miss it has fenced: ReadPhase, see the file's docs.
        self.phase.load(Ordering::Relaxed) != OPEN
    }

    /// The same for a pusher that has not fenced: PushFence and ReadPhase.
    pub(crate) fn sees_begun(&self) -> bool {
        // ORDERING: SeqCst fence: PushFence, pairs with CloseFence in `begin`.
        fence(Ordering::SeqCst);
        self.has_begun()
    }

    /// Leaves Open. True: this call did.
    pub(crate) fn begin(&self) -> bool {
        // ORDERING: Relaxed: ordered by the fence.
        let first = self
            .phase
            .compare_exchange(OPEN, CLOSING, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        // ORDERING: SeqCst fence: CloseFence, pairs with PushFence (in `Sleepers::notify` and in
        // `Bell::ring_for`).
        fence(Ordering::SeqCst);
        first
    }

    /// The earliest deadline that any caller gave.
    pub(crate) fn deadline(&self) -> Timestamp {
        // ORDERING: Relaxed: whoever lowers it rings the driver after.
        Timestamp::from_nanos(self.deadline.load(Ordering::Relaxed))
    }

    pub(crate) fn hurry(&self, deadline: Timestamp) {
        // ORDERING: Relaxed: as above.
        self.deadline.fetch_min(deadline.as_nanos(), Ordering::Relaxed);
    }

    /// A job came to its own end.
    pub(crate) fn done(&self) {
        if self.has_begun() {
            // ORDERING: Relaxed: counted before its worker leaves, which the driver waits for.
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A job was cancelled by the shutdown.
    pub(crate) fn report_swept(&self, had_begun: bool) {
        let which = if had_begun { &self.requeued } else { &self.cancelled };
        // ORDERING: Relaxed: as in `done`.
        which.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the report is there.
    pub(crate) fn is_over(&self) -> bool {
        // ORDERING: Relaxed: see `finish`.
        self.finished.load(Ordering::Relaxed) != 0
    }

    fn so_far(&self) -> ShutdownReport {
        // ORDERING: Relaxed: counts.
        ShutdownReport {
            done: self.done.load(Ordering::Relaxed),
            requeued: self.requeued.load(Ordering::Relaxed),
            cancelled: self.cancelled.load(Ordering::Relaxed),
            abandoned: Vec::new(),
        }
    }

    /// All is over: writes the report and wakes who waits for it.
    ///
    /// `rescued`: how many of the abandoned attempts' jobs ended by that; they were counted as tried
    /// before, and are reported as abandoned instead.
    pub(crate) fn finish(&self, abandoned: Vec<Abandoned>, rescued: usize) {
        let mut report = self.so_far();
        report.requeued = report.requeued.saturating_sub(rescued);
        report.abandoned = abandoned;
        *self.report.lock() = Some(report);
        // ORDERING: Relaxed: who sees it takes the lock after us, which orders the report and all that
        // the driver has seen.
        self.finished.store(1, Ordering::Relaxed);
        park::wake_all(&raw const self.finished);
    }

    pub(super) fn wait(&self, limit: impl Fn() -> Option<Duration>) -> ShutdownReport {
        // ORDERING: Relaxed: see `finish`.
        while self.finished.load(Ordering::Relaxed) == 0 {
            if let Wait::TimedOut = park::wait(&self.finished, 0, limit()) {
                break;
            }
        }
        let report = self.report.lock().clone();
        report.unwrap_or_else(|| self.so_far())
    }
}

/// The driver may be held up by foreign code; after so much more real time we report without it.
const DRIVER_SLACK: Duration = Duration::from_secs(1);

impl Shared {
    /// Begins the end. Returns at once.
    pub(crate) fn close(&self, deadline: Timestamp) {
        self.closing.hurry(deadline);
        if self.closing.begin() {
            self.subscribers.tell(|| Event::ShutdownBegan);
        }
        self.sleepers.notify_all();
        self.room.tell();
        self.bell.ring();
    }

    /// Begins the end and waits for it.
    pub(crate) fn shut_down(&self, timeout: Duration) -> ShutdownReport {
        worker::with_local(|local| {
            // Inside one of our own jobs: the end cannot wait for the job that waits for it.
            if let Some(local) = local.filter(|l| core::ptr::eq(&raw const *l.shared, self)) {
                self.members.exempt(&local.member);
            }
        });
        let deadline = self.clock.now().saturating_add(timeout);
        self.close(deadline);
        if crew::is_aboard(self) {
            // In a listener, a waker or a drop that the driver runs: the end is its work, later, or that
            // of who took over from it.
            return self.closing.so_far();
        }
        self.closing
            .wait(|| Some(self.clock.real_time_until(deadline)?.saturating_add(DRIVER_SLACK)))
    }
}
