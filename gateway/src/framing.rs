//! Where a request ends must be said once and plainly: else a proxy in front may take for one request what the gateway
//! takes for two, and somebody's second one passes the proxy's checks unseen (RFC 9112, 11.2).
//!
//! hyper answers much of this itself, but takes away a length that stands beside chunks, lets any coding stand before
//! `chunked`, and takes a bare line feed for the end of a line. Of that nothing can be seen in what it hands over, so the
//! lines of a head are looked at here, on their way to it.

use crate::{error::ApiError, watched::Watch};
use axum::{extract::Request, middleware::Next, response::Response};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

/// What makes it unclear where a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unclear {
    /// It says so in two ways, of which a proxy may follow the other (6.1).
    Twice,
    /// Its coding is another than `chunked` alone (6.1).
    Coding,
    /// A proxy may not take a bare line feed for the end of a line (2.2).
    BareLineFeed,
    /// hyper has found a head where there was none.
    Unseen,
}

impl Unclear {
    fn message(self) -> &'static str {
        match self {
            Self::Twice => "a request has Content-Length or Transfer-Encoding, not both (RFC 9112, 6.1)",
            Self::Coding => "Transfer-Encoding can only be `chunked`, once (RFC 9112, 6.1)",
            Self::BareLineFeed => "lines of a request's head end with CR and LF (RFC 9112, 2.2)",
            Self::Unseen => "it is unclear where this request begins",
        }
    }
}

/// Of each head that has come, and that hyper has not handed over yet, what is unclear about it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Framing(Arc<Mutex<VecDeque<Option<Unclear>>>>);

impl Framing {
    /// Of the next one.
    pub(crate) fn next(&self) -> Option<Unclear> {
        let next = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.unwrap_or(Some(Unclear::Unseen))
    }

    fn add(&self, unclear: Option<Unclear>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(unclear);
    }
}

/// Answers 400 when it is unclear where the request ends.
///
/// # Errors
/// 400 `bad_request`.
pub(crate) async fn require_clear(request: Request, next: Next) -> Result<Response, ApiError> {
    match request.extensions().get::<Unclear>() {
        None => Ok(next.run(request).await),
        Some(unclear) => Err(ApiError::bad_request(unclear.message()).hint(
            "send a Content-Length and no Transfer-Encoding; a proxy in front has to see to that as well",
        )),
    }
}

/// Follows what is read of a connection from head to head.
#[derive(Debug)]
pub(crate) struct Heads {
    framing: Framing,
    /// As much of a line as has come.
    line: Vec<u8>,
    head: Head,
    /// Bytes of a body that are still to come.
    body: u64,
    /// No request follows.
    last: bool,
}

/// What a head has said so far.
#[derive(Debug, Default)]
struct Head {
    begun: bool,
    /// A line ended without CR.
    bare: bool,
    /// It has a length, whether or not that is one.
    measured: bool,
    length: u64,
    codings: u32,
    /// The last coding was `chunked` alone.
    chunked: bool,
}

impl Heads {
    /// Of a connection from which nothing has been read.
    pub(crate) fn new(framing: Framing) -> Self {
        Self { framing, line: Vec::new(), head: Head::default(), body: 0, last: false }
    }

    fn take_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let plain = text.strip_suffix(b"\r");
        self.head.bare |= plain.is_none();
        match (plain.unwrap_or(text), self.head.begun) {
            // May stand before a request (2.2).
            (b"", false) => {}
            (b"", true) => self.end_head(),
            (_, false) => self.head.begun = true,
            (field, true) => self.head.take(field),
        }
    }

    fn end_head(&mut self) {
        let head = std::mem::take(&mut self.head);
        let unclear = head.unclear();
        self.framing.add(unclear);
        self.body = head.length;
        self.last = unclear.is_some() || head.codings > 0;
    }
}

impl Head {
    /// A field; one that hyper would not take ends the connection there.
    fn take(&mut self, field: &[u8]) {
        let Some(colon) = field.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (&field[..colon], field[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            self.measured = true;
            self.length = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok()).unwrap_or(0);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.codings += 1;
            self.chunked = value.eq_ignore_ascii_case(b"chunked");
        }
    }

    fn unclear(&self) -> Option<Unclear> {
        match self.codings {
            1.. if self.measured => Some(Unclear::Twice),
            1 if !self.chunked => Some(Unclear::Coding),
            2.. => Some(Unclear::Coding),
            _ => self.bare.then_some(Unclear::BareLineFeed),
        }
    }
}

impl Watch for Heads {
    fn read(&mut self, mut data: &[u8]) {
        while !self.last && !data.is_empty() {
            if self.body > 0 {
                let skipped = usize::try_from(self.body).map_or(data.len(), |body| body.min(data.len()));
                self.body -= skipped as u64;
                data = &data[skipped..];
                continue;
            }
            let end = data.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let (piece, rest) = data.split_at(end.unwrap_or(data.len()));
            self.line.extend(piece);
            data = rest;
            if end.is_some() {
                self.take_line();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is unclear about each head in these bytes, which come in pieces of so many.
    fn heads(bytes: &str, pieces: usize) -> Vec<Option<Unclear>> {
        let framing = Framing::default();
        let mut heads = Heads::new(framing.clone());
        bytes.as_bytes().chunks(pieces).for_each(|piece| heads.read(piece));
        let found = framing.0.lock().unwrap().drain(..).collect();
        assert_eq!(framing.next(), Some(Unclear::Unseen), "there is no further one");
        found
    }

    #[test]
    fn each_head_is_found_however_it_comes_and_nothing_in_a_body_is_one() {
        let get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        let post = format!("\r\n\r\nPOST / HTTP/1.1\r\nCONTENT-length:\t {}  \r\n\r\n{get}", get.len());
        let chunks = "POST / HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\n";
        let bytes = format!("{get}{post}{get}{post}{chunks}{get}");
        for pieces in 1..=bytes.len() {
            assert_eq!(heads(&bytes, pieces), [None; 5], "{pieces}");
        }
    }

    #[test]
    fn after_one_that_is_unclear_nothing_is_a_head() {
        let (length, chunks) = ("Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n");
        for (fields, unclear) in [
            (format!("{length}{chunks}"), Unclear::Twice),
            (format!("{chunks}{length}"), Unclear::Twice),
            // hyper looks at no length that comes after.
            (format!("{chunks}Content-Length: x\r\n"), Unclear::Twice),
            (format!("{chunks}{chunks}"), Unclear::Coding),
            ("Transfer-Encoding: gzip, chunked\r\n".into(), Unclear::Coding),
            ("X: a\n".into(), Unclear::BareLineFeed),
            (format!("X: a\n{chunks}"), Unclear::BareLineFeed),
        ] {
            let bytes = format!("GET / HTTP/1.1\r\n{fields}\r\nGET / HTTP/1.1\r\n\r\n");
            assert_eq!(heads(&bytes, 7), [Some(unclear)], "{fields}");
        }
    }
}
