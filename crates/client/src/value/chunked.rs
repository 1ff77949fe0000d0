//! Values that are larger than an item may be, in pieces.
//!
//! The value's own key has a [`Head`], which says how many pieces there are, of which size, and what they add up to. A
//! piece has a key of its own, in which the head's generation is: a number that each write chooses anew. So pieces of
//! two writes are never mixed. A value that fits in an item is stored as it is.
//!
//! All of this is only planned and checked here, except by [`Chunked`], which asks the servers by a [`Client`]. Pieces
//! are stored before the head that names them, so that readers have the old value until all of the new one is there,
//! and deleted after it. A value with a piece missing is a miss: that is what eviction of a piece means.
//!
//! [`Client`]: crate::Client

mod blocking;
mod head;

pub use blocking::{Chunked, Error};
pub use head::{Head, HeadError};

/// How many bytes a key may have, so that those of its pieces are keys.
pub const KEY_BYTES_MAX: usize = larder_protocol::KEY_BYTES_MAX - head::SUFFIX_BYTES_MAX;
/// How many pieces a value may have.
pub const PIECES_MAX: usize = 100_000;
