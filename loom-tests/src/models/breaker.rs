//! The circuit breaker: its word, its window, its times, and who is told.
//!
//! Bounds: a change of state goes through a lock, a word and a list of listeners, so that models with
//! three threads, or with two changes in one, are explored with 2 or 3 preemptions.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread::spawn;
use std::sync::Weak;
use std::time::Duration;
use tenure::breaker::*;
use tenure::clock::ManualClock;

const SEC: Duration = Duration::from_secs(1);

/// A bad call opens it for a second; `probes` close it.
fn builder(clock: &ManualClock, probes: u32) -> BreakerBuilder {
    CircuitBreaker::builder()
        .window(Window::Count(1))
        .failure_rate(1.0)
        .probes(probes)
        .open_for(SEC)
        .clock(clock.clone())
}

fn fail(breaker: &CircuitBreaker) {
    assert!(matches!(breaker.call(|| Err::<(), ()>(())), Err(CallError::Failed(()))));
}

/// An open one whose time is over.
fn opened(probes: u32) -> (ManualClock, CircuitBreaker) {
    let clock = ManualClock::new();
    let breaker = builder(&clock, probes).build().unwrap();
    fail(&breaker);
    clock.advance(SEC);
    (clock, breaker)
}

/// Counts what it is told.
struct Told(AtomicU32);

impl Listener for Told {
    fn permit_freed(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

crate::models! { "breaker";
    /// Three want to be the first probe of two: two are, and not one more while those are out.
    permit_x_permit [bound: 2] {
        let (_, breaker) = opened(2);
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let breaker = breaker.clone();
                spawn(move || breaker.try_acquire().ok())
            })
            .collect();
        let permits: Vec<_> = callers.into_iter().filter_map(|c| c.join().unwrap()).collect();
        assert_eq!(permits.len(), 2);
        assert!(permits.iter().all(Permit::is_probe));
        let snapshot = breaker.snapshot();
        assert_eq!((snapshot.state, snapshot.probes_in_flight), (State::HalfOpen, 2));
        assert_eq!((snapshot.generation, snapshot.totals.rejected), (2, 1));
    }

    /// Two of a half-open breaker's two probes are taken at once.
    probe_x_probe {
        let (_, breaker) = opened(3);
        let first = breaker.try_acquire().unwrap();
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let breaker = breaker.clone();
                spawn(move || breaker.try_acquire().unwrap())
            })
            .collect();
        let permits: Vec<_> = callers.into_iter().map(|c| c.join().unwrap()).collect();
        assert_eq!(breaker.snapshot().probes_in_flight, 3);
        assert!(breaker.try_acquire().is_err());
        drop((first, permits));
        assert_eq!(breaker.snapshot().probes_in_flight, 0);
    }

    /// One probe fails while another goes well: open, whichever was first.
    probe_success_x_probe_failure [bound: 3] {
        let (_, breaker) = opened(2);
        let (good, bad) = (breaker.try_acquire().unwrap(), breaker.try_acquire().unwrap());
        let good = spawn(move || good.success());
        let bad = spawn(move || bad.failure());
        good.join().unwrap();
        bad.join().unwrap();
        let snapshot = breaker.snapshot();
        assert_eq!((snapshot.state, snapshot.generation), (State::Open, 3));
        assert_eq!(snapshot.totals.failed, 2);
        assert_eq!(snapshot.totals.succeeded + snapshot.totals.late, 1);
    }

    /// A success that would close it meets a failure: one of the two decides, the other is late.
    last_success_x_probe_failure [bound: 3] {
        let (clock, breaker) = opened(2);
        let (good, bad) = (breaker.try_acquire().unwrap(), breaker.try_acquire().unwrap());
        breaker.reconfigure_by(&builder(&clock, 1)).unwrap();
        let good = spawn(move || good.success());
        let bad = spawn(move || bad.failure());
        good.join().unwrap();
        bad.join().unwrap();
        let snapshot = breaker.snapshot();
        assert_eq!(snapshot.generation, 3);
        match snapshot.state {
            State::Closed => assert_eq!((snapshot.totals.failed, snapshot.totals.late), (1, 1)),
            State::Open => assert_eq!(snapshot.totals.failed, 2),
            other => panic!("{other}"),
        }
    }

    /// The last two probes go well at once: it closes once, with an empty window.
    success_x_success_of_probes [bound: 3] {
        let (_, breaker) = opened(2);
        let permits = [breaker.try_acquire().unwrap(), breaker.try_acquire().unwrap()];
        let probes = permits.map(|permit| spawn(move || permit.success()));
        for probe in probes {
            probe.join().unwrap();
        }
        let snapshot = breaker.snapshot();
        assert_eq!((snapshot.state, snapshot.generation, snapshot.calls), (State::Closed, 3, 0));
        assert_eq!((snapshot.totals.succeeded, snapshot.totals.late), (2, 0));
    }

    /// A probe is returned while another is wanted: had, or told of.
    permit_drop_x_probe [std_arc] {
        let (_, breaker) = opened(1);
        let permit = breaker.try_acquire().unwrap();
        let dropper = spawn(move || drop(permit));
        let caller = {
            let breaker = breaker.clone();
            spawn(move || {
                let told = std::sync::Arc::new(Told(AtomicU32::new(0)));
                let listener: Weak<dyn Listener> = std::sync::Arc::downgrade(&told) as _;
                breaker.watch(listener);
                (breaker.try_acquire().is_ok(), told)
            })
        };
        dropper.join().unwrap();
        let (had, told) = caller.join().unwrap();
        assert!(had || told.0.load(Ordering::Relaxed) == 1, "refused, and not told");
        assert_eq!(breaker.snapshot().probes_in_flight, 0);
        assert!(breaker.try_acquire().is_ok());
    }

    /// A probe is dropped while the other fails: nothing is taken from the next generation's.
    permit_drop_x_probe_failure [bound: 3] {
        let (clock, breaker) = opened(2);
        let (gone, bad) = (breaker.try_acquire().unwrap(), breaker.try_acquire().unwrap());
        let dropper = spawn(move || drop(gone));
        let failure = {
            let breaker = breaker.clone();
            spawn(move || {
                bad.failure();
                clock.advance(SEC);
                breaker.try_acquire().unwrap()
            })
        };
        dropper.join().unwrap();
        let probe = failure.join().unwrap();
        let snapshot = breaker.snapshot();
        assert_eq!((snapshot.probes_in_flight, snapshot.generation), (1, 4));
        drop(probe);
    }

    /// Two calls that were let through together fail: it opens once, and the other is late.
    open_x_late_result [bound: 3] {
        let clock = ManualClock::new();
        let breaker = builder(&clock, 1).build().unwrap();
        let permits = [breaker.try_acquire().unwrap(), breaker.try_acquire().unwrap()];
        let failures = permits.map(|permit| spawn(move || permit.failure()));
        for failure in failures {
            failure.join().unwrap();
        }
        let snapshot = breaker.snapshot();
        assert_eq!((snapshot.state, snapshot.generation), (State::Open, 1));
        assert_eq!(snapshot.totals.failed + snapshot.totals.late, 2);
        assert!(snapshot.totals.failed >= 1);
    }

    /// A call from before an opening fails while the breaker closes again: the fresh window has none
    /// of it, or it came before.
    late_result_x_close [bound: 3] {
        let clock = ManualClock::new();
        let breaker = builder(&clock, 1).build().unwrap();
        let late = breaker.try_acquire().unwrap();
        fail(&breaker);
        clock.advance(SEC);
        let probe = breaker.try_acquire().unwrap();
        let failure = spawn(move || late.failure());
        let close = spawn(move || probe.success());
        failure.join().unwrap();
        close.join().unwrap();
        let snapshot = breaker.snapshot();
        assert_eq!((snapshot.state, snapshot.failed, snapshot.totals.late), (State::Closed, 0, 1));
    }

    /// Forced open while the last probe goes well: it stays forced.
    force_open_x_probe [bound: 3] {
        let (_, breaker) = opened(1);
        let probe = breaker.try_acquire().unwrap();
        let success = spawn(move || probe.success());
        let force = {
            let breaker = breaker.clone();
            spawn(move || breaker.force_open())
        };
        success.join().unwrap();
        force.join().unwrap();
        assert_eq!(breaker.state(), State::ForcedOpen);
        assert!(breaker.try_acquire().is_err());
    }

    /// Reset while a probe fails: closed for good, or closed and not opened by the late probe.
    reset_x_probe_failure [bound: 3] {
        let (_, breaker) = opened(1);
        let probe = breaker.try_acquire().unwrap();
        let failure = spawn(move || probe.failure());
        let reset = {
            let breaker = breaker.clone();
            spawn(move || breaker.reset())
        };
        failure.join().unwrap();
        reset.join().unwrap();
        assert_eq!(breaker.state(), State::Closed);
        assert!(breaker.try_acquire().is_ok());
    }

    /// Reset while its time is over and somebody calls: he is a probe of before, or an ordinary call.
    reset_x_permit [bound: 3] {
        let (_, breaker) = opened(1);
        let caller = {
            let breaker = breaker.clone();
            spawn(move || breaker.try_acquire().unwrap())
        };
        let reset = {
            let breaker = breaker.clone();
            spawn(move || breaker.reset())
        };
        let permit = caller.join().unwrap();
        reset.join().unwrap();
        permit.failure();
        let totals = breaker.snapshot().totals;
        assert_eq!(totals.failed + totals.late, 2);
    }

    /// A success and a failure: both are in the window, unless the failure was first and alone.
    record_x_record [bound: 3] {
        let clock = ManualClock::new();
        let window = builder(&clock, 1).window(Window::Count(2)).failure_rate(0.5).min_calls(2);
        let breaker = window.build().unwrap();
        let good = {
            let breaker = breaker.clone();
            spawn(move || breaker.call(|| Ok::<(), ()>(())).unwrap())
        };
        let bad = {
            let breaker = breaker.clone();
            spawn(move || breaker.try_acquire().unwrap().failure())
        };
        good.join().unwrap();
        bad.join().unwrap();
        let snapshot = breaker.snapshot();
        match snapshot.state {
            State::Closed => assert_eq!((snapshot.calls, snapshot.failed), (2, 1)),
            State::Open => assert_eq!(snapshot.totals.succeeded, 1),
            other => panic!("{other}"),
        }
    }

    /// Three successes, two at once, and a failure after them: a count of four.
    successes_x_failure {
        let clock = ManualClock::new();
        let breaker = builder(&clock, 1).window(Window::Count(9)).stripes(2).build().unwrap();
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let breaker = breaker.clone();
                spawn(move || breaker.call(|| Ok::<(), ()>(())).unwrap())
            })
            .collect();
        for caller in callers {
            caller.join().unwrap();
        }
        breaker.call(|| Ok::<(), ()>(())).unwrap();
        fail(&breaker);
        let snapshot = breaker.snapshot();
        assert_eq!((snapshot.calls, snapshot.failed, snapshot.totals.succeeded), (4, 1, 3));
    }

    /// A success while the window's rate is reached: no success is lost from the sum, nor counted twice.
    record_x_trip [bound: 3] {
        let clock = ManualClock::new();
        let breaker = builder(&clock, 1).build().unwrap();
        let permit = breaker.try_acquire().unwrap();
        let good = spawn(move || permit.success());
        let bad = {
            let breaker = breaker.clone();
            spawn(move || fail(&breaker))
        };
        good.join().unwrap();
        bad.join().unwrap();
        assert_eq!(breaker.state(), State::Open);
        assert!(breaker.snapshot().totals.succeeded <= 1);
        breaker.reset();
        assert_eq!(breaker.snapshot().calls, 0);
    }

    /// Two successes come to a bucket whose last turn is over: one replaces it, none is lost.
    success_x_success_on_a_turn {
        let clock = ManualClock::new();
        let timed = builder(&clock, 1).window(Window::Time(Duration::from_nanos(8)));
        let breaker = timed.build().unwrap();
        breaker.call(|| Ok::<(), ()>(())).unwrap();
        clock.advance(Duration::from_nanos(64));
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let breaker = breaker.clone();
                spawn(move || breaker.call(|| Ok::<(), ()>(())).unwrap())
            })
            .collect();
        for caller in callers {
            caller.join().unwrap();
        }
        let snapshot = breaker.snapshot();
        assert_eq!((snapshot.calls, snapshot.totals.succeeded), (2, 3));
    }

    /// A success by an older look at the clock meets one in the next turn: not lost from the sum.
    success_x_later_success {
        let clock = ManualClock::new();
        let timed = builder(&clock, 1).window(Window::Time(Duration::from_nanos(8)));
        let breaker = timed.build().unwrap();
        let early = {
            let breaker = breaker.clone();
            spawn(move || breaker.call(|| Ok::<(), ()>(())).unwrap())
        };
        let later = {
            let breaker = breaker.clone();
            spawn(move || {
                clock.advance(Duration::from_nanos(16));
                breaker.call(|| Ok::<(), ()>(())).unwrap();
            })
        };
        early.join().unwrap();
        later.join().unwrap();
        let snapshot = breaker.snapshot();
        assert_eq!(snapshot.totals.succeeded, 2);
        assert!(snapshot.calls >= 1);
    }

    /// A success while a time window is emptied: in the sum once, and in the new window or not.
    success_x_reset_of_a_time_window [bound: 3] {
        let clock = ManualClock::new();
        let breaker = builder(&clock, 1).window(Window::Time(SEC)).build().unwrap();
        breaker.call(|| Ok::<(), ()>(())).unwrap();
        let permit = breaker.try_acquire().unwrap();
        let good = spawn(move || permit.success());
        let reset = {
            let breaker = breaker.clone();
            spawn(move || breaker.reset())
        };
        good.join().unwrap();
        reset.join().unwrap();
        let snapshot = breaker.snapshot();
        assert!(snapshot.calls <= 1);
        let counted = snapshot.totals.succeeded;
        assert!(counted == 2 || counted == 1 && snapshot.calls == 0, "{counted}");
    }

    /// Who sees that it is open sees until when: not an older opening's time.
    open_x_call [bound: 3] {
        let clock = ManualClock::new();
        let breaker = builder(&clock, 1).open_for(100 * SEC).build().unwrap();
        fail(&breaker);
        breaker.reset();
        breaker.reconfigure_by(&builder(&clock, 1)).unwrap();
        let bad = {
            let breaker = breaker.clone();
            spawn(move || fail(&breaker))
        };
        let caller = {
            let breaker = breaker.clone();
            spawn(move || breaker.try_acquire().map(drop).err())
        };
        bad.join().unwrap();
        if let Some(refused) = caller.join().unwrap() {
            assert_eq!((refused.state, refused.retry_after), (State::Open, Some(SEC)));
        }
        assert_eq!(breaker.try_acquire().unwrap_err().retry_after, Some(SEC));
    }

    /// The same where it opens under the eyes of one who wants to be a probe.
    probe_failure_x_probe [bound: 3] {
        let (_, breaker) = opened(2);
        let bad = breaker.try_acquire().unwrap();
        let failure = spawn(move || bad.failure());
        let caller = {
            let breaker = breaker.clone();
            spawn(move || breaker.try_acquire().map(drop).err())
        };
        failure.join().unwrap();
        if let Some(refused) = caller.join().unwrap() {
            assert_eq!((refused.state, refused.retry_after), (State::Open, Some(SEC)));
        }
        assert_eq!(breaker.state(), State::Open);
    }

    /// Who wants to be a probe finds that it is half-open anew, and full: he is told until when by the
    /// settings that came before that.
    half_open_anew_x_probe [bound: 2] {
        let clock = ManualClock::new();
        let breaker = builder(&clock, 2).probe_timeout(1000 * SEC).build().unwrap();
        fail(&breaker);
        clock.advance(SEC);
        let bad = breaker.try_acquire().unwrap();
        let other = {
            let breaker = breaker.clone();
            spawn(move || {
                breaker.reconfigure_by(&builder(&clock, 2).probe_timeout(SEC)).unwrap();
                bad.failure();
                clock.advance(SEC);
                [(); 2].map(|()| breaker.try_acquire().ok())
            })
        };
        let caller = {
            let breaker = breaker.clone();
            spawn(move || breaker.try_acquire())
        };
        let probes = other.join().unwrap();
        match caller.join().unwrap() {
            Err(Open { state: State::HalfOpen, retry_after, .. }) => {
                // By an older look at the clock it is longer.
                assert!(retry_after.is_some_and(|left| left <= 3 * SEC), "{retry_after:?}");
            }
            Err(_) => {}
            Ok(probe) => drop(probe),
        }
        drop(probes);
    }

    /// The time of the probes is over when the last one goes well: it closes, or it was late.
    probe_timeout_x_probe [bound: 3] {
        let clock = ManualClock::new();
        let breaker = builder(&clock, 1).probe_timeout(SEC).build().unwrap();
        fail(&breaker);
        clock.advance(SEC);
        let probe = breaker.try_acquire().unwrap();
        clock.advance(SEC);
        let success = spawn(move || probe.success());
        let caller = {
            let breaker = breaker.clone();
            spawn(move || breaker.try_acquire().map(drop).err())
        };
        success.join().unwrap();
        let refused = caller.join().unwrap();
        match breaker.state() {
            State::Closed => assert_eq!(refused, None),
            State::Open => {
                let refused = refused.unwrap();
                assert_eq!((refused.state, refused.retry_after), (State::Open, Some(SEC)));
            }
            other => panic!("{other}"),
        }
    }

    /// Settings are replaced while a call begins and ends: it counts by one of the two, once; the new
    /// ones are in force afterwards.
    reconfigure_x_call [bound: 2] {
        let clock = ManualClock::new();
        let breaker = builder(&clock, 1).window(Window::Count(9)).build().unwrap();
        let caller = {
            let breaker = breaker.clone();
            spawn(move || breaker.call(|| Ok::<(), ()>(())).unwrap())
        };
        let changer = {
            let (breaker, clock) = (breaker.clone(), clock.clone());
            spawn(move || {
                let timed = builder(&clock, 2).window(Window::Time(SEC)).slow_calls(SEC, 1.0);
                breaker.reconfigure_by(&timed.min_calls(2)).unwrap();
            })
        };
        caller.join().unwrap();
        changer.join().unwrap();
        let before = breaker.snapshot();
        assert_eq!(before.totals.succeeded, 1);
        // By time, and with slow calls.
        breaker.call(|| Ok::<(), ()>(())).unwrap();
        let calls = breaker.snapshot().calls;
        assert_eq!(calls, before.calls + 1);
        let slow = breaker.call(|| {
            clock.advance(SEC);
            Ok::<(), ()>(())
        });
        assert!(slow.is_ok());
        assert_eq!(breaker.snapshot().slow, 1);
        // With two probes.
        breaker.force_open();
        breaker.reset();
        clock.advance(4 * SEC);
        fail(&breaker);
        fail(&breaker);
        clock.advance(SEC);
        let probes = (breaker.try_acquire().unwrap(), breaker.try_acquire().unwrap());
        assert!(breaker.try_acquire().is_err());
        drop(probes);
    }

    /// Whoever is refused while it is reset is told afterwards.
    reset_x_refusal [bound: 3, std_arc] {
        let clock = ManualClock::new();
        let breaker = builder(&clock, 1).build().unwrap();
        breaker.force_open();
        let reset = {
            let breaker = breaker.clone();
            spawn(move || breaker.reset())
        };
        let caller = {
            let breaker = breaker.clone();
            spawn(move || {
                let told = std::sync::Arc::new(Told(AtomicU32::new(0)));
                let listener: Weak<dyn Listener> = std::sync::Arc::downgrade(&told) as _;
                breaker.watch(listener);
                (breaker.try_acquire().is_ok(), told)
            })
        };
        reset.join().unwrap();
        let (had, told) = caller.join().unwrap();
        assert!(had || told.0.load(Ordering::Relaxed) == 1, "refused, and not told");
    }

    /// Two are refused at once, and a listener panics: both are counted.
    refusal_x_refusal {
        let clock = ManualClock::new();
        let breaker = builder(&clock, 1).on_event(|_| panic!("a listener")).build().unwrap();
        breaker.force_open();
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let breaker = breaker.clone();
                spawn(move || breaker.try_acquire().is_err())
            })
            .collect();
        assert!(callers.into_iter().all(|caller| caller.join().unwrap()));
        let totals = breaker.snapshot().totals;
        assert_eq!((totals.rejected, totals.listener_panics), (2, 1));
    }

    /// The handle's own count: the last of two owners frees it, after the other's last look.
    drop_x_drop {
        let clock = ManualClock::new();
        let breaker = Arc::new(builder(&clock, 1).build().unwrap());
        let permit = breaker.try_acquire().unwrap();
        let owner = spawn(move || drop(permit));
        let other = spawn(move || drop(breaker));
        owner.join().unwrap();
        other.join().unwrap();
    }
}
