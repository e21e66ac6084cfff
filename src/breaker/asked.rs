//! What somebody asks of a breaker: another state, other settings, how it stands.

use super::config::Settings;
use super::core::{Core, NONE, shift_of};
use super::event::Cause;
use super::snapshot::{Snapshot, Totals};
use super::window::{Calls, Tally};
use super::word::{State, Word};
use crate::clock::{Clock, Timestamp, nanos_saturating};
use crate::sync::atomic::Ordering;

impl Core {
    pub(super) fn ask_for(&self, state: State) {
        let now = self.clock.now().as_nanos();
        let change = {
            let mut book = self.book.lock();
            match state {
                State::Closed => self.start_afresh(&mut book),
                state if self.hot.word.peek().state() == state => return,
                _ => {}
            }
            self.hot.word.change(|word| Some(word.next(state)))
        };
        if let Some((from, to)) = change {
            self.tell(from, to, Cause::Asked, now);
        }
    }

    pub(super) fn reconfigure(&self, settings: Settings) {
        let now = self.clock.now().as_nanos();
        let change = {
            let mut book = self.book.lock();
            let old = core::mem::replace(&mut book.settings, settings);
            // ORDERING: Relaxed, all: a call that races sees either of each.
            self.hot.probes.store(settings.probes, Ordering::Relaxed);
            let slow_after = settings.slow_after.map_or(NONE, nanos_saturating);
            // ORDERING: Relaxed: as above.
            self.hot.slow_after.store(slow_after, Ordering::Relaxed);
            // ORDERING: Relaxed: as above.
            self.hot.shift.store(shift_of(settings.window), Ordering::Relaxed);
            if old.window != settings.window {
                book.calls = Calls::new(settings.window, &self.stripes);
            }
            let word = self.hot.word.peek();
            match word.state() {
                State::Open if old.open != settings.open => {
                    self.time_opening(&mut book);
                    None
                }
                State::HalfOpen if word.ok() >= settings.probes => {
                    self.start_afresh(&mut book);
                    let next = |word: Word| Some(word.next(State::Closed));
                    self.hot.word.change(next)
                }
                State::Closed
                | State::Open
                | State::HalfOpen
                | State::ForcedOpen
                | State::Disabled => None,
            }
        };
        match change {
            Some((from, to)) => self.tell(from, to, Cause::ProbesPassed, now),
            // More probes, or an opening that ends sooner.
            None => self.watchers.tell(),
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let now = self.coarse_for_window();
        let book = self.book.lock();
        let word = self.hot.word.peek();
        let tally = match word.state() {
            State::Closed => book.calls.tally(now, &self.stripes),
            State::Open | State::HalfOpen | State::ForcedOpen | State::Disabled => Tally::default(),
        };
        let until = match word.state() {
            State::Open | State::HalfOpen => Some(book.until).filter(|until| *until != NONE),
            State::Closed | State::ForcedOpen | State::Disabled => None,
        };
        let is_probing = word.state() == State::HalfOpen;
        Snapshot {
            name: self.name.clone(),
            state: word.state(),
            generation: word.generation(),
            calls: tally.calls,
            failed: tally.failed,
            slow: tally.slow,
            probes_in_flight: if is_probing { word.in_flight() } else { 0 },
            probes_passed: if is_probing { word.ok() } else { 0 },
            until: until.map(Timestamp::from_nanos),
            totals: Totals {
                // ORDERING: Relaxed, both: counts.
                succeeded: self.stripes.ok()
                    + self.stripes.in_buckets()
                    + self.passed.load(Ordering::Relaxed),
                failed: book.failed,
                slow: book.slow,
                late: book.late,
                rejected: self.stripes.rejected(),
                listener_panics: self.panics.load(Ordering::Relaxed),
            },
        }
    }
}
