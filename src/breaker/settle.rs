//! What came of a call, and what that does to the state.

use super::core::{BY_COUNT, Book, Core, Kind, NONE, Ticket};
use super::event::Cause;
use super::permit::Verdict;
use super::window::{Bad, Trip};
use super::word::{Passed, State, Word};
use crate::clock::Clock;
use crate::sync::atomic::Ordering;

impl Core {
    #[inline]
    pub(super) fn settle(&self, ticket: Ticket, verdict: Verdict) {
        let failed = match verdict {
            Verdict::Ignore => return self.let_go(ticket),
            Verdict::Success => false,
            Verdict::Failure => true,
        };
        let slow = ticket.began != NONE && self.is_slow(ticket);
        match ticket.kind {
            Kind::Counted if failed || slow => self.count_bad(ticket, Bad { failed, slow }),
            Kind::Counted => self.count_good(ticket),
            Kind::Probe if failed || slow => self.fail_probe(ticket, Bad { failed, slow }),
            Kind::Probe => self.pass_probe(ticket),
            Kind::Free => {}
        }
    }

    /// Whether the state is the one that gave the ticket.
    pub(super) fn is_current(&self, ticket: Ticket) -> bool {
        self.hot.word.peek().generation() == ticket.generation
    }

    /// The ticket's call begins now.
    pub(super) fn restart(&self, ticket: &mut Ticket) {
        if ticket.began != NONE {
            *ticket = self.ticket(ticket.generation, ticket.kind);
        }
    }

    /// Nothing came of it.
    pub(super) fn let_go(&self, ticket: Ticket) {
        if ticket.is_probe() && self.hot.word.return_probe(ticket.generation) {
            self.watchers.tell();
        }
    }

    fn is_slow(&self, ticket: Ticket) -> bool {
        // ORDERING: Relaxed: a call that races a change is judged by either.
        let slow_after = self.hot.slow_after.load(Ordering::Relaxed);
        slow_after != NONE && self.reading(slow_after).saturating_sub(ticket.began) >= slow_after
    }

    #[inline]
    fn count_good(&self, ticket: Ticket) {
        let word = self.hot.word.peek();
        // Whoever is overtaken between this look and the count counts in the next window: one too many
        // successes for each thread that is.
        if !word.is_closed() || word.generation() != ticket.generation {
            return;
        }
        // ORDERING: Relaxed: a call that races a change counts in the old way, which the new one bears.
        let shift = self.hot.shift.load(Ordering::Relaxed);
        if shift == BY_COUNT {
            self.stripes.succeed();
        } else {
            self.stripes.succeed_at(self.clock.coarse().as_nanos() >> shift);
        }
    }

    #[cold]
    fn count_bad(&self, ticket: Ticket, bad: Bad) {
        // Clocks are foreign: before the lock.
        let coarse = self.coarse_for_window();
        let seen = Word::new(State::Closed, ticket.generation);
        let trip = {
            let mut book = self.book.lock();
            if self.hot.word.peek() != seen {
                book.late += 1;
                return;
            }
            book.note(bad);
            let tally = book.calls.add(bad, coarse, &self.stripes);
            tally.trips(&book.settings)
        };
        let Some(trip) = trip else { return };
        let now = self.clock.now().as_nanos();
        let change = self.open(&mut self.book.lock(), now, seen);
        if let Some((from, to)) = change {
            let cause = match trip {
                Trip::Failures => Cause::FailureRate,
                Trip::SlowCalls => Cause::SlowRate,
            };
            self.tell(from, to, cause, now);
        }
    }

    /// For the window's buckets, if it has any.
    pub(super) fn coarse_for_window(&self) -> u64 {
        // ORDERING: Relaxed: as in `count_good`.
        match self.hot.shift.load(Ordering::Relaxed) {
            BY_COUNT => 0,
            _ => self.clock.coarse().as_nanos(),
        }
    }

    #[cold]
    fn fail_probe(&self, ticket: Ticket, bad: Bad) {
        let now = self.clock.now().as_nanos();
        let seen = Word::new(State::HalfOpen, ticket.generation);
        let change = {
            let mut book = self.book.lock();
            let change = self.open(&mut book, now, seen);
            match change {
                Some(_) => book.note(bad),
                None => book.late += 1,
            }
            change
        };
        if let Some((from, to)) = change {
            self.tell(from, to, Cause::ProbeFailed, now);
        }
    }

    #[cold]
    fn pass_probe(&self, ticket: Ticket) {
        let passed = self.hot.word.pass_probe(ticket.generation, self.probes());
        if passed == Passed::Late {
            self.book.lock().late += 1;
            return;
        }
        // ORDERING: Relaxed: a count.
        self.passed.fetch_add(1, Ordering::Relaxed);
        if passed == Passed::Last {
            let now = self.clock.now().as_nanos();
            let seen = Word::new(State::HalfOpen, ticket.generation);
            let change = self.close(&mut self.book.lock(), seen);
            if let Some((from, to)) = change {
                self.tell(from, to, Cause::ProbesPassed, now);
            }
        }
    }

    /// One more probe of the generation of `seen` went well, and it may be the last.
    fn close(&self, book: &mut Book, seen: Word) -> Option<(Word, Word)> {
        let word = self.hot.word.peek();
        if word.state() != State::HalfOpen || word.generation() != seen.generation() {
            return None;
        }
        let most = book.settings.probes;
        let is_last = |word: Word| word.ok() + 1 >= most;
        if is_last(word) {
            // Before it is seen to be closed; nobody counts until then.
            self.start_afresh(book);
        }
        let (from, to) = self.hot.word.change(|word| {
            let is_same = word.state() == State::HalfOpen && word.generation() == seen.generation();
            is_same.then(|| if is_last(word) { word.next(State::Closed) } else { word.passed() })
        })?;
        (to.state() == State::Closed).then_some((from, to))
    }
}
