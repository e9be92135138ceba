//! What a client is told when something is wrong, apart from what the log is told.

use crate::http::answer::Json;
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use cordon_protocol::{
    Refusal, RefusalCode, client::ClientError, codec::FrameError, supervision::Supervision,
};
use serde::Serialize;
use std::{error::Error, io};
use utoipa::ToSchema;

/// Body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong.
    pub error: ErrorDetail,
}

/// What is wrong: for programs, for people, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ErrorDetail {
    /// For programs (`bad_request`, `busy` …).
    pub code: String,
    /// For people.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// A failed request: status and public text, and the cause that only the log sees.
#[derive(Debug, thiserror::Error)]
#[error("{status} {code}: {message}")]
pub struct ApiError {
    /// HTTP status.
    pub status: StatusCode,
    /// For programs.
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

/// Seconds after which a busy executor is worth another try.
const RETRY_AFTER_S: u16 = 1;

impl ApiError {
    /// An error without a hint or cause.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), hint: None, cause: None }
    }

    /// A malformed request, 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With what the log is told.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// The public part; the cause goes to the log.
    pub fn into_body(self) -> ErrorBody {
        if let Some(cause) = &self.cause {
            tracing::warn!("{}: {cause}", self.message);
        }
        ErrorBody {
            error: ErrorDetail { code: self.code.to_owned(), message: self.message, hint: self.hint },
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status;
        let mut response = (status, Json(self.into_body())).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER_S.into());
        }
        response
    }
}

impl From<Refusal> for ApiError {
    /// The executor writes refusals for its peers, so that they are passed on as they are.
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.code {
            RefusalCode::BadRequest | RefusalCode::UnknownProfile | RefusalCode::LimitRefused => {
                StatusCode::BAD_REQUEST
            }
            RefusalCode::NotAllowed => StatusCode::FORBIDDEN,
            RefusalCode::NotFound => StatusCode::NOT_FOUND,
            RefusalCode::Busy => StatusCode::TOO_MANY_REQUESTS,
            RefusalCode::ShuttingDown | RefusalCode::Timeout => StatusCode::SERVICE_UNAVAILABLE,
            // The gateway's own frames are at fault, or the executor is: not the client.
            RefusalCode::BadFrame
            | RefusalCode::BadVersion
            | RefusalCode::OutOfOrder
            | RefusalCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut error = Self::new(status, refusal.code.as_str(), refusal.message);
        error.hint = refusal.hint;
        error
    }
}

impl From<ClientError> for ApiError {
    fn from(error: ClientError) -> Self {
        // The executor is started as the gateway is.
        let supervision = Supervision::of_this_process();
        let new = |status, code, message: &str, hint: &str| Self::new(status, code, message).hint(hint);
        let away = |message, hint: &str, cause: ClientError| {
            new(StatusCode::SERVICE_UNAVAILABLE, "executor_unavailable", message, hint).cause(cause)
        };
        match error {
            ClientError::Refused(refusal) => refusal.into(),
            ClientError::Connect { ref source, .. } => match source.kind() {
                // A full queue of connections (unix(7), EAGAIN) is load, not absence.
                io::ErrorKind::WouldBlock => new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "busy",
                    "the executor accepts no more connections now",
                    "try again",
                ),
                io::ErrorKind::PermissionDenied => away(
                    "the gateway may not connect to the executor",
                    "add the gateway's user to the group of the executor's socket",
                    error,
                ),
                _ => away(
                    "the executor cannot be reached",
                    &format!("start it (`{}`) and try again", supervision.start_executor()),
                    error,
                ),
            },
            ClientError::Closed | ClientError::Frame(FrameError::Io(_) | FrameError::Truncated) => away(
                "the executor went away before the report; whether the command had ended is not known",
                &format!("look at the executor's log ({}) and try again", supervision.executor_log()),
                error,
            ),
            ClientError::Frame(_) | ClientError::Unexpected => new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "the executor's answer was not understood",
                "gateway and executor may be of different versions; restart both",
            )
            .cause(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_status_and_keeps_its_words() {
        for (code, status) in [
            (RefusalCode::BadRequest, 400),
            (RefusalCode::UnknownProfile, 400),
            (RefusalCode::LimitRefused, 400),
            (RefusalCode::NotAllowed, 403),
            (RefusalCode::NotFound, 404),
            (RefusalCode::Busy, 429),
            (RefusalCode::ShuttingDown, 503),
            (RefusalCode::Timeout, 503),
            (RefusalCode::Internal, 500),
            (RefusalCode::BadVersion, 500),
        ] {
            let refusal = Refusal { code, message: "words".into(), hint: Some("do".into()) };
            let error = ApiError::from(ClientError::Refused(refusal));
            assert_eq!((error.status.as_u16(), error.code), (status, code.as_str()));
            assert_eq!((error.message.as_str(), error.hint.as_deref()), ("words", Some("do")));
        }
    }

    #[test]
    fn the_cause_stays_private() {
        let source = io::Error::other("secret detail");
        let error = ApiError::from(ClientError::Connect { path: "/run/secret".into(), source });
        let body = serde_json::to_string(&error.into_body()).unwrap();
        assert!(body.contains("executor_unavailable") && !body.contains("secret"), "{body}");
    }
}
