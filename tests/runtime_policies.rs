//! Deadlines, unique keys, second attempts, budgets, and policies that are replaced while jobs run.

mod runtime_support;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::clock::{Clock, ManualClock};
use tenure::retry::{Jitter, RetryBudget, RetryPolicy, Stop};
use tenure::runtime::{
    AttemptError, DeadLetter, Event, JobCtx, JobError, JobHandle, NotCounted, Outcome, Runtime,
    SubmitError,
};

use runtime_support::{
    Gate, LONG, SECOND, advance_until, at_once, timed, until, until_event, until_stats,
};

/// A runtime whose clock is moved by hand, whose attempts last for ever.
fn by_hand(workers: usize, retry: RetryPolicy) -> (Runtime, ManualClock) {
    let clock = ManualClock::new();
    let rt = Runtime::builder().workers(workers).clock(clock.clone()).retry(retry);
    (rt.build().unwrap(), clock)
}

fn every(delay: Duration) -> RetryPolicy {
    RetryPolicy::fixed(delay).jitter(Jitter::None).without_max_attempts().build().unwrap()
}

#[track_caller]
fn letter<T>(job: JobHandle<T>) -> Arc<DeadLetter> {
    match job.get() {
        Err(JobError::Dead(letter)) => letter,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it has a value"),
    }
}

// --- deadlines ----------------------------------------------------------------------------------

#[test]
fn a_deadline_ends_a_job_wherever_it_waits() {
    let (rt, clock) = by_hand(1, every(2 * SECOND));
    let gate = Gate::new();
    let hang = gate.clone();
    let owner = rt
        .job(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .key("k")
        .submit()
        .unwrap();
    gate.wait_for(1);
    // In a queue, in line for a key, before its first moment.
    let waiting = [
        rt.job(|_| Ok::<_, String>(())).deadline(SECOND).submit().unwrap(),
        rt.job(|_| Ok::<_, String>(())).deadline(SECOND).key("k").submit().unwrap(),
        rt.job(|_| Ok::<_, String>(())).deadline(SECOND).delay(LONG).submit().unwrap(),
    ];
    clock.advance(SECOND);
    for job in waiting {
        let letter = letter(job);
        assert_eq!((letter.stop, letter.attempts()), (Stop::Deadline, 0));
    }
    gate.open();
    owner.get().unwrap();
    // The key went from its owner to nobody.
    rt.job(|_| Ok::<_, String>(())).key("k").submit().unwrap().get().unwrap();
    until_stats(&rt, |s| s.dead == 3);
    assert!(rt.drain(LONG));
}

#[test]
fn a_retry_that_would_come_after_the_deadline_is_not_made() {
    let (rt, clock) = by_hand(1, every(SECOND));
    let events = rt.events();
    let job = rt.job(|_| Err::<(), _>("no")).deadline(3 * SECOND).submit().unwrap();
    for _ in 0..2 {
        until_event(&events, |e| matches!(e, Event::RetryScheduled { .. }));
        clock.advance(SECOND);
    }
    // Tried at 0, 1 and 2 s; at 3 s it is late.
    let letter = letter(job);
    assert_eq!((letter.stop, letter.attempts()), (Stop::Deadline, 3));
}

#[test]
fn an_attempt_that_runs_at_the_deadline_may_finish_but_has_no_other() {
    let (rt, clock) = by_hand(2, at_once(5));
    let gate = Gate::new();
    let jobs = [true, false].map(|well| {
        let hang = gate.clone();
        let job = rt.job(move |ctx: &JobCtx| {
            assert!(ctx.deadline().is_some());
            hang.pass();
            if well { Ok(ctx.attempt()) } else { Err("no") }
        });
        job.deadline(SECOND).submit().unwrap()
    });
    gate.wait_for(2);
    clock.advance(2 * SECOND);
    gate.open();
    let [well, badly] = jobs;
    assert_eq!(well.get().unwrap(), 1);
    let letter = letter(badly);
    assert_eq!((letter.stop, letter.attempts()), (Stop::Deadline, 1));
}

#[test]
fn deadlines_of_any_length_are_legal() {
    let (rt, clock) = by_hand(1, at_once(1));
    assert_eq!(
        letter(rt.job(|_| Ok::<_, String>(())).deadline(Duration::ZERO).submit().unwrap()).stop,
        Stop::Deadline
    );
    rt.job(|_| Ok::<_, String>(())).deadline(Duration::MAX).submit().unwrap().get().unwrap();
    rt.job(|_| Ok::<_, String>(()))
        .deadline(Duration::from_nanos(u64::MAX - 1))
        .submit()
        .unwrap()
        .get()
        .unwrap();
    clock.advance(Duration::MAX);
    rt.job(|_| Ok::<_, String>(())).deadline(SECOND).submit().unwrap().get().unwrap();
}

#[test]
fn a_snooze_past_the_deadline_is_the_end() {
    let (rt, _clock) = by_hand(1, at_once(1));
    let job = rt.job(|_| Outcome::<()>::Snooze(2 * SECOND)).deadline(SECOND).submit().unwrap();
    let letter = letter(job);
    assert_eq!(letter.stop, Stop::Deadline);
    assert!(matches!(letter.last_error(), Some(AttemptError::Snoozed { .. })));
}

#[test]
fn jobs_that_end_before_their_deadline_leave_nothing() {
    let (rt, _clock) = by_hand(2, at_once(1));
    let captured = Arc::new(());
    for _ in 0..2000 {
        let held = Arc::clone(&captured);
        // The error is kept by the job, as long as anything keeps that.
        let job = rt.job(move |_| {
            let _held = &held;
            Outcome::<()>::fail("no")
        });
        assert!(job.deadline(LONG).hedge_after(LONG).submit().unwrap().get().is_err());
    }
    until("its closures are gone", || Arc::strong_count(&captured) == 1);
}

#[test]
fn the_time_for_retries_is_up_and_the_letter_says_so() {
    let policy = RetryPolicy::fixed(SECOND).jitter(Jitter::None).without_max_attempts();
    let (rt, clock) = by_hand(1, policy.max_elapsed(2 * SECOND).build().unwrap());
    let events = rt.events();
    let job = rt.submit(|_| Err::<(), _>("no")).unwrap();
    for _ in 0..2 {
        until_event(&events, |e| matches!(e, Event::RetryScheduled { .. }));
        clock.advance(SECOND);
    }
    let letter = letter(job);
    assert_eq!((letter.stop, letter.attempts()), (Stop::MaxElapsed, 3));
}

#[test]
fn a_job_that_names_its_own_delay_is_held_to_its_limits() {
    let (rt, clock) = by_hand(1, at_once(3));
    let events = rt.events();
    let job = rt.submit(|_| Outcome::<()>::retry_after("busy", SECOND)).unwrap();
    for attempt in 2..=3 {
        let told = until_event(&events, |e| matches!(e, Event::RetryScheduled { .. }));
        assert!(
            matches!(told, Event::RetryScheduled { attempt: a, delay: SECOND, .. } if a == attempt)
        );
        clock.advance(SECOND);
    }
    assert_eq!(letter(job).stop, Stop::MaxAttempts);
    let job = rt.job(|_| Outcome::<()>::retry_after("busy", Duration::MAX)).deadline(LONG);
    assert_eq!(letter(job.submit().unwrap()).stop, Stop::Deadline);
}

// --- unique keys --------------------------------------------------------------------------------

#[test]
fn of_jobs_with_one_unique_key_one_is_live() {
    let (rt, clock) = timed(2, 1);
    let gate = Gate::new();
    let hang = gate.clone();
    let first = rt
        .job(move |_| {
            hang.pass();
            Ok::<_, String>(1)
        })
        .unique("k")
        .name("first")
        .without_attempt_timeout()
        .submit()
        .unwrap();
    gate.wait_for(1);
    let captured = Arc::new(());
    let held = Arc::clone(&captured);
    let second = move |_: &JobCtx| {
        let _held = &held;
        Ok::<_, String>(2)
    };
    let refused = rt.job(second).unique("k").delay(SECOND).submit().unwrap_err();
    let live = refused.live().expect("a duplicate").clone();
    assert_eq!((live.id(), live.name(), live.is_finished()), (first.id(), Some("first"), false));
    assert_eq!(
        refused.to_string(),
        format!("job {} has the same unique key, and is not over", first.id())
    );
    // The closure comes back, and is taken once the first one is over.
    let second = refused.into_inner();
    assert_eq!(Arc::strong_count(&captured), 2);
    rt.job(|_| Ok::<_, String>(())).unique("other").submit().unwrap().get().unwrap();
    gate.open();
    assert_eq!(first.get().unwrap(), 1);
    assert!(live.is_finished() && !live.cancel());
    let second = rt.job(second).unique("k").delay(SECOND).submit().unwrap();
    // A live one may be cancelled by whoever was refused.
    let third = rt.job(|_| Ok::<_, String>(3)).unique("k").submit().unwrap_err();
    assert!(third.live().unwrap().cancel());
    assert!(matches!(second.get(), Err(JobError::Cancelled)));
    rt.job(|_| Ok::<_, String>(4)).unique("k").submit().unwrap().get().unwrap();
    clock.advance(SECOND);
    assert_eq!(rt.stats().submitted, 4);
}

#[test]
fn racing_submits_of_one_unique_key_run_one_at_a_time() {
    let rt = Runtime::builder().workers(2).build().unwrap();
    let (inside, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let (inside, ran) = (Arc::clone(&inside), Arc::clone(&ran));
                    let job = rt.job(move |_| {
                        assert_eq!(inside.fetch_add(1, SeqCst), 0);
                        ran.fetch_add(1, SeqCst);
                        inside.fetch_sub(1, SeqCst);
                        Ok::<_, String>(())
                    });
                    match job.unique(7).retry(RetryPolicy::never()).submit() {
                        Ok(job) => job.get().unwrap(),
                        Err(SubmitError::Duplicate { .. }) => std::thread::yield_now(),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    assert!(ran.load(SeqCst) > 0);
    assert_eq!(rt.stats().submitted, ran.load(SeqCst) as u64);
}

#[test]
fn a_refused_duplicate_takes_no_room() {
    let rt = Runtime::builder().workers(1).capacity(2).build().unwrap();
    let gate = Gate::new();
    let hang = gate.clone();
    let job = rt.job(move |_| {
        hang.pass();
        Ok::<_, String>(())
    });
    let job = job.unique(1).submit().unwrap();
    for _ in 0..10 {
        let again = rt.job(|_| Ok::<_, String>(())).unique(1).submit();
        assert!(matches!(again, Err(SubmitError::Duplicate { .. })));
    }
    let second = rt.submit(|_| Ok::<_, String>(())).unwrap();
    assert!(matches!(rt.submit(|_| Ok::<_, String>(())), Err(SubmitError::Full(_))));
    gate.open();
    job.get().unwrap();
    second.get().unwrap();
}

#[test]
fn a_dead_or_shut_down_job_gives_its_unique_key_back() {
    let (rt, _clock) = timed(1, 1);
    for _ in 0..3 {
        assert!(rt.job(|_| Err::<(), _>("no")).unique(1).submit().unwrap().get().is_err());
    }
    let waits = rt.job(|_| Ok::<_, String>(())).unique(1).delay(LONG).submit().unwrap();
    let live = rt.job(|_| Ok::<_, String>(())).unique(1).submit().unwrap_err().live().cloned();
    let _report = rt.shutdown(LONG);
    assert!(matches!(waits.get(), Err(JobError::Shutdown)));
    assert!(live.unwrap().is_finished());
}

// --- second attempts ----------------------------------------------------------------------------

/// A job whose first attempt hangs, and how its second one ends.
fn hedged<T: Send + 'static>(
    rt: &Runtime,
    gate: &Gate,
    ends: impl Fn(&JobCtx) -> Outcome<T> + Send + Sync + 'static,
) -> JobHandle<T> {
    let hang = gate.clone();
    let job = rt.job(move |ctx: &JobCtx| {
        if !ctx.is_hedge() {
            hang.pass();
        }
        ends(ctx)
    });
    let job = job.hedge_after(SECOND).submit().unwrap();
    gate.wait_for(1);
    job
}

#[test]
fn a_second_attempt_wins_and_the_first_one_is_told() {
    let (rt, clock) = by_hand(2, at_once(1));
    let gate = Gate::new();
    let told = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&told);
    let job = hedged(&rt, &gate, move |ctx| {
        if !ctx.is_hedge() {
            *tell.lock().unwrap() = Some((ctx.is_cancelled(), ctx.check().is_ok()));
        }
        Outcome::Done((ctx.is_hedge(), ctx.attempt(), ctx.token()))
    });
    clock.advance(SECOND);
    let (second, attempt, token) = job.get().unwrap();
    assert!(second);
    assert_eq!((attempt, token.to_string().is_empty()), (1, false));
    gate.open();
    until_stats(&rt, |s| s.fenced == 1);
    assert_eq!(*told.lock().unwrap(), Some((true, false)));
    let stats = rt.stats();
    assert_eq!((stats.hedged, stats.started, stats.succeeded), (1, 2, 1));
    assert!(rt.shutdown(LONG).abandoned.is_empty());
}

#[test]
fn the_lease_of_a_first_attempt_that_comes_back_late_goes_with_it() {
    let (rt, clock) = timed(2, 1);
    let gate = Gate::new();
    let hang = gate.clone();
    let job = rt.job(move |ctx: &JobCtx| {
        if !ctx.is_hedge() {
            hang.pass();
        }
        Ok::<_, String>(ctx.is_hedge())
    });
    let job = job.without_attempt_timeout().key("k").hedge_after(SECOND).submit().unwrap();
    gate.wait_for(1);
    clock.advance(SECOND);
    assert!(job.get().unwrap());
    assert_eq!(rt.leases().len(), 1, "the first one holds it for both");
    gate.open();
    until_stats(&rt, |s| s.fenced == 1);
    until("nobody uses the key", || rt.leases().is_empty());
}

#[test]
fn a_first_attempt_in_time_has_no_second() {
    let (rt, clock) = by_hand(2, at_once(1));
    let job = rt.job(|ctx: &JobCtx| Ok::<_, String>(ctx.is_hedge())).hedge_after(SECOND);
    assert!(!job.submit().unwrap().get().unwrap());
    clock.advance(LONG);
    rt.submit(|_| Ok::<_, String>(())).unwrap().get().unwrap();
    assert_eq!((rt.stats().hedged, rt.stats().started), (0, 2));
}

#[test]
fn of_two_attempts_the_first_to_fail_leaves_it_to_the_other() {
    let (rt, clock) = by_hand(2, at_once(1));
    let events = rt.events();
    let gate = Gate::new();
    let mut job = hedged(&rt, &gate, |ctx| {
        if ctx.is_hedge() { Outcome::retry("the second one") } else { Outcome::Done(1) }
    });
    clock.advance(SECOND);
    until_event(&events, |e| matches!(e, Event::AttemptFailed { attempt: 1, .. }));
    assert!(job.get_timeout(Duration::from_millis(10)).is_none());
    gate.open();
    assert_eq!(job.get().unwrap(), 1);
    // Both fail: one attempt was made.
    let gate = Gate::new();
    let job = hedged::<()>(&rt, &gate, |_| Outcome::retry("both"));
    clock.advance(SECOND);
    until_event(&events, |e| matches!(e, Event::AttemptFailed { .. }));
    gate.open();
    let letter = letter(job);
    assert_eq!((letter.stop, letter.attempts()), (Stop::MaxAttempts, 2));
    assert!(letter.history.iter().all(|attempt| attempt.number == 1));
}

#[test]
fn an_error_that_nothing_can_mend_ends_both_attempts() {
    let (rt, clock) = by_hand(2, at_once(5));
    let gate = Gate::new();
    let job = hedged::<()>(&rt, &gate, |ctx| {
        if ctx.is_hedge() { Outcome::fail("gone for good") } else { Outcome::Done(()) }
    });
    clock.advance(SECOND);
    assert_eq!(letter(job).stop, Stop::NotRetryable);
    gate.open();
    until_stats(&rt, |s| s.fenced == 1);
}

#[test]
fn two_attempts_are_given_up_together() {
    let (rt, clock) = timed(4, 2);
    let gate = Gate::new();
    let hang = gate.clone();
    let job = rt
        .job(move |ctx: &JobCtx| {
            if ctx.attempt() == 1 {
                hang.pass();
            }
            Ok::<_, String>(ctx.attempt())
        })
        .hedge_after(SECOND / 2)
        .submit()
        .unwrap();
    gate.wait_for(1);
    clock.advance(SECOND / 2);
    gate.wait_for(2);
    clock.advance(SECOND / 2);
    assert_eq!(job.get().unwrap(), 2);
    gate.open();
    until_stats(&rt, |s| s.fenced == 2);
    // The second one's seat was looked at later, or not at all: its worker came back by itself.
    until_stats(&rt, |s| s.stuck_workers == 0 && s.workers == 4);
}

#[test]
fn a_hedged_job_can_be_cancelled_and_shut_down() {
    let (rt, clock) = by_hand(2, at_once(5));
    let gate = Gate::new();
    let hang = gate.clone();
    let job = rt
        .job(move |_: &JobCtx| {
            hang.pass();
            Err::<(), _>("told to")
        })
        .hedge_after(SECOND)
        .submit()
        .unwrap();
    gate.wait_for(1);
    clock.advance(SECOND);
    gate.wait_for(2);
    assert!(job.cancel());
    gate.open();
    assert!(matches!(job.get(), Err(JobError::Cancelled)));

    let gate = Gate::new();
    let hang = gate.clone();
    let job = rt
        .job(move |_: &JobCtx| {
            hang.pass();
            Ok::<_, String>(())
        })
        .hedge_after(SECOND)
        .submit()
        .unwrap();
    gate.wait_for(1);
    clock.advance(SECOND);
    gate.wait_for(2);
    let report = rt.shutdown(Duration::ZERO);
    assert_eq!(report.abandoned.len(), 2);
    assert!(matches!(job.get(), Err(JobError::Shutdown)));
    gate.open();
    until_stats(&rt, |s| s.workers == 0);
}

#[test]
fn a_keyed_job_is_hedged_under_its_one_lease() {
    let (rt, clock) = by_hand(2, at_once(1));
    let gate = Gate::new();
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let (hang, note) = (gate.clone(), Arc::clone(&tokens));
    let job = rt
        .job(move |ctx: &JobCtx| {
            note.lock().unwrap().push(ctx.token());
            if !ctx.is_hedge() {
                hang.pass();
            }
            Ok::<_, String>(ctx.is_hedge())
        })
        .key("k")
        .hedge_after(SECOND)
        .submit()
        .unwrap();
    gate.wait_for(1);
    clock.advance(SECOND);
    assert!(job.get().unwrap());
    let tokens = tokens.lock().unwrap().clone();
    assert_eq!(tokens[0], tokens[1]);
    // The loser still holds the lease; the next one in line takes it away.
    let next = rt.job(|ctx| Ok::<_, String>(ctx.token())).key("k").submit().unwrap();
    assert!(next.get().unwrap() > tokens[0]);
    gate.open();
    until_stats(&rt, |s| s.fenced == 1);
}

#[test]
fn hedges_of_any_delay_are_legal() {
    let rt = Runtime::builder().workers(2).build().unwrap();
    for delay in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        for _ in 0..100 {
            rt.job(|_| Ok::<_, String>(())).hedge_after(delay).submit().unwrap().get().unwrap();
        }
    }
    assert!(rt.drain(LONG));
    assert_eq!(rt.stats().succeeded, 300);
}

// --- budgets ------------------------------------------------------------------------------------

#[test]
fn a_retry_that_the_budget_does_not_have_is_not_made() {
    let budget = RetryBudget::builder().ratio(1.0).per_second(0).burst(1).build().unwrap();
    let rt = Runtime::builder().workers(1).retry(at_once(10)).retry_budget(budget).build().unwrap();
    let fails = || rt.submit(|_| Err::<(), _>("no")).unwrap();
    let first = letter(fails());
    assert_eq!((first.stop, first.attempts()), (Stop::Budget, 2));
    assert_eq!(letter(fails()).attempts(), 1);
    // A success pays for one.
    rt.submit(|_| Ok::<_, String>(())).unwrap().get().unwrap();
    // Paid in before the result could be had.
    assert_eq!(letter(fails()).attempts(), 2);
    // One that no retry could help draws nothing.
    rt.submit(|_| Ok::<_, String>(())).unwrap().get().unwrap();
    assert_eq!(letter(rt.submit(|_| Outcome::<()>::fail("no")).unwrap()).stop, Stop::NotRetryable);
    assert_eq!(letter(fails()).attempts(), 2);
}

#[test]
fn ten_thousand_jobs_that_fail_at_once_stay_spread_and_under_the_budget() {
    const JOBS: u64 = 10_000;
    let clock = ManualClock::new();
    let budget = RetryBudget::builder().ratio(0.0).per_second(20).burst(500);
    let budget = Arc::new(budget.clock(clock.clone()).build().unwrap());
    let policy = RetryPolicy::exponential(10 * SECOND).max_delay(20 * SECOND).jitter(Jitter::Full);
    // When each retry is due, in nanoseconds.
    let due = Arc::new(Mutex::new(Vec::new()));
    let (note, time) = (Arc::clone(&due), clock.clone());
    let rt = Runtime::builder()
        .workers(2)
        .clock(clock.clone())
        .seed(7)
        .retry(policy.max_attempts(6).build().unwrap())
        .retry_budget(Arc::clone(&budget))
        .on_event(move |event| {
            if let Event::RetryScheduled { delay, .. } = event {
                note.lock().unwrap().push(time.now().saturating_add(*delay).as_nanos());
            }
        })
        .build()
        .unwrap();
    let jobs: Vec<_> = (0..JOBS).map(|_| rt.submit(|_| Err::<(), _>("down")).unwrap()).collect();
    let mut seconds = 0;
    loop {
        // Everything that is due has been tried, and it is decided what comes of it.
        until("what is due is done", || {
            let stats = rt.stats();
            let due = due.lock().unwrap();
            let now = clock.now().as_nanos();
            let tried = JOBS + due.iter().filter(|&&at| at <= now).count() as u64;
            let told = due.len() as u64;
            stats.failed_attempts == tried && stats.dead + told == tried && stats.retried == told
        });
        if rt.stats().dead == JOBS {
            break;
        }
        clock.advance(SECOND);
        seconds += 1;
        assert!(seconds < 1000, "{:?}", rt.stats());
    }
    let refused = jobs.into_iter().map(|job| letter(job).stop).filter(|stop| match stop {
        Stop::Budget => true,
        Stop::MaxAttempts => false,
        other => panic!("{other}"),
    });
    assert!(refused.count() as u64 >= JOBS - 500);
    // What the budget began with, and what time gave.
    let retried = rt.stats().retried;
    assert!((500..=500 + 20 * seconds).contains(&retried), "{retried} in {seconds} s");
    // All at once at first. The retries that the budget let through are spread over the ten seconds of
    // their delay, and no later second sees a storm.
    let mut by_second = vec![0_u64; seconds as usize + 1];
    for at in due.lock().unwrap().iter() {
        by_second[(at / 1_000_000_000) as usize] += 1;
    }
    assert!(by_second.iter().all(|&tries| tries <= 500 / 5), "{by_second:?}");
    assert!(by_second[..10].iter().all(|&tries| tries >= 500 / 50), "{by_second:?}");
}

// --- policies that are replaced -----------------------------------------------------------------

#[test]
fn the_retry_policy_can_be_replaced_while_jobs_wait_for_their_retry() {
    let (rt, clock) = by_hand(1, every(LONG));
    let events = rt.events();
    let jobs: Vec<_> = (0..100).map(|_| rt.submit(|_| Err::<(), _>("no")).unwrap()).collect();
    let own = rt.job(|_| Err::<(), _>("no")).retry(at_once(4)).submit().unwrap();
    for _ in 0..100 {
        until_event(&events, |e| matches!(e, Event::RetryScheduled { delay: LONG, .. }));
    }
    assert_eq!(letter(own).attempts(), 4);
    rt.set_retry(at_once(3));
    clock.advance(LONG);
    for job in jobs {
        let letter = letter(job);
        assert_eq!((letter.stop, letter.attempts()), (Stop::MaxAttempts, 3));
    }
}

#[test]
fn an_attempt_keeps_the_timeout_that_it_began_with() {
    let (rt, clock) = timed(2, 1);
    let gate = Gate::new();
    let hanging = |rt: &Runtime| {
        let hang = gate.clone();
        rt.submit(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .unwrap()
    };
    let old = hanging(&rt);
    gate.wait_for(1);
    rt.set_attempt_timeout(None);
    let unlimited = hanging(&rt);
    gate.wait_for(2);
    clock.advance(SECOND);
    assert!(matches!(letter(old).last_error(), Some(AttemptError::TimedOut { after: SECOND })));
    rt.set_attempt_timeout(2 * SECOND);
    let new = hanging(&rt);
    gate.wait_for(3);
    advance_until(&clock, SECOND, "it is given up", || new.is_finished());
    assert!(!unlimited.is_finished());
    gate.open();
    unlimited.get().unwrap();
    assert!(
        matches!(letter(new).last_error(), Some(AttemptError::TimedOut { after }) if *after == 2 * SECOND)
    );
    until_stats(&rt, |s| s.stuck_workers == 0);
}

#[test]
fn a_budget_can_be_brought_replaced_and_taken_away() {
    let rt = Runtime::builder().workers(1).retry(at_once(3)).build().unwrap();
    let fails = || letter(rt.submit(|_| Err::<(), _>("no")).unwrap());
    assert_eq!(fails().stop, Stop::MaxAttempts);
    let none = || RetryBudget::builder().ratio(0.0).per_second(0).burst(1).build().unwrap();
    rt.set_retry_budget(none());
    assert_eq!((fails().attempts(), fails().attempts()), (2, 1));
    rt.set_retry_budget(none());
    assert_eq!((fails().attempts(), fails().attempts()), (2, 1));
    rt.remove_retry_budget();
    assert_eq!(fails().stop, Stop::MaxAttempts);
}

#[test]
fn the_capacity_can_be_replaced_and_whoever_waits_for_room_gets_it() {
    let rt = Runtime::builder().workers(1).capacity(1).build().unwrap();
    let gate = Gate::new();
    let hang = gate.clone();
    let first = rt
        .submit(move |_| {
            hang.pass();
            Ok::<_, String>(1)
        })
        .unwrap();
    let waiter = {
        let rt = rt.clone();
        std::thread::spawn(move || rt.job(|_| Ok::<_, String>(2)).submit_timeout(LONG))
    };
    rt.set_capacity(NonZeroUsize::new(2).unwrap()).unwrap();
    let second = waiter.join().unwrap().expect("there is room");
    rt.set_capacity(NonZeroUsize::MIN).unwrap();
    assert!(matches!(rt.submit(|_| Ok::<_, String>(())), Err(SubmitError::Full(_))));
    gate.open();
    assert_eq!((first.get().unwrap(), second.get().unwrap()), (1, 2));
    let uncounted = Runtime::builder().workers(1).build().unwrap();
    assert_eq!(uncounted.set_capacity(NonZeroUsize::MIN), Err(NotCounted));
}

#[test]
fn policies_that_change_all_the_time_lose_no_job() {
    let rt = Runtime::builder().workers(2).capacity(usize::MAX).build().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0_u32;
            while !stop.load(SeqCst) {
                turn += 1;
                rt.set_retry(at_once(2 + turn % 3));
                rt.set_attempt_timeout(turn.is_multiple_of(2).then_some(LONG));
                rt.set_capacity(NonZeroUsize::new(10_000 + turn as usize).unwrap()).unwrap();
                rt.set_retry_budget(RetryBudget::builder().per_second(1_000_000).build().unwrap());
                std::thread::yield_now();
            }
        });
        let jobs: Vec<_> = (0..5000_u32)
            .map(|n| {
                let job =
                    rt.job(
                        move |ctx: &JobCtx| {
                            if n % 3 == 0 && ctx.attempt() == 1 { Err("once") } else { Ok(n) }
                        },
                    );
                let job = if n % 2 == 0 { job.deadline(LONG) } else { job };
                job.submit().unwrap()
            })
            .collect();
        let ends = jobs.into_iter().map(JobHandle::get).filter(Result::is_ok).count();
        stop.store(true, SeqCst);
        // All but those that found the budget of the moment empty.
        assert!(ends >= 3000, "{ends}");
    });
    let stats = rt.stats();
    assert_eq!(stats.succeeded + stats.dead, 5000);
}
