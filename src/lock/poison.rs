//! Poison, for those who ask for it.

use core::fmt;
use core::ops::{Deref, DerefMut};

use super::{AdaptiveMutex, AdaptiveMutexGuard};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::thread;

/// An [`AdaptiveMutex`] that remembers when a thread panicked while it held it.
///
/// Use it where a panic may leave the data half changed and others must not take it for whole. A
/// poisoned lock still locks; it says so, and gives the guard along.
///
/// ```
/// use std::panic::{AssertUnwindSafe, catch_unwind};
/// use tenure::lock::PoisonMutex;
///
/// let lock = PoisonMutex::new(1);
/// let _ = catch_unwind(AssertUnwindSafe(|| {
///     let mut guard = lock.lock().unwrap();
///     *guard = 2;
///     panic!("half done");
/// }));
/// let mut guard = lock.lock().unwrap_err().into_inner();
/// *guard = 1; // whole again
/// drop(guard);
/// lock.clear_poison();
/// assert_eq!(*lock.lock().unwrap(), 1);
/// ```
pub struct PoisonMutex<T: ?Sized> {
    // Written under the lock; looked at without it by `is_poisoned` alone.
    poisoned: AtomicU32,
    lock: AdaptiveMutex<T>,
}

/// The lock is held, but a thread panicked while it held it.
#[derive(thiserror::Error)]
#[error("a thread panicked while it held this lock")]
pub struct Poisoned<G> {
    guard: G,
}

impl<G> Poisoned<G> {
    /// The guard, for whoever can make the data whole again, or does not care.
    pub fn into_inner(self) -> G {
        self.guard
    }
}

impl<G> fmt::Debug for Poisoned<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Poisoned { .. }")
    }
}

/// Unlocks its [`PoisonMutex`] when it is dropped, and poisons it if that is because of a panic.
pub struct PoisonGuard<'a, T: ?Sized> {
    poisoned: &'a AtomicU32,
    was_panicking: bool,
    guard: AdaptiveMutexGuard<'a, T>,
}

impl<T> PoisonMutex<T> {
    /// An unlocked lock around `value`, not poisoned.
    pub const fn new(value: T) -> Self {
        Self { poisoned: AtomicU32::const_new(0), lock: AdaptiveMutex::new(value) }
    }

    /// The value; an error, with the value, if it is poisoned.
    ///
    /// # Errors
    ///
    /// [`Poisoned`]: a thread panicked while it held the lock.
    pub fn into_inner(self) -> Result<T, Poisoned<T>> {
        let poisoned = self.is_poisoned();
        let guard = self.lock.into_inner();
        if poisoned { Err(Poisoned { guard }) } else { Ok(guard) }
    }
}

impl<T: ?Sized> PoisonMutex<T> {
    /// Locks.
    ///
    /// # Errors
    ///
    /// [`Poisoned`]: a thread panicked while it held the lock. The lock is held all the same, by
    /// the guard in the error.
    ///
    /// # Blocking
    ///
    /// As [`AdaptiveMutex`].
    pub fn lock(&self) -> Result<PoisonGuard<'_, T>, Poisoned<PoisonGuard<'_, T>>> {
        self.guard(self.lock.lock())
    }

    /// Locks if that needs no wait.
    ///
    /// # Errors
    ///
    /// [`Poisoned`], as for [`lock`](Self::lock).
    pub fn try_lock(&self) -> Option<Result<PoisonGuard<'_, T>, Poisoned<PoisonGuard<'_, T>>>> {
        self.lock.try_lock().map(|guard| self.guard(guard))
    }

    fn guard<'a>(
        &'a self,
        guard: AdaptiveMutexGuard<'a, T>,
    ) -> Result<PoisonGuard<'a, T>, Poisoned<PoisonGuard<'a, T>>> {
        let guard =
            PoisonGuard { poisoned: &self.poisoned, was_panicking: thread::panicking(), guard };
        if self.is_poisoned() { Err(Poisoned { guard }) } else { Ok(guard) }
    }

    /// Whether a thread panicked while it held the lock. Without the lock, the answer may be old.
    pub fn is_poisoned(&self) -> bool {
        // ORDERING: Relaxed: who asks under the lock sees what was written under it before.
        self.poisoned.load(Ordering::Relaxed) != 0
    }

    /// Forgets that. For whoever made the data whole again.
    pub fn clear_poison(&self) {
        // ORDERING: Relaxed: as in `is_poisoned`.
        self.poisoned.store(0, Ordering::Relaxed);
    }
}

impl<T: ?Sized> Drop for PoisonGuard<'_, T> {
    fn drop(&mut self) {
        if !self.was_panicking && thread::panicking() {
            // ORDERING: Relaxed: still under the lock, which is released after this.
            self.poisoned.store(1, Ordering::Relaxed);
        }
    }
}

impl<T: ?Sized> Deref for PoisonGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for PoisonGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for PoisonGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for PoisonMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoisonMutex")
            .field("poisoned", &self.is_poisoned())
            .field("lock", &&self.lock)
            .finish()
    }
}

impl<T: Default> Default for PoisonMutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}
