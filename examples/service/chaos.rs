//! A storm: the service and a receiver that fails, hangs and goes down, and what came of it.
//!
//! The service is spoken to over HTTP only, as its clients would; the receiver's own books say what
//! was really taken.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Deserialize;
use serde_json::{Value, json};
use ureq::http::{HeaderMap, StatusCode};

use crate::Failure;
use crate::delivery::{End, Request};
use crate::options::{Chaos, Receive, Serve};
use crate::receiver::Receiver;
use crate::server::Server;
use crate::verdict::Verdict;

/// Threads that hand deliveries in. A subscriber's come from one of them, so that they have an order.
const POSTERS: u32 = 4;
/// How long one of them waits when the service is full: less than it is asked to.
const IMPATIENCE: Duration = Duration::from_millis(20);
const GLANCE: Duration = Duration::from_millis(10);
/// How long it may take on a slow machine until a breaker opens.
const NOTICES: Duration = Duration::from_secs(10);

const ATTEMPTS: &str = "service_attempt_duration_seconds_count";
const OPENED: &str = "service_breaker_transitions_total{to=\"open\"}";
const CLOSED: &str = "service_breaker_transitions_total{to=\"closed\"}";

pub(crate) fn run(options: &Chaos) -> Result<ExitCode, Failure> {
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let receiver = Receiver::start(&Receive {
        listen: anywhere,
        fail: options.fail,
        hang: options.hang,
        // So that a late attempt comes back while its successors are under way.
        hang_for: options.attempt_timeout.saturating_mul(2),
        down_after: None,
        down_for: options.down_for,
        seed: options.seed,
    })?;
    let server = Server::start(&Serve {
        listen: anywhere,
        workers: options.workers,
        capacity: 2_000,
        per_subscriber: 1_000,
        attempts: 12,
        attempt_timeout: options.attempt_timeout,
        backoff: Duration::from_millis(10),
        max_backoff: Duration::from_millis(500),
        retry_ratio: 1.0,
        retry_burst: 1_000,
        deadline: options.limit,
        breaker_open: Duration::from_millis(200),
        keep: options.deliveries,
        dead_letters: options.deliveries,
        grace: Duration::from_secs(10),
    })?;
    println!("service http://{}, receiver http://{}", server.address(), receiver.address());
    let client = Client::new(&server, options.limit);
    let storm = Storm { options, receiver: &receiver, client: &client, refused: AtomicU64::new(0) };
    let mut verdict = Verdict::default();

    let began = Instant::now();
    let outage = storm.blow()?;
    let took = began.elapsed();
    storm.judge(&mut verdict, outage, took)?;
    storm.replay(&mut verdict)?;

    let began = Instant::now();
    let report = server.stop();
    verdict.seconds("stop", began.elapsed());
    verdict.claim("the stop left nothing behind", report.is_clean());
    println!("{verdict}\nthe receiver's own counts:\n{}", receiver.report());
    Ok(if verdict.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the service says of a delivery.
#[derive(Deserialize)]
struct Told {
    state: String,
    attempts: u64,
    latency_ms: Option<f64>,
    history: Vec<ToldAttempt>,
}

#[derive(Deserialize)]
struct ToldAttempt {
    token: String,
}

/// How it went while the receiver was down.
struct Outage {
    took: Duration,
    /// Whether its breaker opened.
    noticed: bool,
    attempts: f64,
}

/// Tells the other threads that it is over. An error can be sent as text.
fn or_fail<T>(failed: &AtomicBool, result: Result<T, Failure>) -> Result<T, String> {
    result.map_err(|failure| {
        failed.store(true, Ordering::Relaxed);
        failure.to_string()
    })
}

struct Storm<'a> {
    options: &'a Chaos,
    receiver: &'a Receiver,
    client: &'a Client,
    /// Requests that the service had no room for.
    refused: AtomicU64,
}

impl Storm<'_> {
    fn id(n: u32) -> String {
        format!("delivery-{n:07}")
    }

    /// Hands everything in, takes the receiver down meanwhile, and waits for the end.
    fn blow(&self) -> Result<Outage, Failure> {
        let failed = AtomicBool::new(false);
        let failed = &failed;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..POSTERS)
                .map(|poster| scope.spawn(move || or_fail(failed, self.hand_in(poster))))
                .collect();
            let outage = scope.spawn(|| or_fail(failed, self.outage(failed)));
            for thread in threads {
                thread.join().map_err(|_| "a poster panicked")??;
            }
            let outage = outage.join().map_err(|_| "the outage panicked")??;
            self.client.wait_for_the_end()?;
            Ok(outage)
        })
    }

    fn hand_in(&self, poster: u32) -> Result<(), Failure> {
        let url = format!("http://{}/hook", self.receiver.address());
        for n in 0..self.options.deliveries {
            let subscriber = n % self.options.subscribers;
            if subscriber % POSTERS != poster {
                continue;
            }
            let poison = n % self.options.poison_every == self.options.poison_every / 2;
            let request = Request {
                url: url.clone(),
                subscriber: format!("subscriber-{subscriber}"),
                body: json!({ "number": n, "poison": poison }),
                id: Some(Self::id(n)),
                within_ms: None,
            };
            let request = serde_json::to_value(&request)?;
            while self.client.post("/deliveries", Some(&request))? != StatusCode::ACCEPTED {
                self.refused.fetch_add(1, Ordering::Relaxed);
                self.client.glance(IMPATIENCE)?;
            }
        }
        Ok(())
    }

    /// The receiver goes down when it has taken a third: for as long as the options say, and on a
    /// machine that is too slow for that until its breaker has noticed.
    fn outage(&self, failed: &AtomicBool) -> Result<Outage, Failure> {
        let third = u64::from(self.options.deliveries / 3);
        while self.receiver.report().taken < third {
            if failed.load(Ordering::Relaxed) {
                return Err("given up".into());
            }
            self.client.glance(GLANCE)?;
        }
        let before = self.client.metrics()?;
        let began = Instant::now();
        self.receiver.down();
        thread::sleep(self.options.down_for);
        let until = Instant::now() + NOTICES;
        let noticed = loop {
            if self.client.metrics()?.get(OPENED) > before.get(OPENED) {
                break true;
            }
            if Instant::now() >= until {
                break false;
            }
            self.client.glance(GLANCE)?;
        };
        let took = began.elapsed();
        let attempts = self.client.metrics()?.get(ATTEMPTS) - before.get(ATTEMPTS);
        self.receiver.up()?;
        Ok(Outage { took, noticed, attempts })
    }

    /// Each delivery is looked up, and compared with what the receiver has.
    fn judge(&self, verdict: &mut Verdict, outage: Outage, took: Duration) -> Result<(), Failure> {
        let taken = self.receiver.taken();
        let tokens: HashMap<&str, String> =
            taken.iter().flatten().map(|(id, token)| (id.as_str(), token.to_string())).collect();
        let mut latency = Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3)?;
        let (mut delivered, mut dead, mut unended, mut untaken, mut late) = (0u64, 0u64, 0, 0, 0);
        let mut most = 0;
        for n in 0..self.options.deliveries {
            let id = Self::id(n);
            let told: Told = self.client.get(&format!("/deliveries/{id}"))?;
            most = most.max(told.attempts);
            match told.state.as_str() {
                "delivered" => {
                    delivered += 1;
                    latency.saturating_record((told.latency_ms.unwrap_or_default() * 1e3) as u64);
                    match tokens.get(id.as_str()) {
                        None => untaken += 1,
                        Some(token) => {
                            let last = told.history.last().map(|attempt| &attempt.token);
                            late += u64::from(last != Some(token));
                        }
                    }
                }
                "dead" => dead += 1,
                _ => unended += 1,
            }
        }
        let in_order = taken.iter().all(|order| order.is_sorted_by(|a, b| a.0 < b.0));
        let report = self.receiver.report();
        let metrics = self.client.metrics()?;

        verdict.row("deliveries", self.options.deliveries);
        verdict.seconds("from the first request to the last end", took);
        let rate = f64::from(self.options.deliveries) / took.as_secs_f64();
        verdict.row("deliveries per second", format_args!("{rate:.0}"));
        verdict.row(
            "latency p50",
            format_args!("{:.1} ms", latency.value_at_quantile(0.5) as f64 / 1e3),
        );
        verdict.row(
            "latency p99",
            format_args!("{:.1} ms", latency.value_at_quantile(0.99) as f64 / 1e3),
        );
        verdict.row("latency longest", format_args!("{:.1} ms", latency.max() as f64 / 1e3));
        verdict.row("requests refused for want of room", self.refused.load(Ordering::Relaxed));
        verdict.seconds("the receiver was down for", outage.took);
        verdict.row("attempts made meanwhile", outage.attempts);
        verdict.row("the breaker opened, times", metrics.get(OPENED));
        verdict.row("the breaker closed, times", metrics.get(CLOSED));
        verdict.row("attempts", metrics.get(ATTEMPTS));
        verdict.row("attempts, most for one delivery", most);
        verdict.row("retries", metrics.get("tenure_retries_total"));
        verdict.row("timeouts", metrics.get("tenure_attempts_total{outcome=\"timed_out\"}"));
        verdict.row("workers replaced", metrics.get("tenure_workers_replaced_total"));
        verdict.row(
            "late attempts not heard",
            metrics.get("tenure_attempts_total{outcome=\"fenced\"}"),
        );
        verdict.row("late attempts kept out by the receiver", report.stale_refused);
        verdict.row("taken from an attempt before the last one", late);
        verdict.row("duplicates noticed by the receiver", report.duplicates);
        verdict.row("retries that could still be made", metrics.get("service_retry_budget"));
        verdict.row("delivered", delivered);
        verdict.row("dead letters", dead);

        verdict.claim("every delivery was delivered or is a dead letter", unended == 0);
        verdict.claim("what counts as delivered was taken", untaken == 0);
        verdict.claim("nothing was taken with a stale token", report.stale_taken == 0);
        verdict.claim("the breaker opened while the receiver was down", outage.noticed);
        verdict.claim("the breaker closed again", metrics.get(CLOSED) >= 1.0);
        verdict.claim("each subscriber got its deliveries in order", in_order);
        let counted = [
            metrics.get("tenure_jobs_total{outcome=\"succeeded\"}"),
            metrics.get("tenure_jobs_total{outcome=\"dead\"}"),
        ];
        verdict.claim("the metrics say the same", counted == [delivered as f64, dead as f64]);
        Ok(())
    }

    /// The receiver is mended; the dead letters are delivered after all.
    fn replay(&self, verdict: &mut Verdict) -> Result<(), Failure> {
        self.receiver.mend();
        let mut replayed = 0;
        // It still fails and hangs: one may die again, and again.
        for _ in 0..10 {
            let letters: Value = self.client.get("/dead-letters?limit=1000000")?;
            let letters = letters["dead_letters"].as_array().cloned().unwrap_or_default();
            if letters.is_empty() {
                break;
            }
            for letter in letters {
                let id = letter["id"].as_str().ok_or("a letter without an id")?;
                let path = format!("/dead-letters/{id}/replay");
                while self.client.post(&path, None)? != StatusCode::ACCEPTED {
                    self.client.glance(IMPATIENCE)?;
                }
                replayed += 1;
            }
            self.client.wait_for_the_end()?;
        }
        let mut delivered = 0;
        for n in 0..self.options.deliveries {
            let told: Value = self.client.get(&format!("/deliveries/{}", Self::id(n)))?;
            delivered += u32::from(told["state"] == json!(End::Delivered));
        }
        verdict.row("dead letters replayed", replayed);
        verdict.claim(
            "replayed after the receiver was mended, all are delivered",
            delivered == self.options.deliveries,
        );
        let report = self.receiver.report();
        verdict.claim(
            "the receiver took each of them once",
            report.taken == u64::from(self.options.deliveries) && report.stale_taken == 0,
        );
        Ok(())
    }
}

/// A client of the service that has so much time and no more.
struct Client {
    agent: ureq::Agent,
    base: String,
    until: Option<Instant>,
}

impl Client {
    fn new(server: &Server, limit: Duration) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            .proxy(None)
            .build()
            .new_agent();
        let base = format!("http://{}", server.address());
        Self { agent, base, until: Instant::now().checked_add(limit) }
    }

    /// Waits for a moment, if there is time left.
    fn glance(&self, wait: Duration) -> Result<(), Failure> {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Err("the time was up before the deliveries had ended".into());
        }
        thread::sleep(wait);
        Ok(())
    }

    /// 202, 503 or 429; anything else is a failure.
    fn post(&self, path: &str, body: Option<&Value>) -> Result<StatusCode, Failure> {
        let request = self.agent.post(format!("{}{path}", self.base));
        let sent = match body {
            Some(body) => request.send_json(body),
            None => request.send_empty(),
        };
        let (status, headers, text) = read("POST", path, sent)?;
        match status.as_u16() {
            202 => Ok(status),
            429 | 503 if headers.contains_key("retry-after") => Ok(status),
            _ => Err(format!("POST {path}: {status} {text}").into()),
        }
    }

    fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        Ok(serde_json::from_str(&self.text(path)?)?)
    }

    fn text(&self, path: &str) -> Result<String, Failure> {
        let sent = self.agent.get(format!("{}{path}", self.base)).call();
        match read("GET", path, sent)? {
            (StatusCode::OK, _, text) => Ok(text),
            (status, _, text) => Err(format!("GET {path}: {status} {text}").into()),
        }
    }

    /// Whatever the status: 503 while it is full.
    fn health(&self) -> Result<Value, Failure> {
        let sent = self.agent.get(format!("{}/health", self.base)).call();
        Ok(serde_json::from_str(&read("GET", "/health", sent)?.2)?)
    }

    fn metrics(&self) -> Result<Metrics, Failure> {
        Ok(Metrics(self.text("/metrics")?))
    }

    /// Until every delivery has ended, and is counted.
    fn wait_for_the_end(&self) -> Result<(), Failure> {
        while self.health()?["in_hand"] != json!(0)
            || self.metrics()?.get("service_deliveries_in_hand") != 0.0
        {
            self.glance(GLANCE)?;
        }
        Ok(())
    }
}

/// An answer, or which request had none.
fn read(
    method: &str,
    path: &str,
    sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<(StatusCode, HeaderMap, String), Failure> {
    let failed = |why| format!("{method} {path}: {why}");
    let (parts, mut body) = sent.map_err(failed)?.into_parts();
    let text = body.with_config().limit(64 << 20).read_to_string().map_err(failed)?;
    Ok((parts.status, parts.headers, text))
}

/// A page of metrics.
struct Metrics(String);

impl Metrics {
    /// The value of a series; NaN if it is not there.
    fn get(&self, series: &str) -> f64 {
        let line = self.0.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
    }
}
