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
mod bodies;
mod refs;

use core::any::Any;
use core::mem::ManuallyDrop;
use core::panic::AssertUnwindSafe;
use core::ptr::NonNull;
use core::task::Waker;
use std::panic::catch_unwind;

pub(crate) use again::{Again, AgainUnseen, Keep, Lien};
pub(crate) use bodies::{Handed, InTurn, Many, Once};
pub(crate) use refs::{Handle, JobRef};

use super::BoxError;
use super::ctx::JobCtx;
use super::error::{JobError, JobPanic, Unkept};
use super::options::{Options, Past, Priority};
use super::outcome::Outcome;
use super::policy::Verdict;
use super::state::{Claim, StateCell};
use crate::lock::Unseen;
use crate::sync::atomic::AtomicU32;
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
    /// No value. Boxed: what comes out of every attempt is two words.
    Failed(Box<Failure>),
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
            settle(unsafe { at.as_ref() }, ctx, Verdict::Failure, None);
            return Ran::Failed(Failure::panicked(payload));
        }
    };
    // SAFETY: alive, as above.
    settle(unsafe { at.as_ref() }, ctx, outcome.verdict(), outcome.error());
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
fn settle(job: &Header, ctx: &JobCtx, verdict: Verdict, error: Option<&BoxError>) {
    let Some(options) = job.options.as_deref() else { return };
    let Some(gates) = options.gates.as_deref() else { return };
    let verdict = match (verdict, error, &options.judge) {
        (Verdict::Failure, ..) if job.state.peek().cancel_requested() => Verdict::Ignored,
        (Verdict::Failure, Some(error), Some(judge)) => judge.ask(error),
        _ => verdict,
    };
    gates.settle(ctx.turn(), verdict);
}

impl Failure {
    fn new(cause: BoxError, retryable: bool, delay: Option<core::time::Duration>) -> Box<Self> {
        Box::new(Self { cause: super::error::AttemptError::Failed(cause.into()), retryable, delay })
    }

    fn panicked(payload: Box<dyn Any + Send>) -> Box<Self> {
        let cause = super::error::AttemptError::Panicked(JobPanic::new(payload));
        Box::new(Self { cause, retryable: true, delay: None })
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
