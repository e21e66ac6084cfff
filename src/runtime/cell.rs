//! A job's one allocation: the word, the closure, the result slot. The only `unsafe` of the room.
//!
//! # Who may touch what
//!
//! 1. `state`, `references`: anybody with a reference.
//! 2. `closure`: attempts between `start` and their exit (`runners` counts them), and a dead letter
//!    that keeps it, with its replays (`cell/again.rs`); several at once only by shared reference, and only for closures that are `Sync`; others are called once, or
//!    (`ALONE`) become Ready again only when nobody is inside. Dropped by whoever makes the
//!    word final with nobody inside, once.
//! 3. `result`: written by the owner of Completing; after a final word read by the handle, or by
//!    the ender if the handle was gone.
//! 4. `waiter`: the handle while WAITER is clear; whoever ends the job once it sees WAITER.
//! 5. `past`: behind its lock.
//! 6. `options`, `id`, `home`, `verbs`, `priority`: never change.
//!
//! A reference is one count in `references`; the last one frees. Entries in queues, timers, running
//! attempts, key queues and the handle hold one each.

mod again;

use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::panic::AssertUnwindSafe;
use core::ptr::NonNull;
use core::task::Waker;
use std::panic::catch_unwind;

pub(crate) use again::{Again, AgainUnseen, Keep, Lien};

use super::ctx::JobCtx;
use super::error::{JobError, JobPanic, Unkept};
use super::options::{Options, Past, Priority};
use super::outcome::{IntoOutcome, Outcome};
use super::policy::Verdict;
use super::state::{Claim, Ended, State, StateCell};
use crate::lock::Unseen;
use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::cell::UnsafeCell;

/// Everything about a job that does not depend on its types.
#[repr(C)]
pub(crate) struct Header {
    pub(super) state: StateCell,
    references: AtomicU32,
    pub(super) priority: Priority,
    verbs: &'static Verbs,
    pub(super) id: u64,
    /// Which runtime's: the address of what its threads share.
    pub(super) home: usize,
    waiter: UnsafeCell<Option<Waker>>,
    /// When it was queued, if that is measured; 0: it is not, or was read.
    #[cfg(feature = "metrics")]
    queued: crate::sync::atomic::AtomicU64,
    pub(super) options: Option<Box<Options>>,
    // Taken when an attempt fails, never on the way of a job that succeeds. No foreign code under it.
    past: Unseen<Option<Box<Past>>>,
}

/// What needs the types.
struct Verbs {
    retryable: bool,
    task: bool,
    alone: bool,
    keep: Keep,
    attempt: unsafe fn(NonNull<Header>, &JobCtx) -> Ran,
    write_error: unsafe fn(NonNull<Header>, JobError),
    /// The last argument points to a place for a `Result<T, JobError>`.
    take_result: unsafe fn(NonNull<Header>, NonNull<()>),
    drop_result: unsafe fn(NonNull<Header>),
    drop_closure: unsafe fn(NonNull<Header>),
    free: unsafe fn(NonNull<Header>),
}

#[repr(C)]
struct Cell<B: Body> {
    header: Header,
    closure: UnsafeCell<ManuallyDrop<B>>,
    result: UnsafeCell<Option<Result<B::Value, JobError>>>,
}

/// How an attempt came out of the closure.
#[must_use]
pub(crate) enum Ran {
    /// The value is in the slot; the caller owns Completing: publish Succeeded.
    Written,
    /// There was a value, but the attempt was no longer the current one. The value is dropped.
    Fenced,
    /// No value.
    Failed(Failure),
    /// It asks for another turn.
    Snoozed(core::time::Duration),
    /// It asks to be cancelled.
    Cancelled,
    /// A task that waits to be woken.
    Pending,
}

/// Why an attempt has no value.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) cause: super::error::AttemptError,
    /// Whether another attempt makes sense.
    pub(crate) retryable: bool,
    /// The job's own wish for the delay.
    pub(crate) delay: Option<core::time::Duration>,
}

/// A closure of some kind.
pub(crate) trait Body: Send + 'static {
    type Value: Send + 'static;
    /// Whether it can be called more than once, and by several threads at once.
    const RETRYABLE: bool;
    /// Whether it is a future.
    const TASK: bool = false;
    /// Whether no two attempts may be inside it at one time, so that one waits for a late other.
    const ALONE: bool = false;
    /// What becomes of it when its job is dead.
    const KEEP: Keep = Keep::Not(Unkept::OneAttempt);
    /// Calls it. `None`: it is a task that waits to be woken.
    ///
    /// # Safety
    /// Between `start` and the exit of the attempt; not RETRYABLE: at most once in its life.
    unsafe fn call(this: *mut Self, ctx: &JobCtx) -> Option<Outcome<Self::Value>>;
}

/// `Fn + Sync`: may be retried, also while a late attempt is still inside.
pub(crate) struct Many<F>(pub(crate) F);

impl<F, R> Body for Many<F>
where
    F: Fn(&JobCtx) -> R + Send + Sync + 'static,
    R: IntoOutcome,
    R::Value: Send + 'static,
{
    type Value = R::Value;
    const RETRYABLE: bool = true;
    const KEEP: Keep = Keep::Own(again::Calls::of::<Self>());

    unsafe fn call(this: *mut Self, ctx: &JobCtx) -> Option<Outcome<R::Value>> {
        // SAFETY: the caller is inside (rule 2), so the closure is alive; shared only, and `F: Sync`.
        let f = unsafe { &(*this).0 };
        Some(f(ctx).into_outcome())
    }
}

/// `FnMut`: may be retried, but not while a late attempt is still inside.
pub(crate) struct InTurn<F>(pub(crate) F);

impl<F, R> Body for InTurn<F>
where
    F: FnMut(&JobCtx) -> R + Send + 'static,
    R: IntoOutcome,
    R::Value: Send + 'static,
{
    type Value = R::Value;
    const RETRYABLE: bool = true;
    const ALONE: bool = true;
    const KEEP: Keep = Keep::Not(Unkept::InTurn);

    unsafe fn call(this: *mut Self, ctx: &JobCtx) -> Option<Outcome<R::Value>> {
        // SAFETY: the caller is inside (rule 2), and nobody else: a job of this kind becomes Ready
        // again only with no runner inside (`fire_alone`, `exit_alone`). So exclusive.
        let f = unsafe { &mut (*this).0 };
        Some(f(ctx).into_outcome())
    }
}

/// A task of the promise room, which was handed to the runtime as its executor.
pub(crate) struct Handed(pub(crate) Option<crate::executor::Task>);

impl Body for Handed {
    type Value = ();
    const RETRYABLE: bool = false;

    unsafe fn call(this: *mut Self, _ctx: &JobCtx) -> Option<Outcome<()>> {
        // SAFETY: one attempt in its life, as with `Once`.
        if let Some(task) = unsafe { (*this).0.take() } {
            task.run();
        }
        Some(Outcome::Done(()))
    }
}

/// `FnOnce`: one attempt.
pub(crate) struct Once<F>(pub(crate) Option<F>);

impl<F, R> Body for Once<F>
where
    F: FnOnce(&JobCtx) -> R + Send + 'static,
    R: IntoOutcome,
    R::Value: Send + 'static,
{
    type Value = R::Value;
    const RETRYABLE: bool = false;

    unsafe fn call(this: *mut Self, ctx: &JobCtx) -> Option<Outcome<R::Value>> {
        // SAFETY: one attempt in its life, so nobody else is inside (rule 2): exclusive.
        match unsafe { (*this).0.take() } {
            Some(f) => Some(f(ctx).into_outcome()),
            None => Some(Outcome::Cancel),
        }
    }
}

impl<B: Body> Cell<B> {
    const VERBS: Verbs = Verbs {
        retryable: B::RETRYABLE,
        task: B::TASK,
        alone: B::ALONE,
        keep: B::KEEP,
        attempt: attempt::<B>,
        write_error: write_error::<B>,
        take_result: take_result::<B>,
        drop_result: drop_result::<B>,
        drop_closure: drop_closure::<B>,
        free: free::<B>,
    };
}

/// # Safety
/// `at` is a `Cell<B>` and the caller is the current or a late attempt, inside the closure.
unsafe fn attempt<B: Body>(at: NonNull<Header>, ctx: &JobCtx) -> Ran {
    let cell = at.cast::<Cell<B>>().as_ptr();
    // SAFETY: alive: the attempt holds a reference. The closure is reached through a raw pointer
    // that `call` uses as its kind allows (rule 2).
    let closure = unsafe { (*cell).closure.with(|c| c.cast_mut()) }.cast::<B>();
    // User code: no lock held, the word is Leased, and a panic is an attempt that failed.
    // SAFETY: inside, see above; `ManuallyDrop` is transparent.
    let outcome = match catch_unwind(AssertUnwindSafe(|| unsafe { B::call(closure, ctx) })) {
        Ok(Some(outcome)) => outcome,
        Ok(None) => return Ran::Pending,
        Err(payload) => {
            // SAFETY: alive, as above.
            settle(unsafe { at.as_ref() }, ctx, Verdict::Failure);
            return Ran::Failed(Failure::panicked(payload));
        }
    };
    // SAFETY: alive, as above.
    settle(unsafe { at.as_ref() }, ctx, outcome.verdict());
    match outcome {
        Outcome::Done(value) => {
            // SAFETY: alive, as above.
            match unsafe { &at.as_ref().state }.complete(ctx.epoch) {
                Claim::Claimed => {
                    // SAFETY: we own Completing (rule 3).
                    unsafe { (*cell).result.with_mut(|slot| *slot = Some(Ok(value))) };
                    Ran::Written
                }
                Claim::Fenced => {
                    contained(move || drop(value));
                    Ran::Fenced
                }
            }
        }
        Outcome::Retry(cause) => Ran::Failed(Failure::new(cause, true, None)),
        Outcome::RetryAfter(cause, delay) => Ran::Failed(Failure::new(cause, true, Some(delay))),
        Outcome::Fail(cause) => Ran::Failed(Failure::new(cause, false, None)),
        Outcome::Snooze(delay) => Ran::Snoozed(delay),
        Outcome::Cancel => Ran::Cancelled,
    }
}

/// The closure is through: its gates are told, while the word is Leased, since that may call foreign code.
/// So whoever has the job's result finds them told.
#[inline]
fn settle(job: &Header, ctx: &JobCtx, verdict: Verdict) {
    if let Some(gates) = job.options.as_ref().and_then(|o| o.gates.as_deref()) {
        let cancelled = verdict == Verdict::Failure && job.state.peek().cancel_requested();
        gates.settle(ctx.turn(), if cancelled { Verdict::Ignored } else { verdict });
    }
}

impl Failure {
    fn new(cause: super::BoxError, retryable: bool, delay: Option<core::time::Duration>) -> Self {
        Self { cause: super::error::AttemptError::Failed(cause.into()), retryable, delay }
    }

    fn panicked(payload: Box<dyn Any + Send>) -> Self {
        let cause = super::error::AttemptError::Panicked(JobPanic::new(payload));
        Self { cause, retryable: true, delay: None }
    }
}

/// # Safety
/// `at` is a `Cell<B>` whose Completing the caller owns.
unsafe fn write_error<B: Body>(at: NonNull<Header>, error: JobError) {
    // SAFETY: alive by the caller's reference; rule 3.
    unsafe {
        (*at.cast::<Cell<B>>().as_ptr()).result.with_mut(|slot| *slot = Some(Err(error)));
    }
}

/// # Safety
/// `at` is a `Cell<B>` that is Succeeded or Dead, the caller is its handle, nothing was taken yet;
/// `to` is valid for a write of `Option<Result<B::Value, JobError>>`.
unsafe fn take_result<B: Body>(at: NonNull<Header>, to: NonNull<()>) {
    let to = to.cast::<Option<Result<B::Value, JobError>>>().as_ptr();
    // SAFETY: rule 3: the final word was read with Acquire, and the ender saw no DETACHED.
    unsafe {
        (*at.cast::<Cell<B>>().as_ptr()).result.with_mut(|slot| to.write((*slot).take()));
    }
}

/// # Safety
/// `at` is a `Cell<B>`, final, and the slot is the caller's (rule 3).
unsafe fn drop_result<B: Body>(at: NonNull<Header>) {
    // SAFETY: as required of the caller. Taken out first: the drop is user code.
    let taken = unsafe { (*at.cast::<Cell<B>>().as_ptr()).result.with_mut(|slot| (*slot).take()) };
    contained(move || drop(taken));
}

/// # Safety
/// `at` is a `Cell<B>` and the caller is told to drop the closure (rule 2): once.
unsafe fn drop_closure<B: Body>(at: NonNull<Header>) {
    contained(|| {
        // SAFETY: final, nobody inside, and nobody comes in any more: `start` needs Ready.
        unsafe {
            (*at.cast::<Cell<B>>().as_ptr()).closure.with_mut(|c| ManuallyDrop::drop(&mut *c));
        }
    });
}

/// # Safety
/// `at` is a `Cell<B>` made by `JobRef::new`, and the caller has dropped its last reference.
unsafe fn free<B: Body>(at: NonNull<Header>) {
    // SAFETY: the allocation of `JobRef::new`; nobody else has it. The closure is dropped already
    // (its field does nothing now), the result is empty or dropped here with the cell.
    let cell = unsafe { Box::from_raw(at.cast::<Cell<B>>().as_ptr()) };
    // Errors of past attempts, and panics' payloads, are foreign: whoever has the last reference, a
    // worker or the driver mostly, is not to die of their drop.
    contained(move || drop(cell));
}

/// Runs foreign code whose panic is nobody's business here. True: it panicked. (In a model a panic
/// is the model's failure, and goes on.)
pub(crate) fn contained(f: impl FnOnce()) -> bool {
    if cfg!(tenure_loom) {
        f();
        return false;
    }
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => false,
        Err(payload) => {
            // The payload's own drop may panic as well; there is no third try.
            if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
                core::mem::forget(second);
            }
            true
        }
    }
}

/// One reference to a job.
pub(crate) struct JobRef(NonNull<Header>);

// SAFETY: the closure and the value are `Send`; the closure is shared between threads only if it is
// `Sync` (rule 2); everything else is behind the word or a lock.
unsafe impl Send for JobRef {}
// SAFETY: as above: a shared `JobRef` gives only what the header's rules give.
unsafe impl Sync for JobRef {}

impl JobRef {
    /// A new job with two references: this one, and the handle's.
    pub(crate) fn new<B: Body>(
        body: B,
        first: StateCell,
        home: usize,
        id: u64,
        priority: Priority,
        options: Option<Box<Options>>,
    ) -> (Self, Handle<B::Value>) {
        let cell = Box::new(Cell::<B> {
            header: Header {
                state: first,
                references: AtomicU32::new(2),
                priority,
                verbs: &Cell::<B>::VERBS,
                id,
                home,
                waiter: UnsafeCell::new(None),
                #[cfg(feature = "metrics")]
                queued: crate::sync::atomic::AtomicU64::new(0),
                options,
                past: Unseen::new(None),
            },
            closure: UnsafeCell::new(ManuallyDrop::new(body)),
            result: UnsafeCell::new(None),
        });
        let at = NonNull::from(Box::leak(cell)).cast::<Header>();
        (Self(at), Handle { job: Self(at), value: PhantomData })
    }

    pub(crate) fn as_raw(&self) -> *mut Header {
        self.0.as_ptr()
    }

    /// Gives up the reference without counting it down.
    pub(crate) fn into_raw(self) -> *mut Header {
        let at = self.0.as_ptr();
        core::mem::forget(self);
        at
    }

    /// Takes a reference back.
    ///
    /// # Safety
    /// Not null, from `into_raw` (or a reference that was left for the caller), once.
    pub(crate) unsafe fn from_raw(at: *mut Header) -> Self {
        // SAFETY: not null, says the caller.
        Self(unsafe { NonNull::new_unchecked(at) })
    }

    /// Whether it is a future, whose attempts are polls.
    pub(crate) fn is_task(&self) -> bool {
        self.verbs.task
    }

    pub(crate) fn retryable(&self) -> bool {
        self.verbs.retryable
    }

    /// Whether its attempts must not meet.
    pub(crate) fn is_alone(&self) -> bool {
        self.verbs.alone
    }

    /// Runs one attempt.
    ///
    /// # Safety
    /// The caller got `Start::Run` from this job's word, for the epoch in `ctx`, and has not left.
    pub(crate) unsafe fn attempt(&self, ctx: &JobCtx) -> Ran {
        // SAFETY: the verbs are those of this cell's types; the rest is the caller's.
        unsafe { (self.verbs.attempt)(self.0, ctx) }
    }

    /// Writes why the job is dead, and publishes.
    ///
    /// # Safety
    /// The caller owns Completing.
    pub(crate) unsafe fn die(&self, error: JobError, leaving: bool) -> Ended {
        // SAFETY: the verbs are those of this cell's types; Completing is the caller's.
        unsafe { (self.verbs.write_error)(self.0, error) };
        self.state.publish(State::Dead, leaving)
    }

    /// Takes the waker that an ended job owes a wake.
    ///
    /// # Safety
    /// `ended` came from this job's word, in this thread; once, and before
    /// [`drop_rest`](Self::drop_rest).
    pub(crate) unsafe fn take_waker(&self, ended: &Ended) -> Option<Waker> {
        // SAFETY: asked only if WAITER was in the word that we ended: rule 4.
        let take = || unsafe { self.waiter.with_mut(|w| (*w).take()) };
        ended.wake.then(take).flatten()
    }

    /// Drops what an ended job's word says that nobody will use: last of all, since these drops are
    /// foreign and may never return.
    ///
    /// # Safety
    /// `ended` came from this job's word, once; by the thread that ended it, or one that it handed
    /// this to.
    pub(crate) unsafe fn drop_rest(&self, ended: Ended) {
        if ended.drop_result {
            // SAFETY: DETACHED was in it: rule 3.
            unsafe { (self.verbs.drop_result)(self.0) };
        }
        if ended.drop_closure {
            // SAFETY: no runners were in it: rule 2.
            unsafe { (self.verbs.drop_closure)(self.0) };
        }
    }

    /// Drops the closure after the last late attempt has left.
    ///
    /// # Safety
    /// `StateCell::exit` told the caller to.
    pub(crate) unsafe fn drop_closure(&self) {
        // SAFETY: rule 2.
        unsafe { (self.verbs.drop_closure)(self.0) };
    }

    /// It is about to be queued.
    #[cfg(feature = "metrics")]
    pub(crate) fn set_queued(&self, at: crate::clock::Timestamp) {
        // ORDERING: Relaxed: ordered by the queue; for information.
        self.queued.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// When it was queued, if that is measured and was not read yet.
    #[cfg(feature = "metrics")]
    #[inline]
    pub(crate) fn take_queued(&self) -> Option<crate::clock::Timestamp> {
        // ORDERING: Relaxed, both: as in `set_queued`.
        let at = self.queued.load(Ordering::Relaxed);
        if at == 0 {
            return None;
        }
        // ORDERING: Relaxed: as above.
        self.queued.store(0, Ordering::Relaxed);
        Some(crate::clock::Timestamp::from_nanos(at))
    }

    /// Looks at, or changes, what the job has been through. No foreign code inside `f`.
    pub(crate) fn past<R>(&self, f: impl FnOnce(&mut Past) -> R) -> R {
        let mut past = self.past.lock();
        f(past.get_or_insert_default())
    }
}

impl Clone for JobRef {
    fn clone(&self) -> Self {
        // ORDERING: Relaxed: a reference is made from one that is alive.
        let before = self.references.fetch_add(1, Ordering::Relaxed);
        // A count that wraps would free too early. It takes 2³¹ leaked references to come here.
        if before > u32::MAX / 2 {
            std::process::abort();
        }
        Self(self.0)
    }
}

impl core::ops::Deref for JobRef {
    type Target = Header;

    fn deref(&self) -> &Header {
        // SAFETY: a reference is held, so the cell is alive; the header is only ever shared.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for JobRef {
    fn drop(&mut self) {
        // ORDERING: Release: what we did with the cell happens before it is freed, by whoever sees
        // the count at zero; pairs with the fence below.
        if self.references.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // ORDERING: Acquire: the other end of the line above.
        fence(Ordering::Acquire);
        // SAFETY: that was the last reference.
        unsafe { (self.verbs.free)(self.0) };
    }
}

impl fmt::Debug for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobRef").field("id", &self.id).field("state", &self.state).finish()
    }
}

/// The reading side of the slot. Exactly one a job.
pub(crate) struct Handle<T> {
    job: JobRef,
    value: PhantomData<fn() -> T>,
}

impl<T> Handle<T> {
    pub(crate) fn job(&self) -> &JobRef {
        &self.job
    }

    /// Leaves a waker. `true`: it will be woken; `false`: the job is over.
    pub(crate) fn register(&mut self, waker: Waker) -> bool {
        // SAFETY: WAITER is clear and only this handle sets it (`&mut`): rule 4.
        let old = unsafe { self.job.waiter.with_mut(|w| (*w).replace(waker)) };
        debug_assert!(old.is_none());
        match self.job.state.register() {
            super::state::Waiting::Registered => true,
            super::state::Waiting::Final(_) => {
                // SAFETY: whoever ended the job saw no WAITER: the waker is still ours (rule 4).
                let waker = unsafe { self.job.waiter.with_mut(|w| (*w).take()) };
                drop(waker);
                false
            }
        }
    }

    /// Takes the waker back. `true`: it is out; `false`: the job is over, and has it.
    pub(crate) fn retract(&mut self) -> bool {
        match self.job.state.retract() {
            super::state::Waiting::Registered => {
                // SAFETY: the word was not final when WAITER went off: rule 4.
                let waker = unsafe { self.job.waiter.with_mut(|w| (*w).take()) };
                drop(waker);
                true
            }
            super::state::Waiting::Final(_) => false,
        }
    }

    /// The result, if the job is over. `None` inside: it was taken before.
    pub(crate) fn take(&mut self) -> Option<Option<Result<T, JobError>>> {
        let word = self.job.state.settled()?;
        Some(match word.state() {
            State::Cancelled if word.by_shutdown() => Some(Err(JobError::Shutdown)),
            State::Cancelled => Some(Err(JobError::Cancelled)),
            _ => {
                let mut result = None::<Result<T, JobError>>;
                // SAFETY: final by an Acquire load, we are the handle, `result` is of the cell's type.
                unsafe {
                    (self.job.verbs.take_result)(self.job.0, NonNull::from(&mut result).cast());
                };
                result
            }
        })
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        match self.job.state.detach() {
            super::state::Waiting::Registered => {
                // SAFETY: WAITER is off, the word was not final: rule 4.
                let waker = unsafe { self.job.waiter.with_mut(|w| (*w).take()) };
                contained(move || drop(waker));
            }
            super::state::Waiting::Final(State::Cancelled) => {}
            super::state::Waiting::Final(_) => {
                // SAFETY: final, and the ender saw no DETACHED: rule 3. Empty if it was taken.
                unsafe { (self.job.verbs.drop_result)(self.job.0) };
            }
        }
    }
}
