//! A limit of how many in a time, for each key.

use core::fmt;
use core::hash::BuildHasher;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Weak;

use crossbeam_utils::CachePadded;

use super::error::{ConfigError, Limited};
use super::gcra::Rate;
use super::watch::Watchers;
use super::{Hasher, LimitKey, Listener, Lock, shard_count};
use crate::clock::{AnyClock, Clock};
use crate::sync::Arc;

/// At most so many in a time for each key.
///
/// Clones are the same limit. A key whose burst is whole again is as good as one never seen, and is
/// forgotten when its place is wanted. So memory holds the keys that were busy lately, and never more
/// than [`max_keys`](Self::with_max_keys): a *new* key that comes while so many are busy is refused, as
/// letting it through would mean to forget another's debt.
///
/// ```
/// use std::time::Duration;
/// use tenure::clock::ManualClock;
/// use tenure::limit::{KeyedRateLimit, Rate};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::new();
/// let limit = KeyedRateLimit::with_max_keys(Rate::per_second(1)?, 2, clock.clone())?;
/// limit.try_acquire(&"a")?;
/// assert!(limit.try_acquire(&"a").is_err());
/// limit.try_acquire(&"b")?;
/// assert!(limit.try_acquire(&"c").is_err(), "a and b are busy");
/// clock.advance(Duration::from_secs(1));
/// limit.try_acquire(&"c")?;
/// # Ok(())
/// # }
/// ```
pub struct KeyedRateLimit<K: LimitKey> {
    core: Arc<Core<K>>,
}

struct Core<K: LimitKey> {
    clock: AnyClock,
    hasher: Hasher,
    shards: Box<[CachePadded<Lock<Shard<K>>>]>,
    watchers: Watchers,
}

/// A part of the table: up to when the time of each key is spent.
struct Shard<K> {
    spent: HashMap<K, u64, Hasher>,
    most: usize,
    /// Nothing is idle before that.
    none_idle_before: u64,
    /// The same in each shard but for the moment of a change.
    rate: Rate,
}

impl<K: LimitKey> Shard<K> {
    /// Makes room for one more key; those it forgets go to `gone`, to be dropped without the lock.
    fn make_room(&mut self, now: u64, gone: &mut Vec<K>) -> Result<(), Limited> {
        let is_full = self.spent.len() >= self.most;
        // Also before it grows, so that it does not grow by idle keys.
        let grows = self.spent.len() >= self.spent.capacity();
        if (is_full || grows) && now >= self.none_idle_before {
            gone.extend(self.spent.extract_if(|_, spent| *spent <= now).map(|(key, _)| key));
            // What is left becomes idle later, and whoever comes anew later still.
            self.none_idle_before = self.spent.values().copied().min().unwrap_or(0);
        }
        if self.spent.len() < self.most {
            return Ok(());
        }
        let wait = self.none_idle_before.saturating_sub(now);
        Err(Limited::new(Some(Duration::from_nanos(wait))))
    }
}

impl<K: LimitKey> KeyedRateLimit<K> {
    /// A limit by the system's clock, for up to 65,536 busy keys.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self::made(rate, 1 << 16, AnyClock::default())
    }

    /// A limit by `clock`, for up to `max_keys` busy keys. They are divided among some shards, by their
    /// hash: so that a shard may be full a little earlier than the whole.
    ///
    /// # Errors
    ///
    /// [`ConfigError::MaxKeys`] if `max_keys` is 0.
    pub fn with_max_keys(
        rate: Rate,
        max_keys: usize,
        clock: impl Clock,
    ) -> Result<Self, ConfigError> {
        if max_keys == 0 {
            return Err(ConfigError::MaxKeys);
        }
        Ok(Self::made(rate, max_keys, AnyClock::new(clock)))
    }

    fn made(rate: Rate, max_keys: usize, clock: AnyClock) -> Self {
        // So many that each has some hundred keys to level out the hash.
        let count = (max_keys / 256).next_power_of_two().clamp(1, shard_count());
        let count = if max_keys < 512 { 1 } else { count };
        let shard = || Shard {
            spent: HashMap::with_hasher(Hasher::default()),
            most: max_keys / count,
            none_idle_before: 0,
            rate,
        };
        Self {
            core: Arc::new(Core {
                clock,
                hasher: Hasher::default(),
                shards: (0..count).map(|_| CachePadded::new(Lock::new(shard()))).collect(),
                watchers: Watchers::new(),
            }),
        }
    }

    /// Takes one permit of `key`.
    ///
    /// # Errors
    ///
    /// [`Limited`], with the time after which there is one, if nobody else takes it.
    pub fn try_acquire(&self, key: &K) -> Result<(), Limited> {
        self.try_acquire_many(key, 1)
    }

    /// Takes `count` permits of `key`, or none.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire); never with a time if `count` is more than the burst.
    pub fn try_acquire_many(&self, key: &K, count: u32) -> Result<(), Limited> {
        let core = &self.core;
        let now = core.clock.now().as_nanos();
        let at = (core.hasher.hash_one(key) >> 32) as usize & (core.shards.len() - 1);
        let mut gone = Vec::new();
        {
            let mut shard = core.shards[at].lock();
            let rate = shard.rate;
            if let Some(spent) = shard.spent.get_mut(key) {
                *spent = rate.after(*spent, count, now)?;
                return Ok(());
            }
        }
        // Foreign code: the clone, without the lock.
        let own = key.clone();
        let mut shard = core.shards[at].lock();
        let rate = shard.rate;
        let done = (|| {
            if let Some(spent) = shard.spent.get_mut(key) {
                *spent = rate.after(*spent, count, now)?;
                return Ok(());
            }
            let spent = rate.after(0, count, now)?;
            if spent > now {
                shard.make_room(now, &mut gone)?;
                shard.spent.insert(own, spent);
            }
            Ok(())
        })();
        drop(shard);
        drop(gone);
        done
    }

    /// Changes rate and burst of all keys; what each has used up stays the same part of a permit. Its
    /// time grows with the number of busy keys.
    pub fn set_rate(&self, rate: Rate) {
        let now = self.core.clock.now().as_nanos();
        for shard in &self.core.shards {
            let mut shard = shard.lock();
            let old = core::mem::replace(&mut shard.rate, rate);
            for spent in shard.spent.values_mut() {
                *spent = old.rescaled(&rate, *spent, now);
            }
            shard.none_idle_before = 0;
        }
        self.core.watchers.tell();
    }

    /// The rate now.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.core.shards[0].lock().rate
    }

    /// How many keys take memory: the busy ones, and idle ones whose place nobody has wanted yet.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.core.shards.iter().map(|shard| shard.lock().spent.len()).sum()
    }

    /// Has `listener` told when the rate is changed.
    pub fn watch(&self, listener: Weak<dyn Listener>) {
        self.core.watchers.add(listener);
    }

    /// What tells it from all others that live; its clones have the same.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.core).addr()
    }
}

impl<K: LimitKey> Clone for KeyedRateLimit<K> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

impl<K: LimitKey> fmt::Debug for KeyedRateLimit<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRateLimit").field("rate", &self.rate()).finish_non_exhaustive()
    }
}
