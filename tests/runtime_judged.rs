//! What a job's errors say to its breakers: `Job::judged_by`.

mod runtime_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tenure::breaker::{CircuitBreaker, State, Verdict, Window};
use tenure::clock::ManualClock;
use tenure::runtime::{Event, JobHandle, LetterFilter, Outcome, Runtime};

use runtime_support::{Gate, SECOND, advance_until, at_once, timed, until, until_event};

/// Opens at two failures of two calls; wants to see two probes.
fn breaker(clock: &ManualClock) -> CircuitBreaker {
    CircuitBreaker::builder()
        .window(Window::Count(2))
        .failure_rate(1.0)
        .probes(2)
        .open_for(10 * SECOND)
        .probe_timeout(Duration::MAX)
        .clock(clock.clone())
        .build()
        .unwrap()
}

#[derive(Debug, thiserror::Error)]
#[error("status {0}")]
struct Status(u16);

/// An answer, and what it says of the one who gave it.
fn judge(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Verdict {
    match error.downcast_ref() {
        Some(Status(400..500)) => Verdict::Success,
        Some(Status(600)) => Verdict::Ignore,
        _ => Verdict::Failure,
    }
}

/// A job that is answered so.
fn answered(rt: &Runtime, breaker: &CircuitBreaker, status: u16) -> JobHandle<()> {
    let job = rt.job(move |_| Outcome::<()>::fail(Status(status)));
    job.breaker(breaker).judged_by(judge).submit().unwrap()
}

#[test]
fn an_error_counts_as_the_job_judges_it() {
    let (rt, clock) = timed(1, 1);
    let breaker = breaker(&clock);
    for status in [404, 422, 600, 404] {
        answered(&rt, &breaker, status).get().unwrap_err();
    }
    let seen = breaker.snapshot();
    assert_eq!((seen.state, seen.totals.succeeded, seen.totals.failed), (State::Closed, 3, 0));
    for _ in 0..2 {
        answered(&rt, &breaker, 503).get().unwrap_err();
    }
    assert_eq!((breaker.state(), breaker.snapshot().totals.failed), (State::Open, 2));
}

#[test]
fn what_is_not_judged_is_a_failure() {
    let (rt, clock) = timed(1, 1);
    let breaker = breaker(&clock);
    for _ in 0..2 {
        let job = rt.job(|_| Outcome::<()>::fail(Status(404))).breaker(&breaker);
        job.submit().unwrap().get().unwrap_err();
    }
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn a_probe_that_is_answered_no_closes_and_an_ignored_one_is_made_again() {
    let (rt, clock) = timed(1, 1);
    let breaker = breaker(&clock);
    for _ in 0..2 {
        answered(&rt, &breaker, 503).get().unwrap_err();
    }
    clock.advance(10 * SECOND);
    // As many as there are probes, and more: none of them says anything.
    for _ in 0..5 {
        answered(&rt, &breaker, 600).get().unwrap_err();
        assert_eq!(breaker.state(), State::HalfOpen);
    }
    answered(&rt, &breaker, 404).get().unwrap_err();
    assert_eq!((breaker.state(), breaker.snapshot().probes_passed), (State::HalfOpen, 1));
    answered(&rt, &breaker, 404).get().unwrap_err();
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn all_breakers_of_a_job_hear_it_however_often_it_is_tried_and_replayed() {
    let clock = ManualClock::new();
    let rt = Runtime::builder().workers(1).retry(at_once(3)).replayable(true).clock(clock.clone());
    let rt = rt.build().unwrap();
    let (host, site) = (breaker(&clock), breaker(&clock));
    let job = rt.job(|_| Outcome::<()>::retry(Status(404)));
    // In whatever order they are named.
    let job = job.breaker(&host).judged_by(judge).breaker(&site).submit().unwrap();
    assert_eq!(job.get().unwrap_err().dead_letter().unwrap().attempts(), 3);
    let replays = rt.dead_letters().replay_all(&LetterFilter::new());
    until("it died again", || rt.stats().dead == 2);
    assert_eq!(replays.replayed.len(), 1);
    for breaker in [host, site] {
        let seen = breaker.snapshot();
        assert_eq!((seen.state, seen.totals.succeeded), (State::Closed, 6));
    }
}

#[test]
fn a_judge_that_panics_has_said_nothing() {
    let (rt, clock) = timed(1, 1);
    let breaker = breaker(&clock);
    for _ in 0..2 {
        let job = rt.job(|_| Outcome::<()>::fail("no")).breaker(&breaker);
        let job = job.judged_by(|_| panic!("the judge")).submit().unwrap();
        let died = job.get().unwrap_err();
        assert_eq!(died.dead_letter().unwrap().history[0].cause.to_string(), "no");
    }
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn values_panics_and_cancelled_attempts_are_not_judged() {
    let (rt, clock) = timed(1, 1);
    let breaker = breaker(&clock);
    let asked = Arc::new(AtomicUsize::new(0));
    let judge = |verdict| {
        let asked = Arc::clone(&asked);
        move |_: &(dyn std::error::Error + Send + Sync + 'static)| {
            asked.fetch_add(1, SeqCst);
            verdict
        }
    };
    let job = rt.job(|_| Ok::<_, String>(())).breaker(&breaker);
    job.judged_by(judge(Verdict::Failure)).submit().unwrap().get().unwrap();
    let gate = Gate::new();
    let hang = gate.clone();
    let job = rt.job(move |_| {
        hang.pass();
        Err::<(), _>("no")
    });
    let job = job.breaker(&breaker).judged_by(judge(Verdict::Failure)).submit().unwrap();
    gate.wait_for(1);
    job.cancel();
    gate.open();
    job.get().unwrap_err();
    let seen = breaker.snapshot();
    assert_eq!((seen.totals.succeeded, seen.totals.failed), (1, 0));
    let job = rt.job(|_| -> Outcome<()> { panic!("the job") }).breaker(&breaker);
    job.judged_by(judge(Verdict::Success)).submit().unwrap().get().unwrap_err();
    assert_eq!(breaker.snapshot().totals.failed, 1);
    assert_eq!(asked.load(SeqCst), 0);
}

/// It is given up with its attempt, and the permit is not lost with it.
#[test]
fn a_judge_that_hangs_is_a_failure() {
    let (rt, clock) = timed(1, 1);
    let events = rt.events();
    let breaker = breaker(&clock);
    for n in 1..=2 {
        let gate = Gate::new();
        let hang = gate.clone();
        let job = rt.job(|_| Outcome::<()>::fail("no")).breaker(&breaker).judged_by(move |_| {
            hang.pass();
            Verdict::Success
        });
        let job = job.submit().unwrap();
        gate.wait_for(1);
        advance_until(&clock, SECOND, "it is given up", || job.is_finished());
        until("the breaker heard of it", || breaker.snapshot().totals.failed == n);
        gate.open();
        until_event(&events, |event| matches!(event, Event::LateAttempt { .. }));
    }
    assert_eq!((breaker.state(), breaker.snapshot().totals.succeeded), (State::Open, 0));
}
