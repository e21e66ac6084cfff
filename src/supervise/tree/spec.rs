//! What a supervisor is told of its children.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use super::address::Address;
use super::kinds::{ActorChild, Group, Kind, Nested, Thread};
use super::thread::StopToken;
use super::{Builder, IntoHandled};
use crate::supervise::actor::{Actor, Registry};

/// Who is started again when a child fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The child alone. The default.
    #[default]
    OneForOne,
    /// All children: the others are stopped, in reverse order, then all are started, in order.
    OneForAll,
    /// The child, and those that were started after it.
    RestForOne,
    /// The child alone; meant for many children that come and go
    /// ([`add`](super::Supervisor::add), [`remove`](super::Supervisor::remove)). At the end all are stopped at
    /// once rather than in reverse order. (OTP's `simple_one_for_one`, but each child has its own spec.)
    Dynamic,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneForOne => "one for one",
            Self::OneForAll => "one for all",
            Self::RestForOne => "rest for one",
            Self::Dynamic => "dynamic",
        })
    }
}

/// When a child that has ended is started again.
///
/// | | after an [abnormal](crate::supervise::Exit::is_abnormal) end | after a normal one, or a shutdown |
/// |---|---|---|
/// | `Permanent` | yes | yes |
/// | `Transient` | yes | no; it stays in the list |
/// | `Temporary` | no; it goes out of the list | no; the same |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Restart {
    /// Always. The default.
    #[default]
    Permanent,
    /// After an abnormal end.
    Transient,
    /// Never; not even if the failure of another child takes it down.
    Temporary,
}

impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Permanent => "permanent",
            Self::Transient => "transient",
            Self::Temporary => "temporary",
        })
    }
}

/// How a child is stopped, and for how long it is waited for.
///
/// Nothing that runs can be killed. A child that has not ended in time is *abandoned*: it is listed as
/// that, the fault handler hears of it ([`Level::Critical`](super::Level::Critical)), and whatever waited for it
/// goes on without: a supervisor that stops comes to its end. But no second incarnation is started beside it,
/// and with [`OneForAll`](Strategy::OneForAll) and [`RestForOne`](Strategy::RestForOne) none of those
/// behind it, until it has ended; unless it was allowed
/// ([`ChildSpec::overlaps_when_abandoned`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shutdown {
    /// An actor is dropped as soon as the call that it is in has returned, without
    /// [`stopped`](Actor::stopped); a thread is told to stop. Abandoned after a second.
    Brutal,
    /// Asked to stop, abandoned after this time (of the runtime's clock). Five seconds is the default of
    /// actors and threads.
    Timeout(Duration),
    /// Asked to stop, and waited for. The default of supervisors and groups.
    Infinity,
}

/// How long a brutally stopped child may take for what it is in.
pub(super) const BRUTAL_GRACE: Duration = Duration::from_secs(1);

impl Shutdown {
    /// When it is abandoned. `None`: never.
    pub(super) fn limit(self) -> Option<Duration> {
        match self {
            Self::Brutal => Some(BRUTAL_GRACE),
            Self::Timeout(limit) => (limit != Duration::MAX).then_some(limit),
            Self::Infinity => None,
        }
    }
}

/// Whether a supervisor ends when its [significant](ChildSpec::significant) children have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AutoShutdown {
    /// It does not. The default.
    #[default]
    Never,
    /// As soon as one of them has come to its own end, and is not started again.
    AnySignificant,
    /// When the last of them has.
    AllSignificant,
}

/// What every child has.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) name: Arc<str>,
    pub(super) restart: Restart,
    pub(super) significant: bool,
    pub(super) shutdown: Shutdown,
    pub(super) overlaps: bool,
}

/// Any child.
pub struct AnyChild(pub(super) Arc<dyn Kind>);

impl Clone for AnyChild {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl fmt::Debug for AnyChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.kind(), f)
    }
}

/// A child to be: how to start it, and what to do when it ends. Clones are as good: it is used each time the
/// child is started.
///
/// | option | default |
/// |---|---|
/// | [`restart`](Self::restart) | [`Restart::Permanent`] |
/// | [`shutdown`](Self::shutdown) | five seconds; supervisors and groups: [`Shutdown::Infinity`] |
/// | [`significant`](Self::significant) | no |
/// | [`overlaps_when_abandoned`](Self::overlaps_when_abandoned) | no |
#[derive(Clone)]
#[must_use = "give it to a supervisor"]
pub struct ChildSpec<K = AnyChild> {
    pub(super) common: Common,
    pub(super) kind: K,
}

/// What a worker has by default.
const WORKER: Shutdown = Shutdown::Timeout(Duration::from_secs(5));

impl<K> ChildSpec<K> {
    fn new(name: impl Into<Arc<str>>, shutdown: Shutdown, kind: K) -> Self {
        Self {
            common: Common {
                name: name.into(),
                restart: Restart::default(),
                significant: false,
                shutdown,
                overlaps: false,
            },
            kind,
        }
    }

    #[cfg(any(tenure_loom, tenure_shuttle))]
    pub(super) fn of(name: &str, shutdown: Shutdown, kind: K) -> Self {
        Self::new(name, shutdown, kind)
    }

    /// When it is started again. Defaults to [`Restart::Permanent`].
    pub fn restart(mut self, restart: Restart) -> Self {
        self.common.restart = restart;
        self
    }

    /// How it is stopped. Defaults to five seconds for actors and threads, and to [`Shutdown::Infinity`] for
    /// supervisors and groups.
    pub fn shutdown(mut self, shutdown: Shutdown) -> Self {
        self.common.shutdown = shutdown;
        self
    }

    /// Makes its own end count for [`auto_shutdown`](Builder::auto_shutdown). Not for permanent children,
    /// which have none. Defaults to no.
    pub fn significant(mut self) -> Self {
        self.common.significant = true;
        self
    }

    /// Lets the next incarnation start although the former one, which did not stop in time, still runs. Right
    /// where the two cannot harm each other: if all that the child changes is fenced. The names and the address go
    /// to the next one. Defaults to no.
    pub fn overlaps_when_abandoned(mut self) -> Self {
        self.common.overlaps = true;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.common.name
    }
}

impl ChildSpec {
    /// An actor, made anew by `make` for each incarnation, on a worker.
    pub fn actor<A: Actor>(
        name: impl Into<Arc<str>>,
        make: impl Fn() -> A + Send + Sync + 'static,
    ) -> ChildSpec<ActorChild<A>> {
        ChildSpec::new(name, WORKER, ActorChild::new(make))
    }

    /// So many equal actors (at least one), which `make` makes by their number, behind one
    /// [`Address`] ([`at`](ChildSpec::at)) that spreads what is sent over them. Each that fails is started
    /// again by itself; if that happens more often than once for each member in five seconds, the group has
    /// failed. For other rules make a [`supervisor`](Self::supervisor) of them.
    pub fn group<A: Actor>(
        name: impl Into<Arc<str>>,
        members: usize,
        make: impl Fn(usize) -> A + Send + Sync + 'static,
    ) -> ChildSpec<Group<A>> {
        ChildSpec::new(name, Shutdown::Infinity, Group::new(members.max(1), make))
    }

    /// A supervisor, with the name and the children that its builder has.
    pub fn supervisor(builder: Builder) -> Self {
        let name = builder.name();
        ChildSpec::new(name, Shutdown::Infinity, AnyChild(Arc::new(Nested(builder))))
    }

    /// A thread of its own for code that blocks: `run` should return when its token says so. Its return is
    /// the child's end: `()` or `Ok(())` a normal one, an error or a panic an abnormal one.
    pub fn thread<R: IntoHandled>(
        name: impl Into<Arc<str>>,
        run: impl Fn(&StopToken) -> R + Send + Sync + 'static,
    ) -> Self {
        let thread = Thread::new(move |token: &StopToken| run(token).into_handled());
        ChildSpec::new(name, WORKER, AnyChild(Arc::new(thread)))
    }
}

impl<A: Actor> ChildSpec<ActorChild<A>> {
    /// How many messages its mailbox holds; see [`Spawn::capacity`](crate::supervise::Spawn::capacity).
    pub fn capacity(mut self, messages: usize) -> Self {
        self.kind.settings.capacity = messages;
        self
    }

    /// Has each incarnation be found in `registry` by this name, once it has started. If the name is another
    /// actor's, the start has failed.
    pub fn register(mut self, registry: &Registry, name: impl Into<Arc<str>>) -> Self {
        self.kind.settings.names.push((registry.clone(), name.into()));
        self
    }

    /// Has each incarnation, once it has started, be reached at `address`.
    pub fn at(mut self, address: &Address<A::Message>) -> Self {
        self.kind.address = Some(address.clone());
        self
    }
}

impl<A: Actor> ChildSpec<Group<A>> {
    /// How many messages the mailbox of each member holds; see
    /// [`Spawn::capacity`](crate::supervise::Spawn::capacity).
    pub fn capacity(mut self, messages: usize) -> Self {
        self.kind.capacity = Some(messages);
        self
    }

    /// Has the members be reached at `address`, in turn.
    pub fn at(mut self, address: &Address<A::Message>) -> Self {
        self.kind.address = address.clone();
        self
    }
}

impl<A: Actor> From<ChildSpec<ActorChild<A>>> for ChildSpec {
    fn from(spec: ChildSpec<ActorChild<A>>) -> Self {
        Self { common: spec.common, kind: AnyChild(Arc::new(spec.kind)) }
    }
}

impl<A: Actor> From<ChildSpec<Group<A>>> for ChildSpec {
    fn from(spec: ChildSpec<Group<A>>) -> Self {
        let builder = spec.kind.builder(&spec.common.name);
        let nested = Nested(builder).of_a_group();
        Self { common: spec.common, kind: AnyChild(Arc::new(nested)) }
    }
}

impl<K> fmt::Debug for ChildSpec<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("name", &self.common.name)
            .field("restart", &self.common.restart)
            .field("shutdown", &self.common.shutdown)
            .field("significant", &self.common.significant)
            .finish_non_exhaustive()
    }
}
