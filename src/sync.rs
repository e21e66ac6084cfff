//! The one door to atomics, cells, threads and parking.
//!
//! Every other file of the crate takes these from here and from nowhere else, so that one switch
//! moves the whole crate between worlds:
//!
//! | cfg              | atomics, cells          | threads          | [`park`]                            |
//! |------------------|-------------------------|------------------|-------------------------------------|
//! | (none)           | `core`                  | `std`            | futex on Linux, `parking_lot_core` elsewhere |
//! | `tenure_loom`    | `loom`, recorded, weakenable | `loom`      | a queue in the model                |
//! | `tenure_shuttle` | `shuttle`; cells notice overlap | `shuttle` | a queue in the model; timeouts at random |
//!
//! What a protocol may rely on, in every world:
//!
//! - [`cell::UnsafeCell`] is reached by `with` / `with_mut`, which loom checks for overlap;
//! - [`park::wait`] compares the word and sleeps in one step, may return early, and adds **no**
//!   ordering of its own: the caller re-reads the word with the ordering it needs;
//! - [`park::wake_one`] and [`park::wake_all`] take an *address* and never read it, so the memory
//!   may already be gone;
//! - [`barrier::light`] and [`barrier::heavy`] are the two sides of a store-buffering pair, the
//!   second of which may say that it did not happen;
//! - [`hint::SPIN_CAP`] bounds every spin loop (0 in a model);
//! - `const_new` makes an atomic in a `const` context (in a loom model each execution has its own).

#[cfg(not(any(tenure_loom, tenure_shuttle)))]
mod native;
#[cfg(not(any(tenure_loom, tenure_shuttle)))]
pub(crate) use native::*;

#[cfg(tenure_shuttle)]
mod shuttled;
#[cfg(tenure_shuttle)]
pub(crate) use shuttled::*;

#[cfg(tenure_loom)]
mod model;
#[cfg(tenure_loom)]
pub(crate) use model::*;

/// What the tools are tested on.
#[cfg(any(tenure_loom, tenure_shuttle))]
#[doc(hidden)]
pub mod specimen;

/// What the models' harness may reach: switches of the door, and the record of what a run touched.
#[cfg(tenure_loom)]
pub mod site;

/// How a wait on a word ended. None of the three says what the word holds now: read it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Wait {
    /// Somebody's wake was spent on this thread.
    Woken,
    /// Nobody's wake was: the word did not hold the expected value, or the system returned early.
    Changed,
    /// The time was up.
    TimedOut,
}
