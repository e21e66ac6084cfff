//! The tools' own specimens: small protocols whose every ordering is known.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use tenure::sync::specimen::{Counted, Flag, Gate, Sleepy, Spin};

struct Racy(UnsafeCell<u32>);
// SAFETY: only for models: loom reports an access that races.
unsafe impl Sync for Racy {}
// SAFETY: as above.
unsafe impl Send for Racy {}

impl Racy {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }
    fn add(&self) {
        // SAFETY: loom checks the access.
        self.0.with_mut(|n| unsafe { *n += 1 });
    }
    fn get(&self) -> u32 {
        // SAFETY: loom checks the access.
        self.0.with(|n| unsafe { *n })
    }
}

models! { "specimen";
    /// A value published by a flag.
    set_x_is_set {
        let shared = Arc::new((Flag::default(), Racy::new()));
        let setter = thread::spawn({ let s = shared.clone(); move || { s.1.add(); s.0.set(); } });
        let reader = thread::spawn({ let s = shared.clone(); move || if s.0.is_set() { assert_eq!(s.1.get(), 1) }});
        setter.join().unwrap();
        reader.join().unwrap();
        assert!(shared.0.is_set());
    }
    /// The same, published by a swap; its return value says that nobody was earlier.
    swap_x_is_set {
        let shared = Arc::new((Flag::default(), Racy::new()));
        let setter = thread::spawn({ let s = shared.clone(); move || { s.1.add(); assert!(!s.0.set_too_strong()); } });
        let reader = thread::spawn({ let s = shared.clone(); move || if s.0.is_set() { assert_eq!(s.1.get(), 1) }});
        setter.join().unwrap();
        reader.join().unwrap();
        assert!(shared.0.is_set());
    }
    /// Two try for a lock that was made in a `const` context and is first used by the racers.
    try_lock_x_try_lock {
        let shared = Arc::new((const { Spin::new() }, Racy::new()));
        let racers: Vec<_> = (0..2).map(|_| {
            let s = shared.clone();
            thread::spawn(move || if s.0.try_lock() { s.1.add(); s.0.unlock(); })
        }).collect();
        for racer in racers {
            racer.join().unwrap();
        }
        // Whoever came second found it free or held; now it is free.
        assert!(shared.0.try_lock());
        assert!(shared.1.get() >= 1);
    }
    /// A lock in a static: each execution finds it free.
    static_try_lock_x_try_lock {
        static LOCK: Spin = Spin::new();
        let shared = Arc::new(Racy::new());
        let racers: Vec<_> = (0..2).map(|_| {
            let s = shared.clone();
            thread::spawn(move || if LOCK.try_lock() { s.add(); LOCK.unlock(); })
        }).collect();
        for racer in racers {
            racer.join().unwrap();
        }
        assert!(LOCK.try_lock());
    }
    /// At most one passes, whichever comes first.
    pass_x_pass {
        let gate = Arc::new(Gate::default());
        let racers: Vec<_> = (0..2).map(|side| {
            let gate = gate.clone();
            thread::spawn(move || gate.pass(side))
        }).collect();
        let passed = racers.into_iter().map(|r| r.join().unwrap()).filter(|p| *p).count();
        assert!(passed <= 1);
    }
    /// A sleeper that is not counted must see that it need not sleep: the compare of a wait may see an
    /// old value, too.
    open_x_wait {
        let shared = Arc::new(Counted::default());
        let opener = thread::spawn({ let s = shared.clone(); move || s.open() });
        let waiter = thread::spawn(move || shared.wait());
        opener.join().unwrap();
        waiter.join().unwrap();
    }
    /// Two lock a lock that sleeps.
    lock_x_lock {
        let lock = Arc::new(Sleepy::new(0));
        let racers: Vec<_> = (0..2).map(|_| {
            let lock = lock.clone();
            thread::spawn(move || lock.with(|n| *n += 1))
        }).collect();
        for racer in racers {
            racer.join().unwrap();
        }
        assert_eq!(lock.with(|n| *n), 2);
    }
    /// Three lock it: the wake of one must not be lost to the other.
    lock_x_lock_x_lock [bound: 3] {
        let lock = Arc::new(Sleepy::new(0));
        let racers: Vec<_> = (0..3).map(|_| {
            let lock = lock.clone();
            thread::spawn(move || lock.with(|n| *n += 1))
        }).collect();
        for racer in racers {
            racer.join().unwrap();
        }
        assert_eq!(lock.with(|n| *n), 3);
    }
}
