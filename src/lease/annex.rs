//! What only few keys have, and no slot has room for: labels, waiters, a session, people who want to
//! know when a lease is lost.
//!
//! It lies beside the key's slot in its shard, under the shard's lock. A slot with an annex has a flag
//! that says so, which whoever ends a term looks at: one load of the line that it has just written.

use core::convert::Infallible;
use std::collections::VecDeque;

use hashbrown::HashTable;

use super::error::Lost;
use super::request::Note;
use super::session::Deadline;
use super::waiting::Waiter;
use super::{FencingToken, LeaseKey, LeaseValue};
use crate::clock::Clock;
use crate::promise::Promise;
use crate::sync::Arc;

/// Told when a lease is over.
pub(super) type Watcher = Promise<Lost, Infallible>;

/// A key's annex.
pub(super) struct Annex<K: LeaseKey, V: LeaseValue, C: Clock> {
    /// The labels of a grant. Those of an earlier one may linger until the next one ends; they are
    /// never mistaken for a later one's.
    pub(super) note: Option<(FencingToken, Note)>,
    /// The session that has the deadline of a grant.
    pub(super) session: Option<(FencingToken, Arc<Deadline>)>,
    /// Who wants to know when a grant is over.
    pub(super) watchers: Vec<(FencingToken, Watcher)>,
    /// Who waits for the key, in order.
    pub(super) queue: VecDeque<Waiter<K, V, C>>,
    /// For the next waiter.
    pub(super) next_ticket: u64,
    /// The deadline at which the keeper will look at the key for them.
    pub(super) watched_until: Option<u64>,
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Default for Annex<K, V, C> {
    fn default() -> Self {
        Self {
            note: None,
            session: None,
            watchers: Vec::new(),
            queue: VecDeque::new(),
            next_ticket: 0,
            watched_until: None,
        }
    }
}

/// What a term leaves behind when it ends.
pub(super) struct Leftovers {
    pub(super) note: Option<Note>,
    pub(super) watchers: Vec<(FencingToken, Watcher)>,
    /// Whether somebody waits for the key.
    pub(super) awaited: bool,
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Annex<K, V, C> {
    pub(super) fn is_empty(&self) -> bool {
        self.note.is_none()
            && self.session.is_none()
            && self.watchers.is_empty()
            && self.queue.is_empty()
    }

    /// Takes out, to be dropped outside the lock, whoever `has_given_up`.
    pub(super) fn forget_cancelled(
        &mut self,
        has_given_up: impl Fn(&Waiter<K, V, C>) -> bool,
    ) -> Vec<Waiter<K, V, C>> {
        // Only before it grows, to at least twice of who is left: however long the line is, a place in
        // it costs no look at all the others.
        if self.queue.len() < self.queue.capacity().max(16) {
            return Vec::new();
        }
        let queue = core::mem::take(&mut self.queue);
        let (gone, kept): (Vec<_>, Vec<_>) = queue.into_iter().partition(has_given_up);
        let mut kept = VecDeque::from(kept);
        kept.reserve(kept.len().max(16));
        self.queue = kept;
        gone
    }

    /// Takes whoever watches the grant with `token`, or an earlier one.
    pub(super) fn take_watchers(&mut self, token: FencingToken) -> Vec<(FencingToken, Watcher)> {
        self.watchers.extract_if(.., |(of, _)| *of <= token).collect()
    }

    /// Takes what belongs to the grant with `token`, which is over, and to earlier ones.
    pub(super) fn take_ended(&mut self, token: FencingToken) -> Leftovers {
        let watchers = self.take_watchers(token);
        let note = self.note.take_if(|(of, _)| *of <= token);
        // A counter and a word: nothing foreign in its drop.
        self.session.take_if(|(of, _)| *of <= token);
        Leftovers {
            note: note.filter(|(of, _)| *of == token).map(|(_, note)| note),
            watchers,
            awaited: !self.queue.is_empty(),
        }
    }
}

/// The annexes of a shard, by key. Each keeps its key's hash, so that the table grows without foreign
/// code.
pub(super) struct Annexes<K: LeaseKey, V: LeaseValue, C: Clock>(HashTable<Beside<K, V, C>>);

struct Beside<K: LeaseKey, V: LeaseValue, C: Clock> {
    hash: u64,
    key: K,
    annex: Annex<K, V, C>,
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Default for Annexes<K, V, C> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Annexes<K, V, C> {
    pub(super) fn get(&self, hash: u64, key: &K) -> Option<&Annex<K, V, C>> {
        self.0.find(hash, |beside| beside.key == *key).map(|beside| &beside.annex)
    }

    /// Where the key's annex is, if it has one; good until another is made or taken.
    pub(super) fn place(&self, hash: u64, key: &K) -> Option<usize> {
        self.0.find_bucket_index(hash, |beside| beside.key == *key)
    }

    /// The same; an annex is made of `own` if there is none.
    pub(super) fn place_or(&mut self, hash: u64, key: &K, own: &mut Option<K>) -> Option<usize> {
        if let Some(at) = self.place(hash, key) {
            return Some(at);
        }
        let beside = Beside { hash, key: own.take()?, annex: Annex::default() };
        Some(self.0.insert_unique(hash, beside, |beside| beside.hash).bucket_index())
    }

    pub(super) fn at(&mut self, place: usize) -> Option<&mut Annex<K, V, C>> {
        self.0.get_bucket_mut(place).map(|beside| &mut beside.annex)
    }

    /// Takes an annex out, to be dropped with the shard unlocked.
    pub(super) fn take(&mut self, place: usize) -> Option<(K, Annex<K, V, C>)> {
        let Beside { key, annex, .. } = self.0.get_bucket_entry(place).ok()?.remove().0;
        Some((key, annex))
    }

    pub(super) fn into_all(self) -> impl Iterator<Item = Annex<K, V, C>> {
        self.0.into_iter().map(|beside| beside.annex)
    }
}
