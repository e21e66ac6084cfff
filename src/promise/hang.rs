//! Hanging something on an eventual, for whoever completes it: a callback, a stage, a forwarding.

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::executor::{Executor, Task};

use super::block::{self, Class};
use super::core::{CorePtr, Data, Outcome};
use super::error::{EventualError, PanicPayload};
use super::eventual::Eventual;
use super::trampoline::{self, Work, guarded};

/// What can lie in a core's slot after its reader has left.
pub(super) trait Hang<T, E>: Sized {
    /// Writes the slot. `plain`: no waker was ever in it, so plain bytes may go there.
    ///
    /// # Safety
    ///
    /// The caller may write the slot.
    unsafe fn hang(self, core: CorePtr<T, E>, plain: bool);

    /// Takes it out again.
    ///
    /// # Safety
    ///
    /// `hang` put it there with the same `plain`, and nobody else has seen it.
    unsafe fn unhang(core: CorePtr<T, E>, plain: bool) -> Self;
}

impl<T, E> Eventual<T, E> {
    /// Hangs it on the core; gives it back, with the outcome, when that is there already.
    pub(super) fn hang<H: Hang<T, E>>(mut self, what: H) -> Result<(), (H, Outcome<T, E>)> {
        let Some(core) = self.core() else { return Err((what, Err(EventualError::Taken))) };
        // SAFETY: not left until `attach` succeeds.
        let state = unsafe { core.state() };
        let mut seen = state.peek();
        if let Some(outcome) = self.take_if_complete(core, seen) {
            return Err((what, outcome));
        }
        let mut old = None;
        if seen.has_slot() {
            // SAFETY: the reader's own words.
            let waker = unsafe { core.copy_waker() };
            let before = state.retract();
            if let Some(outcome) = self.take_if_complete(core, before) {
                // The waker is the writer's.
                return Err((what, outcome));
            }
            // SAFETY: no phase when SLOT was taken away: the waker stayed the reader's.
            old = Some(unsafe { waker.own() });
            seen = state.peek();
        }
        let plain = old.is_none();
        // SAFETY: SLOT is clear, and only the reader sets it.
        unsafe { what.hang(core, plain) };
        let hung = loop {
            if seen.is_complete() {
                // SAFETY: SLOT was clear when the phase was set: the writer does not look.
                let what = unsafe { H::unhang(core, plain) };
                match self.take_if_complete(core, seen) {
                    Some(outcome) => break Err((what, outcome)),
                    // Not so: `seen` is complete.
                    None => break Ok(()),
                }
            }
            match state.attach(seen) {
                Ok(()) => {
                    self.leave();
                    break Ok(());
                }
                Err(now) => seen = now,
            }
        };
        guarded(|| drop(old));
        hung
    }
}

/// Queues what hangs on a complete outcome: for when the stack is deep.
pub(super) fn queue_ready<T, E, H: Hang<T, E>>(outcome: Outcome<T, E>, what: H) {
    let core = CorePtr::allocate_complete(outcome);
    // SAFETY: the core is ours alone; and the work is complete and has something in its slot.
    unsafe {
        what.hang(core, true);
        trampoline::queue(core.work());
    }
}

/// Hands work to an executor. However that ends, the work is run or rejected, once.
pub(super) fn hand_over<X: Executor>(executor: X, work: NonNull<Work>) {
    // SAFETY: the caller gives the work up.
    let task = unsafe { Task::from_work(work) };
    // A panic drops the task on its way, which rejects it.
    match catch_unwind(AssertUnwindSafe(|| executor.execute(task))) {
        Ok(Ok(())) => {}
        Ok(Err(refused)) => drop(refused),
        Err(payload) => super::panics::report(PanicPayload::new(payload)),
    }
    guarded(|| drop(executor));
}

/// Something that runs on an executor.
pub(super) struct Bound<X, F> {
    // Always full until it is moved out, when the work is handed over. The rest stays where it lies
    // and is moved later, with this beside it: a `ManuallyDrop` of a `Box` that is gone may not be.
    pub(super) executor: MaybeUninit<X>,
    pub(super) rest: F,
}

// ---- a closure in the slot -----------------------------------------------------------------

/// Whether a closure's bytes fit into the slot's two words.
pub(super) const fn fits<S>() -> bool {
    let (closure, slot) = (Layout::new::<S>(), Layout::new::<Data>());
    closure.size() <= slot.size() && closure.align() <= slot.align()
}

/// Stores `what` in the slot, or in a block of its own; says whether in the slot.
///
/// # Safety
///
/// The caller may write the slot; `plain` as in [`Hang::hang`].
pub(super) unsafe fn store<T, E, S>(core: CorePtr<T, E>, plain: bool, what: S) -> bool {
    if const { fits::<S>() } && plain {
        // SAFETY: it fits, and no waker was ever here.
        unsafe { core.with_slot_bytes(|at| at.cast::<S>().write(what)) };
        true
    } else {
        let at = block::allocate::<S>();
        // SAFETY: fresh memory for an `S`; the caller may write the slot.
        unsafe {
            at.write(what);
            core.set_slot_pointer(at.as_ptr().cast());
        }
        false
    }
}

/// Where `store` put it.
///
/// # Safety
///
/// `store` put an `S` there, `in_slot` is what it said, and it is the caller's.
pub(super) unsafe fn stored<T, E, S>(core: CorePtr<T, E>, in_slot: bool) -> *mut S {
    // SAFETY: the caller's promise.
    unsafe {
        if in_slot {
            core.with_slot_bytes(<*mut Data>::cast::<S>)
        } else {
            core.slot_pointer().cast()
        }
    }
}

/// Moves it out.
///
/// # Safety
///
/// As `stored`; once.
pub(super) unsafe fn take_stored<T, E, S>(core: CorePtr<T, E>, in_slot: bool) -> S {
    // SAFETY: the caller's promise; a block is freed once its content is out.
    unsafe {
        let at = stored::<T, E, S>(core, in_slot);
        let what = at.read();
        if !in_slot {
            let class = const { Class::of(Layout::new::<S>()) };
            block::free(NonNull::new_unchecked(at), class);
        }
        what
    }
}
