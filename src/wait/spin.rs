//! How long to try before going to sleep: the budget of rounds, and what it learns.

use core::cell::Cell;

use crate::sync::{hint, thread};

use super::processors;

/// The rounds that pause at least: 1, 2, then 4 pauses (170 ns in all where a pause takes 24 ns).
const FLOOR: u32 = 3;
/// The rounds that pause at most: the sixth has 32 pauses, 1.5 µs in all.
const CEILING: u32 = 6;
/// The rounds of a budget that give the processor away, so that an owner without one can run.
const YIELDING: u32 = 7;

/// The rounds of a wait that knows nothing better.
pub(crate) const DEFAULT_ROUNDS: u32 = FLOOR + YIELDING;

/// How long a thread tries before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SpinPolicy {
    /// Learns how long it is worth while, lock by lock; on one processor it does not spin at all.
    ///
    /// Ten rounds to begin with: three of 1, 2 and 4 pauses, then seven that give the processor
    /// away. Waits that succeed while pausing, but not within those three, add pausing rounds, up
    /// to six; waits that succeed sooner take them away again, and one that does not succeed at all
    /// takes them all: never below three. One wait in 32 teaches.
    #[default]
    Auto,
    /// Sleeps at once. For locks that are held for long, and for threads that must not burn time.
    Never,
    /// This many rounds, rounded up to a power of two and to 64 at most: the first six pause 1, 2,
    /// 4, 8, 16 and 32 times, the others give the processor away. Zero is [`SpinPolicy::Never`].
    Fixed(u8),
}

/// A lock's budget in four bits: what it has learned, or what it is told.
///
/// ```text
/// | value | meaning                                             |
/// |-------|-----------------------------------------------------|
/// | 0–7   | learned: 3, 3, 4, 4, 5, 5, 6, 6 pausing rounds, then 7 yielding ones |
/// | 8     | never                                               |
/// | 9–15  | fixed: 1, 2, 4, 8, 16, 32, 64 rounds                |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget(u32);

impl Budget {
    /// The most a budget's number can be.
    pub(crate) const MAX: u32 = 15;
    const LEARNED_MAX: u32 = 7;
    const NEVER: u32 = 8;

    pub(crate) const fn of(policy: SpinPolicy) -> Self {
        match policy {
            SpinPolicy::Auto => Self(0),
            SpinPolicy::Never | SpinPolicy::Fixed(0) => Self(Self::NEVER),
            SpinPolicy::Fixed(rounds) => {
                let rounds = if rounds > 64 { 64 } else { rounds as u32 };
                Self(Self::NEVER + 1 + rounds.next_power_of_two().trailing_zeros())
            }
        }
    }

    /// From its number, 0 to 15.
    pub(crate) const fn from_number(number: u32) -> Self {
        Self(number & Self::MAX)
    }

    /// Its number, 0 to 15.
    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    fn is_learned(self) -> bool {
        self.0 <= Self::LEARNED_MAX
    }

    /// How many rounds pause, and how many yield after them.
    fn rounds(self) -> (u32, u32) {
        match self.0 {
            _ if self.is_learned() && processors::only_one() => (0, 0),
            learned if self.is_learned() => (FLOOR + learned / 2, YIELDING),
            Self::NEVER => (0, 0),
            fixed => {
                let rounds = 1 << (fixed - Self::NEVER - 1);
                (rounds.min(CEILING), rounds.saturating_sub(CEILING))
            }
        }
    }

    /// What a finished spin teaches; `None` if nothing.
    pub(crate) fn taught_by(self, spin: &Spin, won: bool) -> Option<Self> {
        if !self.is_learned() || spin.pausing == 0 {
            return None;
        }
        if !won {
            // The owner does not run, or holds on for long: back to the floor at once, so that
            // sleepers get their turns. What is learned too low costs little, and grows again.
            (self.0 > 0).then_some(Self(0))
        } else if (FLOOR..=spin.pausing).contains(&spin.done) {
            (self.0 < Self::LEARNED_MAX).then(|| Self(self.0 + 1))
        } else {
            self.0.checked_sub(1).map(Self)
        }
    }
}

/// One spin in so many teaches: a lesson is a write to the word that everybody fights for.
const LESSON_EVERY: u32 = 32;

/// Whether this thread's spin, about to end, is one that teaches. Never in a model.
pub(crate) fn is_lesson() -> bool {
    std::thread_local! {
        // Needs neither allocation nor destructor, so it is there in an allocator and at a
        // thread's end.
        static SPINS: Cell<u32> = const { Cell::new(0) };
    }
    !super::IN_A_MODEL
        && SPINS
            .try_with(|spins| {
                spins.set(spins.get().wrapping_add(1));
                spins.get().is_multiple_of(LESSON_EVERY)
            })
            .unwrap_or(false)
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
        Self::capped(rounds.min(FLOOR), rounds.saturating_sub(FLOOR))
    }

    /// The rounds of a budget (none at all in a model).
    #[inline]
    pub(crate) fn of(budget: Budget) -> Self {
        let (pausing, yielding) = budget.rounds();
        Self::capped(pausing, yielding)
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
        let rounds = |policy| {
            let (pausing, yielding) = Budget::of(policy).rounds();
            pausing + yielding
        };
        assert_eq!(rounds(SpinPolicy::Never), 0);
        for (told, done) in [(0, 0), (1, 1), (2, 2), (3, 4), (6, 8), (33, 64), (64, 64), (255, 64)]
        {
            assert_eq!(rounds(SpinPolicy::Fixed(told)), done, "{told}");
        }
        for number in 0..=Budget::MAX {
            assert_eq!(Budget::from_number(number).number(), number);
            let (pausing, _) = Budget::from_number(number).rounds();
            assert!(pausing <= CEILING);
        }
    }

    /// Spins until `wins` rounds are done, then wins (or loses at the end).
    fn teach(budget: Budget, wins: Option<u32>) -> Budget {
        let mut spin = Spin::of(budget);
        let mut won = false;
        loop {
            if wins == Some(spin.done) {
                won = true;
                break;
            }
            if !spin.round() {
                break;
            }
        }
        budget.taught_by(&spin, won).unwrap_or(budget)
    }

    #[test]
    fn a_budget_learns_within_its_floor_and_ceiling() {
        if processors::only_one() {
            return; // it does not spin, so it has nothing to learn
        }
        let mut budget = Budget::of(SpinPolicy::Auto);
        // Just out of the floor's reach: grows until the ceiling.
        for _ in 0..20 {
            budget = teach(budget, Some(FLOOR));
        }
        assert_eq!(budget.rounds(), (CEILING, YIELDING));
        // Not worth while: shrinks to the floor at once, and not to nothing.
        budget = teach(budget, None);
        assert_eq!(budget.rounds(), (FLOOR, YIELDING));
        // Won at once: nothing more is needed.
        assert_eq!(teach(budget, Some(0)), budget);
    }

    #[test]
    fn what_is_told_does_not_learn() {
        for policy in [SpinPolicy::Never, SpinPolicy::Fixed(8)] {
            let budget = Budget::of(policy);
            assert_eq!(teach(budget, Some(FLOOR)), budget);
            assert_eq!(teach(budget, None), budget);
        }
    }
}
