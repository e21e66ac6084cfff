//! The table: keys, and what concerns a key from outside.

use core::fmt;
use core::time::Duration;

use crossbeam_channel::Receiver;

use super::core::{Core, Standing, superseded};
use super::error::{AcquireError, InsertError, Release, RemoveError, ResumeError, Revocation};
use super::event::{Events, LeaseEvent, LeaseEventKind, Sink};
use super::index::{Index, Unmade};
use super::keeper::Keeper;
use super::request::LeaseRequest;
use super::slot::{Slot, SlotRef};
use super::term::Term;
use super::ticks::Ticks;
use super::waiting::{acquire_in_turn, outcome};
use super::word::{EPOCH_MAX, Ended, State, Word};
use super::{
    FencingToken, Heartbeat, Label, LeaseHandle, LeaseKey, LeaseValue, OwnedLease, Session,
};
use crate::clock::{Clock, MonotonicClock};
use crate::promise::{Eventual, failed};
use crate::sync::Arc;

/// Keys that one owner at a time holds, each for a limited time, each with a value that only a
/// current owner can change.
///
/// See the [room's page](super) for what that promises. Dropping the table closes it.
pub struct LeaseTable<K: LeaseKey, V: LeaseValue, C: Clock = MonotonicClock> {
    core: Arc<Core<K, V, C>>,
}

/// Settings of a [`LeaseTable`].
///
/// | setting | default |
/// |---|---|
/// | `clock` | [`MonotonicClock`] |
/// | `shards` | 16 a processor, rounded up to a power of two |
/// | `floor` | none: the first token of a key is 1 |
/// | `audit` | none |
#[must_use]
pub struct LeaseTableBuilder<K, C = MonotonicClock> {
    clock: C,
    shards: Option<usize>,
    floor: u64,
    sink: Option<Sink<K>>,
    epoch_limit: u64,
}

impl<K> Default for LeaseTableBuilder<K> {
    fn default() -> Self {
        Self {
            clock: MonotonicClock::new(),
            shards: None,
            floor: 0,
            sink: None,
            epoch_limit: EPOCH_MAX,
        }
    }
}

impl<K, C: Clock> LeaseTableBuilder<K, C> {
    /// The clock that deadlines are measured by. Defaults to [`MonotonicClock`].
    pub fn clock<D: Clock>(self, clock: D) -> LeaseTableBuilder<K, D> {
        let Self { shards, floor, sink, epoch_limit, .. } = self;
        LeaseTableBuilder { clock, shards, floor, sink, epoch_limit }
    }

    /// How many locks the index is divided by: 1 to 65,536, rounded up to a power of two; what is
    /// outside the range is taken as its nearer end. Defaults to 16 a processor.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards.clamp(1, 1 << 16));
        self
    }

    /// Every token of this table is greater than `token`: for a table that goes on where an earlier
    /// one, in another run of the program, stopped. A key for which that leaves no tokens, within eight
    /// million of 2⁶⁴, is not made: [`AcquireError::TokensUsedUp`]. Defaults to none.
    pub fn floor(mut self, token: FencingToken) -> Self {
        self.floor = token.number();
        self
    }

    /// Runs `sink` for every event, on the thread that made it, after the fact and with no lock held.
    /// A sink that panics is ignored and counted; one that blocks holds up its own caller and nobody
    /// else. Defaults to none.
    pub fn audit(mut self, sink: impl Fn(&LeaseEvent<K>) + Send + Sync + 'static) -> Self {
        self.sink = Some(Box::new(sink));
        self
    }

    /// Fewer epochs a slot, so that tests meet their end.
    #[doc(hidden)]
    pub fn epoch_limit(mut self, limit: u64) -> Self {
        self.epoch_limit = limit.clamp(1, EPOCH_MAX);
        self
    }

    /// The table.
    #[must_use]
    pub fn build<V: LeaseValue>(self) -> LeaseTable<K, V, C>
    where
        K: LeaseKey,
    {
        let shards = self.shards.unwrap_or_else(default_shards);
        LeaseTable {
            core: Arc::new(Core {
                ticks: Ticks::new(self.clock),
                index: Index::new(shards, self.floor),
                events: Events::new(self.sink),
                keeper: Arc::new(Keeper::new()),
                epoch_limit: self.epoch_limit,
            }),
        }
    }
}

fn default_shards() -> usize {
    if cfg!(tenure_loom) {
        return 1;
    }
    let processors = std::thread::available_parallelism().map_or(4, core::num::NonZero::get);
    processors.saturating_mul(16).min(1 << 16)
}

impl<K, C: fmt::Debug> fmt::Debug for LeaseTableBuilder<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseTableBuilder")
            .field("clock", &self.clock)
            .field("shards", &self.shards)
            .field("floor", &self.floor)
            .field("audit", &self.sink.is_some())
            .finish_non_exhaustive()
    }
}

/// Whether a key is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// By nobody.
    Free,
    /// By the grant with the token beside.
    Held,
    /// By nobody yet: the grant with the token beside was handed off and is not accepted.
    HandedOff,
}

/// What a look at a key saw, all at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peek<V> {
    /// The published value.
    pub value: V,
    /// How often a value was published.
    pub version: u64,
    /// Whether the key is held.
    pub state: LeaseState,
    /// The token of the latest grant; `None` before the first.
    pub token: Option<FencingToken>,
    /// How long the running lease lasts; zero if there is none.
    pub remaining: Duration,
    /// The label of its owner, if it gave one.
    pub owner: Option<Label>,
}

/// A line of [`LeaseTable::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseInfo<K> {
    /// The key.
    pub key: K,
    /// Whether it is held.
    pub state: LeaseState,
    /// The token of the latest grant; `None` before the first.
    pub token: Option<FencingToken>,
    /// How long the running lease lasts; zero if there is none.
    pub remaining: Duration,
    /// The label of its owner, if it gave one.
    pub owner: Option<Label>,
}

impl<K: LeaseKey, V: LeaseValue> LeaseTable<K, V> {
    /// An empty table on the [`MonotonicClock`].
    #[must_use]
    pub fn new() -> Self {
        LeaseTableBuilder::default().build()
    }

    /// Settings to start from.
    pub fn builder() -> LeaseTableBuilder<K> {
        LeaseTableBuilder::default()
    }
}

impl<K: LeaseKey, V: LeaseValue> Default for LeaseTable<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> LeaseTable<K, V, C> {
    /// An empty table on `clock`.
    #[must_use]
    pub fn with_clock(clock: C) -> Self {
        LeaseTableBuilder::default().clock(clock).build()
    }

    /// A handle of `key`, which is made with a default value if it is not there.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Closed`].
    pub fn handle(&self, key: &K) -> Result<LeaseHandle<K, V, C>, AcquireError>
    where
        V: Default,
    {
        self.slot_or(key, V::default).map(LeaseHandle::new)
    }

    /// A handle of `key`, which is made with the value of `make` if it is not there.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Closed`].
    pub fn handle_or(
        &self,
        key: &K,
        make: impl FnOnce() -> V,
    ) -> Result<LeaseHandle<K, V, C>, AcquireError> {
        self.slot_or(key, make).map(LeaseHandle::new)
    }

    fn slot_or(&self, key: &K, make: impl FnOnce() -> V) -> Result<SlotRef<K, V, C>, AcquireError> {
        match self.core.follow(key) {
            Err(AcquireError::NoSuchKey) => {}
            found => return found,
        }
        // Foreign code, before any lock.
        let (value, own) = (make(), key.clone());
        let mut left = Some((value, own));
        let slot = self.core.index.find_or_insert(key, |base| {
            let Some((value, key)) = left.take() else { unreachable!("called once") };
            Slot::new(self.core.clone(), key, base, Word::free(0), value, 0)
        });
        slot.map_err(|why| match why {
            Unmade::Closed => AcquireError::Closed,
            Unmade::TokensUsedUp => AcquireError::TokensUsedUp,
        })
    }

    /// A handle of `key`, if it is there.
    #[must_use]
    pub fn find(&self, key: &K) -> Option<LeaseHandle<K, V, C>> {
        self.core.follow(key).ok().map(LeaseHandle::new)
    }

    /// Makes `key` with `value`.
    ///
    /// # Errors
    ///
    /// Key and value come back if the key is there already or the table is closed.
    pub fn insert(&self, key: K, value: V) -> Result<LeaseHandle<K, V, C>, InsertError<K, V>> {
        let own = key.clone();
        let mut left = Some((value, own));
        let made = self.core.index.find_or_insert(&key, |base| {
            let Some((value, key)) = left.take() else { unreachable!("called once") };
            Slot::new(self.core.clone(), key, base, Word::free(0), value, 0)
        });
        match (made, left) {
            (Ok(slot), None) => Ok(LeaseHandle::new(slot)),
            (Ok(_), Some((value, own))) => Err(InsertError::Exists(own, value)),
            (Err(Unmade::Closed), Some((value, own))) => Err(InsertError::Closed(own, value)),
            (Err(Unmade::TokensUsedUp), Some((value, own))) => {
                Err(InsertError::TokensUsedUp(own, value))
            }
            (Err(_), None) => unreachable!("no slot was made"),
        }
    }

    /// Takes `key` through the index, making it if it is not there. Hot callers keep a
    /// [`handle`](Self::handle).
    ///
    /// # Errors
    ///
    /// As [`LeaseHandle::try_acquire`].
    pub fn try_acquire(
        &self,
        key: &K,
        request: impl Into<LeaseRequest>,
    ) -> Result<OwnedLease<K, V, C>, AcquireError>
    where
        V: Default,
    {
        let request = request.into();
        let slot = self.slot_or(key, V::default)?;
        let mut moved = None;
        let granted = self.core.acquire(&slot, request, &mut moved)?;
        let slot = moved.unwrap_or(slot);
        let term = Term::of(&slot, granted);
        Ok(OwnedLease::new(slot, term))
    }

    /// Takes `key` as [`LeaseHandle::acquire`] does, through the index.
    ///
    /// # Errors
    ///
    /// As [`LeaseHandle::acquire`].
    ///
    /// # Blocking
    ///
    /// As [`LeaseHandle::acquire`].
    pub fn acquire(
        &self,
        key: &K,
        request: impl Into<LeaseRequest>,
    ) -> Result<OwnedLease<K, V, C>, AcquireError>
    where
        V: Default,
    {
        let slot = self.slot_or(key, V::default)?;
        outcome(acquire_in_turn(&slot, request.into(), None).get())
    }

    /// Takes `key` as [`LeaseHandle::acquire_async`] does, through the index.
    pub fn acquire_async(
        &self,
        key: &K,
        request: impl Into<LeaseRequest>,
    ) -> Eventual<OwnedLease<K, V, C>, AcquireError>
    where
        V: Default,
    {
        match self.slot_or(key, V::default) {
            Ok(slot) => acquire_in_turn(&slot, request.into(), None),
            Err(why) => failed(why),
        }
    }

    /// A session: one deadline, `ttl` from now, for as many leases as are taken in it.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TtlOutOfRange`].
    pub fn session(&self, ttl: Duration) -> Result<Session<K, V, C>, AcquireError> {
        Ok(Session::new(self.core.clone(), self.core.deadline(ttl)?))
    }

    /// A heartbeat: a thread of its own, started at first use, that renews leases of this table while
    /// their holders get on.
    #[must_use]
    pub fn heartbeat(&self) -> Heartbeat<K, V, C> {
        Heartbeat::new(self.core.clone())
    }

    /// The published value of `key` and who holds it; `None` if it is not there. Never waits for an
    /// owner.
    #[must_use]
    pub fn peek(&self, key: &K) -> Option<Peek<V>> {
        loop {
            let slot = self.core.follow(key).ok()?;
            let Some((word, value, version)) = self.core.snapshot(&slot) else { continue };
            // Past its deadline: free, and made so before it is reported.
            if self.over(&slot, word) {
                continue;
            }
            let (state, token, remaining, owner) = self.describe(&slot, word);
            return Some(Peek { value, version, state, token, remaining, owner });
        }
    }

    /// Every key, each as it was at some moment during the call; in no order.
    #[must_use]
    pub fn list(&self) -> Vec<LeaseInfo<K>> {
        let mut all = Vec::new();
        for mut slot in self.core.index.slots() {
            loop {
                let word = slot.word.load();
                if word.is_gone() {
                    match self.core.follow(&slot.key) {
                        Ok(now) => slot = now,
                        Err(_) => break,
                    }
                    continue;
                }
                if self.over(&slot, word) {
                    continue;
                }
                let (state, token, remaining, owner) = self.describe(&slot, word);
                all.push(LeaseInfo { key: slot.key.clone(), state, token, remaining, owner });
                break;
            }
        }
        all
    }

    /// Whether the term of `word` is over; if so, it was made so, or the word has moved.
    fn over(&self, slot: &Slot<K, V, C>, word: Word) -> bool {
        if !matches!(word.state(), State::Held | State::Pending)
            || !self.core.may_take_over(slot, word)
        {
            return false;
        }
        let _ = self.core.end_late(slot, word);
        true
    }

    fn describe(
        &self,
        slot: &Slot<K, V, C>,
        word: Word,
    ) -> (LeaseState, Option<FencingToken>, Duration, Option<Label>) {
        let token = slot.latest(word);
        let state = match word.state() {
            State::Held => LeaseState::Held,
            State::Pending => LeaseState::HandedOff,
            State::Free | State::Gone => return (LeaseState::Free, token, Duration::ZERO, None),
        };
        let owner = token.and_then(|token| self.core.index.owner(&slot.key, token));
        (state, token, self.core.ticks.until(self.core.deadline_of(slot, word)), owner)
    }

    /// Ends the grant with the token that the caller *observed*, and no other. The owner's guard says
    /// [`Lost::Revoked`](super::Lost::Revoked) from now on.
    pub fn revoke(&self, key: &K, observed: FencingToken, reason: impl Into<Label>) -> Revocation {
        let reason = reason.into();
        loop {
            let Ok(slot) = self.core.follow(key) else { return Revocation::NoSuchKey };
            let word = slot.word.load();
            if word.is_gone() {
                continue;
            }
            let running = matches!(word.state(), State::Held | State::Pending);
            if !running || slot.token(word) != observed {
                return Revocation::Stale { current: running.then(|| slot.token(word)) };
            }
            if self.core.end(&slot, word, Ended::Revoked, Some(reason.clone())) {
                return Revocation::Revoked;
            }
        }
    }

    /// Releases `key` by a token, such as [`Lease::into_token`](super::Lease::into_token) gave.
    /// Idempotent.
    pub fn release(&self, key: &K, token: FencingToken) -> Release {
        use super::Lost;
        loop {
            let Ok(slot) = self.core.follow(key) else { return Release::Lost(Lost::Removed) };
            let word = slot.word.load();
            if word.is_gone() {
                continue;
            }
            let Some(epoch) = slot.epoch_of(token).filter(|epoch| *epoch == word.epoch()) else {
                return Release::Lost(superseded(&slot, word));
            };
            return self.core.release(
                &slot,
                epoch,
                Ended::ReleasedByToken,
                LeaseEventKind::Released,
            );
        }
    }

    /// A guard for a lease that is running without one, or whose guard was lost. It has a copy of the
    /// value; if another guard with the same token publishes first, this one's commit is refused with
    /// [`VersionChanged`](super::Refusal::VersionChanged).
    ///
    /// # Errors
    ///
    /// [`ResumeError`]: the token is not current.
    pub fn resume(&self, key: &K, token: FencingToken) -> Result<OwnedLease<K, V, C>, ResumeError> {
        loop {
            let slot = self.core.follow(key).map_err(|_| ResumeError::NoSuchKey)?;
            let word = slot.word.load();
            if word.is_gone() {
                continue;
            }
            let Some(epoch) = slot.epoch_of(token) else {
                return Err(superseded(&slot, word).into());
            };
            if epoch > word.epoch() {
                return Err(ResumeError::NoSuchGrant);
            }
            match self.core.standing(&slot, epoch)? {
                Standing::Moved(_) => continue,
                Standing::Held(_) => {}
            }
            let Some((now, value, version)) = self.core.snapshot(&slot) else { continue };
            if now.epoch() == epoch && now.state() == State::Held {
                return Ok(OwnedLease::new(slot, Term::shared(now, value, version)));
            }
        }
    }

    /// Removes `key`, with its value, if nobody holds it. If it is made again its tokens go on above
    /// those it had. Gives the token of its latest grant.
    ///
    /// # Errors
    ///
    /// [`RemoveError::Held`] and [`RemoveError::NoSuchKey`].
    pub fn remove(&self, key: &K) -> Result<Option<FencingToken>, RemoveError> {
        loop {
            let slot = self.core.follow(key).map_err(|_| RemoveError::NoSuchKey)?;
            let word = slot.word.load();
            match word.state() {
                State::Gone => continue,
                State::Held | State::Pending => {
                    if self.over(&slot, word) {
                        continue;
                    }
                    return Err(RemoveError::Held {
                        retry_after: self
                            .core
                            .ticks
                            .retry_after(self.core.deadline_of(&slot, word)),
                        token: slot.token(word),
                    });
                }
                State::Free => {}
            }
            let token = slot.latest(word);
            let floor = token.map_or(slot.base, FencingToken::number);
            if let Some(annex) = self.core.index.remove(&slot, word, floor) {
                if let Some(annex) = annex {
                    self.core.removed(annex, &AcquireError::NoSuchKey);
                }
                if let (Some(token), true) = (token, self.core.events.are_heard()) {
                    self.core.tell(&slot, token, LeaseEventKind::Removed, None, None);
                }
                return Ok(token);
            }
        }
    }

    /// Follows what happens from now on. The channel holds `capacity` events; while it is full,
    /// events are missed, and [counted](Self::missed_events). Zero hears only while it waits.
    #[must_use]
    pub fn subscribe(&self, capacity: usize) -> Receiver<LeaseEvent<K>> {
        self.core.events.subscribe(capacity)
    }

    /// Events that a full subscriber missed or a panicking sink failed on.
    #[must_use]
    pub fn missed_events(&self) -> u64 {
        self.core.events.missed()
    }

    /// The longest lease that can be asked for now.
    #[must_use]
    pub fn longest_ttl(&self) -> Duration {
        self.core.ticks.longest()
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.index.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &C {
        self.core.ticks.clock()
    }

    /// Closes the table: every key is removed, every lease lost, and nothing is granted any more.
    pub fn close(&self) {
        for annex in self.core.index.close() {
            self.core.removed(annex, &AcquireError::Closed);
        }
        self.core.keeper.stop();
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Drop for LeaseTable<K, V, C> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> fmt::Debug for LeaseTable<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseTable")
            .field("keys", &self.len())
            .field("clock", self.core.ticks.clock())
            .finish_non_exhaustive()
    }
}
