//! A supervisor, as its user holds it.

use core::convert::Infallible;
use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use super::board::{Board, Snapshot};
use super::builder::Builder;
use super::error::ChildError;
use super::spec::ChildSpec;
use super::supervisor::{Answer, Command};
use crate::promise::{Eventual, promise};
use crate::runtime::blocking;
use crate::supervise::actor::core::Entry;
use crate::supervise::actor::living::runs_here;
use crate::supervise::actor::{ActorRef, Down};

/// Starts its children, watches them, starts them again, and stops them. See the
/// [room's docs](crate::supervise) for the tour.
///
/// Clones are the same supervisor.
///
/// # Cancellation and drop
///
/// When the last clone is dropped, the supervisor stops, as by [`stop`](Self::stop). Dropping does not wait.
/// A runtime that shuts down ends supervisors and children in any order: stop the tree first.
#[derive(Clone)]
pub struct Supervisor {
    actor: ActorRef<Command>,
    board: Arc<Board>,
}

impl Supervisor {
    /// A supervisor to be started, by that name.
    pub fn builder(name: impl Into<Arc<str>>) -> Builder {
        Builder::new(name)
    }

    pub(super) fn new(actor: ActorRef<Command>, board: Arc<Board>) -> Self {
        Self { actor, board }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.board.name()
    }

    /// It and everything below, as it is now. Never waits for the supervisor; also after its end, when
    /// children that were abandoned are still listed.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.board.snapshot()
    }

    /// Asks it to stop its children, one by one in reverse order, and itself. Returns at once; see
    /// [`watch`](Self::watch), [`shutdown`](Self::shutdown).
    pub fn stop(&self) {
        self.actor.stop();
    }

    /// Stops it and waits until it has. `None`: the time (real time) was up first, and it goes on stopping.
    /// How long that may take is the sum of what its children are given ([`ChildSpec::shutdown`]).
    ///
    /// # Blocking
    /// For at most `timeout`. Not in one of its children's handlers, which it would wait for; in its own fault
    /// handler, or what waits for one of its answers, it does not wait: it would wait for itself.
    pub fn shutdown(&self, timeout: Duration) -> Option<Down> {
        self.stop();
        if runs_here(self.actor.core()) {
            return self.down();
        }
        let mut end = self.watch();
        blocking(|| end.get_timeout(timeout)).ok()
    }

    /// The notice of its end, to come: see [`ActorRef::watch`].
    pub fn watch(&self) -> Eventual<Down, Infallible> {
        self.actor.watch()
    }

    /// The notice, if it has ended.
    #[must_use]
    pub fn down(&self) -> Option<Down> {
        self.actor.down()
    }

    fn ask(&self, request: impl FnOnce(Answer) -> Command) -> Eventual<(), ChildError> {
        let (promise, answer) = promise();
        self.actor.core().control(Entry::Own(request(promise)));
        answer
    }

    /// One more child, at the end of the list. The answer comes when it is up; it is
    /// [`Broken`](crate::promise::EventualError::Broken) if the supervisor is over.
    ///
    /// Children that were added are not there any more when the supervisor itself is started again.
    pub fn add(&self, spec: impl Into<ChildSpec>) -> Eventual<(), ChildError> {
        let spec = spec.into();
        self.ask(|answer| Command::Add(spec, answer))
    }

    /// Stops a child and takes it off the list. The answer comes when it has ended.
    pub fn remove(&self, child: &str) -> Eventual<(), ChildError> {
        self.ask(|answer| Command::Remove(child.into(), answer))
    }

    /// Stops a child, which stays in the list, until it is [started again](Self::restart_child), or with all
    /// others by a strategy that does. The answer comes when it has ended.
    pub fn stop_child(&self, child: &str) -> Eventual<(), ChildError> {
        self.ask(|answer| Command::StopChild(child.into(), answer))
    }

    /// Stops a child if it is up, and starts it. That does not count as a failure. The answer comes when the
    /// new incarnation is up.
    pub fn restart_child(&self, child: &str) -> Eventual<(), ChildError> {
        self.ask(|answer| Command::RestartChild(child.into(), answer))
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("snapshot", &self.snapshot()).finish()
    }
}
