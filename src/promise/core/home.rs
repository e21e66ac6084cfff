//! A core that somebody keeps for himself, for one pair after the other.

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::super::block::{self, Class};
use super::super::state::StateCell;
use super::node::drop_node;
use super::{Core, CorePtr};
use crate::sync::atomic::{AtomicU32, Ordering};

/// One core's memory, owned apart from the pairs that live in it one after the other.
///
/// | word    | who owns the memory                  | left by                                     |
/// |---------|--------------------------------------|---------------------------------------------|
/// | FREE    | the home                             | `occupy` → BUSY; drop of the home → freed   |
/// | BUSY    | the pair, until its second leaves    | `vacate` → FREE; drop of the home → ORPHAN  |
/// | ORPHAN  | the pair                             | `vacate` → freed                            |
pub(crate) struct Home<T, E>(NonNull<House<T, E>>);

#[repr(C)]
struct House<T, E> {
    // First, so that a core's address is its house's.
    core: MaybeUninit<Core<T, E>>,
    word: AtomicU32,
}

const FREE: u32 = 0;
const BUSY: u32 = 1;
const ORPHAN: u32 = 2;

impl<T, E> Home<T, E> {
    pub(crate) fn new() -> Self {
        let at = block::allocate::<House<T, E>>();
        // SAFETY: fresh memory for a house.
        unsafe { (&raw mut (*at.as_ptr()).word).write(AtomicU32::new(FREE)) };
        Self(at)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the house stands while the home does.
        unsafe { &(*self.0.as_ptr()).word }
    }

    pub(crate) fn is_free(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `vacate`: the last pair is done with the core.
        self.word().load(Ordering::Acquire) == FREE
    }

    /// A fresh pair's core, if the last one is gone.
    pub(crate) fn occupy(&mut self) -> Option<CorePtr<T, E>> {
        if !self.is_free() {
            return None;
        }
        // ORDERING: Relaxed: the home's alone until the pair is handed out.
        self.word().store(BUSY, Ordering::Relaxed);
        let core = self.0.cast::<Core<T, E>>();
        // SAFETY: free: nobody uses the core.
        unsafe { CorePtr::begin(core, StateCell::new(), Class::Homed, false) };
        Some(CorePtr(core))
    }

    /// The second to leave gives the core back.
    ///
    /// # Safety
    ///
    /// `core` is from `occupy`, and the caller its sole owner, who gives it up; `node` is its node.
    #[cold]
    pub(super) unsafe fn vacate(core: CorePtr<T, E>, node: *mut ()) {
        let house = core.0.cast::<House<T, E>>();
        // SAFETY: sole owner of the core; the house stands until the word says FREE to its home, or
        // ORPHAN to us.
        unsafe {
            #[cfg(any(tenure_loom, tenure_shuttle))]
            core::ptr::drop_in_place(core.0.as_ptr());
            // ORDERING: Release: our last access to the core comes before its next use (Acquire in
            // `is_free`). Acquire: ORPHAN pairs with the Release in the home's drop.
            if (*house.as_ptr()).word.swap(FREE, Ordering::AcqRel) == ORPHAN {
                Self::tear_down(house);
            }
            if !node.is_null() {
                drop_node(node);
            }
        }
    }

    /// # Safety
    ///
    /// Nobody uses the house any more.
    unsafe fn tear_down(house: NonNull<House<T, E>>) {
        let class = const { Class::of(Layout::new::<House<T, E>>()) };
        // SAFETY: the caller's promise.
        unsafe {
            #[cfg(any(tenure_loom, tenure_shuttle))]
            core::ptr::drop_in_place(&raw mut (*house.as_ptr()).word);
            block::free(house, class);
        }
    }
}

impl<T, E> Drop for Home<T, E> {
    fn drop(&mut self) {
        // ORDERING: Acquire: FREE pairs with the Release in `vacate`. Release: what the home did
        // comes before the pair's tearing down.
        if self.word().swap(ORPHAN, Ordering::AcqRel) == FREE {
            // SAFETY: no pair, and the home goes.
            unsafe { Self::tear_down(self.0) };
        }
    }
}
