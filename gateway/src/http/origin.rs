//! Host and Origin: a browser on this machine must not be talked into sending commands by a foreign site.
//!
//! A page of a foreign site names itself in `Origin`; a foreign name that resolves to 127.0.0.1 (DNS rebinding)
//! shows in `Host`. Neither says who the client is: that is the token's part.

use super::Door;
use crate::error::ApiError;
use axum::{
    extract::{Extension, Request, State},
    http::{HeaderMap, StatusCode, Uri, header},
    middleware::Next,
    response::Response,
};
use std::sync::Arc;

/// Names by which a client on this machine calls the gateway.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Which hosts and origins are accepted beside the loopback ones.
#[derive(Debug)]
pub struct AllowList {
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// Answers 400 or 403 unless Host and Origin are allowed.
///
/// # Errors
/// 400 `bad_request` without exactly one Host; 403 `host_not_allowed` or `origin_not_allowed`.
pub async fn require_allowed(
    State(allowed): State<Arc<AllowList>>,
    Extension(door): Extension<Door>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    allowed.check(door, request.uri(), request.headers())?;
    Ok(next.run(request).await)
}

impl AllowList {
    /// Lower-case hosts (a name, or name:port) and origins, as the configuration checks them.
    pub fn new(hosts: Vec<String>, origins: Vec<String>) -> Self {
        Self { hosts, origins }
    }

    fn check(&self, door: Door, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        // The Unix socket has no name that could be rebound; what stands in Host there is a matter of taste.
        if let Door::Tcp { .. } = door {
            self.check_host(uri, headers)?;
        }
        // A browser comes to the Unix socket only through a proxy, where Origin counts just the same.
        for origin in headers.get_all(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or("?").to_ascii_lowercase();
            if !self.allows_origin(door, &origin) {
                return Err(ApiError::new(
                    StatusCode::FORBIDDEN,
                    "origin_not_allowed",
                    format!("requests from pages of `{}` are not allowed", shorten(&origin)),
                )
                .hint("add it to allowed_origins in the gateway's configuration, if it is to be trusted"));
            }
        }
        Ok(())
    }

    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let mut values = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (values.next(), values.next()) else {
            return Err(ApiError::bad_request("a request has exactly one Host header (RFC 9112, 3.2)")
                .hint("send one, as in `Host: localhost`"));
        };
        let host = host.to_str().unwrap_or("?");
        // A target in absolute form names the host as well, and counts for more than the header.
        let target = uri.authority().map(|authority| authority.as_str());
        for name in [Some(host), target].into_iter().flatten() {
            let name = name.to_ascii_lowercase();
            if !self.allows_host(&name) {
                return Err(ApiError::new(
                    StatusCode::FORBIDDEN,
                    "host_not_allowed",
                    format!("the gateway is not called `{}`", shorten(&name)),
                )
                .hint("call it localhost, or add the name to allowed_hosts in the gateway's configuration"));
            }
        }
        Ok(())
    }

    fn allows_host(&self, host: &str) -> bool {
        let name = without_port(host);
        LOOPBACK_NAMES.contains(&name) || self.hosts.iter().any(|allowed| allowed == host || allowed == name)
    }

    /// The gateway's own pages, whichever loopback name they were called by, and those of the list.
    fn allows_origin(&self, door: Door, origin: &str) -> bool {
        let own = match door {
            Door::Tcp { port } => {
                let host = origin.strip_prefix("http://");
                host.is_some_and(|host| LOOPBACK_NAMES.iter().any(|name| host == format!("{name}:{port}")))
            }
            Door::Unix => false,
        };
        own || self.origins.iter().any(|allowed| allowed == origin)
    }
}

/// The name in `name`, `name:port`, `[v6]` or `[v6]:port`; the whole text where it is none of these.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if !port.is_empty()
                && port.bytes().all(|b| b.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

/// Enough of a foreign text to recognise it.
fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: Door = Door::Tcp { port: 3800 };

    fn allowed() -> AllowList {
        AllowList::new(
            vec!["box.example".into(), "other.example:8443".into()],
            vec!["https://box.example".into()],
        )
    }

    fn check(door: Door, uri: &str, pairs: &[(&'static str, &str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        let checked = allowed().check(door, &uri.parse().unwrap(), &headers);
        checked.map_or_else(|error| error.status.as_u16(), |()| 200)
    }

    #[test]
    fn hosts_over_tcp() {
        for host in [
            "localhost",
            "LocalHost:3800",
            "127.0.0.1",
            "127.0.0.1:9",
            "[::1]",
            "[::1]:3800",
            "box.example",
            "BOX.example:1",
            "other.example:8443",
        ] {
            assert_eq!(check(TCP, "/", &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example",
            "",
            "localhost.",
            "localhost.evil.example",
            "localhost:80:80",
            "localhost:",
            "localhost@evil.example",
            "evil.example:localhost",
            "::1",
            "127.0.0.2",
            "other.example",
            "other.example:1",
            "[::1]evil:80",
        ] {
            assert_eq!(check(TCP, "/", &[("host", host)]), 403, "{host}");
        }
    }

    #[test]
    fn a_host_must_be_there_once_and_the_target_counts_too() {
        assert_eq!(check(TCP, "/", &[]), 400);
        assert_eq!(check(TCP, "/", &[("host", "localhost"), ("host", "localhost")]), 400);
        assert_eq!(check(TCP, "http://evil.example/", &[("host", "localhost")]), 403);
        assert_eq!(check(TCP, "http://localhost:3800/", &[("host", "localhost:3800")]), 200);
        assert_eq!(check(TCP, "http://localhost/", &[("host", "evil.example")]), 403);
    }

    #[test]
    fn origins() {
        let with = |door, origin| check(door, "/", &[("host", "localhost"), ("origin", origin)]);
        for origin in [
            "http://localhost:3800",
            "http://127.0.0.1:3800",
            "http://[::1]:3800",
            "https://box.example",
            "HTTPS://BOX.example",
        ] {
            assert_eq!(with(TCP, origin), 200, "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://evil.example",
            "http://localhost",
            "http://localhost:3801",
            "https://localhost:3800",
            "http://localhost:3800.evil.example",
            "https://box.example.evil.example",
            "http://box.example",
        ] {
            assert_eq!(with(TCP, origin), 403, "{origin}");
        }
        let both =
            [("host", "localhost"), ("origin", "http://localhost:3800"), ("origin", "http://evil.example")];
        assert_eq!(check(TCP, "/", &both), 403);
    }

    #[test]
    fn on_the_unix_socket_any_host_will_do_but_not_any_origin() {
        assert_eq!(check(Door::Unix, "/", &[]), 200);
        assert_eq!(check(Door::Unix, "/", &[("host", "evil.example")]), 200);
        assert_eq!(check(Door::Unix, "/", &[("origin", "http://evil.example")]), 403);
        assert_eq!(check(Door::Unix, "/", &[("origin", "http://localhost:3800")]), 403);
        assert_eq!(check(Door::Unix, "/", &[("origin", "https://box.example")]), 200);
    }
}
