//! Waiting inside jobs, blocking sections: nothing deadlocks, and the pool keeps its size.

mod runtime_support;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use tenure::clock::ManualClock;
use tenure::retry::{Jitter, RetryPolicy};
use tenure::runtime::{Event, JobError, Runtime, blocking};

use runtime_support::{LONG, descend, until, until_event};

#[test]
fn a_thousand_parents_wait_for_their_children_on_one_worker() {
    let rt = Runtime::builder().workers(1).stack_size(32 << 20).build().unwrap();
    let inner = rt.clone();
    assert_eq!(rt.submit(move |_| descend(&inner, 1000)).unwrap().get().unwrap(), 1000);
    assert_eq!(rt.stats().workers, 1, "no stand-in was needed");
}

#[test]
fn a_parent_waits_for_a_child_that_another_worker_runs() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    let inner = rt.clone();
    let meet = Arc::new(Barrier::new(2));
    let job = rt
        .submit_once(move |_| {
            // Begun elsewhere, in a stand-in, while we are in a blocking section.
            let at = Arc::clone(&meet);
            let child = inner
                .submit(move |_| {
                    at.wait();
                    Ok::<_, String>(7)
                })
                .map_err(|e| e.to_string())?;
            blocking(|| meet.wait());
            child.get().map_err(|e| e.to_string())
        })
        .unwrap();
    assert_eq!(job.get().unwrap(), 7);
    until("the stand-in leaves", || rt.stats().workers == 1);
}

#[test]
fn a_parent_waits_for_a_childs_retry() {
    let clock = ManualClock::new();
    let policy = RetryPolicy::fixed(Duration::from_secs(9)).jitter(Jitter::None).build().unwrap();
    let rt = Runtime::builder().workers(1).retry(policy).clock(clock.clone()).build().unwrap();
    let events = rt.events();
    let inner = rt.clone();
    let job = rt
        .submit_once(move |_| {
            let child = inner
                .submit(|ctx| if ctx.attempt() == 1 { Err("once") } else { Ok(ctx.attempt()) });
            child.map_err(|e| e.to_string())?.get().map_err(|e| e.to_string())
        })
        .unwrap();
    until_event(&events, |e| matches!(e, Event::RetryScheduled { .. }));
    clock.advance(Duration::from_secs(9));
    assert_eq!(job.get().unwrap(), 2);
    until("the stand-in leaves", || rt.stats().workers == 1);
}

#[test]
fn a_wait_that_nobody_could_end_is_refused() {
    let policy = RetryPolicy::fixed(Duration::ZERO).build().unwrap();
    let rt = Runtime::builder().workers(1).max_spares(0).retry(policy).build().unwrap();
    let inner = rt.clone();
    let job = rt
        .job(move |_| {
            // It waits in line for our own key.
            let behind = inner.job(|_| Ok::<_, String>(())).key("k").submit().unwrap();
            match behind.get() {
                Err(JobError::WouldDeadlock) => Ok("refused"),
                other => Err(format!("{other:?}")),
            }
        })
        .key("k")
        .submit()
        .unwrap();
    assert_eq!(job.get().unwrap(), "refused");
}

#[test]
fn a_wait_for_ones_own_key_is_refused_whatever_the_stand_ins() {
    let rt = Runtime::builder().workers(2).build().unwrap();
    let inner = rt.clone();
    let job = rt
        .job(move |_| {
            let mut behind = inner.job(|_| Ok::<_, String>(())).key("k").submit().unwrap();
            assert!(behind.get_timeout(Duration::from_millis(1)).is_none(), "that is only a wait");
            match behind.get() {
                Err(JobError::WouldDeadlock) => Ok("refused"),
                other => Err(format!("{other:?}")),
            }
        })
        .key("k")
        .submit()
        .unwrap();
    assert_eq!(job.get().unwrap(), "refused");
    assert!(rt.drain(LONG), "the one in line has run");
}

#[test]
fn blocking_sections_do_not_hold_up_the_pool() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    let (go, wait) = mpsc::channel::<()>();
    let blocked = rt.submit_once(move |_| blocking(|| wait.recv())).unwrap();
    for i in 0..50 {
        assert_eq!(rt.submit(move |_| Ok::<_, String>(i)).unwrap().get().unwrap(), i);
    }
    go.send(()).unwrap();
    blocked.get().unwrap();
    until("the stand-in leaves", || rt.stats().workers == 1);
}

#[test]
fn many_waiters_at_once_come_to_an_end() {
    let rt = Runtime::builder().workers(2).build().unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let jobs: Vec<_> = (0..200)
        .map(|i| {
            let (inner, done) = (rt.clone(), Arc::clone(&done));
            rt.submit(move |_| {
                let children: Vec<_> = (0..3)
                    .map(|c| inner.submit(move |_| Ok::<_, String>(c)).map_err(|e| e.to_string()))
                    .collect::<Result<_, _>>()?;
                let mut sum = 0;
                for child in children {
                    sum += child.get().map_err(|e| e.to_string())?;
                }
                done.fetch_add(1, SeqCst);
                Ok::<_, String>(sum + i)
            })
            .unwrap()
        })
        .collect();
    for (i, mut job) in jobs.into_iter().enumerate() {
        assert_eq!(job.get_timeout(LONG).expect("no deadlock").unwrap(), 3 + i);
    }
    assert_eq!(done.load(SeqCst), 200);
    until("stand-ins leave", || rt.stats().workers == 2);
}

#[test]
fn a_blocking_section_outside_a_job_just_runs() {
    assert_eq!(blocking(|| 5), 5);
}

#[test]
fn a_wait_for_a_job_deep_in_callbacks_runs_what_the_job_waits_for() {
    fn nested(depth: usize, f: impl FnOnce() + Send + 'static) {
        let mut run: Box<dyn FnOnce() + Send> = Box::new(f);
        for _ in 0..depth {
            let inner = run;
            run = Box::new(move || {
                let (promise, eventual) = tenure::promise::promise::<(), ()>();
                eventual.on_complete(move |_| inner());
                promise.set(()).unwrap();
            });
        }
        run();
    }
    let rt = Runtime::builder().workers(1).build().unwrap();
    for depth in 0..9 {
        let (rt, (done, end)) = (rt.clone(), mpsc::channel());
        std::thread::spawn(move || {
            nested(depth, move || {
                // Deep enough, the stage waits in this thread's queue, and the job for the stage.
                let (promise, eventual) = tenure::promise::promise::<u32, ()>();
                let stage = eventual.map(|n| n + 1);
                promise.set(41).unwrap();
                let job = rt.submit_once(move |_| stage.get().map_err(|_| "no value")).unwrap();
                done.send(job.get().unwrap()).unwrap();
            });
        });
        assert_eq!(end.recv_timeout(LONG), Ok(42), "depth {depth}");
    }
}
