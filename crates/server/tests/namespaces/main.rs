//! Namespaces of a running larderd: policies in every dialect, quotas, flushes, files that are read again.

mod dialects;
mod files;
mod flush;
mod quotas;
mod reload;
mod server;
mod users;

use larder_conformance::server::again_by_uring;

#[test]
fn by_uring() {
    again_by_uring(&["policies_hold_in_every_dialect"]);
}
