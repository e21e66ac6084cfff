//! The word of a key: who holds it, until when, and which of two values is current.
//!
//! ```text
//!  63            41 40   39  38     37                 0
//! ┌────────────────┬───────┬───────┬────────────────────┐
//! │ epoch (23)     │ state │ index │ tick (38)          │
//! └────────────────┴───────┴───────┴────────────────────┘
//! ```
//!
//! Every transition is one compare-and-exchange of the whole word. Bits never leave this file.
//! With `--cfg tenure_small_words` epochs have 4 bits and ticks 16, so that the ends of both ranges
//! are met by ordinary tests.

use core::fmt;

use crate::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(tenure_small_words))]
const TICK_BITS: u32 = 38;
#[cfg(tenure_small_words)]
const TICK_BITS: u32 = 16;
#[cfg(not(tenure_small_words))]
const EPOCH_BITS: u32 = 23;
#[cfg(tenure_small_words)]
const EPOCH_BITS: u32 = 4;

const TICK_MASK: u64 = (1 << TICK_BITS) - 1;
const INDEX_SHIFT: u32 = TICK_BITS;
const INDEX_BIT: u64 = 1 << INDEX_SHIFT;
const STATE_SHIFT: u32 = INDEX_SHIFT + 1;
const STATE_MASK: u64 = 0b11 << STATE_SHIFT;
const EPOCH_SHIFT: u32 = STATE_SHIFT + 2;

/// The last epoch a word can hold. A grant beyond it moves the key to a fresh slot. Epoch 0 is no
/// grant's.
pub(super) const EPOCH_MAX: u64 = (1 << EPOCH_BITS) - 1;

/// The last tick that is a deadline.
pub(super) const TICK_LAST: u64 = TICK_MASK - 1;

/// A deadline that is kept elsewhere: in the lease's session.
pub(super) const TICK_SESSION: u64 = TICK_MASK;

/// Who may do what with the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody holds it. The tick says how the last term ended ([`Ended`]).
    Free,
    /// The grant with this epoch holds it until the tick.
    Held,
    /// The grant with this epoch was handed off, and is to be accepted before the tick.
    Pending,
    /// Final: the key has moved to another slot or was removed; the index knows.
    Gone,
}

/// How the last term of a free word ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// By its only owner, which touches the slot no more.
    Released,
    /// By a call that read a time at or past the deadline.
    Expired,
    /// By a token, while a guard with the same token may still be around.
    ReleasedByToken,
    /// By [`revoke`](crate::lease::LeaseTable::revoke).
    Revoked,
    /// With its session.
    SessionClosed,
}

/// A word, taken apart by name.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Word(u64);

impl Word {
    /// The final word.
    pub(super) const GONE: Self = Self((State::Gone as u64) << STATE_SHIFT);

    const fn build(epoch: u64, state: State, index: u64, tick: u64) -> Self {
        Self(epoch << EPOCH_SHIFT | (state as u64) << STATE_SHIFT | index << INDEX_SHIFT | tick)
    }

    /// Free, and clean. Epoch 0: from the beginning; no grant has it.
    pub(super) const fn free(epoch: u64) -> Self {
        Self::build(epoch, State::Free, 0, Ended::Released as u64)
    }

    /// A grant in a fresh slot.
    pub(super) const fn held(epoch: u64, until: u64) -> Self {
        Self::build(epoch, State::Held, 0, until)
    }

    /// A grant in a fresh slot, to be accepted.
    pub(super) const fn pending(epoch: u64, until: u64) -> Self {
        Self::build(epoch, State::Pending, 0, until)
    }

    /// The same, naming the entry that a value of `version` belongs in.
    pub(super) const fn indexed_by(self, version: u64) -> Self {
        Self(self.0 & !INDEX_BIT | (version & 1) << INDEX_SHIFT)
    }

    #[inline]
    pub(super) const fn epoch(self) -> u64 {
        self.0 >> EPOCH_SHIFT
    }

    #[inline]
    pub(super) const fn state(self) -> State {
        match (self.0 & STATE_MASK) >> STATE_SHIFT {
            0 => State::Free,
            1 => State::Held,
            2 => State::Pending,
            _ => State::Gone,
        }
    }

    /// Which of the slot's two entries holds the current value.
    #[inline]
    pub(super) const fn index(self) -> usize {
        ((self.0 & INDEX_BIT) >> INDEX_SHIFT) as usize
    }

    /// The deadline of a held or pending word.
    #[inline]
    pub(super) const fn tick(self) -> u64 {
        self.0 & TICK_MASK
    }

    /// How the last term of a free word ended.
    #[inline]
    pub(super) const fn ended(self) -> Ended {
        match self.tick() {
            0 => Ended::Released,
            1 => Ended::Expired,
            2 => Ended::ReleasedByToken,
            3 => Ended::Revoked,
            _ => Ended::SessionClosed,
        }
    }

    /// Free, and no guard of an earlier grant can touch the slot's entries any more.
    #[inline]
    pub(super) const fn is_clean(self) -> bool {
        self.0 & (STATE_MASK | TICK_MASK) == 0
    }

    #[inline]
    pub(super) const fn is_gone(self) -> bool {
        matches!(self.state(), State::Gone)
    }

    /// Whether this is a term, running or handed off, of the grant with `epoch`.
    #[inline]
    pub(super) const fn is_term_of(self, epoch: u64) -> bool {
        self.epoch() == epoch && matches!(self.state(), State::Held | State::Pending)
    }

    #[inline]
    const fn with(self, state: State, tick: u64) -> Self {
        Self(self.0 & !(STATE_MASK | TICK_MASK) | (state as u64) << STATE_SHIFT | tick)
    }

    /// The next grant. The caller has looked that there is one more epoch.
    #[inline]
    pub(super) const fn granted(self, until: u64) -> Self {
        Self(self.with(State::Held, until).0 + (1 << EPOCH_SHIFT))
    }

    /// The next grant, handed off. The caller has looked that there is one more epoch.
    #[inline]
    pub(super) const fn offered(self, until: u64) -> Self {
        Self(self.with(State::Pending, until).0 + (1 << EPOCH_SHIFT))
    }

    /// The handed-off grant, accepted.
    #[inline]
    pub(super) const fn accepted(self, until: u64) -> Self {
        self.with(State::Held, until)
    }

    /// The same grant until a later tick; never an earlier one.
    #[inline]
    pub(super) const fn renewed(self, until: u64) -> Self {
        let later = if until > self.tick() { until } else { self.tick() };
        self.with(State::Held, later)
    }

    /// The term is over.
    #[inline]
    pub(super) const fn over(self, how: Ended) -> Self {
        self.with(State::Free, how as u64)
    }

    /// The other entry is current, and the lease goes on.
    #[inline]
    pub(super) const fn published(self) -> Self {
        Self(self.0 ^ INDEX_BIT)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state() {
            State::Free => {
                write!(f, "Free({} #{}, {:?})", self.epoch(), self.index(), self.ended())
            }
            State::Gone => f.write_str("Gone"),
            state => {
                write!(f, "{state:?}({} #{}, until {})", self.epoch(), self.index(), self.tick())
            }
        }
    }
}

/// The word in its slot.
#[repr(transparent)]
pub(super) struct WordCell(AtomicU64);

impl WordCell {
    pub(super) fn new(word: Word) -> Self {
        Self(AtomicU64::new(word.0))
    }

    /// The word now, and everything its writer did before.
    #[inline]
    pub(super) fn load(&self) -> Word {
        // ORDERING: Acquire: pairs with the Release half of `swap_if`: who sees a word sees the value
        // entry it names, and whatever plain data the owner wrote before it let go.
        Word(self.0.load(Ordering::Acquire))
    }

    /// The word now, as a first guess for `swap_if`.
    #[inline]
    pub(super) fn peek(&self) -> Word {
        // ORDERING: Relaxed: nothing is read through it; the exchange that follows compares it and
        // synchronises.
        Word(self.0.load(Ordering::Relaxed))
    }

    /// The word now, by a step that has its place in the order of all changes.
    pub(super) fn touch(&self) -> Word {
        // ORDERING: AcqRel: Release publishes the annex's flag to the exchange that ends a term after
        // this; Acquire sees what the one before it wrote.
        Word(self.0.fetch_or(0, Ordering::AcqRel))
    }

    /// The one way a word changes.
    #[inline]
    pub(super) fn swap_if(&self, seen: Word, next: Word) -> bool {
        // ORDERING: Release publishes the entry that `next` names and the owner's plain data, to the
        // Acquire in `load` and to the Acquire half of the next owner's exchange here, which must
        // also see the flags that a waiter raised before its `touch`. A failure reads nothing: the
        // caller loads again.
        self.0.compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl fmt::Debug for WordCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peek().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_state() -> impl Strategy<Value = State> {
        prop_oneof![Just(State::Free), Just(State::Held), Just(State::Pending), Just(State::Gone)]
    }

    proptest! {
        #[test]
        fn parts_come_out_as_they_went_in(
            epoch in 0..=EPOCH_MAX, state in any_state(), index in 0u64..2, tick in 0..=TICK_SESSION,
        ) {
            let word = Word::build(epoch, state, index, tick);
            prop_assert_eq!(word.epoch(), epoch);
            prop_assert_eq!(word.state(), state);
            prop_assert_eq!(word.index() as u64, index);
            prop_assert_eq!(word.tick(), tick);
        }

        #[test]
        fn verbs_change_what_they_name_and_nothing_else(
            epoch in 0..EPOCH_MAX, index in 0u64..2, tick in 0..=TICK_LAST, later in 0..=TICK_LAST,
        ) {
            let held = Word::build(epoch, State::Held, index, tick);
            prop_assert_eq!(held.renewed(later), Word::build(epoch, State::Held, index, tick.max(later)));
            prop_assert_eq!(held.published(), Word::build(epoch, State::Held, index ^ 1, tick));
            prop_assert_eq!(held.granted(later), Word::build(epoch + 1, State::Held, index, later));
            prop_assert_eq!(held.offered(later), Word::build(epoch + 1, State::Pending, index, later));
            for how in [Ended::Released, Ended::Expired, Ended::ReleasedByToken, Ended::Revoked, Ended::SessionClosed] {
                let over = held.over(how);
                prop_assert_eq!((over.epoch(), over.state(), over.index() as u64, over.ended()), (epoch, State::Free, index, how));
                prop_assert_eq!(over.is_clean(), how == Ended::Released);
                prop_assert!(!over.is_term_of(epoch));
            }
            prop_assert!(held.is_term_of(epoch) && !held.is_term_of(epoch + 1));
        }
    }

    #[test]
    fn words_print_names() {
        assert_eq!(format!("{:?}", Word::held(1, 7)), "Held(1 #0, until 7)");
        assert_eq!(format!("{:?}", Word::held(1, 7).indexed_by(5)), "Held(1 #1, until 7)");
        assert_eq!(format!("{:?}", Word::free(0)), "Free(0 #0, Released)");
        assert_eq!(format!("{:?}", Word::GONE), "Gone");
    }
}
