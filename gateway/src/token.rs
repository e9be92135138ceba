//! The secret that TCP clients must show. There is no default: without its own the gateway does not start.

use crate::user::unreadable;
use cordon_protocol::counted;
use std::{
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use subtle::ConstantTimeEq;

/// Least length of a token, characters: 32 hexadecimal ones are 128 bits.
pub const TOKEN_MIN: usize = 32;
/// Longest token, characters; a longer file is not a token.
const TOKEN_MAX: u64 = 4096;

/// A token that has been checked. Never shown.
#[derive(Clone)]
pub struct Token(String);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Cannot be read.
    #[error("token_file {}: {}", path.display(), unreadable(source, "; make one with `openssl rand -hex 32`"))]
    Read {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Others could have read or replaced it.
    #[error("token_file {}: every user of this host can reach it; chmod o-rwx", path.display())]
    Exposed {
        /// Path.
        path: PathBuf,
    },
    /// Too short, too long, or not sendable in a header.
    #[error("token_file {}: {problem}; make one with `openssl rand -hex 32`", path.display())]
    Unfit {
        /// Path.
        path: PathBuf,
        /// What is wrong, without the token.
        problem: String,
    },
}

impl Token {
    /// Reads the token; white space around it is not part of it.
    ///
    /// # Errors
    /// As [`TokenError`] says.
    pub fn load(path: &Path) -> Result<Self, TokenError> {
        let read = |source| TokenError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read)?;
        // Of the open file, so that it is the one that is read.
        let meta = file.metadata().map_err(read)?;
        if meta.mode() & 0o007 != 0 {
            return Err(TokenError::Exposed { path: path.to_owned() });
        }
        let mut text = String::new();
        file.take(TOKEN_MAX + 1).read_to_string(&mut text).map_err(read)?;
        Self::new(text.trim()).map_err(|problem| TokenError::Unfit { path: path.to_owned(), problem })
    }

    /// A token from its text.
    ///
    /// # Errors
    /// What is wrong with it, without the token.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.len() < TOKEN_MIN {
            let are = if text.len() == 1 { "is" } else { "are" };
            return Err(format!(
                "{} {are} too few, the least is {TOKEN_MIN}",
                counted(text.len(), "character")
            ));
        }
        if u64::try_from(text.len()).is_ok_and(|length| length > TOKEN_MAX) {
            return Err(format!("over {TOKEN_MAX} characters are too many"));
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("it has characters that cannot be sent in a header (white space, non-ASCII)".into());
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether this is the token; the time taken does not tell how much of it was right.
    pub fn matches(&self, shown: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(shown).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    const TEXT: &str = "0123456789abcdef0123456789abcdef";

    fn load(text: &str, mode: u32) -> Result<Token, TokenError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        Token::load(file.path())
    }

    #[test]
    fn a_private_long_token_is_taken_and_never_shown() {
        let token = load(&format!("{TEXT}\n"), 0o640).unwrap();
        assert!(token.matches(TEXT.as_bytes()));
        assert!(!token.matches(b"") && !token.matches(&TEXT.as_bytes()[1..]));
        assert!(!token.matches(TEXT.replace('f', "e").as_bytes()));
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn a_missing_exposed_or_weak_token_is_refused() {
        assert!(matches!(Token::load(Path::new("/no/such/token")), Err(TokenError::Read { .. })));
        for mode in [0o644, 0o642, 0o602] {
            assert!(matches!(load(TEXT, mode), Err(TokenError::Exposed { .. })), "{mode:o}");
        }
        for text in ["", "\n", &TEXT[1..], &format!("{TEXT} {TEXT}"), &"x".repeat(5000)] {
            let error = load(text, 0o600).unwrap_err();
            assert!(matches!(error, TokenError::Unfit { .. }), "{error}");
            assert!(text.trim().is_empty() || !error.to_string().contains(text.trim()));
        }
    }
}
