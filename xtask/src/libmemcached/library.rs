//! The two libraries: Debian's libmemcached, and ours in its place.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use larder_conformance::Result;

use crate::package::C_LIBRARY_PROFILE;
use crate::shell;

/// A library that programs find when they look for libmemcached.
pub(super) struct Library {
    pub(super) name: &'static str,
    /// Where the loader looks first; nowhere for the one that the system has.
    folder: Option<PathBuf>,
}

impl Library {
    /// The one that Debian's packages bring.
    pub(super) fn original() -> Self {
        Self { name: "libmemcached", folder: None }
    }

    /// Builds ours, and lays it down under the names of the original's three libraries.
    pub(super) fn ours() -> Result<Self> {
        Self::lay(build()?, "lib")
    }

    /// Lays down a library of ours below the target directory, for the loader.
    pub(super) fn lay(file: PathBuf, name: &str) -> Result<Self> {
        let folder = work_dir()?.join(name);
        fs::create_dir_all(&folder)?;
        for alias in ALIASES {
            let link = folder.join(alias);
            let _ = fs::remove_file(&link);
            symlink(&file, link)?;
        }
        Ok(Self { name: "liblarder_memcached", folder: Some(folder) })
    }

    /// Has a program load this library.
    pub(super) fn load<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match &self.folder {
            Some(folder) => command.env("LD_LIBRARY_PATH", folder),
            None => command.env_remove("LD_LIBRARY_PATH"),
        }
    }
}

/// Builds ours as it is shipped.
pub(super) fn build() -> Result<PathBuf> {
    let target = shell::target_dir()?;
    let mut build = shell::cargo(&["build", "--quiet", "--profile", C_LIBRARY_PROFILE, "--package", PACKAGE]);
    shell::run(build.arg("--target-dir").arg(&target))?;
    Ok(target.join(C_LIBRARY_PROFILE).join(FILE))
}

/// Where programs and libraries are laid down.
pub(super) fn work_dir() -> Result<PathBuf> {
    Ok(shell::target_dir()?.join("libmemcached"))
}

pub(super) const PACKAGE: &str = "larder-memcached-c";
pub(super) const FILE: &str = "liblarder_memcached.so";
const ALIASES: [&str; 3] = ["libmemcached.so.11", "libmemcachedutil.so.2", "libhashkit.so.2"];
