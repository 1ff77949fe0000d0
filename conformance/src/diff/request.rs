//! Requests that go to two servers alike, but for the CAS values, which every server makes up for itself.

use std::collections::HashMap;

/// One command with its value, if it has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    /// In decimal.
    Cas(Cas),
    /// 8 bytes, network order.
    BinaryCas(Cas),
}

/// A CAS value that the server has shown, on any connection, for the key.
#[derive(Clone, Debug)]
pub(crate) struct Cas {
    pub(crate) key: Vec<u8>,
    pub(crate) age: Age,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// The latest one shown.
    Latest,
    /// The one before.
    Outdated,
    /// Higher than any so far.
    Ahead,
}

/// What is sent on one connection before all its replies are read.
#[derive(Clone, Debug)]
pub(crate) struct Burst {
    pub(crate) connection: usize,
    pub(crate) is_binary: bool,
    pub(crate) requests: Vec<Request>,
    /// Where the bytes are cut in pieces, in 1/65536 of their length.
    pub(crate) cuts: Vec<u16>,
}

/// The CAS values that one server has shown, by key, in order.
#[derive(Debug, Default)]
pub(crate) struct CasShown(HashMap<Vec<u8>, Vec<u64>>);

impl Request {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        match self.pieces.last_mut() {
            Some(Piece::Bytes(last)) => last.extend_from_slice(bytes),
            _ => self.pieces.push(Piece::Bytes(bytes.to_vec())),
        }
    }

    /// The bytes for the server that has shown `cas`.
    pub(crate) fn write(&self, cas: &CasShown, bytes: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(literal) => bytes.extend_from_slice(literal),
                Piece::Cas(wanted) => bytes.extend_from_slice(cas.get(wanted).to_string().as_bytes()),
                Piece::BinaryCas(wanted) => bytes.extend_from_slice(&cas.get(wanted).to_be_bytes()),
            }
        }
    }
}

impl From<Vec<u8>> for Request {
    fn from(bytes: Vec<u8>) -> Self {
        Self { pieces: vec![Piece::Bytes(bytes)] }
    }
}

impl Burst {
    pub(crate) fn write(&self, cas: &CasShown) -> Vec<u8> {
        let mut bytes = Vec::new();
        for request in &self.requests {
            request.write(cas, &mut bytes);
        }
        bytes
    }
}

impl CasShown {
    pub(crate) fn add(&mut self, key: &[u8], cas: u64) {
        let shown = self.0.entry(key.to_vec()).or_default();
        if shown.last() != Some(&cas) {
            shown.push(cas);
        }
    }

    fn get(&self, wanted: &Cas) -> u64 {
        let shown = self.0.get(&wanted.key).map_or(&[][..], Vec::as_slice);
        match (wanted.age, shown) {
            (Age::Latest, [.., latest]) => *latest,
            (Age::Outdated, [.., outdated, _]) => *outdated,
            (Age::Ahead, [.., latest]) => latest + FAR,
            // Lower than any item's, and not the 0 that has a meaning of its own.
            _ => 1,
        }
    }
}

/// More than CAS values grow in a story.
const FAR: u64 = 1 << 40;
