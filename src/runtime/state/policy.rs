//! The verbs of policies: gates, second attempts, deadlines.

use super::StateCell;
use super::word::{MAX_RUNNERS, State};
use crate::sync::atomic::Ordering;

impl StateCell {
    /// A gate refuses the job, of which an entry was taken. True: Gated now; put it into that gate's
    /// queue. False: the entry was stale, or is by now.
    #[must_use]
    pub(crate) fn gate(&self) -> bool {
        // ORDERING: Relaxed: an RMW carries on the release sequence that `fail` began.
        self.update(Ordering::Relaxed, |w| {
            (w.state() == State::Ready).then_some(w.to(State::Gated))
        })
        .is_ok()
    }

    /// Its gates let it through. True: Ready now, push an entry. False: it is over.
    #[must_use]
    pub(crate) fn ungate(&self) -> bool {
        // ORDERING: Relaxed: as in `gate`.
        self.update(Ordering::Relaxed, |w| {
            (w.state() == State::Gated).then_some(w.to(State::Ready))
        })
        .is_ok()
    }

    /// The attempt `epoch` takes long, and another one begins beside it, with the same epoch. Says which
    /// attempt both are; `None`: it is over, or there are two.
    pub(crate) fn hedge(&self, epoch: u32) -> Option<u32> {
        // ORDERING: Acquire: as in `start`: what earlier attempts did inside the closure. The first of
        // the two is beside us, which is the closure's business.
        self.update(Ordering::Acquire, |w| {
            (w.is(State::Leased, epoch) && w.runners() < MAX_RUNNERS)
                .then_some(w.to(State::Hedged).runner_in())
        })
        .ok()
        .map(|w| u32::from(w.attempts()) + 1)
    }

    /// The job's time is up. Out of which state the caller owns Completing now: write why, publish.
    /// `None`: an attempt runs, or it is over.
    pub(crate) fn expire(&self) -> Option<State> {
        // ORDERING: Relaxed: a stale word fails the exchange below.
        let mut seen = self.peek();
        loop {
            let from = seen.state();
            match from {
                State::Scheduled
                | State::Ready
                | State::Backoff
                | State::Suspended
                | State::Gated => {}
                State::Leased
                | State::Hedged
                | State::Completing
                | State::Succeeded
                | State::Dead
                | State::Cancelled => return None,
            }
            let next = seen.to(State::Completing);
            // ORDERING: Relaxed: as in `complete`: owning the slot needs no edge, and `publish` acquires
            // what late attempts did.
            match self.0.compare_exchange(seen.0, next.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(from),
                Err(now) => seen = super::Word(now),
            }
        }
    }
}
