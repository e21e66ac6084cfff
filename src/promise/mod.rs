//! `Promise` and `Eventual`: one result, handed over once.

pub(crate) mod block;
mod callback;
mod cancel;
mod combine;
mod core;
mod error;
mod eventual;
mod hang;
mod panics;
mod stage;
mod state;
pub(crate) mod trampoline;
mod via;
mod writer;

pub use self::core::Outcome;
pub use error::{EventualError, PanicPayload, SetError};
pub use eventual::{Eventual, State};
pub use panics::set_panic_hook;
pub use via::Via;
pub use writer::Promise;

use self::core::CorePtr;

/// A promise and its eventual.
#[inline]
pub fn promise<T, E>() -> (Promise<T, E>, Eventual<T, E>) {
    let core = CorePtr::allocate();
    (Promise::new(core), Eventual::new(core))
}

/// An eventual that has its value already.
pub fn ready<T, E>(value: T) -> Eventual<T, E> {
    Eventual::new(CorePtr::allocate_complete(Ok(value)))
}

/// An eventual that has failed already.
pub fn failed<T, E>(error: E) -> Eventual<T, E> {
    Eventual::new(CorePtr::allocate_complete(Err(EventualError::Failed(error))))
}
