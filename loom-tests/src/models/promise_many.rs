//! Several readers, several writers, and cores that are used again.
//!
//! The bounds keep the whole file under half a minute: a shared outcome's lock and list make every
//! added preemption twenty times as many executions, three threads more.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::thread;
use tenure::promise::{Promise, Shared, SharedPromise, Slot, promise};

/// Loom watches each access to it.
struct Watched(UnsafeCell<u32>);

// SAFETY: loom checks the cell.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

impl Watched {
    fn read(&self) -> u32 {
        // SAFETY: loom checks.
        self.0.with(|at| unsafe { *at })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: loom checks.
        self.0.with_mut(|at| unsafe { *at = 0 });
    }
}

type W = Promise<Watched, ()>;
type S = Shared<Watched, ()>;

fn share(writer: fn(W), readers: &[fn(S)]) {
    let (p, e) = promise();
    let shared = e.share();
    let mut threads: Vec<_> = readers
        .iter()
        .map(|&reader| {
            let shared = shared.clone();
            thread::spawn(move || reader(shared))
        })
        .collect();
    drop(shared);
    threads.push(thread::spawn(move || writer(p)));
    for thread in threads {
        thread.join().unwrap();
    }
}

fn set(p: W) {
    let _ = p.set(Watched(UnsafeCell::new(42)));
}

fn drop_writer(p: W) {
    drop(p);
}

fn set_error(p: W) {
    let _ = p.set_error(());
}

fn check(outcome: tenure::promise::OutcomeRef<'_, Watched, ()>) {
    if let Ok(value) = outcome {
        assert_eq!(value.read(), 42);
    }
}

fn get(shared: S) {
    check(shared.get());
}

fn get_timeout(shared: S) {
    if let Some(outcome) = shared.get_timeout(Duration::MAX / 2) {
        check(outcome);
    }
}

fn peek(shared: S) {
    if let Some(outcome) = shared.peek() {
        check(outcome);
    }
}

fn register(shared: S) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    shared.on_complete(move |outcome| {
        check(outcome);
        assert_eq!(count.fetch_add(1, Ordering::Relaxed), 0);
    });
    check(shared.get());
}

fn register_and_leave(shared: S) {
    shared.on_complete(check);
}

fn poll(future: &mut tenure::promise::SharedFuture<'_, Watched, ()>) -> bool {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => {
            check(outcome);
            true
        }
        Poll::Pending => false,
    }
}

fn unregister(shared: S) {
    let mut future = (&shared).into_future();
    let _ = poll(&mut future);
    drop(future);
}

fn wait(shared: S) {
    loom::future::block_on(async { check((&shared).await) });
}

fn race_to_set(n: usize) {
    let (p, e) = promise::<Watched, ()>();
    let shared = SharedPromise::from(p);
    let writers: Vec<_> = (0..n)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || shared.try_set(Watched(UnsafeCell::new(42))).is_ok())
        })
        .collect();
    drop(shared);
    let reader = thread::spawn(move || assert!(e.get().is_ok_and(|value| value.read() == 42)));
    let won = writers.into_iter().map(|w| w.join().unwrap()).filter(|won| *won).count();
    assert_eq!(won, 1);
    reader.join().unwrap();
}

models! { "promise_many";
    /// A sleeper on a shared outcome.
    set_x_shared_get [bound: 3] { share(set, &[get]); }
    /// Two of them.
    set_x_shared_get_twice [bound: 1] { share(set, &[get, get]); }
    /// One whose time is up.
    set_x_shared_get_timeout [bound: 2, fires] { share(set, &[get_timeout]); }
    /// A look.
    set_x_shared_peek [bound: 3] { share(set, &[peek]); }
    /// A callback runs once, here or there.
    set_x_share_register [bound: 2] { share(set, &[register]); }
    /// A callback, and the last clone is gone.
    set_x_share_register_and_leave [bound: 2] { share(set, &[register_and_leave]); }
    /// A future that is dropped while the outcome comes.
    set_x_share_unregister [bound: 2] { share(set, &[unregister]); }
    /// A future that waits.
    set_x_shared_wait [bound: 2] { share(set, &[wait]); }
    /// One registers while another takes itself out.
    set_x_share_register_x_unregister [bound: 1] { share(set, &[register_and_leave, unregister]); }
    /// The last clone goes while the outcome comes.
    set_x_shared_drop [bound: 2] { share(set, &[drop::<S>]); }
    /// Two clones go.
    drop_x_shared_drop_twice [bound: 1] { share(drop_writer, &[drop::<S>, drop::<S>]); }
    /// The last reader to leave asks the writer to stop; what all readers did comes before that.
    leave_x_leave_x_hook {
        let (mut p, e) = promise::<Watched, ()>();
        let shared = e.share();
        let data = Arc::new([Watched(UnsafeCell::new(0)), Watched(UnsafeCell::new(0))]);
        // Touched by the hook and after each leave: so that loom tries the one between the others' two
        // steps. A thread that has ended has given all it did to whoever locks next.
        let turn = Arc::new(loom::sync::atomic::AtomicUsize::new(0));
        let (seen, asked) = (Arc::clone(&data), Arc::clone(&turn));
        p.on_cancel(move || {
            asked.fetch_add(1, Ordering::Relaxed);
            assert!(seen.iter().all(|data| data.read() == 7));
        });
        let threads: Vec<_> = [shared.clone(), shared]
            .into_iter()
            .enumerate()
            .map(|(i, shared)| {
                let (data, turn) = (Arc::clone(&data), Arc::clone(&turn));
                thread::spawn(move || {
                    // SAFETY: loom checks.
                    data[i].0.with_mut(|at| unsafe { *at = 7 });
                    drop(shared);
                    turn.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(turn.load(Ordering::Relaxed), 3, "the hook ran");
        assert!(p.is_cancelled());
    }
    /// An error to a callback.
    set_error_x_share_register [bound: 2] { share(set_error, &[register]); }
    /// An error to a future that leaves.
    set_error_x_share_unregister [bound: 2] { share(set_error, &[unregister]); }
    /// Broken to a callback.
    drop_x_share_register [bound: 2] { share(drop_writer, &[register]); }
    /// Broken to a future that leaves.
    drop_x_share_unregister [bound: 2] { share(drop_writer, &[unregister]); }
    /// Broken to a sleeper.
    drop_x_shared_get [bound: 3] { share(drop_writer, &[get]); }

    /// One of two writers wins.
    try_set_x_try_set [bound: 1] { race_to_set(2); }
    /// Both let go: broken, once.
    try_drop_x_try_drop [bound: 2] {
        let (p, e) = promise::<u32, ()>();
        let first = SharedPromise::from(p);
        let second = first.clone();
        let threads = [first, second].map(|writer| thread::spawn(move || drop(writer)));
        assert!(e.get().is_err());
        for thread in threads {
            thread.join().unwrap();
        }
    }
    /// A racing writer and a reader that leaves.
    try_set_x_drop_reader [bound: 1] {
        let (p, e) = promise::<u32, ()>();
        let first = SharedPromise::from(p);
        let second = first.clone();
        let mut threads: Vec<_> = [first, second]
            .into_iter()
            .map(|writer| thread::spawn(move || writer.try_set(1).is_ok()))
            .collect();
        threads.push(thread::spawn(move || {
            drop(e);
            true
        }));
        for thread in threads {
            thread.join().unwrap();
        }
    }

    /// A slot's core is used again while the last writer may still be waking its sleeper.
    recycle_x_late_wake [bound: 2] {
        let mut slot = Slot::<u32, ()>::new();
        let rounds: Vec<_> = (0..2)
            .map(|n| {
                let (p, e) = slot.pair();
                let writer = thread::spawn(move || p.set(n));
                assert_eq!(e.get().ok(), Some(n));
                writer
            })
            .collect();
        for round in rounds {
            round.join().unwrap().unwrap();
        }
    }
    /// A slot is dropped while its pair is in use.
    drop_slot_x_leave [bound: 3] {
        let mut slot = Slot::<Watched, ()>::new();
        let (p, e) = slot.pair();
        let threads = [
            thread::spawn(move || set(p)),
            thread::spawn(move || drop(e.get())),
            thread::spawn(move || drop(slot)),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
    }
    /// A slot is asked again while its pair parts.
    pair_x_leave [bound: 2] {
        let mut slot = Slot::<Watched, ()>::new();
        let (p, e) = slot.pair();
        let threads = [
            thread::spawn(move || set(p)),
            thread::spawn(move || drop(e)),
            thread::spawn(move || {
                let (p, e) = slot.pair();
                set(p);
                assert!(e.get().is_ok_and(|value| value.read() == 42));
            }),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
