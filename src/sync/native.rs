//! The door in ordinary builds: `core` atomics, `std` threads, the system's parking.

pub(crate) mod atomic {
    pub(crate) use core::sync::atomic::{Ordering, compiler_fence, fence};

    macro_rules! atomic {
        ($($name:ident: $int:ty),*) => {$(
            /// The atomic of `core`, with the door's constructor for `const` contexts.
            #[repr(transparent)]
            pub(crate) struct $name(core::sync::atomic::$name);

            #[allow(dead_code, reason = "the door offers the same verbs in every world")]
            impl $name {
                #[inline(always)]
                pub(crate) const fn new(value: $int) -> Self {
                    Self(core::sync::atomic::$name::new(value))
                }

                #[inline(always)]
                pub(crate) const fn const_new(value: $int) -> Self {
                    Self::new(value)
                }

                /// Exclusive access: no other thread can see the word.
                #[inline(always)]
                pub(crate) fn with_mut<R>(&mut self, f: impl FnOnce(&mut $int) -> R) -> R {
                    f(self.0.get_mut())
                }
            }

            impl core::ops::Deref for $name {
                type Target = core::sync::atomic::$name;

                #[inline(always)]
                fn deref(&self) -> &Self::Target {
                    &self.0
                }
            }

            impl core::fmt::Debug for $name {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    self.0.fmt(f)
                }
            }
        )*};
    }

    atomic!(AtomicU8: u8, AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize, AtomicBool: bool);

    /// A pointer; the atomic of `core`.
    #[repr(transparent)]
    #[allow(dead_code, reason = "the door offers the same names in every world")]
    pub(crate) struct AtomicPtr<T>(core::sync::atomic::AtomicPtr<T>);

    #[allow(dead_code, reason = "the door offers the same verbs in every world")]
    impl<T> AtomicPtr<T> {
        #[inline(always)]
        pub(crate) const fn new(value: *mut T) -> Self {
            Self(core::sync::atomic::AtomicPtr::new(value))
        }

        /// Exclusive access: no other thread can see the word.
        #[inline(always)]
        pub(crate) fn with_mut<R>(&mut self, f: impl FnOnce(&mut *mut T) -> R) -> R {
            f(self.0.get_mut())
        }
    }

    impl<T> core::ops::Deref for AtomicPtr<T> {
        type Target = core::sync::atomic::AtomicPtr<T>;

        #[inline(always)]
        fn deref(&self) -> &Self::Target {
            &self.0
        }
    }

    impl<T> core::fmt::Debug for AtomicPtr<T> {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            self.0.fmt(f)
        }
    }
}

pub(crate) mod cell {
    /// A cell reached by closures, so that loom can watch each access.
    #[repr(transparent)]
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T: ?Sized>(core::cell::UnsafeCell<T>);

    #[allow(dead_code, reason = "the door offers the same verbs in every world")]
    impl<T> UnsafeCell<T> {
        #[inline(always)]
        pub(crate) const fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }

    #[allow(dead_code, reason = "the door offers the same verbs in every world")]
    impl<T: ?Sized> UnsafeCell<T> {
        /// Shared access: no `with_mut` may overlap.
        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Exclusive access: nothing may overlap.
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

pub(crate) mod hint {
    pub(crate) use core::hint::spin_loop;

    /// The most rounds any spin loop may take before it parks or yields.
    #[allow(dead_code, reason = "the door offers the same names in every world")]
    pub(crate) const SPIN_CAP: u32 = u32::MAX;
}

#[allow(unused_imports, reason = "the door offers the same names in every world")]
pub(crate) mod thread {
    pub(crate) use std::thread::{
        Builder, JoinHandle, ThreadId, current, panicking, sleep, spawn, yield_now,
    };
}

/// A plain lock for slow paths below the room `lock`; above it, [`crate::lock::Mutex`]. A panic inside does not poison it: its users
/// leave what it guards whole between any two of their steps.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// One async waiter: `register`, then look; or change, then `take` and wake.
///
/// Under a plain lock, which holds for a move of two words: the crate `atomic-waker` clones and drops
/// the foreign waker inside its own critical section, which a panic there never leaves, so that every
/// later wake is lost.
#[derive(Debug, Default)]
pub(crate) struct AtomicWaker(Mutex<Option<core::task::Waker>>);

impl AtomicWaker {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(crate) fn register_by_ref(&self, waker: &core::task::Waker) {
        let is_there = self.0.lock().as_ref().is_some_and(|old| old.will_wake(waker));
        if !is_there {
            // Foreign, both: with no lock held, and nothing half changed.
            let waker = waker.clone();
            let old = self.0.lock().replace(waker);
            drop(old);
        }
    }

    pub(crate) fn take_waker(&self) -> Option<core::task::Waker> {
        self.0.lock().take()
    }

    /// The same, by a sole owner.
    pub(crate) fn take_waker_alone(&mut self) -> Option<core::task::Waker> {
        self.0.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}

#[allow(unused_imports, reason = "the door offers the same names in every world")]
pub(crate) use std::sync::Arc;
#[allow(unused_imports, reason = "the door offers the same names in every world")]
pub(crate) use std::thread_local;

#[cfg(all(target_os = "linux", not(tenure_portable_park)))]
#[path = "park_futex.rs"]
pub(crate) mod park;

#[cfg(not(all(target_os = "linux", not(tenure_portable_park))))]
#[path = "park_portable.rs"]
pub(crate) mod park;

#[cfg(all(target_os = "linux", not(tenure_portable_park)))]
#[path = "barrier_linux.rs"]
pub(crate) mod barrier;

#[cfg(not(all(target_os = "linux", not(tenure_portable_park))))]
#[path = "barrier_none.rs"]
pub(crate) mod barrier;
