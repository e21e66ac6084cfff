//! The retry queue: what is in flight is watched; what is lost is sent again; what is hopeless is set
//! aside; who is dead gets nothing more; and somebody hears of every fault.
//!
//! | part of the queue | here |
//! |---|---|
//! | entries in flight, cleared by their result | jobs of a [`Runtime`], each with its handle |
//! | the monitor: sends again what timed out, gives up after a limit | the time limit of the question that an attempt asks; the runtime's [`RetryPolicy`]; its dead letters |
//! | the workers | actors, each with a [`Beat`](tenure::health::Beat) |
//! | the health check, which takes dead workers out of the pool | a registry of beats ([`Health`]) and a thread that asks for them |
//! | the supervisor, which hears every fault, alerts, records, reacts | a [`Supervisor`] over workers and health check, which starts again what ends; the [`Office`], where all faults go, graded |
//!
//! `cargo run --release --example retry_queue` prints what it checks, and fails if one of it does not hold.
//! It takes about a second.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tenure::health::{Beat, Change, Detector, Health, HealthEvent};
use tenure::retry::{RetryPolicy, Stop};
use tenure::runtime::{BoxError, Event, JobCtx, JobError, JobHandle, Runtime, blocking};
use tenure::supervise::{
    Actor, ActorRef, Address, ChildSpec, Ctx, Exit, Fault, Handled, Level, Reply, StopToken,
    Strategy, Supervisor,
};

type Failure = Box<dyn std::error::Error>;

const WORKERS: usize = 3;
/// How long an attempt waits for its worker's answer.
const PATIENCE: Duration = Duration::from_millis(300);
/// How often workers are asked for a sign of life …
const ROUND: Duration = Duration::from_millis(10);
/// … and after how much silence one is suspect, and dead.
const SUSPECT: Duration = Duration::from_millis(200);
const DEAD: Duration = Duration::from_millis(600);
/// Much longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

// --- the office: who may be given something to do, and what went wrong ------------------------------

#[derive(Default)]
struct Office {
    /// The pool: the workers that are up and not dead.
    pool: Mutex<BTreeMap<String, ActorRef<Message>>>,
    turn: AtomicUsize,
    /// Every fault that was told, graded, and how often.
    record: Mutex<BTreeMap<(Level, String), u32>>,
}

impl Office {
    /// The next one in turn.
    fn next(&self) -> Option<ActorRef<Message>> {
        let pool = locked(&self.pool);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % pool.len().max(1);
        pool.values().nth(turn).cloned()
    }

    fn take_out(&self, name: &str) {
        // Dropped outside the lock: it may be the last reference.
        let out = locked(&self.pool).remove(name);
        drop(out);
    }

    fn in_pool(&self) -> usize {
        locked(&self.pool).len()
    }

    /// Records a fault, and alerts if somebody should be woken for it. On the thread that met it: short, and
    /// without blocking.
    fn hear(&self, level: Level, what: impl Into<String>) {
        let what = what.into();
        if level >= Level::Error {
            println!("      ALERT ({level}): {what}");
        }
        *locked(&self.record).entry((level, what)).or_default() += 1;
    }

    fn has_heard(&self, level: Level, of: &str) -> u32 {
        let record = locked(&self.record);
        let fits = record.iter().filter(|((l, what), _)| *l == level && what.contains(of));
        fits.map(|(_, times)| times).sum()
    }

    /// From the supervisor: a child ended, is stuck, or does not stop; and what it does about that.
    fn hear_fault(&self, fault: &Fault) {
        let Fault { level, child, cause, reaction, .. } = fault;
        self.hear(*level, format!("{child} {cause}; {reaction}"));
    }

    /// From the queue.
    fn hear_event(&self, event: &Event) {
        match event {
            Event::AttemptFailed { cause, .. } => {
                self.hear(Level::Warning, format!("an attempt failed: {cause}"));
            }
            Event::RetryScheduled { .. } => self.hear(Level::Info, "an entry is sent again"),
            Event::JobDead(letter) => self.hear(Level::Error, format!("given up: {letter}")),
            _ => {}
        }
    }

    /// From the health check. Who is dead gets nothing more.
    fn hear_change(&self, HealthEvent { name, change, .. }: &HealthEvent) {
        match change {
            Change::Died { .. } => {
                self.take_out(name);
                self.hear(Level::Error, format!("{name} is dead: out of the pool"));
            }
            Change::Suspected { .. } => self.hear(Level::Warning, format!("{name} is silent")),
            Change::Recovered => self.hear(Level::Info, format!("{name} is back")),
            _ => {}
        }
    }
}

// --- the workers ------------------------------------------------------------------------------------

/// What a worker is to do.
#[derive(Clone)]
enum Errand {
    Square(u64),
    /// The first attempt ends the worker that makes it.
    Crash,
    /// The first attempt hangs until somebody else comes to the barrier: no answer, and no sign of life.
    Hang(Arc<Barrier>),
    /// Cannot be done while this is false.
    Impossible(Arc<AtomicBool>),
}

enum Message {
    /// To be done, for the attempt of this number.
    Do(Errand, u32, Reply<Result<u64, &'static str>>),
    /// Show that you are alive.
    Beat,
}

struct Worker {
    name: String,
    office: Arc<Office>,
    health: Health,
    beat: Option<Beat>,
}

impl Actor for Worker {
    type Message = Message;

    /// Each incarnation registers anew: who was given up stays dead, whatever it still does.
    fn started(&mut self, ctx: &mut Ctx<Message>) -> Handled {
        let detector = Detector::deadline(SUSPECT, DEAD)?;
        self.beat = Some(self.health.register(self.name.as_str(), detector));
        locked(&self.office.pool).insert(self.name.clone(), ctx.me());
        Ok(())
    }

    fn handle(&mut self, message: Message, _: &mut Ctx<Message>) -> Handled {
        let (errand, attempt, reply) = match message {
            Message::Do(errand, attempt, reply) => (errand, attempt, reply),
            // Refused if it was given up meanwhile: then it ends, and its successor registers.
            Message::Beat => return Ok(self.beat.as_ref().map_or(Ok(()), Beat::beat)?),
        };
        let answer = match errand {
            Errand::Square(n) => Ok(n * n),
            // The reply is dropped with the message, so who asked hears of it at once.
            Errand::Crash if attempt == 1 => return Err("out of memory".into()),
            Errand::Hang(barrier) if attempt == 1 => {
                barrier.wait();
                Ok(0)
            }
            Errand::Impossible(mended) if !mended.load(Ordering::Relaxed) => Err("no such host"),
            _ => Ok(0),
        };
        if reply.send(answer).is_err() {
            self.office.hear(Level::Info, "a late answer was refused");
        }
        Ok(())
    }

    /// Whatever its end.
    fn stopped(&mut self, _: &Exit) {
        self.office.take_out(&self.name);
    }
}

/// The health check: asks all workers for a sign of life. The judge, a thread of its own, condemns who gives
/// none; being late itself, it extends everybody's time, so a pause of the machine kills nobody.
fn check_health(
    health: &Health,
    workers: &[Address<Message>],
    stop: &StopToken,
) -> Result<(), BoxError> {
    let _judge = health.start_judge(ROUND)?;
    while !stop.wait_timeout(ROUND) {
        for worker in workers {
            // One that hangs has a full mailbox soon, one that is down has none. Neither is our affair.
            let _ = worker.try_tell(Message::Beat);
        }
    }
    Ok(())
}

// --- putting it together ----------------------------------------------------------------------------

fn main() -> Result<(), Failure> {
    let office = Arc::new(Office::default());

    // The workers, and who looks after them, on a runtime of their own. Its attempt timeout is for actors,
    // too: one that is in a call for so long is stuck, and has its thread replaced.
    let staff = Runtime::builder().workers(2).thread_name("staff").attempt_timeout(DEAD).build()?;
    let ear = Arc::clone(&office);
    let health = Health::builder().on_change(move |event| ear.hear_change(event)).build();
    let ear = Arc::clone(&office);
    let mut tree = Supervisor::builder("staff")
        .strategy(Strategy::OneForOne)
        .intensity(10, Duration::from_secs(10))
        .on_fault(move |fault| ear.hear_fault(fault));
    let addresses: Vec<_> = (0..WORKERS).map(|_| Address::new()).collect();
    for (number, address) in addresses.iter().enumerate() {
        let name = format!("worker-{number}");
        let (called, office, health) = (name.clone(), Arc::clone(&office), health.clone());
        // Called for each incarnation.
        let make = move || Worker {
            name: called.clone(),
            office: Arc::clone(&office),
            health: health.clone(),
            beat: None,
        };
        tree = tree.child(ChildSpec::actor(name, make).at(address));
    }
    let watched = health.clone();
    let check_them = move |stop: &StopToken| check_health(&watched, &addresses, stop);
    let tree = tree.child(ChildSpec::thread("health-check", check_them)).start(&staff)?;

    // The queue. An entry is a job; an attempt asks the next worker in the pool, and waits so long.
    let ear = Arc::clone(&office);
    let queue = Runtime::builder()
        .workers(2)
        .thread_name("queue")
        .capacity(1_000)
        .retry(RetryPolicy::exponential(Duration::from_millis(2)).max_attempts(3).build()?)
        .replayable(true)
        .on_event(move |event| ear.hear_event(event))
        .build()?;
    // Its value: the answer, and which attempt had it.
    let entry = |errand: Errand| {
        let office = Arc::clone(&office);
        let attempt = move |ctx: &JobCtx| -> Result<(u64, u32), BoxError> {
            let (worker, errand) = (office.next().ok_or("the pool is empty")?, errand.clone());
            let question = |reply| Message::Do(errand, ctx.attempt(), reply);
            // Blocks, so a stand-in takes this thread's place in the pool meanwhile.
            let answer = blocking(|| worker.ask(PATIENCE, question).get())??;
            Ok((answer, ctx.attempt()))
        };
        queue.submit(attempt)
    };
    let squares = || -> Result<Vec<(u64, u32)>, Failure> {
        let entries: Vec<_> =
            (0..100).map(|n| entry(Errand::Square(n))).collect::<Result<_, _>>()?;
        Ok(entries.into_iter().map(JobHandle::get).collect::<Result<_, _>>()?)
    };

    println!("-- entries: a result clears them");
    let right = squares()?.iter().zip(0..).all(|((answer, _), n)| *answer == n * n);
    check("100 entries, 100 results", right)?;
    until("nothing is in flight", || queue.health().queues.held == Some(0))?;

    println!("-- a worker that crashes");
    let answer = entry(Errand::Crash)?.get()?;
    check("its entry is sent again, and answered", answer.1 == 2)?;
    until("the supervisor heard why, and starts it again", || {
        office.has_heard(Level::Warning, "out of memory; it starts again") == 1
    })?;
    until("it is back in the pool", || office.in_pool() == WORKERS)?;

    println!("-- a worker that hangs");
    let barrier = Arc::new(Barrier::new(2));
    let answer = entry(Errand::Hang(Arc::clone(&barrier)))?.get()?;
    check("its entry times out, and another worker answers", answer.1 == 2)?;
    until("the health check takes it out of the pool", || {
        office.has_heard(Level::Error, "is dead: out of the pool") == 1
            && office.in_pool() == WORKERS - 1
    })?;
    let verdict = health.check().verdict().and(queue.health().verdict());
    println!("      {verdict}");
    check("so not all is well, for whoever asks", !verdict.is_ready() && verdict.is_live())?;
    until("the supervisor was told that it is stuck", || {
        office.has_heard(Level::Critical, "is stuck in a call") == 1
    })?;
    let at_once = squares()?.iter().all(|(_, attempt)| *attempt == 1);
    check("100 more entries, none of them given to it", at_once)?;
    barrier.wait();
    until("what it brings in the end is refused", || {
        office.has_heard(Level::Info, "a late answer") == 1
    })?;
    until("its successor is in the pool", || office.in_pool() == WORKERS)?;
    let verdict = health.check().verdict().and(queue.health().verdict());
    check("and all is well again", verdict.is_ready())?;

    println!("-- an entry that is hopeless");
    let mended = Arc::new(AtomicBool::new(false));
    let hopeless = entry(Errand::Impossible(Arc::clone(&mended)))?;
    let Err(JobError::Dead(letter)) = hopeless.get() else {
        return Err("a job that always fails had a value".into());
    };
    check("it was tried three times", letter.attempts() == 3 && letter.stop == Stop::MaxAttempts)?;
    until("there was an alert", || office.has_heard(Level::Error, "given up: ") == 1)?;
    check("it is set aside, with its history", queue.dead_letters().len() == 1)?;
    mended.store(true, Ordering::Relaxed);
    queue.dead_letters().replay(letter.id)?.get()?;
    check("replayed once that was mended, it is answered", queue.dead_letters().is_empty())?;

    println!("-- the tree, and all that was heard");
    println!("{}", tree.snapshot());
    for ((level, what), times) in locked(&office.record).iter() {
        println!("      {times:>3} × {level:<8} {what}");
    }
    let report = queue.shutdown(LIMIT);
    check(
        "the queue ends with nothing in it",
        report.abandoned.is_empty() && report.requeued == 0,
    )?;
    check("the tree ends in order", tree.shutdown(LIMIT).is_some_and(|d| !d.exit.is_abnormal()))?;
    check("nobody is left behind", staff.shutdown(LIMIT).abandoned.is_empty())
}

// --- odds and ends ----------------------------------------------------------------------------------

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(claim: &str, holds: bool) -> Result<(), Failure> {
    println!("{} {claim}", if holds { "ok   " } else { "FALSE" });
    if holds { Ok(()) } else { Err(claim.into()) }
}

/// The same for what other threads bring about: in a moment.
fn until(claim: &str, holds: impl Fn() -> bool) -> Result<(), Failure> {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() >= LIMIT {
            return check(claim, false);
        }
        thread::sleep(Duration::from_millis(1));
    }
    check(claim, true)
}
