//! A span around each attempt, and what happens as events, through the crate `tracing`.
//!
//! | field | of | says |
//! |---|---|---|
//! | `job` | `attempt` | the job's id |
//! | `name` | `attempt` | its name, if it was given one |
//! | `attempt` | `attempt` | which one, from 1 |
//! | `epoch` | `attempt` | its epoch: the token of a job without a key |
//! | `outcome` | `attempt` | `done`, `failed`, `late`, `snoozed`, `cancelled`, `pending` |
//!
//! The span's parent is the one in which the job was submitted, not whatever the worker is in. Subscribers
//! are foreign code: their panics go no further. What a span costs is among the [figures](super::super#measured).

use tracing::{Level, Span, span};

use crate::runtime::cell::{JobRef, Ran, contained};
use crate::runtime::events::Event;

/// Whether there may be anybody to hear.
#[inline]
pub(crate) fn heard() -> bool {
    tracing::dispatcher::has_been_set()
}

/// The span that the caller is in, for the job that it submits.
#[inline]
pub(crate) fn parent() -> Option<Span> {
    if !heard() {
        return None;
    }
    let mut parent = None;
    contained(|| parent = Some(Span::current()).filter(|span| !span.is_none()));
    parent
}

/// The span of an attempt, entered on this thread.
pub(crate) struct Entered {
    span: Span,
}

impl Entered {
    #[inline]
    pub(crate) fn begin(job: &JobRef, epoch: u32, attempt: u32) -> Option<Self> {
        if heard() { Self::begin_heard(job, epoch, attempt) } else { None }
    }

    #[cold]
    fn begin_heard(job: &JobRef, epoch: u32, attempt: u32) -> Option<Self> {
        let options = job.options.as_deref();
        let mut entered = None;
        contained(|| {
            let parent = options.and_then(|o| o.span.as_ref()).and_then(Span::id);
            let span = span!(
                target: "tenure::runtime",
                parent: parent,
                Level::INFO,
                "attempt",
                job = job.id,
                name = options.and_then(|o| o.name.as_deref()),
                attempt,
                epoch,
                outcome = tracing::field::Empty,
            );
            if span.is_disabled() {
                return;
            }
            let entered = entered.insert(Self { span });
            entered.enter();
        });
        entered
    }

    /// Enters by hand: the guard of the crate would leave in a drop, where a subscriber must not panic.
    fn enter(&self) {
        self.span.with_subscriber(|(id, dispatch)| dispatch.enter(id));
    }

    #[cold]
    pub(crate) fn end(self, ran: &Ran) {
        let outcome = match ran {
            Ran::Written => "done",
            Ran::Fenced => "late",
            Ran::Failed(_) => "failed",
            Ran::Snoozed(_) => "snoozed",
            Ran::Cancelled => "cancelled",
            Ran::Pending => "pending",
        };
        let Self { span } = self;
        contained(|| {
            span.record("outcome", outcome);
        });
        contained(|| {
            span.with_subscriber(|(id, dispatch)| dispatch.exit(id));
        });
        contained(move || drop(span));
    }
}

/// Tells the subscriber what it may want to know of.
#[cold]
pub(crate) fn tell(event: &Event) {
    contained(|| tell_all(event));
}

fn tell_all(event: &Event) {
    macro_rules! tell {
        ($level:ident, $($rest:tt)*) => {
            tracing::event!(target: "tenure::runtime", Level::$level, $($rest)*)
        };
    }
    match event {
        Event::AttemptFailed { job, attempt, cause } => {
            tell!(DEBUG, job = job.get(), attempt, %cause, "attempt failed");
        }
        Event::RetryScheduled { job, attempt, delay } => {
            tell!(INFO, job = job.get(), attempt, ?delay, "retry scheduled");
        }
        Event::JobDead(letter) => {
            let (job, attempts, stop) = (letter.id.get(), letter.attempts(), letter.stop);
            let cause = letter.last_error().map(tracing::field::display);
            tell!(ERROR, job, name = letter.name.as_deref(), attempts, %stop, cause, "job is dead");
        }
        Event::JobReplayed { letter, job } => {
            tell!(INFO, letter = letter.get(), job = job.get(), "dead letter replayed");
        }
        Event::JobCancelled { job, by_shutdown } => {
            tell!(DEBUG, job = job.get(), by_shutdown, "job cancelled");
        }
        Event::WorkerStuck { worker, job, attempt, replacement } => {
            let replacement = replacement.map(|worker| worker as u64);
            tell!(ERROR, worker, job = job.get(), attempt, replacement, "worker is stuck");
        }
        Event::WorkerReturned { worker } => tell!(WARN, worker, "stuck worker returned"),
        Event::LateAttempt { job, attempt } => {
            tell!(WARN, job = job.get(), attempt, "late attempt fenced");
        }
        Event::DriverLate { lag } => tell!(WARN, ?lag, "driver was late"),
        Event::ForeignPanic { place } => tell!(ERROR, place, "foreign code panicked"),
        Event::ShutdownBegan => tell!(INFO, "shutdown began"),
        #[allow(unreachable_patterns, reason = "what comes later is told in its own words first")]
        other => tell!(DEBUG, event = ?other, "event"),
    }
}
