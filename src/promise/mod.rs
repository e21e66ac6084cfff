//! `Promise` and `Eventual`: one result, handed over once.
//!
//! A [`Promise`] is the writing end, an [`Eventual`] the reading end. The writer sets a value or an
//! error; the reader takes it: it waits ([`get`](Eventual::get)), polls (`.await`), leaves a callback
//! ([`on_complete`](Eventual::on_complete)), or builds another eventual on it
//! ([`map`](Eventual::map), [`and_then`](Eventual::and_then), …).
//!
//! ```
//! use tenure::promise::{EventualError, promise};
//!
//! let (writer, reader) = promise::<u32, String>();
//! let answer = reader
//!     .map(|n| n * 2)
//!     .or_else(|error| match error {
//!         EventualError::Broken => tenure::promise::ready(0),
//!         other => tenure::promise::failed::<u32, String>(other.to_string()),
//!     });
//! let thread = std::thread::spawn(move || writer.set(21));
//! assert_eq!(answer.get().ok(), Some(42));
//! # thread.join().ok();
//! ```
//!
//! # States
//!
//! ```text
//!               set ───────────► ResultSet ────┐  taken: get, try_get, poll,
//!   Initial ───┤                               ├─► callback, stage ──► ValueMoved
//!               set_error, drop ► ExceptionSet ┘
//! ```
//!
//! There is no way back, and no second result. [`Eventual::state`] tells which; after `ValueMoved`
//! every way of asking says [`Taken`](EventualError::Taken).
//!
//! # A tour
//!
//! Wait for it, look, poll, or leave a callback:
//!
//! ```
//! use std::time::Duration;
//! use tenure::promise::{EventualError, promise};
//!
//! let (writer, mut reader) = promise::<u32, String>();
//! assert!(reader.try_get().is_none());
//! let waited = reader.get_timeout(Duration::from_micros(50));
//! assert!(matches!(waited, Err(EventualError::TimedOut))); // still usable
//! writer.set_error("no disk".into()).ok();
//! assert!(matches!(reader.get(), Err(EventualError::Failed(why)) if why == "no disk"));
//! ```
//!
//! Build on it before it is there; nothing polls it forward, the setter's thread runs it:
//!
//! ```
//! use tenure::promise::{Eventual, promise, ready};
//!
//! fn look_up(id: u32) -> Eventual<String, String> {
//!     ready(format!("user {id}"))
//! }
//!
//! let (id, eventual) = promise::<u32, String>();
//! let greeting = eventual
//!     .and_then(look_up) // waits for another eventual
//!     .map(|name| format!("hello, {name}")) // makes another value
//!     .recover(|error| format!("hello, stranger ({error})")); // makes a value of an error
//! id.set(7).ok();
//! assert_eq!(greeting.get().ok().as_deref(), Some("hello, user 7"));
//! ```
//!
//! Choose where it runs. Inline, the default, costs no hand-over; an executor keeps the setter free:
//!
//! | the closure | leave it |
//! |---|---|
//! | takes a microsecond or so, takes no locks | inline: `map`, `on_complete` |
//! | blocks, computes for long, or takes locks that the setter may hold | bound: `via(executor).map(…)`, `on_complete_via` |
//! | must run on one thread (a user interface's) | bound to an executor of that thread |
//! | may be refused, since the executor is full | bound; the eventual behind it then ends as [`Rejected`](EventualError::Rejected) |
//!
//! ```
//! use tenure::executor::ThreadPerTask;
//! use tenure::promise::promise;
//!
//! let (writer, reader) = promise::<Vec<u64>, ()>();
//! let sum = reader.via(ThreadPerTask).map(|values| values.iter().sum::<u64>()).unbind();
//! writer.set(vec![1, 2, 3]).ok(); // returns at once: the sum is made elsewhere
//! assert_eq!(sum.get().ok(), Some(6));
//! ```
//!
//! Stop what nobody wants any more:
//!
//! ```
//! use tenure::promise::{EventualError, promise};
//!
//! let (mut writer, reader) = promise::<u32, ()>();
//! writer.on_cancel(|| println!("the query is killed here"));
//! let page = reader.map(|rows| rows / 10);
//! assert!(page.cancel()); // from the end of the chain to its head
//! assert!(writer.is_cancelled());
//! drop(writer);
//! assert!(matches!(page.get(), Err(EventualError::Cancelled)));
//! ```
//!
//! And several at once: [`all`], [`any`], [`first_n`] make one of many; [`Completions`] gives them as
//! they come; [`share`](Eventual::share) lets many read one, [`SharedPromise`] many write it;
//! [`within`](Eventual::within) ends it in time; a [`Slot`] is for a loop that makes one after the
//! other.
//!
//! # Which thread runs what
//!
//! | what | runs on |
//! |---|---|
//! | a callback or stage left before the result | the thread that sets (or drops) the promise, inside that call |
//! | one left after the result | the thread that leaves it, at once |
//! | one bound by [`via`](Eventual::via) or [`on_complete_via`](Eventual::on_complete_via) | wherever the executor runs it, in both cases |
//! | a cancel hook | the thread that asks, or drops the last reader; at once here if it was asked before |
//! | a waker | the setting thread calls `wake` |
//! | `Drop` of a value nobody took | whoever leaves second |
//!
//! Inline has no hand-over and is right for work of a microsecond or so; the setter waits for
//! it. Bind to an executor what blocks, takes long, or must not run under the setter's locks.
//!
//! What becomes ready *inside* a callback runs at once to a depth of four, then queues until the
//! thread's outermost callback has returned. So the stack stays small however long a chain is, and a
//! set inside a deep callback may return before what it made ready has run.
//!
//! # Cancellation
//!
//! [`cancel`](Eventual::cancel) is a request to the writer, who sees it
//! ([`is_cancelled`](Promise::is_cancelled)), is told ([`on_cancel`](Promise::on_cancel)), or waits
//! for it ([`cancelled`](Promise::cancelled)). The result that is set first counts. Dropping an
//! eventual asks, too; [`detach`](Eventual::detach) and callbacks do not. From the end of a chain the
//! request reaches the head in one step, whatever its length, or the inner eventual that the chain is
//! waiting for.
//!
//! # What drop does
//!
//! | dropped | nothing is set yet | a waker is in | a callback or a stage was left | set | taken |
//! |---|---|---|---|---|---|
//! | [`Promise`] | the reader gets [`Broken`](EventualError::Broken); [`Cancelled`](EventualError::Cancelled) if it had asked | the same, and is woken | it runs, here, with that | (setting consumed it) | |
//! | [`Eventual`] | the writer is asked to stop, its hook runs here; its set gives the value back | the same; the waker is dropped here | (leaving it consumed the handle) | the result is dropped, here | nothing |
//! | the eventual behind a stage | the request goes to the head of the chain | the same | | the result is dropped, here | nothing |
//! | [`Shared`], the last | the writer is asked to stop, unless a callback was left | (its future's own drop takes it back) | the callback keeps the interest alive | the result is dropped, here | |
//! | [`SharedPromise`], the last | as [`Promise`] | | | nothing | |
//! | a [`Task`](crate::executor::Task) | what hangs on it gets [`Rejected`](EventualError::Rejected) | | | | |
//! | [`Completions`], a group's whole | each member's writer is asked to stop | | | its result is dropped, here | |
//! | [`Slot`] | its pair lives on | | | | |
//!
//! # Panics
//!
//! In a stage's closure: [`Panicked`](EventualError::Panicked) downstream. In a terminal callback, a
//! waker, a hook, or a `Drop`: caught where it is, and told to [`set_panic_hook`]'s. Never in the
//! setter.
//!
//! # How it works
//!
//! Both ends point to one **core** of one cache line (for values up to 16 bytes), which comes from a
//! bounded [pool](trim_pool). There is no reference count: each side leaves by a bit in the state
//! word, and **the second to leave frees**. A set and a take cost one locked instruction together.
//!
//! The word (`state.rs` alone knows its bits):
//!
//! | bit | says | added by |
//! |---|---|---|
//! | RESULT, EXCEPTION | the phase; both clear: nothing yet | writer |
//! | why (3 bits) | which exception | writer, with the phase |
//! | SLOT | a waker is in the slot; with RX_GONE, a callback or a stage | reader |
//! | REPLACED | the waker was replaced | reader |
//! | PARKED | a thread sleeps on the word | reader |
//! | CANCEL | cancellation was asked | reader |
//! | HOOK | the cancel node is to be told of that | writer |
//! | TX_GONE, RX_GONE | that side will not touch the core again | each |
//!
//! Rules that the code cites:
//!
//! - **R1** a side sets its GONE bit in, or after, its last access to the core;
//! - **R2** nobody stores the word after construction, except a sole owner (who saw the other's GONE
//!   with Acquire);
//! - **R3** a bit is added by its one writer, who knows it is clear: an addition would carry. (CANCEL
//!   is the exception, and is OR-ed.)
//! - **R4** a failed exchange does not mean "completed": look at what the word says now;
//! - **R5** taking the slot is a bitwise copy: the other side may be comparing its words;
//! - **R6** leave before foreign code: wake, drop and call only once the core is let go;
//! - **R7** `ValueMoved` is no bit: taking the value is leaving, and the handle remembers;
//! - **R8** a hook belongs to whoever changed the cancel node's word first (`cancel.rs`);
//! - **R9** a stage that has to wait for an inner eventual passes over cores of its own type whose
//!   readers left only a forwarding: so a loop written as a recursion of `and_then` keeps one step, not
//!   all (`past_forwardings` in `stage.rs`).
//!
//! | edge | Release in | Acquire in | makes visible |
//! |---|---|---|---|
//! | → ResultSet, ExceptionSet | `complete_and_leave`, `complete` | the reader's `peek`, `install`, `retract`, `park`, `unpark`, failed `attach`, `abandon` | the payload |
//! | SLOT | `install`, `attach` | the writer's `peek`, failed `complete_and_leave`, `complete` | the slot |
//! | TX_GONE | `complete_and_leave`, `writer_leaves` | `peek`, `reader_leaves` | the writer's last access |
//! | RX_GONE | `attach`, `abandon`, `reader_leaves` | `peek`, `complete`, `writer_leaves` | the reader's last access |
//! | HOOK | `announce_hook` | `request_cancel`, `abandon` | the pointer to the node |
//! | CANCEL | `request_cancel` | `announce_hook`, `peek` | what the canceller did before |
//!
//! Each pair of operations that can race has a model in `loom-tests/src/models/promise*.rs`; the matrix,
//! with a name a cell, is `CELLS` in `promise.rs` there. `tests/promise_locked.rs` counts the locked
//! instructions of each operation by stepping through it.
//!
//! Coming from another library: [`coming_from`].

pub(crate) mod block;
#[cfg(doctest)]
mod bounds;
mod callback;
mod cancel;
mod combine;
pub mod coming_from;
mod completions;
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
pub use completions::Completions;
pub use error::{EventualError, PanicPayload, SetError};
pub use eventual::{Canceller, Eventual, State};
pub use group::{all, all_settled, any, any_ok, first_n};
pub use panics::set_panic_hook;
#[cfg(tenure_loom)]
#[doc(hidden)]
pub use pool::modelled;
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
