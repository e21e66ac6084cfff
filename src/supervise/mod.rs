//! Actors, and supervisors.

mod actor;

pub use actor::{
    Actor, ActorId, ActorRef, AskError, Ctx, Down, Exit, Handled, Late, Phase, RegisterError,
    Registry, Reply, ShutdownCause, Spawn, SpawnError, Stopping, TellError, Telling, TimerId,
    TryTellError, actor,
};
