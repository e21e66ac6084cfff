//! What a sender may be told, and what may be wrong with an actor to be.

use core::fmt;

use thiserror::Error as ThisError;

use crate::timer::StartError;

macro_rules! hides_its_message {
    ($($name:ident { $($variant:ident),* })*) => {$(
        impl<M> $name<M> {
            /// The message.
            pub fn into_inner(self) -> M {
                match self {
                    $(Self::$variant(message))|* => message,
                }
            }
        }

        impl<M> fmt::Debug for $name<M> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant(_) => concat!(stringify!($variant), "(..)"),)*
                })
            }
        }
    )*};
}

/// Why [`try_tell`](super::ActorRef::try_tell) did not send. The message comes back.
#[derive(Clone, Copy, PartialEq, Eq, ThisError)]
pub enum TryTellError<M> {
    /// There is no room in the mailbox, now.
    #[error("the actor's mailbox is full")]
    Full(M),
    /// The actor takes no more messages, and never will.
    #[error("the actor has stopped")]
    Stopped(M),
}

/// Why a message was not sent. It comes back.
#[derive(Clone, Copy, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum TellError<M> {
    /// The actor takes no more messages, and never will.
    #[error("the actor has stopped")]
    Stopped(M),
    /// There was no room within the time.
    #[error("the actor's mailbox was full for too long")]
    TimedOut(M),
    /// The mailbox is full, and its actor runs on this very thread: waiting for room would never end.
    #[error("the actor would wait for itself")]
    WouldDeadlock(M),
}

hides_its_message! {
    TryTellError { Full, Stopped }
    TellError { Stopped, TimedOut, WouldDeadlock }
}

/// Why an actor was not started. It comes back.
#[derive(ThisError)]
#[non_exhaustive]
pub enum SpawnError<A> {
    /// The runtime is shutting down, or has shut down.
    #[error("the runtime takes no more actors")]
    Closed(A),
    /// The runtime holds as many jobs as its capacity, each actor being one.
    #[error("the runtime holds as many jobs as it may")]
    Full(A),
    /// The first actor of a runtime needs a thread for timers, which the system did not give.
    #[error("a thread could not be started")]
    Thread(A, #[source] StartError),
    /// Its name is another actor's.
    #[error("{1}")]
    Name(A, #[source] super::RegisterError),
}

impl<A> SpawnError<A> {
    /// The actor.
    pub fn into_inner(self) -> A {
        match self {
            Self::Closed(actor)
            | Self::Full(actor)
            | Self::Thread(actor, _)
            | Self::Name(actor, _) => actor,
        }
    }
}

impl<A> fmt::Debug for SpawnError<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(_) => f.write_str("Closed(..)"),
            Self::Full(_) => f.write_str("Full(..)"),
            Self::Thread(_, error) => f.debug_tuple("Thread").field(error).finish(),
            Self::Name(_, error) => f.debug_tuple("Name").field(error).finish(),
        }
    }
}
