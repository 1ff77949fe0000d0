//! The proof that the other side knows the token, without telling it.
//!
//! Each side sends a nonce, and the HMAC of all that both have said so far, keyed with the token. What is said includes
//! both nonces, both sites and the protocol, so no proof is of use a second time, in the other direction, or for
//! another site. The side that connects proves first: who connects without the token learns nothing to guess by.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// What all sites of a cluster know, and nobody else: long and random.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Vec<u8>);

/// An HMAC-SHA-256.
pub type Proof = [u8; 32];

/// Who proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that connected, and pulls.
    Subscriber,
    /// The side that was connected to, and sends its log.
    Publisher,
}

impl Token {
    /// A token of any length.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The proof of a side, over what both have said.
    pub fn prove(&self, role: Role, said: &[&[u8]]) -> Proof {
        self.mac(role, said).map_or([0; 32], |mac| mac.finalize().into_bytes().into())
    }

    /// True if a proof is that of a side, in a time that does not depend on where they differ.
    pub fn verify(&self, role: Role, said: &[&[u8]], proof: &Proof) -> bool {
        self.mac(role, said).is_some_and(|mac| mac.verify_slice(proof).is_ok())
    }

    /// Always `Some`: HMAC takes keys of any length (RFC 2104).
    fn mac(&self, role: Role, said: &[&[u8]]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(match role {
            Role::Subscriber => b"larder replication subscriber",
            Role::Publisher => b"larder replication publisher",
        });
        for part in said {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        Some(mac)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}
