//! The index: from a key to its slot, under a lock a shard.
//!
//! A slot leaves the index in one way: with the shard locked, its word goes to `Gone` and the entry
//! is replaced (the key moves) or unlinked (it is removed). So whoever reads `Gone` and then asks
//! the index finds what came after, whole: there is no state in between for anybody to help with.
//!
//! The shard also keeps what is too rare to have room in a slot: labels and request ids of running
//! grants, and the floor below which no key made anew may start.
//!
//! `Hash` and `Eq` of keys are the only foreign code that runs with a shard locked, as in every
//! concurrent map. They must not call the table. Keys and values are cloned before, dropped after.

use core::hash::{BuildHasher, Hash};
use std::collections::HashMap;

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;

use super::request::Note;
use super::slot::{NOTED, Slot, SlotRef};
use super::word::Word;
use super::{FencingToken, Label};
use crate::sync::{Arc, Mutex};

#[cfg(not(tenure_loom))]
type Hasher = std::collections::hash_map::RandomState;
// Models must run the same way each time.
#[cfg(tenure_loom)]
type Hasher = core::hash::BuildHasherDefault<std::collections::hash_map::DefaultHasher>;

/// The table was closed.
#[derive(Debug)]
pub(super) struct Closed;

/// What a look into the index found.
type Found<T> = Result<T, Closed>;

pub(super) struct Index<K, V, C> {
    hasher: Hasher,
    shards: Box<[Locked<K, V, C>]>,
}

type Locked<K, V, C> = CachePadded<Mutex<Shard<K, V, C>>>;

/// A part of the index.
pub(super) struct Shard<K, V, C> {
    slots: HashTable<SlotRef<K, V, C>>,
    notes: HashMap<K, Noted>,
    /// No key made in this shard starts with a smaller token than the next one.
    floor: u64,
    closed: bool,
}

/// The labels of a key's grant. Those of an earlier grant may linger until the next one ends; they
/// are never mistaken for a later one's.
struct Noted {
    token: FencingToken,
    note: Note,
}

/// What replacing a slot came to.
pub(super) enum Replaced<K, V, C> {
    /// The word was as seen; the fresh slot is the key's now.
    Yes(SlotRef<K, V, C>),
    /// It was not; the fresh slot comes back, seen by nobody.
    No(Slot<K, V, C>),
}

impl<K: Hash + Eq + Clone, V, C> Index<K, V, C> {
    pub(super) fn new(shards: usize, floor: u64) -> Self {
        let shard = || {
            CachePadded::new(Mutex::new(Shard {
                slots: HashTable::new(),
                notes: HashMap::new(),
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
    ) -> Found<SlotRef<K, V, C>> {
        let (hash, shard) = self.place(key);
        let mut shard = shard.lock();
        if shard.closed {
            return Err(Closed);
        }
        if let Some(slot) = shard.slots.find(hash, |slot| slot.key == *key) {
            return Ok(slot.clone());
        }
        let slot = Arc::new(make(shard.floor));
        shard.slots.insert_unique(hash, slot.clone(), |slot| self.hasher.hash_one(&slot.key));
        Ok(slot)
    }

    /// Moves the key from `old`, if its word is still `seen`, to `fresh`.
    pub(super) fn replace(
        &self,
        old: &Slot<K, V, C>,
        seen: Word,
        fresh: Slot<K, V, C>,
    ) -> Replaced<K, V, C> {
        let (hash, shard) = self.place(&old.key);
        let mut shard = shard.lock();
        let Some(place) = shard.slots.find_mut(hash, |slot| core::ptr::eq(&raw const **slot, old))
        else {
            // Not in the index, so its word is Gone.
            return Replaced::No(fresh);
        };
        if !old.word.swap_if(seen, Word::GONE) {
            return Replaced::No(fresh);
        }
        fresh.raise(old.carried_flags());
        let fresh = Arc::new(fresh);
        let left = core::mem::replace(place, fresh.clone());
        drop(shard);
        // Outside the lock: this can be its last reference, and then drops values.
        drop(left);
        Replaced::Yes(fresh)
    }

    /// Removes the key of `old`, if its word is still `seen`. Later keys start above `floor`.
    pub(super) fn remove(&self, old: &Slot<K, V, C>, seen: Word, floor: u64) -> bool {
        let (hash, shard) = self.place(&old.key);
        let mut shard = shard.lock();
        let Ok(place) = shard.slots.find_entry(hash, |slot| core::ptr::eq(&raw const **slot, old))
        else {
            return false;
        };
        if !old.word.swap_if(seen, Word::GONE) {
            return false;
        }
        let (left, _) = place.remove();
        shard.floor = shard.floor.max(floor);
        let noted = shard.notes.remove_entry(&old.key);
        drop(shard);
        drop((left, noted));
        true
    }

    /// Ends everything: each slot is gone, and nothing is found or made any more.
    pub(super) fn close(&self) {
        let (mut left, mut labels) = (Vec::new(), Vec::with_capacity(self.shards.len()));
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.closed = true;
            let slots = core::mem::take(&mut shard.slots);
            let notes = core::mem::take(&mut shard.notes);
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
            left.extend(slots);
            labels.push(notes);
        }
        // Foreign code (drops of keys and values), which may panic: after all is closed.
        drop((left, labels));
    }

    /// Keeps the labels of the grant with `token`.
    pub(super) fn note(&self, slot: &Slot<K, V, C>, token: FencingToken, note: Note) {
        let (hash, shard) = self.place(&slot.key);
        let key = slot.key.clone();
        let mut shard = shard.lock();
        let inside = &mut *shard;
        // The key may have moved since: the flag goes where the key is.
        let Some(now) = inside.slots.find(hash, |other| other.key == slot.key) else {
            // The lock goes before the key does: `drop` of a key is foreign code.
            drop(shard);
            return;
        };
        let fresh = Noted { token, note };
        match inside.notes.get_mut(&slot.key) {
            // The grant was overtaken before it came here.
            Some(old) if old.token > token => {}
            Some(old) => {
                now.raise(NOTED);
                *old = fresh;
            }
            None => {
                now.raise(NOTED);
                inside.notes.insert(key, fresh);
            }
        }
    }

    /// The labels of the grant with `token`, if it has any.
    pub(super) fn noted<R>(
        &self,
        key: &K,
        token: FencingToken,
        read: impl FnOnce(&Note) -> R,
    ) -> Option<R> {
        let (_, shard) = self.place(key);
        let shard = shard.lock();
        shard.notes.get(key).filter(|noted| noted.token == token).map(|noted| read(&noted.note))
    }

    /// Takes the labels of the grant with `token`, which ended in `slot`.
    pub(super) fn take_note(&self, slot: &Slot<K, V, C>, token: FencingToken) -> Option<Note> {
        let (hash, shard) = self.place(&slot.key);
        let mut shard = shard.lock();
        let noted = shard.notes.get(&slot.key)?;
        if noted.token > token {
            return None;
        }
        let (key, noted) = shard.notes.remove_entry(&slot.key)?;
        slot.lower(NOTED);
        if let Some(now) = shard.slots.find(hash, |other| other.key == slot.key) {
            // The term may have ended by moving the key, and then took the flag along.
            now.lower(NOTED);
        }
        drop(shard);
        // Foreign code, outside the lock.
        drop(key);
        (noted.token == token).then_some(noted.note)
    }

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
