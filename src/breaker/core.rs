//! The transitions: who may change the word to what, and what goes with it.
//!
//! Calls on a closed breaker, refusals of an open one, and probes but the last touch the word and
//! counters alone. A change of state is made with the *book* locked, which keeps what goes with it:
//! settings, window, times. Clocks, listeners and watchers are called without it.

use core::time::Duration;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::config::{Settings, Window};
use super::error::Open;
use super::event::{BreakerEvent, Cause, Sink};
use super::stripes::Stripes;
use super::window::{Bad, Buckets, Calls};
use super::word::{Probe, State, Word, WordCell};
use crate::clock::{AnyClock, Clock, Timestamp, nanos_saturating};
use crate::limit::{Lock, Watchers, contained};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// In place of a bucket's size: the window is by count.
pub(super) const BY_COUNT: u32 = u32::MAX;
/// In place of a moment or a duration: there is none.
pub(super) const NONE: u64 = u64::MAX;

/// What each call looks at. Written when the state or a setting changes.
pub(super) struct Hot {
    pub(super) word: WordCell,
    /// Until when it is open, and until when it waits for probes: apart, so that who still sees it open
    /// is not told the time of probes. Copies of the book's.
    pub(super) open_until: AtomicU64,
    pub(super) probes_until: AtomicU64,
    /// Copies of settings.
    pub(super) slow_after: AtomicU64,
    pub(super) probes: AtomicU32,
    pub(super) shift: AtomicU32,
}

/// What goes with the state. Whoever holds its lock alone changes the state.
pub(super) struct Book {
    pub(super) settings: Settings,
    pub(super) calls: Calls,
    pub(super) until: u64,
    pub(super) opened_at: u64,
    /// Openings since it was closed last.
    pub(super) openings: u32,
    /// How long the last one was to be.
    pub(super) open_for: Duration,
    pub(super) rng: fastrand::Rng,
    pub(super) failed: u64,
    pub(super) slow: u64,
    pub(super) late: u64,
}

/// See the [file's docs](self).
pub(super) struct Core {
    pub(super) hot: CachePadded<Hot>,
    pub(super) stripes: Stripes,
    pub(super) book: CachePadded<Lock<Book>>,
    pub(super) watchers: Watchers,
    pub(super) sink: Option<Sink>,
    pub(super) clock: AnyClock,
    /// How far the coarse clock lags.
    pub(super) lag: u64,
    pub(super) name: Option<Arc<str>>,
    pub(super) passed: AtomicU64,
    pub(super) panics: AtomicU64,
}

/// That a call was let through, and as what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    pub(super) generation: u32,
    pub(super) kind: Kind,
    /// When it began, if calls are timed.
    pub(super) began: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Counted in the window.
    Counted,
    /// One of the probes.
    Probe,
    /// Not recorded.
    Free,
}

impl Ticket {
    pub(super) const fn is_probe(&self) -> bool {
        matches!(self.kind, Kind::Probe)
    }

    pub(super) const fn generation(&self) -> u32 {
        self.generation
    }
}

/// How long until the time that goes with the state.
enum Left {
    /// So long; `None`: it never comes.
    Some(Option<Duration>),
    /// It is over, by this look at the clock.
    Over(u64),
}

pub(super) fn shift_of(window: Window) -> u32 {
    match window {
        Window::Count(_) => BY_COUNT,
        Window::Time(time) => Buckets::of(time).shift,
    }
}

impl Core {
    pub(super) fn new(
        settings: Settings,
        stripes: usize,
        name: Option<Arc<str>>,
        clock: AnyClock,
        sink: Option<Sink>,
    ) -> Self {
        let stripes = Stripes::new(stripes);
        Self {
            hot: CachePadded::new(Hot {
                word: WordCell::new(State::Closed),
                open_until: AtomicU64::new(NONE),
                probes_until: AtomicU64::new(NONE),
                slow_after: AtomicU64::new(settings.slow_after.map_or(NONE, nanos_saturating)),
                probes: AtomicU32::new(settings.probes),
                shift: AtomicU32::new(shift_of(settings.window)),
            }),
            book: CachePadded::new(Lock::new(Book {
                settings,
                calls: Calls::new(settings.window, &stripes),
                until: NONE,
                opened_at: 0,
                openings: 0,
                open_for: Duration::ZERO,
                rng: fastrand::Rng::new(),
                failed: 0,
                slow: 0,
                late: 0,
            })),
            stripes,
            watchers: Watchers::new(),
            sink,
            lag: nanos_saturating(clock.coarse_lag()),
            clock,
            name,
            passed: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        }
    }

    pub(super) fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(super) fn word(&self) -> Word {
        self.hot.word.peek()
    }

    pub(super) fn settings(&self) -> Settings {
        self.book.lock().settings
    }

    pub(super) fn probes(&self) -> u32 {
        // ORDERING: Relaxed: acquired with the word, or newer.
        self.hot.probes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn admit(&self) -> Result<Ticket, Open> {
        let word = self.hot.word.load();
        if word.is_closed() {
            return Ok(self.ticket(word.generation(), Kind::Counted));
        }
        self.admit_slow(word)
    }

    #[inline]
    pub(super) fn ticket(&self, generation: u32, kind: Kind) -> Ticket {
        // ORDERING: Relaxed: acquired with the word, or newer.
        let slow_after = self.hot.slow_after.load(Ordering::Relaxed);
        let began = if slow_after == NONE { NONE } else { self.reading(slow_after) };
        Ticket { generation, kind, began }
    }

    /// Now, as precisely as `slow_after` asks for.
    pub(super) fn reading(&self, slow_after: u64) -> u64 {
        let is_coarse_enough = slow_after / 50 >= self.lag;
        let now = if is_coarse_enough { self.clock.coarse() } else { self.clock.now() };
        now.as_nanos()
    }

    #[cold]
    fn admit_slow(&self, mut word: Word) -> Result<Ticket, Open> {
        loop {
            word = match word.state() {
                State::Closed => return Ok(self.ticket(word.generation(), Kind::Counted)),
                State::Disabled => {
                    let generation = word.generation();
                    return Ok(Ticket { generation, kind: Kind::Free, began: NONE });
                }
                State::ForcedOpen => return Err(self.refusal(State::ForcedOpen, None)),
                State::Open => match self.time_left(&self.hot.open_until) {
                    Left::Some(left) => return Err(self.refusal(State::Open, left)),
                    Left::Over(now) => match self.begin_probing(word, now) {
                        Ok(ticket) => return Ok(ticket),
                        Err(word) => word,
                    },
                },
                State::HalfOpen => match self.hot.word.take_probe(word, self.probes()) {
                    Probe::Taken(generation) => return Ok(self.ticket(generation, Kind::Probe)),
                    Probe::Moved(word) => word,
                    Probe::Full(word) => match self.time_left(&self.hot.probes_until) {
                        Left::Some(left) => return Err(self.refusal(State::HalfOpen, left)),
                        Left::Over(now) => self.give_probes_up(word, now),
                    },
                },
            }
        }
    }

    fn refusal(&self, state: State, retry_after: Option<Duration>) -> Open {
        self.stripes.reject();
        Open { retry_after, state }
    }

    /// By the coarse clock, unless it is nearly time.
    fn time_left(&self, until: &AtomicU64) -> Left {
        // ORDERING: Relaxed: acquired with the word, or newer. A newer one is of a later state of the same
        // kind: then the answer is early by a moment.
        let until = until.load(Ordering::Relaxed);
        if until == NONE {
            return Left::Some(None);
        }
        let coarse = self.clock.coarse().as_nanos();
        if coarse.saturating_add(self.lag) < until {
            return Left::Some(Some(Duration::from_nanos(until - coarse)));
        }
        let now = self.clock.now().as_nanos();
        match until.checked_sub(now) {
            Some(left) if left > 0 => Left::Some(Some(Duration::from_nanos(left))),
            _ => Left::Over(now),
        }
    }

    /// From open to half-open, with the first probe; or what the word is now.
    fn begin_probing(&self, seen: Word, now: u64) -> Result<Ticket, Word> {
        let change = {
            let mut book = self.book.lock();
            if self.hot.word.peek() != seen || now < book.until {
                return Err(self.hot.word.load());
            }
            let timeout = nanos_saturating(book.settings.probe_timeout);
            book.until = now.saturating_add(timeout);
            // ORDERING: Relaxed: published by the change of the word that follows.
            self.hot.probes_until.store(book.until, Ordering::Relaxed);
            let to = seen.next(State::HalfOpen).with_probe();
            self.hot.word.change(|word| (word == seen).then_some(to))
        };
        let Some((from, to)) = change else { return Err(self.hot.word.load()) };
        self.tell(from, to, Cause::TimeOver, now);
        Ok(self.ticket(to.generation(), Kind::Probe))
    }

    /// The probes do not come back: from half-open to open. What the word is now.
    fn give_probes_up(&self, seen: Word, now: u64) -> Word {
        let change = {
            let mut book = self.book.lock();
            if now < book.until { None } else { self.open(&mut book, now, seen) }
        };
        if let Some((from, to)) = change {
            self.tell(from, to, Cause::ProbeTimeout, now);
        }
        self.hot.word.load()
    }

    /// Opens it, if it is in the state and generation of `seen`.
    pub(super) fn open(&self, book: &mut Book, now: u64, seen: Word) -> Option<(Word, Word)> {
        let is_same =
            |word: Word| word.generation() == seen.generation() && word.state() == seen.state();
        if !is_same(self.hot.word.peek()) {
            return None;
        }
        book.openings = book.openings.saturating_add(1);
        book.opened_at = now;
        self.time_opening(book);
        self.hot.word.change(|word| is_same(word).then(|| word.next(State::Open)))
    }

    /// How long this opening is.
    pub(super) fn time_opening(&self, book: &mut Book) {
        let time = book.settings.open.delay(book.openings, book.open_for, &mut book.rng);
        book.open_for = time;
        book.until = Timestamp::from_nanos(book.opened_at).saturating_add(time).as_nanos();
        // ORDERING: Relaxed: published by the change of the word that follows; where none does (new
        // settings for an opening under way), it is seen a moment later.
        self.hot.open_until.store(book.until, Ordering::Relaxed);
    }

    /// A fresh window, and no openings to count on from.
    pub(super) fn start_afresh(&self, book: &mut Book) {
        book.calls = Calls::new(book.settings.window, &self.stripes);
        book.openings = 0;
        book.open_for = Duration::ZERO;
    }

    /// Tells everybody of a change. Foreign code, with nothing locked. Those first who wait for it: whoever
    /// listens out of interest may take its time.
    #[cold]
    pub(super) fn tell(&self, from: Word, to: Word, cause: Cause, at: u64) {
        match to.state() {
            State::Closed | State::HalfOpen | State::Disabled => self.watchers.tell(),
            State::Open | State::ForcedOpen => {}
        }
        if let Some(sink) = &self.sink {
            let event = BreakerEvent {
                from: from.state(),
                to: to.state(),
                cause,
                generation: to.generation(),
                at: Timestamp::from_nanos(at),
            };
            if !contained(|| sink(&event)) {
                // ORDERING: Relaxed: a count.
                self.panics.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Book {
    pub(super) fn note(&mut self, bad: Bad) {
        self.failed += u64::from(bad.failed);
        self.slow += u64::from(bad.slow);
    }
}
