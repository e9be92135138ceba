//! Reading a JSON body: typed, bounded in length, time and, all bodies together, memory, with errors that name
//! the field.

use crate::{
    error::ApiError,
    memory::{Memory, Room},
};
use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, StatusCode, header},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, Visitor, value::MapAccessDeserializer},
};
use std::{fmt, marker::PhantomData, time::Duration};
use tokio::time::timeout;

/// As many bodies of the greatest length fit into the memory that all have together. Beside a body itself there is
/// for a moment what was made of it, so that twice as much is in use, and a third time on its way to the executor.
pub const AT_ONCE: usize = 8;

/// What is taken as a request body.
#[derive(Debug, Clone)]
pub struct BodyRules {
    max: usize,
    timeout: Duration,
    memory: Memory,
}

impl BodyRules {
    /// Bodies of at most `max` bytes, each of which has this time to arrive.
    pub fn new(max: usize, timeout: Duration) -> Self {
        Self { max, timeout, memory: Memory::of(max.saturating_mul(AT_ONCE)) }
    }

    /// The JSON value in the body, and the memory that it has, to be kept as long as the value.
    ///
    /// # Errors
    /// 415 for another type, 413 over the length, 408 when it does not arrive in time, 429 when others have too
    /// much memory, 400 when it is no `T`.
    pub async fn read_json<T: DeserializeOwned>(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(T, Room), ApiError> {
        check_json(headers)?;
        let (bytes, room) = self.read(body).await?;
        Ok((parse(&bytes)?, room))
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
        let (mut bytes, mut room) = (Vec::new(), self.memory.room());
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
        ApiError::bad_request(message).hint("GET /openapi.json describes the body")
    })?;
    json.end().map_err(|error| {
        ApiError::bad_request(format!("after the JSON value: {error}")).hint("send one JSON object alone")
    })?;
    Ok(value)
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
