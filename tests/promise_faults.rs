//! The kinds of fault that promises elsewhere have had, one test a kind. (Those of single events are
//! in `promise_matrix.rs`, of deep chains in `promise_chains.rs`, of races in the models.)

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tenure::executor::{Executor, Task};
use tenure::promise::{Eventual, EventualError, Outcome, any, promise, ready};
use tenure::wait::Deadline;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn counted() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count::default());
    (Arc::clone(&count), Waker::from(count))
}

fn poll<T, E>(e: &mut Eventual<T, E>, waker: &Waker) -> Poll<Outcome<T, E>> {
    Pin::new(e).poll(&mut Context::from_waker(waker))
}

/// Fails instead of hanging.
fn bounded(f: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let thread = thread::spawn(move || {
        f();
        let _ = done.send(());
    });
    match wait.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap(),
    }
}

#[test]
fn the_last_waker_polled_with_wins_and_the_others_are_let_go_at_once() {
    let (p, mut e) = promise::<u32, ()>();
    let wakers: Vec<_> = (0..4).map(|_| counted()).collect();
    for (n, (_, waker)) in wakers.iter().enumerate() {
        assert!(poll(&mut e, waker).is_pending());
        assert!(poll(&mut e, waker).is_pending());
        for (m, (count, _)) in wakers.iter().enumerate() {
            // Ours, the waker's, and the one inside.
            assert_eq!(Arc::strong_count(count), 2 + usize::from(m == n), "{m} after {n}");
        }
    }
    p.set(1).unwrap();
    let woken: Vec<_> = wakers.iter().map(|(count, _)| count.0.load(Ordering::SeqCst)).collect();
    assert_eq!(woken, [0, 0, 0, 1]);
}

#[test]
fn a_waker_is_let_go_when_the_result_comes_not_when_it_is_taken() {
    type End = fn(tenure::promise::Promise<u32, ()>);
    let ends: [End; 3] = [|p| p.set(1).unwrap(), |p| p.set_error(()).unwrap(), drop];
    for again in [false, true] {
        for end in ends {
            let (p, mut e) = promise::<u32, ()>();
            if again {
                assert!(poll(&mut e, &counted().1).is_pending());
            }
            let (count, waker) = counted();
            assert!(poll(&mut e, &waker).is_pending());
            drop(waker);
            end(p);
            assert_eq!(Arc::strong_count(&count), 1);
            assert_eq!(count.0.load(Ordering::SeqCst), 1);
            drop(e);
        }
    }
    // And when its reader leaves.
    let (p, mut e) = promise::<u32, ()>();
    let (count, waker) = counted();
    assert!(poll(&mut e, &waker).is_pending());
    drop((waker, e));
    assert_eq!(Arc::strong_count(&count), 1);
    drop(p);
}

/// Notes where it is dropped.
struct Where(Arc<Mutex<Vec<ThreadId>>>);

impl Drop for Where {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(thread::current().id());
    }
}

#[test]
fn a_value_is_dropped_on_the_thread_that_the_docs_name() {
    type Pair = (tenure::promise::Promise<Where, ()>, Eventual<Where, ()>);
    let here = thread::current().id();
    let run = |f: fn(Pair, Where) -> Option<ThreadId>| {
        let drops = Arc::new(Mutex::new(Vec::new()));
        let there = f(promise(), Where(Arc::clone(&drops)));
        let drops = Arc::into_inner(drops).unwrap().into_inner().unwrap();
        assert_eq!(drops, [there.unwrap_or(here)]);
    };
    // Set, then the reader leaves: on the reader's thread.
    run(|(p, e), value| {
        p.set(value).ok().unwrap();
        let reader = thread::spawn(move || drop(e));
        let id = reader.thread().id();
        reader.join().unwrap();
        Some(id)
    });
    // The reader leaves first: the value comes back to the writer.
    run(|(p, e), value| {
        drop(e);
        let writer = thread::spawn(move || drop(p.set(value).err().unwrap().into_inner()));
        let id = writer.thread().id();
        writer.join().unwrap();
        Some(id)
    });
    // Detached: the same.
    run(|(p, e), value| {
        e.detach();
        assert!(p.set(value).is_err());
        None
    });
    // A callback, and a stage that nobody reads: on the completing thread.
    run(|(p, e), value| {
        e.on_complete(drop);
        let writer = thread::spawn(move || p.set(value).ok().unwrap());
        let id = writer.thread().id();
        writer.join().unwrap();
        Some(id)
    });
    run(|(p, e), value| {
        drop(e.map(|value| value));
        let writer = thread::spawn(move || p.set(value).ok().unwrap());
        let id = writer.thread().id();
        writer.join().unwrap();
        Some(id)
    });
}

#[test]
fn a_wait_neither_takes_nor_heeds_the_threads_park_token() {
    bounded(|| {
        thread::current().unpark();
        let (p, e) = promise::<u32, ()>();
        let (go, wait) = mpsc::channel();
        let writer = thread::spawn(move || {
            wait.recv().unwrap();
            p.set(7).unwrap();
        });
        let mut e = e;
        assert!(matches!(e.get_timeout(Duration::from_micros(200)), Err(EventualError::TimedOut)));
        go.send(()).unwrap();
        assert_eq!(e.get().ok(), Some(7));
        writer.join().unwrap();
        // `join` may have used it up; a wait alone does not.
        thread::current().unpark();
        let (p, mut e) = promise::<u32, ()>();
        assert!(matches!(e.get_timeout(Duration::from_micros(200)), Err(EventualError::TimedOut)));
        thread::park();
        drop(p);
    });
}

#[test]
fn huge_and_zero_durations_mean_what_they_say() {
    let (p, mut e) = promise::<u32, ()>();
    for nothing in [Duration::ZERO, Duration::from_nanos(1)] {
        assert!(matches!(e.get_timeout(nothing), Err(EventualError::TimedOut)));
    }
    let passed = Deadline::after(Duration::ZERO);
    assert!(matches!(e.get_deadline(passed), Err(EventualError::TimedOut)));
    let writer = thread::spawn(move || p.set(7).unwrap());
    assert_eq!(e.get_timeout(Duration::MAX).ok(), Some(7));
    writer.join().unwrap();
    for huge in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(1 << 40)] {
        let (p, mut e) = promise::<u32, ()>();
        let shared = ready::<u32, ()>(1).share();
        let writer = thread::spawn(move || p.set(7).unwrap());
        assert_eq!(e.get_timeout(huge).ok(), Some(7));
        assert!(shared.get_timeout(huge).is_some());
        writer.join().unwrap();
        let (p, mut e) = promise::<u32, ()>();
        let writer = thread::spawn(move || p.set(7).unwrap());
        assert_eq!(e.get_deadline(Deadline::after(huge)).ok(), Some(7));
        writer.join().unwrap();
    }
    let (p, mut e) = promise::<u32, ()>();
    drop(p);
    assert!(matches!(e.get_deadline(Deadline::NEVER), Err(EventualError::Broken)));
}

/// One thread, tasks in order.
#[derive(Clone)]
struct Single(mpsc::Sender<Task>, ThreadId);

impl Executor for Single {
    fn execute(&self, task: Task) -> Result<(), Task> {
        self.0.send(task).map_err(|refused| refused.0)
    }
}

fn single() -> (Single, thread::JoinHandle<()>) {
    let (send, receive) = mpsc::channel::<Task>();
    let worker = thread::spawn(move || receive.into_iter().for_each(Task::run));
    (Single(send, worker.thread().id()), worker)
}

#[test]
fn an_executor_is_honoured_whether_the_value_is_there_or_not() {
    let (executor, worker) = single();
    for set_first in [false, true] {
        for stage in [false, true] {
            let (p, e) = promise::<u32, ()>();
            let mut p = Some(p);
            if set_first {
                p.take().unwrap().set(1).unwrap();
            }
            let (tell, told) = mpsc::channel();
            if stage {
                e.via(executor.clone())
                    .map(move |_| tell.send(thread::current().id()).unwrap())
                    .on_complete(drop);
            } else {
                let tell = move |_| tell.send(thread::current().id()).unwrap();
                e.on_complete_via(executor.clone(), tell);
            }
            if let Some(p) = p {
                p.set(1).unwrap();
            }
            assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(executor.1));
        }
    }
    drop(executor);
    worker.join().unwrap();
}

#[test]
fn a_timed_wait_on_an_executors_only_thread_for_its_own_queue_ends() {
    let (executor, worker) = single();
    let (p, e) = promise::<u32, ()>();
    let behind = e.via(executor.clone()).map(|n| n + 1).unbind();
    let (tell, told) = mpsc::channel();
    let waits = move || {
        let mut behind = behind;
        // Only this thread could run what that waits for.
        p.set(1).unwrap();
        tell.send(behind.get_timeout(Duration::from_millis(5)).is_err()).unwrap();
        // It does once we return.
        behind.on_complete(move |outcome| tell.send(outcome.ok() == Some(2)).unwrap());
    };
    executor.execute(Task::new(waits)).ok().unwrap();
    for _ in 0..2 {
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true));
    }
    drop(executor);
    worker.join().unwrap();
}

#[test]
fn the_losers_of_any_are_asked_to_stop_and_keep_nothing() {
    let kept = Arc::new(());
    let (winner, first) = promise::<u32, ()>();
    let mut losers = Vec::new();
    let mut members = vec![first];
    for _ in 0..10 {
        let (p, e) = promise();
        let kept = Arc::clone(&kept);
        members.push(e.inspect(move |_| drop(kept)));
        losers.push(p);
    }
    let whole = any(members);
    winner.set(1).unwrap();
    assert_eq!(whole.get().ok(), Some(1));
    assert!(losers.iter().all(|p| p.is_cancelled()));
    // The stage between is a reader still; what it makes is for nobody.
    losers.into_iter().for_each(|p| p.set(2).unwrap());
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn handles_are_one_pointer_with_a_niche() {
    use std::mem::size_of;
    use tenure::promise::Promise;
    let pointer = size_of::<usize>();
    assert_eq!(size_of::<Promise<u64, u64>>(), pointer);
    assert_eq!(size_of::<Option<Promise<[u8; 99], ()>>>(), pointer);
    assert_eq!(size_of::<Eventual<u64, u64>>(), pointer);
    assert_eq!(size_of::<Option<Eventual<String, ()>>>(), pointer);
    assert_eq!(size_of::<Option<Task>>(), pointer);
}

#[test]
fn a_long_stream_of_completions_keeps_only_what_is_left() {
    let mut completions = tenure::promise::Completions::<usize, ()>::new();
    let (oldest, e) = promise();
    assert_eq!(completions.push(e), 0);
    for n in 1..1000 {
        assert_eq!(completions.push(ready(n)), n);
        assert!(matches!(completions.try_next(), Some((m, Ok(v))) if m == n && v == n));
    }
    assert_eq!(completions.len(), 1);
    oldest.set(0).unwrap();
    assert!(matches!(completions.next(), Some((0, Ok(0)))));
    assert!(completions.next().is_none());
    // Numbers go on.
    assert_eq!(completions.push(ready(1000)), 1000);
    assert!(matches!(completions.next(), Some((1000, Ok(1000)))));
}
