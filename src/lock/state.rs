//! The two words of the lock and their transitions. The tables and the proof are in the
//! [room's tour](super).

use core::fmt;
use core::time::Duration;

use super::unlock::Unlock;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Wait, barrier, park};
use crate::wait::{Budget, Deadline, IN_A_MODEL, SpinPolicy};

/// `word`: nobody owns the lock.
const FREE: u32 = 0;
/// `word`: somebody does, and nobody else may write the word.
const HELD: u32 = 1;

/// `queue`: an unlock must look for waiters with a read-modify-write (sticky).
const CONTENDED: u32 = 1;
/// `queue`: one waiter has waited for so long that it is handed the lock.
const STARVING: u32 = 1 << 1;
/// `queue`: the lock was handed over to the starving waiter, which has not noticed yet.
const GRANTED: u32 = 1 << 2;
/// `queue`: one sleeper.
const ONE_SLEEPER: u32 = 1 << 4;
/// `queue`: the sleepers' field: 12 bits.
const SLEEPERS: u32 = 0xfff << 4;
/// `queue`: the spin budget's lowest bit. Four bits, which say nothing about who waits.
const ONE_BUDGET: u32 = 1 << 16;
/// `queue`: the field of the spin budget.
const BUDGET: u32 = Budget::MAX << 16;
/// `queue`: one unlock in contended mode since the last sleeper came. The field is at the top, so
/// that its overflow leaves the word.
const ONE_QUIET: u32 = 1 << 20;
/// `queue`: the field of quiet unlocks: 12 bits.
const QUIET: u32 = 0xfff << 20;

/// How many quiet unlocks are enough to leave contended mode: all that the field holds; in a model
/// one, so that leaving is explored too.
const QUIET_FOR_LONG: u32 = if IN_A_MODEL { ONE_QUIET } else { QUIET };

/// A decoded `queue` word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Queue(u32);

impl Queue {
    /// Nobody waits, not contended: the state in which an unlock is a plain store.
    fn is_idle(self) -> bool {
        self.0 & !BUDGET == 0
    }

    /// How long to spin.
    pub(super) fn budget(self) -> Budget {
        Budget::from_number((self.0 & BUDGET) / ONE_BUDGET)
    }

    /// Whether unlocks use a read-modify-write already, so that a waiter needs no barrier.
    pub(super) fn is_contended(self) -> bool {
        self.0 & CONTENDED != 0
    }

    /// How many sleep or are about to, the starving one apart.
    pub(super) fn sleepers(self) -> u32 {
        (self.0 & SLEEPERS) / ONE_SLEEPER
    }

    /// Whether anybody waits who is not spinning.
    pub(super) fn has_waiters(self) -> bool {
        self.0 & (SLEEPERS | STARVING) != 0
    }

    /// Whether contended mode has cost about as much as entering it again would, for nobody.
    fn has_been_quiet_for_long(self) -> bool {
        (self.0 | CONTENDED) & !BUDGET == CONTENDED | QUIET_FOR_LONG
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
            .field("starving", &(self.0 & STARVING != 0))
            .field("granted", &(self.0 & GRANTED != 0))
            .field("sleepers", &self.sleepers())
            .field("budget", &self.budget().number())
            .field("quiet", &((self.0 & QUIET) / ONE_QUIET))
            .finish()
    }
}

/// What the one who unlocked has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Released {
    /// Nothing: nobody waits.
    Done,
    /// Somebody sleeps: [`State::wake_one`].
    Wake,
    /// Somebody starves, and the lock is his or free: [`State::wake_starving`].
    WakeStarving,
}

/// What came of announcing a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Announced {
    /// Every unlock from now on will see it.
    Seen,
    /// An unlock that is under way may not see it: sleep for a short time only.
    Unsure,
    /// No room: nobody will see it. For a sleeper: 4,095 sleep already. For a starving one: there
    /// is one already.
    Full,
}

/// How a sleep of the starving waiter ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Starved {
    /// It owns the lock.
    Owner,
    /// Look again.
    Again,
    /// The time is up; it is the starving one no longer.
    TimedOut,
}

/// The lock's eight bytes.
pub(super) struct State {
    word: AtomicU32,
    queue: AtomicU32,
}

impl State {
    pub(super) const fn new(policy: SpinPolicy) -> Self {
        Self {
            word: AtomicU32::const_new(FREE),
            queue: AtomicU32::const_new(Budget::of(policy).number() * ONE_BUDGET),
        }
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
        // ORDERING: Relaxed: a hint for spinning; the waiter's path uses read-modify-writes.
        Queue(self.queue.load(Ordering::Relaxed))
    }

    /// Gives the lock up. Only its owner may.
    #[inline]
    pub(super) fn release<U: Unlock>(&self) -> Released {
        // ORDERING: Relaxed: what the owner sees here decides only how it lets go; who comes later
        // is found below, or by the comer's barrier (proof, case 1).
        let queue = Queue(self.queue.load(Ordering::Relaxed));
        if U::ASYMMETRIC && queue.is_idle() {
            return self.release_plainly();
        }
        self.release_slowly::<U>(queue)
    }

    /// Frees the word by a plain store, which the queue must have been idle for.
    #[inline]
    fn release_plainly(&self) -> Released {
        // ORDERING: Release: pairs with the Acquire in `try_take`.
        self.word.store(FREE, Ordering::Release);
        // The store above and the load below are one half of a store-buffering pair. The other
        // half is in `become_seen`'s callers: announce, heavy barrier, look at the word.
        barrier::light();
        // ORDERING: Relaxed: the two barriers order it.
        if Queue(self.queue.load(Ordering::Relaxed)).is_idle() {
            return Released::Done;
        }
        self.look_for_waiters()
    }

    #[inline]
    fn release_slowly<U: Unlock>(&self, queue: Queue) -> Released {
        if queue.0 & STARVING != 0 && self.hand_over() {
            return Released::WakeStarving;
        }
        if U::ASYMMETRIC && queue.has_been_quiet_for_long() && self.leave_contended(queue) {
            return self.release_plainly();
        }
        // ORDERING: Release: pairs with the Acquire in `try_take`.
        self.word.store(FREE, Ordering::Release);
        self.look_for_waiters()
    }

    /// The word is free again: does anybody wait?
    #[inline]
    fn look_for_waiters(&self) -> Released {
        // Always a write, and always a new value: whoever is not announced in what it returns
        // announces himself later, on top of it, and so sees the word free; and a starving waiter
        // that is about to sleep on the queue word finds it changed.
        // ORDERING: Release: pairs with the Acquire in `announce` and `announce_starving`: the freed
        // word is visible there.
        let queue = Queue(self.queue.fetch_add(ONE_QUIET, Ordering::Release));
        if queue.0 & STARVING != 0 {
            Released::WakeStarving
        } else if queue.sleepers() > 0 {
            Released::Wake
        } else {
            Released::Done
        }
    }

    /// Hands the lock, still held, to the starving waiter. False: there is none any more.
    #[cold]
    fn hand_over(&self) -> bool {
        let mut seen = self.queue();
        while seen.0 & STARVING != 0 {
            let next = (seen.0 & !STARVING) | GRANTED;
            // ORDERING: Release: pairs with the Acquire in `sleep_starving`: the new owner sees
            // what this one did.
            match self.queue.compare_exchange_weak(
                seen.0,
                next,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => seen = Queue(now),
            }
        }
        false
    }

    /// Back to plain stores. Only the lock's owner may, before it releases the word.
    #[cold]
    fn leave_contended(&self, seen: Queue) -> bool {
        // ORDERING: Relaxed: whoever announces himself after this sees the mode off and pays for a
        // barrier; before it, the comparison fails.
        self.queue
            .compare_exchange(seen.0, seen.0 & BUDGET, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Counts the calling thread among the sleepers, so that each later unlock looks for it.
    pub(super) fn announce<U: Unlock>(&self) -> Announced {
        let mut seen = self.queue();
        loop {
            let Some(next) = seen.with_sleeper() else {
                return Announced::Full;
            };
            // ORDERING: Acquire: pairs with the Release in `look_for_waiters`: an unlock that did
            // not see this sleeper has its freed word visible here.
            match self.queue.compare_exchange_weak(
                seen.0,
                next.0,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return self.become_seen::<U>(seen),
                Err(now) => seen = Queue(now),
            }
        }
    }

    /// Makes the calling thread the starving waiter. [`Announced::Full`]: there is one already.
    pub(super) fn announce_starving<U: Unlock>(&self) -> Announced {
        let mut seen = self.queue();
        loop {
            if seen.0 & (STARVING | GRANTED) != 0 {
                return Announced::Full;
            }
            let next = (seen.0 | STARVING) & !QUIET;
            // ORDERING: Acquire: pairs with the Release in `look_for_waiters`, as in `announce`.
            match self.queue.compare_exchange_weak(
                seen.0,
                next,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return self.become_seen::<U>(seen),
                Err(now) => seen = Queue(now),
            }
        }
    }

    /// Makes sure that the unlock which is under way, if any, has either freed the word by now or
    /// will see who announced himself. `before`: the queue as it was before that.
    fn become_seen<U: Unlock>(&self, before: Queue) -> Announced {
        if !U::ASYMMETRIC || before.is_contended() {
            return Announced::Seen;
        }
        // The announcement and the caller's next look at the word are one half of a
        // store-buffering pair. The other half is in `release_plainly`: free the word, light
        // barrier, load the queue.
        if !barrier::heavy() {
            return Announced::Unsure;
        }
        // From here on an unlock uses a read-modify-write, and later waiters need no barrier.
        // ORDERING: Relaxed: the system call above is a full barrier for this thread too.
        self.queue.fetch_or(CONTENDED, Ordering::Relaxed);
        Announced::Seen
    }

    /// Takes the calling thread off the count: nobody's wake was spent on it.
    pub(super) fn withdraw(&self) {
        // ORDERING: Relaxed: a count; a waker that still sees it wakes nobody.
        self.queue.fetch_sub(ONE_SLEEPER, Ordering::Relaxed);
    }

    /// Remembers what a spin has taught.
    pub(super) fn teach(&self, seen: Queue, budget: Budget) {
        let next = (seen.0 & !BUDGET) | (budget.number() * ONE_BUDGET);
        // ORDERING: Relaxed: a hint to later spins. If the word has changed, the lesson is lost.
        let _ = self.queue.compare_exchange(seen.0, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Sleeps while the lock is held. Only after `announce` counted the calling thread.
    pub(super) fn sleep(&self, limit: Option<Duration>) -> Wait {
        park::wait(&self.word, HELD, limit)
    }

    /// Sleeps once as the starving waiter, unless it may have the lock by now.
    ///
    /// `limit` is no later than `deadline`; only the latter ends the wait.
    pub(super) fn sleep_starving(&self, limit: Option<Duration>, deadline: Deadline) -> Starved {
        // ORDERING: Acquire: pairs with the Release in `hand_over`.
        let seen = Queue(self.queue.load(Ordering::Acquire));
        if seen.0 & GRANTED != 0 {
            // ORDERING: Relaxed: the lock is this thread's already.
            self.queue.fetch_and(!GRANTED, Ordering::Relaxed);
            return Starved::Owner;
        }
        if self.try_take() {
            // Nobody else owns the lock, so nobody hands it over meanwhile.
            // ORDERING: Relaxed: a later unlock that still sees the flag is this thread's own.
            self.queue.fetch_and(!STARVING, Ordering::Relaxed);
            return Starved::Owner;
        }
        let timed_out = limit.is_some_and(|limit| limit.is_zero())
            || park::wait(&self.queue, seen.0, limit) == Wait::TimedOut;
        if !timed_out || !(deadline.has_passed() || IN_A_MODEL) {
            return Starved::Again;
        }
        // ORDERING: Acquire: pairs with the Release in `hand_over`, if that was faster, and with
        // that in `look_for_waiters`: unlocks that relied on this thread have freed the word.
        let seen = self.queue.fetch_and(!(STARVING | GRANTED), Ordering::Acquire);
        if seen & GRANTED != 0 || self.try_take() { Starved::Owner } else { Starved::TimedOut }
    }

    /// Wakes the one who sleeps longest and takes it off the count.
    ///
    /// Touches the lock after it was released: see "Freeing" in the room's tour.
    #[cold]
    pub(super) fn wake_one(&self) {
        if park::wake_one(&raw const self.word) == 1 {
            // ORDERING: Relaxed: a count. Until it is corrected, another unlock may wake one more
            // than it needs to; never one fewer.
            self.queue.fetch_sub(ONE_SLEEPER, Ordering::Relaxed);
        }
    }

    /// Wakes the starving waiter, if it sleeps.
    #[cold]
    pub(super) fn wake_starving(&self) {
        park::wake_one(&raw const self.queue);
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
        let state = State::new(SpinPolicy::Auto);
        assert!(state.try_take());
        assert!(!state.try_take());
        assert!(state.is_held());
        assert_eq!(state.release::<U>(), Released::Done);
        assert!(!state.queue().has_waiters());
        assert_eq!(state.queue().is_idle(), U::ASYMMETRIC);
        assert!(!state.is_held());
    }

    #[test]
    fn an_uncontended_lock_leaves_both_words_zero() {
        uncontended::<AsymmetricUnlock>();
        uncontended::<SymmetricUnlock>();
    }

    #[test]
    fn a_sleeper_is_seen_and_the_contended_mode_is_left_after_its_quiet_unlocks() {
        let state = State::new(SpinPolicy::Auto);
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
        let state = State::new(SpinPolicy::Auto);
        for _ in 0..4095 {
            let _ = state.announce::<SymmetricUnlock>();
        }
        assert_eq!(state.announce::<SymmetricUnlock>(), Announced::Full);
        for _ in 0..4095 {
            state.withdraw();
        }
        assert!(!state.queue().has_waiters());
    }

    #[test]
    fn quiet_unlocks_overflow_out_of_the_word() {
        assert_eq!((CONTENDED | QUIET).wrapping_add(ONE_QUIET), CONTENDED);
        assert_eq!(CONTENDED & SLEEPERS, 0);
        assert_eq!(SLEEPERS & QUIET, 0);
    }
}
