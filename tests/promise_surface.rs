//! The wider surface: combinators, groups, shared outcomes, racing writers, slots, limits.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use tenure::executor::{Executor, Task, ThreadPerTask};
use tenure::promise::{
    Completions, Eventual, EventualError, Promise, SharedPromise, Slot, State, all, all_settled,
    any, any_ok, failed, first_n, promise, ready,
};

type P<T = u32> = Promise<T, &'static str>;
type Ev<T = u32> = Eventual<T, &'static str>;

fn pair() -> (P, Ev) {
    promise()
}

fn pairs(n: usize) -> (Vec<Option<P>>, Vec<Ev>) {
    (0..n).map(|_| pair()).map(|(p, e)| (Some(p), e)).unzip()
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

// ---- combinators ----------------------------------------------------------------------------

#[test]
fn recover_makes_a_value_of_anything() {
    assert_eq!(ready::<u32, &str>(1).recover(|_| 2).get().unwrap(), 1);
    assert_eq!(failed::<u32, &str>("x").recover(|_| 2).get().unwrap(), 2);
    let (p, e) = pair();
    let e = e.recover(|error| u32::from(matches!(error, EventualError::Broken)));
    drop(p);
    assert_eq!(e.get().unwrap(), 1);
    let e = ready::<u32, &str>(1).map(|_| -> u32 { panic!("on purpose") }).recover(|_| 3);
    assert_eq!(e.get().unwrap(), 3);
}

#[test]
fn then_and_transform_see_the_whole_outcome() {
    let (p, e) = pair();
    let e: Ev<bool> = e.then(|outcome| ready(outcome.is_err()));
    p.set_error("x").unwrap();
    assert!(e.get().unwrap());
    let (p, e) = pair();
    let e: Ev = e.transform(|outcome| outcome.map(|n| n + 1));
    p.set(1).unwrap();
    assert_eq!(e.get().unwrap(), 2);
}

#[test]
fn inspect_and_ensure_pass_the_outcome_on() {
    let seen = Arc::new(AtomicUsize::new(0));
    let look = || {
        let seen = Arc::clone(&seen);
        move || {
            seen.fetch_add(1, Ordering::SeqCst);
        }
    };
    let (p, e) = pair();
    let (first, second) = (look(), look());
    let e = e
        .inspect(move |outcome| {
            assert!(matches!(outcome, Ok(1)));
            first();
        })
        .ensure(second);
    p.set(1).unwrap();
    assert_eq!(e.get().unwrap(), 1);
    assert_eq!(seen.load(Ordering::SeqCst), 2);
    let (p, e) = pair();
    let e = e.ensure(look());
    drop(p);
    assert!(matches!(e.get(), Err(EventualError::Broken)));
    assert_eq!(seen.load(Ordering::SeqCst), 3);
    let e = ready::<u32, ()>(1).ensure(|| panic!("on purpose"));
    assert!(matches!(e.get(), Err(EventualError::Panicked(_))));
}

#[test]
fn flatten_and_zip() {
    let (p, e) = promise::<Ev, &str>();
    let e = e.flatten();
    let (p2, e2) = pair();
    p.set(e2).unwrap();
    p2.set(5).unwrap();
    assert_eq!(e.get().unwrap(), 5);

    let (p, e) = pair();
    let (p2, e2) = promise::<String, &str>();
    let both = e.zip(e2);
    p2.set("b".into()).unwrap();
    assert!(!both.is_ready());
    p.set(1).unwrap();
    assert_eq!(both.get().unwrap(), (1, "b".into()));

    // What goes wrong first, at once; the other is asked to stop.
    let (p, e) = pair();
    let (p2, e2) = pair();
    let both = e.zip(e2);
    p2.set_error("no").unwrap();
    assert!(matches!(both.get(), Err(EventualError::Failed("no"))));
    assert!(p.is_cancelled());

    // A cancellation reaches both.
    let (p, e) = pair();
    let (p2, e2) = pair();
    let both = e.zip(e2);
    assert!(both.cancel());
    assert!(p.is_cancelled() && p2.is_cancelled());
    p.set(1).unwrap();
    drop(p2);
    assert!(matches!(both.get(), Err(EventualError::Cancelled)));
}

// ---- groups ---------------------------------------------------------------------------------

#[test]
fn all_waits_for_all_in_the_order_given() {
    let (mut ps, es) = pairs(3);
    let whole = all(es);
    for n in [2, 0, 1] {
        assert!(!whole.is_ready());
        ps[n].take().unwrap().set(n as u32).unwrap();
    }
    assert_eq!(whole.get().unwrap(), [0, 1, 2]);
    assert!(all(Vec::<Ev>::new()).get().unwrap().is_empty());

    let (mut ps, es) = pairs(3);
    let whole = all(es);
    ps[1].take().unwrap().set_error("no").unwrap();
    assert!(matches!(whole.get(), Err(EventualError::Failed("no"))));
    for p in [0, 2] {
        let p = ps[p].take().unwrap();
        assert!(p.is_cancelled());
        assert!(p.set(1).is_err(), "the member was let go");
    }
}

#[test]
fn all_settled_waits_for_all_whatever_they_come_to() {
    let (mut ps, es) = pairs(3);
    let whole = all_settled(es.into_iter().chain([ready(7)]));
    ps[0].take().unwrap().set(0).unwrap();
    ps[1].take().unwrap().set_error("no").unwrap();
    drop(ps[2].take());
    let outcomes = whole.get().unwrap();
    assert!(matches!(outcomes[0], Ok(0)));
    assert!(matches!(outcomes[1], Err(EventualError::Failed("no"))));
    assert!(matches!(outcomes[2], Err(EventualError::Broken)));
    assert!(matches!(outcomes[3], Ok(7)));
}

#[test]
fn any_takes_the_first_and_lets_the_losers_go() {
    let (mut ps, es) = pairs(3);
    let whole = any(es);
    let cancelled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&cancelled);
    ps[0].as_mut().unwrap().on_cancel(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    ps[1].take().unwrap().set(1).unwrap();
    assert_eq!(whole.get().unwrap(), 1);
    assert_eq!(cancelled.load(Ordering::SeqCst), 1);
    assert!(ps[2].take().unwrap().set(2).is_err());
    assert!(matches!(any(Vec::<Ev>::new()).get(), Err(EventualError::Broken)));
    assert!(matches!(
        any([failed("x"), ready(1)]).get(),
        Err::<u32, _>(EventualError::Failed("x"))
    ));
}

#[test]
fn any_ok_passes_over_errors() {
    let (mut ps, es) = pairs(3);
    let whole = any_ok(es);
    ps[0].take().unwrap().set_error("no").unwrap();
    drop(ps[1].take());
    assert!(!whole.is_ready());
    ps[2].take().unwrap().set(2).unwrap();
    assert_eq!(whole.get().unwrap(), 2);
    let (mut ps, es) = pairs(2);
    let whole = any_ok(es);
    ps[0].take().unwrap().set_error("first").unwrap();
    ps[1].take().unwrap().set_error("last").unwrap();
    assert!(matches!(whole.get(), Err(EventualError::Failed("last"))));
}

#[test]
fn first_n_takes_n_values() {
    let (mut ps, es) = pairs(4);
    let whole = first_n(2, es);
    ps[3].take().unwrap().set(3).unwrap();
    ps[0].take().unwrap().set_error("no").unwrap();
    assert!(!whole.is_ready());
    ps[1].take().unwrap().set(1).unwrap();
    assert_eq!(whole.get().unwrap(), [(3, 3), (1, 1)]);
    assert!(ps[2].take().unwrap().is_cancelled());

    let (mut ps, es) = pairs(3);
    let whole = first_n(2, es);
    ps[0].take().unwrap().set_error("a").unwrap();
    ps[1].take().unwrap().set_error("b").unwrap();
    assert!(matches!(whole.get(), Err(EventualError::Failed("b"))));
    assert!(first_n(0, Vec::<Ev>::new()).get().unwrap().is_empty());
    assert!(matches!(first_n(2, [ready::<u32, ()>(1)]).get(), Err(EventualError::Broken)));
}

#[test]
fn groups_pass_cancellation_on_and_groups_of_groups_do_not_grow_the_stack() {
    let (ps, es) = pairs(3);
    drop(all(es));
    assert!(ps.iter().flatten().all(Promise::is_cancelled));

    let run = || {
        let (p, e) = pair();
        let mut whole = e;
        for _ in 0..10_000 {
            whole = any([whole]);
        }
        p.set(1).unwrap();
        assert_eq!(whole.get().unwrap(), 1);
    };
    thread::Builder::new().stack_size(128 << 10).spawn(run).unwrap().join().unwrap();
}

#[test]
fn completions_come_in_the_order_in_which_they_complete() {
    let (mut ps, es) = pairs(3);
    let mut completions: Completions<_, _> = es.into_iter().collect();
    assert!(completions.try_next().is_none());
    let (count, waker) = {
        let count = Arc::new(Count::default());
        (Arc::clone(&count), Waker::from(count))
    };
    let cx = &mut Context::from_waker(&waker);
    assert!(completions.poll_next(cx).is_pending());
    ps[2].take().unwrap().set(2).unwrap();
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(matches!(completions.poll_next(cx), Poll::Ready(Some((2, Ok(2))))));
    assert_eq!(completions.len(), 2);
    assert_eq!(completions.push(ready(9)), 3);
    assert!(matches!(completions.try_next(), Some((3, Ok(9)))));
    let first = ps[0].take().unwrap();
    let writer = thread::spawn(move || first.set(0));
    assert!(matches!(completions.next(), Some((0, Ok(0)))));
    writer.join().unwrap().unwrap();
    let last = ps[1].take().unwrap();
    assert!(!last.is_cancelled());
    drop(completions);
    assert!(last.is_cancelled());
    let mut none = Completions::<u32, ()>::new();
    assert!(none.is_empty() && none.next().is_none());
    assert!(matches!(none.poll_next(cx), Poll::Ready(None)));
}

// ---- shared ---------------------------------------------------------------------------------

#[test]
fn a_shared_outcome_is_read_by_reference_by_many() {
    let (p, e) = promise::<String, ()>();
    let shared = e.share();
    assert!(shared.peek().is_none());
    assert!(shared.get_timeout(Duration::ZERO).is_none());
    assert!(shared.get_timeout(Duration::from_millis(1)).is_none());
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || shared.get().unwrap().len())
        })
        .collect();
    p.set("four".into()).unwrap();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), 4);
    }
    assert_eq!(shared.get().unwrap(), "four");
    assert_eq!(shared.get_timeout(Duration::MAX).unwrap().unwrap(), "four");
}

#[test]
fn shared_callbacks_run_in_the_order_of_their_registration() {
    let (p, e) = pair();
    let shared = e.share();
    let order = Arc::new(Mutex::new(Vec::new()));
    for n in 0..100 {
        let order = Arc::clone(&order);
        shared.on_complete(move |outcome| {
            order.lock().unwrap().push(n);
            assert_eq!(*outcome.unwrap(), 7);
            assert!(n % 10 != 3, "on purpose");
        });
    }
    // A callback keeps the interest alive.
    drop(shared);
    assert!(!p.is_cancelled());
    p.set(7).unwrap();
    assert_eq!(*order.lock().unwrap(), (0..100).collect::<Vec<_>>());
}

#[test]
fn shared_futures_wake_and_unregister() {
    let (p, e) = pair();
    let shared = e.share();
    let counts: Vec<_> = (0..40).map(|_| Arc::new(Count::default())).collect();
    let mut futures: Vec<_> = counts.iter().map(|_| (&shared).into_future()).collect();
    for (future, count) in futures.iter_mut().zip(&counts) {
        for _ in 0..2 {
            let waker = Waker::from(Arc::clone(count));
            assert!(Pin::new(&mut *future).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(Arc::strong_count(count), 2);
    }
    // Every other one is dropped: first, last, in between.
    let mut at = 0;
    futures.retain(|_| {
        at += 1;
        at % 2 == 0
    });
    p.set(1).unwrap();
    for (n, count) in counts.iter().enumerate() {
        assert_eq!(count.0.load(Ordering::SeqCst), n % 2, "{n}");
        assert_eq!(Arc::strong_count(count), 1);
    }
    for future in &mut futures {
        let polled = Pin::new(future).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(1))));
    }
}

#[test]
fn a_shared_callback_may_register_set_and_drop() {
    let (p, e) = pair();
    let shared = e.share();
    let again = shared.clone();
    let (other, other_e) = pair();
    let (tell, told) = mpsc::channel();
    shared.on_complete(move |_| {
        let inner = tell.clone();
        again.on_complete(move |outcome| inner.send(*outcome.unwrap()).unwrap());
        other.set(5).unwrap();
        drop(again);
    });
    p.set(1).unwrap();
    assert_eq!(told.recv().unwrap(), 1);
    assert_eq!(other_e.get().unwrap(), 5);
    let made: Ev = shared.then(|outcome| Ok(*outcome.unwrap() + 1));
    assert_eq!(made.get().unwrap(), 2);
    let made: Ev = shared.then(|_| panic!("on purpose"));
    assert!(matches!(made.get(), Err(EventualError::Panicked(_))));
}

#[test]
fn the_last_clone_asks_the_writer_to_stop() {
    let (p, e) = pair();
    let shared = e.share();
    let other = shared.clone();
    drop(shared);
    assert!(!p.is_cancelled());
    drop(other);
    assert!(p.is_cancelled());
    let (p, e) = pair();
    let shared = e.share();
    shared.cancel();
    assert!(p.is_cancelled());
    drop(p);
    assert!(matches!(shared.get(), Err(EventualError::Cancelled)));
}

// ---- racing writers, slots, limits, cancelled ------------------------------------------------

#[test]
fn of_racing_writers_the_first_wins() {
    for _ in 0..200 {
        let (p, e) = pair();
        let shared = SharedPromise::from(p);
        let writers: Vec<_> = (0..3)
            .map(|n| {
                let shared = shared.clone();
                thread::spawn(move || shared.try_set(n).is_ok())
            })
            .collect();
        let won: Vec<_> = writers.into_iter().map(|w| w.join().unwrap()).collect();
        assert_eq!(won.iter().filter(|won| **won).count(), 1);
        assert!(shared.is_claimed());
        assert!(won[e.get().unwrap() as usize]);
        assert_eq!(shared.try_set_error("late").unwrap_err().into_inner(), "late");
        assert_eq!(shared.try_complete(Ok(1)).unwrap_err().into_inner(), Ok(1));
    }
    let (p, e) = pair();
    let shared = SharedPromise::from(p);
    assert!(!shared.is_cancelled());
    assert!(e.cancel());
    assert!(shared.is_cancelled());
    drop(shared);
    assert!(matches!(e.get(), Err(EventualError::Cancelled)));
    let (p, e) = pair();
    drop(SharedPromise::from(p).clone());
    assert!(matches!(e.get(), Err(EventualError::Broken)));
    let (p, e) = pair();
    drop(e);
    assert!(SharedPromise::from(p).is_cancelled());
}

#[test]
fn a_slot_is_used_again_and_survives_its_pairs_and_they_it() {
    let mut slot = Slot::<String, ()>::new();
    for n in 0..100 {
        assert!(slot.is_free());
        let (p, e) = slot.pair();
        assert!(!slot.is_free());
        p.set(n.to_string()).unwrap();
        assert_eq!(e.get().unwrap(), n.to_string());
    }
    // Busy: the next comes from elsewhere.
    let (p1, e1) = slot.pair();
    let (p2, e2) = slot.pair();
    p2.set("2".into()).unwrap();
    assert_eq!(e2.get().unwrap(), "2");
    drop(slot);
    p1.set("1".into()).unwrap();
    assert_eq!(e1.map(|s| s + "!").get().unwrap(), "1!");
    // Dropped unused, and with a value inside.
    drop(Slot::<String, ()>::default());
    let mut slot = Slot::<String, ()>::new();
    let (p, e) = slot.pair();
    p.set("unread".into()).unwrap();
    drop(slot);
    drop(e);
}

/// Keeps tasks until told that their time has come.
#[derive(Default)]
struct ByHand(Mutex<Vec<(Duration, Held)>>);

type Held = Arc<Mutex<Option<Task>>>;

struct Entry(Held);

impl Drop for Entry {
    fn drop(&mut self) {
        drop(self.0.lock().unwrap().take());
    }
}

impl tenure::promise::Timer for ByHand {
    type Entry = Entry;

    fn after(&self, delay: Duration, task: Task) -> Entry {
        let task = Arc::new(Mutex::new(Some(task)));
        self.0.lock().unwrap().push((delay, Arc::clone(&task)));
        Entry(task)
    }
}

impl ByHand {
    fn fire(&self) -> usize {
        let due = std::mem::take(&mut *self.0.lock().unwrap());
        let tasks: Vec<_> = due.iter().filter_map(|(_, t)| t.lock().unwrap().take()).collect();
        let n = tasks.len();
        tasks.into_iter().for_each(Task::run);
        n
    }
}

#[test]
fn a_limit_ends_what_takes_too_long() {
    let timer = ByHand::default();
    let (p, e) = pair();
    let e = e.within(Duration::from_secs(5), &timer);
    assert_eq!(timer.0.lock().unwrap()[0].0, Duration::from_secs(5));
    assert!(!p.is_cancelled());
    assert_eq!(timer.fire(), 1);
    assert!(matches!(e.get(), Err(EventualError::TimedOut)));
    assert!(p.is_cancelled());
    // Nobody is left, but the value does not come back: the limit stood between.
    let _ = p.set(1);

    let (p, e) = pair();
    let e = e.within(Duration::MAX, &timer);
    p.set(1).unwrap();
    assert_eq!(e.get().unwrap(), 1);
    assert_eq!(timer.fire(), 0, "the entry was taken back");

    let (p, e) = pair();
    assert!(matches!(e.within(Duration::ZERO, &timer).get(), Err(EventualError::TimedOut)));
    assert!(p.is_cancelled());
    assert_eq!(ready::<u32, ()>(1).within(Duration::ZERO, &timer).get().unwrap(), 1);

    let (p, e) = pair();
    let e = e.within(Duration::from_secs(1), &timer);
    assert!(e.cancel());
    assert!(p.is_cancelled());
    drop(p);
    assert!(matches!(e.get(), Err(EventualError::Cancelled)));

    // A timer that runs the task at once, and one that drops it.
    let (_p, e) = pair();
    let at_once = |_: Duration, task: Task| task.run();
    assert!(matches!(
        e.within(Duration::from_secs(1), &at_once).get(),
        Err(EventualError::TimedOut)
    ));
    let (p, e) = pair();
    let never = |_: Duration, task: Task| drop(task);
    let e = e.within(Duration::from_secs(1), &never);
    p.set(1).unwrap();
    assert_eq!(e.get().unwrap(), 1);
}

#[test]
fn a_writer_waits_for_cancellation_asynchronously() {
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let cx = &mut Context::from_waker(&waker);
    let (mut p, e) = pair();
    assert!(p.poll_cancelled(cx).is_pending());
    assert!(e.cancel());
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(p.poll_cancelled(cx).is_ready());
    drop((p, e));

    // With a hook beside it, through a chain, and by dropping.
    let (mut p, e) = pair();
    let hook = Arc::new(AtomicUsize::new(0));
    let tell = Arc::clone(&hook);
    p.on_cancel(move || {
        tell.fetch_add(1, Ordering::SeqCst);
    });
    assert!(p.poll_cancelled(cx).is_pending());
    drop(e.map(|n| n + 1));
    assert_eq!(count.0.load(Ordering::SeqCst), 2);
    assert_eq!(hook.load(Ordering::SeqCst), 1);
    assert!(p.poll_cancelled(cx).is_ready());
    drop(p);

    // The waker is let go when the promise is set.
    let (mut p, e) = pair();
    assert!(p.poll_cancelled(cx).is_pending());
    p.set(1).unwrap();
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 1);
    drop(e);
    let (mut p, e) = pair();
    drop(e);
    assert!(std::pin::pin!(p.cancelled()).poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn a_canceller_works_apart_from_the_eventual() {
    let (p, e) = pair();
    let canceller = e.canceller();
    e.on_complete(|_| ());
    assert!(!p.is_cancelled());
    canceller.clone().cancel();
    assert!(p.is_cancelled());
    let mut e: Ev = ready(1);
    assert!(e.try_get().is_some());
    assert_eq!(e.state(), State::ValueMoved);
    e.canceller().cancel();
}

#[test]
fn a_thread_per_task() {
    let (tell, told) = mpsc::channel();
    let (p, e) = pair();
    e.via(ThreadPerTask).map(|n| n + 1).on_complete(move |outcome| {
        tell.send((outcome.unwrap(), thread::current().id())).unwrap();
    });
    p.set(1).unwrap();
    let (n, there) = told.recv().unwrap();
    assert_eq!(n, 2);
    assert_ne!(there, thread::current().id());
}

#[cfg(feature = "tokio")]
#[test]
fn tokio_runs_tasks_and_rejects_them_once_it_is_down() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let handle = runtime.handle().clone();
    let (p, e) = pair();
    let e = e.via(handle.clone()).map(|n| n + 1).unbind();
    p.set(1).unwrap();
    assert_eq!(runtime.block_on(e).unwrap(), 2);
    drop(runtime);
    let (p, e) = pair();
    let e = e.via(handle).map(|n| n + 1).unbind();
    p.set(1).unwrap();
    assert!(matches!(e.get(), Err(EventualError::Rejected)));
}

#[cfg(feature = "rayon")]
#[test]
fn rayon_runs_tasks() {
    let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap());
    let (p, e) = pair();
    let e = e.via(pool).map(|n| n + 1).unbind().via(tenure::executor::RayonGlobal).map(|n| n + 1);
    p.set(1).unwrap();
    assert_eq!(e.unbind().get().unwrap(), 3);
}

#[cfg(feature = "futures")]
#[test]
fn fused_future_and_stream() {
    use futures::StreamExt;
    use futures::future::FusedFuture;
    let mut e: Ev = ready(1);
    assert!(!e.is_terminated());
    assert!(e.try_get().is_some());
    assert!(e.is_terminated());
    let completions: Completions<u32, ()> = [ready(1), ready(2)].into_iter().collect();
    let all = futures::executor::block_on(StreamExt::collect::<Vec<_>>(completions));
    assert_eq!(all.len(), 2);
}

/// An executor that runs tasks on the thread that asks for it, later.
#[test]
fn an_executor_may_run_tasks_from_a_plain_channel() {
    struct Channel(mpsc::Sender<Task>);
    impl Executor for Channel {
        fn execute(&self, task: Task) -> Result<(), Task> {
            self.0.send(task).map_err(|back| back.0)
        }
    }
    let (send, receive) = mpsc::channel();
    let (p, e) = pair();
    let e = e.via(Arc::new(Channel(send.clone()))).map(|n| n + 1).unbind();
    p.set(1).unwrap();
    receive.recv().unwrap().run();
    assert_eq!(e.get().unwrap(), 2);
    drop(receive);
    let (p, e) = pair();
    let e = e.via(Arc::new(Channel(send))).map(|n| n + 1).unbind();
    p.set(1).unwrap();
    assert!(matches!(e.get(), Err(EventualError::Rejected)));
}
