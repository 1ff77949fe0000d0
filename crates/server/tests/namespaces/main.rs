//! Namespaces of a running larderd: policies in every dialect, quotas, flushes, files that are read again.

mod dialects;
mod files;
mod flush;
mod quotas;
mod reload;
mod server;
mod users;
