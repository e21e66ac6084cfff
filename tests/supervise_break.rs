//! Actors and supervisors under foreign code that misbehaves wherever it is called, and drops in awkward moments.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure::clock::ManualClock;
use tenure::promise::EventualError;
use tenure::retry::{Jitter, RetryPolicy};
use tenure::runtime::Runtime;
use tenure::supervise::{
    self, Actor, Address, ChildSpec, ChildState, Ctx, Exit, Handled, Reply, Restart, Shutdown,
    ShutdownCause, Stopping, Strategy, Supervisor,
};

const LONG: Duration = Duration::from_secs(30);

#[track_caller]
fn next<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(LONG).expect("something comes")
}

#[track_caller]
fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "{what} does not come");
        std::thread::yield_now();
    }
}

fn timed() -> (Runtime, ManualClock) {
    let clock = ManualClock::new();
    (Runtime::builder().workers(2).clock(clock.clone()).build().unwrap(), clock)
}

/// Panics whenever it is dropped or shown. Counts its drops.
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("dropped");
    }
}

impl fmt::Debug for Bomb {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("shown");
    }
}

impl fmt::Display for Bomb {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("shown");
    }
}

impl std::error::Error for Bomb {}

type Do = Box<dyn FnOnce(&mut Ctx<Order>) -> Handled + Send>;

enum Order {
    Run(Do),
    Ask(Reply<u32>),
    Carry(#[expect(dead_code, reason = "only dropped")] Bomb),
}

fn run(f: impl FnOnce(&mut Ctx<Order>) -> Handled + Send + 'static) -> Order {
    Order::Run(Box::new(f))
}

/// Panics in the places that it is told to.
struct Wild {
    panics_in: &'static [&'static str],
    kept: Vec<Reply<u32>>,
    fuse: Option<Bomb>,
}

impl Wild {
    fn tame() -> Self {
        Self { panics_in: &[], kept: Vec::new(), fuse: None }
    }

    fn at(&self, place: &str) {
        assert!(!self.panics_in.contains(&place), "told to in {place}");
    }
}

impl Actor for Wild {
    type Message = Order;

    fn handle(&mut self, order: Order, ctx: &mut Ctx<Order>) -> Handled {
        self.at("handle");
        match order {
            Order::Run(f) => f(ctx),
            Order::Ask(reply) => {
                self.kept.push(reply);
                Ok(())
            }
            Order::Carry(_) => Ok(()),
        }
    }

    fn stopping(&mut self, _: &Exit, _: &mut Ctx<Order>) -> Stopping {
        self.at("stopping");
        Stopping::Now
    }

    fn stopped(&mut self, _: &Exit) {
        self.at("stopped");
    }

    fn undelivered(&mut self, order: Order) {
        drop(order);
        self.at("undelivered");
    }
}

impl Drop for Wild {
    fn drop(&mut self) {
        for reply in self.kept.drain(..) {
            let _ = reply.send(77);
        }
        drop(self.fuse.take());
        self.at("drop");
    }
}

/// Everything that a child hands over panics when it is shown or dropped; it is started again all the same.
#[test]
fn a_child_made_of_bombs_is_started_again_like_any_other() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    let address = Address::new();
    let fuses = Arc::clone(&drops);
    let (said, faults) = mpsc::channel();
    let tree = Supervisor::builder("tree")
        .intensity(1_000, LONG)
        .on_fault(move |fault| {
            said.send(fault.undelivered).unwrap();
            panic!("the handler as well");
        })
        .child(
            ChildSpec::actor("bombs", move || Wild {
                panics_in: &["stopped", "undelivered", "drop"],
                kept: Vec::new(),
                fuse: Some(Bomb(Arc::clone(&fuses))),
            })
            .at(&address),
        )
        .start(&runtime)
        .unwrap();
    for round in 1..=20 {
        until("the next one", || address.current().is_some());
        let child = address.current().unwrap();
        let (inside, is_inside) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let error = Bomb(Arc::clone(&drops));
        let fails = run(move |_| {
            inside.send(()).unwrap();
            let _ = gate.recv();
            Err(Box::new(error))
        });
        assert!(child.try_tell(fails).is_ok());
        next(&is_inside);
        let carried = Bomb(Arc::clone(&drops));
        assert!(child.try_tell(Order::Carry(carried)).is_ok());
        let watch = child.watch();
        let silent = child.watch();
        watch.on_complete(|_| panic!("who watches"));
        drop(open);
        assert_eq!(next(&faults), 1);
        let down = silent.get().unwrap();
        assert!(down.exit.is_abnormal());
        // The last one who holds the error has to bear its drop.
        until("its drops", || drops.load(Ordering::SeqCst) >= 3 * round - 2);
        let last = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            drop((down, child));
        }));
        drop(last);
    }
    until("all is dropped", || drops.load(Ordering::SeqCst) >= 57);
    assert!(tree.shutdown(LONG).is_some());
    assert_eq!(tree.snapshot().children[0].incarnation, 21);
}

#[test]
fn a_panic_in_any_method_is_one_end_and_the_supervisor_hears_of_it() {
    for place in ["handle", "stopping", "stopped", "undelivered", "drop"] {
        let runtime = Runtime::builder().workers(2).build().unwrap();
        let places: &'static [&'static str] = Box::leak(Box::new([place]));
        let wild = Wild { panics_in: places, kept: Vec::new(), fuse: None };
        let actor = supervise::actor(wild).spawn(&runtime).unwrap();
        let answer = actor.ask(Duration::MAX, Order::Ask);
        let (inside, is_inside) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let holds = run(move |_| {
            inside.send(())?;
            let _ = gate.recv();
            Ok(())
        });
        let _ = actor.try_tell(holds);
        if place != "handle" {
            next(&is_inside);
        }
        let queued = actor.ask(LONG, Order::Ask);
        if place != "handle" {
            actor.stop();
        }
        drop(open);
        let down = actor.watch().get().unwrap();
        let panicked = matches!(&down.exit, Exit::Panicked(_));
        assert!(panicked, "{place}: {:?}", down.exit);
        if place != "handle" {
            assert_eq!(answer.get().unwrap(), 77, "in its drop");
            assert!(matches!(queued.get(), Err(EventualError::Broken)), "{place}");
        }
    }
}

/// A panicking closure of a watch is lost, and nobody else's notice with it.
#[test]
fn a_watch_that_panics_harms_nobody() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let other = supervise::actor(Wild::tame()).spawn(&runtime).unwrap();
    let watcher = supervise::actor(Wild::tame()).spawn(&runtime).unwrap();
    let (send, heard) = mpsc::channel();
    let target = other.clone();
    let watches = run(move |ctx| {
        ctx.watch(&target, |_| panic!("in the closure"));
        let (send, again) = (send.clone(), send);
        ctx.watch(&target, move |down| run(move |_| Ok(send.send(down.id)?)));
        ctx.watch(&target, move |down| run(move |_| Ok(again.send(down.id)?)));
        Ok(())
    });
    assert!(watcher.try_tell(watches).is_ok());
    until("its rest", || watcher.waiting() == 0);
    other.stop();
    assert_eq!([next(&heard), next(&heard)], [other.id(); 2]);
    assert!(!watcher.is_over());
    // Who comes late hears at once, also of one that is over.
    let (send, heard) = mpsc::channel();
    let late = run(move |ctx| {
        ctx.watch(&other, |_| panic!("in the closure"));
        ctx.watch(&other, move |down| run(move |_| Ok(send.send(down.id)?)));
        Ok(())
    });
    assert!(watcher.try_tell(late).is_ok());
    next(&heard);
}

#[test]
fn watches_of_who_is_over_are_let_go_of_whatever_their_drops_do() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let other = supervise::actor(Wild::tame()).spawn(&runtime).unwrap();
    let gone = supervise::actor(Wild::tame()).spawn(&runtime).unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    let (target, counts) = (other.clone(), Arc::clone(&drops));
    let watches = run(move |ctx| {
        for _ in 0..16 {
            let bomb = Bomb(Arc::clone(&counts));
            ctx.watch(&target, move |_| Order::Carry(bomb));
        }
        Ok(())
    });
    assert!(gone.try_tell(watches).is_ok());
    until("its rest", || gone.waiting() == 0);
    let end = gone.watch();
    gone.stop();
    end.get().unwrap();
    // The seventeenth makes room.
    let last = other.watch();
    assert_eq!(drops.load(Ordering::SeqCst), 16);
    other.stop();
    assert_eq!(last.get().unwrap().id, other.id());
}

#[test]
fn a_supervisor_or_its_runtime_may_be_dropped_while_a_child_waits_to_be_started_again() {
    for runtime_first in [false, true] {
        let (runtime, clock) = timed();
        let address = Address::new();
        let policy = RetryPolicy::fixed(Duration::from_secs(60)).jitter(Jitter::None);
        let tree = Supervisor::builder("tree")
            .intensity(9, Duration::MAX)
            .backoff(policy.build().unwrap())
            .child(ChildSpec::actor("child", Wild::tame).at(&address))
            .start(&runtime)
            .unwrap();
        assert!(address.try_tell(run(|_| Err("fails".into()))).is_ok());
        until("the delay", || tree.snapshot().children[0].state == ChildState::Waiting);
        let end = tree.watch();
        if runtime_first {
            drop(runtime);
            let exit = end.get().unwrap().exit;
            assert!(matches!(exit, Exit::Shutdown(ShutdownCause::Runtime)), "{exit:?}");
        } else {
            drop(tree);
            assert!(matches!(end.get().unwrap().exit, Exit::Normal));
        }
        clock.advance(Duration::from_secs(120));
        assert!(address.members().is_empty(), "nobody starts it any more");
    }
}

/// In `stopping`, in `stopped`, or in its drop: the supervisor gives it its time and comes to its end.
#[test]
fn a_child_that_blocks_while_it_stops_is_abandoned() {
    struct Blocks(&'static str, Arc<Mutex<Receiver<()>>>);
    impl Blocks {
        fn at(&self, place: &str) {
            if self.0 == place {
                let _ = self.1.lock().unwrap().recv();
            }
        }
    }
    impl Actor for Blocks {
        type Message = ();
        fn handle(&mut self, (): (), _: &mut Ctx<()>) -> Handled {
            Ok(())
        }
        fn stopping(&mut self, _: &Exit, _: &mut Ctx<()>) -> Stopping {
            self.at("stopping");
            Stopping::Now
        }
        fn stopped(&mut self, _: &Exit) {
            self.at("stopped");
        }
    }
    impl Drop for Blocks {
        fn drop(&mut self) {
            self.at("drop");
        }
    }
    for place in ["stopping", "stopped", "drop"] {
        let (runtime, clock) = timed();
        let (open, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let tree = Supervisor::builder("tree")
            .child(
                ChildSpec::actor("blocks", move || Blocks(place, Arc::clone(&gate)))
                    .shutdown(Shutdown::Timeout(Duration::from_secs(1))),
            )
            .start(&runtime)
            .unwrap();
        tree.stop();
        until("the stop", || tree.snapshot().children[0].state == ChildState::Stopping);
        clock.advance(Duration::from_secs(1));
        assert!(tree.watch().get().is_ok());
        assert_eq!(tree.snapshot().abandoned(), ["tree/blocks"], "{place}");
        drop(open);
        assert!(runtime.shutdown(LONG).abandoned.is_empty(), "{place}");
    }
}

#[test]
fn times_of_nothing_and_for_ever() {
    let (runtime, _clock) = timed();
    let actor = supervise::actor(Wild::tame()).capacity(1).spawn(&runtime).unwrap();
    // Nobody answers: one has no time, the other is never told.
    let late = actor.ask(Duration::ZERO, Order::Ask);
    assert!(matches!(late.get(), Err(EventualError::TimedOut)));
    let (send, beats) = mpsc::channel();
    let timers = run(move |ctx| {
        ctx.send_after(Duration::MAX, run(|_| Err("never".into())));
        ctx.send_interval(Duration::MAX, || run(|_| Err("never".into())));
        ctx.send_interval(Duration::ZERO, move || {
            let send = send.clone();
            run(move |_| Ok(send.send(())?))
        });
        Ok(())
    });
    assert!(actor.tell_timeout(timers, LONG).is_ok());
    for _ in 0..100 {
        next(&beats);
    }
    // Beats without a pause leave room for messages.
    let answer = actor.ask(Duration::MAX, Order::Ask);
    until("it is handled", || actor.waiting() == 0);
    let wait = || {
        run(|_| {
            std::thread::yield_now();
            Ok(())
        })
    };
    let full = (0..).find_map(|_| actor.tell_timeout(wait(), Duration::ZERO).err());
    assert!(full.is_some());
    actor.kill();
    assert_eq!(answer.get().unwrap(), 77, "by its drop");

    let tree = Supervisor::builder("tree")
        .strategy(Strategy::OneForAll)
        .intensity(u32::MAX, Duration::ZERO)
        .child(ChildSpec::actor("a", Wild::tame).shutdown(Shutdown::Timeout(Duration::ZERO)))
        .child(ChildSpec::actor("b", Wild::tame).shutdown(Shutdown::Timeout(Duration::MAX)))
        .start(&runtime)
        .unwrap();
    assert!(tree.shutdown(Duration::ZERO).is_none() || tree.down().is_some());
    assert!(tree.shutdown(Duration::MAX).is_some());
}

/// What waits for an answer runs on the supervisor's worker: it may use the tree, and let go of it.
#[test]
fn whoever_hears_an_answer_may_use_the_tree_and_let_go_of_it() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let tree = Supervisor::builder("tree").strategy(Strategy::Dynamic).start(&runtime).unwrap();
    let end = tree.watch();
    let (send, heard) = mpsc::channel();
    let child = |name: &str| ChildSpec::actor(name, Wild::tame).restart(Restart::Temporary);
    let (handle, second) = (tree.clone(), child("second"));
    let up = tree.add(child("first"));
    drop(tree);
    up.on_complete(move |_| {
        let children = handle.snapshot().children.len();
        let answer = handle.add(second);
        let stopped = handle.shutdown(Duration::MAX);
        send.send((children, answer, stopped.is_none())).unwrap();
        drop(handle);
        panic!("and panic");
    });
    let (children, answer, at_once) = next(&heard);
    assert_eq!((children, at_once), (1, true));
    assert!(answer.get().is_err());
    assert!(end.get().is_ok());
}

/// Each level stops the one below it.
#[test]
fn a_tower_of_supervisors_stands_and_falls() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let address = Address::new();
    let child = ChildSpec::actor("bottom", Wild::tame).at(&address);
    let mut builder = Supervisor::builder("0").child(child);
    for level in 1..200 {
        builder = Supervisor::builder(level.to_string()).child(ChildSpec::supervisor(builder));
    }
    let tree = builder.start(&runtime).unwrap();
    assert!(address.current().is_some());
    assert_eq!(tree.snapshot().to_string().lines().count(), 201);
    assert!(tree.shutdown(LONG).is_some());
    assert!(address.current().is_none());
}
