//! Gates of the tests' own, around real jobs.
#![cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]

mod foreign;
mod turnstile;

use core::time::Duration;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, Weak, mpsc};
use std::time::Instant;

use super::{Gate, GateId, Pass, Stage, Verdict};
use crate::clock::ManualClock;
use crate::limit::Listener;
use crate::retry::{RetryPolicy, Stop};
use crate::runtime::{JobCtx, JobError, JobHandle, Outcome, Runtime};
use turnstile::{Latch, Shut, until};

const LONG: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn runtime(workers: usize) -> Runtime {
    let policy = RetryPolicy::immediate().max_attempts(3).build().unwrap();
    Runtime::builder().workers(workers).retry(policy).build().unwrap()
}

fn timed(workers: usize) -> (Runtime, ManualClock) {
    let clock = ManualClock::new();
    let policy = RetryPolicy::immediate().max_attempts(2).build().unwrap();
    let rt = Runtime::builder()
        .workers(workers)
        .clock(clock.clone())
        .attempt_timeout(SECOND)
        .retry(policy)
        .build()
        .unwrap();
    (rt, clock)
}

fn gated<T: Send + 'static>(
    rt: &Runtime,
    gate: &Shut,
    job: impl Fn(&JobCtx) -> Outcome<T> + Send + Sync + 'static,
) -> JobHandle<T> {
    rt.job(job).gate(Stage::Concurrency, gate.gate()).submit().expect("open")
}

fn waits(rt: &Runtime, jobs: u64) {
    until("they wait at the gate", || rt.stats().gated >= jobs);
}

#[test]
fn a_refused_job_waits_uses_no_attempt_and_goes_on_when_a_permit_comes() {
    let rt = runtime(1);
    let gate = Shut::new(0);
    let mut job = gated(&rt, &gate, |ctx| Outcome::Done(ctx.attempt()));
    waits(&rt, 1);
    assert!(job.try_get().is_none());
    assert_eq!(rt.stats().started, 0);
    gate.open(1);
    assert_eq!(job.get().unwrap(), 1);
    assert_eq!((gate.verdicts("success"), gate.inside()), (1, 0));
}

#[test]
fn those_who_wait_are_as_many_as_there_are_permits_and_in_their_order() {
    let rt = runtime(4);
    let gate = Shut::new(0);
    let order = Arc::new(Mutex::new(Vec::new()));
    let jobs: Vec<_> = (0..50)
        .map(|n| {
            let order = Arc::clone(&order);
            let job = gated(&rt, &gate, move |_| {
                order.lock().unwrap().push(n);
                Outcome::Done(())
            });
            // One after another into the line.
            waits(&rt, n + 1);
            job
        })
        .collect();
    let asked = gate.asked();
    gate.open(1);
    for job in jobs {
        job.get().unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
    assert_eq!(gate.0.most_inside.load(SeqCst), 1);
    // Each permit woke one: asked for, and perhaps once more in vain for the next in line, by the
    // giver and by the one who began.
    assert!(gate.asked() - asked <= 8 * 50, "{}", gate.asked() - asked);
}

#[test]
fn a_refusal_that_names_a_time_is_asked_again_then() {
    let (rt, clock) = timed(1);
    let gate = Shut::within(0, Some(SECOND));
    let jobs = [(); 3].map(|()| gated(&rt, &gate, |_| Outcome::Done(())));
    waits(&rt, 3);
    gate.refill(1);
    for job in jobs {
        let mut job = job;
        let begun = Instant::now();
        while job.get_timeout(Duration::from_millis(5)).is_none() {
            assert!(begun.elapsed() < LONG);
            clock.advance(SECOND);
        }
    }
}

#[test]
fn what_became_of_an_attempt_is_told_to_its_gates() {
    let rt = runtime(2);
    let gate = Shut::new(1);
    gated(&rt, &gate, |_| Outcome::Done(())).get().unwrap();
    assert!(gated::<()>(&rt, &gate, |_| Outcome::fail("no")).get().is_err());
    assert!(gated::<()>(&rt, &gate, |_| panic!("no")).get().is_err());
    assert_eq!((gate.verdicts("success"), gate.verdicts("failure")), (1, 1 + 3));
    let snoozed = AtomicBool::new(false);
    let job = gated(&rt, &gate, move |_| match snoozed.swap(true, SeqCst) {
        false => Outcome::Snooze(Duration::ZERO),
        true => Outcome::Done(()),
    });
    job.get().unwrap();
    assert!(matches!(gated::<()>(&rt, &gate, |_| Outcome::Cancel).get(), Err(JobError::Cancelled)));
    assert_eq!((gate.verdicts("success"), gate.verdicts("ignored")), (2, 2));
    // An error of an attempt that was asked to end says nothing.
    let latch = Latch::default();
    let hang = latch.clone();
    let job = gated::<()>(&rt, &gate, move |_| {
        hang.pass();
        Outcome::retry("late")
    });
    latch.wait_for(1);
    assert!(job.cancel());
    latch.open();
    assert!(matches!(job.get(), Err(JobError::Cancelled)));
    assert_eq!(gate.verdicts("ignored"), 3);
    assert_eq!(gate.inside(), 0);
}

#[test]
fn a_late_attempt_neither_keeps_its_permit_nor_gives_it_back_twice() {
    let (rt, clock) = timed(1);
    let gate = Shut::new(1);
    let latch = Latch::default();
    let hang = latch.clone();
    let job = gated(&rt, &gate, move |ctx| {
        if ctx.attempt() == 1 {
            hang.pass();
        }
        Outcome::Done(ctx.attempt())
    });
    latch.wait_for(1);
    clock.advance(SECOND);
    // The next attempt needs the permit of the one that was given up.
    assert_eq!(job.get().unwrap(), 2);
    assert_eq!((gate.verdicts("failure"), gate.verdicts("success")), (1, 1));
    latch.open();
    until("the late one is back", || rt.stats().fenced == 1);
    assert_eq!((gate.inside(), gate.0.free.load(SeqCst)), (0, 1));
    assert_eq!(gate.0.most_inside.load(SeqCst), 1);
}

#[test]
fn gates_are_asked_in_one_order_whatever_was_said_first() {
    let rt = runtime(1);
    let [rate, limit, breaker] = [Shut::new(0), Shut::new(0), Shut::new(0)];
    let job = rt
        .job(|_| Ok::<_, String>(()))
        .gate(Stage::Breaker, breaker.gate())
        .gate(Stage::Concurrency, limit.gate())
        .gate(Stage::Rate, rate.gate())
        .submit()
        .unwrap();
    waits(&rt, 1);
    assert_eq!((limit.asked(), breaker.asked()), (0, 0));
    rate.open(1);
    until("the next one is asked", || limit.asked() > 0);
    assert_eq!(breaker.asked(), 0);
    limit.open(1);
    until("the last one is asked", || breaker.asked() > 0);
    // Who waits there holds nothing of the others.
    until("the permits are back", || rate.inside() == 0 && limit.inside() == 0);
    breaker.open(1);
    job.get().unwrap();
    assert_eq!([&rate, &limit, &breaker].map(|gate| gate.verdicts("success")), [1, 1, 1]);
}

#[test]
fn two_gates_with_jobs_in_both_lines_let_everybody_through() {
    let rt = runtime(4);
    let (one, other) = (Shut::new(1), Shut::new(2));
    let jobs: Vec<_> = (0..400)
        .map(|n| {
            let mut job = rt.job(|_| Ok::<_, String>(()));
            if n % 3 != 0 {
                job = job.gate(Stage::Rate, one.gate());
            }
            if n % 3 != 1 {
                job = job.gate(Stage::Breaker, other.gate());
            }
            job.submit().unwrap()
        })
        .collect();
    for job in jobs {
        job.get().unwrap();
    }
    assert_eq!((one.inside(), other.inside()), (0, 0));
    assert_eq!(one.0.most_inside.load(SeqCst), 1);
    assert!(other.0.most_inside.load(SeqCst) <= 2);
}

#[test]
fn a_long_line_is_no_deep_recursion_and_moves_on_as_a_whole() {
    let rt = runtime(2);
    let (limit, breaker) = (Shut::new(0), Shut::new(0));
    let jobs: Vec<_> = (0..10_000)
        .map(|_| {
            rt.job(|_| Ok::<_, String>(()))
                .gate(Stage::Concurrency, limit.gate())
                .gate(Stage::Breaker, breaker.gate())
                .submit()
                .unwrap()
        })
        .collect();
    waits(&rt, 10_000);
    let before = limit.asked();
    limit.open(1);
    // Each is let through the first gate, and only those at the head of the second line ask there.
    until("all wait at the second one", || {
        limit.inside() == 0 && limit.asked() >= before + 10_000 && breaker.asked() >= 1
    });
    breaker.open(1);
    for job in jobs {
        job.get().unwrap();
    }
}

#[test]
fn a_gate_that_closes_again_lets_no_more_through_than_there_are_workers() {
    let rt = runtime(2);
    let gate = Shut::new(0);
    let ran = Arc::new(AtomicUsize::new(0));
    let latch = Latch::default();
    let jobs: Vec<_> = (0..100)
        .map(|_| {
            let (ran, hang) = (Arc::clone(&ran), latch.clone());
            gated(&rt, &gate, move |_| {
                ran.fetch_add(1, SeqCst);
                hang.pass();
                Outcome::Done(())
            })
        })
        .collect();
    waits(&rt, 100);
    gate.open(1000);
    until("both workers run one", || ran.load(SeqCst) == 2);
    // Two run, and two more at most hold permits. Those are void when their turn comes.
    until("who may is through", || gate.inside() <= 4);
    gate.close_and_void();
    latch.open();
    until("the two are done", || gate.verdicts("success") == 2);
    until("the others are back in line", || gate.inside() == 0);
    assert_eq!(ran.load(SeqCst), 2);
    gate.open(1);
    for job in jobs {
        job.get().unwrap();
    }
    assert_eq!(ran.load(SeqCst), 100);
}

#[test]
fn cancelled_at_a_gate_a_job_is_over_and_the_next_one_goes() {
    let rt = runtime(1);
    let gate = Shut::new(0);
    let [first, second] = [(); 2].map(|()| gated(&rt, &gate, |_| Outcome::Done(())));
    waits(&rt, 2);
    assert!(first.cancel());
    assert!(matches!(first.get(), Err(JobError::Cancelled)));
    until("it is counted", || rt.stats().cancelled == 1);
    gate.open(1);
    second.get().unwrap();
}

#[test]
fn a_keyed_job_keeps_its_key_at_a_gate_and_passes_it_on_when_cancelled_there() {
    let rt = runtime(2);
    let gate = Shut::new(0);
    let first = rt
        .job(|_| Ok::<_, String>(1))
        .key("k")
        .gate(Stage::Concurrency, gate.gate())
        .submit()
        .unwrap();
    waits(&rt, 1);
    let mut second = rt.job(|_| Ok::<_, String>(2)).key("k").submit().unwrap();
    assert!(second.get_timeout(Duration::from_millis(20)).is_none());
    assert!(first.cancel());
    assert_eq!(second.get().unwrap(), 2);
}

#[test]
fn a_shutdown_ends_those_who_wait_at_gates_and_gives_back_what_they_hold() {
    let rt = runtime(1);
    let gate = Shut::new(1);
    let latch = Latch::default();
    let hang = latch.clone();
    let (tell, runs) = mpsc::channel();
    let running = gated(&rt, &gate, move |_| {
        let _ = tell.send(());
        hang.pass();
        Outcome::Done(())
    });
    runs.recv_timeout(LONG).unwrap();
    let waiting: Vec<_> = (0..10).map(|_| gated(&rt, &gate, |_| Outcome::Done(()))).collect();
    let closer = {
        let rt = rt.clone();
        std::thread::spawn(move || rt.shutdown(LONG))
    };
    for job in waiting {
        assert!(matches!(job.get(), Err(JobError::Shutdown)));
    }
    latch.open();
    let report = closer.join().unwrap();
    running.get().unwrap();
    assert_eq!((report.done, report.cancelled), (1, 10));
    assert_eq!((gate.inside(), gate.0.free.load(SeqCst)), (0, 1));
}

#[test]
fn a_shutdown_gives_back_the_permits_of_what_it_abandons() {
    let rt = runtime(1);
    let gate = Shut::new(1);
    let latch = Latch::default();
    let hang = latch.clone();
    let job = gated(&rt, &gate, move |_| {
        hang.pass();
        Outcome::Done(())
    });
    latch.wait_for(1);
    assert_eq!(rt.shutdown(Duration::ZERO).abandoned.len(), 1);
    assert!(matches!(job.get(), Err(JobError::Shutdown)));
    until("the permit is back", || gate.inside() == 0);
    latch.open();
    until("the worker is gone", || rt.stats().workers == 0);
    assert_eq!((gate.verdicts("ignored"), gate.0.free.load(SeqCst)), (1, 1));
}

#[test]
fn a_deadline_comes_at_a_gate_too() {
    let (rt, clock) = timed(1);
    let gate = Shut::new(0);
    let job = rt
        .job(|_| Ok::<_, String>(()))
        .deadline(SECOND)
        .key("k")
        .gate(Stage::Rate, gate.gate())
        .submit()
        .unwrap();
    waits(&rt, 1);
    clock.advance(SECOND);
    let letter = job.get().unwrap_err().dead_letter().cloned().expect("dead");
    assert_eq!((letter.stop, letter.attempts()), (Stop::Deadline, 0));
    // Its key is free, and nothing of it waits.
    rt.job(|_| Ok::<_, String>(())).key("k").submit().unwrap().get().unwrap();
    gate.open(1);
    assert_eq!(gate.inside(), 0);
}

#[test]
fn a_second_attempt_needs_a_permit_of_its_own() {
    let (rt, clock) = timed(2);
    let gate = Shut::new(1);
    let latch = Latch::default();
    let hang = latch.clone();
    let job = rt
        .job(move |ctx: &JobCtx| {
            if !ctx.is_hedge() {
                hang.pass();
            }
            Ok::<_, String>(ctx.is_hedge())
        })
        .without_attempt_timeout()
        .hedge_after(SECOND)
        .gate(Stage::Concurrency, gate.gate())
        .submit()
        .unwrap();
    latch.wait_for(1);
    let asked = gate.asked();
    clock.advance(SECOND);
    until("the second one is refused", || gate.asked() > asked);
    latch.open();
    assert!(!job.get().unwrap());
    assert_eq!(rt.stats().hedged, 0);
    until("the permit is back", || gate.inside() == 0);
}

#[test]
fn of_two_attempts_each_gives_its_own_permit_back() {
    let (rt, clock) = timed(2);
    let gate = Shut::new(2);
    let latch = Latch::default();
    let hang = latch.clone();
    let job = rt
        .job(move |ctx: &JobCtx| {
            if !ctx.is_hedge() {
                hang.pass();
            }
            Ok::<_, String>(ctx.is_hedge())
        })
        .without_attempt_timeout()
        .hedge_after(SECOND)
        .gate(Stage::Concurrency, gate.gate())
        .submit()
        .unwrap();
    latch.wait_for(1);
    clock.advance(SECOND);
    assert!(job.get().unwrap());
    assert_eq!(gate.inside(), 1, "the loser is inside");
    latch.open();
    until("the loser is back", || rt.stats().fenced == 1);
    assert_eq!((gate.inside(), gate.0.free.load(SeqCst)), (0, 2));
}

#[test]
fn lines_go_with_their_gates() {
    let rt = runtime(1);
    for _ in 0..200 {
        let gate = Shut::new(1);
        gated(&rt, &gate, |_| Outcome::Done(())).get().unwrap();
        let held = Arc::clone(&gate.0);
        drop(gate);
        until("the gate is free", || Arc::strong_count(&held) == 1);
    }
    assert_eq!(rt.shared().uniques.len(), 0);
}
