//! The locks that are compared.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_api::{GuardNoSend, RawMutex};
use tenure::lock::{AsymmetricUnlock, RawAdaptiveMutex, SymmetricUnlock};

use crate::cases::Case;
use crate::measure::{Slice, Work, contend};

/// A lock around a number.
pub(crate) trait Lock: Sync + Sized {
    /// An unlocked one.
    fn new() -> Self;
    /// Runs `f` under it.
    fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R;
    /// Runs `f` under it if it can be had in time; `None` also where it has no timed locking.
    fn with_for<R>(&self, _limit: Duration, _f: impl FnOnce(&mut u64) -> R) -> Option<R> {
        None
    }
    /// Whether it is locked now.
    fn is_locked(&self) -> bool {
        false
    }
}

/// A lock's name and its way through one slice of a case.
#[derive(Clone, Copy)]
pub(crate) struct Peers {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Case, &Work, Duration, bool) -> Slice,
}

/// All of them. The first is this crate's.
pub(crate) const ALL: &[Peers] = &[
    Peers { name: "tenure", run: contend::<Tenure> },
    Peers { name: "tenure symmetric", run: contend::<TenureSymmetric> },
    Peers { name: "std", run: contend::<std::sync::Mutex<u64>> },
    Peers { name: "parking_lot 0.13", run: contend::<parking_lot::Mutex<u64>> },
    Peers { name: "parking_lot 0.12", run: contend::<parking_lot_12::Mutex<u64>> },
    Peers { name: "parking_lot fair", run: contend::<parking_lot::FairMutex<u64>> },
    Peers { name: "usync", run: contend::<usync::Mutex<u64>> },
    Peers { name: "spinlock", run: contend::<lock_api::Mutex<Ttas, u64>> },
];

pub(crate) type Tenure = lock_api::Mutex<RawAdaptiveMutex<AsymmetricUnlock>, u64>;
type TenureSymmetric = lock_api::Mutex<RawAdaptiveMutex<SymmetricUnlock>, u64>;

impl Lock for Tenure {
    fn new() -> Self {
        Self::new(0)
    }
    fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
        f(&mut self.lock())
    }
    fn with_for<R>(&self, limit: Duration, f: impl FnOnce(&mut u64) -> R) -> Option<R> {
        self.try_lock_for(limit).map(|mut guard| f(&mut guard))
    }
    fn is_locked(&self) -> bool {
        self.is_locked()
    }
}

impl Lock for TenureSymmetric {
    fn new() -> Self {
        Self::new(0)
    }
    fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
        f(&mut self.lock())
    }
}

impl Lock for std::sync::Mutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }
    fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
        f(&mut self.lock().unwrap())
    }
}

impl Lock for parking_lot::Mutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }
    fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
        f(&mut self.lock())
    }
    fn with_for<R>(&self, limit: Duration, f: impl FnOnce(&mut u64) -> R) -> Option<R> {
        self.try_lock_for(limit).map(|mut guard| f(&mut guard))
    }
    fn is_locked(&self) -> bool {
        self.is_locked()
    }
}

impl Lock for parking_lot_12::Mutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }
    fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
        f(&mut self.lock())
    }
    fn with_for<R>(&self, limit: Duration, f: impl FnOnce(&mut u64) -> R) -> Option<R> {
        self.try_lock_for(limit).map(|mut guard| f(&mut guard))
    }
    fn is_locked(&self) -> bool {
        self.is_locked()
    }
}

impl Lock for parking_lot::FairMutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }
    fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
        f(&mut self.lock())
    }
}

impl Lock for usync::Mutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }
    fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
        f(&mut self.lock())
    }
}

impl Lock for lock_api::Mutex<Ttas, u64> {
    fn new() -> Self {
        Self::new(0)
    }
    fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
        f(&mut self.lock())
    }
}

/// A test-and-test-and-set spinlock: the warning.
pub(crate) struct Ttas(AtomicBool);

// SAFETY: false → true by one compare-and-exchange (Acquire), back by its owner (Release).
unsafe impl RawMutex for Ttas {
    const INIT: Self = Self(AtomicBool::new(false));
    type Guard = GuardNoSend;

    fn lock(&self) -> GuardNoSend {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            while self.is_locked() {
                std::hint::spin_loop();
            }
        }
    }

    fn try_lock(&self) -> Option<GuardNoSend> {
        let taken = self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(GuardNoSend::new)
    }

    unsafe fn unlock(&self, _guard: GuardNoSend) {
        self.0.store(false, Ordering::Release);
    }

    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
