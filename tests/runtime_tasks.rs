//! Futures on the pool.

mod runtime_support;

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use tenure::runtime::{AttemptError, JobError, Runtime, SubmitError};

use runtime_support::{LONG, until};

/// Pending until opened.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Gate {
    async fn pass(&self) {
        poll_fn(|cx| {
            let mut gate = self.0.lock().unwrap();
            if gate.0 {
                return Poll::Ready(());
            }
            gate.1.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
    fn open(&self) {
        let wakers = {
            let mut gate = self.0.lock().unwrap();
            gate.0 = true;
            std::mem::take(&mut gate.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
    fn waiting(&self) -> usize {
        self.0.lock().unwrap().1.len()
    }
}

fn runtime() -> Runtime {
    Runtime::builder().workers(2).build().unwrap()
}

#[test]
fn a_task_waits_without_a_thread_and_goes_on_when_woken() {
    let rt = runtime();
    let gate = Gate::default();
    let tasks: Vec<_> = (0..1000)
        .map(|i| {
            let gate = gate.clone();
            rt.spawn(async move {
                gate.pass().await;
                i
            })
            .unwrap()
        })
        .collect();
    until("all wait", || gate.waiting() == 1000);
    assert_eq!(rt.submit(|_| Ok::<_, String>(1)).unwrap().get().unwrap(), 1, "workers are free");
    gate.open();
    for (i, mut task) in tasks.into_iter().enumerate() {
        assert_eq!(task.get_timeout(LONG).expect("woken").unwrap(), i);
    }
}

#[test]
fn a_task_that_wakes_itself_lets_others_run() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    let polls = Arc::new(AtomicUsize::new(0));
    let (count, stop) = (Arc::clone(&polls), Gate::default());
    let stopped = stop.clone();
    let busy = rt
        .spawn(poll_fn(move |cx| {
            count.fetch_add(1, SeqCst);
            if stopped.0.lock().unwrap().0 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }))
        .unwrap();
    until("it is busy", || polls.load(SeqCst) > 100);
    for i in 0..20 {
        assert_eq!(rt.submit(move |_| Ok::<_, String>(i)).unwrap().get().unwrap(), i);
    }
    stop.open();
    busy.get().unwrap();
}

#[test]
fn tasks_await_jobs_and_tasks() {
    let rt = runtime();
    let inner = rt.clone();
    let sum = rt
        .spawn(async move {
            let mut sum = 0;
            for i in 0..100_u64 {
                let job = inner.submit(move |_| Ok::<_, String>(i)).map_err(|e| e.to_string())?;
                let task = inner.spawn(async move { i }).map_err(|e| e.to_string())?;
                sum += job.await.map_err(|e| e.to_string())?;
                sum += task.await.map_err(|e| e.to_string())?;
            }
            Ok::<_, String>(sum)
        })
        .unwrap();
    assert_eq!(sum.get().unwrap().unwrap(), 9900);
}

#[test]
fn a_cancelled_task_is_dropped() {
    let rt = runtime();
    let gate = Gate::default();
    let held = Arc::new(());
    let (inside, waits) = (Arc::clone(&held), gate.clone());
    let task = rt
        .spawn(async move {
            waits.pass().await;
            drop(inside);
        })
        .unwrap();
    until("it waits", || gate.waiting() == 1);
    assert!(task.cancel());
    // By this thread, or by the worker that is on its way out of the poll.
    until("it is dropped", || Arc::strong_count(&held) == 1);
    assert!(matches!(task.get(), Err(JobError::Cancelled)));
    gate.open();
    assert_eq!(rt.stats().cancelled, 1);
}

#[test]
fn a_task_that_panics_is_dead() {
    let rt = runtime();
    let task = rt
        .spawn(async {
            if true {
                panic!("oh")
            }
        })
        .unwrap();
    let error = task.get().unwrap_err();
    let letter = error.dead_letter().unwrap();
    assert!(matches!(&letter.history[0].cause, AttemptError::Panicked(p) if p.message() == "oh"));
}

#[test]
fn a_shutdown_ends_tasks_that_wait() {
    let rt = runtime();
    let gate = Gate::default();
    let held = Arc::new(());
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let (gate, held) = (gate.clone(), Arc::clone(&held));
            rt.spawn(async move {
                gate.pass().await;
                drop(held);
            })
            .unwrap()
        })
        .collect();
    until("all wait", || gate.waiting() == 10);
    assert_eq!(rt.shutdown(LONG).cancelled, 10);
    assert_eq!(Arc::strong_count(&held), 1);
    for task in tasks {
        assert!(matches!(task.get(), Err(JobError::Shutdown)));
    }
    gate.open();
    let refused = rt.spawn(async {});
    assert!(matches!(refused, Err(SubmitError::Closed(_))));
}
