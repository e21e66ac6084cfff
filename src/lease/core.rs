//! The transitions, each as one call that has settled what it reports.

use core::time::Duration;

use super::annex::Annex;
use super::error::{AcquireError, Lost, RenewError};
use super::event::{Events, LeaseEvent, LeaseEventKind, contained};
use super::index::{Closed, Index, Replaced};
use super::keeper::Keeper;
use super::request::{LeaseRequest, Note};
use super::session::Deadline;
use super::slot::{Slot, SlotRef};
use super::ticks::Ticks;
use super::token::LAST_BASE;
use super::word::{Ended, State, TICK_SESSION, Word};
use super::{FencingToken, Label, LeaseKey, LeaseValue};
use crate::clock::Clock;
use crate::sync::Arc;

/// What a table's handles and guards share.
pub(super) struct Core<K: LeaseKey, V: LeaseValue, C: Clock> {
    pub(super) ticks: Ticks<C>,
    pub(super) index: Index<K, V, C>,
    pub(super) events: Events<K>,
    pub(super) keeper: Arc<Keeper>,
    /// The last epoch that is granted in a slot.
    pub(super) epoch_limit: u64,
}

/// A grant that was just made, or found by its request id.
pub(super) struct Granted<V> {
    pub(super) word: Word,
    /// The value, where the guard must not write in place: somebody else may hold the same token.
    pub(super) sharing: Option<(V, u64)>,
}

/// Where a grant stands.
pub(super) enum Standing<K: LeaseKey, V: LeaseValue, C: Clock> {
    /// It is running, by this word.
    Held(Word),
    /// It is running in another slot: somebody with the same token published there.
    Moved(SlotRef<K, V, C>),
}

/// What moving a key to a fresh slot came to.
pub(super) enum Moved<K: LeaseKey, V: LeaseValue, C: Clock> {
    /// It is here now, and began with this word.
    To(SlotRef<K, V, C>, Word),
    /// The word was no longer as seen.
    Not,
    /// The value was published since the caller read it.
    VersionChanged,
}

/// What becomes of the lease when its draft is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Keep,
    Release,
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Core<K, V, C> {
    /// The key's slot now, for somebody who read `Gone` in an older one.
    pub(super) fn follow(&self, key: &K) -> Result<SlotRef<K, V, C>, AcquireError> {
        match self.index.find(key) {
            Ok(Some(slot)) => Ok(slot),
            Ok(None) => Err(AcquireError::NoSuchKey),
            Err(Closed) => Err(AcquireError::Closed),
        }
    }

    /// The deadline of a lease that starts now.
    #[inline]
    pub(super) fn deadline(&self, ttl: Duration) -> Result<u64, AcquireError> {
        self.ticks
            .deadline(ttl)
            .ok_or_else(|| AcquireError::TtlOutOfRange { max: self.ticks.longest() })
    }

    /// Where the grant after `epoch` is made when it is not in `slot`: the base and the epoch that the
    /// fresh slot begins with. They make the next token.
    pub(super) fn next_elsewhere(
        &self,
        slot: &Slot<K, V, C>,
        epoch: u64,
    ) -> Result<(u64, u64), TokensUsedUp> {
        if epoch < self.epoch_limit {
            return Ok((slot.base, epoch + 1));
        }
        // In range, as it is the number of a token.
        let base = slot.base + epoch;
        if base > LAST_BASE { Err(TokensUsedUp) } else { Ok((base, 1)) }
    }

    /// Grants the key of `slot`, or says who has it. `moved`: the key's slot, if it was found to be
    /// another; the grant is in that one then.
    #[inline(always)]
    pub(super) fn acquire(
        &self,
        slot: &Slot<K, V, C>,
        request: LeaseRequest,
        moved: &mut Option<SlotRef<K, V, C>>,
    ) -> Result<Granted<V>, AcquireError> {
        let word = slot.word.peek();
        if word.is_clean() && word.epoch() < self.epoch_limit {
            let next = word.granted(self.deadline(request.ttl)?);
            if slot.word.swap_if(word, next) {
                let granted = Granted { word: next, sharing: None };
                if request.note.is_some() || self.events.are_heard() {
                    self.announce(slot, next, request.note);
                }
                return Ok(granted);
            }
        }
        self.acquire_slow(slot, request, moved)
    }

    #[cold]
    fn acquire_slow(
        &self,
        slot: &Slot<K, V, C>,
        mut request: LeaseRequest,
        moved: &mut Option<SlotRef<K, V, C>>,
    ) -> Result<Granted<V>, AcquireError> {
        loop {
            let slot = moved.as_deref().unwrap_or(slot);
            let word = slot.word.load();
            match word.state() {
                State::Gone => {
                    *moved = Some(self.follow(&slot.key)?);
                    continue;
                }
                State::Held | State::Pending => {
                    if let Some(same) = self.same_request(slot, word, &request) {
                        match same {
                            Some(sharing) => {
                                return Ok(Granted { word, sharing: Some(sharing) });
                            }
                            None => continue,
                        }
                    }
                    if !self.may_take_over(slot, word) {
                        return Err(self.held(slot, word));
                    }
                    // Reported, and so made so, before the next grant: an audit reads in order.
                    let _ = self.end_late(slot, word);
                    continue;
                }
                State::Free => {}
            }
            let deadline = self.deadline(request.ttl)?;
            let in_place =
                word.epoch() < self.epoch_limit && (word.is_clean() || Slot::<K, V, C>::PURE);
            if in_place {
                let next = word.granted(deadline);
                if slot.word.swap_if(word, next) {
                    self.announce(slot, next, request.note.take());
                    return Ok(Granted { word: next, sharing: None });
                }
                continue;
            }
            let (base, epoch) = self.next_elsewhere(slot, word.epoch())?;
            let next = Word::held(epoch, deadline);
            if let Moved::To(fresh, next) = self.move_to(slot, word, next, base, None, None) {
                self.announce(&fresh, next, request.note.take());
                *moved = Some(fresh);
                return Ok(Granted { word: next, sharing: None });
            }
        }
    }

    /// Moves the key, with its value, to a fresh slot that starts with `next`. `from`: the version
    /// that the caller knows and the value must still have. `session`: the one that `next` is held in.
    pub(super) fn move_to(
        &self,
        slot: &Slot<K, V, C>,
        seen: Word,
        next: Word,
        base: u64,
        from: Option<u64>,
        session: Option<&Arc<Deadline>>,
    ) -> Moved<K, V, C> {
        // Pinned to the end: two checkpoints bring the word back to what it was, and here the second
        // one is sent elsewhere. So if the word is `seen` when it goes, the value is the one that was
        // cloned.
        let Some(pinned) = slot.pin() else { return Moved::Not };
        if pinned.word() != seen {
            return Moved::Not;
        }
        let version = pinned.version();
        if from.is_some_and(|from| from != version) {
            return Moved::VersionChanged;
        }
        // Foreign code, with no lock held; the pin is undone if this panics.
        let value = pinned.value().clone();
        let fresh = Slot::new(slot.core.clone(), slot.key.clone(), base, next, value, version);
        let next = next.indexed_by(version);
        match self.index.replace(slot, seen, fresh, session) {
            Replaced::Yes(fresh) => Moved::To(fresh, next),
            Replaced::No(_) => Moved::Not,
        }
    }

    /// The value for one who asks again with the request id of the running grant. `None`: this is
    /// not that. `Some(None)`: the word moved meanwhile.
    fn same_request(
        &self,
        slot: &Slot<K, V, C>,
        word: Word,
        request: &LeaseRequest,
    ) -> Option<Option<(V, u64)>> {
        let id = request.note.as_ref()?.request_id?;
        if word.state() != State::Held || !slot.is_annexed() {
            return None;
        }
        let token = slot.token(word);
        let same = self.index.noted(&slot.key, token, |note| note.request_id == Some(id));
        if same != Some(true) || self.is_over_for_holder(slot, word) {
            return None;
        }
        Some(
            self.snapshot(slot)
                .filter(|(now, _, _)| now.is_term_of(word.epoch()))
                .map(|(_, value, version)| (value, version)),
        )
    }

    /// A copy of the current value, with the word that named it; `None` if the slot is gone.
    pub(super) fn snapshot(&self, slot: &Slot<K, V, C>) -> Option<(Word, V, u64)> {
        let pinned = slot.pin()?;
        // Foreign code, as in `move_to`.
        let value = pinned.value().clone();
        Some((pinned.word(), value, pinned.version()))
    }

    #[cold]
    pub(super) fn held(&self, slot: &Slot<K, V, C>, word: Word) -> AcquireError {
        let token = slot.token(word);
        let noted = slot.is_annexed();
        AcquireError::Held {
            retry_after: self.ticks.retry_after(self.deadline_of(slot, word)),
            token,
            owner: noted.then(|| self.index.owner(&slot.key, token)).flatten(),
        }
    }

    /// Ends a term from outside; false if the word was no longer `seen`.
    #[must_use]
    pub(super) fn end(
        &self,
        slot: &Slot<K, V, C>,
        seen: Word,
        how: Ended,
        reason: Option<Label>,
    ) -> bool {
        if !slot.word.swap_if(seen, seen.over(how)) {
            return false;
        }
        let kind = match how {
            Ended::Expired => LeaseEventKind::Expired,
            Ended::Revoked => LeaseEventKind::Revoked,
            Ended::SessionClosed => LeaseEventKind::SessionEnded,
            Ended::Released | Ended::ReleasedByToken => LeaseEventKind::Released,
        };
        self.settled(slot, slot.token(seen), kind, reason);
        true
    }

    /// Where the grant of `epoch` in `slot` stands, at a time read in this call. A grant that is
    /// reported lost has been made so.
    #[inline]
    pub(super) fn standing(
        &self,
        slot: &Slot<K, V, C>,
        epoch: u64,
    ) -> Result<Standing<K, V, C>, Lost> {
        let word = slot.word.load();
        if word.epoch() == epoch
            && word.state() == State::Held
            && word.tick() != TICK_SESSION
            && self.ticks.is_before(word.tick())
        {
            return Ok(Standing::Held(word));
        }
        self.standing_slow(slot, epoch)
    }

    #[cold]
    fn standing_slow(&self, slot: &Slot<K, V, C>, epoch: u64) -> Result<Standing<K, V, C>, Lost> {
        loop {
            let word = slot.word.load();
            if word.is_gone() {
                return self.standing_elsewhere(slot, epoch);
            }
            if word.epoch() != epoch {
                return Err(superseded(slot, word));
            }
            match word.state() {
                State::Held | State::Pending => {
                    if self.is_over_for_holder(slot, word) {
                        // Said by the word that this leaves behind. A failed exchange looks at word and
                        // clock again.
                        let _ = self.end_late(slot, word);
                    } else if word.state() == State::Pending {
                        return Err(Lost::HandedOff);
                    } else {
                        return Ok(Standing::Held(word));
                    }
                }
                State::Free | State::Gone => return Err(lost_by(word.ended())),
            }
        }
    }

    /// The slot is gone: the key moved, perhaps with this very grant, or was removed.
    fn standing_elsewhere(
        &self,
        slot: &Slot<K, V, C>,
        epoch: u64,
    ) -> Result<Standing<K, V, C>, Lost> {
        let token = FencingToken::of(slot.base, epoch);
        loop {
            let Ok(now) = self.follow(&slot.key) else { return Err(Lost::Removed) };
            let word = now.word.load();
            if word.is_gone() {
                continue;
            }
            let Some(epoch) = now.epoch_of(token) else {
                return Err(superseded(&now, word));
            };
            return match self.standing(&now, epoch)? {
                Standing::Held(_) => Ok(Standing::Moved(now)),
                moved @ Standing::Moved(_) => Ok(moved),
            };
        }
    }

    /// Renews the grant of `epoch` in `slot`, or wherever it is now.
    #[inline]
    pub(super) fn renew(
        &self,
        slot: &Slot<K, V, C>,
        epoch: u64,
        ttl: Duration,
    ) -> Result<(), RenewError> {
        let word = slot.word.load();
        if word.epoch() == epoch
            && word.state() == State::Held
            && word.tick() != TICK_SESSION
            && let Some(until) = self.ticks.renewal(word.tick(), ttl)
            && slot.word.swap_if(word, word.renewed(until))
        {
            if self.events.are_heard() {
                self.tell(slot, slot.token(word), LeaseEventKind::Renewed, None, None);
            }
            return Ok(());
        }
        self.renew_slow(slot, epoch, ttl)
    }

    #[cold]
    fn renew_slow(
        &self,
        slot: &Slot<K, V, C>,
        epoch: u64,
        ttl: Duration,
    ) -> Result<(), RenewError> {
        let mut moved: Option<SlotRef<K, V, C>> = None;
        let mut epoch = epoch;
        loop {
            let slot = moved.as_deref().unwrap_or(slot);
            let word = match self.standing(slot, epoch)? {
                Standing::Held(word) => word,
                Standing::Moved(now) => {
                    let token = FencingToken::of(slot.base, epoch);
                    epoch = now.epoch_of(token).unwrap_or(epoch);
                    moved = Some(now);
                    continue;
                }
            };
            if word.tick() == TICK_SESSION {
                return Err(RenewError::InSession);
            }
            let Some(until) = self.ticks.deadline(ttl) else {
                return Err(RenewError::TtlOutOfRange { max: self.ticks.longest() });
            };
            if slot.word.swap_if(word, word.renewed(until)) {
                if self.events.are_heard() {
                    self.tell(slot, slot.token(word), LeaseEventKind::Renewed, None, None);
                }
                return Ok(());
            }
        }
    }

    /// Releases the grant of `epoch` in `slot`, by its only guard (`Ended::Released`) or by token.
    #[inline]
    pub(super) fn release(
        &self,
        slot: &Slot<K, V, C>,
        epoch: u64,
        how: Ended,
        kind: LeaseEventKind,
    ) -> super::Release {
        let word = slot.word.peek();
        if word.is_term_of(epoch) && slot.word.swap_if(word, word.over(how)) {
            self.settled(slot, slot.token(word), kind, None);
            return super::Release::Released;
        }
        self.release_slow(slot, epoch, how, kind)
    }

    #[cold]
    fn release_slow(
        &self,
        slot: &Slot<K, V, C>,
        epoch: u64,
        how: Ended,
        kind: LeaseEventKind,
    ) -> super::Release {
        use super::Release;
        let token = FencingToken::of(slot.base, epoch);
        let mut moved: Option<SlotRef<K, V, C>> = None;
        loop {
            let here = moved.as_deref().unwrap_or(slot);
            let word = here.word.load();
            if word.is_gone() {
                match self.follow(&here.key) {
                    Ok(now) => moved = Some(now),
                    Err(_) => return Release::Lost(Lost::Removed),
                }
                continue;
            }
            let Some(epoch) = here.epoch_of(token).filter(|epoch| *epoch == word.epoch()) else {
                return Release::Lost(superseded(here, word));
            };
            if word.is_term_of(epoch) {
                // A guard that finds its term in another slot was joined by one that moved it.
                let how = if moved.is_some() { Ended::ReleasedByToken } else { how };
                if here.word.swap_if(word, word.over(how)) {
                    self.settled(here, token, kind, None);
                    return Release::Released;
                }
                continue;
            }
            return match word.ended() {
                Ended::Released | Ended::ReleasedByToken => Release::AlreadyReleased,
                other => Release::Lost(lost_by(other)),
            };
        }
    }

    /// A term ended: tells whoever wants to know, and serves who waits. Called with the word settled.
    #[inline]
    pub(super) fn settled(
        &self,
        slot: &Slot<K, V, C>,
        token: FencingToken,
        kind: LeaseEventKind,
        reason: Option<Label>,
    ) {
        if slot.is_annexed() || self.events.are_heard() {
            self.settled_slow(slot, token, kind, reason);
        }
    }

    #[cold]
    fn settled_slow(
        &self,
        slot: &Slot<K, V, C>,
        token: FencingToken,
        kind: LeaseEventKind,
        reason: Option<Label>,
    ) {
        // Foreign code (a key's `Hash` and `Eq`), while a guard may be unwinding: its panic costs a
        // label.
        let take = || {
            slot.is_annexed()
                .then(|| self.index.annexed(&slot.key, |_, annex| annex.take_ended(token)))
        };
        let left = contained(take).flatten().and_then(Result::ok).flatten();
        let Some(left) = left else {
            if self.events.are_heard() {
                self.tell(slot, token, kind, None, reason);
            }
            return;
        };
        if self.events.are_heard() {
            let owner = left.note.and_then(|note| note.owner);
            self.tell(slot, token, kind, owner, reason);
        }
        for (of, watcher) in left.watchers {
            let lost = if of == token { lost_to(kind) } else { Lost::Superseded { by: token } };
            // Foreign code: whoever watches may have left a callback.
            let _ = watcher.set(lost);
        }
        if left.awaited {
            // Foreign code (a key's `Hash` and `Eq`), and this may be a drop.
            let _ = contained(|| super::waiting::serve(&slot.core, &slot.key));
        }
    }

    /// The key of `slot` is there no more.
    pub(super) fn removed(&self, annex: Annex<K, V, C>, why: &AcquireError) {
        for (_, watcher) in annex.watchers {
            let _ = watcher.set(Lost::Removed);
        }
        for waiter in annex.queue {
            waiter.refuse(why.clone());
        }
    }

    #[cold]
    pub(super) fn announce(&self, slot: &Slot<K, V, C>, word: Word, note: Option<Box<Note>>) {
        if note.is_none() && !self.events.are_heard() {
            return;
        }
        let token = slot.token(word);
        let (owner, reason) = match &note {
            Some(note) => (note.owner.clone(), note.reason.clone()),
            None => (None, None),
        };
        if let Some(note) = note {
            self.note(slot, token, *note);
        }
        if self.events.are_heard() {
            self.tell(slot, token, LeaseEventKind::Acquired, owner, reason);
        }
    }

    /// Keeps the labels of a grant. A key whose clone or hash panics costs its labels, not the grant,
    /// which nobody would hold if the panic went on from here.
    pub(super) fn note(&self, slot: &Slot<K, V, C>, token: FencingToken, note: Note) {
        let _ = contained(|| self.index.note(&slot.key, token, note));
    }

    /// Reports what is settled.
    #[cold]
    pub(super) fn tell(
        &self,
        slot: &Slot<K, V, C>,
        token: FencingToken,
        kind: LeaseEventKind,
        owner: Option<Label>,
        reason: Option<Label>,
    ) {
        self.events.tell(|| {
            let owner = owner.or_else(|| {
                slot.is_annexed().then(|| self.index.owner(&slot.key, token)).flatten()
            });
            let at = self.ticks.clock().now();
            LeaseEvent { key: slot.key.clone(), token, kind, owner, reason, at }
        });
    }
}

/// No token is left for another grant on the key.
#[derive(Debug)]
pub(super) struct TokensUsedUp;

impl From<TokensUsedUp> for AcquireError {
    fn from(_: TokensUsedUp) -> Self {
        Self::TokensUsedUp
    }
}

impl From<TokensUsedUp> for RenewError {
    fn from(_: TokensUsedUp) -> Self {
        Self::TokensUsedUp
    }
}

/// How a grant was lost that is not the one of the key's `word`: to a later one, or, if none was made
/// on the key as it is now, it was removed and made again.
pub(super) fn superseded<K: LeaseKey, V: LeaseValue, C: Clock>(
    slot: &Slot<K, V, C>,
    word: Word,
) -> Lost {
    slot.latest(word).map_or(Lost::Removed, |by| Lost::Superseded { by })
}

/// Why a term that ended so is lost to its guard.
pub(super) fn lost_by(ended: Ended) -> Lost {
    match ended {
        Ended::Released | Ended::ReleasedByToken => Lost::Released,
        Ended::Expired => Lost::Expired,
        Ended::Revoked => Lost::Revoked,
        Ended::SessionClosed => Lost::SessionEnded,
    }
}

/// What an event that ended a term means to somebody who watched it.
fn lost_to(kind: LeaseEventKind) -> Lost {
    match kind {
        LeaseEventKind::Expired => Lost::Expired,
        LeaseEventKind::Revoked => Lost::Revoked,
        LeaseEventKind::SessionEnded => Lost::SessionEnded,
        LeaseEventKind::HandedOff => Lost::HandedOff,
        LeaseEventKind::Removed => Lost::Removed,
        LeaseEventKind::Committed
        | LeaseEventKind::Aborted
        | LeaseEventKind::Released
        | LeaseEventKind::Dropped { .. }
        // Not ends.
        | LeaseEventKind::Acquired
        | LeaseEventKind::Renewed
        | LeaseEventKind::Checkpointed
        | LeaseEventKind::CommitRefused
        | LeaseEventKind::Accepted => Lost::Released,
    }
}
