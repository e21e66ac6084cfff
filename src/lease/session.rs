//! Sessions: one deadline for many leases.
//!
//! A lease of a session has no deadline in its word, but a mark; the deadline is the session's word,
//! one for all. Renewing the session is one exchange of that word, however many leases it has. A
//! contender that finds the session's deadline past first *closes* the session, by an exchange that a
//! renewal would have made fail, and only then ends the lease: so no renewed lease is ever stolen, in
//! spite of there being two words.
//!
//! | session word | meaning | who may leave it |
//! |---|---|---|
//! | a tick | open, until then | renew (to a later one); anybody who reads a time past it, or `close` → CLOSED |
//! | CLOSED | over, final | nobody |

use core::fmt;
use core::time::Duration;

use super::core::{Core, Moved};
use super::error::{AcquireError, Lost, RenewError};
use super::guard::OwnedLease;
use super::slot::{Slot, SlotRef};
use super::term::Term;
use super::ticks::Ticks;
use super::word::{Ended, State, TICK_SESSION, Word};
use super::{FencingToken, LeaseHandle, LeaseKey, LeaseValue};
use crate::clock::{Clock, MonotonicClock};
use crate::lock::Mutex;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// No tick is as great.
const CLOSED: u64 = u64::MAX;

/// The word of a session. Nothing is published through it: what a lease did is published by the lease's
/// own word, whose end is an exchange. So all here is Relaxed: that an exchange acts on the newest word,
/// and that nobody sees a word and later an older one, is all that is asked of it.
#[derive(Debug)]
pub(super) struct Deadline(AtomicU64);

impl Deadline {
    /// The deadline; `None` if the session is closed.
    fn get(&self) -> Option<u64> {
        // ORDERING: Relaxed: an old word is compared in `swap_if`, or found past by the clock. A close
        // that has returned is no old word for anybody: it ended every lease by its own word, and a lease
        // that was not on its list yet asks here after it took the list's lock.
        Some(self.0.load(Ordering::Relaxed)).filter(|tick| *tick != CLOSED)
    }

    fn swap_if(&self, seen: u64, next: u64) -> bool {
        // ORDERING: Relaxed: it acts on the newest word; see the type.
        self.0.compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether the session is over; it is closed if its deadline has passed, for its holder (at the
    /// deadline) or for others (after it).
    pub(super) fn is_over<C: Clock>(&self, ticks: &Ticks<C>, for_holder: bool) -> bool {
        loop {
            let Some(until) = self.get() else { return true };
            let over = if for_holder { !ticks.is_before(until) } else { ticks.is_after(until) };
            if !over {
                return false;
            }
            // A failed exchange looks at word and clock again.
            if self.swap_if(until, CLOSED) {
                return true;
            }
        }
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Core<K, V, C> {
    /// The deadline of a running term; 0, long past, if its session is closed.
    pub(super) fn deadline_of(&self, slot: &Slot<K, V, C>, word: Word) -> u64 {
        if word.tick() != TICK_SESSION {
            return word.tick();
        }
        // Where there is no session any more, the word has moved on: whatever is done with the answer
        // ends in an exchange that fails.
        let session = self.index.session(&slot.key, slot.token(word));
        session.and_then(|session| session.get()).unwrap_or(0)
    }

    /// Whether its holder has to find a running term over.
    #[inline]
    pub(super) fn is_over_for_holder(&self, slot: &Slot<K, V, C>, word: Word) -> bool {
        if word.tick() != TICK_SESSION {
            return !self.ticks.is_before(word.tick());
        }
        self.session_is_over(slot, word, true)
    }

    /// Whether a running term is so long over that anybody may end it.
    pub(super) fn may_take_over(&self, slot: &Slot<K, V, C>, word: Word) -> bool {
        if word.tick() != TICK_SESSION {
            return self.ticks.is_after(word.tick());
        }
        self.session_is_over(slot, word, false)
    }

    #[cold]
    fn session_is_over(&self, slot: &Slot<K, V, C>, word: Word, for_holder: bool) -> bool {
        match self.index.session(&slot.key, slot.token(word)) {
            Some(session) => session.is_over(&self.ticks, for_holder),
            // The word has moved on: the caller's exchange fails, and it looks again.
            None => true,
        }
    }

    /// Ends a term that was found over; false if the word was no longer `seen`.
    #[must_use]
    pub(super) fn end_late(&self, slot: &Slot<K, V, C>, seen: Word) -> bool {
        let how = if seen.tick() == TICK_SESSION { Ended::SessionClosed } else { Ended::Expired };
        self.end(slot, seen, how, None)
    }
}

/// One deadline for many leases: renewing it renews them all, by one exchange of one word, and when it
/// is over they are. Made by [`LeaseTable::session`](super::LeaseTable::session).
///
/// ```
/// use std::time::Duration;
/// use tenure::lease::LeaseTable;
///
/// let table: LeaseTable<u32, u64> = LeaseTable::new();
/// let session = table.session(Duration::from_secs(10))?;
/// let leases: Result<Vec<_>, _> = (0..100).map(|key| session.try_acquire(&table.handle(&key)?)).collect();
/// let leases = leases?;
/// session.renew(Duration::from_secs(20))?;
/// assert!(leases.iter().all(|lease| lease.is_valid()));
/// session.close();
/// assert!(leases.iter().all(|lease| !lease.is_valid()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cancellation and drop
///
/// Dropping it closes it: every lease is ended and its key free. A session that is forgotten ends at
/// its deadline.
#[must_use = "dropping a session ends its leases"]
pub struct Session<K: LeaseKey, V: LeaseValue, C: Clock = MonotonicClock> {
    core: Arc<Core<K, V, C>>,
    deadline: Arc<Deadline>,
    leases: Mutex<Vec<Member<K, V, C>>>,
}

/// A lease of a session: where it was granted, and its token.
type Member<K, V, C> = (SlotRef<K, V, C>, FencingToken);

impl<K: LeaseKey, V: LeaseValue, C: Clock> Session<K, V, C> {
    pub(super) fn new(core: Arc<Core<K, V, C>>, until: u64) -> Self {
        Self {
            core,
            deadline: Arc::new(Deadline(AtomicU64::new(until))),
            leases: Mutex::new(Vec::new()),
        }
    }

    /// Takes the key of `handle` for as long as the session lasts. The guard's own
    /// [`renew`](super::OwnedLease::renew) is refused; everything else is as with any lease, but that
    /// each check looks for the session in the index.
    ///
    /// # Errors
    ///
    /// As [`LeaseHandle::try_acquire`], and [`AcquireError::SessionEnded`].
    pub fn try_acquire(
        &self,
        handle: &LeaseHandle<K, V, C>,
    ) -> Result<OwnedLease<K, V, C>, AcquireError> {
        let core = &self.core;
        loop {
            let slot = core.follow(handle.key())?;
            let word = slot.word.load();
            match word.state() {
                State::Gone => continue,
                State::Held | State::Pending => {
                    if !core.may_take_over(&slot, word) {
                        return Err(core.held(&slot, word));
                    }
                    let _ = core.end_late(&slot, word);
                    continue;
                }
                State::Free => {}
            }
            if self.deadline.is_over(&core.ticks, true) {
                return Err(AcquireError::SessionEnded);
            }
            let here =
                word.epoch() < core.epoch_limit && (word.is_clean() || Slot::<K, V, C>::PURE);
            let granted = if here {
                self.grant_in_place(&slot, word).map(|next| (slot, next))
            } else {
                let (base, epoch) = core.next_elsewhere(&slot, word.epoch())?;
                let next = Word::held(epoch, TICK_SESSION);
                match core.move_to(&slot, word, next, base, None, Some(&self.deadline)) {
                    Moved::To(fresh, next) => Some((fresh, next)),
                    Moved::Not | Moved::VersionChanged => None,
                }
            };
            let Some((slot, next)) = granted else { continue };
            core.announce(&slot, next, None);
            let token = slot.token(next);
            let lease = OwnedLease::new(slot.clone(), Term::new(&slot, next, None));
            self.remember(slot, token);
            if self.deadline.get().is_none() {
                // Closed meanwhile, perhaps before this lease was on its list: nobody else may have
                // ended it yet. The guard's own look does.
                let _ = lease.is_valid();
                return Err(AcquireError::SessionEnded);
            }
            return Ok(lease);
        }
    }

    /// Grants the key where it is, if its word is still `seen`. Gives the word of the grant.
    fn grant_in_place(&self, slot: &SlotRef<K, V, C>, seen: Word) -> Option<Word> {
        let next = seen.granted(TICK_SESSION);
        let granted = self.core.index.annexed(&slot.key, |now, annex| {
            if !now.is(slot) {
                return false;
            }
            // Before the word names it: who reads the mark finds the session.
            let session = Some((slot.token(next), self.deadline.clone()));
            let before = core::mem::replace(&mut annex.session, session);
            let granted = slot.word.swap_if(seen, next);
            if !granted {
                // Another session may have been granted the key since we looked.
                annex.session = before;
            }
            granted
        });
        matches!(granted, Ok(Some(true))).then_some(next)
    }

    fn remember(&self, slot: SlotRef<K, V, C>, token: FencingToken) {
        let mut gone = Vec::new();
        let mut leases = self.leases.lock();
        if leases.len() == leases.capacity() {
            // Before it grows: forget those that are over.
            let (kept, over) = core::mem::take(&mut *leases)
                .into_iter()
                .partition(|(slot, token)| runs_there(slot, *token));
            *leases = kept;
            gone = over;
            let room = leases.len().max(16);
            leases.reserve(room);
        }
        leases.push((slot, token));
        drop(leases);
        drop(gone);
    }

    /// Moves the deadline to `ttl` from now, if that is later than it was: for every lease at once.
    ///
    /// # Errors
    ///
    /// [`RenewError::Lost`] if the session is over, [`RenewError::TtlOutOfRange`].
    pub fn renew(&self, ttl: Duration) -> Result<(), RenewError> {
        loop {
            let seen = self.deadline.get();
            let Some(until) = seen.filter(|_| !self.deadline.is_over(&self.core.ticks, true))
            else {
                return Err(Lost::SessionEnded.into());
            };
            let Some(next) = self.core.ticks.deadline(ttl) else {
                return Err(RenewError::TtlOutOfRange { max: self.core.ticks.longest() });
            };
            if next <= until || self.deadline.swap_if(until, next) {
                return Ok(());
            }
        }
    }

    /// Whether the session goes on, at a time read in this call.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.deadline.is_over(&self.core.ticks, true)
    }

    /// How long it lasts; zero if it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline.get().map_or(Duration::ZERO, |until| self.core.ticks.until(until))
    }

    /// Ends every lease. Nothing that was under way with one of them takes effect after this returns.
    pub fn close(self) {
        drop(self);
    }

    fn end_all(&self) {
        // ORDERING: Relaxed: the list's lock, next, passes it on to leases that come later; see `get`.
        self.deadline.0.store(CLOSED, Ordering::Relaxed);
        let leases = core::mem::take(&mut *self.leases.lock());
        for (slot, token) in leases {
            let mut slot = slot;
            loop {
                let word = slot.word.load();
                if word.is_gone() {
                    match self.core.follow(&slot.key) {
                        Ok(now) => slot = now,
                        Err(_) => break,
                    }
                    continue;
                }
                let ours = word.state() == State::Held
                    && word.tick() == TICK_SESSION
                    && slot.token(word) == token;
                if !ours || self.core.end_late(&slot, word) {
                    break;
                }
            }
        }
    }
}

/// Whether `token` may still run, as far as this slot tells.
fn runs_there<K: LeaseKey, V: LeaseValue, C: Clock>(
    slot: &SlotRef<K, V, C>,
    token: FencingToken,
) -> bool {
    let word = slot.word.load();
    word.is_gone() || (word.state() == State::Held && slot.token(word) == token)
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Drop for Session<K, V, C> {
    fn drop(&mut self) {
        self.end_all();
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> fmt::Debug for Session<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("until", &self.deadline.get())
            .field("leases", &self.leases.lock().len())
            .finish_non_exhaustive()
    }
}
