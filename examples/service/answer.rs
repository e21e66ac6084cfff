//! How requests are answered.

use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::engine::Refused;

/// `{"error": …}` with a status.
pub(crate) fn error(status: StatusCode, why: impl Into<String>) -> Response {
    (status, Json(json!({ "error": why.into() }))).into_response()
}

/// The same for one who may come again in a second.
fn busy(status: StatusCode, why: &str) -> Response {
    let later: [(HeaderName, &str); 1] = [(RETRY_AFTER, "1")];
    (later, error(status, why)).into_response()
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::Invalid(why) => error(StatusCode::UNPROCESSABLE_ENTITY, why),
            Self::Conflict => error(StatusCode::CONFLICT, "this id is another delivery's"),
            Self::SubscriberFull => {
                busy(StatusCode::TOO_MANY_REQUESTS, "this subscriber has too many in hand")
            }
            Self::Full => busy(StatusCode::SERVICE_UNAVAILABLE, "too many deliveries in hand"),
            Self::Stopping => busy(StatusCode::SERVICE_UNAVAILABLE, "the service is stopping"),
            Self::NoSuchLetter => error(StatusCode::NOT_FOUND, "no dead letter has this id"),
        }
    }
}
