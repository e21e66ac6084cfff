//! One-shot hand-offs: this crate beside the peers, one group a row.
//!
//! ```text
//! cargo bench --bench promise -- --warm-up-time 0.3 --measurement-time 1
//! cargo run --release --example promise_ratios      # the ratios to the best peer
//! ```
//!
//! Medians on two cores of an AMD EPYC guest with nothing else running, by the first line:
//!
//! | row | tenure ns | best peer ns | ratio |
//! |---|---|---|---|
//! | create, set, take | 5.1 | oneshot 13.5 | 0.38 |
//! | create, poll, set, poll | 15.2 | oneshot 33.3 | 0.46 |
//! | create, drop writer, see | 7.3 | oneshot 17.9 | 0.41 |
//! | create, drop reader, see | 6.9 | oneshot 12.2 | 0.57 |
//! | shared, 1 / 8 / 64 callbacks | 82 / 197 / 802 | futures 268 / 1,107 / 6,179 | 0.31 / 0.18 / 0.13 |
//! | hand-off, hot | 497 | crossfire 228 | 2.18 (kanal 0.67, tokio 0.79) |
//! | hand-off, after 30 µs | 1,631 | kanal 3,542 | 0.46 (oneshot 0.11) |
//! | hand-off, after 300 µs | 40,300 | futures 38,000 | 1.06 |
//! | hand-off, parked | 579 | kanal 10,070 | 0.06 (the wait is learned: it spins) |
//! | hand-off, parked, one core | 6,470 | oneshot 6,170 | 1.05 |
//! | create, set, take, not pooled | 15.4–16.2 | oneshot 10.7–12.7 | 1.46 (bar 1.05, missed) |
//! | create, poll, set, poll, not pooled | 24.8 | oneshot 24.8 | 1.00 |
//! | 1,000 in flight | 39,300 | crossfire 90,000 | 0.44 |
//!
//! Not pooled: built with `--cfg tenure_sanitize`, medians of three runs; the core has room for a callback,
//! which the allocator charges for. From the run before: register callback, set 12.3 (0.16 of tokio and a
//! task); set, register 16.9 (0.38 of oneshot and a task); 1, 3, 10 maps and a callback 45, 64, 166
//! (0.66, 0.86, 0.50 of oneshot with tasks or boxed futures).
//!
//! Allocations for each operation, counted: none for set and take, callbacks (also with 40 bytes), three
//! maps, `ready` and the slot; one of 88 bytes for a shared outcome with four callbacks. The peers: one,
//! of 32 (oneshot), 48 (crossfire), 72 (tokio), 96 bytes (futures).
//!
//! Locked instructions are counted apart, in `tests/promise_locked.rs`.

use std::cell::{RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::future::Future;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use futures::FutureExt;

type Ev = tenure::promise::Eventual<u64, ()>;

fn pair() -> (tenure::promise::Promise<u64, ()>, Ev) {
    tenure::promise::promise()
}

fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn create_set_take(c: &mut Criterion) {
    let mut g = c.benchmark_group("create+set+take");
    g.bench_function("tenure", |b| {
        b.iter(|| {
            let (p, mut e) = pair();
            p.set(black_box(1)).unwrap();
            e.try_get().unwrap().ok().unwrap()
        });
    });
    g.bench_function("tenure ready", |b| {
        b.iter(|| tenure::promise::ready::<u64, ()>(black_box(1)).try_get().unwrap().ok().unwrap());
    });
    g.bench_function("oneshot", |b| {
        b.iter(|| {
            let (s, r) = oneshot::channel::<u64>();
            s.send(black_box(1)).unwrap();
            r.try_recv().unwrap()
        });
    });
    g.bench_function("tokio", |b| {
        b.iter(|| {
            let (s, mut r) = tokio::sync::oneshot::channel::<u64>();
            s.send(black_box(1)).unwrap();
            r.try_recv().unwrap()
        });
    });
    g.bench_function("futures", |b| {
        b.iter(|| {
            let (s, mut r) = futures::channel::oneshot::channel::<u64>();
            s.send(black_box(1)).unwrap();
            r.try_recv().unwrap().unwrap()
        });
    });
    g.bench_function("crossfire", |b| {
        b.iter(|| {
            let (s, mut r) = crossfire::oneshot::oneshot::<u64>();
            s.send(black_box(1));
            r.try_recv().unwrap()
        });
    });
    g.bench_function("std sync_channel", |b| {
        b.iter(|| {
            let (s, r) = mpsc::sync_channel::<u64>(1);
            s.send(black_box(1)).unwrap();
            r.try_recv().unwrap()
        });
    });
    g.finish();
}

fn create_poll_set_poll(c: &mut Criterion) {
    let waker = Waker::noop();
    let mut g = c.benchmark_group("create+poll+set+poll");
    g.bench_function("tenure", |b| {
        b.iter(|| {
            let (p, mut e) = pair();
            assert!(poll_once(&mut e, waker).is_pending());
            p.set(black_box(1)).unwrap();
            match poll_once(&mut e, waker) {
                Poll::Ready(Ok(n)) => n,
                _ => unreachable!(),
            }
        });
    });
    g.bench_function("oneshot", |b| {
        b.iter(|| {
            let (s, r) = oneshot::async_channel::<u64>();
            let mut r = r.into_future();
            assert!(poll_once(&mut r, waker).is_pending());
            s.send(black_box(1)).unwrap();
            poll_once(&mut r, waker).map(Result::unwrap)
        });
    });
    g.bench_function("tokio", |b| {
        b.iter(|| {
            let (s, mut r) = tokio::sync::oneshot::channel::<u64>();
            assert!(poll_once(&mut r, waker).is_pending());
            s.send(black_box(1)).unwrap();
            poll_once(&mut r, waker).map(Result::unwrap)
        });
    });
    g.bench_function("futures", |b| {
        b.iter(|| {
            let (s, mut r) = futures::channel::oneshot::channel::<u64>();
            assert!(poll_once(&mut r, waker).is_pending());
            s.send(black_box(1)).unwrap();
            poll_once(&mut r, waker).map(Result::unwrap)
        });
    });
    g.bench_function("crossfire", |b| {
        b.iter(|| {
            let (s, mut r) = crossfire::oneshot::oneshot::<u64>();
            assert!(poll_once(&mut r, waker).is_pending());
            s.send(black_box(1));
            poll_once(&mut r, waker).map(Result::unwrap)
        });
    });
    g.finish();
}

fn drop_either(c: &mut Criterion) {
    let mut g = c.benchmark_group("create+drop writer+see");
    g.bench_function("tenure", |b| {
        b.iter(|| {
            let (p, mut e) = pair();
            drop(p);
            e.try_get().unwrap().is_err()
        });
    });
    g.bench_function("oneshot", |b| {
        b.iter(|| {
            let (s, r) = oneshot::channel::<u64>();
            drop(s);
            r.try_recv().is_err()
        });
    });
    g.bench_function("tokio", |b| {
        b.iter(|| {
            let (s, mut r) = tokio::sync::oneshot::channel::<u64>();
            drop(s);
            r.try_recv().is_err()
        });
    });
    g.bench_function("futures", |b| {
        b.iter(|| {
            let (s, mut r) = futures::channel::oneshot::channel::<u64>();
            drop(s);
            r.try_recv().is_err()
        });
    });
    g.bench_function("crossfire", |b| {
        b.iter(|| {
            let (s, mut r) = crossfire::oneshot::oneshot::<u64>();
            drop(s);
            r.try_recv().is_err()
        });
    });
    g.bench_function("std sync_channel", |b| {
        b.iter(|| {
            let (s, r) = mpsc::sync_channel::<u64>(1);
            drop(s);
            r.try_recv().is_err()
        });
    });
    g.finish();

    let mut g = c.benchmark_group("create+drop reader+see");
    g.bench_function("tenure", |b| {
        b.iter(|| {
            let (p, e) = pair();
            drop(e);
            p.set(black_box(1)).is_err()
        });
    });
    g.bench_function("oneshot", |b| {
        b.iter(|| {
            let (s, r) = oneshot::channel::<u64>();
            drop(r);
            s.send(black_box(1)).is_err()
        });
    });
    g.bench_function("tokio", |b| {
        b.iter(|| {
            let (s, r) = tokio::sync::oneshot::channel::<u64>();
            drop(r);
            s.send(black_box(1)).is_err()
        });
    });
    g.bench_function("futures", |b| {
        b.iter(|| {
            let (s, r) = futures::channel::oneshot::channel::<u64>();
            drop(r);
            s.send(black_box(1)).is_err()
        });
    });
    g.bench_function("crossfire", |b| {
        b.iter(|| {
            let (s, r) = crossfire::oneshot::oneshot::<u64>();
            drop(r);
            s.is_disconnected()
        });
    });
    g.bench_function("std sync_channel", |b| {
        b.iter(|| {
            let (s, r) = mpsc::sync_channel::<u64>(1);
            drop(r);
            s.send(black_box(1)).is_err()
        });
    });
    g.finish();
}

/// What users of the peers write by hand to have a callback: a boxed future that is its own waker.
struct Task(std::sync::Mutex<Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        // Not locked while it is polled: a future may wake its own task.
        let taken = self.0.lock().unwrap().take();
        if let Some(mut future) = taken {
            let waker = Waker::from(Arc::clone(&self));
            if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                *self.0.lock().unwrap() = Some(future);
            }
        }
    }
}

fn spawn_callback(future: impl Future<Output = ()> + Send + 'static) {
    Arc::new(Task(std::sync::Mutex::new(Some(Box::pin(future))))).wake();
}

static SINK: AtomicU64 = AtomicU64::new(0);

fn sink(n: u64) {
    SINK.store(n, Ordering::Relaxed);
}

fn callbacks(c: &mut Criterion) {
    let mut g = c.benchmark_group("register callback+set");
    g.bench_function("tenure", |b| {
        b.iter(|| {
            let (p, e) = pair();
            e.on_complete(|outcome| sink(outcome.unwrap_or(0)));
            p.set(black_box(1)).unwrap();
        });
    });
    g.bench_function("oneshot+task", |b| {
        b.iter(|| {
            let (s, r) = oneshot::async_channel::<u64>();
            spawn_callback(async move { sink(r.await.unwrap_or(0)) });
            s.send(black_box(1)).unwrap();
        });
    });
    g.bench_function("tokio+task", |b| {
        b.iter(|| {
            let (s, r) = tokio::sync::oneshot::channel::<u64>();
            spawn_callback(async move { sink(r.await.unwrap_or(0)) });
            s.send(black_box(1)).unwrap();
        });
    });
    g.bench_function("futures+task", |b| {
        b.iter(|| {
            let (s, r) = futures::channel::oneshot::channel::<u64>();
            spawn_callback(async move { sink(r.await.unwrap_or(0)) });
            s.send(black_box(1)).unwrap();
        });
    });
    g.finish();

    let mut g = c.benchmark_group("set+register callback");
    g.bench_function("tenure", |b| {
        b.iter(|| {
            let (p, e) = pair();
            p.set(black_box(1)).unwrap();
            e.on_complete(|outcome| sink(outcome.unwrap_or(0)));
        });
    });
    g.bench_function("oneshot+task", |b| {
        b.iter(|| {
            let (s, r) = oneshot::async_channel::<u64>();
            s.send(black_box(1)).unwrap();
            spawn_callback(async move { sink(r.await.unwrap_or(0)) });
        });
    });
    g.finish();
}

fn stages(c: &mut Criterion) {
    let mut g = c.benchmark_group("1 map");
    g.bench_function("tenure", |b| {
        b.iter(|| {
            let (p, e) = pair();
            e.map(|n| n + 1).on_complete(|outcome| sink(outcome.unwrap_or(0)));
            p.set(black_box(1)).unwrap();
        });
    });
    g.bench_function("oneshot+task", |b| {
        b.iter(|| {
            let (s, r) = oneshot::async_channel::<u64>();
            let mapped = r.into_future().map(|n| n.map(|n| n + 1));
            spawn_callback(async move { sink(mapped.await.unwrap_or(0)) });
            s.send(black_box(1)).unwrap();
        });
    });
    g.finish();

    let mut g = c.benchmark_group("3 maps");
    g.bench_function("tenure", |b| {
        b.iter(|| {
            let (p, e) = pair();
            e.map(|n| n + 1)
                .map(|n| n + 1)
                .map(|n| n + 1)
                .on_complete(|outcome| sink(outcome.unwrap_or(0)));
            p.set(black_box(1)).unwrap();
        });
    });
    g.bench_function("oneshot+task", |b| {
        b.iter(|| {
            let (s, r) = oneshot::async_channel::<u64>();
            let mapped = r
                .into_future()
                .map(|n| n.map(|n| n + 1))
                .map(|n| n.map(|n| n + 1))
                .map(|n| n.map(|n| n + 1));
            spawn_callback(async move { sink(mapped.await.unwrap_or(0)) });
            s.send(black_box(1)).unwrap();
        });
    });
    g.finish();

    let mut g = c.benchmark_group("10 maps");
    g.bench_function("tenure", |b| {
        b.iter(|| {
            let (p, mut e) = pair();
            for _ in 0..10 {
                e = e.map(|n| n + 1);
            }
            e.on_complete(|outcome| sink(outcome.unwrap_or(0)));
            p.set(black_box(1)).unwrap();
        });
    });
    g.bench_function("oneshot+boxed futures", |b| {
        b.iter(|| {
            let (s, r) = oneshot::async_channel::<u64>();
            let mut f = r.into_future().map(|n| n.unwrap_or(0)).boxed();
            for _ in 0..10 {
                f = f.map(|n| n + 1).boxed();
            }
            spawn_callback(async move { sink(f.await) });
            s.send(black_box(1)).unwrap();
        });
    });
    g.finish();
}

/// The same for `Shared` of `futures`, which wakes under its lock: polled inside the wake, it would wait
/// for itself. A woken task goes to this thread's queue.
struct Queued(RefCell<Option<std::pin::Pin<Box<dyn Future<Output = ()>>>>>);

std::thread_local! {
    static QUEUE: RefCell<VecDeque<Arc<Queued>>> = const { RefCell::new(VecDeque::new()) };
}

// SAFETY: only for this bench, whose one thread makes, wakes and runs them.
unsafe impl Send for Queued {}
// SAFETY: as above.
unsafe impl Sync for Queued {}

impl Wake for Queued {
    fn wake(self: Arc<Self>) {
        QUEUE.with_borrow_mut(|queue| queue.push_back(self));
    }
}

fn queue_callback(future: impl Future<Output = ()> + 'static) {
    Arc::new(Queued(RefCell::new(Some(Box::pin(future))))).wake();
}

fn run_queue() {
    while let Some(task) = QUEUE.with_borrow_mut(VecDeque::pop_front) {
        let waker = Waker::from(Arc::clone(&task));
        let mut future = task.0.borrow_mut();
        if let Some(polled) = future.as_mut()
            && polled.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        {
            *future = None;
        }
    }
}

fn shared(c: &mut Criterion) {
    for n in [1usize, 4, 8, 64] {
        let mut g = c.benchmark_group(format!("shared, {n} callbacks"));
        g.bench_function("tenure", |b| {
            b.iter(|| {
                let (p, e) = pair();
                let shared = e.share();
                for _ in 0..n {
                    shared.on_complete(|outcome| sink(outcome.copied().unwrap_or(0)));
                }
                p.set(black_box(1)).unwrap();
            });
        });
        g.bench_function("futures Shared+tasks", |b| {
            b.iter(|| {
                let (s, r) = futures::channel::oneshot::channel::<u64>();
                let shared = r.shared();
                for _ in 0..n {
                    let each = shared.clone();
                    queue_callback(async move { sink(each.await.unwrap_or(0)) });
                }
                run_queue();
                s.send(black_box(1)).unwrap();
                run_queue();
            });
        });
        g.finish();
    }
}

/// A mailbox of one, on which both sides look without sleeping: what is timed is the answer's way.
struct Mailbox<R> {
    full: AtomicBool,
    closed: AtomicBool,
    cell: UnsafeCell<Option<R>>,
}

// SAFETY: `full` says whose the cell is.
unsafe impl<R: Send> Sync for Mailbox<R> {}

impl<R: Send + 'static> Mailbox<R> {
    fn post(&self, request: R) {
        while self.full.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: not full: the requester's.
        unsafe { *self.cell.get() = Some(request) };
        self.full.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<R> {
        while !self.full.load(Ordering::Acquire) {
            if self.closed.load(Ordering::Relaxed) {
                return None;
            }
            std::hint::spin_loop();
        }
        // SAFETY: full: the responder's.
        let request = unsafe { (*self.cell.get()).take() };
        self.full.store(false, Ordering::Release);
        request
    }
}

/// How requests reach the responder.
#[derive(Clone, Copy)]
enum Way {
    /// It looks for them: it is awake.
    Spinning,
    /// It sleeps until there is one.
    Parked,
}

enum Requests<R> {
    Spinning(Arc<Mailbox<R>>),
    Parked(mpsc::SyncSender<R>),
}

impl<R: Send + 'static> Requests<R> {
    fn post(&self, request: R) {
        match self {
            Self::Spinning(mailbox) => mailbox.post(request),
            Self::Parked(to) => to.send(request).unwrap(),
        }
    }
}

impl<R> Drop for Requests<R> {
    fn drop(&mut self) {
        if let Self::Spinning(mailbox) = self {
            mailbox.closed.store(true, Ordering::Relaxed);
        }
    }
}

/// A responder thread that answers each request when `hold` has passed.
fn respond<R: Send + 'static>(way: Way, hold: Duration, answer: fn(R, u64)) -> Requests<R> {
    let serve = move |request| {
        let start = Instant::now();
        while !hold.is_zero() && start.elapsed() < hold {
            std::hint::spin_loop();
        }
        answer(request, 1);
    };
    match way {
        Way::Spinning => {
            let mailbox = Arc::new(Mailbox {
                full: AtomicBool::new(false),
                closed: AtomicBool::new(false),
                cell: UnsafeCell::new(None),
            });
            let theirs = Arc::clone(&mailbox);
            thread::spawn(move || {
                while let Some(request) = theirs.take() {
                    serve(request)
                }
            });
            Requests::Spinning(mailbox)
        }
        Way::Parked => {
            let (send, receive) = mpsc::sync_channel::<R>(1);
            thread::spawn(move || receive.into_iter().for_each(serve));
            Requests::Parked(send)
        }
    }
}

/// The calling thread, and those that it starts, on one core or on all that there are.
fn on_one_core(one: bool) {
    #[cfg(target_os = "linux")]
    // SAFETY: a set of processors on the stack, and the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let cores = if one { 1 } else { thread_cores() };
        (0..cores).for_each(|core| libc::CPU_SET(core, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = one;
}

#[cfg(target_os = "linux")]
fn thread_cores() -> usize {
    // SAFETY: asks for a number.
    let cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(cores).unwrap_or(1).max(1)
}

/// Request and response over two threads. The time that the responder holds a request is subtracted.
fn hand_off(c: &mut Criterion) {
    let rows = [
        ("hand-off, hot", Way::Spinning, 0, false),
        ("hand-off, after 30 us", Way::Spinning, 30, false),
        ("hand-off, after 300 us", Way::Spinning, 300, false),
        ("hand-off, parked", Way::Parked, 0, false),
        ("hand-off, parked, one core", Way::Parked, 0, true),
    ];
    for (name, way, hold, one) in rows {
        let hold = Duration::from_micros(hold);
        on_one_core(one);
        let mut g = c.benchmark_group(name);
        macro_rules! row {
            ($name:literal, $request:ty, $answer:expr, $make:expr, $wait:expr) => {
                g.bench_function($name, |b| {
                    let to = respond::<$request>(way, hold, $answer);
                    b.iter_custom(|n| {
                        let start = Instant::now();
                        for _ in 0..n {
                            let (request, answer) = $make;
                            to.post(request);
                            #[allow(clippy::redundant_closure_call, reason = "a macro's argument")]
                            black_box($wait(answer));
                        }
                        let held = hold.saturating_mul(u32::try_from(n).unwrap_or(u32::MAX));
                        start.elapsed().saturating_sub(held)
                    });
                });
            };
        }
        row!(
            "tenure",
            tenure::promise::Promise<u64, ()>,
            |p, n| {
                let _ = p.set(n);
            },
            pair(),
            |e: Ev| e.get().ok().unwrap()
        );
        row!(
            "oneshot",
            oneshot::Sender<u64>,
            |s, n| {
                let _ = s.send(n);
            },
            oneshot::channel(),
            |r: oneshot::Receiver<u64>| r.recv().unwrap()
        );
        row!(
            "tokio",
            tokio::sync::oneshot::Sender<u64>,
            |s, n| {
                let _ = s.send(n);
            },
            tokio::sync::oneshot::channel(),
            |r: tokio::sync::oneshot::Receiver<u64>| r.blocking_recv().unwrap()
        );
        row!(
            "futures",
            futures::channel::oneshot::Sender<u64>,
            |s, n| {
                let _ = s.send(n);
            },
            futures::channel::oneshot::channel(),
            |r: futures::channel::oneshot::Receiver<u64>| futures::executor::block_on(r).unwrap()
        );
        row!(
            "crossfire",
            crossfire::oneshot::TxOneshot<u64>,
            |s, n| s.send(n),
            crossfire::oneshot::oneshot(),
            |r: crossfire::oneshot::RxOneshot<u64>| r.recv().unwrap()
        );
        row!(
            "kanal",
            kanal::Sender<u64>,
            |s, n| {
                let _ = s.send(n);
            },
            kanal::bounded(1),
            |r: kanal::Receiver<u64>| r.recv().unwrap()
        );
        row!(
            "std sync_channel",
            mpsc::SyncSender<u64>,
            |s, n| {
                let _ = s.send(n);
            },
            mpsc::sync_channel(1),
            |r: mpsc::Receiver<u64>| r.recv().unwrap()
        );
        g.finish();
        on_one_core(false);
    }
}

/// A thousand under way at once: made here, set there, taken here.
fn in_flight(c: &mut Criterion) {
    const N: usize = 1000;

    fn setter<R: Send + 'static>(answer: fn(R)) -> mpsc::SyncSender<Vec<R>> {
        let (send, receive) = mpsc::sync_channel::<Vec<R>>(1);
        thread::spawn(move || receive.into_iter().flatten().for_each(answer));
        send
    }

    let mut g = c.benchmark_group("1000 in flight");
    g.bench_function("tenure", |b| {
        let to = setter::<tenure::promise::Promise<u64, ()>>(|p| {
            let _ = p.set(1);
        });
        b.iter(|| {
            let (ps, es): (Vec<_>, Vec<_>) = (0..N).map(|_| pair()).unzip();
            to.send(ps).unwrap();
            es.into_iter().map(|e| e.get().ok().unwrap()).sum::<u64>()
        });
    });
    g.bench_function("oneshot", |b| {
        let to = setter::<oneshot::Sender<u64>>(|s| {
            let _ = s.send(1);
        });
        b.iter(|| {
            let (ss, rs): (Vec<_>, Vec<_>) = (0..N).map(|_| oneshot::channel()).unzip();
            to.send(ss).unwrap();
            rs.into_iter().map(|r| r.recv().unwrap()).sum::<u64>()
        });
    });
    g.bench_function("tokio", |b| {
        let to = setter::<tokio::sync::oneshot::Sender<u64>>(|s| {
            let _ = s.send(1);
        });
        b.iter(|| {
            let (ss, rs): (Vec<_>, Vec<_>) =
                (0..N).map(|_| tokio::sync::oneshot::channel()).unzip();
            to.send(ss).unwrap();
            rs.into_iter().map(|r| r.blocking_recv().unwrap()).sum::<u64>()
        });
    });
    g.bench_function("crossfire", |b| {
        let to = setter::<crossfire::oneshot::TxOneshot<u64>>(|s| s.send(1));
        b.iter(|| {
            let (ss, rs): (Vec<_>, Vec<_>) = (0..N).map(|_| crossfire::oneshot::oneshot()).unzip();
            to.send(ss).unwrap();
            rs.into_iter().map(|r| r.recv().unwrap()).sum::<u64>()
        });
    });
    g.bench_function("futures", |b| {
        let to = setter::<futures::channel::oneshot::Sender<u64>>(|s| {
            let _ = s.send(1);
        });
        b.iter(|| {
            let (ss, rs): (Vec<_>, Vec<_>) =
                (0..N).map(|_| futures::channel::oneshot::channel()).unzip();
            to.send(ss).unwrap();
            rs.into_iter().map(|r| futures::executor::block_on(r).unwrap()).sum::<u64>()
        });
    });
    g.bench_function("std sync_channel", |b| {
        let to = setter::<mpsc::SyncSender<u64>>(|s| {
            let _ = s.send(1);
        });
        b.iter(|| {
            let (ss, rs): (Vec<_>, Vec<_>) = (0..N).map(|_| mpsc::sync_channel(1)).unzip();
            to.send(ss).unwrap();
            rs.into_iter().map(|r| r.recv().unwrap()).sum::<u64>()
        });
    });
    g.finish();
}

// ---- allocations ----------------------------------------------------------------------------

struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static COUNTED: AtomicBool = AtomicBool::new(false);

// SAFETY: the system's allocator, and a count beside it.
unsafe impl std::alloc::GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        if COUNTED.load(Ordering::Relaxed) {
            CALLS.fetch_add(1, Ordering::Relaxed);
            BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        }
        // SAFETY: passed on.
        unsafe { std::alloc::System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: passed on.
        unsafe { std::alloc::System.dealloc(at, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Prints allocations and bytes an operation, after a warm-up.
fn allocations(_: &mut Criterion) {
    fn row(name: &str, mut operation: impl FnMut()) {
        const N: u64 = 1000;
        for _ in 0..N {
            operation();
        }
        CALLS.store(0, Ordering::Relaxed);
        BYTES.store(0, Ordering::Relaxed);
        COUNTED.store(true, Ordering::Relaxed);
        for _ in 0..N {
            operation();
        }
        COUNTED.store(false, Ordering::Relaxed);
        println!(
            "allocations {name:32} {:6.3} an operation, {:8.1} bytes",
            CALLS.load(Ordering::Relaxed) as f64 / N as f64,
            BYTES.load(Ordering::Relaxed) as f64 / N as f64,
        );
    }
    row("tenure set+take", || {
        let (p, mut e) = pair();
        p.set(1).unwrap();
        black_box(e.try_get());
    });
    row("tenure callback", || {
        let (p, e) = pair();
        e.on_complete(|outcome| sink(outcome.unwrap_or(0)));
        p.set(1).unwrap();
    });
    row("tenure callback, 40 bytes", || {
        let (p, e) = pair();
        let captured = black_box([1u64; 5]);
        e.on_complete(move |outcome| sink(outcome.unwrap_or(0) + captured[0]));
        p.set(1).unwrap();
    });
    row("tenure 3 maps+callback", || {
        let (p, e) = pair();
        e.map(|n| n + 1)
            .map(|n| n + 1)
            .map(|n| n + 1)
            .on_complete(|outcome| sink(outcome.unwrap_or(0)));
        p.set(1).unwrap();
    });
    row("tenure shared, 4 callbacks", || {
        let (p, e) = pair();
        let shared = e.share();
        for _ in 0..4 {
            shared.on_complete(|outcome| sink(outcome.copied().unwrap_or(0)));
        }
        p.set(1).unwrap();
    });
    row("tenure ready", || {
        black_box(tenure::promise::ready::<u64, ()>(1).try_get());
    });
    let mut slot = tenure::promise::Slot::<u64, ()>::new();
    row("tenure slot", move || {
        let (p, mut e) = slot.pair();
        p.set(1).unwrap();
        black_box(e.try_get());
    });
    row("oneshot set+take", || {
        let (s, r) = oneshot::channel::<u64>();
        s.send(1).unwrap();
        black_box(r.try_recv().ok());
    });
    row("oneshot+task", || {
        let (s, r) = oneshot::async_channel::<u64>();
        spawn_callback(async move { sink(r.await.unwrap_or(0)) });
        s.send(1).unwrap();
    });
    row("tokio set+take", || {
        let (s, mut r) = tokio::sync::oneshot::channel::<u64>();
        s.send(1).unwrap();
        black_box(r.try_recv().ok());
    });
    row("futures set+take", || {
        let (s, mut r) = futures::channel::oneshot::channel::<u64>();
        s.send(1).unwrap();
        black_box(r.try_recv().ok());
    });
    row("crossfire set+take", || {
        let (s, mut r) = crossfire::oneshot::oneshot::<u64>();
        s.send(1);
        black_box(r.try_recv().ok());
    });
}

criterion_group!(
    all,
    create_set_take,
    create_poll_set_poll,
    drop_either,
    callbacks,
    stages,
    shared,
    hand_off,
    in_flight,
    allocations
);
criterion_main!(all);
