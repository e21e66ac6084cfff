//! How a core ends: the writer settles it, the reader takes what came, the second to leave frees.

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::park;

use super::super::block::{self, Class};
use super::super::cancel::NodeRef;
use super::super::state::{Last, Word};
use super::super::trampoline::{Work, guarded};
use super::node::drop_node;
use super::{CopiedWaker, Core, CorePtr, Home, NO_WAKER, Outcome};

/// What became of a settled core, as its writer sees it.
#[must_use]
pub(crate) enum Settled {
    /// A reader has it or will come for it. The core is not ours any more.
    Delivered,
    /// A callback or stage lies in the slot: run this.
    Next(NonNull<Work>),
    /// The reader is gone and left nothing: the payload is still in, and the core is ours alone.
    Refused,
}

impl<T, E> CorePtr<T, E> {
    /// Frees the core. The payload and the slot are not dropped.
    ///
    /// # Safety
    ///
    /// The caller is the sole owner, and gives it up.
    #[inline]
    pub(crate) unsafe fn free(self) {
        // SAFETY: sole owner.
        unsafe {
            // ORDERING: Relaxed: sole owner.
            let node = self.cancel().load(Ordering::Relaxed);
            let class = (*self.0.as_ptr()).header.about.class;
            if class == Class::Homed {
                return Home::<T, E>::vacate(self, node);
            }
            // Nearly always what it would be by itself: then the compiler knows the list.
            #[cfg(any(tenure_loom, tenure_shuttle))]
            core::ptr::drop_in_place(self.0.as_ptr());
            let natural = const { Class::of(Layout::new::<Core<T, E>>()) };
            block::free(self.0, if class == natural { natural } else { class });
            if !node.is_null() {
                drop_node(node);
            }
        }
    }

    /// The reader's end: takes the outcome of a complete core and leaves.
    ///
    /// # Safety
    ///
    /// Only by the reader, which saw `word` with a phase, by Acquire; it does not touch the core
    /// again.
    #[inline]
    pub(crate) unsafe fn take_and_leave(self, word: Word, last: Last) -> Outcome<T, E> {
        // SAFETY: the phase was seen with Acquire: the payload is ours. We leave when it has been
        // read; whoever leaves second frees (R1).
        unsafe {
            self.take_outcome(last, || {
                if word.writer_left() || self.state().reader_leaves().writer_left() {
                    self.free();
                }
            })
        }
    }

    /// The writer's end: publishes what lies in the payload and leaves.
    ///
    /// # Safety
    ///
    /// Only by the writer, once; the payload is full as `last` says. Unless the answer is `Next` or
    /// `Refused`, which make the caller the sole owner, it does not touch the core again.
    #[inline(always)]
    pub(crate) unsafe fn settle(self, last: Last) -> Settled {
        // SAFETY: what the caller promises is passed on.
        unsafe {
            match self.settle_untouched(last) {
                Ok(()) => Settled::Delivered,
                Err(seen) => self.settle_from(seen, last),
            }
        }
    }

    /// `settle` where the reader has done nothing yet; else what the word says.
    ///
    /// # Safety
    ///
    /// As `settle`; after an error go on with `settle_from`.
    #[inline(always)]
    pub(crate) unsafe fn settle_untouched(self, last: Last) -> Result<(), Word> {
        // SAFETY: the writer has not left.
        let state = unsafe { self.state() };
        let seen = state.peek();
        if seen.is_untouched() { state.complete_and_leave(seen, last) } else { Err(seen) }
    }

    /// # Safety
    ///
    /// As `settle`; `seen` was read with Acquire.
    #[inline]
    pub(crate) unsafe fn settle_from(self, seen: Word, last: Last) -> Settled {
        // SAFETY: what the caller promises is passed on.
        unsafe {
            if seen.reader_left() && !seen.has_hook() {
                return self.settle_alone(seen, last);
            }
            self.settle_past(seen, last)
        }
    }

    /// # Safety
    ///
    /// As `settle`; `seen` was read with Acquire.
    #[inline(never)]
    unsafe fn settle_past(self, mut seen: Word, last: Last) -> Settled {
        if seen.has_hook() {
            // SAFETY: the caller's promise, passed on.
            return unsafe { self.settle_with_hook(last) };
        }
        // SAFETY: the writer has not left.
        let state = unsafe { self.state() };
        let futex = core::ptr::from_ref(state.futex());
        loop {
            if seen.reader_left() {
                // SAFETY: as said.
                return unsafe { self.settle_alone(seen, last) };
            }
            if seen.waker_was_replaced() {
                // SAFETY: as above.
                return unsafe { self.settle_in_two_steps(last) };
            }
            // A copy counts only if the exchange succeeds: then nothing moved in between, and the
            // waker is ours.
            // SAFETY: SLOT was seen with Acquire.
            let waker = if seen.has_slot() { unsafe { self.copy_waker() } } else { NO_WAKER };
            match state.complete_and_leave(seen, last) {
                // From here on the core may be gone (R6).
                Ok(()) => {
                    wake(waker, seen, futex);
                    return Settled::Delivered;
                }
                Err(now) => seen = now,
            }
        }
    }

    /// # Safety
    ///
    /// `seen` was read with Acquire and says that the reader left.
    #[inline]
    unsafe fn settle_alone(self, seen: Word, last: Last) -> Settled {
        if !seen.has_slot() {
            return Settled::Refused;
        }
        // SAFETY: sole owner (R2).
        unsafe { self.state() }.settle_alone(last);
        Settled::Next(self.work())
    }

    /// # Safety
    ///
    /// As `settle`.
    #[cold]
    unsafe fn settle_in_two_steps(self, last: Last) -> Settled {
        // SAFETY: the writer has not left.
        let state = unsafe { self.state() };
        let before = state.complete(last);
        if before.reader_left() {
            // SAFETY: an RMW that acquired.
            return unsafe { self.settle_alone(before, last) };
        }
        // SAFETY: SLOT in the word that our RMW replaced: the waker is ours to take, and the reader
        // leaves it alone since it will see the phase.
        let waker = if before.has_slot() { unsafe { self.copy_waker() } } else { NO_WAKER };
        let futex = core::ptr::from_ref(state.futex());
        if state.writer_leaves().reader_left() {
            // SAFETY: second to leave.
            unsafe { self.free() };
        }
        wake(waker, before, futex);
        Settled::Delivered
    }

    /// # Safety
    ///
    /// As `settle`.
    #[cold]
    unsafe fn settle_with_hook(self, last: Last) -> Settled {
        // SAFETY: the writer has not left, so the node is kept by the core; HOOK was set by us.
        // ORDERING: Relaxed: the writer itself saw the pointer before it announced the hook.
        let node = unsafe { NodeRef::clone_raw(self.cancel().load(Ordering::Relaxed)) };
        // The hook is taken back before the result shows: whoever sees the result may hang another
        // writer's hook into the same node.
        let hook = node.as_ref().and_then(NodeRef::retire);
        if let Some(node) = &node {
            node.forget_waker();
        }
        // SAFETY: passed on. A HOOK in the word does not stand in the way of two additions.
        let settled = unsafe { self.settle_in_two_steps(last) };
        guarded(|| drop(hook));
        settled
    }
}

/// Wakes whom the word named. The core may be gone: locals and an address only (R6).
#[inline]
fn wake(waker: CopiedWaker, seen: Word, futex: *const AtomicU32) {
    if seen.has_sleeper() {
        let _ = park::wake_one(futex);
    }
    if seen.has_slot() {
        // SAFETY: the words were copied, and the caller's RMW made the waker ours.
        let waker = unsafe { waker.own() };
        guarded(|| waker.wake());
    }
}
