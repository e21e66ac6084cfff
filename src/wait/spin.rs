//! How long to try before going to sleep.

use crate::sync::{hint, thread};

use super::processors;

/// The pausing rounds of one who has just come: 1, 2, then 4 pauses (170 ns in all where a pause
/// takes 24 ns).
const PAUSING: u32 = 3;
/// The rounds after those that give the processor away, so that an owner without one can run.
const YIELDING: u32 = 7;
/// The pausing rounds of one who has slept: 1 to 32 pauses, 1.5 µs in all. It does not yield: it has
/// waited for long, and whoever would run instead has not.
const WOKEN: u32 = 6;

/// The pausing rounds of one that is handed the lock next: 12 µs in all, about what it costs to sleep
/// and to be woken.
const HANDED: u32 = 9;

/// The rounds of a wait that knows nothing better.
pub(crate) const DEFAULT_ROUNDS: u32 = PAUSING + YIELDING;

/// How long a thread tries before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SpinPolicy {
    /// Ten rounds: three of 1, 2 and 4 pauses, then seven that give the processor away. Who was
    /// woken tries for six rounds of 1 to 32 pauses. On one processor, or under a quota of one, it
    /// does not spin at all.
    #[default]
    Auto,
    /// Sleeps at once. For locks that are held for long, and for threads that must not burn time.
    Never,
    /// This many rounds, rounded up to a power of two and to 64 at most: the first six pause 1, 2,
    /// 4, 8, 16 and 32 times, the others give the processor away. Who was woken only pauses. Zero is
    /// [`SpinPolicy::Never`].
    Fixed(u8),
}

/// A policy in four bits.
///
/// ```text
/// | value | meaning                                 |
/// |-------|-----------------------------------------|
/// | 0     | automatic                               |
/// | 1     | never                                   |
/// | 2–8   | fixed: 1, 2, 4, 8, 16, 32, 64 rounds    |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget(u32);

impl Budget {
    /// The most a budget's number can be.
    pub(crate) const MAX: u32 = 15;
    const AUTO: u32 = 0;
    const NEVER: u32 = 1;
    const FIXED: u32 = 2;

    pub(crate) const fn of(policy: SpinPolicy) -> Self {
        match policy {
            SpinPolicy::Auto => Self(Self::AUTO),
            SpinPolicy::Never | SpinPolicy::Fixed(0) => Self(Self::NEVER),
            SpinPolicy::Fixed(rounds) => {
                let rounds = if rounds > 64 { 64 } else { rounds as u32 };
                Self(Self::FIXED + rounds.next_power_of_two().trailing_zeros())
            }
        }
    }

    /// From its number.
    pub(crate) const fn from_number(number: u32) -> Self {
        Self(number & Self::MAX)
    }

    /// Its number, 0 to [`MAX`](Self::MAX).
    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    /// How many rounds pause, and how many yield after them.
    fn rounds(self) -> (u32, u32) {
        match self.0 {
            Self::AUTO if processors::only_one() => (0, 0),
            Self::AUTO => (PAUSING, YIELDING),
            Self::NEVER => (0, 0),
            fixed => {
                let rounds = 1 << (fixed - Self::FIXED);
                (rounds.min(WOKEN), rounds.saturating_sub(WOKEN))
            }
        }
    }

    /// The spin of a thread that has just come.
    pub(crate) fn for_newcomer(self) -> Spin {
        let (pausing, yielding) = self.rounds();
        Spin::capped(pausing, yielding)
    }

    /// The spin of a thread that has slept.
    pub(crate) fn for_woken(self) -> Spin {
        self.pausing(WOKEN)
    }

    /// The spin of a thread that is handed the lock by the next unlock.
    pub(crate) fn for_starving(self) -> Spin {
        self.pausing(HANDED)
    }

    /// `automatic` rounds that pause, or as many as were told.
    fn pausing(self, automatic: u32) -> Spin {
        match (self.0, self.rounds().0) {
            (Self::AUTO, 1..) => Spin::capped(automatic, 0),
            (_, told) => Spin::capped(told, 0),
        }
    }
}

/// One wait's spinning: a number of rounds, each a little longer than the one before.
#[derive(Debug)]
pub(crate) struct Spin {
    done: u32,
    pausing: u32,
    rounds: u32,
}

impl Spin {
    /// `rounds` rounds, of which the first three pause (none at all in a model).
    #[inline]
    pub(crate) fn rounds(rounds: u32) -> Self {
        Self::capped(rounds.min(PAUSING), rounds.saturating_sub(PAUSING))
    }

    #[allow(clippy::unnecessary_min_or_max, reason = "the cap is 0 in a model")]
    fn capped(pausing: u32, yielding: u32) -> Self {
        Self { done: 0, pausing, rounds: pausing.saturating_add(yielding).min(hint::SPIN_CAP) }
    }

    /// Spends one round. False, at once, if none is left: sleep now.
    #[inline]
    pub(crate) fn round(&mut self) -> bool {
        if self.done >= self.rounds {
            return false;
        }
        if self.done < self.pausing {
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

    fn count(mut spin: Spin) -> usize {
        (0..1_000).take_while(|_| spin.round()).count()
    }

    #[test]
    fn a_spin_ends_after_its_rounds_and_stays_ended() {
        let mut spin = Spin::rounds(4);
        assert_eq!((0..4).filter(|_| spin.round()).count(), 4);
        assert!(!spin.round());
        assert!(!spin.round());
        assert!(!Spin::rounds(0).round());
    }

    #[test]
    fn policies_become_budgets_and_back() {
        for (told, newcomer, woken) in [
            (0, 0, 0),
            (1, 1, 1),
            (2, 2, 2),
            (3, 4, 4),
            (6, 8, 6),
            (33, 64, 6),
            (64, 64, 6),
            (255, 64, 6),
        ] {
            let budget = Budget::of(SpinPolicy::Fixed(told));
            assert_eq!(Budget::from_number(budget.number()), budget);
            assert_eq!(count(budget.for_newcomer()), newcomer, "{told}");
            assert_eq!(count(budget.for_woken()), woken, "{told}");
        }
        let never = Budget::of(SpinPolicy::Never);
        assert_eq!((count(never.for_newcomer()), count(never.for_woken())), (0, 0));
        let auto = Budget::of(SpinPolicy::Auto);
        let rounds = if processors::only_one() { [0, 0, 0] } else { [10, 6, 9] };
        let spins = [auto.for_newcomer(), auto.for_woken(), auto.for_starving()];
        assert_eq!(spins.map(count), rounds);
        assert_eq!(Budget::of(SpinPolicy::default()), auto);
    }
}
