//! Every driver against a model, on disks that fail.

mod backup_stream;
mod conformance;
mod crash;
mod faults;
mod keeping;
mod model;
mod planted;
mod replicated;
mod script;
mod usage;
