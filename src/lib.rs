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
//! | who runs the job, and who notices when that fails? | [`Runtime`]: jobs leased, retried, fenced, answered; [`supervise`]: actors and their supervisors |
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
