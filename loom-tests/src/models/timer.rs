//! The shared timers: intake and the driver's sleep, cancel and fire, and the end.
//!
//! The driver is a thread of the model. A lost wake shows as a deadlock: someone waits for a callback
//! that never runs, or the execution cannot end because the driver still sleeps. A timer that is
//! not freed shows as a leak, one that is freed too early as an access to a dead object.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use loom::thread;
use std::time::Duration;
use tenure::clock::{ManualClock, Timestamp};
use tenure::timer::{TimerHandle, Timers};

const SOON: Timestamp = Timestamp::from_nanos(1);
const LATE: Timestamp = Timestamp::from_nanos(1 << 40);

fn start() -> (ManualClock, Arc<Timers<ManualClock>>) {
    let clock = ManualClock::new();
    let timers = Timers::start(clock.clone()).unwrap();
    (clock, Arc::new(timers))
}

/// Counts the runs and the drops of a callback, in atomics that loom sees.
#[derive(Clone)]
struct Fate {
    ran: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Fate {
    fn new() -> Self {
        Self { ran: Arc::new(AtomicUsize::new(0)), dropped: Arc::new(AtomicUsize::new(0)) }
    }

    fn callback(&self) -> impl FnOnce() + Send + 'static {
        let (ran, dropped) = (Arc::clone(&self.ran), OnDrop(Arc::clone(&self.dropped)));
        move || {
            ran.fetch_add(1, SeqCst);
            drop(dropped);
        }
    }

    fn ran(&self) -> usize {
        self.ran.load(SeqCst)
    }

    fn dropped(&self) -> usize {
        self.dropped.load(SeqCst)
    }
}

/// A callback that tells this thread, and the wait for it.
fn ring() -> (impl FnOnce() + Send + 'static, impl FnOnce()) {
    let rang = Arc::new(AtomicUsize::new(0));
    let (ring, thread) = (Arc::clone(&rang), thread::current());
    let callback = move || {
        ring.store(1, SeqCst);
        thread.unpark();
    };
    let wait = move || {
        while rang.load(SeqCst) == 0 {
            thread::park();
        }
    };
    (callback, wait)
}

/// Inserts a timer, and waits until it has run.
fn insert_and_wait(timers: &Timers<ManualClock>, deadline: Timestamp) {
    let (callback, wait) = ring();
    let handle = timers.insert(deadline, callback).unwrap();
    wait();
    assert!(!handle.cancel());
}

/// Plain memory that a callback writes.
struct Shared(Arc<UnsafeCell<u32>>);

// SAFETY: loom checks each access.
unsafe impl Send for Shared {}

impl Shared {
    fn add_one(&self) {
        // SAFETY: loom checks that nobody else has the cell.
        self.0.with_mut(|cell| unsafe { *cell += 1 });
    }
}

fn spawn<T: 'static>(what: impl FnOnce() -> T + 'static) -> thread::JoinHandle<T> {
    thread::spawn(what)
}

/// Ends the timers and waits, so that all that the driver did has been done.
fn end(timers: &Timers<ManualClock>) {
    assert!(timers.shutdown(Duration::MAX).is_complete());
}

models! { "timer";
    /// The driver goes to sleep while a timer that is due comes in.
    insert_x_sleep [bound: 2] {
        let (_, timers) = start();
        let inserter = {
            let timers = Arc::clone(&timers);
            spawn(move || insert_and_wait(&timers, Timestamp::ORIGIN))
        };
        inserter.join().unwrap();
        end(&timers);
    }

    /// The driver sleeps until late, or is about to, when an earlier timer comes in: only the
    /// comparison with the time of *this* sleep wakes it.
    late_x_soon [bound: 2, once] {
        let (_, timers) = start();
        drop(timers.insert(LATE, || ()).unwrap());
        let soon = {
            let timers = Arc::clone(&timers);
            spawn(move || insert_and_wait(&timers, Timestamp::ORIGIN))
        };
        soon.join().unwrap();
        end(&timers);
    }

    /// Two pushes race each other and the driver's take: both run.
    insert_x_insert [bound: 1, once] {
        let (_, timers) = start();
        let (waits, inserters): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| {
                let (callback, wait) = ring();
                let timers = Arc::clone(&timers);
                let insert = move || drop(timers.insert(Timestamp::ORIGIN, callback).unwrap());
                (wait, spawn(insert))
            })
            .unzip();
        for wait in waits {
            wait();
        }
        for inserter in inserters {
            inserter.join().unwrap();
        }
        end(&timers);
    }

    /// The clock is moved while the driver looks at it and goes to sleep.
    advance_x_sleep [bound: 2] {
        let (clock, timers) = start();
        let (callback, wait) = ring();
        drop(timers.insert(SOON, callback).unwrap());
        let mover = spawn(move || clock.advance(Duration::from_nanos(1)));
        wait();
        mover.join().unwrap();
        end(&timers);
    }

    /// Either the callback runs, or the canceller drops it; and the timer is freed.
    cancel_x_fire [bound: 2] {
        let (_, timers) = start();
        let fate = Fate::new();
        let handle = timers.insert(Timestamp::ORIGIN, fate.callback()).unwrap();
        let canceller = {
            let fate = fate.clone();
            spawn(move || {
                let won = handle.cancel();
                if won {
                    assert_eq!((fate.ran(), fate.dropped()), (0, 1));
                }
                won
            })
        };
        let won = canceller.join().unwrap();
        end(&timers);
        assert_eq!(fate.dropped(), 1);
        assert!(!won || fate.ran() == 0);
    }

    /// A timer that is linked, or is being linked, is cancelled and must leave the wheel, while the
    /// clock makes it due.
    cancel_x_link_x_advance [bound: 1] {
        let (clock, timers) = start();
        let fate = Fate::new();
        let handle = timers.insert(SOON, fate.callback()).unwrap();
        let canceller = spawn(move || handle.cancel());
        let mover = spawn(move || clock.advance(Duration::from_nanos(1)));
        let won = canceller.join().unwrap();
        mover.join().unwrap();
        end(&timers);
        assert_eq!(fate.dropped(), 1);
        assert!(!won || fate.ran() == 0);
    }

    /// A cancelled timer is pushed a second time while others are pushed and taken.
    cancel_x_insert [bound: 1, once] {
        let (_, timers) = start();
        let fate = Fate::new();
        let handle = timers.insert(LATE, fate.callback()).unwrap();
        let canceller = spawn(move || assert!(handle.cancel()));
        let (callback, wait) = ring();
        let inserter = {
            let timers = Arc::clone(&timers);
            spawn(move || drop(timers.insert(Timestamp::ORIGIN, callback).unwrap()))
        };
        wait();
        canceller.join().unwrap();
        inserter.join().unwrap();
        end(&timers);
        assert_eq!((fate.ran(), fate.dropped()), (0, 1));
    }

    /// A timer is taken back from the top of the stack while the driver takes the stack, and another one
    /// is put on top: it is freed once, and the one below is not lost.
    withdraw_x_take_x_insert [bound: 1, once] {
        let (_, timers) = start();
        let fate = Fate::new();
        let canceller = {
            let (timers, fate) = (Arc::clone(&timers), fate.clone());
            spawn(move || {
                let (callback, wait) = ring();
                drop(timers.insert(Timestamp::ORIGIN, callback).unwrap());
                assert!(timers.insert(LATE, fate.callback()).unwrap().cancel());
                wait();
            })
        };
        let inserter = {
            let timers = Arc::clone(&timers);
            spawn(move || drop(timers.insert(LATE, || ()).unwrap()))
        };
        canceller.join().unwrap();
        inserter.join().unwrap();
        end(&timers);
        assert_eq!((fate.ran(), fate.dropped()), (0, 1));
    }

    /// Two cancels of one handle: one of them has the callback.
    cancel_x_cancel [bound: 2, once] {
        let (_, timers) = start();
        let fate = Fate::new();
        let handle = Arc::new(timers.insert(LATE, fate.callback()).unwrap());
        let cancellers: Vec<_> = (0..2)
            .map(|_| {
                let handle = Arc::clone(&handle);
                spawn(move || handle.cancel())
            })
            .collect();
        let won: usize = cancellers.into_iter().map(|c| usize::from(c.join().unwrap())).sum();
        assert_eq!((won, fate.ran(), fate.dropped()), (1, 0, 1));
        drop(handle);
        end(&timers);
    }

    /// The handle goes while the driver runs the callback and lets go of the timer.
    drop_handle_x_fire [bound: 2] {
        let (_, timers) = start();
        let done = Arc::new(UnsafeCell::new(0));
        let write = Shared(Arc::clone(&done));
        let callback = move || write.add_one();
        let handle: TimerHandle = timers.insert(Timestamp::ORIGIN, callback).unwrap();
        spawn(move || drop(handle)).join().unwrap();
        end(&timers);
        // Plain memory: what a callback did is seen by whoever saw the end.
        // SAFETY: loom checks that nobody else has the cell.
        let ran = done.with(|done| unsafe { *done });
        assert!(ran <= 1);
    }

    /// An insert is refused with its callback, or the callback is run or dropped; never both.
    insert_x_shutdown [bound: 2, once] {
        let (_, timers) = start();
        let fate = Fate::new();
        let inserter = {
            let (timers, fate) = (Arc::clone(&timers), fate.clone());
            spawn(move || match timers.insert(Timestamp::ORIGIN, fate.callback()) {
                Ok(_) => true,
                Err(refused) => {
                    assert_eq!((fate.ran(), fate.dropped()), (0, 0));
                    drop(refused.into_callback());
                    false
                }
            })
        };
        let ender = {
            let timers = Arc::clone(&timers);
            spawn(move || end(&timers))
        };
        let inserted = inserter.join().unwrap();
        ender.join().unwrap();
        assert_eq!(fate.dropped(), 1);
        assert!(inserted || fate.ran() == 0);
    }

    /// A cancel whose second push meets the driver's last look at the stack.
    cancel_x_shutdown [bound: 1, once] {
        let (_, timers) = start();
        let fate = Fate::new();
        let handle = timers.insert(LATE, fate.callback()).unwrap();
        let canceller = spawn(move || handle.cancel());
        let ender = {
            let timers = Arc::clone(&timers);
            spawn(move || end(&timers))
        };
        canceller.join().unwrap();
        ender.join().unwrap();
        assert_eq!((fate.ran(), fate.dropped()), (0, 1));
    }

    /// Two shutdowns and the drop of the timers, while the driver goes to sleep: it ends.
    shutdown_x_shutdown [bound: 2, once] {
        let (_, timers) = start();
        let enders: Vec<_> = (0..2)
            .map(|_| {
                let timers = Arc::clone(&timers);
                spawn(move || end(&timers))
            })
            .collect();
        drop(timers);
        for ender in enders {
            ender.join().unwrap();
        }
    }

    /// Dropping the timers without a wait ends the driver, and what a clock that moves still tells
    /// it does no harm.
    drop_x_advance [bound: 2, once, std_arc] {
        let (clock, timers) = start();
        let fate = Fate::new();
        drop(timers.insert(SOON, fate.callback()).unwrap());
        let mover = spawn(move || clock.advance(Duration::from_nanos(1)));
        let dropper = spawn(move || drop(timers));
        mover.join().unwrap();
        dropper.join().unwrap();
    }

    /// A shutdown that waits no longer than it may.
    shutdown_times_out [bound: 2, fires] {
        let (_, timers) = start();
        let ender = {
            let timers = Arc::clone(&timers);
            spawn(move || {
                let _ = timers.shutdown(Duration::from_nanos(1));
            })
        };
        ender.join().unwrap();
        end(&timers);
    }
}
