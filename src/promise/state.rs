//! The state word: thirty-two bits that decide everything between a writer and a reader.
//!
//! Bits never leave this file. [`Word`] is what was read, [`StateCell`] is where it lives; each of
//! its verbs is one atomic operation, and says which end it pairs with. The table, the diagram and
//! the rules R1–R8 stand in the room's tour.

use core::fmt;
use core::time::Duration;

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Wait, park};

// The numbers: the phase is lowest so that "complete?" is one test of two bits; every other bit is
// added by one side only, and by an addition, which on x86 is one locked instruction even where the
// old value is wanted (an OR of several bits is a loop there).
const RESULT: u32 = 1;
const EXCEPTION: u32 = 1 << 1;
const PHASE: u32 = RESULT | EXCEPTION;
/// A waker is installed; with `RX_GONE`: a callback or a stage.
const SLOT: u32 = 1 << 2;
/// A thread waits on this word.
const PARKED: u32 = 1 << 3;
/// The writer will not touch the core again.
const TX_GONE: u32 = 1 << 4;
/// The reader will not touch the core again.
const RX_GONE: u32 = 1 << 5;
/// The reader asked for cancellation.
const CANCEL: u32 = 1 << 6;
/// The writer left a hook in the cancel node.
const HOOK: u32 = 1 << 7;
/// The waker was replaced at least once: its words cannot be trusted to a single exchange.
const REPLACED: u32 = 1 << 8;
const WHY_SHIFT: u32 = 9;
const WHY: u32 = 0b111 << WHY_SHIFT;

/// How a core ends: the phase and, for an exception, which one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Last {
    /// A value lies in the payload.
    Value = RESULT,
    /// The user's error lies in the payload.
    Failed = EXCEPTION,
    /// The writer was dropped.
    Broken = EXCEPTION | (1 << WHY_SHIFT),
    /// The writer gave up because the reader asked for it.
    Cancelled = EXCEPTION | (2 << WHY_SHIFT),
    /// An executor did not run the work.
    Rejected = EXCEPTION | (3 << WHY_SHIFT),
    /// A panic's payload lies in the payload.
    Panicked = EXCEPTION | (4 << WHY_SHIFT),
    /// A time limit passed.
    TimedOut = EXCEPTION | (5 << WHY_SHIFT),
    /// The value had been taken before.
    Taken = EXCEPTION | (6 << WHY_SHIFT),
}

/// One reading of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u32);

impl Word {
    /// How the core ended; `None` while it has not.
    #[inline]
    pub(crate) fn last(self) -> Option<Last> {
        match self.0 & (PHASE | WHY) {
            w if w & PHASE == 0 => None,
            w if w & RESULT != 0 => Some(Last::Value),
            w => Some(match (w & WHY) >> WHY_SHIFT {
                0 => Last::Failed,
                1 => Last::Broken,
                2 => Last::Cancelled,
                3 => Last::Rejected,
                4 => Last::Panicked,
                5 => Last::TimedOut,
                // Six; seven is never written.
                _ => Last::Taken,
            }),
        }
    }

    /// Nothing happened since the core was made.
    #[inline]
    pub(crate) fn is_untouched(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn is_complete(self) -> bool {
        self.0 & PHASE != 0
    }

    /// A value is there, and its writer is gone.
    #[inline]
    pub(crate) fn is_value_alone(self) -> bool {
        self.0 & (RESULT | TX_GONE) == RESULT | TX_GONE
    }

    /// The writer is gone, and left nothing.
    #[inline]
    pub(crate) fn is_broken_alone(self) -> bool {
        self.0 & (PHASE | WHY | TX_GONE) == Last::Broken as u32 | TX_GONE
    }

    #[inline]
    pub(crate) fn is_value(self) -> bool {
        self.0 & RESULT != 0
    }

    #[inline]
    pub(crate) fn has_slot(self) -> bool {
        self.0 & SLOT != 0
    }

    #[inline]
    pub(crate) fn has_sleeper(self) -> bool {
        self.0 & PARKED != 0
    }

    #[inline]
    pub(crate) fn has_hook(self) -> bool {
        self.0 & HOOK != 0
    }

    #[inline]
    pub(crate) fn writer_left(self) -> bool {
        self.0 & TX_GONE != 0
    }

    #[inline]
    pub(crate) fn reader_left(self) -> bool {
        self.0 & RX_GONE != 0
    }

    #[inline]
    pub(crate) fn cancel_requested(self) -> bool {
        self.0 & CANCEL != 0
    }

    /// Whether the writer has to publish its result before it may trust the waker's words.
    #[inline]
    pub(crate) fn waker_was_replaced(self) -> bool {
        self.0 & (SLOT | REPLACED) == SLOT | REPLACED
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last() {
            None => f.write_str("Initial")?,
            Some(last) => write!(f, "{last:?}")?,
        }
        for (bit, name) in [
            (SLOT, "slot"),
            (PARKED, "parked"),
            (TX_GONE, "writer gone"),
            (RX_GONE, "reader gone"),
            (CANCEL, "cancel requested"),
            (HOOK, "hook"),
            (REPLACED, "waker replaced"),
        ] {
            if self.0 & bit != 0 {
                write!(f, " + {name}")?;
            }
        }
        Ok(())
    }
}

/// The word in its cell.
pub(crate) struct StateCell(AtomicU32);

impl StateCell {
    /// Both sides are there, nothing is set.
    #[inline]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Complete from the start; there is no writer.
    #[inline]
    pub(crate) fn new_complete(last: Last) -> Self {
        Self(AtomicU32::new(last as u32 | TX_GONE))
    }

    /// The address a reader sleeps on.
    #[inline]
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.0
    }

    /// What the word says now. Either side.
    #[inline]
    pub(crate) fn peek(&self) -> Word {
        // ORDERING: Acquire: a phase pairs with the Release of `complete_and_leave` / `complete` (the
        // payload); a SLOT with the Release of `install` / `attach` (the slot's words); a GONE bit
        // with the Release of that side's leaving (its last access).
        Word(self.0.load(Ordering::Acquire))
    }

    // ---- the writer's verbs ------------------------------------------------------------------

    /// Publishes the result and leaves, in one step, if the word is still `seen`.
    ///
    /// After success the core may be gone: touch only locals.
    #[inline]
    pub(crate) fn complete_and_leave(&self, seen: Word, last: Last) -> Result<(), Word> {
        let next = seen.0 + last as u32 + TX_GONE;
        // ORDERING: Release publishes the payload and the writer's last access to the reader's
        // Acquire in `peek`, `install`, `retract`, `park` and `unpark`. Acquire on failure: the word
        // may show RX_GONE, and then the reader's last access, or its callback, must be visible.
        self.0
            .compare_exchange(seen.0, next, Ordering::Release, Ordering::Acquire)
            .map(|_| ())
            .map_err(Word)
    }

    /// Publishes the result without leaving; says what the word was.
    #[inline]
    pub(crate) fn complete(&self, last: Last) -> Word {
        // ORDERING: Release publishes the payload to the reader's Acquire operations, as in
        // `complete_and_leave`. Acquire: a SLOT in the old word pairs with the Release in `install`
        // (the waker's words), an RX_GONE with the Release in `abandon` and `attach`.
        Word(self.0.fetch_add(last as u32, Ordering::AcqRel))
    }

    /// The writer leaves after `complete`; says what the word was.
    #[inline]
    pub(crate) fn writer_leaves(&self) -> Word {
        // ORDERING: Release: the writer's reading of the slot comes before the reader's free (Acquire
        // in `reader_leaves`). Acquire: RX_GONE in the old word pairs with the Release there.
        Word(self.0.fetch_add(TX_GONE, Ordering::AcqRel))
    }

    /// Says that the cancel node holds a hook. Only if it did not say so yet (R3).
    #[inline]
    pub(crate) fn announce_hook(&self) -> Word {
        // ORDERING: Release publishes the pointer to the node to a canceller's Acquire (in
        // `request_cancel`, `abandon`). Acquire: CANCEL in the old word pairs with the Release in
        // `request_cancel`, so that the hook sees what the canceller did before.
        Word(self.0.fetch_add(HOOK, Ordering::AcqRel))
    }

    // ---- the reader's verbs ------------------------------------------------------------------

    /// Makes the first waker visible; says what the word was.
    #[inline]
    pub(crate) fn install(&self) -> Word {
        // ORDERING: Release publishes the waker's words to the writer's Acquire in `peek`,
        // `complete_and_leave` (failure) and `complete`. Acquire: a phase in the old word pairs with
        // their Release (the payload).
        Word(self.0.fetch_add(SLOT, Ordering::AcqRel))
    }

    /// Makes another waker visible, after `retract` said `before`; says what the word was.
    #[inline]
    pub(crate) fn install_again(&self, before: Word) -> Word {
        let first = if before.0 & REPLACED == 0 { REPLACED } else { 0 };
        // ORDERING: as in `install`. The sticky REPLACED makes a writer that read the old words fail
        // its exchange: without it the word could look the same again.
        Word(self.0.fetch_add(SLOT + first, Ordering::AcqRel))
    }

    /// Takes the waker back; says what the word was. With a phase in it, the waker is the writer's.
    #[inline]
    pub(crate) fn retract(&self) -> Word {
        // ORDERING: Acquire: a phase in the old word pairs with the writer's Release (the payload).
        // Nothing is published: the words were the reader's own.
        Word(self.0.fetch_sub(SLOT, Ordering::Acquire))
    }

    /// Says that a thread is about to sleep; says what the word was.
    #[inline]
    pub(crate) fn park(&self) -> Word {
        // ORDERING: Acquire: a phase in the old word pairs with the writer's Release. Nothing is
        // published: the sleeper is woken by address.
        Word(self.0.fetch_add(PARKED, Ordering::Acquire))
    }

    /// Says that the thread does not sleep any more; says what the word was.
    #[inline]
    pub(crate) fn unpark(&self) -> Word {
        // ORDERING: Acquire: as in `park`.
        Word(self.0.fetch_sub(PARKED, Ordering::Acquire))
    }

    /// Sleeps while the word is `seen`: any change to it ends the wait. Look again afterwards.
    pub(crate) fn sleep(&self, seen: Word, limit: Option<Duration>) -> Wait {
        park::wait(&self.0, seen.0, limit)
    }

    /// Leaves a callback or a stage behind, and leaves, if the word is still `seen` (no slot, no
    /// phase). After success the core may be gone.
    #[inline]
    pub(crate) fn attach(&self, seen: Word) -> Result<(), Word> {
        let next = seen.0 + SLOT + RX_GONE;
        // ORDERING: Release publishes the callback's words and the reader's last access to the
        // writer's Acquire in `peek`, `complete_and_leave` (failure) and `complete`. Acquire on
        // failure: a phase pairs with the writer's Release.
        self.0
            .compare_exchange(seen.0, next, Ordering::Release, Ordering::Acquire)
            .map(|_| ())
            .map_err(Word)
    }

    /// Leaves for good, taking the waker along, if the word is still `seen` (no phase); asks for
    /// cancellation on the way out if `cancel`. After success the core may be gone.
    #[inline]
    pub(crate) fn abandon(&self, seen: Word, cancel: bool) -> Result<(), Word> {
        let ask = if cancel { CANCEL } else { 0 };
        let next = (seen.0 & !SLOT | ask) + RX_GONE;
        // ORDERING: Release: the reader's last access comes before the writer's free (Acquire in
        // `peek` and on failure of `complete_and_leave`). Acquire on failure: a phase pairs with the
        // writer's Release, a HOOK with the Release in `announce_hook`.
        self.0
            .compare_exchange(seen.0, next, Ordering::Release, Ordering::Acquire)
            .map(|_| ())
            .map_err(Word)
    }

    /// Leaves after taking the result; says what the word was.
    #[inline]
    pub(crate) fn reader_leaves(&self) -> Word {
        // ORDERING: Release: the reader's taking of the payload comes before the writer's free
        // (Acquire in `writer_leaves`). Acquire: TX_GONE in the old word pairs with the Release
        // there.
        Word(self.0.fetch_add(RX_GONE, Ordering::AcqRel))
    }

    /// Asks for cancellation; says what the word was. Any number of times, from any thread.
    #[inline]
    pub(crate) fn request_cancel(&self) -> Word {
        // An OR: two threads may hold a reference to the same reader, and an addition would carry.
        // ORDERING: Release: what the canceller did before is visible to a hook that the writer runs
        // (Acquire in `announce_hook`). Acquire: HOOK in the old word pairs with the Release there.
        Word(self.0.fetch_or(CANCEL, Ordering::AcqRel))
    }

    // ---- the sole owner's verb ---------------------------------------------------------------

    /// Notes the end in a core that nobody else can reach (R2).
    #[inline]
    pub(crate) fn settle_alone(&self, last: Last) {
        // ORDERING: Relaxed: the other side has left, which its owner saw with Acquire.
        self.0.store(last as u32 | TX_GONE | RX_GONE | SLOT, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(tenure_loom)))]
mod tests {
    use super::*;

    const ALL: [Last; 8] = [
        Last::Value,
        Last::Failed,
        Last::Broken,
        Last::Cancelled,
        Last::Rejected,
        Last::Panicked,
        Last::TimedOut,
        Last::Taken,
    ];

    #[test]
    fn every_end_is_read_back_whatever_else_is_in_the_word() {
        for last in ALL {
            for others in 0..1u32 << 7 {
                let word = Word(last as u32 | others << 2);
                assert_eq!(word.last(), Some(last), "{word:?}");
                assert!(word.is_complete());
                assert_eq!(word.is_value(), last == Last::Value);
            }
        }
        assert_eq!(Word(SLOT | PARKED | CANCEL | HOOK).last(), None);
    }

    #[test]
    fn bits_do_not_overlap() {
        let bits = [RESULT, EXCEPTION, SLOT, PARKED, TX_GONE, RX_GONE, CANCEL, HOOK, REPLACED, WHY];
        assert_eq!(bits.iter().sum::<u32>(), bits.iter().fold(0, |all, bit| all | bit));
    }

    #[test]
    fn adding_a_bit_that_was_clear_never_carries() {
        for last in ALL {
            let cell = StateCell::new();
            assert!(!cell.install().has_slot());
            assert!(cell.retract().has_slot());
            let before = cell.peek();
            assert!(!cell.install_again(before).has_slot());
            let before = cell.retract();
            assert!(before.waker_was_replaced());
            assert!(!cell.install_again(before).has_slot());
            let _ = cell.park();
            let _ = cell.announce_hook();
            assert!(!cell.request_cancel().cancel_requested());
            assert!(cell.request_cancel().cancel_requested());
            assert_eq!(cell.complete(last).last(), None);
            let _ = cell.writer_leaves();
            let word = cell.unpark();
            assert!(word.has_sleeper() && word.writer_left() && !word.reader_left());
            let word = cell.reader_leaves();
            assert_eq!(word.last(), Some(last));
            assert!(word.has_slot() && word.has_hook() && word.cancel_requested());
            assert!(cell.peek().reader_left() && !cell.peek().has_sleeper());
        }
    }

    #[test]
    fn the_word_prints_names() {
        let word = Word(Last::Broken as u32 | SLOT | TX_GONE);
        assert_eq!(format!("{word:?}"), "Broken + slot + writer gone");
    }
}
