//! Who is expected to beat, and what became of them.
//!
//! One lock around the list and the queue of what is to be told. Whoever changes something queues it under
//! the lock, and tells afterwards, without: one thread at a time, in the order of the queue. A thread that
//! finds another one telling leaves its own there and goes on. So the listener may use the registry, drop
//! beats, panic, or never return; it is never called twice at once.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc as StdArc;

use super::detector::{Detector, Opinion};
use super::error::GivenUp;
use super::judge::Rest;
use super::pulse::Pulse;
use super::snapshot::{BeatHealth, HealthSnapshot, Status};
use crate::clock::{AdvanceListener, Clock, MonotonicClock, Timestamp};
use crate::lock::Mutex;
use crate::sync::Arc;

/// What is queued for a listener that does not come back; what comes after that is counted.
const MOST_UNTOLD: usize = 1024;

/// Which registration, within one registry. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BeatId(u64);

impl BeatId {
    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for BeatId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Something that happened to one that is expected to beat.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HealthEvent {
    /// Which one.
    pub id: BeatId,
    /// What it is called.
    pub name: StdArc<str>,
    /// What happened.
    pub change: Change,
}

/// What happened. Per registration: Registered, then Suspected and Recovered in turn, then Died or not,
/// then Left.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// It is expected to beat from now on.
    Registered,
    /// It has been silent for longer than is usual.
    Suspected {
        /// For how long.
        silence: Duration,
        /// How surprising that is, if that is what it is judged by.
        phi: Option<f64>,
    },
    /// It has beaten again.
    Recovered,
    /// It was given up, and is not heard again.
    Died {
        /// How long it was silent.
        silence: Duration,
        /// How surprising that is, if that is what it is judged by.
        phi: Option<f64>,
    },
    /// It is no longer expected: its [`Beat`] was dropped.
    Left,
}

type Listener = StdArc<dyn Fn(&HealthEvent) + Send + Sync>;

struct Entry {
    name: StdArc<str>,
    vital: bool,
    pulse: Arc<Pulse>,
    detector: Detector,
    status: Status,
    /// The beat that the detector heard last.
    heard: Timestamp,
    /// Silence since then that is not its own: the judge was late itself.
    excused: Duration,
}

impl Entry {
    /// Takes note of a beat, if there was one.
    fn hear(&mut self) {
        let last = self.pulse.last();
        if last != self.heard {
            self.heard = last;
            self.excused = Duration::ZERO;
            self.detector.hear(last);
        }
    }

    fn silence(&self, now: Timestamp, lag: Duration) -> Duration {
        let since = now.saturating_since(self.heard.saturating_add(lag));
        since.saturating_sub(self.excused)
    }
}

struct List {
    next: u64,
    entries: BTreeMap<u64, Entry>,
    untold: VecDeque<HealthEvent>,
    /// Somebody is telling.
    telling: bool,
    untold_lost: u64,
}

impl List {
    fn queue(&mut self, id: u64, name: &StdArc<str>, change: Change) {
        if self.untold.len() >= MOST_UNTOLD {
            self.untold_lost = self.untold_lost.saturating_add(1);
            return;
        }
        self.untold.push_back(HealthEvent { id: BeatId(id), name: StdArc::clone(name), change });
    }
}

/// What all handles share.
pub(super) struct Inner {
    pub(super) clock: StdArc<dyn Clock>,
    listener: Option<Listener>,
    list: Mutex<List>,
    pub(super) rest: StdArc<Rest>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The judges find nobody, and end.
        self.rest.ring();
    }
}

impl Inner {
    /// Tells what is queued, unless somebody is at it.
    fn tell(&self) {
        loop {
            let mut list = self.list.lock();
            if list.telling {
                return;
            }
            let Some(event) = list.untold.pop_front() else { return };
            list.telling = true;
            drop(list);
            if let Some(listener) = &self.listener {
                // Foreign: no lock held. Its panic was printed by the hook; there is nobody to hear it, and
                // a payload that panics in its drop is the second one: leaked.
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| listener(&event)))
                    && let Err(again) = catch_unwind(AssertUnwindSafe(move || drop(payload)))
                {
                    core::mem::forget(again);
                }
            }
            self.list.lock().telling = false;
        }
    }

    fn register(
        &self,
        name: StdArc<str>,
        mut detector: Detector,
        vital: bool,
    ) -> (u64, Arc<Pulse>) {
        // Foreign: read without the lock.
        let now = self.clock.coarse();
        detector.hear(now);
        let pulse = Arc::new(Pulse::new(now));
        let mut list = self.list.lock();
        let id = list.next;
        list.next += 1;
        list.queue(id, &name, Change::Registered);
        let first = list.entries.is_empty();
        let entry = Entry {
            name,
            vital,
            pulse: Arc::clone(&pulse),
            detector,
            status: Status::Alive,
            heard: now,
            excused: Duration::ZERO,
        };
        list.entries.insert(id, entry);
        drop(list);
        if first {
            self.rest.ring();
        }
        self.tell();
        (id, pulse)
    }

    fn leave(&self, id: u64) {
        let mut list = self.list.lock();
        let entry = list.entries.remove(&id);
        if let Some(entry) = &entry {
            list.queue(id, &entry.name, Change::Left);
        }
        drop(list);
        drop(entry);
        self.tell();
    }

    /// Judges all; `late`: by how much the caller is later than it meant to be.
    pub(super) fn check(&self, late: Duration) -> HealthSnapshot {
        let now = self.clock.now();
        let lag = self.clock.coarse_lag();
        let mut list = self.list.lock();
        let mut beats = Vec::with_capacity(list.entries.len());
        let mut changes = Vec::new();
        for (&id, entry) in &mut list.entries {
            entry.hear();
            entry.excused = entry.excused.saturating_add(late);
            let silence = entry.silence(now, lag);
            let (opinion, phi) = entry.detector.judge(silence);
            if entry.status != Status::Dead {
                let before = entry.status;
                let out = opinion == Opinion::Lost && entry.pulse.condemn(entry.heard);
                entry.status = match opinion {
                    Opinion::Lost if out => Status::Dead,
                    // It has beaten this very moment.
                    Opinion::Lost | Opinion::Fine => Status::Alive,
                    Opinion::Suspicious => Status::Suspect,
                };
                let change = match (before, entry.status) {
                    (_, Status::Dead) => Some(Change::Died { silence, phi }),
                    (Status::Alive, Status::Suspect) => Some(Change::Suspected { silence, phi }),
                    (Status::Suspect, Status::Alive) => Some(Change::Recovered),
                    _ => None,
                };
                changes.extend(change.map(|change| (id, StdArc::clone(&entry.name), change)));
            }
            beats.push(BeatHealth {
                id: BeatId(id),
                name: StdArc::clone(&entry.name),
                status: entry.status,
                silence,
                phi,
                vital: entry.vital,
            });
        }
        for (id, name, change) in changes {
            list.queue(id, &name, change);
        }
        let events_lost = list.untold_lost;
        drop(list);
        self.tell();
        HealthSnapshot { at: now, beats, events_lost }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.lock().entries.is_empty()
    }
}

impl AdvanceListener for Inner {
    fn clock_advanced(&self) {
        self.rest.ring();
    }
}

/// A registry of who is expected to beat. Clones are the same one. See the
/// [room's tour](super).
#[derive(Clone)]
pub struct Health {
    pub(super) inner: StdArc<Inner>,
}

impl Health {
    /// By the system's steady clock, with nobody listening.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings to choose.
    pub fn builder() -> HealthBuilder {
        HealthBuilder { clock: StdArc::new(MonotonicClock::new()), listener: None }
    }

    /// Expects beats from now on, the registration being the first; when there are none for too long by the
    /// detector, the registry is not ready. Names need not be unique.
    ///
    /// Nothing happens by itself: somebody has to [`check`](Self::check), or a
    /// [judge](Self::start_judge).
    pub fn register(&self, name: impl Into<StdArc<str>>, detector: Detector) -> Beat {
        self.enter(name.into(), detector, false)
    }

    /// The same for one whose death is the whole process's: it is not
    /// [live](super::Verdict::is_live) then.
    pub fn register_vital(&self, name: impl Into<StdArc<str>>, detector: Detector) -> Beat {
        self.enter(name.into(), detector, true)
    }

    fn enter(&self, name: StdArc<str>, detector: Detector, vital: bool) -> Beat {
        let (id, pulse) = self.inner.register(name, detector, vital);
        Beat {
            id,
            pulse,
            clock: StdArc::clone(&self.inner.clock),
            home: StdArc::clone(&self.inner),
        }
    }

    /// Looks at everybody: who has been silent for too long is suspected, or given up. Says how everybody
    /// is.
    ///
    /// The listener is called on this thread, or, if another one is calling it just now, on that one,
    /// perhaps after this returns.
    pub fn check(&self) -> HealthSnapshot {
        self.inner.check(Duration::ZERO)
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.inner.list.lock().entries.len();
        f.debug_struct("Health").field("registered", &registered).finish_non_exhaustive()
    }
}

/// Settings of a [`Health`]. From [`Health::builder`].
#[derive(Clone)]
#[must_use = "call build"]
pub struct HealthBuilder {
    clock: StdArc<dyn Clock>,
    listener: Option<Listener>,
}

impl HealthBuilder {
    /// What tells the time. Defaults to [`MonotonicClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = StdArc::new(clock);
        self
    }

    /// Called with every change, in order, one at a time, with no lock held, on the thread that made the
    /// change or on one that was calling it already: whoever registers, drops a beat, or checks. It may use
    /// the registry (what comes of that is told after it returns), panic, or hold up those threads. While
    /// it does not return, 1024 events are kept for it, and later ones counted
    /// ([`HealthSnapshot::events_lost`]). Defaults to nothing.
    pub fn on_change(mut self, listener: impl Fn(&HealthEvent) + Send + Sync + 'static) -> Self {
        self.listener = Some(StdArc::new(listener));
        self
    }

    /// The registry.
    #[must_use]
    pub fn build(self) -> Health {
        let inner = StdArc::new(Inner {
            clock: self.clock,
            listener: self.listener,
            list: Mutex::new(List {
                next: 0,
                entries: BTreeMap::new(),
                untold: VecDeque::new(),
                telling: false,
                untold_lost: 0,
            }),
            rest: StdArc::new(Rest::new()),
        });
        let weak = StdArc::downgrade(&inner);
        let listener: std::sync::Weak<dyn AdvanceListener> = weak;
        inner.clock.on_advance(listener);
        Health { inner }
    }
}

impl fmt::Debug for HealthBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthBuilder").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// One registration: what its owner beats with. May be shared between threads; a beat of any counts.
///
/// # Cancellation and drop
///
/// Dropping it ends the registration, whether alive or dead, and tells the listener on this thread. One
/// that is leaked stays until it is dead, and is listed as dead after that.
#[must_use = "dropping it ends the registration"]
pub struct Beat {
    id: u64,
    pulse: Arc<Pulse>,
    clock: StdArc<dyn Clock>,
    home: StdArc<Inner>,
}

impl Beat {
    /// A sign of life: a coarse reading of the clock, one store and one look.
    ///
    /// If the answer is yes, no later verdict overlooks this beat. (On systems without `membarrier`, one
    /// that falls this very moment may.)
    ///
    /// # Errors
    /// [`GivenUp`] if the silence before was too long: somebody may have taken this one's place.
    #[inline]
    pub fn beat(&self) -> Result<(), GivenUp> {
        self.beat_at(self.clock.coarse())
    }

    /// The same for a caller who has just read the registry's clock.
    ///
    /// # Errors
    /// As [`beat`](Self::beat).
    #[inline]
    pub fn beat_at(&self, now: Timestamp) -> Result<(), GivenUp> {
        if self.pulse.beat(now) { Ok(()) } else { Err(GivenUp) }
    }

    /// Whether it was given up.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.pulse.is_out()
    }

    /// Which registration.
    #[must_use]
    pub fn id(&self) -> BeatId {
        BeatId(self.id)
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.home.leave(self.id);
    }
}

impl fmt::Debug for Beat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beat")
            .field("id", &self.id)
            .field("last", &self.pulse.last())
            .field("given_up", &self.pulse.is_out())
            .finish_non_exhaustive()
    }
}
