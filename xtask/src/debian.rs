//! A Debian system of its own, with systemd, for tests of what is installed and started there. It is made once by
//! debootstrap, and stays in the target directory; each job has a copy of it that nobody sees afterwards.
//!
//! Needs root, for namespaces and mounts, and Debian's or Ubuntu's mirror when it is made. Jobs have no network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::Result;
use larder_conformance::folder::Folder;

use crate::shell;

/// The system, made.
pub(crate) struct Debian(PathBuf);

/// What is run in a copy of the system.
pub(crate) struct Job {
    /// It is at `/job` in the system.
    folder: Folder,
}

impl Debian {
    /// This machine's own, which takes no time to make: jobs see all that is installed here.
    pub(crate) fn of_this_machine() -> Result<Self> {
        must_be_root()?;
        Ok(Self("/".into()))
    }

    /// The release of this machine, since programs that were built here run there. Takes two minutes and 250 MB of
    /// downloads the first time.
    pub(crate) fn prepare() -> Result<Self> {
        must_be_root()?;
        let folder = shell::target_dir()?.join("debian");
        let (root, stamp) = (folder.join("root"), folder.join("content"));
        let mirror = Mirror::of_this_machine()?;
        let content = format!("{mirror:?} {PACKAGES:?}");
        if fs::read_to_string(&stamp).is_ok_and(|made| made == content) {
            return Ok(Self(root));
        }
        println!("making a Debian system in {}", root.display());
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        mirror.install(&root).map_err(|error| format!("a Debian system cannot be made: {error}"))?;
        fs::write(stamp, content)?;
        Ok(Self(root))
    }

    /// Runs a script by bash in the booted system, as root; returns all that it printed. The error shows that, too.
    pub(crate) fn run(&self, job: &Job, script: &str) -> Result<String> {
        job.folder.write("script", script);
        let mut boot = Command::new("unshare");
        boot.args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            include_str!("debian/boot.sh"),
            "boot",
        ]);
        boot.arg(&self.0).arg(job.folder.path());
        let output = boot.output().map_err(|error| format!("unshare: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let why = "in a Debian system (namespaces, overlayfs, cgroup2)";
        Err(format!("{why}:\n{text}{errors}").trim_end().into())
    }
}

impl Job {
    /// `names` are those of servers, each with an address of its own on the loopback interface.
    pub(crate) fn new(names: &[&str]) -> Self {
        let job = Self { folder: Folder::create() };
        let hosts = names.iter().zip(1..).map(|(name, number)| format!("127.0.1.{number} {name}\n"));
        job.folder.write("hosts", format!("127.0.0.1 localhost debian\n{}", hosts.collect::<String>()));
        job
    }

    /// Puts a copy of a file into `/job`.
    pub(crate) fn add(&self, file: &Path) -> Result<()> {
        let name = file.file_name().ok_or("a file has no name")?;
        fs::copy(file, self.folder.path().join(name))
            .map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(())
    }
}

fn must_be_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err("a Debian system of its own can be made and started by root only".into())
}

/// Where this machine has its packages from.
#[derive(Debug)]
struct Mirror {
    uri: String,
    release: String,
}

impl Mirror {
    fn of_this_machine() -> Result<Self> {
        let about = fs::read_to_string("/etc/os-release")?;
        let release = about.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let release = release.ok_or("/etc/os-release names no release of Debian or Ubuntu")?;
        let mut targets = Command::new("apt-get");
        targets.args(["indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"]);
        let targets = shell::output(&mut targets)?;
        let prefix = format!("{release} ");
        // Others have the name of the release as well, but no base system.
        let uri = targets
            .lines()
            .filter_map(|line| line.strip_prefix(&prefix))
            .find(|uri| uri.trim_end_matches('/').ends_with("/debian") || uri.contains("ubuntu"));
        let uri = uri.ok_or_else(|| format!("apt knows no mirror of {release}"))?;
        Ok(Self { uri: uri.to_owned(), release: release.to_owned() })
    }

    fn install(&self, root: &Path) -> Result<()> {
        let mut debootstrap = Command::new("debootstrap");
        // Ubuntu has most of the packages in a component of its own.
        let components = if self.uri.contains("ubuntu") { "main,universe" } else { "main" };
        debootstrap.args(["--variant=minbase", &format!("--components={components}"), &self.release]);
        shell::output(debootstrap.arg(root).arg(&self.uri))?;

        // Nothing is started while it is installed.
        let policy = root.join("usr/sbin/policy-rc.d");
        fs::write(&policy, "#!/bin/sh\nexit 101\n")?;
        shell::run(Command::new("chmod").arg("+x").arg(&policy))?;
        let apt = |args: &[&str]| {
            let mut apt = Command::new("chroot");
            apt.arg(root).arg("apt-get").args(["--quiet", "--yes", "--no-install-recommends"]).args(args);
            shell::output(apt.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8"))
        };
        apt(&["update"])?;
        apt(&[&["install"], PACKAGES].concat())?;
        // For the way back to it, which has no network.
        apt(&["clean"])?;
        apt(&["install", "--download-only", "--reinstall", "memcached"])?;
        fs::remove_file(policy)?;
        Ok(())
    }
}

/// What users of memcached have, and what the documents tell a reader to use.
const PACKAGES: &[&str] = &[
    "systemd-sysv",
    "memcached",
    "php-cli",
    "php-memcached",
    "python3-django",
    "python3-pymemcache",
    "bsdextrautils",
    "curl",
    "gcc",
    "jq",
    "libc6-dev",
    "netcat-openbsd",
    "openssl",
    "python3-venv",
];
