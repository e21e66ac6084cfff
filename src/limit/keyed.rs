//! A limit of how many at once, for each key.

use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::Weak;

use crossbeam_utils::CachePadded;

use super::error::Limited;
use super::watch::{Watchers, contained};
use super::{Hasher, Listener, Lock, shard_count};
use crate::promise::{Eventual, Promise, promise, ready};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, Ordering};

/// What may be a key: cheap to clone, and hashed with a lock held, so that `Hash` and `Eq` must not
/// call the limit.
pub trait LimitKey: Hash + Eq + Clone + Send + Sync + 'static {}
impl<K: Hash + Eq + Clone + Send + Sync + 'static> LimitKey for K {}

/// At most so many at once for each key.
///
/// Clones are the same limit. A key takes memory only while a permit of it is out or somebody waits for
/// one, so there is nothing to clean up. In the rest it is as
/// [`ConcurrencyLimit`](super::ConcurrencyLimit), with a line for each key.
///
/// ```
/// use tenure::limit::KeyedConcurrency;
///
/// let limit = KeyedConcurrency::new(1);
/// let permit = limit.try_acquire(&"a.example")?;
/// assert!(limit.try_acquire(&"a.example").is_err());
/// assert!(limit.try_acquire(&"b.example").is_ok());
/// drop(permit);
/// assert_eq!(limit.keys(), 0);
/// # Ok::<(), tenure::limit::Limited>(())
/// ```
pub struct KeyedConcurrency<K: LimitKey> {
    core: Arc<Core<K>>,
}

struct Core<K: LimitKey> {
    limit: AtomicU32,
    hasher: Hasher,
    shards: Box<[Shard<K>]>,
    watchers: Watchers,
}

type Shard<K> = CachePadded<Lock<HashMap<K, Entry<K>, Hasher>>>;

/// A key that is in use.
struct Entry<K: LimitKey> {
    used: u32,
    line: VecDeque<Waiter<K>>,
}

/// One who waits, with the key that its permit will have: cloned when it came, without the lock.
struct Waiter<K: LimitKey> {
    key: K,
    promise: Promise<KeyedPermit<K>, Limited>,
}

/// What to do next for a key, with its shard unlocked.
enum Next<K: LimitKey> {
    Grant(Waiter<K>),
    /// The key is out of use; its clones are dropped without the lock.
    Forgotten(Option<(K, Entry<K>)>),
    /// Nobody waits, or there is no room.
    Nothing,
}

impl<K: LimitKey> Core<K> {
    fn limit(&self) -> u32 {
        // ORDERING: Relaxed: read and acted on with a shard locked; a change locks each shard after it,
        // so whoever saw the old limit is looked at again.
        self.limit.load(Ordering::Relaxed)
    }

    fn shard(&self, key: &K) -> &Shard<K> {
        let at = (self.hasher.hash_one(key) >> 32) as usize & (self.shards.len() - 1);
        &self.shards[at]
    }

    /// Takes a seat of `key`, if there is one and nobody waits.
    fn take(&self, key: &K, spare: &mut Option<K>) -> bool {
        let limit = self.limit();
        let mut shard = self.shard(key).lock();
        if let Some(entry) = shard.get_mut(key) {
            let may = entry.used < limit && entry.line.is_empty();
            entry.used += u32::from(may);
            return may;
        }
        if limit == 0 {
            return false;
        }
        if let Some(key) = spare.take() {
            shard.insert(key, Entry { used: 1, line: VecDeque::new() });
        }
        true
    }

    fn next(&self, key: &K) -> Next<K> {
        let limit = self.limit();
        let mut shard = self.shard(key).lock();
        let Some(entry) = shard.get_mut(key) else { return Next::Nothing };
        if entry.used < limit
            && let Some(waiter) = entry.line.pop_front()
        {
            entry.used += 1;
            return Next::Grant(waiter);
        }
        if entry.used == 0 && entry.line.is_empty() {
            return Next::Forgotten(shard.remove_entry(key));
        }
        Next::Nothing
    }

    fn put_back(&self, key: &K) {
        let mut shard = self.shard(key).lock();
        if let Some(entry) = shard.get_mut(key) {
            entry.used = entry.used.saturating_sub(1);
        }
    }
}

/// Gives free seats of `key` to those in its line.
fn serve<K: LimitKey>(core: &Arc<Core<K>>, key: &K) {
    loop {
        match core.next(key) {
            Next::Grant(waiter) => drop(grant(core, waiter)),
            Next::Forgotten(_) | Next::Nothing => return,
        }
    }
}

/// Gives a seat that is counted to one who was in the line. Its key, if it has given up: the seat is free.
fn grant<K: LimitKey>(core: &Arc<Core<K>>, waiter: Waiter<K>) -> Option<K> {
    let Waiter { key, promise } = waiter;
    let permit = KeyedPermit { place: Some((Arc::clone(core), key)) };
    // Foreign code: the waiter's callbacks. No lock is held and the seat is counted.
    let back = promise.set(permit).err()?;
    // Not by the permit's drop, which would serve the line in turn.
    let (_, key) = back.into_inner().place.take()?;
    core.put_back(&key);
    Some(key)
}

impl<K: LimitKey> KeyedConcurrency<K> {
    /// At most `limit` at once for each key; 0 lets nobody through until it is raised.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        let shard = || CachePadded::new(Lock::new(HashMap::with_hasher(Hasher::default())));
        Self {
            core: Arc::new(Core {
                limit: AtomicU32::new(limit),
                hasher: Hasher::default(),
                shards: (0..shard_count()).map(|_| shard()).collect(),
                watchers: Watchers::new(),
            }),
        }
    }

    /// Takes a permit of `key`, if there is one and nobody waits for it.
    ///
    /// # Errors
    ///
    /// [`Limited`], always without a time.
    pub fn try_acquire(&self, key: &K) -> Result<KeyedPermit<K>, Limited> {
        // Foreign code: clones, before anything is counted.
        let (own, mut spare) = (key.clone(), Some(key.clone()));
        if self.core.take(key, &mut spare) {
            Ok(KeyedPermit { place: Some((Arc::clone(&self.core), own)) })
        } else {
            Err(Limited::UNTIL_RETURNED)
        }
    }

    /// A permit of `key`, when it is its turn. As
    /// [`ConcurrencyLimit::acquire_async`](super::ConcurrencyLimit::acquire_async).
    pub fn acquire_async(&self, key: &K) -> Eventual<KeyedPermit<K>, Limited> {
        if let Ok(permit) = self.try_acquire(key) {
            return ready(permit);
        }
        let (promise, eventual) = promise();
        // Foreign code: clones, before the lock.
        let (spare, waiter) = (key.clone(), Waiter { key: key.clone(), promise });
        let mut gone = VecDeque::new();
        {
            let mut shard = self.core.shard(key).lock();
            let entry =
                shard.entry(spare).or_insert_with(|| Entry { used: 0, line: VecDeque::new() });
            // Those who gave up, whenever the line would grow: so it stays in proportion.
            if entry.line.len() == entry.line.capacity() {
                let (left, here) = entry.line.drain(..).partition(|w| w.promise.is_cancelled());
                (gone, entry.line) = (left, here);
            }
            entry.line.push_back(waiter);
        }
        drop(gone);
        serve(&self.core, key);
        eventual
    }

    /// Waits for a permit of `key`.
    ///
    /// # Errors
    ///
    /// None today; [`Limited`] is what it would be refused with.
    ///
    /// # Blocking
    ///
    /// Until a permit of the key is returned or the limit raised. Not for async code.
    pub fn acquire(&self, key: &K) -> Result<KeyedPermit<K>, Limited> {
        self.acquire_async(key).get().map_err(super::concurrency::refusal)
    }

    /// Waits for a permit of `key` for `timeout` at most, in real time.
    ///
    /// # Errors
    ///
    /// [`Limited`] if the time is up.
    ///
    /// # Blocking
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_timeout(&self, key: &K, timeout: Duration) -> Result<KeyedPermit<K>, Limited> {
        let mut waiting = self.acquire_async(key);
        waiting.get_timeout(timeout).map_err(super::concurrency::refusal)
    }

    /// Changes the limit of all keys. Whoever waits and now has room is served before this returns:
    /// so its time grows with the number of keys in use.
    pub fn set_limit(&self, limit: u32) {
        // ORDERING: Relaxed: see `Core::limit`.
        self.core.limit.store(limit, Ordering::Relaxed);
        for shard in &self.core.shards {
            let mut served = Vec::new();
            for entry in shard.lock().values_mut() {
                // What the limit is by now: of two changes that meet, the later one counts.
                let free = self.core.limit().saturating_sub(entry.used) as usize;
                let free = free.min(entry.line.len());
                served.extend(entry.line.drain(..free));
                entry.used += free as u32;
            }
            for waiter in served {
                if let Some(key) = grant(&self.core, waiter) {
                    serve(&self.core, &key);
                }
            }
        }
        self.core.watchers.tell();
    }

    /// The limit now.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.core.limit()
    }

    /// How many permits of `key` are out.
    #[must_use]
    pub fn in_use(&self, key: &K) -> u32 {
        self.core.shard(key).lock().get(key).map_or(0, |entry| entry.used)
    }

    /// How many keys are in use, or waited for.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.core.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Has `listener` told whenever a permit of any key is returned, or the limit is changed.
    pub fn watch(&self, listener: Weak<dyn Listener>) {
        self.core.watchers.add(listener);
    }

    /// What tells it from all others that live; its clones have the same.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.core).addr()
    }
}

impl<K: LimitKey> Clone for KeyedConcurrency<K> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

impl<K: LimitKey> fmt::Debug for KeyedConcurrency<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedConcurrency").field("limit", &self.limit()).finish_non_exhaustive()
    }
}

/// One of those that are let through at once for a key. Returned when it is dropped, on any thread.
#[must_use = "a permit that is dropped is returned"]
pub struct KeyedPermit<K: LimitKey> {
    /// `None`: the seat has been seen to otherwise.
    place: Option<(Arc<Core<K>>, K)>,
}

impl<K: LimitKey> Drop for KeyedPermit<K> {
    fn drop(&mut self) {
        let Some((core, key)) = self.place.take() else { return };
        // Foreign code: the key's hash, its clones and its drop, which may panic; not out of a drop.
        contained(move || {
            core.put_back(&key);
            serve(&core, &key);
            core.watchers.tell();
        });
    }
}

impl<K: LimitKey> fmt::Debug for KeyedPermit<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyedPermit")
    }
}
