//! Jobs that come again, on a clock that is moved by hand.

mod runtime_support;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tenure::clock::{Clock, ManualClock, Timestamp};
use tenure::runtime::{Missed, Outcome, Runtime, Schedule, Series, SubmitError};

use runtime_support::{Gate, LONG, SECOND, at_once, until, until_stats};

fn runtime(workers: usize) -> (Runtime, ManualClock) {
    let clock = ManualClock::new();
    let builder = Runtime::builder().workers(workers).clock(clock.clone()).retry(at_once(3));
    (builder.build().unwrap(), clock)
}

/// Seconds since the clock's beginning.
fn seconds(at: Timestamp) -> u64 {
    at.saturating_since(Timestamp::ORIGIN).as_secs()
}

/// Moves the clock to the tick that is planned, once it is.
fn next_tick(series: &Series, clock: &ManualClock) -> Timestamp {
    until("a tick is planned", || series.planned().is_some_and(|at| at > clock.now()));
    let at = series.planned().unwrap();
    clock.advance_to(at);
    at
}

#[test]
fn a_period_runs_at_its_ticks() {
    let (rt, clock) = runtime(2);
    let begin = clock.now();
    let (send, ran) = mpsc::channel();
    let read = clock.clone();
    let series = rt
        .repeat(Schedule::every(10 * SECOND), move |_| send.send(read.now()))
        .name("tick")
        .start()
        .unwrap();
    for n in 1..=20 {
        let at = next_tick(&series, &clock);
        assert_eq!(at.saturating_since(begin), 10 * SECOND * n);
        assert_eq!(ran.recv_timeout(LONG).unwrap(), at);
    }
    until("all are counted", || series.succeeded() == 20);
    assert_eq!((series.failed(), series.skipped()), (0, 0));
    assert!(series.cancel());
    assert!(!series.cancel());
    until_stats(&rt, |s| s.submitted == s.succeeded + s.cancelled);
    clock.advance(100 * SECOND);
    assert!(rt.drain(LONG));
    assert!(ran.try_recv().is_err(), "nothing after the end");
}

/// The ticks at which a series runs whose second run is held up over three further ticks.
fn held_up(missed: Missed) -> (Vec<u64>, u64) {
    let (rt, clock) = runtime(2);
    let gate = Gate::new();
    let hang = gate.clone();
    let (runs, inside) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let (seen, read) = (Arc::clone(&runs), clock.clone());
    let series = rt
        .repeat(Schedule::every(10 * SECOND), move |_| {
            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two runs overlap");
            let nth = {
                let mut seen = seen.lock().unwrap();
                seen.push(seconds(read.now()));
                seen.len()
            };
            if nth == 2 {
                hang.pass();
            }
            inside.fetch_sub(1, SeqCst);
            Ok::<_, String>(())
        })
        .missed(missed)
        .first_at(Timestamp::ORIGIN.saturating_add(10 * SECOND))
        .start()
        .unwrap();
    next_tick(&series, &clock);
    next_tick(&series, &clock);
    gate.wait_for(1);
    // 20 now; 30, 40 and 50 pass.
    clock.advance(33 * SECOND);
    gate.open();
    until("the planned one is ahead", || series.planned().is_some_and(|at| at > clock.now()));
    next_tick(&series, &clock);
    until("the planned one is ahead", || series.planned().is_some_and(|at| at > clock.now()));
    let runs = runs.lock().unwrap().clone();
    (runs, series.skipped())
}

#[test]
fn missed_ticks_are_left_out() {
    assert_eq!(held_up(Missed::Skip), (vec![10, 20, 60], 3));
}

#[test]
fn missed_ticks_are_made_up_for() {
    assert_eq!(held_up(Missed::Burst), (vec![10, 20, 53, 53, 53, 60], 0));
}

#[test]
fn missed_ticks_move_the_grid() {
    assert_eq!(held_up(Missed::Delay), (vec![10, 20, 63], 3));
}

#[test]
fn a_tick_has_retries_of_its_own_and_its_death_is_not_the_end() {
    let (rt, clock) = runtime(1);
    let (send, ran) = mpsc::channel();
    let series = rt
        .repeat(Schedule::every(SECOND), move |ctx| {
            send.send(ctx.attempt()).map_err(|e| e.to_string())?;
            Err::<(), _>("no".to_string())
        })
        .start()
        .unwrap();
    for tick in 1..=3 {
        next_tick(&series, &clock);
        for attempt in 1..=3 {
            assert_eq!(ran.recv_timeout(LONG), Ok(attempt));
        }
        until("it is counted", || series.failed() == tick);
    }
    assert_eq!(rt.dead_letters().len(), 3);
}

#[test]
fn a_job_ends_its_own_series() {
    let (rt, clock) = runtime(1);
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let series = rt
        .repeat(Schedule::every(SECOND), move |_| {
            if counted.fetch_add(1, SeqCst) == 1 { Outcome::Cancel } else { Outcome::Done(()) }
        })
        .start()
        .unwrap();
    next_tick(&series, &clock);
    next_tick(&series, &clock);
    until("it is over", || series.is_over());
    clock.advance(10 * SECOND);
    assert!(rt.drain(LONG));
    assert_eq!((runs.load(SeqCst), series.succeeded()), (2, 1));
}

#[test]
fn a_cancelled_series_tells_its_running_job() {
    let (rt, clock) = runtime(1);
    let gate = Gate::new();
    let hang = gate.clone();
    let series = rt
        .repeat(Schedule::every(SECOND), move |ctx| {
            hang.pass();
            if ctx.is_cancelled() { Err("told") } else { Ok(()) }
        })
        .start()
        .unwrap();
    next_tick(&series, &clock);
    gate.wait_for(1);
    assert!(series.cancel());
    gate.open();
    until_stats(&rt, |s| s.cancelled == 1 && s.submitted == 1);
}

#[test]
fn series_end_with_their_runtime_and_let_go_of_their_closure() {
    let held = Arc::new(());
    let (rt, clock) = runtime(1);
    let all: Vec<_> = (1..50)
        .map(|n| {
            let inside = Arc::clone(&held);
            let job = move |_: &tenure::runtime::JobCtx| {
                let _ = &inside;
                Ok::<_, String>(())
            };
            rt.repeat(Schedule::every(SECOND * n), job).start().unwrap()
        })
        .collect();
    clock.advance(20 * SECOND);
    let report = rt.shutdown(LONG);
    assert!(report.abandoned.is_empty());
    for series in &all {
        until("it is over", || series.is_over());
    }
    drop(all);
    until("the closures are gone", || Arc::strong_count(&held) == 1);
    let Err(SubmitError::Closed(_)) =
        rt.repeat(Schedule::every(SECOND), |_| Ok::<_, String>(())).start()
    else {
        panic!("closed")
    };
}

#[test]
fn a_series_takes_one_place_and_keeps_it() {
    let clock = ManualClock::new();
    let rt = Runtime::builder().workers(1).clock(clock.clone()).capacity(1).build().unwrap();
    let series = rt.repeat(Schedule::every(SECOND), |_| Ok::<_, String>(())).start().unwrap();
    for n in 1..10 {
        assert!(matches!(rt.submit(|_| Ok::<_, String>(())), Err(SubmitError::Full(_))));
        next_tick(&series, &clock);
        until("it has run", || series.succeeded() == n);
        until("the next one is planned", || series.planned().is_some_and(|at| at > clock.now()));
    }
    assert!(series.cancel());
    until("its place is free", || match rt.submit(|_| Ok::<_, String>(1)) {
        Ok(job) => job.get().is_ok(),
        Err(_) => false,
    });
}

#[test]
fn a_period_without_end_is_never() {
    let (rt, clock) = runtime(1);
    let series =
        rt.repeat(Schedule::every(Duration::MAX), |_| Ok::<_, String>(())).start().unwrap();
    clock.advance(Duration::MAX);
    assert!(!series.is_over());
    assert!(series.planned().is_some_and(Timestamp::is_never));
    assert!(series.cancel());
    assert!(rt.drain(LONG));
}

#[cfg(feature = "cron")]
#[test]
fn a_cron_line_runs_by_the_wall_clock() {
    use std::time::SystemTime;
    let (rt, clock) = runtime(1);
    let begin = clock.now();
    let read = clock.clone();
    // The wall clock shows 1970-01-01 00:50 when the runtime's is at its beginning.
    let wall = move || {
        let since = read.now().saturating_since(begin) + Duration::from_secs(50 * 60);
        SystemTime::UNIX_EPOCH + since
    };
    let (send, ran) = mpsc::channel();
    let hourly = Schedule::cron_by("0 * * * *", wall).unwrap();
    let series = rt.repeat(hourly, move |_| send.send(())).start().unwrap();
    for n in 0..5 {
        let at = next_tick(&series, &clock);
        assert_eq!(at.saturating_since(begin), Duration::from_secs(10 * 60 + n * 3600));
        ran.recv_timeout(LONG).unwrap();
    }
}
