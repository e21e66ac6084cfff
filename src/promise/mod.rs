//! `Promise` and `Eventual`: one result, handed over once.

pub(crate) mod block;
mod callback;
mod cancel;
mod combine;
mod core;
mod error;
mod eventual;
mod group;
mod hang;
mod panics;
mod patience;
mod pool;
mod racing;
mod shared;
mod slot;
mod stage;
mod state;
pub(crate) mod trampoline;
mod via;
mod within;
mod writer;

pub use self::core::Outcome;
pub use error::{EventualError, PanicPayload, SetError};
pub use eventual::{Canceller, Eventual, State};
pub use group::{Completions, all, all_settled, any, any_ok, first_n};
pub use panics::set_panic_hook;
pub use pool::trim_pool;
pub use racing::SharedPromise;
pub use shared::{OutcomeRef, Shared, SharedFuture};
pub use slot::Slot;
pub use via::Via;
pub use within::Timer;
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
