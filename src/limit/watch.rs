//! Who is told when a permit may be free again.

use core::fmt;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Weak;

use crate::lock::Mutex;

/// Told when a permit may be free again, for another reason than that time has passed.
///
/// A queue that was refused waits for two things: the time in the refusal's `retry_after`, and this.
/// It is told *after* the fact, on the thread that brought it about (one that returns a permit, closes
/// a breaker, changes a setting), with no lock held; so it may call whoever tells it. It must not
/// block. A panic in it goes no further than the panic hook.
///
/// It says that somebody should look, not that a permit is theirs: others may be faster.
pub trait Listener: Send + Sync {
    /// A permit may be free.
    fn permit_freed(&self);
}

/// The listeners of one thing.
pub(crate) struct Watchers(Mutex<Vec<Weak<dyn Listener>>>);

impl Watchers {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// From now on `listener` is told, while it lives.
    pub(crate) fn add(&self, listener: Weak<dyn Listener>) {
        let mut list = self.0.lock();
        // A weak end of its own kind: its drop gives memory back and runs nothing foreign.
        list.retain(|listener| listener.strong_count() > 0);
        list.push(listener);
    }

    /// Tells everybody. Foreign code: the listeners, and the drop of one whose last owner left
    /// meanwhile. The caller holds no lock and has finished what it tells of.
    #[cold]
    pub(crate) fn tell(&self) {
        let listeners: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        for listener in listeners {
            contained(move || listener.permit_freed());
        }
    }
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watchers")
    }
}

/// Runs foreign code whose panic goes no further. False: it panicked.
pub(crate) fn contained(f: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => true,
        Err(payload) => {
            // What it threw may panic when it is dropped, and what that throws, too: leak the second.
            if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
                core::mem::forget(second);
            }
            false
        }
    }
}
