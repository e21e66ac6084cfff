//! The circuit breaker through its public API. Time is a manual clock's; no test sleeps.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tenure::breaker::*;
use tenure::clock::{Clock, ManualClock, Timestamp};
use tenure::retry::Jitter;

const SEC: Duration = Duration::from_secs(1);

/// Five failures in a row open it for ten seconds; two probes close it.
fn builder(clock: &ManualClock) -> BreakerBuilder {
    CircuitBreaker::builder()
        .window(Window::Count(5))
        .failure_rate(1.0)
        .min_calls(5)
        .probes(2)
        .open_for(10 * SEC)
        .stripes(2)
        .clock(clock.clone())
}

fn breaker(clock: &ManualClock) -> CircuitBreaker {
    builder(clock).build().unwrap()
}

fn fail(breaker: &CircuitBreaker) -> bool {
    breaker.call(|| Err::<(), _>("down")) == Err(CallError::Failed("down"))
}

fn succeed(breaker: &CircuitBreaker) -> bool {
    breaker.call(|| Ok::<_, &str>(1)) == Ok(1)
}

fn trip(breaker: &CircuitBreaker) {
    for _ in 0..100 {
        if breaker.state() == State::Closed {
            assert!(fail(breaker));
        }
    }
    assert_eq!(breaker.state(), State::Open);
}

fn refused(breaker: &CircuitBreaker) -> Open {
    breaker.try_acquire().map(drop).unwrap_err()
}

/// A half-open one, with no probe under way.
fn half_open(clock: &ManualClock, breaker: &CircuitBreaker) {
    trip(breaker);
    clock.advance(10 * SEC);
    drop(breaker.try_acquire().unwrap());
    assert_eq!(breaker.state(), State::HalfOpen);
}

#[test]
fn the_defaults_are_those_of_the_table() {
    let plain = CircuitBreaker::builder().settings().unwrap();
    let spelt = CircuitBreaker::builder()
        .window(Window::Count(100))
        .failure_rate(0.5)
        .min_calls(20)
        .open_for(5 * SEC)
        .open_jitter(Jitter::None)
        .probes(3)
        .probe_timeout(60 * SEC);
    assert_eq!(plain, spelt.settings().unwrap());
    assert_eq!((plain.slow_after(), plain.min_calls(), plain.probes()), (None, 20, 3));
    let short = CircuitBreaker::builder().window(Window::Count(7)).settings().unwrap();
    assert_eq!(short.min_calls(), 7);
}

#[test]
fn each_option_out_of_range_is_named() {
    let why = |change: fn(BreakerBuilder) -> BreakerBuilder| {
        change(CircuitBreaker::builder()).build().map(drop).unwrap_err()
    };
    assert_eq!(why(|b| b.failure_rate(0.0)), ConfigError::FailureRate(0.0));
    assert_eq!(why(|b| b.failure_rate(1.1)), ConfigError::FailureRate(1.1));
    assert!(matches!(why(|b| b.failure_rate(f64::NAN)), ConfigError::FailureRate(_)));
    assert_eq!(why(|b| b.slow_calls(SEC, -1.0)), ConfigError::SlowRate(-1.0));
    assert_eq!(why(|b| b.window(Window::Count(0))), ConfigError::Window(0));
    assert_eq!(why(|b| b.window(Window::Count(65_537))), ConfigError::Window(65_537));
    assert_eq!(why(|b| b.min_calls(0)), ConfigError::MinCalls(0));
    assert_eq!(why(|b| b.min_calls(101)), ConfigError::MinCalls(101));
    assert_eq!(why(|b| b.probes(0)), ConfigError::Probes(0));
    assert_eq!(why(|b| b.probes(65_536)), ConfigError::Probes(65_536));
    assert_eq!(why(|b| b.open_growth(0.5, 60 * SEC)), ConfigError::OpenGrowth(0.5));
    let most = ConfigError::OpenMost { most: SEC, open_for: 5 * SEC };
    assert_eq!(why(|b| b.open_growth(2.0, SEC)), most);
    assert!(CircuitBreaker::builder().window(Window::Time(Duration::MAX)).build().is_ok());
}

#[test]
fn closed_opens_refuses_probes_and_closes() {
    let clock = ManualClock::new();
    let breaker = breaker(&clock);
    for _ in 0..4 {
        assert!(fail(&breaker));
    }
    assert!(succeed(&breaker), "not in a row");
    for _ in 0..4 {
        assert!(fail(&breaker));
        assert_eq!(breaker.state(), State::Closed);
    }
    assert!(fail(&breaker));
    assert_eq!(breaker.state(), State::Open);
    assert_eq!(refused(&breaker).retry_after, Some(10 * SEC));
    clock.advance(10 * SEC - Duration::from_nanos(1));
    assert_eq!(refused(&breaker).retry_after, Some(Duration::from_nanos(1)));
    assert_eq!(refused(&breaker).to_string(), "the circuit breaker is open");
    clock.advance(Duration::from_nanos(1));
    assert!(succeed(&breaker));
    assert_eq!(breaker.state(), State::HalfOpen);
    assert!(succeed(&breaker));
    assert_eq!(breaker.state(), State::Closed);
    let snapshot = breaker.snapshot();
    assert_eq!((snapshot.calls, snapshot.failed), (0, 0), "the window begins afresh");
    let totals = snapshot.totals;
    assert_eq!((totals.succeeded, totals.failed, totals.rejected), (3, 9, 3));
}

#[test]
fn a_failed_probe_opens_it_again_and_its_companion_counts_for_nothing() {
    let clock = ManualClock::new();
    let breaker = breaker(&clock);
    trip(&breaker);
    clock.advance(10 * SEC);
    let (first, second) = (breaker.try_acquire().unwrap(), breaker.try_acquire().unwrap());
    assert!(first.is_probe() && second.is_probe());
    first.failure();
    assert_eq!(breaker.state(), State::Open);
    second.success();
    assert_eq!(breaker.state(), State::Open);
    assert_eq!(refused(&breaker).retry_after, Some(10 * SEC));
    assert_eq!(breaker.snapshot().totals.late, 1);
}

/// Faults of peers: all callers rush in when it is half-open, or a permit that is lost leaves it stuck.
#[test]
fn of_32_racing_callers_exactly_as_many_as_configured_are_let_through() {
    for probes in [1, 2, 5, 31] {
        let clock = ManualClock::new();
        let breaker = builder(&clock).probes(probes).build().unwrap();
        trip(&breaker);
        clock.advance(10 * SEC);
        let barrier = Barrier::new(32);
        let let_through = AtomicU32::new(0);
        // Held until all have asked: so that none is returned or passed meanwhile.
        let permits = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    barrier.wait();
                    if let Ok(permit) = breaker.try_acquire() {
                        let_through.fetch_add(1, Ordering::Relaxed);
                        permits.lock().unwrap().push(permit);
                    }
                });
            }
        });
        assert_eq!(let_through.load(Ordering::Relaxed), probes);
        assert_eq!(breaker.snapshot().probes_in_flight, probes);
        assert_eq!(refused(&breaker).state, State::HalfOpen);
        // Returned unused by their drops, from another thread: just as many again.
        thread::spawn(move || drop(permits)).join().unwrap();
        let again: Vec<_> = (0..32).filter_map(|_| breaker.try_acquire().ok()).collect();
        assert_eq!(again.len() as u32, probes);
        for permit in again {
            permit.success();
        }
        assert_eq!(breaker.state(), State::Closed);
    }
}

#[test]
fn passed_and_under_way_together_are_never_more_than_configured() {
    let clock = ManualClock::new();
    let breaker = builder(&clock).probes(3).build().unwrap();
    half_open(&clock, &breaker);
    let (a, b) = (breaker.try_acquire().unwrap(), breaker.try_acquire().unwrap());
    a.success();
    let c = breaker.try_acquire().unwrap();
    assert!(breaker.try_acquire().is_err(), "one passed, two under way");
    b.ignore();
    let d = breaker.try_acquire().unwrap();
    c.success();
    assert_eq!(breaker.state(), State::HalfOpen);
    d.success();
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn probes_that_never_come_back_do_not_leave_it_stuck() {
    let clock = ManualClock::new();
    let breaker = builder(&clock).probes(1).probe_timeout(30 * SEC).build().unwrap();
    trip(&breaker);
    clock.advance(10 * SEC);
    let hung = breaker.try_acquire().unwrap();
    let refusal = refused(&breaker);
    assert_eq!((refusal.state, refusal.retry_after), (State::HalfOpen, Some(30 * SEC)));
    clock.advance(30 * SEC);
    let refusal = refused(&breaker);
    assert_eq!((refusal.state, refusal.retry_after), (State::Open, Some(10 * SEC)));
    hung.success();
    assert_eq!(breaker.state(), State::Open, "too late");
    clock.advance(10 * SEC);
    assert!(succeed(&breaker));
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn a_late_result_of_an_older_generation_changes_nothing() {
    let clock = ManualClock::new();
    let breaker = breaker(&clock);
    let late: Vec<_> = (0..20).map(|_| breaker.try_acquire().unwrap()).collect();
    trip(&breaker);
    clock.advance(10 * SEC);
    assert!(succeed(&breaker));
    let mut late = late.into_iter();
    for permit in late.by_ref().take(5) {
        permit.failure();
    }
    assert_eq!(breaker.state(), State::HalfOpen, "they are no probes");
    for permit in late.by_ref().take(5) {
        permit.success();
    }
    assert_eq!(breaker.snapshot().probes_passed, 1);
    assert!(succeed(&breaker));
    for permit in late {
        permit.failure();
    }
    let snapshot = breaker.snapshot();
    assert_eq!((snapshot.state, snapshot.failed), (State::Closed, 0));
    assert_eq!(snapshot.totals.late, 15);
}

#[test]
fn it_is_judged_by_rate_and_not_before_enough_calls() {
    let clock = ManualClock::new();
    let breaker = CircuitBreaker::builder()
        .window(Window::Count(10))
        .failure_rate(0.3)
        .min_calls(8)
        .clock(clock.clone())
        .build()
        .unwrap();
    for _ in 0..3 {
        fail(&breaker);
    }
    for _ in 0..20 {
        succeed(&breaker);
        assert_eq!(breaker.state(), State::Closed, "a success never opens it");
    }
    assert_eq!(breaker.snapshot().failed, 0, "they left the window");
    fail(&breaker);
    fail(&breaker);
    assert_eq!(breaker.state(), State::Closed);
    assert!((breaker.snapshot().failure_rate() - 0.2).abs() < 1e-9);
    fail(&breaker);
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn slow_calls_open_it_and_a_slow_probe_fails() {
    let clock = ManualClock::new();
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    let breaker = builder(&clock)
        .slow_calls(SEC, 0.5)
        .on_event(move |event| heard.lock().unwrap().push((event.to, event.cause)))
        .build()
        .unwrap();
    let call = |time| {
        let after = clock.clone();
        breaker.call(move || {
            after.advance(time);
            Ok::<_, ()>(())
        })
    };
    for time in [SEC / 2, SEC, SEC / 2, SEC / 2] {
        call(time).unwrap();
    }
    assert_eq!(breaker.snapshot().slow, 1);
    call(2 * SEC).unwrap();
    assert_eq!(breaker.state(), State::Closed, "2 of 5");
    call(2 * SEC).unwrap();
    assert_eq!(breaker.state(), State::Open, "3 of 5");
    clock.advance(10 * SEC);
    call(SEC).unwrap();
    let events = events.lock().unwrap();
    assert_eq!(
        *events,
        [
            (State::Open, Cause::SlowRate),
            (State::HalfOpen, Cause::TimeOver),
            (State::Open, Cause::ProbeFailed)
        ]
    );
}

#[test]
fn openings_grow_up_to_their_most_and_begin_anew_after_a_close() {
    let clock = ManualClock::new();
    let breaker = builder(&clock).probes(1).open_growth(2.0, 35 * SEC).build().unwrap();
    trip(&breaker);
    for seconds in [10, 20, 35, 35] {
        assert_eq!(refused(&breaker).retry_after, Some(seconds * SEC));
        clock.advance(seconds * SEC);
        assert!(fail(&breaker), "the probe");
    }
    clock.advance(35 * SEC);
    assert!(succeed(&breaker));
    trip(&breaker);
    assert_eq!(refused(&breaker).retry_after, Some(10 * SEC));
}

/// A fault of peers: clock jumps. Nothing loops over elapsed time, and no duration overflows.
#[test]
fn extreme_durations_and_jumps_of_the_clock() {
    let clock = ManualClock::new();
    let never = builder(&clock).open_for(Duration::MAX).build().unwrap();
    trip(&never);
    clock.advance(Duration::from_secs(1 << 33));
    assert_eq!(refused(&never).retry_after, None);
    never.reset();
    assert!(succeed(&never));

    let clock = ManualClock::new();
    let zero = builder(&clock)
        .open_for(Duration::ZERO)
        .probe_timeout(Duration::ZERO)
        .slow_calls(Duration::MAX, 1.0)
        .window(Window::Time(Duration::ZERO))
        .probes(1)
        .build()
        .unwrap();
    trip(&zero);
    let probe = zero.try_acquire().unwrap();
    assert!(probe.is_probe());
    // The probe's time is over at once; so is that of the opening that follows.
    assert!(zero.try_acquire().unwrap().is_probe());
    probe.success();
    assert!(succeed(&zero));
    assert_eq!(zero.state(), State::Closed);

    for window in [Duration::from_nanos(1), SEC, Duration::MAX] {
        let clock = ManualClock::new();
        let breaker = builder(&clock).window(Window::Time(window)).build().unwrap();
        for jump in [SEC, Duration::from_secs(1 << 32), Duration::MAX, Duration::MAX] {
            succeed(&breaker);
            fail(&breaker);
            clock.advance(jump);
        }
        assert_eq!(breaker.snapshot().totals.succeeded, 4);
        assert_eq!(breaker.state(), State::Closed);
    }
}

#[test]
fn a_time_window_forgets_what_is_older() {
    let clock = ManualClock::new();
    let breaker = builder(&clock)
        .window(Window::Time(8 * SEC))
        .failure_rate(0.5)
        .min_calls(4)
        .build()
        .unwrap();
    for _ in 0..3 {
        fail(&breaker);
    }
    clock.advance(10 * SEC);
    for _ in 0..3 {
        fail(&breaker);
        assert_eq!(breaker.state(), State::Closed);
    }
    for _ in 0..10 {
        succeed(&breaker);
    }
    let snapshot = breaker.snapshot();
    assert_eq!((snapshot.calls, snapshot.failed), (13, 3));
    clock.advance(4 * SEC);
    for _ in 0..6 {
        fail(&breaker);
    }
    assert_eq!(breaker.state(), State::Closed, "9 of 19");
    fail(&breaker);
    assert_eq!(breaker.state(), State::Open, "10 of 20");
}

#[test]
fn forced_disabled_and_reset() {
    let clock = ManualClock::new();
    let breaker = breaker(&clock);
    breaker.force_open();
    breaker.force_open();
    let refusal = refused(&breaker);
    assert_eq!((refusal.state, refusal.retry_after), (State::ForcedOpen, None));
    clock.advance(Duration::from_secs(1 << 20));
    assert_eq!(breaker.call(|| Ok::<_, ()>(())), Err(CallError::Rejected(refused(&breaker))));
    breaker.disable();
    for _ in 0..50 {
        assert!(fail(&breaker));
    }
    assert_eq!(breaker.snapshot().totals.failed, 0);
    breaker.reset();
    for _ in 0..4 {
        fail(&breaker);
    }
    breaker.reset();
    assert_eq!(breaker.snapshot().calls, 0, "an empty window");
    half_open(&clock, &breaker);
    let probe = breaker.try_acquire().unwrap();
    breaker.force_open();
    probe.success();
    assert_eq!(breaker.state(), State::ForcedOpen);
}

#[test]
fn settings_can_be_replaced_in_each_state() {
    let clock = ManualClock::new();
    let breaker = breaker(&clock);
    // Closed: the same window goes on, another one begins.
    for _ in 0..4 {
        fail(&breaker);
    }
    breaker.reconfigure_by(&builder(&clock).open_for(20 * SEC)).unwrap();
    assert_eq!(breaker.snapshot().failed, 4);
    breaker.reconfigure_by(&builder(&clock).window(Window::Time(SEC))).unwrap();
    assert_eq!(breaker.snapshot().failed, 0);
    succeed(&breaker);
    assert_eq!(breaker.snapshot().calls, 1);
    clock.advance(4 * SEC);
    // Open: the time counts from its begin.
    trip(&breaker);
    clock.advance(4 * SEC);
    breaker.reconfigure_by(&builder(&clock).open_for(5 * SEC)).unwrap();
    assert_eq!(refused(&breaker).retry_after, Some(SEC));
    breaker.reconfigure_by(&builder(&clock).open_for(3 * SEC).probes(4)).unwrap();
    // Half-open: more probes, then fewer.
    let probes: Vec<_> = (0..4).map(|_| breaker.try_acquire().unwrap()).collect();
    assert!(breaker.try_acquire().is_err());
    breaker.reconfigure_by(&builder(&clock).probes(5)).unwrap();
    assert!(breaker.try_acquire().is_ok());
    for probe in probes.into_iter().take(2) {
        probe.success();
    }
    assert_eq!(breaker.state(), State::HalfOpen);
    breaker.reconfigure_by(&builder(&clock).probes(2)).unwrap();
    assert_eq!(breaker.state(), State::Closed);
    // Forced: stays.
    breaker.force_open();
    breaker.reconfigure_by(&builder(&clock)).unwrap();
    assert_eq!(breaker.state(), State::ForcedOpen);
    assert_eq!(breaker.settings(), builder(&clock).settings().unwrap());
}

#[test]
fn a_judge_tells_failures_from_other_errors() {
    let clock = ManualClock::new();
    let breaker = breaker(&clock);
    let judge = |result: &Result<u32, u16>| match result {
        Ok(0) => Verdict::Failure,
        Err(404) => Verdict::Success,
        Err(400) => Verdict::Ignore,
        Ok(_) => Verdict::Success,
        Err(_) => Verdict::Failure,
    };
    assert_eq!(breaker.call_judged(|| Err(404), judge), Err(CallError::Failed(404)));
    assert_eq!(breaker.call_judged(|| Err(400), judge), Err(CallError::Failed(400)));
    assert_eq!(breaker.call_judged(|| Ok(0), judge), Ok(0));
    let snapshot = breaker.snapshot();
    assert_eq!((snapshot.calls, snapshot.failed), (2, 1));
}

#[test]
fn a_panic_in_a_call_is_a_failure_and_goes_on() {
    let clock = ManualClock::new();
    let breaker = breaker(&clock);
    let caught = catch_unwind(AssertUnwindSafe(|| breaker.call::<(), ()>(|| panic!("boom"))));
    assert!(caught.is_err());
    let judge = |_: &Result<(), ()>| -> Verdict { panic!("judge") };
    let caught = catch_unwind(AssertUnwindSafe(|| breaker.call_judged(|| Ok(()), judge)));
    assert!(caught.is_err());
    assert_eq!(breaker.snapshot().failed, 2);
    half_open(&clock, &breaker);
    let caught = catch_unwind(AssertUnwindSafe(|| breaker.call::<(), ()>(|| panic!("boom"))));
    assert!(caught.is_err());
    assert_eq!(breaker.state(), State::Open);
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn an_async_call_returns_its_permit_when_it_is_dropped() {
    let clock = ManualClock::new();
    let breaker = builder(&clock).probes(1).build().unwrap();
    trip(&breaker);
    clock.advance(10 * SEC);
    {
        let unpolled = breaker.call_async(std::future::pending::<Result<(), ()>>);
        drop(unpolled);
        assert_eq!(breaker.state(), State::Open, "it asks at its first poll");
        let mut call = pin!(breaker.call_async(std::future::pending::<Result<(), ()>>));
        assert!(poll(call.as_mut()).is_pending());
        assert_eq!(breaker.snapshot().probes_in_flight, 1);
        assert!(breaker.try_acquire().is_err());
    }
    assert_eq!(breaker.snapshot().probes_in_flight, 0);
    // A future that is dropped while its thread unwinds from something else is no failure.
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let mut call = Box::pin(breaker.call_async(std::future::pending::<Result<(), ()>>));
        assert!(poll(call.as_mut()).is_pending());
        panic!("something else");
    }));
    assert!(caught.is_err());
    assert_eq!(breaker.state(), State::HalfOpen);
    // One that panics is.
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let mut call = pin!(breaker.call_async(|| async { panic!("boom") as Result<(), ()> }));
        poll(call.as_mut())
    }));
    assert!(caught.is_err());
    assert_eq!(breaker.state(), State::Open);
    clock.advance(10 * SEC);
    let mut call = pin!(breaker.call_async(|| async { Ok::<_, ()>(7) }));
    assert_eq!(poll(call.as_mut()), Poll::Ready(Ok(7)));
    assert_eq!(breaker.state(), State::Closed);
}

struct Count(AtomicU32);

impl Listener for Count {
    fn permit_freed(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    fn take(&self) -> u32 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

#[test]
fn listeners_are_told_whenever_a_permit_may_be_free() {
    let clock = ManualClock::new();
    let breaker = breaker(&clock);
    let count = Arc::new(Count(AtomicU32::new(0)));
    let listener: Weak<dyn Listener> = Arc::downgrade(&count) as _;
    breaker.watch(listener);
    trip(&breaker);
    assert_eq!(count.take(), 0, "opening frees nothing");
    clock.advance(10 * SEC);
    let probe = breaker.try_acquire().unwrap();
    assert_eq!(count.take(), 1, "half-open");
    drop(probe);
    assert_eq!(count.take(), 1, "returned");
    assert!(succeed(&breaker) && succeed(&breaker));
    assert_eq!(count.take(), 1, "closed");
    breaker.force_open();
    assert_eq!(count.take(), 0);
    breaker.disable();
    assert_eq!(count.take(), 1);
    breaker.reset();
    assert_eq!(count.take(), 1);
    breaker.reconfigure_by(&builder(&clock).probes(3)).unwrap();
    assert_eq!(count.take(), 1);
    let weak = Arc::downgrade(&count);
    drop(count);
    breaker.reset();
    assert!(weak.upgrade().is_none(), "it does not keep its listeners");
}

/// Foreign code: a listener that panics, or comes back to the breaker in the middle of its own call.
#[test]
fn listeners_may_panic_and_reenter() {
    let clock = ManualClock::new();
    let own: Arc<Mutex<Option<CircuitBreaker>>> = Arc::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (inside, told) = (Arc::clone(&own), Arc::clone(&seen));
    let breaker = builder(&clock)
        .on_event(move |event| {
            told.lock().unwrap().push((event.generation, event.from, event.to, event.cause));
            let breaker = inside.lock().unwrap().clone();
            if let (State::Open, Some(breaker)) = (event.to, breaker) {
                let _ = (breaker.snapshot(), breaker.try_acquire(), breaker.settings());
                breaker.reset();
                panic!("a listener");
            }
        })
        .build()
        .unwrap();
    *own.lock().unwrap() = Some(breaker.clone());
    for _ in 0..5 {
        assert!(fail(&breaker));
    }
    assert_eq!(breaker.state(), State::Closed, "the listener reset it");
    assert_eq!(breaker.snapshot().totals.listener_panics, 1);
    assert_eq!(
        *seen.lock().unwrap(),
        [
            (1, State::Closed, State::Open, Cause::FailureRate),
            (2, State::Open, State::Closed, Cause::Asked)
        ]
    );
    struct Panics;
    impl Listener for Panics {
        fn permit_freed(&self) {
            panic!("a watcher");
        }
    }
    let panics: Arc<dyn Listener> = Arc::new(Panics);
    breaker.watch(Arc::downgrade(&panics));
    breaker.reset();
    assert!(succeed(&breaker));
    own.lock().unwrap().take();
}

/// A clock that counts how often it is looked at precisely.
#[derive(Clone, Debug)]
struct Coarse(ManualClock, Arc<AtomicU32>);

impl Clock for Coarse {
    fn now(&self) -> Timestamp {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.now()
    }

    fn coarse(&self) -> Timestamp {
        let late = self.0.now().as_nanos().saturating_sub(1_000_000);
        Timestamp::from_nanos(late)
    }

    fn coarse_lag(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn real_time_until(&self, deadline: Timestamp) -> Option<Duration> {
        self.0.real_time_until(deadline)
    }
}

#[test]
fn refusals_and_closed_calls_look_at_no_precise_clock() {
    let clock = Coarse(ManualClock::new(), Arc::default());
    clock.0.advance(SEC);
    let breaker = builder(&clock.0).clock(clock.clone()).slow_calls(2 * SEC, 1.0).build().unwrap();
    assert!(succeed(&breaker) && fail(&breaker));
    assert_eq!(clock.1.load(Ordering::Relaxed), 0, "two seconds are timed coarsely");
    trip(&breaker);
    let looks = clock.1.load(Ordering::Relaxed);
    for _ in 0..100 {
        assert!(refused(&breaker).retry_after >= Some(10 * SEC));
    }
    assert_eq!(clock.1.load(Ordering::Relaxed), looks);
    // Within the lag of the time it looks, and is exact.
    clock.0.advance(10 * SEC - Duration::from_nanos(1));
    assert_eq!(refused(&breaker).retry_after, Some(Duration::from_nanos(1)));
    clock.0.advance(Duration::from_nanos(1));
    assert!(breaker.try_acquire().is_ok());
}

#[test]
fn handles_cross_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent<T: Send>(_: &T) {}
    shared::<CircuitBreaker>();
    shared::<Permit>();
    shared::<Settings>();
    let breaker = breaker(&ManualClock::new());
    sent(&breaker.call_async(|| async { Ok::<_, ()>(()) }));
    assert!(format!("{:?}", breaker.clone()).contains("Closed in generation 0"));
    assert_eq!(builder(&ManualClock::new()).name("host").build().unwrap().name(), Some("host"));
}
