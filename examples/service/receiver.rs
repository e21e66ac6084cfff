//! A receiver that fails, hangs and goes down. It remembers all that it took: for trying out.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use serde::Deserialize;
use tenure::lease::FencingToken;
use tokio::net::TcpSocket;
use tokio::runtime::Runtime as Tokio;

use crate::Failure;
use crate::answer::error;
use crate::courier::{ATTEMPT, ID, SUBSCRIBER, TOKEN};
use crate::inbox::{Inbox, Receipt};
use crate::options::Receive;

/// A receiver that runs, or is down.
#[derive(Debug)]
pub(crate) struct Receiver {
    state: Arc<Inside>,
    address: SocketAddr,
    /// Bound, not listening: keeps the port ours while nobody listens there.
    _place: TcpSocket,
    /// The server, with all its connections. `None`: down.
    server: Mutex<Option<Tokio>>,
}

#[derive(Debug)]
struct Inside {
    fail: f64,
    hang: f64,
    hang_for: Duration,
    seed: u64,
    mended: AtomicBool,
    inboxes: Mutex<HashMap<String, Arc<Inbox>>>,
    counts: Counts,
}

/// Relaxed: counts.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    taken: AtomicU64,
    duplicates: AtomicU64,
    failed: AtomicU64,
    failed_after: AtomicU64,
    hung: AtomicU64,
    stale_refused: AtomicU64,
    unprocessable: AtomicU64,
}

/// What a receiver counted.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(crate) struct Report {
    pub(crate) requests: u64,
    pub(crate) taken: u64,
    pub(crate) duplicates: u64,
    pub(crate) failed: u64,
    pub(crate) failed_after: u64,
    pub(crate) hung: u64,
    /// Late attempts that were kept out.
    pub(crate) stale_refused: u64,
    /// Late attempts that were not: none.
    pub(crate) stale_taken: u64,
    pub(crate) unprocessable: u64,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    Fails,
    /// It fails, but the delivery is taken: the next attempt is a duplicate.
    FailsAfter,
    Hangs,
}

impl Receiver {
    pub(crate) fn start(options: &Receive) -> Result<Self, Failure> {
        let place = bound(options.listen)
            .map_err(|why| format!("cannot listen on {}: {why}", options.listen))?;
        let address = place.local_addr()?;
        let state = Arc::new(Inside {
            fail: options.fail,
            hang: options.hang,
            hang_for: options.hang_for,
            seed: options.seed,
            mended: AtomicBool::new(false),
            inboxes: Mutex::default(),
            counts: Counts::default(),
        });
        let receiver = Self { state, address, _place: place, server: Mutex::new(None) };
        receiver.up()?;
        Ok(receiver)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens.
    pub(crate) fn up(&self) -> Result<(), Failure> {
        let server = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("receiver")
            .enable_all()
            .build()?;
        let context = server.enter();
        let listener = bound(self.address)?.listen(1024)?;
        drop(context);
        let router = Router::new()
            .route("/report", get(report))
            .fallback(any(receive))
            .with_state(Arc::clone(&self.state));
        server.spawn(async move { axum::serve(listener, router).await });
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        Ok(())
    }

    /// Is gone: who connects is refused, what was connected breaks, what hung is lost.
    pub(crate) fn down(&self) {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(server) = server {
            server.shutdown_timeout(Duration::from_secs(5));
        }
    }

    /// Goes down once, as the options say, and otherwise waits to be stopped.
    pub(crate) fn go_down_once(
        &self,
        options: &Receive,
        stop: &mpsc::Receiver<()>,
    ) -> Result<(), Failure> {
        let not_within = |time| stop.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        if let Some(after) = options.down_after {
            while self.report().requests < after {
                if !not_within(Duration::from_millis(20)) {
                    return Ok(());
                }
            }
            println!("down for {:?}", options.down_for);
            self.down();
            if !not_within(options.down_for) {
                return Ok(());
            }
            self.up()?;
            println!("up again");
        }
        let _ = stop.recv();
        Ok(())
    }

    /// Takes from now on what it could not process before.
    pub(crate) fn mend(&self) {
        self.state.mended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn report(&self) -> Report {
        self.state.report()
    }

    /// What each subscriber has: each delivery once, in the order in which they were taken.
    pub(crate) fn taken(&self) -> Vec<Vec<(String, FencingToken)>> {
        self.state
            .inboxes()
            .into_iter()
            .filter_map(|i| i.read(|taken| taken.order.clone()))
            .collect()
    }
}

fn bound(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn report(State(state): State<Arc<Inside>>) -> axum::Json<Report> {
    axum::Json(state.report())
}

/// What a delivery may say of itself.
#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    poison: bool,
}

async fn receive(State(state): State<Arc<Inside>>, headers: HeaderMap, body: String) -> Response {
    let counts = &state.counts;
    counts.requests.fetch_add(1, Ordering::Relaxed);
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let token = header(TOKEN)
        .and_then(|text| text.parse::<u64>().ok())
        .and_then(|number| FencingToken::from_bytes(number.to_be_bytes()));
    let (Some(token), Some(id), Some(subscriber)) = (token, header(ID), header(SUBSCRIBER)) else {
        return error(StatusCode::BAD_REQUEST, "a token, an id and a subscriber are needed");
    };
    let inbox = state.inbox(subscriber);
    if inbox.announce(token).is_err() {
        return state.late();
    }
    let poisonous = serde_json::from_str::<Body>(&body).is_ok_and(|body| body.poison);
    if poisonous && !state.mended.load(Ordering::Relaxed) {
        counts.unprocessable.fetch_add(1, Ordering::Relaxed);
        return error(StatusCode::UNPROCESSABLE_ENTITY, "cannot be processed");
    }
    let fate = state.fate(id, header(ATTEMPT).unwrap_or_default());
    match fate {
        Fate::Fine | Fate::FailsAfter => {}
        Fate::Fails => {
            counts.failed.fetch_add(1, Ordering::Relaxed);
            return error(StatusCode::SERVICE_UNAVAILABLE, "having a bad day");
        }
        Fate::Hangs => {
            counts.hung.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(state.hang_for).await;
        }
    }
    match inbox.take(token, id) {
        Ok(Receipt::Taken) => counts.taken.fetch_add(1, Ordering::Relaxed),
        Ok(Receipt::Duplicate) => counts.duplicates.fetch_add(1, Ordering::Relaxed),
        Err(_) => return state.late(),
    };
    if fate == Fate::FailsAfter {
        counts.failed_after.fetch_add(1, Ordering::Relaxed);
        return error(StatusCode::INTERNAL_SERVER_ERROR, "taken, but forgot to say so");
    }
    StatusCode::NO_CONTENT.into_response()
}

impl Inside {
    fn inbox(&self, subscriber: &str) -> Arc<Inbox> {
        let mut inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        match inboxes.get(subscriber) {
            Some(inbox) => Arc::clone(inbox),
            None => {
                let inbox = Arc::new(Inbox::new());
                inboxes.insert(subscriber.to_owned(), Arc::clone(&inbox));
                inbox
            }
        }
    }

    fn inboxes(&self) -> Vec<Arc<Inbox>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn late(&self) -> Response {
        self.counts.stale_refused.fetch_add(1, Ordering::Relaxed);
        error(StatusCode::CONFLICT, "a greater token was here before")
    }

    /// The same for the same delivery, attempt and seed.
    fn fate(&self, id: &str, attempt: &str) -> Fate {
        let mut hasher = DefaultHasher::new();
        (self.seed, id, attempt).hash(&mut hasher);
        let mut dice = fastrand::Rng::with_seed(hasher.finish());
        let thrown = dice.f64();
        if thrown < self.hang {
            Fate::Hangs
        } else if thrown < self.hang + self.fail {
            if dice.u8(..10) == 0 { Fate::FailsAfter } else { Fate::Fails }
        } else {
            Fate::Fine
        }
    }

    fn report(&self) -> Report {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        Report {
            requests: get(&counts.requests),
            taken: get(&counts.taken),
            duplicates: get(&counts.duplicates),
            failed: get(&counts.failed),
            failed_after: get(&counts.failed_after),
            hung: get(&counts.hung),
            stale_refused: get(&counts.stale_refused),
            stale_taken: self.inboxes().iter().filter_map(|i| i.read(|taken| taken.stale)).sum(),
            unprocessable: get(&counts.unprocessable),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in [
            ("requests", self.requests),
            ("deliveries taken", self.taken),
            ("duplicates", self.duplicates),
            ("failed", self.failed),
            ("failed after taking", self.failed_after),
            ("hung", self.hung),
            ("could not be processed", self.unprocessable),
            ("late attempts kept out", self.stale_refused),
            ("late attempts not kept out", self.stale_taken),
        ] {
            writeln!(f, "{what:<28}{count:>10}")?;
        }
        Ok(())
    }
}
