//! Callbacks that do not come back: the timers behind them run all the same.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use tenure::clock::{AdvanceListener, Clock, ManualClock, MonotonicClock, Timestamp};
use tenure::timer::Timers;

const SEC: Duration = Duration::from_secs(1);
/// Longer than any test may take; only ever waited for by a test that fails.
const LONG: Duration = Duration::from_secs(60);

/// A callback that hangs until it is released, and says when it has begun and when it is over.
struct Hang {
    release: Sender<()>,
    begun: Receiver<()>,
    over: Receiver<()>,
}

impl Hang {
    fn insert<C: Clock>(timers: &Timers<C>, after: Duration) -> Self {
        let (release, held) = channel::<()>();
        let (begins, begun) = channel();
        let (ends, over) = channel();
        let hang = move || {
            begins.send(()).unwrap();
            let _ = held.recv();
            let _ = ends.send(());
        };
        drop(timers.after(after, hang).unwrap());
        Self { release, begun, over }
    }

    fn wait(&self) {
        self.begun.recv_timeout(LONG).expect("it begins");
    }

    fn release(self) {
        drop(self.release);
        self.over.recv_timeout(LONG).expect("it ends");
    }
}

fn ring<C: Clock>(timers: &Timers<C>, after: Duration) -> Receiver<()> {
    let (sender, rang) = channel();
    drop(timers.after(after, move || sender.send(()).unwrap()).unwrap());
    rang
}

fn passes<C: Clock>(timers: &Timers<C>) {
    ring(timers, Duration::ZERO).recv_timeout(LONG).expect("it rings");
}

/// Until the counters say so.
fn until(what: impl Fn() -> bool) {
    let (real, begun) = (MonotonicClock::new(), MonotonicClock::new().now());
    while !what() {
        assert!(real.now().saturating_since(begun) < LONG);
        std::thread::yield_now();
    }
}

#[test]
fn a_callback_that_hangs_holds_up_nobody_else() {
    let timers = Timers::start(MonotonicClock::new()).unwrap();
    let behind = ring(&timers, Duration::from_millis(10));
    let hang = Hang::insert(&timers, Duration::ZERO);
    hang.wait();
    behind.recv_timeout(LONG).expect("the one behind rings");
    passes(&timers);
    until(|| timers.stats().held_up == 1);
    hang.release();
    until(|| timers.stats().held_up == 0);
    passes(&timers);
    assert!(timers.shutdown(LONG).is_complete());
}

#[test]
fn on_a_clock_that_is_moved_by_hand_as_well() {
    let clock = ManualClock::new();
    let timers = Timers::start(clock.clone()).unwrap();
    let hang = Hang::insert(&timers, SEC);
    let behind = ring(&timers, 2 * SEC);
    clock.advance(SEC);
    hang.wait();
    clock.advance(SEC);
    behind.recv_timeout(LONG).expect("the one behind rings");
    hang.release();
    passes(&timers);
    assert!(timers.shutdown(LONG).is_complete());
}

/// One after another, as the sentinel of each drives on and is held up in turn.
#[test]
fn sixteen_may_hang_and_the_one_after_them_is_waited_for() {
    let timers = Timers::start(MonotonicClock::new()).unwrap();
    let hangs: Vec<_> = (0..16)
        .map(|_| {
            let hang = Hang::insert(&timers, Duration::ZERO);
            hang.wait();
            hang
        })
        .collect();
    passes(&timers);
    until(|| timers.stats().held_up == 16);
    let last = Hang::insert(&timers, Duration::ZERO);
    last.wait();
    let behind = ring(&timers, Duration::ZERO);
    for hang in hangs {
        hang.release();
    }
    // Whoever is back sees that nobody watches, and drives on when the last one is still held up.
    behind.recv_timeout(LONG).expect("the one behind rings");
    last.release();
    until(|| timers.stats().held_up == 0);
    passes(&timers);
    assert!(timers.shutdown(LONG).is_complete());
}

/// The end is complete when the last callback is back, whoever drives.
#[test]
fn the_end_waits_for_what_is_held_up() {
    let timers = Timers::start(MonotonicClock::new()).unwrap();
    let hang = Hang::insert(&timers, Duration::ZERO);
    hang.wait();
    passes(&timers);
    let dropped = Arc::new(AtomicU32::new(0));
    let held = Arc::clone(&dropped);
    let left = timers.after(LONG, move || drop(held)).unwrap();
    assert!(!timers.shutdown(Duration::from_millis(1)).is_complete());
    // The others are dropped all the same.
    until(|| Arc::strong_count(&dropped) == 1);
    assert!(!left.cancel());
    hang.release();
    let end = timers.shutdown(LONG);
    assert!(end.is_complete());
    assert_eq!(end.discarded(), 1);
}

/// What hangs may ask for the end itself, though somebody else drives by now.
#[test]
fn a_shutdown_from_a_callback_that_is_left_behind_returns() {
    let timers = Arc::new(Timers::start(MonotonicClock::new()).unwrap());
    let (release, held) = channel::<()>();
    let (begins, begun) = channel();
    let (ends, over) = channel();
    let inner = Arc::downgrade(&timers);
    let hang = move || {
        begins.send(()).unwrap();
        let _ = held.recv();
        let timers = inner.upgrade().unwrap();
        ends.send(timers.shutdown(Duration::MAX).is_complete()).unwrap();
    };
    drop(timers.after(Duration::ZERO, hang).unwrap());
    begun.recv_timeout(LONG).unwrap();
    passes(&timers);
    drop(release);
    assert!(!over.recv_timeout(LONG).expect("it returns"));
    assert!(timers.shutdown(LONG).is_complete());
}

/// A drop at the end hangs: the others are dropped.
#[test]
fn a_drop_that_hangs_holds_up_no_other_drop() {
    struct Slow(Receiver<()>, Sender<()>);
    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.1.send(());
            let _ = self.0.recv();
        }
    }
    let timers = Timers::start(MonotonicClock::new()).unwrap();
    let (release, held) = channel();
    let (begins, begun) = channel();
    let slow = Slow(held, begins);
    let _slow = timers.after(LONG, move || drop(slow)).unwrap();
    let count = Arc::new(());
    let others: Vec<_> = (0..100)
        .map(|_| {
            let held = Arc::clone(&count);
            timers.after(LONG, move || drop(held)).unwrap()
        })
        .collect();
    assert!(!timers.shutdown(Duration::ZERO).is_complete());
    begun.recv_timeout(LONG).unwrap();
    until(|| Arc::strong_count(&count) == 1);
    drop(release);
    assert!(timers.shutdown(LONG).is_complete());
    assert!(others.iter().all(|timer| !timer.is_pending()));
}

/// Callbacks that are only slow, on both sides of the limit, while timers come and go: each runs once.
#[test]
fn slow_callbacks_run_once_each_whoever_drives() {
    let timers = Timers::start(MonotonicClock::new()).unwrap();
    let ran = Arc::new(AtomicU32::new(0));
    let mut rng = fastrand::Rng::with_seed(11);
    const COUNT: u32 = 300;
    for n in 0..COUNT {
        let ran = Arc::clone(&ran);
        // Real time, as this is about how long a callback takes.
        let takes = Duration::from_millis(if n % 30 == 0 { rng.u64(15..60) } else { 0 });
        let callback = move || {
            std::thread::sleep(takes);
            ran.fetch_add(1, Ordering::Relaxed);
        };
        drop(timers.after(Duration::from_micros(rng.u64(0..50_000)), callback).unwrap());
    }
    until(|| ran.load(Ordering::Relaxed) == COUNT);
    until(|| timers.stats().held_up == 0);
    assert!(timers.shutdown(LONG).is_complete());
    assert_eq!((timers.stats().fired, timers.stats().discarded), (COUNT.into(), 0));
    assert_eq!(ran.load(Ordering::Relaxed), COUNT);
}

/// A clock that goes by itself, and that may be moved on by hand, too. Remembers which threads wanted to
/// sleep until far away.
#[derive(Debug, Default)]
struct Leaping {
    real: MonotonicClock,
    ahead: ManualClock,
    sleepers: Mutex<HashSet<ThreadId>>,
}

const FAR: Duration = Duration::from_secs(3600);

impl Clock for Leaping {
    fn now(&self) -> Timestamp {
        self.real.now().saturating_add(self.ahead.now().saturating_since(Timestamp::ORIGIN))
    }

    fn real_time_until(&self, deadline: Timestamp) -> Option<Duration> {
        if deadline.is_never() {
            return None;
        }
        let left = deadline.saturating_since(self.now());
        if left > FAR / 2 {
            self.sleepers.lock().unwrap().insert(std::thread::current().id());
        }
        Some(left)
    }

    fn on_advance(&self, listener: Weak<dyn AdvanceListener>) {
        self.ahead.on_advance(listener);
    }
}

/// Who watches rests as long as the driver meant to sleep; when the clock leaps, it has to be called.
#[test]
fn a_callback_that_hangs_after_a_leap_of_the_clock_holds_up_nobody_else() {
    let clock = Arc::new(Leaping::default());
    let timers = Timers::start(Arc::clone(&clock)).unwrap();
    let hang = Hang::insert(&timers, FAR);
    // So that there is somebody who watches.
    passes(&timers);
    until(|| clock.sleepers.lock().unwrap().len() == 2);
    clock.ahead.advance(FAR);
    hang.wait();
    passes(&timers);
    hang.release();
    assert!(timers.shutdown(LONG).is_complete());
}
