//! The runtime through its public API: jobs, retries, cancellation, keys, values that panic.

mod runtime_support;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use tenure::clock::{Clock, ManualClock};
use tenure::retry::{Jitter, RetryPolicy, Stop};
use tenure::runtime::{
    AttemptError, ConfigError, Event, JobError, Outcome, Priority, Runtime, SubmitError,
};

use runtime_support::{LONG, at_once, descend, until, until_event, until_stats};

fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).retry(at_once(3)).seed(7).build().unwrap()
}

/// Runs an async block to its end on this thread.
fn block_on<F: std::future::Future>(f: F) -> F::Output {
    futures::executor::block_on(f)
}

#[test]
fn a_value_comes_back_by_get_by_await_and_by_asking() {
    let rt = runtime(2);
    assert_eq!(rt.submit(|_| Ok::<_, String>(1)).unwrap().get().unwrap(), 1);
    assert_eq!(block_on(rt.submit(|_| Ok::<_, String>(2)).unwrap()).unwrap(), 2);
    let mut asked = rt.submit(|_| Ok::<_, String>(3)).unwrap();
    assert_eq!(asked.get_timeout(LONG).unwrap().unwrap(), 3);
    assert!(matches!(asked.try_get(), Some(Err(JobError::Taken))));
    assert!(asked.is_finished());
    let boxed: Box<dyn Fn() -> u8 + Send> = Box::new(|| 4);
    assert_eq!(rt.submit_once(move |_| Ok::<_, String>(boxed())).unwrap().get().unwrap(), 4);
}

#[test]
fn a_timed_get_gives_up_and_can_ask_again() {
    let rt = runtime(1);
    let (go, wait) = mpsc::channel::<()>();
    let mut job = rt.submit_once(move |_| wait.recv()).unwrap();
    assert!(job.get_timeout(Duration::ZERO).is_none());
    assert!(job.get_timeout(Duration::from_millis(5)).is_none());
    go.send(()).unwrap();
    assert!(job.get_timeout(LONG).unwrap().is_ok());
}

#[test]
fn a_job_that_fails_is_tried_again() {
    let rt = runtime(2);
    let job = rt
        .submit(|ctx| if ctx.attempt() < 3 { Err("not yet") } else { Ok(ctx.attempt()) })
        .unwrap();
    assert_eq!(job.get().unwrap(), 3);
    let stats = rt.stats();
    assert_eq!((stats.started, stats.retried, stats.succeeded, stats.dead), (3, 2, 1, 0));
}

#[test]
fn a_job_that_keeps_failing_leaves_a_letter_with_its_history() {
    let rt = runtime(2);
    let job = rt
        .job(|ctx| -> Result<(), String> { Err(format!("attempt {}", ctx.attempt())) })
        .name("doomed")
        .key("k")
        .submit()
        .unwrap();
    let id = job.id();
    let error = job.get().unwrap_err();
    let letter = error.dead_letter().expect("dead").clone();
    assert_eq!(letter.id, id);
    assert_eq!(letter.name.as_deref(), Some("doomed"));
    assert_eq!(letter.key.as_ref().unwrap().to_string(), "k");
    assert_eq!(letter.stop, Stop::MaxAttempts);
    let causes: Vec<_> = letter.history.iter().map(|a| a.cause.to_string()).collect();
    assert_eq!(causes, ["attempt 1", "attempt 2", "attempt 3"]);
    assert!(letter.history.is_sorted_by(|a, b| a.token < b.token && a.started <= b.started));
    assert_eq!(rt.dead_letters().len(), 1);
    assert_eq!(rt.dead_letters().take()[0].id, id);
    assert!(rt.dead_letters().is_empty());
    assert!(error.to_string().contains("doomed"));
}

#[test]
fn a_job_may_say_that_trying_again_is_no_use() {
    let rt = runtime(1);
    let job = rt.submit(|_| Outcome::<()>::fail("no such file")).unwrap();
    let error = job.get().unwrap_err();
    let letter = error.dead_letter().unwrap();
    assert_eq!((letter.stop, letter.history.len()), (Stop::NotRetryable, 1));
}

#[test]
fn a_panic_is_a_failed_attempt_and_its_payload_is_kept() {
    let rt = runtime(1);
    let job = rt
        .submit(|ctx| -> Result<u32, String> {
            if ctx.attempt() == 1 {
                std::panic::panic_any(42_u64)
            }
            panic!("again")
        })
        .unwrap();
    let error = job.get().unwrap_err();
    let history = &error.dead_letter().unwrap().history;
    let AttemptError::Panicked(first) = &history[0].cause else { panic!("{:?}", history[0]) };
    assert_eq!(*first.take().unwrap().downcast::<u64>().unwrap(), 42);
    assert!(first.take().is_none());
    let AttemptError::Panicked(second) = &history[1].cause else { panic!() };
    assert_eq!(second.message(), "again");
    assert_eq!(rt.stats().panicked, 3);
    assert_eq!(rt.submit(|_| Ok::<_, String>(1)).unwrap().get().unwrap(), 1, "the worker lives");
}

#[test]
fn a_job_that_runs_once_has_one_attempt() {
    let rt = runtime(1);
    let job = rt.submit_once(|_| Err::<(), _>("no")).unwrap();
    let error = job.get().unwrap_err();
    assert_eq!(error.dead_letter().unwrap().history.len(), 1);
    let job = rt.submit_once(|_| Outcome::<()>::Snooze(Duration::ZERO)).unwrap();
    let error = job.get().unwrap_err();
    let letter = error.dead_letter().unwrap();
    assert!(matches!(letter.history[0].cause, AttemptError::CannotSnooze));
}

#[test]
fn snoozing_uses_no_attempt() {
    let rt = runtime(1);
    let turns = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&turns);
    let job = rt
        .submit(move |ctx| {
            if seen.fetch_add(1, SeqCst) < 5 {
                Outcome::Snooze(Duration::ZERO)
            } else {
                Outcome::Done(ctx.attempt())
            }
        })
        .unwrap();
    assert_eq!(job.get().unwrap(), 1);
    assert_eq!(turns.load(SeqCst), 6);
    assert_eq!(rt.stats().snoozed, 5);
}

#[test]
fn delays_are_those_of_the_clock() {
    let clock = ManualClock::new();
    let policy =
        RetryPolicy::fixed(Duration::from_secs(3600)).jitter(Jitter::None).build().unwrap();
    let rt = Runtime::builder().workers(1).clock(clock.clone()).retry(policy).build().unwrap();
    let events = rt.events();
    let mut job =
        rt.submit(|ctx| if ctx.attempt() == 1 { Err("no") } else { Ok(ctx.attempt()) }).unwrap();
    let hour = Duration::from_secs(3600);
    until_event(
        &events,
        |e| matches!(e, Event::RetryScheduled { attempt: 2, delay, .. } if *delay == hour),
    );
    clock.advance(Duration::from_secs(3599));
    assert!(job.get_timeout(Duration::from_millis(20)).is_none());
    clock.advance(Duration::from_secs(1));
    assert_eq!(job.get_timeout(LONG).expect("due").unwrap(), 2);
}

#[test]
fn a_delayed_job_waits_for_its_time() {
    let clock = ManualClock::new();
    let rt = Runtime::builder().workers(1).clock(clock.clone()).build().unwrap();
    let day = Duration::from_secs(86_400);
    let mut late = rt.job(|_| Ok::<_, String>(1)).delay(day).submit().unwrap();
    let never = rt.job(|_| Ok::<_, String>(2)).delay(Duration::MAX).submit().unwrap();
    let at = clock.now().saturating_add(day / 2);
    let mut earlier = rt.job(|_| Ok::<_, String>(3)).run_at(at).submit().unwrap();
    let mut past = rt.job(|_| Ok::<_, String>(4)).run_at(clock.now()).submit().unwrap();
    assert_eq!(past.get_timeout(LONG).expect("at once").unwrap(), 4);
    clock.advance(day / 2);
    assert_eq!(earlier.get_timeout(LONG).expect("due").unwrap(), 3);
    assert!(late.try_get().is_none());
    clock.advance(day / 2);
    assert_eq!(late.get_timeout(LONG).expect("due").unwrap(), 1);
    assert!(never.cancel());
    assert!(matches!(never.get(), Err(JobError::Cancelled)));
}

#[test]
fn a_delayed_job_lines_up_for_its_key_when_its_time_has_come() {
    let clock = ManualClock::new();
    let rt = Runtime::builder().workers(1).clock(clock.clone()).build().unwrap();
    let mut late =
        rt.job(|_| Ok::<_, String>(1)).key("k").delay(Duration::from_secs(5)).submit().unwrap();
    let cancelled =
        rt.job(|_| Ok::<_, String>(1)).key("k").delay(Duration::from_secs(5)).submit().unwrap();
    let mut now = rt.job(|_| Ok::<_, String>(2)).key("k").submit().unwrap();
    assert_eq!(now.get_timeout(LONG).expect("the key is free").unwrap(), 2);
    assert!(cancelled.cancel(), "which frees no key that it does not have");
    clock.advance(Duration::from_secs(5));
    assert_eq!(late.get_timeout(LONG).expect("due").unwrap(), 1);
}

#[test]
fn a_job_may_name_its_own_delay() {
    let clock = ManualClock::new();
    let rt = Runtime::builder().workers(1).clock(clock.clone()).retry(at_once(3)).build().unwrap();
    let events = rt.events();
    let mut job = rt
        .submit(|ctx| match ctx.attempt() {
            1 => Outcome::RetryAfter("busy".into(), Duration::from_secs(7)),
            n => Outcome::Done(n),
        })
        .unwrap();
    let seven = Duration::from_secs(7);
    until_event(&events, |e| matches!(e, Event::RetryScheduled { delay, .. } if *delay == seven));
    assert!(job.try_get().is_none());
    clock.advance(Duration::from_secs(7));
    assert_eq!(job.get_timeout(LONG).expect("due").unwrap(), 2);
}

#[test]
fn cancelled_before_it_runs_it_never_runs() {
    let rt = runtime(1);
    let (go, wait) = mpsc::channel::<()>();
    let blocker = rt.submit_once(move |_| wait.recv()).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let job = rt
        .submit(move |_| {
            counted.fetch_add(1, SeqCst);
            Ok::<_, String>(())
        })
        .unwrap();
    assert!(job.cancel());
    assert_eq!(Arc::strong_count(&ran), 1, "the closure goes with the cancellation");
    assert!(matches!(job.get(), Err(JobError::Cancelled)));
    go.send(()).unwrap();
    blocker.get().unwrap();
    rt.submit(|_| Ok::<_, String>(())).unwrap().get().unwrap();
    // Counted when its queue entry is met.
    until_stats(&rt, |s| s.cancelled == 1);
    assert_eq!(ran.load(SeqCst), 0);
}

#[test]
fn cancelled_while_it_runs_it_sees_the_request() {
    let rt = runtime(1);
    let started = Arc::new(Barrier::new(2));
    let at = Arc::clone(&started);
    let job = rt
        .submit(move |ctx| {
            at.wait();
            while !ctx.is_cancelled() {
                std::thread::yield_now();
            }
            Err::<(), _>("stopped")
        })
        .unwrap();
    started.wait();
    assert!(job.cancel());
    assert!(matches!(job.get(), Err(JobError::Cancelled)));
    assert_eq!(rt.stats().retried, 0);
}

#[test]
fn cancelled_too_late_it_has_its_value() {
    let rt = runtime(1);
    let started = Arc::new(Barrier::new(2));
    let at = Arc::clone(&started);
    let job = rt
        .submit(move |ctx| {
            at.wait();
            while !ctx.is_cancelled() {
                std::thread::yield_now();
            }
            Ok::<_, String>(5)
        })
        .unwrap();
    started.wait();
    assert!(job.cancel(), "it came before the end");
    assert_eq!(job.get().unwrap(), 5);
    let mut job = rt.submit(|_| Ok::<_, String>(1)).unwrap();
    assert!(job.get_timeout(LONG).is_some());
    assert!(!job.cancel());
}

#[test]
fn cancelled_while_it_waits_for_a_retry_it_ends_at_once() {
    let clock = ManualClock::new();
    let policy =
        RetryPolicy::fixed(Duration::from_secs(3600)).jitter(Jitter::None).build().unwrap();
    let rt = Runtime::builder().workers(1).clock(clock).retry(policy).build().unwrap();
    let events = rt.events();
    let job = rt.job(|_| Err::<(), _>("no")).key(1).submit().unwrap();
    until_event(&events, |e| matches!(e, Event::RetryScheduled { .. }));
    let next = rt.job(|_| Ok::<_, String>(2)).key(1).submit().unwrap();
    assert!(job.cancel());
    assert!(matches!(job.get(), Err(JobError::Cancelled)));
    assert_eq!(next.get().unwrap(), 2, "the key is free");
}

#[test]
fn a_job_may_cancel_itself() {
    let rt = runtime(1);
    let job = rt.submit(|_| Outcome::<()>::Cancel).unwrap();
    assert!(matches!(job.get(), Err(JobError::Cancelled)));
}

#[test]
fn equal_keys_run_one_after_another_in_order() {
    let rt = runtime(4);
    let order = Arc::new(Mutex::new(Vec::new()));
    let inside = Arc::new(AtomicUsize::new(0));
    let last_token = Arc::new(Mutex::new(None));
    let jobs: Vec<_> = (0..200)
        .map(|i| {
            let (order, inside, last) = (order.clone(), inside.clone(), last_token.clone());
            rt.job(move |ctx| {
                assert_eq!(inside.fetch_add(1, SeqCst), 0);
                let mut last = last.lock().unwrap();
                assert!(*last < Some(ctx.token()), "tokens grow");
                *last = Some(ctx.token());
                drop(last);
                let first_try = ctx.attempt() == 1;
                if !(i % 3 == 0 && first_try) {
                    order.lock().unwrap().push(i);
                }
                inside.fetch_sub(1, SeqCst);
                if i % 3 == 0 && first_try { Err("once more") } else { Ok(()) }
            })
            .key("same")
            .submit()
            .unwrap()
        })
        .collect();
    for job in jobs {
        job.get().unwrap();
    }
    assert!(order.lock().unwrap().iter().copied().eq(0..200));
}

#[test]
fn different_keys_run_at_the_same_time() {
    let rt = runtime(2);
    let meet = Arc::new(Barrier::new(2));
    let jobs: Vec<_> = ["a", "b"]
        .into_iter()
        .map(|key| {
            let meet = Arc::clone(&meet);
            rt.job(move |_| {
                meet.wait();
                Ok::<_, String>(())
            })
            .key(key)
            .submit()
            .unwrap()
        })
        .collect();
    for job in jobs {
        job.get().unwrap();
    }
}

#[test]
fn keys_may_be_any_bytes() {
    use tenure::runtime::JobKey;
    assert_ne!(JobKey::from(&[0xFF, 0xFE][..]), JobKey::from(&[0xFF, 0xFD][..]));
    assert_ne!(JobKey::from(1_u64), JobKey::from("1"));
    assert_eq!(JobKey::from("x"), JobKey::from(std::path::Path::new("x")));
}

#[test]
fn one_cancelled_in_line_lets_the_next_one_pass() {
    let rt = runtime(2);
    let (go, wait) = mpsc::channel::<()>();
    let first = rt.job_once(move |_| wait.recv()).key(1).submit().unwrap();
    let second = rt.job(|_| Ok::<_, String>(2)).key(1).submit().unwrap();
    let third = rt.job(|_| Ok::<_, String>(3)).key(1).submit().unwrap();
    assert!(second.cancel());
    assert!(matches!(second.get(), Err(JobError::Cancelled)));
    go.send(()).unwrap();
    first.get().unwrap();
    assert_eq!(third.get().unwrap(), 3);
}

#[test]
fn priorities_go_before_each_other() {
    let rt = runtime(1);
    let (go, wait) = mpsc::channel::<()>();
    let blocker = rt.submit_once(move |_| wait.recv()).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let jobs: Vec<_> = [Priority::Low, Priority::Normal, Priority::High]
        .into_iter()
        .cycle()
        .take(57)
        .map(|priority| {
            let order = Arc::clone(&order);
            rt.job(move |_| {
                order.lock().unwrap().push(priority);
                Ok::<_, String>(())
            })
            .priority(priority)
            .submit()
            .unwrap()
        })
        .collect();
    go.send(()).unwrap();
    blocker.get().unwrap();
    for job in jobs {
        job.get().unwrap();
    }
    // Within the first few turns some of high priority may pass the blocker. And once in 61 turns it
    // is somebody else's turn: take that one out, wherever it is, and the rest is in order.
    let order = order.lock().unwrap().clone();
    let in_order = (0..order.len()).any(|odd| {
        let mut rest = order.clone();
        rest.remove(odd);
        rest.is_sorted()
    });
    assert!(in_order, "{order:?}");
}

/// However many of high priority there are, one of low priority has its turn within 3 × 61.
/// A worker whose own queue is long runs a job from outside after a few turns, not after the queue.
#[test]
fn a_job_from_outside_does_not_wait_for_all_that_came_from_inside() {
    let rt = runtime(1);
    let (inside, order) = (rt.clone(), Arc::new(Mutex::new(Vec::new())));
    let note = |what: &'static str| {
        let order = Arc::clone(&order);
        move |_: &_| {
            order.lock().unwrap().push(what);
            Ok::<_, String>(())
        }
    };
    let (filled, handed_in) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (at_filled, at_handed_in) = (Arc::clone(&filled), Arc::clone(&handed_in));
    let jobs: Vec<_> = (0..200).map(|_| note("inside")).collect();
    let filler = rt.submit_once(move |_| {
        let jobs: Vec<_> = jobs.into_iter().map(|job| inside.submit(job).unwrap()).collect();
        at_filled.wait();
        at_handed_in.wait();
        Ok::<_, String>(jobs)
    });
    filled.wait();
    let outside = rt.submit(note("outside")).unwrap();
    handed_in.wait();
    outside.get().unwrap();
    for job in filler.unwrap().get().unwrap() {
        job.get().unwrap();
    }
    let order = order.lock().unwrap();
    let before = order.iter().position(|what| *what == "outside").unwrap();
    assert!(before < 16, "{before} of {} came first", order.len() - 1);
}

#[test]
fn low_priority_is_not_starved_by_a_job_that_always_comes_again() {
    #[derive(Clone)]
    struct Chain {
        rt: Runtime,
        turns: Arc<AtomicUsize>,
        /// The turns at which the one of low priority was queued, and run.
        low: Arc<Mutex<(Option<usize>, Option<usize>)>>,
    }
    fn again(chain: Chain) {
        let rt = chain.rt.clone();
        let job = rt.job_once(move |_| {
            let turn = chain.turns.fetch_add(1, SeqCst) + 1;
            let mut low = chain.low.lock().unwrap();
            if turn == 500 {
                low.0 = Some(turn);
                let seen = chain.clone();
                let job = chain.rt.job_once(move |_| {
                    seen.low.lock().unwrap().1 = Some(seen.turns.load(SeqCst));
                    Ok::<_, String>(())
                });
                drop(job.priority(Priority::Low).submit().map_err(|e| e.to_string())?);
            }
            let over = low.1.is_some();
            drop(low);
            if !over && turn < 100_000 {
                again(chain);
            }
            Ok::<_, String>(())
        });
        drop(job.priority(Priority::High).submit());
    }
    // One worker, and everything is queued from inside: no turn goes by unseen.
    let rt = runtime(1);
    let chain = Chain { rt: rt.clone(), turns: Arc::default(), low: Arc::default() };
    again(chain.clone());
    until_stats(&rt, |s| s.submitted > 500 && s.succeeded == s.submitted);
    let (Some(queued), Some(run)) = *chain.low.lock().unwrap() else { panic!("it never ran") };
    assert!(run - queued <= 3 * 61, "it waited for {} turns", run - queued);
}

#[test]
fn jobs_submit_jobs_and_wait_for_them_on_one_worker() {
    let rt = runtime(1);
    let inner = rt.clone();
    let job = rt.submit(move |_| descend(&inner, 200)).unwrap();
    assert_eq!(job.get().unwrap(), 200);
}

#[test]
fn a_full_runtime_gives_the_job_back() {
    let rt = Runtime::builder().workers(1).capacity(2).build().unwrap();
    let (go, wait) = mpsc::channel::<()>();
    let first = rt.submit_once(move |_| wait.recv()).unwrap();
    let second = rt.submit(|_| Ok::<_, String>(())).unwrap();
    let token = Arc::new(());
    let carried = Arc::clone(&token);
    let Err(SubmitError::Full(back)) = rt.submit_once(move |_| {
        drop(carried);
        Ok::<_, String>(())
    }) else {
        panic!("it is full")
    };
    assert_eq!(Arc::strong_count(&token), 2, "the closure is whole");
    drop(back);
    assert_eq!(Arc::strong_count(&token), 1);
    go.send(()).unwrap();
    first.get().unwrap();
    second.get().unwrap();
    // The places are free again once the ends are counted.
    until("there is room again", || match rt.submit(|_| Ok::<_, String>(())) {
        Ok(job) => job.get().is_ok(),
        Err(_) => false,
    });
}

#[test]
fn draining_waits_for_everything_that_is_left() {
    let rt = runtime(2);
    assert!(rt.drain(Duration::ZERO), "nothing was taken in");
    let (go, wait) = mpsc::channel::<()>();
    let blocker = rt.submit_once(move |_| wait.recv()).unwrap();
    let cancelled = rt.submit(|_| Ok::<_, String>(())).unwrap();
    cancelled.cancel();
    let retried = rt.submit(|ctx| if ctx.attempt() < 3 { Err("no") } else { Ok(()) }).unwrap();
    let dead = rt.submit(|_| Err::<(), _>("no")).unwrap();
    assert!(!rt.drain(Duration::from_millis(5)));
    go.send(()).unwrap();
    assert!(rt.drain(LONG));
    for finished in [blocker.is_finished(), cancelled.is_finished(), retried.is_finished()] {
        assert!(finished);
    }
    assert!(dead.get().is_err());
    assert!(rt.submit(|_| Ok::<_, String>(())).unwrap().get().is_ok(), "it is open as before");
}

struct Bomb(Arc<AtomicUsize>);
impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        panic!("a drop that panics");
    }
}

#[test]
fn values_closures_and_errors_whose_drop_panics_harm_nobody() {
    let rt = runtime(1);
    let drops = Arc::new(AtomicUsize::new(0));
    // The value, dropped by the worker because nobody waits for it.
    let bomb = Arc::clone(&drops);
    let (go, wait) = mpsc::channel::<()>();
    let job = rt
        .submit_once(move |_| {
            let _ = wait.recv();
            Ok::<_, String>(Bomb(bomb))
        })
        .unwrap();
    drop(job);
    go.send(()).unwrap();
    // The closure's captures.
    let captured = Bomb(Arc::clone(&drops));
    let job = rt
        .submit(move |_| {
            let _whole = &captured;
            Ok::<_, String>(())
        })
        .unwrap();
    job.get().unwrap();
    assert_eq!(rt.submit(|_| Ok::<_, String>(9)).unwrap().get().unwrap(), 9);
    assert_eq!(drops.load(SeqCst), 2);
    assert_eq!(rt.stats().succeeded, 3);
}

#[test]
fn hooks_and_listeners_that_panic_harm_nobody() {
    let calls = Arc::new(AtomicUsize::new(0));
    let (a, b) = (Arc::clone(&calls), Arc::clone(&calls));
    let rt = Runtime::builder()
        .workers(1)
        .retry(at_once(2))
        .on_start(move |_| {
            a.fetch_add(1, SeqCst);
            panic!("start")
        })
        .on_stop(|_| panic!("stop"))
        .on_event(move |_| {
            b.fetch_add(1, SeqCst);
            panic!("event")
        })
        .build()
        .unwrap();
    let job = rt.submit(|_| Err::<(), _>("no")).unwrap();
    assert!(job.get().is_err());
    assert!(calls.load(SeqCst) >= 5, "one hook, two failures, a retry, a death");
    let report = rt.shutdown(LONG);
    assert!(report.abandoned.is_empty());
}

#[test]
fn a_slow_subscriber_loses_events_and_is_told_how_many() {
    let rt = runtime(1);
    let events = rt.events_with_capacity(1);
    assert!(rt.submit(|_| Err::<(), _>("no")).unwrap().get().is_err());
    rt.shutdown(LONG);
    assert!(matches!(events.try_next(), Some(Event::AttemptFailed { attempt: 1, .. })));
    assert!(events.try_next().is_none());
    assert!(events.lost() >= 5);
}

#[test]
fn nonsense_settings_are_refused() {
    assert!(matches!(
        Runtime::builder().workers(0).build(),
        Err(ConfigError::Workers { got: 0, .. })
    ));
    assert!(matches!(Runtime::builder().workers(9999).build(), Err(ConfigError::Workers { .. })));
    assert!(matches!(
        Runtime::builder().attempt_timeout(Duration::ZERO).build(),
        Err(ConfigError::AttemptTimeout)
    ));
    assert!(matches!(Runtime::builder().capacity(0).build(), Err(ConfigError::Capacity)));
    let rt =
        Runtime::builder().workers(1).attempt_timeout(Duration::MAX).thread_name("a\0b").build();
    assert_eq!(rt.unwrap().submit(|_| Ok::<_, String>(1)).unwrap().get().unwrap(), 1);
}

#[test]
fn a_paused_runtime_begins_nothing() {
    let rt = runtime(2);
    rt.pause();
    let mut job = rt.submit(|_| Ok::<_, String>(1)).unwrap();
    assert!(job.get_timeout(Duration::from_millis(20)).is_none());
    rt.resume();
    assert_eq!(job.get_timeout(LONG).expect("resumed").unwrap(), 1);
}

#[test]
fn awaited_from_two_tasks_in_turn_the_last_waker_is_woken() {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Wake, Waker};
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let rt = runtime(1);
    let (go, wait) = mpsc::channel::<()>();
    let mut job = rt.submit_once(move |_| wait.recv()).unwrap();
    let (old, new) = (Arc::new(Count(AtomicUsize::new(0))), Arc::new(Count(AtomicUsize::new(0))));
    for count in [&old, &new] {
        let waker = Waker::from(Arc::clone(count));
        assert!(Pin::new(&mut job).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(Arc::strong_count(&old), 1, "the old waker is gone");
    go.send(()).unwrap();
    until("it is woken", || new.0.load(SeqCst) > 0);
    let waker = Waker::noop();
    assert!(matches!(
        Pin::new(&mut job).poll(&mut Context::from_waker(waker)),
        Poll::Ready(Ok(()))
    ));
    assert!(matches!(
        Pin::new(&mut job).poll(&mut Context::from_waker(waker)),
        Poll::Ready(Err(JobError::Taken))
    ));
    assert_eq!(old.0.load(SeqCst), 0);
}
