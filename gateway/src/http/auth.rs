//! The token that TCP clients show. On the Unix socket the file permissions have decided already.

use super::Door;
use crate::{error::ApiError, token::Token};
use axum::{
    extract::{Extension, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::Response,
};
use std::{path::Path, sync::Arc};

/// The token, and what whoever lacks it is told.
#[derive(Debug)]
pub struct Guard {
    token: Token,
    hint: String,
}

impl Guard {
    /// Asks for this token, which is in that file.
    pub fn new(token: Token, file: &Path) -> Self {
        let hint = format!(
            "send `Authorization: Bearer TOKEN` or `x-api-key: TOKEN`; the token is in {}",
            file.display()
        );
        Self { token, hint }
    }
}

/// Answers 401 over TCP unless the request shows the token.
///
/// # Errors
/// 401 `unauthorized`.
pub async fn require_token(
    State(guard): State<Arc<Guard>>,
    Extension(door): Extension<Door>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if door == Door::Unix || shows_token(&guard.token, request.headers()) {
        return Ok(next.run(request).await);
    }
    Err(ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", "the token is missing or wrong")
        .hint(guard.hint.as_str()))
}

fn shows_token(token: &Token, headers: &HeaderMap) -> bool {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    let key = headers.get("x-api-key").map(|value| value.as_bytes());
    [bearer, key].into_iter().flatten().any(|shown| token.matches(shown))
}

/// The token in `Bearer TOKEN`; the scheme is in any case (RFC 9110, 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn shown(name: &'static str, value: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        shows_token(&Token::new(TOKEN).unwrap(), &headers)
    }

    #[test]
    fn either_header_will_do_and_nothing_else() {
        assert!(shown("authorization", &format!("Bearer {TOKEN}")));
        assert!(shown("authorization", &format!("bEARER  {TOKEN}")));
        assert!(shown("x-api-key", TOKEN));
        for value in [TOKEN, &format!("Basic {TOKEN}"), "Bearer ", "Bearer", "", &format!("Bearer {TOKEN}x")]
        {
            assert!(!shown("authorization", value), "{value}");
        }
        assert!(!shown("x-api-key", &format!("Bearer {TOKEN}")));
        assert!(!shown("cookie", TOKEN));
        assert!(!shows_token(&Token::new(TOKEN).unwrap(), &HeaderMap::new()));
    }
}
