//! Jobs that are run, tried again, watched, fenced, and answered.
//!
//! A [`Runtime`] is a pool of workers. Hand it a closure and get a [`JobHandle`]: a future of the
//! result, or something to block on. If an attempt fails, panics, or shows no life within its
//! timeout, it is made again as the [`RetryPolicy`](crate::retry::RetryPolicy) says; what comes of the
//! attempt that was given up is not heard. A job that has run out of attempts leaves a
//! [`DeadLetter`] with the history of all of them, from which it can be [replayed](DeadLetters).
//!
//! ```
//! use std::time::Duration;
//! use tenure::retry::RetryPolicy;
//! use tenure::runtime::Runtime;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder()
//!     .workers(2)
//!     .attempt_timeout(Duration::from_secs(5))
//!     .retry(RetryPolicy::exponential(Duration::from_millis(1)).max_attempts(3).build()?)
//!     .build()?;
//!
//! // Fails once, then succeeds.
//! let flaky = runtime.submit(|ctx| if ctx.attempt() < 2 { Err("not yet") } else { Ok(42) })?;
//! // Jobs with one key run one after another; each attempt has a token that only grows.
//! let keyed = runtime.job(|ctx| Ok::<_, String>(ctx.token())).key("users/7").submit()?;
//!
//! assert_eq!(flaky.get()?, 42);
//! keyed.get()?;
//! let report = runtime.shutdown(Duration::from_secs(1));
//! assert!(report.abandoned.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised, and what is not
//!
//! While the process lives, each job has exactly one end, which every waiter sees; one current attempt
//! at a time; its result is that attempt's; no job vanishes. **Not** promised is that a job's side
//! effects happen once: an attempt that was given up may still be running. A thread cannot be killed.
//! So before each write that others can see, ask [`JobCtx::check`], or give the resource
//! [`JobCtx::token`] and have it refuse smaller ones.
//!
//! # Who runs what
//!
//! | thread | runs |
//! |---|---|
//! | workers | closures, what judges their errors, drops of their values and captures, wakers, event listeners |
//! | the driver, one a runtime | no closures; timers, rescues, the shutdown. When it ends a job: wakers, drops, event listeners |
//! | whoever cancels or drops a handle | the job's waker or callback; drops of what that leaves without an owner |
//!
//! The driver has a thread of its own, which sleeps until the next deadline, or for ever: an idle
//! runtime has no wake-ups. If foreign code holds it up, a second thread drives on after 20 to 40 ms; a
//! third watches that one, and so on for up to 16 that are held up at a time.
//!
//! A waker is woken, a callback ([`JobHandle::on_complete`]) called, after the job's key has gone to
//! the next in line, and before its closure and an unwanted result are dropped.
//!
//! # A job's life
//!
//! ```text
//!                   gate ┌─► Suspended at a gate (Gated), back by ungate
//!                        │
//!                        │ ┌──────────────── fire ─────────────────┐
//!              fire        ▼   start                fail, rescue    │
//! Scheduled ──────────► Ready ────────► Leased ─────────────────► Backoff
//!              resume      ▲              │ │
//! Suspended ───────────────┘              │ │ complete; fail, rescue (no further attempt)
//!                                         │ ▼
//!                                         │ Completing ── publish ──► Succeeded | Dead
//!                                         │
//!  Leased ── hedge ──► Hedged: two attempts, one epoch; back to Leased when the first of them fails
//!  what waits ── expire ──► Completing ──► Dead
//!  all but Completing ── cancel (Leased: ─┴─ only a request, seen by fail and rescue) ──► Cancelled
//! ```
//!
//! One 64-bit word: epoch 32 | attempts that ended 16 | flags 8 | attempts inside the closure 4 | state 4.
//!
//! | flag | says | set by | cleared by |
//! |---|---|---|---|
//! | CANCEL_REQUESTED | an attempt that fails, or is rescued, ends the job | `cancel` | never |
//! | BY_SHUTDOWN | that came from a shutdown | `cancel` | never |
//! | WAITER | a waker is in the waiter slot | the handle's `register` | `retract`, `detach` |
//! | DETACHED | nobody will take the result | the handle's `detach` | never |
//! | HEARTBEAT_SEEN | the attempt showed life since the driver looked | `heartbeat` | `start`, `rescue`; without a deadline `hear` |
//! | COUNTED | a cancellation is in the counters | `count_once` | never |
//! | NOTIFIED | a task was woken while it was polled, or is Ready | `wake` | `start`, `suspend` |
//! | DUE | its retry's time has come, but a late attempt is inside a `FnMut` | `fire_alone` | the last `exit_alone` |
//!
//! | state | who holds the job | who may leave it |
//! |---|---|---|
//! | Scheduled, Backoff | the driver's timer; Backoff + DUE: the late attempt | the timer made for this epoch (a job with a key goes from Scheduled to Suspended), the late attempt's exit, cancel |
//! | Ready | a queue entry | the worker that takes it, cancel |
//! | Suspended | its key's queue, or the wakers of a task | the key's last owner, a waker, cancel, its deadline |
//! | Gated (Suspended, at a gate) | the gate's line; it keeps its key | whoever pumps that line, cancel, its deadline |
//! | Leased | the attempt with this epoch | that attempt, the driver's rescue |
//! | Hedged (Leased, twice) | the two attempts with this epoch | either of them, the driver's rescue |
//! | Completing | one thread, which runs no user code in it | that thread |
//! | Succeeded, Dead, Cancelled | the handle | nobody |
//!
//! - **I1** A final state is never left.
//! - **I2** Every lease has an epoch of its own; an attempt whose epoch is not the word's changes
//!   nothing but the count of attempts inside the closure.
//! - **I3** A step to Ready comes before the push of its entry; a step to Backoff before its timer. So
//!   there is never an entry or a timer less than needed, and one too many finds that it is stale.
//! - **I4** The closure is dropped by whoever makes the word final with nobody inside, or by the last
//!   one to leave after that. A capture may so outlive [`JobHandle::get`]. A dead letter that keeps the
//!   closure, to be replayed, is inside like an attempt (`cell/again.rs`).
//! - **I5** The result is written by the owner of Completing, and read after the publication.
//! - **I6** A failed exchange is no mismatch: flags move the word, too.
//! - **I7** A closure that takes one attempt at a time ([`Runtime::submit_mut`]) is Ready only with
//!   nobody inside: a timer that finds a late attempt there leaves DUE, and its exit does the rest.
//! - **I8** A job is in one line at most: the step to Gated comes before its entry, and whoever takes the
//!   entry out makes it Ready, or puts it into another line.
//! - **I9** The permits of an attempt are taken out under the job's own lock, by its epoch: so they go back
//!   once, also if the attempt is given up and comes back.
//!
//! | edge | Release in | Acquire in | makes visible |
//! |---|---|---|---|
//! | Leased → Backoff → Ready → Leased | `fail` | `start` | what the attempt did inside the closure |
//! | Completing → Succeeded, Dead | `publish` | `settled`, `detach` | the result |
//! | + WAITER | `register` | `publish`, `fail`, `rescue`, `cancel` | the waker |
//! | − runner | `publish`, `fail`, `exit` | the same, the last one | what all did inside the closure |
//! | → Cancelled, or asked to be | `cancel` | `settled` | what the canceller did before |
//! | Backoff + DUE → Ready → Leased | `exit_alone` | `start` | what the late attempt did inside the closure |
//! | Leased → Hedged | `fail`, as above | `hedge` | what earlier attempts did inside the closure |
//!
//! The epoch does not wrap: a job whose epochs, or whose sixteen places inside the closure, are used
//! up is dead. Attempts saturate at 65,535, which is also the most that are made.
//!
//! A task ([`Runtime::spawn`]) is a job whose attempts are polls. One that is pending goes from Leased to
//! Suspended, or, if it was woken meanwhile, to Ready; its waker leads from Suspended to Ready. All polls
//! have one epoch, so that a task may be polled for ever.
//!
//! | edge | Release in | Acquire in | makes visible |
//! |---|---|---|---|
//! | Suspended → Ready, or a mark | `wake` | `start` | what came before the wake |
//!
//! The other protocols are told where they live: the event count (`sleep.rs`), the seat that the
//! driver watches (`seat.rs`), the way into the driver (`intake.rs`), waiting inside jobs
//! (`waiting.rs`), policies and the lines before gates (`policy/`), the list of workers (`members.rs`), the counts (`stats.rs`), waiting for room
//! (`room.rs`), tasks (`task.rs`), dead letters (`letters.rs`), series (`series.rs`), the end (`shutdown.rs`). One is between two files:
//!
//! ```text
//! worker: Stand, SleepFence, ReadStanding     driver: WriteStanding, RetireFence, ReadSeat
//! ```
//!
//! A worker that comes back while the driver is about to take it out either sees that it is out before
//! it sleeps, and leaves; or the driver sees that it has stood up, and keeps it. Both can be true: then
//! the worker's standing has one more exchange, and who makes it decides.
//!
//! # What races a shutdown
//!
//! | call | before the phase is Closing | after |
//! |---|---|---|
//! | `submit`, `submit_many`, `spawn`, `repeat` | taken; the job may still end as [`JobError::Shutdown`] | [`SubmitError::Closed`] gives it back |
//! | `submit_timeout` that waits for room | | ends with [`SubmitError::Closed`] |
//! | an attempt that ends with a value | the job has succeeded | the same; it is in the report's `done` |
//! | an attempt that fails | its retry is armed, and swept | the job ends as `Shutdown`; in `requeued` |
//! | a timer that fires | its job is queued, and swept | the driver has swept it |
//! | a gate that lets a job go on | its job is queued, and swept | it has been swept out of the line |
//! | a deadline that comes | the job is dead | the driver has swept it |
//! | a second attempt that is due | begins, or is swept | does not begin |
//! | a rescue | as ever; a retry is swept | as ever, until the end: then what runs is `abandoned` |
//! | a task's waker | queues it; swept | nothing: the task is over |
//! | a [`Series`]' next tick | planned, and swept: the series is over | not planned: the series is over |
//! | [`DeadLetters::replay`] | as `submit`: the letter is gone, the job may end as `Shutdown` | [`ReplayError::Closed`]; the letter stays, its closure goes with the end |
//! | `cancel` | as ever | who is first decides what the handle says |
//! | `get`, `.await`, `on_complete` | wait for the job's end, which comes | the same |
//! | `shutdown` | begins it | waits for the same end, with the earliest of the deadlines, and gets the same report |
//! | drop of the last [`Runtime`] | begins it, without a deadline, and does not wait | nothing |
//!
//! # Measured
//!
#![doc = include_str!("measured.md")]

mod builder;
mod cell;
mod clockwork;
mod ctx;
mod dead_letters;
mod drain;
mod driver;
mod ends;
mod error;
mod events;
mod gates;
mod handle;
mod health;
pub(crate) mod intake;
mod judge;
mod keys;
mod leases;
mod letters;
mod many;
mod members;
#[cfg(any(tenure_loom, tenure_shuttle))]
#[doc(hidden)]
pub mod model;
mod observe;
mod options;
mod outcome;
mod policy;
mod promised;
mod room;
#[expect(clippy::module_inception, reason = "the type of that name lives there")]
mod runtime;
mod schedule;
mod seat;
mod series;
mod shared;
mod shutdown;
mod sleep;
mod state;
mod stats;
mod submit;
mod sweep;
mod task;
mod waiting;
mod worker;

/// Any error a job may return.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub use builder::Builder;
pub(crate) use cell::contained;
pub(crate) use clockwork::Clockwork;
pub use ctx::JobCtx;
pub use dead_letters::{DeadLetters, LetterFilter, Replays};
pub use error::{
    AttemptError, AttemptRecord, ConfigError, DeadLetter, Fenced, JobError, JobPanic, NotCounted,
    ReplayError, SubmitError, Unkept,
};
pub use events::{Event, Events};
pub use handle::JobHandle;
pub use health::{DriverHealth, QueueHealth, Running, RuntimeHealth, WorkerHealth, WorkerStatus};
pub use leases::JobLeases;
pub use letters::LettersFull;
pub use many::SubmitManyError;
#[cfg(feature = "metrics")]
pub use observe::metrics::{Metrics, PublishError};
pub use options::{JobId, JobKey, Priority};
pub use outcome::{IntoOutcome, Outcome};
pub use policy::unique::LiveJob;
pub use runtime::Runtime;
#[cfg(feature = "cron")]
pub use schedule::CronError;
pub use schedule::{Missed, Schedule};
pub use series::{Repeated, Series};
pub(crate) use shared::Shared;
pub use shutdown::{Abandoned, ShutdownReport};
pub use stats::Stats;
pub use submit::{InTurn, Job, OneAttempt, Retried};
pub(crate) use task::{Turns, spawn_turns};
pub use waiting::blocking;
