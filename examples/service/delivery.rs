//! One delivery: what is to be delivered to whom, and what became of each attempt.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tenure::lease::FencingToken;
use ureq::http::Uri;

/// What a client asks for.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// Where to: `http://host[:port]/path`.
    pub(crate) url: String,
    /// Who gets it. What one subscriber gets, it gets in order.
    pub(crate) subscriber: String,
    /// What it gets.
    pub(crate) body: serde_json::Value,
    /// Makes the request repeatable: with the same id it is the same delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// After how many milliseconds it is of no use any more. No attempt begins after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) within_ms: Option<u64>,
}

/// How long an id or a subscriber's name may be, and an address.
const LONGEST_NAME: usize = 128;
const LONGEST_URL: usize = 2048;

/// Of the attempts of one delivery, how many of the latest are kept.
const KEPT: usize = 32;

/// A delivery that was accepted.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) id: String,
    pub(crate) url: String,
    /// Host and port: what a breaker is for.
    pub(crate) host: String,
    pub(crate) subscriber: String,
    pub(crate) body: String,
    /// When its time is up, from its acceptance on; if it says so itself.
    pub(crate) within: Option<Duration>,
    accepted: Instant,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    attempts: VecDeque<Attempt>,
    made: u32,
    /// Since it was accepted.
    ended: Option<(End, Duration)>,
    /// Why, if it is dead.
    why: Option<String>,
    replays: u32,
}

/// One attempt. Its number starts again with each replay; its token only grows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) token: String,
    started_ms: f64,
    took_ms: Option<f64>,
    /// What came of it; nothing yet, or it never came back.
    pub(crate) answer: Option<String>,
    /// It came back after it had been given up: what it brought was not heard.
    pub(crate) late: bool,
}

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    Delivered,
    Dead,
    /// The service stopped before.
    Undelivered,
}

/// What it looks like from outside.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    id: String,
    url: String,
    host: String,
    subscriber: String,
    state: &'static str,
    attempts: u32,
    replays: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    history: Vec<Attempt>,
}

impl Delivery {
    /// Looks closely at what was asked for.
    pub(crate) fn new(request: Request) -> Result<Self, String> {
        let name = |what: &str, text: &str| {
            if text.is_empty() || text.len() > LONGEST_NAME {
                Err(format!("{what} must have 1 to {LONGEST_NAME} bytes"))
            } else if text.bytes().all(|b| b.is_ascii_graphic() && b != b'/') {
                Ok(())
            } else {
                Err(format!("{what} must be visible ASCII without '/'"))
            }
        };
        name("subscriber", &request.subscriber)?;
        let id = match request.id {
            Some(id) => name("id", &id).map(|()| id)?,
            None => format!("{:016x}", fastrand::u64(..)),
        };
        let host = host_of(&request.url)?;
        Ok(Self {
            id,
            host,
            url: request.url,
            subscriber: request.subscriber,
            body: request.body.to_string(),
            within: request.within_ms.map(Duration::from_millis),
            accepted: Instant::now(),
            log: Mutex::default(),
        })
    }

    /// Whether somebody who repeats his request means this one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.url, &self.subscriber, &self.body) == (&other.url, &other.subscriber, &other.body)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt begins.
    pub(crate) fn begin(&self, number: u32, token: FencingToken) {
        let started_ms = milliseconds(self.accepted.elapsed());
        let mut log = self.log();
        if log.attempts.len() == KEPT {
            log.attempts.pop_front();
        }
        log.made = log.made.saturating_add(1);
        log.attempts.push_back(Attempt {
            number,
            token: token.to_string(),
            started_ms,
            took_ms: None,
            answer: None,
            late: false,
        });
    }

    /// An attempt is over.
    pub(crate) fn end_attempt(&self, token: FencingToken, answer: String, late: bool) {
        let now_ms = milliseconds(self.accepted.elapsed());
        let token = token.to_string();
        let mut log = self.log();
        // Not there: so many came after it that it was forgotten.
        if let Some(attempt) = log.attempts.iter_mut().rev().find(|a| a.token == token) {
            let took_us = ((now_ms - attempt.started_ms) * 1e3).round();
            attempt.took_ms = Some(took_us / 1e3);
            attempt.answer = Some(answer);
            attempt.late = late;
        }
    }

    /// The delivery is over. How long it took since it was accepted.
    pub(crate) fn end(&self, end: End, why: Option<String>) -> Duration {
        let took = self.accepted.elapsed();
        let mut log = self.log();
        log.ended = Some((end, took));
        log.why = why;
        took
    }

    /// It is to be tried anew.
    pub(crate) fn reopen(&self) {
        let mut log = self.log();
        log.ended = None;
        log.why = None;
        log.replays = log.replays.saturating_add(1);
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&self) -> Option<End> {
        self.log().ended.map(|(end, _)| end)
    }

    pub(crate) fn view(&self) -> View {
        let log = self.log();
        View {
            id: self.id.clone(),
            url: self.url.clone(),
            host: self.host.clone(),
            subscriber: self.subscriber.clone(),
            state: match (log.ended, log.attempts.back()) {
                (Some((End::Delivered, _)), _) => "delivered",
                (Some((End::Dead, _)), _) => "dead",
                (Some((End::Undelivered, _)), _) => "undelivered",
                (None, None) => "queued",
                (None, Some(Attempt { answer: None, .. })) => "delivering",
                (None, Some(_)) => "waiting",
            },
            attempts: log.made,
            replays: log.replays,
            latency_ms: log.ended.map(|(_, took)| milliseconds(took)),
            why: log.why.clone(),
            history: log.attempts.iter().cloned().collect(),
        }
    }
}

fn milliseconds(duration: Duration) -> f64 {
    // To the microsecond.
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

fn host_of(url: &str) -> Result<String, String> {
    if url.len() > LONGEST_URL {
        return Err(format!("url must have at most {LONGEST_URL} bytes"));
    }
    let uri: Uri = url.parse().map_err(|why| format!("url: {why}"))?;
    if uri.scheme_str() != Some("http") {
        return Err("url must begin with http:// (this example has no TLS)".into());
    }
    match uri.authority() {
        Some(authority) if authority.as_str().contains('@') => {
            Err("url must not carry a user or a password".into())
        }
        Some(authority) if !authority.host().is_empty() => Ok(format!(
            "{}:{}",
            authority.host().to_ascii_lowercase(),
            authority.port_u16().unwrap_or(80)
        )),
        _ => Err("url must name a host".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(url: &str, subscriber: &str, id: Option<&str>) -> Request {
        Request {
            url: url.into(),
            subscriber: subscriber.into(),
            body: serde_json::json!({ "n": 1 }),
            id: id.map(Into::into),
            within_ms: None,
        }
    }

    #[test]
    fn what_cannot_be_delivered_is_refused() {
        for (url, subscriber, id) in [
            ("", "s", None),
            ("not a url", "s", None),
            ("/path", "s", None),
            ("https://host/", "s", None),
            ("ftp://host/", "s", None),
            ("http://user:password@host/", "s", None),
            ("http:///path", "s", None),
            ("http://host/", "", None),
            ("http://host/", "a b", None),
            ("http://host/", "s", Some("")),
            ("http://host/", "s", Some("a/b")),
            ("http://host/", "s", Some("line\nbreak")),
        ] {
            assert!(Delivery::new(request(url, subscriber, id)).is_err(), "{url:?} {id:?}");
        }
        let long = "x".repeat(LONGEST_NAME + 1);
        assert!(Delivery::new(request("http://host/", &long, None)).is_err());
        let long = format!("http://host/{}", "x".repeat(LONGEST_URL));
        assert!(Delivery::new(request(&long, "s", None)).is_err());
    }

    #[test]
    fn the_host_is_what_a_breaker_is_for() {
        let host = |url| Delivery::new(request(url, "s", None)).map(|d| d.host);
        assert_eq!(host("http://Example.org/a?b").as_deref(), Ok("example.org:80"));
        assert_eq!(host("http://[::1]:99").as_deref(), Ok("[::1]:99"));
    }

    #[test]
    fn a_long_history_keeps_its_latest_part() {
        let delivery = Delivery::new(request("http://host/", "s", Some("1"))).unwrap();
        for n in 1..=100u64 {
            let token = FencingToken::from_bytes(n.to_be_bytes()).unwrap();
            delivery.begin(n as u32, token);
            delivery.end_attempt(token, "503".into(), false);
        }
        let view = delivery.view();
        assert_eq!((view.attempts, view.history.len()), (100, KEPT));
        assert_eq!(view.history.last().map(|a| a.number), Some(100));
    }
}
