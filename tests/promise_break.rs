//! Attempts to break promises: blocking deep in callbacks, nests, torture.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::Duration;

use tenure::executor::Task;
use tenure::promise::{Completions, Eventual, Promise, all, promise, ready};

type P = Promise<u64, ()>;
type Ev = Eventual<u64, ()>;

/// Runs `f` inside callbacks nested `depth` deep, each completing the next one's promise.
fn nested(depth: usize, f: impl FnOnce() + Send + 'static) {
    let mut run: Box<dyn FnOnce() + Send> = Box::new(f);
    for _ in 0..depth {
        let inner = run;
        run = Box::new(move || {
            let (promise, eventual): (P, Ev) = promise();
            eventual.on_complete(move |_| inner());
            let _ = promise.set(0);
        });
    }
    run();
}

/// Runs `f` on a thread of its own with a stack of 64 KiB; fails if that takes longer than a minute.
fn bounded(f: impl FnOnce() + Send + 'static) {
    let (done, wait) = std::sync::mpsc::channel();
    let thread = thread::Builder::new()
        .stack_size(64 * 1024)
        .spawn(move || {
            f();
            let _ = done.send(());
        })
        .unwrap();
    match wait.recv_timeout(Duration::from_secs(60)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap(),
    }
}

// ---- what queues behind a blocked thread ----------------------------------------------------

#[test]
fn a_blocking_get_deep_in_callbacks_runs_what_it_waits_for() {
    for depth in 0..9 {
        bounded(move || {
            let seen = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&seen);
            nested(depth, move || {
                // A stage over a value that is there.
                assert_eq!(ready::<u64, ()>(20).map(|n| n + 1).get().ok(), Some(21));
                // A stage that somebody on this thread completes.
                let (promise, eventual): (P, Ev) = promise();
                let mapped = eventual.map(|n| n + 1).map(|n| n * 2);
                promise.set(20).unwrap();
                assert_eq!(mapped.get().ok(), Some(42));
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(seen.load(Ordering::Relaxed), 1, "depth {depth}");
        });
    }
}

#[test]
fn timed_shared_and_grouped_waits_run_what_they_wait_for() {
    for depth in [0, 4, 6] {
        bounded(move || {
            let seen = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&seen);
            nested(depth, move || {
                let mut timed = ready::<u64, ()>(1).map(|n| n + 1);
                assert_eq!(timed.get_timeout(Duration::MAX).ok(), Some(2));
                let shared = ready::<u64, ()>(1).map(|n| n + 2).share();
                assert_eq!(shared.get().ok(), Some(&3));
                let shared = ready::<u64, ()>(1).map(|n| n + 3).share();
                let got = shared.get_timeout(Duration::from_secs(3600));
                assert_eq!(got.and_then(Result::ok), Some(&4));
                let mut each: Completions<u64, ()> =
                    (0..3).map(|n| ready(n).map(|n| n + 1)).collect();
                assert_eq!(each.by_ref().filter_map(|(_, o)| o.ok()).sum::<u64>(), 6);
                let every = all((0..3).map(|n| ready::<u64, ()>(n).map(|n| n + 1)));
                assert_eq!(every.get().ok(), Some(vec![1, 2, 3]));
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(seen.load(Ordering::Relaxed), 1, "depth {depth}");
        });
    }
}

// ---- wakers that panic ------------------------------------------------------------------------

/// Panics at its first clone, if so told, and at its first drop, if so told.
struct Bad {
    clone: AtomicBool,
    drop: AtomicBool,
    woken: AtomicUsize,
}

static BAD: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: the waker that is cloned keeps it alive; the clone counts.
        unsafe {
            let bad = &*data.cast::<Bad>();
            assert!(!bad.clone.swap(false, Ordering::Relaxed), "a bad clone");
            Arc::increment_strong_count(data.cast::<Bad>());
        }
        RawWaker::new(data, &BAD)
    },
    |data| {
        // SAFETY: the waker's own count, given up here.
        unsafe { Arc::from_raw(data.cast::<Bad>()) }.woken.fetch_add(1, Ordering::Relaxed);
    },
    |data| {
        // SAFETY: the waker keeps it alive.
        unsafe { &*data.cast::<Bad>() }.woken.fetch_add(1, Ordering::Relaxed);
    },
    |data| {
        // SAFETY: the waker's own count, given up here.
        let bad = unsafe { Arc::from_raw(data.cast::<Bad>()) };
        assert!(!bad.drop.swap(false, Ordering::Relaxed), "a bad drop");
    },
);

fn bad(clone: bool, drop: bool) -> (Arc<Bad>, Waker) {
    let bad = Arc::new(Bad { clone: clone.into(), drop: drop.into(), woken: AtomicUsize::new(0) });
    let data = Arc::into_raw(Arc::clone(&bad)).cast();
    // SAFETY: the table keeps the counts of the `Arc`.
    (bad, unsafe { Waker::from_raw(RawWaker::new(data, &BAD)) })
}

#[test]
fn a_waker_that_panics_leaves_a_writer_that_waits_for_cancellation_as_usable_as_before() {
    let (mut writer, eventual): (P, Ev) = promise();
    let mut poll = |waker: &Waker| {
        let polled = AssertUnwindSafe(|| writer.poll_cancelled(&mut Context::from_waker(waker)));
        catch_unwind(polled).map(|polled| polled.is_ready())
    };
    let (_, clone) = bad(true, false);
    poll(&clone).unwrap_err();
    let (_, dropped) = bad(false, true);
    assert!(!poll(&dropped).unwrap());
    let (good, waker) = bad(false, false);
    let _ = poll(&waker);
    assert!(eventual.cancel());
    assert_eq!(good.woken.load(Ordering::Relaxed), 1);
    drop(eventual);
    assert!(writer.is_cancelled());
    // A waker that panics as its node lets it go does not reach whoever leaves last.
    let (mut writer, eventual): (P, Ev) = promise();
    let (_, dropped) = bad(false, true);
    assert!(writer.poll_cancelled(&mut Context::from_waker(&dropped)).is_pending());
    let _ = writer.set(1);
    assert_eq!(eventual.get().ok(), Some(1));
}

// ---- nests ----------------------------------------------------------------------------------

#[test]
fn tasks_inside_tasks_are_dropped_and_run_on_a_small_stack() {
    const DEEP: usize = 100_000;
    fn nest(dropped: &Arc<AtomicUsize>) -> Task {
        struct Count(Arc<AtomicUsize>);
        impl Drop for Count {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Count(Arc::clone(dropped));
        let mut task = Task::new(move || drop(count));
        for _ in 1..DEEP {
            let inner = task;
            let count = Count(Arc::clone(dropped));
            task = Task::new(move || {
                drop(count);
                inner.run();
            });
        }
        task
    }
    bounded(|| {
        let dropped = Arc::new(AtomicUsize::new(0));
        nest(&dropped).run();
        assert_eq!(dropped.load(Ordering::Relaxed), DEEP);
        drop(nest(&dropped));
        assert_eq!(dropped.load(Ordering::Relaxed), 2 * DEEP);
    });
}

#[test]
fn a_rejection_deep_in_the_stack_still_resolves_what_hangs_on_the_task() {
    bounded(|| {
        let kept: Arc<Mutex<Vec<Task>>> = Arc::default();
        let executor = {
            let kept = Arc::clone(&kept);
            Keep(kept)
        };
        let (promise, eventual): (P, Ev) = promise();
        let downstream = eventual.via(executor).map(|n| n + 1).unbind().recover(|_| 9);
        promise.set(1).unwrap();
        let tasks = std::mem::take(&mut *kept.lock().unwrap());
        assert_eq!(tasks.len(), 1);
        nested(8, move || drop(tasks));
        assert_eq!(downstream.get().ok(), Some(9));
    });
}

#[derive(Clone)]
struct Keep(Arc<Mutex<Vec<Task>>>);

impl tenure::executor::Executor for Keep {
    fn execute(&self, task: Task) -> Result<(), Task> {
        self.0.lock().unwrap().push(task);
        Ok(())
    }
}

#[test]
fn hooks_and_promises_that_own_the_next_let_go_on_a_small_stack() {
    const DEEP: usize = 100_000;
    bounded(|| {
        // Each hook owns the next eventual: dropping the first reader cancels them all.
        let mut writers = Vec::with_capacity(DEEP);
        let mut outermost: Option<Ev> = None;
        for _ in 0..DEEP {
            let (mut writer, eventual): (P, Ev) = promise();
            if let Some(inner) = outermost.replace(eventual) {
                writer.on_cancel(move || drop(inner));
            }
            writers.push(writer);
        }
        drop(outermost);
        assert!(writers.iter().all(Promise::is_cancelled));
        // The same, but the hooks are never run: dropping the outermost writer drops them.
        let mut outermost: Option<(P, Ev)> = None;
        for _ in 0..DEEP {
            let (mut writer, eventual): (P, Ev) = promise();
            if let Some(inner) = outermost.take() {
                writer.on_cancel(move || drop(inner));
            }
            outermost = Some((writer, eventual));
        }
        let (writer, eventual) = outermost.unwrap();
        drop(writer);
        drop(eventual);
        // Groups of groups, given up from outside.
        let (writer, eventual): (P, Ev) = promise();
        let mut nest = eventual;
        for _ in 0..10_000 {
            nest = all([nest, ready(1)]).map(|values| values.len() as u64);
        }
        drop(nest);
        assert!(writer.is_cancelled());
    });
}
