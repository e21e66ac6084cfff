//! The kinds of closures.

use super::again::Calls;
use super::{Body, Keep};
use crate::runtime::ctx::JobCtx;
use crate::runtime::error::Unkept;
use crate::runtime::outcome::{IntoOutcome, Outcome};

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
    const KEEP: Keep = Keep::Own(Calls::of::<Self>());

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
