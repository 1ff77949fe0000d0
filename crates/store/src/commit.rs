//! The way of a change to the store: the [`Journal`] orders the changes of all threads, the [`Committer`] appends them
//! in batches and makes them durable, and whoever shows a change waits for its position ([`Journal::outcome`]).

mod change;
mod committer;
mod failures;
mod journal;
mod known_versions;
mod versions;

pub use change::{Change, Kind, OnItsWay, Registers, SharedValue};
pub use committer::{Committer, Destination, Observer, Step};
pub use journal::{Journal, JournalConfig, Outcome, Refusal};
pub use versions::{Clock, SITE_BITS, VERSION_MAX, Versions, version_at};
