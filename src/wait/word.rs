//! Waiting until a word changes.

use super::{Deadline, Spin};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Wait, park};

/// Blocks while `*word == expected`, first spinning `rounds` rounds, then asleep.
///
/// True: the word held something else (or may have; there are early returns: read it again).
/// False: the deadline passed. Whoever changes the word must then wake by its address
/// (`park::wake_one`, `park::wake_all`). Adds no ordering: re-read the word with what you need.
#[allow(dead_code, reason = "for the rooms above; the lock has its own loop")]
pub(crate) fn wait_while(word: &AtomicU32, expected: u32, rounds: u32, deadline: Deadline) -> bool {
    let mut spin = Spin::rounds(rounds);
    while spin.round() {
        // ORDERING: Relaxed: a hint; the caller re-reads with what it needs.
        if word.load(Ordering::Relaxed) != expected {
            return true;
        }
    }
    let remaining = deadline.remaining();
    if remaining.is_some_and(|left| left.is_zero()) {
        return false;
    }
    park::wait(word, expected, remaining) != Wait::TimedOut
}
