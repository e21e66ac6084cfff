//! Actors, through the public API: what becomes of each message, and of each end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use tenure::clock::ManualClock;
use tenure::promise::{Eventual, EventualError};
use tenure::runtime::{BoxError, Runtime};
use tenure::supervise::{
    self, Actor, ActorRef, AskError, Ctx, Down, Exit, Handled, Late, Phase, RegisterError,
    Registry, Reply, ShutdownCause, SpawnError, Stopping, TellError, TryTellError,
};

/// Longer than any machine takes.
const LONG: Duration = Duration::from_secs(30);

fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().unwrap()
}

fn timed(workers: usize) -> (Runtime, ManualClock) {
    let clock = ManualClock::new();
    (Runtime::builder().workers(workers).clock(clock.clone()).build().unwrap(), clock)
}

#[track_caller]
fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "{what} does not come");
        std::thread::yield_now();
    }
}

#[track_caller]
fn down<M: Send>(actor: &ActorRef<M>) -> Down {
    actor.watch().get_timeout(LONG).expect("the actor ends")
}

#[track_caller]
fn next<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(LONG).expect("something comes")
}

type WhenTold = Box<dyn FnMut(&Exit, &mut Ctx<Do>) -> Stopping + Send>;
type Job = Box<dyn FnOnce(&mut Probe, &mut Ctx<Do>) -> Handled + Send>;

/// What the probe is told to do.
struct Do(Job);

impl Do {
    fn new(f: impl FnOnce(&mut Probe, &mut Ctx<Do>) -> Handled + Send + 'static) -> Self {
        Self(Box::new(f))
    }

    fn say(what: &'static str) -> Self {
        Self::new(move |probe, _| {
            probe.say(what);
            Ok(())
        })
    }
}

/// An actor that does what it is told, and says what happens to it.
struct Probe {
    said: Sender<String>,
    on_start: Option<Job>,
    on_stopping: Option<WhenTold>,
    panic_in: &'static str,
}

impl Probe {
    fn new() -> (Self, Receiver<String>) {
        let (said, heard) = mpsc::channel();
        (Self { said, on_start: None, on_stopping: None, panic_in: "" }, heard)
    }

    fn say(&self, what: impl Into<String>) {
        let _ = self.said.send(what.into());
    }

    fn panics_in(mut self, place: &'static str) -> Self {
        self.panic_in = place;
        self
    }
}

impl Actor for Probe {
    type Message = Do;

    fn started(&mut self, ctx: &mut Ctx<Do>) -> Handled {
        self.say("started");
        assert!(self.panic_in != "started", "in started");
        match self.on_start.take() {
            Some(job) => job(self, ctx),
            None => Ok(()),
        }
    }

    fn handle(&mut self, message: Do, ctx: &mut Ctx<Do>) -> Handled {
        assert!(self.panic_in != "handle", "in handle");
        message.0(self, ctx)
    }

    fn stopping(&mut self, exit: &Exit, ctx: &mut Ctx<Do>) -> Stopping {
        match &mut self.on_stopping {
            Some(stopping) => stopping(exit, ctx),
            None => Stopping::Now,
        }
    }

    fn stopped(&mut self, exit: &Exit) {
        self.say(format!("stopped: {exit}"));
        assert!(self.panic_in != "stopped", "in stopped");
    }

    fn undelivered(&mut self, _: Do) {
        self.say("undelivered");
        assert!(self.panic_in != "undelivered", "in undelivered");
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.say("dropped");
        if self.panic_in == "drop" {
            panic!("in drop");
        }
    }
}

/// Holds the actor inside a message until the gate opens; returns once it is inside.
fn hold(actor: &ActorRef<Do>) -> Sender<()> {
    let (open, gate) = mpsc::channel::<()>();
    let (inside, is_inside) = mpsc::channel();
    actor
        .tell(Do::new(move |_, _| {
            inside.send(()).unwrap();
            let _ = gate.recv();
            Ok(())
        }))
        .unwrap();
    next(&is_inside);
    open
}

fn all(heard: &Receiver<String>) -> Vec<String> {
    heard.try_iter().collect()
}

// --- messages ----------------------------------------------------------------------------------------

#[test]
fn messages_of_a_sender_are_handled_in_order_and_never_two_at_once() {
    struct Order(u32, Sender<u32>);
    impl Actor for Order {
        type Message = u32;
        fn handle(&mut self, n: u32, _: &mut Ctx<u32>) -> Handled {
            assert_eq!(n, self.0);
            self.0 += 1;
            if self.0 == 1000 {
                self.1.send(self.0)?;
            }
            Ok(())
        }
    }
    let runtime = runtime(2);
    let (send, done) = mpsc::channel();
    let actor = supervise::actor(Order(0, send)).capacity(8).spawn(&runtime).unwrap();
    for n in 0..1000 {
        actor.tell(n).unwrap();
    }
    assert_eq!(next(&done), 1000);
}

#[test]
fn a_full_mailbox_gives_the_message_back() {
    let runtime = runtime(1);
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).capacity(3).spawn(&runtime).unwrap();
    assert_eq!(actor.capacity(), 4, "the next power of two");
    let open = hold(&actor);
    for _ in 0..4 {
        actor.try_tell(Do::say("one")).unwrap();
    }
    assert_eq!(actor.waiting(), 4);
    let back = actor.try_tell(Do::say("five"));
    assert!(matches!(back, Err(TryTellError::Full(_))));
    let late = actor.tell_timeout(Do::say("six"), Duration::ZERO);
    assert!(matches!(late, Err(TellError::TimedOut(_))));
    let asked = actor.ask(Duration::MAX, |_: Reply<()>| Do::say("seven"));
    assert!(matches!(asked.get(), Err(EventualError::Failed(AskError::Full))));
    drop(open);
    wait_until("room", || actor.waiting() == 0);
    actor.tell(Do::say("eight")).unwrap();
    drop(actor);
    let said: Vec<_> = heard.iter().collect();
    assert_eq!(
        said,
        ["started", "one", "one", "one", "one", "eight", "stopped: normal", "dropped"]
    );
}

#[test]
fn capacities_beyond_the_range_count_as_the_nearest() {
    let runtime = runtime(1);
    let spawn =
        |n| supervise::actor(Probe::new().0).capacity(n).spawn(&runtime).unwrap().capacity();
    assert_eq!(spawn(0), 1);
    assert_eq!(spawn(1), 1);
    assert_eq!(spawn(usize::MAX), 1 << 20);
    let (probe, heard) = Probe::new();
    let one = supervise::actor(probe).capacity(1).spawn(&runtime).unwrap();
    for _ in 0..200 {
        one.tell(Do::say("said")).unwrap();
    }
    drop(one);
    assert_eq!(heard.iter().filter(|said| said == "said").count(), 200);
}

#[test]
fn tell_waits_for_room() {
    let runtime = runtime(1);
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).capacity(1).spawn(&runtime).unwrap();
    let open = hold(&actor);
    actor.try_tell(Do::say("first")).unwrap();
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let actor = actor.clone();
            std::thread::spawn(move || actor.tell(Do::say("waited")).unwrap())
        })
        .collect();
    let waiting = actor.clone();
    let future = runtime.spawn(async move { waiting.tell_async(Do::say("async")).await.is_ok() });
    drop(open);
    for sender in senders {
        sender.join().unwrap();
    }
    assert!(future.unwrap().get().unwrap());
    drop(actor);
    let said: Vec<_> = heard.iter().collect();
    assert_eq!(said.iter().filter(|said| *said == "waited").count(), 4, "{said:?}");
    assert_eq!(said.iter().filter(|said| *said == "async").count(), 1, "{said:?}");
}

#[test]
fn senders_that_wait_hear_of_the_stop() {
    let runtime = runtime(2);
    let (probe, _heard) = Probe::new();
    let actor = supervise::actor(probe).capacity(1).spawn(&runtime).unwrap();
    let open = hold(&actor);
    actor.try_tell(Do::say("first")).unwrap();
    let blocked = actor.clone();
    let blocked = std::thread::spawn(move || blocked.tell(Do::say("never")).map_err(|_| ()));
    let mut future = Box::pin(actor.tell_async(Do::say("never")));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(future.as_mut().poll(&mut cx).is_pending());
    let mut dropped = Box::pin(actor.tell_async(Do::say("given up")));
    assert!(dropped.as_mut().poll(&mut cx).is_pending());
    drop(dropped);
    actor.stop();
    drop(open);
    assert_eq!(down(&actor).undelivered, 1);
    assert_eq!(blocked.join().unwrap(), Err(()));
    match future.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(Err(TellError::Stopped(_))) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_actor_does_not_wait_for_room_in_its_own_mailbox() {
    let runtime = runtime(1);
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).capacity(1).spawn(&runtime).unwrap();
    let (open, gate) = mpsc::channel::<()>();
    actor
        .tell(Do::new(move |probe, ctx| {
            // Others may be first: then it is full already.
            let _ = ctx.me().try_tell(Do::say("one"));
            match ctx.me().tell(Do::say("two")) {
                Err(TellError::WouldDeadlock(_)) => probe.say("would deadlock"),
                other => probe.say(format!("{other:?}")),
            }
            let _ = gate.recv();
            Ok(())
        }))
        .unwrap();
    drop(open);
    drop(actor);
    let said: Vec<_> = heard.iter().collect();
    assert_eq!(said, ["started", "would deadlock", "one", "stopped: normal", "dropped"]);
}

#[test]
fn one_worker_serves_an_actor_that_waits_for_room_at_another() {
    struct Forward(ActorRef<u32>);
    impl Actor for Forward {
        type Message = u32;
        fn handle(&mut self, n: u32, _: &mut Ctx<u32>) -> Handled {
            self.0.tell(n).map_err(|refused| refused.to_string().into())
        }
    }
    struct Last(Sender<u32>);
    impl Actor for Last {
        type Message = u32;
        fn handle(&mut self, n: u32, _: &mut Ctx<u32>) -> Handled {
            Ok(self.0.send(n)?)
        }
    }
    let runtime = runtime(1);
    let (send, came) = mpsc::channel();
    let last = supervise::actor(Last(send)).capacity(1).spawn(&runtime).unwrap();
    let first = supervise::actor(Forward(last)).capacity(64).spawn(&runtime).unwrap();
    for n in 0..64 {
        first.tell(n).unwrap();
    }
    for n in 0..64 {
        assert_eq!(next(&came), n);
    }
}

#[test]
fn a_busy_actor_does_not_keep_the_worker() {
    struct Busy(Arc<AtomicUsize>);
    impl Actor for Busy {
        type Message = ();
        fn handle(&mut self, (): (), ctx: &mut Ctx<()>) -> Handled {
            self.0.fetch_add(1, Ordering::Relaxed);
            // As many as it takes off.
            let _ = ctx.me().try_tell(());
            Ok(())
        }
    }
    let runtime = runtime(1);
    let handled = Arc::new(AtomicUsize::new(0));
    let busy = supervise::actor(Busy(Arc::clone(&handled))).spawn(&runtime).unwrap();
    busy.tell(()).unwrap();
    wait_until("a second turn", || handled.load(Ordering::Relaxed) > 64);
    let (probe, heard) = Probe::new();
    let other = supervise::actor(probe).spawn(&runtime).unwrap();
    other.tell(Do::say("served")).unwrap();
    assert_eq!(next(&heard), "started");
    assert_eq!(next(&heard), "served");
    busy.stop();
    assert_eq!(down(&busy).undelivered, 1);
}

#[test]
fn one_turn_is_64_messages() {
    let runtime = runtime(1);
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).spawn(&runtime).unwrap();
    let open = hold(&actor);
    for _ in 0..200 {
        actor.try_tell(Do::say("message")).unwrap();
    }
    // Queued behind the actor; then they take turns.
    let (probe, _other_heard) = Probe::new();
    let other = supervise::actor(probe).spawn(&runtime).unwrap();
    let (send, seen) = mpsc::channel();
    let look = Do::new(move |_, _| {
        send.send(heard.try_iter().filter(|said| said == "message").count())?;
        Ok(())
    });
    other.tell(look).unwrap();
    drop(open);
    // The message that held it was the first of its turn.
    assert_eq!(next(&seen), 63);
}

// --- questions ---------------------------------------------------------------------------------------

#[test]
fn a_question_is_answered_broken_late_or_refused() {
    let (runtime, clock) = timed(1);
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).spawn(&runtime).unwrap();
    let ask = |limit, f: fn(&mut Probe, Reply<u32>)| -> Eventual<u32, AskError> {
        actor.ask(limit, move |reply| {
            Do::new(move |probe, _| {
                f(probe, reply);
                Ok(())
            })
        })
    };
    for limit in [Duration::from_secs(1), Duration::MAX] {
        let answered = ask(limit, |_, reply| reply.send(7).unwrap());
        assert_eq!(answered.get().unwrap(), 7);
        let broken = ask(limit, |_, reply| drop(reply));
        assert!(matches!(broken.get(), Err(EventualError::Broken)));
        let nobody = ask(limit, |probe, reply| {
            let _ = reply.send(1);
            probe.say("answered nobody");
        });
        drop(nobody);
        assert!(heard.iter().any(|said| said == "answered nobody"));
    }
    // The answer comes after the limit.
    let open = hold(&actor);
    let late = ask(Duration::from_secs(1), |probe, reply| {
        probe.say(format!("wanted: {}", reply.is_wanted()));
        probe.say(format!("{:?}", reply.send(9)));
    });
    assert!(!late.is_ready());
    clock.advance(Duration::from_secs(1));
    assert!(matches!(late.get(), Err(EventualError::TimedOut)));
    drop(open);
    assert_eq!(next(&heard), "wanted: false");
    assert_eq!(next(&heard), format!("{:?}", Err::<(), _>(Late(9))));
    // A limit that is up at once, and one that is as long as there is.
    let open = hold(&actor);
    let zero = ask(Duration::ZERO, |_, reply| _ = reply.send(1));
    assert!(matches!(zero.get(), Err(EventualError::TimedOut)));
    let longest = ask(Duration::MAX - Duration::from_nanos(1), |_, reply| _ = reply.send(2));
    clock.advance(Duration::MAX);
    drop(open);
    assert_eq!(longest.get().unwrap(), 2);
    // The actor ends with the question in its mailbox.
    let open = hold(&actor);
    let unheard = ask(Duration::from_secs(1), |_, reply| _ = reply.send(1));
    actor.stop();
    drop(open);
    assert!(matches!(unheard.get(), Err(EventualError::Broken)));
    down(&actor);
    let dead = ask(Duration::from_secs(1), |_, reply| _ = reply.send(1));
    assert!(matches!(dead.get(), Err(EventualError::Failed(AskError::Stopped))));
}

#[test]
fn an_answer_comes_back_as_a_message() {
    let runtime = runtime(1);
    let (probe, _) = Probe::new();
    let other = supervise::actor(probe).spawn(&runtime).unwrap();
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).spawn(&runtime).unwrap();
    actor
        .tell(Do::new(move |_, ctx| {
            let answer = other.ask(LONG, |reply| {
                Do::new(move |_, _| {
                    let _ = reply.send(5);
                    Ok(())
                })
            });
            ctx.pipe(answer, |answer: Result<u32, _>| {
                Do::new(move |probe, ctx| {
                    probe.say(format!("{:?}", answer.ok()));
                    ctx.stop();
                    Ok(())
                })
            });
            Ok(())
        }))
        .unwrap();
    assert_eq!(down(&actor).undelivered, 0);
    assert_eq!(all(&heard), ["started", "Some(5)", "stopped: normal", "dropped"]);
}

// --- ends ----------------------------------------------------------------------------------------------

#[test]
fn a_stop_goes_first_and_what_waits_comes_back() {
    let runtime = runtime(1);
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).name("probe").spawn(&runtime).unwrap();
    let open = hold(&actor);
    for _ in 0..3 {
        actor.tell(Do::say("handled")).unwrap();
    }
    actor.stop();
    actor.stop();
    drop(open);
    let down = down(&actor);
    assert_eq!((down.id, down.name.as_deref()), (actor.id(), Some("probe")));
    assert!(matches!(down.exit, Exit::Normal));
    assert_eq!(down.undelivered, 3);
    let said = all(&heard);
    assert_eq!(
        said,
        ["started", "stopped: normal", "undelivered", "undelivered", "undelivered", "dropped"]
    );
    assert!(actor.is_over());
    assert_eq!(actor.phase(), Phase::Stopped);
    assert!(matches!(actor.try_tell(Do::say("late")), Err(TryTellError::Stopped(_))));
    assert!(matches!(actor.tell(Do::say("late")), Err(TellError::Stopped(_))));
    assert!(matches!(actor.down(), Some(again) if again.undelivered == 3));
}

#[test]
fn the_last_reference_stops_the_actor_when_all_is_handled() {
    let runtime = runtime(1);
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).spawn(&runtime).unwrap();
    let open = hold(&actor);
    let second = actor.clone();
    second.tell(Do::say("handled")).unwrap();
    second.tell(Do::say("handled")).unwrap();
    let watch = actor.watch();
    drop((actor, second));
    drop(open);
    let down = watch.get().unwrap();
    assert!(matches!(down.exit, Exit::Normal));
    assert_eq!(all(&heard), ["started", "handled", "handled", "stopped: normal", "dropped"]);
}

#[test]
fn an_actor_that_keeps_itself_lives_until_it_lets_go() {
    let (runtime, clock) = timed(1);
    let (mut probe, heard) = Probe::new();
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    probe.on_start = Some(Box::new(move |probe, ctx| {
        *keep.lock().unwrap() = Some(ctx.me());
        ctx.send_after(Duration::from_secs(1), Do::say("still here"));
        probe.say("armed");
        Ok(())
    }));
    let watch = supervise::actor(probe).spawn(&runtime).unwrap().watch();
    assert_eq!(next(&heard), "started");
    assert_eq!(next(&heard), "armed");
    clock.advance(Duration::from_secs(1));
    assert_eq!(next(&heard), "still here");
    drop(kept.lock().unwrap().take());
    assert!(matches!(watch.get().unwrap().exit, Exit::Normal));
}

#[test]
fn a_failed_start_has_no_stopped_and_returns_what_was_sent() {
    let runtime = runtime(1);
    for panics in [false, true] {
        let (mut probe, heard) = Probe::new();
        if panics {
            probe = probe.panics_in("started");
        } else {
            probe.on_start = Some(Box::new(|_, _| Err("no database".into())));
        }
        let blocker = Arc::new(Barrier::new(2));
        let wait = Arc::clone(&blocker);
        let job = runtime.submit(move |_| {
            wait.wait();
            Ok::<_, BoxError>(())
        });
        let actor = supervise::actor(probe).spawn(&runtime).unwrap();
        let _ = actor.tell(Do::say("too early"));
        blocker.wait();
        job.unwrap().get().unwrap();
        let down = down(&actor);
        match (&down.exit, panics) {
            (Exit::Failed(error), false) => assert_eq!(error.to_string(), "no database"),
            (Exit::Panicked(panic), true) => assert_eq!(panic.message(), "in started"),
            other => panic!("{other:?}"),
        }
        assert!(down.exit.is_abnormal());
        assert_eq!(down.undelivered, 1);
        assert_eq!(all(&heard), ["started", "undelivered", "dropped"]);
    }
}

#[test]
fn an_actor_that_is_stopped_before_it_starts_never_does() {
    let runtime = runtime(1);
    let blocker = Arc::new(Barrier::new(2));
    let wait = Arc::clone(&blocker);
    let job = runtime.submit(move |_| {
        wait.wait();
        Ok::<_, BoxError>(())
    });
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).spawn(&runtime).unwrap();
    actor.tell(Do::say("never")).unwrap();
    actor.stop();
    blocker.wait();
    job.unwrap().get().unwrap();
    assert_eq!(down(&actor).undelivered, 1);
    assert_eq!(all(&heard), ["undelivered", "dropped"]);
}

#[test]
fn errors_and_panics_end_the_actor_wherever_they_come_from() {
    let runtime = runtime(1);
    let ended = |place: &'static str| {
        let (probe, heard) = Probe::new();
        let actor = supervise::actor(probe.panics_in(place)).spawn(&runtime).unwrap();
        if place == "handle" {
            let _ = actor.tell(Do::say("panics"));
        } else {
            let open = hold(&actor);
            actor.tell(Do::say("left")).unwrap();
            actor.tell(Do::say("left")).unwrap();
            actor.stop();
            drop(open);
        }
        let down = down(&actor);
        (down.exit.to_string(), all(&heard))
    };
    let (exit, said) = ended("handle");
    assert_eq!(exit, "panicked: in handle");
    assert_eq!(said, ["started", "stopped: panicked: in handle", "dropped"]);
    for place in ["stopped", "undelivered", "drop"] {
        let (exit, said) = ended(place);
        assert_eq!(exit, format!("panicked: in {place}"));
        assert_eq!(
            said,
            ["started", "stopped: normal", "undelivered", "undelivered", "dropped"],
            "a panic in {place} keeps nothing from its turn"
        );
    }
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).spawn(&runtime).unwrap();
    actor.tell(Do::new(|_, _| Err("out of tea".into()))).unwrap();
    assert_eq!(down(&actor).exit.to_string(), "out of tea");
    assert_eq!(all(&heard), ["started", "stopped: out of tea", "dropped"]);
    let (probe, _heard) = Probe::new();
    let actor = supervise::actor(probe).spawn(&runtime).unwrap();
    let fail = Do::new(|_, ctx| {
        ctx.fail("first");
        ctx.stop();
        Ok(())
    });
    actor.tell(fail).unwrap();
    assert_eq!(down(&actor).exit.to_string(), "first");
    // The worker goes on.
    assert_eq!(runtime.submit(|_| Ok::<_, BoxError>(1)).unwrap().get().unwrap(), 1);
}

#[test]
fn a_killed_actor_is_not_asked() {
    let runtime = runtime(1);
    let (mut probe, heard) = Probe::new();
    probe.on_stopping = Some(Box::new(|_, _| Stopping::Later));
    let actor = supervise::actor(probe).spawn(&runtime).unwrap();
    let open = hold(&actor);
    actor.stop();
    actor.tell(Do::say("never")).unwrap();
    actor.kill();
    drop(open);
    let down = down(&actor);
    assert!(matches!(down.exit, Exit::Killed));
    assert_eq!(down.undelivered, 1);
    assert_eq!(all(&heard), ["started", "undelivered", "dropped"]);
}

#[test]
fn an_actor_may_put_its_end_off() {
    let runtime = runtime(1);
    let (mut probe, heard) = Probe::new();
    let said = probe.said.clone();
    probe.on_stopping = Some(Box::new(move |exit, ctx| {
        let _ = said.send(format!("asked to stop: {exit}"));
        ctx.pipe(tenure::promise::ready::<_, ()>(()), |_| {
            Do::new(|_, ctx| {
                let _ = ctx.me().try_tell(Do::new(|probe, ctx| {
                    probe.say("last words");
                    ctx.stop();
                    Ok(())
                }));
                Ok(())
            })
        });
        Stopping::Later
    }));
    let actor = supervise::actor(probe).spawn(&runtime).unwrap();
    let open = hold(&actor);
    actor.tell(Do::say("handled all the same")).unwrap();
    actor.stop();
    drop(open);
    assert_eq!(down(&actor).undelivered, 0);
    assert_eq!(
        all(&heard),
        [
            "started",
            "asked to stop: normal",
            "handled all the same",
            "last words",
            "stopped: normal",
            "dropped"
        ]
    );
}

#[test]
fn a_runtime_that_ends_takes_its_actors_along() {
    let runtime = runtime(1);
    let (probe, heard) = Probe::new();
    let idle = supervise::actor(probe).spawn(&runtime).unwrap();
    assert_eq!(next(&heard), "started");
    let report = runtime.shutdown(LONG);
    assert!(report.abandoned.is_empty());
    let down = down(&idle);
    assert!(matches!(down.exit, Exit::Shutdown(ShutdownCause::Runtime)), "{down:?}");
    assert_eq!(all(&heard), ["stopped: shutdown: with the runtime", "dropped"]);
    assert!(matches!(idle.try_tell(Do::say("late")), Err(TryTellError::Stopped(_))));
    let (probe, _heard) = Probe::new();
    match supervise::actor(probe).spawn(&runtime) {
        Err(SpawnError::Closed(probe)) => drop(probe),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_actor_that_the_runtime_took_for_stuck_ends_when_it_comes_back() {
    let clock = ManualClock::new();
    let runtime = Runtime::builder()
        .workers(1)
        .clock(clock.clone())
        .attempt_timeout(Duration::from_secs(1))
        .build()
        .unwrap();
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).spawn(&runtime).unwrap();
    let open = hold(&actor);
    actor.tell(Do::say("never")).unwrap();
    let events = runtime.events();
    // It is judged silent after one to two periods; the driver looks each time the clock moves.
    wait_until("a replacement", || {
        clock.advance(Duration::from_secs(1));
        events.try_next().is_some_and(|e| matches!(e, tenure::runtime::Event::WorkerStuck { .. }))
    });
    assert_eq!(runtime.submit(|_| Ok::<_, BoxError>(1)).unwrap().get().unwrap(), 1);
    assert!(actor.down().is_none(), "it is still inside");
    drop(open);
    let down = down(&actor);
    assert!(matches!(down.exit, Exit::Stuck), "{down:?}");
    assert_eq!(down.undelivered, 1);
    assert_eq!(all(&heard), ["started", "stopped: it was stuck", "undelivered", "dropped"]);
}

#[test]
fn many_short_messages_do_not_look_like_one_long_attempt() {
    let clock = ManualClock::new();
    let runtime = Runtime::builder()
        .workers(1)
        .clock(clock.clone())
        .attempt_timeout(Duration::from_secs(1))
        .build()
        .unwrap();
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).spawn(&runtime).unwrap();
    for _ in 0..50 {
        let clock = clock.clone();
        let tick = Do::new(move |_, _| {
            clock.advance(Duration::from_millis(300));
            Ok(())
        });
        actor.tell(tick).unwrap();
    }
    actor.tell(Do::say("through")).unwrap();
    assert_eq!(next(&heard), "started");
    assert_eq!(next(&heard), "through");
}

// --- timers ----------------------------------------------------------------------------------------------

#[test]
fn timers_are_on_the_runtimes_clock_and_end_with_the_actor() {
    let (runtime, clock) = timed(1);
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).capacity(1).spawn(&runtime).unwrap();
    assert_eq!(next(&heard), "started");
    let (send, ids) = mpsc::channel();
    let set = Do::new(move |_, ctx| {
        ctx.send_after(Duration::from_secs(3), Do::say("three"));
        ctx.send_after(Duration::from_secs(1), Do::say("one"));
        let taken_back = ctx.send_after(Duration::from_secs(2), Do::say("taken back"));
        assert!(ctx.cancel_timer(taken_back));
        assert!(!ctx.cancel_timer(taken_back));
        ctx.send_after(Duration::MAX, Do::say("never"));
        ctx.send_after(Duration::ZERO, Do::say("now"));
        let due = ctx.send_after(Duration::ZERO, Do::say("due, but taken back"));
        send.send(due)?;
        Ok(())
    });
    actor.tell(set).unwrap();
    let due = next(&ids);
    actor
        .tell(Do::new(move |probe, ctx| {
            // It has come, or it is taken back here, also off the lane.
            probe.say(if ctx.cancel_timer(due) { "in time" } else { "too late" });
            Ok(())
        }))
        .unwrap();
    let mut said = vec![next(&heard), next(&heard)];
    if said.contains(&"due, but taken back".to_owned()) {
        said.push(next(&heard));
        assert!(said.contains(&"too late".to_owned()), "{said:?}");
    } else {
        assert!(said.contains(&"in time".to_owned()), "{said:?}");
    }
    assert!(said.contains(&"now".to_owned()), "{said:?}");
    clock.advance(Duration::from_secs(1));
    assert_eq!(next(&heard), "one");
    clock.advance(Duration::from_secs(1));
    clock.advance(Duration::from_secs(1));
    assert_eq!(next(&heard), "three");
    actor.stop();
    assert_eq!(down(&actor).undelivered, 0, "a timer that has not come is no message");
    clock.advance(Duration::MAX);
    assert_eq!(all(&heard), ["stopped: normal", "dropped"]);
}

#[test]
fn an_interval_leaves_out_what_was_missed() {
    let (runtime, clock) = timed(1);
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).spawn(&runtime).unwrap();
    let (send, id) = mpsc::channel();
    let mut beats = 0;
    let set = Do::new(move |_, ctx| {
        let beat = ctx.send_interval(Duration::from_secs(10), move || {
            beats += 1;
            let beat = beats;
            Do::new(move |probe, ctx| {
                probe.say(format!("beat {beat} at {:?}", ctx.now()));
                Ok(())
            })
        });
        send.send(beat)?;
        Ok(())
    });
    actor.tell(set).unwrap();
    let beat = next(&id);
    assert_eq!(next(&heard), "started");
    clock.advance(Duration::from_secs(10));
    assert_eq!(next(&heard), "beat 1 at +10s");
    wait_until("rest", || actor.phase() == Phase::Idle);
    clock.advance(Duration::from_secs(35));
    assert_eq!(next(&heard), "beat 2 at +45s");
    wait_until("rest", || actor.phase() == Phase::Idle);
    clock.advance(Duration::from_secs(4));
    clock.advance(Duration::from_secs(1));
    assert_eq!(next(&heard), "beat 3 at +50s");
    actor
        .tell(Do::new(move |probe, ctx| {
            probe.say(format!("{}", ctx.cancel_timer(beat)));
            Ok(())
        }))
        .unwrap();
    assert_eq!(next(&heard), "true");
    clock.advance(Duration::from_secs(100));
    actor.tell(Do::say("no more")).unwrap();
    assert_eq!(next(&heard), "no more");
}

// --- watching ----------------------------------------------------------------------------------------------

#[test]
fn every_watcher_hears_once_also_who_comes_late() {
    let runtime = runtime(1);
    let (probe, _heard) = Probe::new();
    let watched = supervise::actor(probe).spawn(&runtime).unwrap();
    let (probe, heard) = Probe::new();
    let watcher = supervise::actor(probe).capacity(1).spawn(&runtime).unwrap();
    let watch = |times: usize| {
        let watched = watched.clone();
        Do::new(move |probe, ctx| {
            for _ in 0..times {
                ctx.watch(&watched, |down| {
                    Do::new(move |probe, _| {
                        probe.say(format!("down: {}", down.exit));
                        Ok(())
                    })
                });
            }
            probe.say("watches");
            Ok(())
        })
    };
    watcher.tell(watch(2)).unwrap();
    assert_eq!(next(&heard), "started");
    assert_eq!(next(&heard), "watches");
    // Many who lost interest.
    for _ in 0..1000 {
        drop(watched.watch());
    }
    let outside = watched.watch();
    watched.tell(Do::new(|_, _| Err("oh".into()))).unwrap();
    assert_eq!(outside.get().unwrap().exit.to_string(), "oh");
    assert_eq!(next(&heard), "down: oh");
    assert_eq!(next(&heard), "down: oh");
    watcher.tell(watch(1)).unwrap();
    assert_eq!(next(&heard), "watches");
    assert_eq!(next(&heard), "down: oh");
    watcher.stop();
    assert_eq!(down(&watcher).undelivered, 0);
    assert_eq!(all(&heard), ["stopped: normal", "dropped"]);
}

#[test]
fn a_control_lane_passes_a_full_mailbox() {
    let runtime = runtime(1);
    let (probe, heard) = Probe::new();
    let actor = supervise::actor(probe).capacity(1).spawn(&runtime).unwrap();
    let (probe, _other_heard) = Probe::new();
    let other = supervise::actor(probe).spawn(&runtime).unwrap();
    let watched = other.clone();
    actor
        .tell(Do::new(move |_, ctx| {
            ctx.watch(&watched, |_| Do::say("down"));
            Ok(())
        }))
        .unwrap();
    let open = hold(&actor);
    actor.try_tell(Do::say("message")).unwrap();
    // The only worker is held: the other's end needs none if its job is dropped. So end it by a stand-in.
    let ender = std::thread::spawn(move || {
        other.stop();
        other
    });
    let other = ender.join().unwrap();
    drop(open);
    down(&other);
    let mut said = vec![next(&heard), next(&heard), next(&heard)];
    said.sort();
    assert_eq!(said, ["down", "message", "started"]);
}

// --- names -------------------------------------------------------------------------------------------------

#[test]
fn a_name_is_one_actors_until_it_stops() {
    let runtime = runtime(1);
    let registry = Registry::new();
    let spawn = || supervise::actor(Probe::new().0).register(&registry, "probe").spawn(&runtime);
    let first = spawn().unwrap();
    let (again, by) = (spawn(), first.id());
    match again {
        Err(SpawnError::Name(_, RegisterError::Taken { name, by: holder })) => {
            assert_eq!((&*name, holder), ("probe", by));
        }
        other => panic!("{other:?}"),
    }
    registry.register("probe", &first).unwrap();
    registry.register("other name", &first).unwrap();
    assert_eq!(registry.names().len(), 2);
    assert_eq!(registry.lookup::<Do>("probe").unwrap(), first);
    assert!(registry.lookup::<u8>("probe").is_none());
    assert!(registry.unregister("other name"));
    assert!(!registry.unregister("other name"));
    // The moment the end is told, the name is free.
    let (send, second) = mpsc::channel();
    let (names, other) = (registry.clone(), runtime.clone());
    first.watch().on_complete(move |_| {
        let actor = supervise::actor(Probe::new().0).register(&names, "probe").spawn(&other);
        send.send(actor.map_err(|refused| refused.to_string())).unwrap();
    });
    first.stop();
    let second = next(&second).unwrap();
    assert_eq!(registry.lookup::<Do>("probe").unwrap(), second);
    assert!(matches!(registry.register("late", &first), Err(RegisterError::Stopped)));
    assert_eq!(registry.names().len(), 1);
    // An entry is a reference.
    let watch = second.watch();
    drop(second);
    registry.lookup::<Do>("probe").unwrap().tell(Do::say("still there")).unwrap();
    assert!(registry.unregister("probe"));
    assert!(matches!(watch.get().unwrap().exit, Exit::Normal));
}

// --- misuse ------------------------------------------------------------------------------------------------

#[test]
fn foreign_code_may_come_back_in_from_anywhere() {
    /// A message whose drop sends another.
    struct Echo(Option<ActorRef<Echo>>, Arc<AtomicUsize>);
    impl Drop for Echo {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
            if let Some(actor) = self.0.take() {
                let _ = actor.try_tell(Echo(None, Arc::clone(&self.1)));
                actor.stop();
                drop(actor.watch());
            }
        }
    }
    struct Sink;
    impl Actor for Sink {
        type Message = Echo;
        fn handle(&mut self, echo: Echo, _: &mut Ctx<Echo>) -> Handled {
            drop(echo);
            Ok(())
        }
    }
    let runtime = runtime(2);
    for round in 0..50 {
        let dropped = Arc::new(AtomicUsize::new(0));
        let actor = supervise::actor(Sink).capacity(4).spawn(&runtime).unwrap();
        let mut sent = 0;
        for _ in 0..round % 5 {
            let echo = Echo(Some(actor.clone()), Arc::clone(&dropped));
            sent += usize::from(actor.try_tell(echo).is_ok());
        }
        actor.watch().on_complete({
            let actor = actor.clone();
            move |_| drop(actor)
        });
        actor.stop();
        down(&actor);
        assert!(dropped.load(Ordering::Relaxed) >= sent);
    }
}

#[test]
fn handles_are_send_and_sync_whatever_the_message() {
    fn both<T: Send + Sync>() {}
    both::<ActorRef<std::cell::Cell<u8>>>();
    both::<Registry>();
    both::<Down>();
    fn send<T: Send>() {}
    send::<Reply<std::cell::Cell<u8>>>();
    send::<Ctx<std::cell::Cell<u8>>>();
}

/// It has one name already when it turns out that it gets no other; whoever found it by the first is not left
/// waiting.
#[test]
fn an_actor_that_is_not_started_ends_for_those_who_found_it() {
    let runtime = runtime(1);
    let (registry, other) = (Registry::new(), Registry::new());
    let taken = supervise::actor(Probe::new().0).spawn(&runtime).unwrap();
    other.register("taken", &taken).unwrap();
    let finder = std::thread::spawn({
        let registry = registry.clone();
        move || {
            let found = loop {
                match registry.lookup::<Do>("early") {
                    Some(found) => break found,
                    None => std::thread::yield_now(),
                }
            };
            // It would wait for room, for ever.
            while found.tell(Do::say("lost")).is_ok() {}
            found
        }
    });
    let found = loop {
        let mut spawn = supervise::actor(Probe::new().0).capacity(1).register(&registry, "early");
        for n in 0..1_000 {
            spawn = spawn.register(&registry, n.to_string());
        }
        match spawn.register(&other, "taken").spawn(&runtime) {
            Err(SpawnError::Name(_, RegisterError::Taken { by, .. })) => assert_eq!(by, taken.id()),
            _ => unreachable!("the last name is taken"),
        }
        assert!(registry.names().is_empty());
        if finder.is_finished() {
            break finder.join().unwrap();
        }
    };
    let down = down(&found);
    assert!(matches!(down.exit, Exit::Failed(_)), "{:?}", down.exit);
    assert!(found.is_over());
}
