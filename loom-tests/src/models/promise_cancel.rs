//! Cancellation of promises: what the canceller did before it asked, and what the writer put into its
//! hook, is seen by whoever runs the hook; and it runs.

use std::future::Future as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Context;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::thread;
use tenure::promise::{Eventual, EventualError, Promise, SharedPromise, promise};

/// Plain memory that one thread writes and another reads.
struct Past(UnsafeCell<u32>);
// SAFETY: only for models: loom reports an access that races.
unsafe impl Sync for Past {}
// SAFETY: as above.
unsafe impl Send for Past {}

impl Past {
    fn new() -> Arc<Self> {
        Arc::new(Self(UnsafeCell::new(0)))
    }
    fn write(&self) {
        // SAFETY: loom checks the access.
        self.0.with_mut(|n| unsafe { *n = 1 });
    }
    fn read(&self) {
        // SAFETY: loom checks the access.
        self.0.with(|n| assert_eq!(unsafe { *n }, 1));
    }
}

type W = Promise<u32, ()>;
type R = Eventual<u32, ()>;

/// A canceller with a past against a writer; the promise outlives both, so what has to happen has
/// happened when they are joined.
fn cancels(writer: fn(&mut W, &Arc<Past>), reader: fn(R) -> R) {
    let past = Past::new();
    let (mut p, e) = promise();
    let e = reader(e);
    let writer = thread::spawn({
        let past = past.clone();
        move || {
            writer(&mut p, &past);
            p
        }
    });
    let canceller = thread::spawn(move || {
        past.write();
        e.cancel();
        e
    });
    let p = writer.join().unwrap();
    let e = canceller.join().unwrap();
    assert!(p.is_cancelled());
    drop((p, e));
}

fn as_it_is(e: R) -> R {
    e
}

fn through_a_stage(e: R) -> R {
    e.map(|value| value).map(|value| value)
}

fn looks(p: &mut W, past: &Arc<Past>) {
    if p.is_cancelled() {
        past.read();
    }
}

/// A hook with a past of its writer's, against a canceller with one of its own: it runs once, on
/// either thread, and sees both.
fn hooked(reader: fn(R) -> R, twice: bool) {
    let (theirs, mine) = (Past::new(), Past::new());
    let ran = Arc::new(AtomicU32::new(0));
    let replaced = Arc::new(AtomicU32::new(0));
    let (mut p, e) = promise::<u32, ()>();
    let e = reader(e);
    let writer = thread::spawn({
        let (theirs, ran, replaced) = (theirs.clone(), ran.clone(), replaced.clone());
        move || {
            if twice {
                let counted = replaced.clone();
                p.on_cancel(move || {
                    counted.fetch_add(1, Ordering::Relaxed);
                });
            }
            mine.write();
            p.on_cancel(move || {
                theirs.read();
                mine.read();
                ran.fetch_add(1, Ordering::Relaxed);
            });
            p
        }
    });
    let canceller = thread::spawn(move || {
        theirs.write();
        e.cancel();
        e
    });
    let p = writer.join().unwrap();
    let e = canceller.join().unwrap();
    // The first hook may have run in the second one's place only if the request came in between;
    // the second then ran at once.
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    assert!(replaced.load(Ordering::Relaxed) <= 1);
    drop((p, e));
}

models! { "promise";
    /// A writer that sees the request sees what came before it.
    is_cancelled_x_cancel { cancels(looks, as_it_is); }
    /// The same through stages: the request is in the node, which the second took over.
    is_cancelled_x_cancel_of_a_stage { cancels(looks, through_a_stage); }
    /// A hook against a request.
    hook_x_cancel { hooked(as_it_is, false); }
    /// The same through a stage.
    hook_x_cancel_of_a_stage [bound: 3] { hooked(through_a_stage, false); }
    /// A hook that takes another's place.
    hook_again_x_cancel [bound: 3] { hooked(as_it_is, true); }
    /// Two hooks in turn, through a stage.
    hook_again_x_cancel_of_a_stage [bound: 2] { hooked(through_a_stage, true); }
    /// A task that sleeps until the value is there: it has to be woken.
    set_x_await {
        let (p, e) = promise::<u32, ()>();
        let setter = thread::spawn(move || {
            let _ = p.set(7);
        });
        let waiter = thread::spawn(move || assert!(matches!(loom::future::block_on(e), Ok(7))));
        setter.join().unwrap();
        waiter.join().unwrap();
    }
    /// It was polled with another waker before.
    set_x_poll_then_await [bound: 3] {
        let (p, mut e) = promise::<u32, ()>();
        let setter = thread::spawn(move || {
            let _ = p.set(7);
        });
        let waiter = thread::spawn(move || {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            match std::pin::Pin::new(&mut e).poll(&mut cx) {
                std::task::Poll::Ready(outcome) => assert!(matches!(outcome, Ok(7))),
                std::task::Poll::Pending => assert!(matches!(loom::future::block_on(e), Ok(7))),
            }
        });
        setter.join().unwrap();
        waiter.join().unwrap();
    }
    /// Two waits that run out, and one after them that does not: each takes its mark back.
    set_x_get_timeout_then_poll [bound: 3, fires] {
        let (p, mut e) = promise::<u32, ()>();
        let setter = thread::spawn(move || {
            let _ = p.set(7);
        });
        let waiter = thread::spawn(move || {
            for _ in 0..2 {
                match e.get_timeout(Duration::from_secs(1)) {
                    Err(EventualError::TimedOut) => {}
                    outcome => return assert!(matches!(outcome, Ok(7))),
                }
            }
            assert!(matches!(loom::future::block_on(e), Ok(7)));
        });
        setter.join().unwrap();
        waiter.join().unwrap();
    }

    /// The last of several readers asks the writer to stop; the hook sees what each of them did.
    drop_shared_x_drop_shared [bound: 3] {
        let pasts = [Past::new(), Past::new()];
        let ran = Arc::new(AtomicU32::new(0));
        let (mut p, e) = promise::<u32, ()>();
        p.on_cancel({
            let (pasts, ran) = (pasts.clone(), ran.clone());
            move || {
                pasts.iter().for_each(|past| past.read());
                ran.fetch_add(1, Ordering::Relaxed);
            }
        });
        let first = e.share();
        let readers = [first.clone(), first].into_iter().zip(pasts).map(|(reader, past)| {
            thread::spawn(move || {
                past.write();
                drop(reader);
            })
        });
        readers.collect::<Vec<_>>().into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        drop(p);
    }
    /// A callback keeps the work wanted, whoever of the readers leaves last.
    share_register_x_drop_shared [bound: 3] {
        let (p, e) = promise::<u32, ()>();
        let first = e.share();
        let second = first.clone();
        let threads = [
            thread::spawn(move || first.on_complete(|outcome| assert_eq!(outcome.ok(), Some(&7)))),
            thread::spawn(move || drop(second)),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(!p.is_cancelled());
        p.set(7).unwrap();
    }
    /// Of two writers the one that loses sees what the winner did before, and so does who only asks.
    try_set_x_try_set_x_is_claimed [bound: 3] {
        let past = Past::new();
        let (p, e) = promise::<u32, ()>();
        let writer = SharedPromise::from(p);
        let (loser, asker) = (writer.clone(), writer.clone());
        let winner = thread::spawn({
            let past = past.clone();
            move || {
                past.write();
                writer.try_set(1).is_ok()
            }
        });
        let loser = thread::spawn({
            let past = past.clone();
            move || {
                // It comes first, if it is not beaten by the other.
                let lost = loser.try_set(2).is_err();
                if lost {
                    past.read();
                }
                lost
            }
        });
        let won = winner.join().unwrap();
        assert!(won == loser.join().unwrap());
        assert!(asker.is_claimed());
        assert!(matches!(e.get(), Ok(1 | 2)));
    }
    /// Who sees that a writer has won sees what it did before.
    try_set_x_is_claimed {
        let past = Past::new();
        let (p, e) = promise::<u32, ()>();
        let writer = SharedPromise::from(p);
        let asker = writer.clone();
        let winner = thread::spawn({
            let past = past.clone();
            move || {
                past.write();
                writer.try_set(1).is_ok()
            }
        });
        let asker = thread::spawn(move || {
            if asker.is_claimed() {
                past.read();
            }
        });
        assert!(winner.join().unwrap());
        asker.join().unwrap();
        assert!(matches!(e.get(), Ok(1)));
    }
}
