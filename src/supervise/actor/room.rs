//! Senders that wait for room in a full mailbox.
//!
//! ```text
//! sender: Enter, Announce, Look again          actor: MakeRoom, Rest or TakeFlags
//! ```
//!
//! Announce and the actor's step are both read-modify-writes of the actor's word, so they have one order:
//! either the actor has rested, and the sender's second look sees the room; or the actor sees the mark before
//! it rests, and with it the count of those who wait. Between two such steps it looks at that count after each
//! message, without ordering: a sender that has just come may be missed by one message, and is seen at the
//! next, or at the step.
//!
//! Who is woken tries again, beside newcomers: waiting senders are not served in turn.

use core::task::Waker;
use std::collections::VecDeque;

use crate::lock::Mutex;
use crate::runtime::contained;
use crate::sync::atomic::{AtomicU32, Ordering};

/// See the [file's docs](self).
#[derive(Debug)]
pub(super) struct Room {
    waiting: AtomicU32,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    entries: VecDeque<(u64, Waker)>,
    next: u64,
}

/// A place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

impl Room {
    pub(super) fn new() -> Self {
        Self { waiting: AtomicU32::new(0), list: Mutex::new(List::default()) }
    }

    /// Enters the list. Announce it in the word, look again, and [`leave`](Self::leave) if there was room.
    pub(super) fn enter(&self, waker: Waker) -> Ticket {
        let mut list = self.list.lock();
        let ticket = list.next;
        list.next = ticket.wrapping_add(1);
        list.entries.push_back((ticket, waker));
        self.recount(&list);
        Ticket(ticket)
    }

    /// Leaves the list. False: it was woken meanwhile.
    pub(super) fn leave(&self, ticket: Ticket) -> bool {
        let mut list = self.list.lock();
        let at = list.entries.iter().position(|(entry, _)| *entry == ticket.0);
        let entry = at.and_then(|at| list.entries.remove(at));
        self.recount(&list);
        drop(list);
        let was_there = entry.is_some();
        // A waker's drop is foreign.
        contained(move || drop(entry));
        was_there
    }

    fn recount(&self, list: &List) {
        let count = u32::try_from(list.entries.len()).unwrap_or(u32::MAX);
        // ORDERING: Relaxed: a hint between two steps, ordered by them; see the file's docs.
        self.waiting.store(count, Ordering::Relaxed);
    }

    /// Whether somebody seems to wait.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        // ORDERING: Relaxed: as above.
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Wakes so many of those who wait, the longest waiting first.
    #[cold]
    pub(super) fn wake(&self, most: usize) {
        // Who is in the list and cannot be seen here has yet to announce itself, and to look once more.
        if !self.is_wanted() {
            return;
        }
        let woken: Vec<Waker> = {
            let mut list = self.list.lock();
            let count = list.entries.len().min(most);
            let woken = list.entries.drain(..count).map(|(_, waker)| waker).collect();
            self.recount(&list);
            woken
        };
        for waker in woken {
            contained(move || waker.wake());
        }
    }
}
