//! How everybody is, and what follows from that.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use super::registry::BeatId;
use crate::clock::Timestamp;

/// How one that is expected to beat is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It has beaten lately.
    Alive,
    /// It has been silent for longer than is usual.
    Suspect,
    /// It was given up. Final.
    Dead,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alive => "alive",
            Self::Suspect => "suspect",
            Self::Dead => "dead",
        })
    }
}

/// One of a [`HealthSnapshot`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BeatHealth {
    /// Which registration.
    pub id: BeatId,
    /// What it is called.
    pub name: Arc<str>,
    /// How it is.
    pub status: Status,
    /// How long it has been silent, less what is not its fault.
    pub silence: Duration,
    /// How surprising that is, if it is judged by that.
    pub phi: Option<f64>,
    /// Whether its death is the whole process's.
    pub vital: bool,
}

/// How everybody was at one time. From [`Health::check`](super::Health::check).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HealthSnapshot {
    /// When, by the registry's clock.
    pub at: Timestamp,
    /// Everybody who is registered, in the order of registration. Who is dead is listed until its
    /// [`Beat`](super::Beat) is dropped.
    pub beats: Vec<BeatHealth>,
    /// Changes that the listener was not told of, because it did not return.
    pub events_lost: u64,
}

impl HealthSnapshot {
    /// Those who are not dead.
    pub fn living(&self) -> impl Iterator<Item = &BeatHealth> {
        self.beats.iter().filter(|beat| beat.status != Status::Dead)
    }

    /// What follows: not ready with somebody dead, not live with somebody vital dead; who is suspect is
    /// named, and changes neither.
    pub fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::well();
        for beat in &self.beats {
            let (name, silence) = (Arc::clone(&beat.name), beat.silence);
            match beat.status {
                Status::Alive => {}
                Status::Suspect => verdict.add(Reason::Suspect { name, silence }, true, true),
                Status::Dead => verdict.add(Reason::Dead { name, silence }, !beat.vital, false),
            }
        }
        verdict
    }
}

/// Whether to send work here, and whether to start it anew: what probes ask.
#[derive(Clone, Debug)]
#[must_use]
pub struct Verdict {
    live: bool,
    ready: bool,
    reasons: Vec<Reason>,
}

impl Verdict {
    /// Live, ready, nothing to say.
    pub fn well() -> Self {
        Self { live: true, ready: true, reasons: Vec::new() }
    }

    pub(crate) fn add(&mut self, reason: Reason, live: bool, ready: bool) {
        self.live &= live;
        self.ready &= ready && live;
        self.reasons.push(reason);
    }

    /// Whether it can still help itself. Not live: nothing but a new start will do.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Whether it takes work now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Why not; and what else is not as it should be.
    #[must_use]
    pub fn reasons(&self) -> &[Reason] {
        &self.reasons
    }

    /// Both: live if both are, ready if both are.
    pub fn and(mut self, other: Self) -> Self {
        self.live &= other.live;
        self.ready &= other.ready;
        self.reasons.extend(other.reasons);
        self
    }
}

/// `ready`, `not ready: …` or `not live: …`, and the reasons.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.live, self.ready) {
            (true, true) => "ready",
            (true, false) => "not ready",
            (false, _) => "not live",
        })?;
        for (i, reason) in self.reasons.iter().enumerate() {
            write!(f, "{} {reason}", if i == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Somebody has been silent for longer than is usual.
    Suspect {
        /// Who.
        name: Arc<str>,
        /// For how long.
        silence: Duration,
    },
    /// Somebody was given up.
    Dead {
        /// Who.
        name: Arc<str>,
        /// How long it was silent.
        silence: Duration,
    },
    /// The runtime is paused.
    Paused,
    /// The runtime is shutting down.
    Closing,
    /// The runtime holds as many jobs as it may.
    Full,
    /// The runtime has no worker that could take a job, and none will come.
    NoWorkers,
    /// So many workers are stuck in attempts that are out of time.
    WorkersStuck(usize),
    /// So many workers run attempts for longer than is usual.
    WorkersSuspect(usize),
    /// The runtime's driver should have woken up so long ago.
    DriverLate(Duration),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspect { name, silence } => write!(f, "{name} has been silent for {silence:?}"),
            Self::Dead { name, silence } => write!(f, "{name} is dead, silent for {silence:?}"),
            Self::Paused => f.write_str("paused"),
            Self::Closing => f.write_str("shutting down"),
            Self::Full => f.write_str("full"),
            Self::NoWorkers => f.write_str("no workers"),
            Self::WorkersStuck(count) => write!(f, "{count} workers are stuck"),
            Self::WorkersSuspect(count) => write!(f, "{count} workers take longer than usual"),
            Self::DriverLate(by) => write!(f, "the driver is late by {by:?}"),
        }
    }
}
