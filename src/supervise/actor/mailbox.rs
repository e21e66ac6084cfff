//! The mailbox: a ring of slots that many senders fill and one actor empties. No allocation but the ring.
//!
//! A sender claims the next position in the actor's [word](super::word), writes the slot, and stamps it;
//! the actor takes what is stamped and stamps the slot free for the next lap. A position never comes twice
//! (in 2⁵⁶ messages), so a stamp tells for which lap its slot is free, or full.
//!
//! | stamp | meaning | who owns the slot |
//! |---|---|---|
//! | `p` | free for the message at `p` | whoever claims `p` |
//! | `p` + FULL | the message at `p` lies there | the actor |

use core::mem::MaybeUninit;

use super::word::{ONE, WordCell};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::cell::UnsafeCell;

/// Below [`ONE`], so it never meets a position.
const FULL: u64 = 1;

struct Slot<M> {
    stamp: AtomicU64,
    message: UnsafeCell<MaybeUninit<M>>,
}

/// See the [file's docs](self).
pub(super) struct Ring<M> {
    slots: Box<[Slot<M>]>,
}

// SAFETY: a slot's message is reached by one thread at a time (the table above); it moves from the
// sender's thread to the actor's.
unsafe impl<M: Send> Send for Ring<M> {}
// SAFETY: as above.
unsafe impl<M: Send> Sync for Ring<M> {}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Full,
    Closed,
}

impl<M> Ring<M> {
    /// Room for `capacity` messages, a power of two.
    pub(super) fn new(capacity: usize) -> Self {
        debug_assert!(capacity.is_power_of_two());
        let slot = |at: usize| Slot {
            stamp: AtomicU64::new(at as u64 * ONE),
            message: UnsafeCell::new(MaybeUninit::uninit()),
        };
        Self { slots: (0..capacity).map(slot).collect() }
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn slot(&self, position: u64) -> &Slot<M> {
        &self.slots[(position / ONE) as usize & (self.slots.len() - 1)]
    }

    /// Puts a message at the end. `Ok(true)`: the actor was idle, and is to be woken.
    #[inline]
    pub(super) fn push(&self, word: &WordCell, message: M) -> Result<bool, (Refusal, M)> {
        let mut seen = word.peek();
        loop {
            if !seen.is_open() {
                return Err((Refusal::Closed, message));
            }
            let position = seen.position();
            let slot = self.slot(position);
            // ORDERING: Acquire: pairs with the Release in `pop`: the actor has moved the last message out.
            if slot.stamp.load(Ordering::Acquire) == position {
                match word.claim(seen) {
                    Ok(wake) => {
                        // SAFETY: the claim made the slot ours alone until it is stamped; it is empty.
                        slot.message.with_mut(|at| unsafe { (*at).write(message) });
                        // ORDERING: Release: pairs with the Acquire in `pop`: the message.
                        slot.stamp.store(position | FULL, Ordering::Release);
                        return Ok(wake);
                    }
                    Err(now) => seen = now,
                }
            } else {
                // Of the lap before: full. Unless others have gone on meanwhile.
                let now = word.peek();
                if now == seen {
                    return Err((Refusal::Full, message));
                }
                seen = now;
            }
        }
    }

    /// Takes the message at `head`. `None`: there is none, or it is not written yet. The actor only.
    #[inline]
    pub(super) fn pop(&self, head: u64) -> Option<M> {
        let slot = self.slot(head);
        // ORDERING: Acquire: pairs with the Release in `push`.
        if slot.stamp.load(Ordering::Acquire) != head | FULL {
            return None;
        }
        // SAFETY: the stamp says that a message lies here and is the actor's, which we are.
        let message = slot.message.with_mut(|at| unsafe { (*at).assume_init_read() });
        let next_lap = head.wrapping_add(self.slots.len() as u64 * ONE);
        // ORDERING: Release: pairs with the Acquire in `push`: the slot is empty.
        slot.stamp.store(next_lap, Ordering::Release);
        Some(message)
    }
}

impl<M> Drop for Ring<M> {
    /// An actor that has ended has emptied it. One that never began has not.
    fn drop(&mut self) {
        for slot in &mut self.slots {
            if slot.stamp.with_mut(|stamp| *stamp & FULL != 0) {
                // SAFETY: exclusive, and full.
                slot.message.with_mut(|at| unsafe { (*at).assume_init_drop() });
            }
        }
    }
}
