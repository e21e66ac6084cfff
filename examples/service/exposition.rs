//! What Prometheus reads: its text format, made by hand from the runtime's counters.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::runtime::Stats;

use crate::engine::Engine;

/// The upper bounds of the buckets, in milliseconds.
const BOUNDS: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000];

/// How long things took.
#[derive(Debug)]
pub(crate) struct Histogram {
    /// One more than there are bounds. Not cumulative: one write each.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BOUNDS.len() + 1], nanoseconds: 0.into() }
    }

    /// One more, which took so long. Relaxed: counts, read one after another.
    pub(crate) fn observe(&self, took: Duration) {
        let fits = |bound: &u64| took <= Duration::from_millis(*bound);
        let at = BOUNDS.iter().position(fits).unwrap_or(BOUNDS.len());
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn render(&self, page: &mut Page, name: &str, help: &str) {
        page.head(name, "histogram", help);
        let mut sum = 0;
        for (at, bucket) in self.buckets.iter().enumerate() {
            sum += bucket.load(Ordering::Relaxed);
            match BOUNDS.get(at) {
                Some(bound) => {
                    let seconds = *bound as f64 / 1e3;
                    page.line(&format!("{name}_bucket{{le=\"{seconds}\"}}"), sum as f64);
                }
                None => page.line(&format!("{name}_bucket{{le=\"+Inf\"}}"), sum as f64),
            }
        }
        let seconds = self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
        page.line(&format!("{name}_sum"), seconds);
        // The same sum, so that the page agrees with itself.
        page.line(&format!("{name}_count"), sum as f64);
    }
}

/// Jobs that were taken in and have not ended.
fn in_hand(stats: &Stats) -> u64 {
    stats.submitted.saturating_sub(stats.succeeded + stats.dead + stats.cancelled)
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, series: &str, value: f64) {
        let _ = writeln!(self.0, "{series} {value}");
    }

    /// One series, or one for each value of `label`.
    fn family(&mut self, name: &str, kind: &str, help: &str, label: &str, rows: &[(&str, u64)]) {
        self.head(name, kind, help);
        for (value, count) in rows {
            let series = match *value {
                "" => name.to_owned(),
                value => format!("{name}{{{label}=\"{value}\"}}"),
            };
            self.line(&series, *count as f64);
        }
    }
}

/// The whole page.
pub(crate) fn render(engine: &Engine) -> String {
    let stats = engine.stats();
    let mut page = Page::default();
    page.family(
        "tenure_jobs_total",
        "counter",
        "Jobs that have ended.",
        "outcome",
        &[("succeeded", stats.succeeded), ("dead", stats.dead), ("cancelled", stats.cancelled)],
    );
    page.family(
        "tenure_jobs_submitted_total",
        "counter",
        "Jobs taken in.",
        "",
        &[("", stats.submitted)],
    );
    page.family("tenure_attempts_total", "counter", "Attempts begun.", "", &[("", stats.started)]);
    let errors = stats.failed_attempts.saturating_sub(stats.panicked + stats.timed_out);
    page.family(
        "tenure_failed_attempts_total",
        "counter",
        "Attempts that came to nothing.",
        "cause",
        &[("error", errors), ("panic", stats.panicked), ("timeout", stats.timed_out)],
    );
    page.family(
        "tenure_retries_total",
        "counter",
        "Retries scheduled.",
        "",
        &[("", stats.retried)],
    );
    page.family(
        "tenure_fenced_total",
        "counter",
        "Attempts that ended after they had lost their lease.",
        "",
        &[("", stats.fenced)],
    );
    page.family(
        "tenure_queue_depth",
        "gauge",
        "Jobs that have not ended.",
        "",
        &[("", in_hand(&stats))],
    );
    page.family(
        "tenure_workers",
        "gauge",
        "Workers, by whether they are in the pool.",
        "state",
        &[("pool", stats.workers as u64), ("stuck", stats.stuck_workers as u64)],
    );
    page.family(
        "tenure_workers_replaced_total",
        "counter",
        "Workers taken out of the pool because they were stuck.",
        "",
        &[("", stats.replaced_workers)],
    );
    page.family(
        "tenure_dead_letters",
        "gauge",
        "Dead letters that are kept.",
        "",
        &[("", engine.count_dead() as u64)],
    );
    page.family(
        "tenure_breakers",
        "gauge",
        "Circuit breakers, one a host, by where they stand.",
        "state",
        &engine.hosts().count(),
    );
    page.family(
        "tenure_breaker_transitions_total",
        "counter",
        "Changes of circuit breakers, by what they became.",
        "to",
        &engine.hosts().transitions(),
    );
    engine.books().took.render(
        &mut page,
        "tenure_job_duration_seconds",
        "From the acceptance of a job to its end.",
    );
    engine.courier().took.render(
        &mut page,
        "tenure_attempt_duration_seconds",
        "How long attempts took, late ones included.",
    );
    page.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_the_last_one_has_all() {
        let histogram = Histogram::new();
        for milliseconds in [0, 1, 2, 3, 100_000] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        histogram.observe(Duration::MAX);
        let mut page = Page::default();
        histogram.render(&mut page, "x", "y");
        for line in [
            "# TYPE x histogram",
            "x_bucket{le=\"0.001\"} 2",
            "x_bucket{le=\"0.002\"} 3",
            "x_bucket{le=\"30\"} 4",
            "x_bucket{le=\"+Inf\"} 6",
            "x_count 6",
        ] {
            assert!(page.0.lines().any(|l| l == line), "{line:?} is not in\n{}", page.0);
        }
    }
}
