//! What a supervisor tells of: each end of a child, and what it did about it.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use super::plan::Scope;
use crate::clock::Timestamp;
use crate::runtime::contained;
use crate::supervise::actor::Exit;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// A child came to its own end, as it may.
    Info,
    /// A child failed, and is started again.
    Warning,
    /// A child failed, and is not started again; or did not start.
    Error,
    /// Somebody should look: a supervisor gives up, a child does not stop, or is stuck.
    Critical,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
        })
    }
}

/// What happened to a child.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// It ended.
    Ended(Exit),
    /// It did not start.
    NotStarted(Exit),
    /// It has not stopped in the time that its spec gives it.
    Overdue,
    /// The runtime took it for stuck: it has not come back from a call.
    Stuck,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(exit) => write!(f, "ended: {exit}"),
            Self::NotStarted(exit) => write!(f, "did not start: {exit}"),
            Self::Overdue => f.write_str("did not stop in time"),
            Self::Stuck => f.write_str("is stuck in a call"),
        }
    }
}

/// What the supervisor does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reaction {
    /// It is started again.
    Restarts {
        /// Who else is.
        scope: Scope,
        /// When, from now, at the earliest.
        delay: Duration,
    },
    /// It stays down, and in the list.
    StaysDown,
    /// It is out of the list.
    Removed,
    /// The supervisor stops: its children have failed too often.
    GivesUp,
    /// The supervisor stops: its significant children have ended.
    AutoShutdown,
    /// The supervisor stops: a child of its start did not start.
    StartFails,
    /// It is listed as abandoned, and not waited for any longer.
    Abandons,
    /// It is waited for: nothing can be started in its place while it runs.
    Waits,
}

impl fmt::Display for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restarts { scope, delay } => {
                f.write_str(match scope {
                    Scope::One => "it starts again",
                    Scope::Rest => "it and those behind it start again",
                    Scope::All => "all start again",
                })?;
                if delay.is_zero() { Ok(()) } else { write!(f, " in {delay:?}") }
            }
            Self::StaysDown => f.write_str("it stays down"),
            Self::Removed => f.write_str("it is taken off the list"),
            Self::GivesUp => f.write_str("the supervisor gives up"),
            Self::AutoShutdown => f.write_str("the supervisor shuts down"),
            Self::StartFails => f.write_str("the supervisor does not start"),
            Self::Abandons => f.write_str("it is abandoned"),
            Self::Waits => f.write_str("it is waited for"),
        }
    }
}

/// Something that happened to a child, for [`Builder::on_fault`](super::Builder::on_fault).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fault {
    /// How bad it is.
    pub level: Level,
    /// The supervisor: its name, below those above it, with slashes.
    pub supervisor: Arc<str>,
    /// The child.
    pub child: Arc<str>,
    /// Which start of it this was, from 1.
    pub incarnation: u64,
    /// What happened.
    pub cause: Cause,
    /// What is done about it.
    pub reaction: Reaction,
    /// How many messages it left unhandled.
    pub undelivered: usize,
    /// When, by the runtime's clock.
    pub at: Timestamp,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, supervisor, child, incarnation, cause, reaction, undelivered, .. } = self;
        write!(f, "{level}: {supervisor}/{child} #{incarnation} {cause}")?;
        if *undelivered > 0 {
            write!(f, " ({undelivered} messages unhandled)")?;
        }
        write!(f, "; {reaction}")
    }
}

/// A user's handler.
#[derive(Clone)]
pub(crate) struct Handler(pub(super) Arc<dyn Fn(&Fault) + Send + Sync>);

impl Handler {
    /// Foreign: with no lock held; a panic in it harms nobody.
    pub(super) fn tell(&self, fault: &Fault) {
        contained(|| (self.0)(fault));
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}
