//! `GET /openapi.json`: the description of this interface, made from the handlers and types themselves.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use std::sync::Arc;
use utoipa::{
    OpenApi,
    openapi::{
        OpenApi as Document,
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

#[derive(OpenApi)]
#[openapi(info(
    title = "Cordon gateway",
    description = "Runs commands in a sandbox. Over TCP every request but /healthz shows the token; the Unix \
                   socket needs none. Every failure has the body {\"error\": {code, message, hint}}."
))]
struct Base;

/// The description without its paths: title, version, and the two ways to show the token.
pub fn base() -> Document {
    let mut document = Base::openapi();
    let components = document.components.get_or_insert_default();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    let key = ApiKey::Header(ApiKeyValue::new("x-api-key"));
    components.add_security_scheme("key", SecurityScheme::ApiKey(key));
    document
}

/// The description as JSON.
pub async fn serve(document: Arc<Document>) -> Response {
    Json(&*document).into_response()
}
