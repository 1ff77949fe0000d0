//! The live page in headless Chromium: `conformance/browser` clicks through every state of it, and leaves screenshots.

use std::fs;
use std::path::{Path, PathBuf};
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

/// `cargo xtask screenshots`.
pub(crate) fn screenshots(args: &[String]) -> Result<()> {
    let [] = args else { return Err(SCREENSHOTS_USAGE.into()) };
    needs::install()?;
    shell::run(&mut shell::cargo(&["build", "--release"]))?;
    let programs = shell::target_dir()?.join("release");
    let larderd = programs.join("larderd");
    let memcached = server::reference().ok_or("no memcached is installed")?;
    let report = shell::target_dir()?.join("comparison.html");
    let server = |name, program: &Path| format!("{name}={} -u nobody -U 0 -t 1 -m 1024", program.display());
    let mut compare = Command::new(programs.join("larder"));
    compare.args(["bench", "compare", &server("memcached", &memcached), &server("larderd", &larderd)]);
    compare.args([
        "--rounds",
        "9",
        "--secs",
        "3",
        "--warm-up",
        "1",
        "--server-cores",
        "0",
        "--load-cores",
        "1",
    ]);
    // Below the limits of both servers and of the load: beyond them, latencies are those of a queue.
    compare.args(["--mix", "get=9,set=1", "--keys", "1000000", "--value-bytes", "100", "--rate", "30k"]);
    shell::run(compare.args(["--no-screen", "--html"]).arg(&report))?;
    let mut node = Command::new("node");
    node.arg(install()?.join("pictures.mjs")).arg(larderd).args([CHROMIUM.as_ref(), report.as_os_str()]);
    println!("{}", shell::output(node.arg(shell::root().join("docs/images")))?.trim());
    Ok(())
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
    for file in ["package.json", "package-lock.json", "page.mjs", "pictures.mjs", "larderd.mjs"] {
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

const SCREENSHOTS_USAGE: &str = "usage: cargo xtask screenshots
Makes the pictures of README.md in docs/images: the live page under load, and a comparison with memcached. Takes three
minutes, on a machine that does nothing else.";
