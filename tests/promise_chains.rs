//! A million stages on a 64 KiB stack, in five shapes; and the memory comes back.
//!
//! Each shape lives and dies on one thread, whose memory alone is counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use tenure::promise::{Eventual, EventualError, Promise, failed, promise, ready, trim_pool};

struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: the system's allocator, and a count beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const STAGES: usize = 1_000_000;
const LOOP: usize = 30_000;

type P = Promise<usize, ()>;
type Ev = Eventual<usize, ()>;

/// `map` and `and_then` in turn, the latter ready every other time.
fn chain() -> (P, Ev) {
    let (p, mut e) = promise();
    for n in 0..STAGES {
        e = match n % 3 {
            0 => e.map(|n| n + 1),
            1 => e.and_then(|n| ready(n + 1)),
            _ => e.and_then(|n| {
                // Not ready when it is handed over.
                let (inner, inner_e) = promise();
                let (inner_e, last) = (inner_e.map(|n: usize| n), inner);
                let e = inner_e;
                last.set(n + 1).unwrap();
                e
            }),
        };
    }
    (p, e)
}

fn set_at_the_head() {
    let (p, e) = chain();
    p.set(0).unwrap();
    assert_eq!(e.get().unwrap(), STAGES);
}

fn drop_the_head() {
    let (p, e) = chain();
    drop(p);
    assert!(matches!(e.get(), Err(EventualError::Broken)));
}

fn drop_the_tail() {
    let (p, e) = chain();
    drop(e);
    assert!(p.is_cancelled());
    let _ = p.set(0);
}

fn cancel_from_the_tail() {
    let ran = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&ran);
    let (mut p, e) = chain();
    p.on_cancel(move || tell.store(true, Ordering::SeqCst));
    assert!(e.cancel());
    assert!(p.is_cancelled());
    assert!(ran.load(Ordering::SeqCst));
    drop(p);
    assert!(matches!(e.get(), Err(EventualError::Cancelled)));
}

fn callbacks_that_complete_the_next() {
    let (first, mut e) = promise::<usize, ()>();
    for _ in 0..STAGES {
        let (p, next) = promise();
        e.on_complete(move |outcome| p.set(outcome.unwrap() + 1).unwrap());
        e = next;
    }
    let last = Arc::new(AtomicUsize::new(0));
    let tell = Arc::clone(&last);
    e.on_complete(move |outcome| tell.store(outcome.unwrap(), Ordering::SeqCst));
    first.set(0).unwrap();
    assert_eq!(last.load(Ordering::SeqCst), STAGES);
}

/// How a step goes on to the next one.
type Through = fn(Ev, usize, std::sync::mpsc::Sender<P>) -> Ev;

/// A loop written as recursion: each step waits for something that comes later, and then for the next
/// step. What is over is not kept.
fn steps(left: usize, next: std::sync::mpsc::Sender<P>, through: Through) -> Ev {
    let (p, e) = promise();
    next.send(p).unwrap();
    if left == 0 { e } else { through(e, left - 1, next) }
}

const LOOPS: [Through; 3] = [
    |e, left, next| e.and_then(move |_| steps(left, next, LOOPS[0])),
    |e, left, next| {
        e.then(move |outcome| match outcome {
            Ok(_) => steps(left, next, LOOPS[1]),
            Err(_) => failed(()),
        })
    },
    |e, left, next| {
        let bound = e.via(tenure::executor::Inline);
        bound.and_then(move |_| steps(left, next, LOOPS[2])).unbind()
    },
];

fn recursion_keeps_one_step() {
    for through in LOOPS {
        let (send, promises) = std::sync::mpsc::channel();
        let e = steps(LOOP, send, through);
        let step = |n: usize| promises.recv().unwrap().set(n).unwrap();
        (0..100).for_each(step);
        let early = LIVE.get();
        (100..LOOP).for_each(step);
        let grown = LIVE.get() - early;
        assert!(grown <= 16 << 10, "{grown} bytes after {LOOP} steps");
        assert!(!e.is_ready());
        step(7);
        assert_eq!(e.get().unwrap(), 7);

        // Given up in the middle: the step that is waited for is asked to stop.
        let (send, promises) = std::sync::mpsc::channel();
        let e = steps(usize::MAX, send, through);
        (0..1000).for_each(|n| promises.recv().unwrap().set(n).unwrap());
        let current = promises.recv().unwrap();
        assert!(!current.is_cancelled());
        drop(e);
        assert!(current.is_cancelled());
    }
}

/// Whoever kept the canceller of an inner step still reaches the step that is waited for, however it
/// was passed over; and nothing is kept.
fn an_inner_canceller_reaches_the_current_step() {
    for waits in [false, true] {
        let (send, promises) = std::sync::mpsc::channel();
        let inner = steps(usize::MAX, send, LOOPS[0]);
        let canceller = inner.canceller();
        let (first, outer) = promise::<usize, ()>();
        let e = outer.and_then(move |_| inner);
        let mut first = Some(first);
        if waits {
            promises.recv().unwrap().set(0).unwrap();
        }
        first.take().unwrap().set(0).unwrap();
        (0..100).for_each(|n| promises.recv().unwrap().set(n).unwrap());
        let current = promises.recv().unwrap();
        assert!(!current.is_cancelled());
        canceller.cancel();
        assert!(current.is_cancelled());
        drop(current);
        assert!(matches!(e.get(), Err(EventualError::Cancelled)));
    }
}

/// The same, where each step is complete when it is made, or as good as.
fn recursion_without_waiting_keeps_one_step() {
    fn steps(left: usize, seen: Arc<std::sync::atomic::AtomicIsize>) -> Ev {
        seen.fetch_max(LIVE.get(), Ordering::Relaxed);
        let (p, e) = promise();
        let through = e.and_then(move |n| if left == 0 { ready(n) } else { steps(left - 1, seen) });
        p.set(left).unwrap();
        through
    }
    let seen = Arc::new(std::sync::atomic::AtomicIsize::new(LIVE.get()));
    let before = LIVE.get();
    assert_eq!(steps(LOOP, Arc::clone(&seen)).get().unwrap(), 0);
    let most = seen.load(Ordering::Relaxed) - before;
    assert!(most <= 64 << 10, "{most} bytes at the most");
}

/// Completes while stages are still waiting for inner ones: the request and the outcome both cross.
fn cancellation_follows_the_chain_as_it_runs() {
    let (p, e) = promise::<usize, ()>();
    let (inner, inner_e) = promise::<usize, ()>();
    let mut e = e.and_then(move |_| inner_e);
    for _ in 0..1000 {
        e = e.map(|n| n + 1);
    }
    p.set(0).unwrap();
    assert!(!inner.is_cancelled());
    drop(e);
    assert!(inner.is_cancelled());
}

#[test]
fn a_million_stages_in_every_shape_on_a_small_stack_and_the_memory_comes_back() {
    for (name, shape) in [
        ("set", set_at_the_head as fn()),
        ("drop the head", drop_the_head),
        ("drop the tail", drop_the_tail),
        ("cancel", cancel_from_the_tail),
        ("recursion", callbacks_that_complete_the_next),
        ("cancel while it runs", cancellation_follows_the_chain_as_it_runs),
        ("a loop by recursion", recursion_keeps_one_step),
        ("a canceller inside a loop", an_inner_canceller_reaches_the_current_step),
        ("a loop that never waits", recursion_without_waiting_keeps_one_step),
    ] {
        let run = move || {
            // Once, so that what is made at first use is there before we count.
            ready::<usize, ()>(0).map(|n| n).get().unwrap();
            trim_pool();
            let before = LIVE.get();
            shape();
            let kept = LIVE.get() - before;
            assert!(kept <= 1 << 20, "{name}: a burst leaves {kept} bytes in a bounded pool");
            trim_pool();
            let left = LIVE.get() - before;
            assert_eq!(left, 0, "{name}: all of it comes back");
        };
        thread::Builder::new().stack_size(64 << 10).spawn(run).unwrap().join().unwrap();
    }
}
