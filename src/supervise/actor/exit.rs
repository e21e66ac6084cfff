//! How an actor, or any other child of a supervisor, came to its end.

use std::error::Error;
use std::sync::Arc;

use thiserror::Error as ThisError;

use super::ActorId;
use crate::runtime::JobPanic;

/// Why something that ran has ended.
#[derive(Clone, Debug, ThisError)]
#[non_exhaustive]
pub enum Exit {
    /// It came to its own end, was asked to by [`stop`](super::ActorRef::stop), or nobody was left who
    /// could have sent it anything.
    #[error("normal")]
    Normal,
    /// It was shut down, in good order.
    #[error("shutdown: {0}")]
    Shutdown(ShutdownCause),
    /// It returned this error.
    #[error("{0}")]
    Failed(#[source] Arc<dyn Error + Send + Sync>),
    /// It panicked.
    #[error("panicked: {0}")]
    Panicked(JobPanic),
    /// The runtime took it for stuck (see [`attempt_timeout`](crate::runtime::Builder::attempt_timeout));
    /// by now it has come back, and has ended.
    #[error("it was stuck")]
    Stuck,
    /// It was [killed](super::ActorRef::kill).
    #[error("killed")]
    Killed,
}

impl Exit {
    /// Whether a [`Transient`](crate::supervise::Restart::Transient) child is started again after it:
    /// everything but [`Normal`](Self::Normal) and [`Shutdown`](Self::Shutdown).
    #[must_use]
    pub fn is_abnormal(&self) -> bool {
        !matches!(self, Self::Normal | Self::Shutdown(_))
    }

    /// An error, as an exit.
    pub fn failed(error: impl Into<crate::runtime::BoxError>) -> Self {
        Self::Failed(error.into().into())
    }

    pub(crate) fn panicked(payload: Box<dyn core::any::Any + Send>) -> Self {
        Self::Panicked(JobPanic::new(payload))
    }
}

/// Who shut it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ThisError)]
#[non_exhaustive]
pub enum ShutdownCause {
    /// Its supervisor.
    #[error("by its supervisor")]
    Supervisor,
    /// The runtime that it ran on.
    #[error("with the runtime")]
    Runtime,
    /// It is a supervisor, and its children failed more often than its intensity allows.
    #[error("too many restarts")]
    GaveUp,
    /// It is a supervisor whose significant children have ended.
    #[error("its significant children have ended")]
    AutoShutdown,
}

/// The notice of an actor's end. Each watcher gets exactly one, also who watches after the end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Down {
    /// The actor.
    pub id: ActorId,
    /// Its name, if it was given one.
    pub name: Option<Arc<str>>,
    /// Why it ended.
    pub exit: Exit,
    /// How many messages it had not handled: they went to
    /// [`Actor::undelivered`](super::Actor::undelivered).
    pub undelivered: usize,
}
