//! How long to try before going to sleep.

use crate::sync::{hint, thread};

/// The rounds that only pause: 1, 2, then 4 pauses. Later rounds give the processor away, so that
/// an owner without one can run.
const PAUSING_ROUNDS: u32 = 3;

/// The rounds of a wait that knows nothing better.
pub(crate) const DEFAULT_ROUNDS: u32 = 10;

/// One wait's spinning: a number of rounds, each a little longer than the one before.
#[derive(Debug)]
pub(crate) struct Spin {
    done: u32,
    rounds: u32,
}

impl Spin {
    /// `rounds` rounds (none at all in a model).
    #[inline]
    #[allow(clippy::unnecessary_min_or_max, reason = "the cap is 0 in a model")]
    pub(crate) fn rounds(rounds: u32) -> Self {
        Self { done: 0, rounds: rounds.min(hint::SPIN_CAP) }
    }

    /// Spends one round. False, at once, if none is left: sleep now.
    #[inline]
    pub(crate) fn round(&mut self) -> bool {
        if self.done >= self.rounds {
            return false;
        }
        if self.done < PAUSING_ROUNDS {
            for _ in 0..1 << self.done {
                hint::spin_loop();
            }
        } else {
            thread::yield_now();
        }
        self.done += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spin_ends_after_its_rounds_and_stays_ended() {
        let mut spin = Spin::rounds(4);
        assert_eq!((0..4).filter(|_| spin.round()).count(), 4);
        assert!(!spin.round());
        assert!(!spin.round());
        assert!(!Spin::rounds(0).round());
    }
}
