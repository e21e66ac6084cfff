//! The service over HTTP, beside a receiver: what it refuses, replays, and leaves behind.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::{Value, json};
use tenure::retry::Stop;

use crate::engine::Engine;
use crate::options::{Receive, Serve};
use crate::receiver::Receiver;
use crate::server::Server;

/// Much longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Parser)]
#[command(args_override_self = true)]
struct Alone<T: clap::Args> {
    #[command(flatten)]
    options: T,
}

fn options<T: clap::Args>(words: &[&str]) -> T {
    let all = ["test", "--listen", "127.0.0.1:0"].iter().chain(words);
    Alone::parse_from(all).options
}

fn serve(words: &[&str]) -> Server {
    let quick = ["--workers", "4", "--backoff", "1ms", "--max-backoff", "20ms"];
    Server::start(&options::<Serve>(&[&quick, words].concat())).unwrap()
}

fn receive(words: &[&str]) -> Receiver {
    let calm = ["--fail", "0", "--hang", "0"];
    let words: Vec<_> = if words.is_empty() { calm.to_vec() } else { words.to_vec() };
    Receiver::start(&options::<Receive>(&words)).unwrap()
}

/// An address where nobody listens, and nobody will.
fn nobody() -> (SocketAddr, tokio::net::TcpSocket) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    (socket.local_addr().unwrap(), socket)
}

struct Said {
    status: u16,
    retry_after: Option<String>,
    body: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    /// A refusal says why, as JSON.
    fn refused(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{}", self.body);
        assert!(self.json()["error"].as_str().is_some_and(|why| !why.is_empty()), "{}", self.body);
        self
    }
}

fn ask(server: &Server, method: &str, path: &str, body: Option<&str>) -> Said {
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(LIMIT))
        .proxy(None)
        .build()
        .new_agent();
    let uri = format!("http://{}{path}", server.address());
    let request = ureq::http::Request::builder().method(method).uri(uri);
    let request = request.header("content-type", "application/json");
    let request = request.body(body.unwrap_or_default().to_owned()).unwrap();
    let mut answer = agent.run(request).unwrap();
    Said {
        status: answer.status().as_u16(),
        retry_after: answer.headers().get("retry-after").map(|v| v.to_str().unwrap().to_owned()),
        body: answer.body_mut().read_to_string().unwrap(),
    }
}

fn post(server: &Server, request: &Value) -> Said {
    ask(server, "POST", "/deliveries", Some(&request.to_string()))
}

fn get(server: &Server, path: &str) -> Said {
    ask(server, "GET", path, None)
}

fn delivery(to: SocketAddr, id: &str) -> Value {
    json!({ "url": format!("http://{to}/hook"), "subscriber": "s", "body": { "n": 1 }, "id": id })
}

/// Waits until a delivery is in that state.
fn wait_for(server: &Server, id: &str, state: &str) -> Value {
    let until = Instant::now() + LIMIT;
    loop {
        let told = get(server, &format!("/deliveries/{id}")).json();
        if told["state"] == state {
            return told;
        }
        assert!(Instant::now() < until, "not {state}: {told}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_tree_shows_what_is_up() {
    let server = serve(&[]);
    let said = get(&server, "/tree");
    assert_eq!(said.status, 200);
    let lines: Vec<_> = said.body.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("service: one for one"), "{lines:?}");
    assert!(lines[1].contains("monitor (actor, permanent) up #1"), "{lines:?}");
    assert!(lines[2].contains("http (thread, permanent) up #1"), "{lines:?}");
    assert!(server.stop().is_clean());
}

#[test]
fn a_delivery_arrives_with_its_token_and_can_be_looked_up() {
    let (receiver, server) = (receive(&[]), serve(&[]));
    let said = post(&server, &delivery(receiver.address(), "a"));
    assert_eq!((said.status, said.json()["id"].as_str()), (202, Some("a")));
    let told = wait_for(&server, "a", "delivered");
    assert_eq!(told["attempts"], 1);
    assert_eq!(told["history"][0]["answer"], "204 No Content");
    let taken = receiver.taken();
    assert_eq!(taken[0][0].0, "a");
    assert_eq!(told["history"][0]["token"], taken[0][0].1.to_string());
    assert!(server.stop().is_clean());
}

#[test]
fn what_makes_no_sense_is_refused_and_says_why() {
    let server = serve(&[]);
    for (body, status) in [
        ("", 400),
        ("{", 400),
        ("[]", 422),
        ("{}", 422),
        (r#"{"url": 7, "subscriber": "s", "body": 1}"#, 422),
        (r#"{"url": "http://h/", "subscriber": "s", "body": 1, "more": 1}"#, 422),
        (r#"{"url": "https://h/", "subscriber": "s", "body": 1}"#, 422),
        (r#"{"url": "h", "subscriber": "s", "body": 1}"#, 422),
        (r#"{"url": "http://h/", "subscriber": "", "body": 1}"#, 422),
        (r#"{"url": "http://h/", "subscriber": "s", "body": 1, "id": "a b"}"#, 422),
    ] {
        ask(&server, "POST", "/deliveries", Some(body)).refused(status);
    }
    let large = json!({ "url": "http://h/", "subscriber": "s", "body": "x".repeat(300_000) });
    post(&server, &large).refused(413);
    get(&server, "/deliveries/unknown").refused(404);
    get(&server, "/nowhere").refused(404);
    ask(&server, "DELETE", "/deliveries", None).refused(405);
    ask(&server, "POST", "/dead-letters/unknown/replay", None).refused(404);
    ask(&server, "DELETE", "/dead-letters/unknown", None).refused(404);
    assert_eq!(get(&server, "/health").json()["in_hand"], 0);
    assert!(server.stop().is_clean());
}

#[test]
fn the_same_request_is_the_same_delivery() {
    let (receiver, server) = (receive(&[]), serve(&[]));
    let request = delivery(receiver.address(), "a");
    assert_eq!(post(&server, &request).status, 202);
    assert_eq!(post(&server, &request).status, 200);
    let mut other = request.clone();
    other["body"] = json!("another one");
    post(&server, &other).refused(409);
    wait_for(&server, "a", "delivered");
    assert_eq!(post(&server, &request).status, 200);
    assert!(server.stop().is_clean());
    assert_eq!(receiver.report().requests, 1);
}

#[test]
fn a_dead_letter_tells_its_history_and_can_be_replayed() {
    let (receiver, server) = (receive(&[]), serve(&[]));
    let mut request = delivery(receiver.address(), "a");
    request["body"] = json!({ "poison": true });
    assert_eq!(post(&server, &request).status, 202);
    wait_for(&server, "a", "dead");
    let letters = get(&server, "/dead-letters").json();
    assert_eq!(letters["total"], 1);
    let letter = &letters["dead_letters"][0];
    assert_eq!((letter["id"].as_str(), letter["attempts"].as_u64()), (Some("a"), Some(1)));
    let cause = letter["history"][0]["cause"].as_str();
    assert!(cause.is_some_and(|cause| cause.contains("422")), "{letter}");

    receiver.mend();
    assert_eq!(ask(&server, "POST", "/dead-letters/a/replay", None).status, 202);
    let told = wait_for(&server, "a", "delivered");
    assert_eq!((told["attempts"].as_u64(), told["replays"].as_u64()), (Some(2), Some(1)));
    assert_eq!(get(&server, "/dead-letters").json()["total"], 0);
    ask(&server, "POST", "/dead-letters/a/replay", None).refused(404);
    let tokens: Vec<u64> = told["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| attempt["token"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    assert!(server.stop().is_clean());
}

#[test]
fn dead_letters_can_be_thrown_away() {
    let (receiver, server) = (receive(&[]), serve(&[]));
    for id in ["a", "b", "c"] {
        let mut request = delivery(receiver.address(), id);
        request["body"] = json!({ "poison": true });
        assert_eq!(post(&server, &request).status, 202);
        wait_for(&server, id, "dead");
    }
    assert_eq!(get(&server, "/dead-letters?limit=1").json()["total"], 3);
    assert_eq!(ask(&server, "DELETE", "/dead-letters/b", None).status, 204);
    get(&server, "/deliveries/b").refused(404);
    assert_eq!(ask(&server, "DELETE", "/dead-letters", None).json()["purged"], 2);
    assert_eq!(get(&server, "/dead-letters").json()["total"], 0);
    assert!(server.stop().is_clean());
}

#[test]
fn the_oldest_dead_letters_go_when_there_are_too_many() {
    let (receiver, server) = (receive(&[]), serve(&["--dead-letters", "2"]));
    for id in ["a", "b", "c"] {
        let mut request = delivery(receiver.address(), id);
        request["body"] = json!({ "poison": true });
        assert_eq!(post(&server, &request).status, 202);
        let until = Instant::now() + LIMIT;
        while get(&server, "/metrics").body.lines().all(|line| {
            line != format!("tenure_jobs_total{{outcome=\"dead\"}} {}", id.as_bytes()[0] - b'a' + 1)
        }) {
            assert!(Instant::now() < until);
        }
    }
    let letters = get(&server, "/dead-letters").json();
    let ids: Vec<_> =
        letters["dead_letters"].as_array().unwrap().iter().map(|l| &l["id"]).collect();
    assert_eq!(ids, ["b", "c"]);
    get(&server, "/deliveries/a").refused(404);
    assert!(server.stop().is_clean());
}

#[test]
fn who_asks_too_much_is_told_to_come_again() {
    let (nowhere, _place) = nobody();
    // What waits for its retry is in hand for minutes.
    let slow = ["--backoff", "10m", "--max-backoff", "10m", "--attempts", "100", "--grace", "0s"];
    let server = serve(&[&slow[..], &["--capacity", "3", "--per-subscriber", "2"]].concat());
    for (id, subscriber, status) in [
        ("a", "one", 202),
        ("b", "one", 202),
        ("c", "one", 429),
        ("d", "two", 202),
        ("e", "two", 503),
    ] {
        let mut request = delivery(nowhere, id);
        request["subscriber"] = json!(subscriber);
        let said = post(&server, &request);
        assert_eq!(said.status, status, "{id}: {}", said.body);
        assert_eq!(said.retry_after.as_deref(), (status != 202).then_some("1"), "{id}");
    }
    // What was refused is not there, and may come again.
    get(&server, "/deliveries/e").refused(404);
    let mut left = server.stop().undelivered;
    left.sort();
    assert_eq!(left, ["a", "b", "d"]);
}

#[test]
fn a_late_attempt_takes_nothing_and_its_successor_delivers() {
    // Every attempt hangs for longer than it may.
    let receiver = receive(&["--fail", "0", "--hang", "1", "--hang-for", "1s"]);
    let server = serve(&["--attempt-timeout", "100ms", "--attempts", "3"]);
    assert_eq!(post(&server, &delivery(receiver.address(), "a")).status, 202);
    let told = wait_for(&server, "a", "dead");
    assert_eq!(told["attempts"], 3);
    // The last one to come is the one that may take it, late as it is; it has no successor.
    let until = Instant::now() + LIMIT;
    while receiver.report().taken + receiver.report().stale_refused < 3 {
        assert!(Instant::now() < until, "{:?}", receiver.report());
        thread::sleep(Duration::from_millis(5));
    }
    let report = receiver.report();
    assert_eq!((report.taken, report.stale_refused, report.stale_taken), (1, 2, 0));
    assert!(server.stop().is_clean());
}

#[test]
fn a_stop_delivers_what_it_can_and_names_the_rest() {
    let (nowhere, _place) = nobody();
    let receiver = receive(&[]);
    let server = serve(&["--backoff", "10m", "--max-backoff", "10m", "--grace", "1s"]);
    for n in 0..50 {
        let mut request = delivery(receiver.address(), &format!("good-{n}"));
        request["subscriber"] = json!(format!("s{n}"));
        assert_eq!(post(&server, &request).status, 202);
    }
    let mut hopeless = delivery(nowhere, "hopeless");
    hopeless["subscriber"] = json!("nobody");
    assert_eq!(post(&server, &hopeless).status, 202);
    let report = server.stop();
    assert!(!report.is_clean());
    assert!(report.undelivered.iter().any(|id| id == "hopeless"));
    // Each of the others was taken, or is named.
    let taken = receiver.taken();
    let taken: Vec<_> = taken.iter().flatten().map(|(id, _)| id).collect();
    for n in 0..50 {
        let id = format!("good-{n}");
        assert!(taken.contains(&&id) || report.undelivered.contains(&id), "{id} is lost");
    }
}

#[test]
fn a_stopping_service_takes_nothing_more_and_says_so() {
    let (nowhere, _place) = nobody();
    let receiver = receive(&[]);
    let server = serve(&["--backoff", "10m", "--max-backoff", "10m"]);
    assert_eq!(post(&server, &delivery(nowhere, "hopeless")).status, 202);
    let engine: Arc<Engine> = Arc::clone(server.engine());
    let stopping = thread::spawn(move || engine.stop(Duration::from_secs(1)));
    let until = Instant::now() + LIMIT;
    while get(&server, "/health").status == 200 {
        assert!(Instant::now() < until);
    }
    assert_eq!(get(&server, "/health").json()["status"], "stopping");
    let said = post(&server, &delivery(receiver.address(), "late"));
    assert_eq!(said.refused(503).retry_after.as_deref(), Some("1"));
    ask(&server, "POST", "/dead-letters/any/replay", None).refused(503);
    assert_eq!(stopping.join().unwrap().undelivered, ["hopeless"]);
    // A second stop finds nothing to do.
    assert!(server.stop().is_clean());
}

/// More of them than a breaker needs to see, and all of them refused.
#[test]
fn deliveries_that_a_host_cannot_use_do_not_open_its_breaker() {
    let (receiver, server) = (receive(&[]), serve(&[]));
    let ids: Vec<_> = (0..120).map(|n| n.to_string()).collect();
    for id in &ids {
        let mut request = delivery(receiver.address(), id);
        request["body"] = json!({ "poison": true });
        assert_eq!(post(&server, &request).status, 202);
    }
    for id in &ids {
        assert_eq!(wait_for(&server, id, "dead")["attempts"], 1, "dead at once");
    }
    let page = get(&server, "/metrics").body;
    let opened = "service_breaker_transitions_total{to=\"open\"} 0";
    assert!(page.lines().any(|line| line == opened), "{page}");
    assert_eq!(post(&server, &delivery(receiver.address(), "good")).status, 202);
    wait_for(&server, "good", "delivered");
    assert!(server.stop().is_clean());
}

/// What a dead letter says that it was stopped by.
fn stopped_by(server: &Server, id: &str) -> String {
    wait_for(server, id, "dead");
    let letters = get(server, "/dead-letters").json();
    let letters = letters["dead_letters"].as_array().unwrap();
    let letter = letters.iter().find(|letter| letter["id"] == id).expect("it has a letter");
    letter["stopped_by"].as_str().unwrap().to_owned()
}

#[test]
fn a_delivery_has_so_much_time_and_no_more() {
    let (nowhere, _place) = nobody();
    let slow = ["--backoff", "10m", "--max-backoff", "10m", "--deadline", "100ms"];
    let server = serve(&slow);
    assert_eq!(post(&server, &delivery(nowhere, "a")).status, 202);
    let mut request = delivery(nowhere, "b");
    request["within_ms"] = json!(0);
    request["subscriber"] = json!("another");
    assert_eq!(post(&server, &request).status, 202);
    assert_eq!(stopped_by(&server, "a"), Stop::Deadline.to_string());
    assert_eq!(stopped_by(&server, "b"), Stop::Deadline.to_string());
    assert_eq!(get(&server, "/deliveries/b").json()["attempts"], 0);
    assert!(server.stop().is_clean());
}

#[test]
fn when_nothing_arrives_there_are_only_so_many_retries() {
    let (nowhere, _place) = nobody();
    let few = ["--retry-ratio", "0", "--retry-burst", "1", "--attempts", "1000"];
    let server = serve(&few);
    assert_eq!(post(&server, &delivery(nowhere, "a")).status, 202);
    assert_eq!(stopped_by(&server, "a"), Stop::Budget.to_string());
    assert!(server.stop().is_clean());
}

#[test]
fn metrics_are_what_prometheus_reads() {
    let (receiver, server) = (receive(&[]), serve(&[]));
    assert_eq!(post(&server, &delivery(receiver.address(), "a")).status, 202);
    wait_for(&server, "a", "delivered");
    // The counters are written after the delivery's own state.
    let until = Instant::now() + LIMIT;
    let page = loop {
        let page = get(&server, "/metrics").body;
        if page.lines().any(|line| line == "service_deliveries_in_hand 0") {
            break page;
        }
        assert!(Instant::now() < until, "{page}");
    };
    for line in page.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(["tenure_", "service_"].iter().any(|of| series.starts_with(of)), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    for line in [
        "tenure_jobs_total{outcome=\"succeeded\"} 1",
        "tenure_jobs_submitted_total 1",
        "tenure_dead_letters 0",
        "service_deliveries_in_hand 0",
        "service_delivery_duration_seconds_count 1",
        "service_attempt_duration_seconds_count 1",
        "service_breakers{state=\"closed\"} 1",
        #[cfg(feature = "metrics")]
        "tenure_job_duration_seconds_count{name=\"other\"} 1",
        #[cfg(feature = "metrics")]
        "tenure_ready 1",
    ] {
        assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
    }
    assert!(server.stop().is_clean());
}
