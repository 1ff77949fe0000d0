//! `cargo xtask sessions`: the example of `examples/sessions`, PHP sessions at two sites of which one dies.

use std::process::Command;

use larder_conformance::server::free_port;
use larder_conformance::{Result, server};

use crate::{needs, shell};

/// Runs it.
pub(crate) fn run(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        return Err("usage: cargo xtask sessions".into());
    }
    needs::install_only(&["php-cli", "php-memcached", "curl"])?;
    let mut example = Command::new(shell::root().join("examples/sessions/run.sh"));
    example.env("LARDERD", server::larderd()?);
    for ports in ["MEMCACHED_PORTS", "REPLICATION_PORTS", "WEB_PORTS"] {
        example.env(ports, format!("{} {}", free_port(), free_port()));
    }
    shell::run(&mut example)
}
