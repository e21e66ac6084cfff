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
use super::permit::Verdict;
use super::snapshot::{Snapshot, Totals};
use super::stripes::Stripes;
use super::window::{Bad, Buckets, Calls, Trip};
use super::word::{Passed, Probe, State, Word, WordCell};
use crate::clock::{AnyClock, Clock, Timestamp, nanos_saturating};
use crate::limit::{Lock, Watchers, contained};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// In place of a bucket's size: the window is by count.
const BY_COUNT: u32 = u32::MAX;
/// In place of a moment or a duration: there is none.
const NONE: u64 = u64::MAX;

/// What each call looks at. Written when the state or a setting changes.
struct Hot {
    word: WordCell,
    /// Until when it is open, or waits for probes. A copy of the book's.
    until: AtomicU64,
    /// Copies of settings.
    slow_after: AtomicU64,
    probes: AtomicU32,
    shift: AtomicU32,
}

/// What goes with the state. Whoever holds its lock alone changes the state.
struct Book {
    settings: Settings,
    calls: Calls,
    until: u64,
    opened_at: u64,
    /// Openings since it was closed last.
    openings: u32,
    /// How long the last one was to be.
    open_for: Duration,
    rng: fastrand::Rng,
    failed: u64,
    slow: u64,
    late: u64,
}

/// See the [file's docs](self).
pub(super) struct Core {
    hot: CachePadded<Hot>,
    stripes: Stripes,
    book: CachePadded<Lock<Book>>,
    watchers: Watchers,
    sink: Option<Sink>,
    clock: AnyClock,
    /// How far the coarse clock lags.
    lag: u64,
    name: Option<Arc<str>>,
    passed: AtomicU64,
    panics: AtomicU64,
}

/// That a call was let through, and as what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    generation: u32,
    kind: Kind,
    /// When it began, if calls are timed.
    began: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
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

fn shift_of(window: Window) -> u32 {
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
                until: AtomicU64::new(NONE),
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

    fn probes(&self) -> u32 {
        // ORDERING: Relaxed: acquired with the word, or newer.
        self.hot.probes.load(Ordering::Relaxed)
    }

    // ---- letting through ----

    #[inline]
    pub(super) fn admit(&self) -> Result<Ticket, Open> {
        let word = self.hot.word.load();
        if word.is_closed() {
            return Ok(self.ticket(word.generation(), Kind::Counted));
        }
        self.admit_slow(word)
    }

    #[inline]
    fn ticket(&self, generation: u32, kind: Kind) -> Ticket {
        // ORDERING: Relaxed: acquired with the word, or newer.
        let slow_after = self.hot.slow_after.load(Ordering::Relaxed);
        let began = if slow_after == NONE { NONE } else { self.reading(slow_after) };
        Ticket { generation, kind, began }
    }

    /// Now, as precisely as `slow_after` asks for.
    fn reading(&self, slow_after: u64) -> u64 {
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
                State::Open => match self.time_left() {
                    Left::Some(left) => return Err(self.refusal(State::Open, left)),
                    Left::Over(now) => match self.begin_probing(word, now) {
                        Ok(ticket) => return Ok(ticket),
                        Err(word) => word,
                    },
                },
                State::HalfOpen => match self.hot.word.take_probe(word, self.probes()) {
                    Probe::Taken(generation) => return Ok(self.ticket(generation, Kind::Probe)),
                    Probe::Moved(word) => word,
                    Probe::Full(word) => match self.time_left() {
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
    fn time_left(&self) -> Left {
        // ORDERING: Relaxed: acquired with the word, or newer. A newer one is of a later state: then the
        // answer is late by a moment, or asks the book, which knows.
        let until = self.hot.until.load(Ordering::Relaxed);
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
            self.set_until(&mut book, now.saturating_add(timeout));
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

    fn set_until(&self, book: &mut Book, until: u64) {
        book.until = until;
        // ORDERING: Relaxed: published by the change of the word that follows, or, where none does,
        // a setting that is seen a moment later.
        self.hot.until.store(until, Ordering::Relaxed);
    }

    /// Opens it, if it is in the state and generation of `seen`.
    fn open(&self, book: &mut Book, now: u64, seen: Word) -> Option<(Word, Word)> {
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
    fn time_opening(&self, book: &mut Book) {
        let time = book.settings.open.delay(book.openings, book.open_for, &mut book.rng);
        book.open_for = time;
        let until = Timestamp::from_nanos(book.opened_at).saturating_add(time);
        self.set_until(book, until.as_nanos());
    }

    /// A fresh window, and no openings to count on from.
    fn start_afresh(&self, book: &mut Book) {
        book.calls = Calls::new(book.settings.window, &self.stripes);
        book.openings = 0;
        book.open_for = Duration::ZERO;
    }

    /// Tells everybody of a change. Foreign code, with nothing locked.
    #[cold]
    fn tell(&self, from: Word, to: Word, cause: Cause, at: u64) {
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
        match to.state() {
            State::Closed | State::HalfOpen | State::Disabled => self.watchers.tell(),
            State::Open | State::ForcedOpen => {}
        }
    }

    // ---- what came of it ----

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
    fn coarse_for_window(&self) -> u64 {
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

    // ---- what somebody asks for ----

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
            State::Open | State::HalfOpen | State::ForcedOpen | State::Disabled => {
                super::window::Tally::default()
            }
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

impl Book {
    fn note(&mut self, bad: Bad) {
        self.failed += u64::from(bad.failed);
        self.slow += u64::from(bad.slow);
    }
}
