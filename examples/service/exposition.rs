//! What Prometheus reads: a recorder of the `metrics` facade, which renders its text format.
//!
//! | series | whose |
//! |---|---|
//! | `service_…` | this example's own: deliveries, attempts, breakers, the retry budget |
//! | `tenure_…` | the runtime's. With the crate's feature `metrics` it publishes all of them itself; without it, [`publish_runtime`] publishes a few from [`Runtime::stats`], by the names that it would give them |
//!
//! The recorder is handed over for the moment of a scrape, not installed for the process: two services in
//! one process (the tests) do not mix.
//!
//! [`Runtime::stats`]: tenure::Runtime::stats

use std::fmt;

use metrics::{Histogram, counter, describe_counter, describe_gauge, describe_histogram};
use metrics::{Unit, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use crate::Failure;
use crate::engine::Engine;

/// The upper bounds of the buckets, in seconds.
const BOUNDS: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// How long a delivery took, from its acceptance to its end.
const DELIVERIES: &str = "service_delivery_duration_seconds";
/// How long attempts took, late ones included.
const ATTEMPTS: &str = "service_attempt_duration_seconds";

/// The recorder, and what is measured where it happens. The rest is read at each scrape.
pub(crate) struct Exposition {
    recorder: PrometheusRecorder,
    pub(crate) deliveries: Histogram,
    pub(crate) attempts: Histogram,
}

impl Exposition {
    pub(crate) fn new() -> Result<Self, Failure> {
        let recorder = PrometheusBuilder::new().set_buckets(&BOUNDS)?.build_recorder();
        let (deliveries, attempts) = with_local_recorder(&recorder, || {
            describe();
            (histogram!(DELIVERIES), histogram!(ATTEMPTS))
        });
        Ok(Self { recorder, deliveries, attempts })
    }

    /// The page, as things are now.
    pub(crate) fn render(&self, engine: &Engine) -> String {
        with_local_recorder(&self.recorder, || {
            // Before the runtime's: where nothing is in hand, its numbers are final.
            publish_own(engine);
            publish_runtime(engine);
        });
        self.recorder.handle().render()
    }

    /// Adds up what was measured, so that it does not pile up if nobody scrapes.
    pub(crate) fn tidy(&self) {
        self.recorder.handle().run_upkeep();
    }
}

impl fmt::Debug for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposition").finish_non_exhaustive()
    }
}

fn describe() {
    describe_histogram!(DELIVERIES, Unit::Seconds, "From the acceptance of a delivery to its end.");
    describe_histogram!(ATTEMPTS, Unit::Seconds, "How long attempts took, late ones included.");
    describe_gauge!("service_deliveries_in_hand", "Deliveries that have not ended.");
    describe_gauge!("service_breakers", "Circuit breakers, one a host, by where they stand.");
    describe_counter!(
        "service_breaker_transitions_total",
        "Changes of circuit breakers, by what they became."
    );
    describe_gauge!("service_retry_budget", "Retries that could be made now.");
}

fn publish_own(engine: &Engine) {
    let stats = engine.stats();
    let ended = stats.succeeded + stats.dead + stats.cancelled;
    gauge!("service_deliveries_in_hand").set(stats.submitted.saturating_sub(ended) as f64);
    for (state, count) in engine.hosts().count() {
        gauge!("service_breakers", "state" => state).set(count as f64);
    }
    for (to, count) in engine.hosts().transitions() {
        counter!("service_breaker_transitions_total", "to" => to).absolute(count);
    }
    gauge!("service_retry_budget").set(engine.retries_left());
}

/// All that the runtime knows.
#[cfg(feature = "metrics")]
fn publish_runtime(engine: &Engine) {
    if let Err(panicked) = engine.publish_metrics() {
        eprintln!("alarm: {panicked}");
    }
}

/// The part of it that the storm's verdict reads.
#[cfg(not(feature = "metrics"))]
fn publish_runtime(engine: &Engine) {
    let stats = engine.stats();
    counter!("tenure_jobs_submitted_total").absolute(stats.submitted);
    for (outcome, count) in
        [("succeeded", stats.succeeded), ("dead", stats.dead), ("cancelled", stats.cancelled)]
    {
        counter!("tenure_jobs_total", "outcome" => outcome).absolute(count);
    }
    let failed = stats.failed_attempts.saturating_sub(stats.panicked + stats.timed_out);
    for (outcome, count) in [
        ("succeeded", stats.succeeded),
        ("failed", failed),
        ("panicked", stats.panicked),
        ("timed_out", stats.timed_out),
        ("fenced", stats.fenced),
    ] {
        counter!("tenure_attempts_total", "outcome" => outcome).absolute(count);
    }
    counter!("tenure_retries_total").absolute(stats.retried);
    counter!("tenure_gated_total").absolute(stats.gated);
    counter!("tenure_workers_replaced_total").absolute(stats.replaced_workers);
    gauge!("tenure_dead_letters").set(engine.health().dead_letters as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_the_last_one_has_all() {
        let exposition = Exposition::new().unwrap();
        for seconds in [0.0, 0.001, 0.002, 0.003, 100.0, 1e9] {
            exposition.attempts.record(seconds);
        }
        exposition.tidy();
        let page = exposition.recorder.handle().render();
        for line in [
            format!("# TYPE {ATTEMPTS} histogram"),
            format!("{ATTEMPTS}_bucket{{le=\"0.001\"}} 2"),
            format!("{ATTEMPTS}_bucket{{le=\"0.002\"}} 3"),
            format!("{ATTEMPTS}_bucket{{le=\"30\"}} 4"),
            format!("{ATTEMPTS}_bucket{{le=\"+Inf\"}} 6"),
            format!("{ATTEMPTS}_count 6"),
        ] {
            assert!(page.lines().any(|l| l == line), "{line:?} is not in\n{page}");
        }
    }
}
