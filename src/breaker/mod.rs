//! Circuit breaker: stops calling what does not answer, until it does again.
//!
//! [`CircuitBreaker::call`] and [`call_async`](CircuitBreaker::call_async) wrap a call;
//! [`try_acquire`](CircuitBreaker::try_acquire) gives a [`Permit`] to those who say themselves what came
//! of it. It is usable alone; a runtime asks it for its jobs.
//!
//! | file       | what it is                                                          |
//! |------------|---------------------------------------------------------------------|
//! | `word`     | the state word and its transitions                                  |
//! | `core`     | who is let through, and what goes with each transition              |
//! | `settle`   | what came of a call                                                 |
//! | `asked`    | another state, other settings, a snapshot                           |
//! | `window`   | which calls count, under the book's lock                            |
//! | `stripes`  | what is counted for each call, by stripes of threads                |
//! | `handle`, `permit`, `config`, `event`, `snapshot`, `error` | what users name     |
//!
//! # States
//!
//! ```text
//!               a bad call, and the window's rate is reached
//!      CLOSED ───────────────────────────────────────────────► OPEN ◄─────────────┐
//!        ▲                                                      │ a call, and the │ a probe fails, or
//!        │        as many probes as configured went well        ▼ time is over    │ none comes back in time
//!        └───────────────────────────────────────────────── HALF-OPEN ────────────┘
//!
//!      any ── force_open ──► FORCED OPEN     any ── disable ──► DISABLED     any ── reset ──► CLOSED
//! ```
//!
//! | state | a call is | its result | who may leave it |
//! |---|---|---|---|
//! | `CLOSED` | let through | counted in the window | whose bad call reaches a rate; whoever asks |
//! | `OPEN` | refused, with the time left | – (none is let through) | the first to call after the time; whoever asks |
//! | `HALF-OPEN` | let through while probes under way and passed are fewer than configured | a pass; or a failure, which decides | the last pass, the first failure, a caller after the probes' time; whoever asks |
//! | `FORCED OPEN` | refused, without a time | – | whoever asks |
//! | `DISABLED` | let through | ignored | whoever asks |
//!
//! # The word
//!
//! ```text
//! state 3 | generation 29 | probes in flight 16 | probes passed 16
//! ```
//!
//! | operation | from → to | success ordering | with the book locked |
//! |---|---|---|---|
//! | let a probe through | half-open, in flight + passed < configured → in flight +1 | Relaxed | no |
//! | a probe went well, others follow | → in flight −1, passed +1 | Relaxed | no |
//! | a probe is returned | → in flight −1 | Relaxed | no |
//! | any change of state | → the state, generation +1, no probes (or the first) | Release | yes |
//!
//! | edge | Release in | Acquire in | makes visible |
//! |---|---|---|---|
//! | change of state → next call | `WordCell::change` | `WordCell::load`, `take_probe` where it fails | until when it is open |
//!
//! Invariants:
//!
//! 1. In flight and passed together are never more than configured, so not one probe more is made,
//!    however many ask at once: both are in the word that lets them through.
//! 2. A generation is never come back to (but by 2²⁹ changes). A result carries the generation that it was
//!    let through in; one of an older generation changes nothing.
//! 3. A result is settled once: a permit is used up by it. A dropped one is returned.
//! 4. A change of state and what goes with it (the window's begin, the time) are made under one lock. Nothing foreign
//!    runs under it: clocks are looked at before, listeners and watchers are told after.
//!
//! What a success does: it looks at the word and adds one to a counter of its thread's stripe. A success
//! that was overtaken by a change of state between the two counts in the next window: one too many for
//! each thread that was. A failure is never counted in another generation's window.
//!
//! An open breaker refuses by the coarse clock, and looks at the precise one only within its lag of the
//! time. A success never opens a breaker, so only bad calls look at rates.
//!
//! # Cancellation and drop
//!
//! | what is dropped | closed | half-open | else |
//! |---|---|---|---|
//! | a permit, or the future of `call_async` | nothing | the probe can be had again, listeners are told | nothing |
//! | a call, by its panic | a failure | a failure: opens | nothing |
//! | a probe that hangs for ever | – | after `probe_timeout` it opens again | – |
//!
//! # Measured
//!
//! On 2 cores of an AMD EPYC guest, `cargo bench --bench breaker`, medians in ns; the peers are recloser 1.4
//! (by count) and failsafe 1.3 (failures in a row, which keeps no window; or by time):
//!
//! | | this crate | peers |
//! |---|---|---|
//! | closed, a success, 1 thread | 10.4 | recloser 14.0, failsafe 12.2 |
//! | closed, a success, 2 threads | 13.0 | recloser 94, failsafe 40 |
//! | the same by time, 1 / 2 threads | 15.8 / 19.2 | failsafe 93 / 276 |
//! | the same by count with slow calls, 1 / 2 threads | 28.5 / 26.9 | |
//! | one call in five fails, 1 thread | 13.0 | recloser 15.3, failsafe 15.1 |
//! | one call in five fails, 2 threads | 44 | recloser 125, failsafe 72 |
//! | open, refused, 1 / 2 threads | 13.3 / 15.3 | recloser 44 / 41, failsafe 34 / 67 |
//!
//! The first row is of three runs of its own, within 3 % of each other; those of failing calls are of five, which
//! on two threads go from 23 to 107 here, and from 52 to 88 with failsafe; the others are of one, in which the
//! machine was slower (its first row: 13.0, 21.0, 12.5).

mod asked;
mod config;
mod core;
mod error;
mod event;
mod handle;
mod permit;
mod settle;
mod snapshot;
mod stripes;
mod window;
mod word;

pub use crate::limit::Listener;
pub use config::{BreakerBuilder, Settings, Window};
pub use error::{CallError, ConfigError, Open};
pub use event::{BreakerEvent, Cause};
pub use handle::CircuitBreaker;
pub use permit::{Permit, Verdict};
pub use snapshot::{Snapshot, Totals};
pub use word::State;
