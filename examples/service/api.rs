//! What can be asked for over HTTP.
//!
//! | request | answer |
//! |---|---|
//! | `POST /deliveries` `{url, subscriber, body, id?, within_ms?}` | 202 `{id}`; 200 if it is known; 4xx; 429, 503 with `Retry-After` |
//! | `GET /deliveries/{id}` | its state and attempts |
//! | `GET /dead-letters?limit=n` | those that were given up, with their history |
//! | `POST /dead-letters/{id}/replay` | 202: tried anew |
//! | `DELETE /dead-letters/{id}`, `DELETE /dead-letters` | thrown away |
//! | `GET /health` | 200, or 503 |
//! | `GET /tree` | the supervision tree, as text |
//! | `GET /metrics` | Prometheus' text |

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use tenure::runtime::{DeadLetter, WorkerHealth, WorkerStatus};

use crate::answer::error;
use crate::delivery::Request;
use crate::engine::{Accepted, Engine, Refused};
use crate::tree::Seen;

/// How large a request may be.
const LARGEST: usize = 256 * 1024;

type Shared = State<Arc<Engine>>;

pub(crate) fn router(engine: Arc<Engine>, tree: Seen) -> Router {
    Router::new()
        .route("/deliveries", post(accept))
        .route("/deliveries/{id}", get(look))
        .route("/dead-letters", get(dead_letters).delete(purge_all))
        .route("/dead-letters/{id}", delete(purge))
        .route("/dead-letters/{id}/replay", post(replay))
        .route("/health", get(health))
        .route("/tree", get(move || async move { show_tree(&tree) }))
        .route("/metrics", get(metrics))
        .fallback(|| async { error(StatusCode::NOT_FOUND, "no such path") })
        .method_not_allowed_fallback(|| async {
            error(StatusCode::METHOD_NOT_ALLOWED, "this path does not take this method")
        })
        .layer(DefaultBodyLimit::max(LARGEST))
        .with_state(engine)
}

async fn accept(
    State(engine): Shared,
    request: Result<Json<Request>, JsonRejection>,
) -> Result<Response, Refused> {
    let Json(request) = match request {
        Ok(request) => request,
        Err(rejected) => return Ok(error(rejected.status(), rejected.body_text())),
    };
    Ok(match engine.accept(request)? {
        Accepted::New(delivery) => {
            (StatusCode::ACCEPTED, Json(json!({ "id": delivery.id }))).into_response()
        }
        Accepted::Known(delivery) => Json(json!({ "id": delivery.id })).into_response(),
    })
}

async fn look(State(engine): Shared, Path(id): Path<String>) -> Response {
    match engine.books().desk.find(&id) {
        Some(delivery) => Json(delivery.view()).into_response(),
        None => error(StatusCode::NOT_FOUND, "no such delivery, or it was forgotten"),
    }
}

#[derive(Deserialize)]
struct Page {
    #[serde(default = "a_hundred")]
    limit: usize,
}

fn a_hundred() -> usize {
    100
}

async fn dead_letters(State(engine): Shared, Query(page): Query<Page>) -> Json<Value> {
    let dead = engine.dead();
    let shown: Vec<_> = dead.iter().take(page.limit).map(|letter| show(&engine, letter)).collect();
    Json(json!({ "total": dead.len(), "dead_letters": shown }))
}

fn show(engine: &Engine, letter: &DeadLetter) -> Value {
    let id = letter.name.as_deref().unwrap_or_default();
    let delivery = engine.books().desk.find(id);
    let history: Vec<_> = letter
        .history
        .iter()
        .map(|attempt| {
            json!({
                "attempt": attempt.number,
                "token": attempt.token.to_string(),
                "took_ms": attempt.ended.saturating_since(attempt.started).as_secs_f64() * 1e3,
                "cause": attempt.cause.to_string(),
            })
        })
        .collect();
    json!({
        "id": id,
        "url": delivery.as_ref().map(|delivery| &delivery.url),
        "subscriber": delivery.as_ref().map(|delivery| &delivery.subscriber),
        "stopped_by": letter.stop.to_string(),
        "attempts": letter.attempts(),
        "replays": letter.replays,
        "history": history,
    })
}

/// Whatever is sent along is read, not looked at: a body left unread would cost the connection.
async fn replay(
    State(engine): Shared,
    Path(id): Path<String>,
    _: Bytes,
) -> Result<Response, Refused> {
    let delivery = engine.replay(&id)?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "id": delivery.id }))).into_response())
}

async fn purge(State(engine): Shared, Path(id): Path<String>) -> Result<StatusCode, Refused> {
    if engine.purge(&id) { Ok(StatusCode::NO_CONTENT) } else { Err(Refused::NoSuchLetter) }
}

async fn purge_all(State(engine): Shared) -> Json<Value> {
    Json(json!({ "purged": engine.purge_all() }))
}

/// Whether to send work here.
async fn health(State(engine): Shared) -> Response {
    let health = engine.health();
    let verdict = health.verdict();
    let (code, status) = match (engine.is_stopping(), verdict.is_ready()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        (false, true) => (StatusCode::OK, "ready"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    let stuck = |worker: &&WorkerHealth| matches!(worker.status, WorkerStatus::Stuck { .. });
    let body = json!({
        "status": status,
        "why": verdict.reasons().iter().map(ToString::to_string).collect::<Vec<_>>(),
        "in_hand": engine.books().desk.count_in_hand(),
        "in_line": health.queues.in_line,
        "workers": health.active,
        "stuck_workers": health.workers.iter().filter(stuck).count(),
        "dead_letters": health.dead_letters,
        "hosts_left_alone": engine.hosts().not_closed(),
    });
    (code, Json(body)).into_response()
}

fn show_tree(tree: &Seen) -> Response {
    match tree.get() {
        Some(top) => format!("{}\n", top.snapshot()).into_response(),
        None => error(StatusCode::SERVICE_UNAVAILABLE, "not everything has started"),
    }
}

async fn metrics(State(engine): Shared) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], engine.render_metrics()).into_response()
}
