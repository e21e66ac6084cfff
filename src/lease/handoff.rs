//! Moving a lease from one owner to another.

use core::fmt;
use core::time::Duration;

use super::error::AcceptError;
use super::event::LeaseEventKind;
use super::request::Note;
use super::slot::SlotRef;
use super::term::Term;
use super::{FencingToken, Label, LeaseKey, LeaseValue, OwnedLease};
use crate::clock::{Clock, MonotonicClock};

/// A lease on its way to somebody else, with its draft. Made by [`Lease::transfer`](super::Lease::transfer).
///
/// The key is nobody's while it lasts: the one who gave it away is fenced already, the one who will
/// accept it has a token but no lease. If nobody accepts before the hand-off's own deadline, the key
/// is free and its value what it was.
///
/// # Cancellation and drop
///
/// Dropping it discards the draft and frees the key at once.
#[must_use = "dropping a hand-off frees the key"]
pub struct Handoff<K: LeaseKey, V: LeaseValue, C: Clock = MonotonicClock> {
    slot: SlotRef<K, V, C>,
    /// `None` once it was accepted.
    term: Option<Term<V>>,
    token: FencingToken,
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Handoff<K, V, C> {
    pub(super) fn new(slot: SlotRef<K, V, C>, term: Term<V>, to: Label) -> Self {
        let token = term.token(&slot);
        slot.core.note(&slot, token, Note { owner: Some(to), ..Note::default() });
        Self { slot, term: Some(term), token }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.slot.key
    }

    /// The token that the lease will have.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Accepts: the lease is the caller's, for `ttl` from now, with the draft that came along.
    ///
    /// # Errors
    ///
    /// The draft, and why: mostly [`Lost::Expired`](super::Lost::Expired), after the hand-off's
    /// deadline.
    pub fn accept(mut self, ttl: Duration) -> Result<OwnedLease<K, V, C>, AcceptError<V>> {
        let slot = self.slot.clone();
        let Some(mut term) = self.term.take() else {
            unreachable!("accepting consumes the hand-off")
        };
        match term.accept(&slot, ttl) {
            Ok(()) => Ok(OwnedLease::new(slot, term)),
            Err(why) => {
                let draft = term.take_draft();
                let _ = term.release(&slot, LeaseEventKind::Aborted);
                Err(AcceptError { draft, why })
            }
        }
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Drop for Handoff<K, V, C> {
    fn drop(&mut self) {
        if let Some(term) = &mut self.term {
            let panicking = crate::sync::thread::panicking();
            let _ = term.release(&self.slot, LeaseEventKind::Dropped { panicking });
        }
    }
}

impl<K: LeaseKey + fmt::Debug, V: LeaseValue, C: Clock> fmt::Debug for Handoff<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handoff")
            .field("key", self.key())
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
