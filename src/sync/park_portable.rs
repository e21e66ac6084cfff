//! Waiting on a word where the system has no futex of its own: `parking_lot_core`'s table of
//! queues, keyed by the word's address.

use core::time::Duration;
use std::time::Instant;

use parking_lot_core::{DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, ParkResult};

use super::super::Wait;
use super::atomic::{AtomicU32, Ordering};

/// Sleeps while `*word == expected`, for at most `timeout` (`None`: for as long as it takes).
///
/// Adds no ordering: re-read the word with the ordering you need.
pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wait {
    // A deadline beyond what an `Instant` can hold is no deadline.
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    let key = core::ptr::from_ref(word).addr();
    // ORDERING: Relaxed: the table's bucket lock orders this look against the waker's search of the
    // same bucket; the caller re-reads with what it needs.
    let unchanged = || word.load(Ordering::Relaxed) == expected;
    // SAFETY: the address is a word of this crate, which nobody else uses as a key; neither closure
    // panics or calls back into the table.
    let result = unsafe {
        parking_lot_core::park(key, unchanged, || {}, |_, _| {}, DEFAULT_PARK_TOKEN, deadline)
    };
    match result {
        ParkResult::Unparked(_) => Wait::Woken,
        ParkResult::Invalid => Wait::Changed,
        ParkResult::TimedOut => Wait::TimedOut,
    }
}

/// Wakes one thread that sleeps on this address; says how many it woke (0 or 1).
///
/// The address is never read: the word may be gone by now.
pub(crate) fn wake_one(word: *const AtomicU32) -> usize {
    // SAFETY: the address is a word of this crate; the callback does not panic or call back.
    unsafe { parking_lot_core::unpark_one(word.addr(), |_| DEFAULT_UNPARK_TOKEN) }.unparked_threads
}

/// Wakes every thread that sleeps on this address; says how many.
#[allow(dead_code, reason = "the door offers the same verbs in every world")]
pub(crate) fn wake_all(word: *const AtomicU32) -> usize {
    // SAFETY: the address is a word of this crate, which nobody else uses as a key.
    unsafe { parking_lot_core::unpark_all(word.addr(), DEFAULT_UNPARK_TOKEN) }
}
