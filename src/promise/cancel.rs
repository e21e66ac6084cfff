//! The cancel node: one small refcounted cell that a whole chain of stages shares.
//!
//! Whoever holds the last reader of a chain cancels the *node*, whatever the chain's length; the
//! writer at the chain's head leaves its hook there. A node has one hook at a time:
//!
//! | hook            | left by                            | runs                                   |
//! |-----------------|------------------------------------|----------------------------------------|
//! | a task          | `Promise::on_cancel`               | the closure, on the canceller's thread |
//! | another node    | a stage that waits for an inner eventual | cancels that one too             |
//!
//! Its word has two bits, and the first to change it owns the hook:
//!
//! | edge                  | Release in              | Acquire in              | makes visible     |
//! |-----------------------|-------------------------|-------------------------|-------------------|
//! | hook installed        | `set_hook`              | `cancel`                | the hook's cell   |
//! | cancellation asked    | `cancel`                | `set_hook`, `is_cancelled` | what the canceller did before |

use core::fmt;
use core::ptr::NonNull;
use core::task::Waker;

use crate::executor::Task;
use crate::sync::AtomicWaker;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use crate::sync::cell::UnsafeCell;

use super::block::{self, Class};
use super::trampoline::guarded;

/// Somebody asked for cancellation. Never cleared.
const CANCELLED: u32 = 1;
/// The hook's cell is full, and the writer's.
const HOOK: u32 = 1 << 1;

/// More are a leak without end; far enough from wrapping that no race gets there.
const MOST_REFS: usize = isize::MAX as usize;

pub(crate) enum Hook {
    Run(Task),
    Forward(NodeRef),
}

struct Node {
    refs: AtomicUsize,
    word: AtomicU32,
    hook: UnsafeCell<Option<Hook>>,
    /// Of `poll_cancelled`: the writer registers, then looks at the word; a canceller sets the word,
    /// then wakes.
    waker: AtomicWaker,
}

/// A counted reference to a node.
pub(crate) struct NodeRef(NonNull<Node>);

// SAFETY: a node is reached through its atomics; its hook belongs to whoever changed the word first,
// and a `Hook` is `Send`.
unsafe impl Send for NodeRef {}
// SAFETY: as above.
unsafe impl Sync for NodeRef {}

impl NodeRef {
    pub(crate) fn new() -> Self {
        let at = block::allocate::<Node>();
        // SAFETY: fresh memory of the right layout.
        unsafe {
            at.write(Node {
                refs: AtomicUsize::new(1),
                word: AtomicU32::new(0),
                hook: UnsafeCell::new(None),
                waker: AtomicWaker::new(),
            });
        }
        Self(at)
    }

    fn node(&self) -> &Node {
        // SAFETY: the count that this reference holds keeps the node.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn into_raw(self) -> *mut () {
        let at = self.0.as_ptr().cast();
        core::mem::forget(self);
        at
    }

    /// # Safety
    ///
    /// `at` came from `into_raw`, and the count that it carries passes to the result.
    pub(crate) unsafe fn from_raw(at: *mut ()) -> Option<Self> {
        NonNull::new(at.cast()).map(Self)
    }

    /// A second reference beside the one that `at` carries.
    ///
    /// # Safety
    ///
    /// `at` is null or came from `into_raw`, and its count is held during the call.
    pub(crate) unsafe fn clone_raw(at: *mut ()) -> Option<Self> {
        // SAFETY: the caller's promise; the borrowed reference is not dropped.
        let borrowed = core::mem::ManuallyDrop::new(unsafe { Self::from_raw(at) }?);
        Some((*borrowed).clone())
    }

    /// Whether the node at `at` was cancelled.
    ///
    /// # Safety
    ///
    /// As `clone_raw`, and not null.
    pub(crate) unsafe fn peek_raw(at: *mut ()) -> bool {
        // SAFETY: the caller's promise; the borrowed reference is not dropped.
        let node = core::mem::ManuallyDrop::new(unsafe { Self::from_raw(at) });
        node.as_ref().is_some_and(Self::is_cancelled)
    }

    pub(crate) fn is_same(one: &Self, other: &Self) -> bool {
        one.0 == other.0
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `cancel`: the writer sees what the canceller
        // did before it asked.
        self.node().word.load(Ordering::Acquire) & CANCELLED != 0
    }

    /// Asks for cancellation, and runs the hook if there is one. Any number of times.
    pub(crate) fn cancel(&self) {
        // A chain of forwards is followed in a loop: it is as long as `and_then`s are nested.
        let mut owned: Option<Self> = None;
        loop {
            let node = owned.as_ref().unwrap_or(self).node();
            // ORDERING: Acquire: HOOK in the old word pairs with the Release in `set_hook` (the
            // cell). Release: what happened before the request is visible to whoever sees it.
            let before = node.word.fetch_or(CANCELLED, Ordering::AcqRel);
            if before & CANCELLED == 0
                && let Some(waker) = node.waker.take_waker()
            {
                guarded(|| waker.wake());
            }
            if before & (CANCELLED | HOOK) != HOOK {
                return;
            }
            // SAFETY: ours was the first RMW to set CANCELLED and it saw HOOK: the writer leaves the
            // cell alone from here on (`retire` and `set_hook` look at CANCELLED first).
            match node.hook.with_mut(|cell| unsafe { (*cell).take() }) {
                Some(Hook::Run(task)) => return task.run(),
                Some(Hook::Forward(next)) => owned = Some(next),
                None => return,
            }
        }
    }

    /// Leaves a hook, in place of an older one, which comes back. If cancellation was asked already,
    /// the hook comes back in `Err`: it is for the caller to fire.
    ///
    /// Only by the node's writer (one at a time).
    pub(crate) fn set_hook(&self, hook: Hook) -> Result<Option<Hook>, Hook> {
        let old = self.retire();
        if self.is_cancelled() {
            drop(old);
            return Err(hook);
        }
        // SAFETY: HOOK is clear, so a canceller does not touch the cell, and we are the one writer.
        self.node().hook.with_mut(|cell| unsafe { *cell = Some(hook) });
        // ORDERING: Release publishes the cell to the canceller's Acquire in `cancel`. Acquire:
        // CANCELLED in the old word pairs with the Release there.
        let before = self.node().word.fetch_or(HOOK, Ordering::AcqRel);
        if before & CANCELLED == 0 {
            return Ok(old);
        }
        // The canceller's RMW came first and saw no hook: the cell stayed ours.
        // SAFETY: as said.
        match self.node().hook.with_mut(|cell| unsafe { (*cell).take() }) {
            Some(hook) => Err(hook),
            None => Ok(old),
        }
    }

    /// Has `waker` woken by a cancellation; or says that it was asked already.
    ///
    /// Only by the node's writer.
    pub(crate) fn register(&self, waker: &Waker) -> bool {
        self.node().waker.register_by_ref(waker);
        self.is_cancelled()
    }

    /// Lets go of the waker, if there is one. Only by the node's writer.
    pub(crate) fn forget_waker(&self) {
        let waker = self.node().waker.take_waker();
        guarded(|| drop(waker));
    }

    /// Takes the hook back; `None` if there is none, or if a canceller has it.
    ///
    /// Only by the node's writer.
    pub(crate) fn retire(&self) -> Option<Hook> {
        // ORDERING: Relaxed: the writer takes back what it put there itself. If a canceller has it,
        // nothing of that is looked at here.
        let before = self.node().word.fetch_and(!HOOK, Ordering::Relaxed);
        if before & (CANCELLED | HOOK) != HOOK {
            return None;
        }
        // SAFETY: we were first: a canceller that comes now sees HOOK clear.
        self.node().hook.with_mut(|cell| unsafe { (*cell).take() })
    }
}

impl Hook {
    /// What a canceller does with it.
    pub(crate) fn fire(self) {
        match self {
            Self::Run(task) => task.run(),
            Self::Forward(node) => node.cancel(),
        }
    }
}

impl Clone for NodeRef {
    fn clone(&self) -> Self {
        // ORDERING: Relaxed: a new reference is made from one that keeps the node.
        if self.node().refs.fetch_add(1, Ordering::Relaxed) > MOST_REFS {
            // Only with references that are forgotten: a node that wrapped around would be freed in use.
            std::process::abort();
        }
        Self(self.0)
    }
}

impl Drop for NodeRef {
    fn drop(&mut self) {
        let mut at = self.0;
        loop {
            // SAFETY: the count we are giving up keeps the node until the line after.
            let node = unsafe { at.as_ref() };
            // ORDERING: Release: our last access comes before the free (Acquire fence below).
            if node.refs.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            // ORDERING: Acquire pairs with the Release of every other reference's drop.
            fence(Ordering::Acquire);
            // SAFETY: the last reference: nobody else can reach the node.
            let hook = node.hook.with_mut(|cell| unsafe { (*cell).take() });
            // SAFETY: as above.
            let waker = unsafe { (*at.as_ptr()).waker.take_waker_alone() };
            if waker.is_some() {
                guarded(|| drop(waker));
            }
            // SAFETY: as above; what needed a drop is out.
            unsafe {
                core::ptr::drop_in_place(at.as_ptr());
                block::free(at, const { Class::of(core::alloc::Layout::new::<Node>()) });
            }
            match hook {
                Some(Hook::Run(task)) => return guarded(|| drop(task)),
                // A nest of `and_then`s lets go in a loop.
                Some(Hook::Forward(next)) => {
                    at = next.0;
                    core::mem::forget(next);
                }
                None => return,
            }
        }
    }
}

impl fmt::Debug for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelNode").field("cancelled", &self.is_cancelled()).finish()
    }
}
