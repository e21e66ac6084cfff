//! What a job carries beside its closure: what the user said about it, and what it has been through.

use core::fmt;
use core::time::Duration;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::error::AttemptRecord;
use super::keys::Serial;
use super::policy::{Gates, Judge, Queued};
use super::shared::Shared;
use crate::clock::{Clock, Timestamp};
use crate::retry::RetryPolicy;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::timer::TimerKey;

/// Which job, within one runtime. Unique, not dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub(super) u64);

impl JobId {
    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which queue a job waits in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Before everything else that waits.
    High,
    /// The usual one.
    #[default]
    Normal,
    /// When nothing else waits, and at every 183rd turn of a worker.
    Low,
}

/// What jobs are serialised by: those with equal keys run one after another.
///
/// Made from text, bytes, numbers and paths (of which any bytes count, UTF-8 or not). A number and
/// the text of its digits are different keys.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobKey(Key);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Number(u64),
    Bytes(Arc<[u8]>),
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Key::Number(number) => number.fmt(f),
            Key::Bytes(bytes) => String::from_utf8_lossy(bytes).fmt(f),
        }
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Key::Number(number) => write!(f, "JobKey({number})"),
            Key::Bytes(bytes) => write!(f, "JobKey({:?})", String::from_utf8_lossy(bytes)),
        }
    }
}

impl From<u64> for JobKey {
    fn from(number: u64) -> Self {
        Self(Key::Number(number))
    }
}

impl From<&[u8]> for JobKey {
    fn from(bytes: &[u8]) -> Self {
        Self(Key::Bytes(bytes.into()))
    }
}

impl From<Vec<u8>> for JobKey {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Key::Bytes(bytes.into()))
    }
}

impl From<&str> for JobKey {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl From<String> for JobKey {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<&OsStr> for JobKey {
    fn from(text: &OsStr) -> Self {
        text.as_encoded_bytes().into()
    }
}

impl From<&Path> for JobKey {
    fn from(path: &Path) -> Self {
        path.as_os_str().into()
    }
}

impl From<PathBuf> for JobKey {
    fn from(path: PathBuf) -> Self {
        path.as_path().into()
    }
}

impl From<&PathBuf> for JobKey {
    fn from(path: &PathBuf) -> Self {
        path.as_path().into()
    }
}

/// What the user said about one job. `None` everywhere: no box is made.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) serial: Option<Serial>,
    pub(crate) retry: Option<RetryPolicy>,
    /// `Some(None)`: explicitly without.
    pub(crate) attempt_timeout: Option<Option<Duration>>,
    /// Whether a letter is to keep its closure.
    pub(crate) replayable: Option<bool>,
    /// The letter that it is a replay of.
    pub(crate) origin: Option<Origin>,
    /// Of all live jobs the only one with this key.
    pub(crate) unique: Option<JobKey>,
    pub(crate) gates: Option<Box<Gates>>,
    /// What its errors say about whoever is behind the gates.
    pub(crate) judge: Option<Judge>,
    /// In the queue of a shedder, until it begins.
    pub(crate) place: Option<Queued>,
    /// Until its deadline, from when it is handed in.
    pub(crate) time: Option<Duration>,
    /// No attempt begins from then on. Follows from `time`, like the next one.
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) hedge: Option<Hedge>,
    /// Whether a worker has to ask before it starts it, and how: see `Shared::enter`.
    pub(crate) guarded: bool,
    /// The span that it was handed in from.
    #[cfg(feature = "tracing")]
    pub(crate) span: Option<tracing::Span>,
    /// Where the job lives: what a handle tells of a cancellation that somebody waits for.
    pub(crate) home: Weak<Shared>,
}

/// Where a replay comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) letter: JobId,
    /// How many replays it is after the job that was submitted.
    pub(crate) replays: u32,
}

impl Options {
    /// What a replay of the job has. Where it comes from, and where it lives, is for the replay to say.
    pub(crate) fn again(&self) -> Self {
        Self {
            name: self.name.clone(),
            serial: self.serial.as_ref().map(|serial| Serial::new(serial.key.clone())),
            retry: self.retry,
            attempt_timeout: self.attempt_timeout,
            replayable: self.replayable,
            origin: None,
            unique: self.unique.clone(),
            gates: self.gates.as_ref().map(|gates| Box::new(gates.again())),
            judge: self.judge.clone(),
            place: None,
            time: self.time,
            deadline: None,
            hedge: self.hedge.as_ref().map(|hedge| Hedge::new(hedge.after)),
            guarded: false,
            #[cfg(feature = "tracing")]
            span: None,
            home: Weak::new(),
        }
    }

    /// Takes note of the span that the caller is in. True: it is in one.
    #[inline]
    pub(crate) fn in_span(&mut self) -> bool {
        #[cfg(feature = "tracing")]
        if let Some(span) = super::observe::spans::parent() {
            self.span = Some(span);
            return true;
        }
        false
    }

    /// What a job has that is handed in now, here. Nothing, if nothing was said and it is in no span.
    #[inline]
    pub(crate) fn complete(said: Option<Box<Self>>, shared: &Shared) -> Option<Box<Self>> {
        #[cfg(feature = "tracing")]
        let said = match (said, super::observe::spans::parent()) {
            (said, None) => said,
            (said, Some(span)) => {
                let mut said = said.unwrap_or_default();
                said.span = Some(span);
                Some(said)
            }
        };
        let mut said = said?;
        said.handed_in(shared);
        Some(said)
    }

    /// It is handed in now, here.
    pub(crate) fn handed_in(&mut self, shared: &Shared) {
        self.home = shared.weak();
        let deadline = self.time.map(|time| shared.clock.now().saturating_add(time));
        self.deadline = deadline.filter(|at| !at.is_never());
        self.guarded = self.gates.is_some() || self.deadline.is_some() || self.place.is_some();
    }

    /// Whether the driver may still have a timer for the job when that is over.
    pub(crate) fn leaves_timers(&self) -> bool {
        self.deadline.is_some() || self.hedge.is_some()
    }
}

/// A second attempt, if the first one takes long.
#[derive(Debug)]
pub(crate) struct Hedge {
    /// So long.
    pub(crate) after: Duration,
    /// The epoch of the attempt that one was asked for; 0: none.
    asked: AtomicU32,
}

impl Hedge {
    pub(crate) fn new(after: Duration) -> Self {
        Self { after, asked: AtomicU32::new(0) }
    }

    /// The driver: an entry is on its way that is for a second attempt.
    pub(crate) fn ask(&self, epoch: u32) {
        // ORDERING: Relaxed: the entry is pushed after it, and the queue's edge orders the two.
        self.asked.store(epoch, Ordering::Relaxed);
    }

    /// A worker has an entry of a job that is Leased, with this epoch: is it for a second attempt?
    pub(crate) fn take(&self, epoch: u32) -> bool {
        // ORDERING: Relaxed: as above; only who takes it matters.
        epoch != 0
            && self.asked.compare_exchange(epoch, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// What a job has been through.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// The first and the last attempts that failed.
    pub(crate) history: Vec<AttemptRecord>,
    /// Those between, which are not kept.
    pub(crate) omitted: u64,
    /// The delay before the current attempt.
    pub(crate) delay: Duration,
    /// When the first attempt began.
    pub(crate) began: Option<Timestamp>,
    /// Where the job lives, once it has had a timer.
    pub(crate) home: Weak<Shared>,
    /// Its latest timers in the driver's wheel. Driver only.
    pub(crate) timer: Option<TimerKey>,
    pub(crate) deadline_timer: Option<TimerKey>,
    pub(crate) hedge_timer: Option<TimerKey>,
}

/// Of the attempts of one job, how many of the first and how many of the last are kept.
const KEPT: (usize, usize) = (8, 24);

impl Past {
    /// Adds an attempt; of a long life the middle is forgotten. What is forgotten comes back: its
    /// error is foreign, and is to be dropped where that may panic.
    #[must_use]
    pub(crate) fn record(&mut self, attempt: AttemptRecord) -> Option<AttemptRecord> {
        self.began.get_or_insert(attempt.started);
        let forgotten = (self.history.len() == KEPT.0 + KEPT.1).then(|| {
            self.omitted = self.omitted.saturating_add(1);
            self.history.remove(KEPT.0)
        });
        self.history.push(attempt);
        forgotten
    }
}
