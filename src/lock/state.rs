//! The two words of the lock and their transitions. The tables and the proof are in the
//! [room's tour](super).

use core::fmt;

use super::unlock::Unlock;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{barrier, park};

/// `word`: nobody owns the lock.
const FREE: u32 = 0;
/// `word`: somebody does, and nobody else may write the word.
const HELD: u32 = 1;

/// `queue`: an unlock must look for sleepers with a read-modify-write (sticky).
const CONTENDED: u32 = 1;
/// `queue`: one sleeper.
const ONE_SLEEPER: u32 = 1 << 4;
/// `queue`: the sleepers' field: 12 bits.
const SLEEPERS: u32 = 0xfff << 4;
/// `queue`: one unlock in contended mode since the last sleeper came. The field is at the top, so
/// that its overflow leaves the word.
const ONE_QUIET: u32 = 1 << 20;
/// `queue`: the field of quiet unlocks: 12 bits.
const QUIET: u32 = 0xfff << 20;

/// A decoded `queue` word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Queue(u32);

impl Queue {
    /// No sleepers, not contended: the state in which an unlock is a plain store.
    fn is_idle(self) -> bool {
        self.0 == 0
    }

    /// Whether unlocks use a read-modify-write already, so that a sleeper needs no barrier.
    pub(super) fn is_contended(self) -> bool {
        self.0 & CONTENDED != 0
    }

    /// How many sleep or are about to.
    pub(super) fn sleepers(self) -> u32 {
        (self.0 & SLEEPERS) / ONE_SLEEPER
    }

    /// Whether contended mode has cost about as much as entering it again would, for nobody.
    fn has_been_quiet_for_long(self) -> bool {
        self.0 & QUIET == QUIET && self.sleepers() == 0
    }

    /// One sleeper more, and the quiet is over; `None` if the field is full.
    fn with_sleeper(self) -> Option<Self> {
        (self.0 & SLEEPERS != SLEEPERS).then(|| Self((self.0 & !QUIET) + ONE_SLEEPER))
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("contended", &self.is_contended())
            .field("sleepers", &self.sleepers())
            .field("quiet", &((self.0 & QUIET) / ONE_QUIET))
            .finish()
    }
}

/// What the one who unlocked has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Released {
    /// Nothing: nobody sleeps.
    Done,
    /// Somebody sleeps: [`State::wake_one`].
    Wake,
}

/// What came of announcing a sleeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Announced {
    /// Counted; every unlock from now on will see it.
    Seen,
    /// Counted, but an unlock that is under way may not see it: sleep for a short time only.
    Unsure,
    /// 4,095 sleep already. Not counted: nobody will wake this thread.
    Full,
}

/// The lock's eight bytes.
pub(super) struct State {
    word: AtomicU32,
    queue: AtomicU32,
}

impl State {
    pub(super) const fn new() -> Self {
        Self { word: AtomicU32::const_new(FREE), queue: AtomicU32::const_new(0) }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(super) fn try_take(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release stores in `release`. Relaxed failure: nothing
        // was taken, nothing is read.
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether somebody owns the lock, a moment ago.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        // ORDERING: Relaxed: a hint; whoever acts on it calls `try_take`.
        self.word.load(Ordering::Relaxed) != FREE
    }

    /// The queue word, a moment ago.
    pub(super) fn queue(&self) -> Queue {
        // ORDERING: Relaxed: a hint for spinning; the sleeper's path uses read-modify-writes.
        Queue(self.queue.load(Ordering::Relaxed))
    }

    /// Gives the lock up. Only its owner may.
    #[inline]
    pub(super) fn release<U: Unlock>(&self) -> Released {
        if U::ASYMMETRIC {
            // ORDERING: Relaxed: idle as seen by the owner decides only how the word is released;
            // who comes later is found by the load below, or by the comer's barrier (proof, case 1).
            let queue = Queue(self.queue.load(Ordering::Relaxed));
            if queue.is_idle() || (queue.has_been_quiet_for_long() && self.leave_contended(queue)) {
                // ORDERING: Release: pairs with the Acquire in `try_take`.
                self.word.store(FREE, Ordering::Release);
                // The store above and the load below are one half of a store-buffering pair. The
                // other half is in `announce`: count, heavy barrier, look at the word.
                barrier::light();
                // ORDERING: Relaxed: the two barriers order it.
                if Queue(self.queue.load(Ordering::Relaxed)).is_idle() {
                    return Released::Done;
                }
                return self.look_for_sleepers(0);
            }
        }
        // ORDERING: Release: pairs with the Acquire in `try_take`.
        self.word.store(FREE, Ordering::Release);
        self.look_for_sleepers(if U::ASYMMETRIC { ONE_QUIET } else { 0 })
    }

    /// The word is free again: does anybody sleep? Adds `quiet` to the quiet unlocks.
    #[inline]
    fn look_for_sleepers(&self, quiet: u32) -> Released {
        // A read-modify-write even if it adds nothing: whoever is not counted in what it returns
        // counts himself later, on top of it, and so sees the word free.
        // ORDERING: Release: pairs with the Acquire in `announce`: the freed word is visible there.
        let queue = Queue(self.queue.fetch_add(quiet, Ordering::Release));
        if queue.sleepers() == 0 { Released::Done } else { Released::Wake }
    }

    /// Back to plain stores. Only the lock's owner may, before it releases the word.
    #[cold]
    fn leave_contended(&self, seen: Queue) -> bool {
        // ORDERING: Relaxed: whoever counts himself after this sees the mode off and pays for a
        // barrier; before it, the comparison fails.
        self.queue.compare_exchange(seen.0, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Counts the calling thread among the sleepers, so that each later unlock looks for it.
    pub(super) fn announce<U: Unlock>(&self) -> Announced {
        let mut seen = self.queue();
        loop {
            let Some(next) = seen.with_sleeper() else {
                return Announced::Full;
            };
            // ORDERING: Acquire: pairs with the Release in `look_for_sleepers`: an unlock that did
            // not count this sleeper has its freed word visible here.
            match self.queue.compare_exchange_weak(
                seen.0,
                next.0,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => seen = Queue(now),
            }
        }
        if !U::ASYMMETRIC || seen.is_contended() {
            return Announced::Seen;
        }
        // The count above and the caller's next look at the word are one half of a store-buffering
        // pair. The other half is in `release`: free the word, light barrier, load the queue.
        if !barrier::heavy() {
            return Announced::Unsure;
        }
        // From here on an unlock uses a read-modify-write, and later sleepers need no barrier.
        // ORDERING: Relaxed: the system call above is a full barrier for this thread too.
        self.queue.fetch_or(CONTENDED, Ordering::Relaxed);
        Announced::Seen
    }

    /// Takes the calling thread off the count: nobody's wake was spent on it.
    pub(super) fn withdraw(&self) {
        // ORDERING: Relaxed: a count; a waker that still sees it wakes nobody.
        self.queue.fetch_sub(ONE_SLEEPER, Ordering::Relaxed);
    }

    /// Sleeps while the lock is held. Only after `announce` counted the calling thread.
    pub(super) fn sleep(&self, limit: Option<core::time::Duration>) -> crate::sync::Wait {
        park::wait(&self.word, HELD, limit)
    }

    /// Wakes the one who sleeps longest and takes it off the count.
    ///
    /// Touches the lock after it was released: see "Freeing" in the room's tour.
    #[cold]
    pub(super) fn wake_one(&self) {
        if park::wake_one(&raw const self.word) == 1 {
            // ORDERING: Relaxed: a count. Until it is corrected, a second unlock may wake one more
            // than it needs to; never one fewer.
            self.queue.fetch_sub(ONE_SLEEPER, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("held", &self.is_held())
            .field("queue", &self.queue())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::unlock::{AsymmetricUnlock, SymmetricUnlock};
    use super::*;

    fn uncontended<U: Unlock>() {
        let state = State::new();
        assert!(state.try_take());
        assert!(!state.try_take());
        assert!(state.is_held());
        assert_eq!(state.release::<U>(), Released::Done);
        assert!(state.queue().is_idle());
        assert!(!state.is_held());
    }

    #[test]
    fn an_uncontended_lock_leaves_both_words_zero() {
        uncontended::<AsymmetricUnlock>();
        uncontended::<SymmetricUnlock>();
    }

    #[test]
    fn a_sleeper_is_seen_and_the_contended_mode_is_left_after_its_quiet_unlocks() {
        let state = State::new();
        assert!(state.try_take());
        let announced = state.announce::<AsymmetricUnlock>();
        let sure = announced == Announced::Seen;
        assert_eq!(state.queue().is_contended(), sure);
        assert_eq!(state.release::<AsymmetricUnlock>(), Released::Wake);
        state.withdraw();
        if !sure {
            return; // no barrier on this system: the mode is never entered
        }
        let unlocks = (0..10_000)
            .take_while(|_| {
                assert!(state.try_take());
                assert_eq!(state.release::<AsymmetricUnlock>(), Released::Done);
                state.queue().is_contended()
            })
            .count();
        assert_eq!(unlocks, 4094);
        assert!(state.queue().is_idle());
    }

    #[test]
    fn a_new_sleeper_ends_the_quiet() {
        let quiet = Queue(CONTENDED | QUIET);
        assert!(quiet.has_been_quiet_for_long());
        let next = quiet.with_sleeper().unwrap();
        assert_eq!((next.sleepers(), next.0 & QUIET), (1, 0));
        assert!(next.is_contended());
    }

    #[test]
    fn the_sleepers_field_does_not_overflow_into_its_neighbours() {
        let full = Queue(CONTENDED | SLEEPERS);
        assert_eq!(full.sleepers(), 4095);
        assert_eq!(full.with_sleeper(), None);
        let state = State::new();
        for _ in 0..4095 {
            let _ = state.announce::<SymmetricUnlock>();
        }
        assert_eq!(state.announce::<SymmetricUnlock>(), Announced::Full);
        for _ in 0..4095 {
            state.withdraw();
        }
        assert!(state.queue().is_idle());
    }

    #[test]
    fn quiet_unlocks_overflow_out_of_the_word() {
        assert_eq!((CONTENDED | QUIET).wrapping_add(ONE_QUIET), CONTENDED);
        assert_eq!(CONTENDED & SLEEPERS, 0);
        assert_eq!(SLEEPERS & QUIET, 0);
    }
}
