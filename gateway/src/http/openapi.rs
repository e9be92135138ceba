//! `GET /openapi.json`: the description of this interface, made from the handlers and types themselves.

use super::answer::Json;
use super::stream::{OutputEvent, QueuedEvent, StartedEvent};
use crate::error::ErrorBody;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use utoipa::{
    OpenApi,
    openapi::{
        OpenApi as Document,
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Cordon gateway",
        description = "Runs commands in a sandbox. Over TCP every request but /healthz shows the token; the \
                       Unix socket needs none. Every failure has the body {\"error\": {code, message, hint}}."
    ),
    paths(serve),
    components(schemas(QueuedEvent, StartedEvent, OutputEvent))
)]
struct Base;

/// The description without the other modules' paths: title, version, the two ways to show the token, and
/// what no path refers to.
pub fn base() -> Document {
    let mut document = Base::openapi();
    let components = document.components.get_or_insert_default();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    let key = ApiKey::Header(ApiKeyValue::new("x-api-key"));
    components.add_security_scheme("key", SecurityScheme::ApiKey(key));
    document
}

/// This description.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "operation",
    security(("bearer" = []), ("key" = [])),
    responses(
        (status = 200, description = "OpenAPI 3.1", body = serde_json::Value),
        (status = 401, description = "Token missing or wrong", body = ErrorBody),
        (status = 403, description = "Host or Origin is not allowed", body = ErrorBody),
    )
)]
pub async fn serve(document: Arc<Document>) -> Response {
    Json(&*document).into_response()
}
