//! Supervisors: see the [room's docs](crate::supervise).

mod address;
mod board;
mod builder;
mod error;
mod fault;
mod handle;
mod kinds;
#[cfg(any(tenure_loom, tenure_shuttle))]
pub(super) mod model;
mod plan;
mod spec;
mod supervisor;
mod thread;
mod window;

pub use address::Address;
pub use board::{ChildSnapshot, ChildState, Snapshot, SupervisorState};
pub use builder::Builder;
pub use error::{ChildError, ConfigError, StartError};
pub use fault::{Cause, Fault, Level, Reaction};
pub use handle::Supervisor;
pub use kinds::{ActorChild, ChildKind, Group};
pub use plan::Scope;
pub use spec::{AnyChild, AutoShutdown, ChildSpec, Restart, Shutdown, Strategy};
pub use thread::StopToken;

use super::actor::{Handled, ShutdownCause};
use crate::runtime::BoxError;

/// What a thread's closure may return.
pub trait IntoHandled {
    /// As a handler's result.
    ///
    /// # Errors
    /// The closure's own.
    fn into_handled(self) -> Handled;
}

impl IntoHandled for () {
    fn into_handled(self) -> Handled {
        Ok(())
    }
}

impl<E: Into<BoxError>> IntoHandled for Result<(), E> {
    fn into_handled(self) -> Handled {
        self.map_err(Into::into)
    }
}
