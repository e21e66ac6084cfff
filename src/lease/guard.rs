//! The guards: a lease that borrows its handle, and one that borrows nothing.

use core::convert::Infallible;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::time::Duration;

use super::core::Then;
use super::error::{CommitError, Lost, Refusal, Release, RenewError, TransferError};
use super::event::LeaseEventKind;
use super::fence::Permit;
use super::handle::{LeaseHandle, Lent};
use super::handoff::Handoff;
use super::slot::{Slot, SlotRef};
use super::term::{Published, Term};
use super::watch::watch;
use super::{FencingToken, Label, LeaseKey, LeaseValue};
use crate::clock::{Clock, MonotonicClock};
use crate::promise::Eventual;

/// A running lease on a key, with a private draft of its value. Borrows its [`LeaseHandle`].
///
/// Read it, and you read the value as it was when the lease began; write to it, and you write to a
/// draft that nobody else sees (made by `Clone` at the first write). The draft becomes the key's
/// value by [`commit`](Self::commit) or [`checkpoint`](Self::checkpoint), if the lease is still held
/// then, and in no other way: an expired, revoked, panicking or forgetful owner leaves the value as
/// it was.
///
/// # Cancellation and drop
///
/// Dropping the guard discards the draft and releases the key by its token; it never blocks and never
/// panics (but for a panic in the value's own `Drop`). A guard that is forgotten holds the key until
/// its deadline, and has its handle keep the memory of every place that the key moves from (by a late
/// owner's takeover, mostly) until the handle is dropped. An [`OwnedLease`] that is forgotten keeps its
/// one place for ever.
#[must_use = "dropping a lease releases it"]
pub struct Lease<'h, K: LeaseKey, V: LeaseValue, C: Clock = MonotonicClock> {
    term: Term<V>,
    at: NonNull<Slot<K, V, C>>,
    handle: &'h LeaseHandle<K, V, C>,
}

/// A running lease on a key, as [`Lease`], that borrows nothing and may move to another thread.
///
/// # Cancellation and drop
///
/// As [`Lease`].
#[must_use = "dropping a lease releases it"]
pub struct OwnedLease<K: LeaseKey, V: LeaseValue, C: Clock = MonotonicClock> {
    term: Term<V>,
    slot: SlotRef<K, V, C>,
}

impl<'h, K: LeaseKey, V: LeaseValue, C: Clock> Lease<'h, K, V, C> {
    /// A guard for a term in the slot at `at`, which is among the handle's.
    #[inline(always)]
    pub(super) fn new(
        handle: &'h LeaseHandle<K, V, C>,
        lent: Lent<'h, K, V, C>,
        at: NonNull<Slot<K, V, C>>,
        term: Term<V>,
    ) -> Self {
        // Given back by `drop`.
        core::mem::forget(lent);
        Self { term, at, handle }
    }

    #[inline]
    fn slot(&self) -> &Slot<K, V, C> {
        // SAFETY: among the handle's slots when this was made or moved, and the handle lets go of none
        // while it has lent any; this guard counts as lent until it is dropped.
        unsafe { self.at.as_ref() }
    }

    fn keep(&mut self, slot: SlotRef<K, V, C>) {
        self.at = self.handle.adopt(slot);
    }

    fn share(&self) -> SlotRef<K, V, C> {
        self.handle.owner_of(self.at)
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> OwnedLease<K, V, C> {
    pub(super) fn new(slot: SlotRef<K, V, C>, term: Term<V>) -> Self {
        Self { term, slot }
    }

    pub(super) fn slot_ref(&self) -> &SlotRef<K, V, C> {
        &self.slot
    }

    #[inline]
    fn slot(&self) -> &Slot<K, V, C> {
        &self.slot
    }

    fn keep(&mut self, slot: SlotRef<K, V, C>) {
        self.slot = slot;
    }

    fn share(&self) -> SlotRef<K, V, C> {
        self.slot.clone()
    }
}

macro_rules! guard {
    ($guard:ty) => {
        impl<K: LeaseKey, V: LeaseValue, C: Clock> $guard {
            /// The key.
            #[must_use]
            pub fn key(&self) -> &K {
                &self.slot().key
            }

            /// The identity of this lease: greater than that of every earlier grant on the key.
            #[inline]
            #[must_use]
            pub fn token(&self) -> FencingToken {
                self.term.token(self.slot())
            }

            /// How often the value had been published when this guard read it, or last published it
            /// itself.
            #[must_use]
            pub fn version(&self) -> u64 {
                self.term.version()
            }

            /// Whether the lease is held, at a time read in this call. Once it said no it never says
            /// yes again. By the time the answer is used it may be out of date; what is written to a
            /// resource outside needs a [fence](super::FenceGate) as well.
            #[inline]
            #[must_use]
            pub fn is_valid(&self) -> bool {
                self.check_now().is_ok()
            }

            #[inline]
            fn check_now(&self) -> Result<(), Lost> {
                self.term.check(self.slot())
            }

            /// Says why the lease is lost, or gives a [`Permit`]: the proof that a fence asks for next
            /// to each write. While there is one, the lease can not be committed or moved away.
            ///
            /// # Errors
            ///
            /// How the lease was lost.
            #[inline]
            pub fn check(&self) -> Result<Permit<'_>, Lost> {
                self.check_now()?;
                Ok(Permit::new(self.token()))
            }

            /// How long the lease lasts if it is not renewed; zero if it is lost.
            #[must_use]
            pub fn remaining(&self) -> Duration {
                self.term.remaining(self.slot())
            }

            /// Moves the deadline to `ttl` from now, if that is later than it was: never an earlier
            /// one.
            ///
            /// # Errors
            ///
            /// [`RenewError::Lost`]: a lease past its deadline is not revived, even if nobody took
            /// over. [`RenewError::TtlOutOfRange`]: nothing changed.
            #[inline]
            pub fn renew(&self, ttl: Duration) -> Result<(), RenewError> {
                self.term.renew(self.slot(), ttl)
            }

            /// Publishes the draft and goes on holding the lease. Without a draft it only checks.
            ///
            /// # Errors
            ///
            /// The draft stays in the guard, and the key's value is what it was.
            pub fn checkpoint(&mut self) -> Result<(), Refusal> {
                self.publish(Then::Keep)
            }

            /// Publishes the draft, if there is one, and releases the key, in one step: whoever takes
            /// it next sees the new value.
            ///
            /// # Errors
            ///
            /// The key's value is what it was; the error has the draft, and says why.
            #[inline(always)]
            pub fn commit(mut self) -> Result<(), CommitError<V>> {
                match self.publish(Then::Release) {
                    Ok(()) => Ok(()),
                    Err(why) => {
                        if why == Refusal::VersionChanged {
                            // The lease is held by the guard that published; leave it alone.
                            self.term.leave();
                        }
                        Err(CommitError { draft: self.term.take_draft(), why })
                    }
                }
            }

            #[inline(always)]
            fn publish(&mut self, then: Then) -> Result<(), Refusal> {
                // Detached from `self` for the call: the term changes, the slot stays.
                let at = NonNull::from(self.slot());
                // SAFETY: kept alive by this guard, which is borrowed for the whole call and changes its
                // slot only after the last use.
                let slot = unsafe { at.as_ref() };
                let mut left = Published::NOTHING;
                self.term.publish(slot, then, &mut left)?;
                let Published { moved, displaced } = left;
                if let Some(fresh) = moved
                    && then == Then::Keep
                {
                    self.term.moved_here(self.term.epoch());
                    self.keep(fresh);
                }
                // Foreign code, last: everything is settled, and everybody told.
                drop(displaced);
                Ok(())
            }

            /// Replaces the draft. Gives back the draft that was there, if any; saves the clone that
            /// the first write through `DerefMut` makes.
            pub fn set(&mut self, value: V) -> Option<V> {
                self.term.set_draft(value)
            }

            /// Whether there is a draft.
            #[must_use]
            pub fn has_draft(&self) -> bool {
                self.term.has_draft()
            }

            /// Takes the draft out: the guard reads the published value again.
            pub fn revert(&mut self) -> Option<V> {
                self.term.take_draft()
            }

            /// Discards the draft and releases the key.
            pub fn abort(mut self) -> Release {
                self.let_go(LeaseEventKind::Aborted)
            }

            /// Releases the key without publishing anything. The same as [`abort`](Self::abort), for
            /// leases that wrote nothing.
            pub fn release(mut self) -> Release {
                self.let_go(LeaseEventKind::Released)
            }

            #[inline]
            fn let_go(&mut self, kind: LeaseEventKind) -> Release {
                let at = NonNull::from(self.slot());
                // SAFETY: as in `publish`.
                self.term.release(unsafe { at.as_ref() }, kind)
            }

            /// Hands the lease, with its draft, to somebody else, who accepts it within
            /// `accept_within`, under a token of its own. Until then nobody holds the key and nobody
            /// else can take it; when the time is over it is free. `to` is a label.
            ///
            /// # Errors
            ///
            /// The guard comes back as it was.
            pub fn transfer(
                mut self,
                to: impl Into<Label>,
                accept_within: Duration,
            ) -> Result<Handoff<K, V, C>, TransferError<Self>> {
                let at = NonNull::from(self.slot());
                // SAFETY: as in `publish`.
                match self.term.offer(unsafe { at.as_ref() }, accept_within) {
                    Err(why) => Err(TransferError { guard: self, why }),
                    Ok(moved) => {
                        let slot = moved.unwrap_or_else(|| self.share());
                        Ok(Handoff::new(slot, self.term.hand_over(), to.into()))
                    }
                }
            }

            /// Completes when the lease is known to be over, with how it ended; at its deadline at the
            /// latest. A lease that its own guard releases or commits ends
            /// [`Released`](Lost::Released).
            ///
            /// Callbacks run on the thread that ends the lease, with everything settled, or on the
            /// table's keeper thread at the deadline.
            pub fn lost(&self) -> Eventual<Lost, Infallible> {
                watch(self.slot(), self.token())
            }

            /// Lets the lease go on without a guard, until its deadline, a
            /// [`release`](super::LeaseTable::release) by its token or a
            /// [`resume`](super::LeaseTable::resume). The draft is discarded.
            pub fn into_token(mut self) -> FencingToken {
                self.term.leave();
                self.token()
            }
        }

        impl<K: LeaseKey, V: LeaseValue, C: Clock> Deref for $guard {
            type Target = V;

            #[inline]
            fn deref(&self) -> &V {
                self.term.value(self.slot())
            }
        }

        impl<K: LeaseKey, V: LeaseValue, C: Clock> DerefMut for $guard {
            fn deref_mut(&mut self) -> &mut V {
                let at = NonNull::from(self.slot());
                // SAFETY: as in `publish`.
                self.term.value_mut(unsafe { at.as_ref() })
            }
        }

        impl<K: LeaseKey + fmt::Debug, V: LeaseValue, C: Clock> fmt::Debug for $guard {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($guard))
                    .field("key", self.key())
                    .field("token", &self.token())
                    .field("draft", &self.has_draft())
                    .field("word", &self.slot().word)
                    .finish_non_exhaustive()
            }
        }
    };
}

guard!(Lease<'_, K, V, C>);
guard!(OwnedLease<K, V, C>);

impl<K: LeaseKey, V: LeaseValue, C: Clock> Drop for Lease<'_, K, V, C> {
    #[inline]
    fn drop(&mut self) {
        if self.term.is_open() {
            let panicking = crate::sync::thread::panicking();
            let _ = self.let_go(LeaseEventKind::Dropped { panicking });
        }
        self.handle.give_back();
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Drop for OwnedLease<K, V, C> {
    #[inline]
    fn drop(&mut self) {
        if self.term.is_open() {
            let panicking = crate::sync::thread::panicking();
            let _ = self.let_go(LeaseEventKind::Dropped { panicking });
        }
    }
}
