//! What happened to whom, and why: the audit trail.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use crossbeam_channel::{Receiver, Sender};

use super::{FencingToken, Label};
use crate::clock::Timestamp;
use crate::lock::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One settled fact about a key. By the time anybody hears of it, the key's word has long moved on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseEvent<K> {
    /// The key.
    pub key: K,
    /// The grant it is about.
    pub token: FencingToken,
    /// What happened.
    pub kind: LeaseEventKind,
    /// The label of the owner, where the call that reports it knows it.
    pub owner: Option<Label>,
    /// Why, where a reason was given.
    pub reason: Option<Label>,
    /// When it was reported, on the table's clock.
    pub at: Timestamp,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseEventKind {
    /// The key was granted.
    Acquired,
    /// The deadline moved.
    Renewed,
    /// The draft was published and the lease goes on.
    Checkpointed,
    /// The draft was published and the key released.
    Committed,
    /// The draft was refused: the lease was lost before. A late owner did no harm.
    CommitRefused,
    /// The draft was discarded on request and the key released.
    Aborted,
    /// The key was released without a draft.
    Released,
    /// The guard was dropped: its draft was discarded and the key released.
    Dropped {
        /// Whether its thread was unwinding.
        panicking: bool,
    },
    /// The deadline passed.
    Expired,
    /// The lease was ended from outside.
    Revoked,
    /// The lease was handed off, under this new token.
    HandedOff,
    /// The hand-off was accepted.
    Accepted,
    /// The key was removed.
    Removed,
    /// The lease's session ended it.
    SessionEnded,
}

/// Where every event goes first.
pub(super) type Sink<K> = Box<dyn Fn(&LeaseEvent<K>) + Send + Sync>;

/// Where events go.
pub(super) struct Events<K> {
    sink: Option<Sink<K>>,
    heard: AtomicBool,
    subscribers: Mutex<Vec<Sender<LeaseEvent<K>>>>,
    missed: AtomicU64,
}

impl<K> Events<K> {
    pub(super) fn new(sink: Option<Sink<K>>) -> Self {
        Self {
            heard: AtomicBool::new(sink.is_some()),
            sink,
            subscribers: Mutex::new(Vec::new()),
            missed: AtomicU64::new(0),
        }
    }

    /// Whether anybody listens.
    #[inline]
    pub(super) fn are_heard(&self) -> bool {
        // ORDERING: Relaxed: a subscriber hears what is settled after it subscribed and this is seen;
        // nothing else hangs on it.
        self.heard.load(Ordering::Relaxed)
    }

    pub(super) fn missed(&self) -> u64 {
        // ORDERING: Relaxed: a counter.
        self.missed.load(Ordering::Relaxed)
    }
}

/// Runs foreign code whose panic goes no further; `None`: it panicked.
pub(super) fn contained<R>(f: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(done) => Some(done),
        Err(payload) => {
            // What it threw may panic when it is dropped, and what that throws, too: leak the second.
            if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
                core::mem::forget(second);
            }
            None
        }
    }
}

impl<K: Clone> Events<K> {
    fn miss(&self) {
        // ORDERING: Relaxed: a counter.
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn subscribe(&self, capacity: usize) -> Receiver<LeaseEvent<K>> {
        let (sender, receiver) = crossbeam_channel::bounded(capacity);
        let mut list = self.subscribers.lock();
        list.push(sender);
        // ORDERING: Relaxed: see `are_heard`; stores of it are ordered by the lock.
        self.heard.store(true, Ordering::Relaxed);
        receiver
    }

    /// Tells everybody. A full subscriber misses the event, which is counted; a sink that panics is
    /// ignored.
    ///
    /// Foreign code: the sink, and clones and drops of the key. The word is settled, no lock is held,
    /// and its panics are not the caller's, which may be a guard that is being dropped.
    #[cold]
    pub(super) fn tell(&self, make: impl FnOnce() -> LeaseEvent<K>) {
        let Some(event) = contained(make) else { return self.miss() };
        if let Some(sink) = &self.sink
            && contained(|| sink(&event)).is_none()
        {
            self.miss();
        }
        let senders: Vec<_> = self.subscribers.lock().clone();
        let mut gone = Vec::new();
        for sender in senders {
            match contained(|| sender.try_send(event.clone()).map_err(|refused| refused.is_full()))
            {
                Some(Ok(())) => {}
                Some(Err(true)) | None => self.miss(),
                Some(Err(false)) => gone.push(sender),
            }
        }
        let _ = contained(move || drop(event));
        if !gone.is_empty() {
            let mut list = self.subscribers.lock();
            list.retain(|sender| !gone.iter().any(|dead| dead.same_channel(sender)));
            // ORDERING: Relaxed: see `are_heard`; stores of it are ordered by the lock.
            self.heard.store(self.sink.is_some() || !list.is_empty(), Ordering::Relaxed);
        }
    }
}

impl<K> core::fmt::Debug for Events<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Events").field("heard", &self.are_heard()).finish_non_exhaustive()
    }
}
