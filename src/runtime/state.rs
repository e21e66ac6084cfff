//! The job's word: what state it is in, which attempt holds it, who is inside its closure.
//!
//! The table, the diagram and the ordering pairs are in the [room's docs](super). Bits do not leave
//! this module: callers use verbs, and each verb says what to do next.

mod policy;
mod word;

use core::fmt;

use word::{
    BY_SHUTDOWN, CANCEL_REQUESTED, COUNTED, DETACHED, DUE, HEARTBEAT_SEEN, MAX_RUNNERS, NOTIFIED,
    ONE_RUNNER, WAITER,
};
pub(crate) use word::{Ended, State, Word};

use crate::sync::atomic::{AtomicU64, Ordering};

/// What became of a queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Start {
    /// Run an attempt: `attempt` counts from 1.
    Run { epoch: u32, attempt: u32 },
    /// The word has no room for one more lease. The caller owns Completing: write why, publish.
    UsedUp,
    /// Not Ready: the entry is stale, drop it.
    Stale(Word),
}

/// What the caller may do with the result slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Claim {
    /// The caller owns Completing: write the slot, publish.
    Claimed,
    /// The attempt is not the current one.
    Fenced,
}

/// What should become of a job whose attempt ended without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Another attempt, later.
    Retry,
    /// Another turn, later, for the same attempt.
    Snooze,
    /// No further attempt, unless another one is running.
    Die,
    /// No further attempt, and what another one finds does not matter: the error is not one that an
    /// attempt can mend.
    Fail,
    /// The attempt asks for the end itself.
    Cancel,
}

/// What became of a job whose attempt ended without a value, or was taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Lost {
    /// In Backoff: record the attempt, then arm a timer with this epoch.
    Backoff { epoch: u32 },
    /// The caller owns Completing: write why, publish.
    Dying,
    /// Somebody had asked: Cancelled.
    Cancelled(Ended),
    /// Rescue only: it showed life; look again a period later.
    Alive,
    /// Another attempt with the same epoch goes on; this one is out of the closure.
    Outlived,
    /// The attempt was not the current one.
    Fenced,
}

/// What became of a task whose poll is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Parked {
    /// Suspended; a wake makes it Ready.
    Suspended,
    /// It was woken meanwhile, and is Ready: push an entry.
    Again,
    /// Somebody had asked: Cancelled.
    Cancelled(Ended),
    /// The poll was not the current attempt.
    Fenced,
}

/// What became of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Fired {
    /// Ready now: push an entry.
    Ready,
    /// Suspended now: ask for its key.
    InLine,
    /// Marked as due: it becomes Ready when the late attempt that is inside leaves.
    Marked,
    /// It was made for an epoch that is over.
    Stale,
}

/// What a fenced attempt leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Left {
    /// Nothing to do.
    Nothing,
    /// The job is over and nobody else is inside: drop the closure.
    Closure,
    /// The job waited for this one to leave, and is Ready: push an entry.
    Ready,
}

/// What became of a request to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Cancel {
    /// Cancelled now, out of this state.
    Now { from: State, ended: Ended },
    /// An attempt runs; it can see the request, and no further attempt follows.
    Requested,
    /// The end is already decided.
    TooLate,
}

/// What the handle finds when it leaves a waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Waiting {
    /// The waker will be woken.
    Registered,
    /// Final already, and the waker (if one was left) is still the handle's.
    Final(State),
}

/// The word.
pub(crate) struct StateCell(AtomicU64);

impl StateCell {
    /// A job that begins in this state: Scheduled, Ready or Suspended.
    pub(crate) fn new(first: State) -> Self {
        Self(AtomicU64::new(first as u64))
    }

    /// One whose leases come after this epoch.
    pub(crate) fn with_epoch(first: State, epoch: u32) -> Self {
        Self(AtomicU64::new(first as u64 | (u64::from(epoch) << word::EPOCH_SHIFT)))
    }

    /// What it says now. A stale answer is harmless: whoever acts on one acts by CAS.
    pub(crate) fn peek(&self) -> Word {
        // ORDERING: Relaxed: advisory, see above.
        Word(self.0.load(Ordering::Relaxed))
    }

    /// Moves the word along `step`; `None` stops and returns what was seen.
    ///
    /// A failed exchange is no mismatch: a flag may have moved the word.
    #[inline]
    #[cfg_attr(tenure_loom, track_caller)]
    fn update(&self, success: Ordering, step: impl Fn(Word) -> Option<Word>) -> Result<Word, Word> {
        // ORDERING: Relaxed: a stale word fails the exchange below.
        let mut seen = Word(self.0.load(Ordering::Relaxed));
        loop {
            let Some(next) = step(seen) else { return Err(seen) };
            // ORDERING: success as the verb says; failure Relaxed: nothing is read on it.
            match self.0.compare_exchange(seen.0, next.0, success, Ordering::Relaxed) {
                Ok(_) => return Ok(next),
                Err(now) => seen = Word(now),
            }
        }
    }

    /// An entry was taken from a queue: begin an attempt. `task`: a poll of a task, which goes on with
    /// the epoch that it had, since nobody else can have had it; so a task may be polled for ever.
    pub(crate) fn start(&self, task: bool) -> Start {
        // ORDERING: Acquire: pairs with the Release in `fail` and the AcqRel of `exit`: what earlier
        // attempts did inside the closure happens before this one.
        let started = self.update(Ordering::Acquire, |w| {
            if w.state() != State::Ready {
                None
            } else if w.runners() == MAX_RUNNERS || w.epoch() >= u32::MAX - 1 {
                Some(w.to(State::Completing))
            } else {
                let w = if task && w.epoch() != 0 { w } else { w.next_epoch() };
                Some(w.to(State::Leased).runner_in().without(HEARTBEAT_SEEN | NOTIFIED))
            }
        });
        match started {
            Ok(w) if w.state() == State::Leased => {
                Start::Run { epoch: w.epoch(), attempt: u32::from(w.attempts()) + 1 }
            }
            Ok(_) => Start::UsedUp,
            Err(w) => Start::Stale(w),
        }
    }

    /// The attempt `epoch` has a value.
    pub(crate) fn complete(&self, epoch: u32) -> Claim {
        // ORDERING: Relaxed: owning the slot needs no edge (nobody wrote it before), and `publish`
        // releases what is written there.
        let claimed = self
            .update(Ordering::Relaxed, |w| w.is_leased(epoch).then_some(w.to(State::Completing)));
        if claimed.is_ok() { Claim::Claimed } else { Claim::Fenced }
    }

    /// The owner of Completing has written the slot. `leaving`: it is the attempt itself, and is
    /// out of the closure.
    pub(crate) fn publish(&self, end: State, leaving: bool) -> Ended {
        debug_assert!(matches!(end, State::Succeeded | State::Dead));
        let mut delta = end as u64 - State::Completing as u64;
        if leaving {
            delta = delta.wrapping_sub(ONE_RUNNER);
        }
        // ORDERING: AcqRel: Release publishes the slot to `settled`, `register` and `detach`;
        // Acquire takes over the waker that `register` released and what late attempts (`exit`)
        // did inside the closure. One addition: in Completing nobody else moves state or epoch,
        // and flags may only be set beside it.
        let before = self.0.fetch_add(delta, Ordering::AcqRel);
        debug_assert_eq!(State::of(before), State::Completing);
        Word(before.wrapping_add(delta)).ended()
    }

    /// The attempt `epoch` ended without a value; it is out of the closure unless it is Dying.
    pub(crate) fn fail(&self, epoch: u32, then: Then) -> Lost {
        // ORDERING: AcqRel: Release hands what this attempt did inside the closure to the next
        // `start`, or to whoever drops it; Acquire is for the Cancelled end, as in `publish`.
        let moved = self.update(Ordering::AcqRel, |w| {
            if !w.is_leased(epoch) {
                return None;
            }
            let decides = matches!(then, Then::Fail | Then::Cancel);
            Some(match then {
                _ if w.state() == State::Hedged && !decides => w.to(State::Leased).runner_out(),
                _ if w.cancel_requested() => w.to(State::Cancelled).runner_out(),
                Then::Retry => w.to(State::Backoff).attempt_ended().runner_out(),
                Then::Snooze => w.to(State::Backoff).runner_out(),
                Then::Die | Then::Fail => w.to(State::Completing).attempt_ended(),
                Then::Cancel => w.to(State::Cancelled).runner_out(),
            })
        });
        match moved {
            Ok(w) if w.state() == State::Leased => Lost::Outlived,
            moved => Self::lost(moved),
        }
    }

    /// The poll `epoch` of a task is pending, and out of the task.
    pub(crate) fn suspend(&self, epoch: u32) -> Parked {
        // ORDERING: AcqRel: as in `fail`.
        let moved = self.update(Ordering::AcqRel, |w| {
            if !w.is(State::Leased, epoch) {
                return None;
            }
            Some(if w.cancel_requested() {
                w.to(State::Cancelled).runner_out()
            } else if w.has(NOTIFIED) {
                w.to(State::Ready).runner_out().without(NOTIFIED)
            } else {
                w.to(State::Suspended).runner_out()
            })
        });
        match moved {
            Err(_) => Parked::Fenced,
            Ok(w) => match w.state() {
                State::Ready => Parked::Again,
                State::Cancelled => Parked::Cancelled(w.ended()),
                _ => Parked::Suspended,
            },
        }
    }

    /// A task is woken. True: Ready now, push an entry.
    #[must_use]
    pub(crate) fn wake(&self) -> bool {
        // ORDERING: Release: pairs with the Acquire of the next `start`: that poll sees what came
        // before the wake; also if it is Ready already, or being polled, so it always writes.
        let moved = self.update(Ordering::Release, |w| match w.state() {
            State::Suspended => Some(w.to(State::Ready).without(NOTIFIED)),
            State::Leased => Some(w.with(NOTIFIED)),
            // A mark that nobody reads but that tells this case from the first.
            State::Ready => Some(w.with(NOTIFIED)),
            State::Scheduled
            | State::Completing
            | State::Backoff
            | State::Gated
            | State::Hedged
            | State::Succeeded
            | State::Dead
            | State::Cancelled => None,
        });
        moved.is_ok_and(|w| w.state() == State::Ready && !w.has(NOTIFIED))
    }

    /// The attempt `epoch` is out of time. `force`: whether it showed life or not.
    pub(crate) fn rescue(&self, epoch: u32, then: Then, force: bool) -> Lost {
        // ORDERING: Acquire for the Cancelled end, as in `publish`: the waker, and what late attempts
        // did. It hands nothing over itself; what `cancel` released is carried on, as by any RMW.
        let moved = self.update(Ordering::Acquire, |w| {
            if !w.is_leased(epoch) {
                return None;
            }
            Some(if w.has(HEARTBEAT_SEEN) && !force {
                w.without(HEARTBEAT_SEEN)
            } else if w.cancel_requested() {
                w.to(State::Cancelled).next_epoch().attempt_ended()
            } else {
                match then {
                    Then::Retry | Then::Snooze => w.to(State::Backoff).next_epoch().attempt_ended(),
                    Then::Die | Then::Fail => w.to(State::Completing).next_epoch().attempt_ended(),
                    Then::Cancel => w.to(State::Cancelled).next_epoch().attempt_ended(),
                }
            })
        });
        Self::lost(moved)
    }

    fn lost(moved: Result<Word, Word>) -> Lost {
        match moved {
            Err(_) => Lost::Fenced,
            Ok(w) => match w.state() {
                State::Backoff => Lost::Backoff { epoch: w.epoch() },
                State::Completing => Lost::Dying,
                State::Cancelled => Lost::Cancelled(w.ended()),
                _ => Lost::Alive,
            },
        }
    }

    /// A timer made for `epoch` fired. `keyed`: a job that has not begun lines up for its key.
    pub(crate) fn fire(&self, epoch: u32, keyed: bool) -> Fired {
        // ORDERING: Relaxed: an RMW carries on the release sequence that `fail` began.
        let moved = self.update(Ordering::Relaxed, |w| {
            if w.is(State::Backoff, epoch) || (w.is(State::Scheduled, epoch) && !keyed) {
                Some(w.to(State::Ready))
            } else if w.is(State::Scheduled, epoch) {
                Some(w.to(State::Suspended))
            } else {
                None
            }
        });
        match moved {
            Ok(w) if w.state() == State::Ready => Fired::Ready,
            Ok(_) => Fired::InLine,
            Err(_) => Fired::Stale,
        }
    }

    /// The same for a job whose attempts must not meet: while a late one is inside, it is only marked.
    pub(crate) fn fire_alone(&self, epoch: u32, keyed: bool) -> Fired {
        // ORDERING: Relaxed: as in `fire`; with nobody inside, the last `exit_alone` is part of the
        // release sequence that the next `start` acquires.
        let moved = self.update(Ordering::Relaxed, |w| {
            (w.is(State::Backoff, epoch) && w.runners() > 0).then_some(w.with(DUE))
        });
        if moved.is_ok() { Fired::Marked } else { self.fire(epoch, keyed) }
    }

    /// What it waited for has come. True: Ready now, push an entry.
    #[must_use]
    pub(crate) fn resume(&self) -> bool {
        // ORDERING: Relaxed, as in `fire`.
        self.update(Ordering::Relaxed, |w| {
            (w.state() == State::Suspended).then_some(w.to(State::Ready))
        })
        .is_ok()
    }

    /// The caller, who owns Completing, goes into the closure, too. False: it is full.
    #[must_use]
    pub(crate) fn enter(&self) -> bool {
        // ORDERING: Relaxed: nothing is read on it; an RMW carries on what others released.
        self.update(Ordering::Relaxed, |w| (w.runners() < MAX_RUNNERS).then_some(w.runner_in()))
            .is_ok()
    }

    /// A fenced attempt is out of the closure. True: the job is over and nobody else is inside, so
    /// drop the closure.
    #[must_use]
    pub(crate) fn exit(&self) -> bool {
        // ORDERING: AcqRel: Release hands what this attempt did inside the closure to whoever drops
        // it; Acquire takes over the same from the others, for the case that we do.
        let before = Word(self.0.fetch_sub(ONE_RUNNER, Ordering::AcqRel));
        before.state().is_final() && before.runners() == 1
    }

    /// The same for a job whose attempts must not meet.
    pub(crate) fn exit_alone(&self) -> Left {
        // ORDERING: AcqRel: as in `exit`; Release also hands what this attempt did inside the closure
        // to the next `start`.
        let moved = self.update(Ordering::AcqRel, |w| {
            Some(if w.state() == State::Backoff && w.has(DUE) && w.runners() == 1 {
                w.to(State::Ready).without(DUE).runner_out()
            } else {
                w.runner_out()
            })
        });
        match moved {
            // Ready with somebody inside there is none of this kind, so we made it that.
            Ok(w) if w.state() == State::Ready => Left::Ready,
            Ok(w) if w.state().is_final() && w.runners() == 0 => Left::Closure,
            Ok(_) | Err(_) => Left::Nothing,
        }
    }

    /// The attempt `epoch` shows life. False: it is not the current one.
    #[must_use]
    pub(crate) fn heartbeat(&self, epoch: u32) -> bool {
        // ORDERING: Relaxed: only the flag's place in the word's order matters.
        self.update(Ordering::Relaxed, |w| w.is_leased(epoch).then_some(w.with(HEARTBEAT_SEEN)))
            .is_ok()
    }

    /// Whether the attempt `epoch` is the current one, and has shown life already.
    pub(crate) fn seems_alive(&self, epoch: u32) -> bool {
        let word = self.peek();
        word.is(State::Leased, epoch) && word.has(HEARTBEAT_SEEN)
    }

    /// Whether the attempt `epoch` has shown life since this was asked last. Only for one without a
    /// deadline: of the others the driver asks (`rescue`).
    pub(crate) fn hear(&self, epoch: u32) -> bool {
        // ORDERING: Relaxed: as in `heartbeat`.
        self.update(Ordering::Relaxed, |w| {
            (w.is(State::Leased, epoch) && w.has(HEARTBEAT_SEEN))
                .then_some(w.without(HEARTBEAT_SEEN))
        })
        .is_ok()
    }

    /// Whether the attempt `epoch` is the current one.
    pub(crate) fn is_current(&self, epoch: u32) -> bool {
        // ORDERING: Relaxed: true may be old news by the time the caller acts, whatever the
        // ordering; resources check the token instead.
        Word(self.0.load(Ordering::Relaxed)).is_leased(epoch)
    }

    /// Whether a timer made for `epoch` would find the job waiting for it.
    pub(crate) fn waits_for(&self, epoch: u32) -> bool {
        let word = self.peek();
        word.is(State::Backoff, epoch) || word.is(State::Scheduled, epoch)
    }

    /// Somebody wants the job to end.
    pub(crate) fn cancel(&self, by_shutdown: bool) -> Cancel {
        let flags = if by_shutdown { CANCEL_REQUESTED | BY_SHUTDOWN } else { CANCEL_REQUESTED };
        // ORDERING: Relaxed: a stale word fails the exchange below.
        let mut seen = Word(self.0.load(Ordering::Relaxed));
        loop {
            let from = seen.state();
            let next = match from {
                State::Scheduled
                | State::Ready
                | State::Backoff
                | State::Suspended
                | State::Gated => seen.to(State::Cancelled).with(flags),
                State::Leased | State::Hedged if seen.cancel_requested() => {
                    return Cancel::Requested;
                }
                State::Leased | State::Hedged => seen.with(flags),
                State::Completing | State::Succeeded | State::Dead | State::Cancelled => {
                    return Cancel::TooLate;
                }
            };
            // ORDERING: AcqRel: Acquire as in `publish`, for the end; Release hands what the canceller
            // did to who is told of it. Nothing is read on failure.
            match self.0.compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if from.is_leased() => return Cancel::Requested,
                Ok(_) => return Cancel::Now { from, ended: next.ended() },
                Err(now) => seen = Word(now),
            }
        }
    }

    /// Whether the job is over, and if so the slot may be read by the handle.
    pub(crate) fn settled(&self) -> Option<Word> {
        // ORDERING: Acquire: pairs with the Release in `publish`: the slot.
        let word = Word(self.0.load(Ordering::Acquire));
        word.state().is_final().then_some(word)
    }

    /// The handle has written its waker.
    pub(crate) fn register(&self) -> Waiting {
        // ORDERING: Release: hands the waker to whoever ends the job. If it is over already, the slot
        // is read after `settled`, which acquires. An addition is enough: the flag is only ever set by
        // the one handle, which knows that it is clear.
        let before = Word(self.0.fetch_add(WAITER, Ordering::Release));
        debug_assert!(!before.has(WAITER));
        if before.state().is_final() { Waiting::Final(before.state()) } else { Waiting::Registered }
    }

    /// The handle wants its waker back. Final: it belongs to whoever ended the job.
    pub(crate) fn retract(&self) -> Waiting {
        // ORDERING: Relaxed: a stale word fails the exchange below.
        let mut seen = Word(self.0.load(Ordering::Relaxed));
        loop {
            if seen.state().is_final() {
                // The slot is read after `settled`, which acquires.
                return Waiting::Final(seen.state());
            }
            let next = seen.without(WAITER);
            // ORDERING: Relaxed: the waker is the handle's own and nobody else has read it.
            match self.0.compare_exchange(seen.0, next.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Waiting::Registered,
                Err(now) => seen = Word(now),
            }
        }
    }

    /// The handle goes. Registered: the end is whoever comes's to clean up, and a waker left here is
    /// the handle's again; Final: the result, if there is one and it was not taken, is the handle's.
    pub(crate) fn detach(&self) -> Waiting {
        // ORDERING: Relaxed: a stale word fails the exchange below.
        let mut seen = Word(self.0.load(Ordering::Relaxed));
        loop {
            if seen.state().is_final() {
                // ORDERING: Acquire: pairs with `publish`: the slot.
                crate::sync::atomic::fence(Ordering::Acquire);
                return Waiting::Final(seen.state());
            }
            let next = seen.without(WAITER).with(DETACHED);
            // ORDERING: Relaxed: nothing is handed over with it.
            match self.0.compare_exchange(seen.0, next.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Waiting::Registered,
                Err(now) => seen = Word(now),
            }
        }
    }

    /// Marks the job's end as counted. True: it was not yet.
    #[must_use]
    pub(crate) fn count_once(&self) -> bool {
        // ORDERING: Relaxed: only who was first matters.
        !Word(self.0.fetch_or(COUNTED, Ordering::Relaxed)).has(COUNTED)
    }
}

impl fmt::Debug for StateCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peek().fmt(f)
    }
}

#[cfg(all(test, not(tenure_loom)))]
mod tests;
