//! The runtime under attack: late attempts that answer, foreign drops that panic, one runtime's jobs
//! in another one's, shutdowns from odd places, durations at both ends.

mod runtime_support;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tenure::clock::{AdvanceListener, Clock, ManualClock, Timestamp};
use tenure::lease::LeaseState;
use tenure::retry::RetryPolicy;
use tenure::runtime::{AttemptError, ConfigError, Event, JobError, Outcome, Priority, Runtime};

use runtime_support::{
    Gate, LONG, SECOND, advance_until, at_once, until, until_event, until_stats,
};

/// A late attempt that asks to be cancelled asks for itself, not for the job: that is another
/// attempt's by now, or nobody's.
#[test]
fn a_late_attempt_cannot_cancel_the_job() {
    let clock = ManualClock::new();
    let policy = RetryPolicy::fixed(SECOND * 100).max_attempts(3).build().unwrap();
    let rt = Runtime::builder()
        .workers(1)
        .clock(clock.clone())
        .attempt_timeout(SECOND)
        .retry(policy)
        .build()
        .unwrap();
    let events = rt.events();
    let gate = Gate::default();
    let hang = gate.clone();
    let mut job = rt
        .submit(move |ctx| {
            if ctx.attempt() == 1 {
                hang.pass();
                return Outcome::Cancel;
            }
            Outcome::Done(ctx.attempt())
        })
        .unwrap();
    gate.wait_for(1);
    clock.advance(SECOND);
    until_event(&events, |e| matches!(e, Event::RetryScheduled { .. }));
    gate.open();
    until_event(&events, |e| matches!(e, Event::LateAttempt { attempt: 1, .. }));
    assert!(!job.is_finished());
    clock.advance(SECOND * 200);
    let result = job.get_timeout(LONG).expect("the job ends");
    assert_eq!(result.unwrap(), 2);
}

/// A clock that holds up one worker, at its second reading.
#[derive(Clone, Debug)]
struct HeldUp {
    clock: ManualClock,
    armed: Arc<AtomicBool>,
    reached: Arc<AtomicBool>,
    go_on: Arc<AtomicBool>,
}

impl Clock for HeldUp {
    fn now(&self) -> Timestamp {
        thread_local! {
            static READINGS: Cell<usize> = const { Cell::new(0) };
        }
        if self.armed.load(SeqCst) && std::thread::current().name() == Some("held-up-0") {
            READINGS.set(READINGS.get() + 1);
            // The first one is for the attempt's deadline; then comes its lease.
            if READINGS.get() == 2 {
                self.reached.store(true, SeqCst);
                while !self.go_on.load(SeqCst) {
                    std::thread::yield_now();
                }
            }
        }
        self.clock.now()
    }
    fn real_time_until(&self, at: Timestamp) -> Option<Duration> {
        self.clock.real_time_until(at)
    }
    fn on_advance(&self, listener: Weak<dyn AdvanceListener>) {
        self.clock.on_advance(listener);
    }
}

/// An attempt that is given up before it has its token, and comes for it after its successor has
/// given back its own, does not get one: it would be greater than its successor's.
#[test]
fn an_attempt_that_was_overtaken_on_the_way_to_its_token_gets_none() {
    let clock = HeldUp {
        clock: ManualClock::new(),
        armed: Arc::default(),
        reached: Arc::default(),
        go_on: Arc::default(),
    };
    let rt = Runtime::builder()
        .workers(1)
        .thread_name("held-up")
        .clock(clock.clone())
        .attempt_timeout(SECOND / 2)
        .retry(at_once(3))
        .build()
        .unwrap();
    let events = rt.events();
    clock.armed.store(true, SeqCst);
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&runs);
    let mut job = rt
        .job(move |ctx| {
            seen.lock().unwrap().push((ctx.attempt(), ctx.token()));
            Ok::<_, String>(ctx.attempt())
        })
        .key("a")
        .submit()
        .unwrap();
    until("it is on its way to its token", || clock.reached.load(SeqCst));
    clock.clock.advance(SECOND / 2);
    let result = job.get_timeout(LONG).expect("the job ends").unwrap();
    // The successor's lease is back.
    let gone = |rt: &Runtime| rt.leases().list().iter().all(|l| l.state == LeaseState::Free);
    until_stats(&rt, |s| s.succeeded == 1 && gone(&rt));
    clock.go_on.store(true, SeqCst);
    until_event(&events, |e| matches!(e, Event::LateAttempt { attempt: 1, .. }));
    assert_eq!(result, 2);
    let runs = runs.lock().unwrap();
    assert_eq!(runs.iter().map(|(attempt, _)| *attempt).collect::<Vec<_>>(), [2]);
}

/// A job of one runtime that waits for one of another leaves the other's accounts alone.
#[test]
fn a_job_may_wait_for_a_job_of_another_runtime() {
    let one = Runtime::builder().workers(1).capacity(8).build().unwrap();
    let other = Runtime::builder().workers(1).capacity(1).build().unwrap();
    let inner = other.clone();
    let outer = one
        .submit(move |_| {
            for round in 0..64_u32 {
                // Its place is free again when its own runtime has seen the end of the one before.
                let job = std::cell::Cell::new(None);
                until("there is room", || {
                    job.set(inner.submit(move |_| Ok::<_, String>(round)).ok());
                    let submitted = job.take();
                    let taken = submitted.is_some();
                    job.set(submitted);
                    taken
                });
                assert_eq!(job.take().unwrap().get().unwrap(), round);
            }
            Ok::<_, String>(())
        })
        .unwrap();
    outer.get().unwrap();
    assert_eq!((one.stats().succeeded, other.stats().succeeded), (1, 64));
    for _ in 0..8 {
        one.submit(|_| Ok::<_, String>(())).unwrap().get().unwrap();
    }
}

static ARMED: AtomicBool = AtomicBool::new(true);

/// An error that panics when it is dropped, unless its thread panics already.
#[derive(Debug)]
struct Bomb(Arc<AtomicUsize>);

impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a bomb")
    }
}

impl std::error::Error for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        if ARMED.load(SeqCst) && !std::thread::panicking() {
            panic!("an error's drop");
        }
    }
}

/// Of a long history the middle is dropped: by a worker, which survives that.
#[test]
fn errors_that_panic_when_their_record_is_dropped_cost_nothing() {
    let rt = Runtime::builder().workers(1).retry(at_once(50)).build().unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&drops);
    let mut job = rt
        .submit(move |ctx| {
            if ctx.attempt() < 45 { Err(Bomb(Arc::clone(&counted))) } else { Ok(ctx.attempt()) }
        })
        .unwrap();
    let result = job.get_timeout(LONG).expect("the job ends");
    assert_eq!(result.unwrap(), 45);
    assert!(drops.load(SeqCst) >= 12);
    assert_eq!(rt.stats().workers, 1);
    assert_eq!(rt.submit(|_| Ok::<_, String>(7)).unwrap().get().unwrap(), 7);
    std::mem::forget(job);
}

/// What a job has been through goes with its last reference, which may be the worker's.
#[test]
fn errors_that_panic_when_their_job_is_freed_cost_nothing() {
    let rt = Runtime::builder().workers(1).retry(at_once(3)).build().unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    for round in 1..=3 {
        let counted = Arc::clone(&drops);
        let gate = Gate::default();
        let hang = gate.clone();
        let job = rt
            .submit(move |ctx| {
                hang.pass();
                if ctx.attempt() == 1 { Err(Bomb(Arc::clone(&counted))) } else { Ok(()) }
            })
            .unwrap();
        drop(job);
        gate.open();
        until_stats(&rt, |s| s.succeeded == round);
    }
    assert_eq!(rt.submit(|_| Ok::<_, String>(7)).unwrap().get().unwrap(), 7);
    until_stats(&rt, |_| drops.load(SeqCst) == 3);
    assert_eq!(rt.stats().workers, 1);
    assert!(rt.shutdown(LONG).abandoned.is_empty());
}

/// With no room for dead letters the last reference to one may be the event's.
#[test]
fn errors_that_panic_when_their_letter_is_dropped_cost_nothing() {
    let (send, letters) = mpsc::channel();
    let send = Mutex::new(send);
    let rt = Runtime::builder()
        .workers(1)
        .retry(at_once(1))
        .dead_letters(0)
        .on_event(move |event| {
            if let Event::JobDead(letter) = event {
                let (done, is_done) = mpsc::channel::<()>();
                send.lock().unwrap().send((Arc::downgrade(letter), done)).unwrap();
                let _ = is_done.recv_timeout(LONG);
            }
        })
        .build()
        .unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&drops);
    let job = rt.submit(move |_| Err::<(), _>(Bomb(Arc::clone(&counted)))).unwrap();
    let (letter, done) = letters.recv_timeout(LONG).unwrap();
    // All other references go while the listener holds up the event.
    drop(job.get());
    assert!(letter.strong_count() <= 2, "the event, and who tells it");
    drop(done);
    assert_eq!(rt.submit(|_| Ok::<_, String>(7)).unwrap().get().unwrap(), 7);
    assert_eq!(drops.load(SeqCst), 1);
    assert_eq!(rt.stats().workers, 1);
}

/// A worker that goes on after it was stuck is watched again, also if its next job happens to lie
/// where the one before did.
#[test]
fn a_worker_that_came_back_is_watched_as_before() {
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
    for round in 0..8 {
        let gate = Gate::default();
        let hang = gate.clone();
        let mut job = rt
            .submit(move |_| {
                hang.pass();
                Ok::<_, String>(())
            })
            .unwrap();
        gate.wait_for(1);
        advance_until(&clock, SECOND, "somebody watches", || job.is_finished());
        let result = job.try_get();
        let before = rt.stats().parks;
        gate.open();
        assert!(matches!(result, Some(Err(JobError::Dead(_)))), "round {round}");
        until_event(&events, |e| matches!(e, Event::WorkerReturned { .. }));
        // The worker has let go of the job: this is its last reference, so that the next one comes
        // from the same place.
        until_stats(&rt, |s| s.stuck_workers == 0);
        until_stats(&rt, |s| s.parks > before);
        drop(job);
    }
}

/// A listener on the driver's own thread ends the runtime: it cannot wait for itself.
#[test]
fn a_shutdown_from_a_listener_on_the_driver_returns() {
    let clock = ManualClock::new();
    let place: Arc<OnceLock<Runtime>> = Arc::default();
    let (send, told) = mpsc::channel();
    let send = Mutex::new(send);
    let inner = Arc::clone(&place);
    let rt = Runtime::builder()
        .workers(1)
        .clock(clock.clone())
        .attempt_timeout(SECOND)
        .retry(at_once(1))
        .on_event(move |event| {
            if let Event::WorkerStuck { .. } = event {
                let report = inner.get().unwrap().shutdown(Duration::MAX);
                send.lock().unwrap().send(report).unwrap();
            }
        })
        .build()
        .unwrap();
    place.set(rt.clone()).unwrap();
    let gate = Gate::default();
    let hang = gate.clone();
    let job = rt
        .submit(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .unwrap();
    gate.wait_for(1);
    clock.advance(SECOND);
    told.recv_timeout(LONG).expect("the shutdown returns");
    assert!(matches!(job.get(), Err(JobError::Dead(_))));
    gate.open();
    let _ = rt.shutdown(Duration::ZERO);
}

/// A subscription that comes after the end has no events, and ends.
#[test]
fn a_subscription_after_the_end_is_over() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    let _ = rt.shutdown(LONG);
    let events = rt.events();
    let (send, over) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = send.send(events.count());
    });
    assert_eq!(over.recv_timeout(LONG), Ok(0));
}

/// However many wait in line for a key, the shutdown goes through them in a loop.
#[test]
fn a_long_line_for_one_key_is_no_deep_recursion() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    rt.pause();
    let jobs: Vec<_> =
        (0..20_000).map(|_| rt.job(|_| Ok::<_, String>(())).key(1).submit().unwrap()).collect();
    let report = rt.shutdown(LONG);
    assert_eq!(report.cancelled, jobs.len());
    for job in jobs {
        assert!(matches!(job.get(), Err(JobError::Shutdown)));
    }
}

/// Nor does a long line of cancelled ones end in one.
#[test]
fn a_long_line_of_cancelled_jobs_is_no_deep_recursion() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    rt.pause();
    let jobs: Vec<_> =
        (0..20_000).map(|_| rt.job(|_| Ok::<_, String>(())).key(1).submit().unwrap()).collect();
    for job in jobs.iter().rev() {
        assert!(job.cancel());
    }
    let last = rt.job(|_| Ok::<_, String>(1)).key(1).submit().unwrap();
    rt.resume();
    assert_eq!(last.get().unwrap(), 1);
    assert_eq!(rt.stats().cancelled, 20_000);
}

/// High priority first, but what a job has handed in to its own worker gets a turn, too.
#[test]
fn a_flood_of_high_priority_does_not_starve_the_workers_own_queue() {
    fn flood(rt: &Runtime, left: usize, stop: Arc<AtomicBool>) {
        let next = rt.clone();
        let job = rt.job(move |_| {
            if left > 0 && !stop.load(SeqCst) {
                flood(&next, left - 1, Arc::clone(&stop));
            }
            Ok::<_, String>(())
        });
        drop(job.priority(Priority::High).submit().unwrap());
    }
    let rt = Runtime::builder().workers(1).build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (inner, stopped) = (rt.clone(), Arc::clone(&stop));
    let parent = rt
        .submit(move |_| {
            flood(&inner, 100_000, Arc::clone(&stopped));
            // From inside: stays with this worker.
            let stopped = Arc::clone(&stopped);
            let child = inner.submit(move |_| Ok::<_, String>(stopped.swap(true, SeqCst))).unwrap();
            Ok::<_, String>(Mutex::new(Some(child)))
        })
        .unwrap();
    let child = parent.get().unwrap().into_inner().unwrap().unwrap();
    assert!(!child.get().unwrap());
    until_stats(&rt, |s| s.submitted == s.succeeded);
    assert!(rt.stats().succeeded < 50_000, "the child came last: {:?}", rt.stats());
}

/// Settings that the system cannot follow are errors.
#[test]
fn a_stack_that_is_too_big_is_an_error() {
    for bytes in [usize::MAX, usize::MAX / 2, 1 << 60] {
        match Runtime::builder().workers(1).stack_size(bytes).build() {
            Err(ConfigError::Thread(_)) => {}
            other => panic!("{bytes}: {other:?}"),
        }
    }
    let rt = Runtime::builder().workers(1).stack_size(0).build().unwrap();
    assert_eq!(rt.submit(|_| Ok::<_, String>(1)).unwrap().get().unwrap(), 1);
}

/// Delays without end are delays like others.
#[test]
fn delays_without_end_can_be_cancelled() {
    let clock = ManualClock::new();
    let rt = Runtime::builder().workers(1).clock(clock.clone()).retry(at_once(9)).build().unwrap();
    let events = rt.events();
    let job = rt.submit(|_| Outcome::<()>::RetryAfter("no".into(), Duration::MAX)).unwrap();
    until_event(&events, |e| matches!(e, Event::RetryScheduled { delay: Duration::MAX, .. }));
    clock.advance(Duration::MAX);
    assert!(job.cancel());
    assert!(matches!(job.get(), Err(JobError::Cancelled)));
    let snoozing = rt.submit(|_| Outcome::<()>::Snooze(Duration::MAX)).unwrap();
    until_stats(&rt, |s| s.snoozed == 1);
    let report = rt.shutdown(LONG);
    assert!(report.abandoned.is_empty());
    assert!(matches!(snoozing.get(), Err(JobError::Shutdown)));
}

/// The shortest timeout there is: every attempt is given up, nothing hangs, each end is told once.
#[test]
fn a_timeout_of_a_nanosecond_gives_up_what_does_not_end_at_once() {
    let rt = Runtime::builder().workers(2).retry(at_once(3)).max_stuck_workers(8).build().unwrap();
    let gate = Gate::default();
    let hang = gate.clone();
    let job = rt
        .job(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .attempt_timeout(Duration::ZERO)
        .submit()
        .unwrap();
    let Err(JobError::Dead(letter)) = job.get() else { panic!("it hangs") };
    assert_eq!(letter.attempts(), 3);
    assert!(letter.history.iter().all(|a| matches!(a.cause, AttemptError::TimedOut { .. })));
    gate.open();
    until_stats(&rt, |s| s.fenced == 3);
    assert!(rt.shutdown(LONG).abandoned.is_empty());
}

/// Values, closures and wakers that call back when they are dropped.
#[test]
fn drops_may_call_the_runtime() {
    struct Calls(Runtime, Arc<AtomicUsize>);
    impl Drop for Calls {
        fn drop(&mut self) {
            if let Ok(job) = self.0.submit(|_| Ok::<_, String>(1)) {
                self.1.fetch_add(job.get().map_or(0, |n| n), SeqCst);
            }
        }
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let rt = Runtime::builder().workers(1).build().unwrap();
    let capture = Calls(rt.clone(), Arc::clone(&calls));
    let (inner, counted) = (rt.clone(), Arc::clone(&calls));
    let job = rt
        .submit(move |_| {
            let _ = &capture;
            Ok::<_, String>(Calls(inner.clone(), Arc::clone(&counted)))
        })
        .unwrap();
    // The value is dropped by the worker, the closure with it.
    drop(job);
    until_stats(&rt, |_| calls.load(SeqCst) == 2);
    let _ = rt.shutdown(LONG);
}

/// Handles that are forgotten keep their job's memory and nothing else.
#[test]
fn forgotten_handles_hold_up_nothing() {
    let rt = Runtime::builder().workers(1).capacity(2).build().unwrap();
    for round in 1..=32 {
        std::mem::forget(rt.submit(|_| Ok::<_, String>(())).unwrap());
        until_stats(&rt, |s| s.succeeded == round);
    }
    assert!(rt.shutdown(LONG).abandoned.is_empty());
}

/// An attempt may end in the very moment in which the driver gives it up. Then its worker is already
/// looking for the next job, or asleep, when it is taken out of the pool, and has to notice.
#[test]
fn a_worker_that_comes_back_while_it_is_taken_out_does_not_stay_stuck() {
    let clock = ManualClock::new();
    let rt = Runtime::builder()
        .workers(1)
        .clock(clock.clone())
        .attempt_timeout(SECOND)
        .retry(at_once(1))
        .build()
        .unwrap();
    for _ in 0..1000 {
        let (send, started) = mpsc::channel();
        let mut job = rt
            .submit(move |ctx| {
                let _ = send.send(());
                while ctx.is_current() {
                    std::hint::spin_loop();
                }
                Ok::<_, String>(())
            })
            .unwrap();
        started.recv_timeout(LONG).unwrap();
        let begun = std::time::Instant::now();
        while !job.is_finished() && begun.elapsed() < LONG {
            clock.advance(SECOND);
            std::thread::yield_now();
        }
        assert!(matches!(job.try_get(), Some(Err(JobError::Dead(_)))));
        until_stats(&rt, |s| s.stuck_workers == 0 && s.workers == 1);
    }
}
