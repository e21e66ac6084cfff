//! Groups, limits, forwardings, and the pool: promises that meet.
//!
//! A group's locks and its members' cores make every added preemption some twenty times as many
//! executions: the bounds keep the file under half a minute.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::thread;
use tenure::executor::Task;
use tenure::promise::modelled::Pool;
use tenure::promise::{
    Completions, Eventual, EventualError, Promise, all, any, any_ok, first_n, promise,
};

/// Loom watches each access to it.
struct Watched(UnsafeCell<u32>);

// SAFETY: loom checks the cell.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

impl Watched {
    fn new(n: u32) -> Self {
        let this = Self(UnsafeCell::new(0));
        // SAFETY: loom checks.
        this.0.with_mut(|at| unsafe { *at = n });
        this
    }

    fn read(&self) -> u32 {
        // SAFETY: loom checks.
        self.0.with(|at| unsafe { *at })
    }
}

type W = Promise<Watched, u32>;
type R = Eventual<Watched, u32>;

fn set(p: W, n: u32) {
    if let Err(back) = p.set(Watched::new(n)) {
        assert_eq!(back.into_inner().read(), n);
    }
}

fn fail(p: W, n: u32) {
    let _ = p.set_error(n);
}

/// Two writers against whatever is done with both eventuals, each on a thread of its own.
fn two(writers: [fn(W, u32); 2], reader: fn([R; 2])) {
    let (p0, e0) = promise();
    let (p1, e1) = promise();
    let [first, second] = writers;
    let threads = [
        thread::spawn(move || first(p0, 1)),
        thread::spawn(move || second(p1, 2)),
        thread::spawn(move || reader([e0, e1])),
    ];
    for thread in threads {
        thread.join().unwrap();
    }
}

/// One writer, against the reader; the other eventual is the reader's to set.
fn one(writer: fn(W, u32), reader: fn(R)) {
    let (p, e) = promise();
    let threads = [thread::spawn(move || writer(p, 1)), thread::spawn(move || reader(e))];
    for thread in threads {
        thread.join().unwrap();
    }
}

fn pending() -> (W, R) {
    promise()
}

fn sum(values: Vec<Watched>) -> u32 {
    values.iter().map(Watched::read).sum()
}

fn next(completions: &mut Completions<Watched, u32>, cx: &mut Context<'_>) -> Option<u32> {
    match completions.poll_next(cx) {
        Poll::Ready(next) => {
            next.map(|(_, outcome)| outcome.map_or_else(|e| e.failed().unwrap(), |v| v.read()))
        }
        Poll::Pending => None,
    }
}

/// The timer is a thread that fires at once, or never.
fn limited(fires: bool, reader: fn(R)) {
    let (p, e) = promise();
    let kept = Arc::new(Mutex::new(None::<Task>));
    let e = e.within(Duration::from_secs(1), &{
        let kept = Arc::clone(&kept);
        move |_, task| drop(kept.lock().unwrap().replace(task))
    });
    let task = kept.lock().unwrap().take();
    let mut threads = vec![thread::spawn(move || set(p, 1)), thread::spawn(move || reader(e))];
    if fires {
        threads.push(thread::spawn(move || task.into_iter().for_each(Task::run)));
    } else {
        drop(task);
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

fn got_or_late(e: R) {
    match e.get() {
        Ok(value) => assert_eq!(value.read(), 1),
        Err(EventualError::TimedOut) => {}
        Err(_) => panic!("neither the value nor the limit"),
    }
}

models! { "promise_groups";
    /// The last of all completes the whole, whichever that is.
    all_x_set_x_set [bound: 1, std_arc] {
        two([set, set], |members| assert_eq!(all(members).get().ok().map(sum), Some(3)));
    }
    /// A member's error settles the whole while the other's value comes.
    all_x_set_x_fail [bound: 1, std_arc] {
        two([set, fail], |members| {
            assert!(matches!(all(members).get(), Err(EventualError::Failed(2))));
        });
    }
    /// The first wins; the other's value goes back or is dropped.
    any_x_set_x_set [bound: 1, std_arc] {
        two([set, set], |members| assert!(matches!(any(members).get().ok().map(|v| v.read()), Some(1 | 2))));
    }
    /// An error does not win against a value.
    any_ok_x_set_x_fail [bound: 1, std_arc] {
        two([set, fail], |members| assert_eq!(any_ok(members).get().ok().map(|v| v.read()), Some(1)));
    }
    /// One of two is enough.
    first_n_x_set_x_set [bound: 1, std_arc] {
        two([set, set], |members| {
            let first = first_n(1, members).get().ok().unwrap();
            assert!(first.into_iter().all(|(n, value)| value.read() == n as u32 + 1));
        });
    }
    /// A group that is made while a member's value comes.
    all_x_set [bound: 2, std_arc] {
        one(set, |e| {
            let (p, other) = pending();
            let whole = all([e, other]);
            set(p, 2);
            assert_eq!(whole.get().ok().map(sum), Some(3));
        });
    }
    /// The loser's writer is asked to stop, however late its value comes.
    any_x_set [bound: 2, std_arc] {
        one(set, |e| {
            let (p, other) = pending();
            let whole = any([e, other]);
            assert_eq!(whole.get().ok().map(|v| v.read()), Some(1));
            assert!(p.is_cancelled());
        });
    }
    /// A request reaches the members while one completes.
    all_x_set_x_cancel [bound: 2, std_arc] {
        one(set, |e| {
            let (mut p, other) = pending();
            let whole = all([e, other]);
            whole.cancel();
            // If the writer is at the group, it is who passes the request on.
            loom::future::block_on(p.cancelled());
            set(p, 2);
            assert_eq!(whole.get().ok().map(sum), Some(3));
        });
    }
    /// The whole is let go while a member completes.
    all_x_set_x_drop [bound: 2, std_arc] {
        one(set, |e| {
            let (mut p, other) = pending();
            drop(all([e, other]));
            loom::future::block_on(p.cancelled());
        });
    }
    /// Both halves of a pair.
    zip_x_set [bound: 2, std_arc] {
        one(set, |e| {
            let (p, other) = pending();
            let both = e.zip(other);
            set(p, 2);
            let (one, two) = both.get().ok().unwrap();
            assert_eq!((one.read(), two.read()), (1, 2));
        });
    }

    /// A sleeper is woken for each.
    completions_next_x_set_x_set [bound: 1, std_arc] {
        two([set, set], |members| {
            let completions: Completions<_, _> = members.into_iter().collect();
            let got: u32 = completions.map(|(_, outcome)| outcome.ok().unwrap().read()).sum();
            assert_eq!(got, 3);
        });
    }
    /// A sleeper, and one that comes.
    completions_next_x_set [bound: 3, std_arc] {
        one(set, |e| {
            let mut completions = Completions::from_iter([e]);
            assert!(matches!(completions.next(), Some((0, Ok(value))) if value.read() == 1));
            assert!(completions.next().is_none());
        });
    }
    /// A task is woken, or sees it.
    completions_poll_next_x_set [bound: 2, std_arc] {
        one(set, |e| {
            let mut completions = Completions::from_iter([e]);
            let got = loom::future::block_on(std::future::poll_fn(|cx| completions.poll_next(cx)));
            assert!(matches!(got, Some((0, Ok(value))) if value.read() == 1));
        });
    }
    /// The waker is replaced as the value comes.
    completions_poll_again_x_set [bound: 2, std_arc] {
        one(set, |e| {
            let mut completions = Completions::from_iter([e]);
            let mut cx = Context::from_waker(Waker::noop());
            if next(&mut completions, &mut cx).is_none() {
                let got = loom::future::block_on(std::future::poll_fn(|cx| completions.poll_next(cx)));
                assert!(matches!(got, Some((0, Ok(value))) if value.read() == 1));
            }
        });
    }
    /// A look.
    completions_try_next_x_set [bound: 3, std_arc] {
        one(set, |e| {
            let mut completions = Completions::from_iter([e]);
            if let Some((_, outcome)) = completions.try_next() {
                assert_eq!(outcome.ok().unwrap().read(), 1);
            }
        });
    }
    /// All is let go as a value comes.
    completions_drop_x_set [bound: 3, std_arc] {
        one(set, |e| drop(Completions::from_iter([e])));
    }

    /// The limit passes as the value comes: one of the two.
    within_x_set_x_fire [bound: 1, std_arc] { limited(true, got_or_late); }
    /// Nobody fires.
    within_x_set [bound: 2, std_arc] {
        limited(false, |e| assert_eq!(e.get().ok().map(|v| v.read()), Some(1)));
    }
    /// The reader leaves as both come.
    within_x_set_x_drop [bound: 2, std_arc] { limited(false, drop); }

    /// A tail call: the core that only forwards is passed over, while its reader's reader sleeps.
    forwarding_x_get [bound: 3] { forwarding(|e| assert_eq!(e.get().ok().map(|v| v.read()), Some(1))); }
    /// While what is behind it is let go: the request finds the inner writer, or comes first.
    forwarding_x_drop [bound: 3] { forwarding(drop); }
    /// While somebody asks.
    forwarding_x_cancel [bound: 3] {
        forwarding(|e| {
            e.cancel();
            assert_eq!(e.get().ok().map(|v| v.read()), Some(1));
        });
    }
    /// While a stage is hung there.
    forwarding_x_map [bound: 3] {
        forwarding(|e| assert_eq!(e.map(|v| v.read()).get().ok(), Some(1)));
    }
    /// While somebody asks who has the inner one's canceller: the request still finds who is waited for.
    forwarding_x_inner_canceller [bound: 3] {
        let (p0, e0) = promise::<u32, u32>();
        let (p1, e1) = promise::<u32, u32>();
        let (mut p2, e2) = promise();
        let inner = e1.and_then(move |_| e2);
        let canceller = inner.canceller();
        let outer = e0.and_then(move |_| inner);
        p0.set(0).unwrap();
        let threads = [
            thread::spawn(move || {
                let _ = p1.set(0);
                loom::future::block_on(p2.cancelled());
                set(p2, 1);
            }),
            thread::spawn(move || canceller.cancel()),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(outer.get().ok().map(|v| v.read()), Some(1));
    }
    /// The forwarding is hung as the stage that it waits for runs.
    hang_forwarding_x_set [bound: 1] {
        let (p0, e0) = promise::<u32, u32>();
        let (p1, e1) = promise::<u32, u32>();
        let (p2, e2) = promise();
        let inner = e1.and_then(move |_| e2);
        let outer = e0.and_then(move |_| inner);
        let threads = [
            thread::spawn(move || p0.set(0).unwrap()),
            thread::spawn(move || p1.set(0).unwrap()),
            thread::spawn(move || set(p2, 1)),
        ];
        assert_eq!(outer.get().ok().map(|v: Watched| v.read()), Some(1));
        for thread in threads {
            thread.join().unwrap();
        }
    }

    /// With the pool on: a core that is freed by the reader is used again at once, while the writer's
    /// wake of its address, or of its waker, may still be on the way.
    pool_recycle_x_late_wake [bound: 3] {
        let pool = Pool::on();
        one(set, |e| {
            assert_eq!(e.get().ok().unwrap().read(), 1);
            let (p, e) = pending();
            let writer = thread::spawn(move || set(p, 2));
            assert_eq!(e.get().ok().unwrap().read(), 2);
            writer.join().unwrap();
        });
        drop(pool);
    }
    /// The same with a waker instead of a sleeper.
    pool_recycle_x_late_waker [bound: 3] {
        let pool = Pool::on();
        one(set, |e| {
            assert_eq!(loom::future::block_on(e).ok().unwrap().read(), 1);
            let (p, mut e) = pending();
            assert!(Pin::new(&mut e).poll(&mut Context::from_waker(Waker::noop())).is_pending());
            set(p, 2);
            assert_eq!(e.get().ok().unwrap().read(), 2);
        });
        drop(pool);
    }
    /// Cores that are made on one thread, freed on a second and used on a third, through the overflow.
    pool_free_here_x_allocate_there [bound: 2, std_arc] {
        let pool = Pool::on();
        let made: Vec<_> = (0..4).map(|_| pending()).collect();
        let freeing = thread::spawn(move || {
            drop(made);
            Pool::end_of_thread();
        });
        let using = thread::spawn(|| {
            for n in 0..2 {
                let (p, e) = pending();
                set(p, n);
                assert_eq!(e.get().ok().unwrap().read(), n);
            }
            Pool::end_of_thread();
        });
        freeing.join().unwrap();
        using.join().unwrap();
        let (p, e) = pending();
        set(p, 3);
        assert_eq!(e.get().ok().unwrap().read(), 3);
        assert!(pool.travelled());
        drop(pool);
    }
}

/// Two waits in turn: the second stage, whose core only forwards by then, goes on to a third promise;
/// against whatever the reader of the whole does.
fn forwarding(reader: fn(R)) {
    let (p0, e0) = promise::<u32, u32>();
    let (p1, e1) = promise::<u32, u32>();
    let (p2, e2) = promise();
    let outer = e0.and_then(move |_| e1.and_then(move |_| e2));
    let whole = outer;
    p0.set(0).unwrap();
    let threads = [
        thread::spawn(move || {
            let _ = p1.set(0);
            set(p2, 1);
        }),
        thread::spawn(move || reader(whole)),
    ];
    for thread in threads {
        thread.join().unwrap();
    }
}
