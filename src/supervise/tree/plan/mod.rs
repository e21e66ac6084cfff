//! What a supervisor decides: pure, without children, threads or a clock of its own.
//!
//! It says for each child what should be, and steps towards that: first what has to stop stops, in reverse
//! order; then what should be up is started, in order. So whatever happens in the middle of something only
//! changes what should be. What is wanted changes here, what is heard of the children in `heard.rs`, and the step
//! is in `step.rs`.
//!
//! ```text
//!            start                 ready
//!   Down ───────────► Starting ───────────► Up
//!    ▲                  │   │                │ │
//!    │    exited        │   │ stop           │ │ stop
//!    ├──────────────────┘   ▼                │ │
//!    ├───────────────── Stopping ◄───────────│─┘
//!    │    exited            │ overdue        │
//!    ├───────────────── Abandoned            │
//!    └───────────────────────────────────────┘ exited: a fault, or its own end
//! ```
//!
//! - **P1** A child's next incarnation is started only from Down (or, where the child says that it may
//!   overlap, from Abandoned): so no two of them overlap.
//! - **P2** A notice of an incarnation that is not the current one changes nothing.
//! - **P3** With OneForAll and RestForOne nothing is started while something has yet to stop.

mod heard;
mod step;
#[cfg(test)]
mod tests;

use core::time::Duration;

use super::spec::{AutoShutdown, Restart, Strategy};
use super::window::Window;
use crate::clock::Timestamp;
use crate::retry::RetryPolicy;

/// Which child, for as long as it is in the list.
pub(super) type Key = u64;

/// What a child is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    pub(super) restart: Restart,
    pub(super) significant: bool,
    pub(super) overlaps: bool,
}

/// How a child stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Status {
    Down,
    Starting,
    Up,
    Stopping,
    Abandoned,
}

#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) key: Key,
    pub(super) traits: Traits,
    pub(super) status: Status,
    /// Counts its starts.
    pub(super) incarnation: u64,
    /// Former incarnations that were left behind and have not ended.
    pub(super) left_behind: u32,
    pub(super) restarts: u64,
    pub(super) stuck: bool,
    /// It should be up.
    pub(super) wanted: bool,
    /// Not started before this.
    pub(super) not_before: Timestamp,
    /// It has to stop first, whatever else.
    marked: bool,
    /// It goes out of the list once it is down.
    doomed: bool,
    /// It was there from the beginning: if its first start fails, the supervisor's does.
    initial: bool,
    proven: bool,
    up_since: Timestamp,
    /// Faults in a row, with less than a period up between them, and the delay of the last.
    streak: u32,
    delay: Duration,
}

/// How the supervisor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Starting,
    Running,
    Stopping,
    Over,
}

/// Which children a restart takes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// The child alone.
    One,
    /// It and those started after it.
    Rest,
    /// All.
    All,
}

/// Why a supervisor ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    GaveUp,
    AutoShutdown,
    StartFailed,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Start this incarnation.
    Start { key: Key, incarnation: u64 },
    /// Tell it to stop, and say when it is overdue.
    Stop { key: Key, incarnation: u64 },
    /// Step again at this time.
    Wake { at: Timestamp },
    /// A child ended, and is started again.
    Restarts { scope: Scope, delay: Duration },
    /// A child ended, and is not: it stays in the list, or is out.
    Ended { removed: bool },
    /// A child did not start, and is out.
    NotAdded,
    /// It did not stop in time.
    Abandoned,
    /// The supervisor ends, because of the child that this is about.
    Closes(Closing),
    /// A child is out of the list.
    Gone { key: Key },
    /// All are up, for the first time.
    Ready,
    /// All are down.
    Over,
}

/// See the [file's docs](self).
#[derive(Clone, Debug)]
pub(super) struct Plan {
    strategy: Strategy,
    auto: AutoShutdown,
    window: Window,
    backoff: Option<RetryPolicy>,
    random: fastrand::Rng,
    phase: Phase,
    children: Vec<Child>,
    next: Key,
    restarts: u64,
}

impl Plan {
    pub(super) fn new(
        strategy: Strategy,
        auto: AutoShutdown,
        window: Window,
        backoff: Option<RetryPolicy>,
        seed: u64,
    ) -> Self {
        Self {
            strategy,
            auto,
            window,
            backoff,
            random: fastrand::Rng::with_seed(seed),
            phase: Phase::Starting,
            children: Vec::new(),
            next: 0,
            restarts: 0,
        }
    }

    pub(super) fn children(&self) -> &[Child] {
        &self.children
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn strategy(&self) -> Strategy {
        self.strategy
    }

    pub(super) fn auto_shutdown(&self) -> AutoShutdown {
        self.auto
    }

    pub(super) fn window(&self) -> &Window {
        &self.window
    }

    pub(super) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Keys are given in order, and children leave without changing it.
    fn find(&self, key: Key) -> Option<usize> {
        self.children.binary_search_by_key(&key, |child| child.key).ok()
    }

    pub(super) fn child(&self, key: Key) -> Option<&Child> {
        self.find(key).map(|at| &self.children[at])
    }

    // --- what is wanted -------------------------------------------------------------------------

    /// One more, at the end. It is started with the next step.
    pub(super) fn add(&mut self, traits: Traits, initial: bool) -> Key {
        let key = self.next;
        self.next += 1;
        self.children.push(Child {
            key,
            traits,
            status: Status::Down,
            incarnation: 0,
            left_behind: 0,
            restarts: 0,
            stuck: false,
            wanted: true,
            not_before: Timestamp::ORIGIN,
            marked: false,
            doomed: false,
            initial,
            proven: false,
            up_since: Timestamp::ORIGIN,
            streak: 0,
            delay: Duration::ZERO,
        });
        key
    }

    /// It should be down, and stay in the list, or not.
    pub(super) fn put_down(&mut self, key: Key, remove: bool, acts: &mut Vec<Act>) {
        let Some(at) = self.find(key) else { return };
        self.children[at].wanted = false;
        self.children[at].doomed |= remove;
        if self.children[at].status == Status::Down && remove {
            self.take_out(at, acts);
        }
    }

    /// It should be up, anew.
    pub(super) fn renew(&mut self, key: Key) {
        let Some(at) = self.find(key) else { return };
        let child = &mut self.children[at];
        child.wanted = true;
        child.not_before = Timestamp::ORIGIN;
        child.marked = matches!(child.status, Status::Starting | Status::Up);
    }

    /// All should be down.
    pub(super) fn stop(&mut self) {
        if self.phase != Phase::Over {
            self.phase = Phase::Stopping;
        }
    }

    fn take_out(&mut self, at: usize, acts: &mut Vec<Act>) {
        let child = self.children.remove(at);
        acts.push(Act::Gone { key: child.key });
    }
}
