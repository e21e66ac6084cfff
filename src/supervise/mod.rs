//! Actors, and supervisors that start them again.
//!
//! An [`Actor`] is state that one message at a time may touch. A [`Supervisor`] starts its children in order,
//! hears of each one's end, starts again what should be up, and stops them in reverse order; when they fail
//! too often it ends itself, and the supervisor above decides. Children are actors, groups of equal actors,
//! supervisors, and users' threads. The rules are those of Erlang/OTP; a table of scenarios from its
//! documentation is run against them (`tests/supervise_otp.rs`).
//!
//! ```
//! use std::time::Duration;
//! use tenure::supervise::{Actor, Address, ChildSpec, Ctx, Handled, Restart, Strategy, Supervisor};
//!
//! struct Counter(u64);
//! enum Message {
//!     Add(u64),
//!     Get(tenure::supervise::Reply<u64>),
//! }
//! impl Actor for Counter {
//!     type Message = Message;
//!     fn handle(&mut self, message: Message, _: &mut Ctx<Message>) -> Handled {
//!         match message {
//!             Message::Add(0) => return Err("nothing to add".into()),
//!             Message::Add(n) => self.0 += n,
//!             Message::Get(reply) => _ = reply.send(self.0),
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = tenure::Runtime::builder().workers(2).build()?;
//! let counter = Address::new();
//! let tree = Supervisor::builder("service")
//!     .strategy(Strategy::OneForOne)
//!     .intensity(3, Duration::from_secs(5))
//!     .on_fault(|fault| eprintln!("{fault}"))
//!     .child(ChildSpec::actor("counter", || Counter(0)).at(&counter))
//!     .child(ChildSpec::thread("listener", |stop| stop.wait()).restart(Restart::Transient))
//!     .start(&runtime)?;
//!
//! counter.tell(Message::Add(1))?;
//! let first = counter.current().ok_or("down")?;
//! counter.tell(Message::Add(0))?; // It fails, and is started again, with a state of its own.
//! first.watch().get()?;
//! while counter.current().is_none() {
//!     std::thread::yield_now();
//! }
//! assert_eq!(counter.ask(Duration::from_secs(5), Message::Get).get()?, 0);
//! println!("{}", tree.snapshot());
//! // service: one for one, 3 restarts in 5s, running, 1 so far
//! // ├─ counter (actor, permanent) up #2, before: nothing to add
//! // └─ listener (thread, transient) up #1
//! assert!(tree.shutdown(Duration::from_secs(5)).is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # When a child ends
//!
//! | | [`Exit::Failed`], [`Panicked`](Exit::Panicked), [`Stuck`](Exit::Stuck), [`Killed`](Exit::Killed) | [`Normal`](Exit::Normal), [`Shutdown`](Exit::Shutdown) |
//! |---|---|---|
//! | [`Permanent`](Restart::Permanent) | started again | started again |
//! | [`Transient`](Restart::Transient) | started again | stays down, in the list |
//! | [`Temporary`](Restart::Temporary) | off the list | off the list |
//!
//! | strategy | with the child that is started again |
//! |---|---|
//! | [`OneForOne`](Strategy::OneForOne), [`Dynamic`](Strategy::Dynamic) | nobody |
//! | [`RestForOne`](Strategy::RestForOne) | those behind it are stopped, in reverse order, and started again, in order |
//! | [`OneForAll`](Strategy::OneForAll) | all others are |
//!
//! Siblings that are taken along count as no failures; temporary ones among them leave the list, transient ones
//! that had finished start again. A start that fails when a child is to be started *again* counts as one more
//! failure; the first start of a child fails the supervisor's start, or the [`add`](Supervisor::add).
//!
//! A supervisor [gives up](ShutdownCause::GaveUp) when more failures lie within the period of its
//! [`intensity`](Builder::intensity) than it allows. The window slides: there is no moment at which it is
//! reset. It then stops its children and itself; that end is a *shutdown*, as in OTP, so a transient supervisor
//! that gives up stays down, and a permanent one counts as a failure above.
//!
//! # Choosing the intensity
//!
//! The intensity answers two questions. How many failures in a burst may be met by starting again? That is
//! the number. How often may that go on for ever? That is the number over the period: 10 in 5 s lets a child
//! fail twice a second for ever; 10 in 60 s the same burst, but in the long run once in six seconds. On each
//! level above the numbers multiply: three levels with 10 each are up to 1,331 starts before the top gives up.
//! Permanent supervisors with the default (1 in 5 s) are right in most places.
//!
//! A [`backoff`](Builder::backoff) stretches the burst; with a delay as long as the period a failure is never
//! the second in its window, so the supervisor never gives up.
//!
//! # What cannot be done
//!
//! Nothing that runs can be killed: not a handler, not a thread. A child that does not stop within its
//! [`Shutdown`] time is *abandoned*: listed in the [snapshot](Supervisor::snapshot), told of with
//! [`Level::Critical`], and no longer waited for by a supervisor that stops. **Its successor does not start while
//! it runs**: no two incarnations of a child overlap. When the strategy takes others along, those behind it in
//! the order wait, too. Where an overlap does no harm, [`ChildSpec::overlaps_when_abandoned`] allows it. A
//! child that comes back in the end is cleared up like any other.
//!
//! With an [`attempt_timeout`](crate::runtime::Builder::attempt_timeout), an actor that is in one call for so long
//! is taken for stuck: its worker is replaced, the fault handler is told; when the call returns the actor ends as
//! [`Exit::Stuck`]. Each message counts by itself.
//!
//! # Common mistakes
//!
//! - Holding an [`ActorRef`] of a supervised child: it means one incarnation. Use an [`Address`], or a
//!   [`Registry`].
//! - Expecting messages to outlive a failure: each incarnation has a mailbox of its own, and what the former one
//!   had not handled went to its [`undelivered`](Actor::undelivered).
//! - Blocking on an [`ask`](ActorRef::ask) in a handler. [`Ctx::pipe`] brings the answer as a message.
//! - A handler that keeps the [`Supervisor`] it belongs to: then the tree never ends by itself.
//! - Shutting the runtime down before the tree: then all end at once, in any order.
//!
//! # Who runs what
//!
//! A supervisor is an actor; like its fault handler it runs on the runtime's workers. What it decides is pure
//! (`plan.rs`, with its diagram); snapshots read it without asking. Factories, `started` and all else of an actor
//! run in the actor's own turns; the closure of a thread on that thread. Deadlines and delays are on the
//! runtime's clock.
//!
//! # Measured
//!
//! On 2 cores of an AMD EPYC guest, `cargo bench --bench actor`, medians of one interleaved run on an otherwise
//! idle machine. Two workers each (actix: a thread for the actor), mailboxes of 1,024 where they have a bound.
//!
//! | | tenure | with a limit of 5 s | ractor | kameo | actix |
//! |---|---|---|---|---|---|
//! | ask and answer, from a thread outside | 2.7 µs | 2.6 µs | 35 µs | 15 µs | 42 µs |
//! | the same from a task in the pool | 217 ns | 290 ns | 643 ns | 854 ns | 744 ns (the actor's own thread) |
//! | tell, 10,000 from a thread outside, per message | 52 ns | | 318 ns | 423 ns | 187 ns |

mod actor;
#[cfg(any(tenure_loom, tenure_shuttle))]
#[doc(hidden)]
pub mod model;
mod tree;

pub use actor::{
    Actor, ActorId, ActorRef, AskError, Ctx, Down, Exit, Handled, Late, Phase, RegisterError,
    Registry, Reply, ShutdownCause, Spawn, SpawnError, Stopping, TellError, Telling, TimerId,
    TryTellError, actor,
};
pub use tree::{
    ActorChild, Address, AnyChild, AutoShutdown, Builder, Cause, ChildError, ChildKind,
    ChildSnapshot, ChildSpec, ChildState, ConfigError, Fault, Group, IntoHandled, Level, Reaction,
    Restart, Scope, Shutdown, Snapshot, StartError, StopToken, Strategy, Supervisor,
    SupervisorState,
};
