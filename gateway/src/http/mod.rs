//! The HTTP side: which paths there are, and which checks stand before them.
//!
//! Every request passes, in this order: the log line, whether it is clear where it ends, Host and Origin (on every
//! path, so that no foreign site can even ask whether a gateway runs here), the token (all but `/healthz`), then the
//! route itself.

pub mod answer;
pub mod auth;
pub mod body;
pub mod exec;
pub mod files;
pub mod health;
pub mod log;
pub mod openapi;
pub mod origin;
pub mod stream;
pub mod workspaces;

use crate::{error::ApiError, executor::Executor, framing};
use axum::{
    Router,
    http::{HeaderValue, Method, StatusCode, Uri, header},
    middleware::{from_fn, from_fn_with_state, map_response},
    response::Response,
    routing::get,
};
use std::sync::Arc;
use utoipa_axum::{router::OpenApiRouter, routes};

/// Which way a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// TCP: anybody on this host (or further away) may knock.
    Tcp {
        /// The gateway's port.
        port: u16,
    },
    /// The Unix socket: its file permissions have let the client in.
    Unix,
}

/// What the handlers work with.
#[derive(Debug, Clone)]
pub struct Gateway {
    /// Where commands run.
    pub executor: Executor,
    /// What is taken as a request body.
    pub body: body::BodyRules,
    /// What reports may take until they are taken.
    pub reports: answer::Reports,
    /// Whether the executor is there.
    pub probe: Arc<health::Probe>,
}

/// Every route behind its checks.
pub fn router(gateway: Gateway, guard: auth::Guard, allowed: origin::AllowList) -> Router {
    let (guarded, open, document) = routes_and_document();
    let document = Arc::new(document);
    let guarded = guarded
        .with_state(gateway.clone())
        .route("/openapi.json", get(move || openapi::serve(Arc::clone(&document))))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::new(guard), auth::require_token));
    let open = open.with_state(gateway).method_not_allowed_fallback(method_not_allowed);
    guarded
        .merge(open)
        .layer(from_fn_with_state(Arc::new(allowed), origin::require_allowed))
        .layer(from_fn(framing::require_clear))
        .layer(map_response(harden))
        .layer(from_fn(log::log_request))
}

/// The guarded routes, the open ones, and the description of both.
fn routes_and_document() -> (Router<Gateway>, Router<Gateway>, utoipa::openapi::OpenApi) {
    let (guarded, mut document) = OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(exec::exec))
        .routes(routes!(workspaces::list))
        .routes(routes!(workspaces::show, workspaces::delete))
        .split_for_parts();
    let (open, health) = OpenApiRouter::new().routes(routes!(health::healthz)).split_for_parts();
    document.merge(health);
    (guarded, open, document)
}

/// The description of the whole interface.
pub fn document() -> utoipa::openapi::OpenApi {
    routes_and_document().2
}

async fn not_found(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("there is nothing at {}", uri.path()))
        .hint("GET /openapi.json lists what there is")
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let message = format!("{method} is not for {}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
        .hint("the Allow header and GET /openapi.json say which method is")
}

/// Output of commands is never guessed to be something a browser would run, nor kept.
async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
