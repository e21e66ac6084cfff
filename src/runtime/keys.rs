//! Jobs with equal keys run one after another, first come, first served.
//!
//! A key belongs to one job from its admission to its end, its retries included. Those that came
//! later wait, Suspended, in the key's queue. While an attempt of the owner runs, it holds the
//! key's token; a rescue does not wait for the late attempt: the next token is greater.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use super::cell::JobRef;
use super::options::JobKey;

/// A job's key.
#[derive(Debug)]
pub(crate) struct Serial {
    pub(crate) key: JobKey,
}

const SHARDS: usize = 16;

type Queues = HashMap<JobKey, VecDeque<JobRef>>;

/// Which keys are taken, and who waits for them.
#[derive(Debug)]
pub(crate) struct Keys {
    hasher: RandomState,
    // `std` locks: keyed jobs only, and no foreign code under them (a job's last reference is never
    // dropped inside).
    shards: [Mutex<Queues>; SHARDS],
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
        }
    }

    fn shard(&self, key: &JobKey) -> std::sync::MutexGuard<'_, Queues> {
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job, Suspended, asks for its key. True: it has it, resume it; false: it waits in line.
    #[must_use]
    pub(crate) fn admit(&self, key: &JobKey, job: &JobRef) -> bool {
        match self.shard(key).entry(key.clone()) {
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
                let mut shard = self.shard(key);
                match shard.get_mut(key)?.pop_front() {
                    Some(job) => job,
                    None => {
                        shard.remove(key);
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

    /// All who wait in line, out of it; the owners keep their keys.
    pub(crate) fn drain(&self) -> Vec<JobRef> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for queue in shard.values_mut() {
                all.extend(queue.drain(..));
            }
        }
        all
    }
}
