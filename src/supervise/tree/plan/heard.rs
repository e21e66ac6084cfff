//! What a plan makes of what it hears: a child is up, stuck, overdue, or has ended.

use core::time::Duration;

use super::{Act, Closing, Key, Phase, Plan, Scope, Status};
use crate::clock::Timestamp;
use crate::supervise::tree::{AutoShutdown, Restart, Strategy};

impl Plan {
    /// A child is up.
    pub(in crate::supervise::tree) fn ready(&mut self, key: Key, incarnation: u64, now: Timestamp) {
        let Some(at) = self.find(key) else { return };
        let child = &mut self.children[at];
        if child.incarnation == incarnation && child.status == Status::Starting {
            child.status = Status::Up;
            child.up_since = now;
            child.proven = true;
        }
    }

    /// The runtime took it for stuck. True: it is the current incarnation.
    pub(in crate::supervise::tree) fn stuck(&mut self, key: Key, incarnation: u64) -> bool {
        let Some(at) = self.find(key) else { return false };
        let child = &mut self.children[at];
        let is_current = child.incarnation == incarnation && child.status != Status::Down;
        child.stuck |= is_current;
        is_current
    }

    /// Its time to stop is over.
    pub(in crate::supervise::tree) fn overdue(
        &mut self,
        key: Key,
        incarnation: u64,
        acts: &mut Vec<Act>,
    ) {
        let Some(at) = self.find(key) else { return };
        let child = &mut self.children[at];
        if child.incarnation == incarnation && child.status == Status::Stopping {
            child.status = Status::Abandoned;
            acts.push(Act::Abandoned);
        }
    }

    /// A child has ended.
    pub(in crate::supervise::tree) fn exited(
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
}
