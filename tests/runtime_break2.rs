//! Attacks on tasks, on waiting inside jobs, and on the stand-ins that come and go for it.

mod runtime_support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use tenure::retry::RetryPolicy;
use tenure::runtime::{Runtime, blocking};

use runtime_support::{LONG, descend, until, until_stats};

#[test]
fn a_stand_in_does_not_step_down_when_it_is_needed_again() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    let inner = rt.clone();
    let job = rt
        .submit_once(move |_| {
            for round in 0..1_500 {
                let (done, ended) = mpsc::channel();
                let child = inner
                    .submit_once(move |_| {
                        let _ = done.send(());
                        Ok::<_, String>(())
                    })
                    .map_err(|e| e.to_string())?;
                drop(child);
                // Only a stand-in can run it; between two rounds it is one too many.
                blocking(|| ended.recv_timeout(LONG)).map_err(|e| format!("{round}: {e}"))?;
                // So long that the stand-in now and then begins to leave just before the next round.
                for _ in 0..(round * 37) % 4_000 {
                    std::hint::spin_loop();
                }
            }
            Ok::<_, String>(())
        })
        .unwrap();
    job.get().unwrap();
}

#[test]
fn a_chain_of_parents_that_is_too_deep_for_one_stack_goes_on_elsewhere() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    let inner = rt.clone();
    assert_eq!(rt.submit(move |_| descend(&inner, 5_000)).unwrap().get().unwrap(), 5_000);
}

#[test]
fn a_chain_of_parents_that_is_too_deep_for_all_stacks_is_refused() {
    let rt = Runtime::builder().workers(1).max_spares(1).stack_size(256 << 10).build().unwrap();
    let inner = rt.clone();
    let job = rt.job(move |_| descend(&inner, 5_000)).retry(RetryPolicy::never());
    let result = job.submit().unwrap().get();
    assert!(result.is_err(), "{result:?}");
    // And the pool is as it was.
    assert_eq!(rt.submit(|_| Ok::<_, String>(7)).unwrap().get().unwrap(), 7);
}

/// Wakes in the middle of everything, and keeps its waker.
struct Restless {
    kept: Arc<Mutex<Vec<Waker>>>,
    polls: usize,
    panics: bool,
}

impl Future for Restless {
    type Output = u32;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<u32> {
        cx.waker().wake_by_ref();
        self.kept.lock().unwrap().push(cx.waker().clone());
        let by_value = cx.waker().clone();
        by_value.wake();
        self.polls += 1;
        if self.polls < 5 {
            return Poll::Pending;
        }
        assert!(!self.panics, "as asked");
        Poll::Ready(7)
    }
}

impl Drop for Restless {
    fn drop(&mut self) {
        for waker in self.kept.lock().unwrap().iter() {
            waker.wake_by_ref();
        }
        assert!(!self.panics || std::thread::panicking(), "in the drop as well");
    }
}

#[test]
fn wakers_that_outlive_everything_do_nothing() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let rt = Runtime::builder().workers(2).build().unwrap();
    for panics in [false, true] {
        let task = rt.spawn(Restless { kept: kept.clone(), polls: 0, panics }).unwrap();
        assert_eq!(task.get().is_err(), panics);
    }
    for panics in [false, true] {
        // Never polled to its end.
        drop(rt.spawn(Restless { kept: kept.clone(), polls: 0, panics }).unwrap());
    }
    let _ = rt.shutdown(LONG);
    drop(rt);
    let kept = std::mem::take(&mut *kept.lock().unwrap());
    for waker in kept {
        waker.wake_by_ref();
        let twin = waker.clone();
        waker.wake();
        drop(twin);
    }
}

#[test]
fn a_task_that_owns_the_runtime_and_its_own_waker_may_be_forgotten() {
    let ends = Arc::new(AtomicUsize::new(0));
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let rt = Runtime::builder().workers(1).build().unwrap();
    let (inner, counted) = (rt.clone(), Counted(ends.clone()));
    let (tell, told) = mpsc::channel();
    let mut own: Option<Waker> = None;
    let task = rt
        .spawn(std::future::poll_fn(move |cx| {
            let _keep = (&inner, &counted, &own);
            own = Some(cx.waker().clone());
            let _ = tell.send(());
            Poll::<()>::Pending
        }))
        .unwrap();
    told.recv_timeout(LONG).unwrap();
    let _ = rt.shutdown(LONG);
    assert!(task.get().is_err());
    assert_eq!(ends.load(SeqCst), 1, "the task was dropped by the shutdown");
}

#[test]
fn blocking_inside_blocking_and_a_panic_in_it_leave_the_pool_as_it_was() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    let inner = rt.clone();
    let job = rt
        .submit_once(move |_| {
            let child = blocking(|| blocking(|| inner.submit(|_| Ok::<_, String>(1))));
            let one = blocking(|| blocking(|| child.map_err(|_| ()).map(|c| c.get())));
            let _ =
                std::panic::catch_unwind(|| blocking(|| blocking(|| -> () { panic!("as asked") })));
            Ok::<_, String>(one.unwrap().unwrap())
        })
        .unwrap();
    assert_eq!(job.get().unwrap(), 1);
    until_stats(&rt, |s| s.workers == 1);
}

#[test]
fn a_shutdown_while_parents_wait_for_children_ends_them_all() {
    for _ in 0..50 {
        let rt = Runtime::builder().workers(2).build().unwrap();
        let handles: Vec<_> = (0..20)
            .map(|_| {
                let inner = rt.clone();
                rt.submit(move |_| descend(&inner, 20)).unwrap()
            })
            .collect();
        let report = rt.shutdown(LONG);
        for handle in handles {
            let _ = handle.get();
        }
        assert!(report.abandoned.is_empty(), "{report:?}");
    }
}

#[test]
fn a_handle_awaited_by_its_own_child_can_be_woken_from_its_drop() {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
            panic!("a waker that panics");
        }
    }
    let rt = Runtime::builder().workers(1).build().unwrap();
    let gate = Arc::new(Mutex::new(()));
    let held = gate.lock().unwrap();
    let at = gate.clone();
    let mut handle = rt.submit_once(move |_| Ok::<_, String>(at.lock().is_ok())).unwrap();
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(flag.clone());
    assert!(std::pin::Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(held);
    until("it is woken", || flag.0.load(SeqCst));
    assert!(handle.get().is_ok());
    assert_eq!(rt.submit(|_| Ok::<_, String>(3)).unwrap().get().unwrap(), 3);
}
