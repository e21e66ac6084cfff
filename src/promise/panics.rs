//! Where the panics of terminal callbacks, wakers and dropped values go.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::error::PanicPayload;
use crate::lock::Unseen;

type Hook = Arc<dyn Fn(PanicPayload) + Send + Sync>;

// A lock in a `static`: cold, and held only to copy a pointer.
static HOOK: Unseen<Option<Hook>> = Unseen::new(None);

/// Sets what is told of a panic that has no reader: one in a terminal callback, in a waker, in a
/// cancel hook, or in the `Drop` of a value that the crate let go of.
///
/// Such a panic is caught where it happens and never reaches the thread's own work (whoever set the
/// promise). The process's panic hook has printed it by then, as always. The hook runs on the thread
/// that panicked; if it panics itself, that is dropped. Defaults to nothing more than that print.
/// Panics inside `map` and its kind do not come here: they become the downstream's
/// [`Panicked`](super::EventualError::Panicked).
pub fn set_panic_hook(hook: impl Fn(PanicPayload) + Send + Sync + 'static) {
    let old = HOOK.lock().replace(Arc::new(hook));
    drop(old);
}

#[cold]
pub(super) fn report(payload: PanicPayload) {
    let hook = HOOK.lock().clone();
    let told = catch_unwind(AssertUnwindSafe(move || match hook {
        Some(hook) => hook(payload),
        None => drop(payload),
    }));
    if let Err(again) = told {
        // Its payload may panic when dropped, too; that would be the third: leak it.
        core::mem::forget(again);
    }
}
