//! Small protocols whose every ordering is known: they test the tools, nothing else uses them.
//!
//! All but [`Flag::set_too_strong`] and [`Flag::unreached`] are exactly as strong as they must be,
//! so a weakening run over them has to kill every change it makes, and to name those two.

use super::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use super::cell::UnsafeCell;
use super::{Wait, park};

/// One thread publishes, another takes.
#[derive(Debug)]
pub struct Flag(AtomicBool);

impl Default for Flag {
    fn default() -> Self {
        Self(AtomicBool::new(false))
    }
}

impl Flag {
    /// Publishes.
    pub fn set(&self) {
        // ORDERING: Release: pairs with the Acquire in `is_set`.
        self.0.store(true, Ordering::Release);
    }

    /// Publishes, with an ordering that nobody needs (planted).
    pub fn set_too_strong(&self) -> bool {
        // ORDERING: the Acquire half pairs with nothing.
        self.0.swap(true, Ordering::AcqRel)
    }

    /// Whether it was published.
    pub fn is_set(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release in `set`.
        self.0.load(Ordering::Acquire)
    }

    /// No model calls this (planted).
    pub fn unreached(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A lock that never sleeps, made in a `const` context.
#[derive(Debug)]
pub struct Spin(AtomicBool);

impl Default for Spin {
    fn default() -> Self {
        Self::new()
    }
}

impl Spin {
    /// Unlocked.
    pub const fn new() -> Self {
        Self(AtomicBool::const_new(false))
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release in `unlock`. A failure looks at nothing.
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Frees the lock.
    pub fn unlock(&self) {
        // ORDERING: Release: pairs with the Acquire in `try_lock`.
        self.0.store(false, Ordering::Release);
    }
}

/// Two threads of which at most one may pass (Dekker).
#[derive(Debug)]
pub struct Gate([AtomicU32; 2]);

impl Default for Gate {
    fn default() -> Self {
        Self([AtomicU32::new(0), AtomicU32::new(0)])
    }
}

impl Gate {
    /// Whether this side found the other absent.
    pub fn pass(&self, side: usize) -> bool {
        // ORDERING: Relaxed: the fence below orders it.
        self.0[side].store(1, Ordering::Relaxed);
        // ORDERING: SeqCst: of the two fences one is first; the thread of the other sees its store.
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed: the fence above orders it.
        self.0[1 - side].load(Ordering::Relaxed) == 0
    }
}

/// A lock that sleeps: 0 free, 1 locked, 2 locked and perhaps somebody sleeps.
#[derive(Debug)]
pub struct Sleepy<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by `with`, under the lock.
unsafe impl<T: Send> Sync for Sleepy<T> {}
// SAFETY: it owns its value.
unsafe impl<T: Send> Send for Sleepy<T> {}

impl<T> Sleepy<T> {
    /// Unlocked.
    pub fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Calls `f` under the lock.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // ORDERING: Acquire: pairs with the Release in the unlocking swap below.
        if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // ORDERING: Acquire: pairs with the Release in the unlocking swap below.
            while self.word.swap(2, Ordering::Acquire) != 0 {
                let _: Wait = park::wait(&self.word, 2, None);
            }
        }
        // SAFETY: the lock is held.
        let result = self.value.with_mut(|value| f(unsafe { &mut *value }));
        // ORDERING: Release: pairs with the Acquires above.
        if self.word.swap(0, Ordering::Release) == 2 {
            park::wake_one(&raw const self.word);
        }
        result
    }

    /// As [`with`](Self::with), with a fault planted: it decides whether to wake before it unlocks.
    #[cfg(tenure_shuttle)]
    pub fn with_forgotten_wake<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.word.swap(2, Ordering::Acquire) != 0 {
                let _: Wait = park::wait(&self.word, 2, None);
            }
        }
        // SAFETY: the lock is held.
        let result = self.value.with_mut(|value| f(unsafe { &mut *value }));
        let sleepers = self.word.load(Ordering::Relaxed) == 2;
        self.word.store(0, Ordering::Release);
        if sleepers {
            park::wake_one(&raw const self.word);
        }
        result
    }

    /// As [`with`](Self::with), with a fault planted: it locks by a look and a store.
    #[cfg(tenure_shuttle)]
    pub fn with_torn_lock<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        while self.word.load(Ordering::Acquire) != 0 {
            super::hint::spin_loop();
        }
        self.word.store(1, Ordering::Relaxed);
        // SAFETY: planted: the lock may be held by two; the cell notices.
        let result = self.value.with_mut(|value| f(unsafe { &mut *value }));
        self.word.store(0, Ordering::Release);
        result
    }
}

/// A sleeper that counts itself before it sleeps, and a waker that wakes only who is counted.
#[derive(Debug)]
pub struct Counted {
    word: AtomicU32,
    sleepers: AtomicU32,
}

impl Default for Counted {
    fn default() -> Self {
        Self { word: AtomicU32::new(0), sleepers: AtomicU32::new(0) }
    }
}

impl Counted {
    /// Opens, and wakes if anybody is counted.
    pub fn open(&self) {
        // ORDERING: Relaxed: the read-modify-write below publishes it to whoever is not counted yet.
        self.word.store(1, Ordering::Relaxed);
        // ORDERING: Release: pairs with the Acquire in `wait`: a sleeper who is not counted here
        // counts itself on top, and so its compare sees the word open.
        if self.sleepers.fetch_add(0, Ordering::Release) != 0 {
            park::wake_all(&raw const self.word);
        }
    }

    /// Waits until it is open.
    pub fn wait(&self) {
        // ORDERING: Acquire: pairs with the Release in `open`.
        self.sleepers.fetch_add(1, Ordering::Acquire);
        // ORDERING: Relaxed: nothing but the word is looked at.
        while self.word.load(Ordering::Relaxed) == 0 {
            let _: Wait = park::wait(&self.word, 0, None);
        }
    }
}

/// Notices two threads that are inside at once, by the door's own cell.
#[derive(Debug)]
pub struct Watch(UnsafeCell<()>);

impl Default for Watch {
    fn default() -> Self {
        Self(UnsafeCell::new(()))
    }
}

// SAFETY: the cell is entered by several threads only if a lock under test fails; it notices.
unsafe impl Sync for Watch {}
// SAFETY: as above.
unsafe impl Send for Watch {}

impl Watch {
    /// Goes in and out; panics if somebody is inside.
    pub fn enter(&self) {
        self.0.with_mut(|_| ());
    }
}
