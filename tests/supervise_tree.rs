//! Supervisors, through the public API: starts, stops, threads, groups, faults, and what is left behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure::clock::ManualClock;
use tenure::promise::EventualError;
use tenure::retry::{Jitter, RetryPolicy};
use tenure::runtime::Runtime;
use tenure::supervise::{
    Actor, Address, AutoShutdown, Cause, ChildError, ChildSpec, ChildState, ConfigError, Ctx, Exit,
    Fault, Handled, Level, Reaction, Registry, Reply, Restart, Scope, Shutdown, ShutdownCause,
    Snapshot, StartError, Stopping, Strategy, Supervisor, SupervisorState, TryTellError,
};

const LONG: Duration = Duration::from_secs(30);

fn timed() -> (Runtime, ManualClock) {
    let clock = ManualClock::new();
    (Runtime::builder().workers(2).clock(clock.clone()).build().unwrap(), clock)
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
fn next<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(LONG).expect("something comes")
}

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn say(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        core::mem::take(&mut *self.0.lock().unwrap())
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

type Run = Box<dyn FnOnce(&mut Ctx<Message>) + Send>;

enum Message {
    Fail,
    Panic,
    Stop,
    Run(Run),
    Who(Reply<String>),
}

struct Probe {
    name: String,
    log: Log,
    start: Arc<dyn Fn() -> Handled + Send + Sync>,
}

impl Probe {
    fn of(name: &str, log: &Log) -> impl Fn() -> Self + Send + Sync + Clone + 'static {
        let (name, log) = (name.to_owned(), log.clone());
        move || Self { name: name.clone(), log: log.clone(), start: Arc::new(|| Ok(())) }
    }

    fn starting(
        name: &str,
        log: &Log,
        start: impl Fn() -> Handled + Send + Sync + 'static,
    ) -> impl Fn() -> Self + Send + Sync + 'static {
        let (name, log, start) = (name.to_owned(), log.clone(), Arc::new(start));
        move || Self { name: name.clone(), log: log.clone(), start: Arc::clone(&start) as _ }
    }
}

impl Actor for Probe {
    type Message = Message;

    fn started(&mut self, _: &mut Ctx<Message>) -> Handled {
        self.log.say(format!("+{}", self.name));
        (self.start)()
    }

    fn handle(&mut self, message: Message, ctx: &mut Ctx<Message>) -> Handled {
        match message {
            Message::Fail => return Err("told to fail".into()),
            Message::Panic => panic!("told to panic"),
            Message::Stop => ctx.stop(),
            Message::Run(f) => f(ctx),
            Message::Who(reply) => _ = reply.send(self.name.clone()),
        }
        Ok(())
    }

    fn stopped(&mut self, exit: &Exit) {
        if matches!(exit, Exit::Shutdown(_)) {
            self.log.say(format!("-{}", self.name));
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.log.say(format!("~{}", self.name));
    }
}

/// Keeps the child inside a call until the gate opens; returns once it is inside.
fn hold(address: &Address<Message>) -> Sender<()> {
    let (open, gate) = mpsc::channel::<()>();
    let (inside, is_inside) = mpsc::channel();
    let wait = Message::Run(Box::new(move |_| {
        inside.send(()).unwrap();
        let _ = gate.recv();
    }));
    assert!(address.try_tell(wait).is_ok());
    next(&is_inside);
    open
}

fn faults() -> (impl Fn(&Fault) + Send + Sync + Clone, Receiver<Fault>) {
    let (send, faults) = mpsc::channel();
    (move |fault: &Fault| drop(send.send(fault.clone())), faults)
}

fn state(tree: &Supervisor, child: &str) -> Option<ChildState> {
    tree.snapshot().child(child).map(|child| child.state)
}

// --- starting ------------------------------------------------------------------------------------------

#[test]
fn children_start_in_order_and_stop_in_reverse() {
    let (runtime, _) = timed();
    let log = Log::default();
    let inner = Supervisor::builder("inner")
        .child(ChildSpec::actor("b", Probe::of("b", &log)))
        .child(ChildSpec::actor("c", Probe::of("c", &log)));
    let tree = Supervisor::builder("outer")
        .child(ChildSpec::actor("a", Probe::of("a", &log)))
        .child(ChildSpec::supervisor(inner))
        .child(ChildSpec::actor("d", Probe::of("d", &log)))
        .start(&runtime)
        .unwrap();
    assert_eq!(log.take(), ["+a", "+b", "+c", "+d"]);
    assert_eq!(tree.snapshot().state, SupervisorState::Running);
    let down = tree.shutdown(LONG).unwrap();
    assert!(matches!(down.exit, Exit::Normal));
    assert_eq!(log.take(), ["-d", "~d", "-c", "~c", "-b", "~b", "-a", "~a"]);
    assert_eq!(tree.snapshot().state, SupervisorState::Stopped);
    assert!(tree.snapshot().abandoned().is_empty());
}

#[test]
fn a_child_that_does_not_start_stops_those_before_it() {
    let (runtime, _) = timed();
    let log = Log::default();
    for nested in [false, true] {
        for panics in [false, true] {
            let fails = Probe::starting("c", &log, move || {
                assert!(!panics, "no way");
                Err("no database".into())
            });
            let (on_fault, faults) = faults();
            let failing = ChildSpec::actor("c", fails);
            let failing: ChildSpec = if nested {
                ChildSpec::supervisor(Supervisor::builder("inner").child(failing))
            } else {
                failing.into()
            };
            let error = Supervisor::builder("tree")
                .on_fault(on_fault)
                .child(ChildSpec::actor("a", Probe::of("a", &log)))
                .child(ChildSpec::actor("b", Probe::of("b", &log)))
                .child(failing)
                .child(ChildSpec::actor("never", Probe::of("never", &log)))
                .start(&runtime)
                .unwrap_err();
            let said = error.to_string();
            assert!(said.contains(if panics { "no way" } else { "no database" }), "{said}");
            assert!(matches!(&error, StartError::Child { child, .. }
                if &**child == if nested { "inner" } else { "c" }));
            assert_eq!(log.take(), ["+a", "+b", "+c", "~c", "-b", "~b", "-a", "~a"]);
            let fault = next(&faults);
            assert_eq!((fault.level, fault.reaction), (Level::Error, Reaction::StartFails));
            assert!(matches!(fault.cause, Cause::NotStarted(_)), "{fault}");
        }
    }
}

#[test]
fn a_factory_that_panics_is_a_start_that_fails() {
    let (runtime, _) = timed();
    let make = || -> Probe { panic!("no parts") };
    let error = Supervisor::builder("tree").child(ChildSpec::actor("a", make)).start(&runtime);
    assert!(error.unwrap_err().to_string().contains("no parts"));
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let (runtime, _) = timed();
    let log = Log::default();
    let spec = |name: &str| ChildSpec::actor(name.to_owned(), Probe::of(name, &log));
    let twice = Supervisor::builder("tree").child(spec("a")).child(spec("a"));
    let inside = Supervisor::builder("outer").child(ChildSpec::supervisor(twice.clone()));
    for tree in [twice, inside] {
        match tree.start(&runtime) {
            Err(StartError::Config(ConfigError::Duplicate(name))) => assert_eq!(&*name, "a"),
            other => panic!("{other:?}"),
        }
    }
    let permanent = Supervisor::builder("tree")
        .auto_shutdown(AutoShutdown::AnySignificant)
        .child(spec("a").significant());
    assert!(matches!(
        permanent.start(&runtime),
        Err(StartError::Config(ConfigError::SignificantPermanent(_)))
    ));
    let nothing =
        Supervisor::builder("tree").child(spec("a").restart(Restart::Temporary).significant());
    assert!(matches!(
        nothing.start(&runtime),
        Err(StartError::Config(ConfigError::SignificantForNothing(_)))
    ));
    assert!(log.take().is_empty());
    runtime.shutdown(LONG);
    assert!(matches!(
        Supervisor::builder("tree").child(spec("a")).start(&runtime),
        Err(StartError::Closed)
    ));
}

#[test]
fn an_empty_supervisor_runs_and_one_on_the_only_worker_starts() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let inside = runtime.clone();
    let log = Log::default();
    let probe = Probe::of("a", &log);
    let tree = runtime.submit_once(move |_| {
        Supervisor::builder("empty").start(&inside).map_err(|error| error.to_string())?;
        Supervisor::builder("tree")
            .child(ChildSpec::actor("a", probe))
            .start(&inside)
            .map_err(|error| error.to_string())
    });
    let tree = tree.unwrap().get().unwrap();
    assert_eq!(state(&tree, "a"), Some(ChildState::Up));
    assert!(tree.shutdown(LONG).is_some());
}

#[test]
fn a_supervisor_that_is_stopped_while_it_starts_stops_what_it_has() {
    let (runtime, _) = timed();
    let log = Log::default();
    let (send, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let (inside, is_inside) = mpsc::channel();
    let slow = Probe::starting("b", &log, move || {
        inside.send(()).unwrap();
        let _ = gate.lock().unwrap().recv();
        Ok(())
    });
    let outer = Supervisor::builder("outer").start(&runtime).unwrap();
    let inner = Supervisor::builder("inner")
        .child(ChildSpec::actor("a", Probe::of("a", &log)))
        .child(ChildSpec::actor("b", slow))
        .child(ChildSpec::actor("never", Probe::of("never", &log)));
    let added = outer.add(ChildSpec::supervisor(inner));
    next(&is_inside);
    outer.stop();
    assert!(matches!(added.get(), Err(EventualError::Failed(ChildError::Stopping))));
    drop(send);
    let down = outer.shutdown(LONG).unwrap();
    assert!(matches!(down.exit, Exit::Normal));
    assert_eq!(log.take(), ["+a", "+b", "-b", "~b", "-a", "~a"]);
}

// --- stopping --------------------------------------------------------------------------------------------

#[test]
fn a_child_that_does_not_stop_in_time_is_abandoned() {
    let (runtime, clock) = timed();
    let log = Log::default();
    let stuck = Address::new();
    let (on_fault, faults) = faults();
    let spec = |shutdown| {
        ChildSpec::actor("stuck", Probe::of("stuck", &log)).at(&stuck).shutdown(shutdown)
    };
    for (shutdown, limit) in [(Shutdown::Timeout(Duration::from_secs(7)), 7), (Shutdown::Brutal, 1)]
    {
        let tree = Supervisor::builder("tree")
            .on_fault(on_fault.clone())
            .child(ChildSpec::actor("first", Probe::of("first", &log)))
            .child(spec(shutdown))
            .start(&runtime)
            .unwrap();
        let open = hold(&stuck);
        let end = tree.watch();
        tree.stop();
        wait_until("the stop", || state(&tree, "stuck") == Some(ChildState::Stopping));
        clock.advance(Duration::from_secs(limit) - Duration::from_nanos(1));
        clock.advance(Duration::from_nanos(1));
        assert!(matches!(end.get().unwrap().exit, Exit::Normal));
        let fault = next(&faults);
        assert_eq!(fault.level, Level::Critical);
        assert_eq!(fault.reaction, Reaction::Abandons);
        assert_eq!(fault.at, clock.now_for_test());
        assert_eq!(tree.snapshot().abandoned(), ["tree/stuck"]);
        assert!(tree.snapshot().to_string().contains("abandoned"));
        assert_eq!(log.take(), ["+first", "+stuck", "-first", "~first"]);
        drop(open);
        wait_until("its end", || log.len() == if limit == 7 { 2 } else { 1 });
        assert_eq!(log.take().last().map(String::as_str), Some("~stuck"));
    }
    // For ever is for ever.
    let tree = Supervisor::builder("tree").child(spec(Shutdown::Infinity)).start(&runtime).unwrap();
    let open = hold(&stuck);
    tree.stop();
    wait_until("the stop", || state(&tree, "stuck") == Some(ChildState::Stopping));
    clock.advance(Duration::MAX);
    assert!(tree.shutdown(Duration::ZERO).is_none());
    drop(open);
    assert!(tree.shutdown(LONG).is_some());
    assert!(tree.snapshot().abandoned().is_empty());
}

trait NowForTest {
    fn now_for_test(&self) -> tenure::clock::Timestamp;
}

impl NowForTest for ManualClock {
    fn now_for_test(&self) -> tenure::clock::Timestamp {
        tenure::clock::Clock::now(self)
    }
}

#[test]
fn incarnations_never_overlap() {
    let (runtime, clock) = timed();
    let log = Log::default();
    let (first, stuck) = (Address::new(), Address::new());
    let (on_fault, faults) = faults();
    let tree = Supervisor::builder("tree")
        .strategy(Strategy::OneForAll)
        .on_fault(on_fault)
        .child(ChildSpec::actor("first", Probe::of("first", &log)).at(&first))
        .child(ChildSpec::actor("stuck", Probe::of("stuck", &log)).at(&stuck))
        .child(ChildSpec::actor("last", Probe::of("last", &log)))
        .start(&runtime)
        .unwrap();
    log.take();
    let open = hold(&stuck);
    assert!(first.try_tell(Message::Fail).is_ok());
    let fault = next(&faults);
    assert!(matches!(fault.reaction, Reaction::Restarts { scope: Scope::All, .. }), "{fault}");
    wait_until("the stop", || state(&tree, "stuck") == Some(ChildState::Stopping));
    clock.advance(Duration::from_secs(5));
    assert_eq!(next(&faults).reaction, Reaction::Abandons);
    // The one before it starts; it and the one behind it wait for its end.
    wait_until("first", || state(&tree, "first") == Some(ChildState::Up));
    clock.advance(Duration::from_secs(1000));
    assert_eq!(state(&tree, "stuck"), Some(ChildState::Abandoned));
    assert_eq!(state(&tree, "last"), Some(ChildState::Waiting));
    assert_eq!(log.take(), ["~first", "-last", "~last", "+first"]);
    drop(open);
    wait_until("the others", || state(&tree, "last") == Some(ChildState::Up));
    assert_eq!(log.take(), ["-stuck", "~stuck", "+stuck", "+last"]);
    assert_eq!(tree.snapshot().child("stuck").unwrap().incarnation, 2);
    assert!(tree.shutdown(LONG).is_some());
}

#[test]
fn a_child_that_may_overlap_is_replaced_beside_the_one_that_is_left_behind() {
    let (runtime, clock) = timed();
    let log = Log::default();
    let (first, stuck, registry) = (Address::new(), Address::new(), Registry::new());
    let tree = Supervisor::builder("tree")
        .strategy(Strategy::OneForAll)
        .child(ChildSpec::actor("first", Probe::of("first", &log)).at(&first))
        .child(
            ChildSpec::actor("stuck", Probe::of("stuck", &log))
                .at(&stuck)
                .register(&registry, "stuck")
                .overlaps_when_abandoned(),
        )
        .start(&runtime)
        .unwrap();
    log.take();
    let former = registry.lookup::<Message>("stuck").unwrap();
    let open = hold(&stuck);
    assert!(first.try_tell(Message::Fail).is_ok());
    wait_until("the stop", || state(&tree, "stuck") == Some(ChildState::Stopping));
    clock.advance(Duration::from_secs(5));
    let up =
        |snapshot: &Snapshot| snapshot.child("stuck").is_some_and(|c| c.state == ChildState::Up);
    wait_until("its successor", || up(&tree.snapshot()));
    assert_eq!(tree.snapshot().child("stuck").unwrap().left_behind, 1);
    assert_eq!(tree.snapshot().abandoned(), ["tree/stuck"]);
    assert_eq!(log.take(), ["~first", "+first", "+stuck"]);
    // The names and the address are its successor's, though it still runs and takes messages.
    assert!(former.phase().is_open());
    let members = stuck.members();
    assert_eq!(members.len(), 1);
    assert_ne!(members[0], former);
    assert_eq!(registry.lookup::<Message>("stuck").as_ref(), Some(&members[0]));
    drop(open);
    wait_until("its end", || tree.snapshot().abandoned().is_empty());
    assert_eq!(log.take(), ["-stuck", "~stuck"]);
    assert_eq!(stuck.members().len(), 1, "the address is the successor's");
    assert!(stuck.ask(LONG, Message::Who).get().is_ok());
    assert!(tree.shutdown(LONG).is_some());
}

#[test]
fn the_last_handle_stops_the_tree_and_so_does_a_runtime_that_ends() {
    let (runtime, _) = timed();
    let log = Log::default();
    let build = || {
        Supervisor::builder("tree")
            .child(ChildSpec::actor("a", Probe::of("a", &log)))
            .child(ChildSpec::actor("b", Probe::of("b", &log)))
            .start(&runtime)
            .unwrap()
    };
    let tree = build();
    let (end, second) = (tree.watch(), tree.clone());
    drop(tree);
    assert_eq!(state(&second, "a"), Some(ChildState::Up));
    drop(second);
    assert!(matches!(end.get().unwrap().exit, Exit::Normal));
    assert_eq!(log.take(), ["+a", "+b", "-b", "~b", "-a", "~a"]);

    let tree = build();
    let token_seen = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&token_seen);
    let added = tree.add(ChildSpec::thread("thread", move |stop| {
        stop.wait();
        seen.fetch_add(1, Ordering::SeqCst);
    }));
    added.get().unwrap();
    runtime.shutdown(LONG);
    let end = tree.watch().get().unwrap();
    assert!(matches!(end.exit, Exit::Shutdown(ShutdownCause::Runtime)), "{:?}", end.exit);
    wait_until("the thread's end", || token_seen.load(Ordering::SeqCst) == 1);
    wait_until("the actors' ends", || log.len() == 6);
    assert_eq!(tree.snapshot().state, SupervisorState::Stopped);
    assert!(matches!(
        tree.add(ChildSpec::thread("late", |_| ())).get(),
        Err(EventualError::Broken)
    ));
}

// --- restarts ----------------------------------------------------------------------------------------------

#[test]
fn a_child_that_fails_to_start_again_is_tried_as_often_as_the_intensity_allows() {
    let (runtime, _) = timed();
    let log = Log::default();
    let address = Address::new();
    let starts = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&starts);
    let flaky =
        Probe::starting("flaky", &log, move || match count.fetch_add(1, Ordering::SeqCst) {
            0 | 3 => Ok(()),
            _ => Err("not yet".into()),
        });
    let (on_fault, faults) = faults();
    let tree = Supervisor::builder("tree")
        .intensity(4, Duration::MAX)
        .on_fault(on_fault)
        // Transient, too: a start that fails is no end of its own.
        .child(ChildSpec::actor("flaky", flaky).at(&address).restart(Restart::Transient))
        .start(&runtime)
        .unwrap();
    assert!(address.try_tell(Message::Panic).is_ok());
    let is = |n| move |child: &Snapshot| child.children[0].incarnation == n;
    wait_until("the fourth", || is(4)(&tree.snapshot()) && address.current().is_some());
    assert_eq!(tree.snapshot().restarts, 3);
    assert!(address.try_tell(Message::Fail).is_ok());
    let end = tree.watch().get().unwrap();
    assert!(matches!(end.exit, Exit::Shutdown(ShutdownCause::GaveUp)));
    assert_eq!(starts.load(Ordering::SeqCst), 5);
    let faults: Vec<_> = faults.try_iter().collect();
    let levels: Vec<_> = faults.iter().map(|fault| fault.level).collect();
    assert_eq!(levels[..4], [Level::Warning; 4]);
    assert_eq!(levels[4..], [Level::Critical]);
    assert_eq!(faults[4].reaction, Reaction::GivesUp);
    assert!(matches!(faults[4].cause, Cause::NotStarted(_)));
    assert_eq!(
        faults[0].to_string(),
        "warning: tree/flaky #1 ended: panicked: told to panic; it starts again"
    );
}

#[test]
fn restarts_back_off_and_begin_anew_after_a_steady_time() {
    let (runtime, clock) = timed();
    let log = Log::default();
    let (address, other) = (Address::new(), Address::new());
    let backoff = RetryPolicy::exponential(Duration::from_secs(1)).jitter(Jitter::None);
    let (on_fault, faults) = faults();
    let tree = Supervisor::builder("tree")
        .intensity(100, Duration::from_secs(60))
        .backoff(backoff.build().unwrap())
        .on_fault(on_fault)
        .child(ChildSpec::actor("a", Probe::of("a", &log)).at(&address))
        .child(ChildSpec::actor("b", Probe::of("b", &log)).at(&other))
        .start(&runtime)
        .unwrap();
    let delay = || match next(&faults).reaction {
        Reaction::Restarts { delay, .. } => delay,
        other => panic!("{other}"),
    };
    for (round, seconds) in [1, 2, 4, 8].into_iter().enumerate() {
        assert!(address.try_tell(Message::Fail).is_ok());
        assert_eq!(delay(), Duration::from_secs(seconds));
        assert_eq!(state(&tree, "a"), Some(ChildState::Waiting));
        assert!(matches!(address.try_tell(Message::Fail), Err(TryTellError::Stopped(_))));
        if round == 0 {
            // Others are not held up by it.
            assert!(other.try_tell(Message::Fail).is_ok());
            assert_eq!(delay(), Duration::from_secs(1));
        }
        // Its delay is measured from the moment that the supervisor heard of it.
        clock.advance(Duration::from_secs(seconds) - Duration::from_nanos(1));
        assert_ne!(state(&tree, "a"), Some(ChildState::Up));
        clock.advance(Duration::from_nanos(1));
        wait_until("the restart", || state(&tree, "a") == Some(ChildState::Up));
    }
    wait_until("the other", || state(&tree, "b") == Some(ChildState::Up));
    clock.advance(Duration::from_secs(60));
    assert!(address.try_tell(Message::Fail).is_ok());
    assert_eq!(delay(), Duration::from_secs(1), "it was up for a whole period");
    assert!(tree.shutdown(LONG).is_some(), "a delay does not hold up the end");
}

#[test]
fn who_gives_up_is_restarted_by_the_one_above_until_that_gives_up() {
    let (runtime, _) = timed();
    let log = Log::default();
    let address = Address::new();
    let (on_fault, faults) = faults();
    let inner = Supervisor::builder("inner")
        .intensity(1, Duration::MAX)
        .child(ChildSpec::actor("a", Probe::of("a", &log)).at(&address))
        .child(ChildSpec::actor("b", Probe::of("b", &log)));
    let tree = Supervisor::builder("outer")
        .intensity(1, Duration::MAX)
        .on_fault(on_fault)
        .child(ChildSpec::supervisor(inner))
        .child(ChildSpec::actor("c", Probe::of("c", &log)))
        .start(&runtime)
        .unwrap();
    let fail = || {
        let member = address.current().unwrap();
        assert!(member.try_tell(Message::Fail).is_ok());
        member.watch().get().unwrap();
    };
    let mut told = Vec::new();
    for _ in 0..4 {
        wait_until("a", || address.current().is_some());
        fail();
    }
    let end = tree.watch().get().unwrap();
    assert!(matches!(end.exit, Exit::Shutdown(ShutdownCause::GaveUp)), "{:?}", end.exit);
    told.extend(faults.try_iter().map(|fault| (fault.supervisor, fault.child, fault.reaction)));
    let again = Reaction::Restarts { scope: Scope::One, delay: Duration::ZERO };
    let expected = [
        ("outer/inner", "a", again),
        ("outer/inner", "a", Reaction::GivesUp),
        ("outer", "inner", again),
        ("outer/inner", "a", again),
        ("outer/inner", "a", Reaction::GivesUp),
        ("outer", "inner", Reaction::GivesUp),
    ];
    let told: Vec<_> = told.iter().map(|(s, c, r)| (&**s, &**c, *r)).collect();
    assert_eq!(told, expected);
    let starts = log.take();
    assert_eq!(starts.iter().filter(|said| *said == "+a").count(), 4);
    assert_eq!(starts.iter().filter(|said| *said == "+b").count(), 2);
    assert_eq!(&starts[starts.len() - 2..], ["-c", "~c"]);
}

#[test]
fn names_go_from_one_incarnation_to_the_next() {
    let (runtime, _) = timed();
    let log = Log::default();
    let (registry, address) = (Registry::new(), Address::new());
    let tree = Supervisor::builder("tree")
        .intensity(1000, Duration::MAX)
        .child(
            ChildSpec::actor("a", Probe::of("a", &log)).register(&registry, "the one").at(&address),
        )
        .start(&runtime)
        .unwrap();
    for round in 1..100 {
        let before = registry.lookup::<Message>("the one").unwrap();
        assert_eq!(before, address.current().unwrap());
        assert!(
            before.try_tell(if round % 2 == 0 { Message::Fail } else { Message::Panic }).is_ok()
        );
        let registered = registry.clone();
        let (send, found) = mpsc::channel();
        let former = before.id();
        before.watch().on_complete(move |_| {
            // The moment its end is told: nobody, or already the next one.
            let now = registered.lookup::<Message>("the one").map(|actor| actor.id());
            send.send(now != Some(former)).unwrap();
        });
        assert!(next(&found));
        wait_until("the next one", || address.current().is_some_and(|now| now != before));
    }
    // A name that is taken is a start that fails.
    let taken = ChildSpec::actor("b", Probe::of("b", &log)).register(&registry, "the one");
    match tree.add(taken).get() {
        Err(EventualError::Failed(ChildError::NotStarted(exit))) => {
            assert!(exit.to_string().contains("taken"), "{exit}");
        }
        other => panic!("{other:?}"),
    }
    assert!(tree.shutdown(LONG).is_some());
    assert!(registry.names().is_empty());
    assert!(address.members().is_empty());
}

// --- children that come and go -----------------------------------------------------------------------------

#[test]
fn children_are_added_stopped_restarted_and_removed() {
    let (runtime, _) = timed();
    let log = Log::default();
    let spec = |name: &str| ChildSpec::actor(name.to_owned(), Probe::of(name, &log));
    for strategy in
        [Strategy::OneForOne, Strategy::Dynamic, Strategy::RestForOne, Strategy::OneForAll]
    {
        let tree = Supervisor::builder("tree")
            .strategy(strategy)
            .child(spec("a"))
            .start(&runtime)
            .unwrap();
        tree.add(spec("b")).get().unwrap();
        let twice = tree.add(spec("b")).get();
        assert!(matches!(twice, Err(EventualError::Failed(ChildError::Duplicate(_)))));
        let wrong = tree.add(spec("c").restart(Restart::Temporary).significant()).get();
        assert!(matches!(wrong, Err(EventualError::Failed(ChildError::Config(_)))));
        tree.stop_child("a").get().unwrap();
        tree.stop_child("a").get().unwrap();
        assert_eq!(state(&tree, "a"), Some(ChildState::Down));
        tree.restart_child("a").get().unwrap();
        tree.restart_child("a").get().unwrap();
        assert_eq!(tree.snapshot().child("a").unwrap().incarnation, 3);
        assert_eq!(tree.snapshot().restarts, 0, "what is asked for is no failure");
        tree.remove("a").get().unwrap();
        assert_eq!(state(&tree, "a"), None);
        for unknown in [tree.remove("a"), tree.restart_child("a"), tree.stop_child("a")] {
            let unknown = unknown.get();
            assert!(matches!(unknown, Err(EventualError::Failed(ChildError::Unknown(_)))));
        }
        tree.add(spec("a")).get().unwrap();
        assert!(tree.shutdown(LONG).is_some());
        let said = log.take();
        let count = |what: &str| said.iter().filter(|said| *said == what).count();
        assert_eq!((count("+a"), count("~a"), count("+b"), count("~b")), (4, 4, 1, 1));
    }
}

#[test]
fn hundreds_of_children_come_and_go() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let log = Log::default();
    let tree = Supervisor::builder("many").strategy(Strategy::Dynamic).start(&runtime).unwrap();
    let address = Address::new();
    let added: Vec<_> = (0..400)
        .map(|n| {
            let spec = ChildSpec::actor(n.to_string(), Probe::of("x", &log)).at(&address);
            tree.add(spec.restart(Restart::Temporary))
        })
        .collect();
    for answer in added {
        answer.get().unwrap();
    }
    assert_eq!(address.members().len(), 400);
    for member in &address.members()[..200] {
        assert!(member.try_tell(Message::Stop).is_ok());
    }
    wait_until("their ends", || tree.snapshot().children.len() == 200);
    assert!(tree.shutdown(LONG).is_some());
    let said = log.take();
    assert_eq!(said.iter().filter(|said| *said == "~x").count(), 400);
}

#[test]
fn an_address_leads_to_its_own_children_only() {
    let (runtime, _) = timed();
    let log = Log::default();
    let tree = Supervisor::builder("tree").strategy(Strategy::Dynamic).start(&runtime).unwrap();
    let (first, second) = (Address::new(), Address::new());
    let child = |name: &str, address: &Address<Message>| {
        tree.add(ChildSpec::actor(name, Probe::of(name, &log)).at(address)).get().unwrap();
    };
    child("a", &first);
    tree.remove("a").get().unwrap();
    child("b", &second);
    // Also one of the same name: it is another child.
    child("a", &second);
    assert!(first.current().is_none());
    assert!(matches!(first.try_tell(Message::Fail), Err(TryTellError::Stopped(_))));
    assert_eq!(second.members().len(), 2);
    // The same child started again is reached.
    let former = second.members();
    tree.restart_child("a").get().unwrap();
    let members = second.members();
    assert_eq!(members.len(), 2);
    assert_eq!(members.iter().filter(|member| former.contains(member)).count(), 1, "that is b");
}

#[test]
fn clones_of_a_spec_are_children_of_their_own_at_its_address() {
    let (runtime, _) = timed();
    let log = Log::default();
    let address = Address::new();
    let builder = Supervisor::builder("one")
        .child(ChildSpec::actor("it", Probe::of("it", &log)).at(&address))
        .child(
            ChildSpec::group("them", 2, {
                let probe = Probe::of("them", &log);
                move |_| probe()
            })
            .at(&address),
        );
    let one = builder.clone().start(&runtime).unwrap();
    assert_eq!(address.members().len(), 3);
    let two = builder.start(&runtime).unwrap();
    assert_eq!(address.members().len(), 6);
    assert!(one.shutdown(LONG).is_some());
    assert_eq!(address.members().len(), 3);
    assert!(two.shutdown(LONG).is_some());
    assert!(address.members().is_empty());
}

#[test]
fn a_group_shares_the_work_and_mends_itself() {
    let (runtime, _) = timed();
    let log = Log::default();
    let group = Address::new();
    let its = log.clone();
    let make = move |n: usize| Probe::of(&format!("{n}"), &its)();
    let tree = Supervisor::builder("tree")
        .child(ChildSpec::group("workers", 3, make).at(&group).capacity(8))
        .start(&runtime)
        .unwrap();
    let ask = || group.ask(LONG, Message::Who).get().unwrap();
    let answers: Vec<_> = (0..6).map(|_| ask()).collect();
    assert_eq!(answers[..3], answers[3..]);
    let mut each = answers[..3].to_vec();
    each.sort();
    assert_eq!(each, ["0", "1", "2"]);
    let member = group.current().unwrap();
    assert!(member.try_tell(Message::Panic).is_ok());
    member.watch().get().unwrap();
    // The others go on meanwhile, and it comes back.
    for _ in 0..6 {
        ask();
    }
    wait_until("its successor", || group.members().len() == 3);
    assert_eq!(tree.snapshot().restarts, 0, "that is the group's business");
    let subtree = tree.snapshot().child("workers").unwrap().subtree.clone().unwrap();
    assert_eq!(subtree.restarts, 1);
    // One that is full is passed over.
    let open = hold(&group);
    for _ in 0..24 {
        let _ = group.try_tell(Message::Who(Reply_::none()));
    }
    drop(open);
    assert!(tree.shutdown(LONG).is_some());
}

/// A reply that nobody waits for.
struct Reply_;

impl Reply_ {
    fn none() -> Reply<String> {
        let (send, reply) = mpsc::channel();
        let runtime = Runtime::builder().workers(1).build().unwrap();
        struct Taker(Sender<Reply<String>>);
        impl Actor for Taker {
            type Message = Reply<String>;
            fn handle(&mut self, reply: Reply<String>, _: &mut Ctx<Reply<String>>) -> Handled {
                Ok(self.0.send(reply).map_err(|_| "gone")?)
            }
        }
        let taker = tenure::supervise::actor(Taker(send)).spawn(&runtime).unwrap();
        drop(taker.ask(Duration::MAX, |reply| reply));
        next(&reply)
    }
}

// --- threads -----------------------------------------------------------------------------------------------

#[test]
fn threads_are_children_like_others() {
    let (runtime, clock) = timed();
    let (on_fault, faults) = faults();
    let (ran, runs) = mpsc::channel();
    let round = AtomicUsize::new(0);
    let tree = Supervisor::builder("tree")
        .intensity(10, Duration::MAX)
        .on_fault(on_fault)
        .child(ChildSpec::thread("poller", move |stop| {
            let round = round.fetch_add(1, Ordering::SeqCst);
            ran.send(std::thread::current().name().map(str::to_owned)).unwrap();
            match round {
                0 => Err("no socket".to_owned()),
                1 => panic!("no way"),
                2 => Ok(()),
                _ => {
                    assert!(!stop.wait_timeout(Duration::ZERO));
                    let told = stop.stopped();
                    stop.wait();
                    assert!(stop.is_stopped() && stop.wait_timeout(Duration::MAX));
                    assert!(told.get().is_ok() && stop.stopped().get().is_ok());
                    Ok(())
                }
            }
        }))
        .start(&runtime)
        .unwrap();
    for _ in 0..4 {
        assert_eq!(next(&runs).as_deref(), Some("poller"));
    }
    let causes: Vec<_> = (0..3).map(|_| next(&faults).cause.to_string()).collect();
    assert_eq!(causes, ["ended: no socket", "ended: panicked: no way", "ended: normal"]);
    assert!(tree.shutdown(LONG).is_some());

    // One that does not look is abandoned.
    let (open, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let tree = Supervisor::builder("tree")
        .child(ChildSpec::thread("deaf", move |_| {
            let _ = gate.lock().unwrap().recv();
        }))
        .start(&runtime)
        .unwrap();
    tree.stop();
    wait_until("the stop", || state(&tree, "deaf") == Some(ChildState::Stopping));
    clock.advance(Duration::from_secs(5));
    assert!(tree.shutdown(LONG).is_some());
    assert_eq!(tree.snapshot().abandoned(), ["tree/deaf"]);
    drop(open);
}

// --- what is told --------------------------------------------------------------------------------------------

#[test]
fn a_stuck_child_is_told_of_before_it_comes_back() {
    let clock = ManualClock::new();
    let runtime = Runtime::builder()
        .workers(2)
        .clock(clock.clone())
        .attempt_timeout(Duration::from_secs(1))
        .build()
        .unwrap();
    let log = Log::default();
    let address = Address::new();
    let (on_fault, faults) = faults();
    let tree = Supervisor::builder("tree")
        .on_fault(on_fault)
        .child(ChildSpec::actor("a", Probe::of("a", &log)).at(&address))
        .start(&runtime)
        .unwrap();
    let open = hold(&address);
    let told = Mutex::new(None);
    wait_until("the fault", || {
        clock.advance(Duration::from_secs(1));
        *told.lock().unwrap() = faults.try_recv().ok();
        told.lock().unwrap().is_some()
    });
    let fault = told.into_inner().unwrap().unwrap();
    assert_eq!((fault.level, fault.reaction), (Level::Critical, Reaction::Waits));
    assert!(matches!(fault.cause, Cause::Stuck));
    assert!(tree.snapshot().child("a").unwrap().is_stuck);
    drop(open);
    let fault = next(&faults);
    assert!(matches!(fault.cause, Cause::Ended(Exit::Stuck)), "{fault}");
    wait_until("its successor", || state(&tree, "a") == Some(ChildState::Up));
    assert!(!tree.snapshot().child("a").unwrap().is_stuck);
    assert_eq!(log.take(), ["+a", "~a", "+a"]);
    assert!(tree.shutdown(LONG).is_some());
}

#[test]
fn a_fault_handler_may_panic_and_call_anything() {
    let (runtime, _) = timed();
    let log = Log::default();
    let address = Address::new();
    let holder: Arc<Mutex<Option<Supervisor>>> = Arc::default();
    let (held, count) = (Arc::clone(&holder), Arc::new(AtomicUsize::new(0)));
    let calls = Arc::clone(&count);
    let tree = Supervisor::builder("tree")
        .intensity(10, Duration::MAX)
        .on_fault(move |fault| {
            if let Some(tree) = &*held.lock().unwrap() {
                drop(tree.snapshot().to_string());
                if calls.fetch_add(1, Ordering::SeqCst) == 2 {
                    tree.stop();
                }
                drop(tree.add(ChildSpec::thread("extra", |stop| stop.wait())));
            }
            panic!("no handler for {fault}");
        })
        .child(ChildSpec::actor("a", Probe::of("a", &log)).at(&address))
        .start(&runtime)
        .unwrap();
    *holder.lock().unwrap() = Some(tree.clone());
    for _ in 0..3 {
        wait_until("a", || address.current().is_some());
        let member = address.current().unwrap();
        assert!(member.try_tell(Message::Panic).is_ok());
        member.watch().get().unwrap();
    }
    assert!(matches!(tree.watch().get().unwrap().exit, Exit::Normal));
    assert_eq!(count.load(Ordering::SeqCst), 3);
    // The handler held the tree that holds the handler.
    holder.lock().unwrap().take();
}

#[test]
fn a_fault_handler_may_shut_its_own_supervisor_down() {
    let (runtime, _) = timed();
    let log = Log::default();
    let slot: Arc<Mutex<Option<Supervisor>>> = Arc::default();
    let (said, hears) = mpsc::channel();
    let address = Address::new();
    let its = Arc::clone(&slot);
    let tree = Supervisor::builder("tree")
        .intensity(9, LONG)
        .on_fault(move |_| {
            let tree = its.lock().unwrap().clone();
            // Without a limit: it must not wait for itself.
            let _ = said.send(tree.map(|tree| tree.shutdown(Duration::MAX).is_none()));
        })
        .child(ChildSpec::actor("child", Probe::of("child", &log)).at(&address))
        .start(&runtime)
        .unwrap();
    *slot.lock().unwrap() = Some(tree.clone());
    assert!(address.try_tell(Message::Fail).is_ok());
    assert_eq!(next(&hears), Some(true));
    assert!(matches!(tree.watch().get_timeout(LONG).map(|down| down.exit), Ok(Exit::Normal)));
}

#[test]
fn a_snapshot_draws_the_tree() {
    let (runtime, _) = timed();
    let log = Log::default();
    let address = Address::new();
    let its = log.clone();
    let inner = Supervisor::builder("inner")
        .strategy(Strategy::RestForOne)
        .auto_shutdown(AutoShutdown::AllSignificant)
        .child(
            ChildSpec::actor("b", Probe::of("b", &log)).restart(Restart::Transient).significant(),
        );
    let tree = Supervisor::builder("service")
        .intensity(3, Duration::from_secs(5))
        .child(ChildSpec::actor("audit", Probe::of("a", &log)).at(&address))
        .child(ChildSpec::supervisor(inner))
        .child(ChildSpec::group("workers", 2, move |n| Probe::of(&n.to_string(), &its)()))
        .child(ChildSpec::thread("listener", |stop| stop.wait()))
        .start(&runtime)
        .unwrap();
    assert!(address.try_tell(Message::Panic).is_ok());
    wait_until("the restart", || {
        tree.snapshot()
            .child("audit")
            .is_some_and(|c| c.incarnation == 2 && c.state == ChildState::Up)
    });
    tree.stop_child("listener").get().unwrap();
    let drawn = tree.snapshot().to_string();
    let expected = "\
service: one for one, 3 restarts in 5s, running, 1 so far
├─ audit (actor, permanent) up #2, before: panicked: told to panic
├─ inner (supervisor, permanent) up #1; rest for one, 1 restarts in 5s, running
│  └─ b (actor, transient, significant) up #1
├─ workers (group, permanent) up #1; one for one, 2 restarts in 5s, running
│  ├─ 0 (actor, permanent) up #1
│  └─ 1 (actor, permanent) up #1
└─ listener (thread, permanent) down #1, before: shutdown: by its supervisor";
    assert_eq!(drawn, expected);
    assert!(tree.shutdown(LONG).is_some());
}

// --- misuse --------------------------------------------------------------------------------------------------

#[test]
fn a_child_may_hold_the_handle_of_its_own_supervisor() {
    let (runtime, _) = timed();
    let log = Log::default();
    let address = Address::new();
    let tree = Supervisor::builder("tree")
        .child(ChildSpec::actor("a", Probe::of("a", &log)).at(&address))
        .start(&runtime)
        .unwrap();
    let (end, own) = (tree.watch(), tree.clone());
    let ask = Message::Run(Box::new(move |ctx| {
        // It removes itself; the answer comes as a message, or not at all.
        ctx.pipe(own.remove("a"), |_| Message::Stop);
        own.stop();
        drop(own);
    }));
    assert!(address.try_tell(ask).is_ok());
    drop(tree);
    assert!(matches!(end.get().unwrap().exit, Exit::Normal));
    assert_eq!(log.take(), ["+a", "-a", "~a"]);
}

#[test]
fn an_actor_that_stops_itself_while_it_is_told_to_ends_once() {
    struct Reluctant(Log, u32);
    impl Actor for Reluctant {
        type Message = ();
        fn handle(&mut self, (): (), ctx: &mut Ctx<()>) -> Handled {
            self.1 += 1;
            if self.1 == 3 {
                ctx.stop();
            } else {
                ctx.send_after(Duration::ZERO, ());
            }
            Ok(())
        }
        fn stopping(&mut self, exit: &Exit, ctx: &mut Ctx<()>) -> Stopping {
            self.0.say(format!("asked: {exit}"));
            ctx.send_after(Duration::ZERO, ());
            Stopping::Later
        }
        fn stopped(&mut self, exit: &Exit) {
            self.0.say(format!("stopped: {exit}"));
        }
    }
    let (runtime, _) = timed();
    let log = Log::default();
    let its = log.clone();
    let tree = Supervisor::builder("tree")
        .child(ChildSpec::actor("a", move || Reluctant(its.clone(), 0)))
        .start(&runtime)
        .unwrap();
    assert!(tree.shutdown(LONG).is_some());
    assert_eq!(log.take(), ["asked: shutdown: by its supervisor", "stopped: normal"]);
    assert_eq!(tree.snapshot().children[0].incarnation, 1);
}

#[test]
fn a_loop_of_failures_ends_also_with_the_longest_window() {
    struct Hopeless(Arc<AtomicUsize>);
    impl Actor for Hopeless {
        type Message = ();
        fn started(&mut self, ctx: &mut Ctx<()>) -> Handled {
            self.0.fetch_add(1, Ordering::SeqCst);
            ctx.send_after(Duration::ZERO, ());
            Ok(())
        }
        fn handle(&mut self, (): (), _: &mut Ctx<()>) -> Handled {
            Err("hopeless".into())
        }
    }
    let (runtime, _) = timed();
    let starts = Arc::new(AtomicUsize::new(0));
    let its = Arc::clone(&starts);
    let tree = Supervisor::builder("tree")
        .intensity(500, Duration::MAX)
        .child(ChildSpec::actor("hopeless", move || Hopeless(Arc::clone(&its))))
        .start(&runtime)
        .unwrap();
    let end = tree.watch().get().unwrap();
    assert!(matches!(end.exit, Exit::Shutdown(ShutdownCause::GaveUp)));
    assert_eq!(starts.load(Ordering::SeqCst), 501);
    // A loop that never gives up leaves the workers to others, and can be stopped.
    let its = Arc::clone(&starts);
    let tree = Supervisor::builder("tree")
        .intensity(u32::MAX, Duration::MAX)
        .child(ChildSpec::actor("hopeless", move || Hopeless(Arc::clone(&its))))
        .start(&runtime)
        .unwrap();
    wait_until("some rounds", || starts.load(Ordering::SeqCst) > 1000);
    assert_eq!(runtime.submit(|_| Ok::<_, String>(7)).unwrap().get().unwrap(), 7);
    assert!(tree.shutdown(LONG).is_some());
}
