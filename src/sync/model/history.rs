//! When each value of a word was written, for the compare of a wait on it.

use core::cell::Cell;
use std::sync::{Mutex, PoisonError};

std::thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// A moment in the order in which loom runs the operations of this system thread.
pub(super) fn tick() -> u64 {
    NOW.with(|now| {
        now.set(now.get() + 1);
        now.get()
    })
}

/// A word's values, oldest first, each with the moment it was written.
pub(super) struct History(Mutex<Written>);

struct Written {
    first: u64,
    later: Vec<(u64, u64)>,
}

impl History {
    pub(super) const fn new(first: u64) -> Self {
        Self(Mutex::new(Written { first, later: Vec::new() }))
    }

    fn written<R>(&self, f: impl FnOnce(&mut Written) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn write(&self, value: u64) {
        self.written(|w| w.later.push((value, tick())));
    }

    /// Nobody can have seen an older value.
    pub(super) fn restart(&self, first: u64) {
        self.written(|w| *w = Written { first, later: Vec::new() });
    }

    /// When the value was last replaced by another; `None` if it is the newest.
    pub(super) fn replaced(&self, value: u64) -> Option<u64> {
        self.written(|w| {
            let next = match w.later.iter().rposition(|(v, _)| *v == value) {
                Some(last) => last + 1,
                None if w.first == value => 0,
                None => return None,
            };
            w.later.get(next).map(|(_, at)| *at)
        })
    }
}
