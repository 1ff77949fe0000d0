//! Who knows the token.
//!
//! Each side draws a number, and proves with HMAC-SHA-256 over both numbers that it knows the token; what is proven
//! differs by side, so that neither can hand back what it got. From token and numbers comes a key for the rest of the
//! conversation: each message carries an HMAC over its direction, its place in the sequence and its bytes, so nobody on
//! the way can change, repeat or insert one.

use std::fmt;
use std::fs;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;

use crate::Error;

/// Size of an HMAC-SHA-256, and of the numbers that are drawn.
pub(super) const PROOF_BYTES: usize = 32;

/// A proof, or a number that was drawn.
pub(super) type Bytes32 = [u8; PROOF_BYTES];

/// The secret that agents and their collector share.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// From a file, without white space at its ends. `openssl rand -hex 32` makes a good one.
    ///
    /// # Errors
    /// The file cannot be read, or has fewer than 16 bytes.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let text = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Self::new(text.trim_ascii()).map_err(|error| format!("{}: {error}", file.display()).into())
    }

    /// From these bytes.
    ///
    /// # Errors
    /// There are fewer than 16.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() < TOKEN_BYTES_MIN {
            return Err(format!("a token has at least {TOKEN_BYTES_MIN} bytes").into());
        }
        Ok(Self(bytes.to_vec()))
    }

    /// What `side` shows to prove that it knows the token.
    pub(super) fn proof(&self, side: Side, numbers: &Numbers) -> Bytes32 {
        self.mac(&[b"larder bench, proof of the ", side.name(), &numbers.agent, &numbers.collector])
            .finalize()
            .into_bytes()
            .into()
    }

    /// Whether that is what `side` would show. Takes the same time for every wrong proof.
    pub(super) fn is_proof(&self, proof: &Bytes32, side: Side, numbers: &Numbers) -> bool {
        self.mac(&[b"larder bench, proof of the ", side.name(), &numbers.agent, &numbers.collector])
            .verify_slice(proof)
            .is_ok()
    }

    /// The key of what `side` says once both have proven themselves.
    pub(super) fn key(&self, side: Side, numbers: &Numbers) -> Self {
        let key = self.mac(&[b"larder bench, key of the ", side.name(), &numbers.agent, &numbers.collector]);
        Self(key.finalize().into_bytes().to_vec())
    }

    /// The proof of a message, as the holder of a key (see [`Token::key`]) sends it.
    pub(super) fn seal(&self, sequence: u64, message: &[u8]) -> Bytes32 {
        self.mac(&[&sequence.to_be_bytes(), message]).finalize().into_bytes().into()
    }

    /// Whether that is the proof of the message.
    pub(super) fn is_seal(&self, seal: &[u8], sequence: u64, message: &[u8]) -> bool {
        self.mac(&[&sequence.to_be_bytes(), message]).verify_slice(seal).is_ok()
    }

    /// All parts but the last have a length of their own kind, so that no two lists of parts are the same bytes.
    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        // A key may have any length (RFC 2104, section 3).
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).unwrap_or_else(|_| unreachable!());
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

impl fmt::Debug for Token {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Agent,
    Collector,
}

impl Side {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Agent => b"agent",
            Self::Collector => b"collector",
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::Agent => Self::Collector,
            Self::Collector => Self::Agent,
        }
    }
}

/// What each side has drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub agent: Bytes32,
    pub collector: Bytes32,
}

/// A number that nobody can foresee.
pub(super) fn draw() -> Result<Bytes32, Error> {
    let mut number = [0; PROOF_BYTES];
    // So few bytes are never cut short (getrandom(2)).
    getrandom(&mut number, GetRandomFlags::empty())?;
    Ok(number)
}

const TOKEN_BYTES_MIN: usize = 16;
