//! A limit of how many at once.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Weak;

use crossbeam_utils::CachePadded;

use super::error::Limited;
use super::seats::{MAX_LIMIT, SeatsCell};
use super::watch::Watchers;
use super::{Listener, Lock};
use crate::promise::{Eventual, EventualError, Promise, failed, promise, ready};
use crate::sync::Arc;

/// At most so many at once: a semaphore whose limit can be changed while it is in use.
///
/// Clones are the same limit. A permit is returned when it is dropped. Whoever waits
/// ([`acquire`](Self::acquire), [`acquire_async`](Self::acquire_async)) stands in line and is given a
/// permit in order; [`try_acquire`](Self::try_acquire) does not overtake the line.
///
/// ```
/// use tenure::limit::ConcurrencyLimit;
///
/// let limit = ConcurrencyLimit::new(1);
/// let permit = limit.try_acquire()?;
/// assert!(limit.try_acquire().is_err());
/// let waiting = limit.acquire_async();
/// drop(permit);
/// let permit = waiting.get().expect("it was our turn");
/// assert_eq!(limit.in_use(), 1);
/// limit.set_limit(2);
/// assert!(limit.try_acquire().is_ok());
/// # drop(permit);
/// # Ok::<(), tenure::limit::Limited>(())
/// ```
///
/// # Cost
///
/// Taking and returning a permit are one locked instruction each on the limit's word, and one each on
/// its count of owners, which [`try_enter`](Self::try_enter) spares. Only who waits takes a lock. The
/// [room's page](super) has figures.
///
/// # Memory ordering
///
/// What was done under a permit happens-before whatever is done under a permit that was taken after
/// it was returned.
#[derive(Clone)]
pub struct ConcurrencyLimit {
    core: Arc<Core>,
}

pub(super) struct Core {
    seats: CachePadded<SeatsCell>,
    line: Lock<Line>,
    most_waiting: usize,
    watchers: Watchers,
}

/// Who waits, in order.
#[derive(Default)]
struct Line {
    waiters: VecDeque<Promise<Permit, Limited>>,
    /// How many of them to have before those who gave up are looked for again.
    sweep_at: usize,
}

impl Line {
    /// Takes out those who gave up, now and then: so that their number stays in proportion to the others'.
    /// They are dropped by the caller, without the lock.
    fn sweep(&mut self) -> VecDeque<Promise<Permit, Limited>> {
        if self.waiters.len() < self.sweep_at {
            return VecDeque::new();
        }
        let (gone, here) = self.waiters.drain(..).partition(Promise::is_cancelled);
        self.waiters = here;
        self.sweep_at = self.waiters.len().saturating_mul(2).max(16);
        gone
    }
}

impl ConcurrencyLimit {
    /// A limit of `limit` at once; 0 lets nobody through until it is raised. What is above 2³¹ − 1 is
    /// that. Any number may wait.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self::with_line(limit, usize::MAX)
    }

    /// The same where at most `most_waiting` may wait: who comes later is refused at once.
    #[must_use]
    pub fn with_line(limit: u32, most_waiting: usize) -> Self {
        Self {
            core: Arc::new(Core {
                seats: CachePadded::new(SeatsCell::new(limit)),
                line: Lock::new(Line { waiters: VecDeque::new(), sweep_at: 16 }),
                most_waiting,
                watchers: Watchers::new(),
            }),
        }
    }

    /// The highest limit.
    pub const MAX: u32 = MAX_LIMIT;

    /// Takes a permit, if there is one and nobody stands in line.
    ///
    /// # Errors
    ///
    /// [`Limited`], always without a time: a permit has to be returned, or the limit raised.
    #[inline]
    pub fn try_acquire(&self) -> Result<Permit, Limited> {
        if self.core.seats.take() {
            Ok(Permit { core: Some(Arc::clone(&self.core)) })
        } else {
            Err(Limited::UNTIL_RETURNED)
        }
    }

    /// The same as [`try_acquire`](Self::try_acquire) with a permit that borrows this limit: for what is
    /// done right here.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_enter(&self) -> Result<Entered<'_>, Limited> {
        if self.core.seats.take() {
            Ok(Entered { core: &self.core })
        } else {
            Err(Limited::UNTIL_RETURNED)
        }
    }

    /// A permit, when it is its turn. Dropping the eventual leaves the line; a permit that came
    /// meanwhile is returned.
    ///
    /// Fails with [`Limited`] if the line is full. If all clones of this limit and all permits are
    /// gone while it waits, it is [`Broken`](EventualError::Broken).
    ///
    /// Its callbacks run on the thread that returned the permit, or raised the limit.
    pub fn acquire_async(&self) -> Eventual<Permit, Limited> {
        if let Ok(permit) = self.try_acquire() {
            return ready(permit);
        }
        let (promise, eventual) = promise();
        let mut line = self.core.line.lock();
        let gone = line.sweep();
        let is_full = line.waiters.len() >= self.core.most_waiting;
        if !is_full {
            line.waiters.push_back(promise);
            self.core.seats.mark_awaited();
        }
        drop(line);
        // Promises whose reader left: nothing of theirs runs, but with no lock held all the same.
        drop(gone);
        if is_full {
            return failed(Limited::UNTIL_RETURNED);
        }
        serve(&self.core);
        eventual
    }

    /// Waits for a permit.
    ///
    /// # Errors
    ///
    /// [`Limited`] if the line is full.
    ///
    /// # Blocking
    ///
    /// Until a permit is returned or the limit raised. Not for async code.
    pub fn acquire(&self) -> Result<Permit, Limited> {
        self.acquire_async().get().map_err(refusal)
    }

    /// Waits for a permit for `timeout` at most, in real time.
    ///
    /// # Errors
    ///
    /// [`Limited`] if the time is up or the line is full.
    ///
    /// # Blocking
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Permit, Limited> {
        let mut waiting = self.acquire_async();
        waiting.get_timeout(timeout).map_err(refusal)
    }

    /// Changes the limit. Permits that are out stay out: after a limit was lowered, that many have to
    /// be returned first. Whoever waits and now has room is served before this returns.
    pub fn set_limit(&self, limit: u32) {
        self.change_limit(|_| limit);
    }

    /// The same by a function of the limit; run again where another change came between.
    pub(super) fn change_limit(&self, f: impl Fn(u32) -> u32) {
        let before = self.core.seats.change_limit(f);
        see_to(&self.core, before.is_awaited(), before.is_watched());
    }

    /// The limit now.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.core.seats.look().limit()
    }

    /// How many permits are out. More than the limit, after it was lowered.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.core.seats.look().used()
    }

    /// How many stand in line, those included who gave up and were not yet noticed.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.core.line.lock().waiters.len()
    }

    /// Has `listener` told whenever a permit was returned that nobody in line took, or the limit
    /// was changed. A [`try_acquire`](Self::try_acquire) that is refused after this call is followed by such
    /// a call once a permit is free.
    pub fn watch(&self, listener: Weak<dyn Listener>) {
        self.core.watchers.add(listener);
        self.core.seats.mark_watched();
    }

    /// What tells it from all others that live; its clones have the same.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.core).addr()
    }
}

/// Returns a seat, and sees to whom that may concern.
#[inline]
fn give_back(core: &Arc<Core>) {
    let before = core.seats.give_back();
    if before.is_awaited() || before.is_watched() {
        see_to(core, before.is_awaited(), before.is_watched());
    }
}

/// The line, and those who listen, after a change of the word.
#[cold]
fn see_to(core: &Arc<Core>, awaited: bool, watched: bool) {
    if awaited {
        serve(core);
    }
    if watched && core.seats.look().has_room() {
        core.watchers.tell();
    }
}

/// Gives free seats to those in line. Whoever calls it has changed the word before: so its looks at
/// the word are at least as new as that change.
#[cold]
fn serve(core: &Arc<Core>) {
    loop {
        let mut line = core.line.lock();
        if line.waiters.is_empty() {
            core.seats.clear_awaited();
            break;
        }
        if !core.seats.take_for_waiter() {
            break;
        }
        let Some(waiter) = line.waiters.pop_front() else { break };
        drop(line);
        // Foreign code: the waiter's callbacks may run here. No lock is held and the seat is counted.
        if let Err(back) = waiter.set(Permit { core: Some(Arc::clone(core)) }) {
            // It gave up. Not by the permit's drop, which would come here again.
            back.into_inner().core = None;
            let _ = core.seats.give_back();
        }
    }
    // Who was refused because of the mark alone is told that there is room.
    let seats = core.seats.look();
    if seats.is_watched() && seats.has_room() && !seats.is_awaited() {
        core.watchers.tell();
    }
}

/// Why there is no permit.
pub(super) fn refusal(why: EventualError<Limited>) -> Limited {
    match why {
        EventualError::Failed(limited) => limited,
        EventualError::Broken
        | EventualError::Cancelled
        | EventualError::TimedOut
        | EventualError::Rejected
        | EventualError::Panicked(_)
        | EventualError::Taken => Limited::UNTIL_RETURNED,
    }
}

impl fmt::Debug for ConcurrencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConcurrencyLimit").field(&self.core.seats.look()).finish()
    }
}

/// One of those that are let through at once. Returned when it is dropped, on any thread.
#[must_use = "a permit that is dropped is returned"]
pub struct Permit {
    /// `None`: the seat has been seen to otherwise.
    core: Option<Arc<Core>>,
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            give_back(&core);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}

/// A [`Permit`] that borrows its limit.
#[must_use = "a permit that is dropped is returned"]
pub struct Entered<'a> {
    core: &'a Arc<Core>,
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        give_back(self.core);
    }
}

impl fmt::Debug for Entered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entered")
    }
}
