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

#[derive(Clone, Copy)]
struct Learned {
    /// Waits that are not to look.
    skip: u32,
    /// How many that was after the last look in vain.
    last: u32,
}

std::thread_local! {
    static LEARNED: Cell<Learned> = const { Cell::new(Learned { skip: 0, last: 0 }) };
}

/// One processor: whoever looks keeps the writer from running.
fn alone() -> bool {
    static ALONE: OnceLock<bool> = OnceLock::new();
    *ALONE.get_or_init(|| std::thread::available_parallelism().is_ok_and(|n| n.get() == 1))
}

/// Looks for as long as that is likely to pay, and at most `left`; says whether `found` came true.
pub(super) fn look(left: Option<Duration>, mut found: impl FnMut() -> bool) -> bool {
    if hint::SPIN_CAP == 0 || alone() {
        return false;
    }
    let mut learned = LEARNED.try_with(Cell::get).unwrap_or(Learned { skip: MOST, last: MOST });
    let paid = if learned.skip > 0 {
        learned.skip -= 1;
        false
    } else {
        let clock = MonotonicClock::new();
        let until = clock.now().saturating_add(left.map_or(LOOK, |left| left.min(LOOK)));
        let paid = loop {
            if (0..PAUSES).any(|_| {
                hint::spin_loop();
                found()
            }) {
                break true;
            }
            if clock.now() >= until {
                break false;
            }
        };
        learned = if paid {
            Learned { skip: 0, last: 0 }
        } else {
            let last = (learned.last * 2).clamp(1, MOST);
            Learned { skip: last, last }
        };
        paid
    };
    let _ = LEARNED.try_with(|cell| cell.set(learned));
    paid
}
