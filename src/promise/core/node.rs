//! The pointer to the cancel node: null until somebody asks for one.

use crate::sync::atomic::Ordering;

use super::super::cancel::NodeRef;
use super::CorePtr;

impl<T, E> CorePtr<T, E> {
    /// Gives a fresh core its node, with the count that the pointer carries.
    ///
    /// # Safety
    ///
    /// Nobody else knows the core yet.
    pub(crate) unsafe fn give_node(self, node: *mut ()) {
        // ORDERING: Relaxed: published with the core itself.
        // SAFETY: the caller's promise.
        unsafe { self.cancel() }.store(node, Ordering::Relaxed);
    }

    /// The cancel node; made if there is none yet.
    ///
    /// # Safety
    ///
    /// The caller has not left.
    pub(crate) unsafe fn node(self) -> NodeRef {
        // SAFETY: the caller has not left; the core's count keeps the node.
        unsafe {
            let cell = self.cancel();
            // ORDERING: Acquire pairs with the Release of whoever put the node there, below.
            let at = cell.load(Ordering::Acquire);
            if let Some(node) = NodeRef::clone_raw(at) {
                return node;
            }
            let node = NodeRef::new();
            match self.put_node(node.clone()) {
                Ok(()) => node,
                Err(other) => other,
            }
        }
    }

    /// Puts a node in, if there is none; else gives the one that is there.
    ///
    /// # Safety
    ///
    /// The caller has not left.
    pub(crate) unsafe fn put_node(self, node: NodeRef) -> Result<(), NodeRef> {
        let at = node.into_raw();
        // ORDERING: Release publishes the node to the other side's Acquire (here and in `node`).
        // Acquire on failure: the other side was first.
        // SAFETY: the caller has not left; a raw pointer carries the count that was put into it.
        unsafe {
            match self.cancel().compare_exchange(
                core::ptr::null_mut(),
                at,
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(_) => Ok(()),
                Err(there) => {
                    drop(NodeRef::from_raw(at));
                    match NodeRef::clone_raw(there) {
                        Some(node) => Err(node),
                        // Not null, or the exchange had not failed.
                        None => Ok(()),
                    }
                }
            }
        }
    }

    /// The node for a stage that is about to be hung on this core: shared, or moved on where nobody
    /// behind the reader needs it.
    ///
    /// # Safety
    ///
    /// Only by the reader, which has not left.
    pub(crate) unsafe fn node_for_stage(self) -> *mut () {
        // SAFETY: not left; `moves_node` never changes.
        unsafe {
            if (*self.0.as_ptr()).header.about.moves_node {
                // The writer is a stage that never looks for the node.
                // ORDERING: Relaxed: no other thread touches the pointer; `attach` publishes it.
                let at = self.cancel().load(Ordering::Relaxed);
                if !at.is_null() {
                    self.cancel().store(core::ptr::null_mut(), Ordering::Relaxed);
                    return at;
                }
            }
            self.node().into_raw()
        }
    }

    /// Whether there is a node. One may come right after.
    ///
    /// # Safety
    ///
    /// The caller has not left.
    #[inline]
    pub(crate) unsafe fn has_node(self) -> bool {
        // ORDERING: Relaxed: whoever looks into a node asks for it again, with Acquire.
        // SAFETY: the caller has not left.
        !unsafe { self.cancel() }.load(Ordering::Relaxed).is_null()
    }

    /// Whether there is a node, and it was cancelled.
    ///
    /// # Safety
    ///
    /// The caller has not left.
    #[inline]
    pub(crate) unsafe fn node_is_cancelled(self) -> bool {
        // ORDERING: Acquire pairs with the Release in `put_node`.
        // SAFETY: the caller has not left, so the core's count keeps the node.
        unsafe {
            let at = self.cancel().load(Ordering::Acquire);
            !at.is_null() && NodeRef::peek_raw(at)
        }
    }

    /// The node if there is one.
    ///
    /// # Safety
    ///
    /// The caller has not left.
    #[inline]
    pub(crate) unsafe fn node_if_any(self) -> Option<NodeRef> {
        // ORDERING: Acquire pairs with the Release in `put_node`.
        // SAFETY: the caller has not left.
        unsafe { NodeRef::clone_raw(self.cancel().load(Ordering::Acquire)) }
    }
}

/// # Safety
///
/// `node` carries a count, which is given up.
#[cold]
#[inline(never)]
pub(super) unsafe fn drop_node(node: *mut ()) {
    // SAFETY: the caller's promise.
    drop(unsafe { NodeRef::from_raw(node) });
}
