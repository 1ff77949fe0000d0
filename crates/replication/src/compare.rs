//! Comparing two sites in the background, so that what got lost silently is found and mended.
//!
//! The site that pulls asks. Both sites scan their states and add the [fingerprint](fingerprint()) of each to a
//! [`Tree`] of digests by the hash of its key. The asking site then descends into the ranges whose digests differ, has
//! the states of their leaves listed, [judges](judge()) each against its own, and asks for those that it lacks. Each
//! side mends itself alone: what the other one lacks, that one finds when it asks.
//!
//! Compared are items at or below a horizon, which every site has. So what is under way is no difference. What is
//! listed and sent is applied in the order of the log around it: a deletion that comes after it cannot be forgotten
//! before it is applied.
//!
//! | module | contains |
//! |---|---|
//! | [`Tree`], [`fingerprint()`] | digests of ranges of keys |
//! | [`Ask`], [`Answer`] | what the two sides say, and its bytes |
//! | `asking`, `answering` | the two sides, as parts of the ends of a connection |
//! | [`judge()`], [`mend()`], [`Votes`] | what a difference means, and what is done about it |

mod answering;
mod asking;
mod fingerprint;
mod judge;
mod message;
mod tree;
mod votes;

pub(crate) use answering::{Answering, Reply};
pub use answering::{CompareRead, CompareStep};
pub(crate) use asking::{Arrived, Asking, Output, check_asked};
pub use asking::{AskingStep, Comparison};
pub use fingerprint::{Fingerprint, fingerprint, is_compared, leaf_of};
pub use judge::{Finding, Ours, judge, mend};
pub use message::{Answer, Ask, KEYS_MAX, LISTED_BYTES_MAX, Listed, RANGES_MAX};
pub use tree::{LEAVES, Leaves, Tree};
pub use votes::Votes;

/// About so many bytes of states are scanned at once: little enough for a connection that also sends the log.
pub const STEP_BYTES: usize = 256 << 10;
/// How many bytes of states a site scans in a second for a comparison, by default.
pub const RATE_BYTES_PER_SEC: u64 = 8 << 20;

/// What one step of a scan found, and where the next one begins; `None`: there is no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanRead {
    /// Leaf and fingerprint of each state that [is compared](is_compared).
    pub states: Vec<(u16, Fingerprint)>,
    /// Opaque to this crate.
    pub position: Option<Vec<u8>>,
}
