//! Who wants to hear of an actor's end.

use core::convert::Infallible;

use super::exit::Down;
use crate::lock::Mutex;
use crate::promise::{Eventual, Promise, promise};
use crate::runtime::contained;

/// What is done at an actor's end before its watchers hear of it.
pub(super) type Hook = Box<dyn FnOnce(&Down) + Send>;

/// One who wants to hear of it.
enum Watcher {
    /// Somebody with an eventual.
    Promise(Promise<Down, Infallible>),
    /// An actor, which gets it as a message.
    Actor(Box<dyn Hears>),
}

/// An actor that watches, whatever its messages are.
pub(super) trait Hears: Send {
    /// Whether it is over itself.
    fn is_gone(&self) -> bool;
    fn hear(self: Box<Self>, down: Down);
}

impl Watcher {
    fn is_gone(&self) -> bool {
        match self {
            Self::Promise(promise) => promise.is_cancelled(),
            Self::Actor(actor) => actor.is_gone(),
        }
    }

    fn tell(self, down: Down) {
        match self {
            // Refused if nobody waits any more. What waits is foreign; a panic in it does not come here.
            Self::Promise(promise) => drop(promise.set(down)),
            Self::Actor(actor) => _ = contained(move || actor.hear(down)),
        }
    }
}

/// A list that closes with the actor. The lock is the protocol: who comes before the end is in the list,
/// who comes after finds the notice.
#[derive(Debug)]
pub(super) struct Watchers(Mutex<State>);

enum State {
    Alive { hooks: Vec<Hook>, watchers: Vec<Watcher> },
    Dead(Down),
}

impl core::fmt::Debug for State {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Alive { watchers, .. } => write!(f, "Alive({} watchers)", watchers.len()),
            Self::Dead(down) => f.debug_tuple("Dead").field(down).finish(),
        }
    }
}

impl Watchers {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State::Alive { hooks: Vec::new(), watchers: Vec::new() }))
    }

    /// A notice to come, or the one that has come.
    pub(super) fn watch(&self) -> Eventual<Down, Infallible> {
        let (notice, eventual) = promise();
        self.enter(Watcher::Promise(notice));
        eventual
    }

    /// The same for an actor.
    pub(super) fn watch_for(&self, actor: Box<dyn Hears>) {
        self.enter(Watcher::Actor(actor));
    }

    fn enter(&self, watcher: Watcher) {
        let mut state = self.0.lock();
        match &mut *state {
            State::Alive { watchers, .. } => {
                // Who lost interest is let go of, so that a list of a long life stays short. Those that are
                // found are dropped after the lock: a drop tells the other side.
                let mut left = Vec::new();
                if watchers.len() >= 16 && watchers.len().is_power_of_two() {
                    (left, *watchers) =
                        core::mem::take(watchers).into_iter().partition(Watcher::is_gone);
                }
                watchers.push(watcher);
                drop(state);
                // Each by itself: of two that panic in one drop the second would end the process.
                for watcher in left {
                    contained(move || drop(watcher));
                }
            }
            State::Dead(down) => {
                let down = down.clone();
                drop(state);
                watcher.tell(down);
            }
        }
    }

    /// Has `hook` run before the watchers hear of the end. False: it is over already; the hook is dropped.
    pub(super) fn before_notices(&self, hook: Hook) -> bool {
        let mut state = self.0.lock();
        if let State::Alive { hooks, .. } = &mut *state {
            hooks.push(hook);
            return true;
        }
        drop(state);
        drop(hook);
        false
    }

    /// The actor's end. Once.
    pub(super) fn tell(&self, down: &Down) {
        // Hooks first, and until there are none: a name is free before anybody hears that it may be.
        let watchers = loop {
            let mut state = self.0.lock();
            let State::Alive { hooks, watchers } = &mut *state else { return };
            if hooks.is_empty() {
                let watchers = core::mem::take(watchers);
                *state = State::Dead(down.clone());
                break watchers;
            }
            let hooks = core::mem::take(hooks);
            drop(state);
            for hook in hooks {
                contained(|| hook(down));
            }
        };
        for watcher in watchers {
            watcher.tell(down.clone());
        }
    }

    /// The notice, if it is there.
    pub(super) fn down(&self) -> Option<Down> {
        match &*self.0.lock() {
            State::Alive { .. } => None,
            State::Dead(down) => Some(down.clone()),
        }
    }
}
