//! Many jobs handed in at once.

use core::fmt;

use super::cell::{JobRef, Many};
use super::ctx::JobCtx;
use super::error::SubmitError;
use super::handle::JobHandle;
use super::options::{Options, Priority};
use super::outcome::IntoOutcome;
use super::shared::Shared;
use super::state::{State, StateCell};

/// Not all of many jobs were taken.
#[derive(thiserror::Error)]
#[error("{} jobs were taken, {} were not: {reason}", .taken.len(), .rest.len())]
pub struct SubmitManyError<F, T> {
    /// The handles of those that were taken.
    pub taken: Vec<JobHandle<T>>,
    /// The others, in their order.
    pub rest: Vec<F>,
    /// Why.
    pub reason: SubmitError<()>,
}

impl<F, T> fmt::Debug for SubmitManyError<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitManyError")
            .field("taken", &self.taken.len())
            .field("rest", &self.rest.len())
            .field("reason", &self.reason)
            .finish()
    }
}

/// Hands in many jobs, and wakes workers once.
#[expect(clippy::type_complexity, reason = "the error gives all of it back")]
pub(crate) fn submit_many<F, R>(
    shared: &Shared,
    jobs: impl IntoIterator<Item = F>,
) -> Result<Vec<JobHandle<R::Value>>, SubmitManyError<F, R::Value>>
where
    F: Fn(&JobCtx) -> R + Send + Sync + 'static,
    R: IntoOutcome,
    R::Value: Send + 'static,
{
    // The iterator is foreign code: it runs before anything is promised to anybody.
    let mut jobs = jobs.into_iter().collect::<Vec<_>>().into_iter();
    let mut taken = Vec::with_capacity(jobs.len());
    let mut entries = Vec::with_capacity(jobs.len());
    let mut reason = None;
    while jobs.len() > 0 {
        if shared.closing.has_begun() {
            reason = Some(SubmitError::Closed(()));
            break;
        }
        if !shared.room.take() {
            reason = Some(SubmitError::Full(()));
            break;
        }
        let Some(closure) = jobs.next() else { break };
        let (job, handle) = JobRef::new(
            Many(closure),
            StateCell::new(State::Ready),
            shared.address(),
            shared.next_id(),
            Priority::Normal,
            Options::complete(None, shared),
        );
        entries.push(job);
        taken.push(JobHandle::new(handle));
    }
    shared.push_all(entries);
    match reason {
        None => Ok(taken),
        Some(reason) => Err(SubmitManyError { taken, rest: jobs.collect(), reason }),
    }
}
