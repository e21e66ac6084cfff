//! Stages: an eventual made from another and a closure.
//!
//! One block holds a stage: the core that it completes, with its closure where the payload will be.
//! The core above it has a pointer to that in its slot. Running a stage takes the outcome out of the
//! core above, frees that, calls the closure, and settles the core below, whose own slot may hold the
//! next stage: that one is returned, not called, so a chain is a loop.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::executor::Executor;

use super::cancel::{Hook, NodeRef};
use super::core::{CorePtr, Outcome, Settled};
use super::error::{EventualError, PanicPayload};
use super::eventual::Eventual;
use super::hang::{Bound, Hang, hand_over, queue_ready};
use super::state::Last;
use super::trampoline::{Level, Mode, RunFn, Work, guarded};

/// What a stage's closure came to.
pub(super) enum Step<T, E> {
    /// The outcome.
    Done(Outcome<T, E>),
    /// Another eventual will have it.
    Wait(Eventual<T, E>),
}

impl<T: Send + 'static, E: Send + 'static> Eventual<T, E> {
    /// An eventual of what `f` makes of the outcome. `WAITS`: `f` may return [`Step::Wait`].
    pub(super) fn stage<U, E2, F, const WAITS: bool>(self, f: F) -> Eventual<U, E2>
    where
        U: Send + 'static,
        E2: Send + 'static,
        F: FnOnce(Outcome<T, E>) -> Step<U, E2> + Send + 'static,
    {
        let mut this = self;
        if let Some(outcome) = this.try_get() {
            return match Level::enter() {
                Some(_level) => match caught(f, outcome) {
                    Step::Done(outcome) => Eventual::new(CorePtr::allocate_complete(outcome)),
                    Step::Wait(inner) => inner,
                },
                None => {
                    let below = CorePtr::allocate_stage(f, !WAITS);
                    queue_ready(outcome, Stage::<U, E2, F>(below, PhantomData));
                    Eventual::new(below)
                }
            };
        }
        let below = CorePtr::<U, E2>::allocate_stage(f, !WAITS);
        this.hang_stage(below, Stage::<U, E2, F>(below, PhantomData))
    }

    /// The same, with `f` run on `executor`.
    pub(super) fn stage_via<X, U, E2, F, const WAITS: bool>(
        self,
        executor: X,
        f: F,
    ) -> Eventual<U, E2>
    where
        X: Executor + Send + 'static,
        U: Send + 'static,
        E2: Send + 'static,
        F: FnOnce(Outcome<T, E>) -> Step<U, E2> + Send + 'static,
    {
        let bound = Bound { executor: MaybeUninit::new(executor), rest: f };
        let below = CorePtr::<U, E2>::allocate_stage(bound, !WAITS);
        self.hang_stage(below, BoundStage::<X, U, E2, F>(below, PhantomData))
    }

    /// Hangs a stage that will complete `below`, and gives its reader.
    fn hang_stage<U, E2, H: Hang<T, E>>(self, below: CorePtr<U, E2>, stage: H) -> Eventual<U, E2> {
        if let Some(core) = self.core() {
            // SAFETY: the reader has not left; `below` is not shared yet.
            unsafe { below.give_node(core.node_for_stage()) };
        }
        if let Err((stage, outcome)) = self.hang(stage) {
            let core = CorePtr::allocate_complete(outcome);
            // SAFETY: the core is ours alone, and its work runs once.
            unsafe {
                stage.hang(core, true);
                super::trampoline::run(core.work());
            }
        }
        Eventual::new(below)
    }
}

/// A pointer to the core below; its closure lies there.
struct Stage<U, E2, F>(CorePtr<U, E2>, PhantomData<F>);

impl<T, E, U, E2, F> Hang<T, E> for Stage<U, E2, F>
where
    F: FnOnce(Outcome<T, E>) -> Step<U, E2>,
{
    unsafe fn hang(self, core: CorePtr<T, E>, _plain: bool) {
        // SAFETY: the caller may write the slot.
        unsafe {
            core.set_slot_pointer(self.0.as_ptr());
            core.set_run(run_stage::<T, E, U, E2, F>);
        }
    }

    unsafe fn unhang(core: CorePtr<T, E>, _plain: bool) -> Self {
        // SAFETY: what `hang` wrote.
        Self(unsafe { CorePtr::from_ptr(core.slot_pointer()) }, PhantomData)
    }
}

/// The same; an executor lies there, too.
struct BoundStage<X, U, E2, F>(CorePtr<U, E2>, PhantomData<(X, F)>);

impl<T, E, X, U, E2, F> Hang<T, E> for BoundStage<X, U, E2, F>
where
    X: Executor,
    F: FnOnce(Outcome<T, E>) -> Step<U, E2>,
{
    unsafe fn hang(self, core: CorePtr<T, E>, _plain: bool) {
        // SAFETY: the caller may write the slot.
        unsafe {
            core.set_slot_pointer(self.0.as_ptr());
            core.set_run(dispatch_stage::<T, E, X, U, E2, F>);
        }
    }

    unsafe fn unhang(core: CorePtr<T, E>, _plain: bool) -> Self {
        // SAFETY: what `hang` wrote.
        Self(unsafe { CorePtr::from_ptr(core.slot_pointer()) }, PhantomData)
    }
}

/// Passes an inner eventual's outcome on to a stage's core.
struct Forward<T, E>(CorePtr<T, E>);

impl<T, E> Hang<T, E> for Forward<T, E> {
    unsafe fn hang(self, core: CorePtr<T, E>, _plain: bool) {
        // SAFETY: the caller may write the slot.
        unsafe {
            core.set_forwards(self.0);
            core.set_run(run_forward::<T, E>);
        }
    }

    unsafe fn unhang(core: CorePtr<T, E>, _plain: bool) -> Self {
        // SAFETY: what `hang` wrote.
        Self(unsafe { CorePtr::from_ptr(core.slot_pointer()) })
    }
}

fn caught<T, E, U, E2, F>(f: F, outcome: Outcome<T, E>) -> Step<U, E2>
where
    F: FnOnce(Outcome<T, E>) -> Step<U, E2>,
{
    match catch_unwind(AssertUnwindSafe(|| f(outcome))) {
        Ok(step) => step,
        Err(payload) => Step::Done(Err(EventualError::Panicked(PanicPayload::new(payload)))),
    }
}

/// # Safety
///
/// The caller is the stage that completes `below`.
unsafe fn finish<T, E>(below: CorePtr<T, E>, outcome: Outcome<T, E>) -> Option<NonNull<Work>> {
    let last = Last::of(&outcome);
    // SAFETY: the caller's promise: the stage is the writer, and nothing is set yet.
    unsafe {
        below.write_outcome(outcome);
        finish_written(below, last)
    }
}

/// What running a stage's closure left in the core below.
enum Ran<T, E> {
    /// The payload, and this ending.
    Done(Last),
    /// Nothing yet: this one will have the outcome.
    Wait(Eventual<T, E>),
}

/// Takes the outcome out of the core above, calls the closure, and settles the core below.
///
/// # Safety
///
/// The caller owns the complete core `above`, gives it up, and is the stage that completes `below`;
/// `take` moves the closure out of that.
#[inline(always)]
unsafe fn advance<T, E, U, E2, F>(
    above: CorePtr<T, E>,
    below: CorePtr<U, E2>,
    take: impl FnOnce() -> F,
    mode: Mode,
) -> Option<NonNull<Work>>
where
    F: FnOnce(Outcome<T, E>) -> Step<U, E2>,
{
    // All in one go, from payload to payload, so that small values stay in registers.
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let f = take();
        // SAFETY: the caller's promise.
        let outcome = unsafe { above.take_alone() };
        let step = match mode {
            Mode::Run => f(outcome),
            Mode::Reject => {
                guarded(|| drop(outcome));
                guarded(|| drop(f));
                Step::Done(Err(EventualError::Rejected))
            }
        };
        match step {
            Step::Done(outcome) => {
                let last = Last::of(&outcome);
                // SAFETY: the stage is the writer, its closure is out, and nothing is set yet.
                unsafe { below.write_outcome(outcome) };
                Ran::Done(last)
            }
            Step::Wait(inner) => Ran::Wait(inner),
        }
    }));
    match ran {
        // SAFETY: as above.
        Ok(Ran::Done(last)) => unsafe { finish_written(below, last) },
        Ok(Ran::Wait(inner)) => {
            // A tail call: where `below` was itself only waited for, its place is not kept.
            // SAFETY: the stage is its writer.
            let below = unsafe { past_forwardings(below) };
            retarget(&inner, below);
            match inner.hang(Forward(below)) {
                Ok(()) => None,
                // SAFETY: as above.
                Err((_, outcome)) => unsafe { finish(below, outcome) },
            }
        }
        Err(payload) => {
            let panicked = Err(EventualError::Panicked(PanicPayload::new(payload)));
            // SAFETY: as above; a closure that panicked wrote nothing.
            unsafe { finish(below, panicked) }
        }
    }
}

/// # Safety
///
/// As `finish`, with the payload written.
#[inline(always)]
unsafe fn finish_written<T, E>(below: CorePtr<T, E>, last: Last) -> Option<NonNull<Work>> {
    // SAFETY: the caller's promise: the stage is the writer.
    unsafe {
        match below.settle(last) {
            Settled::Delivered => None,
            Settled::Next(work) => Some(work),
            Settled::Refused => {
                let back = below.take_outcome(last, || below.free());
                guarded(|| drop(back));
                None
            }
        }
    }
}

/// The core that whatever completes `below` will complete in the end: past those whose readers left only
/// a forwarding, which are freed on the way.
///
/// # Safety
///
/// Only by the writer of `below`, before it settles; it gives that up for the core it gets, and is that
/// one's writer.
unsafe fn past_forwardings<T, E>(mut below: CorePtr<T, E>) -> CorePtr<T, E> {
    // SAFETY: the caller's promise; a core that forwards is ours alone, its payload empty.
    while let Some(further) = unsafe { below.forwards_to() } {
        // Until now a request went from the further node to this one, and from this one to its inner
        // writer. From here on it goes to that directly; whoever holds this node reaches it by way of
        // the further one. We are the one writer of both (as in `retarget`).
        // SAFETY: not left.
        if let Some(node) = unsafe { below.node_if_any() } {
            // SAFETY: not left.
            let target = unsafe { further.node() };
            if !NodeRef::is_same(&node, &target) {
                // First: they would keep each other.
                let old = target.retire();
                guarded(|| drop(old));
                match node.set_hook(Hook::Forward(target)) {
                    Ok(old) => guarded(|| drop(old)),
                    Err(hook) => hook.fire(),
                }
            }
        }
        // SAFETY: ours alone, and nothing is in it.
        unsafe { below.free() };
        below = further;
    }
    below
}

/// From here on a cancellation from below reaches the inner eventual's writer.
fn retarget<T, E>(inner: &Eventual<T, E>, below: CorePtr<T, E>) {
    let Some(core) = inner.core().filter(|_| !inner.is_ready()) else { return };
    // SAFETY: the stage has not left `below`, nor `inner` its core. The stage is the node's one
    // writer now: the one above retired its hook before its result showed.
    unsafe {
        let node = below.node();
        let Err(theirs) = core.put_node(node.clone()) else { return };
        if NodeRef::is_same(&node, &theirs) {
            return;
        }
        match node.set_hook(Hook::Forward(theirs)) {
            Ok(old) => guarded(|| drop(old)),
            Err(hook) => hook.fire(),
        }
    }
}

/// # Safety
///
/// [`RunFn`]; a `Stage<U, E2, F>` was hung on a `Core<T, E>`.
unsafe fn run_stage<T, E, U, E2, F>(work: NonNull<Work>, mode: Mode) -> Option<NonNull<Work>>
where
    F: FnOnce(Outcome<T, E>) -> Step<U, E2>,
{
    // SAFETY: the caller owns a complete core, and so the stage in its slot.
    unsafe {
        let core = CorePtr::<T, E>::from_work(work);
        let below = CorePtr::<U, E2>::from_ptr(core.slot_pointer());
        advance(core, below, || below.take_closure::<F>(), mode)
    }
}

/// # Safety
///
/// [`RunFn`]; a `BoundStage<X, U, E2, F>` was hung on a `Core<T, E>`.
unsafe fn dispatch_stage<T, E, X, U, E2, F>(
    work: NonNull<Work>,
    mode: Mode,
) -> Option<NonNull<Work>>
where
    X: Executor,
    F: FnOnce(Outcome<T, E>) -> Step<U, E2>,
{
    let next: RunFn = run_bound_stage::<T, E, X, U, E2, F>;
    // SAFETY: the caller owns a complete core, and so the stage in its slot; the executor is moved
    // out once, here.
    let executor = unsafe {
        let core = CorePtr::<T, E>::from_work(work);
        let below = CorePtr::<U, E2>::from_ptr(core.slot_pointer());
        core.set_run(next);
        (*below.closure::<Bound<X, F>>()).executor.assume_init_read()
    };
    match mode {
        Mode::Run => {
            hand_over(executor, work);
            None
        }
        Mode::Reject => {
            guarded(|| drop(executor));
            // SAFETY: still ours.
            unsafe { next(work, mode) }
        }
    }
}

/// # Safety
///
/// As `dispatch_stage`, after it.
unsafe fn run_bound_stage<T, E, X, U, E2, F>(
    work: NonNull<Work>,
    mode: Mode,
) -> Option<NonNull<Work>>
where
    F: FnOnce(Outcome<T, E>) -> Step<U, E2>,
{
    // SAFETY: the caller owns a complete core, and so the stage in its slot.
    unsafe {
        let core = CorePtr::<T, E>::from_work(work);
        let below = CorePtr::<U, E2>::from_ptr(core.slot_pointer());
        advance(core, below, || below.take_closure::<Bound<X, F>>().rest, mode)
    }
}

/// # Safety
///
/// [`RunFn`]; a `Forward<T, E>` was hung on a `Core<T, E>`.
unsafe fn run_forward<T, E>(work: NonNull<Work>, mode: Mode) -> Option<NonNull<Work>> {
    // SAFETY: the caller owns a complete core, and so the forwarding in its slot.
    unsafe {
        let core = CorePtr::<T, E>::from_work(work);
        let below = CorePtr::<T, E>::from_ptr(core.slot_pointer());
        let outcome = core.take_alone();
        match mode {
            Mode::Run => finish(below, outcome),
            Mode::Reject => {
                guarded(|| drop(outcome));
                finish(below, Err(EventualError::Rejected))
            }
        }
    }
}
