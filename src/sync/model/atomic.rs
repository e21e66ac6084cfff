//! Atomics whose verbs tell `site` where they were called.

use core::panic::Location;
use core::sync::atomic::AtomicU64 as PlainU64;
pub(crate) use core::sync::atomic::Ordering;
use std::rc::Rc;

use super::super::site::{self, Op};
use super::execution::{self, Alive, Kind};
use super::history::History;

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

/// What each verb writes.
mod verbs {
    use core::ops::{BitAnd, BitOr, BitXor};

    pub(super) trait Wrap: Ord {
        fn wrapping_add(self, other: Self) -> Self;
        fn wrapping_sub(self, other: Self) -> Self;
    }

    macro_rules! wrap {
        ($($int:ty),*) => {$(
            impl Wrap for $int {
                fn wrapping_add(self, other: Self) -> Self {
                    self.wrapping_add(other)
                }
                fn wrapping_sub(self, other: Self) -> Self {
                    self.wrapping_sub(other)
                }
            }
        )*};
    }

    wrap!(u8, u32, u64, usize);

    pub(super) fn fetch_add<T: Wrap>(old: T, by: T) -> T {
        old.wrapping_add(by)
    }
    pub(super) fn fetch_sub<T: Wrap>(old: T, by: T) -> T {
        old.wrapping_sub(by)
    }
    pub(super) fn fetch_and<T: BitAnd<Output = T>>(old: T, with: T) -> T {
        old & with
    }
    pub(super) fn fetch_or<T: BitOr<Output = T>>(old: T, with: T) -> T {
        old | with
    }
    pub(super) fn fetch_xor<T: BitXor<Output = T>>(old: T, with: T) -> T {
        old ^ with
    }
    pub(super) fn fetch_max<T: Ord>(old: T, other: T) -> T {
        old.max(other)
    }
    pub(super) fn fetch_min<T: Ord>(old: T, other: T) -> T {
        old.min(other)
    }
}

/// `with_mut` for each of loom's atomics; its `AtomicBool` has none.
trait Exclusive<T> {
    fn exclusive<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R;

    /// Has loom check that all accesses of other threads come before.
    fn alone(&mut self);
}

macro_rules! exclusive {
    ($($name:ident: $int:ty),*) => {$(
        impl Exclusive<$int> for loom::sync::atomic::$name {
            fn exclusive<R>(&mut self, f: impl FnOnce(&mut $int) -> R) -> R {
                self.with_mut(f)
            }
            fn alone(&mut self) {
                self.with_mut(|_| ());
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
    fn alone(&mut self) {
        // SAFETY: a `&mut` to the atomic. Sees others' stores, not their loads: loom offers no more
        // for its `AtomicBool`.
        let _ = unsafe { self.unsync_load() };
    }
}

macro_rules! atomic {
    ($($name:ident: $int:ty, $from:expr, { $($extra:ident),* });* $(;)?) => {$(
        pub(crate) struct $name {
            word: Word<loom::sync::atomic::$name>,
            history: History,
            alive: Alive,
        }

        /// Memory is given back: every access of other threads must come before.
        impl Drop for $name {
            fn drop(&mut self) {
                if self.alive.is_sound()
                    && let Word::Now(atomic) = &mut self.word
                {
                    atomic.alone();
                }
            }
        }

        #[allow(dead_code, reason = "the door offers the same verbs in every world")]
        impl $name {
            const KIND: Kind = Kind {
                name: stringify!($name),
                make: |first| Rc::new(loom::sync::atomic::$name::new(($from)(first))),
            };

            #[track_caller]
            pub(crate) fn new(value: $int) -> Self {
                let word = Word::Now(loom::sync::atomic::$name::new(value));
                Self { word, history: History::new(value as u64), alive: Alive::new() }
            }

            pub(crate) const fn const_new(value: $int) -> Self {
                let first = value as u64;
                let word = Word::Late { first, id: PlainU64::new(0) };
                Self { word, history: History::new(first), alive: Alive::unknown() }
            }

            fn on<R>(&self, verb: impl FnOnce(&loom::sync::atomic::$name) -> R) -> R {
                match &self.word {
                    Word::Now(atomic) => verb(atomic),
                    Word::Late { first, id } => {
                        let id = execution::identity(id);
                        let (atomic, fresh) = execution::current().late(id, Self::KIND, *first);
                        if fresh {
                            self.history.restart(*first);
                        }
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

            /// What a futex's compare may see: any value that a load may, but for those which somebody
            /// had replaced before the address was last woken, at `woken()`. Not a site, and no edge.
            ///
            /// The kernel's compare is a load. It is ordered against wakes by the lock of the
            /// address's bucket, and against nothing else: a store that another thread made before,
            /// without an edge to here, may still be on its way.
            pub(super) fn compared(&self, woken: impl FnOnce() -> u64) -> $int {
                let seen = self.on(|a| a.load(Ordering::Relaxed));
                // After the load: loom may have switched before it.
                let woken = woken();
                if self.history.replaced(seen as u64).is_none_or(|at| at > woken) {
                    return seen;
                }
                self.newest_with(Ordering::Relaxed)
            }

            /// Exclusive access: no other thread can see the word.
            pub(crate) fn with_mut<R>(&mut self, f: impl FnOnce(&mut $int) -> R) -> R {
                if let Word::Now(atomic) = &mut self.word {
                    return atomic.exclusive(|value| {
                        let result = f(value);
                        self.history.restart(*value as u64);
                        result
                    });
                }
                // Loom's own takes a `&mut` to the atomic, and a late one is behind an `Rc`.
                // SAFETY: a `&mut` to the word: no other thread reaches it. Where one does all the
                // same, without an edge to here, loom reports it: that is what this read is for.
                let mut value = self.on(|a| unsafe { a.unsync_load() });
                let result = f(&mut value);
                self.on(|a| a.store(value, Ordering::Relaxed));
                self.history.restart(value as u64);
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
                    self.history.write(value as u64);
                }
            }

            #[track_caller]
            pub(crate) fn swap(&self, value: $int, order: Ordering) -> $int {
                let (order, dropped) = site::write(Location::caller(), Op::Rmw, order);
                if dropped {
                    return self.newest_with(order);
                }
                let old = self.on(|a| a.swap(value, order));
                self.history.write(value as u64);
                old
            }

            #[track_caller]
            pub(crate) fn compare_exchange(
                &self, current: $int, new: $int, success: Ordering, failure: Ordering,
            ) -> Result<$int, $int> {
                let (success, failure, dropped) =
                    site::compare(Location::caller(), success, failure);
                // A success that writes nothing leaves what it found.
                let new = if dropped { current } else { new };
                let old = self.on(|a| a.compare_exchange(current, new, success, failure));
                if old.is_ok() {
                    self.history.write(new as u64);
                }
                old
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
                    let old = self.on(|a| a.$extra(value, order));
                    // The same verb on a plain value says what was written.
                    self.history.write(verbs::$extra(old, value) as u64);
                    old
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
pub(crate) struct AtomicPtr<T>(loom::sync::atomic::AtomicPtr<T>, Alive);

/// Memory is given back: every access of other threads must come before.
impl<T> Drop for AtomicPtr<T> {
    fn drop(&mut self) {
        if self.1.is_sound() {
            self.0.with_mut(|_| ());
        }
    }
}

#[allow(dead_code, reason = "the door offers the same verbs in every world")]
impl<T> AtomicPtr<T> {
    #[track_caller]
    pub(crate) fn new(value: *mut T) -> Self {
        Self(loom::sync::atomic::AtomicPtr::new(value), Alive::new())
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
