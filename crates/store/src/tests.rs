//! Every driver against a model, on disks that fail.

mod backup_stream;
#[cfg(feature = "rocksdb")]
mod compare;
mod conformance;
mod copied;
mod crash;
mod driver;
#[cfg(feature = "rocksdb")]
mod engines;
mod faults;
mod followed;
mod keeping;
mod model;
mod pieces;
mod planted;
mod replicated;
mod script;
mod slow_syncs;
mod usage;
