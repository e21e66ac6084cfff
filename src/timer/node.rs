//! A timer's one allocation: its word, its links and its callback.
//!
//! Who may touch what:
//!
//! | field | who |
//! |---|---|
//! | `state` | everybody |
//! | `deadline`, `kind` | everybody; never written again |
//! | `next` | whoever pushes it (before the push), then the driver (after it took the stack) |
//! | `key` | the driver |
//! | the callback | whoever moved the phase to TAKEN or CANCELLED, once |

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};

use super::state::{Release, StateCell};
use super::wheel::TimerKey;
use crate::clock::Timestamp;
use crate::sync::cell::UnsafeCell;

/// What every timer begins with, whatever its callback.
pub(super) struct Header {
    pub(super) state: StateCell,
    pub(super) deadline: Timestamp,
    next: UnsafeCell<*mut Header>,
    key: UnsafeCell<Option<TimerKey>>,
    kind: &'static Kind,
    /// Lets a model see that a timer was freed.
    #[cfg(tenure_loom)]
    _alive: crate::sync::Track<()>,
}

/// What the erased callback's type decided.
struct Kind {
    run: unsafe fn(NonNull<Header>),
    discard: unsafe fn(NonNull<Header>),
    free: unsafe fn(NonNull<Header>),
}

/// The header first, so that a pointer to the one is a pointer to the other.
#[repr(C)]
struct Node<F> {
    header: Header,
    callback: UnsafeCell<ManuallyDrop<F>>,
}

impl<F: FnOnce() + Send> Node<F> {
    const KIND: &'static Kind = &Kind { run: Self::run, discard: Self::discard, free: Self::free };

    /// # Safety
    ///
    /// The caller took the callback: it is the one that moved the phase to TAKEN or CANCELLED.
    unsafe fn callback(at: NonNull<Header>) -> F {
        // SAFETY: the header is the first field of a `Node<F>` (this function is in its `KIND`). The
        // caller alone has the callback, and reads it out once.
        unsafe {
            let node = at.cast::<Self>().as_ref();
            node.callback.with_mut(|callback| ManuallyDrop::take(&mut *callback))
        }
    }

    unsafe fn run(at: NonNull<Header>) {
        // SAFETY: as the caller's.
        let callback = unsafe { Self::callback(at) };
        callback();
    }

    unsafe fn discard(at: NonNull<Header>) {
        // SAFETY: as the caller's.
        drop(unsafe { Self::callback(at) });
    }

    unsafe fn free(at: NonNull<Header>) {
        // SAFETY: made by `Box::into_raw` in `Timer::new`; the caller holds it alone. The callback is
        // gone: a timer that was pushed is let go of only after somebody took it.
        let node = unsafe { Box::from_raw(at.cast::<Self>().as_ptr()) };
        // Freeing is an access to all of it, which loom does not know by itself.
        #[cfg(tenure_loom)]
        {
            node.header.next.with_mut(|_| ());
            node.header.key.with_mut(|_| ());
            node.callback.with_mut(|_| ());
        }
        drop(node);
    }
}

/// A pointer to a timer of any callback. Whoever has one holds one of the word's two holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Timer(NonNull<Header>);

// SAFETY: the callback is `Send`, and only one thread gets it; all else is reached by the rules above.
unsafe impl Send for Timer {}
// SAFETY: as above; no method gives out a reference to the callback.
unsafe impl Sync for Timer {}

impl Timer {
    pub(super) fn new<F: FnOnce() + Send + 'static>(deadline: Timestamp, callback: F) -> Self {
        let header = Header {
            state: StateCell::new(),
            deadline,
            next: UnsafeCell::new(ptr::null_mut()),
            key: UnsafeCell::new(None),
            kind: Node::<F>::KIND,
            #[cfg(tenure_loom)]
            _alive: crate::sync::Track::new(()),
        };
        let callback = UnsafeCell::new(ManuallyDrop::new(callback));
        let node = Box::into_raw(Box::new(Node { header, callback }));
        // SAFETY: a box is never null.
        Self(unsafe { NonNull::new_unchecked(node.cast()) })
    }

    /// The callback of a timer that was never pushed; frees the timer.
    ///
    /// # Safety
    ///
    /// Made by `new::<F>`, and nobody else has a copy.
    pub(super) unsafe fn into_callback<F: FnOnce() + Send + 'static>(self) -> F {
        // SAFETY: the caller's: the type is right, the timer ours alone, its callback untaken.
        unsafe {
            let callback = Node::<F>::callback(self.0);
            (self.header().kind.free)(self.0);
            callback
        }
    }

    pub(super) fn as_ptr(self) -> *mut Header {
        self.0.as_ptr()
    }

    pub(super) fn from_ptr(at: *mut Header) -> Option<Self> {
        NonNull::new(at).map(Self)
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: whoever has a `Timer` has a hold on the memory (see the type).
        unsafe { self.0.as_ref() }
    }

    /// # Safety
    ///
    /// The caller took the callback: its `StateCell::take` was true, just now.
    pub(super) unsafe fn run(self) {
        // SAFETY: the caller's; `kind` is that of this node's type.
        unsafe { (self.header().kind.run)(self.0) }
    }

    /// Drops the callback.
    ///
    /// # Safety
    ///
    /// The caller took the callback: by `StateCell::take` or `StateCell::cancel`, just now.
    pub(super) unsafe fn discard(self) {
        // SAFETY: the caller's; `kind` is that of this node's type.
        unsafe { (self.header().kind.discard)(self.0) }
    }

    /// # Safety
    ///
    /// The caller is about to push the timer, or has just taken the stack that it was on.
    pub(super) unsafe fn set_next(self, next: *mut Header) {
        // SAFETY: the caller's: by the table above nobody else touches `next` now.
        self.header().next.with_mut(|place| unsafe { *place = next });
    }

    /// # Safety
    ///
    /// The caller has taken the stack that the timer was on, and has not linked the timer yet.
    pub(super) unsafe fn next(self) -> *mut Header {
        // SAFETY: the caller's: by the table above nobody writes `next` now.
        self.header().next.with(|place| unsafe { *place })
    }

    /// # Safety
    ///
    /// On the driver's thread only.
    pub(super) unsafe fn set_key(self, key: TimerKey) {
        // SAFETY: the driver's own field.
        self.header().key.with_mut(|place| unsafe { *place = Some(key) });
    }

    /// # Safety
    ///
    /// On the driver's thread only.
    pub(super) unsafe fn key(self) -> Option<TimerKey> {
        // SAFETY: the driver's own field.
        self.header().key.with(|place| unsafe { *place })
    }

    /// Lets go of the handle's hold.
    ///
    /// # Safety
    ///
    /// The caller is the handle, and touches the timer no more.
    pub(super) unsafe fn release_handle(self) {
        if self.header().state.release_handle() == Release::Free {
            // SAFETY: the driver's side went before, and the AcqRel of both releases ordered it.
            unsafe { (self.header().kind.free)(self.0) }
        }
    }

    /// Lets go of the driver's hold.
    ///
    /// # Safety
    ///
    /// The caller has the driver's hold, and touches the timer no more. The callback is taken.
    pub(super) unsafe fn release_driver(self) {
        if self.header().state.release_driver() == Release::Free {
            // SAFETY: the handle went before, and the AcqRel of both releases ordered it.
            unsafe { (self.header().kind.free)(self.0) }
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header();
        f.debug_struct("Timer")
            .field("deadline", &header.deadline)
            .field("state", &header.state)
            .finish_non_exhaustive()
    }
}
