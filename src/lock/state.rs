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
/// `word`: the starving waiter does, and has not noticed yet. Nobody else may write the word.
const HANDED: u32 = 2;

/// `queue`: an unlock must look for waiters with a read-modify-write (sticky).
const CONTENDED: u32 = 1;
/// `queue`: somebody sleeps, or is about to, and no wake is under way that will say so again.
const SLEEPING: u32 = 1 << 1;
/// `queue`: one waiter has waited for so long that it is handed the lock.
const STARVING: u32 = 1 << 2;
/// `queue`: the lock was promised to the starving waiter, and `word` says so now or soon.
const PROMISED: u32 = 1 << 3;
/// `queue`: the spin budget's lowest bit. Four bits, which are never changed.
const ONE_BUDGET: u32 = 1 << 4;
/// `queue`: the field of the spin budget.
const BUDGET: u32 = Budget::MAX << 4;
/// `queue`: one unlock in contended mode since the last waiter was served. The field is at the top,
/// so that its overflow leaves the word.
const ONE_QUIET: u32 = 1 << 20;
/// `queue`: the field of quiet unlocks: 12 bits.
const QUIET: u32 = 0xfff << 20;

/// How many quiet unlocks are enough to leave contended mode: all that the field holds; in a model
/// one, so that leaving is explored too.
const QUIET_FOR_LONG: u32 = if IN_A_MODEL { ONE_QUIET } else { QUIET };

/// After how many quiet unlocks one more waiter is woken, though nobody said that any sleeps: 16, 64,
/// 256 and 1,024.
///
/// The thread that was woken last may wait for a processor, which the owner has, while others sleep
/// and another processor idles: milliseconds, until the scheduler looks. In a model never: it would
/// hide a wake that was lost. What such a wake does, the models of a stray one show.
const WAKE_AGAIN: u32 = ONE_QUIET * (16 | 64 | 256 | 1024);

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

    /// Whether somebody sleeps or starves whom no wake is under way to.
    #[cfg(test)]
    pub(super) fn has_waiters(self) -> bool {
        self.0 & (SLEEPING | STARVING | PROMISED) != 0
    }

    /// Whether contended mode has cost about as much as entering it again would, for nobody.
    fn has_been_quiet_for_long(self) -> bool {
        self.0 & !BUDGET == CONTENDED | QUIET_FOR_LONG
    }

    /// What the unlock that freed the word leaves behind, and has to do.
    fn after_release(self) -> (Self, Released) {
        if self.0 & STARVING != 0 {
            // It takes the lock, or gives up; either way somebody's unlock sees the sleepers later.
            (self, Released::WakeStarving)
        } else if self.0 & SLEEPING != 0 {
            (Self(self.0 & !(SLEEPING | QUIET)), Released::Wake)
        } else {
            let next = Self(self.0.wrapping_add(ONE_QUIET));
            let quiet = next.0 & QUIET;
            let again = !IN_A_MODEL && quiet.is_power_of_two() && quiet & WAKE_AGAIN != 0;
            (next, if again { Released::Wake } else { Released::Done })
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("contended", &self.is_contended())
            .field("sleeping", &(self.0 & SLEEPING != 0))
            .field("starving", &(self.0 & STARVING != 0))
            .field("promised", &(self.0 & PROMISED != 0))
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
    /// Somebody sleeps, or may: [`State::wake_one`].
    Wake,
    /// Somebody starves, and the lock is his or free: [`State::wake_starving`].
    WakeStarving,
}

/// What came of announcing a waiter. Look at the word now, then sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Announced {
    /// Every unlock from now on will see it. The queue as it was then, which the sleep compares.
    Seen(Queue),
    /// An unlock that is under way may not see it: sleep for a short time only.
    Unsure(Queue),
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
        let queue = Queue(self.queue.load(Ordering::Relaxed));
        if queue.is_idle() {
            return Released::Done;
        }
        self.look_for_waiters(queue)
    }

    #[inline]
    fn release_slowly<U: Unlock>(&self, queue: Queue) -> Released {
        if queue.0 & STARVING != 0 && self.promise(queue) {
            // ORDERING: Release: pairs with the Acquire in `take_handed`: the new owner sees what
            // this one did.
            self.word.store(HANDED, Ordering::Release);
            return Released::WakeStarving;
        }
        if U::ASYMMETRIC && queue.has_been_quiet_for_long() && self.leave_contended(queue) {
            return self.release_plainly();
        }
        // ORDERING: Release: pairs with the Acquire in `try_take`.
        self.word.store(FREE, Ordering::Release);
        self.look_for_waiters(queue)
    }

    /// The word is free again: does anybody wait? `seen`: the queue, at a guess.
    #[inline]
    fn look_for_waiters(&self, mut seen: Queue) -> Released {
        // Always a write: whoever is not announced in what it replaces announces himself later, on
        // top of it, and so sees the word free.
        loop {
            let (next, released) = seen.after_release();
            // ORDERING: Release: pairs with the Acquire in `announce` and `announce_starving`: the
            // freed word is visible there.
            match self.queue.compare_exchange(seen.0, next.0, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return released,
                Err(now) => seen = Queue(now),
            }
        }
    }

    /// Promises the lock, still held, to the starving waiter. False: there is none any more.
    #[cold]
    fn promise(&self, mut seen: Queue) -> bool {
        while seen.0 & STARVING != 0 {
            let next = (seen.0 & !(STARVING | QUIET)) | PROMISED;
            // ORDERING: Relaxed: the word itself hands over what belongs to the lock.
            match self.queue.compare_exchange(seen.0, next, Ordering::Relaxed, Ordering::Relaxed) {
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

    /// Says that somebody sleeps, so that the next unlock wakes one.
    ///
    /// Before a sleep; and after each wake, which took the flag away while others may still sleep.
    /// Look at the word afterwards, whatever comes next: others may rely on that (invariant 2).
    pub(super) fn announce<U: Unlock>(&self) -> Announced {
        // ORDERING: Acquire: pairs with the Release in `look_for_waiters`: an unlock that did not
        // see this sleeper has its freed word visible here.
        let before = Queue(self.queue.fetch_or(SLEEPING | CONTENDED, Ordering::Acquire));
        Self::become_seen::<U>(before, Queue(before.0 | SLEEPING | CONTENDED))
    }

    /// Makes the calling thread the starving waiter; `None`: there is one already. Look at the word
    /// afterwards, as after [`State::announce`].
    pub(super) fn announce_starving<U: Unlock>(&self) -> Option<Announced> {
        let mut seen = self.queue();
        while seen.0 & (STARVING | PROMISED) == 0 {
            let next = Queue(seen.0 | STARVING | CONTENDED);
            // ORDERING: Acquire: pairs with the Release in `look_for_waiters`, as in `announce`.
            match self.queue.compare_exchange(seen.0, next.0, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Some(Self::become_seen::<U>(seen, next)),
                Err(now) => seen = Queue(now),
            }
        }
        None
    }

    /// Makes sure that the unlock which is under way, if any, has either freed the word by now or
    /// will see who announced himself. `before` and `now`: the queue on both sides of that.
    fn become_seen<U: Unlock>(before: Queue, now: Queue) -> Announced {
        // In contended mode an unlock uses a read-modify-write, and nobody needs a barrier: the one
        // who turned it on passes one, and looks at the word after it.
        //
        // The announcement and the caller's next look at the word are one half of a
        // store-buffering pair. The other half is in `release_plainly`: free the word, light
        // barrier, load the queue.
        if !U::ASYMMETRIC || before.is_contended() || barrier::heavy() {
            Announced::Seen(now)
        } else {
            Announced::Unsure(now)
        }
    }

    /// Sleeps while the queue is what `announce` left there. Only after a look at the word.
    pub(super) fn sleep(&self, announced: Queue, limit: Option<Duration>) -> Wait {
        park::wait(&self.queue, announced.0, limit)
    }

    /// Takes the lock as the starving waiter, if it was handed over or is free.
    pub(super) fn take_starving(&self) -> bool {
        if self.take_handed() {
            return true;
        }
        let free = self.try_take();
        if free {
            // Nobody else owns the lock, so nobody promises it meanwhile.
            // ORDERING: Relaxed: a later unlock that still sees the flag is this thread's own.
            self.queue.fetch_and(!STARVING, Ordering::Relaxed);
        }
        free
    }

    fn take_handed(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release of HANDED in `release_slowly`. Relaxed failure:
        // nothing was taken. A read-modify-write, so that it cannot take what was meant for the
        // starving one before.
        let taken =
            self.word.compare_exchange(HANDED, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            // ORDERING: Relaxed: the lock is this thread's already.
            self.queue.fetch_and(!PROMISED, Ordering::Relaxed);
        }
        taken
    }

    /// Sleeps once as the starving waiter, unless it may have the lock by now.
    ///
    /// `limit` is no later than `deadline`; only the latter ends the wait.
    pub(super) fn sleep_starving(&self, limit: Option<Duration>, deadline: Deadline) -> Starved {
        if self.take_starving() {
            return Starved::Owner;
        }
        let timed_out = limit.is_some_and(|limit| limit.is_zero())
            || park::wait(&self.word, HELD, limit) == Wait::TimedOut;
        if !timed_out || !(deadline.has_passed() || IN_A_MODEL) {
            return Starved::Again;
        }
        // ORDERING: Acquire: pairs with the Release in `look_for_waiters`: unlocks that relied on
        // this thread have freed the word.
        let seen = self.queue.fetch_and(!STARVING, Ordering::Acquire);
        if seen & PROMISED == 0 {
            return if self.try_take() { Starved::Owner } else { Starved::TimedOut };
        }
        // A promise is kept, by both sides: the word says so any moment.
        while !self.take_handed() {
            let _ = park::wait(&self.word, HELD, None);
        }
        Starved::Owner
    }

    /// Wakes the one who sleeps longest.
    ///
    /// After the lock was released: only its address is used. See "Freeing" in the room's tour.
    #[cold]
    pub(super) fn wake_one(&self) {
        park::wake_one(&raw const self.queue);
    }

    /// Wakes the starving waiter, if it sleeps.
    #[cold]
    pub(super) fn wake_starving(&self) {
        park::wake_one(&raw const self.word);
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
        assert!(matches!(announced, Announced::Seen(_) | Announced::Unsure(_)));
        assert!(state.queue().is_contended());
        assert_eq!(state.release::<AsymmetricUnlock>(), Released::Wake);
        assert!(!state.queue().has_waiters(), "a wake is under way");
        let mut again = Vec::new();
        let unlocks = (1..10_000)
            .take_while(|&unlock| {
                assert!(state.try_take());
                if state.release::<AsymmetricUnlock>() == Released::Wake {
                    again.push(unlock);
                }
                state.queue().is_contended()
            })
            .count();
        assert_eq!(unlocks, 4095);
        assert_eq!(again, [16, 64, 256, 1024], "whoever was woken may be kept from running");
        assert!(state.queue().is_idle());
    }

    #[test]
    fn a_served_sleeper_ends_the_quiet() {
        let quiet = Queue(CONTENDED | QUIET);
        assert!(quiet.has_been_quiet_for_long());
        let sleeping = Queue(quiet.0 | SLEEPING);
        assert!(!sleeping.has_been_quiet_for_long());
        assert_eq!(sleeping.after_release(), (Queue(CONTENDED), Released::Wake));
    }

    #[test]
    fn the_starving_one_is_handed_the_lock_once() {
        let state = State::new(SpinPolicy::Auto);
        assert!(state.try_take());
        assert!(state.announce_starving::<SymmetricUnlock>().is_some());
        assert!(state.announce_starving::<SymmetricUnlock>().is_none(), "one at a time");
        assert_eq!(state.release::<SymmetricUnlock>(), Released::WakeStarving);
        assert!(state.is_held(), "nobody else's");
        assert!(!state.try_take());
        assert!(state.announce_starving::<SymmetricUnlock>().is_none(), "not before it noticed");
        assert!(state.take_starving());
        assert!(state.is_held());
        assert!(!state.queue().has_waiters());
        assert_eq!(state.release::<SymmetricUnlock>(), Released::Done);
    }

    #[test]
    fn quiet_unlocks_overflow_out_of_the_word() {
        let (next, _) = Queue(CONTENDED | QUIET).after_release();
        assert_eq!(next, Queue(CONTENDED));
        assert_eq!(BUDGET & QUIET, 0);
        assert_eq!(BUDGET & (CONTENDED | SLEEPING | STARVING | PROMISED), 0);
    }
}
