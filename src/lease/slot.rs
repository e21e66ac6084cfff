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
//!
//! The version of the current value needs no place beside each value. A publication in place moves the
//! index bit and adds one to the version, and a fresh slot starts with them in step, so *the index is
//! the low bit of the version*. The slot has one `version`, which a guard writes when it stages: it is
//! that of the current entry, or one more. Which of the two, its low bit tells. (Not two more: the
//! entry of two more is the one that the reader has pinned.)

use core::mem::{MaybeUninit, size_of};
use core::ptr::NonNull;

use super::core::Core;
use super::word::{Word, WordCell};
use super::{FencingToken, LeaseKey, LeaseValue};
use crate::clock::Clock;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::cell::UnsafeCell;

/// One pin of an entry, in its part of the use word.
const PIN: [u32; 2] = [1, 1 << 14];
/// Where an entry's pins begin.
const PIN_SHIFT: [u32; 2] = [0, 14];
const PIN_MASK: u32 = (1 << 14) - 1;
/// More pins than threads that could be between two instructions; beyond it a reader steps back.
const PIN_LIMIT: u32 = 1 << 13;

/// An entry holds a value. One of them always does.
const FILLED: [u32; 2] = [1 << 28, 1 << 29];
/// The key has an annex in its shard: labels, waiters, a session.
const ANNEXED: u32 = 1 << 30;

/// More owners than an address space has room for. (Handles can be forgotten, each for nothing.)
const OWNERS_MAX: u32 = u32::MAX / 2;

type Entry<V> = UnsafeCell<MaybeUninit<V>>;

/// The memory of a key, until a term ends badly in it or its epochs are used up.
///
/// | part | bytes | written by |
/// |---|---|---|
/// | `word` | 8 | whoever makes a transition |
/// | `base` | 8 | nobody |
/// | `version` | 8 | the guard of the running term |
/// | `owners` | 4 | index, handles and guards, as they come and go |
/// | `uses` | 4 | pins: readers; filled: the guard; annexed: under the shard's lock |
/// | `core` | 8 | nobody |
/// | the spare value | `size_of::<V>()` | the guard of the running term |
///
/// With the index's share, 10 to 21 bytes as its tables fill and double, that is what an idle key costs
/// beside key and value.
pub(super) struct Slot<K: LeaseKey, V: LeaseValue, C: Clock> {
    pub(super) word: WordCell,
    /// The token before that of epoch 1.
    pub(super) base: u64,
    version: AtomicU64,
    /// Counts [`SlotRef`]s.
    owners: AtomicU32,
    /// Pins of both entries, and flags.
    uses: AtomicU32,
    pub(super) core: Arc<Core<K, V, C>>,
    entries: [Entry<V>; 2],
    pub(super) key: K,
}

// SAFETY: entries are shared between threads by the rules at the top of this file: `&V` by many
// (Sync), moved in and out by one at a time (Send). Keys, values and clocks are Send and Sync, and so
// is everything else by itself.
unsafe impl<K: LeaseKey, V: LeaseValue, C: Clock> Send for Slot<K, V, C> {}
// SAFETY: as above.
unsafe impl<K: LeaseKey, V: LeaseValue, C: Clock> Sync for Slot<K, V, C> {}

/// What a guard found out about its spare entry: nobody reads it.
#[derive(Clone, Copy)]
pub(super) struct Spare {
    at: usize,
    filled: bool,
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Slot<K, V, C> {
    /// A value that has no bytes and no `Drop`: nothing to publish, so no entry is ever touched.
    pub(super) const PURE: bool = size_of::<V>() == 0 && !core::mem::needs_drop::<V>();

    /// A slot that nobody else has seen. The word gets the index that belongs to `version`.
    pub(super) fn new(
        core: Arc<Core<K, V, C>>,
        key: K,
        base: u64,
        word: Word,
        value: V,
        version: u64,
    ) -> Self {
        let word = word.indexed_by(version);
        let at = word.index();
        let mut values = [MaybeUninit::uninit(), MaybeUninit::uninit()];
        values[at] = MaybeUninit::new(value);
        Self {
            word: WordCell::new(word),
            base,
            version: AtomicU64::new(version),
            owners: AtomicU32::new(1),
            uses: AtomicU32::new(FILLED[at]),
            core,
            entries: values.map(UnsafeCell::new),
            key,
        }
    }

    /// The token of a word's epoch.
    #[inline]
    pub(super) fn token(&self, word: Word) -> FencingToken {
        FencingToken::of(self.base, word.epoch())
    }

    /// The token of the latest grant, as a word tells; `None` before the first.
    pub(super) fn latest(&self, word: Word) -> Option<FencingToken> {
        (word.epoch() != 0).then(|| self.token(word))
    }

    /// The epoch of a token in this slot, if it can have been granted here.
    pub(super) fn epoch_of(&self, token: FencingToken) -> Option<u64> {
        let epoch = token.number().checked_sub(self.base)?;
        (1..=super::word::EPOCH_MAX).contains(&epoch).then_some(epoch)
    }

    /// Whether anybody has to be told when a term ends.
    #[inline]
    pub(super) fn is_annexed(&self) -> bool {
        // ORDERING: Relaxed: for labels, the flag was raised by the term's own thread. A waiter raised
        // it before its `touch` of the word. The exchange of the word that came before this load either
        // came after that touch and synchronised with it, or came before, and then the waiter saw a
        // free word and serves the queue itself.
        self.uses.load(Ordering::Relaxed) & ANNEXED != 0
    }

    /// Called with the shard locked, as all changes of ANNEXED.
    pub(super) fn set_annexed(&self, annexed: bool) {
        // ORDERING: Relaxed: see `is_annexed`.
        if annexed {
            self.uses.fetch_or(ANNEXED, Ordering::Relaxed);
        } else {
            self.uses.fetch_and(!ANNEXED, Ordering::Relaxed);
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
            // ORDERING: Acquire: PinEntry; pairs with the Release half of SeeUnpinned in `spare`.
            let uses = self.uses.fetch_add(PIN[at], Ordering::Acquire);
            let mut pinned = Pinned { slot: self, at, word };
            if (uses >> PIN_SHIFT[at]) & PIN_MASK >= PIN_LIMIT {
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

    /// The entry at `at`, if nobody has it pinned; then nobody will who finds it current.
    #[inline]
    pub(super) fn spare(&self, at: usize) -> Option<Spare> {
        // ORDERING: AcqRel: SeeUnpinned. Acquire pairs with the Release in `Pinned::drop`: their
        // reads come before our write. Release passes Displace on to the Acquire in `pin`.
        let uses = self.uses.fetch_add(0, Ordering::AcqRel);
        let unpinned = (uses >> PIN_SHIFT[at]) & PIN_MASK == 0;
        unpinned.then_some(Spare { at, filled: uses & FILLED[at] != 0 })
    }

    /// The current value, for the guard of the running term and for late guards.
    ///
    /// # Safety
    ///
    /// The caller is the guard that was granted a term in this slot, `at` is the entry that it was
    /// granted or last published itself, and it has not released the term.
    #[inline]
    pub(super) unsafe fn value(&self, at: usize) -> &V {
        self.entries[at].with(|value| {
            // SAFETY: filled: it was current when the caller's exchange read the word (Acquire). By
            // rules 1 and 3 nobody writes it while the caller has not let go.
            unsafe { (*value).assume_init_ref() }
        })
    }

    /// The version of the entry at `at`, for one who knows that nobody can have staged there since it
    /// was current: its guard, and readers while they have it pinned.
    #[inline]
    pub(super) fn version(&self, at: usize) -> u64 {
        // ORDERING: Relaxed: what the caller saw the word name is no older, by the word's Acquire; a
        // newer one is that of the other entry, as its low bit says.
        let version = self.version.load(Ordering::Relaxed);
        if (version & 1) as usize == at { version } else { version.wrapping_sub(1) }
    }

    /// Writes a spare entry, ready to be published with `version`. Gives back what it held.
    ///
    /// # Safety
    ///
    /// The caller is the only guard with its epoch in this slot and has not released the term; `spare`
    /// is of its spare entry and this slot, and was found since it became spare.
    #[inline]
    pub(super) unsafe fn stage(&self, spare: Spare, value: V, version: u64) -> Option<V> {
        let Spare { at, filled } = spare;
        // ORDERING: Relaxed: published by the exchange of the word that follows; who sees it before
        // takes one off.
        self.version.store(version, Ordering::Relaxed);
        let old = self.entries[at].with_mut(|place| {
            // SAFETY: rule 2: nobody else writes the spare; rule 4: nobody reads it. It holds a value
            // if `filled`.
            unsafe {
                let old = filled.then(|| (*place).assume_init_read());
                (*place).write(value);
                old
            }
        });
        if !filled {
            // ORDERING: Relaxed: the flag belongs to whoever owns the spare entry; published by the
            // exchange of the word that follows.
            self.uses.fetch_or(FILLED[at], Ordering::Relaxed);
        }
        old
    }

    /// Takes back what was staged and not published, and puts back what was there. The version stays
    /// as it was staged, one ahead.
    ///
    /// # Safety
    ///
    /// As for [`stage`](Self::stage), which was called with the same `spare`, gave `old`, and whose
    /// value was not published.
    pub(super) unsafe fn unstage(&self, spare: Spare, old: Option<V>) -> V {
        if old.is_none() {
            // ORDERING: Relaxed: as in `stage`.
            self.uses.fetch_and(!FILLED[spare.at], Ordering::Relaxed);
        }
        self.entries[spare.at].with_mut(|place| {
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
        let at = self.word.load().index();
        // Not dropped twice: `Drop` looks at this.
        self.uses.with_mut(|uses| *uses &= !FILLED[at]);
        self.entries[at].with_mut(|place| {
            // SAFETY: owned by value; a new slot's current entry is filled.
            unsafe { (*place).assume_init_read() }
        })
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Drop for Slot<K, V, C> {
    fn drop(&mut self) {
        if !core::mem::needs_drop::<V>() {
            return;
        }
        let filled = self.uses.with_mut(|uses| *uses);
        let [first, second] = [0, 1].map(|at| {
            (filled & FILLED[at] != 0).then(|| {
                // SAFETY: `&mut self`: nobody else is left. The flag says that it is filled.
                self.entries[at].with_mut(|place| unsafe { (*place).assume_init_read() })
            })
        });
        // Foreign code. If one panics the other is dropped all the same.
        drop((first, second));
    }
}

/// A slot, shared by the index, handles and guards: an `Arc` whose one count, of four bytes, is in the
/// slot.
pub(super) struct SlotRef<K: LeaseKey, V: LeaseValue, C: Clock>(NonNull<Slot<K, V, C>>);

// SAFETY: as an `Arc` of a slot, which is Send and Sync.
unsafe impl<K: LeaseKey, V: LeaseValue, C: Clock> Send for SlotRef<K, V, C> {}
// SAFETY: as above.
unsafe impl<K: LeaseKey, V: LeaseValue, C: Clock> Sync for SlotRef<K, V, C> {}

impl<K: LeaseKey, V: LeaseValue, C: Clock> SlotRef<K, V, C> {
    /// The first owner of `slot`.
    pub(super) fn new(slot: Slot<K, V, C>) -> Self {
        Self(NonNull::from(Box::leak(Box::new(slot))))
    }

    /// Where it is.
    #[inline]
    pub(super) fn address(&self) -> NonNull<Slot<K, V, C>> {
        self.0
    }

    /// Whether this is an owner of `slot`.
    #[inline]
    pub(super) fn is(&self, slot: &Slot<K, V, C>) -> bool {
        core::ptr::eq(self.0.as_ptr(), slot)
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> core::ops::Deref for SlotRef<K, V, C> {
    type Target = Slot<K, V, C>;

    #[inline]
    fn deref(&self) -> &Slot<K, V, C> {
        // SAFETY: alive while it has an owner, and only shared since it was made.
        unsafe { self.0.as_ref() }
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Clone for SlotRef<K, V, C> {
    #[inline]
    fn clone(&self) -> Self {
        // ORDERING: Relaxed: there is an owner, this one, whose own edge to the slot the clone shares.
        if self.owners.fetch_add(1, Ordering::Relaxed) > OWNERS_MAX {
            // The count must not wrap: two thousand million forgotten owners.
            std::process::abort();
        }
        Self(self.0)
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Drop for SlotRef<K, V, C> {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Release: what this owner did comes before the last one's end of the slot (Acquire
        // in `let_go`).
        if self.owners.fetch_sub(1, Ordering::Release) == 1 {
            self.let_go();
        }
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> SlotRef<K, V, C> {
    /// This was the last owner.
    #[cold]
    fn let_go(&self) {
        // ORDERING: Acquire: pairs with the Release in `drop`, of every other owner.
        fence(Ordering::Acquire);
        // SAFETY: made by `new` from a box; the last owner counts no more, so nobody reaches it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
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
        self.slot.entries[self.at].with(|value| {
            // SAFETY: rule 4: it was current after it was pinned, so it is filled, and not written
            // while it is pinned. What the word's Acquire load saw includes the write.
            unsafe { (*value).assume_init_ref() }
        })
    }

    pub(super) fn version(&self) -> u64 {
        self.slot.version(self.at)
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Drop for Pinned<'_, K, V, C> {
    fn drop(&mut self) {
        // ORDERING: Release: our reads come before the write of whoever sees this in `spare`.
        self.slot.uses.fetch_sub(PIN[self.at], Ordering::Release);
    }
}
