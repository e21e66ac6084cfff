//! How long a blocked reader looks before it sleeps: learned, a thread at a time.
//!
//! Sleeping and being woken takes some 50 µs over two cores, looking takes none, but burns the
//! processor. So a wait looks for at most [`LOOK`], and remembers whether that paid:
//!
//! - the result came while looking: the next wait looks, too;
//! - it did not: the next 1, 2, 4, … 256 waits sleep at once, before one looks again.
//!
//! Hand-offs of up to `LOOK` that recur are found without sleeping. Longer ones cost one look in 256
//! waits: less than a thousandth of the processor for waits of a millisecond.

use core::cell::Cell;
use core::time::Duration;
use std::sync::OnceLock;

use crate::clock::{Clock, MonotonicClock};
use crate::sync::hint;

/// The longest look.
const LOOK: Duration = Duration::from_micros(60);
/// Pauses between two readings of the clock.
const PAUSES: u32 = 16;
/// The most waits in a row that do not look.
const MOST: u32 = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Learned {
    /// Waits that are not to look.
    skip: u32,
    /// How many that was after the last look in vain.
    last: u32,
}

impl Learned {
    const NOTHING: Self = Self { skip: 0, last: 0 };
    /// Where nothing can be learned, few look.
    const HOPELESS: Self = Self { skip: MOST, last: MOST };

    /// Whether the wait that begins now is to look.
    fn wants_to_look(&mut self) -> bool {
        let looks = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        looks
    }

    /// What came of a look.
    fn learn(&mut self, paid: bool) {
        *self = if paid {
            Self::NOTHING
        } else {
            let last = (self.last * 2).clamp(1, MOST);
            Self { skip: last, last }
        };
    }
}

std::thread_local! {
    static LEARNED: Cell<Learned> = const { Cell::new(Learned::NOTHING) };
}

/// One processor: whoever looks keeps the writer from running.
fn alone() -> bool {
    static ALONE: OnceLock<bool> = OnceLock::new();
    // The tests complete what they look for in between, whatever the machine.
    !cfg!(test)
        && *ALONE.get_or_init(|| std::thread::available_parallelism().is_ok_and(|n| n.get() == 1))
}

/// Looks for as long as that is likely to pay, and at most `left`; says whether `found` came true.
pub(super) fn look(left: Option<Duration>, mut found: impl FnMut() -> bool) -> bool {
    if hint::SPIN_CAP == 0 || alone() {
        return false;
    }
    let mut learned = LEARNED.try_with(Cell::get).unwrap_or(Learned::HOPELESS);
    let looks = learned.wants_to_look();
    let mut paid = false;
    if looks {
        #[cfg(test)]
        probe::note(|seen| seen.looks += 1);
        let clock = MonotonicClock::new();
        let until = clock.now().saturating_add(left.map_or(LOOK, |left| left.min(LOOK)));
        paid = loop {
            if (0..PAUSES).any(|_| {
                hint::spin_loop();
                #[cfg(test)]
                probe::spun();
                found()
            }) {
                break true;
            }
            if clock.now() >= until {
                break false;
            }
        };
        learned.learn(paid);
    }
    let _ = LEARNED.try_with(|cell| cell.set(learned));
    paid
}

/// What the tests see of a wait, and where they come in.
#[cfg(test)]
pub(super) mod probe {
    use std::cell::{Cell, RefCell};

    #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
    pub(in crate::promise) struct Seen {
        /// Waits that looked.
        pub(in crate::promise) looks: u32,
        /// Pauses of all looks.
        pub(in crate::promise) spins: u64,
        /// Times that a thread went to sleep.
        pub(in crate::promise) sleeps: u32,
    }

    type Act = Box<dyn FnMut()>;

    std::thread_local! {
        static SEEN: Cell<Seen> = const { Cell::new(Seen { looks: 0, spins: 0, sleeps: 0 }) };
        pub(super) static ON_SPIN: RefCell<Option<Act>> = const { RefCell::new(None) };
        pub(super) static ON_SLEEP: RefCell<Option<Act>> = const { RefCell::new(None) };
    }

    pub(super) fn note(what: impl FnOnce(&mut Seen)) {
        let mut seen = SEEN.get();
        what(&mut seen);
        SEEN.set(seen);
    }

    pub(super) fn spun() {
        note(|seen| seen.spins += 1);
        ON_SPIN.with_borrow_mut(|act| act.iter_mut().for_each(|act| act()));
    }

    /// A thread is about to sleep: its mark is in the word.
    pub(in crate::promise) fn sleeps() {
        note(|seen| seen.sleeps += 1);
        ON_SLEEP.with_borrow_mut(|act| act.iter_mut().for_each(|act| act()));
    }

    pub(super) fn take() -> Seen {
        SEEN.take()
    }
}

#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::mpsc;
    use std::thread;

    use super::probe::{ON_SLEEP, ON_SPIN, Seen, take};
    use super::*;
    use crate::promise::{Promise, promise};

    /// Which of the first `waits` waits look, when none of them pays.
    fn in_vain(waits: u32) -> Vec<u32> {
        let mut learned = Learned::NOTHING;
        (0..waits)
            .filter(|_| {
                let looks = learned.wants_to_look();
                if looks {
                    learned.learn(false);
                }
                looks
            })
            .collect()
    }

    #[test]
    fn looks_in_vain_grow_rare_and_one_that_pays_starts_over() {
        assert_eq!(in_vain(1000), [0, 2, 5, 10, 19, 36, 69, 134, 263, 520, 777]);
        let mut learned = Learned::HOPELESS;
        for _ in 0..MOST {
            assert!(!learned.wants_to_look());
        }
        assert!(learned.wants_to_look());
        learned.learn(true);
        for _ in 0..10 {
            assert!(learned.wants_to_look());
            learned.learn(true);
        }
    }

    #[test]
    fn hand_offs_that_recur_while_looking_are_found_without_sleeping() {
        LEARNED.set(Learned::NOTHING);
        take();
        let handed: Rc<RefCell<Option<Promise<u32, ()>>>> = Rc::default();
        let (at, hand) = (Rc::new(Cell::new(0)), Rc::clone(&handed));
        let spins = Rc::clone(&at);
        // The value comes at the third pause of each look.
        ON_SPIN.set(Some(Box::new(move || {
            spins.set(spins.get() + 1);
            if spins.get() == 3
                && let Some(promise) = hand.take()
            {
                promise.set(7).unwrap();
            }
        })));
        for _ in 0..500 {
            let (promise, eventual) = promise();
            handed.replace(Some(promise));
            at.set(0);
            assert_eq!(eventual.get().ok(), Some(7));
        }
        ON_SPIN.take();
        assert_eq!(take(), Seen { looks: 500, spins: 1500, sleeps: 0 });
    }

    #[test]
    fn waits_that_outlast_every_look_sleep_at_once_and_burn_no_more_than_the_few_looks() {
        const WAITS: u32 = 1000;
        LEARNED.set(Learned::NOTHING);
        take();
        let (send, receive) = mpsc::channel::<Promise<u32, ()>>();
        let writer = thread::spawn(move || receive.into_iter().for_each(|p| p.set(7).unwrap()));
        let handed: Rc<RefCell<Option<Promise<u32, ()>>>> = Rc::default();
        let hand = Rc::clone(&handed);
        // The value comes only once its reader has put its mark into the word.
        ON_SLEEP.set(Some(Box::new(move || {
            if let Some(promise) = hand.take() {
                send.send(promise).unwrap();
            }
        })));
        for _ in 0..WAITS {
            let (promise, eventual) = promise();
            handed.replace(Some(promise));
            assert_eq!(eventual.get().ok(), Some(7));
        }
        ON_SLEEP.take();
        writer.join().unwrap();
        let seen = take();
        assert_eq!(seen.looks, in_vain(WAITS).len() as u32, "{seen:?}");
        // At least once each: a system may wake a sleeper early.
        assert!(seen.sleeps >= WAITS, "{seen:?}");
    }

    #[test]
    fn short_waits_after_long_ones_are_noticed() {
        LEARNED.set(Learned::HOPELESS);
        take();
        let mut calls = 0;
        while !look(None, || true) {
            calls += 1;
        }
        assert_eq!(calls, MOST);
        assert!((0..100).all(|_| look(None, || true)));
        assert_eq!(take().looks, 101);
    }
}
