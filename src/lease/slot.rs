//! The memory of a key: its word, and two entries for its value.
//!
//! Who may touch an entry:
//!
//! 1. The entry that the word names (*current*) is never written.
//! 2. The other one (*spare*) is written by the guard of the running term, and by it alone: it is
//!    the only guard with its epoch ([`resume`](super::LeaseTable::resume) makes guards that do not
//!    write in place).
//! 3. A term that ends in any way but by its guard letting go leaves the word *not clean*, and no
//!    term ever starts in that slot again: the key moves to a fresh one. So a late guard may write
//!    its spare and read its current entry for as long as it likes; nobody else writes either.
//! 4. Readers pin an entry, look at the word again, and read only if it still names the entry. A
//!    writer writes the spare only after it saw, by a read-modify-write of the pins, that nobody has
//!    it pinned: whoever pins it later sees a word that names the other entry.
//!
//! Rule 4 as events. Reader: PinEntry (RMW of the pins), LookAgain (load of the word). Writer:
//! Displace (exchange of the word, by an earlier commit), SeeUnpinned (RMW of the pins), Write. If
//! PinEntry comes before SeeUnpinned in the order of the pins, the writer sees it and does not
//! write. If it comes after, it synchronises with SeeUnpinned, so Displace happens before LookAgain,
//! which therefore does not find the entry current.

use core::mem::{MaybeUninit, size_of};

use super::core::Core;
use super::word::{Word, WordCell};
use super::{FencingToken, LeaseKey, LeaseValue};
use crate::clock::Clock;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::cell::UnsafeCell;

/// Pins of an entry in its half of the pins' word.
const PIN: [u32; 2] = [1, 1 << 16];
const PIN_MASK: u32 = 0xFFFF;
/// More pins than threads that could be between two instructions; beyond it a reader steps back.
const PIN_LIMIT: u32 = 0x8000;

/// Entry 1 holds a value (entry 0 always does).
const SECOND_FILLED: u32 = 1;
/// The key has an annex in its shard: labels, waiters, a session.
pub(super) const ANNEXED: u32 = 1 << 1;
/// Entry 0 was taken out of a slot that nobody has seen.
const FIRST_TAKEN: u32 = 1 << 2;

struct Entry<V> {
    /// Counts publications of the key.
    version: UnsafeCell<u64>,
    value: UnsafeCell<MaybeUninit<V>>,
}

impl<V> Entry<V> {
    fn new(version: u64, value: MaybeUninit<V>) -> Self {
        Self { version: UnsafeCell::new(version), value: UnsafeCell::new(value) }
    }
}

/// The memory of a key, until a term ends badly in it or its epochs are used up.
pub(super) struct Slot<K: LeaseKey, V: LeaseValue, C: Clock> {
    pub(super) word: WordCell,
    /// The token of epoch 0.
    pub(super) base: u64,
    pins: AtomicU32,
    flags: AtomicU32,
    pub(super) core: Arc<Core<K, V, C>>,
    entries: [Entry<V>; 2],
    pub(super) key: K,
}

/// A slot, shared by the index, handles and guards.
pub(super) type SlotRef<K, V, C> = Arc<Slot<K, V, C>>;

// SAFETY: entries are shared between threads by the rules at the top of this file: `&V` by many
// (Sync), moved in and out by one at a time (Send). Keys, values and clocks are Send and Sync, and so
// is everything else by itself.
unsafe impl<K: LeaseKey, V: LeaseValue, C: Clock> Send for Slot<K, V, C> {}
// SAFETY: as above.
unsafe impl<K: LeaseKey, V: LeaseValue, C: Clock> Sync for Slot<K, V, C> {}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Slot<K, V, C> {
    /// A value that has no bytes and no `Drop`: nothing to publish, so no entry is ever touched.
    pub(super) const PURE: bool = size_of::<V>() == 0 && !core::mem::needs_drop::<V>();

    pub(super) fn new(
        core: Arc<Core<K, V, C>>,
        key: K,
        base: u64,
        word: Word,
        value: V,
        version: u64,
    ) -> Self {
        debug_assert_eq!(word.index(), 0, "entry 1 is empty");
        Self {
            word: WordCell::new(word),
            base,
            pins: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            core,
            entries: [
                Entry::new(version, MaybeUninit::new(value)),
                Entry::new(0, MaybeUninit::uninit()),
            ],
            key,
        }
    }

    /// The token of a word's epoch.
    #[inline]
    pub(super) fn token(&self, word: Word) -> FencingToken {
        FencingToken::of(self.base, word.epoch())
    }

    /// The epoch of a token in this slot, if it can have been granted here.
    pub(super) fn epoch_of(&self, token: FencingToken) -> Option<u64> {
        token.number().checked_sub(self.base).filter(|epoch| *epoch <= super::word::EPOCH_MAX)
    }

    /// Whether anybody has to be told when a term ends.
    #[inline]
    pub(super) fn flags(&self) -> u32 {
        // ORDERING: Relaxed: for labels, the flag was raised by the term's own thread. A waiter raised
        // it before its `touch` of the word. The exchange of the word that came before this load either
        // came after that touch and synchronised with it, or came before, and then the waiter saw a
        // free word and serves the queue itself.
        self.flags.load(Ordering::Relaxed)
    }

    /// Called with the shard locked, as all changes of ANNEXED.
    pub(super) fn set_annexed(&self, annexed: bool) {
        // ORDERING: Relaxed: see `flags`.
        if annexed {
            self.flags.fetch_or(ANNEXED, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!ANNEXED, Ordering::Relaxed);
        }
    }

    /// Pins the current entry, so that it can be read. `None` if the slot is gone.
    pub(super) fn pin(&self) -> Option<Pinned<'_, K, V, C>> {
        loop {
            let word = self.word.load();
            if word.is_gone() {
                return None;
            }
            let at = word.index();
            // ORDERING: Acquire: PinEntry; pairs with the Release half of SeeUnpinned in `is_unpinned`.
            let pins = self.pins.fetch_add(PIN[at], Ordering::Acquire);
            let mut pinned = Pinned { slot: self, at, word };
            if (pins >> (16 * at)) & PIN_MASK >= PIN_LIMIT {
                drop(pinned);
                crate::sync::hint::spin_loop();
                continue;
            }
            let again = self.word.load();
            if again.is_gone() {
                return None;
            }
            if again.index() == at {
                pinned.word = again;
                return Some(pinned);
            }
        }
    }

    /// Whether nobody has an entry pinned; then nobody will who finds it current.
    #[inline]
    pub(super) fn is_unpinned(&self, at: usize) -> bool {
        // ORDERING: AcqRel: SeeUnpinned. Acquire pairs with the Release in `Pinned::drop`: their
        // reads come before our write. Release passes Displace on to the Acquire in `pin`.
        let pins = self.pins.fetch_add(0, Ordering::AcqRel);
        (pins >> (16 * at)) & PIN_MASK == 0
    }

    /// The current value, for the guard of the running term and for late guards.
    ///
    /// # Safety
    ///
    /// The caller is the guard that was granted a term in this slot, `at` is the entry that it was
    /// granted or last published itself, and it has not released the term.
    #[inline]
    pub(super) unsafe fn value(&self, at: usize) -> &V {
        self.entries[at].value.with(|value| {
            // SAFETY: filled: it was current when the caller's exchange read the word (Acquire). By
            // rules 1 and 3 nobody writes it while the caller has not let go.
            unsafe { (*value).assume_init_ref() }
        })
    }

    /// The version of the current value.
    ///
    /// # Safety
    ///
    /// As for [`value`](Self::value).
    #[inline]
    pub(super) unsafe fn version(&self, at: usize) -> u64 {
        // SAFETY: as in `value`.
        self.entries[at].version.with(|version| unsafe { *version })
    }

    /// Writes the spare entry, ready to be published. Gives back what it held.
    ///
    /// # Safety
    ///
    /// The caller is the only guard with its epoch in this slot, has not released the term, `at` is
    /// its spare entry, and [`is_unpinned`](Self::is_unpinned) said so since it became spare.
    #[inline]
    pub(super) unsafe fn stage(&self, at: usize, value: V, version: u64) -> Option<V> {
        // ORDERING: Relaxed: the flag belongs to whoever owns the spare entry; earlier owners' changes
        // came with the word.
        let filled = at == 0 || self.flags.load(Ordering::Relaxed) & SECOND_FILLED != 0;
        // SAFETY: rule 2: nobody else writes the spare; rule 4: nobody reads it.
        self.entries[at].version.with_mut(|place| unsafe { *place = version });
        let old = self.entries[at].value.with_mut(|place| {
            // SAFETY: as above; it holds a value if `filled`.
            unsafe {
                let old = filled.then(|| (*place).assume_init_read());
                (*place).write(value);
                old
            }
        });
        if !filled {
            // ORDERING: Relaxed: published by the exchange of the word that follows.
            self.flags.fetch_or(SECOND_FILLED, Ordering::Relaxed);
        }
        old
    }

    /// Takes back what was staged and not published, and puts back what was there.
    ///
    /// # Safety
    ///
    /// As for [`stage`](Self::stage), which was called with the same `at`, gave `old`, and whose
    /// value was not published.
    pub(super) unsafe fn unstage(&self, at: usize, old: Option<V>) -> V {
        if old.is_none() {
            // ORDERING: Relaxed: as in `stage`.
            self.flags.fetch_and(!SECOND_FILLED, Ordering::Relaxed);
        }
        self.entries[at].value.with_mut(|place| {
            // SAFETY: rules 2 and 4; `stage` filled it.
            unsafe {
                let value = (*place).assume_init_read();
                if let Some(old) = old {
                    (*place).write(old);
                }
                value
            }
        })
    }

    /// Takes the value out of a slot that nobody else has seen.
    pub(super) fn into_value(mut self) -> V {
        // Not dropped twice: `Drop` looks at this.
        self.flags.with_mut(|flags| *flags |= FIRST_TAKEN);
        self.entries[0].value.with_mut(|place| {
            // SAFETY: owned by value; a new slot's entry 0 is filled.
            unsafe { (*place).assume_init_read() }
        })
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Drop for Slot<K, V, C> {
    fn drop(&mut self) {
        if !core::mem::needs_drop::<V>() {
            return;
        }
        let flags = self.flags.with_mut(|flags| *flags);
        if flags & FIRST_TAKEN == 0 {
            // SAFETY: `&mut self`: nobody else is left. Entry 0 was filled by `new`.
            self.entries[0].value.with_mut(|place| unsafe { (*place).assume_init_drop() });
        }
        if flags & SECOND_FILLED != 0 {
            // SAFETY: as above; the flag says that it is filled.
            self.entries[1].value.with_mut(|place| unsafe { (*place).assume_init_drop() });
        }
    }
}

/// A look at the current value that no writer disturbs. Costs others nothing but this entry: a
/// writer that meets the pin moves the key to a fresh slot.
pub(super) struct Pinned<'s, K: LeaseKey, V: LeaseValue, C: Clock> {
    slot: &'s Slot<K, V, C>,
    at: usize,
    word: Word,
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Pinned<'_, K, V, C> {
    /// The word that named the entry after it was pinned.
    pub(super) fn word(&self) -> Word {
        self.word
    }

    pub(super) fn value(&self) -> &V {
        self.slot.entries[self.at].value.with(|value| {
            // SAFETY: rule 4: it was current after it was pinned, so it is filled, and not written
            // while it is pinned. What the word's Acquire load saw includes the write.
            unsafe { (*value).assume_init_ref() }
        })
    }

    pub(super) fn version(&self) -> u64 {
        // SAFETY: as in `value`.
        self.slot.entries[self.at].version.with(|version| unsafe { *version })
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Drop for Pinned<'_, K, V, C> {
    fn drop(&mut self) {
        // ORDERING: Release: our reads come before the write of whoever sees this in `is_unpinned`.
        self.slot.pins.fetch_sub(PIN[self.at], Ordering::Release);
    }
}
