//! `tenure`: who owns this, until when, and what happens to the one who is late?
//!
//! Lock-free in-process concurrency primitives, and the worker runtime built from them.
//!
//! Each layer uses only what stands to its left:
//!
//! ```text
//! sync, clock → wait → lock, promise → lease, retry, timer → runtime
//! ```

// The rooms, from the ground up.
pub mod clock;
#[cfg(tenure_loom)]
pub mod model;
#[cfg(not(any(tenure_loom, tenure_shuttle)))]
mod sync;
#[cfg(any(tenure_loom, tenure_shuttle))]
#[doc(hidden)]
pub mod sync;

pub mod executor;
pub mod lease;
pub mod lock;
pub mod promise;
pub mod retry;
pub mod runtime;
pub mod timer;
pub mod wait;

pub use lock::{AdaptiveMutex, AdaptiveMutexGuard};
pub use runtime::{JobCtx, JobHandle, Runtime};
