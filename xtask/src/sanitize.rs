//! The engine's tests where reads of memory that is nobody's are seen: under AddressSanitizer, and in Miri. Both need
//! the nightly toolchain.

use std::process::{Command, Stdio};

use larder_conformance::Result;

use crate::shell;

/// Threads, model, corner cases and units under AddressSanitizer, which the engine tells what memory nobody may read.
pub(crate) fn address() -> Result<()> {
    need(&["--version"], "rustup toolchain install nightly")?;
    let rustc = shell::output(Command::new("rustc").arg("-vV").env("RUSTUP_TOOLCHAIN", "nightly"))?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    // With a target given, build scripts and macros are built without it.
    let mut test =
        nightly(&["test", "--quiet", "--package", "larder-engine", "--lib", "--tests", "--target", host]);
    test.env("RUSTFLAGS", "-Zsanitizer=address --cfg asan");
    shell::run(test.env("CARGO_TARGET_DIR", shell::root().join("target/asan")))
}

/// What Miri can run in minutes: the tests are shorter there. It also sees data races.
pub(crate) fn miri() -> Result<()> {
    need(&["miri", "--version"], "rustup +nightly component add miri rust-src")?;
    let mut test = nightly(&["miri", "test", "--quiet", "--package", "larder-engine", "--test", "threads"]);
    test.args(["--", "values_are_whole", "no_increment", "one_creator"]);
    test.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    shell::run(test.env("CARGO_TARGET_DIR", shell::root().join("target/miri")))
}

/// An error that says how to install what is missing.
fn need(probe: &[&str], install: &str) -> Result<()> {
    let status = nightly(probe).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if status.is_ok_and(|status| status.success()) {
        Ok(())
    } else {
        Err(format!("`cargo +nightly {}` does not run: {install}", probe.join(" ")).into())
    }
}

fn nightly(args: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(args).current_dir(shell::root()).env("RUSTUP_TOOLCHAIN", "nightly");
    // Those of the toolchain that runs us.
    cargo.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTDOC");
    cargo
}
