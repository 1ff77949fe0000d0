//! What larder is shipped in: the packages by their formats' own tools, the Dockerfile by hadolint, the Helm chart by
//! Helm's own library (`packaging/helm/check`), and the options in both by larderd; the rules of Prometheus by
//! promtool, and their metrics, and those of the dashboard, by what larderd exports; the workflows that build and
//! publish a release by actionlint. The units of systemd are checked by larderd's own tests.

mod c_library;
mod monitoring;
mod packages;
mod promql;
mod replacement;

use std::fs;
use std::process::Command;

use larder_conformance::{Result, server};

use crate::{needs, shell};

/// `cargo xtask packaging`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    match args {
        [] => {
            needs::install()?;
            test()
        }
        [name] if name == "replacement" => {
            needs::install()?;
            needs::install_extra(&["debootstrap"])?;
            packages::replacement()
        }
        _ => Err(USAGE.into()),
    }
}

/// Checks all of it. Building the checker of the chart takes two minutes of processor time when it is not there.
pub(crate) fn test() -> Result<()> {
    packages::test()?;
    dockerfile()?;
    workflows()?;
    monitoring::check()?;
    chart()
}

fn dockerfile() -> Result<()> {
    let requirements = shell::root().join("packaging/requirements.txt");
    let python = shell::python(&shell::target_dir()?.join("hadolint"), &requirements)?;
    let dockerfile = shell::root().join("Dockerfile");
    let mut hadolint = Command::new(python.with_file_name("hadolint"));
    hadolint.args(["--failure-threshold=style"]).arg(&dockerfile);
    for entry in fs::read_dir(shell::root().join("docs/guides/compose"))? {
        hadolint.arg(entry?.path().join("Dockerfile"));
    }
    shell::run(&mut hadolint)?;
    // What the image starts, if nobody says otherwise: the last option prints the version, once all before it have been
    // read.
    let text = fs::read_to_string(dockerfile)?;
    let words = |instruction: &str| -> Result<Vec<String>> {
        let line = text.lines().rev().find_map(|line| line.strip_prefix(instruction));
        Ok(serde_json::from_str(line.ok_or_else(|| format!("no {instruction} in the Dockerfile"))?)?)
    };
    let options = [words("ENTRYPOINT ")?.split_off(1), words("CMD ")?].concat();
    shell::output(Command::new(server::larderd()?).args(options).arg("-V"))?;
    Ok(())
}

fn workflows() -> Result<()> {
    let folder = shell::target_dir()?.join("actionlint");
    let actionlint = folder.join("actionlint");
    if !actionlint.exists() {
        let module = format!("github.com/rhysd/actionlint/cmd/actionlint@{ACTIONLINT_VERSION}");
        shell::run(Command::new("go").args(["install", &module]).env("GOBIN", &folder))?;
    }
    // It has shellcheck read the scripts.
    shell::run(Command::new(actionlint).arg("-no-color").current_dir(shell::root()))
}

const ACTIONLINT_VERSION: &str = "v1.7.12";

fn chart() -> Result<()> {
    let helm = shell::root().join("packaging/helm");
    let check = shell::target_dir()?.join("chart-check");
    shell::go_build(&check, &helm.join("check"), ".")?;
    let mut check = Command::new(check);
    check.arg(helm.join("larder")).arg(server::larderd()?).arg(shell::root().join(monitoring::RULES));
    print!("{}", shell::output(&mut check)?);
    Ok(())
}

const USAGE: &str = "usage: cargo xtask packaging [replacement]
Packages larder, and compares, installs and removes the packages; lints the Dockerfile and the workflows of a release;
lints and renders the Helm chart; and lets larderd read the options in them. Tests the rules of Prometheus, and looks
for the metrics of rules and dashboard among those that larderd exports.

replacement: exchanges memcached for the packages in a Debian system of its own, and back, under PHP sessions and
Django. Needs root, and a kernel with namespaces, overlayfs and cgroup2.";
