//! Atomics whose verbs tell `site` where they were called.

use core::panic::Location;
use core::sync::atomic::AtomicU64 as PlainU64;
pub(crate) use core::sync::atomic::Ordering;
use std::rc::Rc;

use super::super::site::{self, Op};
use super::execution::{self, Kind};

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

/// Where a loom atomic is.
///
/// Prefer `Now`. A word made in a `const` context cannot call loom: it has an identity, by which each
/// execution finds an atomic of its own. So statics start each execution afresh.
enum Word<A> {
    Now(A),
    Late { first: u64, id: PlainU64 },
}

/// `with_mut` for each of loom's atomics; its `AtomicBool` has none.
trait Exclusive<T> {
    fn exclusive<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R;
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

impl Exclusive<bool> for loom::sync::atomic::AtomicBool {
    fn exclusive<R>(&mut self, f: impl FnOnce(&mut bool) -> R) -> R {
        // SAFETY: a `&mut` to the atomic: no other thread reaches it.
        let mut value = unsafe { self.unsync_load() };
        let result = f(&mut value);
        self.store(value, Ordering::Relaxed);
        result
    }
}

macro_rules! atomic {
    ($($name:ident: $int:ty, $from:expr, { $($extra:ident),* });* $(;)?) => {$(
        pub(crate) struct $name(Word<loom::sync::atomic::$name>);

        #[allow(dead_code, reason = "the door offers the same verbs in every world")]
        impl $name {
            const KIND: Kind = Kind {
                name: stringify!($name),
                make: |first| Rc::new(loom::sync::atomic::$name::new(($from)(first))),
            };

            #[track_caller]
            pub(crate) fn new(value: $int) -> Self {
                Self(Word::Now(loom::sync::atomic::$name::new(value)))
            }

            pub(crate) const fn const_new(value: $int) -> Self {
                Self(Word::Late { first: value as u64, id: PlainU64::new(0) })
            }

            fn on<R>(&self, verb: impl FnOnce(&loom::sync::atomic::$name) -> R) -> R {
                match &self.0 {
                    Word::Now(atomic) => verb(atomic),
                    Word::Late { first, id } => {
                        let id = execution::identity(id);
                        let atomic = execution::current().late(id, Self::KIND, *first);
                        match atomic.downcast_ref() {
                            Some(atomic) => verb(atomic),
                            None => unreachable!("identities are unique, and this one is of this kind"),
                        }
                    }
                }
            }

            /// The newest value, as a read-modify-write would see it, with the given ordering; writes
            /// at most what is there. Not a site.
            ///
            /// It expects a value that words rarely hold, so that it rarely writes at all: loom takes
            /// a write of what was there, and a plain store by the word's owner after it, for two
            /// that might come in either order.
            fn newest_with(&self, order: Ordering) -> $int {
                let some = ($from)(u64::MAX);
                match self.on(|a| a.compare_exchange(some, some, order, site::load_part(order))) {
                    Ok(same) | Err(same) => same,
                }
            }

            /// The newest value, without an edge. A plain load may see an older one; a write here
            /// could undo that of an owner who stores plainly.
            pub(super) fn newest(&self) -> $int {
                self.newest_with(Ordering::Relaxed)
            }

            /// Exclusive access: no other thread can see the word.
            pub(crate) fn with_mut<R>(&mut self, f: impl FnOnce(&mut $int) -> R) -> R {
                if let Word::Now(atomic) = &mut self.0 {
                    return atomic.exclusive(f);
                }
                // Loom's own takes a `&mut` to the atomic, and a late one is behind an `Rc`.
                // SAFETY: a `&mut` to the word: no other thread reaches it. Where one does all the
                // same, without an edge to here, loom reports it: that is what this read is for.
                let mut value = self.on(|a| unsafe { a.unsync_load() });
                let result = f(&mut value);
                self.on(|a| a.store(value, Ordering::Relaxed));
                result
            }

            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $int {
                let order = site::order(Location::caller(), Op::Load, order);
                self.on(|a| a.load(order))
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $int, order: Ordering) {
                let (order, dropped) = site::write(Location::caller(), Op::Store, order);
                if !dropped {
                    self.on(|a| a.store(value, order));
                }
            }

            #[track_caller]
            pub(crate) fn swap(&self, value: $int, order: Ordering) -> $int {
                let (order, dropped) = site::write(Location::caller(), Op::Rmw, order);
                if dropped {
                    return self.newest_with(order);
                }
                self.on(|a| a.swap(value, order))
            }

            #[track_caller]
            pub(crate) fn compare_exchange(
                &self, current: $int, new: $int, success: Ordering, failure: Ordering,
            ) -> Result<$int, $int> {
                let (success, failure, dropped) =
                    site::compare(Location::caller(), success, failure);
                // A success that writes nothing leaves what it found.
                let new = if dropped { current } else { new };
                self.on(|a| a.compare_exchange(current, new, success, failure))
            }

            #[track_caller]
            pub(crate) fn compare_exchange_weak(
                &self, current: $int, new: $int, success: Ordering, failure: Ordering,
            ) -> Result<$int, $int> {
                if execution::fails_weakly() {
                    let failure = site::order(Location::caller(), Op::CompareFailed, failure);
                    return Err(self.on(|a| a.load(failure)));
                }
                self.compare_exchange(current, new, success, failure)
            }

            $(
                #[track_caller]
                pub(crate) fn $extra(&self, value: $int, order: Ordering) -> $int {
                    let (order, dropped) = site::write(Location::caller(), Op::Rmw, order);
                    if dropped {
                        return self.newest_with(order);
                    }
                    self.on(|a| a.$extra(value, order))
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
    AtomicU8: u8, |v| v as u8, { fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min };
    AtomicU32: u32, |v| v as u32, { fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min };
    AtomicU64: u64, |v: u64| v, { fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min };
    AtomicUsize: usize, |v| v as usize, { fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min };
    AtomicBool: bool, |v| v != 0, { fetch_and, fetch_or, fetch_xor };
}

/// A pointer; the same verbs, without arithmetic and without `const_new`.
pub(crate) struct AtomicPtr<T>(loom::sync::atomic::AtomicPtr<T>);

#[allow(dead_code, reason = "the door offers the same verbs in every world")]
impl<T> AtomicPtr<T> {
    #[track_caller]
    pub(crate) fn new(value: *mut T) -> Self {
        Self(loom::sync::atomic::AtomicPtr::new(value))
    }

    /// Exclusive access: no other thread can see the word.
    pub(crate) fn with_mut<R>(&mut self, f: impl FnOnce(&mut *mut T) -> R) -> R {
        self.0.with_mut(f)
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
            let none = core::ptr::null_mut();
            return match self.0.compare_exchange(none, none, order, site::load_part(order)) {
                Ok(same) | Err(same) => same,
            };
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
        let new = if dropped { current } else { new };
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
        if execution::fails_weakly() {
            return Err(self.0.load(site::order(Location::caller(), Op::CompareFailed, failure)));
        }
        self.compare_exchange(current, new, success, failure)
    }
}

impl<T> core::fmt::Debug for AtomicPtr<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("AtomicPtr")
    }
}
