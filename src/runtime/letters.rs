//! The dead letters that are kept: what died, why, and the closures that can be called again.
//!
//! One lock around two indices: by when a letter came, and by its job. Whoever takes a letter out under
//! the lock has it: so of several replays and purges of one letter, one wins. Letters and closures are the
//! user's: they are dropped after the lock is given back.
//!
//! A replay takes its place in the runtime first, then its letter, and then cannot fail: so a letter is
//! never out and back.
//!
//! When the runtime has ended, nothing can be replayed: the closures go, the letters stay.

use core::fmt;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc as StdArc;

use super::cell::{JobRef, Lien, contained};
use super::error::{DeadLetter, Unkept};
use super::options::{JobId, Options, Priority};
use crate::lock::Mutex;
use crate::sync::Arc;

/// What happens to letters when as many are kept as may be.
///
/// What goes, or does not come in, is counted
/// ([`Stats::letters_lost`](super::Stats::letters_lost)) and handed to
/// [`Builder::on_letter_lost`](super::Builder::on_letter_lost).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LettersFull {
    /// The oldest one goes.
    #[default]
    DropOldest,
    /// The new one is not kept: the first failures tell most of what went wrong.
    RejectNewest,
}

/// What a replay needs beside the closure.
pub(crate) struct Kept {
    pub(crate) lien: Arc<Lien>,
    pub(crate) options: Options,
    pub(crate) priority: Priority,
    /// The last epoch of the job that died: tokens go on from there.
    pub(crate) epoch: u32,
}

/// A letter, and whether its job can be had again.
pub(crate) struct Entry {
    pub(crate) letter: StdArc<DeadLetter>,
    pub(crate) kept: Result<Kept, Unkept>,
}

/// See the [file's docs](self).
pub(crate) struct Letters {
    limit: usize,
    full: LettersFull,
    /// Whether closures are kept where the job does not say.
    replayable: bool,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// Counts letters; the key of the next one.
    next: u64,
    by_age: BTreeMap<u64, Entry>,
    by_job: HashMap<JobId, u64>,
    /// Nothing can be replayed any more.
    closed: bool,
}

impl List {
    fn remove(&mut self, job: JobId) -> Option<Entry> {
        self.by_age.remove(&self.by_job.remove(&job)?)
    }

    fn add(&mut self, entry: Entry) {
        self.by_job.insert(entry.letter.id, self.next);
        self.by_age.insert(self.next, entry);
        self.next += 1;
    }

    fn remove_oldest(&mut self) -> Option<Entry> {
        let (_, entry) = self.by_age.pop_first()?;
        self.by_job.remove(&entry.letter.id);
        Some(entry)
    }
}

/// Why no entry came out.
pub(crate) enum NotTaken {
    /// There is none of this job.
    NoSuchLetter,
    /// It cannot be replayed.
    Unkept(Unkept),
    /// The caller does not want it.
    Unwanted,
}

impl Letters {
    pub(crate) fn new(limit: usize, full: LettersFull, replayable: bool) -> Self {
        Self { limit, full, replayable, list: Mutex::new(List::default()) }
    }

    /// Keeps the closure of a job that is about to be dead, if it is to be kept. `leaving`, here and in
    /// the answer: see [`JobRef::keep`]. The caller owns Completing.
    pub(crate) fn closure_of(&self, job: &JobRef, leaving: bool) -> (Result<Kept, Unkept>, bool) {
        let options = job.options.as_deref();
        if !options.and_then(|o| o.replayable).unwrap_or(self.replayable) {
            return (Err(Unkept::NotAsked), leaving);
        }
        let (lien, leaving) = job.keep(leaving);
        let kept = lien.map(|lien| Kept {
            lien,
            options: options.map(Options::again).unwrap_or_default(),
            priority: job.priority,
            epoch: job.state.peek().epoch(),
        });
        (kept, leaving)
    }

    /// Puts a letter to the others. What there is no room for comes back: let go of it.
    #[must_use]
    pub(crate) fn put(&self, mut entry: Entry) -> Option<Entry> {
        if self.limit == 0 {
            return Some(entry);
        }
        let mut list = self.list.lock();
        let full = list.by_age.len() >= self.limit;
        if full && self.full == LettersFull::RejectNewest {
            return Some(entry);
        }
        let late = list.closed.then(|| core::mem::replace(&mut entry.kept, Err(Unkept::Ended)));
        list.add(entry);
        let oldest = full.then(|| list.remove_oldest()).flatten();
        drop(list);
        contained(move || drop(late));
        oldest
    }

    pub(crate) fn len(&self) -> usize {
        self.list.lock().by_age.len()
    }

    /// All letters, the oldest first.
    pub(crate) fn all(&self) -> Vec<StdArc<DeadLetter>> {
        self.list.lock().by_age.values().map(|entry| StdArc::clone(&entry.letter)).collect()
    }

    /// Looks at one.
    pub(crate) fn with<R>(&self, job: JobId, f: impl FnOnce(&Entry) -> R) -> Option<R> {
        let list = self.list.lock();
        list.by_age.get(list.by_job.get(&job)?).map(f)
    }

    /// Takes one out.
    pub(crate) fn remove(&self, job: JobId) -> Option<Entry> {
        self.list.lock().remove(job)
    }

    /// Takes one out that can be replayed, and that the caller `wants`.
    pub(crate) fn take(
        &self,
        job: JobId,
        wants: impl FnOnce(&Lien) -> bool,
    ) -> Result<(StdArc<DeadLetter>, Kept), NotTaken> {
        let mut list = self.list.lock();
        let at = *list.by_job.get(&job).ok_or(NotTaken::NoSuchLetter)?;
        let entry = list.by_age.get(&at).ok_or(NotTaken::NoSuchLetter)?;
        match &entry.kept {
            Err(why) => return Err(NotTaken::Unkept(*why)),
            Ok(kept) if !wants(&kept.lien) => return Err(NotTaken::Unwanted),
            Ok(_) => {}
        }
        let Entry { letter, kept } = list.remove(job).ok_or(NotTaken::NoSuchLetter)?;
        kept.map(|kept| (letter, kept)).map_err(NotTaken::Unkept)
    }

    /// Takes all of them out.
    pub(crate) fn take_all(&self) -> Vec<Entry> {
        let mut list = self.list.lock();
        list.by_job.clear();
        core::mem::take(&mut list.by_age).into_values().collect()
    }

    /// The runtime has ended: lets go of the closures.
    pub(crate) fn close(&self) {
        let mut list = self.list.lock();
        list.closed = true;
        let replace = |entry: &mut Entry| match entry.kept {
            Ok(_) => core::mem::replace(&mut entry.kept, Err(Unkept::Ended)).ok(),
            Err(_) => None,
        };
        let kept: Vec<Kept> = list.by_age.values_mut().filter_map(replace).collect();
        drop(list);
        for kept in kept {
            contained(move || drop(kept));
        }
    }
}

impl fmt::Debug for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Letters").field("limit", &self.limit).finish_non_exhaustive()
    }
}
