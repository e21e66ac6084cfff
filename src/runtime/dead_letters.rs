//! The dead letters, as users see them: to look through, to replay, to throw away.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use super::cell::{Again, AgainUnseen, Body, JobRef, Lien};
use super::error::{DeadLetter, ReplayError};
use super::events::Event;
use super::handle::JobHandle;
use super::letters::{Entry, Kept, NotTaken};
use super::options::{JobId, JobKey, Options, Origin};
use super::shared::Shared;
use super::state::{State, StateCell};
use crate::clock::{Clock, Timestamp};
use crate::retry::Stop;

/// The jobs that ended dead and were not thrown away. From
/// [`Runtime::dead_letters`](super::Runtime::dead_letters).
///
/// A view: letters come and go while it is used. Each call is one step; of several replays and purges
/// of one letter, at whatever time, one has it and the others find
/// [`ReplayError::NoSuchLetter`] or nothing.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// use tenure::runtime::{LetterFilter, Runtime};
/// # use tenure::retry::RetryPolicy;
///
/// static DOWN: AtomicBool = AtomicBool::new(true);
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder()
///     .workers(1)
///     .retry(RetryPolicy::never())
///     .replayable(true)
///     .build()?;
/// let send = |_: &_| if DOWN.load(Relaxed) { Err("nobody there") } else { Ok("sent") };
/// let job = runtime.job(send).name("mail").submit()?;
/// let id = job.id();
/// assert!(job.get().is_err());
///
/// let letter = runtime.dead_letters().get(id).ok_or("kept")?;
/// assert_eq!(letter.last_error().map(|cause| cause.to_string()), Some("nobody there".into()));
///
/// DOWN.store(false, Relaxed);
/// assert_eq!(runtime.dead_letters().replay_as::<&str>(id)?.get()?, "sent");
/// assert!(runtime.dead_letters().find(&LetterFilter::new().name("mail")).is_empty());
/// # Ok(())
/// # }
/// ```
///
/// # What can be replayed
///
/// | job | replayed | otherwise |
/// |---|---|---|
/// | [`submit`](super::Runtime::submit), [`job`](super::Runtime::job), [`submit_many`](super::Runtime::submit_many), a tick of [`repeat`](super::Runtime::repeat) | if its closure is kept | [`Unkept::NotAsked`](super::Unkept::NotAsked) |
/// | a replay | the same | |
/// | [`submit_mut`](super::Runtime::submit_mut), [`job_mut`](super::Runtime::job_mut) | no: what it has captured is what its last attempt left | [`Unkept::InTurn`](super::Unkept::InTurn) |
/// | [`submit_once`](super::Runtime::submit_once), [`job_once`](super::Runtime::job_once), a task of an executor | no: it was called | [`Unkept::OneAttempt`](super::Unkept::OneAttempt) |
/// | [`spawn`](super::Runtime::spawn) | no: a future is polled to its end once | [`Unkept::Task`](super::Unkept::Task) |
///
/// Closures are kept where that was asked for, for all jobs
/// ([`Builder::replayable`](super::Builder::replayable)) or for one
/// ([`Job::replayable`](super::Job::replayable)), because it has a price: what a closure has captured lives
/// as long as its letter, so a channel's receiver does not see that the last sender is gone, and a
/// captured [`Runtime`](super::Runtime) is not closed by the drop of its other clones. A letter that
/// goes (purged, taken, replayed to an end, pushed out by newer ones) takes its closure along, and the
/// end of the runtime takes them all. So at most as many closures are kept as letters.
///
/// # What a replay is
///
/// A new job, with an id of its own and the closure, name, keys, priority and policies of the old one; its
/// deadline counts from the replay. It stands behind what waits already, lines up for its key, counts its attempts from 1,
/// and its tokens are greater than all of the old one's. Its letter, should it die, names the one
/// it came from ([`DeadLetter::replay_of`]).
#[derive(Clone, Copy)]
pub struct DeadLetters<'r>(&'r Arc<Shared>);

/// Which letters: those that all that was said is true of. The empty one is for all letters.
#[derive(Clone, Default)]
pub struct LetterFilter {
    name: Option<Arc<str>>,
    key: Option<JobKey>,
    stop: Option<Stop>,
    older_than: Option<Duration>,
    matching: Option<Matching>,
}

type Matching = Arc<dyn Fn(&DeadLetter) -> bool + Send + Sync>;

impl LetterFilter {
    /// All letters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Of jobs with this name.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Of jobs with this key.
    #[must_use]
    pub fn key(mut self, key: impl Into<JobKey>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Of jobs that this ended.
    #[must_use]
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Of jobs that died at least so long ago, by the runtime's clock.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Self {
        self.older_than = Some(age);
        self
    }

    /// Of jobs that this is true of. Called on the thread that uses the filter, with no lock held.
    #[must_use]
    pub fn matching(mut self, f: impl Fn(&DeadLetter) -> bool + Send + Sync + 'static) -> Self {
        self.matching = Some(Arc::new(f));
        self
    }

    /// Whether it is for this letter, at this time.
    #[must_use]
    pub fn is_for(&self, letter: &DeadLetter, now: Timestamp) -> bool {
        self.name.as_ref().is_none_or(|name| letter.name.as_ref() == Some(name))
            && self.key.as_ref().is_none_or(|key| letter.key.as_ref() == Some(key))
            && self.stop.is_none_or(|stop| letter.stop == stop)
            && self.older_than.is_none_or(|age| now.saturating_since(letter.died) >= age)
            && self.matching.as_ref().is_none_or(|matching| matching(letter))
    }
}

impl fmt::Debug for LetterFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LetterFilter")
            .field("name", &self.name)
            .field("key", &self.key)
            .field("stop", &self.stop)
            .field("older_than", &self.older_than)
            .finish_non_exhaustive()
    }
}

/// What became of many letters that were to be replayed.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Replays {
    /// The letters whose jobs were handed in again, and the new jobs.
    pub replayed: Vec<(JobId, JobHandle<()>)>,
    /// The letters that stay where they are (or that somebody else had first), and why.
    pub refused: Vec<(JobId, ReplayError)>,
}

impl<'r> DeadLetters<'r> {
    pub(crate) fn new(shared: &'r Arc<Shared>) -> Self {
        Self(shared)
    }

    /// All letters, the oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<DeadLetter>> {
        self.0.letters.all()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.letters.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The letter of this job.
    #[must_use]
    pub fn get(&self, job: JobId) -> Option<Arc<DeadLetter>> {
        self.0.letters.with(job, |entry| Arc::clone(&entry.letter))
    }

    /// The letters that the filter is for, the oldest first.
    #[must_use]
    pub fn find(&self, filter: &LetterFilter) -> Vec<Arc<DeadLetter>> {
        let now = self.0.clock.now();
        let mut letters = self.list();
        letters.retain(|letter| filter.is_for(letter, now));
        letters
    }

    /// Whether the letter's job could be replayed, but for what may change: room, a shutdown.
    ///
    /// # Errors
    /// [`ReplayError`] says why not.
    pub fn can_replay(&self, job: JobId) -> Result<(), ReplayError> {
        match self.0.letters.with(job, |entry| entry.kept.as_ref().err().copied()) {
            None => Err(ReplayError::NoSuchLetter),
            Some(Some(why)) => Err(ReplayError::NotKept(why)),
            Some(None) => Ok(()),
        }
    }

    /// Hands the letter's job in again; the value that it may make is dropped. The letter goes.
    ///
    /// # Errors
    /// [`ReplayError`]; the letter stays where it is.
    pub fn replay(&self, job: JobId) -> Result<JobHandle<()>, ReplayError> {
        let (letter, kept) = self.claim(job, |_| true)?;
        Ok(self.hand_in(letter, kept, AgainUnseen))
    }

    /// The same for whoever knows what the job makes: its handle has the value.
    ///
    /// # Errors
    /// [`ReplayError`], also if the job makes something else; the letter stays where it is.
    pub fn replay_as<T: Send + 'static>(&self, job: JobId) -> Result<JobHandle<T>, ReplayError> {
        let (letter, kept) = self.claim(job, Lien::makes::<T>)?;
        // SAFETY: asked just now.
        Ok(self.hand_in(letter, kept, |lien| unsafe { Again::<T>::new(lien) }))
    }

    /// Replays all letters that the filter is for, the oldest first, one by one.
    pub fn replay_all(&self, filter: &LetterFilter) -> Replays {
        let mut replays = Replays::default();
        for letter in self.find(filter) {
            match self.replay(letter.id) {
                Ok(handle) => replays.replayed.push((letter.id, handle)),
                Err(why) => replays.refused.push((letter.id, why)),
            }
        }
        replays
    }

    /// Throws the letter of this job away; it comes back for a last look. Its closure is dropped here,
    /// unless an attempt is still inside.
    pub fn purge(&self, job: JobId) -> Option<Arc<DeadLetter>> {
        let entry = self.0.letters.remove(job)?;
        let letter = Arc::clone(&entry.letter);
        self.0.counters.letters_purged.share(1);
        self.0.contained("drop of a closure", move || drop(entry));
        Some(letter)
    }

    /// Throws all letters away that the filter is for. Those that this call threw away come back.
    pub fn purge_all(&self, filter: &LetterFilter) -> Vec<Arc<DeadLetter>> {
        self.find(filter).into_iter().filter_map(|letter| self.purge(letter.id)).collect()
    }

    /// Takes all letters out; closures are dropped.
    #[must_use]
    pub fn take(&self) -> Vec<Arc<DeadLetter>> {
        let taken = self.0.letters.take_all().into_iter().map(|entry| {
            let letter = Arc::clone(&entry.letter);
            self.0.contained("drop of a closure", move || drop(entry));
            letter
        });
        taken.collect()
    }

    /// A place in the runtime and a letter, or neither.
    fn claim(
        &self,
        job: JobId,
        wants: impl FnOnce(&Lien) -> bool,
    ) -> Result<(Arc<DeadLetter>, Kept), ReplayError> {
        let shared = self.0;
        // No place for what is not there.
        self.can_replay(job)?;
        let unique = |entry: &Entry| entry.kept.as_ref().ok()?.options.unique.clone();
        if let Some(live) =
            shared.letters.with(job, unique).flatten().and_then(|key| shared.uniques.find(&key))
        {
            return Err(ReplayError::Duplicate(live.id()));
        }
        if shared.closing.has_begun() {
            return Err(ReplayError::Closed);
        }
        if !shared.room.take() {
            return Err(ReplayError::Full);
        }
        shared.letters.take(job, wants).map_err(|why| {
            shared.room.give_back();
            match why {
                NotTaken::NoSuchLetter => ReplayError::NoSuchLetter,
                NotTaken::Unkept(why) => ReplayError::NotKept(why),
                NotTaken::Unwanted => ReplayError::OtherValue,
            }
        })
    }

    /// Hands in what was claimed.
    fn hand_in<B: Body>(
        &self,
        letter: Arc<DeadLetter>,
        kept: Kept,
        body: impl FnOnce(crate::sync::Arc<Lien>) -> B,
    ) -> JobHandle<B::Value> {
        let shared = self.0;
        let Kept { lien, mut options, priority, epoch } = kept;
        options.in_span();
        options.handed_in(shared);
        options.origin =
            Some(Origin { letter: letter.id, replays: letter.replays.saturating_add(1) });
        let first = if options.serial.is_some() { State::Suspended } else { State::Ready };
        let unique = options.unique.take();
        let make = |options: Options| {
            let word = StateCell::with_epoch(first, epoch);
            let (home, id) = (shared.address(), shared.next_id());
            JobRef::new(body(lien), word, home, id, priority, Some(Box::new(options)))
        };
        let mut rest = Some((make, options));
        let mut make = |unique: Option<JobKey>| {
            let Some((make, mut options)) = rest.take() else { unreachable!("made once") };
            options.unique = unique;
            make(options)
        };
        // Asked before; somebody was faster since: then it goes without its key.
        let made =
            unique.and_then(|key| shared.uniques.admit(&key, || make(Some(key.clone()))).ok());
        let (job, handle) = made.unwrap_or_else(|| make(None));
        shared.counters.replayed.share(1);
        let id = JobId(job.id);
        let watched = Shared::deadline_of(&job).map(|at| (job.clone(), at));
        shared.take_in(job);
        if let Some((job, at)) = watched {
            shared.watch_deadline(job, at);
        }
        shared.subscribers.tell(|| Event::JobReplayed { letter: letter.id, job: id });
        drop(letter);
        JobHandle::new(handle)
    }
}

impl IntoIterator for DeadLetters<'_> {
    type Item = Arc<DeadLetter>;
    type IntoIter = std::vec::IntoIter<Arc<DeadLetter>>;

    /// The letters of now, the oldest first.
    fn into_iter(self) -> Self::IntoIter {
        self.list().into_iter()
    }
}

impl fmt::Debug for DeadLetters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters").field("letters", &self.len()).finish_non_exhaustive()
    }
}
