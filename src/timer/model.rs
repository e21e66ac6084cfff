//! The helm, for the models.

#![allow(missing_docs, reason = "for the models only")]

use super::helm::{Call, Helm, MOST_HELD_UP, PutDown, Seen};
use crate::clock::Timestamp;

/// A helm, as its driver, its sentinel and those who come back use it.
#[derive(Debug)]
pub struct TestHelm(Helm);

/// The token, put down.
#[derive(Debug)]
#[must_use]
pub struct Out(PutDown);

/// What the sentinel saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look(Seen);

impl Look {
    pub fn is_out(self) -> bool {
        self.0.is_out()
    }
}

impl Default for TestHelm {
    fn default() -> Self {
        Self::new()
    }
}

impl TestHelm {
    /// Held by the driver; a sentinel watches.
    pub fn new() -> Self {
        let helm = Helm::new();
        assert!(helm.fill());
        Self(helm)
    }

    /// The same, and one more held up is one too many.
    pub fn full() -> Self {
        let this = Self::new();
        this.0.crowd(MOST_HELD_UP - 1);
        this
    }

    pub fn put_down(&self) -> Out {
        Out(self.0.put_down())
    }

    /// Calls the sentinel, if need be. True: there is none, and one was started.
    pub fn call(&self, now: u64) -> bool {
        match self.0.calls_for(|| Timestamp::from_nanos(now)) {
            Call::Nobody => false,
            Call::Sentinel => {
                self.0.call();
                false
            }
            Call::Another => self.0.has_room() && self.0.fill(),
        }
    }

    pub fn take_back(&self, out: Out) -> bool {
        self.0.take_back(out.0)
    }

    pub fn end(&self) {
        self.0.end();
    }

    pub fn look(&self) -> Look {
        Look(self.0.look())
    }

    pub fn take_over(&self, seen: Look) -> Result<(), bool> {
        self.0.take_over(seen.0)
    }

    pub fn rest(&self, seen: Look, until: u64) -> bool {
        self.0.rest(seen.0, Timestamp::from_nanos(until))
    }

    /// Rests until called.
    pub fn sleep(&self) {
        self.0.sleep(None);
    }

    /// The rest is over by itself.
    pub fn wake(&self) {
        self.0.wake();
    }

    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    pub fn leave(&self) -> bool {
        self.0.leave()
    }

    pub fn fill(&self) -> bool {
        self.0.fill()
    }
}
