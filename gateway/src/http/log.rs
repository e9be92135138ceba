//! One log line a request: method, path, status and time. Never a header, a query or a body.

use axum::{extract::Request, http::Method, middleware::Next, response::Response};
use std::time::Instant;

/// Status that is logged where the client left before its answer; it is never sent.
const CLIENT_LEFT: u16 = 499;

/// Logs when the answer begins, or when nobody waits for it any more.
pub async fn log_request(request: Request, next: Next) -> Response {
    let line = Line {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        since: Instant::now(),
        status: CLIENT_LEFT,
    };
    let mut line = line;
    let response = next.run(request).await;
    line.status = response.status().as_u16();
    response
}

/// Written when it is dropped, which happens as well when the client leaves.
struct Line {
    method: Method,
    path: String,
    since: Instant,
    status: u16,
}

impl Drop for Line {
    fn drop(&mut self) {
        let Self { method, path, since, status } = self;
        tracing::info!("{method} {path} {status} {:.1} ms", since.elapsed().as_secs_f64() * 1e3);
    }
}
