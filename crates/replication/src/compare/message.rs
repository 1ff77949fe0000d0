//! What the two sides of a comparison say.

use super::Fingerprint;
use super::tree::LEAVES;
use crate::bytes::{Reader, push_short_bytes};
use crate::state::Expiry;

/// The most ranges that are asked for at once.
pub const RANGES_MAX: usize = 256;
/// The most keys whose states are asked for at once.
pub const KEYS_MAX: usize = 256;
/// The most bytes of a list, but for its last key.
pub const LISTED_BYTES_MAX: usize = 320 << 10;
/// The most keys of a list: each has 50 bytes at least, beside the key.
const LISTED_MAX: usize = LISTED_BYTES_MAX / 50 + 1;
/// The most bytes of keys that are asked for, but for the last one.
pub(super) const ASKED_BYTES_MAX: usize = 128 << 10;
/// Digests of all children of the most ranges.
const DIGESTS_MAX: usize = RANGES_MAX * super::tree::CHILDREN;

/// What the asking side says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// Scan, and begin a tree.
    Begin {
        /// What is above it is left out.
        horizon: u64,
    },
    /// Scan on, or list on.
    GoOn,
    /// The digests of the children of these ranges.
    Ranges {
        /// 0 to 3.
        level: u8,
        /// Of the ranges, at most [`RANGES_MAX`].
        numbers: Vec<u16>,
    },
    /// List the states of these leaves.
    List(Vec<u16>),
    /// The states of these keys, at most [`KEYS_MAX`].
    Keys(Vec<&'a [u8]>),
}

/// What the other side answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// To [`Ask::Begin`] and [`Ask::GoOn`].
    Scanned {
        /// The tree is complete.
        is_last: bool,
    },
    /// To [`Ask::Ranges`], in that order: 16 for each.
    Digests(Vec<u128>),
    /// To [`Ask::List`] and [`Ask::GoOn`].
    Listed {
        /// There are no more.
        is_last: bool,
        /// Of these leaves.
        keys: Vec<Listed<'a>>,
    },
    /// To [`Ask::Keys`]: the parts before this are the states of the first keys, but for those that have changed.
    States {
        /// How many keys: at least 1.
        count: u16,
    },
}

/// A state in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Not empty.
    pub key: &'a [u8],
    /// Of the value.
    pub version: u64,
    /// Of this value, or of a newer one.
    pub expiry: Expiry,
    /// Of all of the state.
    pub fingerprint: Fingerprint,
}

impl<'a> Ask<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let numbers_of = |out: &mut Vec<u8>, numbers: &[u16]| {
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        };
        match self {
            Self::Begin { horizon } => {
                out.push(BEGIN);
                out.extend_from_slice(&horizon.to_le_bytes());
            }
            Self::GoOn => out.push(GO_ON),
            Self::Ranges { level, numbers } => {
                out.extend_from_slice(&[RANGES, *level]);
                numbers_of(out, numbers);
            }
            Self::List(leaves) => {
                out.push(LIST);
                numbers_of(out, leaves);
            }
            Self::Keys(keys) => {
                out.push(KEYS);
                keys.iter().for_each(|key| push_short_bytes(out, key));
            }
        }
    }

    pub(crate) fn decode(rest: &mut Reader<'a>) -> Option<Self> {
        Some(match rest.u8()? {
            BEGIN => Self::Begin { horizon: rest.u64()? },
            GO_ON => Self::GoOn,
            RANGES => Self::Ranges { level: rest.u8()?, numbers: numbers(rest, RANGES_MAX)? },
            LIST => Self::List(numbers(rest, LEAVES)?),
            KEYS => Self::Keys(some_of(rest, KEYS_MAX, key)?),
            _ => return None,
        })
    }
}

impl<'a> Answer<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Scanned { is_last } => out.extend_from_slice(&[SCANNED, u8::from(*is_last)]),
            Self::Digests(digests) => {
                out.push(DIGESTS);
                digests.iter().for_each(|digest| out.extend_from_slice(&digest.to_le_bytes()));
            }
            Self::Listed { is_last, keys } => {
                out.extend_from_slice(&[LISTED, u8::from(*is_last)]);
                for Listed { key, version, expiry, fingerprint } in keys {
                    push_short_bytes(out, key);
                    for number in [*version, expiry.value_version, expiry.version, expiry.exptime_secs] {
                        out.extend_from_slice(&number.to_le_bytes());
                    }
                    out.extend_from_slice(&fingerprint.to_le_bytes());
                }
            }
            Self::States { count } => {
                out.push(STATES);
                out.extend_from_slice(&count.to_le_bytes());
            }
        }
    }

    pub(crate) fn decode(rest: &mut Reader<'a>) -> Option<Self> {
        Some(match rest.u8()? {
            SCANNED => Self::Scanned { is_last: rest.bool()? },
            DIGESTS => {
                Self::Digests(some_of(rest, DIGESTS_MAX, |rest| rest.array().map(u128::from_le_bytes))?)
            }
            LISTED => {
                let is_last = rest.bool()?;
                Self::Listed { is_last, keys: some_of(rest, LISTED_MAX, listed)? }
            }
            STATES => Self::States { count: rest.u16()? },
            _ => return None,
        })
    }
}

/// All that is left, one by one.
fn some_of<'a, T>(
    rest: &mut Reader<'a>,
    count_max: usize,
    mut next: impl FnMut(&mut Reader<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        if all.len() == count_max {
            return None;
        }
        all.push(next(rest)?);
    }
    Some(all)
}

/// Numbers of ranges or leaves: some, in their order.
fn numbers(rest: &mut Reader<'_>, count_max: usize) -> Option<Vec<u16>> {
    let numbers = some_of(rest, count_max, Reader::u16)?;
    (!numbers.is_empty() && numbers.is_sorted_by(|one, next| one < next)).then_some(numbers)
}

fn key<'a>(rest: &mut Reader<'a>) -> Option<&'a [u8]> {
    rest.short_bytes().filter(|key| !key.is_empty())
}

fn listed<'a>(rest: &mut Reader<'a>) -> Option<Listed<'a>> {
    let (key, version) = (key(rest)?, rest.u64()?);
    let expiry = Expiry { value_version: rest.u64()?, version: rest.u64()?, exptime_secs: rest.u64()? };
    Some(Listed { key, version, expiry, fingerprint: u128::from_le_bytes(rest.array()?) })
}

const BEGIN: u8 = 0;
const GO_ON: u8 = 1;
const RANGES: u8 = 2;
const LIST: u8 = 3;
const KEYS: u8 = 4;

const SCANNED: u8 = 0;
const DIGESTS: u8 = 1;
const LISTED: u8 = 2;
const STATES: u8 = 3;
