//! Where the current incarnation of a child is reached.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use crate::lock::Mutex;
use crate::promise::{Eventual, failed};
use crate::supervise::actor::{ActorId, ActorRef, AskError, Reply, TellError, TryTellError};
use crate::sync::atomic::{AtomicUsize, Ordering};

/// A fixed place where a supervised actor is reached, whichever incarnation it is; or several, who take turns.
///
/// An [`ActorRef`] means one incarnation, and is of no use after its end; an address is given to
/// [`ChildSpec::at`](super::ChildSpec::at), and each incarnation comes there when it has started. While there is
/// none, what is sent comes back as [`Stopped`](TryTellError::Stopped): nothing is kept for the next one.
/// Clones are the same address.
///
/// With several members (of a [group](super::ChildSpec::group), or several children at one address) the next
/// one in turn gets the message; one that is full or down is passed over.
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
    places: Arc<Places<M>>,
}

struct Places<M: Send + 'static> {
    members: Mutex<Vec<Option<ActorRef<M>>>>,
    next: AtomicUsize,
}

/// One member's place at an address.
pub(super) struct Place<M: Send + 'static> {
    places: Arc<Places<M>>,
    index: usize,
}

impl<M: Send + 'static> Address<M> {
    /// One where nobody is yet.
    #[must_use]
    pub fn new() -> Self {
        let places = Places { members: Mutex::new(Vec::new()), next: AtomicUsize::new(0) };
        Self { places: Arc::new(places) }
    }

    pub(super) fn take_place(&self) -> Place<M> {
        let mut members = self.places.members.lock();
        members.push(None);
        let index = members.len() - 1;
        drop(members);
        Place { places: Arc::clone(&self.places), index }
    }

    /// Those who are there now.
    #[must_use]
    pub fn members(&self) -> Vec<ActorRef<M>> {
        self.places.members.lock().iter().flatten().cloned().collect()
    }

    /// The one whose turn it is; passing over those who take no messages.
    #[must_use]
    pub fn current(&self) -> Option<ActorRef<M>> {
        self.in_turn().next()
    }

    /// Each member that is open, once, beginning with the one whose turn it is.
    fn in_turn(&self) -> impl Iterator<Item = ActorRef<M>> {
        // ORDERING: Relaxed: turns, nothing else.
        let first = self.places.next.fetch_add(1, Ordering::Relaxed);
        let count = self.places.members.lock().len();
        (0..count).filter_map(move |offset| {
            // Cloned out: what a reference does when it is dropped may be foreign.
            let members = self.places.members.lock();
            let member = members.get(first.wrapping_add(offset) % count).cloned().flatten();
            drop(members);
            member.filter(|member| member.phase().is_open())
        })
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

impl<M: Send + 'static> Place<M> {
    /// An incarnation has started.
    pub(super) fn come(&self, actor: ActorRef<M>) {
        let former = self.places.members.lock()[self.index].replace(actor);
        drop(former);
    }

    /// It has ended. (Another one may be there by now.)
    pub(super) fn go(&self, id: ActorId) {
        let mut members = self.places.members.lock();
        let member = &mut members[self.index];
        let gone = if member.as_ref().is_some_and(|m| m.id() == id) { member.take() } else { None };
        drop(members);
        drop(gone);
    }
}

impl<M: Send + 'static> Clone for Place<M> {
    fn clone(&self) -> Self {
        Self { places: Arc::clone(&self.places), index: self.index }
    }
}

impl<M: Send + 'static> Default for Address<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Send + 'static> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { places: Arc::clone(&self.places) }
    }
}

impl<M: Send + 'static> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.members()).finish()
    }
}
