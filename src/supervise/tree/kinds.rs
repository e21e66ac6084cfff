//! The kinds of children: how each is started, stopped and looked at.

use core::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::address::Address;
use super::board::Board;
use super::fault::Handler;
use super::spec::ChildSpec;
use super::supervisor::{Command, Start};
use super::thread::StopToken;
use super::{Builder, plan};
use crate::runtime::{BoxError, Shared, contained};
use crate::supervise::actor::core::{Core, Entry, Order};
use crate::supervise::actor::spawn::{NotSpawned, Settings, Wiring, spawn_supervised};
use crate::supervise::actor::{Actor, ActorRef, Exit, Handled, Registry};

/// What a child is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChildKind {
    /// An actor.
    Actor,
    /// Several equal actors.
    Group,
    /// A supervisor.
    Supervisor,
    /// A thread of its own.
    Thread,
}

impl fmt::Display for ChildKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Actor => "actor",
            Self::Group => "group",
            Self::Supervisor => "supervisor",
            Self::Thread => "thread",
        })
    }
}

/// Where a child is started.
#[derive(Clone)]
pub(crate) struct Site {
    /// The runtime, if it still lives.
    pub(super) runtime: Weak<Shared>,
    /// The supervisors above, and the child.
    pub(super) path: Arc<str>,
    pub(super) name: Arc<str>,
    /// The nearest handler above.
    pub(super) on_fault: Option<Handler>,
}

/// Tells the supervisor what becomes of one incarnation.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(super) supervisor: crate::sync::Arc<Core<Command>>,
    pub(super) key: plan::Key,
    pub(super) incarnation: u64,
}

impl Reporter {
    fn tell(&self, command: Command) {
        self.supervisor.control(Entry::Own(command));
    }

    pub(super) fn ready(&self) {
        self.tell(Command::Ready(self.key, self.incarnation));
    }

    fn stuck(&self) {
        self.tell(Command::Stuck(self.key, self.incarnation));
    }

    pub(super) fn exited(&self, exit: Exit, undelivered: usize) {
        self.tell(Command::Exited(self.key, self.incarnation, exit, undelivered));
    }
}

/// A kind of child.
pub(crate) trait Kind: Send + Sync {
    fn kind(&self) -> ChildKind;

    /// Whether its own settings are right.
    fn check(&self) -> Result<(), super::ConfigError> {
        Ok(())
    }

    /// Starts an incarnation, which reports to `reporter` when it is up and when it has ended. An exit: it did
    /// not start, and reports nothing.
    fn start(&self, site: Site, reporter: Reporter) -> Result<Arc<dyn Run>, Exit>;
}

/// An incarnation that was started.
pub(crate) trait Run: Send + Sync {
    /// Tells it to stop.
    fn stop(&self, order: Order);

    /// It was abandoned, and its successor starts beside it: it gives up its names and its place.
    fn step_aside(&self) {}

    /// What waits in its mailbox.
    fn waiting(&self) -> Option<usize> {
        None
    }

    /// What is below it.
    fn subtree(&self) -> Option<Arc<Board>> {
        None
    }
}

fn closed() -> Exit {
    Exit::Shutdown(super::ShutdownCause::Runtime)
}

fn not_spawned(why: NotSpawned) -> Exit {
    match why {
        NotSpawned::Closed => closed(),
        NotSpawned::Full => Exit::failed("the runtime holds as many jobs as it may"),
        NotSpawned::Thread(error) => Exit::failed(error),
    }
}

/// Hangs a supervisor on an actor.
fn wire<M: Send + 'static>(actor: &ActorRef<M>, reporter: &Reporter) -> Box<dyn FnOnce() + Send> {
    let told = reporter.clone();
    actor.watch().on_complete(move |notice| {
        // Without a notice it was never there.
        if let Ok(down) = notice {
            told.exited(down.exit, down.undelivered);
        }
    });
    let told = reporter.clone();
    Box::new(move || told.stuck())
}

// --- actors ----------------------------------------------------------------------------------------

/// An actor, in a [`ChildSpec`](super::ChildSpec).
pub struct ActorChild<A: Actor> {
    make: Arc<dyn Fn() -> A + Send + Sync>,
    pub(super) settings: Settings,
    pub(super) address: Option<Address<A::Message>>,
}

impl<A: Actor> ActorChild<A> {
    pub(super) fn new(make: impl Fn() -> A + Send + Sync + 'static) -> Self {
        Self { make: Arc::new(make), settings: Settings::default(), address: None }
    }
}

impl<A: Actor> Clone for ActorChild<A> {
    fn clone(&self) -> Self {
        Self {
            make: Arc::clone(&self.make),
            settings: self.settings.clone(),
            address: self.address.clone(),
        }
    }
}

impl<A: Actor> fmt::Debug for ActorChild<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActorChild").finish_non_exhaustive()
    }
}

struct RunningActor<M: Send + 'static> {
    actor: ActorRef<M>,
    names: Vec<(Registry, Arc<str>)>,
    address: Option<Address<M>>,
}

impl<M: Send + 'static> Run for RunningActor<M> {
    fn stop(&self, order: Order) {
        self.actor.core().order(order);
    }

    fn step_aside(&self) {
        for (registry, name) in &self.names {
            registry.unregister_own(name, self.actor.id());
        }
        if let Some(address) = &self.address {
            address.go(self.actor.id());
        }
    }

    fn waiting(&self) -> Option<usize> {
        Some(self.actor.waiting())
    }
}

impl<A: Actor> Kind for ActorChild<A> {
    fn kind(&self) -> ChildKind {
        ChildKind::Actor
    }

    fn start(&self, site: Site, reporter: Reporter) -> Result<Arc<dyn Run>, Exit> {
        let Some(shared) = site.runtime.upgrade() else { return Err(closed()) };
        let settings = Settings { name: Some(site.path), ..self.settings.clone() };
        let make = Arc::clone(&self.make);
        let factory = Box::new(move || Ok(make()));
        let (names, address) = (settings.names.clone(), self.address.clone());
        let started = spawn_supervised::<A>(&shared, &settings, factory, move |actor| {
            let stuck = wire(actor, &reporter);
            let me = actor.clone();
            let on_ready = move || -> Result<(), BoxError> {
                for (registry, name) in names {
                    registry.register(name, &me)?;
                }
                if let Some(address) = address {
                    let (its, id) = (address.clone(), me.id());
                    me.before_notices(move || its.go(id));
                    address.come(me);
                }
                reporter.ready();
                Ok(())
            };
            Wiring { on_ready: Some(Box::new(on_ready)), stuck }
        });
        match started {
            Ok(actor) => {
                let (names, address) = (self.settings.names.clone(), self.address.clone());
                Ok(Arc::new(RunningActor { actor, names, address }))
            }
            Err(why) => Err(not_spawned(why)),
        }
    }
}

// --- groups ------------------------------------------------------------------------------------------

/// Equal actors, in a [`ChildSpec`](super::ChildSpec).
pub struct Group<A: Actor> {
    make: Arc<dyn Fn(usize) -> A + Send + Sync>,
    members: usize,
    pub(super) capacity: Option<usize>,
    pub(super) address: Address<A::Message>,
}

impl<A: Actor> Group<A> {
    pub(super) fn new(members: usize, make: impl Fn(usize) -> A + Send + Sync + 'static) -> Self {
        Self { make: Arc::new(make), members, capacity: None, address: Address::new() }
    }

    pub(super) fn builder(&self, name: &Arc<str>) -> Builder {
        let each = u32::try_from(self.members).unwrap_or(u32::MAX);
        let mut builder = Builder::new(Arc::clone(name)).intensity(each, Duration::from_secs(5));
        for number in 0..self.members {
            let make = Arc::clone(&self.make);
            let mut member =
                ChildSpec::actor(number.to_string(), move || make(number)).at(&self.address);
            if let Some(capacity) = self.capacity {
                member = member.capacity(capacity);
            }
            builder = builder.child(member);
        }
        builder
    }
}

impl<A: Actor> Clone for Group<A> {
    fn clone(&self) -> Self {
        Self {
            make: Arc::clone(&self.make),
            members: self.members,
            capacity: self.capacity,
            address: self.address.clone(),
        }
    }
}

impl<A: Actor> fmt::Debug for Group<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("members", &self.members).finish_non_exhaustive()
    }
}

// --- supervisors -------------------------------------------------------------------------------------

/// A supervisor under another one.
pub(super) struct Nested(pub(super) Builder);

/// The same, shown as what it is.
pub(super) struct NestedGroup(Nested);

impl Nested {
    pub(super) fn of_a_group(self) -> NestedGroup {
        NestedGroup(self)
    }
}

struct RunningSupervisor(ActorRef<Command>, Arc<Board>);

impl Run for RunningSupervisor {
    fn stop(&self, order: Order) {
        self.0.core().order(order);
    }

    fn step_aside(&self) {
        let below: Vec<_> = self
            .1
            .with(|state| state.listed.values().filter_map(|listed| listed.run.clone()).collect());
        for run in below {
            run.step_aside();
        }
    }

    fn subtree(&self) -> Option<Arc<Board>> {
        Some(Arc::clone(&self.1))
    }
}

impl Kind for Nested {
    fn kind(&self) -> ChildKind {
        ChildKind::Supervisor
    }

    fn check(&self) -> Result<(), super::ConfigError> {
        self.0.check()
    }

    fn start(&self, site: Site, reporter: Reporter) -> Result<Arc<dyn Run>, Exit> {
        let told = reporter.clone();
        let Start { actor, board } = super::supervisor::start(
            &self.0,
            site,
            move |actor| wire(actor, &reporter),
            Box::new(move |started| {
                // A start that failed is told by the exit.
                if started.is_ok() {
                    told.ready();
                }
            }),
        )
        .map_err(not_spawned)?;
        Ok(Arc::new(RunningSupervisor(actor, board)))
    }
}

impl Kind for NestedGroup {
    fn kind(&self) -> ChildKind {
        ChildKind::Group
    }

    fn check(&self) -> Result<(), super::ConfigError> {
        self.0.check()
    }

    fn start(&self, site: Site, reporter: Reporter) -> Result<Arc<dyn Run>, Exit> {
        self.0.start(site, reporter)
    }
}

// --- threads -----------------------------------------------------------------------------------------

type Body = Arc<dyn Fn(&StopToken) -> Handled + Send + Sync>;

/// A user's thread.
pub(super) struct Thread(Body);

impl Thread {
    pub(super) fn new(run: impl Fn(&StopToken) -> Handled + Send + Sync + 'static) -> Self {
        Self(Arc::new(run))
    }
}

struct RunningThread(StopToken);

impl Run for RunningThread {
    fn stop(&self, _: Order) {
        self.0.stop();
    }
}

impl Kind for Thread {
    fn kind(&self) -> ChildKind {
        ChildKind::Thread
    }

    fn start(&self, site: Site, reporter: Reporter) -> Result<Arc<dyn Run>, Exit> {
        let (run, token) = (Arc::clone(&self.0), StopToken::new());
        let its = token.clone();
        let main = move || {
            reporter.ready();
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&its)));
            // The captures may be the last of their kind.
            contained(move || drop(run));
            let exit = match ended {
                Ok(Ok(())) if its.is_stopped() => Exit::Shutdown(super::ShutdownCause::Supervisor),
                Ok(Ok(())) => Exit::Normal,
                Ok(Err(error)) => Exit::failed(error),
                Err(payload) => Exit::panicked(payload),
            };
            reporter.exited(exit, 0);
        };
        // Detached: it tells its end itself. A name with a zero byte is none.
        let builder = std::thread::Builder::new();
        let named = site.name.bytes().all(|byte| byte != 0);
        let builder = if named { builder.name(site.name.to_string()) } else { builder };
        match builder.spawn(main) {
            Ok(_) => Ok(Arc::new(RunningThread(token))),
            Err(error) => Err(Exit::failed(error)),
        }
    }
}
