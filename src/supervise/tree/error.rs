//! What may be wrong with a tree.

use std::sync::Arc;

use thiserror::Error as ThisError;

use crate::supervise::actor::Exit;

/// Settings that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum ConfigError {
    /// Two children of one supervisor have this name.
    #[error("two children are called \"{0}\"")]
    Duplicate(Arc<str>),
    /// A permanent child has no end of its own that could count.
    #[error("\"{0}\" is permanent, so it cannot be significant")]
    SignificantPermanent(Arc<str>),
    /// The supervisor never ends because of a child.
    #[error("\"{0}\" is significant, but its supervisor has no auto shutdown")]
    SignificantForNothing(Arc<str>),
}

/// Why a supervisor did not start. Whatever it had started has been stopped again, in reverse order.
#[derive(Clone, Debug, ThisError)]
#[non_exhaustive]
pub enum StartError {
    /// Its settings contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A child did not start.
    #[error("\"{child}\" did not start: {exit}")]
    Child {
        /// Which.
        child: Arc<str>,
        /// Why.
        #[source]
        exit: Exit,
    },
    /// The runtime is shutting down, or has shut down.
    #[error("the runtime takes no more actors")]
    Closed,
    /// The runtime holds as many jobs as its capacity, a supervisor being one.
    #[error("the runtime holds as many jobs as it may")]
    Full,
    /// A thread for timers was not to be had.
    #[error("a thread could not be started: {0}")]
    Thread(Arc<str>),
    /// It was stopped before all its children were up.
    #[error("it was stopped before it had started")]
    Stopped,
}

/// Why a request about a child came to nothing.
#[derive(Clone, Debug, ThisError)]
#[non_exhaustive]
pub enum ChildError {
    /// There is none of that name.
    #[error("there is no child called \"{0}\"")]
    Unknown(Arc<str>),
    /// There is one of that name.
    #[error("there is a child called \"{0}\" already")]
    Duplicate(Arc<str>),
    /// It cannot be a child of this supervisor.
    #[error(transparent)]
    Config(ConfigError),
    /// It did not start, and is not in the list.
    #[error("it did not start: {0}")]
    NotStarted(#[source] Exit),
    /// It is down: it ended, or was stopped, before it was what was asked for.
    #[error("it is down")]
    Down,
    /// The supervisor is stopping.
    #[error("the supervisor is stopping")]
    Stopping,
}
