//! The RPMs, by rpmbuild: the reference for its format. It finds the needed symbol versions of the C library, and
//! packagers can read its spec file and take it over.

use std::path::PathBuf;

use larder_conformance::Result;

use super::{Content, HOMEPAGE, tree::Tree};
use crate::shell;

/// Makes `larder` and `larder-memcached`, for the reason given for Debian.
pub(super) fn make(content: &Content) -> Result<(PathBuf, PathBuf)> {
    let tree = Tree::create(content.staging.join("rpm"))?;
    content.install(&tree, "usr", "site-functions")?;
    Content::install_default(&tree)?;
    Content::install_memcached(&tree)?;
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        tree.copy(&shell::root().join(file), format!("usr/share/doc/larder/{file}"), 0o644)?;
    }

    let work = content.staging.join("rpm-work");
    let mut build = content.tool("rpmbuild");
    build.args(["--quiet", "-bb"]);
    for (name, value) in [
        ("_topdir", work.display().to_string()),
        ("_tmppath", work.join("tmp").display().to_string()),
        ("_rpmdir", content.output.display().to_string()),
        ("_build_name_fmt", "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm".to_owned()),
        // Read by every rpm since 4.6.
        ("_binary_payload", format!("w{}.xzdio", content.level)),
        ("upstream_version", content.version.clone()),
        ("memcached_version", content.memcached_version.clone()),
        ("homepage", HOMEPAGE.to_owned()),
        ("staged_files", tree.path().display().to_string()),
    ] {
        build.arg("--define").arg(format!("{name} {value}"));
    }
    shell::output(build.arg(shell::root().join("packaging/rpm/larder.spec")))?;
    let arch = shell::output(content.tool("rpm").args(["--eval", "%{_target_cpu}"]))?;
    let rpm = |name: &str| content.output.join(format!("{name}-{}-1.{}.rpm", content.version, arch.trim()));
    Ok((rpm("larder"), rpm("larder-memcached")))
}
