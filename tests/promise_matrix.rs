//! The matrix: every event in every state, and wakers that do what wakers must not.
//!
//! | event | in every state that waits | with a value, an error, or broken | shared |
//! |---|---|---|---|
//! | complete, fail, drop writer | `complete_…`, `fail_…`, `drop_the_writer_in_every_state` | (no writer is left) | `a_shared_outcome_…` |
//! | drop reader, detach | `drop_the_reader_…`, `detach_in_every_state` | `leave_by_every_door_…` | `a_shared_outcome_…` |
//! | cancel, time out | `cancel_and_time_out_…` | `leave_by_every_door_…` | `a_shared_outcome_…` |
//! | panic in callback | `a_panic_…` | `leave_by_every_door_…` | `a_shared_outcome_…` |
//! | re-entry | `what_hangs_there_…` | `leave_by_every_door_…` | `a_shared_outcome_…` |
//! | executor refuses, drops, panics | `an_executor_that_fails_…` | `leave_by_every_door_…` | `a_shared_outcome_…` |
//!
//! States that wait: [`STATES`]. Where the reader left a callback it has no handle to drop, cancel or
//! time out with; there those events do not exist.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use tenure::executor::{Executor, Task};
use tenure::promise::{Eventual, EventualError, Outcome, Promise, promise};

/// A value that counts how many are alive.
#[derive(Debug)]
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

type P = Promise<Alive, &'static str>;
type Ev = Eventual<Alive, &'static str>;

fn poll<T, E>(e: &mut Eventual<T, E>, waker: &Waker) -> Poll<Outcome<T, E>> {
    Pin::new(e).poll(&mut Context::from_waker(waker))
}

/// What the reader did before the event, and how the outcome is had after it.
enum Reader {
    Handle(Ev),
    Callback(mpsc::Receiver<Outcome<Alive, &'static str>>),
}

type StateFn = fn(&mut P, Ev) -> Reader;
type EndFn = fn(P, &Arc<AtomicUsize>);

const STATES: [(&str, StateFn); 13] = [
    ("untouched", |_, e| Reader::Handle(e)),
    ("polled", |_, mut e| {
        assert!(poll(&mut e, Waker::noop()).is_pending());
        Reader::Handle(e)
    }),
    ("polled again", |_, mut e| {
        for _ in 0..3 {
            let waker = Waker::from(Arc::new(Nothing));
            assert!(poll(&mut e, &waker).is_pending());
        }
        Reader::Handle(e)
    }),
    ("timed out", |_, mut e| {
        assert!(matches!(e.get_timeout(Duration::from_nanos(1)), Err(EventualError::TimedOut)));
        Reader::Handle(e)
    }),
    ("cancelled", |_, e| {
        assert!(e.cancel());
        Reader::Handle(e)
    }),
    ("hooked", |p, e| {
        p.on_cancel(|| ());
        assert!(p.poll_cancelled(&mut Context::from_waker(Waker::noop())).is_pending());
        Reader::Handle(e)
    }),
    ("mapped", |_, e| Reader::Handle(e.map(|v| v))),
    ("bound to an executor", |_, e| {
        Reader::Handle(e.via(tenure::executor::Inline).map(|v| v).unbind())
    }),
    ("the inner one of a chain", |_, e| {
        let (first, outer) = promise::<(), _>();
        let outer = outer.and_then(move |()| e);
        first.set(()).unwrap();
        Reader::Handle(outer)
    }),
    ("limited", |_, e| {
        // A timer that never fires: it keeps nothing.
        Reader::Handle(e.within(Duration::MAX, &|_, task| drop(task)))
    }),
    ("in a group", |_, e| {
        Reader::Handle(tenure::promise::all([e]).map(|mut values| values.remove(0)))
    }),
    ("called back", |_, e| {
        let (send, receive) = mpsc::channel();
        e.on_complete(move |outcome| send.send(outcome).unwrap());
        Reader::Callback(receive)
    }),
    ("polled, hooked and called back", |p, mut e| {
        p.on_cancel(|| ());
        assert!(poll(&mut e, Waker::noop()).is_pending());
        let (send, receive) = mpsc::channel();
        e.on_complete(move |outcome| send.send(outcome).unwrap());
        Reader::Callback(receive)
    }),
];

struct Nothing;
impl std::task::Wake for Nothing {
    fn wake(self: Arc<Self>) {}
}

fn each_state(event: impl Fn(&str, P, Reader, &Arc<AtomicUsize>)) {
    for (name, state) in STATES {
        let alive = Arc::new(AtomicUsize::new(0));
        let (mut p, e) = promise();
        let reader = state(&mut p, e);
        event(name, p, reader, &alive);
        assert_eq!(alive.load(Ordering::SeqCst), 0, "{name}: every value is dropped");
        assert_eq!(Arc::strong_count(&alive), 1, "{name}");
    }
}

fn outcome(reader: Reader) -> Outcome<Alive, &'static str> {
    match reader {
        Reader::Handle(e) => e.get(),
        Reader::Callback(receive) => receive.try_recv().expect("it has run"),
    }
}

#[test]
fn complete_in_every_state() {
    each_state(|name, p, reader, alive| {
        p.set(Alive::new(alive)).unwrap();
        assert!(outcome(reader).is_ok(), "{name}");
    });
}

#[test]
fn fail_in_every_state() {
    each_state(|name, p, reader, _| {
        p.set_error("no").unwrap();
        assert!(matches!(outcome(reader), Err(EventualError::Failed("no"))), "{name}");
    });
}

#[test]
fn drop_the_writer_in_every_state() {
    each_state(|name, p, reader, _| {
        drop(p);
        let outcome = outcome(reader);
        match name {
            "cancelled" => assert!(matches!(outcome, Err(EventualError::Cancelled))),
            _ => assert!(matches!(outcome, Err(EventualError::Broken)), "{name}"),
        }
    });
}

#[test]
fn drop_the_reader_in_every_state() {
    each_state(|name, p, reader, alive| {
        let asks = matches!(reader, Reader::Handle(_));
        // What stands between is a reader still.
        let chained =
            ["mapped", "bound to an executor", "the inner one of a chain", "limited", "in a group"]
                .contains(&name);
        if let Reader::Handle(e) = reader {
            drop(e);
            assert!(p.is_cancelled(), "{name}");
        }
        // A stage is a reader still.
        assert_eq!(p.set(Alive::new(alive)).is_err(), asks && !chained, "{name}");
    });
}

#[test]
fn detach_in_every_state() {
    each_state(|name, p, reader, alive| {
        if let Reader::Handle(e) = reader {
            let before = p.is_cancelled();
            e.detach();
            assert_eq!(p.is_cancelled(), before, "{name}");
        }
        let _ = p.set(Alive::new(alive));
    });
}

#[test]
fn cancel_and_time_out_in_every_state() {
    each_state(|name, p, reader, alive| {
        let Reader::Handle(mut e) = reader else { return drop(p) };
        for timeout in [Duration::ZERO, Duration::from_nanos(1)] {
            assert!(matches!(e.get_timeout(timeout), Err(EventualError::TimedOut)), "{name}");
        }
        assert!(e.cancel(), "{name}");
        assert!(p.is_cancelled(), "{name}");
        p.set(Alive::new(alive)).unwrap();
        assert!(!e.cancel(), "{name}");
        assert!(e.get_timeout(Duration::MAX).is_ok(), "{name}");
        assert!(matches!(e.get(), Err(EventualError::Taken)), "{name}");
    });
}

#[test]
fn leave_by_every_door_after_the_result() {
    let ends: [(&str, EndFn); 3] = [
        ("value", |p, alive| p.set(Alive::new(alive)).unwrap()),
        ("error", |p, _| p.set_error("no").unwrap()),
        ("broken", |p, _| drop(p)),
    ];
    let doors: [fn(Ev); 17] = [
        |e| assert!(!e.cancel()),
        |mut e| {
            assert!(!matches!(e.get_timeout(Duration::ZERO), Err(EventualError::TimedOut)));
            assert!(matches!(e.get_timeout(Duration::MAX), Err(EventualError::Taken)));
            assert!(!e.cancel());
            assert!(matches!(e.try_get(), Some(Err(EventualError::Taken))));
            assert!(matches!(poll(&mut e, Waker::noop()), Poll::Ready(Err(EventualError::Taken))));
            assert_eq!(e.state(), tenure::promise::State::ValueMoved);
        },
        |e| e.on_complete(|_| panic!("on purpose")),
        |e| {
            let e = e.transform(|_| -> Outcome<(), ()> { panic!("on purpose") });
            assert!(matches!(e.get(), Err(EventualError::Panicked(_))));
        },
        |e| {
            e.on_complete(|outcome| {
                let (p, e) = promise::<_, ()>();
                p.set(outcome).unwrap();
                assert!(e.map(|n| n).get().is_ok());
            });
        },
        |e| {
            for bad in [Bad::Refuses, Bad::Drops, Bad::Panics] {
                let (p, e) = promise::<u32, ()>();
                p.set(1).unwrap();
                assert!(matches!(
                    e.via(bad).map(|n| n).unbind().get(),
                    Err(EventualError::Rejected)
                ));
            }
            e.on_complete_via(Bad::RunsAndPanics, drop);
        },
        |e| {
            e.on_complete_via(Bad::Refuses, |outcome| {
                assert!(matches!(outcome, Err(EventualError::Rejected)));
            });
        },
        |e| {
            let kept = e.within(Duration::ZERO, &|_, task| drop(task));
            assert!(!matches!(kept.get(), Err(EventualError::TimedOut)));
        },
        |e| drop(tenure::promise::all([e])),
        drop,
        |e| e.detach(),
        |e| drop(e.get()),
        |mut e| drop(e.try_get()),
        |mut e| drop(poll(&mut e, Waker::noop())),
        |e| e.on_complete(drop),
        |e| drop(e.map(|v| v)),
        |e| drop(e.share()),
    ];
    for (name, end) in ends {
        for door in doors {
            let alive = Arc::new(AtomicUsize::new(0));
            let (p, e) = promise();
            end(p, &alive);
            door(e);
            assert_eq!(alive.load(Ordering::SeqCst), 0, "{name}");
        }
    }
}

#[test]
fn a_panic_in_what_hangs_there_stays_there() {
    each_state(|name, p, reader, alive| {
        let Reader::Handle(e) = reader else { return drop(p) };
        e.on_complete(|_| panic!("on purpose"));
        p.set(Alive::new(alive)).unwrap();
        let _ = name;
    });
    each_state(|name, p, reader, alive| {
        let Reader::Handle(e) = reader else { return drop(p) };
        let e = e.map(|v| -> Alive { panic!("on purpose: {v:?}") });
        p.set(Alive::new(alive)).unwrap();
        assert!(matches!(e.get(), Err(EventualError::Panicked(_))), "{name}");
    });
}

#[test]
fn what_hangs_there_may_start_over() {
    each_state(|name, p, reader, alive| {
        let Reader::Handle(e) = reader else { return drop(p) };
        let done = Arc::new(AtomicUsize::new(0));
        let tell = Arc::clone(&done);
        e.on_complete(move |value| {
            // A whole life inside a callback: set, map, cancel, drop.
            let (p, e) = promise::<_, ()>();
            let e = e.map(|n| n).and_then(tenure::promise::ready);
            p.set(value).unwrap();
            assert!(e.get().unwrap().is_ok());
            let (p, e) = promise::<u32, ()>();
            drop(e);
            assert!(p.set(1).is_err());
            tell.fetch_add(1, Ordering::SeqCst);
        });
        p.set(Alive::new(alive)).unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 1, "{name}");
    });
}

#[derive(Clone)]
enum Bad {
    Refuses,
    Drops,
    Panics,
    RunsAndPanics,
}

impl Executor for Bad {
    fn execute(&self, task: Task) -> Result<(), Task> {
        match self {
            Self::Refuses => Err(task),
            Self::Drops => {
                drop(task);
                Ok(())
            }
            Self::Panics => panic!("on purpose"),
            Self::RunsAndPanics => {
                task.run();
                panic!("on purpose")
            }
        }
    }
}

#[test]
fn an_executor_that_fails_in_every_state() {
    for bad in [Bad::Refuses, Bad::Drops, Bad::Panics, Bad::RunsAndPanics] {
        let runs = matches!(bad, Bad::RunsAndPanics);
        each_state(|name, p, reader, alive| {
            let Reader::Handle(e) = reader else { return drop(p) };
            let (send, receive) = mpsc::channel();
            e.on_complete_via(bad.clone(), move |outcome| send.send(outcome).unwrap());
            p.set(Alive::new(alive)).unwrap();
            let outcome = receive.try_recv().unwrap();
            assert_eq!(outcome.is_ok(), runs, "{name}");
            assert!(runs || matches!(outcome, Err(EventualError::Rejected)), "{name}");
        });
        each_state(|name, p, reader, alive| {
            let Reader::Handle(e) = reader else { return drop(p) };
            let e = e.via(bad.clone()).map(|v| v).unbind();
            p.set(Alive::new(alive)).unwrap();
            assert_eq!(e.get().is_ok(), runs, "{name}");
        });
    }
}

#[test]
fn a_shared_outcome_bears_every_event() {
    use tenure::promise::Shared;
    type Sh = Shared<Alive, &'static str>;
    type Event = fn(P, Sh, &Arc<AtomicUsize>);
    // With nothing, a callback, a future that was polled, a sleeper that gave up.
    let states: [fn(&Sh); 4] = [
        |_| (),
        |s| s.on_complete(|_| ()),
        |s| {
            let mut future = std::future::IntoFuture::into_future(s);
            let polled = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        },
        |s| assert!(s.get_timeout(Duration::from_nanos(1)).is_none()),
    ];
    let events: [(&str, Event); 9] = [
        ("complete", |p, s, alive| {
            p.set(Alive::new(alive)).unwrap();
            assert!(s.get().is_ok() && s.peek().is_some());
        }),
        ("fail", |p, s, _| {
            p.set_error("no").unwrap();
            assert!(matches!(s.get(), Err(EventualError::Failed("no"))));
        }),
        ("drop the writer", |p, s, _| {
            drop(p);
            assert!(matches!(s.get(), Err(EventualError::Broken)));
        }),
        ("drop the readers", |p, s, alive| {
            drop(s.clone());
            drop(s);
            // Asked to stop, unless a callback was left; either way it may set.
            p.set(Alive::new(alive)).unwrap();
        }),
        ("cancel", |p, s, alive| {
            s.cancel();
            assert!(p.is_cancelled());
            p.set(Alive::new(alive)).unwrap();
            assert!(s.get().is_ok());
        }),
        ("time out", |p, s, alive| {
            assert!(s.get_timeout(Duration::ZERO).is_none());
            p.set(Alive::new(alive)).unwrap();
            assert!(s.get_timeout(Duration::MAX).is_some_and(|outcome| outcome.is_ok()));
        }),
        ("panic in a callback", |p, s, alive| {
            let after = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&after);
            s.on_complete(|_| panic!("on purpose"));
            let derived = s.then(|_| -> Outcome<(), ()> { panic!("on purpose") });
            s.on_complete(move |_| {
                count.fetch_add(1, Ordering::SeqCst);
            });
            p.set(Alive::new(alive)).unwrap();
            assert_eq!(after.load(Ordering::SeqCst), 1);
            assert!(matches!(derived.get(), Err(EventualError::Panicked(_))));
        }),
        ("re-entry", |p, s, alive| {
            let again = s.clone();
            let ran = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&ran);
            s.on_complete(move |_| {
                let count = Arc::clone(&count);
                assert!(again.get().is_ok());
                again.on_complete(move |_| {
                    count.fetch_add(1, Ordering::SeqCst);
                });
                drop(again);
            });
            p.set(Alive::new(alive)).unwrap();
            assert_eq!(ran.load(Ordering::SeqCst), 1);
        }),
        ("an executor that fails", |p, s, alive| {
            let bound = s.then::<_, (), _>(|_| Ok(1)).via(Bad::Panics).map(|n| n).unbind();
            p.set(Alive::new(alive)).unwrap();
            assert!(matches!(bound.get(), Err(EventualError::Rejected)));
        }),
    ];
    for state in states {
        for (name, event) in events {
            let alive = Arc::new(AtomicUsize::new(0));
            let (p, e) = promise();
            let shared = e.share();
            state(&shared);
            event(p, shared, &alive);
            assert_eq!(alive.load(Ordering::SeqCst), 0, "{name}");
            assert_eq!(Arc::strong_count(&alive), 1, "{name}");
        }
    }
}

// ---- wakers that misbehave -------------------------------------------------------------------

type Act = Box<dyn FnMut() + Send>;

#[derive(Default)]
struct Script {
    clone: Option<Act>,
    wake: Option<Act>,
    drop: Option<Act>,
}

struct Torture {
    script: Mutex<Script>,
    references: AtomicUsize,
}

impl Torture {
    fn waker(script: Script) -> (Arc<Self>, Waker) {
        let torture =
            Arc::new(Self { script: Mutex::new(script), references: AtomicUsize::new(1) });
        let data = Arc::into_raw(Arc::clone(&torture)).cast();
        // SAFETY: the table below counts references on the `Arc`.
        (torture, unsafe { Waker::from_raw(RawWaker::new(data, &TABLE)) })
    }

    fn act(&self, which: fn(&mut Script) -> &mut Option<Act>) {
        // Out of the lock while it runs: it may come back here.
        let act = which(&mut self.script.lock().unwrap()).take();
        if let Some(mut act) = act {
            act();
        }
    }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: `data` is a counted `Arc<Torture>`.
        let this = unsafe { &*data.cast::<Torture>() };
        this.act(|script| &mut script.clone);
        this.references.fetch_add(1, Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { Arc::increment_strong_count(data.cast::<Torture>()) };
        RawWaker::new(data, &TABLE)
    },
    |data| {
        // SAFETY: as above; the count is given up.
        let this = unsafe { Arc::from_raw(data.cast::<Torture>()) };
        this.references.fetch_sub(1, Ordering::SeqCst);
        this.act(|script| &mut script.wake);
    },
    |data| {
        // SAFETY: as above.
        let this = unsafe { &*data.cast::<Torture>() };
        this.act(|script| &mut script.wake);
    },
    |data| {
        // SAFETY: as above; the count is given up.
        let this = unsafe { Arc::from_raw(data.cast::<Torture>()) };
        this.references.fetch_sub(1, Ordering::SeqCst);
        this.act(|script| &mut script.drop);
    },
);

fn boom() -> Option<Act> {
    Some(Box::new(|| panic!("on purpose")))
}

#[test]
fn a_clone_that_panics_leaves_all_as_it_was() {
    for polled in [false, true] {
        let (p, mut e) = promise::<u32, ()>();
        if polled {
            let waker = Waker::from(Arc::new(Nothing));
            assert!(poll(&mut e, &waker).is_pending());
        }
        let (torture, waker) = Torture::waker(Script { clone: boom(), ..Script::default() });
        assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut e, &waker))).is_err());
        assert!(poll(&mut e, &waker).is_pending());
        p.set(1).unwrap();
        assert!(matches!(poll(&mut e, &waker), Poll::Ready(Ok(1))));
        drop(waker);
        assert_eq!(torture.references.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn a_wake_that_panics_does_not_reach_the_setter_and_loses_nothing() {
    for again in [false, true] {
        let (p, mut e) = promise::<u32, ()>();
        if again {
            assert!(poll(&mut e, &Waker::from(Arc::new(Nothing))).is_pending());
        }
        let (torture, waker) = Torture::waker(Script { wake: boom(), ..Script::default() });
        assert!(poll(&mut e, &waker).is_pending());
        drop(waker);
        p.set(1).unwrap();
        assert_eq!(torture.references.load(Ordering::SeqCst), 0);
        assert_eq!(e.get().unwrap(), 1);
    }
}

#[test]
fn a_drop_that_panics_stays_where_it_is() {
    // Replaced, taken along by a reader that leaves, by one that calls back.
    let (torture, waker) = Torture::waker(Script { drop: boom(), ..Script::default() });
    let (p, mut e) = promise::<u32, ()>();
    assert!(poll(&mut e, &waker).is_pending());
    assert!(poll(&mut e, Waker::noop()).is_pending());
    p.set(1).unwrap();
    assert_eq!(e.get().unwrap(), 1);
    assert_eq!(torture.references.load(Ordering::SeqCst), 1);

    torture.script.lock().unwrap().drop = boom();
    let (p, mut e) = promise::<u32, ()>();
    assert!(poll(&mut e, &waker).is_pending());
    drop(e);
    assert!(p.set(1).is_err());

    torture.script.lock().unwrap().drop = boom();
    let (p, mut e) = promise::<u32, ()>();
    assert!(poll(&mut e, &waker).is_pending());
    e.on_complete(|outcome| assert!(outcome.is_ok()));
    p.set(1).unwrap();
    assert_eq!(torture.references.load(Ordering::SeqCst), 1);
}

#[test]
fn a_wake_may_poll_drop_and_set() {
    // Polls, inside the wake.
    let (p, e) = promise::<u32, ()>();
    let reader = Arc::new(Mutex::new(Some(e)));
    let got = Arc::new(AtomicUsize::new(0));
    let (inside, tell) = (Arc::clone(&reader), Arc::clone(&got));
    let act: Act = Box::new(move || {
        let mut e = inside.lock().unwrap().take().unwrap();
        if let Poll::Ready(outcome) = poll(&mut e, Waker::noop()) {
            tell.store(outcome.unwrap() as usize, Ordering::SeqCst);
        }
    });
    let (torture, waker) = Torture::waker(Script { wake: Some(act), ..Script::default() });
    assert!(poll(reader.lock().unwrap().as_mut().unwrap(), &waker).is_pending());
    drop(waker);
    p.set(7).unwrap();
    assert_eq!(got.load(Ordering::SeqCst), 7);
    assert_eq!(torture.references.load(Ordering::SeqCst), 0);

    // Drops the reader, inside the wake.
    let (p, e) = promise::<u32, ()>();
    let reader = Arc::new(Mutex::new(Some(e)));
    let inside = Arc::clone(&reader);
    let act: Act = Box::new(move || drop(inside.lock().unwrap().take()));
    let (_torture, waker) = Torture::waker(Script { wake: Some(act), ..Script::default() });
    assert!(poll(reader.lock().unwrap().as_mut().unwrap(), &waker).is_pending());
    p.set(7).unwrap();
    assert!(reader.lock().unwrap().is_none());

    // Sets another promise, inside the wake and inside the drop of a waker.
    let (p, mut e) = promise::<u32, ()>();
    let (p1, e1) = promise::<u32, ()>();
    let (p2, e2) = promise::<u32, ()>();
    let (mut p1, mut p2) = (Some(p1), Some(p2));
    let (_torture, waker) = Torture::waker(Script {
        wake: Some(Box::new(move || p1.take().unwrap().set(1).unwrap())),
        drop: Some(Box::new(move || p2.take().unwrap().set(2).unwrap())),
        ..Script::default()
    });
    assert!(poll(&mut e, &waker).is_pending());
    p.set(7).unwrap();
    assert_eq!(e1.get().unwrap(), 1);
    drop(waker);
    assert_eq!(e2.get().unwrap(), 2);
}

#[test]
fn hooks_may_panic_set_and_drop() {
    let (mut p, e) = promise::<u32, ()>();
    p.on_cancel(|| panic!("on purpose"));
    assert!(e.cancel());
    p.set(1).unwrap();
    assert_eq!(e.get().unwrap(), 1);

    // The hook owns the promise's twin and sets it: the reader that leaves runs it.
    let (other, other_e) = promise::<u32, ()>();
    let (mut p, e) = promise::<u32, ()>();
    p.on_cancel(move || other.set(2).unwrap());
    drop(e);
    assert_eq!(other_e.get().unwrap(), 2);

    // A hook's captures that panic when they are dropped unrun.
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let (mut p, e) = promise::<u32, ()>();
    let bomb = Bomb;
    p.on_cancel(move || {
        let _bomb = &bomb;
    });
    p.set(1).unwrap();
    assert_eq!(e.get().unwrap(), 1);

    // A value that panics when it is dropped unread.
    let (p, e) = promise::<Bomb, ()>();
    assert!(p.set(Bomb).is_ok());
    drop(e);
}
