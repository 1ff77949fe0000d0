//! Every driver against a model, on disks that fail.

mod backup_stream;
mod compare;
mod conformance;
mod copied;
mod crash;
mod driver;
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
