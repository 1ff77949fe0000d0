//! Messages of a connection that does not pull the log: what caches tell each other, and commands for a key's home.

use crate::bytes::{Reader, push_short_bytes};

/// The most shards of a ring.
pub const RING_SHARDS_MAX: usize = 64;
/// The most prefixes of a gap: a server has no more namespaces.
pub const GAP_PREFIXES_MAX: usize = 64;

/// Where a site is in the ring of another one: in each shard, the last sequence that it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingCursor {
    /// Of the ring: another one with each start of its server. 0: none is known.
    pub incarnation: u64,
    /// By shard, at most [`RING_SHARDS_MAX`].
    pub sequences: Vec<u64>,
}

/// What a ring does not have any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    /// It may be anything.
    All,
    /// Changes of keys in the namespaces with these prefixes; the default's is empty. None: nothing is missing.
    Of(Vec<Vec<u8>>),
}

/// A message. A body, if it has one, is in the parts before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// From the side that connects: tell what the ring has after this.
    Follow {
        /// Where it is.
        cursor: RingCursor,
        /// The longest body that it takes.
        body_bytes_max: u64,
    },
    /// From the other side, before anything else and wherever the ring has lost something: what is told follows this
    /// cursor, and what was lost before it is this.
    Following(RingCursor, Gap),
    /// The body are changes of a shard, up to this sequence.
    Told {
        /// Of the ring.
        shard: u8,
        /// The last sequence that it speaks for.
        to: u64,
    },
    /// From the side that connects: applied up to here.
    Taken {
        /// Of the ring.
        shard: u8,
        /// See [`Side::Told`].
        to: u64,
    },
    /// From the side that connects: it will ask for commands to be run.
    OpenHome,
    /// From the other side, at once and then each second.
    HomeClock {
        /// Its own clock, of which only itself knows the beginning. Nobody sets it.
        clock_micros: u64,
        /// The longest command that it takes.
        command_bytes_max: u64,
    },
    /// From the side that connects: the body is a command for this site to run.
    Ask {
        /// Its number on this connection.
        number: u64,
        /// On the clock of [`Side::HomeClock`]: it is not to be run later, since nobody waits for the answer any more.
        until_micros: u64,
    },
    /// The body is the answer to a command.
    Answer {
        /// See [`Side::Ask`].
        number: u64,
    },
}

impl Side {
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Follow { .. } => 24,
            Self::Following(..) => 25,
            Self::Told { .. } => 26,
            Self::Taken { .. } => 27,
            Self::Ask { .. } => 28,
            Self::Answer { .. } => 29,
            Self::OpenHome => 30,
            Self::HomeClock { .. } => 31,
        }
    }

    pub(super) fn encode_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Follow { cursor, body_bytes_max } => {
                cursor.encode(out);
                out.extend_from_slice(&body_bytes_max.to_le_bytes());
            }
            Self::Following(cursor, gap) => {
                cursor.encode(out);
                match gap {
                    Gap::All => out.push(1),
                    Gap::Of(prefixes) => {
                        out.extend_from_slice(&[0, prefixes.len().min(GAP_PREFIXES_MAX) as u8]);
                        prefixes
                            .iter()
                            .take(GAP_PREFIXES_MAX)
                            .for_each(|prefix| push_short_bytes(out, prefix));
                    }
                }
            }
            Self::Told { shard, to } | Self::Taken { shard, to } => {
                out.push(*shard);
                out.extend_from_slice(&to.to_le_bytes());
            }
            Self::Ask { number: one, until_micros: other }
            | Self::HomeClock { clock_micros: one, command_bytes_max: other } => {
                out.extend_from_slice(&one.to_le_bytes());
                out.extend_from_slice(&other.to_le_bytes());
            }
            Self::Answer { number } => out.extend_from_slice(&number.to_le_bytes()),
            Self::OpenHome => {}
        }
    }

    pub(super) fn decode_payload(kind: u8, rest: &mut Reader<'_>) -> Option<Self> {
        Some(match kind {
            24 => Self::Follow { cursor: RingCursor::decode(rest)?, body_bytes_max: rest.u64()? },
            25 => Self::Following(RingCursor::decode(rest)?, decode_gap(rest)?),
            26 => Self::Told { shard: rest.u8()?, to: rest.u64()? },
            27 => Self::Taken { shard: rest.u8()?, to: rest.u64()? },
            28 => Self::Ask { number: rest.u64()?, until_micros: rest.u64()? },
            29 => Self::Answer { number: rest.u64()? },
            30 => Self::OpenHome,
            31 => Self::HomeClock { clock_micros: rest.u64()?, command_bytes_max: rest.u64()? },
            _ => return None,
        })
    }
}

impl RingCursor {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.push(self.sequences.len().min(RING_SHARDS_MAX) as u8);
        for sequence in self.sequences.iter().take(RING_SHARDS_MAX) {
            out.extend_from_slice(&sequence.to_le_bytes());
        }
    }

    fn decode(rest: &mut Reader<'_>) -> Option<Self> {
        let (incarnation, count) = (rest.u64()?, usize::from(rest.u8()?));
        let count = Some(count).filter(|count| *count <= RING_SHARDS_MAX)?;
        Some(Self { incarnation, sequences: (0..count).map(|_| rest.u64()).collect::<Option<_>>()? })
    }
}

fn decode_gap(rest: &mut Reader<'_>) -> Option<Gap> {
    match rest.u8()? {
        0 => {
            let count = Some(usize::from(rest.u8()?)).filter(|count| *count <= GAP_PREFIXES_MAX)?;
            let prefixes = (0..count).map(|_| rest.short_bytes().map(<[u8]>::to_vec));
            Some(Gap::Of(prefixes.collect::<Option<_>>()?))
        }
        1 => Some(Gap::All),
        _ => None,
    }
}
