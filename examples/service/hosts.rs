//! A circuit breaker for each host, so that a host that is down costs no attempts and no threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::breaker::{BreakerEvent, CircuitBreaker, State, Window};

use crate::Failure;
use crate::options::Serve;

/// How many hosts have a breaker at a time. Of more, some that are closed forget what they counted.
const MOST: usize = 1024;

/// The breakers.
#[derive(Debug)]
pub(crate) struct Hosts {
    open_for: Duration,
    probe_timeout: Duration,
    breakers: Mutex<HashMap<String, CircuitBreaker>>,
    transitions: Arc<Transitions>,
}

/// How often a breaker came to stand so. Relaxed: counts.
#[derive(Debug, Default)]
struct Transitions {
    opened: AtomicU64,
    half_opened: AtomicU64,
    closed: AtomicU64,
}

impl Hosts {
    pub(crate) fn new(options: &Serve) -> Result<Self, Failure> {
        let hosts = Self {
            open_for: options.breaker_open,
            probe_timeout: options.attempt_timeout.saturating_mul(2),
            breakers: Mutex::default(),
            transitions: Arc::default(),
        };
        // What cannot be built is said now, not at the first delivery.
        hosts.build("nobody")?;
        Ok(hosts)
    }

    fn build(&self, host: &str) -> Result<CircuitBreaker, Failure> {
        let transitions = Arc::clone(&self.transitions);
        let breaker = CircuitBreaker::builder()
            .name(host)
            .window(Window::Count(100))
            .min_calls(50)
            .failure_rate(0.6)
            .probes(2)
            .probe_timeout(self.probe_timeout)
            .open_for(self.open_for)
            .on_event(move |event| transitions.count(event))
            .build()?;
        Ok(breaker)
    }

    /// The breaker of this host.
    pub(crate) fn breaker(&self, host: &str) -> Result<CircuitBreaker, Failure> {
        let mut breakers = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(breaker) = breakers.get(host) {
            return Ok(breaker.clone());
        }
        if breakers.len() >= MOST {
            breakers.retain(|_, breaker| breaker.state() != State::Closed);
            if breakers.len() >= MOST {
                breakers.clear();
            }
        }
        let breaker = self.build(host)?;
        breakers.insert(host.to_owned(), breaker.clone());
        Ok(breaker)
    }

    /// How many breakers stand how: closed, open, half-open.
    pub(crate) fn count(&self) -> [(&'static str, u64); 3] {
        let breakers = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        [State::Closed, State::Open, State::HalfOpen].map(|state| {
            let count = breakers.values().filter(|breaker| breaker.state() == state).count();
            (state.as_str(), count as u64)
        })
    }

    /// Which are not closed; the first few of them.
    pub(crate) fn not_closed(&self) -> Vec<String> {
        let breakers = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        let troubled = breakers.iter().filter(|(_, breaker)| breaker.state() != State::Closed);
        troubled.map(|(host, _)| host.clone()).take(20).collect()
    }

    /// How often any of them changed, by what it became.
    pub(crate) fn transitions(&self) -> [(&'static str, u64); 3] {
        let Transitions { opened, half_opened, closed } = &*self.transitions;
        [(State::Closed, closed), (State::Open, opened), (State::HalfOpen, half_opened)]
            .map(|(state, count)| (state.as_str(), count.load(Ordering::Relaxed)))
    }
}

impl Transitions {
    fn count(&self, event: &BreakerEvent) {
        let count = match event.to {
            State::Open => &self.opened,
            State::HalfOpen => &self.half_opened,
            State::Closed => &self.closed,
            State::ForcedOpen | State::Disabled => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
