//! The retry queue: what is in flight is watched; what is lost is sent again; what is hopeless is set
//! aside; who is dead gets nothing more; and somebody hears of every fault.
//!
//! | part of the queue | here |
//! |---|---|
//! | entries in flight, cleared by their result | jobs, each with its handle |
//! | the monitor that sends again what timed out, up to a limit | attempt timeout and retry policy |
//! | the health check that takes dead workers out | stuck workers leave the pool, and are replaced |
//! | the supervisor that hears every fault | `on_event`: grades each, counts it, reacts |
//!
//! `cargo run --example retry_queue` prints what it checks, and fails if one of it does not hold.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use tenure::retry::{RetryPolicy, Stop};
use tenure::runtime::{AttemptError, Event, JobError, Runtime};

type Failure = Box<dyn std::error::Error>;

/// Much longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

fn check(claim: &str, holds: bool) -> Result<(), Failure> {
    println!("{} {claim}", if holds { "ok   " } else { "FALSE" });
    if holds { Ok(()) } else { Err(claim.into()) }
}

fn check_quietly(claim: &str, holds: bool) -> Result<(), Failure> {
    if holds { Ok(()) } else { check(claim, holds) }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Will mend itself.
    Notice,
    /// Somebody should look at it some time.
    Warning,
    /// Something is lost.
    Alarm,
}

/// Hears every fault, grades it, records it, and reacts.
#[derive(Default)]
struct Supervisor {
    record: Mutex<BTreeMap<(Level, &'static str), u32>>,
    changed: Condvar,
    alarm: AtomicBool,
}

impl Supervisor {
    /// On the thread that met the fault: short, and it must not block.
    fn hear(&self, event: &Event) {
        let (level, fault) = match event {
            Event::AttemptFailed { cause: AttemptError::TimedOut { .. }, .. } => {
                (Level::Warning, "timed out")
            }
            Event::AttemptFailed { cause: AttemptError::Panicked(_), .. } => {
                (Level::Warning, "panicked")
            }
            Event::AttemptFailed { .. } => (Level::Notice, "failed"),
            Event::RetryScheduled { .. } => (Level::Notice, "sent again"),
            Event::WorkerStuck { replacement: Some(_), .. } => (Level::Warning, "worker replaced"),
            Event::WorkerStuck { replacement: None, .. } => (Level::Alarm, "worker lost"),
            Event::WorkerReturned { .. } => (Level::Notice, "worker came back"),
            Event::LateAttempt { .. } => (Level::Notice, "late result refused"),
            Event::JobDead(_) => (Level::Alarm, "given up"),
            _ => return,
        };
        if level == Level::Alarm {
            self.alarm.store(true, Ordering::Relaxed);
        }
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        *record.entry((level, fault)).or_default() += 1;
        self.changed.notify_all();
    }

    /// How often it heard of `fault`: waits until it is `times`.
    fn has_heard(&self, fault: &str, times: u32) -> bool {
        let count = |record: &BTreeMap<(Level, &str), u32>| {
            record.iter().filter(|((_, kind), _)| *kind == fault).map(|(_, n)| n).sum::<u32>()
        };
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(record, LIMIT, |r| count(r) < times);
        count(&waited.unwrap_or_else(PoisonError::into_inner).0) == times
    }
}

impl fmt::Display for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        for ((level, fault), times) in record.iter() {
            let level = format!("{level:?}");
            writeln!(f, "      {level:<8} {fault:<20} {times:>3}")?;
        }
        Ok(())
    }
}

/// Something a job waits for, which may never come: a peer that does not answer.
#[derive(Default)]
struct Answer(Mutex<bool>, Condvar);

impl Answer {
    fn wait(&self) {
        let given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.1.wait_while(given, |given| !*given));
    }

    fn give(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.1.notify_all();
    }
}

fn main() -> Result<(), Failure> {
    let supervisor = Arc::new(Supervisor::default());
    let ear = Arc::clone(&supervisor);
    let queue = Runtime::builder()
        .workers(2)
        // The monitor: who shows no life for so long is given up, and the job sent again …
        .attempt_timeout(Duration::from_millis(500))
        // … with growing pauses, three times in all.
        .retry(RetryPolicy::exponential(Duration::from_millis(2)).max_attempts(3).build()?)
        .on_event(move |event| ear.hear(event))
        .build()?;

    println!("-- entries: a result clears them");
    let entries: Vec<_> =
        (0..100).map(|n| queue.submit(move |_| Ok::<_, String>(n))).collect::<Result<_, _>>()?;
    let mut sum = 0;
    for entry in entries {
        sum += entry.get()?;
    }
    check("100 entries, 100 results", sum == (0..100).sum())?;

    println!("-- an entry that fails is sent again, and again");
    let flaky = queue
        .job(|ctx| if ctx.attempt() < 3 { Err("connection reset") } else { Ok(ctx.attempt()) })
        .name("flaky")
        .submit()?;
    check("the third attempt answers", flaky.get()? == 3)?;
    check("the supervisor heard both faults", supervisor.has_heard("failed", 2))?;

    println!("-- a worker that dies with its entry");
    let answer = Arc::new(Answer::default());
    let peer = Arc::clone(&answer);
    let (tell, told) = mpsc::channel();
    let hanging = queue
        .job(move |ctx| {
            if ctx.attempt() == 1 {
                let _ = tell.send(thread::current().id());
                peer.wait(); // No heartbeat from here on.
            }
            Ok::<_, String>(ctx.attempt())
        })
        .name("hanging")
        .submit()?;
    check("another worker answers instead", hanging.get()? == 2)?;
    check("the dead one is out of the pool", supervisor.has_heard("worker replaced", 1))?;
    let dead = told.recv()?;
    let others = queue.submit_many(vec![|_: &_| Ok::<_, String>(thread::current().id()); 100])?;
    for other in others {
        check_quietly("a dead worker is given nothing more", other.get()? != dead)?;
    }
    check("100 more entries, none of them given to it", true)?;
    answer.give();
    check("what it brings in the end is refused", supervisor.has_heard("late result refused", 1))?;
    check("its thread ends", supervisor.has_heard("worker came back", 1))?;

    println!("-- an entry that is hopeless");
    let hopeless = queue.job(|_| Err::<(), _>("no such host")).name("hopeless").submit()?;
    let Err(JobError::Dead(letter)) = hopeless.get() else {
        return Err("a job that always fails had a value".into());
    };
    println!("      {letter}");
    check("it was tried three times", letter.attempts() == 3 && letter.stop == Stop::MaxAttempts)?;
    check("the supervisor raised the alarm", supervisor.has_heard("given up", 1))?;
    check("loudly", supervisor.alarm.load(Ordering::Relaxed))?;
    check("it is set aside, with its history", queue.dead_letters().len() == 1)?;

    println!("-- all that the supervisor heard");
    print!("{supervisor}");
    let report = queue.shutdown(LIMIT);
    check("the queue ends with nothing in it", report.abandoned.is_empty() && report.requeued == 0)
}
