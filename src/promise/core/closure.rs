//! A stage's closure, kept in the core that it will complete.

use core::alloc::Layout;
use core::mem::MaybeUninit;

use super::super::block::Class;
use super::super::state::StateCell;
use super::{Core, CorePtr, Extended, Payload};
use crate::sync::cell::UnsafeCell;

/// Where the closure of the stage that completes this core lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the payload: the closure is gone before the payload is needed.
    Payload,
    /// Behind the core, in the same block.
    Behind,
    /// In a box whose pointer lies in the payload.
    Boxed,
}

impl<T, E> CorePtr<T, E> {
    const fn place<F>() -> Place {
        let closure = Layout::new::<F>();
        let payload = Layout::new::<Payload<T, E>>();
        if closure.size() <= payload.size() && closure.align() <= payload.align() {
            Place::Payload
        } else if matches!(Class::of(Layout::new::<Extended<T, E, F>>()), Class::Exact) {
            Place::Boxed
        } else {
            Place::Behind
        }
    }

    /// A core that a stage with this closure will complete.
    pub(crate) fn allocate_stage<F>(closure: F, moves_node: bool) -> Self {
        match const { Self::place::<F>() } {
            Place::Payload => {
                let core = Self::allocate_as::<Core<T, E>>(StateCell::new(), moves_node);
                // SAFETY: fresh; the closure fits.
                unsafe { core.with_payload(|at| at.cast::<F>().write(closure)) };
                core
            }
            Place::Behind => {
                let core = Self::allocate_as::<Extended<T, E, F>>(StateCell::new(), moves_node);
                let whole = core.0.cast::<Extended<T, E, F>>();
                // SAFETY: fresh, and allocated as an `Extended`.
                unsafe {
                    (&raw mut (*whole.as_ptr()).closure)
                        .write(UnsafeCell::new(MaybeUninit::new(closure)));
                }
                core
            }
            Place::Boxed => {
                let core = Self::allocate_as::<Core<T, E>>(StateCell::new(), moves_node);
                let boxed = Box::into_raw(Box::new(closure));
                // SAFETY: fresh; a payload holds at least two words.
                unsafe { core.with_payload(|at| at.cast::<*mut F>().write(boxed)) };
                core
            }
        }
    }

    /// The closure's address: valid until the core is settled.
    ///
    /// # Safety
    ///
    /// Only by the writer (the stage) of a core from `allocate_stage::<F>`, before it settles.
    pub(crate) unsafe fn closure<F>(self) -> *mut F {
        // SAFETY: the caller's promise.
        unsafe {
            match const { Self::place::<F>() } {
                Place::Payload => self.with_payload(<*mut Payload<T, E>>::cast::<F>),
                Place::Behind => {
                    let whole = self.0.cast::<Extended<T, E, F>>();
                    (*whole.as_ptr()).closure.with_mut(|at| at.cast())
                }
                Place::Boxed => self.with_payload(|at| at.cast::<*mut F>().read()),
            }
        }
    }

    /// Moves the closure out.
    ///
    /// # Safety
    ///
    /// As `closure`; once.
    pub(crate) unsafe fn take_closure<F>(self) -> F {
        // SAFETY: the caller's promise.
        unsafe {
            let at = self.closure::<F>();
            match const { Self::place::<F>() } {
                Place::Payload | Place::Behind => at.read(),
                Place::Boxed => *Box::from_raw(at),
            }
        }
    }
}
