//! Waiting: how long to try, when to give up, how to sleep.
//!
//! | what | for |
//! |---|---|
//! | [`Deadline`] | when a blocking call gives up; any `Duration` is legal |
//! | [`Parker`], [`Unparker`] | one thread that sleeps until told, with a token of its own |
//! | [`SpinPolicy`] | how long to try before sleeping: by default, never, or fixed |
//! | spin budget (private) | rounds of pauses, then of yields, before a sleep |
//!
//! Nothing here uses [`std::thread::park`] on a user's thread: its token belongs to the user, who
//! may take it, or leave one behind.

/// Whether this is a build for models, which have no time: a timed wait that ends there is over.
pub(crate) const IN_A_MODEL: bool = cfg!(any(tenure_loom, tenure_shuttle));

mod deadline;
mod parker;
mod processors;
mod spin;

pub use deadline::Deadline;
pub(crate) use deadline::Stopwatch;
pub use parker::{Parker, Unparker};
pub use spin::SpinPolicy;
#[allow(unused_imports, reason = "for the rooms above")]
pub(crate) use spin::{Budget, DEFAULT_ROUNDS, Spin};
