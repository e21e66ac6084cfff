//! The shared `Timers` through their public API. Time is a clock that the test moves; where a test
//! has to know that the driver is through with something, it asks for a later sign.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::clock::{Clock, ManualClock, MonotonicClock, Timestamp};
use tenure::promise::EventualError;
use tenure::timer::{TimerHandle, Timers};

const SEC: Duration = Duration::from_secs(1);
/// Longer than any test may take; only ever waited for by a test that fails.
const LONG: Duration = Duration::from_secs(60);

struct Fixture {
    clock: ManualClock,
    timers: Timers<ManualClock>,
    sender: Sender<u32>,
    rang: Receiver<u32>,
}

impl Fixture {
    fn new() -> Self {
        let clock = ManualClock::new();
        let timers = Timers::start(clock.clone()).unwrap();
        let (sender, rang) = channel();
        Self { clock, timers, sender, rang }
    }

    /// A timer that says its number.
    fn ring(&self, after: Duration, number: u32) -> TimerHandle {
        let sender = self.sender.clone();
        self.timers.after(after, move || sender.send(number).unwrap()).unwrap()
    }

    fn next(&self) -> u32 {
        self.rang.recv_timeout(LONG).unwrap()
    }

    /// Waits until the driver has done all that was due, and says what rang meanwhile.
    fn settle(&self) -> Vec<u32> {
        self.ring(Duration::ZERO, u32::MAX);
        std::iter::from_fn(|| Some(self.next()).filter(|&n| n != u32::MAX)).collect()
    }
}

/// Counts its drops.
struct Dropped(Arc<AtomicU32>);

impl Dropped {
    fn new() -> (Self, Arc<AtomicU32>) {
        let count = Arc::new(AtomicU32::new(0));
        (Self(Arc::clone(&count)), count)
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Panics when dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("bomb"));
    }
}

#[test]
fn timers_fire_in_the_order_of_their_deadlines_and_not_before() {
    let f = Fixture::new();
    f.ring(3 * SEC, 3);
    f.ring(SEC, 1);
    f.ring(2 * SEC, 2);
    f.ring(2 * SEC, 22);
    assert_eq!(f.settle(), []);
    f.clock.advance(SEC - Duration::from_nanos(1));
    assert_eq!(f.settle(), []);
    f.clock.advance(Duration::from_nanos(1));
    assert_eq!(f.next(), 1);
    f.clock.advance(LONG);
    assert_eq!([f.next(), f.next(), f.next()], [2, 22, 3]);
    assert_eq!(f.settle(), []);
}

#[test]
fn an_earlier_timer_is_seen_while_the_driver_sleeps_for_a_later_one() {
    let f = Fixture::new();
    f.ring(10 * SEC, 10);
    assert_eq!(f.settle(), []);
    f.ring(SEC, 1);
    f.clock.advance(SEC);
    assert_eq!(f.next(), 1);
}

#[test]
fn a_real_clock_wakes_the_driver_by_itself() {
    let timers = Timers::start(MonotonicClock::new()).unwrap();
    let clock = MonotonicClock::new();
    let (sender, receiver) = channel();
    let due = clock.now().saturating_add(Duration::from_millis(5));
    timers.insert(due, move || sender.send(MonotonicClock::new().now()).unwrap()).unwrap();
    let fired: Timestamp = receiver.recv_timeout(LONG).unwrap();
    assert!(fired >= due);
}

#[test]
fn every_deadline_is_legal() {
    let f = Fixture::new();
    f.clock.advance(LONG);
    let sender = f.sender.clone();
    f.timers.insert(Timestamp::ORIGIN, move || sender.send(1).unwrap()).unwrap();
    assert_eq!(f.next(), 1);
    let never = f.ring(Duration::MAX, 2);
    assert!(never.deadline().is_never());
    f.clock.advance(Duration::MAX);
    assert_eq!(f.settle(), []);
    assert!(never.is_pending());
    assert!(never.cancel());
}

#[test]
fn a_cancelled_timer_never_runs_and_drops_its_callback_at_once() {
    let f = Fixture::new();
    let (value, drops) = Dropped::new();
    let handle = f.timers.after(SEC, move || drop(value)).unwrap();
    assert_eq!(f.settle(), []); // the driver has it in its wheel by now
    assert!(handle.is_pending());
    assert!(handle.cancel());
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    assert!(!handle.is_pending());
    assert!(!handle.cancel());
    f.clock.advance(LONG);
    assert_eq!(f.settle(), []);
    assert_eq!(f.timers.stats().cancelled, 1);
}

#[test]
fn cancelling_what_has_fired_is_too_late() {
    let f = Fixture::new();
    let handle = f.ring(Duration::ZERO, 1);
    assert_eq!(f.next(), 1);
    assert!(!handle.cancel());
    assert_eq!(f.settle(), []);
    assert_eq!((f.timers.stats().fired, f.timers.stats().cancelled), (2, 0));
}

#[test]
fn dropping_a_handle_leaves_the_timer_and_dropping_a_guard_cancels_it() {
    let f = Fixture::new();
    drop(f.ring(SEC, 1));
    drop(f.ring(SEC, 2).cancel_on_drop());
    f.ring(SEC, 3).cancel_on_drop().disarm();
    f.clock.advance(SEC);
    assert_eq!(f.settle(), [1, 3]);
}

#[test]
fn a_panic_harms_nobody_else() {
    let f = Fixture::new();
    f.timers.after(SEC, || std::panic::resume_unwind(Box::new("boom"))).unwrap();
    // A payload that panics when it is dropped.
    f.timers.after(SEC, || std::panic::resume_unwind(Box::new(Bomb))).unwrap();
    f.ring(SEC, 1);
    f.clock.advance(SEC);
    assert_eq!(f.next(), 1);
    assert_eq!(f.timers.stats().panicked, 2);
}

#[test]
fn a_panic_while_a_cancelled_callback_is_dropped_is_the_cancellers() {
    let f = Fixture::new();
    let bomb = Bomb;
    let handle = f.timers.after(SEC, move || drop(bomb)).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| handle.cancel())).is_err());
    assert!(!handle.cancel());
    assert_eq!(f.settle(), []);
}

#[test]
fn a_callback_may_insert_and_cancel() {
    let f = Arc::new(Fixture::new().shared());
    let later = f.fixture().ring(2 * SEC, 9);
    let inner = Arc::clone(&f);
    f.fixture()
        .timers
        .after(SEC, move || {
            let f = inner.fixture();
            assert!(later.cancel());
            f.ring(Duration::ZERO, 1);
            f.ring(SEC, 2);
        })
        .unwrap();
    f.fixture().clock.advance(LONG);
    f.wait(1);
    let f = f.fixture();
    f.clock.advance(LONG);
    assert_eq!(f.settle(), [2]);
}

/// A fixture that a callback can reach, too.
struct SharedFixture(Mutex<Fixture>);

impl Fixture {
    fn shared(self) -> SharedFixture {
        SharedFixture(Mutex::new(self))
    }
}

impl SharedFixture {
    fn fixture(&self) -> std::sync::MutexGuard<'_, Fixture> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a number without keeping the callbacks out.
    fn wait(&self, number: u32) {
        loop {
            if let Ok(rang) = self.fixture().rang.try_recv() {
                assert_eq!(rang, number);
                return;
            }
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_callback_that_keeps_inserting_starves_nobody() {
    fn again(timers: &Arc<Timers>, turns: &Arc<AtomicU32>) {
        let (next, count) = (Arc::clone(timers), Arc::clone(turns));
        count.fetch_add(1, Ordering::Relaxed);
        // Refused at the end.
        let _ = timers.insert(Timestamp::ORIGIN, move || again(&next, &count));
    }
    let timers = Arc::new(Timers::start(MonotonicClock::new()).unwrap());
    let turns = Arc::new(AtomicU32::new(0));
    again(&timers, &turns);
    let (sender, receiver) = channel();
    timers.after(Duration::from_millis(2), move || sender.send(()).unwrap()).unwrap();
    receiver.recv_timeout(LONG).unwrap();
    assert!(turns.load(Ordering::Relaxed) > 1);
    assert!(timers.shutdown(LONG).is_complete());
}

#[test]
fn shutdown_drops_what_is_left_and_says_how_much() {
    let f = Fixture::new();
    let (in_wheel, wheel_drops) = Dropped::new();
    let bomb = Bomb;
    let handle = f.timers.after(SEC, move || drop(in_wheel)).unwrap();
    f.timers.after(SEC, move || drop(bomb)).unwrap();
    assert_eq!(f.settle(), []);
    let (on_stack, stack_drops) = Dropped::new();
    f.timers.after(Duration::MAX, move || drop(on_stack)).unwrap();
    let shutdown = f.timers.shutdown(LONG);
    assert_eq!((shutdown.is_complete(), shutdown.discarded()), (true, 3));
    assert_eq!(wheel_drops.load(Ordering::SeqCst), 1);
    assert_eq!(stack_drops.load(Ordering::SeqCst), 1);
    assert!(!handle.cancel());
    assert_eq!(f.timers.stats().panicked, 1);
    // Twice is once.
    assert!(f.timers.shutdown(Duration::ZERO).is_complete());
}

#[test]
fn an_insert_after_the_end_gives_the_callback_back() {
    let f = Fixture::new();
    let (value, drops) = Dropped::new();
    let _ = f.timers.shutdown(LONG);
    let refused = f.timers.after(SEC, move || drop(value)).unwrap_err();
    assert_eq!(refused.to_string(), "the timers were shut down");
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    refused.into_callback()();
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn a_handle_may_outlive_its_timers() {
    let f = Fixture::new();
    let (value, drops) = Dropped::new();
    let handle = f.timers.after(SEC, move || drop(value)).unwrap();
    drop(f);
    // The driver drops the callback, or this does; once in either case.
    handle.cancel();
    while drops.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    assert!(!handle.cancel());
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn shutdown_from_a_callback_does_not_wait_for_itself() {
    let timers = Arc::new(Timers::start(ManualClock::new()).unwrap());
    let (sender, receiver) = channel();
    let inner = Arc::clone(&timers);
    timers
        .after(Duration::ZERO, move || {
            sender.send(inner.shutdown(LONG)).unwrap();
        })
        .unwrap();
    assert!(!receiver.recv_timeout(LONG).unwrap().is_complete());
    assert!(timers.shutdown(LONG).is_complete());
}

#[test]
fn the_last_owner_may_be_a_callback() {
    let timers = Arc::new(Timers::start(ManualClock::new()).unwrap());
    let (value, drops) = Dropped::new();
    timers.after(LONG, move || drop(value)).unwrap();
    let (sender, receiver) = channel();
    let (go, wait) = channel();
    let inner = Arc::clone(&timers);
    timers
        .after(Duration::ZERO, move || {
            wait.recv().unwrap();
            drop(inner);
            sender.send(()).unwrap();
        })
        .unwrap();
    drop(timers);
    go.send(()).unwrap();
    receiver.recv_timeout(LONG).unwrap();
    while drops.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn shutdown_is_bounded_though_a_callback_hangs() {
    let f = Fixture::new();
    let (release, hang) = channel::<()>();
    let (started, wait) = channel();
    f.timers
        .after(Duration::ZERO, move || {
            started.send(()).unwrap();
            let _ = hang.recv();
        })
        .unwrap();
    wait.recv_timeout(LONG).unwrap();
    assert!(!f.timers.shutdown(Duration::from_millis(1)).is_complete());
    drop(release);
    assert!(f.timers.shutdown(LONG).is_complete());
}

#[test]
fn many_cancelled_timers_are_cleared_up_while_the_driver_sleeps() {
    let f = Fixture::new();
    f.ring(SEC, 1);
    assert_eq!(f.settle(), []);
    for _ in 0..20_000 {
        assert!(f.timers.after(LONG, || unreachable!()).unwrap().cancel());
    }
    f.clock.advance(SEC);
    assert_eq!(f.next(), 1);
    assert_eq!(f.timers.stats().cancelled, 20_000);
}

#[test]
fn a_sleep_is_ready_when_its_time_has_come_and_broken_at_the_end() {
    let f = Fixture::new();
    let (mut nap, night) = (f.timers.sleep::<()>(SEC), f.timers.sleep::<()>(LONG));
    assert_eq!(f.settle(), []);
    assert!(nap.try_get().is_none());
    f.clock.advance(SEC);
    assert!(nap.get().is_ok());
    assert!(f.timers.shutdown(LONG).is_complete());
    assert!(matches!(night.get(), Err(EventualError::Broken)));
    assert!(matches!(f.timers.sleep::<()>(SEC).get(), Err(EventualError::Broken)));
}

#[test]
fn the_handles_go_where_they_must() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Timers>();
    shared::<TimerHandle>();
    shared::<tenure::timer::TimerGuard>();
    shared::<tenure::timer::Wheel<u32>>();
    assert!(format!("{:?}", Fixture::new().timers).contains("ManualClock"));
}

#[test]
fn timers_limit_an_eventual_and_let_go_of_the_limit_when_the_outcome_comes_first() {
    let clock = ManualClock::new();
    let timers = Timers::start(clock.clone()).unwrap();
    let second = Duration::from_secs(1);

    let (mut late, eventual) = tenure::promise::promise::<u32, ()>();
    let (asked, ask) = channel();
    late.on_cancel(move || asked.send(()).unwrap());
    let limited = eventual.within(second, &timers);
    let (told, tell) = channel();
    limited.on_complete(move |outcome| told.send(outcome).unwrap());
    clock.advance(second);
    assert!(matches!(tell.recv().unwrap(), Err(EventualError::TimedOut)));
    ask.recv_timeout(Duration::from_secs(30)).expect("who is too late is told");
    drop(late);

    let (timely, eventual) = tenure::promise::promise::<u32, ()>();
    let limited = eventual.within(second, &timers);
    timely.set(7).unwrap();
    assert_eq!(limited.get().unwrap(), 7);
    assert!(timers.shutdown(Duration::from_secs(30)).is_complete());
}
