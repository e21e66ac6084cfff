//! Jobs with equal keys run one after another, first come, first served.
//!
//! A key belongs to one job from its admission to its end, its retries included. Those that came
//! later wait, Suspended, in the key's queue.
//!
//! While an attempt of the owner runs, it holds a lease on the key. The lease has no deadline of its
//! own (the seat has); a rescue revokes it by its token, so the next attempt, of this job or of the
//! next in line, is granted a greater one. Who may ask for the lease is decided by the queue and by the
//! job's word, so a lease that is in the way belongs to somebody who has lost the key, and is revoked.

use core::time::Duration;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::cell::JobRef;
use super::options::JobKey;
use crate::clock::Clock;
use crate::lease::{AcquireError, FencingToken, LeaseTable, OwnedLease};
use crate::lock::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A job's key.
#[derive(Debug)]
pub(crate) struct Serial {
    pub(crate) key: JobKey,
    /// The token of the latest lease; 0 before the first.
    token: AtomicU64,
}

impl Serial {
    pub(crate) fn new(key: JobKey) -> Self {
        Self { key, token: AtomicU64::new(0) }
    }

    /// A lease with this token was granted. A late attempt may come here after its successor, so the
    /// greatest counts.
    fn granted(&self, token: FencingToken) {
        // ORDERING: Relaxed: see `token`.
        self.token.fetch_max(u64::from_be_bytes(token.to_bytes()), Ordering::Relaxed);
    }

    /// The token of the latest lease.
    pub(crate) fn token(&self) -> FencingToken {
        // ORDERING: Relaxed: for the history, and for a revocation that compares it.
        FencingToken::of(0, self.token.load(Ordering::Relaxed))
    }
}

/// The leases on keys.
pub(crate) type Leases = LeaseTable<JobKey, (), Arc<dyn Clock>>;
/// One of them.
pub(crate) type Held = OwnedLease<JobKey, (), Arc<dyn Clock>>;

/// An attempt has no lease on its key.
pub(crate) enum NoLease {
    /// It is not the current one any more.
    Fenced,
    /// The table refused.
    Refused(AcquireError),
}

const SHARDS: usize = 16;

type Queues = HashMap<JobKey, VecDeque<JobRef>>;

/// Which keys are taken, and who waits for them.
#[derive(Debug)]
pub(crate) struct Keys {
    hasher: RandomState,
    // Plain locks: keyed jobs only, and no foreign code under them (a job's last reference is never
    // dropped inside).
    shards: [Mutex<Queues>; SHARDS],
    pub(crate) leases: Leases,
}

impl Keys {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
            leases: LeaseTable::with_clock(clock),
        }
    }

    fn shard(&self, key: &JobKey) -> &Mutex<Queues> {
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        &self.shards[at]
    }

    /// The job, Suspended, asks for its key. True: it has it, resume it; false: it waits in line.
    #[must_use]
    pub(crate) fn admit(&self, key: &JobKey, job: &JobRef) -> bool {
        match self.shard(key).lock().entry(key.clone()) {
            Entry::Vacant(free) => {
                free.insert(VecDeque::new());
                true
            }
            Entry::Occupied(mut taken) => {
                taken.get_mut().push_back(job.clone());
                false
            }
        }
    }

    /// The key's owner is at its end. The next in line, Ready now: push an entry for it.
    #[must_use]
    pub(crate) fn release(&self, key: &JobKey) -> Option<JobRef> {
        loop {
            let next = {
                let mut shard = self.shard(key).lock();
                match shard.get_mut(key)?.pop_front() {
                    Some(job) => job,
                    None => {
                        shard.remove(key);
                        drop(shard);
                        // Nobody needs it; if somebody has come again meanwhile, it stays. Tokens go
                        // on where they were.
                        let _ = self.leases.remove(key);
                        return None;
                    }
                }
            };
            // Not Suspended any more: cancelled while it waited.
            if next.state.resume() {
                return Some(next);
            }
        }
    }

    /// The lease for an attempt of the key's owner, as long as `is_current` says that it is that.
    pub(crate) fn lease(
        &self,
        serial: &Serial,
        is_current: impl Fn() -> bool,
    ) -> Result<Held, NoLease> {
        loop {
            // A second below the longest: that one shrinks while we look.
            let ttl = self.leases.longest_ttl().saturating_sub(Duration::from_secs(1));
            match self.leases.try_acquire(&serial.key, ttl) {
                Ok(held) => {
                    serial.granted(held.token());
                    // Between its start and here it may have been given up, and its successor, of a
                    // smaller token, may have come and gone. If it still is the current one, all who
                    // follow come after this grant: the successor's grant comes after its start, that
                    // after the rescue, and the rescue after this look.
                    if !is_current() {
                        let _ = held.release();
                        return Err(NoLease::Fenced);
                    }
                    return Ok(held);
                }
                Err(AcquireError::Held { token, .. }) => {
                    if !is_current() {
                        return Err(NoLease::Fenced);
                    }
                    // Never blind: if it is not that one any more, we look again.
                    let _ = self.leases.revoke(&serial.key, token, "its attempt was given up");
                }
                // Another job's end removed the key between our look-up and our grant.
                Err(AcquireError::NoSuchKey) => {}
                Err(refused) => return Err(NoLease::Refused(refused)),
            }
        }
    }

    /// Ends the lease of an attempt that is given up.
    pub(crate) fn revoke(&self, serial: &Serial) {
        // Stale: it has not got that far, and will see that it is fenced.
        let _ = self.leases.revoke(&serial.key, serial.token(), "no sign of life in time");
    }

    /// A late attempt, which may have had the lease, or been granted it for a moment, when the key's last
    /// owner was at its end, has come back. If nobody holds a lease on the key its entry goes; whoever owns
    /// the key makes another one when he needs it.
    pub(crate) fn left_late(&self, key: &JobKey) {
        let _ = self.leases.remove(key);
    }

    /// How many wait in line.
    pub(crate) fn in_line(&self) -> usize {
        let count = |shard: &Mutex<Queues>| shard.lock().values().map(VecDeque::len).sum::<usize>();
        self.shards.iter().map(count).sum()
    }

    /// All who wait in line, out of it; the owners keep their keys.
    pub(crate) fn drain(&self) -> Vec<JobRef> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            for queue in shard.values_mut() {
                all.extend(queue.drain(..));
            }
        }
        all
    }
}
