//! liblarder_memcached in Debian packages: the library, and what programs are built with.
//!
//! The library has the names of libmemcached's, which belong to its package: so it has a folder of its own. No package
//! may add a folder to those that the loader searches for every program (Debian Policy, 10.2), and so this one leaves
//! that to the administrator.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::Result;

use super::{Content, tree::Tree};
use crate::shell;

/// The name of the library's file in its package; it stands for all three of libmemcached's.
pub(super) const FILE: &str = "libmemcached.so.11";
const ALIASES: [&str; 2] = ["libmemcachedutil.so.2", "libhashkit.so.2"];
/// What a linker looks for.
const LINKED: [(&str, &str); 3] = [
    (FILE, "libmemcached.so"),
    ("libmemcachedutil.so.2", "libmemcachedutil.so"),
    ("libhashkit.so.2", "libhashkit.so"),
];

impl Content {
    /// Installs the library, and returns its path.
    pub(super) fn install_c_library(&self, tree: &Tree) -> Result<PathBuf> {
        let folder = folder()?;
        tree.copy(&self.parts.file(FILE), folder.join(FILE), 0o644)?;
        for alias in ALIASES {
            tree.link(FILE, folder.join(alias))?;
        }
        let licences = "usr/share/doc/liblarder-memcached/third-party-licences.gz";
        tree.copy(&self.parts.file("third-party-licences.gz"), licences, 0o644)?;
        Ok(tree.path().join(folder).join(FILE))
    }

    /// Installs headers, names for a linker, and the file of pkg-config.
    pub(super) fn install_c_headers(&self, tree: &Tree) -> Result<()> {
        let headers = shell::root().join("crates/memcached-c/include");
        for entry in fs::read_dir(&headers)? {
            let part = entry?.file_name();
            for header in fs::read_dir(headers.join(&part))? {
                let header = header?.path();
                let name = header.file_name().unwrap_or_default();
                let path = Path::new("usr/include/larder-memcached").join(&part).join(name);
                tree.copy(&header, path, 0o644)?;
            }
        }
        let folder = folder()?;
        for (library, name) in LINKED {
            tree.link(library, folder.join(name))?;
        }
        let description = format!(
            "libdir=/{}\nincludedir=/usr/include/larder-memcached\n\nName: larder-memcached\n\
             Description: libmemcached's interface, over larder's client\nVersion: {}\n\
             Cflags: -I${{includedir}}\nLibs: -L${{libdir}} -Wl,-rpath,${{libdir}} -lmemcached\n",
            folder.display(),
            self.version
        );
        let path = folder.with_file_name("pkgconfig/larder-memcached.pc");
        tree.write(path, description, 0o644)
    }
}

/// Where the library is.
fn folder() -> Result<PathBuf> {
    let triplet = shell::output(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))?;
    Ok(Path::new("usr/lib").join(triplet.trim()).join("larder-memcached"))
}
