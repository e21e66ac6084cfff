//! Timers: what is due next, among a million.
//!
//! [`Wheel`] is the pure part: a single owner's hierarchical timing wheel. It has no thread and
//! reads no clock; whoever owns it says what time it is.

mod slab;
mod wheel;

pub use wheel::{TimerKey, Wheel};
