//! The bearer token (RFC 6750) of `--admin-token-file`, `--backup-token-file` and `--http-token-file`.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use subtle::ConstantTimeEq as _;

use crate::startup::bounded_file;
use crate::startup::options::{EXIT_FAILURE, Refusal};

/// The path of a token file, and the token in it.
#[derive(Debug)]
pub struct TokenFile {
    /// The option that names it.
    option: &'static str,
    path: PathBuf,
    token: RwLock<Token>,
}

impl TokenFile {
    /// Reads the file of an option, if there is one, and warns of one that others can read. Call it before privileges
    /// are dropped, because only root may be able to read it. Errors: exit code 1.
    pub fn read(option: &'static str, path: Option<&Path>) -> Result<Option<Self>, Refusal> {
        let Some(path) = path else { return Ok(None) };
        let shown = path.display();
        let refuse =
            |reason| Refusal::new(EXIT_FAILURE, format!("larderd: {option}, token file {shown}: {reason}"));
        let token = Token::read(path, bounded_file::read).map_err(refuse)?;
        // A group may be there to read it. What is no file, such as a FIFO, is read once.
        let mode =
            fs::metadata(path).ok().filter(fs::Metadata::is_file).map_or(0, |found| found.mode() & 0o777);
        if mode & OTHERS != 0 {
            tracing::warn!(
                "{option}: others can read the token file {shown}, or write to it (mode {mode:03o})"
            );
        }
        // The directory changes when the server goes to the background.
        let path = std::path::absolute(path).map_err(|error| refuse(error.to_string()))?;
        Ok(Some(Self { option, path, token: RwLock::new(token) }))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again. If it cannot be used the old token stays, and the journal has the reason.
    pub(crate) fn reload(&self) {
        match Token::read(&self.path, bounded_file::read_regular) {
            Ok(token) => {
                *self.token.write().unwrap_or_else(PoisonError::into_inner) = token;
                tracing::info!(file = %self.path.display(), "token read again");
            }
            Err(reason) => {
                let (option, path) = (self.option, self.path.display());
                tracing::error!("{option}, token file {path}: {reason}; the old token stays");
            }
        }
    }

    /// The value of `Authorization` that contains the token, for another server.
    pub(crate) fn authorization(&self) -> Vec<u8> {
        [SCHEME, &self.token.read().unwrap_or_else(PoisonError::into_inner).0].concat()
    }

    /// The token itself, for a proof that it is known.
    pub fn bytes(&self) -> Vec<u8> {
        self.token.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// True if this is the token. Takes constant time.
    pub(crate) fn is(&self, token: &[u8]) -> bool {
        self.token.read().unwrap_or_else(PoisonError::into_inner).is(token)
    }

    /// True if a request with this value of `Authorization` contains the token.
    pub(crate) fn is_named_in(&self, authorization: Option<&[u8]>) -> bool {
        self.token.read().unwrap_or_else(PoisonError::into_inner).is_named_in(authorization)
    }
}

/// A secret that requests must contain.
struct Token(Vec<u8>);

impl Token {
    /// Reads the token: the file's content without surrounding whitespace. Errors: the reason.
    fn read(path: &Path, read: bounded_file::Read) -> Result<Self, String> {
        let content = read(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
        let token = content.trim_ascii();
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
            return Err(format!("a token has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} characters"));
        }
        // Other characters cannot be sent in a header.
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err("a token is one word of printable ASCII".to_owned());
        }
        Ok(Self(token.to_owned()))
    }

    /// True if this is the token. Takes constant time, so a client can learn the length of the token at most.
    fn is(&self, token: &[u8]) -> bool {
        token.ct_eq(&self.0).into()
    }

    /// True if the request contains the token.
    fn is_named_in(&self, authorization: Option<&[u8]>) -> bool {
        let Some((scheme, token)) = authorization.and_then(|value| value.split_at_checked(SCHEME.len()))
        else {
            return false;
        };
        scheme.eq_ignore_ascii_case(SCHEME) && self.is(token.trim_ascii_start())
    }
}

/// Hides the secret.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Reading and writing by those who are neither the owner nor of the group, in a mode.
const OTHERS: u32 = 0o006;
const SCHEME: &[u8] = b"Bearer ";
/// A shorter one could be guessed.
const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 4096;
/// Including blanks around the token.
const FILE_BYTES_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_token_and_nothing_else_opens() {
        let token = Token(b"correct-horse-battery".to_vec());
        let opens = |value: &'static str| token.is_named_in(Some(value.as_bytes()));
        assert!(opens("Bearer correct-horse-battery"));
        assert!(opens("bearer correct-horse-battery"));
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer correct-horse-batter",
            "Bearer correct-horse-battery-staple",
            "Bearer Correct-horse-battery",
            "Basic correct-horse-battery",
            "correct-horse-battery",
        ] {
            assert!(!opens(value), "{value}");
        }
        assert!(!token.is_named_in(None));
    }
}
