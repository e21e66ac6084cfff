//! Being let through, and saying what came of it.

use core::fmt;

use super::core::{Core, Ticket};
use crate::sync::Arc;

/// What a call comes to, as the breaker sees it: said by a [`Permit`], by the `judge` of
/// [`CircuitBreaker::call_judged`](super::CircuitBreaker::call_judged), and by that of a runtime's job
/// ([`Job::judged_by`](crate::runtime::Job::judged_by)).
///
/// Whoever answers is up, also with a "no": where everybody's calls go to one host, an answer that
/// is no fault of its own is better a `Success` than ignored, or a half-open breaker whose probes are all
/// refused never closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It went well.
    Success,
    /// It failed.
    Failure,
    /// It says nothing about whoever was called: a request that was wrong to begin with.
    Ignore,
}

/// A call that the breaker lets through. Say what came of it.
///
/// A permit that is dropped is returned, with nothing recorded; if it was a probe, another may be made.
/// It may be used on any thread. One that comes back after the breaker has changed its state counts
/// for nothing.
///
/// ```
/// use tenure::breaker::{CircuitBreaker, Verdict};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let breaker = CircuitBreaker::builder().build()?;
/// let permit = breaker.try_acquire()?; // An error says when to come again.
/// let status = 404;
/// permit.record(match status {
///     500.. => Verdict::Failure,
///     _ => Verdict::Success, // It answered.
/// });
/// assert_eq!(breaker.snapshot().totals.succeeded, 1);
/// # Ok(())
/// # }
/// ```
#[must_use = "a permit that is dropped counts for nothing"]
pub struct Permit {
    /// `None`: it was settled.
    core: Option<Arc<Core>>,
    ticket: Ticket,
}

impl Permit {
    pub(super) fn new(core: Arc<Core>, ticket: Ticket) -> Self {
        Self { core: Some(core), ticket }
    }

    /// The call went well; or not so well, if it took too long.
    pub fn success(self) {
        self.record(Verdict::Success);
    }

    /// The call failed.
    pub fn failure(self) {
        self.record(Verdict::Failure);
    }

    /// The call says nothing. The same as a drop.
    pub fn ignore(self) {
        self.record(Verdict::Ignore);
    }

    /// The call came to `verdict`.
    pub fn record(mut self, verdict: Verdict) {
        if let Some(core) = self.core.take() {
            core.settle(self.ticket, verdict);
        }
    }

    /// Whether it is one of a half-open breaker's probes.
    #[must_use]
    pub const fn is_probe(&self) -> bool {
        self.ticket.is_probe()
    }
}

/// For the runtime, whose jobs wait in a queue with their permit.
impl Permit {
    /// Whether the breaker stands as it did when it gave this one.
    pub(crate) fn is_current(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.is_current(self.ticket))
    }

    /// The call begins now, not when the permit was given.
    pub(crate) fn restart(&mut self) {
        if let Some(core) = &self.core {
            core.restart(&mut self.ticket);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            core.let_go(self.ticket);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("generation", &self.ticket.generation())
            .field("is_probe", &self.is_probe())
            .finish()
    }
}

/// The same for a call that is made inside the breaker: borrows it.
pub(super) struct Entered<'a> {
    core: &'a Core,
    ticket: Ticket,
    /// Whether the call's own code is running: then a drop means that it panicked.
    pub(super) runs: bool,
}

impl<'a> Entered<'a> {
    #[inline]
    pub(super) fn new(core: &'a Core, ticket: Ticket) -> Self {
        Self { core, ticket, runs: false }
    }

    #[inline]
    pub(super) fn record(self, verdict: Verdict) {
        let (core, ticket) = (self.core, self.ticket);
        core::mem::forget(self);
        core.settle(ticket, verdict);
    }
}

impl Drop for Entered<'_> {
    #[cold]
    fn drop(&mut self) {
        let verdict = if self.runs { Verdict::Failure } else { Verdict::Ignore };
        self.core.settle(self.ticket, verdict);
    }
}
