//! What a cache tells the other sites of its keys: the bodies of [`Side::Told`](crate::wire::Side::Told).

use crate::bytes::{Reader, push_short_bytes};

/// An expiry that stays as it is.
const UNCHANGED: u64 = u64::MAX;

/// A change of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// The key was deleted.
    Gone {
        /// 1 to 250 bytes.
        key: &'a [u8],
        /// Where values are told, its version; else 0.
        version: u64,
    },
    /// The item was marked stale, or emptied.
    Marked {
        /// As above.
        key: &'a [u8],
        /// As above.
        version: u64,
        /// It is stale.
        is_stale: bool,
        /// Its value is empty, and these are its client flags.
        blank: Option<u32>,
        /// Unix time, 0 for never; `None`: it stays.
        exptime_secs: Option<u64>,
    },
    /// The key has this value.
    Value {
        /// As above.
        key: &'a [u8],
        /// As above.
        version: u64,
        /// The client's.
        client_flags: u32,
        /// The key came in base64.
        is_binary_key: bool,
        /// Unix time, 0 for never.
        exptime_secs: u64,
        /// The value.
        value: &'a [u8],
    },
    /// All items of a namespace are flushed.
    Flushed {
        /// Of the namespace, whole; the default's is empty.
        prefix: &'a [u8],
        /// When.
        when: FlushTime,
    },
}

/// When a flush is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushTime {
    /// At once: what was changed up to this version; 0: up to when it is heard of.
    Now(u64),
    /// Unix time.
    At(u64),
    /// Never: one that was to come is cancelled.
    Cancelled,
}

impl<'a> Told<'a> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let begin = |out: &mut Vec<u8>, kind: u8, key: &[u8], version: u64| {
            out.push(kind);
            push_short_bytes(out, key);
            out.extend_from_slice(&version.to_le_bytes());
        };
        match *self {
            Self::Gone { key, version } => begin(out, 1, key, version),
            Self::Marked { key, version, is_stale, blank, exptime_secs } => {
                begin(out, 2, key, version);
                out.push(u8::from(is_stale) | u8::from(blank.is_some()) << 1);
                out.extend_from_slice(&blank.unwrap_or_default().to_le_bytes());
                out.extend_from_slice(&exptime_secs.unwrap_or(UNCHANGED).to_le_bytes());
            }
            Self::Value { key, version, client_flags, is_binary_key, exptime_secs, value } => {
                begin(out, 3, key, version);
                out.push(u8::from(is_binary_key));
                out.extend_from_slice(&client_flags.to_le_bytes());
                out.extend_from_slice(&exptime_secs.to_le_bytes());
                out.extend_from_slice(&(value.len() as u32).to_le_bytes());
                out.extend_from_slice(value);
            }
            Self::Flushed { prefix, when } => {
                let (kind, at) = match when {
                    FlushTime::Now(version) => (0, version),
                    FlushTime::At(secs) => (1, secs),
                    FlushTime::Cancelled => (2, 0),
                };
                begin(out, 4, prefix, at);
                out.push(kind);
            }
        }
    }

    fn decode(rest: &mut Reader<'a>) -> Option<Self> {
        let (kind, key, version) = (rest.u8()?, rest.short_bytes()?, rest.u64()?);
        Some(match kind {
            1 => Self::Gone { key, version },
            2 => {
                let marks = Some(rest.u8()?).filter(|marks| *marks < 4)?;
                let (flags, exptime_secs) = (rest.u32()?, rest.u64()?);
                Self::Marked {
                    key,
                    version,
                    is_stale: marks & 1 != 0,
                    blank: (marks & 2 != 0).then_some(flags),
                    exptime_secs: Some(exptime_secs).filter(|secs| *secs != UNCHANGED),
                }
            }
            3 => {
                let is_binary_key = Some(rest.u8()?).filter(|marks| *marks < 2)? == 1;
                let (client_flags, exptime_secs) = (rest.u32()?, rest.u64()?);
                let value_bytes = usize::try_from(rest.u32()?).ok()?;
                let value = rest.bytes(value_bytes)?;
                Self::Value { key, version, client_flags, is_binary_key, exptime_secs, value }
            }
            4 => Self::Flushed {
                prefix: key,
                when: match rest.u8()? {
                    0 => FlushTime::Now(version),
                    1 => FlushTime::At(version),
                    2 => FlushTime::Cancelled,
                    _ => return None,
                },
            },
            _ => return None,
        })
    }
}

/// The changes of a body. Errors: it is none.
pub fn decode_told(body: &[u8]) -> Result<Vec<Told<'_>>, NotTold> {
    let (mut rest, mut told) = (Reader::new(body), Vec::new());
    while !rest.is_empty() {
        told.push(Told::decode(&mut rest).ok_or(NotTold)?);
    }
    Ok(told)
}

/// A body that nobody can have told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTold;

impl std::fmt::Display for NotTold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the other site tells what is no change of a cache")
    }
}

impl std::error::Error for NotTold {}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<Told<'static>> {
        let (key, version) = (&b"key"[..], 7 << 8 | 1);
        let marked =
            |is_stale, blank, exptime_secs| Told::Marked { key, version, is_stale, blank, exptime_secs };
        let value = |is_binary_key, value| Told::Value {
            key,
            version,
            client_flags: 9,
            is_binary_key,
            exptime_secs: 1_800_000_000,
            value,
        };
        let flushed = |when| Told::Flushed { prefix: b"page:", when };
        vec![
            Told::Gone { key, version: 0 },
            marked(true, None, None),
            marked(false, Some(5), Some(0)),
            value(false, b""),
            value(true, b"value"),
            flushed(FlushTime::Now(0)),
            flushed(FlushTime::Now(version)),
            flushed(FlushTime::At(1_800_000_000)),
            flushed(FlushTime::Cancelled),
        ]
    }

    #[test]
    fn what_was_told_is_read() {
        let mut body = Vec::new();
        examples().iter().for_each(|told| told.encode(&mut body));
        assert_eq!(decode_told(&body), Ok(examples()));
    }

    #[test]
    fn a_part_of_it_is_none_at_every_split() {
        for told in examples() {
            let mut body = Vec::new();
            told.encode(&mut body);
            (1..body.len()).for_each(|end| assert_eq!(decode_told(&body[..end]), Err(NotTold), "{told:?}"));
        }
    }

    #[test]
    fn unknown_kinds_and_marks_are_refused() {
        assert_eq!(decode_told(&[5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(NotTold));
        for (told, at, wrong) in [(1, 14, 4), (3, 14, 2), (5, 16, 3)] {
            let mut body = Vec::new();
            examples()[told].encode(&mut body);
            body[at] = wrong;
            assert_eq!(decode_told(&body), Err(NotTold));
        }
    }
}
