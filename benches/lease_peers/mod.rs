//! What people build by hand instead of a lease table, each as its author would: a map to records with
//! an owner, a deadline and a value, under the lock or the CAS that the map brings.
//!
//! All read the same clock in nanoseconds, precise or coarse, and keep a `u64`. `take` is a
//! successful acquisition's token; every check compares token and deadline, as a lease does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::clock::{Clock, MonotonicClock};

pub(crate) const TTL: Duration = Duration::from_secs(30);
const TTL_NANOS: u64 = 30_000_000_000;

/// Which clock a peer reads.
pub(crate) trait Time: Send + Sync + 'static {
    fn now() -> u64;
}

pub(crate) struct Precise;
impl Time for Precise {
    #[inline]
    fn now() -> u64 {
        MonotonicClock::new().now().as_nanos()
    }
}

/// The coarse clock, as a peer might use it: up to a few milliseconds late, and not corrected.
pub(crate) struct Coarse;
impl Time for Coarse {
    #[inline]
    fn now() -> u64 {
        MonotonicClock::new().coarse().as_nanos()
    }
}

pub(crate) trait Peer: Send + Sync {
    /// Token and value, if the key is free or its holder late.
    fn take(&self, key: u64) -> Option<(u64, u64)>;
    fn valid(&self, key: u64, token: u64) -> bool;
    fn renew(&self, key: u64, token: u64) -> bool;
    /// Writes and goes on.
    fn checkpoint(&self, key: u64, token: u64, value: u64) -> bool;
    /// Writes and releases.
    fn commit(&self, key: u64, token: u64, value: u64) -> bool;
    fn release(&self, key: u64, token: u64) -> bool;
}

#[derive(Clone, Default)]
pub(crate) struct Record {
    token: u64,
    held: bool,
    deadline: u64,
    value: u64,
}

impl Record {
    #[inline]
    fn take<T: Time>(&mut self) -> Option<(u64, u64)> {
        let now = T::now();
        if self.held && now <= self.deadline {
            return None;
        }
        self.token += 1;
        self.held = true;
        self.deadline = now + TTL_NANOS;
        Some((self.token, self.value))
    }

    #[inline]
    fn valid<T: Time>(&self, token: u64) -> bool {
        self.held && self.token == token && T::now() < self.deadline
    }

    #[inline]
    fn renew<T: Time>(&mut self, token: u64) -> bool {
        let now = T::now();
        let ok = self.held && self.token == token && now < self.deadline;
        if ok {
            self.deadline = self.deadline.max(now + TTL_NANOS);
        }
        ok
    }

    #[inline]
    fn write<T: Time>(&mut self, token: u64, value: u64, held: bool) -> bool {
        let ok = self.valid::<T>(token);
        if ok {
            self.value = value;
            self.held = held;
        }
        ok
    }

    #[inline]
    fn release(&mut self, token: u64) -> bool {
        let ok = self.held && self.token == token;
        if ok {
            self.held = false;
        }
        ok
    }
}

/// A map whose records are reached under a lock.
pub(crate) trait Locked: Send + Sync {
    type Time: Time;
    fn with<R>(&self, key: u64, f: impl FnOnce(&mut Record) -> R) -> R;
}

impl<L: Locked> Peer for L {
    #[inline]
    fn take(&self, key: u64) -> Option<(u64, u64)> {
        self.with(key, |record| record.take::<L::Time>())
    }
    #[inline]
    fn valid(&self, key: u64, token: u64) -> bool {
        self.with(key, |record| record.valid::<L::Time>(token))
    }
    #[inline]
    fn renew(&self, key: u64, token: u64) -> bool {
        self.with(key, |record| record.renew::<L::Time>(token))
    }
    #[inline]
    fn checkpoint(&self, key: u64, token: u64, value: u64) -> bool {
        self.with(key, |record| record.write::<L::Time>(token, value, true))
    }
    #[inline]
    fn commit(&self, key: u64, token: u64, value: u64) -> bool {
        self.with(key, |record| record.write::<L::Time>(token, value, false))
    }
    #[inline]
    fn release(&self, key: u64, token: u64) -> bool {
        self.with(key, |record| record.release(token))
    }
}

/// One lock around one map.
pub(crate) struct OneMutex<T>(std::sync::Mutex<HashMap<u64, Record>>, std::marker::PhantomData<T>);

impl<T: Time> OneMutex<T> {
    pub(crate) fn new(keys: u64) -> Self {
        let map = (0..keys).map(|key| (key, Record::default())).collect();
        Self(std::sync::Mutex::new(map), std::marker::PhantomData)
    }
}

impl<T: Time> Locked for OneMutex<T> {
    type Time = T;
    #[inline]
    fn with<R>(&self, key: u64, f: impl FnOnce(&mut Record) -> R) -> R {
        f(self.0.lock().unwrap().get_mut(&key).unwrap())
    }
}

/// 64 parking_lot locks around 64 maps.
pub(crate) struct Sharded<T> {
    hasher: std::hash::RandomState,
    shards: Vec<crossbeam_utils::CachePadded<parking_lot::Mutex<HashMap<u64, Record>>>>,
    time: std::marker::PhantomData<T>,
}

impl<T: Time> Sharded<T> {
    pub(crate) fn new(keys: u64) -> Self {
        let new = Self {
            hasher: std::hash::RandomState::new(),
            shards: (0..64).map(|_| Default::default()).collect(),
            time: std::marker::PhantomData,
        };
        for key in 0..keys {
            new.shard(key).lock().insert(key, Record::default());
        }
        new
    }

    #[inline]
    fn shard(&self, key: u64) -> &parking_lot::Mutex<HashMap<u64, Record>> {
        use std::hash::BuildHasher;
        &self.shards[self.hasher.hash_one(key) as usize % 64]
    }
}

impl<T: Time> Locked for Sharded<T> {
    type Time = T;
    #[inline]
    fn with<R>(&self, key: u64, f: impl FnOnce(&mut Record) -> R) -> R {
        f(self.shard(key).lock().get_mut(&key).unwrap())
    }
}

pub(crate) struct Dash<T>(dashmap::DashMap<u64, Record>, std::marker::PhantomData<T>);

impl<T: Time> Dash<T> {
    pub(crate) fn new(keys: u64) -> Self {
        let map = (0..keys).map(|key| (key, Record::default())).collect();
        Self(map, std::marker::PhantomData)
    }
}

impl<T: Time> Locked for Dash<T> {
    type Time = T;
    #[inline]
    fn with<R>(&self, key: u64, f: impl FnOnce(&mut Record) -> R) -> R {
        f(&mut self.0.get_mut(&key).unwrap())
    }
}

/// A parking_lot lock a record, in an array: the key is the place, nothing is looked up.
pub(crate) struct Slab<T>(Vec<parking_lot::Mutex<Record>>, std::marker::PhantomData<T>);

impl<T: Time> Slab<T> {
    pub(crate) fn new(keys: u64) -> Self {
        Self((0..keys).map(|_| Default::default()).collect(), std::marker::PhantomData)
    }
}

impl<T: Time> Locked for Slab<T> {
    type Time = T;
    #[inline]
    fn with<R>(&self, key: u64, f: impl FnOnce(&mut Record) -> R) -> R {
        f(&mut self.0[key as usize].lock())
    }
}

/// A word, `epoch 24 | held 1 | milliseconds 39`, and beside it a value that only the holder writes.
/// Its epochs wrap after 16 million grants, and tokens come again then; it has no way out of that.
/// (Its readers may see the value of a late holder: it has no way to take that back.)
#[derive(Default)]
pub(crate) struct CasRecord {
    word: AtomicU64,
    value: AtomicU64,
}

const HELD: u64 = 1 << 39;
const TICK: u64 = HELD - 1;
const EPOCH: u64 = 1 << 40;
const EPOCH_MASK: u64 = (1 << 24) - 1;

impl CasRecord {
    #[inline]
    fn holds(word: u64, token: u64, now: u64) -> bool {
        word / EPOCH == token && word & HELD != 0 && now < word & TICK
    }

    #[inline]
    fn change(&self, token: u64, now: u64, to: impl Fn(u64) -> u64) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if !Self::holds(word, token, now) {
                return false;
            }
            let next = to(word);
            match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
    }
}

/// A concurrent map with a CAS word a key.
pub(crate) trait Cas: Send + Sync {
    type Time: Time;
    fn with<R>(&self, key: u64, f: impl FnOnce(&CasRecord) -> R) -> R;
}

/// Makes a peer of a map of CAS words.
pub(crate) struct ByCas<M>(pub(crate) M);

impl<M: Cas> Peer for ByCas<M> {
    #[inline]
    fn take(&self, key: u64) -> Option<(u64, u64)> {
        self.0.with(key, |record| {
            let word = record.word.load(Ordering::Acquire);
            let now = M::Time::now() / 1_000_000;
            if word & HELD != 0 && now <= word & TICK {
                return None;
            }
            let epoch = (word / EPOCH + 1) & EPOCH_MASK;
            let next = (epoch * EPOCH) | HELD | (now + TTL_NANOS / 1_000_000);
            record
                .word
                .compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
                .then(|| (epoch, record.value.load(Ordering::Relaxed)))
        })
    }
    #[inline]
    fn valid(&self, key: u64, token: u64) -> bool {
        self.0.with(key, |record| {
            let now = M::Time::now() / 1_000_000;
            CasRecord::holds(record.word.load(Ordering::Acquire), token, now)
        })
    }
    #[inline]
    fn renew(&self, key: u64, token: u64) -> bool {
        self.0.with(key, |record| {
            let now = M::Time::now() / 1_000_000;
            let until = now + TTL_NANOS / 1_000_000;
            record.change(token, now, |word| (word & !TICK) | until.max(word & TICK))
        })
    }
    #[inline]
    fn checkpoint(&self, key: u64, token: u64, value: u64) -> bool {
        self.0.with(key, |record| {
            let now = M::Time::now() / 1_000_000;
            record.value.store(value, Ordering::Release);
            record.change(token, now, |word| word)
        })
    }
    #[inline]
    fn commit(&self, key: u64, token: u64, value: u64) -> bool {
        self.0.with(key, |record| {
            let now = M::Time::now() / 1_000_000;
            record.value.store(value, Ordering::Release);
            record.change(token, now, |word| word & !(HELD | TICK))
        })
    }
    #[inline]
    fn release(&self, key: u64, token: u64) -> bool {
        self.0.with(key, |record| record.change(token, 0, |word| word & !(HELD | TICK)))
    }
}

pub(crate) struct Papaya<T>(papaya::HashMap<u64, CasRecord>, std::marker::PhantomData<T>);

impl<T: Time> Papaya<T> {
    pub(crate) fn new(keys: u64) -> Self {
        let map = papaya::HashMap::new();
        for key in 0..keys {
            map.pin().insert(key, CasRecord::default());
        }
        Self(map, std::marker::PhantomData)
    }
}

impl<T: Time> Cas for Papaya<T> {
    type Time = T;
    #[inline]
    fn with<R>(&self, key: u64, f: impl FnOnce(&CasRecord) -> R) -> R {
        f(self.0.pin().get(&key).unwrap())
    }
}

pub(crate) struct Scc<T>(scc::HashMap<u64, CasRecord>, std::marker::PhantomData<T>);

impl<T: Time> Scc<T> {
    pub(crate) fn new(keys: u64) -> Self {
        let map = scc::HashMap::new();
        for key in 0..keys {
            let _ = map.insert_sync(key, CasRecord::default());
        }
        Self(map, std::marker::PhantomData)
    }
}

impl<T: Time> Cas for Scc<T> {
    type Time = T;
    #[inline]
    fn with<R>(&self, key: u64, f: impl FnOnce(&CasRecord) -> R) -> R {
        self.0.read_sync(&key, |_, record| f(record)).unwrap()
    }
}
