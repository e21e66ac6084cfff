//! Unique keys: of all jobs with one key, one is live.
//!
//! A key belongs to the job that brought it, from its submit to its end. One that comes meanwhile is not
//! taken, and its submitter is told which job has the key.
//!
//! The end is the job's final word; its ender takes the key off the list after that. Who submits in
//! between finds a job that is over, and takes its place; the ender finds that the place is another's.

use core::fmt;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};

use crate::lock::Mutex;
use crate::runtime::cell::JobRef;
use crate::runtime::handle;
use crate::runtime::options::{JobId, JobKey};

const SHARDS: usize = 16;

/// The keys that are taken, and by whom.
#[derive(Debug)]
pub(crate) struct Uniques {
    hasher: RandomState,
    // No foreign code under them: a job's last reference is dropped outside.
    shards: [Mutex<HashMap<JobKey, JobRef>>; SHARDS],
}

impl Uniques {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
        }
    }

    fn shard(&self, key: &JobKey) -> &Mutex<HashMap<JobKey, JobRef>> {
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        &self.shards[at]
    }

    /// Has the job that `make` makes take the key. `Err`: who has it; nothing was made.
    pub(crate) fn admit<R>(
        &self,
        key: &JobKey,
        make: impl FnOnce() -> (JobRef, R),
    ) -> Result<(JobRef, R), LiveJob> {
        let mut shard = self.shard(key).lock();
        let (made, before) = match shard.entry(key.clone()) {
            Entry::Occupied(taken) if !taken.get().state.peek().state().is_final() => {
                return Err(LiveJob(taken.get().clone()));
            }
            // Over, and about to be taken off.
            Entry::Occupied(mut over) => {
                let made = make();
                let before = over.insert(made.0.clone());
                (made, Some(before))
            }
            Entry::Vacant(free) => {
                let made = make();
                free.insert(made.0.clone());
                (made, None)
            }
        };
        drop(shard);
        drop(before);
        Ok(made)
    }

    /// Who has the key.
    pub(crate) fn find(&self, key: &JobKey) -> Option<LiveJob> {
        let live = self.shard(key).lock().get(key).cloned();
        live.filter(|job| !job.state.peek().state().is_final()).map(LiveJob)
    }

    /// The job is over: the key is free, unless another one has it by now.
    pub(crate) fn remove(&self, key: &JobKey, job: &JobRef) {
        let mut shard = self.shard(key).lock();
        let ours = shard.get(key).is_some_and(|other| core::ptr::eq(other.as_raw(), job.as_raw()));
        let removed = if ours { shard.remove(key) } else { None };
        drop(shard);
        drop(removed);
    }

    /// How many keys are taken.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

/// The job that has a unique key, as one is told who brought another of that key. It may end at any
/// time.
#[derive(Clone)]
pub struct LiveJob(JobRef);

impl LiveJob {
    /// Which job.
    #[must_use]
    pub fn id(&self) -> JobId {
        JobId(self.0.id)
    }

    /// The job's name, if it was given one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.options.as_ref()?.name.as_deref()
    }

    /// Whether it is over by now, so that its key is free.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.state.settled().is_some()
    }

    /// Asks that it end. As [`JobHandle::cancel`](crate::runtime::JobHandle::cancel).
    pub fn cancel(&self) -> bool {
        handle::cancel(&self.0)
    }
}

impl fmt::Debug for LiveJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LiveJob").field(&self.0).finish()
    }
}
