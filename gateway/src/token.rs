//! The secret that TCP clients must show. There is no default: without its own the gateway does not start.

use crate::user::unreadable;
use cordon_protocol::counted;
use std::{
    env, fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};
use subtle::ConstantTimeEq;

/// Least length of a token, characters: 32 hexadecimal ones are 128 bits.
pub const TOKEN_MIN: usize = 32;
/// Longest token, characters; a longer file is not a token.
const TOKEN_MAX: u64 = 4096;
/// Random bytes of one that is made here.
const RANDOM_BYTES: usize = 32;
/// The credential's name (systemd.exec(5), LoadCredential=).
const CREDENTIAL: &str = "token";

/// A token that has been checked. Never shown.
#[derive(Clone)]
pub struct Token(String);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Cannot be read.
    #[error("token_file {}: {}", path.display(), unreadable(source, "; make one with `cordon-gateway --make-token FILE`"))]
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
    /// It could not be made.
    #[error("token_file {}: cannot make it: {source}", path.display())]
    Make {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Too short, too long, or not sendable in a header.
    #[error("token_file {}: {problem}; make one with `cordon-gateway --make-token FILE`", path.display())]
    Unfit {
        /// Path.
        path: PathBuf,
        /// What is wrong, without the token.
        problem: String,
    },
}

/// The file to read the token from: systemd's credential where it has passed one, else the configuration's.
pub fn source(configured: &Path) -> PathBuf {
    of_credentials(env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from), configured)
}

fn of_credentials(credentials: Option<PathBuf>, configured: &Path) -> PathBuf {
    let credential = credentials.map(|directory| directory.join(CREDENTIAL)).filter(|file| file.exists());
    credential.unwrap_or_else(|| configured.to_owned())
}

/// Makes a file with a new token, for its owner and its group to read, where there is none; true when it did.
///
/// # Errors
/// `Make`.
pub fn make(path: &Path) -> Result<bool, TokenError> {
    make_new(path).map_err(|source| TokenError::Make { path: path.to_owned(), source })
}

fn make_new(path: &Path) -> io::Result<bool> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(false);
    }
    let mut random = [0; RANDOM_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    // Complete before it has its name, so that half a token is never read.
    let draft = path.with_extension(format!("draft.{}", std::process::id()));
    let written = write_new(&draft, &text).and_then(|()| fs::hard_link(&draft, path));
    let removed = fs::remove_file(&draft);
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.exists() => Ok(false),
        Err(error) => Err(error),
        Ok(()) => removed.map(|()| true),
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
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
    use std::os::unix::fs::PermissionsExt;

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
    fn one_is_made_where_there_is_none_and_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        assert!(make(&path).unwrap());
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.trim().len(), 2 * RANDOM_BYTES);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777 & !0o640, 0);
        assert!(Token::load(&path).unwrap().matches(text.trim().as_bytes()));
        assert!(!make(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no draft is left");
        // Another one is another.
        fs::remove_file(&path).unwrap();
        assert!(make(&path).unwrap());
        assert_ne!(fs::read_to_string(&path).unwrap(), text);
        let nowhere = make(&directory.path().join("none/token")).unwrap_err().to_string();
        assert!(nowhere.contains("none/token: cannot make it: "), "{nowhere}");
    }

    #[test]
    fn a_credential_comes_before_the_file_of_the_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let source = |given: Option<&Path>| of_credentials(given.map(Path::to_owned), Path::new("/t"));
        assert_eq!(source(None), Path::new("/t"));
        assert_eq!(source(Some(directory.path())), Path::new("/t"), "others are passed, but no token");
        fs::write(directory.path().join("token"), TEXT).unwrap();
        assert_eq!(source(Some(directory.path())), directory.path().join("token"));
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
