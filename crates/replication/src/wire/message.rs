//! Messages: the payloads of frames.

use super::WireError;
use super::frame::push_frame;
use super::proof::Proof;
use super::side::Side;
use crate::bytes::{Reader, push_short_bytes};
use crate::compare::{Answer, Ask};
use crate::entry::Beat;
use crate::members::{Cursor, Position, Standing};

/// The most prefixes of a subscription.
pub const PREFIXES_MAX: usize = 1024;
/// The longest sentence of a refusal, in bytes.
pub const SENTENCE_BYTES_MAX: usize = 512;
/// The longest position of a copy, in bytes: a key, or less.
pub const COPY_POSITION_BYTES_MAX: usize = u16::MAX as usize;

/// What begins a connection: no other protocol does.
const MAGIC: &[u8; 8] = b"LARDRREP";

/// What one side tells the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// From the publisher, first of all.
    Challenge(Challenge),
    /// The subscriber's answer.
    Hello(Hello, Proof),
    /// From the publisher: both sides are who they say.
    Welcome(Proof),
    /// From the subscriber: send what follows this cursor.
    Subscribe {
        /// Where the subscriber is.
        cursor: Cursor,
        /// What it keeps: keys that begin with one of these. None: all keys.
        prefixes: Vec<&'a [u8]>,
    },
    /// From the publisher: batches follow, from here on.
    Start {
        /// The cursor's.
        sequence: u64,
    },
    /// From the publisher: a copy has to be taken first.
    CopyNeeded(CopyReason),
    /// A piece of the body of the batch or copy that follows.
    Part {
        /// Its bytes, decompressed.
        body_bytes: u32,
        /// Compressed if it is shorter.
        data: &'a [u8],
    },
    /// From the publisher: the parts before this are its entries with sequences above `from`, up to `to`.
    Batch {
        /// The last sequence before it.
        from: u64,
        /// The last sequence that it speaks for. What is missing in between was replaced by something later, or is
        /// another site's.
        to: u64,
        /// The publisher's wall clock.
        unix_micros: u64,
    },
    /// From the subscriber.
    Confirm {
        /// All up to here is applied: more may be sent.
        applied: u64,
        /// All up to here stays, also after power loss.
        durable: u64,
    },
    /// From the subscriber: send a copy.
    CopyRequest {
        /// The start of a copy that was interrupted; 0: none.
        start: u64,
        /// Up to where it came.
        position: &'a [u8],
    },
    /// From the publisher: the pieces of a copy follow.
    CopyBegin {
        /// The log from here on, and the copy, are everything.
        start: u64,
        /// What the copy does not have, up to this version, is gone; 0: it may just have been written elsewhere.
        horizon: u64,
        /// About how many bytes the whole copy has, for who looks on.
        whole_bytes: u64,
        /// What the pieces follow: empty, or the position that was asked for.
        position: &'a [u8],
        /// How far the publisher was in the logs of the other sites.
        others: Vec<Position>,
    },
    /// From the publisher: the parts before this are states of keys, and flushes, in no order.
    CopyPiece {
        /// 1, 2, 3 and so on.
        number: u64,
        /// There are no more.
        is_last: bool,
        /// Up to where the copy comes with it.
        position: &'a [u8],
    },
    /// From the subscriber: all pieces up to this one are applied.
    CopyConfirm {
        /// Of the piece.
        number: u64,
    },
    /// From the subscriber: the copy is whole, and durable.
    CopyTaken,
    /// From either side, if it has nothing else to say for a while.
    Alive {
        /// The sender's wall clock.
        unix_micros: u64,
    },
    /// From either side: the connection ends.
    Refused(Refusal, &'a str),
    /// From the subscriber, beside the log: a comparison.
    Compare(Ask<'a>),
    /// From the publisher.
    Compared(Answer<'a>),
    /// On a connection that does not pull the log.
    Side(Side),
}

/// How a publisher introduces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The protocol that it speaks.
    pub protocol: u16,
    /// Its site.
    pub site: u8,
    /// Of its log.
    pub incarnation: u64,
    /// Run of the sender, new with each start: see [`Settings::run`](crate::link::Settings).
    pub run: u64,
    /// 32 random bytes.
    pub nonce: [u8; 32],
}

/// How a subscriber introduces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The protocol that it speaks.
    pub protocol: u16,
    /// Its site.
    pub site: u8,
    /// Of its log.
    pub incarnation: u64,
    /// Run of the sender.
    pub run: u64,
    /// How many bytes it lets be under way that are not applied yet, beside one batch.
    pub window_bytes: u32,
    /// 32 random bytes.
    pub nonce: [u8; 32],
}

/// Why a copy is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyReason {
    /// The cursor is of another incarnation of the log, or there is none.
    OtherIncarnation,
    /// The log does not reach back so far.
    TooFarBehind,
    /// The subscriber was restored from a backup.
    Restored,
    /// The subscriber was silent for too long.
    Silent,
}

impl std::fmt::Display for CopyReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OtherIncarnation => "it has not followed this log before",
            Self::TooFarBehind => "the log does not reach back so far",
            Self::Restored => "it was restored from a backup",
            Self::Silent => "it was silent for too long",
        })
    }
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The two sides speak different protocols.
    Protocol,
    /// Two servers have the same number.
    SameSite,
    /// The other side does not know the token: it is of another cluster.
    Token,
    /// The other side is no configured peer.
    UnknownSite,
    /// The other side claims a position that is not in this log.
    AheadOfLog,
    /// The other side did not follow the protocol.
    Violation,
    /// The other side was not heard for too long, or has not proven who it is.
    TimedOut,
    /// The site stops, or cannot serve now.
    Unavailable,
    /// The site has connected to itself.
    Itself,
    /// The other side has less of the log than it had.
    OlderCopy,
}

impl Refusal {
    /// Number of reasons.
    pub const COUNT: usize = 10;

    /// True if the reason does not pass by itself: an operator has to act.
    pub fn stays(self) -> bool {
        !matches!(self, Self::Violation | Self::TimedOut | Self::Unavailable)
    }
}

impl Hello {
    pub(crate) fn encode_said(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.protocol.to_le_bytes());
        out.push(self.site);
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.run.to_le_bytes());
        out.extend_from_slice(&self.window_bytes.to_le_bytes());
        out.extend_from_slice(&self.nonce);
    }

    /// What the proofs cover of it.
    pub fn said(&self) -> Vec<u8> {
        let mut said = Vec::new();
        self.encode_said(&mut said);
        said
    }
}

impl Challenge {
    pub(crate) fn encode_said(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.protocol.to_le_bytes());
        out.push(self.site);
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.run.to_le_bytes());
        out.extend_from_slice(&self.nonce);
    }

    /// What the proofs cover of it.
    pub fn said(&self) -> Vec<u8> {
        let mut said = Vec::new();
        self.encode_said(&mut said);
        said
    }
}

impl<'a> Message<'a> {
    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        push_frame(out, self.kind(), |out| self.encode_payload(out));
    }

    /// The message in a frame.
    pub fn decode(kind: u8, payload: &'a [u8]) -> Result<Self, WireError> {
        let mut rest = Reader::new(payload);
        let message = Self::decode_payload(kind, &mut rest);
        match message {
            Some(message) if rest.is_empty() => Ok(message),
            _ => Err(WireError::Malformed("a message is not what its kind says")),
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Challenge(_) => 1,
            Self::Hello(..) => 2,
            Self::Welcome(_) => 3,
            Self::Subscribe { .. } => 4,
            Self::Start { .. } => 5,
            Self::CopyNeeded(_) => 6,
            Self::Part { .. } => 7,
            Self::Batch { .. } => 8,
            Self::Confirm { .. } => 9,
            Self::CopyRequest { .. } => 10,
            Self::CopyBegin { .. } => 11,
            Self::CopyPiece { .. } => 12,
            Self::CopyConfirm { .. } => 13,
            Self::CopyTaken => 14,
            Self::Alive { .. } => 15,
            Self::Refused(..) => 16,
            Self::Compare(_) => 17,
            Self::Compared(_) => 18,
            Self::Side(side) => side.kind(),
        }
    }

    fn encode_payload(&self, out: &mut Vec<u8>) {
        let numbers = |out: &mut Vec<u8>, numbers: &[u64]| {
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        };
        match self {
            Self::Challenge(challenge) => challenge.encode_said(out),
            Self::Hello(hello, proof) => {
                hello.encode_said(out);
                out.extend_from_slice(proof);
            }
            Self::Welcome(proof) => out.extend_from_slice(proof),
            Self::Subscribe { cursor, prefixes } => {
                numbers(out, &[cursor.incarnation, cursor.run, cursor.sequence]);
                out.extend_from_slice(&(prefixes.len() as u16).to_le_bytes());
                prefixes.iter().for_each(|prefix| push_short_bytes(out, prefix));
            }
            Self::Start { sequence } => numbers(out, &[*sequence]),
            Self::CopyNeeded(reason) => out.push(*reason as u8),
            Self::Part { body_bytes, data } => {
                out.extend_from_slice(&body_bytes.to_le_bytes());
                out.extend_from_slice(data);
            }
            Self::Batch { from, to, unix_micros } => numbers(out, &[*from, *to, *unix_micros]),
            Self::Confirm { applied, durable } => numbers(out, &[*applied, *durable]),
            Self::CopyRequest { start, position } => {
                numbers(out, &[*start]);
                out.extend_from_slice(position);
            }
            Self::CopyBegin { start, horizon, whole_bytes, position, others } => {
                numbers(out, &[*start, *horizon, *whole_bytes]);
                push_short_bytes(out, position);
                others.iter().for_each(|other| encode_position(other, out));
            }
            Self::CopyPiece { number, is_last, position } => {
                numbers(out, &[*number]);
                out.push(u8::from(*is_last));
                out.extend_from_slice(position);
            }
            Self::CopyConfirm { number } => numbers(out, &[*number]),
            Self::CopyTaken => {}
            Self::Alive { unix_micros } => numbers(out, &[*unix_micros]),
            Self::Refused(refusal, sentence) => {
                out.push(*refusal as u8);
                out.extend_from_slice(sentence.as_bytes());
            }
            Self::Compare(ask) => ask.encode(out),
            Self::Compared(answer) => answer.encode(out),
            Self::Side(side) => side.encode_payload(out),
        }
    }

    fn decode_payload(kind: u8, rest: &mut Reader<'a>) -> Option<Self> {
        Some(match kind {
            1 => Self::Challenge(decode_challenge(rest)?),
            2 => Self::Hello(decode_hello(rest)?, rest.array()?),
            3 => Self::Welcome(rest.array()?),
            4 => {
                let cursor = decode_cursor(rest)?;
                let count = Some(usize::from(rest.u16()?)).filter(|count| *count <= PREFIXES_MAX)?;
                let prefixes = (0..count).map(|_| rest.short_bytes()).collect::<Option<_>>()?;
                Self::Subscribe { cursor, prefixes }
            }
            5 => Self::Start { sequence: rest.u64()? },
            6 => Self::CopyNeeded(match rest.u8()? {
                0 => CopyReason::OtherIncarnation,
                1 => CopyReason::TooFarBehind,
                2 => CopyReason::Restored,
                3 => CopyReason::Silent,
                _ => return None,
            }),
            7 => Self::Part { body_bytes: rest.u32()?, data: rest.rest() },
            8 => Self::Batch { from: rest.u64()?, to: rest.u64()?, unix_micros: rest.u64()? },
            9 => Self::Confirm { applied: rest.u64()?, durable: rest.u64()? },
            10 => Self::CopyRequest { start: rest.u64()?, position: decode_copy_position(rest)? },
            11 => {
                let (start, horizon, whole_bytes) = (rest.u64()?, rest.u64()?, rest.u64()?);
                let position = rest.short_bytes()?;
                let mut others = Vec::new();
                while !rest.is_empty() {
                    others.push(decode_position(rest)?);
                }
                Self::CopyBegin { start, horizon, whole_bytes, position, others }
            }
            12 => {
                let (number, is_last) = (rest.u64()?, rest.bool()?);
                Self::CopyPiece { number, is_last, position: decode_copy_position(rest)? }
            }
            13 => Self::CopyConfirm { number: rest.u64()? },
            14 => Self::CopyTaken,
            15 => Self::Alive { unix_micros: rest.u64()? },
            16 => {
                let refusal = decode_refusal(rest.u8()?)?;
                let sentence = std::str::from_utf8(rest.rest()).ok()?;
                Self::Refused(
                    refusal,
                    Some(sentence).filter(|sentence| sentence.len() <= SENTENCE_BYTES_MAX)?,
                )
            }
            17 => Self::Compare(Ask::decode(rest)?),
            18 => Self::Compared(Answer::decode(rest)?),
            24..=31 => Self::Side(Side::decode_payload(kind, rest)?),
            _ => return None,
        })
    }
}

fn decode_challenge(rest: &mut Reader<'_>) -> Option<Challenge> {
    rest.array().filter(|magic| magic == MAGIC)?;
    Some(Challenge {
        protocol: rest.u16()?,
        site: rest.u8()?,
        incarnation: rest.u64()?,
        run: rest.u64()?,
        nonce: rest.array()?,
    })
}

fn decode_hello(rest: &mut Reader<'_>) -> Option<Hello> {
    rest.array().filter(|magic| magic == MAGIC)?;
    Some(Hello {
        protocol: rest.u16()?,
        site: rest.u8()?,
        incarnation: rest.u64()?,
        run: rest.u64()?,
        window_bytes: rest.u32()?,
        nonce: rest.array()?,
    })
}

fn encode_position(position: &Position, out: &mut Vec<u8>) {
    out.push(position.site);
    let Beat { clock, stable, horizon } = position.beat;
    let Cursor { incarnation, run, sequence } = position.cursor;
    for number in [incarnation, run, sequence, clock, stable, horizon] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// Standing, incarnation and confirmed cursor are local to each site, and not sent.
fn decode_position(rest: &mut Reader<'_>) -> Option<Position> {
    Some(Position {
        site: rest.u8()?,
        standing: Standing::In,
        incarnation: 0,
        cursor: decode_cursor(rest)?,
        beat: Beat { clock: rest.u64()?, stable: rest.u64()?, horizon: rest.u64()? },
        confirmed: Cursor::default(),
    })
}

fn decode_cursor(rest: &mut Reader<'_>) -> Option<Cursor> {
    Some(Cursor { incarnation: rest.u64()?, run: rest.u64()?, sequence: rest.u64()? })
}

fn decode_copy_position<'a>(rest: &mut Reader<'a>) -> Option<&'a [u8]> {
    Some(rest.rest()).filter(|position| position.len() <= COPY_POSITION_BYTES_MAX)
}

fn decode_refusal(code: u8) -> Option<Refusal> {
    Some(match code {
        0 => Refusal::Protocol,
        1 => Refusal::SameSite,
        2 => Refusal::Token,
        3 => Refusal::UnknownSite,
        4 => Refusal::AheadOfLog,
        5 => Refusal::Violation,
        6 => Refusal::TimedOut,
        7 => Refusal::Unavailable,
        8 => Refusal::Itself,
        9 => Refusal::OlderCopy,
        _ => return None,
    })
}
