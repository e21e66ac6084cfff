//! A key, looked up once.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::ptr::NonNull;

use super::slot::{Slot, SlotRef};
use super::term::Term;
use super::{AcquireError, Lease, LeaseKey, LeaseRequest, LeaseValue, OwnedLease};
use crate::clock::{Clock, MonotonicClock};

/// A key that was looked up once: the hot calls live here.
///
/// A handle stands for the *key*: it follows when the key moves to fresh memory, and when the key was
/// removed and made again. It belongs to one thread at a time (`Send`, not `Sync`): clone it for
/// another.
///
/// ```
/// use std::time::Duration;
/// use tenure::lease::LeaseTable;
///
/// let table: LeaseTable<&str, u64> = LeaseTable::new();
/// let account = table.handle(&"account")?;
/// for _ in 0..3 {
///     let mut balance = account.try_acquire(Duration::from_secs(1))?;
///     *balance += 10;
///     balance.commit()?;
/// }
/// assert_eq!(table.peek(&"account").ok_or("no such key")?.value, 30);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LeaseHandle<K, V, C = MonotonicClock> {
    /// The last of `slots`.
    now: Cell<NonNull<Slot<K, V, C>>>,
    /// Every slot that a borrowed lease of this handle may still use, and the current one.
    slots: RefCell<Vec<SlotRef<K, V, C>>>,
    /// Borrowed leases of this handle.
    lent: Cell<usize>,
}

// SAFETY: `now` points into memory that `slots` owns, so the handle is an owner of slots like any
// other: it may move to another thread if slots may be shared between threads.
unsafe impl<K: Send + Sync, V: Send + Sync, C: Send + Sync> Send for LeaseHandle<K, V, C> {}

impl<K, V, C> LeaseHandle<K, V, C> {
    pub(super) fn new(slot: SlotRef<K, V, C>) -> Self {
        Self {
            now: Cell::new(NonNull::from(&*slot)),
            slots: RefCell::new(vec![slot]),
            lent: Cell::new(0),
        }
    }

    #[inline]
    pub(super) fn slot(&self) -> &Slot<K, V, C> {
        // SAFETY: the last of `slots`, which only `adopt` removes, and there only when nothing is lent;
        // no caller uses what it got here after it called `adopt`.
        unsafe { self.now.get().as_ref() }
    }

    /// The key is there now. Slots that no lease can use any more are let go.
    pub(super) fn adopt(&self, slot: SlotRef<K, V, C>) -> NonNull<Slot<K, V, C>> {
        let at = NonNull::from(&*slot);
        let mut slots = self.slots.borrow_mut();
        let left = if self.lent.get() == 0 { core::mem::take(&mut *slots) } else { Vec::new() };
        slots.push(slot);
        self.now.set(at);
        drop(slots);
        // Foreign code (values' drops) runs with nothing borrowed.
        drop(left);
        at
    }

    /// One more borrowed lease.
    #[inline]
    pub(super) fn lend(&self) {
        self.lent.set(self.lent.get() + 1);
    }

    /// One less.
    #[inline]
    pub(super) fn give_back(&self) {
        self.lent.set(self.lent.get() - 1);
    }

    /// An owner of the slot at `at`, which a borrowed lease of this handle uses.
    pub(super) fn owner_of(&self, at: NonNull<Slot<K, V, C>>) -> SlotRef<K, V, C> {
        let slots = self.slots.borrow();
        let found = slots.iter().rev().find(|slot| NonNull::from(&***slot) == at);
        match found {
            Some(slot) => slot.clone(),
            None => unreachable!("a handle keeps the slots of its leases"),
        }
    }

    fn owner_of_now(&self) -> SlotRef<K, V, C> {
        self.owner_of(self.now.get())
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.slot().key
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> LeaseHandle<K, V, C> {
    /// Takes the key, if nobody holds it or the holder's time is over.
    ///
    /// The guard is where the key's value can be read and drafted. Lock-free; a key whose last owner
    /// was late, was revoked or used up the slot's eight million epochs moves to fresh memory, which
    /// takes an allocation and a short lock.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Held`] with the time after which asking again can succeed,
    /// [`AcquireError::TtlOutOfRange`], [`AcquireError::NoSuchKey`] if the key was removed, and
    /// [`AcquireError::Closed`].
    #[inline]
    pub fn try_acquire(
        &self,
        request: impl Into<LeaseRequest>,
    ) -> Result<Lease<'_, K, V, C>, AcquireError> {
        let slot = self.slot();
        let mut granted = slot.core.acquire(slot, request.into())?;
        let at = match granted.moved.take() {
            None => self.now.get(),
            Some(slot) => self.adopt(slot),
        };
        Ok(Lease::new(self, at, Term::of(self.slot(), granted)))
    }

    /// Takes the key as [`try_acquire`](Self::try_acquire) does, with a guard that borrows nothing and
    /// may move to another thread.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub fn try_acquire_owned(
        &self,
        request: impl Into<LeaseRequest>,
    ) -> Result<OwnedLease<K, V, C>, AcquireError> {
        let slot = self.slot();
        let mut granted = slot.core.acquire(slot, request.into())?;
        if let Some(slot) = granted.moved.take() {
            self.adopt(slot);
        }
        let term = Term::of(self.slot(), granted);
        Ok(OwnedLease::new(self.owner_of_now(), term))
    }
}

impl<K, V, C> Clone for LeaseHandle<K, V, C> {
    fn clone(&self) -> Self {
        Self::new(self.owner_of_now())
    }
}

impl<K: fmt::Debug, V, C> fmt::Debug for LeaseHandle<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHandle")
            .field("key", self.key())
            .field("word", &self.slot().word)
            .finish_non_exhaustive()
    }
}
