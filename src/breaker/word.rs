//! The breaker's word: where it stands, since how many changes, and the probes.

use core::fmt;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Calls go through and are counted.
    Closed,
    /// Calls are refused until a time.
    Open,
    /// That time is over: so many probes are let through, and decide.
    HalfOpen,
    /// Calls are refused until somebody says otherwise.
    ForcedOpen,
    /// Calls go through and are not counted.
    Disabled,
}

impl State {
    const ALL: [Self; 5] =
        [Self::Closed, Self::Open, Self::HalfOpen, Self::ForcedOpen, Self::Disabled];

    /// In lower case, as metrics want it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
            Self::ForcedOpen => "forced_open",
            Self::Disabled => "disabled",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const ONE_OK: u64 = 1;
const ONE_IN_FLIGHT: u64 = 1 << 16;
const ONE_GENERATION: u64 = 1 << 32;
const SMALL: u64 = 0xFFFF;
const GENERATION: u64 = (1 << 29) - 1;
const STATE_SHIFT: u32 = 61;

/// What the word said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    pub(super) const fn new(state: State, generation: u32) -> Self {
        let generation = generation as u64 & GENERATION;
        Self(((state as u64) << STATE_SHIFT) | (generation * ONE_GENERATION))
    }

    pub(super) fn state(self) -> State {
        // Only `new` writes it.
        State::ALL.get((self.0 >> STATE_SHIFT) as usize).copied().unwrap_or(State::Closed)
    }

    #[inline]
    pub(super) const fn is_closed(self) -> bool {
        self.0 >> STATE_SHIFT == State::Closed as u64
    }

    /// Rises with each change of state, and wraps after 2²⁹: a permit that is held across exactly as
    /// many is taken for a current one.
    #[inline]
    pub(super) const fn generation(self) -> u32 {
        ((self.0 / ONE_GENERATION) & GENERATION) as u32
    }

    /// Probes that are under way.
    pub(super) const fn in_flight(self) -> u32 {
        ((self.0 / ONE_IN_FLIGHT) & SMALL) as u32
    }

    /// Probes that went well.
    pub(super) const fn ok(self) -> u32 {
        (self.0 & SMALL) as u32
    }

    /// The same in the next generation, with no probes.
    pub(super) const fn next(self, state: State) -> Self {
        Self::new(state, self.generation().wrapping_add(1))
    }

    /// With a first probe under way.
    pub(super) const fn with_probe(self) -> Self {
        Self(self.0 + ONE_IN_FLIGHT)
    }

    /// With a probe less under way and one more that went well.
    pub(super) const fn passed(self) -> Self {
        Self(self.0 - ONE_IN_FLIGHT + ONE_OK)
    }

    fn is_probing(self, generation: u32) -> bool {
        self.state() == State::HalfOpen && self.generation() == generation
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in generation {}", self.state(), self.generation())?;
        if self.state() == State::HalfOpen {
            write!(f, ", {} probes in flight, {} ok", self.in_flight(), self.ok())?;
        }
        Ok(())
    }
}

/// Whether a probe was let through.
#[derive(Debug)]
#[must_use]
pub(super) enum Probe {
    /// Yes, in this generation.
    Taken(u32),
    /// As many as there may be are under way or done.
    Full(Word),
    /// The breaker is not half-open any more.
    Moved(Word),
}

/// What a probe that went well comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Passed {
    /// It was counted; others are to follow.
    Counted,
    /// It is the last one: close, with the book locked. Nothing was changed.
    Last,
    /// It is of an older generation.
    Late,
}

/// The word itself.
pub(super) struct WordCell(AtomicU64);

impl WordCell {
    pub(super) fn new(state: State) -> Self {
        Self(AtomicU64::new(Word::new(state, 0).0))
    }

    /// For whoever asks to be let through.
    #[inline]
    pub(super) fn load(&self) -> Word {
        // ORDERING: Acquire: pairs with the Release in `change`: the time until which it is open, and the
        // settings, are those of this state or later ones.
        Word(self.0.load(Ordering::Acquire))
    }

    /// For whoever needs the word alone.
    #[inline]
    pub(super) fn peek(&self) -> Word {
        // ORDERING: Relaxed: a result that is late by a moment counts for the generation before.
        Word(self.0.load(Ordering::Relaxed))
    }

    /// Lets a probe through, unless `most` are under way or done.
    pub(super) fn take_probe(&self, seen: Word, most: u32) -> Probe {
        let mut seen = seen;
        loop {
            if seen.state() != State::HalfOpen {
                return Probe::Moved(seen);
            }
            if seen.in_flight() + seen.ok() >= most {
                return Probe::Full(seen);
            }
            // ORDERING: Relaxed: only the count changes, and what the state shows was acquired with it.
            // Acquire where it fails: the state may be another, and goes back to the caller.
            match self.0.compare_exchange_weak(
                seen.0,
                seen.with_probe().0,
                Ordering::Relaxed,
                Ordering::Acquire,
            ) {
                Ok(_) => return Probe::Taken(seen.generation()),
                Err(now) => seen = Word(now),
            }
        }
    }

    /// A probe of `generation` went well.
    pub(super) fn pass_probe(&self, generation: u32, most: u32) -> Passed {
        let mut seen = self.peek();
        loop {
            if !seen.is_probing(generation) {
                return Passed::Late;
            }
            if seen.ok() + 1 >= most {
                return Passed::Last;
            }
            // ORDERING: Relaxed: only the counts change.
            match self.0.compare_exchange_weak(
                seen.0,
                seen.passed().0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Passed::Counted,
                Err(now) => seen = Word(now),
            }
        }
    }

    /// A probe of `generation` came to nothing either way. True: it can be had again.
    pub(super) fn return_probe(&self, generation: u32) -> bool {
        let mut seen = self.peek();
        while seen.is_probing(generation) {
            // ORDERING: Relaxed: only the count changes.
            match self.0.compare_exchange_weak(
                seen.0,
                seen.0 - ONE_IN_FLIGHT,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => seen = Word(now),
            }
        }
        false
    }

    /// Changes the state, with the book locked: `next` says to what, or that nothing is to change.
    /// Returns the word before and after.
    pub(super) fn change(&self, next: impl Fn(Word) -> Option<Word>) -> Option<(Word, Word)> {
        let mut seen = self.peek();
        loop {
            let to = next(seen)?;
            // ORDERING: Release: pairs with the Acquire in `load` and `take_probe`. Relaxed where it fails:
            // only probes change the word while the book is locked.
            match self.0.compare_exchange_weak(seen.0, to.0, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some((seen, to)),
                Err(now) => seen = Word(now),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_do_not_touch() {
        let word = Word::new(State::HalfOpen, u32::MAX);
        assert_eq!(word.generation(), (1 << 29) - 1);
        assert_eq!(word.next(State::Disabled), Word::new(State::Disabled, 0));
        for state in State::ALL {
            assert_eq!(Word::new(state, 5).state(), state);
            assert_eq!(Word::new(state, 5).is_closed(), state == State::Closed);
        }
        let cell = WordCell::new(State::HalfOpen);
        for _ in 0..u16::MAX {
            assert!(matches!(cell.take_probe(cell.peek(), 65_535), Probe::Taken(0)));
        }
        assert!(matches!(cell.take_probe(cell.peek(), 65_535), Probe::Full(_)));
        for _ in 1..u16::MAX {
            assert_eq!(cell.pass_probe(0, 65_535), Passed::Counted);
        }
        assert_eq!(cell.pass_probe(0, 65_535), Passed::Last);
        let full = cell.peek();
        assert_eq!((full.in_flight(), full.ok(), full.generation()), (1, 65_534, 0));
        assert!(cell.return_probe(0) && !cell.return_probe(1));
        assert_eq!(cell.pass_probe(1, 9), Passed::Late);
        assert_eq!(
            format!("{:?}", cell.peek()),
            "HalfOpen in generation 0, 0 probes in flight, 65534 ok"
        );
    }
}
