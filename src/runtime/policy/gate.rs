//! What a gate is to the runtime: something that gives permits, and tells when one may be free again.

use core::fmt;
use core::time::Duration;
use std::sync::Weak;

use crate::limit::Listener;
use crate::runtime::cell::contained;
use crate::runtime::options::JobKey;

/// Where in the order a gate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Rate,
    Concurrency,
    Breaker,
}

/// What became of an attempt, as its gates are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It had a value.
    Success,
    /// An error, or a panic.
    Failure,
    /// It was given up.
    Late,
    /// It says nothing about what it was to reach: cancelled, snoozed, never called.
    Ignored,
    /// It did not begin.
    Unused,
}

/// One permit.
pub(crate) trait Pass: Send {
    /// The attempt has come to this; the permit is free. Called once, and may call foreign code.
    ///
    /// By itself: whatever it has come to, being dropped frees it.
    fn end(self: Box<Self>, _verdict: Verdict) {}

    /// Whether an attempt may still begin with it.
    fn is_current(&self) -> bool {
        true
    }

    /// The attempt begins: what it waited in a queue with the permit is not its own time.
    fn begin(&mut self) {}
}

/// Something that gives permits. Its calls may run foreign code, which may not come back.
pub(crate) trait Gate: Send + Sync {
    /// A permit, or how long until it is worth while to ask again, if time alone helps.
    fn try_pass(&self) -> Answer;

    /// Has the listener told whenever a permit may be free for another reason than time: with no lock held,
    /// after the permit is there.
    fn watch(&self, listener: Weak<dyn Listener>);

    /// What it is known by while it lives: its address, and the key where there is one gate a key.
    fn id(&self) -> GateId;
}

/// A permit, or how long until it is worth while to ask again, if time alone helps.
pub(crate) type Answer = Result<Box<dyn Pass>, Option<Duration>>;

/// Which gate.
pub(crate) type GateId = (usize, Option<JobKey>);

/// Gives one permit back. Listeners of the gate are foreign: a panic goes no further.
pub(super) fn end(pass: Box<dyn Pass>, verdict: Verdict) {
    contained(move || pass.end(verdict));
}

/// The permits of all of a job's gates, in their order.
#[derive(Default)]
#[must_use]
pub(crate) struct Permits(Vec<Box<dyn Pass>>);

impl Permits {
    pub(super) fn add(&mut self, pass: Box<dyn Pass>) {
        self.0.push(pass);
    }

    /// Whether an attempt may begin with all of them.
    pub(crate) fn are_current(&self) -> bool {
        self.0.iter().all(|pass| pass.is_current())
    }

    /// The attempt begins.
    pub(super) fn begin(&mut self) {
        for pass in &mut self.0 {
            pass.begin();
        }
    }

    /// Takes the last one out.
    pub(super) fn pop(&mut self) -> Option<Box<dyn Pass>> {
        self.0.pop()
    }

    /// Gives them back, the last one first.
    pub(crate) fn end(mut self, verdict: Verdict) {
        while let Some(pass) = self.pop() {
            end(pass, verdict);
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permits({})", self.0.len())
    }
}
