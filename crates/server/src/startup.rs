//! From the command line to a process that may serve: options, endpoints, privileges, the sandbox.

pub mod address_space;
pub(crate) mod bounded_file;
pub mod daemon;
pub mod endpoints;
pub mod exposure;
pub(crate) mod file_lock;
pub mod large_pages;
pub mod machine_memory;
pub(crate) mod memory_file;
pub mod numa;
pub mod options;
pub mod pollers;
pub mod privileges;
mod protection;
pub mod random;
pub mod rehearsal;
pub mod sandbox;
pub mod settings;
pub mod signals;
pub mod systemd;
pub(crate) mod watched_files;
