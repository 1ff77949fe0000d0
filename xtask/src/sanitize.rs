//! The engine's tests where reads of memory that is nobody's are seen: under AddressSanitizer, and in Miri. Both need
//! the nightly toolchain.

use std::path::Path;
use std::process::{Command, Stdio};

use larder_conformance::Result;

use crate::shell;

/// Threads, model, corner cases and units under AddressSanitizer, which the engine tells what memory nobody may read.
pub(crate) fn address() -> Result<()> {
    need(&["--version"], "rustup toolchain install nightly")?;
    let host = shell::host(Command::new("rustc").env("RUSTUP_TOOLCHAIN", "nightly"))?;
    // With a target given, build scripts and macros are built without it.
    let mut test = nightly(&["test", "--quiet", "--no-fail-fast", "--package", "larder-engine"]);
    test.args(["--lib", "--tests", "--target", &host]);
    test.env("RUSTFLAGS", "-Zsanitizer=address --cfg asan");
    shell::run(test.env("CARGO_TARGET_DIR", shell::root().join("target/asan")))
}

/// Builds a library that C calls, into a target directory of its own; returns the target that it is built for.
pub(crate) fn build_with_address(package: &str, target: &Path) -> Result<String> {
    need(&["--version"], "rustup toolchain install nightly")?;
    let host = shell::host(Command::new("rustc").env("RUSTUP_TOOLCHAIN", "nightly"))?;
    let mut build = nightly(&["build", "--quiet", "--package", package, "--lib", "--target", &host]);
    build.env("RUSTFLAGS", "-Zsanitizer=address").env("CARGO_TARGET_DIR", target);
    shell::run(&mut build)?;
    Ok(host)
}

/// What Miri runs in five minutes: the tests are shorter there, and their caches small. It sees data races, and
/// accesses that break the rules of aliasing. It maps no files; a stand-in (`engine/src/mem/file_miri.rs`) has what one
/// process leaves to the next. What shares the pages of a real file runs under AddressSanitizer, and in processes that
/// are killed.
pub(crate) fn miri() -> Result<()> {
    need(&["miri", "--version"], "rustup +nightly component add miri rust-src")?;
    let mut test = nightly(&["miri", "test", "--package", "larder-engine", "--lib"]);
    test.args(["--test", "threads", "--test", "backing", "--test", "adoption", "--"]);
    test.args(MIRI_TESTS).env("MIRIFLAGS", "-Zmiri-strict-provenance");
    shell::run(test.env("CARGO_TARGET_DIR", shell::root().join("target/miri")))
}

/// Items, segments and runs without threads, then with them; an engine before a store, with pinned values; one that an
/// earlier process left in a file.
const MIRI_TESTS: &[&str] = &[
    "what_is_written_is_read",
    "a_segment_lives_without_a_handle",
    "values_begin_as_zeros",
    "values_are_whole",
    "no_increment",
    "one_creator",
    "all_memory",
    "a_firm_pin_is_not_revoked",
    "another_thread_reads_what_is_pinned",
    "a_small_memory_before_a_store_is_a_map",
    "an_older_value_does_not_return",
    "no_version_comes_again",
    "what_was_flushed_is_asked_of_the_store",
    "threads_lose_no_change",
    "more_threads_than_handles_share_them",
    "one_process_after_another",
];

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
