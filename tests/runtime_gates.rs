//! Jobs behind the real breakers and limits.

mod runtime_support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::breaker::{BreakerEvent, CircuitBreaker, State, Window};
use tenure::clock::{Clock, ManualClock};
use tenure::limit::{
    AdaptiveLimit, ConcurrencyLimit, Importance, KeyedConcurrency, KeyedRateLimit, LoadShedder,
    Rate, RateLimit,
};
use tenure::retry::{Jitter, RetryPolicy, Stop};
use tenure::runtime::{JobCtx, JobError, JobHandle, JobKey, Outcome, Runtime, SubmitError};

use runtime_support::{
    Gate, LONG, SECOND, advance_until, at_once, hush, timed, until, until_stats,
};

fn breaker(clock: &ManualClock, probes: u32) -> CircuitBreaker {
    CircuitBreaker::builder()
        .window(Window::Count(4))
        .min_calls(4)
        .failure_rate(0.5)
        .probes(probes)
        .open_for(10 * SECOND)
        .open_jitter(Jitter::None)
        // The tests run ahead with the clock: a probe is not hung because its worker is slow.
        .probe_timeout(Duration::MAX)
        .clock(clock.clone())
        .build()
        .unwrap()
}

#[test]
fn jobs_behind_an_open_breaker_wait_use_no_attempt_and_go_on_when_it_closes() {
    let (rt, clock) = timed(2, 2);
    let breaker = breaker(&clock, 2);
    let down = Arc::new(AtomicBool::new(true));
    let calls = Arc::new(AtomicUsize::new(0));
    let job = |retry: RetryPolicy| {
        let (down, calls) = (Arc::clone(&down), Arc::clone(&calls));
        let call = move |ctx: &JobCtx| {
            calls.fetch_add(1, SeqCst);
            if down.load(SeqCst) { Err("down") } else { Ok(ctx.attempt()) }
        };
        rt.job(call).retry(retry).without_attempt_timeout().breaker(&breaker).submit().unwrap()
    };
    for _ in 0..2 {
        assert_eq!(job(at_once(2)).get().unwrap_err().dead_letter().unwrap().attempts(), 2);
    }
    assert_eq!((breaker.state(), calls.load(SeqCst)), (State::Open, 4));
    let waiting: Vec<_> = (0..100).map(|_| job(at_once(1))).collect();
    until_stats(&rt, |s| s.gated >= 100);
    assert_eq!(calls.load(SeqCst), 4, "an open breaker lets nobody through");
    down.store(false, SeqCst);
    // The refusal's own time wakes the head of the line; probes close the breaker for the others.
    advance_until(&clock, SECOND, "all are through", || waiting.iter().all(JobHandle::is_finished));
    for job in waiting {
        assert_eq!(job.get().unwrap(), 1, "waiting used no attempt");
    }
    assert_eq!((breaker.state(), calls.load(SeqCst)), (State::Closed, 104));
}

#[test]
fn of_many_that_wait_as_many_probe_as_there_are_probes() {
    let (rt, clock) = timed(8, 1);
    let breaker = breaker(&clock, 3);
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    breaker.force_open();
    let gate = Gate::new();
    let jobs: Vec<_> = (0..50)
        .map(|_| {
            let (inside, most, hang) = (Arc::clone(&inside), Arc::clone(&most), gate.clone());
            let probe = move |_: &JobCtx| {
                most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                hang.pass();
                inside.fetch_sub(1, SeqCst);
                Ok::<_, String>(())
            };
            rt.job(probe).breaker(&breaker).without_attempt_timeout().submit().unwrap()
        })
        .collect();
    until_stats(&rt, |s| s.gated >= 50);
    breaker.reset();
    // Closed by hand: everybody goes on, eight at a time.
    gate.wait_for(8);
    gate.open();
    for job in jobs {
        job.get().unwrap();
    }
    assert!(most.load(SeqCst) <= 8);

    // Opened by failures: three probes at a time, however many wait.
    let gate = Gate::new();
    while breaker.state() == State::Closed {
        let job = rt.job(|_| Err::<(), _>("down")).breaker(&breaker).submit().unwrap();
        assert!(job.get().is_err());
    }
    most.store(0, SeqCst);
    let before = rt.stats().gated;
    let jobs: Vec<_> = (0..50)
        .map(|_| {
            let (inside, most, hang) = (Arc::clone(&inside), Arc::clone(&most), gate.clone());
            let breaker_of = breaker.clone();
            let probe = move |_: &JobCtx| {
                let now = inside.fetch_add(1, SeqCst) + 1;
                if breaker_of.state() == State::HalfOpen {
                    most.fetch_max(now, SeqCst);
                }
                hang.pass();
                inside.fetch_sub(1, SeqCst);
                Ok::<_, String>(())
            };
            rt.job(probe).breaker(&breaker).without_attempt_timeout().submit().unwrap()
        })
        .collect();
    until_stats(&rt, |s| s.gated >= before + 50);
    clock.advance(10 * SECOND);
    gate.wait_for(3);
    assert_eq!((inside.load(SeqCst), breaker.state()), (3, State::HalfOpen));
    gate.open();
    for job in jobs {
        job.get().unwrap();
    }
    assert_eq!((most.load(SeqCst), breaker.state()), (3, State::Closed));
}

#[test]
fn an_attempt_that_is_given_up_is_a_failure_for_its_breaker() {
    let (rt, clock) = timed(1, 1);
    let breaker = breaker(&clock, 1);
    let gate = Gate::new();
    for n in 1..=4 {
        let hang = gate.clone();
        let job = rt
            .job(move |_| {
                hang.pass();
                Ok::<_, String>(())
            })
            .breaker(&breaker)
            .submit()
            .unwrap();
        gate.wait_for(n);
        advance_until(&clock, SECOND, "it is given up", || job.is_finished());
    }
    until("the breaker heard of all", || breaker.state() == State::Open);
    gate.open();
    until_stats(&rt, |s| s.fenced == 4 && s.stuck_workers == 0);
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn time_in_a_queue_with_a_permit_is_no_slow_call() {
    let (rt, clock) = timed(1, 1);
    let breaker = CircuitBreaker::builder()
        .window(Window::Count(2))
        .min_calls(1)
        .failure_rate(1.0)
        .slow_calls(SECOND, 0.5)
        .clock(clock.clone())
        .build()
        .unwrap();
    breaker.force_open();
    let job = rt.job(|_| Ok::<_, String>(())).breaker(&breaker).submit().unwrap();
    until_stats(&rt, |s| s.gated >= 1);
    // It is let through while the only worker is not there for it.
    let gate = Gate::new();
    let hang = gate.clone();
    let blocker = rt
        .job(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .without_attempt_timeout()
        .submit()
        .unwrap();
    gate.wait_for(1);
    breaker.reset();
    clock.advance(LONG);
    gate.open();
    blocker.get().unwrap();
    job.get().unwrap();
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn a_rate_limit_spreads_jobs_over_time() {
    let (rt, clock) = timed(2, 1);
    let rate = Rate::per(1, SECOND).unwrap().burst(2).unwrap();
    let limit = RateLimit::with_clock(rate, clock.clone());
    let times = Arc::new(Mutex::new(Vec::new()));
    let jobs: Vec<_> = (0..10)
        .map(|_| {
            let (times, clock) = (Arc::clone(&times), clock.clone());
            let note = move |_: &JobCtx| {
                times.lock().unwrap().push(clock.now().as_nanos() / 1_000_000_000);
                Ok::<_, String>(())
            };
            rt.job(note).rate_limit(&limit).submit().unwrap()
        })
        .collect();
    // Two at once; then one a second.
    for second in 0..9_usize {
        until("this second's job is done", || {
            jobs.iter().filter(|job| job.is_finished()).count() >= (second + 2).min(10)
        });
        clock.advance(SECOND);
    }
    for job in jobs {
        job.get().unwrap();
    }
    let times = times.lock().unwrap();
    for second in 0..9 {
        let upto = times.iter().filter(|&&at| at <= second).count() as u64;
        assert!(upto <= second + 2, "{times:?}");
    }
}

#[test]
fn a_concurrency_limit_can_be_changed_while_jobs_wait() {
    let rt = Runtime::builder().workers(4).build().unwrap();
    let limit = ConcurrencyLimit::new(0);
    let jobs: Vec<_> = (0..100)
        .map(|_| {
            let limit_of = limit.clone();
            let check = move |_: &JobCtx| Ok::<_, String>(limit_of.in_use());
            rt.job(check).concurrency(&limit).submit().unwrap()
        })
        .collect();
    until_stats(&rt, |s| s.gated >= 100);
    assert_eq!(rt.stats().started, 0);
    limit.set_limit(2);
    for job in jobs {
        assert!(job.get().unwrap() <= 2);
    }
    until("all are back", || limit.in_use() == 0);
}

#[test]
fn limits_of_one_key_do_not_hold_up_another() {
    let rt = Runtime::builder().workers(2).build().unwrap();
    let limit = KeyedConcurrency::<JobKey>::new(1);
    let gate = Gate::new();
    let hang = gate.clone();
    let first = rt
        .job(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .concurrency_per_key(&limit, "a")
        .submit()
        .unwrap();
    gate.wait_for(1);
    let second = rt.job(|_| Ok::<_, String>(())).concurrency_per_key(&limit, "a").submit().unwrap();
    until_stats(&rt, |s| s.gated == 1);
    rt.job(|_| Ok::<_, String>(()))
        .concurrency_per_key(&limit, "b")
        .submit()
        .unwrap()
        .get()
        .unwrap();
    assert!(!second.is_finished());
    gate.open();
    first.get().unwrap();
    second.get().unwrap();
}

#[test]
fn a_rate_of_one_key_is_that_keys() {
    let clock = ManualClock::new();
    let rt = Runtime::builder().workers(1).clock(clock.clone()).build().unwrap();
    let rate = Rate::per(1, SECOND).unwrap();
    let limit = KeyedRateLimit::<JobKey>::with_max_keys(rate, 100, clock.clone()).unwrap();
    let job = |key: u64| {
        rt.job(|_| Ok::<_, String>(())).rate_limit_per_key(&limit, key).submit().unwrap()
    };
    job(1).get().unwrap();
    job(2).get().unwrap();
    let again = job(1);
    until_stats(&rt, |s| s.gated == 1);
    advance_until(&clock, SECOND, "its time comes", || again.is_finished());
    again.get().unwrap();
}

#[test]
fn an_adaptive_limit_learns_from_attempts() {
    let (rt, clock) = timed(4, 1);
    let limit = AdaptiveLimit::builder()
        .initial(4)
        .bounds(1, 4)
        .target(SECOND)
        .clock(clock.clone())
        .build()
        .unwrap();
    rt.job(|_| Ok::<_, String>(())).adaptive_concurrency(&limit).submit().unwrap().get().unwrap();
    let gate = Gate::new();
    let hang = gate.clone();
    let job = rt
        .job(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .adaptive_concurrency(&limit)
        .submit()
        .unwrap();
    gate.wait_for(1);
    advance_until(&clock, SECOND, "it is given up", || job.is_finished());
    until("the limit is lower", || limit.limit() < 4);
    gate.open();
    until_stats(&rt, |s| s.fenced == 1);
    assert_eq!(limit.in_use(), 0);
}

#[test]
fn a_shedder_refuses_at_the_submit_and_gives_the_job_back() {
    let (rt, _clock) = timed(1, 1);
    let shedder = LoadShedder::builder().max_depth(2).build().unwrap();
    let gate = Gate::new();
    let hang = gate.clone();
    let running = rt
        .job(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .without_attempt_timeout()
        .shed_by(&shedder, Importance::High)
        .submit()
        .unwrap();
    gate.wait_for(1);
    assert_eq!(shedder.depth(), 0, "what runs does not wait");
    let job = |_: &JobCtx| Ok::<_, String>(());
    let waiting =
        [(); 2].map(|()| rt.job(job).shed_by(&shedder, Importance::High).submit().unwrap());
    let refused = rt.job(job).shed_by(&shedder, Importance::High).submit().unwrap_err();
    assert!(matches!(refused, SubmitError::Shed { .. }));
    assert_eq!(refused.to_string(), "too much waits already");
    // One that is cancelled leaves the queue.
    let [one, other] = waiting;
    assert!(one.cancel());
    assert_eq!(shedder.depth(), 1);
    let back = rt.job(refused.into_inner()).shed_by(&shedder, Importance::High).submit().unwrap();
    gate.open();
    for job in [running, other, back] {
        job.get().unwrap();
    }
    assert!(matches!(one.get(), Err(JobError::Cancelled)));
    assert_eq!(shedder.depth(), 0);
}

#[test]
fn a_refused_submit_leaves_no_place_in_the_shedders_queue() {
    let rt = Runtime::builder().workers(1).capacity(1).build().unwrap();
    let shedder = LoadShedder::builder().build().unwrap();
    let gate = Gate::new();
    let hang = gate.clone();
    let running = rt
        .job(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .submit()
        .unwrap();
    let job = |_: &JobCtx| Ok::<_, String>(());
    let full = rt.job(job).shed_by(&shedder, Importance::High).submit();
    assert!(matches!(full, Err(SubmitError::Full(_))));
    assert_eq!(shedder.depth(), 0);
    gate.open();
    running.get().unwrap();
    let _report = rt.shutdown(LONG);
    let closed = rt.job(job).shed_by(&shedder, Importance::High).submit();
    assert!(matches!(closed, Err(SubmitError::Closed(_))));
    assert_eq!(shedder.depth(), 0);
}

/// What a breaker's listener does.
#[derive(Clone)]
enum Does {
    Panic,
    ComeBack(Runtime),
    /// Once.
    Hang(Gate, Arc<AtomicBool>),
}

/// A breaker whose listener does that when the time of an opening is over, or when it is reset.
fn told(clock: &ManualClock, does: Does) -> (CircuitBreaker, Arc<AtomicUsize>) {
    let heard = Arc::new(AtomicUsize::new(0));
    let (hears, at_last) = (Arc::clone(&heard), Arc::new(Mutex::new(None::<CircuitBreaker>)));
    let me = Arc::clone(&at_last);
    let listen = move |event: &BreakerEvent| {
        if !matches!(event.to, State::HalfOpen | State::Closed) {
            return;
        }
        hears.fetch_add(1, SeqCst);
        match &does {
            Does::Panic => std::panic::panic_any("meant"),
            Does::ComeBack(rt) => {
                let breaker = me.lock().unwrap().clone().unwrap();
                assert!(breaker.snapshot().generation >= event.generation);
                drop(breaker.try_acquire());
                let job = rt.job(|_| Ok::<_, String>(())).breaker(&breaker);
                drop(job.without_attempt_timeout().submit().unwrap());
            }
            Does::Hang(gate, hung) if !hung.swap(true, SeqCst) => gate.pass(),
            Does::Hang(..) => {}
        }
    };
    let breaker = CircuitBreaker::builder()
        .window(Window::Count(4))
        .probes(2)
        .open_for(10 * SECOND)
        .probe_timeout(5 * SECOND)
        .clock(clock.clone())
        .on_event(listen)
        .build()
        .unwrap();
    *at_last.lock().unwrap() = Some(breaker.clone());
    (breaker, heard)
}

/// Jobs that wait at the breaker, which is open by failures or by force.
fn waiting(rt: &Runtime, breaker: &CircuitBreaker, by_force: bool) -> Vec<JobHandle<u32>> {
    let before = rt.stats().gated;
    match by_force {
        true => breaker.force_open(),
        false => {
            while breaker.state() == State::Closed {
                breaker.try_acquire().unwrap().failure();
            }
        }
    }
    let job = |ctx: &JobCtx| Ok::<_, String>(ctx.attempt());
    let jobs: Vec<_> = (0..20)
        .map(|_| rt.job(job).breaker(breaker).without_attempt_timeout().submit().unwrap())
        .collect();
    until_stats(rt, |s| s.gated >= before + 20);
    jobs
}

#[test]
fn a_breakers_listener_that_panics_or_comes_back_in_stops_nobody() {
    hush();
    for comes_back in [false, true] {
        let (rt, clock) = timed(2, 1);
        let does = if comes_back { Does::ComeBack(rt.clone()) } else { Does::Panic };
        let (breaker, heard) = told(&clock, does);
        for by_force in [false, true] {
            let jobs = waiting(&rt, &breaker, by_force);
            if by_force {
                breaker.reset();
            }
            advance_until(&clock, SECOND, "all are through", || {
                jobs.iter().all(JobHandle::is_finished)
            });
            for job in jobs {
                assert_eq!(job.get().unwrap(), 1);
            }
        }
        assert!(heard.load(SeqCst) >= 3, "half-open, closed, reset");
        advance_until(&clock, SECOND, "the listener's own are through", || {
            let s = rt.stats();
            s.succeeded == s.submitted
        });
        // Its own job has it, and it has the runtime: so it ends here.
        assert!(rt.shutdown(LONG).abandoned.is_empty());
    }
}

#[test]
fn a_breakers_listener_that_never_returns_holds_up_whoever_told_it_and_no_other() {
    for by_force in [false, true] {
        let (rt, clock) = timed(2, 1);
        let gate = Gate::new();
        let (breaker, _) = told(&clock, Does::Hang(gate.clone(), Arc::default()));
        let jobs = waiting(&rt, &breaker, by_force);
        let teller = by_force.then(|| {
            let breaker = breaker.clone();
            std::thread::spawn(move || breaker.reset())
        });
        // The driver's thread or ours hangs there.
        advance_until(&clock, SECOND, "it hangs", || gate.waiting() == 1);
        let held = usize::from(!by_force);
        advance_until(&clock, SECOND, "the others are through", || {
            jobs.iter().filter(|job| job.is_finished()).count() >= 20 - held
        });
        assert_eq!(jobs.iter().filter(|job| !job.is_finished()).count(), held);
        // Whoever does not stand there is not touched, and the end is bounded.
        rt.job(|_| Ok::<_, String>(())).submit().unwrap().get().unwrap();
        let begun = std::time::Instant::now();
        let report = rt.shutdown(SECOND);
        assert!(begun.elapsed() < LONG / 2 && report.cancelled == held, "{report:?}");
        let ends = jobs.into_iter().map(JobHandle::get);
        assert_eq!(ends.filter(|end| matches!(end, Err(JobError::Shutdown))).count(), held);
        gate.open();
        if let Some(teller) = teller {
            teller.join().unwrap();
        }
    }
}

/// A job that is over gives its permit back, and somebody's callback hangs there: the next one of its key goes on
/// all the same.
#[test]
fn whoever_hangs_over_a_permit_holds_up_no_key() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    let limit = ConcurrencyLimit::new(1);
    let mine = limit.try_acquire().unwrap();
    let busy = Gate::new();
    let job = |_: &JobCtx| Ok::<_, String>(());
    let first = rt.job(job).key("k").concurrency(&limit).submit().unwrap();
    let mut second = rt.job(job).key("k").submit().unwrap();
    until_stats(&rt, |s| s.gated == 1);
    let blocker = rt.submit({
        let busy = busy.clone();
        move |_| {
            busy.pass();
            Ok::<_, String>(())
        }
    });
    busy.wait_for(1);
    // The first one is granted the permit; it cannot begin.
    drop(mine);
    assert_eq!(limit.in_use(), 1);
    let hang = Gate::new();
    let at = hang.clone();
    let waits = limit.acquire_async();
    let told = waits.map(move |permit| {
        at.pass();
        drop(permit);
    });
    let canceller = std::thread::spawn(move || assert!(first.cancel()));
    hang.wait_for(1);
    busy.open();
    second.get_timeout(LONG).expect("it has its turn").unwrap();
    hang.open();
    canceller.join().unwrap();
    told.get().unwrap();
    blocker.unwrap().get().unwrap();
    assert_eq!(limit.in_use(), 0);
}

#[test]
fn all_of_it_at_once() {
    let (rt, clock) = timed(4, 5);
    let breaker = breaker(&clock, 2);
    let limit = ConcurrencyLimit::new(2);
    let rate = RateLimit::with_clock(Rate::per_second(1000).unwrap(), clock.clone());
    let n = Arc::new(AtomicUsize::new(0));
    let jobs: Vec<_> = (0..500_u64)
        .map(|id| {
            let (n, limit_of) = (Arc::clone(&n), limit.clone());
            let call = move |_: &JobCtx| {
                assert!(limit_of.in_use() <= 2);
                match n.fetch_add(1, SeqCst) {
                    // A bad time for everybody.
                    100..110 => Outcome::retry("down"),
                    _ => Outcome::Done(id),
                }
            };
            rt.job(call)
                .breaker(&breaker)
                .concurrency(&limit)
                .rate_limit(&rate)
                .key(id % 7)
                .unique(id)
                .deadline(Duration::from_secs(1 << 33))
                .without_attempt_timeout()
                .submit()
                .unwrap()
        })
        .collect();
    advance_until(&clock, SECOND, "all are over", || jobs.iter().all(JobHandle::is_finished));
    for (id, job) in jobs.into_iter().enumerate() {
        match job.get() {
            Ok(value) => assert_eq!(value, id as u64),
            Err(JobError::Dead(letter)) => assert_eq!(letter.stop, Stop::MaxAttempts),
            Err(other) => panic!("{other}"),
        }
    }
    until("all permits are back", || limit.in_use() == 0);
    assert!(rt.shutdown(LONG).abandoned.is_empty());
}
