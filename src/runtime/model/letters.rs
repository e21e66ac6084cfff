//! For the models: dead letters, what keeps their closures, who replays them.

use std::sync::Arc;

use super::{Begun, End, Job};
use crate::clock::Timestamp;
use crate::retry::Stop;
use crate::runtime::cell::{AgainUnseen, JobRef};
use crate::runtime::error::{DeadLetter, JobError};
use crate::runtime::letters::{Entry, Letters, LettersFull};
use crate::runtime::options::{JobId, Priority};
use crate::runtime::state::{Lost, State, StateCell, Then};

/// The letters that are kept, with their closures.
#[derive(Debug)]
pub struct Post(Letters);

impl Post {
    /// With room for so many.
    pub fn new(limit: usize) -> Self {
        Self(Letters::new(limit, LettersFull::DropOldest, true))
    }

    /// As the driver that gives this attempt up, which was the last one.
    pub fn give_up(&self, job: &Job, begun: Begun) -> End {
        match job.0.state.rescue(begun.epoch, Then::Die, true) {
            Lost::Dying => self.bury(job, false),
            Lost::Backoff { .. }
            | Lost::Cancelled(_)
            | Lost::Alive
            | Lost::Outlived
            | Lost::Fenced => End::Nothing,
        }
    }

    fn bury(&self, job: &Job, leaving: bool) -> End {
        let (kept, leaving) = self.0.closure_of(&job.0, leaving);
        let letter = Arc::new(DeadLetter {
            id: JobId(job.0.id),
            name: None,
            key: None,
            history: Vec::new(),
            omitted: 0,
            stop: Stop::MaxAttempts,
            died: Timestamp::ORIGIN,
            replay_of: None,
            replays: 0,
        });
        let surplus = self.0.put(Entry { letter: Arc::clone(&letter), kept });
        // SAFETY: the word said Dying, so Completing is ours.
        let ended = unsafe { job.0.die(JobError::Dead(letter), leaving) };
        job.finish(ended);
        drop(surplus);
        End::Dead
    }

    /// Takes the letter of the job with this id and runs its job again, here, once. True: it was there.
    pub fn replay(&self, id: u64) -> bool {
        let Ok((_, kept)) = self.0.take(JobId(id), |_| true) else { return false };
        let word = StateCell::with_epoch(State::Ready, kept.epoch);
        let (job, handle) =
            JobRef::new(AgainUnseen(kept.lien), word, 0, id + 1, Priority::Normal, None);
        drop(handle);
        let job = Job(job);
        let Ok(begun) = job.begin() else { unreachable!("it is ours alone") };
        // If it fails, there is a letter again.
        self.come_out(&job, begun);
        true
    }

    /// As the attempt that is inside and comes to its end: a failure, or too late.
    pub fn come_out(&self, job: &Job, begun: Begun) -> End {
        if !job.fails(begun) {
            return End::Succeeded;
        }
        match job.0.state.fail(begun.epoch, Then::Die) {
            Lost::Dying => self.bury(job, true),
            _ => job.late(1),
        }
    }

    /// Throws the letter away. True: it was there.
    pub fn purge(&self, id: u64) -> bool {
        self.0.remove(JobId(id)).is_some()
    }

    /// As the end of the runtime.
    pub fn close(&self) {
        self.0.close();
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
