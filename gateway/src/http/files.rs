//! Files in a request: text or base64, with permission bits in octal.

use super::body::Object;
use crate::error::ApiError;
use base64::{Engine, engine::general_purpose::STANDARD};
use cordon_protocol::{Bytes, FileIn, limits};
use serde::{
    Deserialize, Deserializer,
    de::{self, Unexpected, Visitor},
};
use std::fmt;
use utoipa::ToSchema;

/// A file that is put into the workspace before the command starts: exactly one of `content` and `base64`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileField {
    /// Path relative to the workspace, without `..`. Missing directories are made, a file that is there is replaced.
    #[schema(example = "src/main.py")]
    path: String,
    /// What is to be in it, as text.
    content: Option<String>,
    /// What is to be in it, in base64 (RFC 4648, 4, with padding).
    base64: Option<String>,
    /// Permission bits in octal as text, as `chmod` takes them; `0644` where there are none.
    #[schema(value_type = Option<String>, example = "0755")]
    mode: Option<Mode>,
}

/// Permission bits, written as text: JSON has no octal numbers, and 644 is not 0644.
#[derive(Debug)]
struct Mode(u32);

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Octal;

        impl Visitor<'_> for Octal {
            type Value = Mode;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("permission bits in octal as text, \"0644\" for instance")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Mode, E> {
                let digits = !text.is_empty() && text.bytes().all(|b| matches!(b, b'0'..=b'7'));
                let bits = u32::from_str_radix(text, 8).ok().filter(|_| digits);
                bits.map(Mode).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_str(Octal)
    }
}

/// The files as the executor takes them. What does not fit into a frame does not travel; everything else is the
/// executor's to refuse.
///
/// # Errors
/// 400 with the field's name.
pub fn into_files(fields: Vec<Object<FileField>>) -> Result<Vec<FileIn>, ApiError> {
    if fields.len() > limits::FILES_MAX {
        let message = format!("files: has {} entries, the limit is {}", fields.len(), limits::FILES_MAX);
        return Err(ApiError::bad_request(message).hint("send a tar archive as stdin, or several requests"));
    }
    let mut files = Vec::with_capacity(fields.len());
    let mut total = 0;
    for (index, Object(field)) in fields.into_iter().enumerate() {
        let file = field.into_file(index)?;
        total += file.content.len();
        files.push(file);
    }
    if total > limits::FILES_BYTES_MAX {
        let most = Bytes(limits::FILES_BYTES_MAX as u64);
        let message = format!("files: has {total} bytes of content together, the limit is {most}");
        return Err(
            ApiError::bad_request(message).hint("send large content as stdin, or in several requests")
        );
    }
    Ok(files)
}

impl FileField {
    fn into_file(self, index: usize) -> Result<FileIn, ApiError> {
        let field = format!("files[{index}]");
        let content = match (self.content, self.base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => STANDARD.decode(text).map_err(|error| {
                ApiError::bad_request(format!("{field}.base64: not base64: {error}"))
                    .hint("encode it as RFC 4648, 4 says, with padding, or send text as `content`")
            })?,
            (both, _) => {
                let problem =
                    if both.is_some() { "only one of them can be" } else { "one of them is needed" };
                return Err(ApiError::bad_request(format!("{field}: content and base64: {problem}"))
                    .hint("send text as `content`, other bytes as `base64`"));
            }
        };
        Ok(FileIn { path: self.path, content, mode: self.mode.map(|mode| mode.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(json: &str) -> Result<Vec<FileIn>, String> {
        let fields = serde_json::from_str(json).map_err(|error| error.to_string())?;
        into_files(fields).map_err(|error| error.message)
    }

    #[test]
    fn text_and_bytes_become_content_and_octal_becomes_bits() {
        let file =
            |path: &str, content: &[u8], mode| FileIn { path: path.into(), content: content.into(), mode };
        let read = files(
            r#"[{"path":"a","content":"ü"},{"path":"b","base64":"/wA=","mode":"0755"},{"path":"c","content":"","mode":"600"}]"#,
        );
        let wanted = [
            file("a", "ü".as_bytes(), None),
            file("b", &[0xff, 0], Some(0o755)),
            file("c", b"", Some(0o600)),
        ];
        assert_eq!(read.unwrap(), wanted);
    }

    #[test]
    fn what_is_unclear_is_refused_by_name() {
        for (json, says) in [
            (r#"[{"path":"a"}]"#, "files[0]: content and base64: one of them is needed"),
            (r#"[{"path":"a","content":"","base64":""}]"#, "files[0]: content and base64: only one"),
            (r#"[{"path":"a","base64":"*"}]"#, "files[0].base64: not base64"),
            (
                r#"[{"path":"a","content":"","mode":420}]"#,
                "expected permission bits in octal as text, \"0644\"",
            ),
            (r#"[{"path":"a","content":"","mode":"0888"}]"#, "expected permission bits in octal"),
            (r#"[{"path":"a","content":"","mode":"+644"}]"#, "expected permission bits in octal"),
            (r#"[{"path":"a","content":"","mode":""}]"#, "expected permission bits in octal"),
            (r#"[{"path":"a","content":"","mode":"77777777777777"}]"#, "expected permission bits in octal"),
            (r#"[{"content":""}]"#, "missing field `path`"),
            (r#"[{"path":"a","content":"","owner":"root"}]"#, "unknown field `owner`"),
            (r#"[["a",""]]"#, "expected a JSON object"),
        ] {
            let error = files(json).unwrap_err();
            assert!(error.contains(says), "{json}: {error}");
        }
    }

    #[test]
    fn what_would_not_fit_into_a_frame_stays_here() {
        let one = |size: usize| {
            Object(FileField { path: "a".into(), content: Some("x".repeat(size)), base64: None, mode: None })
        };
        let refused = |fields| into_files(fields).unwrap_err().message;
        let many = (0..=limits::FILES_MAX).map(|_| one(0)).collect();
        assert_eq!(refused(many), "files: has 257 entries, the limit is 256");
        let large = vec![one(limits::FILES_BYTES_MAX), one(1)];
        assert_eq!(refused(large), "files: has 12582913 bytes of content together, the limit is 12M");
        assert!(into_files(vec![one(limits::FILES_BYTES_MAX)]).is_ok());
    }
}
