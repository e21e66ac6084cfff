//! The way into the driver: a stack that anybody pushes on and the driver empties at once, and the
//! driver's bell.
//!
//! # The driver does not oversleep
//!
//! The driver announces until when it will sleep, and a pusher rings only if its own deadline is
//! earlier.
//!
//! ```text
//! pusher: Push, PushFence, ReadUntil          driver: WriteUntil, SleepFence, Recheck
//! ```
//!
//! The two fences have one order. If PushFence comes first, Recheck sees what was pushed. If
//! SleepFence comes first, ReadUntil sees how long the driver sleeps, and rings if that is too long.
//! A worker that sits down with a deadline is a pusher, too: its seat is what Recheck looks at.
//!
//! | edge | Release in | Acquire in | makes visible |
//! |---|---|---|---|
//! | pushed | `push` | `take` | the entry |
//! | rung | `ring` | `listen` | what came before the ringing |

use core::ptr::null_mut;
use core::time::Duration;

use crate::clock::Timestamp;
use crate::sync::Wait;
use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::park;

struct Node<T> {
    entry: T,
    below: *mut Node<T>,
}

/// A stack with many pushers and one taker, who takes all of it.
#[derive(Debug)]
pub(crate) struct Intake<T> {
    top: AtomicPtr<Node<T>>,
}

// SAFETY: entries move from the pusher's thread to the taker's; the nodes are reached by nobody else.
unsafe impl<T: Send> Send for Intake<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Intake<T> {}

impl<T> Intake<T> {
    pub(crate) fn new() -> Self {
        Self { top: AtomicPtr::new(null_mut()) }
    }

    pub(crate) fn push(&self, entry: T) {
        let node = Box::into_raw(Box::new(Node { entry, below: null_mut() }));
        // ORDERING: Relaxed: only compared and stored, never followed.
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // SAFETY: not published yet: ours alone.
            unsafe { (*node).below = top };
            // ORDERING: Release: pairs with the Acquire in `take`: the node. The nodes below were
            // released by their own pushers, and this exchange carries that on.
            match self.top.compare_exchange_weak(top, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Everything pushed so far, the last one first.
    pub(crate) fn take(&self) -> Taken<T> {
        // ORDERING: Acquire: pairs with the Release in `push`.
        Taken { top: self.top.swap(null_mut(), Ordering::Acquire) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        // ORDERING: Relaxed: ordered by the fences of push and sleep.
        self.top.load(Ordering::Relaxed).is_null()
    }
}

impl<T> Drop for Intake<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// A taken stack.
pub(crate) struct Taken<T> {
    top: *mut Node<T>,
}

impl<T> Iterator for Taken<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.top.is_null() {
            return None;
        }
        // SAFETY: taken with Acquire from the top, so this node and all below are ours alone.
        let node = unsafe { Box::from_raw(self.top) };
        self.top = node.below;
        Some(node.entry)
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        for entry in self.by_ref() {
            drop(entry);
        }
    }
}

const QUIET: u32 = 0;
const RUNG: u32 = 1;

/// What wakes the driver, and until when it sleeps without.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: AtomicU32,
    /// 0 while the driver is awake: nobody needs to ring for a deadline.
    until: AtomicU64,
    /// When it woke up last; for who asks how it is.
    woke: AtomicU64,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { rung: AtomicU32::new(QUIET), until: AtomicU64::new(0), woke: AtomicU64::new(0) }
    }

    /// Something with this deadline was pushed: ring if the driver would sleep past it.
    #[inline]
    pub(crate) fn ring_for(&self, deadline: Timestamp) {
        // ORDERING: SeqCst fence: PushFence, pairs with SleepFence in `announce`.
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed: ordered by the fence.
        if deadline.as_nanos() < self.until.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Wakes the driver, whatever it waits for.
    #[cold]
    pub(crate) fn ring(&self) {
        // ORDERING: Release: pairs with the Acquire in `listen`. It writes even when it has been
        // rung already, so that this ringer's past is visible, too.
        if self.rung.swap(RUNG, Ordering::Release) == QUIET {
            park::wake_one(&raw const self.rung);
        }
    }

    /// The driver is awake, at this time.
    pub(crate) fn awake(&self, now: Timestamp) {
        // ORDERING: Relaxed: for information.
        self.woke.store(now.as_nanos(), Ordering::Relaxed);
        // ORDERING: Relaxed: who reads the old value rings in vain.
        self.until.store(0, Ordering::Relaxed);
    }

    /// When the driver woke up last (`None`: not yet), and until when it sleeps (`None`: it is awake).
    /// For information.
    pub(crate) fn plan(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        // ORDERING: Relaxed, both: a moment apart is as good.
        let until = self.until.load(Ordering::Relaxed);
        let woke = self.woke.load(Ordering::Relaxed);
        let some = |nanos| (nanos != 0).then_some(Timestamp::from_nanos(nanos));
        (some(woke), some(until))
    }

    /// The driver will sleep until then. Look at the intake and the seats once more after this.
    pub(crate) fn announce(&self, until: Timestamp) {
        // ORDERING: Relaxed: ordered by the fence.
        self.until.store(until.as_nanos(), Ordering::Relaxed);
        // ORDERING: SeqCst fence: SleepFence, pairs with PushFence in `ring_for`.
        fence(Ordering::SeqCst);
    }

    /// Sleeps until rung, or for at most `limit`. May return early.
    pub(crate) fn listen(&self, limit: Option<Duration>) {
        // ORDERING: Acquire: pairs with the Release in `ring`.
        if self.rung.swap(QUIET, Ordering::Acquire) == RUNG {
            return;
        }
        match park::wait(&self.rung, QUIET, limit) {
            Wait::Woken | Wait::Changed => {
                // ORDERING: Acquire: as above.
                self.rung.swap(QUIET, Ordering::Acquire);
            }
            Wait::TimedOut => {}
        }
    }
}
