//! The locks while nobody waits: what an uncontended lock and unlock cost.
//!
//! What happens when threads do wait is in `benches/contention.rs`.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use crossbeam_utils::CachePadded;
use lock_api::{GuardNoSend, RawMutex};
use tenure::lock::{AsymmetricUnlock, RawAdaptiveMutex, SymmetricUnlock};

type Tenure = lock_api::Mutex<RawAdaptiveMutex<AsymmetricUnlock>, u64>;
type TenureSymmetric = lock_api::Mutex<RawAdaptiveMutex<SymmetricUnlock>, u64>;

/// A test-and-test-and-set lock: the least that a lock can cost, and a warning once it is contended.
struct Ttas(AtomicBool);

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

/// One round: lock, add, unlock.
macro_rules! peers {
    ($one:ident, $group:expr) => {
        $one!($group, "tenure", Tenure::new(0), |lock| *lock.lock() += 1);
        $one!($group, "tenure, symmetric", TenureSymmetric::new(0), |lock| *lock.lock() += 1);
        $one!($group, "std", std::sync::Mutex::new(0_u64), |lock| *lock.lock().unwrap() += 1);
        $one!($group, "parking_lot 0.13", parking_lot::Mutex::new(0_u64), |lock| *lock.lock() += 1);
        $one!($group, "parking_lot 0.13 fair", parking_lot::FairMutex::new(0_u64), |lock| {
            *lock.lock() += 1
        });
        $one!($group, "parking_lot 0.12", parking_lot_12::Mutex::new(0_u64), |lock| {
            *lock.lock() += 1
        });
        $one!($group, "usync", usync::Mutex::new(0_u64), |lock| *lock.lock() += 1);
        $one!($group, "spinlock", lock_api::Mutex::<Ttas, u64>::new(0), |lock| *lock.lock() += 1);
    };
}

macro_rules! hot {
    ($group:expr, $name:literal, $new:expr, |$lock:ident| $round:expr) => {{
        let lock = CachePadded::new($new);
        $group.bench_function($name, |b| {
            b.iter(|| {
                let $lock = black_box(&*lock);
                $round
            })
        });
    }};
}

macro_rules! cold {
    ($group:expr, $name:literal, $new:expr, |$lock:ident| $round:expr) => {{
        let locks: Vec<_> = (0..4096).map(|_| CachePadded::new($new)).collect();
        let mut random = fastrand::Rng::with_seed(7);
        $group.bench_function($name, |b| {
            b.iter(|| {
                let $lock = black_box(&*locks[random.usize(..locks.len())]);
                $round
            })
        });
    }};
}

fn uncontended(c: &mut Criterion) {
    let mut group = c.benchmark_group("lock/uncontended");
    peers!(hot, group);
    group.finish();
}

fn rwlock(c: &mut Criterion) {
    use tenure::lock::AdaptiveRwLock;

    let mut group = c.benchmark_group("rwlock/uncontended read");
    hot!(group, "tenure", AdaptiveRwLock::new(0_u64), |lock| *lock.read());
    hot!(group, "std", std::sync::RwLock::new(0_u64), |lock| *lock.read().unwrap());
    hot!(group, "parking_lot 0.13", parking_lot::RwLock::new(0_u64), |lock| *lock.read());
    group.finish();
    let mut group = c.benchmark_group("rwlock/uncontended write");
    hot!(group, "tenure", AdaptiveRwLock::new(0_u64), |lock| *lock.write() += 1);
    hot!(group, "std", std::sync::RwLock::new(0_u64), |lock| *lock.write().unwrap() += 1);
    hot!(group, "parking_lot 0.13", parking_lot::RwLock::new(0_u64), |lock| *lock.write() += 1);
    group.finish();
}

fn one_of_4096(c: &mut Criterion) {
    let mut group = c.benchmark_group("lock/one of 4096 cold");
    peers!(cold, group);
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .measurement_time(Duration::from_secs(1))
        .warm_up_time(Duration::from_millis(300));
    targets = uncontended, one_of_4096, rwlock
}
criterion_main!(benches);
