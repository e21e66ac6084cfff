//! The word of a concurrency limit: seats taken, the limit, and who is to be told.

use core::fmt;

use crate::sync::atomic::{AtomicU64, Ordering};

const USED_BITS: u32 = 31;
const ONE_USED: u64 = 1;
const USED: u64 = (1 << USED_BITS) - 1;
const LIMIT_SHIFT: u32 = USED_BITS;
const LIMIT: u64 = USED << LIMIT_SHIFT;
/// Somebody waits in line, or did a moment ago.
const AWAITED: u64 = 1 << 62;
/// Somebody listens.
const WATCHED: u64 = 1 << 63;

/// The highest limit.
pub(super) const MAX_LIMIT: u32 = USED as u32;

/// What the word said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Seats(u64);

impl Seats {
    fn new(limit: u32) -> Self {
        Self(u64::from(limit.min(MAX_LIMIT)) << LIMIT_SHIFT)
    }

    pub(super) const fn used(self) -> u32 {
        (self.0 & USED) as u32
    }

    pub(super) const fn limit(self) -> u32 {
        ((self.0 & LIMIT) >> LIMIT_SHIFT) as u32
    }

    pub(super) const fn is_awaited(self) -> bool {
        self.0 & AWAITED != 0
    }

    pub(super) const fn is_watched(self) -> bool {
        self.0 & WATCHED != 0
    }

    pub(super) const fn has_room(self) -> bool {
        self.used() < self.limit()
    }

    const fn with_limit(self, limit: u32) -> Self {
        let limit = if limit > MAX_LIMIT { MAX_LIMIT } else { limit };
        Self(self.0 & !LIMIT | (limit as u64) << LIMIT_SHIFT)
    }
}

impl fmt::Debug for Seats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("Seats");
        tuple.field(&format_args!("{} of {}", self.used(), self.limit()));
        if self.is_awaited() {
            tuple.field(&"AWAITED");
        }
        if self.is_watched() {
            tuple.field(&"WATCHED");
        }
        tuple.finish()
    }
}

/// The word itself.
pub(super) struct SeatsCell(AtomicU64);

impl SeatsCell {
    pub(super) fn new(limit: u32) -> Self {
        Self(AtomicU64::new(Seats::new(limit).0))
    }

    pub(super) fn look(&self) -> Seats {
        // ORDERING: Relaxed: an answer that may be out of date when it is read.
        Seats(self.0.load(Ordering::Relaxed))
    }

    /// Takes a seat, unless there is none or others were first.
    #[must_use]
    #[inline]
    pub(super) fn take(&self) -> bool {
        self.take_if(|seats| seats.has_room() && !seats.is_awaited())
    }

    /// Takes a seat for the first in line.
    #[must_use]
    pub(super) fn take_for_waiter(&self) -> bool {
        self.take_if(Seats::has_room)
    }

    #[inline]
    fn take_if(&self, may: impl Fn(Seats) -> bool) -> bool {
        // ORDERING: Relaxed: a stale value fails the exchange; one that says "no" is as new as the
        // caller's own last change of the word (see the room's page: no waiter is lost).
        let mut seen = Seats(self.0.load(Ordering::Relaxed));
        while may(seen) {
            // ORDERING: Acquire: pairs with the Release in `give_back`, so that what was done under a
            // permit is seen by whoever has it next. Relaxed where it fails: looked at anew.
            match self.0.compare_exchange_weak(
                seen.0,
                seen.0 + ONE_USED,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => seen = Seats(now),
            }
        }
        false
    }

    /// Gives a seat back. What it returns says whom to see to.
    #[must_use]
    #[inline]
    pub(super) fn give_back(&self) -> Seats {
        // ORDERING: Release: pairs with the Acquire in `take_if`.
        Seats(self.0.fetch_sub(ONE_USED, Ordering::Release))
    }

    /// Changes the limit by what `f` makes of it. Returns what the word was before.
    #[must_use]
    pub(super) fn change_limit(&self, f: impl Fn(u32) -> u32) -> Seats {
        // ORDERING: Relaxed: a stale value fails the exchange.
        let mut seen = Seats(self.0.load(Ordering::Relaxed));
        loop {
            let next = seen.with_limit(f(seen.limit()));
            // ORDERING: AcqRel: a change shows what its maker stored before to each later change (the
            // bounds of an adaptive limit). Relaxed where it fails: looked at anew.
            match self.0.compare_exchange_weak(seen.0, next.0, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return seen,
                Err(now) => seen = Seats(now),
            }
        }
    }

    /// Somebody stands in line. With the line locked.
    pub(super) fn mark_awaited(&self) {
        // ORDERING: Relaxed: what matters is the order of the word's own changes: a seat that is given
        // back later finds the mark, one given back earlier is found by the look that follows.
        self.0.fetch_or(AWAITED, Ordering::Relaxed);
    }

    /// Nobody stands in line. With the line locked.
    pub(super) fn clear_awaited(&self) {
        // ORDERING: Relaxed: as in `mark_awaited`.
        self.0.fetch_and(!AWAITED, Ordering::Relaxed);
    }

    /// Somebody listens.
    pub(super) fn mark_watched(&self) {
        // ORDERING: Relaxed: as in `mark_awaited`. Who is told is under a lock.
        self.0.fetch_or(WATCHED, Ordering::Relaxed);
    }
}

impl fmt::Debug for SeatsCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.look().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_do_not_touch() {
        let cell = SeatsCell::new(u32::MAX);
        assert_eq!((cell.look().used(), cell.look().limit()), (0, MAX_LIMIT));
        cell.mark_watched();
        cell.mark_awaited();
        assert!(!cell.take(), "others were first");
        assert!(cell.take_for_waiter());
        assert_eq!(cell.change_limit(|limit| limit / 2).limit(), MAX_LIMIT);
        let seats = cell.look();
        assert_eq!((seats.used(), seats.limit()), (1, MAX_LIMIT / 2));
        assert!(seats.is_awaited() && seats.is_watched() && seats.has_room());
        cell.clear_awaited();
        let _ = cell.change_limit(|_| 1);
        assert!(!cell.take());
        assert_eq!(cell.give_back().used(), 1);
        assert!(cell.take());
        assert_eq!(format!("{cell:?}"), "Seats(1 of 1, \"WATCHED\")");
    }
}
