//! No asymmetric fence on this system: the heavy side says so, and its callers do without.

use super::atomic::{Ordering, compiler_fence};

/// The frequent side: program order is kept by the compiler, and that is all.
#[inline(always)]
pub(crate) fn light() {
    // ORDERING: SeqCst for the compiler alone: a store before stays before a load after; nobody
    // relies on more where `heavy` says no.
    compiler_fence(Ordering::SeqCst);
}

/// The rare side: it never happens here.
#[cold]
pub(crate) fn heavy() -> bool {
    false
}
