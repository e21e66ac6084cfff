//! What a runtime tells of itself: metrics by a recorder, spans and events by a subscriber.
//!
//! `cargo test --features metrics,tracing --test observability`

#![cfg(all(feature = "metrics", feature = "tracing"))]

mod runtime_support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit,
};
use tenure::clock::ManualClock;
use tenure::retry::RetryPolicy;
use tenure::runtime::{Metrics, Runtime};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use runtime_support::{LONG, SECOND, advance_until, at_once, until};

// --- a recorder that keeps what it is told --------------------------------------------------------

#[derive(Default)]
struct Value(AtomicU64);

impl CounterFn for Value {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, SeqCst);
    }

    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, SeqCst);
    }
}

impl GaugeFn for Value {
    fn increment(&self, _: f64) {
        unreachable!("gauges are set")
    }

    fn decrement(&self, _: f64) {
        unreachable!("gauges are set")
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), SeqCst);
    }
}

#[derive(Default)]
struct Board {
    counters: Mutex<BTreeMap<String, Arc<Value>>>,
    gauges: Mutex<BTreeMap<String, Arc<Value>>>,
    described: Mutex<BTreeSet<String>>,
    fails: AtomicBool,
}

fn series(key: &Key) -> String {
    let labels: Vec<_> = key.labels().map(|l| format!("{}={:?}", l.key(), l.value())).collect();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

impl Board {
    fn counter(&self, series: &str) -> u64 {
        self.counters.lock().unwrap().get(series).map_or(0, |value| value.0.load(SeqCst))
    }

    fn gauge(&self, series: &str) -> f64 {
        let gauges = self.gauges.lock().unwrap();
        f64::from_bits(gauges.get(series).map_or(0, |value| value.0.load(SeqCst)))
    }

    /// All series there are.
    fn series(&self) -> BTreeSet<String> {
        let counters = self.counters.lock().unwrap();
        let gauges = self.gauges.lock().unwrap();
        counters.keys().chain(gauges.keys()).cloned().collect()
    }

    fn publish(&self, rt: &Runtime) {
        metrics::with_local_recorder(self, || rt.publish_metrics()).unwrap();
    }
}

impl Recorder for Board {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(key.as_str().to_owned());
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(key.as_str().to_owned());
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        unreachable!("histograms are summed up")
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        assert!(!self.fails.load(SeqCst), "the recorder fails");
        let mut counters = self.counters.lock().unwrap();
        Counter::from_arc(Arc::clone(counters.entry(series(key)).or_default()))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let mut gauges = self.gauges.lock().unwrap();
        Gauge::from_arc(Arc::clone(gauges.entry(series(key)).or_default()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        unreachable!("histograms are summed up")
    }
}

#[test]
fn counters_say_what_the_stats_say() {
    let rt = Runtime::builder().workers(2).retry(at_once(3)).replayable(true).build().unwrap();
    let board = Board::default();
    for i in 0..10 {
        rt.submit(move |_| Ok::<_, String>(i)).unwrap().get().unwrap();
    }
    assert!(rt.submit(|_| Err::<(), _>("no")).unwrap().get().is_err());
    let panics =
        rt.submit(|ctx| if ctx.attempt() < 3 { panic!("no") } else { Ok::<_, String>(()) });
    panics.unwrap().get().unwrap();
    let late = rt.job(|_| Ok::<_, String>(())).delay(Duration::MAX).submit().unwrap();
    assert!(late.cancel());
    until("all is counted", || {
        board.publish(&rt);
        board.counter("tenure_jobs_total{outcome=\"cancelled\"}") == 1
    });
    let is = |series: &str| board.counter(series);
    assert_eq!(is("tenure_jobs_submitted_total{}"), 13);
    assert_eq!(is("tenure_jobs_total{outcome=\"succeeded\"}"), 11);
    assert_eq!(is("tenure_jobs_total{outcome=\"dead\"}"), 1);
    assert_eq!(is("tenure_attempts_started_total{}"), 16);
    assert_eq!(is("tenure_attempts_total{outcome=\"succeeded\"}"), 11);
    assert_eq!(is("tenure_attempts_total{outcome=\"failed\"}"), 3);
    assert_eq!(is("tenure_attempts_total{outcome=\"panicked\"}"), 2);
    assert_eq!(is("tenure_attempts_total{outcome=\"timed_out\"}"), 0);
    assert_eq!(is("tenure_retries_total{}"), 4);
    assert_eq!(board.gauge("tenure_dead_letters{}"), 1.0);
    assert_eq!((board.gauge("tenure_live{}"), board.gauge("tenure_ready{}")), (1.0, 1.0));
    // Not asked for: not measured.
    assert!(board.series().iter().all(|series| !series.contains("seconds_bucket")));
    let described = board.described.lock().unwrap();
    for series in board.series() {
        let name = series.split('{').next().unwrap();
        assert!(described.contains(name), "{name} is described");
    }
}

#[test]
fn gauges_say_what_is() {
    let clock = ManualClock::new();
    let rt = Runtime::builder()
        .workers(1)
        .clock(clock.clone())
        .capacity(10)
        .attempt_timeout(SECOND)
        .retry(at_once(1))
        .build()
        .unwrap();
    let board = Board::default();
    let _events = rt.events_with_capacity(1);
    let (open, wait) = mpsc::channel::<()>();
    let stuck = rt.submit_once(move |_| wait.recv()).unwrap();
    until("it runs", || rt.stats().started == 1);
    advance_until(&clock, SECOND, "given up", || rt.stats().replaced_workers == 1);
    assert!(stuck.get().is_err());
    rt.pause();
    let _jobs: Vec<_> = (0..3).map(|_| rt.submit(|_| Ok::<_, String>(())).unwrap()).collect();
    until("its replacement is idle", || {
        board.publish(&rt);
        board.gauge("tenure_workers{state=\"idle\"}") == 1.0
    });
    assert_eq!(board.gauge("tenure_workers{state=\"stuck\"}"), 1.0);
    assert_eq!(board.gauge("tenure_queue_depth{queue=\"normal\"}"), 3.0);
    assert_eq!(board.gauge("tenure_jobs_held{}"), 3.0);
    assert_eq!(board.gauge("tenure_jobs_capacity{}"), 10.0);
    assert_eq!(board.gauge("tenure_ready{}"), 0.0);
    assert_eq!(board.counter("tenure_workers_replaced_total{}"), 1);
    assert_eq!(board.counter("tenure_attempts_total{outcome=\"timed_out\"}"), 1);
    assert!(board.counter("tenure_events_lost_total{}") > 0, "one event fits");
    open.send(()).unwrap();
}

fn duration(part: &str, labels: &str) -> String {
    format!("tenure_job_duration_seconds_{part}{{{labels}}}")
}

#[test]
fn durations_are_measured_by_name_and_waits_by_a_sample() {
    let clock = ManualClock::new();
    let metrics = Metrics::new().job_name("mail").runtime("test");
    let rt = Runtime::builder().workers(1).clock(clock.clone()).metrics(metrics).build().unwrap();
    let board = Board::default();
    let labels = |name: &str| format!("runtime=\"test\",name=\"{name}\"");
    // Each takes what the clock is moved by inside.
    for (name, millis) in [("mail", 3), ("mail", 30), ("rare", 300)] {
        let clock = clock.clone();
        let job = rt.job(move |_| {
            clock.advance(Duration::from_millis(millis));
            Ok::<_, String>(())
        });
        job.name(name).submit().unwrap().get().unwrap();
    }
    let all = |part: &str, name: &str| board.counter(&duration(part, &labels(name)));
    until("all are measured", || {
        board.publish(&rt);
        all("count", "mail") == 2 && all("count", "other") == 1
    });
    let bucket = |name: &str, le: &str| {
        board.counter(&duration("bucket", &format!("{},le={le:?}", labels(name))))
    };
    assert_eq!((bucket("mail", "0.0025"), bucket("mail", "0.005")), (0, 1));
    assert_eq!((bucket("mail", "0.025"), bucket("mail", "0.05")), (1, 2));
    assert_eq!(
        (bucket("mail", "+Inf"), bucket("other", "0.25"), bucket("other", "0.5")),
        (2, 0, 1)
    );
    let sum = board.gauge(&duration("sum", &labels("mail")));
    assert!((sum - 0.033).abs() < 1e-9, "{sum}");

    // Waits: jobs that wait for a second while the pool is paused.
    rt.pause();
    let jobs: Vec<_> = (0..400).map(|_| rt.submit(|_| Ok::<_, String>(())).unwrap()).collect();
    clock.advance(SECOND);
    rt.resume();
    for job in jobs {
        job.get().unwrap();
    }
    let wait = |le: &str| {
        let labels = format!("runtime=\"test\",le={le:?}");
        board.counter(&format!("tenure_queue_wait_seconds_bucket{{{labels}}}"))
    };
    until("the waits are measured", || {
        board.publish(&rt);
        wait("+Inf") >= 200
    });
    let long = wait("1") - wait("0.5");
    assert!((200..=600).contains(&long) && long % 8 == 0, "{long} of 400");
}

/// Label cardinality: whatever users do, the set of series stays as it is.
#[test]
fn labels_stay_bounded_whatever_jobs_are_called() {
    let mut metrics = Metrics::new();
    for i in 0..100 {
        metrics = metrics.job_name(format!("allowed {i}"));
        metrics = metrics.gauge("extra", "which", format!("{i}"), move || f64::from(i));
    }
    let rt =
        Runtime::builder().workers(2).retry(RetryPolicy::never()).metrics(metrics).build().unwrap();
    let board = Board::default();
    board.publish(&rt);
    let before = board.series();
    let names: BTreeSet<_> = before.iter().filter(|s| s.contains("_count{name=")).collect();
    assert_eq!(names.len(), 33, "32 and other");
    assert_eq!(before.iter().filter(|s| s.starts_with("extra{")).count(), 32);
    assert!(before.len() < 1_200, "{}", before.len());
    for i in 0..500_u64 {
        let job = rt.job(move |_| if i % 3 == 0 { Err(format!("error {i}")) } else { Ok(i) });
        let job = job.name(format!("name {i}")).key(format!("key {i}")).submit().unwrap();
        assert_eq!(job.get().is_err(), i % 3 == 0);
    }
    until("all are under other", || {
        board.publish(&rt);
        board.counter(&duration("count", "name=\"other\"")) == 500
    });
    assert_eq!(board.series(), before, "not one series more");
    assert!(before.iter().all(|series| !series.contains("key") && !series.contains("error")));
}

#[test]
fn a_worker_that_ends_takes_nothing_with_it() {
    let clock = ManualClock::new();
    let rt = Runtime::builder()
        .workers(1)
        .clock(clock.clone())
        .attempt_timeout(SECOND)
        .retry(at_once(1))
        .metrics(Metrics::new())
        .build()
        .unwrap();
    let board = Board::default();
    for _ in 0..5 {
        rt.submit(|_| Ok::<_, String>(())).unwrap().get().unwrap();
    }
    let (open, wait) = mpsc::channel::<()>();
    let stuck = rt.submit_once(move |_| wait.recv()).unwrap();
    until("it runs", || rt.stats().started == 6);
    advance_until(&clock, SECOND, "given up", || rt.stats().replaced_workers == 1);
    assert!(stuck.get().is_err());
    open.send(()).unwrap();
    until("the late one has left its samples, too", || {
        board.publish(&rt);
        board.counter(&duration("count", "name=\"other\"")) == 6 && rt.stats().stuck_workers == 0
    });
    let _ = rt.shutdown(LONG);
    until("and at the end", || rt.health().workers.is_empty());
    board.publish(&rt);
    assert_eq!(board.counter(&duration("count", "name=\"other\"")), 6);
}

#[test]
fn a_recorder_that_panics_and_a_gauge_that_does_go_no_further() {
    let broken = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&broken);
    let metrics = Metrics::new().gauge("extra", "of", "x", move || {
        assert!(!flag.load(SeqCst), "no reading");
        1.0
    });
    let rt = Runtime::builder().workers(1).metrics(metrics).build().unwrap();
    let board = Board::default();
    let failed = metrics::with_local_recorder(&board, || rt.publish_metrics()).unwrap_err();
    assert_eq!(failed.to_string(), "the recorder panicked: no reading");
    broken.store(false, SeqCst);
    board.fails.store(true, SeqCst);
    let failed = metrics::with_local_recorder(&board, || rt.publish_metrics()).unwrap_err();
    assert_eq!(failed.to_string(), "the recorder panicked: the recorder fails");
    board.fails.store(false, SeqCst);
    board.publish(&rt);
    assert_eq!(board.gauge("extra{of=\"x\"}"), 1.0);
    // With no recorder at all it goes nowhere.
    rt.publish_metrics().unwrap();
}

#[test]
fn prometheus_reads_it_as_a_histogram() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let page = recorder.handle();
    let rt =
        Runtime::builder().workers(1).metrics(Metrics::new().job_name("mail")).build().unwrap();
    rt.job(|_| Ok::<_, String>(())).name("mail").submit().unwrap().get().unwrap();
    until("the page says so", || {
        metrics::with_local_recorder(&recorder, || rt.publish_metrics()).unwrap();
        let text = page.render();
        let has = |line: &str| text.lines().any(|l| l == line);
        has("tenure_jobs_total{outcome=\"succeeded\"} 1")
            && has("tenure_job_duration_seconds_bucket{name=\"mail\",le=\"+Inf\"} 1")
            && has("tenure_job_duration_seconds_count{name=\"mail\"} 1")
            && has("tenure_workers{state=\"idle\"} 1")
    });
}

// --- a subscriber that keeps what it is told ------------------------------------------------------

#[derive(Clone, Debug, Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Fields {
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

/// A span of an attempt.
#[derive(Clone, Debug, Default)]
struct Told {
    parent: Option<String>,
    fields: Fields,
    entered: usize,
    exited: usize,
    closed: bool,
}

/// What all tests of this program are told; they tell theirs by the names of their jobs.
#[derive(Default)]
struct Log {
    attempts: Mutex<BTreeMap<u64, Told>>,
    events: Mutex<Vec<Fields>>,
}

struct Keeper(Arc<Log>);

/// What a subscriber that fails at this point is called.
fn fails_at(name: &str, point: &str) {
    assert!(!(name.starts_with("bomb") && name.ends_with(point)), "the subscriber fails");
}

impl<S> Layer<S> for Keeper
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        if attributes.metadata().target() != "tenure::runtime" {
            return;
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let parent = ctx.span(id).and_then(|span| Some(span.parent()?.name().to_owned()));
        let name = fields.get("name").to_owned();
        let told = Told { parent, fields, ..Told::default() };
        self.0.attempts.lock().unwrap().insert(id.into_u64(), told);
        fails_at(&name, "new");
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some(told) = self.0.attempts.lock().unwrap().get_mut(&id.into_u64()) {
            values.record(&mut told.fields);
        }
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        let mut attempts = self.0.attempts.lock().unwrap();
        let Some(told) = attempts.get_mut(&id.into_u64()) else { return };
        told.entered += 1;
        let name = told.fields.get("name").to_owned();
        drop(attempts);
        fails_at(&name, "enter");
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        let mut attempts = self.0.attempts.lock().unwrap();
        let Some(told) = attempts.get_mut(&id.into_u64()) else { return };
        told.exited += 1;
        let name = told.fields.get("name").to_owned();
        drop(attempts);
        fails_at(&name, "exit");
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        // The registry uses numbers again: this one keeps its own.
        let mut attempts = self.0.attempts.lock().unwrap();
        let Some(mut told) = attempts.remove(&id.into_u64()) else { return };
        told.closed = true;
        let at =
            (1 << 63) | attempts.len() as u64 | (attempts.range(1 << 63..).count() as u64) << 32;
        attempts.insert(at, told);
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != "tenure::runtime" {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let name = fields.get("name").to_owned();
        fields.0.insert("level".into(), event.metadata().level().to_string());
        self.0.events.lock().unwrap().push(fields);
        fails_at(&name, "event");
    }
}

fn log() -> &'static Log {
    static LOG: OnceLock<Arc<Log>> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Arc::new(Log::default());
        let subscriber = tracing_subscriber::registry().with(Keeper(Arc::clone(&log)));
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    })
}

impl Log {
    /// The spans of the attempts of the job that is called this, all closed, in their order.
    fn attempts_of(&self, name: &str, count: usize) -> Vec<Told> {
        let all = || -> Vec<Told> {
            let attempts = self.attempts.lock().unwrap();
            let named = attempts.values().filter(|told| told.fields.get("name") == name);
            let mut named: Vec<_> = named.filter(|told| told.closed).cloned().collect();
            named.sort_by_key(|told| told.fields.get("epoch").parse::<u32>().unwrap());
            named
        };
        until(name, || all().len() == count);
        all()
    }

    fn event(&self, message: &str, field: &str, value: &str) -> Fields {
        let find = || {
            let events = self.events.lock().unwrap();
            let fits = |e: &&Fields| e.get("message") == message && e.get(field) == value;
            events.iter().find(fits).cloned()
        };
        until(message, || find().is_some());
        find().unwrap()
    }
}

#[test]
fn each_attempt_has_a_span_below_the_one_that_submitted() {
    let log = log();
    let rt = Runtime::builder().workers(1).retry(at_once(3)).build().unwrap();
    let request = tracing::info_span!(target: "observability", "request");
    let job = request.in_scope(|| {
        let job = rt.job(|ctx| if ctx.attempt() < 3 { Err("no") } else { Ok(ctx.attempt()) });
        job.name("traced").submit().unwrap()
    });
    let id = job.id().get().to_string();
    assert_eq!(job.get().unwrap(), 3);
    let attempts = log.attempts_of("traced", 3);
    for (i, told) in attempts.iter().enumerate() {
        assert_eq!(told.parent.as_deref(), Some("request"));
        assert_eq!((told.entered, told.exited), (1, 1));
        assert_eq!(told.fields.get("job"), id);
        assert_eq!(told.fields.get("attempt"), (i + 1).to_string());
        assert_eq!(told.fields.get("outcome"), if i < 2 { "failed" } else { "done" });
    }
    // Outside of any span there is no parent, whatever the worker is in.
    let inner = rt.clone();
    rt.job(move |_| inner.job(|_| Ok::<_, String>(())).name("below").submit().unwrap().get())
        .name("top")
        .submit()
        .unwrap()
        .get()
        .unwrap();
    assert_eq!(log.attempts_of("top", 1)[0].parent, None);
    assert_eq!(log.attempts_of("below", 1)[0].parent.as_deref(), Some("attempt"));
    // A task has a span a poll; many jobs have their submitter's, too.
    let many = request.in_scope(|| rt.submit_many((0..2).map(|i| move |_: &_| Ok::<_, String>(i))));
    for job in many.unwrap() {
        let id = job.id().get().to_string();
        job.get().unwrap();
        until("its span is closed", || {
            let attempts = log.attempts.lock().unwrap();
            attempts.values().any(|told| {
                told.fields.get("job") == id
                    && told.parent.as_deref() == Some("request")
                    && told.closed
                    && told.fields.get("name").is_empty()
            })
        });
    }
}

#[test]
fn what_goes_wrong_is_an_event() {
    let log = log();
    let clock = ManualClock::new();
    let rt = Runtime::builder()
        .workers(1)
        .clock(clock.clone())
        .attempt_timeout(SECOND)
        .retry(at_once(2))
        .build()
        .unwrap();
    let job = rt.job(|_| Err::<(), _>("no way")).name("dies in the log").submit().unwrap();
    let id = job.id().get().to_string();
    assert!(job.get().is_err());
    let dead = log.event("job is dead", "name", "dies in the log");
    assert_eq!((dead.get("job"), dead.get("attempts"), dead.get("level")), (&*id, "2", "ERROR"));
    assert_eq!(dead.get("cause"), "no way");
    assert_eq!(log.event("retry scheduled", "job", &id).get("level"), "INFO");
    let (open, wait) = mpsc::channel::<()>();
    let stuck = rt.job_once(move |_| wait.recv()).name("stuck in the log").submit().unwrap();
    let id = stuck.id().get().to_string();
    until("it runs", || rt.stats().started == 3);
    advance_until(&clock, SECOND, "given up", || rt.stats().replaced_workers == 1);
    assert!(stuck.get().is_err());
    assert_eq!(log.event("worker is stuck", "job", &id).get("level"), "ERROR");
    open.send(()).unwrap();
    log.event("late attempt fenced", "job", &id);
    assert_eq!(log.attempts_of("stuck in the log", 1)[0].fields.get("outcome"), "late");
}

#[test]
fn a_subscriber_that_panics_disturbs_no_job() {
    let _ = log();
    let rt = Runtime::builder().workers(1).retry(at_once(1)).build().unwrap();
    let events = Arc::new(AtomicUsize::new(0));
    for point in ["new", "enter", "exit"] {
        let job = rt.job(|_| Ok::<_, String>(7)).name(format!("bomb {point}"));
        assert_eq!(job.submit().unwrap().get().unwrap(), 7);
        events.fetch_add(1, SeqCst);
    }
    let job = rt.job(|_| Err::<(), _>("no")).name("bomb event").submit().unwrap();
    assert!(job.get().is_err());
    assert_eq!(rt.submit(|_| Ok::<_, String>(1)).unwrap().get().unwrap(), 1);
    assert_eq!(rt.stats().workers, 1, "the worker lives");
}
