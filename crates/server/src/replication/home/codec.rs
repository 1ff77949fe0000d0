//! Commands for a home, and its replies, as bytes.
//!
//! A command is `{version u8, kind u8, key's encoding u8, key length u16, key}`, then for a store (kind 1) `{flags u32,
//! exptime i64, mode u8, bits u8, compare u64, vivify i64, value}`, for an arith (kind 2) `{delta u64, bits u8, compare
//! u64, number u64, its exptime i64, exptime i64}`. Numbers are little-endian; bits say which of the fields there are.

use larder_protocol::command::{Arith, Command, Mode, Store};
use larder_protocol::{Error, Key, Reply};
use larder_replication::bytes::Reader;

/// Of these bytes. A home refuses another one.
const VERSION: u8 = 1;
/// Kinds of commands, behind the version.
const STORE: u8 = 1;
const ARITH: u8 = 2;

const PLAIN_KEY: u8 = 0;
const BASE64_KEY: u8 = 1;
const PERCENT_KEY: u8 = 2;

const COMPARES: u8 = 1;
const VIVIFIES: u8 = 2;
const OR_STALE: u8 = 4;
const EXPLAINS: u8 = 8;
const REMOVES: u8 = 16;
const DECREMENTS: u8 = 32;
const TOUCHES: u8 = 64;

/// A home's reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HomeReply {
    Stored { cas: u64, value_bytes: u32, is_new: bool },
    NotStored,
    Exists,
    NotFound,
    Number { number: u64, cas: u64, ttl_before_secs: Option<u32>, ttl_secs: Option<u32> },
    Error(Error),
}

/// Appends a command as it is sent, but for its value, which follows. `None`: a home runs no such command.
pub(super) fn push_head(command: &Command<'_>, out: &mut Vec<u8>) -> Option<()> {
    let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    out.push(VERSION);
    let begin = |out: &mut Vec<u8>, kind: u8, key: Key<'_>| {
        let encoding = match key {
            key if key.is_plain() => PLAIN_KEY,
            key if key.is_base64() => BASE64_KEY,
            _ => PERCENT_KEY,
        };
        out.extend_from_slice(&[kind, encoding]);
        out.extend_from_slice(&(key.written().len() as u16).to_le_bytes());
        out.extend_from_slice(key.written());
    };
    match command {
        Command::Store(store) => {
            begin(out, STORE, store.key);
            out.extend_from_slice(&store.client_flags.to_le_bytes());
            out.extend_from_slice(&store.exptime.to_le_bytes());
            out.push(match store.mode {
                Mode::Set => 0,
                Mode::Add => 1,
                Mode::Replace => 2,
                Mode::Append => 3,
                Mode::Prepend => 4,
            });
            out.push(
                bit(store.compare.is_some(), COMPARES)
                    | bit(store.vivify.is_some(), VIVIFIES)
                    | bit(store.or_stale, OR_STALE)
                    | bit(store.explains_refusal, EXPLAINS)
                    | bit(store.removes_on_refusal, REMOVES),
            );
            out.extend_from_slice(&store.compare.unwrap_or_default().to_le_bytes());
            out.extend_from_slice(&store.vivify.unwrap_or_default().to_le_bytes());
        }
        Command::Arith(arith) => {
            begin(out, ARITH, arith.key);
            let (number, exptime) = arith.initial.unwrap_or_default();
            out.extend_from_slice(&arith.delta.to_le_bytes());
            out.push(
                bit(arith.compare.is_some(), COMPARES)
                    | bit(arith.initial.is_some(), VIVIFIES)
                    | bit(arith.decrement, DECREMENTS)
                    | bit(arith.exptime.is_some(), TOUCHES),
            );
            for number in [arith.compare.unwrap_or_default(), number] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            for exptime in [exptime, arith.exptime.unwrap_or_default()] {
                out.extend_from_slice(&exptime.to_le_bytes());
            }
        }
        _ => return None,
    }
    Some(())
}

/// How long a command with such a head is.
pub(super) fn command_bytes(command: &Command<'_>, head_bytes: usize) -> usize {
    head_bytes + command.value_bytes().unwrap_or_default() as usize
}

/// A command as it came, with its value. `None`: it is none.
pub(super) fn decode_command(bytes: &[u8]) -> Option<Received<'_>> {
    let mut rest = Reader::new(bytes);
    if rest.u8()? != VERSION {
        return None;
    }
    let (kind, encoding, key_bytes) = (rest.u8()?, rest.u8()?, rest.u16()?);
    let written = rest.bytes(usize::from(key_bytes))?;
    let key = match encoding {
        PLAIN_KEY => Key::new(written)?,
        BASE64_KEY => Key::base64(written)?,
        PERCENT_KEY => Key::percent(written)?,
        _ => return None,
    };
    let received = match kind {
        STORE => {
            let (client_flags, exptime) = (rest.u32()?, rest.i64()?);
            let (mode, bits) = (rest.u8()?, rest.u8()?);
            let mode = [Mode::Set, Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend]
                .into_iter()
                .nth(usize::from(mode))?;
            let (compare, vivify) = (rest.u64()?, rest.i64()?);
            Received {
                key,
                bits,
                value: rest.rest(),
                what: What::Store { client_flags, exptime, mode, compare, vivify },
            }
        }
        ARITH => {
            let (delta, bits) = (rest.u64()?, rest.u8()?);
            let (compare, number) = (rest.u64()?, rest.u64()?);
            let (number_exptime, exptime) = (rest.i64()?, rest.i64()?);
            if !rest.is_empty() {
                return None;
            }
            Received {
                key,
                bits,
                value: &[],
                what: What::Arith { delta, compare, number, number_exptime, exptime },
            }
        }
        _ => return None,
    };
    Some(received)
}

/// A command that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'b> {
    key: Key<'b>,
    pub(super) value: &'b [u8],
    bits: u8,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Store { client_flags: u32, exptime: i64, mode: Mode, compare: u64, vivify: i64 },
    Arith { delta: u64, compare: u64, number: u64, number_exptime: i64, exptime: i64 },
}

impl<'b> Received<'b> {
    pub(super) fn command(&self) -> Command<'b> {
        let key = self.key;
        match self.what {
            What::Store { client_flags, exptime, mode, compare, vivify } => Command::Store(Store {
                mode,
                compare: self.has(COMPARES).then_some(compare),
                or_stale: self.has(OR_STALE),
                vivify: self.has(VIVIFIES).then_some(vivify),
                explains_refusal: self.has(EXPLAINS),
                removes_on_refusal: self.has(REMOVES),
                // A body is shorter than that.
                ..Store::set(key, client_flags, exptime, self.value.len() as u32)
            }),
            What::Arith { delta, compare, number, number_exptime, exptime } => Command::Arith(Arith {
                key,
                delta,
                decrement: self.has(DECREMENTS),
                compare: self.has(COMPARES).then_some(compare),
                initial: self.has(VIVIFIES).then_some((number, number_exptime)),
                exptime: self.has(TOUCHES).then_some(exptime),
                cas: None,
            }),
        }
    }

    fn has(&self, bit: u8) -> bool {
        self.bits & bit != 0
    }
}

impl HomeReply {
    /// Of what a command answered. `None`: these commands answer nothing else.
    pub(super) fn of<V>(reply: &Reply<'_, V>) -> Option<Self> {
        Some(match *reply {
            Reply::Stored { cas, value_bytes, is_new } => Self::Stored { cas, value_bytes, is_new },
            Reply::NotStored => Self::NotStored,
            Reply::Exists => Self::Exists,
            Reply::NotFound => Self::NotFound,
            Reply::Number { number, cas, ttl_before_secs, ttl_secs } => {
                Self::Number { number, cas, ttl_before_secs, ttl_secs }
            }
            Reply::Error(error) => Self::Error(error),
            _ => return None,
        })
    }

    /// True if a home may answer this command so: a number is the answer to an incr alone, and it is never stored.
    pub(super) fn is_to(self, command: &[u8]) -> bool {
        match self {
            Self::Stored { .. } => command.get(1) == Some(&STORE),
            Self::Number { .. } => command.get(1) == Some(&ARITH),
            Self::NotStored | Self::Exists | Self::NotFound | Self::Error(_) => true,
        }
    }

    /// As this site gives it.
    pub(crate) fn into_reply<'t, V>(self) -> Reply<'t, V> {
        match self {
            Self::Stored { cas, value_bytes, is_new } => Reply::Stored { cas, value_bytes, is_new },
            Self::NotStored => Reply::NotStored,
            Self::Exists => Reply::Exists,
            Self::NotFound => Reply::NotFound,
            Self::Number { number, cas, ttl_before_secs, ttl_secs } => {
                Reply::Number { number, cas, ttl_before_secs, ttl_secs }
            }
            Self::Error(error) => Reply::Error(error),
        }
    }

    pub(super) fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Stored { cas, value_bytes, is_new } => {
                out.extend_from_slice(&[1, u8::from(is_new)]);
                out.extend_from_slice(&cas.to_le_bytes());
                out.extend_from_slice(&value_bytes.to_le_bytes());
            }
            Self::NotStored => out.push(2),
            Self::Exists => out.push(3),
            Self::NotFound => out.push(4),
            Self::Number { number, cas, ttl_before_secs, ttl_secs } => {
                out.push(5);
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&cas.to_le_bytes());
                for ttl_secs in [ttl_before_secs, ttl_secs] {
                    out.push(u8::from(ttl_secs.is_some()));
                    out.extend_from_slice(&ttl_secs.unwrap_or_default().to_le_bytes());
                }
            }
            Self::Error(error) => {
                let code = ERRORS.iter().position(|other| *other == error).unwrap_or_default();
                out.extend_from_slice(&[6, code as u8]);
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Reader::new(bytes);
        let reply = match rest.u8()? {
            1 => {
                let is_new = rest.bool()?;
                Self::Stored { is_new, cas: rest.u64()?, value_bytes: rest.u32()? }
            }
            2 => Self::NotStored,
            3 => Self::Exists,
            4 => Self::NotFound,
            5 => {
                let (number, cas) = (rest.u64()?, rest.u64()?);
                let mut ttl = || {
                    let has_ttl = rest.bool()?;
                    Some(Some(rest.u32()?).filter(|_| has_ttl))
                };
                Self::Number { number, cas, ttl_before_secs: ttl()?, ttl_secs: ttl()? }
            }
            6 => Self::Error(*ERRORS.get(usize::from(rest.u8()?))?),
            _ => return None,
        };
        rest.is_empty().then_some(reply)
    }
}

/// What a home may answer; the first stands for all others. New ones come last.
const ERRORS: [Error; 20] = [
    Error::StoreFailed,
    Error::HomeAway,
    Error::NonNumeric,
    Error::ReadOnly,
    Error::OverDiskQuota,
    Error::StoreFull,
    Error::StoreReadOnly,
    Error::StoreUnreadable,
    Error::TooLarge,
    Error::OutOfMemoryStoring,
    Error::OutOfMemoryReading,
    Error::OutOfMemory,
    Error::OwnVersion,
    Error::HomeSilent,
    Error::NewSite,
    Error::Maintenance,
    Error::HomeBusy,
    Error::OutOfMemoryFetching,
    Error::OutdatedSite,
    Error::SameSite,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key<'static> {
        Key::new(b"key").expect("a key")
    }

    fn commands() -> Vec<Command<'static>> {
        let set = Store::set(key(), 7, -1, 5);
        let arith = Arith {
            key: key(),
            delta: u64::MAX,
            decrement: true,
            compare: Some(3),
            initial: Some((9, 60)),
            exptime: Some(0),
            cas: None,
        };
        vec![
            Command::Store(Store { mode: Mode::Add, ..set }),
            Command::Store(Store { mode: Mode::Append, vivify: Some(5), explains_refusal: true, ..set }),
            Command::Store(Store { compare: Some(0), or_stale: true, removes_on_refusal: false, ..set }),
            Command::Arith(arith),
            Command::Arith(Arith { key: Key::base64(b"a2V5").expect("a key"), ..arith }),
            Command::Arith(Arith { key: Key::percent(b"k%20y").expect("a key"), ..arith }),
            Command::Arith(Arith { decrement: false, compare: None, initial: None, exptime: None, ..arith }),
        ]
    }

    #[test]
    fn commands_come_as_they_were_sent_and_parts_of_them_are_none() {
        for command in commands() {
            let value: &[u8] = if command.value_bytes().is_some() { b"value" } else { b"" };
            let mut bytes = Vec::new();
            push_head(&command, &mut bytes).expect("a home runs it");
            assert_eq!(command_bytes(&command, bytes.len()), bytes.len() + value.len());
            bytes.extend_from_slice(value);
            let received = decode_command(&bytes).expect("it is one");
            assert_eq!((received.command(), received.value), (command, value));
            let head_bytes = bytes.len() - value.len();
            (0..head_bytes).for_each(|end| assert!(decode_command(&bytes[..end]).is_none(), "{end}"));
        }
        assert!(push_head(&Command::Noop, &mut Vec::new()).is_none());
        assert!(
            decode_command(&[2, 1, 0, 1, 0, b'k']).is_none() && decode_command(&[1, 1, 0, 0, 0]).is_none()
        );
    }

    #[test]
    fn a_number_answers_an_incr_and_stored_a_store() {
        let stored = HomeReply::Stored { cas: 3, value_bytes: 4, is_new: true };
        let number = HomeReply::Number { number: 1, cas: 2, ttl_before_secs: None, ttl_secs: None };
        let (store, arith) = ([VERSION, STORE, 0], [VERSION, ARITH, 0]);
        assert!(
            stored.is_to(&store) && number.is_to(&arith) && !stored.is_to(&arith) && !number.is_to(&store)
        );
        assert!(HomeReply::NotFound.is_to(&store) && HomeReply::NotFound.is_to(&arith));
    }

    #[test]
    fn replies_come_as_they_were_sent_and_parts_of_them_are_none() {
        let number = |ttl_secs| HomeReply::Number { number: 1, cas: 2, ttl_before_secs: None, ttl_secs };
        let errors = ERRORS.into_iter().map(HomeReply::Error);
        let replies = [
            HomeReply::Stored { cas: 3, value_bytes: 4, is_new: true },
            HomeReply::NotStored,
            HomeReply::Exists,
            HomeReply::NotFound,
            number(None),
            number(Some(0)),
        ];
        for reply in errors.chain(replies) {
            let bytes = reply.encode();
            assert_eq!(HomeReply::decode(&bytes), Some(reply));
            (0..bytes.len()).for_each(|end| assert_eq!(HomeReply::decode(&bytes[..end]), None));
            assert_eq!(HomeReply::decode(&[&bytes[..], b"x"].concat()), None);
        }
    }
}
