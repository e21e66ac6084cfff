//! Actors by name.

use core::any::Any;
use core::fmt;
use std::collections::HashMap;
use std::sync::Arc as StdArc;

use thiserror::Error as ThisError;

use super::ActorId;
use super::reference::ActorRef;
use super::word::Phase;
use crate::lock::Mutex;

/// Where actors are found by name. Clones are the same registry. There may be several.
///
/// A name belongs to at most one actor that takes messages. It is given back when that actor stops, before
/// its watchers, its supervisor among them, hear of the end: so the next incarnation finds it free, and
/// nobody finds the former one under it. An entry counts as a reference: a registered actor does not stop
/// because others let go of it.
///
/// ```
/// use tenure::supervise::{self, Actor, Ctx, Registry};
///
/// struct Echo;
/// impl Actor for Echo {
///     type Message = String;
///     fn handle(&mut self, said: String, _: &mut Ctx<String>) -> supervise::Handled {
///         println!("{said}");
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = tenure::Runtime::builder().workers(1).build()?;
/// let registry = Registry::new();
/// let echo = supervise::actor(Echo).spawn(&runtime)?;
/// registry.register("echo", &echo)?;
///
/// let found = registry.lookup::<String>("echo").ok_or("nobody")?;
/// assert_eq!(found, echo);
/// assert!(registry.lookup::<u32>("echo").is_none(), "it takes no numbers");
/// echo.stop();
/// echo.watch().get()?;
/// assert!(registry.lookup::<String>("echo").is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    names: StdArc<Names>,
}

struct Names(Mutex<Book>);

impl Default for Names {
    fn default() -> Self {
        Self(Mutex::new(Book::default()))
    }
}

/// An actor's names are those under which its entry stands: each is in both maps or in none.
#[derive(Default)]
struct Book {
    entries: HashMap<StdArc<str>, Entry>,
    /// What each actor gives back at its end, which it has promised once. Stays while it lives.
    owned: HashMap<ActorId, Vec<StdArc<str>>>,
}

struct Entry {
    id: ActorId,
    actor: Box<dyn Named>,
}

/// An actor's reference, whatever it takes.
trait Named: Send + Sync {
    fn phase(&self) -> Phase;
    fn as_any(&self) -> &dyn Any;
}

impl<M: Send + 'static> Named for ActorRef<M> {
    fn phase(&self) -> Phase {
        self.phase()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Why a name was not given.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum RegisterError {
    /// It is another actor's, which still takes messages.
    #[error("the name \"{name}\" is taken by actor {by}")]
    Taken {
        /// The name.
        name: StdArc<str>,
        /// Whose it is.
        by: ActorId,
    },
    /// The actor to be registered takes no more messages.
    #[error("an actor that has stopped gets no name")]
    Stopped,
}

impl Book {
    /// Gives the name, which is nobody's, to an actor. True: it is its first one.
    fn give(&mut self, name: StdArc<str>, entry: Entry) -> bool {
        let first = !self.owned.contains_key(&entry.id);
        self.owned.entry(entry.id).or_default().push(StdArc::clone(&name));
        self.entries.insert(name, entry);
        first
    }

    fn take(&mut self, name: &str) -> Option<Entry> {
        let entry = self.entries.remove(name)?;
        if let Some(names) = self.owned.get_mut(&entry.id) {
            names.retain(|its| **its != *name);
        }
        Some(entry)
    }
}

impl Names {
    /// Takes all that an actor has, at its end.
    fn take_all(&self, id: ActorId) -> Vec<Entry> {
        let mut book = self.0.lock();
        let names = book.owned.remove(&id).unwrap_or_default();
        names.iter().filter_map(|name| book.entries.remove(name)).collect()
    }
}

impl Registry {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives an actor a name, until it stops. It may have several.
    ///
    /// # Errors
    /// [`RegisterError`]: the name is taken, or the actor has stopped.
    pub fn register<M: Send + 'static>(
        &self,
        name: impl Into<StdArc<str>>,
        actor: &ActorRef<M>,
    ) -> Result<(), RegisterError> {
        let name = name.into();
        let entry = Entry { id: actor.id(), actor: Box::new(actor.clone()) };
        let mut book = self.names.0.lock();
        match book.entries.get(&name) {
            Some(other) if other.id == actor.id() => {
                drop(book);
                return Ok(());
            }
            Some(other) if other.actor.phase().is_open() => {
                let by = other.id;
                drop(book);
                return Err(RegisterError::Taken { name, by });
            }
            _ => {}
        }
        let former = book.take(&name);
        let first = book.give(name, entry);
        drop(book);
        // A reference's drop may wake its actor, and so run foreign code.
        drop(former);
        if !first {
            return Ok(());
        }
        let (held, id) = (StdArc::downgrade(&self.names), actor.id());
        let hook = move |_: &super::Down| {
            if let Some(names) = held.upgrade() {
                drop(names.take_all(id));
            }
        };
        if actor.core().watchers.before_notices(Box::new(hook)) {
            return Ok(());
        }
        // It was over before it could promise to give its names back.
        drop(self.names.take_all(id));
        Err(RegisterError::Stopped)
    }

    /// The actor of that name, if it takes messages of type `M` and has not stopped.
    #[must_use]
    pub fn lookup<M: Send + 'static>(&self, name: &str) -> Option<ActorRef<M>> {
        let book = self.names.0.lock();
        let entry = book.entries.get(name)?;
        if !entry.actor.phase().is_open() {
            return None;
        }
        entry.actor.as_any().downcast_ref::<ActorRef<M>>().cloned()
    }

    /// Takes the name from the actor that has it. False: nobody has. (The actor goes on; if this was the
    /// last reference, it stops.)
    pub fn unregister(&self, name: &str) -> bool {
        let entry = self.names.0.lock().take(name);
        entry.is_some()
    }

    /// The same, if it is this actor that has it.
    pub(crate) fn unregister_own(&self, name: &str, id: ActorId) {
        let mut book = self.names.0.lock();
        let is_its_own = book.entries.get(name).is_some_and(|entry| entry.id == id);
        let entry = if is_its_own { book.take(name) } else { None };
        drop(book);
        // As above: not under the lock.
        drop(entry);
    }

    /// All names that lead to an actor, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<StdArc<str>> {
        let book = self.names.0.lock();
        let mut all: Vec<_> = book
            .entries
            .iter()
            .filter(|(_, entry)| entry.actor.phase().is_open())
            .map(|(name, _)| StdArc::clone(name))
            .collect();
        drop(book);
        all.sort_unstable();
        all
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.names()).finish()
    }
}
