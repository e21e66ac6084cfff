//! A thread that sleeps until another one says so.

use core::fmt;
use core::marker::PhantomData;

use super::{Deadline, Spin};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Wait, park};

/// Nobody sleeps, no token.
const EMPTY: u32 = 0;
/// A token lies here: the next `park` takes it and returns.
const NOTIFIED: u32 = 1;
/// The parker's thread sleeps, or is about to.
const PARKED: u32 = 2;

/// Puts its thread to sleep until its [`Unparker`] is used.
///
/// Like [`std::thread::park`], but the token is this pair's own: nobody else's `park` can take it,
/// and nobody else's `unpark` can put one there. A token that arrives first is kept, and no more
/// than one is.
///
/// ```text
/// | value    | meaning                       | who may leave it                         |
/// |----------|-------------------------------|------------------------------------------|
/// | EMPTY    | awake, no token               | unpark → NOTIFIED, park → PARKED         |
/// | NOTIFIED | a token                       | park → EMPTY (takes it)                  |
/// | PARKED   | asleep, or about to be        | unpark → NOTIFIED, a timeout → EMPTY     |
///
/// | edge          | Release in | Acquire in | makes visible                       |
/// |---------------|------------|------------|-------------------------------------|
/// | → NOTIFIED    | `unpark`   | `park`     | all that came before the `unpark`   |
/// ```
///
/// # Memory ordering
///
/// All that came before an `unpark` happens before the return of the `park` that took its token.
/// That holds for an `unpark` that found a token already there, too: that is why it writes.
///
/// ```
/// use std::thread;
/// use tenure::wait::Parker;
///
/// let parker = Parker::new();
/// let unparker = parker.unparker();
/// let waker = thread::spawn(move || unparker.unpark());
/// parker.park();
/// waker.join().unwrap();
/// ```
pub struct Parker {
    word: Arc<AtomicU32>,
    // Used by one thread at a time: `Send`, not `Sync`.
    one_thread: PhantomData<core::cell::Cell<()>>,
}

impl Parker {
    /// A parker without a token. Allocates; nothing else here does.
    #[must_use]
    pub fn new() -> Self {
        Self { word: Arc::new(AtomicU32::new(EMPTY)), one_thread: PhantomData }
    }

    /// A handle that wakes this parker, from any thread.
    #[must_use]
    pub fn unparker(&self) -> Unparker {
        Unparker { word: Arc::clone(&self.word) }
    }

    /// Sleeps until there is a token, and takes it. Never returns early.
    ///
    /// # Blocking
    ///
    /// For as long as nobody unparks.
    pub fn park(&self) {
        let _ = self.park_until(Deadline::NEVER);
    }

    /// Sleeps until there is a token, and takes it (true), or until the deadline (false).
    ///
    /// A token that arrives at the last moment is taken or kept for the next call, never lost.
    pub fn park_until(&self, deadline: Deadline) -> bool {
        let mut spin = Spin::rounds(super::spin::DEFAULT_ROUNDS);
        while !self.take_token() {
            if !spin.round() {
                return self.park_slow(deadline);
            }
        }
        true
    }

    fn take_token(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release in `unpark`. Relaxed failure: nothing is taken.
        self.word.compare_exchange(NOTIFIED, EMPTY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn park_slow(&self, deadline: Deadline) -> bool {
        // ORDERING: Acquire on failure: a token came, and pairs with the Release in `unpark`.
        // Relaxed success: publishes nothing; `unpark` needs the value alone.
        if self.word.compare_exchange(EMPTY, PARKED, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            // ORDERING: Acquire: pairs with the Release in `unpark`.
            self.word.swap(EMPTY, Ordering::Acquire);
            return true;
        }
        loop {
            let remaining = deadline.remaining();
            let timed_out = remaining.is_some_and(|left| left.is_zero())
                || park::wait(&self.word, PARKED, remaining) == Wait::TimedOut;
            if self.take_token() {
                return true;
            }
            if timed_out {
                // ORDERING: Acquire: if a token came meanwhile, it pairs with `unpark`.
                return self.word.swap(EMPTY, Ordering::Acquire) == NOTIFIED;
            }
        }
    }
}

impl Default for Parker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Parker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parker { .. }")
    }
}

/// Wakes its [`Parker`]. Clones wake the same one. May outlive it.
#[derive(Clone)]
pub struct Unparker {
    word: Arc<AtomicU32>,
}

impl Unparker {
    /// Leaves a token and, if the parker sleeps, wakes it. Never blocks.
    pub fn unpark(&self) {
        // ORDERING: Release: pairs with the Acquire in `park`. A swap, also over NOTIFIED: the park
        // that takes the token must see what came before *this* call.
        if self.word.swap(NOTIFIED, Ordering::Release) == PARKED {
            park::wake_one(Arc::as_ptr(&self.word));
        }
    }
}

impl fmt::Debug for Unparker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unparker { .. }")
    }
}
