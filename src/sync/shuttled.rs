//! The door under shuttle: random schedules, for more threads and steps than loom can explore.
//!
//! Every atomic is sequentially consistent here, whatever its ordering says: shuttle finds lost
//! wakes, lost values, deadlocks and two threads in one cell, and no fault of ordering.

pub(crate) mod atomic {
    #[allow(unused_imports, reason = "the door offers the same names in every world")]
    pub(crate) use shuttle::sync::atomic::{Ordering, compiler_fence, fence};

    macro_rules! atomic {
        ($($name:ident: $int:ty),*) => {$(
            /// The atomic of `shuttle`, with the door's names.
            pub(crate) struct $name(shuttle::sync::atomic::$name);

            #[allow(dead_code, reason = "the door offers the same verbs in every world")]
            impl $name {
                pub(crate) const fn new(value: $int) -> Self {
                    Self(shuttle::sync::atomic::$name::new(value))
                }

                pub(crate) const fn const_new(value: $int) -> Self {
                    Self::new(value)
                }

                /// Exclusive access: no other thread can see the word.
                pub(crate) fn with_mut<R>(&mut self, f: impl FnOnce(&mut $int) -> R) -> R {
                    f(self.0.get_mut())
                }
            }

            impl core::ops::Deref for $name {
                type Target = shuttle::sync::atomic::$name;

                fn deref(&self) -> &Self::Target {
                    &self.0
                }
            }

            impl core::fmt::Debug for $name {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    f.write_str(stringify!($name))
                }
            }
        )*};
    }

    atomic!(AtomicU8: u8, AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize, AtomicBool: bool);

    /// A pointer; the atomic of `shuttle`.
    #[allow(dead_code, reason = "the door offers the same names in every world")]
    pub(crate) struct AtomicPtr<T>(shuttle::sync::atomic::AtomicPtr<T>);

    #[allow(dead_code, reason = "the door offers the same verbs in every world")]
    impl<T> AtomicPtr<T> {
        pub(crate) const fn new(value: *mut T) -> Self {
            Self(shuttle::sync::atomic::AtomicPtr::new(value))
        }

        /// Exclusive access: no other thread can see the word.
        pub(crate) fn with_mut<R>(&mut self, f: impl FnOnce(&mut *mut T) -> R) -> R {
            f(self.0.get_mut())
        }
    }

    impl<T> core::ops::Deref for AtomicPtr<T> {
        type Target = shuttle::sync::atomic::AtomicPtr<T>;

        fn deref(&self) -> &Self::Target {
            &self.0
        }
    }

    impl<T> core::fmt::Debug for AtomicPtr<T> {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("AtomicPtr")
        }
    }
}

pub(crate) mod cell {
    use core::cell::Cell;

    /// A cell that notices when two threads are in it: each access lets the others run once while
    /// it is inside.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T: ?Sized> {
        /// How many read; -1 while one writes.
        inside: Cell<isize>,
        value: core::cell::UnsafeCell<T>,
    }

    #[allow(dead_code, reason = "the door offers the same verbs in every world")]
    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self { inside: Cell::new(0), value: core::cell::UnsafeCell::new(value) }
        }

        pub(crate) fn into_inner(self) -> T {
            assert_eq!(self.inside.get(), 0, "a cell was moved out of while a thread was in it");
            self.value.into_inner()
        }
    }

    /// Leaves the cell, also when the access panics.
    struct Leave<'a>(&'a Cell<isize>, isize);

    impl Drop for Leave<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() - self.1);
        }
    }

    #[allow(dead_code, reason = "the door offers the same verbs in every world")]
    impl<T: ?Sized> UnsafeCell<T> {
        fn enter(&self, weight: isize) -> Leave<'_> {
            self.inside.set(self.inside.get() + weight);
            let leave = Leave(&self.inside, weight);
            if !std::thread::panicking() {
                shuttle::thread::sleep(core::time::Duration::ZERO);
            }
            leave
        }

        /// Shared access: no `with_mut` may overlap.
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            assert!(self.inside.get() >= 0, "a thread reads a cell that another writes");
            let _leave = self.enter(1);
            f(self.value.get())
        }

        /// Exclusive access: nothing may overlap.
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            assert_eq!(self.inside.get(), 0, "a thread writes a cell that another is in");
            let _leave = self.enter(-1);
            f(self.value.get())
        }
    }
}

pub(crate) mod hint {
    #[allow(unused_imports, reason = "the door offers the same names in every world")]
    pub(crate) use shuttle::hint::spin_loop;

    /// One round: both the spinning path and the parking one are taken often.
    #[allow(dead_code, reason = "the door offers the same names in every world")]
    pub(crate) const SPIN_CAP: u32 = 1;
}

#[allow(unused_imports, reason = "the door offers the same names in every world")]
pub(crate) mod thread {
    pub(crate) use shuttle::thread::{
        Builder, JoinHandle, ThreadId, current, panicking, sleep, spawn, yield_now,
    };
}

pub(crate) mod barrier {
    //! Every access is sequentially consistent here: there is nothing to order.

    /// The frequent side.
    pub(crate) fn light() {}

    /// The rare side.
    pub(crate) fn heavy() -> bool {
        shuttle::thread::sleep(core::time::Duration::ZERO);
        true
    }
}

/// A plain lock for slow paths below the room `lock`. A panic inside does not poison it.
#[derive(Debug)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[allow(unused_imports, reason = "the door offers the same names in every world")]
pub(crate) use shuttle::sync::Arc;
#[allow(unused_imports, reason = "the door offers the same names in every world")]
pub(crate) use shuttle::thread_local;

pub(crate) mod park {
    //! A queue of sleepers. Shuttle switches only at its own operations, so the look at the word, the
    //! push and the park are one step, as in a futex.

    use core::time::Duration;
    use std::sync::{Mutex, PoisonError};

    use shuttle::rand::Rng as _;

    use super::super::Wait;
    use super::atomic::{AtomicU32, Ordering};

    struct Sleeper {
        key: usize,
        ticket: u64,
        thread: shuttle::thread::Thread,
    }

    #[derive(Default)]
    struct Queue {
        sleepers: Vec<Sleeper>,
        tickets: u64,
    }

    // One for each execution: shuttle drops it with the execution.
    shuttle::lazy_static! {
        static ref QUEUE: Mutex<Queue> = Mutex::new(Queue::default());
    }

    fn queue<R>(f: impl FnOnce(&mut Queue) -> R) -> R {
        f(&mut QUEUE.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn leave(ticket: u64) -> bool {
        queue(|queue| {
            let before = queue.sleepers.len();
            queue.sleepers.retain(|sleeper| sleeper.ticket != ticket);
            queue.sleepers.len() < before
        })
    }

    /// Sleeps while `*word == expected`. A timeout fires after a random number of others' steps.
    pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wait {
        let key = core::ptr::from_ref(word).addr();
        let thread = shuttle::thread::current();
        // So that its creation, which may switch, is behind us.
        queue(|_| ());
        if word.load(Ordering::SeqCst) != expected {
            return Wait::Changed;
        }
        let ticket = queue(|queue| {
            queue.tickets += 1;
            let ticket = queue.tickets;
            queue.sleepers.push(Sleeper { key, ticket, thread });
            ticket
        });
        if timeout.is_none() {
            shuttle::thread::park();
            return if leave(ticket) { Wait::Changed } else { Wait::Woken };
        }
        for _ in 0..shuttle::rand::thread_rng().gen_range(0..10) {
            shuttle::thread::yield_now();
        }
        if leave(ticket) {
            return Wait::TimedOut;
        }
        // Whoever took the entry unparks this thread, sooner or later: take that, or it would cut
        // short the next sleep.
        shuttle::thread::park();
        Wait::Woken
    }

    /// Wakes one sleeper on this address; says how many it woke (0 or 1).
    pub(crate) fn wake_one(word: *const AtomicU32) -> usize {
        wake(word.addr(), 1)
    }

    /// Wakes every sleeper on this address; says how many.
    #[allow(dead_code, reason = "the door offers the same verbs in every world")]
    pub(crate) fn wake_all(word: *const AtomicU32) -> usize {
        wake(word.addr(), usize::MAX)
    }

    fn wake(key: usize, most: usize) -> usize {
        // The gap between the release and the wake.
        shuttle::thread::sleep(Duration::ZERO);
        let woken: Vec<_> = queue(|queue| {
            let mut woken = Vec::new();
            while woken.len() < most {
                let here: Vec<usize> =
                    (0..queue.sleepers.len()).filter(|i| queue.sleepers[*i].key == key).collect();
                // Not always the first: no system promises an order.
                let Some(at) =
                    here.get(shuttle::rand::thread_rng().gen_range(0..here.len().max(1)))
                else {
                    break;
                };
                woken.push(queue.sleepers.remove(*at).thread);
            }
            woken
        });
        for thread in &woken {
            thread.unpark();
        }
        woken.len()
    }
}

/// One async waiter: `register`, then look; or change, then `take` and wake.
#[derive(Debug, Default)]
pub(crate) struct AtomicWaker(atomic_waker::AtomicWaker);

impl AtomicWaker {
    pub(crate) const fn new() -> Self {
        Self(atomic_waker::AtomicWaker::new())
    }

    pub(crate) fn register_by_ref(&self, waker: &core::task::Waker) {
        self.0.register(waker);
    }

    pub(crate) fn take_waker_alone(&mut self) -> Option<core::task::Waker> {
        self.take_waker()
    }

    pub(crate) fn take_waker(&self) -> Option<core::task::Waker> {
        self.0.take()
    }
}
