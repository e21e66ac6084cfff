//! What a supervisor decides: pure, without children, threads or a clock of its own.
//!
//! It says for each child what should be, and steps towards that: first what has to stop stops, in reverse
//! order; then what should be up is started, in order. So whatever happens in the middle of something only
//! changes what should be.
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

    fn find(&mut self, key: Key) -> Option<usize> {
        self.children.iter().position(|child| child.key == key)
    }

    pub(super) fn child(&self, key: Key) -> Option<&Child> {
        self.children.iter().find(|child| child.key == key)
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

    // --- what happens ---------------------------------------------------------------------------

    /// A child is up.
    pub(super) fn ready(&mut self, key: Key, incarnation: u64, now: Timestamp) {
        let Some(at) = self.find(key) else { return };
        let child = &mut self.children[at];
        if child.incarnation == incarnation && child.status == Status::Starting {
            child.status = Status::Up;
            child.up_since = now;
            child.proven = true;
        }
    }

    /// The runtime took it for stuck. True: it is the current incarnation.
    pub(super) fn stuck(&mut self, key: Key, incarnation: u64) -> bool {
        let Some(at) = self.find(key) else { return false };
        let child = &mut self.children[at];
        let is_current = child.incarnation == incarnation && child.status != Status::Down;
        child.stuck |= is_current;
        is_current
    }

    /// Its time to stop is over.
    pub(super) fn overdue(&mut self, key: Key, incarnation: u64, acts: &mut Vec<Act>) {
        let Some(at) = self.find(key) else { return };
        let child = &mut self.children[at];
        if child.incarnation == incarnation && child.status == Status::Stopping {
            child.status = Status::Abandoned;
            acts.push(Act::Abandoned);
        }
    }

    /// A child has ended.
    pub(super) fn exited(
        &mut self,
        key: Key,
        incarnation: u64,
        abnormal: bool,
        now: Timestamp,
        acts: &mut Vec<Act>,
    ) {
        let Some(at) = self.find(key) else { return };
        let child = &mut self.children[at];
        if child.incarnation != incarnation {
            // One that was left behind.
            child.left_behind = child.left_behind.saturating_sub(1);
            return;
        }
        let was = core::mem::replace(&mut child.status, Status::Down);
        child.stuck = false;
        let expected = self.phase == Phase::Stopping
            || child.marked
            || !child.wanted
            || matches!(was, Status::Stopping | Status::Abandoned);
        child.marked = false;
        match was {
            Status::Down => {}
            _ if expected => {
                if child.doomed {
                    self.take_out(at, acts);
                }
            }
            Status::Starting if !child.proven && child.initial => {
                self.phase = Phase::Stopping;
                acts.push(Act::Closes(Closing::StartFailed));
            }
            Status::Starting if !child.proven => {
                acts.push(Act::NotAdded);
                self.take_out(at, acts);
            }
            // It has been up before: whatever it is, it was to be started again.
            Status::Starting => self.restart(at, now, acts),
            Status::Up | Status::Stopping | Status::Abandoned => match child.traits.restart {
                Restart::Permanent => self.restart(at, now, acts),
                Restart::Transient if abnormal => self.restart(at, now, acts),
                Restart::Transient => self.ended(at, false, acts),
                Restart::Temporary => self.ended(at, true, acts),
            },
        }
    }

    /// It came to its own end.
    fn ended(&mut self, at: usize, remove: bool, acts: &mut Vec<Act>) {
        acts.push(Act::Ended { removed: remove });
        let significant = self.children[at].traits.significant;
        self.children[at].wanted = false;
        if remove {
            self.take_out(at, acts);
        }
        let others = || self.children.iter().any(|child| child.traits.significant && child.wanted);
        let closes = match self.auto {
            AutoShutdown::Never => false,
            AutoShutdown::AnySignificant => significant,
            AutoShutdown::AllSignificant => significant && !others(),
        };
        if closes {
            self.phase = Phase::Stopping;
            acts.push(Act::Closes(Closing::AutoShutdown));
        }
    }

    fn restart(&mut self, at: usize, now: Timestamp, acts: &mut Vec<Act>) {
        self.restarts += 1;
        if !self.window.admit(now) {
            self.phase = Phase::Stopping;
            acts.push(Act::Closes(Closing::GaveUp));
            return;
        }
        let period = self.window.period();
        let child = &mut self.children[at];
        child.restarts += 1;
        if now.saturating_since(child.up_since) >= period {
            child.streak = 0;
            child.delay = Duration::ZERO;
        }
        child.streak = child.streak.saturating_add(1);
        child.delay = self.backoff.map_or(Duration::ZERO, |policy| {
            policy.delay(child.streak, child.delay, &mut self.random)
        });
        let delay = child.delay;
        let not_before = if delay.is_zero() { now } else { now.saturating_add(delay) };
        let (scope, others) = match self.strategy {
            Strategy::OneForOne | Strategy::Dynamic => (Scope::One, at..at + 1),
            Strategy::RestForOne => (Scope::Rest, at..self.children.len()),
            Strategy::OneForAll => (Scope::All, 0..self.children.len()),
        };
        acts.push(Act::Restarts { scope, delay });
        for (index, child) in self.children.iter_mut().enumerate() {
            if !others.contains(&index) {
                continue;
            }
            if index != at && child.traits.restart == Restart::Temporary {
                // Never started again; one that is taken down goes out of the list.
                if child.status != Status::Down {
                    child.wanted = false;
                    child.doomed = true;
                }
                continue;
            }
            child.wanted = !child.doomed;
            child.not_before = child.not_before.max(not_before);
            child.marked = matches!(child.status, Status::Starting | Status::Up);
        }
    }

    // --- the step ---------------------------------------------------------------------------------

    /// Does what can be done now. Call it after each of the above, and when the time of a `Wake` has come.
    pub(super) fn step(&mut self, now: Timestamp, acts: &mut Vec<Act>) {
        let closing = match self.phase {
            Phase::Over => return,
            Phase::Stopping => true,
            Phase::Starting | Phase::Running => false,
        };
        let in_order = matches!(self.strategy, Strategy::OneForAll | Strategy::RestForOne);
        let one_by_one = in_order || (closing && self.strategy != Strategy::Dynamic);
        let mut busy = false;
        for child in self.children.iter_mut().rev() {
            let must_stop = closing || child.marked || !child.wanted;
            match child.status {
                Status::Stopping => busy = true,
                Status::Starting | Status::Up if must_stop => {
                    child.status = Status::Stopping;
                    acts.push(Act::Stop { key: child.key, incarnation: child.incarnation });
                    busy = true;
                }
                Status::Starting | Status::Up | Status::Down | Status::Abandoned => {}
            }
            if busy && one_by_one {
                break;
            }
        }
        if closing {
            if !busy {
                self.phase = Phase::Over;
                acts.push(Act::Over);
            }
            return;
        }
        if busy && in_order {
            return;
        }
        let in_order = in_order || self.phase == Phase::Starting;
        let mut wake: Option<Timestamp> = None;
        let mut all_up = true;
        for child in &mut self.children {
            if !child.wanted {
                continue;
            }
            let may_start = match child.status {
                Status::Up => continue,
                Status::Starting | Status::Stopping => false,
                Status::Abandoned => child.traits.overlaps,
                Status::Down => true,
            };
            all_up = false;
            if may_start && child.not_before <= now {
                child.left_behind += u32::from(child.status == Status::Abandoned);
                child.status = Status::Starting;
                child.stuck = false;
                child.marked = false;
                child.incarnation += 1;
                acts.push(Act::Start { key: child.key, incarnation: child.incarnation });
            } else if may_start {
                wake = Some(wake.map_or(child.not_before, |at| at.min(child.not_before)));
            }
            if in_order {
                break;
            }
        }
        if let Some(at) = wake.filter(|at| !at.is_never()) {
            acts.push(Act::Wake { at });
        }
        if all_up && self.phase == Phase::Starting {
            self.phase = Phase::Running;
            acts.push(Act::Ready);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Children that do what chance says, and a check that the plan never asks for what cannot be.
    struct World {
        plan: Plan,
        alive: HashMap<Key, u64>,
        told: HashMap<Key, u64>,
        now: Timestamp,
        over: bool,
        random: fastrand::Rng,
    }

    impl World {
        fn new(strategy: Strategy, seed: u64) -> Self {
            let window = Window::new(seed as u32 % 40, Duration::from_secs(5));
            let plan = Plan::new(strategy, AutoShutdown::Never, window, None, seed);
            Self {
                plan,
                alive: HashMap::new(),
                told: HashMap::new(),
                now: Timestamp::ORIGIN,
                over: false,
                random: fastrand::Rng::with_seed(seed),
            }
        }

        fn follow(&mut self, change: impl FnOnce(&mut Plan, Timestamp, &mut Vec<Act>)) {
            let mut acts = Vec::new();
            change(&mut self.plan, self.now, &mut acts);
            self.plan.step(self.now, &mut acts);
            for act in acts {
                match act {
                    Act::Start { key, incarnation } => {
                        assert!(!self.over, "a start after the end");
                        let before = self.alive.insert(key, incarnation);
                        assert_eq!(before, None, "two incarnations of {key} at once");
                    }
                    Act::Stop { key, incarnation } => {
                        assert_eq!(self.alive.get(&key), Some(&incarnation), "a stop of nobody");
                        let before = self.told.insert(key, incarnation);
                        assert_ne!(before, Some(incarnation), "told twice");
                    }
                    Act::Gone { key } => {
                        assert!(!self.alive.contains_key(&key), "{key} goes while it runs");
                    }
                    Act::Over => {
                        assert!(!core::mem::replace(&mut self.over, true), "over twice");
                    }
                    _ => {}
                }
            }
        }

        fn end(&mut self, key: Key, abnormal: bool) {
            if let Some(incarnation) = self.alive.remove(&key) {
                self.follow(|plan, now, acts| plan.exited(key, incarnation, abnormal, now, acts));
            }
        }

        /// Something happens.
        fn turn(&mut self) {
            let keys: Vec<_> = self.plan.children().iter().map(|child| child.key).collect();
            let Some(key) = self.random.choice(&keys).copied() else {
                return self.add();
            };
            let incarnation = self.alive.get(&key).copied().unwrap_or(0);
            match self.random.u32(..100) {
                0..40 => self.follow(|plan, now, _| plan.ready(key, incarnation, now)),
                40..60 => self.end(key, true),
                60..70 => self.end(key, false),
                70..75 => self.follow(|plan, _, acts| plan.overdue(key, incarnation, acts)),
                75..80 => self.follow(|plan, _, _| plan.renew(key)),
                80..83 => self.follow(|plan, _, acts| plan.put_down(key, false, acts)),
                83..86 => self.follow(|plan, _, acts| plan.put_down(key, true, acts)),
                86..92 => self.add(),
                // An old notice.
                92..95 => {
                    let now = incarnation.saturating_sub(1);
                    self.follow(|plan, at, acts| plan.exited(key, now, true, at, acts));
                }
                _ => {
                    self.now = self.now.saturating_add(Duration::from_secs(self.random.u64(..4)));
                    self.follow(|_, _, _| {});
                }
            }
        }

        fn add(&mut self) {
            if self.plan.children().len() >= 8 {
                return;
            }
            let restart = *self
                .random
                .choice(&[Restart::Permanent, Restart::Transient, Restart::Temporary])
                .unwrap_or(&Restart::Permanent);
            let traits = Traits { restart, significant: false, overlaps: false };
            self.follow(|plan, _, _| {
                plan.add(traits, false);
            });
        }
    }

    #[test]
    fn whatever_happens_no_two_incarnations_overlap_and_all_ends() {
        for seed in 0..400 {
            let all =
                [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne, Strategy::Dynamic];
            let mut world = World::new(all[seed as usize % 4], seed);
            for _ in 0..300 {
                world.turn();
            }
            world.follow(|plan, _, _| plan.stop());
            // Each that is told to stop ends; those that are not yet wait for their turn.
            for _ in 0..100 {
                let told: Vec<_> = world
                    .alive
                    .iter()
                    .filter(|(key, incarnation)| world.told.get(key) == Some(incarnation))
                    .map(|(key, _)| *key)
                    .collect();
                for key in told {
                    world.end(key, false);
                }
            }
            assert!(world.over, "seed {seed}: {:?}", world.plan);
            assert!(world.alive.is_empty(), "seed {seed}: {:?}", world.alive);
        }
    }

    #[test]
    fn the_end_goes_in_reverse_order_one_by_one_but_for_dynamic_children() {
        for strategy in [Strategy::OneForOne, Strategy::Dynamic] {
            let mut world = World::new(strategy, 9);
            let traits =
                Traits { restart: Restart::Permanent, significant: false, overlaps: false };
            for _ in 0..3 {
                world.follow(|plan, _, _| {
                    plan.add(traits, true);
                });
            }
            for key in 0..3 {
                world.follow(|plan, now, _| plan.ready(key, 1, now));
            }
            let mut acts = Vec::new();
            world.plan.stop();
            world.plan.step(world.now, &mut acts);
            let stop = |key| Act::Stop { key, incarnation: 1 };
            match strategy {
                Strategy::Dynamic => assert_eq!(acts, [stop(2), stop(1), stop(0)]),
                _ => assert_eq!(acts, [stop(2)]),
            }
        }
    }
}
