//! One attempt at a delivery: the request, and what its answer means.
//!
//! It blocks. What hangs longer than the attempt timeout is given up by the runtime, not by the
//! client: the worker is taken for stuck and replaced, the delivery tried anew under a greater token.
//! The request that hangs may still reach the receiver, which can tell by its token that it is late.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::Histogram;
use tenure::breaker::Verdict;
use tenure::runtime::{JobCtx, Outcome};
use ureq::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ureq::http::{HeaderMap, StatusCode};

use crate::delivery::Delivery;
use crate::options::Serve;

/// The attempt's fencing token: grows with each attempt for one subscriber. Refuse one that is smaller
/// than the greatest that you have seen from it.
pub(crate) const TOKEN: &str = "x-tenure-token";
/// Which attempt, from 1.
pub(crate) const ATTEMPT: &str = "x-tenure-attempt";
/// Whom it is for.
pub(crate) const SUBSCRIBER: &str = "x-tenure-subscriber";
/// The delivery's id: the same in all attempts.
pub(crate) const ID: &str = "idempotency-key";

/// How much of an answer is read: enough to use the connection again.
const ANSWER: u64 = 16 * 1024;

/// Makes attempts.
#[derive(Debug)]
pub(crate) struct Courier {
    client: ureq::Agent,
    longest_wait: Duration,
    /// How long attempts took, late ones included.
    took: Histogram,
}

impl Courier {
    pub(crate) fn new(options: &Serve, took: Histogram) -> Self {
        // Long after the runtime has given the attempt up, so that a thread that hangs comes back.
        let limit = options.attempt_timeout.saturating_mul(8).max(Duration::from_secs(5));
        let workers = usize::from(options.workers);
        let client = ureq::Agent::config_builder()
            .timeout_global(Some(limit))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(workers.saturating_mul(2))
            .max_idle_connections_per_host(workers)
            .proxy(None)
            .user_agent(concat!("tenure-service/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Self { client, longest_wait: options.max_backoff, took }
    }

    /// Makes one.
    pub(crate) fn attempt(&self, ctx: &JobCtx, delivery: &Arc<Delivery>) -> Outcome<()> {
        let began = Instant::now();
        delivery.begin(ctx.attempt(), ctx.token());
        let sent = self
            .client
            .post(&delivery.url)
            .header(CONTENT_TYPE, "application/json")
            .header(ID, &delivery.id)
            .header(SUBSCRIBER, &delivery.subscriber)
            .header(ATTEMPT, ctx.attempt().to_string())
            .header(TOKEN, ctx.token().to_string())
            .send(&delivery.body);
        let (answer, outcome) = match sent {
            Ok(mut answer) => {
                // For the connection's sake; what it says is the receiver's affair.
                drop(answer.body_mut().with_config().limit(ANSWER).read_to_vec());
                (answer.status().to_string(), self.judge(answer.status(), answer.headers()))
            }
            Err(failure) => (failure.to_string(), Outcome::retry(failure)),
        };
        self.took.record(began.elapsed());
        // Says whether anybody will hear of this outcome; the runtime looks for itself.
        delivery.end_attempt(ctx.token(), answer, !ctx.is_current());
        outcome
    }

    /// What an answer means for the delivery.
    fn judge(&self, status: StatusCode, headers: &HeaderMap) -> Outcome<()> {
        let code = status.as_u16();
        let why = Answered(status);
        match code {
            200..=299 => Outcome::Done(()),
            // 409: a greater token was there before. If we are late, nobody hears this; if not, a later
            // attempt has a greater token.
            408 | 409 | 425 | 429 | 500..=599 => match retry_after(headers) {
                Some(delay) => Outcome::RetryAfter(why.into(), delay.min(self.longest_wait)),
                None => Outcome::retry(why),
            },
            _ => Outcome::fail(why),
        }
    }
}

/// It did not take the delivery, but it answered.
#[derive(Debug, thiserror::Error)]
#[error("the receiver answered {0}")]
struct Answered(StatusCode);

/// What an error says of the host, to its breaker. One that cannot use this delivery (4xx, a redirection)
/// is well: a host that is sent nothing but such deliveries is not left alone. One that has no time for it, or
/// does not answer, is not.
pub(crate) fn of_the_host(error: &(dyn Error + Send + Sync + 'static)) -> Verdict {
    match error.downcast_ref().map(|Answered(status)| status.as_u16()) {
        Some(408 | 429 | 500..) | None => Verdict::Failure,
        Some(_) => Verdict::Success,
    }
}

/// What a receiver asks for, if it is in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn judged(status: u16, retry_after: Option<&'static str>) -> Outcome<()> {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            serve: Serve,
        }
        let options = Alone::parse_from(["service", "--max-backoff", "60s"]).serve;
        let courier = Courier::new(&options, Histogram::noop());
        let mut headers = HeaderMap::new();
        if let Some(text) = retry_after {
            headers.insert(RETRY_AFTER, text.parse().unwrap());
        }
        courier.judge(StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn what_may_pass_is_tried_again_and_what_will_not_is_not() {
        for status in [200, 201, 204] {
            assert!(matches!(judged(status, None), Outcome::Done(())), "{status}");
        }
        for status in [408, 409, 425, 429, 500, 502, 503, 504] {
            assert!(matches!(judged(status, None), Outcome::Retry(_)), "{status}");
        }
        for status in [301, 307, 400, 401, 404, 410, 413, 422] {
            assert!(matches!(judged(status, None), Outcome::Fail(_)), "{status}");
        }
    }

    #[test]
    fn a_host_that_answers_is_well_unless_it_says_otherwise() {
        let said = |status| match judged(status, None) {
            Outcome::Retry(error) | Outcome::Fail(error) => of_the_host(&*error),
            other => panic!("{other:?}"),
        };
        for status in [301, 400, 401, 404, 409, 410, 422] {
            assert_eq!(said(status), Verdict::Success, "{status}");
        }
        for status in [408, 429, 500, 503] {
            assert_eq!(said(status), Verdict::Failure, "{status}");
        }
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(of_the_host(&refused), Verdict::Failure);
    }

    #[test]
    fn a_receiver_may_ask_for_time_but_not_for_ever() {
        let delay = |text| match judged(503, Some(text)) {
            Outcome::RetryAfter(_, delay) => Some(delay.as_secs()),
            _ => None,
        };
        assert_eq!(delay("7"), Some(7));
        assert_eq!(delay("18446744073709551615"), Some(60));
        assert_eq!(delay("soon"), None);
        assert_eq!(delay("-1"), None);
    }
}
