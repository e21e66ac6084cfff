//! What the runtime counts, told to the recorder of the crate `metrics`.

use core::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::metrics::{
    Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit, with_recorder,
};

use super::meter::{BOUNDS, Sum, seconds};
use crate::runtime::error::JobPanic;
use crate::runtime::health::{RuntimeHealth, WorkerStatus};
use crate::runtime::shared::Shared;

/// Names of jobs that get series of their own; and gauges of the user's.
const MOST: usize = 32;

const METADATA: Metadata<'static> =
    Metadata::new("tenure::runtime", Level::INFO, Some("tenure::runtime"));

type Read = Arc<dyn Fn() -> f64 + Send + Sync>;

/// What a runtime measures and how it is labelled, for [`Builder::metrics`](super::super::Builder::metrics).
///
/// # Labels are bounded
///
/// No label ever holds a job's id, key, error or anything else that grows with use. The name of a job is one
/// only if it was allowed here, of which there are at most 32; all others are `other`.
#[derive(Clone, Default)]
pub struct Metrics {
    names: Vec<Arc<str>>,
    runtime: Option<Arc<str>>,
    gauges: Vec<Gauge>,
}

#[derive(Clone)]
struct Gauge {
    name: &'static str,
    label: (&'static str, Arc<str>),
    read: Read,
}

impl Metrics {
    /// Durations and waits are measured, for all jobs together.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Jobs with this name have series of their own. From the 33rd name on they are `other`.
    #[must_use]
    pub fn job_name(mut self, name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        if self.names.len() < MOST && !self.names.contains(&name) {
            self.names.push(name);
        }
        self
    }

    /// A label `runtime` on every series, to tell the runtimes of one process apart. Defaults to none:
    /// then two that publish overwrite each other.
    #[must_use]
    pub fn runtime(mut self, name: impl Into<Arc<str>>) -> Self {
        self.runtime = Some(name.into());
        self
    }

    /// One more gauge, read at each publication: the state of a breaker, what is left of a limit. At most 32;
    /// further ones are left out.
    ///
    /// ```
    /// use tenure::retry::RetryBudget;
    /// use tenure::runtime::Metrics;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let budget = std::sync::Arc::new(RetryBudget::builder().build()?);
    /// let read = std::sync::Arc::clone(&budget);
    /// let metrics = Metrics::new()
    ///     .gauge("tenure_retry_budget", "budget", "mail", move || f64::from(read.balance()));
    /// # drop(metrics);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn gauge(
        mut self,
        name: &'static str,
        label: &'static str,
        value: impl Into<Arc<str>>,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Self {
        if self.gauges.len() < MOST {
            self.gauges.push(Gauge { name, label: (label, value.into()), read: Arc::new(read) });
        }
        self
    }

    pub(crate) fn names(&self) -> Arc<[Arc<str>]> {
        Arc::from(self.names.as_slice())
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("names", &self.names)
            .field("runtime", &self.runtime)
            .field("gauges", &self.gauges.len())
            .finish()
    }
}

/// The recorder, or the reading of a gauge, panicked; what came before it is published.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the recorder panicked: {0}")]
pub struct PublishError(pub JobPanic);

/// What is published, and as what.
enum Kind {
    Counter,
    Gauge,
    /// Three names: `_bucket`, `_sum`, `_count`.
    Histogram,
}

/// Every name there is, and what it says.
const ALL: &[(&str, Kind, &str)] = &[
    ("tenure_jobs_submitted_total", Kind::Counter, "Jobs taken in."),
    (
        "tenure_jobs_total",
        Kind::Counter,
        "Jobs that ended, by outcome: succeeded, dead, cancelled.",
    ),
    ("tenure_attempts_started_total", Kind::Counter, "Attempts begun."),
    (
        "tenure_attempts_total",
        Kind::Counter,
        "Attempts that ended, by outcome: succeeded, failed, panicked, timed_out, snoozed, fenced (late).",
    ),
    ("tenure_retries_total", Kind::Counter, "Retries scheduled."),
    ("tenure_hedges_total", Kind::Counter, "Second attempts begun beside a first one."),
    ("tenure_gated_total", Kind::Counter, "Times that a limit or a breaker let a job wait."),
    ("tenure_workers_replaced_total", Kind::Counter, "Workers taken out because they were stuck."),
    ("tenure_parks_total", Kind::Counter, "Times that a worker went to sleep."),
    ("tenure_steals_total", Kind::Counter, "Jobs taken from another worker."),
    ("tenure_replays_total", Kind::Counter, "Dead letters whose jobs were handed in again."),
    ("tenure_dead_letters_lost_total", Kind::Counter, "Dead letters there was no room for."),
    ("tenure_dead_letters_purged_total", Kind::Counter, "Dead letters thrown away."),
    ("tenure_events_lost_total", Kind::Counter, "Events that did not fit into a subscription."),
    ("tenure_dead_letters", Kind::Gauge, "Dead letters kept."),
    (
        "tenure_queue_depth",
        Kind::Gauge,
        "Jobs that wait, by queue: high, normal, low, local, in_line.",
    ),
    ("tenure_jobs_held", Kind::Gauge, "Jobs taken in and not over, of a runtime with a capacity."),
    ("tenure_jobs_capacity", Kind::Gauge, "The capacity."),
    (
        "tenure_workers",
        Kind::Gauge,
        "Workers, by state: idle, running, waiting, suspect, stuck, leaving.",
    ),
    ("tenure_driver_late_seconds", Kind::Gauge, "By how much the driver is late."),
    ("tenure_live", Kind::Gauge, "1 if it can still help itself."),
    ("tenure_ready", Kind::Gauge, "1 if it takes work."),
    (
        "tenure_job_duration_seconds",
        Kind::Histogram,
        "How long attempts are in their closures, by name where that is allowed.",
    ),
    (
        "tenure_queue_wait_seconds",
        Kind::Histogram,
        "How long jobs that are ready wait for a worker; one in eight is measured, and counts for eight.",
    ),
];

/// Writes to a recorder, every series with the same labels more.
struct Writer<'a> {
    recorder: &'a dyn Recorder,
    common: Option<Label>,
}

impl Writer<'_> {
    fn key(&self, name: &'static str, labels: &[(&'static str, SharedString)]) -> Key {
        let own = labels.iter().map(|(key, value)| Label::new(*key, value.clone()));
        Key::from_parts(name, self.common.iter().cloned().chain(own).collect::<Vec<_>>())
    }

    fn count(&self, name: &'static str, value: u64) {
        self.recorder.register_counter(&self.key(name, &[]), &METADATA).absolute(value);
    }

    fn count_by(&self, name: &'static str, label: &'static str, values: &[(&'static str, u64)]) {
        for (by, value) in values {
            let key = self.key(name, &[(label, SharedString::const_str(by))]);
            self.recorder.register_counter(&key, &METADATA).absolute(*value);
        }
    }

    fn gauge(&self, name: &'static str, value: f64) {
        self.recorder.register_gauge(&self.key(name, &[]), &METADATA).set(value);
    }

    fn gauge_by(&self, name: &'static str, label: &'static str, values: &[(&'static str, usize)]) {
        for (by, value) in values {
            let key = self.key(name, &[(label, SharedString::const_str(by))]);
            self.recorder.register_gauge(&key, &METADATA).set(*value as f64);
        }
    }

    /// As Prometheus has histograms: what is up to each bound, all of it, and the sum.
    fn histogram(&self, names: [&'static str; 3], name: Option<&SharedString>, sum: &Sum) {
        let [bucket, total, count] = names;
        let mut labels: Vec<_> = name.map(|name| ("name", name.clone())).into_iter().collect();
        let of = self.key(total, &labels);
        self.recorder.register_gauge(&of, &METADATA).set(seconds(sum.nanos));
        let mut below = 0_u64;
        let bounds = BOUNDS.iter().map(|bound| format!("{}", seconds(*bound)));
        for (up_to, samples) in bounds.chain(["+Inf".into()]).zip(sum.buckets) {
            below = below.wrapping_add(samples);
            labels.push(("le", up_to.into()));
            let key = self.key(bucket, &labels);
            labels.pop();
            self.recorder.register_counter(&key, &METADATA).absolute(below);
        }
        let of = self.key(count, &labels);
        self.recorder.register_counter(&of, &METADATA).absolute(below);
    }
}

impl Shared {
    /// See [`Runtime::publish_metrics`](super::super::Runtime::publish_metrics). No lock is held while
    /// the recorder is called.
    pub(crate) fn publish(&self) -> Result<(), PublishError> {
        let health = self.health();
        let sums = self.meter.as_ref().map(|meter| (meter, self.members.meters(meter)));
        let config = self.config.metrics.as_ref();
        // Foreign code: the recorder, its handles, the user's gauges.
        let told = catch_unwind(AssertUnwindSafe(|| {
            with_recorder(|recorder| {
                let common = config.and_then(|config| config.runtime.as_ref());
                let common = common.map(|name| Label::new("runtime", Arc::clone(name)));
                let to = Writer { recorder, common };
                describe(recorder);
                write(&to, &health);
                if let Some((meter, sums)) = &sums {
                    let durations = [
                        "tenure_job_duration_seconds_bucket",
                        "tenure_job_duration_seconds_sum",
                        "tenure_job_duration_seconds_count",
                    ];
                    let others = SharedString::const_str("other");
                    let named = meter.names().iter().map(|name| Arc::clone(name).into());
                    for (name, sum) in [others].into_iter().chain(named).zip(&sums.durations) {
                        to.histogram(durations, Some(&name), sum);
                    }
                    let waits = [
                        "tenure_queue_wait_seconds_bucket",
                        "tenure_queue_wait_seconds_sum",
                        "tenure_queue_wait_seconds_count",
                    ];
                    to.histogram(waits, None, &sums.waits);
                }
                for gauge in config.iter().flat_map(|config| &config.gauges) {
                    let (label, value) = &gauge.label;
                    let key = to.key(gauge.name, &[(*label, Arc::clone(value).into())]);
                    recorder.register_gauge(&key, &METADATA).set((gauge.read)());
                }
            });
        }));
        told.map_err(|payload| PublishError(JobPanic::new(payload)))
    }
}

fn describe(recorder: &dyn Recorder) {
    for (name, kind, text) in ALL {
        let (key, text) = (KeyName::from_const_str(name), SharedString::const_str(text));
        match kind {
            Kind::Counter => recorder.describe_counter(key, Some(Unit::Count), text),
            Kind::Gauge => recorder.describe_gauge(key, None, text),
            Kind::Histogram => {
                let part = |suffix: &str| KeyName::from(format!("{name}{suffix}"));
                recorder.describe_counter(part("_bucket"), None, text.clone());
                recorder.describe_gauge(part("_sum"), None, text.clone());
                recorder.describe_counter(part("_count"), None, text);
            }
        }
    }
}

fn write(to: &Writer<'_>, health: &RuntimeHealth) {
    let stats = &health.stats;
    to.count("tenure_jobs_submitted_total", stats.submitted);
    to.count_by(
        "tenure_jobs_total",
        "outcome",
        &[("succeeded", stats.succeeded), ("dead", stats.dead), ("cancelled", stats.cancelled)],
    );
    to.count("tenure_attempts_started_total", stats.started);
    let failed = stats.failed_attempts.saturating_sub(stats.panicked + stats.timed_out);
    to.count_by(
        "tenure_attempts_total",
        "outcome",
        &[
            ("succeeded", stats.succeeded),
            ("failed", failed),
            ("panicked", stats.panicked),
            ("timed_out", stats.timed_out),
            ("snoozed", stats.snoozed),
            ("fenced", stats.fenced),
        ],
    );
    to.count("tenure_retries_total", stats.retried);
    to.count("tenure_hedges_total", stats.hedged);
    to.count("tenure_gated_total", stats.gated);
    to.count("tenure_workers_replaced_total", stats.replaced_workers);
    to.count("tenure_parks_total", stats.parks);
    to.count("tenure_steals_total", stats.steals);
    to.count("tenure_replays_total", stats.replayed);
    to.count("tenure_dead_letters_lost_total", stats.letters_lost);
    to.count("tenure_dead_letters_purged_total", stats.letters_purged);
    to.count("tenure_events_lost_total", health.events_lost);
    to.gauge("tenure_dead_letters", health.dead_letters as f64);
    let queues = &health.queues;
    to.gauge_by(
        "tenure_queue_depth",
        "queue",
        &[
            ("high", queues.high),
            ("normal", queues.normal),
            ("low", queues.low),
            ("local", queues.local),
            ("in_line", queues.in_line),
        ],
    );
    if let (Some(held), Some(capacity)) = (queues.held, queues.capacity) {
        to.gauge("tenure_jobs_held", held as f64);
        to.gauge("tenure_jobs_capacity", capacity as f64);
    }
    let count = |is: fn(WorkerStatus) -> bool| {
        health.workers.iter().filter(|worker| is(worker.status)).count()
    };
    to.gauge_by(
        "tenure_workers",
        "state",
        &[
            ("idle", count(|status| status == WorkerStatus::Idle)),
            ("running", count(|status| status == WorkerStatus::Running)),
            ("waiting", count(|status| status == WorkerStatus::Waiting)),
            ("suspect", count(|status| status == WorkerStatus::Suspect)),
            ("stuck", count(|status| matches!(status, WorkerStatus::Stuck { .. }))),
            ("leaving", count(|status| status == WorkerStatus::Leaving)),
        ],
    );
    to.gauge("tenure_driver_late_seconds", health.driver.late.as_secs_f64());
    let verdict = health.verdict();
    to.gauge("tenure_live", f64::from(u8::from(verdict.is_live())));
    to.gauge("tenure_ready", f64::from(u8::from(verdict.is_ready())));
}
