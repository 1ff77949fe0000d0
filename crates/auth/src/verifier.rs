//! What is kept instead of a password: SCRAM-SHA-256's keys (RFC 5802, RFC 7677).
//!
//! One verifier serves whoever hands over the password and whoever proves to know it. From a stolen one nobody can log
//! in without first guessing the password, `iterations` hashes a guess.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pbkdf2::pbkdf2_hmac;
use sha2::Sha256;

use crate::keyed::{Digest, hmac, is_same, sha256};

/// Keys from which a password can be checked, but not had.
///
/// Written as PostgreSQL writes it: `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`, all but the number in
/// base64.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    pub(crate) stored_key: Digest,
    pub(crate) server_key: Digest,
}

impl Verifier {
    /// The verifier of a password. Costs `iterations` times two hashes.
    pub fn derive(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let salted = salted_password(password, salt, iterations);
        Self {
            iterations,
            salt: salt.to_vec(),
            stored_key: stored_key(&salted),
            server_key: hmac(&salted, &[b"Server Key"]),
        }
    }

    /// Reads a verifier; `None`: it is none, or its iterations or salt are out of bounds.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.strip_prefix(PREFIX)?;
        let (parameters, keys) = text.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let iterations = iterations.parse().ok()?;
        let salt = STANDARD.decode(salt).ok()?;
        let is_in_bounds = (ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations)
            && (1..=SALT_BYTES_MAX).contains(&salt.len());
        is_in_bounds.then_some(())?;
        Some(Self { iterations, salt, stored_key: digest(stored_key)?, server_key: digest(server_key)? })
    }

    /// Whether this is the password. Costs what [`Verifier::derive`] costs.
    pub(crate) fn is_of(&self, password: &[u8]) -> bool {
        let salted = salted_password(password, &self.salt, self.iterations);
        is_same(&stored_key(&salted), &self.stored_key)
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { iterations, salt, stored_key, server_key } = self;
        let [salt, stored_key, server_key] =
            [&salt[..], stored_key, server_key].map(|bytes| STANDARD.encode(bytes));
        write!(f, "{PREFIX}{iterations}:{salt}${stored_key}:{server_key}")
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}:...", self.iterations)
    }
}

pub(crate) fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> Digest {
    #[cfg(test)]
    ITERATED.with(|iterated| iterated.set(iterated.get() + u64::from(iterations)));
    let mut salted = Digest::default();
    pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut salted);
    salted
}

#[cfg(test)]
thread_local! {
    /// Iterations of PBKDF2 on this thread so far.
    pub(crate) static ITERATED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn stored_key(salted: &Digest) -> Digest {
    sha256(&hmac(salted, &[b"Client Key"]))
}

fn digest(base64: &str) -> Option<Digest> {
    STANDARD.decode(base64).ok()?.try_into().ok()
}

/// What a verifier begins with, and a password that is written out must not.
pub(crate) const PREFIX: &str = "SCRAM-SHA-256$";
/// RFC 7677: at least 4096. A check by password costs this on a server's thread; docs/authentication.md says how much
/// that is.
pub const ITERATIONS_DEFAULT: u32 = 4096;
/// RFC 7677, section 4.
pub const ITERATIONS_MIN: u32 = 4096;
/// A check takes some tens of milliseconds at most.
pub const ITERATIONS_MAX: u32 = 100_000;
/// Of salts made here; PostgreSQL's have as many.
pub const SALT_BYTES: usize = 16;
pub(crate) const SALT_BYTES_MAX: usize = 64;
