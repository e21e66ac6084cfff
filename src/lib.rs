//! Who owns this, until when, and what happens to the one who is late?
//!
//! Lock-free in-process concurrency primitives, and the worker runtime built from them.
//!
//! | question | primitive |
//! |---|---|
//! | who will own the value? | [`Promise`] / [`Eventual`]: set once, taken once, pushed to callbacks |
//! | who owns the critical section? | [`AdaptiveMutex`]: spins while that pays, then parks |
//! | who owns this key, and until when? | [`LeaseTable`]: an expiring lock with a fencing token and a private draft |
//! | when is it tried again, and when not? | [`RetryPolicy`], [`CircuitBreaker`], [`limit`], [`timer::Wheel`] |
//! | who is alive, and what to tell a probe? | [`Health`]: beats, judged by deadlines or by what is usual; a verdict that gives its reasons |
//! | who runs the job, and who notices when that fails? | [`Runtime`]: jobs leased, retried, fenced, answered; [`supervise`]: actors and their supervisors |
//!
//! ```
//! use std::time::Duration;
//! use tenure::{LeaseTable, Runtime};
//! use tenure::lease::LeaseRequest;
//! use tenure::promise::promise;
//! use tenure::retry::RetryPolicy;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (promise, eventual) = promise::<u32, std::io::Error>();
//! std::thread::spawn(move || promise.set(20));
//! assert_eq!(eventual.map(|n| n + 1).get()?, 21);
//!
//! let table: LeaseTable<&str, u32> = LeaseTable::new();
//! let mut lease = table.try_acquire(&"balance", LeaseRequest::new(Duration::from_secs(5)))?;
//! *lease += 100; // A draft: it never happened until it is committed.
//! lease.commit()?;
//!
//! let retry = RetryPolicy::exponential(Duration::from_millis(1)).max_attempts(3).build()?;
//! let runtime = Runtime::builder().retry(retry).build()?;
//! let job = runtime.submit(|ctx| if ctx.attempt() < 2 { Err("not yet") } else { Ok(42) })?;
//! assert_eq!(job.get()?, 42);
//! # Ok(())
//! # }
//! ```
//!
//! Longer ones are in the repository's `examples`, from one file each (`state_block`, `leased_worker`,
//! `retry_queue`) to programs (`mirror`, `service`).
//!
//! Each layer uses only what stands to its left:
//!
//! ```text
//! sync, clock → wait → lock, promise → lease, retry, limit, breaker, health, timer → runtime → supervise
//! ```
//!
//! Each room's page begins with a tour, and has the table of its state word, the diagram, and the
//! pairs of operations that its memory orderings connect.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | gives |
//! |---|---|
//! | `tokio`, `rayon` | [`Executor`](executor::Executor) for tokio's handle, for rayon's pool |
//! | `futures` | `Stream` and `FusedFuture` of `futures-core` where they fit |
//! | `cron` | [`Schedule`](runtime::Schedule)s by cron lines |
//! | `metrics` | [`Runtime`]'s counters, gauges and histograms through the `metrics` facade |
//! | `tracing` | spans of attempts, and what goes wrong as events, through `tracing` |
//! | `lock-contention` | counters and a histogram of waits in each [`AdaptiveMutex`] |
//!
//! # Your own models
//!
//! Built with `--cfg tenure_loom`, the primitives run on loom's types, so that loom can explore code of
//! yours that uses them. `loom-tests/README.md` in the repository shows how, and what is not covered.

// The rooms, from the ground up.
pub mod clock;
#[cfg(tenure_loom)]
pub mod model;
#[cfg(not(any(tenure_loom, tenure_shuttle)))]
mod sync;
#[cfg(any(tenure_loom, tenure_shuttle))]
#[doc(hidden)]
pub mod sync;

pub mod breaker;
pub mod executor;
pub mod health;
pub mod lease;
pub mod limit;
pub mod lock;
pub mod promise;
pub mod retry;
pub mod runtime;
pub mod supervise;
pub mod timer;
pub mod wait;

pub use breaker::CircuitBreaker;
pub use health::Health;
pub use lease::{FencingToken, Lease, LeaseTable, OwnedLease};
pub use lock::{AdaptiveMutex, AdaptiveMutexGuard};
pub use promise::{Eventual, Promise};
pub use retry::RetryPolicy;
pub use runtime::{JobCtx, JobHandle, Runtime};
pub use supervise::{Actor, ActorRef, Supervisor};

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct ReadmeDoctests;
