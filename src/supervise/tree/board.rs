//! Where a supervisor's plan hangs for all to see, and the snapshot that is taken of it.
//!
//! The supervisor changes it, in its turns; whoever wants a snapshot reads it, without asking the supervisor,
//! which may be stuck or over. Under the lock there is no foreign code: what is called or dropped is taken out
//! first.

use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use super::kinds::{ChildKind, Run};
use super::plan::{Key, Phase, Plan, Status, Traits};
use super::spec::{ChildSpec, Restart, Strategy};
use crate::lock::Mutex;

/// See the [file's docs](self).
pub(crate) struct Board {
    name: Arc<str>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) plan: Plan,
    pub(super) listed: HashMap<Key, Listed>,
    /// Their keys. No two have the same name.
    pub(super) names: HashMap<Arc<str>, Key>,
    /// The supervisor itself is gone.
    pub(super) over: bool,
}

/// A child, beside what the plan knows of it.
pub(super) struct Listed {
    pub(super) spec: ChildSpec,
    pub(super) run: Option<Arc<dyn Run>>,
    pub(super) last_exit: Option<Arc<str>>,
}

impl State {
    /// One more child, at the end.
    pub(super) fn list(&mut self, spec: ChildSpec, traits: Traits, initial: bool) -> Key {
        let key = self.plan.add(traits, initial);
        self.names.insert(Arc::clone(&spec.common.name), key);
        self.listed.insert(key, Listed { spec, run: None, last_exit: None });
        key
    }

    /// A child is off the list.
    #[must_use]
    pub(super) fn unlist(&mut self, key: Key) -> Option<Listed> {
        let listed = self.listed.remove(&key)?;
        self.names.remove(&listed.spec.common.name);
        Some(listed)
    }
}

impl Board {
    pub(super) fn new(name: Arc<str>, plan: Plan) -> Self {
        let (listed, names) = (HashMap::new(), HashMap::new());
        Self { name, state: Mutex::new(State { plan, listed, names, over: false }) }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// No foreign code inside.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.lock())
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let (mut snapshot, runs) = self.with(|state| {
            let State { plan, listed, over, .. } = state;
            let mut children = Vec::new();
            let mut runs = Vec::new();
            for child in plan.children() {
                let Some(its) = listed.get(&child.key) else { continue };
                runs.push(its.run.clone());
                children.push(ChildSnapshot {
                    name: Arc::clone(&its.spec.common.name),
                    kind: its.spec.kind.0.kind(),
                    restart: child.traits.restart,
                    significant: child.traits.significant,
                    state: ChildState::of(child.status, child.wanted),
                    is_stuck: child.stuck,
                    incarnation: child.incarnation,
                    restarts: child.restarts,
                    left_behind: child.left_behind,
                    last_exit: its.last_exit.clone(),
                    waiting: None,
                    subtree: None,
                });
            }
            let window = plan.window();
            let state = match plan.phase() {
                _ if *over => SupervisorState::Stopped,
                Phase::Starting => SupervisorState::Starting,
                Phase::Running => SupervisorState::Running,
                Phase::Stopping => SupervisorState::Stopping,
                Phase::Over => SupervisorState::Stopped,
            };
            let snapshot = Snapshot {
                name: Arc::clone(&self.name),
                strategy: plan.strategy(),
                intensity: (window.max(), window.period()),
                state,
                restarts: plan.restarts(),
                children,
            };
            (snapshot, runs)
        });
        for (child, run) in snapshot.children.iter_mut().zip(runs) {
            if let Some(run) = run {
                child.waiting = run.waiting();
                child.subtree = run.subtree().map(|board| board.snapshot());
            }
        }
        snapshot
    }
}

/// How a supervisor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SupervisorState {
    /// Its children are being started.
    Starting,
    /// All were up once.
    Running,
    /// Its children are being stopped.
    Stopping,
    /// Over.
    Stopped,
}

impl fmt::Display for SupervisorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        })
    }
}

/// How a child stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChildState {
    /// Down, and not to be started: it has come to its own end, or was [stopped](super::Supervisor::stop_child).
    Down,
    /// Down, and to be started: when its delay is over, or when those before it are up.
    Waiting,
    /// Started, and not up yet.
    Starting,
    /// Up.
    Up,
    /// Told to stop.
    Stopping,
    /// Told to stop, and did not in time. It may still be running.
    Abandoned,
}

impl ChildState {
    fn of(status: Status, wanted: bool) -> Self {
        match status {
            Status::Down if wanted => Self::Waiting,
            Status::Down => Self::Down,
            Status::Starting => Self::Starting,
            Status::Up => Self::Up,
            Status::Stopping => Self::Stopping,
            Status::Abandoned => Self::Abandoned,
        }
    }
}

impl fmt::Display for ChildState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Stopping => "stopping",
            Self::Abandoned => "abandoned",
        })
    }
}

/// A supervisor and what is below it, as it was a moment ago. Its `Display` draws the tree.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// Its name.
    pub name: Arc<str>,
    /// Who is started again when a child fails.
    pub strategy: Strategy,
    /// How many restarts are allowed in how much time.
    pub intensity: (u32, Duration),
    /// How it stands.
    pub state: SupervisorState,
    /// How many failures it has answered with a restart, or by giving up.
    pub restarts: u64,
    /// Its children, in the order of their start.
    pub children: Vec<ChildSnapshot>,
}

/// A child, as it was a moment ago.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChildSnapshot {
    /// Its name.
    pub name: Arc<str>,
    /// What it is.
    pub kind: ChildKind,
    /// When it is started again.
    pub restart: Restart,
    /// Whether its own end counts for the supervisor's.
    pub significant: bool,
    /// How it stands.
    pub state: ChildState,
    /// Whether the runtime took it for stuck: it has not come back from a call.
    pub is_stuck: bool,
    /// How often it was started.
    pub incarnation: u64,
    /// How often it failed and was to be started again.
    pub restarts: u64,
    /// Former incarnations that were abandoned, replaced, and have not ended.
    pub left_behind: u32,
    /// How its last incarnation ended.
    pub last_exit: Option<Arc<str>>,
    /// How many messages wait in its mailbox, about; of an actor that is up.
    pub waiting: Option<usize>,
    /// What is below it; of a supervisor or a group that is up.
    pub subtree: Option<Snapshot>,
}

impl Snapshot {
    /// The child of that name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&ChildSnapshot> {
        self.children.iter().find(|child| &*child.name == name)
    }

    /// Children anywhere below that were abandoned or left behind and may still run, with their paths.
    #[must_use]
    pub fn abandoned(&self) -> Vec<String> {
        let mut found = Vec::new();
        for child in &self.children {
            let path = format!("{}/{}", self.name, child.name);
            let here = u32::from(child.state == ChildState::Abandoned) + child.left_behind;
            found.extend((0..here).map(|_| path.clone()));
            if let Some(subtree) = &child.subtree {
                found.extend(
                    subtree.abandoned().iter().map(|below| format!("{}/{below}", self.name)),
                );
            }
        }
        found
    }

    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (most, period) = self.intensity;
        write!(f, "{}, {most} restarts in {period:?}, {}", self.strategy, self.state)?;
        if self.restarts > 0 {
            write!(f, ", {} so far", self.restarts)?;
        }
        Ok(())
    }

    fn branches(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        for (at, child) in self.children.iter().enumerate() {
            let last = at + 1 == self.children.len();
            writeln!(f)?;
            write!(f, "{indent}{} ", if last { "└─" } else { "├─" })?;
            child.line(f)?;
            if let Some(subtree) = &child.subtree {
                f.write_str("; ")?;
                subtree.head(f)?;
                let deeper = format!("{indent}{}", if last { "   " } else { "│  " });
                subtree.branches(f, &deeper)?;
            }
        }
        Ok(())
    }
}

impl ChildSnapshot {
    fn line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {}", self.name, self.kind, self.restart)?;
        if self.significant {
            f.write_str(", significant")?;
        }
        write!(f, ") {}", self.state)?;
        if self.is_stuck {
            f.write_str(", stuck")?;
        }
        if self.incarnation > 0 {
            write!(f, " #{}", self.incarnation)?;
        }
        if self.left_behind > 0 {
            write!(f, ", {} left behind", self.left_behind)?;
        }
        if let Some(waiting) = self.waiting.filter(|waiting| *waiting > 0) {
            write!(f, ", {waiting} messages")?;
        }
        if let Some(exit) = &self.last_exit {
            write!(f, ", before: {exit}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        self.head(f)?;
        self.branches(f, "")
    }
}
