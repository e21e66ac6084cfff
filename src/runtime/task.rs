//! Tasks: futures, polled on the workers.
//!
//! A poll is an attempt: it has a lease, is watched, and is fenced when it is late. A task that waits is
//! Suspended; its waker makes it Ready and queues it. There is no retry, and no reactor: timers and
//! sockets are whatever the future brings along, woken by whoever drives them.
//!
//! A task that waits is in no queue, so the runtime keeps a list of all tasks that are not over, for the
//! shutdown.

use core::future::Future;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::collections::HashMap;
use std::sync::Arc;

use super::cell::{Body, Header, JobRef, Keep};
use super::ctx::JobCtx;
use super::error::{SubmitError, Unkept};
use super::handle::JobHandle;
use super::options::{Options, Priority};
use super::outcome::Outcome;
use super::shared::Shared;
use super::state::{State, StateCell};
use crate::lock::{Unseen, UnseenGuard};

/// A future that is polled in its place.
struct Task<F>(F);

impl<F> Body for Task<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    type Value = F::Output;
    const RETRYABLE: bool = false;
    const TASK: bool = true;
    const KEEP: Keep = Keep::Not(Unkept::Task);

    unsafe fn call(this: *mut Self, ctx: &JobCtx) -> Option<Outcome<F::Output>> {
        let job = ctx.job().as_ptr();
        // SAFETY: the waker is only lent: it stands for the reference of the attempt, which outlives
        // this call, and is never dropped.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw(job)) });
        // SAFETY: one poll at a time: a task that was rescued is dead and never started again, so
        // nobody else is inside (rule 2). It never moves: it lies in the job's allocation until it is
        // dropped there.
        let future = unsafe { Pin::new_unchecked(&mut (*this).0) };
        match future.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => Some(Outcome::Done(value)),
            Poll::Pending => None,
        }
    }
}

/// Something that takes one turn after another on the workers, each as long as it likes, and is woken
/// for the next: an actor. Unlike a future it sees the attempt, so it can show life between its steps.
pub(crate) trait Turns: Send + 'static {
    /// One turn, on a worker, never two at once. True: it was the last one. Else the next one comes when
    /// the waker is woken, which it may be already; the waker stays the same for all turns.
    fn turn(&mut self, ctx: &JobCtx, waker: &Waker) -> bool;
}

/// Turns, as a task's closure.
struct InTurns<T>(T);

impl<T: Turns> Body for InTurns<T> {
    type Value = ();
    const RETRYABLE: bool = false;
    const TASK: bool = true;

    unsafe fn call(this: *mut Self, ctx: &JobCtx) -> Option<Outcome<()>> {
        // SAFETY: as for a future: a reference that is only lent.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw(ctx.job().as_ptr())) });
        // SAFETY: as for a future: one turn at a time, and nobody else is inside (rule 2).
        let turns = unsafe { &mut (*this).0 };
        turns.turn(ctx, &waker).then_some(Outcome::Done(()))
    }
}

/// A waker is one reference to the job.
fn raw(job: *mut Header) -> RawWaker {
    const VERBS: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);
    RawWaker::new(job.cast_const().cast(), &VERBS)
}

/// # Safety
/// `data` is the job of a waker that is alive.
unsafe fn borrow(data: *const ()) -> ManuallyDrop<JobRef> {
    // SAFETY: the waker's reference keeps it alive, and is not counted down here.
    ManuallyDrop::new(unsafe { JobRef::from_raw(data.cast_mut().cast()) })
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: called through a waker that is alive.
    let job = unsafe { borrow(data) };
    raw(JobRef::clone(&job).into_raw())
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the waker gives its reference up.
    let job = unsafe { JobRef::from_raw(data.cast_mut().cast()) };
    wake_job(&job);
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: called through a waker that is alive.
    let job = unsafe { borrow(data) };
    wake_job(&job);
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker gives its reference up.
    drop(unsafe { JobRef::from_raw(data.cast_mut().cast::<Header>()) });
}

fn wake_job(job: &JobRef) {
    if !job.state.wake() {
        return;
    }
    // Without a home, or in one that closes, `push` sweeps it: nobody is left to poll it.
    if let Some(home) = job.options.as_ref().and_then(|o| o.home.upgrade()) {
        home.push(job.clone());
    }
}

const SHARDS: usize = 8;

/// The tasks that are not over.
#[derive(Debug)]
pub(crate) struct Tasks {
    // Locks for the beginning and the end of a task, not for its polls. No foreign code under
    // them: a job's last reference is never dropped inside.
    shards: [Unseen<HashMap<u64, JobRef>>; SHARDS],
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Unseen::new(HashMap::new())) }
    }

    fn shard(&self, id: u64) -> UnseenGuard<'_, HashMap<u64, JobRef>> {
        self.shards[id as usize % SHARDS].lock()
    }

    fn add(&self, job: JobRef) {
        let before = self.shard(job.id).insert(job.id, job);
        debug_assert!(before.is_none());
    }

    /// A task is over.
    pub(crate) fn remove(&self, job: &JobRef) {
        if job.is_task() {
            let listed = self.shard(job.id).remove(&job.id);
            drop(listed);
        }
    }

    /// All of them, out of the list.
    pub(crate) fn drain(&self) -> Vec<JobRef> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().drain().map(|(_, j)| j));
        }
        all
    }
}

/// Hands in a future.
pub(crate) fn spawn<F>(
    shared: &Arc<Shared>,
    future: F,
) -> Result<JobHandle<F::Output>, SubmitError<F>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    hand_in(shared, Task(future), None).map_err(|refused| refused.map(|Task(future)| future))
}

/// Hands in turns; the first one needs no wake.
pub(crate) fn spawn_turns<T: Turns>(
    shared: &Arc<Shared>,
    turns: T,
    name: Option<Arc<str>>,
) -> Result<JobHandle<()>, SubmitError<T>> {
    hand_in(shared, InTurns(turns), name).map_err(|refused| refused.map(|InTurns(turns)| turns))
}

fn hand_in<B: Body>(
    shared: &Arc<Shared>,
    body: B,
    name: Option<Arc<str>>,
) -> Result<JobHandle<B::Value>, SubmitError<B>> {
    if shared.closing.has_begun() {
        return Err(SubmitError::Closed(body));
    }
    if !shared.room.take() {
        return Err(SubmitError::Full(body));
    }
    let mut options = Options { home: shared.weak(), name, ..Options::default() };
    options.in_span();
    let (job, handle) = JobRef::new(
        body,
        StateCell::new(State::Ready),
        shared.address(),
        shared.next_id(),
        Priority::Normal,
        Some(Box::new(options)),
    );
    shared.tasks.add(job.clone());
    shared.push(job);
    Ok(JobHandle::new(handle))
}
