//! The way to the driver: a stack that anybody pushes onto, and the word the driver sleeps on.

use core::time::Duration;

use super::node::{Header, Timer};
use crate::clock::Timestamp;
use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::park;

// Flags in the low bits of `head`; a timer is aligned to 8.
/// The driver went to sleep and has not taken the stack since.
const ASLEEP: usize = 1;
/// No new timers are taken. Those that were cancelled still come, to be unlinked.
const CLOSING: usize = 2;
/// The driver is gone: nothing is taken.
const CLOSED: usize = 4;
const FLAGS: usize = ASLEEP | CLOSING | CLOSED;

// The word the driver sleeps on.
const AWAKE: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;

/// What the driver found when it took the stack.
#[derive(Debug)]
pub(super) struct Taken {
    /// The timers, oldest first, linked by `next`.
    pub(super) first: *mut Header,
    /// Somebody asked for the end.
    pub(super) closing: bool,
}

/// Why a push was refused; the timer is still the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// What was below a timer when it was pushed. Compared and stored, never followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Below(*mut Header);

#[derive(Debug)]
pub(super) struct Intake {
    head: AtomicPtr<Header>,
    /// Until when the driver means to sleep. Written before it says ASLEEP.
    wake_at: AtomicU64,
    word: AtomicU32,
}

fn flags(head: *mut Header) -> usize {
    head.addr() & FLAGS
}

fn timer(head: *mut Header) -> *mut Header {
    head.map_addr(|addr| addr & !FLAGS)
}

fn with_flags(timer: *mut Header, flags: usize) -> *mut Header {
    timer.map_addr(|addr| addr | flags)
}

impl Intake {
    pub(super) fn new() -> Self {
        Self {
            head: AtomicPtr::new(core::ptr::null_mut()),
            wake_at: AtomicU64::new(0),
            word: AtomicU32::new(AWAKE),
        }
    }

    /// Hands a new timer to the driver, and wakes it if it would sleep past the deadline. What lies
    /// below it on the stack, for [`withdraw`](Self::withdraw).
    pub(super) fn insert(&self, new: Timer) -> Result<Below, Refused> {
        let deadline = new.header().deadline;
        let before = self.push(new, CLOSING | CLOSED)?;
        // Only now: had the driver woken and gone to sleep again before the push, the flag and the
        // time could be of different sleeps, though the head looked the same.
        // ORDERING: Relaxed: the push acquired the driver's ASLEEP, which came after this was
        // written; a later value means that the driver has taken the stack since.
        if flags(before) & ASLEEP != 0 && deadline.as_nanos() < self.wake_at.load(Ordering::Relaxed)
        {
            self.notify();
        }
        Ok(Below(timer(before)))
    }

    /// Takes a timer, that its canceller just cancelled unseen, off the stack again. False if it is not
    /// on top: then the driver will find it.
    ///
    /// On top, it has never been taken, for it is pushed a second time only after the driver has seen
    /// it; so what was below it when it was pushed is below it now.
    #[must_use]
    pub(super) fn withdraw(&self, cancelled: Timer, below: Below) -> bool {
        // ORDERING: Relaxed: a guess, which the compare-and-exchange checks.
        let head = self.head.load(Ordering::Relaxed);
        if timer(head) != cancelled.as_ptr() {
            return false;
        }
        let without = with_flags(below.0, flags(head));
        // ORDERING: Relaxed: nothing is published, and nobody else has seen the timer. It is an RMW, so
        // it continues the release sequences of the pushes below. One that fails is left to the driver.
        self.head.compare_exchange(head, without, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Hands a cancelled timer back, to be unlinked when the driver wakes for other reasons.
    pub(super) fn unlink(&self, cancelled: Timer) -> Result<(), Refused> {
        self.push(cancelled, CLOSED).map(drop)
    }

    fn push(&self, timer: Timer, refusing: usize) -> Result<*mut Header, Refused> {
        // ORDERING: Relaxed: a guess, which the compare-and-exchange checks; but a refusal is
        // final, as these flags are never taken back, and the caller only keeps its own.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if flags(head) & refusing != 0 {
                // ORDERING: Acquire: pairs with the Release in `finish`: a canceller that is refused
                // lets go of the driver's hold too and may free the timer, in which the driver has
                // written the key after it linked it.
                fence(Ordering::Acquire);
                return Err(Refused);
            }
            // SAFETY: about to be pushed.
            unsafe { timer.set_next(self::timer(head)) };
            let new = with_flags(timer.as_ptr(), flags(head));
            // ORDERING: Release: the timer is whole; pairs with the Acquire in `take`. Acquire:
            // pairs with the Release in `prepare_sleep`, for `wake_at` and the word. Relaxed where
            // it fails: looked at anew.
            match self.head.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(before) => return Ok(before),
                Err(now) => head = now,
            }
        }
    }

    /// Driver only: takes all that was pushed, oldest first. Awake from here on.
    pub(super) fn take(&self) -> Taken {
        // ORDERING: Relaxed: a guess, which the compare-and-exchange checks.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let kept = flags(head) & !ASLEEP;
            let closing = kept & CLOSING != 0;
            if head == with_flags(core::ptr::null_mut(), kept) {
                // A guess may be out of date, but whoever pushes after it finds no ASLEEP, and the
                // driver looks again before it sleeps.
                return Taken { first: core::ptr::null_mut(), closing };
            }
            let empty = with_flags(core::ptr::null_mut(), kept);
            // ORDERING: Acquire: the timers are whole; pairs with the Release in `push`, and with
            // that of earlier pushes, which later ones continue. Relaxed where it fails: looked at
            // anew.
            match self.head.compare_exchange_weak(head, empty, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Taken { first: oldest_first(timer(head)), closing },
                Err(now) => head = now,
            }
        }
    }

    /// Whether there is something for `take`, by a look that may be a little late.
    pub(super) fn has_news(&self) -> bool {
        // ORDERING: Relaxed: only whether to look closer.
        !self.head.load(Ordering::Relaxed).is_null()
    }

    /// Driver only: announces a sleep until `wake_at`. False: something came, do not sleep.
    ///
    /// After this returned true, and before [`sleep`](Self::sleep), the driver looks at its clock
    /// again: a clock that was moved before the announcement told nobody.
    #[must_use]
    pub(super) fn prepare_sleep(&self, wake_at: Timestamp) -> bool {
        // ORDERING: Relaxed: made visible by the Release below.
        self.wake_at.store(wake_at.as_nanos(), Ordering::Relaxed);
        // ORDERING: Acquire: pairs with the Release in `notify`. Of the two swaps, if ours comes
        // first, the notifier sees PARKED and wakes us; if theirs comes first, we see what they
        // did before it: a clock that moved, a stack that is closing.
        self.word.swap(PARKED, Ordering::Acquire);
        let null = core::ptr::null_mut();
        // ORDERING: Release: whoever pushes onto ASLEEP sees `wake_at` and PARKED; pairs with the
        // Acquire in `push`. Relaxed where it fails: `take` looks.
        let asleep = self.head.compare_exchange(
            null,
            with_flags(null, ASLEEP),
            Ordering::Release,
            Ordering::Relaxed,
        );
        asleep.is_ok()
    }

    /// Driver only: sleeps until notified, for at most `most`. May return early.
    pub(super) fn sleep(&self, most: Option<Duration>) {
        let _ = park::wait(&self.word, PARKED, most);
    }

    /// Makes the driver look around, soon.
    pub(super) fn notify(&self) {
        // ORDERING: Release: pairs with the Acquire in `prepare_sleep`: what this thread did
        // before is seen by a driver that is not parked yet.
        if self.word.swap(NOTIFIED, Ordering::Release) == PARKED {
            park::wake_one(&raw const self.word);
        }
    }

    /// Takes no new timers from here on. True for the first to ask.
    pub(super) fn close(&self) -> bool {
        // ORDERING: Relaxed: a guess, which the compare-and-exchange checks.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if flags(head) & CLOSING != 0 {
                return false;
            }
            let closing = with_flags(head, CLOSING);
            // ORDERING: Relaxed: nothing is published, and a driver about to sleep sees the flag by
            // failing to say ASLEEP, or through the notice below. It stays an RMW, so that it
            // continues the release sequence of the pushes before it.
            match self.head.compare_exchange_weak(
                head,
                closing,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    self.notify();
                    return true;
                }
                Err(now) => head = now,
            }
        }
    }

    /// Whether new timers are refused.
    pub(super) fn is_closing(&self) -> bool {
        // ORDERING: Relaxed: an answer that may be out of date when it is read.
        flags(self.head.load(Ordering::Relaxed)) & CLOSING != 0
    }

    /// Driver only, after its wheel is empty: ends the intake. False: take what came, try again.
    #[must_use]
    pub(super) fn finish(&self) -> bool {
        let null = core::ptr::null_mut();
        // ORDERING: Release: pairs with the fence of a refused `push`: whoever sees CLOSED frees a
        // timer that the driver has linked and written to. Relaxed where it fails: `take` looks.
        let finished = self.head.compare_exchange(
            with_flags(null, CLOSING),
            with_flags(null, CLOSING | CLOSED),
            Ordering::Release,
            Ordering::Relaxed,
        );
        finished.is_ok()
    }
}

/// Turns a stack that was taken round.
fn oldest_first(newest: *mut Header) -> *mut Header {
    let mut done = core::ptr::null_mut();
    let mut left = newest;
    while let Some(timer) = Timer::from_ptr(left) {
        // SAFETY: the stack was just taken: its timers and their links are the driver's.
        unsafe {
            left = timer.next();
            timer.set_next(done);
        }
        done = timer.as_ptr();
    }
    done
}
