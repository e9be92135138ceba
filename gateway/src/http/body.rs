//! Reading a JSON body: typed, bounded in length, time and, all bodies together, memory, with errors that name
//! the field.

use crate::{
    error::ApiError,
    memory::{Client, Memory, Room},
};
use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, StatusCode, header},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

/// As many bodies of the greatest length fit into the memory that all have together. Beside a body itself there is
/// for a moment what was made of it, so that twice as much is in use, and a third time on its way to the executor.
pub const AT_ONCE: usize = 8;

/// Longest body that is read where all connections are served; a longer one would keep them waiting, bytes.
const AT_HAND: usize = 256 << 10;
/// Longer ones that are read at once, on threads of their own.
const READERS: usize = 2;

/// What is taken as a request body.
#[derive(Debug, Clone)]
pub struct BodyRules {
    max: usize,
    timeout: Duration,
    memory: Memory,
    readers: Arc<Semaphore>,
}

impl BodyRules {
    /// Bodies of at most `max` bytes, each of which has this time to arrive.
    pub fn new(max: usize, timeout: Duration) -> Self {
        let memory = Memory::of(max.saturating_mul(AT_ONCE));
        Self { max, timeout, memory, readers: Arc::new(Semaphore::new(READERS)) }
    }

    /// What is made of the JSON value in the body, and the memory that it has, to be kept as long as that.
    ///
    /// # Errors
    /// 415 for another type, 413 over the length, 408 when it does not arrive in time, 429 when others have too
    /// much memory, 400 when it is no `T`, and what `make` says.
    pub async fn read_json<T: DeserializeOwned, U: Send + 'static>(
        &self,
        headers: &HeaderMap,
        body: Body,
        make: impl FnOnce(T) -> Result<U, ApiError> + Send + 'static,
    ) -> Result<(U, Room), ApiError> {
        check_json(headers)?;
        let (bytes, room) = self.read(body).await?;
        if bytes.len() <= AT_HAND {
            return Ok((make(parse(&bytes)?)?, room));
        }
        let lost =
            |error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", READER_LOST).cause(error);
        let turn =
            Arc::clone(&self.readers).acquire_owned().await.map_err(|error| lost(error.to_string()))?;
        // The room stays with the bytes, even when the client has gone.
        let read = move || {
            let made = parse(&bytes).and_then(make);
            drop((bytes, turn));
            made.map(|made| (made, room))
        };
        spawn_blocking(read).await.map_err(|error| lost(error.to_string()))?
    }

    async fn read(&self, body: Body) -> Result<(Vec<u8>, Room), ApiError> {
        // An announced length is refused before anything is read.
        if usize::try_from(body.size_hint().lower()).map_or(true, |length| length > self.max) {
            return Err(self.too_large());
        }
        timeout(self.timeout, self.collect(body)).await.unwrap_or_else(|_| {
            let seconds = self.timeout.as_secs_f64();
            let message = format!("the body did not arrive within {seconds} s");
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
                .hint("send it faster, or raise read_timeout in the gateway's configuration"))
        })
    }

    async fn collect(&self, body: Body) -> Result<(Vec<u8>, Room), ApiError> {
        let mut body = Limited::new(body, self.max);
        let (mut bytes, mut room) = (Vec::new(), self.memory.room(Client::Anybody));
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    self.too_large()
                } else {
                    ApiError::bad_request("the body is malformed, or ended early")
                        .hint("send as many bytes as Content-Length says, or whole chunks, and wait for the answer")
                        .cause(error)
                }
            })?;
            let data = frame.into_data().unwrap_or_default();
            if !room.grow(bytes.len() + data.len()) {
                let message = "the bodies of other requests have all the memory that there is for them";
                let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "busy", message);
                return Err(error.hint("try again, or send fewer large bodies at once"));
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, room))
    }

    fn too_large(&self) -> ApiError {
        let message = format!("the body is over the limit of {} bytes", self.max);
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
            .hint("send less, or raise body_max in the gateway's configuration")
    }
}

/// Asking for the type also keeps foreign pages out: a browser sends JSON across sites only after asking.
fn check_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = value.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "content-type: a JSON body is wanted";
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
        .hint("send `Content-Type: application/json`"))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let Object(value) = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = error.path().to_string();
        // serde names the type of the program.
        let inner =
            error.into_inner().to_string().replace("expected u64", "expected a whole number from 0 on");
        // Without a path, or a part of it, the message names the field itself, or there is none to name.
        let unnamed = field == "." || field.ends_with('?');
        let message = if unnamed { inner } else { format!("{field}: {inner}") };
        let many = message.contains(TOO_MANY);
        let hint = if many {
            "send fewer; large data goes as stdin"
        } else {
            "GET /openapi.json describes the body"
        };
        ApiError::bad_request(message).hint(hint)
    })?;
    json.end().map_err(|error| {
        ApiError::bad_request(format!("after the JSON value: {error}")).hint("send one JSON object alone")
    })?;
    Ok(value)
}

const READER_LOST: &str = "the body could not be read";
const TOO_MANY: &str = "more entries than the limit of";

/// A list is too long.
pub(super) fn too_many<E: de::Error>(most: usize) -> E {
    E::custom(format!("has {TOO_MANY} {most}"))
}

/// A list of at most `MOST` entries; what follows them is not read.
#[derive(Debug)]
pub struct Listed<T, const MOST: usize>(pub Vec<T>);

impl<T, const MOST: usize> Default for Listed<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Listed<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T, const MOST: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Entries<T, MOST> {
            type Value = Listed<T, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(entry) = entries.next_element()? {
                    if list.len() == MOST {
                        return Err(too_many(MOST));
                    }
                    list.push(entry);
                }
                Ok(Listed(list))
            }
        }

        deserializer.deserialize_seq(Entries(PhantomData))
    }
}

/// A struct from a JSON object and nothing else: serde takes an array for one as well, field by field.
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Fields(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::SMALL;

    #[tokio::test]
    async fn a_long_body_is_read_while_connections_are_served() {
        let rules = BodyRules::new(1 << 20, Duration::from_secs(9));
        let json = HeaderMap::from_iter([(header::CONTENT_TYPE, "application/json".parse().unwrap())]);
        let body = serde_json::json!({ "x": "x".repeat(AT_HAND) }).to_string();
        let (served, word) = std::sync::mpsc::channel();
        let make = move |_: serde_json::Value| {
            word.recv_timeout(Duration::from_secs(20)).map_err(|_| ApiError::bad_request("nobody was served"))
        };
        // One thread is all that this test has for both.
        let serve = async { served.send(()).unwrap() };
        let (read, ()) = tokio::join!(rules.read_json(&json, Body::from(body), make), serve);
        assert!(read.is_ok());
    }

    #[tokio::test]
    async fn all_bodies_together_have_so_much_memory_and_small_ones_need_none() {
        let rules = BodyRules::new(1 << 20, Duration::from_secs(9));
        let read = |length: usize| rules.read(Body::from(vec![b'x'; length]));
        let mut held = Vec::new();
        for _ in 0..AT_ONCE {
            held.push(read(1 << 20).await.unwrap());
        }
        let refused = read(1 << 20).await.unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.code), (429, "busy"));
        assert_eq!(read(SMALL).await.unwrap().0.len(), SMALL);
        held.pop();
        let (bytes, room) = read(1 << 20).await.unwrap();
        // Whoever has none of the body any more may keep the room.
        drop(bytes);
        assert_eq!(read(1 << 20).await.unwrap_err().code, "busy");
        drop(room);
        assert!(read(1 << 20).await.is_ok());
    }
}
