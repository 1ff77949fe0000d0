//! What goes over a connection between two sites: frames, messages in them, and the proof that both know the token.
//!
//! `docs/replication-protocol.md` has the bytes.

mod body;
mod frame;
mod message;
mod proof;
mod side;

pub use body::{Assembly, PART_BYTES_MAX, push_parts};
pub use frame::{FRAME_BYTES_MAX, FrameDecoder, HANDSHAKE_BYTES_MAX};
pub use message::{
    COPY_POSITION_BYTES_MAX, Challenge, CopyReason, Hello, Message, PREFIXES_MAX, Refusal, SENTENCE_BYTES_MAX,
};
pub use proof::{Proof, Role, Token};
pub use side::{GAP_PREFIXES_MAX, Gap, RING_SHARDS_MAX, RingCursor, Side};

/// The version of the protocol. Sites that speak another one are refused.
pub const PROTOCOL: u16 = 2;

/// Why what arrived is not this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// A frame is longer than any that may come here.
    TooLong,
    /// A batch is longer than what this site takes.
    BodyTooLong,
    /// A checksum is wrong.
    Checksum,
    /// A frame is not what its kind says.
    Malformed(&'static str),
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong => f.write_str("a frame is too long"),
            Self::BodyTooLong => f.write_str("an entry is longer than the longest that this site takes"),
            Self::Checksum => f.write_str("a frame has a wrong checksum"),
            Self::Malformed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for WireError {}
