//! Where the current incarnation of a child is reached.

use core::fmt;
use core::iter;
use core::time::Duration;
use std::sync::Arc;

use crate::lock::Mutex;
use crate::promise::{Eventual, failed};
use crate::supervise::actor::{ActorId, ActorRef, AskError, Reply, TellError, TryTellError};
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Where a supervised actor is reached, whichever incarnation it is; or several actors, who take turns.
///
/// An [`ActorRef`] means one incarnation, and is of no use after its end; an address is given to
/// [`ChildSpec::at`](super::ChildSpec::at), and each incarnation comes there when it has started, and goes when it
/// ends. While there is none, what is sent comes back as [`Stopped`](TryTellError::Stopped): nothing is kept for
/// the next one. Clones are the same address.
///
/// With several members (of a [group](super::ChildSpec::group), or several children at one address) the next
/// one in turn gets the message; one that is full or down is passed over. An address holds those who are there,
/// and nothing of those who were: children may come and go for ever. Who comes and goes costs a look through
/// the list, by halves, and a move of what is behind it, eight bytes for each.
///
/// ```
/// use std::time::Duration;
/// use tenure::supervise::{Actor, Address, ChildSpec, Ctx, Handled, Reply, Supervisor};
///
/// struct Teller(usize);
/// impl Actor for Teller {
///     type Message = Reply<usize>;
///     fn handle(&mut self, ask: Reply<usize>, _: &mut Ctx<Reply<usize>>) -> Handled {
///         let _ = ask.send(self.0);
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = tenure::Runtime::builder().workers(1).build()?;
/// let counter = Address::new();
/// assert!(counter.current().is_none());
/// let three = ChildSpec::group("tellers", 3, Teller).at(&counter);
/// let tree = Supervisor::builder("bank").child(three).start(&runtime)?;
/// let mut asked = Vec::new();
/// for _ in 0..3 {
///     asked.push(counter.ask(Duration::from_secs(5), |reply| reply).get()?);
/// }
/// asked.sort();
/// assert_eq!(asked, [0, 1, 2]);
/// assert!(tree.shutdown(Duration::from_secs(5)).is_some());
/// # Ok(())
/// # }
/// ```
pub struct Address<M: Send + 'static> {
    members: Arc<Members<M>>,
}

struct Members<M: Send + 'static> {
    /// By their ids, which are never used again: so nobody is taken for one who was there before.
    list: Mutex<Vec<ActorRef<M>>>,
    turn: AtomicUsize,
}

impl<M: Send + 'static> Address<M> {
    /// One where nobody is yet.
    #[must_use]
    pub fn new() -> Self {
        let members = Members { list: Mutex::new(Vec::new()), turn: AtomicUsize::new(0) };
        Self { members: Arc::new(members) }
    }

    /// Those who are there now.
    #[must_use]
    pub fn members(&self) -> Vec<ActorRef<M>> {
        self.members.list.lock().clone()
    }

    /// The one whose turn it is; passing over those who take no messages.
    #[must_use]
    pub fn current(&self) -> Option<ActorRef<M>> {
        self.in_turn().next()
    }

    /// Each member that is open, once, beginning with the one whose turn it is. Who stays there is not passed
    /// over because others come or go meanwhile.
    fn in_turn(&self) -> impl Iterator<Item = ActorRef<M>> {
        // ORDERING: Relaxed: turns, nothing else.
        let turn = self.members.turn.fetch_add(1, Ordering::Relaxed);
        let mut round = Round::default();
        iter::from_fn(move || {
            // Cloned out: what a reference does when it is dropped may be foreign.
            let list = self.members.list.lock();
            let after = |id| list.partition_point(|member| member.id() <= id);
            let at = round.last.map_or(turn, after).checked_rem(list.len())?;
            let member = list[at].clone();
            drop(list);
            round.goes_on(member.id()).then_some(member)
        })
        .filter(|member| member.phase().is_open())
    }

    /// An incarnation has started.
    pub(in crate::supervise) fn come(&self, actor: ActorRef<M>) {
        let mut list = self.members.list.lock();
        let at = list.partition_point(|member| member.id() < actor.id());
        list.insert(at, actor);
    }

    /// It has ended.
    pub(super) fn go(&self, id: ActorId) {
        let mut list = self.members.list.lock();
        let gone = list.binary_search_by_key(&id, ActorRef::id).ok().map(|at| list.remove(at));
        drop(list);
        drop(gone);
    }

    /// Sends a message to the next one in turn that has room.
    ///
    /// # Errors
    /// The message comes back: all are full, or nobody is there.
    pub fn try_tell(&self, message: M) -> Result<(), TryTellError<M>> {
        let mut message = message;
        let mut is_full = false;
        for member in self.in_turn() {
            message = match member.try_tell(message) {
                Ok(()) => return Ok(()),
                Err(TryTellError::Full(back)) => {
                    is_full = true;
                    back
                }
                Err(TryTellError::Stopped(back)) => back,
            };
        }
        Err(if is_full { TryTellError::Full(message) } else { TryTellError::Stopped(message) })
    }

    /// Sends a message to the next one in turn that has room; if all are full, waits for room at the one whose
    /// turn it is.
    ///
    /// # Errors
    /// As [`ActorRef::tell`]: also if that one stops meanwhile.
    ///
    /// # Blocking
    /// As [`ActorRef::tell`].
    pub fn tell(&self, message: M) -> Result<(), TellError<M>> {
        let message = match self.try_tell(message) {
            Ok(()) => return Ok(()),
            Err(back) => back.into_inner(),
        };
        match self.current() {
            Some(member) => member.tell(message),
            None => Err(TellError::Stopped(message)),
        }
    }

    /// The same, asynchronously.
    ///
    /// # Errors
    /// [`TellError::Stopped`].
    pub async fn tell_async(&self, message: M) -> Result<(), TellError<M>> {
        let message = match self.try_tell(message) {
            Ok(()) => return Ok(()),
            Err(back) => back.into_inner(),
        };
        match self.current() {
            Some(member) => member.tell_async(message).await,
            None => Err(TellError::Stopped(message)),
        }
    }

    /// Asks the next one in turn; see [`ActorRef::ask`]. If nobody is there, the answer is
    /// [`AskError::Stopped`].
    pub fn ask<T: Send + 'static>(
        &self,
        timeout: Duration,
        make: impl FnOnce(Reply<T>) -> M,
    ) -> Eventual<T, AskError> {
        match self.current() {
            Some(member) => member.ask(timeout, make),
            None => failed(AskError::Stopped),
        }
    }
}

/// One time around, by ids.
#[derive(Default)]
struct Round {
    first: Option<ActorId>,
    last: Option<ActorId>,
    /// The end of the list was passed.
    around: bool,
}

impl Round {
    /// The next one is `id`. False: it was there before.
    fn goes_on(&mut self, id: ActorId) -> bool {
        let first = *self.first.get_or_insert(id);
        let passes_the_end = self.last.is_some_and(|last| id <= last);
        let twice = self.around && passes_the_end;
        self.around |= passes_the_end;
        self.last = Some(id);
        let where_it_began = self.around && id >= first;
        !(twice || where_it_began)
    }
}

impl<M: Send + 'static> Default for Address<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Send + 'static> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { members: Arc::clone(&self.members) }
    }
}

impl<M: Send + 'static> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.members()).finish()
    }
}

#[cfg(all(test, not(tenure_loom)))]
mod tests {
    use super::*;
    use crate::supervise::actor::core::Core;

    fn actor() -> ActorRef<u32> {
        ActorRef::first(crate::sync::Arc::new(Core::new(1, ActorId::next(), None, None)))
    }

    fn ids(members: impl Iterator<Item = ActorRef<u32>>) -> Vec<ActorId> {
        members.map(|member| member.id()).collect()
    }

    #[test]
    fn each_has_its_turn_and_a_round_ends() {
        let address = Address::new();
        assert_eq!(address.in_turn().count(), 0);
        let actors = [(); 3].map(|()| actor());
        let [a, b, c] = [0, 1, 2].map(|at| actors[at].id());
        // In whatever order they come.
        for at in [1, 2, 0] {
            address.come(actors[at].clone());
        }
        address.members.turn.store(0, Ordering::Relaxed);
        assert_eq!(ids(address.in_turn()), [a, b, c]);
        assert_eq!(ids(address.in_turn()), [b, c, a]);
        address.go(b);
        assert_eq!(ids(address.in_turn()), [a, c]);
        address.go(b);
        assert_eq!(ids(address.in_turn()), [c, a]);
    }

    #[test]
    fn who_stays_is_not_passed_over_when_others_come_and_go() {
        for gone in 0..4 {
            for after in 0..4 {
                let address = Address::new();
                let actors = [(); 4].map(|()| actor());
                actors.iter().for_each(|actor| address.come(actor.clone()));
                address.members.turn.store(2, Ordering::Relaxed);
                let mut round = address.in_turn();
                let mut seen = ids(round.by_ref().take(after));
                address.go(actors[gone].id());
                let newcomer = actor();
                address.come(newcomer.clone());
                seen.extend(ids(round));
                let others = actors.iter().enumerate().filter(|(at, _)| *at != gone);
                for (at, other) in others {
                    let times = seen.iter().filter(|id| **id == other.id()).count();
                    assert_eq!(times, 1, "{at}, with {gone} gone after {after}: {seen:?}");
                }
                assert!(seen.iter().filter(|id| **id == newcomer.id()).count() <= 1);
            }
        }
    }
}
