//! The index: from a key to its slot, under a lock a shard.
//!
//! A slot leaves the index in one way: with the shard locked, its word goes to `Gone` and the entry
//! is replaced (the key moves) or unlinked (it is removed). So whoever reads `Gone` and then asks
//! the index finds what came after, whole: there is no state in between for anybody to help with.
//!
//! The shard also keeps what is too rare to have room in a slot, the key's [annex](super::annex), and
//! the floor below which no key made anew may start.
//!
//! `Hash` and `Eq` of keys are the only foreign code that runs with a shard locked, as in every
//! concurrent map. They must not call the table. Keys and values are cloned before, dropped after.

use core::hash::BuildHasher;

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;

use super::annex::{Annex, Annexes};
use super::request::Note;
use super::session::Deadline;
use super::slot::{Slot, SlotRef};
use super::token::LAST_BASE;
use super::word::Word;
use super::{FencingToken, Label, LeaseKey, LeaseValue};
use crate::clock::Clock;
use crate::lock::Mutex;
use crate::sync::Arc;

#[cfg(not(any(tenure_loom, tenure_shuttle)))]
type Hasher = std::collections::hash_map::RandomState;
// Models must run the same way each time.
#[cfg(any(tenure_loom, tenure_shuttle))]
type Hasher = core::hash::BuildHasherDefault<std::collections::hash_map::DefaultHasher>;

/// The table was closed.
#[derive(Debug)]
pub(super) struct Closed;

/// Why a key was not made.
#[derive(Debug)]
pub(super) enum Unmade {
    Closed,
    TokensUsedUp,
}

/// What a look into the index found.
type Found<T> = Result<T, Closed>;

pub(super) struct Index<K: LeaseKey, V: LeaseValue, C: Clock> {
    hasher: Hasher,
    shards: Box<[Locked<K, V, C>]>,
}

type Locked<K, V, C> = CachePadded<Mutex<Shard<K, V, C>>>;

/// A part of the index.
pub(super) struct Shard<K: LeaseKey, V: LeaseValue, C: Clock> {
    slots: HashTable<SlotRef<K, V, C>>,
    annexes: Annexes<K, V, C>,
    /// No key made in this shard starts with a smaller token than the next one.
    floor: u64,
    closed: bool,
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Shard<K, V, C> {
    /// Makes room for one more slot. Hashes every key, which is foreign code and may panic: so into a
    /// table beside, before anything is changed.
    fn make_room(&mut self, hasher: &Hasher) {
        if self.slots.len() < self.slots.capacity() {
            return;
        }
        let mut larger = HashTable::with_capacity(self.slots.len().div_ceil(2) * 3 + 1);
        for slot in &self.slots {
            larger.insert_unique(hasher.hash_one(&slot.key), slot.clone(), |_| {
                unreachable!("made with room for all")
            });
        }
        // The old owners of the slots; each has another now.
        self.slots = larger;
    }
}

/// What replacing a slot came to.
pub(super) enum Replaced<K: LeaseKey, V: LeaseValue, C: Clock> {
    /// The word was as seen; the fresh slot is the key's now.
    Yes(SlotRef<K, V, C>),
    /// It was not; the fresh slot comes back, seen by nobody.
    No(Slot<K, V, C>),
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Index<K, V, C> {
    pub(super) fn new(shards: usize, floor: u64) -> Self {
        let shard = || {
            CachePadded::new(Mutex::new(Shard {
                slots: HashTable::new(),
                annexes: Annexes::default(),
                floor,
                closed: false,
            }))
        };
        Self {
            hasher: Hasher::default(),
            shards: (0..shards.next_power_of_two()).map(|_| shard()).collect(),
        }
    }

    #[inline]
    fn place(&self, key: &K) -> (u64, &Mutex<Shard<K, V, C>>) {
        let hash = self.hasher.hash_one(key);
        // The table takes its place from the low bits and its tag from the top seven.
        let at = (hash >> 32) as usize & (self.shards.len() - 1);
        (hash, &self.shards[at])
    }

    #[inline]
    pub(super) fn find(&self, key: &K) -> Found<Option<SlotRef<K, V, C>>> {
        let (hash, shard) = self.place(key);
        let shard = shard.lock();
        if shard.closed {
            return Err(Closed);
        }
        Ok(shard.slots.find(hash, |slot| slot.key == *key).cloned())
    }

    /// The key's slot, or the one that `make` makes from the base it is given. `make` runs with the
    /// shard locked and moves what was made outside.
    pub(super) fn find_or_insert(
        &self,
        key: &K,
        make: impl FnOnce(u64) -> Slot<K, V, C>,
    ) -> Result<SlotRef<K, V, C>, Unmade> {
        let (hash, shard) = self.place(key);
        let mut shard = shard.lock();
        if shard.closed {
            return Err(Unmade::Closed);
        }
        if let Some(slot) = shard.slots.find(hash, |slot| slot.key == *key) {
            return Ok(slot.clone());
        }
        if shard.floor > LAST_BASE {
            return Err(Unmade::TokensUsedUp);
        }
        shard.make_room(&self.hasher);
        let slot = SlotRef::new(make(shard.floor));
        shard.slots.insert_unique(hash, slot.clone(), |_| unreachable!("room was made"));
        Ok(slot)
    }

    /// Moves the key from `old`, if its word is still `seen`, to `fresh`, whose deadline is that of
    /// `session`, if it is in one.
    pub(super) fn replace(
        &self,
        old: &Slot<K, V, C>,
        seen: Word,
        fresh: Slot<K, V, C>,
        session: Option<&Arc<Deadline>>,
    ) -> Replaced<K, V, C> {
        let (hash, shard) = self.place(&old.key);
        // Cloned before, and dropped after, the lock.
        let mut own = session.is_some().then(|| old.key.clone());
        let mut locked = shard.lock();
        let shard = &mut *locked;
        // Foreign code (`Eq`) first: once the word is Gone, nothing here can panic.
        let annex = match session {
            Some(_) => shard.annexes.place_or(hash, &old.key, &mut own),
            None => shard.annexes.place(hash, &old.key),
        };
        let place = shard.slots.find_mut(hash, |slot| slot.is(old));
        // Not in the index, so its word is Gone; or not as it was seen.
        let Some(place) = place.filter(|_| old.word.swap_if(seen, Word::GONE)) else {
            // An annex that was made for the session stays, empty, to the next use of it.
            drop(locked);
            return Replaced::No(fresh);
        };
        if let Some(annex) = annex.and_then(|at| shard.annexes.at(at)) {
            fresh.set_annexed(true);
            if let Some(session) = session {
                annex.session = Some((fresh.token(fresh.word.load()), session.clone()));
            }
        }
        let fresh = SlotRef::new(fresh);
        let left = core::mem::replace(place, fresh.clone());
        drop(locked);
        // Outside the lock: this can be its last reference, and then drops values.
        drop(left);
        Replaced::Yes(fresh)
    }

    /// Removes the key of `old`, if its word is still `seen`. Later keys start above `floor`. Gives the
    /// key's annex, if it had one.
    pub(super) fn remove(
        &self,
        old: &Slot<K, V, C>,
        seen: Word,
        floor: u64,
    ) -> Option<Option<Annex<K, V, C>>> {
        let (hash, shard) = self.place(&old.key);
        let mut locked = shard.lock();
        let shard = &mut *locked;
        // As in `replace`.
        let annex = shard.annexes.place(hash, &old.key);
        let place = shard.slots.find_entry(hash, |slot| slot.is(old)).ok()?;
        if !old.word.swap_if(seen, Word::GONE) {
            return None;
        }
        let (left, _) = place.remove();
        shard.floor = shard.floor.max(floor);
        let annex = annex.and_then(|at| shard.annexes.take(at));
        drop(locked);
        drop(left);
        Some(annex.map(|(_, annex)| annex))
    }

    /// Ends everything: each slot is gone, and nothing is found or made any more. Gives the annexes.
    pub(super) fn close(&self) -> Vec<Annex<K, V, C>> {
        let (mut gone, mut annexes) = (Vec::new(), Vec::with_capacity(self.shards.len()));
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.closed = true;
            let slots = core::mem::take(&mut shard.slots);
            let left = core::mem::take(&mut shard.annexes);
            for slot in &slots {
                loop {
                    let word = slot.word.load();
                    if word.is_gone() || slot.word.swap_if(word, Word::GONE) {
                        break;
                    }
                }
            }
            drop(shard);
            // A vector: it goes on dropping after one of its values panicked.
            gone.extend(slots);
            annexes.push(left);
        }
        // Foreign code (drops of keys and values), which may panic: after all is closed.
        drop(gone);
        annexes.into_iter().flat_map(Annexes::into_all).collect()
    }

    /// Works on the annex of `key`, with the shard locked: `work` calls nothing foreign, and gives out
    /// what has to be dropped. `None` if the key is not there.
    pub(super) fn annexed<R>(
        &self,
        key: &K,
        work: impl FnOnce(&SlotRef<K, V, C>, &mut Annex<K, V, C>) -> R,
    ) -> Found<Option<R>> {
        let (hash, shard) = self.place(key);
        // Cloned before, and dropped after, the lock.
        let mut own = Some(key.clone());
        let mut locked = shard.lock();
        let shard = &mut *locked;
        if shard.closed {
            return Err(Closed);
        }
        let Some(slot) = shard.slots.find(hash, |slot| slot.key == *key) else { return Ok(None) };
        // There, unless a key is not equal to its clone, which is a broken `Eq`.
        let Some(at) = shard.annexes.place_or(hash, key, &mut own) else { return Ok(None) };
        let Some(annex) = shard.annexes.at(at) else { return Ok(None) };
        // Before the work, which may publish a word whose end must find the annex.
        slot.set_annexed(true);
        let done = work(slot, annex);
        let mut left = None;
        if annex.is_empty() {
            slot.set_annexed(false);
            left = shard.annexes.take(at);
        }
        drop(locked);
        drop((left, own));
        Ok(Some(done))
    }

    /// Keeps the labels of the grant with `token`, unless it was overtaken before it came here.
    pub(super) fn note(&self, key: &K, token: FencingToken, note: Note) {
        // What was there is dropped outside the lock.
        let _old = self.annexed(key, |_, annex| match &annex.note {
            Some((of, _)) if *of > token => Some((token, note)),
            _ => annex.note.replace((token, note)),
        });
    }

    /// Reads the labels of the grant with `token`, if it has any.
    pub(super) fn noted<R>(
        &self,
        key: &K,
        token: FencingToken,
        read: impl FnOnce(&Note) -> R,
    ) -> Option<R> {
        let (hash, shard) = self.place(key);
        let shard = shard.lock();
        let (of, note) = shard.annexes.get(hash, key)?.note.as_ref()?;
        (*of == token).then(|| read(note))
    }

    /// The session of the grant with `token`, if it has one.
    pub(super) fn session(&self, key: &K, token: FencingToken) -> Option<Arc<Deadline>> {
        let (hash, shard) = self.place(key);
        let shard = shard.lock();
        let (of, session) = shard.annexes.get(hash, key)?.session.as_ref()?;
        (*of == token).then(|| session.clone())
    }

    /// The label of the owner with `token`.
    pub(super) fn owner(&self, key: &K, token: FencingToken) -> Option<Label> {
        self.noted(key, token, |note| note.owner.clone()).flatten()
    }

    /// Every slot, shard after shard.
    pub(super) fn slots(&self) -> Vec<SlotRef<K, V, C>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().slots.iter().cloned());
        }
        all
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().slots.len()).sum()
    }
}
