//! What the runtime does when things go wrong: stuck workers, late attempts, pauses, shutdowns.

mod runtime_support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::clock::ManualClock;
use tenure::retry::{Jitter, RetryPolicy, Stop};
use tenure::runtime::{AttemptError, Event, JobError, Runtime, SubmitError};

use runtime_support::{
    Gate, LONG, SECOND, advance_until, at_once, timed, until, until_event, until_stats,
};

#[test]
fn a_stuck_worker_is_replaced_and_its_late_attempt_is_fenced() {
    let (rt, clock) = timed(1, 3);
    let events = rt.events();
    let gate = Gate::new();
    let hang = gate.clone();
    let late = Arc::new(Mutex::new(None));
    let told = Arc::clone(&late);
    let job = rt
        .submit(move |ctx| {
            if ctx.attempt() == 1 {
                hang.pass();
                *told.lock().unwrap() = Some((
                    ctx.is_current(),
                    ctx.is_cancelled(),
                    ctx.heartbeat(),
                    ctx.check().is_ok(),
                ));
            }
            Ok::<_, String>((ctx.attempt(), ctx.token()))
        })
        .unwrap();
    gate.wait_for(1);
    clock.advance(SECOND);
    assert!(matches!(
        until_event(&events, |e| matches!(e, Event::WorkerStuck { .. })),
        Event::WorkerStuck { worker: 0, attempt: 1, replacement: Some(1), .. }
    ));
    let (attempt, _) = job.get().unwrap();
    assert_eq!(attempt, 2, "a worker that is alone and stuck does not hold up the retry");
    let stats = rt.stats();
    assert_eq!((stats.workers, stats.stuck_workers, stats.replaced_workers), (1, 1, 1));
    assert_eq!((stats.timed_out, stats.fenced), (1, 0));

    gate.open();
    until_event(&events, |e| matches!(e, Event::LateAttempt { attempt: 1, .. }));
    until_event(&events, |e| matches!(e, Event::WorkerReturned { worker: 0 }));
    let (current, cancelled, heartbeat, check) = late.lock().unwrap().expect("it came back");
    assert!(!current && cancelled && heartbeat.is_err() && !check);
    until_stats(&rt, |s| s.stuck_workers == 0);
    let stats = rt.stats();
    assert_eq!((stats.workers, stats.fenced, stats.returned_workers), (1, 1, 1));
    assert_eq!((stats.succeeded, stats.started), (1, 2));
    assert!(rt.shutdown(LONG).abandoned.is_empty());
}

#[test]
fn an_attempt_that_is_exactly_in_time_is_left_alone() {
    let (rt, clock) = timed(1, 1);
    let gate = Gate::new();
    let hang = gate.clone();
    let mut job = rt
        .submit(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .unwrap();
    gate.wait_for(1);
    clock.advance(SECOND - Duration::from_nanos(1));
    assert!(job.get_timeout(Duration::from_millis(20)).is_none());
    assert_eq!(rt.stats().timed_out, 0);
    gate.open();
    job.get_timeout(LONG).unwrap().unwrap();
}

#[test]
fn a_job_that_always_hangs_dies_and_its_history_says_so() {
    let (rt, clock) = timed(1, 2);
    let gate = Gate::new();
    let hang = gate.clone();
    let job = rt
        .submit(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .unwrap();
    gate.wait_for(1);
    clock.advance(SECOND);
    gate.wait_for(2);
    clock.advance(SECOND);
    let error = job.get().unwrap_err();
    let letter = error.dead_letter().unwrap();
    assert_eq!(letter.stop, Stop::MaxAttempts);
    assert_eq!(letter.history.len(), 2);
    for attempt in &letter.history {
        assert!(matches!(attempt.cause, AttemptError::TimedOut { after: SECOND }));
        assert_eq!(attempt.ended.saturating_since(attempt.started), SECOND);
    }
    gate.open();
    until_stats(&rt, |s| s.fenced == 2 && s.stuck_workers == 0);
    assert_eq!(rt.stats().workers, 1);
}

#[test]
fn the_captures_of_a_dead_job_go_when_the_last_late_attempt_leaves() {
    let (rt, clock) = timed(1, 1);
    let gate = Gate::new();
    let hang = gate.clone();
    let captured = Arc::new(());
    let held = Arc::clone(&captured);
    let job = rt
        .submit(move |_| {
            let _held = &held;
            hang.pass();
            Ok::<_, String>(())
        })
        .unwrap();
    gate.wait_for(1);
    clock.advance(SECOND);
    assert!(job.get().is_err());
    assert_eq!(Arc::strong_count(&captured), 2, "the late attempt is inside");
    gate.open();
    until_stats(&rt, |s| s.fenced == 1);
    until("its captures are gone", || Arc::strong_count(&captured) == 1);
}

#[test]
fn a_heartbeat_keeps_an_attempt_alive_and_its_absence_is_noticed() {
    let (rt, clock) = timed(1, 1);
    let events = rt.events();
    let beaten = Gate::new();
    let gate = Gate::new();
    let (beat, hang) = (beaten.clone(), gate.clone());
    let job = rt
        .submit(move |ctx| {
            ctx.heartbeat().unwrap();
            beat.pass();
            hang.pass();
            Ok::<_, String>(())
        })
        .unwrap();
    beaten.wait_for(1);
    clock.advance(SECOND);
    beaten.open();
    gate.wait_for(1);
    clock.advance(SECOND / 2);
    assert_eq!(rt.stats().timed_out, 0, "it showed life in its first period");
    // A driver that looks late gives grace for its own lag, so time goes on until it has judged.
    advance_until(&clock, SECOND / 2, "its absence is noticed", || rt.stats().timed_out > 0);
    until_event(&events, |e| matches!(e, Event::WorkerStuck { .. }));
    assert!(job.get().is_err());
    gate.open();
}

#[test]
fn the_others_are_not_harmed_by_one_that_never_returns() {
    let (rt, clock) = timed(2, 1);
    let gate = Gate::new();
    let hang = gate.clone();
    let stuck = rt
        .submit(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .unwrap();
    gate.wait_for(1);
    for i in 0..100 {
        assert_eq!(rt.submit(move |_| Ok::<_, String>(i)).unwrap().get().unwrap(), i);
    }
    clock.advance(SECOND);
    assert!(stuck.get().is_err());
    for i in 0..100 {
        assert_eq!(rt.submit(move |_| Ok::<_, String>(i)).unwrap().get().unwrap(), i);
    }
    gate.open();
}

#[test]
fn what_a_stuck_worker_had_queued_is_run_by_others() {
    let (rt, clock) = timed(1, 1);
    let gate = Gate::new();
    let hang = gate.clone();
    let inner = rt.clone();
    let (send, children) = mpsc::channel();
    let parent = rt
        .submit_once(move |_| {
            for i in 0..3 {
                send.send(inner.submit(move |_| Ok::<_, String>(i)).unwrap()).unwrap();
            }
            hang.pass();
            Ok::<_, String>(())
        })
        .unwrap();
    gate.wait_for(1);
    clock.advance(SECOND);
    for i in 0..3 {
        assert_eq!(children.recv().unwrap().get().unwrap(), i);
    }
    assert!(parent.get().is_err());
    gate.open();
}

#[test]
fn stuck_workers_beyond_the_limit_are_missed_and_go_on_when_they_come_back() {
    let clock = ManualClock::new();
    let rt = Runtime::builder()
        .workers(1)
        .clock(clock.clone())
        .attempt_timeout(SECOND)
        .retry(at_once(1))
        .max_stuck_workers(0)
        .build()
        .unwrap();
    let events = rt.events();
    let gate = Gate::new();
    let hang = gate.clone();
    let stuck = rt
        .submit(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .unwrap();
    gate.wait_for(1);
    clock.advance(SECOND);
    assert!(stuck.get().is_err());
    until_event(&events, |e| matches!(e, Event::WorkerStuck { replacement: None, .. }));
    let mut waits = rt.submit(|_| Ok::<_, String>(1)).unwrap();
    assert!(waits.get_timeout(Duration::from_millis(10)).is_none());
    gate.open();
    assert_eq!(waits.get_timeout(LONG).expect("the worker is back").unwrap(), 1);
    assert_eq!((rt.stats().workers, rt.stats().stuck_workers), (1, 0));
}

#[test]
fn a_pause_of_the_machine_executes_nothing_twice() {
    let (rt, clock) = timed(2, 3);
    let events = rt.events();
    let gate = Gate::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let jobs: Vec<_> = (0..2)
        .map(|_| {
            let (hang, runs) = (gate.clone(), Arc::clone(&runs));
            rt.submit(move |_| {
                runs.fetch_add(1, SeqCst);
                hang.pass();
                Ok::<_, String>(())
            })
            .unwrap()
        })
        .collect();
    gate.wait_for(2);
    clock.advance(5 * SECOND);
    let Event::DriverLate { .. } = until_event(&events, |e| matches!(e, Event::DriverLate { .. }))
    else {
        unreachable!()
    };
    gate.open();
    for job in jobs {
        job.get().unwrap();
    }
    assert_eq!(runs.load(SeqCst), 2);
    assert_eq!(rt.stats().timed_out, 0);
}

#[test]
fn a_driver_that_is_always_late_still_finds_who_is_stuck() {
    let (rt, clock) = timed(1, 1);
    let gate = Gate::new();
    let hang = gate.clone();
    let job = rt
        .submit(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .unwrap();
    gate.wait_for(1);
    advance_until(&clock, 3 * SECOND, "it is found", || job.is_finished());
    gate.open();
}

#[test]
fn cancelling_a_stuck_attempt_ends_its_job_at_the_rescue() {
    let (rt, clock) = timed(1, 5);
    let gate = Gate::new();
    let hang = gate.clone();
    let job = rt
        .submit(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .unwrap();
    gate.wait_for(1);
    assert!(job.cancel());
    // Until a driver that looks late has judged.
    advance_until(&clock, SECOND, "it is given up", || job.is_finished());
    assert!(matches!(job.get(), Err(JobError::Cancelled)));
    gate.open();
    until_stats(&rt, |s| s.fenced == 1 && s.cancelled == 1);
    assert_eq!(rt.stats().started, 1);
}

#[test]
fn the_successor_of_a_rescued_key_holder_has_the_greater_token() {
    let (rt, clock) = timed(1, 1);
    let gate = Gate::new();
    let hang = gate.clone();
    let (send, tokens) = mpsc::channel();
    let late = send.clone();
    let first = rt
        .job(move |ctx| {
            hang.pass();
            late.send(("late", ctx.token(), ctx.is_current())).unwrap();
            Ok::<_, String>(())
        })
        .key("file")
        .submit()
        .unwrap();
    gate.wait_for(1);
    let second = rt
        .job(move |ctx| {
            send.send(("next", ctx.token(), ctx.is_current())).unwrap();
            Ok::<_, String>(())
        })
        .key("file")
        .submit()
        .unwrap();
    clock.advance(SECOND);
    assert!(first.get().is_err());
    second.get().unwrap();
    let next = tokens.recv().unwrap();
    gate.open();
    let late = tokens.recv_timeout(LONG).unwrap();
    assert_eq!((next.0, next.2, late.0, late.2), ("next", true, "late", false));
    assert!(late.1 < next.1);
}

#[test]
fn a_fence_keeps_the_late_attempt_of_a_key_out() {
    let (rt, clock) = timed(1, 2);
    let cell = Arc::new(tenure::lease::FencedCell::new(String::new()));
    let gate = Gate::new();
    let (hang, written) = (gate.clone(), Arc::clone(&cell));
    let (send, late) = mpsc::channel();
    let job = rt
        .job(move |ctx| {
            let permit = ctx.check().map_err(|e| e.to_string())?;
            if ctx.attempt() == 1 {
                hang.pass();
            }
            let wrote =
                written.write(permit.token(), |text| *text = format!("attempt {}", ctx.attempt()));
            send.send((ctx.attempt(), wrote.is_ok(), ctx.check().is_ok())).unwrap();
            Ok::<_, String>(())
        })
        .key("file")
        .submit()
        .unwrap();
    gate.wait_for(1);
    assert_eq!(rt.leases().list().len(), 1);
    clock.advance(SECOND);
    job.get().unwrap();
    assert_eq!(late.recv().unwrap(), (2, true, true));
    gate.open();
    assert_eq!(late.recv_timeout(LONG).unwrap(), (1, false, false));
    assert_eq!(cell.read(String::clone).unwrap(), "attempt 2");
    until_stats(&rt, |s| s.fenced == 1);
    until("a key that nobody uses takes no memory", || rt.leases().is_empty());
}

// --- shutdown ------------------------------------------------------------------------------------

#[test]
fn a_shutdown_lets_attempts_finish_and_cancels_what_waits() {
    let rt = Runtime::builder().workers(1).retry(at_once(1)).build().unwrap();
    let gate = Gate::new();
    let hang = gate.clone();
    let running = rt
        .submit(move |_| {
            hang.pass();
            Ok::<_, String>(7)
        })
        .unwrap();
    gate.wait_for(1);
    let waiting: Vec<_> =
        (0..10).map(|i| rt.submit(move |_| Ok::<_, String>(i)).unwrap()).collect();
    let closer = {
        let rt = rt.clone();
        std::thread::spawn(move || rt.shutdown(LONG))
    };
    for job in waiting {
        assert!(matches!(job.get(), Err(JobError::Shutdown)));
    }
    assert!(rt.is_shutting_down());
    let Err(SubmitError::Closed(_)) = rt.submit(|_| Ok::<_, String>(())) else { panic!("closed") };
    gate.open();
    let report = closer.join().unwrap();
    assert_eq!((report.done, report.requeued, report.cancelled), (1, 0, 10));
    assert!(report.abandoned.is_empty());
    assert_eq!(running.get().unwrap(), 7);
    let again = rt.shutdown(Duration::ZERO);
    assert_eq!((again.done, again.cancelled), (1, 10), "the same report");
}

#[test]
fn a_shutdown_with_a_hundred_thousand_waiting_is_short() {
    let rt = Runtime::builder().workers(2).retry(at_once(1)).build().unwrap();
    rt.pause();
    let jobs: Vec<_> =
        (0..100_000).map(|i| rt.submit(move |_| Ok::<_, String>(i)).unwrap()).collect();
    let report = rt.shutdown(LONG);
    assert_eq!(report.cancelled, 100_000);
    assert!(jobs.into_iter().all(|job| matches!(job.get(), Err(JobError::Shutdown))));
}

#[test]
fn a_shutdown_does_not_wait_for_retries_in_the_far_future() {
    let policy =
        RetryPolicy::fixed(Duration::from_secs(86_400)).jitter(Jitter::None).build().unwrap();
    let rt = Runtime::builder().workers(2).retry(policy).build().unwrap();
    let events = rt.events();
    let jobs: Vec<_> = (0..5).map(|_| rt.submit(|_| Err::<(), _>("no")).unwrap()).collect();
    for _ in 0..5 {
        until_event(&events, |e| matches!(e, Event::RetryScheduled { .. }));
    }
    let report = rt.shutdown(LONG);
    assert_eq!((report.requeued, report.cancelled), (5, 0));
    for job in jobs {
        assert!(matches!(job.get(), Err(JobError::Shutdown)));
    }
}

#[test]
fn a_shutdown_abandons_what_does_not_come_back() {
    let rt = Runtime::builder().workers(2).retry(at_once(1)).build().unwrap();
    let gate = Gate::new();
    let hang = gate.clone();
    let job = rt
        .job(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .name("hangs")
        .submit()
        .unwrap();
    gate.wait_for(1);
    let report = rt.shutdown(Duration::from_millis(10));
    assert_eq!(report.abandoned.len(), 1);
    assert_eq!(report.abandoned[0].name.as_deref(), Some("hangs"));
    assert_eq!((report.done, report.requeued, report.cancelled), (0, 0, 0));
    assert!(matches!(job.get(), Err(JobError::Shutdown)));
    gate.open();
    until_stats(&rt, |s| s.fenced == 1);
}

#[test]
fn a_shutdown_from_inside_a_job_does_not_wait_for_it() {
    let rt = Runtime::builder().workers(2).retry(at_once(1)).build().unwrap();
    let inner = rt.clone();
    let job = rt
        .submit(move |_| {
            let report = inner.shutdown(LONG);
            Ok::<_, String>(report.abandoned.len())
        })
        .unwrap();
    assert_eq!(job.get().unwrap(), 0);
}

#[test]
fn two_shutdowns_at_once_see_the_same_end() {
    let rt = Runtime::builder().workers(2).retry(at_once(1)).build().unwrap();
    let gate = Gate::new();
    let hang = gate.clone();
    let job = rt
        .submit(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .unwrap();
    gate.wait_for(1);
    let closers: Vec<_> = (0..2)
        .map(|_| {
            let rt = rt.clone();
            std::thread::spawn(move || rt.shutdown(LONG))
        })
        .collect();
    // What ends before the shutdown begins is not in its report.
    until("it has begun", || rt.is_shutting_down());
    gate.open();
    for closer in closers {
        assert_eq!(closer.join().unwrap().done, 1);
    }
    job.get().unwrap();
}

#[test]
fn dropping_the_runtime_ends_its_threads_and_its_waiting_jobs() {
    let stopped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&stopped);
    let rt = Runtime::builder()
        .workers(3)
        .on_stop(move |_| {
            count.fetch_add(1, SeqCst);
        })
        .build()
        .unwrap();
    rt.pause();
    let job = rt.submit(|_| Ok::<_, String>(())).unwrap();
    drop(rt);
    assert!(matches!(job.get(), Err(JobError::Shutdown)));
    until("the threads end", || stopped.load(SeqCst) == 3);
}

#[test]
fn a_submit_that_races_a_shutdown_is_refused_or_answered() {
    for _ in 0..50 {
        let rt = Runtime::builder().workers(1).retry(at_once(1)).build().unwrap();
        let begun = Arc::new(AtomicBool::new(false));
        let (other, flag) = (rt.clone(), Arc::clone(&begun));
        let submitter = std::thread::spawn(move || {
            let mut taken = Vec::new();
            loop {
                match other.submit(|_| Ok::<_, String>(1)) {
                    Ok(job) => taken.push(job),
                    Err(SubmitError::Closed(_)) => return taken,
                    Err(other) => unreachable!("{other}"),
                }
                flag.store(true, SeqCst);
            }
        });
        until("it submits", || begun.load(SeqCst));
        rt.shutdown(LONG);
        for mut job in submitter.join().unwrap() {
            match job.get_timeout(LONG).expect("each is answered") {
                Ok(1) | Err(JobError::Shutdown) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn keyed_jobs_in_line_end_with_the_shutdown() {
    let rt = Runtime::builder().workers(1).retry(at_once(1)).build().unwrap();
    let gate = Gate::new();
    let hang = gate.clone();
    let first = rt
        .job(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .key(1)
        .submit()
        .unwrap();
    gate.wait_for(1);
    let line: Vec<_> =
        (0..5).map(|_| rt.job(|_| Ok::<_, String>(())).key(1).submit().unwrap()).collect();
    let closer = {
        let rt = rt.clone();
        std::thread::spawn(move || rt.shutdown(LONG))
    };
    for job in line {
        assert!(matches!(job.get(), Err(JobError::Shutdown)));
    }
    gate.open();
    assert_eq!(closer.join().unwrap().cancelled, 5);
    first.get().unwrap();
}

// --- closures that take one attempt at a time ----------------------------------------------------

#[test]
fn an_attempt_that_changes_its_captures_waits_for_the_late_one() {
    let (rt, clock) = timed(1, 3);
    let events = rt.events();
    let gate = Gate::new();
    let hang = gate.clone();
    let inside = Arc::new(AtomicUsize::new(0));
    let alone = Arc::clone(&inside);
    let mut log = Vec::new();
    let job = rt
        .submit_mut(move |ctx| {
            assert_eq!(alone.fetch_add(1, SeqCst), 0, "two attempts meet");
            log.push(ctx.attempt());
            if ctx.attempt() == 1 {
                hang.pass();
            }
            alone.fetch_sub(1, SeqCst);
            Ok::<_, String>(std::mem::take(&mut log))
        })
        .unwrap();
    gate.wait_for(1);
    clock.advance(SECOND);
    until_event(&events, |e| matches!(e, Event::RetryScheduled { attempt: 2, .. }));
    // Others go on meanwhile.
    assert_eq!(rt.submit(|_| Ok::<_, String>(7)).unwrap().get().unwrap(), 7);
    assert!(!job.is_finished());
    gate.open();
    assert_eq!(job.get().unwrap(), [2], "the first one took its own entry along");
    until_stats(&rt, |s| s.fenced == 1 && s.started == 3 && s.stuck_workers == 0);
}

#[test]
fn a_job_that_waits_for_its_late_attempt_can_be_cancelled_and_shut_down() {
    for shut_down in [false, true] {
        let (rt, clock) = timed(1, 3);
        let gate = Gate::new();
        let (hang, held) = (gate.clone(), Arc::new(()));
        let mut inside = Some(Arc::clone(&held));
        let job = rt
            .job_mut(move |_| {
                hang.pass();
                inside = inside.take();
                Ok::<_, String>(())
            })
            .key("k")
            .submit()
            .unwrap();
        gate.wait_for(1);
        clock.advance(SECOND);
        until_stats(&rt, |s| s.retried == 1);
        if shut_down {
            let report = rt.shutdown(LONG);
            assert_eq!(report.abandoned.len(), 1);
            assert!(matches!(job.get(), Err(JobError::Shutdown)));
        } else {
            assert!(job.cancel());
            assert!(matches!(job.get(), Err(JobError::Cancelled)));
            let next = rt.job(|_| Ok::<_, String>(5)).key("k").submit().unwrap();
            assert_eq!(next.get().unwrap(), 5, "the key is free");
        }
        assert_eq!(Arc::strong_count(&held), 2, "the late attempt is inside");
        gate.open();
        until("the captures go with it", || Arc::strong_count(&held) == 1);
    }
}

/// A parent that waits for a child is out of time: it does not count among the waiters any more.
#[test]
fn a_waiting_worker_that_was_replaced_does_not_count_among_the_waiters() {
    fn later(rt: &Runtime, delay: Duration) -> Result<tenure::JobHandle<u32>, String> {
        let job = rt.job(|_| Ok::<_, String>(9)).delay(delay).without_attempt_timeout();
        job.submit().map_err(|e| e.to_string())
    }
    let clock = ManualClock::new();
    let rt = Runtime::builder()
        .workers(2)
        .max_spares(0)
        .clock(clock.clone())
        .attempt_timeout(SECOND)
        .retry(at_once(1))
        .build()
        .unwrap();
    // It waits for some time only, so it is never refused; and it is given up while it waits.
    let inner = rt.clone();
    let begun = Gate::new();
    let at = begun.clone();
    let parent = rt
        .submit_once(move |_| {
            let mut child = later(&inner, SECOND * 10_000)?;
            at.open();
            at.pass();
            let _ = child.get_timeout(LONG * 10);
            Ok::<_, String>(())
        })
        .unwrap();
    begun.wait_for(1);
    advance_until(&clock, SECOND, "it is given up", || parent.is_finished());
    until_stats(&rt, |s| s.replaced_workers == 1);
    // Of two workers one waits: the other one will run what it waits for.
    let inner = rt.clone();
    let second = rt
        .job_once(move |_| later(&inner, SECOND * 3)?.get().map_err(|e| e.to_string()))
        .without_attempt_timeout()
        .submit()
        .unwrap();
    advance_until(&clock, SECOND, "its child has run", || second.is_finished());
    assert_eq!(second.get().unwrap(), 9);
    clock.advance(SECOND * 20_000);
    let _ = rt.shutdown(LONG);
}
