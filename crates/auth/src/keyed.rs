//! HMAC-SHA-256, and what a server derives from one secret of its own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// Output of SHA-256.
pub(crate) type Digest = [u8; 32];

pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// HMAC-SHA-256 over the parts, one after the other.
pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> Digest {
    // A key may have any length: `new_from_slice` never fails for HMAC (RFC 2104).
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Equal, in a time that does not depend on where they differ.
pub(crate) fn is_same(one: &Digest, other: &Digest) -> bool {
    one.ct_eq(other).into()
}

/// A secret of the process. It lives as long as the server does, so that what clients see derived from it stays the
/// same when password files are read again.
#[derive(Debug)]
pub struct Secret {
    key: [u8; 32],
    nonces: AtomicU64,
}

impl Secret {
    /// A secret from 32 random bytes.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, nonces: AtomicU64::new(0) }
    }

    /// What is kept of a password that is known to be right. Worth nothing without the secret, and costs a fraction of
    /// a microsecond.
    pub(crate) fn fingerprint(&self, user: &[u8], password: &[u8]) -> Digest {
        hmac(&self.key, &[b"password", &(user.len() as u64).to_le_bytes(), user, password])
    }

    /// The salt of a user whose password stands in the file as it is, and of one who does not exist: who asks twice
    /// sees the same twice, and cannot tell the one from the other.
    pub(crate) fn salt(&self, user: &[u8]) -> Digest {
        hmac(&self.key, &[b"salt", user])
    }

    /// A number that a user who does not exist keeps.
    pub(crate) fn pick(&self, user: &[u8], below: usize) -> usize {
        let [first, second, third, fourth, ..] = hmac(&self.key, &[b"pick", user]);
        u32::from_le_bytes([first, second, third, fourth]) as usize % below.max(1)
    }

    /// 18 bytes that nobody can foretell and that do not come again, in base64.
    pub(crate) fn nonce(&self) -> String {
        let number = self.nonces.fetch_add(1, Relaxed);
        STANDARD_NO_PAD.encode(&hmac(&self.key, &[b"nonce", &number.to_le_bytes()])[..18])
    }
}
