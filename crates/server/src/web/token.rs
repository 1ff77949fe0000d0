//! The bearer token (RFC 6750) of `--admin-token-file`.

use std::path::Path;

use hyper::header::{AUTHORIZATION, HeaderMap};
use subtle::ConstantTimeEq as _;

use crate::options::{EXIT_FAILURE, Refusal};

/// A secret that requests have to name.
pub(super) struct Token(Vec<u8>);

impl Token {
    /// Reads the token: the file's content without blanks and line ends around it. Errors: exit code 1.
    pub(super) fn read(path: &Path) -> Result<Self, Refusal> {
        let refuse = |reason: String| {
            Refusal::new(EXIT_FAILURE, format!("larderd: token file {}: {reason}", path.display()))
        };
        let content = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
        let token = content.trim_ascii();
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
            let bounds = format!("a token has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} characters");
            return Err(refuse(bounds));
        }
        // Others could not be sent in a header.
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(refuse("a token is one word of printable ASCII".to_owned()));
        }
        Ok(Self(token.to_owned()))
    }

    /// Does the request name it? Takes as long whether it is nearly right or not at all; only its length could be learned.
    pub(super) fn is_named_in(&self, headers: &HeaderMap) -> bool {
        let Some((scheme, token)) =
            headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().split_at_checked(SCHEME.len()))
        else {
            return false;
        };
        scheme.eq_ignore_ascii_case(SCHEME) && bool::from(token.trim_ascii_start().ct_eq(&self.0))
    }
}

const SCHEME: &[u8] = b"Bearer ";
/// Shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_token_and_nothing_else_opens() {
        let token = Token(b"correct-horse-battery".to_vec());
        let opens = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().expect("it is a header's value"));
            token.is_named_in(&headers)
        };
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
        assert!(!token.is_named_in(&HeaderMap::new()));
    }
}
