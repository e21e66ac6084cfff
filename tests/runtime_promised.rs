//! What hangs on a job's result, the runtime as an executor, and waiting for room.

mod runtime_support;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tenure::clock::ManualClock;
use tenure::executor::{Executor, Task};
use tenure::promise::{Eventual, EventualError, promise};
use tenure::retry::RetryPolicy;
use tenure::runtime::{JobError, Runtime, SubmitError};

use runtime_support::{Gate, LONG, SECOND, at_once, until, until_stats};

fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).retry(at_once(2)).build().unwrap()
}

#[test]
fn a_callback_gets_the_result_before_and_after_the_end() {
    let rt = runtime(1);
    let (send, told) = mpsc::channel();
    let gate = Gate::new();
    let hang = gate.clone();
    let late = send.clone();
    let job = rt.submit_once(move |_| {
        hang.pass();
        Ok::<_, String>(1)
    });
    job.unwrap().on_complete(move |result| late.send(result.unwrap()).unwrap());
    assert!(told.try_recv().is_err());
    gate.open();
    assert_eq!(told.recv_timeout(LONG), Ok(1));
    let mut job = rt.submit(|_| Ok::<_, String>(2)).unwrap();
    until("it is over", || job.is_finished());
    // One that has polled before is as good.
    let _ = job.get_timeout(Duration::ZERO);
    job.on_complete(move |result| {
        assert!(matches!(result, Err(JobError::Taken)));
        send.send(2).unwrap();
    });
    assert_eq!(told.recv_timeout(LONG), Ok(2));
}

#[test]
fn a_callback_that_panics_harms_nobody() {
    let rt = runtime(1);
    let gate = Gate::new();
    let hang = gate.clone();
    let job = rt.submit_once(move |_| {
        hang.pass();
        Ok::<_, String>(1)
    });
    job.unwrap().on_complete(|_| panic!("meant"));
    gate.open();
    assert_eq!(rt.submit(|_| Ok::<_, String>(7)).unwrap().get().unwrap(), 7);
    let job = rt.submit(|_| Ok::<_, String>(1)).unwrap();
    until("it is over", || job.is_finished());
    job.on_complete(|_| panic!("meant"));
}

#[test]
fn a_job_is_an_eventual() {
    let rt = runtime(2);
    let jobs: Vec<Eventual<u64, JobError>> =
        (0..100).map(|i| rt.submit(move |_| Ok::<_, String>(i)).unwrap().into()).collect();
    let sum = tenure::promise::all(jobs).map(|all| all.into_iter().sum::<u64>());
    assert_eq!(sum.get().unwrap(), 4950);
    assert_eq!(rt.submit(|_| Ok::<_, String>(20)).unwrap().map(|n| n + 1).get().unwrap(), 21);
    let dead = rt.submit(|_| Err::<(), _>("no")).unwrap().into_eventual();
    let Err(EventualError::Failed(JobError::Dead(letter))) = dead.get() else { panic!("dead") };
    assert_eq!(letter.attempts(), 2);
    // On the way of a stage that itself hands in a job.
    let inner = rt.clone();
    let chained = rt.submit(|_| Ok::<_, String>(1)).unwrap().into_eventual().and_then(move |n| {
        inner
            .submit(move |_| Ok::<_, String>(n + 1))
            .map_err(|_| JobError::Shutdown)
            .map_or_else(tenure::promise::failed, |job| job.into_eventual())
    });
    assert_eq!(chained.get().unwrap(), 2);
}

#[test]
fn an_eventual_cancels_its_job_and_a_job_its_eventual() {
    let clock = ManualClock::new();
    let rt = Runtime::builder().workers(1).clock(clock).build().unwrap();
    let later = |rt: &Runtime| rt.job(|_| Ok::<_, String>(())).delay(SECOND).submit().unwrap();
    let asked = later(&rt).into_eventual();
    assert!(asked.cancel());
    assert!(matches!(asked.get(), Err(EventualError::Cancelled)));
    // Dropping it asks, too; detaching it does not.
    drop(later(&rt).into_eventual());
    until_stats(&rt, |s| s.cancelled == 2);
    later(&rt).into_eventual().detach();
    let ended = later(&rt).into_eventual();
    let report = rt.shutdown(LONG);
    assert_eq!(report.cancelled, 2);
    assert!(matches!(ended.get(), Err(EventualError::Failed(JobError::Shutdown))));
    assert_eq!(rt.stats().cancelled, 4);
}

#[test]
fn a_runtime_is_an_executor() {
    let rt = Runtime::builder().workers(2).thread_name("exec").capacity(64).build().unwrap();
    let name = || std::thread::current().name().map(str::to_owned);
    let (writer, reader) = promise::<u32, ()>();
    let stage = reader.via(rt.clone()).map(move |n| (n, name())).unbind();
    writer.set(5).unwrap();
    let (n, thread) = stage.get().unwrap();
    assert_eq!(n, 5);
    assert!(thread.is_some_and(|name| name.starts_with("exec-")));
    let (send, told) = mpsc::channel();
    let ready = tenure::promise::ready::<u32, ()>(6);
    ready.on_complete_via(rt.clone(), move |result| send.send(result.ok()).unwrap());
    assert_eq!(told.recv_timeout(LONG), Ok(Some(6)));
    // A task that panics is one job's end and nothing else.
    assert!(rt.execute(Task::new(|| panic!("meant"))).is_ok());
    assert!(rt.drain(LONG));
    // One that waits at the end is rejected, and so is one that comes later.
    rt.pause();
    let (writer, reader) = promise::<u32, ()>();
    let waits = reader.via(rt.clone()).map(|n| n + 1).unbind();
    writer.set(1).unwrap();
    let _ = rt.shutdown(LONG);
    assert!(matches!(waits.get(), Err(EventualError::Rejected)));
    let (writer, reader) = promise::<u32, ()>();
    let late = reader.via(rt.clone()).map(|n| n + 1).unbind();
    writer.set(1).unwrap();
    assert!(matches!(late.get(), Err(EventualError::Rejected)));
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let refused = rt.execute(Task::new(move || {
        counted.fetch_add(1, SeqCst);
    }));
    refused.expect_err("given back").run();
    assert_eq!(ran.load(SeqCst), 1);
}

#[test]
fn submitting_waits_for_room() {
    let rt = Runtime::builder().workers(1).capacity(1).build().unwrap();
    let gate = Gate::new();
    let hang = gate.clone();
    let first = rt
        .submit_once(move |_| {
            hang.pass();
            Ok::<_, String>(1)
        })
        .unwrap();
    let refused = rt.job(|_| Ok::<_, String>(2)).submit_timeout(Duration::ZERO);
    assert!(matches!(refused, Err(SubmitError::Full(_))));
    let refused = rt.job(|_| Ok::<_, String>(2)).submit_timeout(Duration::from_millis(5));
    assert!(matches!(refused, Err(SubmitError::Full(_))));
    let others: Vec<_> = (0..4)
        .map(|i| {
            let rt = rt.clone();
            std::thread::spawn(move || {
                let job = rt.job(move |_| Ok::<_, String>(i)).submit_timeout(Duration::MAX);
                job.unwrap().get().unwrap()
            })
        })
        .collect();
    gate.open();
    assert_eq!(first.get().unwrap(), 1);
    let mut sum: Vec<_> = others.into_iter().map(|thread| thread.join().unwrap()).collect();
    sum.sort_unstable();
    assert_eq!(sum, [0, 1, 2, 3]);
}

#[test]
fn a_job_that_waits_for_room_lets_a_stand_in_make_it() {
    let rt = Runtime::builder().workers(1).capacity(2).build().unwrap();
    let inner = rt.clone();
    let job = rt
        .submit_once(move |_| {
            // This one takes a place, and the next one fills it up: only a stand-in can run that.
            for i in 0..50 {
                let job = inner.job(move |_| Ok::<_, String>(i)).submit_timeout(LONG);
                drop(job.map_err(|e| e.to_string())?);
            }
            Ok::<_, String>(())
        })
        .unwrap();
    job.get().unwrap();
    assert!(rt.drain(LONG));
    assert_eq!(rt.stats().succeeded, 51);
}

#[test]
fn a_shutdown_ends_the_waiting_for_room() {
    let rt = Runtime::builder().workers(1).capacity(1).build().unwrap();
    let gate = Gate::new();
    let hang = gate.clone();
    let running = rt
        .submit_once(move |_| {
            hang.pass();
            Ok::<_, String>(())
        })
        .unwrap();
    let waits = rt.clone();
    let (send, begun) = mpsc::channel();
    let other = std::thread::spawn(move || {
        send.send(()).unwrap();
        let refused = waits.job_once(|_| Ok::<_, String>(())).submit_timeout(Duration::MAX);
        matches!(refused, Err(SubmitError::Closed(_)))
    });
    begun.recv_timeout(LONG).unwrap();
    let closer = std::thread::spawn({
        let rt = rt.clone();
        move || rt.shutdown(LONG)
    });
    assert!(other.join().unwrap());
    gate.open();
    closer.join().unwrap();
    let _ = running.get();
}

#[test]
fn everybody_who_waits_for_room_gets_some() {
    let rt = Runtime::builder().workers(2).capacity(3).build().unwrap();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let rt = rt.clone();
            std::thread::spawn(move || {
                for _ in 0..2_000 {
                    let job = rt.job_once(move |_| Ok::<_, String>(()));
                    drop(job.submit_timeout(LONG).unwrap());
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(rt.drain(LONG));
    assert_eq!(rt.stats().succeeded, 6_000);
}

#[test]
fn a_job_that_is_cancelled_while_it_waits_long_gives_its_place_back() {
    let clock = ManualClock::new();
    let hour = Duration::from_secs(3600);
    let policy = RetryPolicy::fixed(hour).build().unwrap();
    let builder = Runtime::builder().workers(1).clock(clock.clone()).capacity(1);
    let rt = builder.retry(policy).build().unwrap();
    let held = Arc::new(Mutex::new(()));
    for round in 0..20_u64 {
        let inside = Arc::clone(&held);
        let job = rt.job(move |_| {
            let _ = &inside;
            Err::<(), _>("no")
        });
        // Delayed, or in the backoff after its first attempt.
        let job = if round % 2 == 0 { job.delay(hour) } else { job };
        let job = job.submit_timeout(LONG).unwrap();
        if round % 2 == 1 {
            until_stats(&rt, |s| s.retried == round / 2 + 1);
        }
        assert!(job.cancel());
        until_stats(&rt, |s| s.cancelled == round + 1);
        drop(job);
    }
    assert!(rt.drain(LONG));
    until("their closures are gone", || Arc::strong_count(&held) == 1);
}
