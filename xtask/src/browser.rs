//! The live page in headless Chromium: `conformance/browser` clicks through every state of it, and leaves screenshots.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use larder_conformance::{Result, server};

use crate::{needs, shell};

/// `cargo xtask browser`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    match args {
        [] => {
            needs::install()?;
            println!("{}", test()?);
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

/// Runs the test; returns what it says. Its packages and its screenshots lie below the target directory.
pub(crate) fn test() -> Result<String> {
    let folder = install()?;
    let shots = shell::target_dir()?.join("screenshots");
    let mut node = Command::new("node");
    node.arg(folder.join("page.mjs")).arg(server::larderd()?).arg(CHROMIUM).arg(&shots);
    shell::output(&mut node).map(|line| line.trim().to_owned())
}

fn install() -> Result<PathBuf> {
    let source = shell::root().join("conformance/browser");
    let folder = shell::target_dir()?.join("browser");
    fs::create_dir_all(&folder)?;
    for file in ["package.json", "package-lock.json", "page.mjs", "larderd.mjs"] {
        fs::copy(source.join(file), folder.join(file))?;
    }
    let mut npm = Command::new("npm");
    shell::run(npm.args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&folder))?;
    Ok(folder)
}

/// Debian's.
const CHROMIUM: &str = "/usr/bin/chromium";

const USAGE: &str = "usage: cargo xtask browser
Clicks through the live page of larderd in headless Chromium, and leaves a screenshot of each state in target/screenshots.";
