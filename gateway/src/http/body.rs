//! Reading a JSON body: typed, bounded in length and time, with errors that name the field.

use crate::error::ApiError;
use axum::{
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, StatusCode, header},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, Visitor, value::MapAccessDeserializer},
};
use std::{fmt, marker::PhantomData, time::Duration};
use tokio::time::timeout;

/// What is taken as a request body.
#[derive(Debug, Clone, Copy)]
pub struct BodyRules {
    /// Most bytes.
    pub max: usize,
    /// Time for all of it.
    pub timeout: Duration,
}

impl BodyRules {
    /// The JSON value in the body.
    ///
    /// # Errors
    /// 415 for another type, 413 over the length, 408 when it does not arrive in time, 400 when it is no `T`.
    pub async fn read_json<T: DeserializeOwned>(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<T, ApiError> {
        check_json(headers)?;
        parse(&self.read(body).await?)
    }

    async fn read(&self, body: Body) -> Result<Bytes, ApiError> {
        // An announced length is refused before anything is read.
        if usize::try_from(body.size_hint().lower()).map_or(true, |length| length > self.max) {
            return Err(self.too_large());
        }
        match timeout(self.timeout, Limited::new(body, self.max).collect()).await {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(self.too_large()),
            Ok(Err(error)) => {
                Err(ApiError::bad_request("the body is malformed, or ended early").cause(error))
            }
            Err(_) => {
                let seconds = self.timeout.as_secs_f64();
                let message = format!("the body did not arrive within {seconds} s");
                Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
                    .hint("send it faster, or raise read_timeout in the gateway's configuration"))
            }
        }
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
        let inner = error.into_inner();
        // Without a path, or a part of it, the message names the field itself, or there is none to name.
        let unnamed = field == "." || field.ends_with('?');
        let message = if unnamed { inner.to_string() } else { format!("{field}: {inner}") };
        ApiError::bad_request(message).hint("GET /openapi.json describes the body")
    })?;
    json.end().map_err(|error| ApiError::bad_request(format!("after the JSON value: {error}")))?;
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
