//! The door under loom.
//!
//! | file           | what it is                                                                  |
//! |----------------|-----------------------------------------------------------------------------|
//! | [`atomic`]     | wrappers whose verbs are `#[track_caller]`: the call site goes to `site`, which records it and may weaken that one site |
//! | [`park`]       | a queue of sleepers in the model                                            |
//! | `history`      | when each value of a word was written: which of them a wait's compare may see |
//! | [`execution`]  | what lives for one execution: sleepers, atomics made in `const` contexts, what is left of the injected early wakes and failures |
//!
//! Loom explores; the wrappers add no operation of their own.

pub(crate) mod atomic;
pub(crate) mod execution;
mod history;
pub(crate) mod park;

pub(crate) mod barrier {
    //! Loom cannot tell an asymmetric fence from two full ones; `tests/lock_tso.rs` can.

    use super::atomic::{Ordering, fence};

    /// The frequent side.
    #[track_caller]
    pub(crate) fn light() {
        // ORDERING: SeqCst: one of the two fences of a store-buffering pair; the other is `heavy`.
        fence(Ordering::SeqCst);
    }

    /// The rare side; in a model it always happens.
    #[track_caller]
    pub(crate) fn heavy() -> bool {
        // ORDERING: SeqCst: one of the two fences of a store-buffering pair; the other is `light`.
        fence(Ordering::SeqCst);
        true
    }
}

pub(crate) mod cell {
    #[allow(unused_imports, reason = "the door offers the same names in every world")]
    pub(crate) use loom::cell::UnsafeCell;
}

pub(crate) mod hint {
    /// Spinning in a model gives the other threads their turn.
    #[allow(dead_code, reason = "the door offers the same names in every world")]
    pub(crate) fn spin_loop() {
        loom::thread::yield_now();
    }

    /// No spinning: with even one round a lost wake can hide, because the yield lets the other
    /// side finish first.
    #[allow(dead_code, reason = "the door offers the same names in every world")]
    pub(crate) const SPIN_CAP: u32 = 0;
}

#[allow(unused_imports, reason = "the door offers the same names in every world")]
pub(crate) mod thread {
    pub(crate) use loom::thread::{Builder, JoinHandle, ThreadId, current, spawn, yield_now};
    pub(crate) use std::thread::panicking;

    /// A model has no time: the others get their turn.
    pub(crate) fn sleep(_duration: core::time::Duration) {
        loom::thread::yield_now();
    }
}

/// A plain lock for slow paths below the room `lock`: loom's, which never poisons.
#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// One async waiter, as loom has it.
#[derive(Debug, Default)]
pub(crate) struct AtomicWaker(loom::future::AtomicWaker);

impl AtomicWaker {
    pub(crate) fn new() -> Self {
        Self(loom::future::AtomicWaker::new())
    }

    pub(crate) fn register_by_ref(&self, waker: &core::task::Waker) {
        self.0.register_by_ref(waker);
    }

    pub(crate) fn take_waker_alone(&mut self) -> Option<core::task::Waker> {
        self.take_waker()
    }

    pub(crate) fn take_waker(&self) -> Option<core::task::Waker> {
        self.0.take_waker()
    }
}

#[allow(unused_imports, reason = "the door offers the same names in every world")]
pub(crate) use loom::sync::Arc;
#[allow(unused_imports, reason = "the door offers the same names in every world")]
pub(crate) use loom::thread_local;

/// A value whose leak fails the model.
pub(crate) use loom::alloc::Track;
