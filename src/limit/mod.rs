//! Limits: how many at once, how many in a time, and what is refused when there is too much.
//!
//! | limit | lets through | a permit | waiting |
//! |---|---|---|---|
//! | [`ConcurrencyLimit`] | so many at once | is returned by its drop | in line: blocking, async |
//! | [`KeyedConcurrency`] | so many at once for each key | the same | in line, for each key |
//! | [`RateLimit`] | so many in a time, and a burst | is used up | blocking, async |
//! | [`KeyedRateLimit`] | the same for each key | is used up | |
//! | [`AdaptiveLimit`] | as many at once as go well | is returned, with a signal | in line |
//! | [`LoadShedder`] | what will not wait too long | is a place in a queue | |
//!
//! All have the same shape. `try_acquire` gives a permit or refuses with [`Limited`]; its `retry_after`
//! says when *time* may have freed one, and a [`Listener`] is told when anything else may have. Settings
//! are changed while in use by `set_…`, and nobody who waits is forgotten by that. Each is a handle:
//! clones are the same limit. Clocks are injected, so tests need not sleep.
//!
//! ```
//! use std::time::Duration;
//! use tenure::clock::ManualClock;
//! use tenure::limit::{ConcurrencyLimit, Rate, RateLimit};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let two_at_once = ConcurrencyLimit::new(2);
//! let (first, _second) = (two_at_once.try_acquire()?, two_at_once.try_acquire()?);
//! assert!(two_at_once.try_acquire().is_err());
//! drop(first); // It is returned.
//! assert!(two_at_once.try_acquire().is_ok());
//!
//! let clock = ManualClock::new();
//! let hourly = RateLimit::with_clock(Rate::per(1, Duration::from_secs(3600))?, clock.clone());
//! let _ = hourly.try_acquire()?; // It is used up, kept or not.
//! let refused = hourly.try_acquire().unwrap_err();
//! assert_eq!(refused.retry_after, Some(Duration::from_secs(3600)));
//! clock.advance(Duration::from_secs(3600));
//! assert!(hourly.try_acquire().is_ok());
//! # Ok(())
//! # }
//! ```
//!
//! A runtime's jobs stand behind limits by [`Job::concurrency`](crate::runtime::Job::concurrency) and its
//! neighbours: they wait without a thread.
//!
//! # The words
//!
//! Of a concurrency limit (`seats`):
//!
//! ```text
//! | bits  | name    | meaning                                | who writes it                               |
//! |-------|---------|----------------------------------------|---------------------------------------------|
//! | 0–30  | used    | permits that are out                   | `take` +1, by a CAS below the limit; `give_back` −1 |
//! | 31–61 | limit   |                                        | `change_limit`                              |
//! | 62    | AWAITED | somebody may stand in line             | with the line locked: a waiter sets, `serve` clears an empty line's |
//! | 63    | WATCHED | somebody listens                       | `watch` sets                                |
//!
//!          take: used < limit, not AWAITED                give_back: used − 1
//!   free ─────────────────────────────────► out ─────────────────────────────► AWAITED? serve: lock the line,
//!    ▲                                                                          take for the first, unlock, tell it
//!    └──────────────── nobody in line ─────────────────────────────────────────  WATCHED? tell the listeners
//! ```
//!
//! | edge | Release in | Acquire in | makes visible |
//! |---|---|---|---|
//! | permit returned → taken again | `SeatsCell::give_back` | `SeatsCell::take_if` | what was done under the permit |
//! | limit changed → changed again | `SeatsCell::change_limit` | the same | the bounds of an adaptive limit |
//!
//! *No waiter is lost.* A waiter enters the line, marks the word (W1), and then looks at it for a seat
//! itself (W2). A permit that is returned, or a raised limit, changes the word (R1) and sees its old value.
//! Both are read-modify-writes of one word. If R1 comes before W1, W2 sees the free seat. If after, R1
//! saw the mark, and its thread serves the line. The mark is cleared only with the line locked and empty;
//! whoever was refused for the mark alone meanwhile is told as a listener afterwards.
//!
//! Of a rate limit (`gcra`): the moment up to which time is spent. It moves by the interval with each
//! permit, from now or from where it was, whichever is later; a permit that would bring it further ahead of
//! now than the burst is refused. Nothing refills it but that now moves on, so no clock jump, however
//! long, makes more than one burst, and nothing loops over elapsed time. All its orderings are `Relaxed`: only
//! the number counts.
//!
//! Of a shedder (`shed`): interval 24 | level 8 | shortest wait 32.
//!
//! # Measured
//!
//! On 2 cores of an AMD EPYC guest, `cargo bench --bench breaker -- limits`, medians in ns on 1 / 2 threads:
//!
//! | | this crate | tokio |
//! |---|---|---|
//! | a permit that borrows, taken and returned | [`try_enter`](ConcurrencyLimit::try_enter) 6.3 / 27 | `Semaphore::try_acquire` 9.4 / 29 |
//! | one that owns | [`try_acquire`](ConcurrencyLimit::try_acquire) 9.2 / 56 | `try_acquire_owned` 13.9 / 71 |
//! | a rate's permit, let through | 37 / 75 | |
//! | a rate's permit, refused | 14 / 18 | |
//!
//! Medians of five runs; on two threads a run is up to a half off its median.

mod adaptive;
mod concurrency;
mod error;
mod gcra;
mod keyed;
mod keyed_rate;
mod pause;
mod rate;
mod seats;
mod shed;
mod watch;

pub use adaptive::{AdaptiveBuilder, AdaptiveLimit, AdaptivePermit};
pub use concurrency::{ConcurrencyLimit, Entered, Permit};
pub use error::{ConfigError, Limited};
pub use gcra::Rate;
pub use keyed::{KeyedConcurrency, KeyedPermit, LimitKey};
pub use keyed_rate::KeyedRateLimit;
pub use rate::{RateLimit, RatePermit};
pub use shed::{Importance, LoadShedder, Place, ShedderBuilder};
pub use watch::Listener;
pub(crate) use watch::{Watchers, contained};

use crate::wait::Deadline;

#[cfg(not(any(tenure_loom, tenure_shuttle)))]
mod outside_models {
    pub(crate) type Hasher = std::collections::hash_map::RandomState;
    pub(crate) type Lock<T> = crate::lock::AdaptiveMutex<T>;
    pub(crate) type Guard<'a, T> = crate::lock::AdaptiveMutexGuard<'a, T>;
}
#[cfg(not(any(tenure_loom, tenure_shuttle)))]
pub(crate) use outside_models::*;

#[cfg(any(tenure_loom, tenure_shuttle))]
mod inside_models {
    // Models must run the same way each time.
    pub(crate) type Hasher =
        core::hash::BuildHasherDefault<std::collections::hash_map::DefaultHasher>;
    // The lock has models of its own. Here any will do, and the model's is one step.
    pub(crate) type Lock<T> = crate::sync::Mutex<T>;
}
#[cfg(any(tenure_loom, tenure_shuttle))]
pub(crate) use inside_models::*;

/// Locks by `deadline`, or not at all.
#[cfg(not(any(tenure_loom, tenure_shuttle)))]
fn lock_by<T>(lock: &Lock<T>, deadline: Deadline) -> Option<Guard<'_, T>> {
    match deadline.remaining() {
        None => Some(lock.lock()),
        Some(left) => lock.try_lock_for(left),
    }
}

/// A model's lock has no time.
#[cfg(any(tenure_loom, tenure_shuttle))]
fn lock_by<T>(lock: &Lock<T>, _deadline: Deadline) -> Option<impl Drop + use<'_, T>> {
    Some(lock.lock())
}

/// How many locks a table of keys is divided by.
fn shard_count() -> usize {
    if cfg!(any(tenure_loom, tenure_shuttle)) {
        return 1;
    }
    let processors = std::thread::available_parallelism().map_or(4, core::num::NonZero::get);
    processors.saturating_mul(4).next_power_of_two().min(256)
}
