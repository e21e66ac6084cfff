//! A seat: what a worker runs now, and until when; the driver watches it.
//!
//! The worker sits down with a job and stands up when the attempt is over: two writes, no reference
//! counted. When a deadline has passed, the driver *pins* the seat: it marks the pointer, so that a
//! worker that stands up meanwhile leaves its reference behind for the driver to drop. Who asks how the
//! workers are does the same (`health.rs`); a lock lets one of them pin at a time.
//!
//! ```text
//!          sit — worker                     pin — driver
//!  EMPTY ────────────────► job, e, deadline ─────────────► job | PINNED
//!    ▲                        │        ▲                    │      │
//!    └────────────────────────┘        └────────────────────┘      │
//!    │      stand — worker                  unpin — driver         │
//!    └─────────────────────────────────────────────────────────────┘
//!      stand — worker: the reference is the driver's, which finds its mark gone
//! ```
//!
//! | edge | Release in | Acquire in | makes visible |
//! |---|---|---|---|
//! | EMPTY → job | `sit` | `pin` | the job, its epoch and deadline |
//! | job → EMPTY, pinned | `stand` | `Pinned::drop` | what the worker did with the job |
//! | job → EMPTY → other job | fence in `sit` | fence in `pin` | that the epoch read is of another sitting |

use core::ptr::null_mut;
use core::time::Duration;

use super::cell::{Header, JobRef};
use crate::clock::{Timestamp, nanos_saturating};
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

const PINNED: usize = 1;

/// See the [file's docs](self).
#[derive(Debug)]
pub(crate) struct Seat {
    job: AtomicPtr<Header>,
    /// The number of the sitting, and the attempt's epoch below it. Two sittings in a row may hold one
    /// address and one epoch: jobs are freed, and the next one is put where the last one was.
    stamp: AtomicU64,
    deadline: AtomicU64,
    /// How long that deadline was from the beginning. Read under the pin only.
    timeout: AtomicU64,
    /// When the sitting began.
    since: AtomicU64,
}

/// A seat that the driver holds in its place.
#[must_use]
pub(crate) struct Pinned<'a> {
    seat: &'a Seat,
    job: *mut Header,
    pub(crate) deadline: Timestamp,
    /// The attempt's timeout: what it began with, whatever the policy is now.
    pub(crate) timeout: Duration,
    pub(crate) since: Timestamp,
}

/// Which sitting: the driver's private notes are kept by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sitting {
    job: usize,
    stamp: u64,
}

impl Sitting {
    pub(crate) fn epoch(self) -> u32 {
        self.stamp as u32
    }

    /// Which of the seat's sittings.
    pub(crate) fn number(self) -> u64 {
        self.stamp
    }
}

impl Seat {
    pub(crate) fn new() -> Self {
        Self {
            job: AtomicPtr::new(null_mut()),
            stamp: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            timeout: AtomicU64::new(0),
            since: AtomicU64::new(0),
        }
    }

    /// The owner begins an attempt. The reference stays the owner's until `stand`.
    pub(crate) fn sit(
        &self,
        job: &JobRef,
        epoch: u32,
        deadline: Timestamp,
        timeout: Duration,
        since: Timestamp,
    ) {
        // ORDERING: Relaxed: our own last store.
        let next = (self.stamp.load(Ordering::Relaxed) >> 32).wrapping_add(1) << 32;
        // ORDERING: Release fence: pairs with the Acquire fence in `pin`: who reads one of the next
        // three stores sees that the sitting before is over.
        fence(Ordering::Release);
        // ORDERING: Relaxed: released by the store of the pointer.
        self.stamp.store(next | u64::from(epoch), Ordering::Relaxed);
        self.deadline.store(deadline.as_nanos(), Ordering::Relaxed);
        self.timeout.store(nanos_saturating(timeout), Ordering::Relaxed);
        self.since.store(since.as_nanos(), Ordering::Relaxed);
        // ORDERING: Release: pairs with the Acquire in `pin`. The seat is empty, and nobody but its
        // owner fills it, so a store overwrites nothing.
        self.job.store(job.as_raw(), Ordering::Release);
    }

    /// The owner's attempt is over. True: the reference is the owner's again; false: it is left to
    /// the driver, so forget it.
    #[must_use]
    pub(crate) fn stand(&self) -> bool {
        // ORDERING: Release: pairs with the Acquire in `Pinned::drop`: if the reference is left to
        // the driver, what we did with the job happens before the driver drops it.
        let before = self.job.swap(null_mut(), Ordering::Release);
        before.addr() & PINNED == 0
    }

    /// What it holds and until when; a guess, to be confirmed by `pin`.
    pub(crate) fn glance(&self) -> Option<(Sitting, Timestamp)> {
        // ORDERING: Relaxed: a torn answer is harmless: it is looked at again under the pin. (That
        // a deadline just stored is seen before the driver sleeps is the fences' business: see the
        // driver.)
        let job = self.job.load(Ordering::Relaxed).addr() & !PINNED;
        let stamp = self.stamp.load(Ordering::Relaxed);
        let deadline = Timestamp::from_nanos(self.deadline.load(Ordering::Relaxed));
        (job != 0).then_some((Sitting { job, stamp }, deadline))
    }

    /// Holds this sitting in its place. One pin at a time: the driver's, or that of somebody who asks how
    /// the workers are (see `Members::look_at`). `None`: it is over.
    pub(crate) fn pin(&self, sitting: Sitting) -> Option<Pinned<'_>> {
        // ORDERING: Relaxed: confirmed by the exchange.
        let job = self.job.load(Ordering::Relaxed);
        if job.is_null() || job.addr() != sitting.job {
            return None;
        }
        let marked = job.map_addr(|at| at | PINNED);
        // ORDERING: Acquire: pairs with `sit`: the job behind the pointer, the epoch.
        self.job.compare_exchange(job, marked, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // ORDERING: Relaxed, then an Acquire fence: if one of the three is of a later sitting, its
        // fence in `sit` makes the emptied seat visible to the load after ours.
        let stamp = self.stamp.load(Ordering::Relaxed);
        let deadline = Timestamp::from_nanos(self.deadline.load(Ordering::Relaxed));
        let timeout = Duration::from_nanos(self.timeout.load(Ordering::Relaxed));
        let since = Timestamp::from_nanos(self.since.load(Ordering::Relaxed));
        let pinned = Pinned { seat: self, job, deadline, timeout, since };
        fence(Ordering::Acquire);
        // ORDERING: Relaxed: ordered by the fence.
        let still = self.job.load(Ordering::Relaxed) == marked;
        // Not still: dropping `pinned` drops the reference that was left to us.
        (still && stamp == sitting.stamp).then_some(pinned)
    }
}

impl Pinned<'_> {
    /// A reference of the driver's own.
    pub(crate) fn job(&self) -> JobRef {
        // SAFETY: while the mark is in place the owner's reference keeps the job alive, and if the
        // owner stood up, it left that reference to us. It is not counted down here.
        let theirs = core::mem::ManuallyDrop::new(unsafe { JobRef::from_raw(self.job) });
        JobRef::clone(&theirs)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let marked = self.job.map_addr(|at| at | PINNED);
        // ORDERING: Relaxed on success: taking the mark off hands nothing over. Acquire on failure:
        // pairs with the Release in `stand`.
        let unpinned =
            self.seat.job.compare_exchange(marked, self.job, Ordering::Relaxed, Ordering::Acquire);
        if unpinned.is_err() {
            // SAFETY: the owner stood up, saw the mark, and left its reference to us, once.
            drop(unsafe { JobRef::from_raw(self.job) });
        }
    }
}
