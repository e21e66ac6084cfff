//! A reference to an actor: the way to send it something.

use core::convert::Infallible;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::time::Duration;
use std::sync::Arc as StdArc;
use std::time::Instant;

use super::ActorId;
use super::ask::{AskError, Race, Reply};
use super::core::{Core, Order};
use super::error::{TellError, TryTellError};
use super::exit::Down;
use super::living::runs_here;
use super::mailbox::Refusal;
use super::sending::{Alarm, Telling};
use super::word::Phase;
use crate::clock::Clock;
use crate::promise::{Eventual, failed, promise};
use crate::sync::Arc;

/// The way to an actor. Clones are references to the same actor.
///
/// | call | when the mailbox is full |
/// |---|---|
/// | [`try_tell`](Self::try_tell) | gives the message back |
/// | [`tell`](Self::tell) | blocks until there is room |
/// | [`tell_timeout`](Self::tell_timeout) | blocks, for some time |
/// | [`tell_async`](Self::tell_async) | waits, asynchronously |
/// | [`ask`](Self::ask) | the question has failed |
///
/// Messages of one sender arrive in the order of its calls. Everything before a call happens-before the
/// handling of its message. Senders that wait for room are not served in turn.
///
/// # How it ends
///
/// When the last reference is dropped, the actor handles what is in its mailbox, and stops normally. What
/// counts as a reference: each `ActorRef`, also one that the actor keeps of itself, an entry in a
/// [`Registry`](super::Registry), a place at an [`Address`](crate::supervise::Address), a supervisor. What
/// does not: watches, timers, a question's [`Reply`].
///
/// ```
/// use std::time::Duration;
/// use tenure::supervise::{self, Actor, Ctx, Handled, Reply};
///
/// enum Said {
///     Add(u32),
///     Sum(Reply<u32>),
/// }
/// struct Sum(u32);
/// impl Actor for Sum {
///     type Message = Said;
///     fn handle(&mut self, said: Said, _: &mut Ctx<Said>) -> Handled {
///         match said {
///             Said::Add(n) => self.0 += n,
///             Said::Sum(reply) => _ = reply.send(self.0), // Too late? Then nobody waits for it.
///         }
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = tenure::Runtime::builder().workers(1).build()?;
/// let sum = supervise::actor(Sum(0)).spawn(&runtime)?;
/// sum.tell(Said::Add(1))?;
/// sum.tell(Said::Add(2))?;
/// assert_eq!(sum.ask(Duration::from_secs(5), Said::Sum).get()?, 3);
/// let end = sum.watch();
/// sum.stop();
/// assert!(!end.get()?.exit.is_abnormal());
/// # Ok(())
/// # }
/// ```
pub struct ActorRef<M: Send + 'static> {
    core: Arc<Core<M>>,
}

impl<M: Send + 'static> ActorRef<M> {
    /// The first one, which the core has counted already.
    pub(crate) fn first(core: Arc<Core<M>>) -> Self {
        Self { core }
    }

    pub(super) fn another(core: &Arc<Core<M>>) -> Self {
        core.one_more_reference();
        Self { core: Arc::clone(core) }
    }

    pub(crate) fn core(&self) -> &Arc<Core<M>> {
        &self.core
    }

    /// Has `hook` run at the actor's end, before anybody hears of it. Not at all if that has been.
    pub(crate) fn before_notices(&self, hook: impl FnOnce() + Send + 'static) {
        self.core.watchers.before_notices(Box::new(move |_: &Down| hook()));
    }

    /// Which actor.
    #[must_use]
    pub fn id(&self) -> ActorId {
        self.core.id
    }

    /// Its name, if it was given one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.core.name.as_deref()
    }

    /// What it does right now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.core.phase()
    }

    /// Whether it is over: all that it did is done, and it has been dropped. One that
    /// [takes no more messages](Phase::is_open) may still be being cleared up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.core.is_over()
    }

    /// How many messages its mailbox holds at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.core.capacity()
    }

    /// How many messages wait in its mailbox, about.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.core.waiting()
    }

    /// Sends a message, if there is room.
    ///
    /// # Errors
    /// [`TryTellError`] gives the message back: the mailbox is full, or the actor has stopped. An `Ok` does
    /// not say that it will be handled: an actor that stops first returns it to
    /// [`undelivered`](super::Actor::undelivered).
    #[inline]
    pub fn try_tell(&self, message: M) -> Result<(), TryTellError<M>> {
        self.core.push(message).map_err(|(refusal, message)| match refusal {
            Refusal::Full => TryTellError::Full(message),
            Refusal::Closed => TryTellError::Stopped(message),
        })
    }

    /// Sends a message; waits for room if need be.
    ///
    /// # Errors
    /// [`TellError`] gives the message back: the actor has stopped, or it is the very one that runs on this
    /// thread, and would wait for itself.
    ///
    /// # Blocking
    /// While the mailbox is full. On a worker a stand-in takes its place in the pool meanwhile. Two actors
    /// that wait for room in each other's mailbox wait for ever: in a handler, prefer
    /// [`try_tell`](Self::try_tell), or a limit.
    #[inline]
    pub fn tell(&self, message: M) -> Result<(), TellError<M>> {
        match self.core.push(message) {
            Ok(()) => Ok(()),
            Err((Refusal::Closed, message)) => Err(TellError::Stopped(message)),
            Err((Refusal::Full, message)) => self.tell_slow(message, None),
        }
    }

    /// Sends a message; waits for room for `timeout` of real time at most.
    ///
    /// # Errors
    /// As [`tell`](Self::tell), and [`TellError::TimedOut`].
    pub fn tell_timeout(&self, message: M, timeout: Duration) -> Result<(), TellError<M>> {
        match self.core.push(message) {
            Ok(()) => Ok(()),
            Err((Refusal::Closed, message)) => Err(TellError::Stopped(message)),
            Err((Refusal::Full, message)) => self.tell_slow(message, Some(timeout)),
        }
    }

    #[cold]
    fn tell_slow(&self, mut message: M, timeout: Option<Duration>) -> Result<(), TellError<M>> {
        if runs_here(&self.core) {
            return Err(TellError::WouldDeadlock(message));
        }
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let alarm = StdArc::new(Alarm::new());
        crate::runtime::blocking(|| {
            loop {
                alarm.reset();
                let ticket = self.core.room.enter(StdArc::clone(&alarm).into());
                let open = self.core.announce_waiter();
                let again = self.core.push(message);
                if !matches!(&again, Err((Refusal::Full, _))) || !open {
                    if !self.core.room.leave(ticket) {
                        // Woken, but served already: it is another one's turn.
                        self.core.room.wake(1);
                    }
                    return again.map_err(|(_, message)| TellError::Stopped(message));
                }
                let Err((_, back)) = again else { return Ok(()) };
                message = back;
                let left = match until {
                    None => None,
                    Some(until) => {
                        let left = until.saturating_duration_since(Instant::now());
                        if left.is_zero() {
                            if !self.core.room.leave(ticket) {
                                self.core.room.wake(1);
                            }
                            return Err(TellError::TimedOut(message));
                        }
                        Some(left)
                    }
                };
                alarm.wait(left);
                self.core.room.leave(ticket);
            }
        })
    }

    /// Sends a message; the future waits for room. Dropping it unfinished drops the message unsent.
    ///
    /// # Errors
    /// [`TellError::Stopped`] gives the message back.
    pub fn tell_async(&self, message: M) -> Telling<'_, M> {
        Telling::new(&self.core, message)
    }

    /// Asks: sends the message that `make` makes around a [`Reply`], and gives the answer to come.
    ///
    /// The time limit is on the runtime's clock; [`Duration::MAX`] is none. When it is up, the answer is
    /// [`TimedOut`](crate::promise::EventualError::TimedOut), and a later one is not heard. A question that
    /// is dropped unanswered, also by an actor that ends, is
    /// [`Broken`](crate::promise::EventualError::Broken). If the actor takes no message, now, the answer is
    /// there at once: [`Failed`](crate::promise::EventualError::Failed) with an [`AskError`].
    ///
    /// In a handler do not block on the answer: the worker would stand still, and an actor that asks itself
    /// would wait for itself. [`Ctx::pipe`](super::Ctx::pipe) brings it as a message.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::supervise::{self, Actor, Ctx, Reply};
    ///
    /// struct Sum(u64);
    /// enum Message {
    ///     Add(u64),
    ///     Get(Reply<u64>),
    /// }
    /// impl Actor for Sum {
    ///     type Message = Message;
    ///     fn handle(&mut self, message: Message, _: &mut Ctx<Message>) -> supervise::Handled {
    ///         match message {
    ///             Message::Add(n) => self.0 += n,
    ///             Message::Get(reply) => drop(reply.send(self.0)),
    ///         }
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = tenure::Runtime::builder().workers(1).build()?;
    /// let sum = supervise::actor(Sum(0)).spawn(&runtime)?;
    /// sum.tell(Message::Add(40))?;
    /// sum.tell(Message::Add(2))?;
    /// let answer = sum.ask(Duration::from_secs(5), Message::Get);
    /// assert_eq!(answer.get()?, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn ask<T: Send + 'static>(
        &self,
        timeout: Duration,
        make: impl FnOnce(Reply<T>) -> M,
    ) -> Eventual<T, AskError> {
        let (writer, answer) = promise();
        let reply = match &self.core.timers {
            Some(timers) if timeout != Duration::MAX => {
                let race = Arc::new(Race::new(writer));
                let late = Arc::clone(&race);
                let due = timers.clock().now().saturating_add(timeout);
                let timer = timers.insert(due, move || late.time_out()).ok();
                Reply::timed(race, timer)
            }
            _ => Reply::untimed(writer),
        };
        match self.core.push(make(reply)) {
            Ok(()) => answer,
            Err((refusal, question)) => {
                // Its drop is foreign, and breaks an answer that nobody has seen.
                drop(question);
                drop(answer);
                failed(match refusal {
                    Refusal::Full => AskError::Full,
                    Refusal::Closed => AskError::Stopped,
                })
            }
        }
    }

    /// Asks the actor to stop, ahead of the messages that wait: they go to
    /// [`undelivered`](super::Actor::undelivered), unless it [puts the end
    /// off](super::Actor::stopping). Returns at once; see [`watch`](Self::watch).
    pub fn stop(&self) {
        self.core.order(Order::Stop);
    }

    /// Ends the actor without asking it: it is dropped, without [`stopped`](super::Actor::stopped), as soon
    /// as the call that it may be in has returned. A call cannot be interrupted.
    pub fn kill(&self) {
        self.core.order(Order::Kill);
    }

    /// The notice of the actor's end, to come. Everybody who asks gets exactly one; who asks after the end
    /// has it at once. When it comes, the actor has been dropped and its names are free.
    pub fn watch(&self) -> Eventual<Down, Infallible> {
        self.core.watchers.watch()
    }

    /// The notice, if the actor has ended.
    #[must_use]
    pub fn down(&self) -> Option<Down> {
        self.core.watchers.down()
    }
}

impl<M: Send + 'static> Clone for ActorRef<M> {
    fn clone(&self) -> Self {
        Self::another(&self.core)
    }
}

impl<M: Send + 'static> Drop for ActorRef<M> {
    fn drop(&mut self) {
        self.core.one_reference_less();
    }
}

impl<M: Send + 'static> PartialEq for ActorRef<M> {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl<M: Send + 'static> Eq for ActorRef<M> {}

impl<M: Send + 'static> Hash for ActorRef<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl<M: Send + 'static> fmt::Debug for ActorRef<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActorRef")
            .field("id", &self.core.id)
            .field("name", &self.core.name)
            .field("phase", &self.phase())
            .finish()
    }
}
