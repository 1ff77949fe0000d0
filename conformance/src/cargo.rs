//! Cargo, called by a program that Cargo runs.

use std::env;
use std::process::Command;

/// The Cargo that runs this program, else the one on the PATH.
///
/// It does not inherit the name, version and directory of the package that is running: build scripts that read them
/// (ring's does) would run again, and all that depends on them, for each package whose tests build larderd.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let about_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(about_package) {
            cargo.env_remove(name);
        }
    }
    cargo
}
