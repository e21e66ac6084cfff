//! Who is alive: beats, suspicion, and what to say when somebody asks.
//!
//! Whoever should show signs of life registers with a [`Health`] and gets a [`Beat`]. From time to time
//! somebody [checks](Health::check), or a [judge](Health::start_judge) does: who has been silent for too
//! long is first suspect, then dead.
//!
//! ```
//! use std::time::Duration;
//! use tenure::clock::ManualClock;
//! use tenure::health::{Detector, Health};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ManualClock::new();
//! let health = Health::builder()
//!     .clock(clock.clone())
//!     .on_change(|event| println!("{}: {:?}", event.name, event.change))
//!     .build();
//! let seconds = Duration::from_secs;
//! let poller = health.register("poller", Detector::deadline(seconds(5), seconds(30))?);
//!
//! clock.advance(seconds(6));
//! let verdict = health.check().verdict();
//! assert!(verdict.is_ready());
//! assert_eq!(verdict.to_string(), "ready: poller has been silent for 6s");
//!
//! poller.beat()?;
//! assert!(health.check().verdict().reasons().is_empty());
//!
//! clock.advance(seconds(30));
//! assert!(!health.check().verdict().is_ready());
//! // It comes back, but somebody may have its place by now.
//! assert!(poller.beat().is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # A registration's life
//!
//! ```text
//!              silence        silence
//!   Alive ───────────► Suspect ───────► Dead          drop of the Beat: out of any of them
//!     ▲                  │
//!     └──────────────────┘
//!            beat
//! ```
//!
//! | status | meaning | its beats |
//! |---|---|---|
//! | [`Alive`](Status::Alive) | it has beaten lately | count |
//! | [`Suspect`](Status::Suspect) | it has been silent for longer than is usual; nothing is taken from it | count, and make it Alive |
//! | [`Dead`](Status::Dead) | given up, whatever it may still do: final, so that who took its place is alone there | are refused |
//!
//! # Which detector
//!
//! | detector | suspects after | for |
//! |---|---|---|
//! | [`Detector::deadline`] | a fixed silence | what has an agreed rhythm |
//! | [`Detector::phi`] | a silence that is unlikely by the last intervals ([`PhiAccrual`]) | what has a rhythm of its own, which may change |
//!
//! # Who runs what
//!
//! Nobody's beat calls anything. The listener is called on the threads that register, drop a beat, or
//! check: one at a time, in order, with no lock held.
//!
//! # The workers of a runtime
//!
//! do not register: the driver watches them anyway. [`Runtime::health`](crate::Runtime::health) says how
//! they are, and its verdict [goes together](Verdict::and) with one of this room.
//!
//! # Measured
//!
//! On 2 cores of an AMD EPYC guest, `cargo bench --bench health`, medians of interleaved runs on an otherwise
//! idle machine; with the features `metrics` and `tracing` the same but for the noise.
//!
//! | | |
//! |---|---|
//! | a plain store, to compare | 0.7 ns |
//! | [`Beat::beat_at`] | 1.2 ns |
//! | [`Beat::beat`], which reads the coarse clock | 7.4 ns |
//! | [`Health::check`] of 100 by deadline | 2.3 µs |
//! | of 100 by phi | 16 µs |
//! | one phi: near the mean, far from it | 0.12 µs, 0.28 µs |
//! | [`Runtime::health`](crate::Runtime::health), two idle workers | 0.29 µs |
//!
//! # Where the protocols are
//!
//! Beat and judge: `pulse.rs`. The list and who tells the listener: `registry.rs`. The judge's sleep:
//! `judge.rs`. The detectors ([`PhiAccrual`]) are pure.

mod detector;
mod error;
mod judge;
mod phi;
mod pulse;
mod registry;
mod snapshot;

#[cfg(any(tenure_loom, tenure_shuttle))]
#[doc(hidden)]
pub mod model {
    //! The room's private protocol, for the models. Not for users.
    #![allow(missing_docs, reason = "not for users")]

    use core::time::Duration;

    use super::pulse::Pulse as Inner;
    use super::{Health, Judge};
    use crate::clock::Timestamp;

    /// A judge whose thread is the model's.
    pub fn judge_of(health: &Health, period: Duration) -> (Judge, impl FnOnce() + Send + use<>) {
        health.judge(period)
    }

    #[derive(Debug)]
    pub struct Pulse(Inner);

    impl Pulse {
        pub fn new(at: u64) -> Self {
            Self(Inner::new(Timestamp::from_nanos(at)))
        }

        pub fn beat(&self, at: u64) -> bool {
            self.0.beat(Timestamp::from_nanos(at))
        }

        pub fn last(&self) -> u64 {
            self.0.last().as_nanos()
        }

        pub fn condemn(&self, last: u64) -> bool {
            self.0.condemn(Timestamp::from_nanos(last))
        }

        pub fn is_out(&self) -> bool {
            self.0.is_out()
        }
    }
}

pub use detector::Detector;
pub use error::{ConfigError, GivenUp};
pub use judge::{Judge, JudgeError};
pub use phi::{PhiAccrual, PhiAccrualBuilder};
pub use registry::{Beat, BeatId, Change, Health, HealthBuilder, HealthEvent};
pub use snapshot::{BeatHealth, HealthSnapshot, Reason, Status, Verdict};
