//! What a guard knows of its term, and what it does with it: the one implementation behind
//! [`Lease`](super::Lease), [`OwnedLease`](super::OwnedLease) and [`Handoff`](super::Handoff).

use core::cell::Cell;
use core::time::Duration;

use super::core::{Granted, Moved, Standing, Then};
use super::error::{Lost, Refusal, Release, RenewError};
use super::event::LeaseEventKind;
use super::index::Replaced;
use super::slot::{Slot, SlotRef};
use super::word::{Ended, State, Word};
use super::{FencingToken, LeaseKey, LeaseValue};
use crate::clock::Clock;

/// A grant, as its guard holds it. The slot is always the one that the grant was made in or last
/// moved to; the guard that owns the term passes it in.
pub(super) struct Term<V> {
    epoch: u64,
    /// Of the value that this term read or published last; its low bit is the entry.
    version: u64,
    /// What is written and not yet published.
    draft: Option<V>,
    /// The value, of a term that another guard may hold as well. Such a term never touches an entry
    /// in place.
    copy: Option<Box<V>>,
    /// Sticky: what was reported lost stays lost.
    lost: Cell<Option<Lost>>,
    /// Whether dropping the guard is to release the key.
    open: bool,
}

/// What a publication left behind.
pub(super) struct Published<K: LeaseKey, V: LeaseValue, C: Clock> {
    /// The slot that the key moved to.
    pub(super) moved: Option<SlotRef<K, V, C>>,
    /// The value before the last one, to be dropped when everything is settled and told: its drop is
    /// foreign code.
    pub(super) displaced: Option<V>,
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Published<K, V, C> {
    /// Nothing: made in the slot, with no value displaced.
    pub(super) const NOTHING: Self = Self { moved: None, displaced: None };
}

impl<V: LeaseValue> Term<V> {
    /// The term of a grant in `slot`.
    #[inline(always)]
    pub(super) fn new<K: LeaseKey, C: Clock>(
        slot: &Slot<K, V, C>,
        word: Word,
        sharing: Option<(V, u64)>,
    ) -> Self {
        let (copy, version) = match sharing {
            Some((value, version)) => (Some(Box::new(value)), version),
            // A value without bytes is never published.
            None if Slot::<K, V, C>::PURE => (None, 0),
            None => (None, slot.version(word.index())),
        };
        Self { epoch: word.epoch(), version, draft: None, copy, lost: Cell::new(None), open: true }
    }

    /// The entry that this term read or published last.
    #[inline]
    fn at(&self) -> usize {
        (self.version & 1) as usize
    }

    /// Whether another guard may hold the term as well.
    #[inline]
    fn is_shared(&self) -> bool {
        self.copy.is_some()
    }

    #[inline]
    pub(super) fn token<K: LeaseKey, C: Clock>(&self, slot: &Slot<K, V, C>) -> FencingToken {
        FencingToken::of(slot.base, self.epoch)
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The draft, or else the value.
    #[inline]
    pub(super) fn value<'s, K: LeaseKey, C: Clock>(&'s self, slot: &'s Slot<K, V, C>) -> &'s V {
        match (&self.draft, &self.copy) {
            (Some(value), _) => value,
            (None, Some(value)) => value,
            // SAFETY: this guard's term was granted in this slot, or moved to it, with `at` current;
            // it is alone with its epoch (not shared) and has not let go, for it is still here.
            (None, None) => unsafe { slot.value(self.at()) },
        }
    }

    /// The draft, made from the value at the first call.
    pub(super) fn value_mut<K: LeaseKey, C: Clock>(&mut self, slot: &Slot<K, V, C>) -> &mut V {
        if self.draft.is_none() {
            self.draft = Some(self.value(slot).clone());
        }
        // Filled on the line above where it was empty.
        self.draft.get_or_insert_with(|| unreachable!("the draft was made above"))
    }

    pub(super) fn set_draft(&mut self, value: V) -> Option<V> {
        self.draft.replace(value)
    }

    pub(super) fn has_draft(&self) -> bool {
        self.draft.is_some()
    }

    pub(super) fn take_draft(&mut self) -> Option<V> {
        self.draft.take()
    }

    fn how_released(&self) -> Ended {
        if self.is_shared() { Ended::ReleasedByToken } else { Ended::Released }
    }

    /// Whether the grant is current, at a time read in this call.
    #[inline]
    pub(super) fn check<K: LeaseKey, C: Clock>(&self, slot: &Slot<K, V, C>) -> Result<(), Lost> {
        if let Some(lost) = self.lost.get() {
            return Err(lost);
        }
        match slot.core.standing(slot, self.epoch) {
            Ok(_) => Ok(()),
            Err(lost) => Err(self.lose(lost)),
        }
    }

    fn lose(&self, lost: Lost) -> Lost {
        self.lost.set(Some(lost));
        lost
    }

    /// How long the lease lasts; zero if it is lost.
    pub(super) fn remaining<K: LeaseKey, C: Clock>(&self, slot: &Slot<K, V, C>) -> Duration {
        if self.lost.get().is_some() {
            return Duration::ZERO;
        }
        let ticks = &slot.core.ticks;
        match slot.core.standing(slot, self.epoch) {
            Ok(Standing::Held(word)) => ticks.until(slot.core.deadline_of(slot, word)),
            Ok(Standing::Moved(now)) => {
                let word = now.word.load();
                if now.token(word) == self.token(slot) && word.state() == State::Held {
                    ticks.until(now.core.deadline_of(&now, word))
                } else {
                    Duration::ZERO
                }
            }
            Err(lost) => {
                self.lose(lost);
                Duration::ZERO
            }
        }
    }

    #[inline]
    pub(super) fn renew<K: LeaseKey, C: Clock>(
        &self,
        slot: &Slot<K, V, C>,
        ttl: Duration,
    ) -> Result<(), RenewError> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.into());
        }
        slot.core.renew(slot, self.epoch, ttl).inspect_err(|refused| {
            if let RenewError::Lost(lost) = refused {
                self.lose(*lost);
            }
        })
    }

    /// Publishes the draft, if there is one, and keeps or releases the lease, in one step. What it
    /// leaves behind is put into `left`, not returned: a result of that size would be copied twice.
    #[inline]
    pub(super) fn publish<K: LeaseKey, C: Clock>(
        &mut self,
        slot: &Slot<K, V, C>,
        then: Then,
        left: &mut Published<K, V, C>,
    ) -> Result<(), Refusal> {
        let done = match self.lost.get() {
            Some(lost) => Err(Refusal::Lost(lost)),
            None => self.publish_now(slot, then, left),
        };
        if let Err(why) = done {
            self.refused(slot, why);
            return Err(why);
        }
        match then {
            Then::Release => {
                self.open = false;
                // The term is over in the slot where it was published; it took its labels along.
                slot.core.settled(slot, self.token(slot), LeaseEventKind::Committed, None);
            }
            Then::Keep => {
                if slot.core.events.are_heard() {
                    let token = self.token(slot);
                    slot.core.tell(slot, token, LeaseEventKind::Checkpointed, None, None);
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn refused<K: LeaseKey, C: Clock>(&self, slot: &Slot<K, V, C>, why: Refusal) {
        if let Refusal::Lost(lost) = why {
            self.lose(lost);
        }
        if slot.core.events.are_heard() {
            slot.core.tell(slot, self.token(slot), LeaseEventKind::CommitRefused, None, None);
        }
    }

    #[inline]
    fn publish_now<K: LeaseKey, C: Clock>(
        &mut self,
        slot: &Slot<K, V, C>,
        then: Then,
        left: &mut Published<K, V, C>,
    ) -> Result<(), Refusal> {
        let core = &*slot.core;
        loop {
            let mut word = match core.standing(slot, self.epoch)? {
                Standing::Held(word) => word,
                // Whoever moved the key with this token in it published there.
                Standing::Moved(_) => return Err(Refusal::VersionChanged),
            };
            if Slot::<K, V, C>::PURE || self.draft.is_none() {
                match then {
                    Then::Keep => return Ok(()),
                    Then::Release => {
                        if slot.word.swap_if(word, word.over(self.how_released())) {
                            return Ok(());
                        }
                        continue;
                    }
                }
            }
            let spare = if self.is_shared() { None } else { slot.spare(1 - self.at()) };
            let Some(spare) = spare else {
                match self.publish_elsewhere(slot, then)? {
                    Some(fresh) => {
                        left.moved = Some(fresh);
                        return Ok(());
                    }
                    None => continue,
                }
            };
            let Some(value) = self.draft.take() else { continue };
            // SAFETY: this term is alone with its epoch (not shared) and open; `spare` is not the
            // entry it read or published last, and nobody has it pinned.
            let old = unsafe { slot.stage(spare, value, self.version + 1) };
            loop {
                let next = match then {
                    Then::Keep => word.published(),
                    Then::Release => word.published().over(Ended::Released),
                };
                if slot.word.swap_if(word, next) {
                    self.version += 1;
                    left.displaced = old;
                    return Ok(());
                }
                // The word and the clock again: a renewal by the session or by the token moved it.
                match core.standing(slot, self.epoch) {
                    Ok(Standing::Held(now)) => word = now,
                    Ok(Standing::Moved(_)) | Err(_) => break,
                }
            }
            // SAFETY: staged above and not published.
            self.draft = Some(unsafe { slot.unstage(spare, old) });
        }
    }

    /// Publishes by moving the key to a fresh slot: somebody may hold the same token, or a reader is
    /// still at the entry that would be written. `None` if the word moved meanwhile.
    #[cold]
    fn publish_elsewhere<K: LeaseKey, C: Clock>(
        &mut self,
        slot: &Slot<K, V, C>,
        then: Then,
    ) -> Result<Option<SlotRef<K, V, C>>, Refusal> {
        let core = &*slot.core;
        // Pinned to the end: the current entry cannot be written twice meanwhile, so a word that is
        // bit for bit the same names the same version.
        let Some(pinned) = slot.pin() else { return Ok(None) };
        let word = pinned.word();
        if word.epoch() != self.epoch
            || word.state() != State::Held
            || core.is_over_for_holder(slot, word)
        {
            return Ok(None);
        }
        if pinned.version() != self.version {
            return Err(Refusal::VersionChanged);
        }
        let Some(value) = self.draft.take() else { return Ok(None) };
        // The same grant, so base and epoch are the same.
        let next = match then {
            Then::Keep => Word::held(self.epoch, word.tick()),
            Then::Release => Word::free(self.epoch),
        };
        let version = self.version + 1;
        let fresh = Slot::new(slot.core.clone(), slot.key.clone(), slot.base, next, value, version);
        match core.index.replace(slot, word, fresh, None) {
            Replaced::Yes(fresh) => {
                self.version = version;
                Ok(Some(fresh))
            }
            Replaced::No(fresh) => {
                self.draft = Some(fresh.into_value());
                Ok(None)
            }
        }
    }

    /// The term goes on in the slot that its own publication or hand-off made, with `epoch`.
    pub(super) fn moved_here(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.copy = None;
    }

    /// Gives the key back. Idempotent: only an open term does anything.
    pub(super) fn release<K: LeaseKey, C: Clock>(
        &mut self,
        slot: &Slot<K, V, C>,
        kind: LeaseEventKind,
    ) -> Release {
        self.open = false;
        slot.core.release(slot, self.epoch, self.how_released(), kind)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// The term goes on without a guard.
    pub(super) fn leave(&mut self) {
        self.open = false;
    }

    /// Hands the lease off under the next token, to be accepted within `within`. Gives the slot that
    /// the key moved to, if the epochs of this one are used up.
    pub(super) fn offer<K: LeaseKey, C: Clock>(
        &mut self,
        slot: &Slot<K, V, C>,
        within: Duration,
    ) -> Result<Option<SlotRef<K, V, C>>, RenewError> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.into());
        }
        let core = &*slot.core;
        loop {
            let word = match core.standing(slot, self.epoch) {
                Ok(Standing::Held(word)) => word,
                // Whoever moved the key with this token in it published there.
                Ok(Standing::Moved(_)) => return Err(RenewError::VersionChanged),
                Err(lost) => return Err(self.lose(lost).into()),
            };
            let Some(until) = core.ticks.deadline(within) else {
                return Err(RenewError::TtlOutOfRange { max: core.ticks.longest() });
            };
            if word.epoch() < core.epoch_limit && !self.is_shared() {
                if slot.word.swap_if(word, word.offered(until)) {
                    core.settled(slot, slot.token(word), LeaseEventKind::HandedOff, None);
                    self.epoch += 1;
                    return Ok(None);
                }
                continue;
            }
            // The epochs are used up, or another guard may still use this slot's entries.
            let (base, epoch) = core.next_elsewhere(slot, word.epoch())?;
            let next = Word::pending(epoch, until);
            match core.move_to(slot, word, next, base, Some(self.version), None) {
                Moved::To(fresh, _) => {
                    core.settled(slot, slot.token(word), LeaseEventKind::HandedOff, None);
                    self.moved_here(epoch);
                    return Ok(Some(fresh));
                }
                Moved::VersionChanged => return Err(RenewError::VersionChanged),
                Moved::Not => {}
            }
        }
    }

    /// Accepts what was handed off: the same token, a fresh deadline.
    pub(super) fn accept<K: LeaseKey, C: Clock>(
        &mut self,
        slot: &Slot<K, V, C>,
        ttl: Duration,
    ) -> Result<(), RenewError> {
        let core = &*slot.core;
        loop {
            let word = slot.word.load();
            if !word.is_term_of(self.epoch) || word.state() != State::Pending {
                return match core.standing(slot, self.epoch) {
                    // Only `accept` makes a pending term a held one, and it consumes the hand-off.
                    Ok(_) => Err(Lost::HandedOff.into()),
                    Err(lost) => Err(self.lose(lost).into()),
                };
            }
            if !core.ticks.is_before(word.tick()) {
                if core.end(slot, word, Ended::Expired, None) {
                    return Err(self.lose(Lost::Expired).into());
                }
                continue;
            }
            let Some(until) = core.ticks.deadline(ttl) else {
                return Err(RenewError::TtlOutOfRange { max: core.ticks.longest() });
            };
            if slot.word.swap_if(word, word.accepted(until)) {
                if core.events.are_heard() {
                    core.tell(slot, slot.token(word), LeaseEventKind::Accepted, None, None);
                }
                return Ok(());
            }
        }
    }

    /// The term of a resumed token.
    pub(super) fn shared(word: Word, value: V, version: u64) -> Self {
        Self {
            epoch: word.epoch(),
            version,
            draft: None,
            copy: Some(Box::new(value)),
            lost: Cell::new(None),
            open: true,
        }
    }

    /// This term for another guard, which takes over; this one is closed.
    pub(super) fn hand_over(&mut self) -> Self {
        self.open = false;
        Self {
            epoch: self.epoch,
            version: self.version,
            draft: self.draft.take(),
            copy: self.copy.take(),
            lost: Cell::new(self.lost.get()),
            open: true,
        }
    }

    /// The term of a fresh grant.
    pub(super) fn of<K: LeaseKey, C: Clock>(slot: &Slot<K, V, C>, granted: Granted<V>) -> Self {
        Self::new(slot, granted.word, granted.sharing)
    }
}
