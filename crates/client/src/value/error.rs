//! What can be wrong with a value.

use std::{error, fmt};

/// Why a value cannot be decoded or encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The flags mean nothing in this dialect.
    UnknownFlags {
        /// The dialect, by the name of its client.
        dialect: &'static str,
        /// The flags.
        client_flags: u32,
    },
    /// The bytes are not what the flags say.
    Malformed(&'static str),
    /// The number needs more bits than the type has.
    OutOfRange,
    /// The compressed bytes are damaged.
    Damaged {
        /// The compression.
        compression: &'static str,
    },
    /// The compression is one that larder does not have.
    UnsupportedCompression(&'static str),
    /// The value, or what it would be when decompressed, is larger than allowed.
    TooLarge {
        /// How large it may be.
        value_bytes_max: usize,
    },
    /// It is this, and not JSON.
    NotJson(&'static str),
    /// The dialect has no such type.
    Unsupported {
        /// The dialect, by the name of its client.
        dialect: &'static str,
        /// The type.
        kind: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownFlags { dialect, client_flags } => {
                write!(f, "the flags {client_flags} mean nothing to {dialect}")
            }
            Self::Malformed(expected) => write!(f, "the value is not {expected}, which its flags say it is"),
            Self::NotJson(kind) => write!(f, "the value is {kind}, and not JSON"),
            Self::OutOfRange => f.write_str("the number needs more bits than its type has"),
            Self::Damaged { compression } => write!(f, "the value is not what {compression} compressed"),
            Self::UnsupportedCompression(compression) => {
                write!(f, "the value is compressed by {compression}, which is not supported")
            }
            Self::TooLarge { value_bytes_max } => {
                write!(f, "the value has more than {value_bytes_max} bytes")
            }
            Self::Unsupported { dialect, kind } => write!(f, "{dialect} has no flags for {kind}"),
        }
    }
}

impl error::Error for Error {}
