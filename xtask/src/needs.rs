//! What the tests need besides Rust: probes for it, and the Debian packages that bring it.

use std::path::Path;
use std::process::{Command, Stdio};

use larder_conformance::Result;

use crate::shell;

struct Need {
    package: &'static str,
    probe: Probe,
}

enum Probe {
    /// A file.
    File(&'static str),
    /// A command that succeeds.
    Runs(&'static [&'static str]),
}

const NEEDS: &[Need] = &[
    Need { package: "memcached", probe: Probe::Runs(&["memcached", "-V"]) },
    // A terminal for larder top.
    Need { package: "tmux", probe: Probe::File("/usr/bin/tmux") },
    Need { package: "libmemcached-tools", probe: Probe::File("/usr/bin/memccapable") },
    Need {
        package: "libcache-memcached-perl",
        probe: Probe::Runs(&["perl", "-MCache::Memcached", "-e", "1"]),
    },
    // Programs and extensions made for libmemcached, which run over ours as well.
    Need {
        package: "libmemcached-libmemcached-perl",
        probe: Probe::Runs(&["perl", "-MMemcached::libmemcached", "-e", "1"]),
    },
    Need { package: "python3-pylibmc", probe: Probe::Runs(&["/usr/bin/python3", "-c", "import pylibmc"]) },
    Need { package: "python3-pytest", probe: Probe::Runs(&["/usr/bin/python3", "-c", "import pytest"]) },
    Need { package: "valgrind", probe: Probe::Runs(&["valgrind", "--version"]) },
    // What the documents tell a reader to use.
    Need { package: "netcat-openbsd", probe: Probe::File("/usr/bin/nc") },
    Need { package: "jq", probe: Probe::File("/usr/bin/jq") },
    Need {
        package: "python3-pymemcache",
        probe: Probe::Runs(&["/usr/bin/python3", "-c", "import pymemcache"]),
    },
    Need { package: "docker-compose", probe: Probe::Runs(&["docker-compose", "--version"]) },
    // The examples of docs/http.md, and a proxy before larderd.
    Need { package: "curl", probe: Probe::Runs(&["curl", "--version"]) },
    Need { package: "nginx-light", probe: Probe::File("/usr/sbin/nginx") },
    Need { package: "python3", probe: Probe::Runs(&["python3", "--version"]) },
    Need { package: "python3-venv", probe: Probe::Runs(&["python3", "-c", "import ensurepip, venv"]) },
    // pylibmc is built from source.
    Need {
        package: "python3-dev",
        probe: Probe::Runs(&[
            "python3",
            "-c",
            "import os, sysconfig; os.stat(sysconfig.get_path('include') + '/Python.h')",
        ]),
    },
    Need { package: "libmemcached-dev", probe: Probe::File("/usr/include/libmemcached/memcached.h") },
    Need { package: "zlib1g-dev", probe: Probe::File("/usr/include/zlib.h") },
    Need { package: "build-essential", probe: Probe::Runs(&["cc", "--version"]) },
    Need { package: "nodejs", probe: Probe::Runs(&["node", "--version"]) },
    Need { package: "npm", probe: Probe::Runs(&["npm", "--version"]) },
    Need { package: "golang-go", probe: Probe::Runs(&["go", "version"]) },
    Need { package: "collectd-core", probe: Probe::File("/usr/sbin/collectd") },
    Need { package: "php-cli", probe: Probe::Runs(&["php", "--version"]) },
    Need { package: "php-memcached", probe: Probe::Runs(&["php", "-r", "new Memcached();"]) },
    Need { package: "php-memcache", probe: Probe::Runs(&["php", "-r", "new Memcache();"]) },
    Need { package: "ruby", probe: Probe::Runs(&["ruby", "--version"]) },
    Need { package: "ruby-dalli", probe: Probe::Runs(&["ruby", "-rdalli", "-e", ""]) },
    // The JDK, not only its runtime: programs are compiled as they are started.
    Need { package: "default-jdk-headless", probe: Probe::Runs(&["javac", "-version"]) },
    Need { package: "maven", probe: Probe::Runs(&["mvn", "--version"]) },
    // The live page is looked at with the one; metrics, and rules for them, are checked with the other.
    Need { package: "chromium", probe: Probe::File("/usr/bin/chromium") },
    Need { package: "prometheus", probe: Probe::File("/usr/bin/promtool") },
    Need { package: "openssl", probe: Probe::Runs(&["openssl", "version"]) },
    // Its opinion of the units, and its way to pass sockets.
    Need { package: "systemd", probe: Probe::File("/usr/bin/systemd-analyze") },
    // Packages of larder are made with the first two and checked with the third.
    Need { package: "dpkg-dev", probe: Probe::Runs(&["dpkg-gencontrol", "--version"]) },
    Need { package: "pkgconf", probe: Probe::Runs(&["pkg-config", "--version"]) },
    Need { package: "rpm", probe: Probe::Runs(&["rpmbuild", "--version"]) },
    Need { package: "fakeroot", probe: Probe::Runs(&["fakeroot", "--version"]) },
    Need { package: "lintian", probe: Probe::Runs(&["lintian", "--version"]) },
    // The scripts in the workflows of a release.
    Need { package: "shellcheck", probe: Probe::Runs(&["shellcheck", "--version"]) },
    // The reference's users for SASL, and the mechanism PLAIN of those clients that use Cyrus SASL.
    Need { package: "sasl2-bin", probe: Probe::File("/usr/sbin/saslpasswd2") },
    Need { package: "libsasl2-modules", probe: Probe::File("/usr/share/doc/libsasl2-modules") },
];

/// What rows of `cargo xtask bench` compare with and load with, and what `cargo xtask packaging replacement` needs.
const EXTRA_NEEDS: &[Need] = &[
    Need { package: "nginx-light", probe: Probe::File("/usr/sbin/nginx") },
    Need { package: "wrk", probe: Probe::File("/usr/bin/wrk") },
    Need { package: "redis-server", probe: Probe::File("/usr/bin/redis-server") },
    Need { package: "debootstrap", probe: Probe::File("/usr/sbin/debootstrap") },
    Need { package: "redis-tools", probe: Probe::File("/usr/bin/redis-benchmark") },
];

/// Installs what is missing with apt-get. Nothing is asked of apt, nor of root, when everything is there.
pub(crate) fn install() -> Result<()> {
    install_missing(NEEDS.iter().collect())
}

/// Installs these packages alone, as far as they are missing.
pub(crate) fn install_only(packages: &[&str]) -> Result<()> {
    install_missing(NEEDS.iter().filter(|need| packages.contains(&need.package)).collect())
}

/// The same for packages that `cargo xtask test` does not need.
pub(crate) fn install_extra(packages: &[&str]) -> Result<()> {
    install_missing(EXTRA_NEEDS.iter().filter(|need| packages.contains(&need.package)).collect())
}

fn install_missing(needs: Vec<&Need>) -> Result<()> {
    let missing = || -> Vec<&str> {
        needs.iter().filter(|need| !need.probe.succeeds()).map(|need| need.package).collect()
    };
    let mut packages = missing();
    if packages.is_empty() {
        return Ok(());
    }
    println!("installing {}", packages.join(" "));
    let installed = shell::run(Command::new("apt-get").args(["update", "-qq"])).and_then(|()| {
        let mut install = Command::new("apt-get");
        install.args(["install", "-qq", "--yes", "--no-install-recommends"]).args(&packages);
        shell::run(install.env("DEBIAN_FRONTEND", "noninteractive"))
    });
    packages = missing();
    match installed {
        _ if packages.is_empty() => Ok(()),
        Err(error) => {
            Err(format!("the tests need the Debian packages {}: {error}", packages.join(" ")).into())
        }
        Ok(()) => Err(format!("still not usable after their installation: {}", packages.join(" ")).into()),
    }
}

impl Probe {
    fn succeeds(&self) -> bool {
        match self {
            Self::File(path) => Path::new(path).exists(),
            Self::Runs(words) => {
                let mut command = Command::new(words[0]);
                command.args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null());
                command.status().is_ok_and(|status| status.success())
            }
        }
    }
}
