//! The door under loom.
//!
//! Each atomic is a thin wrapper whose verbs are `#[track_caller]`: the call site is handed to
//! [`site`](super::site), which records it and may weaken that one site. Loom explores; the wrapper
//! adds no operation of its own.

pub(crate) mod atomic {
    use core::panic::Location;
    pub(crate) use core::sync::atomic::Ordering;
    use std::sync::OnceLock;

    use super::super::site::{self, Op};

    /// A fence, which a weakening run may leave out.
    #[track_caller]
    pub(crate) fn fence(order: Ordering) {
        if let Some(order) = site::fence(Location::caller(), order) {
            loom::sync::atomic::fence(order);
        }
    }

    /// Loom has no compiler to fence.
    #[allow(dead_code, reason = "the door offers the same names in every world")]
    pub(crate) fn compiler_fence(_order: Ordering) {}

    /// A loom atomic that can be made in a `const` context: it comes to life at its first use.
    ///
    /// Eager (`new`) wherever possible: a lazy one is created by whoever touches it first, and
    /// later readers of the first value synchronise with that thread.
    struct Lazy<A, I> {
        first: I,
        atomic: OnceLock<A>,
    }

    /// Exclusive access, which loom offers for its integers only.
    trait Exclusive<V> {
        fn exclusive<R>(&mut self, f: impl FnOnce(&mut V) -> R) -> R;
    }

    impl Exclusive<bool> for loom::sync::atomic::AtomicBool {
        fn exclusive<R>(&mut self, f: impl FnOnce(&mut bool) -> R) -> R {
            // SAFETY: `&mut self`: no other thread can see the word.
            let mut value = unsafe { self.unsync_load() };
            let result = f(&mut value);
            // ORDERING: Relaxed: nobody else sees the word before it is shared again.
            self.store(value, Ordering::Relaxed);
            result
        }
    }

    macro_rules! exclusive {
        ($($name:ident: $int:ty),*) => {$(
            impl Exclusive<$int> for loom::sync::atomic::$name {
                fn exclusive<R>(&mut self, f: impl FnOnce(&mut $int) -> R) -> R {
                    self.with_mut(f)
                }
            }
        )*};
    }

    exclusive!(AtomicU8: u8, AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize);

    macro_rules! atomic {
        ($($name:ident: $int:ty { $($extra:ident),* });* $(;)?) => {$(
            pub(crate) struct $name(Lazy<loom::sync::atomic::$name, $int>);

            #[allow(dead_code, reason = "the door offers the same verbs in every world")]
            impl $name {
                #[track_caller]
                pub(crate) fn new(value: $int) -> Self {
                    let atomic = OnceLock::new();
                    let _ = atomic.set(loom::sync::atomic::$name::new(value));
                    Self(Lazy { first: value, atomic })
                }

                pub(crate) const fn const_new(value: $int) -> Self {
                    Self(Lazy { first: value, atomic: OnceLock::new() })
                }

                fn loom(&self) -> &loom::sync::atomic::$name {
                    self.0.atomic.get_or_init(|| loom::sync::atomic::$name::new(self.0.first))
                }

                pub(crate) fn with_mut<R>(&mut self, f: impl FnOnce(&mut $int) -> R) -> R {
                    self.loom();
                    match self.0.atomic.get_mut() {
                        Some(atomic) => Exclusive::exclusive(atomic, f),
                        None => unreachable!("created on the line above"),
                    }
                }

                #[track_caller]
                pub(crate) fn load(&self, order: Ordering) -> $int {
                    let order = site::order(Location::caller(), Op::Load, order);
                    self.loom().load(order)
                }

                #[track_caller]
                pub(crate) fn store(&self, value: $int, order: Ordering) {
                    let (order, dropped) = site::write(Location::caller(), Op::Store, order);
                    if dropped {
                        return;
                    }
                    self.loom().store(value, order);
                }

                #[track_caller]
                pub(crate) fn swap(&self, value: $int, order: Ordering) -> $int {
                    let (order, dropped) = site::write(Location::caller(), Op::Rmw, order);
                    if dropped {
                        return self.loom().load(site::load_part(order));
                    }
                    self.loom().swap(value, order)
                }

                #[track_caller]
                pub(crate) fn compare_exchange(
                    &self, current: $int, new: $int, success: Ordering, failure: Ordering,
                ) -> Result<$int, $int> {
                    let (success, failure, dropped) =
                        site::compare(Location::caller(), success, failure);
                    if dropped {
                        let seen = self.loom().load(site::load_part(success));
                        return if seen == current { Ok(seen) } else { Err(seen) };
                    }
                    self.loom().compare_exchange(current, new, success, failure)
                }

                #[track_caller]
                pub(crate) fn compare_exchange_weak(
                    &self, current: $int, new: $int, success: Ordering, failure: Ordering,
                ) -> Result<$int, $int> {
                    self.compare_exchange(current, new, success, failure)
                }

                $(
                    #[track_caller]
                    pub(crate) fn $extra(&self, value: $int, order: Ordering) -> $int {
                        let (order, dropped) = site::write(Location::caller(), Op::Rmw, order);
                        if dropped {
                            return self.loom().load(site::load_part(order));
                        }
                        self.loom().$extra(value, order)
                    }
                )*
            }

            impl core::fmt::Debug for $name {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    f.write_str(stringify!($name))
                }
            }
        )*};
    }

    atomic! {
        AtomicU8: u8 { fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min };
        AtomicU32: u32 { fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min };
        AtomicU64: u64 { fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min };
        AtomicUsize: usize { fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min };
        AtomicBool: bool { fetch_and, fetch_or, fetch_xor };
    }

    /// A pointer; the same verbs, without arithmetic.
    pub(crate) struct AtomicPtr<T>(loom::sync::atomic::AtomicPtr<T>);

    #[allow(dead_code, reason = "the door offers the same verbs in every world")]
    impl<T> AtomicPtr<T> {
        #[track_caller]
        pub(crate) fn new(value: *mut T) -> Self {
            Self(loom::sync::atomic::AtomicPtr::new(value))
        }

        #[track_caller]
        pub(crate) fn load(&self, order: Ordering) -> *mut T {
            self.0.load(site::order(Location::caller(), Op::Load, order))
        }

        #[track_caller]
        pub(crate) fn store(&self, value: *mut T, order: Ordering) {
            let (order, dropped) = site::write(Location::caller(), Op::Store, order);
            if !dropped {
                self.0.store(value, order);
            }
        }

        #[track_caller]
        pub(crate) fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
            let (order, dropped) = site::write(Location::caller(), Op::Rmw, order);
            if dropped {
                return self.0.load(site::load_part(order));
            }
            self.0.swap(value, order)
        }

        #[track_caller]
        pub(crate) fn compare_exchange(
            &self,
            current: *mut T,
            new: *mut T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<*mut T, *mut T> {
            let (success, failure, dropped) = site::compare(Location::caller(), success, failure);
            if dropped {
                let seen = self.0.load(site::load_part(success));
                return if seen == current { Ok(seen) } else { Err(seen) };
            }
            self.0.compare_exchange(current, new, success, failure)
        }

        #[track_caller]
        pub(crate) fn compare_exchange_weak(
            &self,
            current: *mut T,
            new: *mut T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<*mut T, *mut T> {
            self.compare_exchange(current, new, success, failure)
        }
    }

    impl<T> core::fmt::Debug for AtomicPtr<T> {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("AtomicPtr")
        }
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
    pub(crate) use loom::thread::{Builder, JoinHandle, current, spawn, yield_now};
    pub(crate) use std::thread::panicking;

    /// A model has no time: the others get their turn.
    pub(crate) fn sleep(_duration: core::time::Duration) {
        loom::thread::yield_now();
    }
}

#[allow(unused_imports, reason = "the door offers the same names in every world")]
pub(crate) use loom::sync::Arc;
#[allow(unused_imports, reason = "the door offers the same names in every world")]
pub(crate) use loom::thread_local;

pub(crate) mod park {
    //! A queue of sleepers in the model.
    //!
    //! The queue is a plain one in a `std` thread-local: loom runs all threads of a model on one
    //! system thread and switches only at loom operations, of which there are none between pushing
    //! and parking, so the queue is never seen half changed.

    use core::cell::{Cell, RefCell};
    use core::panic::Location;
    use core::time::Duration;

    use super::super::Wait;
    use super::super::site;
    use super::atomic::{AtomicU32, Ordering};

    struct Sleeper {
        key: usize,
        ticket: u64,
        thread: loom::thread::Thread,
    }

    std::thread_local! {
        static SLEEPERS: RefCell<Vec<Sleeper>> = const { RefCell::new(Vec::new()) };
        static TICKET: Cell<u64> = const { Cell::new(0) };
    }

    /// Forgets sleepers that a failed execution left behind.
    pub(crate) fn reset() {
        SLEEPERS.with(|s| s.borrow_mut().clear());
    }

    /// Sleeps while `*word == expected`. A timeout fires at once or never, as the model asks.
    #[track_caller]
    pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wait {
        let recheck = !site::drop_recheck(Location::caller());
        // Only a read-modify-write is sure to see the newest value, as the kernel's compare is. But
        // the owner of some words stores to them plainly, and a write here could undo theirs: so a
        // compare-and-exchange that fails whenever it matters.
        // ORDERING: Relaxed: a futex adds no edge either.
        let seen =
            match word.compare_exchange(!expected, !expected, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(same) | Err(same) => same,
            };
        if recheck && seen != expected {
            return Wait::Changed;
        }
        if timeout.is_some() && site::timeouts_fire() {
            loom::thread::yield_now();
            return Wait::TimedOut;
        }
        let key = core::ptr::from_ref(word).addr();
        let ticket = TICKET.with(|t| t.replace(t.get() + 1));
        let thread = loom::thread::current();
        SLEEPERS.with(|s| s.borrow_mut().push(Sleeper { key, ticket, thread }));
        loom::thread::park();
        // Woken by someone who found the entry, or early: then the entry is still there.
        SLEEPERS.with(|s| s.borrow_mut().retain(|sleeper| sleeper.ticket != ticket));
        Wait::Woken
    }

    /// Wakes one sleeper on this address; says how many it woke (0 or 1).
    #[track_caller]
    pub(crate) fn wake_one(word: *const AtomicU32) -> usize {
        wake(Location::caller(), word.addr(), 1)
    }

    /// Wakes every sleeper on this address; says how many.
    #[allow(dead_code, reason = "the door offers the same verbs in every world")]
    #[track_caller]
    pub(crate) fn wake_all(word: *const AtomicU32) -> usize {
        wake(Location::caller(), word.addr(), usize::MAX)
    }

    fn wake(caller: &'static Location<'static>, key: usize, most: usize) -> usize {
        if site::drop_wake(caller) {
            return 0;
        }
        // The word itself may be gone: touch an atomic of our own, so that loom explores the gap
        // between the release and the wake.
        let gap = loom::sync::atomic::AtomicUsize::new(0);
        // ORDERING: Relaxed: only a point at which loom may switch.
        gap.fetch_add(1, Ordering::Relaxed);
        let mut woken = Vec::new();
        SLEEPERS.with(|s| {
            let mut sleepers = s.borrow_mut();
            while woken.len() < most {
                let Some(at) = sleepers.iter().position(|sleeper| sleeper.key == key) else {
                    break;
                };
                woken.push(sleepers.remove(at).thread);
            }
        });
        for thread in &woken {
            thread.unpark();
        }
        woken.len()
    }
}
