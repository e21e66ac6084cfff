//! A key, looked up once.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;

use super::slot::{Slot, SlotRef};
use super::term::Term;
use super::waiting::{acquire_in_turn, outcome};
use super::{AcquireError, Lease, LeaseKey, LeaseRequest, LeaseValue, OwnedLease};
use crate::clock::{Clock, MonotonicClock};
use crate::promise::{Eventual, EventualError};

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
pub struct LeaseHandle<K: LeaseKey, V: LeaseValue, C: Clock = MonotonicClock> {
    /// Its own, because callers borrow it from the handle, not from a slot that may go.
    key: K,
    /// The last of `slots`.
    now: Cell<NonNull<Slot<K, V, C>>>,
    /// Every slot that a borrowed lease of this handle may still use, and the current one.
    slots: RefCell<Vec<SlotRef<K, V, C>>>,
    /// Borrowed leases of this handle, and its calls that are under way: those run foreign code (a
    /// value's clone, an audit sink) that may find this very handle in a thread-local and use it.
    lent: Cell<usize>,
}

// SAFETY: `now` points into memory that `slots` owns, so the handle is an owner of slots like any
// other: it may move to another thread if slots may be shared between threads.
unsafe impl<K: LeaseKey, V: LeaseValue, C: Clock> Send for LeaseHandle<K, V, C> {}

/// A count in `lent`, until it is dropped.
pub(super) struct Lent<'h, K: LeaseKey, V: LeaseValue, C: Clock>(&'h LeaseHandle<K, V, C>);

impl<K: LeaseKey, V: LeaseValue, C: Clock> Drop for Lent<'_, K, V, C> {
    #[inline]
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> LeaseHandle<K, V, C> {
    pub(super) fn new(slot: SlotRef<K, V, C>) -> Self {
        Self {
            key: slot.key.clone(),
            now: Cell::new(slot.address()),
            slots: RefCell::new(vec![slot]),
            lent: Cell::new(0),
        }
    }

    /// The key is there now. Slots that no lease can use any more are let go. The caller is lent, and
    /// has no further use for any slot but the new one.
    pub(super) fn adopt(&self, slot: SlotRef<K, V, C>) -> NonNull<Slot<K, V, C>> {
        let at = slot.address();
        let mut slots = self.slots.borrow_mut();
        let left = if self.lent.get() <= 1 { core::mem::take(&mut *slots) } else { Vec::new() };
        slots.push(slot);
        self.now.set(at);
        drop(slots);
        // Foreign code (values' drops) runs with nothing borrowed.
        drop(left);
        at
    }

    /// One more borrowed lease or call under way: no slot is let go meanwhile.
    #[inline]
    fn lend(&self) -> Lent<'_, K, V, C> {
        // As many as there are guards; forgotten ones cannot fill an address space twice over.
        self.lent.set(self.lent.get().wrapping_add(1));
        Lent(self)
    }

    /// One less.
    #[inline]
    pub(super) fn give_back(&self) {
        self.lent.set(self.lent.get().wrapping_sub(1));
    }

    /// An owner of the slot at `at`, which a borrowed lease of this handle uses.
    pub(super) fn owner_of(&self, at: NonNull<Slot<K, V, C>>) -> SlotRef<K, V, C> {
        let slots = self.slots.borrow();
        let found = slots.iter().rev().find(|slot| slot.address() == at);
        match found {
            Some(slot) => slot.clone(),
            None => unreachable!("a handle keeps the slots of its leases"),
        }
    }

    /// What a wait came to. The key may have moved meanwhile.
    fn following(
        &self,
        waited: Result<OwnedLease<K, V, C>, EventualError<AcquireError>>,
    ) -> Result<OwnedLease<K, V, C>, AcquireError> {
        let waited = outcome(waited);
        if let Ok(lease) = &waited
            && lease.slot_ref().address() != self.now.get()
        {
            let lent = self.lend();
            self.adopt(lease.slot_ref().clone());
            drop(lent);
        }
        waited
    }

    fn owner_of_now(&self) -> SlotRef<K, V, C> {
        self.owner_of(self.now.get())
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
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
    #[inline(always)]
    pub fn try_acquire(
        &self,
        request: impl Into<LeaseRequest>,
    ) -> Result<Lease<'_, K, V, C>, AcquireError> {
        let (lent, at, term) = self.grant(request.into())?;
        Ok(Lease::new(self, lent, at, term))
    }

    /// A term, and the slot that it is in, which stays while it is lent.
    #[inline(always)]
    #[expect(clippy::type_complexity, reason = "taken apart on the spot")]
    fn grant(
        &self,
        request: LeaseRequest,
    ) -> Result<(Lent<'_, K, V, C>, NonNull<Slot<K, V, C>>, Term<V>), AcquireError> {
        let lent = self.lend();
        let at = self.now.get();
        // SAFETY: the last of `slots`. Only `adopt` removes any, and only when it is called by the one
        // that is lent: foreign code that calls this handle again is lent beside us.
        let slot = unsafe { at.as_ref() };
        let mut moved = None;
        let granted = slot.core.acquire(slot, request, &mut moved);
        // Refused or not: the next call looks there at once, and the old slot's memory is let go.
        let at = match moved {
            None => at,
            Some(slot) => self.adopt(slot),
        };
        let granted = granted?;
        // SAFETY: as above, or adopted just now. Not what `now` says: foreign code may have moved it.
        let term = Term::of(unsafe { at.as_ref() }, granted);
        Ok((lent, at, term))
    }

    /// Takes the key, or waits for it, in line with everybody who waits.
    ///
    /// The key is granted to the first waiter by whoever ends the term before, at once; or, when a
    /// holder does not end its term, at its deadline. [`try_acquire`](Self::try_acquire) does not stand
    /// in line.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire) but for `Held`: that only if the system has no thread left
    /// to look at deadlines.
    ///
    /// # Blocking
    ///
    /// For as long as others hold the key and stand in line before. The thread sleeps.
    pub fn acquire(
        &self,
        request: impl Into<LeaseRequest>,
    ) -> Result<OwnedLease<K, V, C>, AcquireError> {
        self.following(acquire_in_turn(&self.owner_of_now(), request.into(), None).get())
    }

    /// As [`acquire`](Self::acquire), for at most `timeout` on the table's clock. Zero does not wait.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Held`] when the time is up; else as [`acquire`](Self::acquire).
    ///
    /// # Blocking
    ///
    /// At most `timeout`.
    pub fn acquire_timeout(
        &self,
        request: impl Into<LeaseRequest>,
        timeout: Duration,
    ) -> Result<OwnedLease<K, V, C>, AcquireError> {
        self.following(acquire_in_turn(&self.owner_of_now(), request.into(), Some(timeout)).get())
    }

    /// As [`acquire`](Self::acquire), without a thread that waits: an eventual of the lease. Dropping
    /// it gives the place in line up; a lease that was granted meanwhile is released.
    ///
    /// Callbacks of the eventual run on the thread that ends the term before (inside its commit,
    /// release or drop, with everything settled), on the table's keeper thread when the deadline
    /// passes, or here if the key is free. Give them an [executor](crate::executor) if that does not
    /// suit.
    pub fn acquire_async(
        &self,
        request: impl Into<LeaseRequest>,
    ) -> Eventual<OwnedLease<K, V, C>, AcquireError> {
        acquire_in_turn(&self.owner_of_now(), request.into(), None)
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
        let (lent, at, term) = self.grant(request.into())?;
        let owned = OwnedLease::new(self.owner_of(at), term);
        drop(lent);
        Ok(owned)
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Clone for LeaseHandle<K, V, C> {
    fn clone(&self) -> Self {
        Self::new(self.owner_of_now())
    }
}

impl<K: LeaseKey + fmt::Debug, V: LeaseValue, C: Clock> fmt::Debug for LeaseHandle<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHandle")
            .field("key", self.key())
            .field("word", &self.owner_of_now().word)
            .finish_non_exhaustive()
    }
}
