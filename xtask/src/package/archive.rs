//! The archive: a tree for `/usr/local`, for systems without packages of larder.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use larder_conformance::Result;

use super::{Content, tree::Tree};
use crate::shell;

pub(super) fn make(content: &Content) -> Result<PathBuf> {
    let name = format!("larder-{}-{}", content.version, target()?);
    let tree = Tree::create(content.staging.join("archive").join(&name))?;
    content.install(&tree, "", "site-functions")?;
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        tree.copy(&shell::root().join(file), format!("share/doc/larder/{file}"), 0o644)?;
    }
    let unit = "lib/systemd/system/larderd.service";
    let text = fs::read_to_string(tree.path().join(unit))?;
    tree.write(unit, text.replace("ExecStart=/usr/bin/", "ExecStart=/usr/local/bin/"), 0o644)?;

    let archive = content.output.join(format!("{name}.tar"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=ustar", "--sort=name", "--owner=root:0", "--group=root:0"]);
    tar.arg(format!("--mtime=@{}", content.epoch_secs)).arg("--file").arg(&archive);
    shell::run(tar.arg("--directory").arg(content.staging.join("archive")).arg(&name))?;
    let level = format!("-{}", content.level.max(1));
    shell::run(Command::new("gzip").args(["--force", "--no-name", &level]).arg(&archive))?;
    Ok(content.output.join(format!("{name}.tar.gz")))
}

/// The target that the programs are for.
pub(super) fn target() -> Result<String> {
    shell::host(&mut Command::new("rustc"))
}
