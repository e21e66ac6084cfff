//! Promise and Eventual through the public API: what happens in every state.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use tenure::executor::{Executor, Inline, Task};
use tenure::promise::{Eventual, EventualError, Outcome, Promise, State, failed, promise, ready};

type P<T = u32> = Promise<T, &'static str>;
type Ev<T = u32> = Eventual<T, &'static str>;

fn pair() -> (P, Ev) {
    promise()
}

fn poll<T, E>(eventual: &mut Eventual<T, E>, waker: &Waker) -> Poll<Outcome<T, E>> {
    Pin::new(eventual).poll(&mut Context::from_waker(waker))
}

/// Counts how often it was woken and whether it still exists.
#[derive(Default)]
struct Count {
    wakes: AtomicUsize,
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }
}

fn counting() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count::default());
    (Arc::clone(&count), Waker::from(count))
}

/// Counts its drops.
#[derive(Clone, Debug)]
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

// ---- set × every way to read ----------------------------------------------------------------

#[test]
fn a_value_is_read_once_by_every_way_of_asking() {
    let (p, e) = pair();
    assert_eq!(e.state(), State::Initial);
    p.set(1).unwrap();
    assert_eq!(e.state(), State::ResultSet);
    assert_eq!(e.get().unwrap(), 1);

    let (p, mut e) = pair();
    assert!(e.try_get().is_none());
    p.set(2).unwrap();
    assert_eq!(e.try_get().unwrap().unwrap(), 2);
    assert_eq!(e.state(), State::ValueMoved);
    assert!(matches!(e.try_get(), Some(Err(EventualError::Taken))));
    assert!(matches!(e.get_timeout(Duration::MAX), Err(EventualError::Taken)));
    assert!(matches!(poll(&mut e, Waker::noop()), Poll::Ready(Err(EventualError::Taken))));
    assert!(!e.cancel());
    assert!(matches!(e.get(), Err(EventualError::Taken)));

    let (p, mut e) = pair();
    let (count, waker) = counting();
    assert!(poll(&mut e, &waker).is_pending());
    p.set(3).unwrap();
    assert_eq!(count.wakes.load(Ordering::SeqCst), 1);
    assert!(matches!(poll(&mut e, &waker), Poll::Ready(Ok(3))));
    assert!(matches!(poll(&mut e, &waker), Poll::Ready(Err(EventualError::Taken))));
}

#[test]
fn an_error_is_told_from_a_broken_promise() {
    let (p, e) = pair();
    p.set_error("no").unwrap();
    assert_eq!(e.state(), State::ExceptionSet);
    assert!(matches!(e.get(), Err(EventualError::Failed("no"))));

    let (p, e) = pair();
    drop(p);
    assert_eq!(e.state(), State::ExceptionSet);
    assert!(matches!(e.get(), Err(EventualError::Broken)));
}

#[test]
fn a_set_that_nobody_can_receive_gives_the_value_back() {
    let (p, e) = pair();
    drop(e);
    assert!(p.is_cancelled());
    assert_eq!(p.set(5).unwrap_err().into_inner(), 5);

    let (p, e) = pair();
    e.detach();
    assert!(!p.is_cancelled());
    assert_eq!(p.set_error("x").unwrap_err().into_inner(), "x");

    let (p, e) = pair();
    e.detach();
    assert_eq!(p.complete(Ok(1)).unwrap_err().into_inner(), Ok(1));
}

#[test]
fn a_value_nobody_took_is_dropped_once_by_whoever_leaves_second() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (p, e) = promise::<_, ()>();
    p.set(Dropped(Arc::clone(&drops))).unwrap();
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(e);
    assert_eq!(drops.load(Ordering::SeqCst), 1);

    let (p, e) = promise::<_, ()>();
    p.set(Dropped(Arc::clone(&drops))).unwrap();
    drop(e.get());
    assert_eq!(drops.load(Ordering::SeqCst), 2);
}

#[test]
fn ready_and_failed_are_complete_from_the_start() {
    assert_eq!(ready::<_, ()>(4).get().unwrap(), 4);
    assert!(matches!(failed::<(), _>(4).get(), Err(EventualError::Failed(4))));
    assert_eq!(ready::<_, ()>(4).state(), State::ResultSet);
    drop(ready::<_, ()>(String::from("unread")));
    ready::<_, ()>(String::from("unread")).detach();
}

#[test]
fn handles_are_one_pointer_and_have_a_niche() {
    assert_eq!(size_of::<Promise<String, String>>(), size_of::<usize>());
    assert_eq!(size_of::<Option<Promise<String, String>>>(), size_of::<usize>());
    assert_eq!(size_of::<Option<Eventual<[u64; 9], String>>>(), size_of::<usize>());
    assert_eq!(size_of::<Option<Task>>(), size_of::<usize>());
}

// ---- waiting --------------------------------------------------------------------------------

#[test]
fn get_waits_for_another_thread() {
    let (p, e) = pair();
    let (begin, started) = mpsc::channel();
    let reader = thread::spawn(move || {
        begin.send(()).unwrap();
        e.get()
    });
    started.recv().unwrap();
    p.set(7).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), 7);
}

#[test]
fn a_timeout_loses_nothing() {
    let (p, mut e) = pair();
    assert!(matches!(e.get_timeout(Duration::ZERO), Err(EventualError::TimedOut)));
    assert!(matches!(e.get_timeout(Duration::from_nanos(1)), Err(EventualError::TimedOut)));
    assert!(matches!(e.get_timeout(Duration::from_millis(1)), Err(EventualError::TimedOut)));
    assert_eq!(e.state(), State::Initial);
    p.set(7).unwrap();
    assert_eq!(e.get_timeout(Duration::ZERO).unwrap(), 7);
}

#[test]
fn the_longest_timeout_is_for_ever() {
    let (p, mut e) = pair();
    let reader = thread::spawn(move || e.get_timeout(Duration::MAX));
    p.set(7).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), 7);
    let (p, mut e) = pair();
    let reader = thread::spawn(move || e.get_deadline(tenure::wait::Deadline::NEVER));
    drop(p);
    assert!(matches!(reader.join().unwrap(), Err(EventualError::Broken)));
}

#[test]
fn a_deadline_that_has_passed_does_not_block() {
    let (_p, mut e) = pair();
    let past = tenure::wait::Deadline::after(Duration::ZERO);
    assert!(matches!(e.get_deadline(past), Err(EventualError::TimedOut)));
}

// ---- polling --------------------------------------------------------------------------------

#[test]
fn the_last_waker_polled_wins_and_every_waker_is_released() {
    let (p, mut e) = pair();
    let (first, waker) = counting();
    assert!(poll(&mut e, &waker).is_pending());
    assert!(poll(&mut e, &waker).is_pending());
    drop(waker);
    assert_eq!(Arc::strong_count(&first), 2);
    let (second, waker) = counting();
    assert!(poll(&mut e, &waker).is_pending());
    drop(waker);
    assert_eq!(Arc::strong_count(&first), 1);
    let (third, waker) = counting();
    assert!(poll(&mut e, &waker).is_pending());
    drop(waker);
    p.set(1).unwrap();
    assert_eq!(first.wakes.load(Ordering::SeqCst), 0);
    assert_eq!(second.wakes.load(Ordering::SeqCst), 0);
    assert_eq!(third.wakes.load(Ordering::SeqCst), 1);
    assert_eq!(Arc::strong_count(&third), 1);
    assert_eq!(e.get().unwrap(), 1);
}

#[test]
fn a_dropped_reader_releases_its_waker() {
    let (p, mut e) = pair();
    let (count, waker) = counting();
    assert!(poll(&mut e, &waker).is_pending());
    drop(waker);
    drop(e);
    assert_eq!(Arc::strong_count(&count), 1);
    assert_eq!(count.wakes.load(Ordering::SeqCst), 0);
    assert!(p.set(1).is_err());
}

#[test]
fn a_polled_eventual_can_still_be_got_called_back_or_mapped() {
    let (count, waker) = counting();
    let (p, mut e) = pair();
    assert!(poll(&mut e, &waker).is_pending());
    let got = Arc::new(AtomicUsize::new(0));
    let tell = Arc::clone(&got);
    e.on_complete(move |outcome| tell.store(outcome.unwrap() as usize, Ordering::SeqCst));
    p.set(3).unwrap();
    assert_eq!(got.load(Ordering::SeqCst), 3);

    let (p, mut e) = pair();
    assert!(poll(&mut e, &waker).is_pending());
    let e = e.map(|n| n + 1);
    p.set(3).unwrap();
    assert_eq!(e.get().unwrap(), 4);

    let (p, mut e) = pair();
    assert!(poll(&mut e, &waker).is_pending());
    let reader = thread::spawn(move || e.get());
    p.set(3).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), 3);
    assert!(count.wakes.load(Ordering::SeqCst) <= 1, "only the last one kept its waker");
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 1);
}

// ---- callbacks ------------------------------------------------------------------------------

#[test]
fn a_callback_runs_in_the_completing_thread_or_at_once() {
    let (tell, told) = mpsc::channel();
    let (p, e) = pair();
    let send = tell.clone();
    e.on_complete(move |outcome| {
        send.send((thread::current().id(), outcome.unwrap())).unwrap();
    });
    let writer = thread::spawn(move || {
        p.set(1).unwrap();
        thread::current().id()
    });
    let there = writer.join().unwrap();
    assert_eq!(told.recv().unwrap(), (there, 1));
    ready::<u32, ()>(2).on_complete(move |outcome| {
        tell.send((thread::current().id(), outcome.unwrap())).unwrap();
    });
    assert_eq!(told.recv().unwrap(), (thread::current().id(), 2));
}

#[test]
fn callbacks_of_every_size_run_and_drop_their_captures_once() {
    fn check<const N: usize>() {
        let drops = Arc::new(AtomicUsize::new(0));
        let captured = Dropped(Arc::clone(&drops));
        let padding = [7u8; N];
        let sum = Arc::new(AtomicUsize::new(0));
        let (p, e) = pair();
        let tell = Arc::clone(&sum);
        e.on_complete(move |outcome| {
            let _captured = captured;
            let all: usize = padding.iter().map(|&b| usize::from(b)).sum();
            tell.store(all + outcome.unwrap() as usize, Ordering::SeqCst);
        });
        p.set(1).unwrap();
        assert_eq!(sum.load(Ordering::SeqCst), N * 7 + 1);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }
    check::<0>();
    check::<1>();
    check::<40>();
    check::<100>();
    check::<200>();
    check::<3000>();
    // Nothing captured at all.
    let (p, e) = pair();
    e.on_complete(|outcome| assert!(outcome.is_ok()));
    p.set(1).unwrap();
}

#[test]
fn a_callback_hears_of_a_broken_promise() {
    let (tell, told) = mpsc::channel();
    let (p, e) = pair();
    e.on_complete(move |outcome| tell.send(outcome).unwrap());
    assert!(!p.is_cancelled());
    drop(p);
    assert!(matches!(told.recv().unwrap(), Err(EventualError::Broken)));
}

#[test]
fn a_callbacks_panic_does_not_reach_the_setter() {
    let (p, e) = pair();
    e.on_complete(|_| panic!("on purpose"));
    p.set(1).unwrap();
    ready::<u32, ()>(1).on_complete(|_| panic!("on purpose"));
}

// ---- stages ---------------------------------------------------------------------------------

#[test]
fn stages_pass_values_and_errors() {
    let (p, e) = pair();
    let e = e.map(|n| n + 1).map(|n| n * 2).map(|n| n.to_string());
    p.set(1).unwrap();
    assert_eq!(e.get().unwrap(), "4");

    let (p, e) = pair();
    let e = e.map(|n| n + 1).map_err(str::len).map(|n| n * 2);
    p.set_error("four").unwrap();
    assert!(matches!(e.get(), Err(EventualError::Failed(4))));

    let (p, e) = pair();
    let (p2, e2) = pair();
    let e = e.and_then(move |n| e2.map(move |m| n + m));
    p.set(1).unwrap();
    assert!(!e.is_ready());
    p2.set(2).unwrap();
    assert_eq!(e.get().unwrap(), 3);

    let (p, e) = pair();
    let e: Ev = e.or_else(|error| match error {
        EventualError::Broken => ready(9),
        _ => failed("other"),
    });
    drop(p);
    assert_eq!(e.get().unwrap(), 9);
}

#[test]
fn stages_on_a_complete_eventual_run_at_once() {
    let e: Ev<String> = ready(1).map(|n: u32| n + 1).and_then(|n| ready(n.to_string()));
    assert!(e.is_ready());
    assert_eq!(e.get().unwrap(), "2");
    let e: Ev = failed("x").map(|n: u32| n + 1);
    assert!(matches!(e.get(), Err(EventualError::Failed("x"))));
}

#[test]
fn stages_with_captures_of_every_size() {
    fn check<const N: usize>() {
        let drops = Arc::new(AtomicUsize::new(0));
        let captured = Dropped(Arc::clone(&drops));
        let padding = [1u8; N];
        let (p, e) = pair();
        let e = e.map(move |n| {
            let _captured = captured;
            n + padding.iter().map(|&b| u32::from(b)).sum::<u32>()
        });
        p.set(1).unwrap();
        assert_eq!(e.get().unwrap(), N as u32 + 1);
        assert_eq!(drops.load(Ordering::SeqCst), 1);

        // And when it never runs to a reader.
        let captured = Dropped(Arc::clone(&drops));
        let (p, e) = pair();
        let e = e.map(move |n| {
            let _captured = captured;
            n + u32::from(padding.first().copied().unwrap_or(0))
        });
        drop(e);
        drop(p);
        assert_eq!(drops.load(Ordering::SeqCst), 2);
    }
    check::<0>();
    check::<16>();
    check::<100>();
    check::<200>();
    check::<3000>();
}

#[test]
fn a_panic_in_a_stage_becomes_panicked_downstream() {
    let (p, e) = pair();
    let e = e.map(|_| -> u32 { panic!("on purpose") }).map(|n| n + 1);
    p.set(1).unwrap();
    match e.get() {
        Err(EventualError::Panicked(payload)) => assert_eq!(payload.message(), Some("on purpose")),
        other => panic!("{other:?}"),
    }
    let e = ready::<u32, ()>(1).and_then(|_| -> Eventual<u32, ()> { panic!("{}", 1 + 1) });
    match e.get() {
        Err(EventualError::Panicked(payload)) => assert_eq!(payload.message(), Some("2")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn complete_with_captures_a_panic() {
    let (p, e) = pair();
    p.complete_with(|| Ok(1)).unwrap();
    assert_eq!(e.get().unwrap(), 1);
    let (p, e) = pair();
    p.complete_with(|| panic!("on purpose")).unwrap();
    assert!(matches!(e.get(), Err(EventualError::Panicked(_))));
    let (p, e) = pair();
    drop(e);
    assert_eq!(p.complete_with(|| Err("e")).unwrap_err().into_inner(), Err("e"));
}

// ---- cancellation ---------------------------------------------------------------------------

#[test]
fn a_cancellation_is_a_request() {
    let (p, e) = pair();
    assert!(!p.is_cancelled());
    assert!(e.cancel());
    assert!(e.cancel());
    assert!(p.is_cancelled());
    assert_eq!(e.state(), State::Initial);
    p.set(1).unwrap();
    assert!(!e.cancel());
    assert_eq!(e.get().unwrap(), 1);

    let (p, e) = pair();
    assert!(e.cancel());
    drop(p);
    assert!(matches!(e.get(), Err(EventualError::Cancelled)));
    let (p, e) = pair();
    p.set_cancelled();
    assert!(matches!(e.get(), Err(EventualError::Cancelled)));
}

#[test]
fn a_hook_runs_once_when_the_reader_cancels_or_leaves() {
    let ran = Arc::new(AtomicUsize::new(0));
    let hook = |ran: &Arc<AtomicUsize>| {
        let ran = Arc::clone(ran);
        move || {
            ran.fetch_add(1, Ordering::SeqCst);
        }
    };
    let (mut p, e) = pair();
    p.on_cancel(hook(&ran));
    assert!(e.cancel());
    assert!(e.cancel());
    drop(e);
    assert_eq!(ran.swap(0, Ordering::SeqCst), 1);
    // Once asked, a new hook runs at once.
    p.on_cancel(hook(&ran));
    assert_eq!(ran.swap(0, Ordering::SeqCst), 1);
    drop(p);

    let (mut p, e) = pair();
    p.on_cancel(hook(&ran));
    p.on_cancel(hook(&ran));
    drop(e);
    assert_eq!(ran.swap(0, Ordering::SeqCst), 1);
    assert!(p.set(1).is_err());

    let (mut p, e) = pair();
    p.on_cancel(hook(&ran));
    e.detach();
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    assert_eq!(Arc::strong_count(&ran), 2);
    drop(p);
    assert_eq!(Arc::strong_count(&ran), 1);

    let (mut p, e) = pair();
    p.on_cancel(hook(&ran));
    p.set(1).unwrap();
    assert_eq!(Arc::strong_count(&ran), 1);
    drop(e);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

#[test]
fn a_cancellation_goes_up_a_chain() {
    let (p, e) = pair();
    let e = e.map(|n| n + 1).map(|n| n + 1).and_then(ready);
    assert!(!p.is_cancelled());
    assert!(e.cancel());
    assert!(p.is_cancelled());
    drop(p);
    assert!(matches!(e.get(), Err(EventualError::Cancelled)));

    let ran = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&ran);
    let (mut p, e) = pair();
    p.on_cancel(move || tell.store(true, Ordering::SeqCst));
    drop(e.map(|n| n + 1).map(|n| n + 1));
    assert!(ran.load(Ordering::SeqCst));
    assert!(p.is_cancelled());
}

#[test]
fn a_cancellation_reaches_the_inner_eventual_that_a_chain_waits_for() {
    // The inner one has a hook of its own.
    let ran = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&ran);
    let (outer, e) = pair();
    let (mut inner, inner_e) = pair();
    inner.on_cancel(move || tell.store(true, Ordering::SeqCst));
    let e = e.map(|n| n).and_then(move |_| inner_e).map(|n| n);
    outer.set(1).unwrap();
    assert!(!inner.is_cancelled());
    assert!(e.cancel());
    assert!(inner.is_cancelled());
    assert!(ran.load(Ordering::SeqCst));

    // It hangs its hook later.
    let ran = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&ran);
    let (outer, e) = pair();
    let (mut inner, inner_e) = pair();
    let e = e.and_then(move |_| inner_e);
    outer.set(1).unwrap();
    inner.on_cancel(move || tell.store(true, Ordering::SeqCst));
    drop(e);
    assert!(ran.load(Ordering::SeqCst));

    // The request came before the switch.
    let (outer, e) = pair();
    let (inner, inner_e) = pair();
    let e = e.and_then(move |_| inner_e.map(|n| n));
    assert!(e.cancel());
    outer.set(1).unwrap();
    assert!(inner.is_cancelled());
}

// ---- executors ------------------------------------------------------------------------------

/// Keeps tasks until told to run them.
#[derive(Clone, Default)]
struct Later(Arc<Mutex<Vec<Task>>>);

impl Executor for Later {
    fn execute(&self, task: Task) -> Result<(), Task> {
        self.0.lock().unwrap().push(task);
        Ok(())
    }
}

impl Later {
    fn take(&self) -> Vec<Task> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
    fn run(&self) -> usize {
        let tasks = self.take();
        let n = tasks.len();
        tasks.into_iter().for_each(Task::run);
        n
    }
}

#[derive(Clone)]
struct Refuses;
impl Executor for Refuses {
    fn execute(&self, task: Task) -> Result<(), Task> {
        Err(task)
    }
}

#[derive(Clone)]
struct Panics;
impl Executor for Panics {
    fn execute(&self, _task: Task) -> Result<(), Task> {
        panic!("on purpose")
    }
}

#[test]
fn callbacks_run_on_their_executor_also_when_ready() {
    let later = Later::default();
    let (tell, told) = mpsc::channel();
    let (p, e) = pair();
    let send = tell.clone();
    e.on_complete_via(later.clone(), move |outcome| send.send(outcome).unwrap());
    p.set(1).unwrap();
    assert!(told.try_recv().is_err());
    assert_eq!(later.run(), 1);
    assert!(matches!(told.recv().unwrap(), Ok(1)));

    let send = tell.clone();
    let e: Ev = ready(2);
    e.on_complete_via(later.clone(), move |outcome| send.send(outcome).unwrap());
    assert!(told.try_recv().is_err());
    assert_eq!(later.run(), 1);
    assert!(matches!(told.recv().unwrap(), Ok(2)));

    let (p, e) = pair();
    e.on_complete_via(Inline, move |outcome| tell.send(outcome).unwrap());
    p.set(3).unwrap();
    assert!(matches!(told.recv().unwrap(), Ok(3)));
}

#[test]
fn via_is_sticky_and_honoured_when_ready() {
    let later = Later::default();
    let (p, e) = pair();
    let e = e.via(later.clone()).map(|n| n + 1).map(|n| n + 1).unbind();
    p.set(1).unwrap();
    assert_eq!(later.run(), 1);
    assert!(!e.is_ready());
    assert_eq!(later.run(), 1);
    assert_eq!(e.get().unwrap(), 3);

    let e: Ev = ready(1);
    let e = e.via(later.clone()).and_then(|n| ready(n + 1)).unbind();
    assert!(!e.is_ready());
    assert_eq!(later.run(), 1);
    assert_eq!(e.get().unwrap(), 2);
}

#[test]
fn an_executor_that_does_not_run_a_task_rejects_what_hangs_on_it() {
    fn check(executor: impl Executor + Clone + Send + 'static, after: impl Fn()) {
        let drops = Arc::new(AtomicUsize::new(0));
        let (p, e) = promise::<Dropped, ()>();
        let (tell, told) = mpsc::channel();
        e.on_complete_via(executor.clone(), move |outcome| tell.send(outcome).unwrap());
        p.set(Dropped(Arc::clone(&drops))).unwrap();
        after();
        assert!(matches!(told.recv().unwrap(), Err(EventualError::Rejected)));
        assert_eq!(drops.load(Ordering::SeqCst), 1);

        let (p, e) = promise::<Dropped, ()>();
        let e = e.via(executor.clone()).map(|d| d).unbind().map(|d| d);
        p.set(Dropped(Arc::clone(&drops))).unwrap();
        after();
        assert!(matches!(e.get(), Err(EventualError::Rejected)));
        assert_eq!(drops.load(Ordering::SeqCst), 2);
    }
    check(Refuses, || ());
    check(Panics, || ());
    let later = Later::default();
    let drain = later.clone();
    check(later, move || drop(drain.take()));
}

#[test]
fn a_task_of_ones_own_runs_once_or_is_dropped() {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    Task::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    })
    .run();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let count = Arc::clone(&runs);
    drop(Task::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(Arc::strong_count(&runs), 1);
    Task::new(|| panic!("on purpose")).run();
}

// ---- re-entry -------------------------------------------------------------------------------

#[test]
fn callbacks_may_complete_drop_and_cancel_other_promises_however_deep() {
    // Each callback sets the next promise: 100,000 nested, on a small stack.
    let run = || {
        let last = Arc::new(AtomicUsize::new(0));
        let (first, mut e) = pair();
        for _ in 0..100_000 {
            let (p, next) = pair();
            e.on_complete(move |outcome| p.set(outcome.unwrap() + 1).unwrap());
            e = next;
        }
        let tell = Arc::clone(&last);
        e.on_complete(move |outcome| tell.store(outcome.unwrap() as usize, Ordering::SeqCst));
        first.set(0).unwrap();
        assert_eq!(last.load(Ordering::SeqCst), 100_000);

        // Each callback owns the next promise and drops it.
        let broken = Arc::new(AtomicBool::new(false));
        let (first, mut e) = pair();
        for _ in 0..100_000 {
            let (p, next) = pair();
            e.on_complete(move |_| drop(p));
            e = next;
        }
        let tell = Arc::clone(&broken);
        e.on_complete(move |outcome| tell.store(outcome.is_err(), Ordering::SeqCst));
        drop(first);
        assert!(broken.load(Ordering::SeqCst));

        // Each cancel hook drops the next reader.
        let (mut first, mut e) = pair();
        let mut writers = Vec::new();
        let last = e;
        first.on_cancel(|| ());
        writers.push(first);
        e = last;
        for _ in 0..100_000 {
            let (mut p, next) = pair();
            p.on_cancel(move || drop(e));
            writers.push(p);
            e = next;
        }
        drop(e);
        assert!(writers.iter().all(Promise::is_cancelled));
    };
    thread::Builder::new().stack_size(64 << 10).spawn(run).unwrap().join().unwrap();
}

#[test]
fn recursion_over_ready_eventuals_does_not_grow_the_stack() {
    fn count_down(n: u32, done: mpsc::Sender<()>) {
        let e: Ev = ready(n);
        e.on_complete(move |outcome| match outcome.unwrap() {
            0 => done.send(()).unwrap(),
            n => count_down(n - 1, done),
        });
    }
    let run = || {
        let (tell, told) = mpsc::channel();
        count_down(100_000, tell);
        told.try_recv().unwrap();
    };
    thread::Builder::new().stack_size(64 << 10).spawn(run).unwrap().join().unwrap();
}
