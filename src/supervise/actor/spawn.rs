//! Starting an actor.

use core::fmt;
use std::sync::Arc as StdArc;

use super::core::Core;
use super::error::SpawnError;
use super::living::{Factory, Living, OnReady};
use super::reference::ActorRef;
use super::{Actor, ActorId, Exit, Registry, ShutdownCause};
use crate::runtime::{JobError, Runtime, Shared, SubmitError, spawn_turns};
use crate::sync::Arc;
use crate::timer::StartError;

/// Messages that a mailbox holds if nothing else is said.
const CAPACITY: usize = 256;
/// The most that it can.
const MAX_CAPACITY: usize = 1 << 20;

/// Settings of an actor's mailbox and name.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) capacity: usize,
    pub(crate) name: Option<StdArc<str>>,
    pub(crate) names: Vec<(Registry, StdArc<str>)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { capacity: CAPACITY, name: None, names: Vec::new() }
    }
}

/// Settings for an actor to be [spawned](Self::spawn). From [`actor`](super::actor).
///
/// | option | default |
/// |---|---|
/// | [`capacity`](Self::capacity) | 256 |
/// | [`name`](Self::name) | none |
/// | [`register`](Self::register) | nowhere |
#[must_use = "call spawn"]
pub struct Spawn<A> {
    actor: A,
    settings: Settings,
}

/// See [`Spawn::capacity`].
pub(crate) fn round_capacity(messages: usize) -> usize {
    messages.clamp(1, MAX_CAPACITY).next_power_of_two()
}

impl<A: Actor> Spawn<A> {
    pub(super) fn new(actor: A) -> Self {
        Self { actor, settings: Settings::default() }
    }

    /// How many messages the mailbox holds: 1 to 2²⁰, rounded up to a power of two; what is outside counts as
    /// the nearest. Its memory is taken at once. There is no mailbox without a bound. Defaults to 256.
    pub fn capacity(mut self, messages: usize) -> Self {
        self.settings.capacity = messages;
        self
    }

    /// A name, for notices and snapshots. It need not be unique. Defaults to none.
    pub fn name(mut self, name: impl Into<StdArc<str>>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Has the actor be found in `registry` by this name, before [`spawn`](Self::spawn) returns, so before
    /// it has started.
    pub fn register(mut self, registry: &Registry, name: impl Into<StdArc<str>>) -> Self {
        self.settings.names.push((registry.clone(), name.into()));
        self
    }

    /// Starts the actor on the runtime's workers. Returns at once: [`started`](Actor::started) runs later, on
    /// a worker; messages wait for it. One that fails to start is
    /// [down](super::Down) with that exit.
    ///
    /// An actor is one of the runtime's jobs for as long as it lives: it counts for the runtime's
    /// [`capacity`](crate::runtime::Builder::capacity), and [`drain`](Runtime::drain) waits for it.
    ///
    /// # Errors
    /// [`SpawnError`] gives the actor back. Who had found it by a name by then finds that it has ended.
    pub fn spawn(self, runtime: &Runtime) -> Result<ActorRef<A::Message>, SpawnError<A>> {
        let Self { actor, settings } = self;
        let core = match core(runtime.shared(), &settings) {
            Ok(core) => core,
            Err(error) => return Err(SpawnError::Thread(actor, error)),
        };
        let first = ActorRef::first(Arc::clone(&core));
        let living = Living::with(core, actor, None);
        // From its first name on others may know it: if it is not started, it has to end for them.
        let back = |living: Living<A>, why| match living.refuse(why) {
            Some(actor) => actor,
            None => unreachable!("it was made with its actor, and never had a turn"),
        };
        for (registry, name) in &settings.names {
            if let Err(refused) = registry.register(StdArc::clone(name), &first) {
                let why = Exit::failed(refused.clone());
                return Err(SpawnError::Name(back(living, why), refused));
            }
        }
        match hand_in(runtime.shared(), living, &settings, None) {
            Ok(()) => Ok(first),
            Err(SubmitError::Closed(living)) => {
                let why = Exit::Shutdown(ShutdownCause::Runtime);
                Err(SpawnError::Closed(back(living, why)))
            }
            Err(refused) => {
                let why = Exit::failed("the runtime holds as many jobs as it may");
                Err(SpawnError::Full(back(refused.into_inner(), why)))
            }
        }
    }
}

fn core<M>(shared: &StdArc<Shared>, settings: &Settings) -> Result<Arc<Core<M>>, StartError> {
    let timers = shared.timers()?;
    let capacity = round_capacity(settings.capacity);
    Ok(Arc::new(Core::new(capacity, ActorId::next(), settings.name.clone(), Some(timers))))
}

#[expect(clippy::result_large_err, reason = "it gives the actor back")]
/// `stuck` is called if the runtime gives the actor up while it is in a call.
fn hand_in<A: Actor>(
    shared: &StdArc<Shared>,
    living: Living<A>,
    settings: &Settings,
    stuck: Option<Box<dyn FnOnce() + Send>>,
) -> Result<(), SubmitError<Living<A>>> {
    let handle = spawn_turns(shared, living, settings.name.clone())?;
    match stuck {
        Some(stuck) => handle.on_complete(move |result| {
            if let Err(JobError::Dead(_)) = result {
                stuck();
            }
        }),
        None => drop(handle),
    }
    Ok(())
}

/// Why a supervised actor was not even queued.
#[derive(Debug)]
pub(crate) enum NotSpawned {
    Closed,
    Full,
    Thread(StartError),
}

/// An actor that is made in its first turn, for a supervisor. The core comes first, so that who starts it can
/// watch it before it runs.
pub(crate) fn spawn_supervised<A: Actor>(
    shared: &StdArc<Shared>,
    settings: &Settings,
    factory: Factory<A>,
    wire: impl FnOnce(&ActorRef<A::Message>) -> Wiring,
) -> Result<ActorRef<A::Message>, NotSpawned> {
    let core = core(shared, settings).map_err(NotSpawned::Thread)?;
    let first = ActorRef::first(Arc::clone(&core));
    let Wiring { on_ready, stuck } = wire(&first);
    let living = Living::new(core, factory, on_ready);
    match hand_in(shared, living, settings, Some(stuck)) {
        Ok(()) => Ok(first),
        Err(refused) => {
            let closed = matches!(refused, SubmitError::Closed(_));
            // It was never there: its watchers are not told.
            drop(refused.into_inner().give_up());
            Err(if closed { NotSpawned::Closed } else { NotSpawned::Full })
        }
    }
}

/// What a supervisor hangs on an actor.
pub(crate) struct Wiring {
    pub(crate) on_ready: Option<OnReady>,
    pub(crate) stuck: Box<dyn FnOnce() + Send>,
}

impl<A> fmt::Debug for Spawn<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawn").field("settings", &self.settings).finish_non_exhaustive()
    }
}
