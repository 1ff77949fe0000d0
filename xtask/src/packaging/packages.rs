//! The packages of `cargo xtask package`: what is in them, and what their installation, upgrade and removal do to a
//! system. The system is a folder, so that nobody has to be root.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::folder::Folder;
use larder_conformance::{Result, server};

use super::c_library;
use crate::package::{self, Built, Packages};
use crate::{generators, libmemcached, shell};

/// Puts the packages in memcached's place, and takes them out again.
pub(super) fn replacement() -> Result<()> {
    let folder = Folder::create();
    super::replacement::test(&package::make(&built()?, &package::version("~test")?, FAST, folder.path())?)
}

fn built() -> Result<Built> {
    let c_library = libmemcached::build()?;
    Ok(Built { larderd: server::larderd()?, larder: generators::larder()?, c_library })
}

pub(super) fn test() -> Result<()> {
    let built = built()?;
    let version = package::version("~test")?;
    let (folder, again) = (Folder::create(), Folder::create());
    let packages = package::make(&built, &version, FAST, folder.path())?;

    // Second packages of the same are the same bytes, whenever and wherever they are made.
    let repeated = package::make(&built, &version, FAST, again.path())?;
    for (one, other) in packages.all().iter().zip(repeated.all()) {
        if fs::read(one)? != fs::read(other)? {
            return Err(format!("{} and {} differ", one.display(), other.display()).into());
        }
    }

    let documents = documents()?;
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    let own = [&COMMON[..], &DEBIAN, &documents].concat();
    compare("larder.deb", &listed("dpkg-deb", &["--contents"], &packages.deb)?, "./", &own)?;
    let link = "lrwxrwxrwx usr/share/doc/larder-memcached -> larder";
    let own = [&MEMCACHED[..], &[link]].concat();
    compare(
        "larder-memcached.deb",
        &listed("dpkg-deb", &["--contents"], &packages.deb_memcached)?,
        "./",
        &own,
    )?;
    let own = [&COMMON[..], &RPM, &documents].concat();
    compare("larder.rpm", &listed("rpm", &["-qlvp"], &packages.rpm)?, "/", &own)?;
    compare("larder-memcached.rpm", &listed("rpm", &["-qlvp"], &packages.rpm_memcached)?, "/", &MEMCACHED)?;
    // The archive is for /usr/local, and has no /etc.
    let own: Vec<String> =
        own.iter().filter(|line| line.contains(" usr/")).map(|line| line.replace(" usr/", " ")).collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let name = packages.archive.file_name().unwrap_or_default().to_string_lossy().replace(".tar.gz", "/");
    compare("the archive", &listed("tar", &["-tvzf"], &packages.archive)?, &name, &own)?;

    lintian(&packages)?;
    described(&packages)?;
    rpm(&packages, &version)?;
    archive(&packages.archive, &name)?;
    life(&packages)?;
    beside_memcached(&packages)?;
    user_who_logs_in(&packages)?;
    c_library::test(&packages)
}

/// Expected files in the documentation folder apart from those that the package formats require: pages and what they
/// show.
fn documents() -> Result<Vec<String>> {
    let mut list = Command::new("git");
    list.args(["ls-files", "README.md", "SECURITY.md", "docs"]).current_dir(shell::root());
    let list = shell::output(&mut list)?;
    Ok(list.lines().map(|page| format!("-rw-r--r-- usr/share/doc/larder/{page}")).collect())
}

pub(super) fn listed(program: &str, args: &[&str], package: &Path) -> Result<String> {
    shell::output(Command::new(program).args(args).arg(package))
}

/// Compares a list of files, in the form of `ls -l` or `tar -tv`, with modes and paths. Folders may be there or not.
pub(super) fn compare(package: &str, list: &str, prefix: &str, expected: &[&str]) -> Result<()> {
    let mut found = BTreeSet::new();
    for line in list.lines() {
        let wrong = || format!("{package}: {line}");
        let mode = line.split_whitespace().next().ok_or_else(wrong)?;
        if !line.contains("root/root") && !line.contains(" root     root ") {
            return Err(format!("{}: it is not root's", wrong()).into());
        }
        if mode.starts_with('d') {
            if mode != "drwxr-xr-x" {
                return Err(wrong().into());
            }
            continue;
        }
        let path = line.split_once(&format!(" {prefix}")).ok_or_else(wrong)?.1;
        // Of the tools there are many, and more to come.
        let tool = path.split_once("man1/larder-").filter(|(_, page)| page.ends_with(".1.gz"));
        let path =
            tool.map_or_else(|| path.to_owned(), |(folder, _)| format!("{folder}man1/larder-TOOL.1.gz"));
        found.insert(format!("{mode} {path}"));
    }
    let expected: BTreeSet<String> = expected.iter().map(|&line| line.to_owned()).collect();
    let too_many: Vec<_> = found.difference(&expected).map(|line| format!("\n  has {line}")).collect();
    let missing: Vec<_> = expected.difference(&found).map(|line| format!("\n  lacks {line}")).collect();
    if found == expected {
        return Ok(());
    }
    Err(format!("{package}{}{}", too_many.concat(), missing.concat()).into())
}

fn lintian(packages: &Packages) -> Result<()> {
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on=error,warning", "--suppress-tags", &ACCEPTED.join(",")]);
    shell::output(lintian.args(packages.debs())).map(drop)
}

/// What lintian says without reason here: there is no request for this package in Debian's bug tracker, and the link
/// memcached.service leads to a file of another package.
const ACCEPTED: [&str; 2] = ["initial-upload-closes-no-bugs", "service-file-is-not-a-file"];

/// Each package states its home page and its section.
fn described(packages: &Packages) -> Result<()> {
    for package in packages.debs() {
        let fields = shell::output(
            Command::new("dpkg-deb").arg("--field").arg(package).args(["Homepage", "Section"]),
        )?;
        let homepage = format!("Homepage: {}\n", package::HOMEPAGE);
        if !fields.contains(&homepage) || !fields.contains("Section: ") {
            return Err(format!("{}: {fields}", package.display()).into());
        }
    }
    Ok(())
}

fn rpm(packages: &Packages, version: &str) -> Result<()> {
    shell::output(
        Command::new("rpm").args(["-K", "--nosignature"]).args([&packages.rpm, &packages.rpm_memcached]),
    )?;
    let query =
        |what: &str, package: &Path| shell::output(Command::new("rpm").args(["-qp", what]).arg(package));
    for (what, package, expected) in [
        ("--requires", &packages.rpm, "libc.so.6".to_owned()),
        ("--info", &packages.rpm, format!("URL         : {}", package::HOMEPAGE)),
        ("--info", &packages.rpm, "Group       : System Environment/Daemons".to_owned()),
        ("--configfiles", &packages.rpm, "/etc/default/larderd".to_owned()),
        ("--requires", &packages.rpm_memcached, format!("larder = {version}-1")),
        ("--conflicts", &packages.rpm_memcached, "memcached".to_owned()),
        ("--provides", &packages.rpm_memcached, "memcached = 1.".to_owned()),
    ] {
        let found = query(what, package)?;
        if !found.lines().any(|line| line.starts_with(&expected)) {
            return Err(format!("{}: {what} lacks {expected}: {found}", package.display()).into());
        }
    }
    for package in [&packages.rpm, &packages.rpm_memcached] {
        for script in ["POSTIN", "PREUN", "POSTUN"] {
            let text = shell::output(
                Command::new("rpm").args(["-qp", "--qf", &format!("%{{{script}}}")]).arg(package),
            )?;
            shell::output(Command::new("sh").args(["-n", "-c", &text]))?;
        }
    }
    Ok(())
}

/// Programs, unit and manual page of the archive fit the folder that it is for.
fn archive(archive: &Path, name: &str) -> Result<()> {
    let folder = Folder::create();
    shell::run(Command::new("tar").arg("-xzf").arg(archive).arg("--directory").arg(folder.path()))?;
    let tree = folder.path().join(name);
    let unit = fs::read_to_string(tree.join("lib/systemd/system/larderd.service"))?;
    if !unit.contains("\nExecStart=/usr/local/bin/larderd ") || unit.contains("/usr/bin/larder") {
        return Err("the unit of the archive starts another larderd".into());
    }
    let mut licences = Command::new("gzip");
    licences.args(["--decompress", "--stdout"]).arg(tree.join("share/doc/larder/third-party-licences.gz"));
    let licences = shell::output(&mut licences)?;
    // A library, and what none of them depends on.
    for heading in ["\nrustls ", &format!("\n{}:\n", package::STANDARD_LIBRARY)] {
        if !licences.contains(heading) {
            return Err(format!("the licences have no line {heading:?}").into());
        }
    }
    serves(&tree.join("bin/larderd"))?;
    shell::output(Command::new(tree.join("bin/larder")).arg("--version")).map(drop)
}

/// Installed, started, installed anew, and purged.
fn life(packages: &Packages) -> Result<()> {
    let system = System::create()?;
    let told = system.dpkg(&["--install"], &[&packages.deb, &packages.deb_memcached])?;
    tells(&told, LOGIN, false)?;
    tells(&told, DISABLED, false)?;
    system.dpkg(&["--purge"], &["larder-memcached"])?;
    system.expect(ENABLED, true)?;
    let users = fs::read_to_string(system.path("etc/passwd"))?;
    if !users.lines().any(|line| line.starts_with("larder:")) {
        return Err(format!("there is no user larder: {users}").into());
    }
    serves(&system.path("usr/bin/larderd"))?;

    // What the administrator has changed stays.
    fs::write(system.path(DEFAULT), "OPTIONS=-m 1024\n")?;
    fs::remove_file(system.path(ENABLED))?;
    let told = system.dpkg(&["--install"], &[&packages.deb, &packages.deb_memcached])?;
    tells(&told, DISABLED, true)?;
    system.expect(ENABLED, false)?;
    if fs::read_to_string(system.path(DEFAULT))? != "OPTIONS=-m 1024\n" {
        return Err("an upgrade has changed the options".into());
    }
    serves(&system.path("usr/bin/memcached"))?;

    system.dpkg(&["--remove"], &["larder-memcached", "larder"])?;
    system.expect("usr/bin/larderd", false)?;
    system.expect(DEFAULT, true)?;
    system.dpkg(&["--purge"], &["larder-memcached", "larder"])?;
    let mut left = Vec::new();
    system.collect(&system.path(""), &mut left)?;
    if left.is_empty() { Ok(()) } else { Err(format!("left after a purge: {left:?}").into()) }
}

/// Where memcached is installed, larderd leaves its name and its port.
fn beside_memcached(packages: &Packages) -> Result<()> {
    let system = System::create()?;
    let memcached = system.path("usr/bin/memcached");
    fs::create_dir_all(system.path("usr/bin"))?;
    fs::write(&memcached, "of another package")?;
    // The second time as an upgrade.
    for _ in 0..2 {
        system.dpkg(&["--install"], &[&packages.deb])?;
        system.expect(ENABLED, false)?;
    }
    if fs::read_to_string(memcached)? == "of another package" {
        Ok(())
    } else {
        Err("memcached was replaced".into())
    }
}

/// Somebody has the service's name already: the service's user only if nobody logs in as it.
fn user_who_logs_in(packages: &Packages) -> Result<()> {
    for (shell, can_log_in) in
        [("/bin/bash", true), ("", true), ("/usr/sbin/nologin", false), ("/bin/false", false)]
    {
        let system = System::create()?;
        fs::write(system.path("etc/passwd"), format!("larder:x:1000:1000::/home/larder:{shell}\n"))?;
        fs::write(system.path("etc/group"), "larder:x:1000:\n")?;
        let told = system.dpkg(&["--install"], &[&packages.deb])?;
        tells(&told, LOGIN, can_log_in)?;
    }
    Ok(())
}

/// Whether what a package printed names something.
fn tells(told: &str, what: &str, expected: bool) -> Result<()> {
    if told.contains(what) == expected {
        return Ok(());
    }
    Err(format!("{what:?} is {}: {told}", if expected { "missing" } else { "there" }).into())
}

/// Starts it, and asks what every client asks.
fn serves(larderd: &Path) -> Result<()> {
    let server = server::Server::start::<&str>(larderd, &[])?;
    let mut stream = server.connect()?;
    stream.write_all(b"version\r\nquit\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with("VERSION 1.") { Ok(()) } else { Err(format!("it answers {answer:?}").into()) }
}

/// The root of a system with no package but ours.
pub(super) struct System(Folder);

impl System {
    pub(super) fn create() -> Result<Self> {
        let system = Self(Folder::create());
        for folder in ["var/lib/dpkg/updates", "var/lib/dpkg/info", "etc/systemd/system"] {
            fs::create_dir_all(system.path(folder))?;
        }
        fs::write(system.path("var/lib/dpkg/status"), "")?;
        Ok(system)
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// dpkg with the maintainer scripts as for an image (`DPKG_ROOT`): with the tools of this system.
    /// Returns what they print, errors among it.
    pub(super) fn dpkg<P: AsRef<std::ffi::OsStr>>(&self, action: &[&str], packages: &[P]) -> Result<String> {
        let mut dpkg = Command::new("sh");
        dpkg.args(["-c", "exec fakeroot dpkg \"$@\" 2>&1", "dpkg"]);
        dpkg.args(["--force-script-chrootless", "--force-depends", "--log=/dev/null"]);
        dpkg.arg("--root").arg(self.0.path()).args(action).args(packages);
        // An ordinary user's path may lack what dpkg asks for.
        let path = std::env::var("PATH").unwrap_or_default();
        dpkg.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        shell::output(&mut dpkg)
    }

    fn expect(&self, path: &str, is_there: bool) -> Result<()> {
        if self.path(path).symlink_metadata().is_ok() == is_there {
            return Ok(());
        }
        Err(format!("/{path} is {}", if is_there { "missing" } else { "there" }).into())
    }

    /// Files that are ours by their name.
    pub(super) fn collect(&self, folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.symlink_metadata()?.is_dir() {
                self.collect(&path, found)?;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.contains("larder") || name == "memcached" {
                found.push(path);
            }
        }
        Ok(())
    }
}

/// What the packages print of a user who can log in, and where no server is enabled.
const LOGIN: &str = "the user larder can log in";
const DISABLED: &str = "larderd is not enabled";
/// The level of compression, from 0 to 9.
const FAST: u8 = 0;

const ENABLED: &str = "etc/systemd/system/multi-user.target.wants/larderd.service";
const DEFAULT: &str = "etc/default/larderd";

const COMMON: [&str; 14] = [
    "-rw-r--r-- etc/default/larderd",
    "-rwxr-xr-x usr/bin/larder",
    "-rwxr-xr-x usr/bin/larderd",
    "-rw-r--r-- usr/lib/systemd/system/larderd.service",
    "-rw-r--r-- usr/lib/systemd/system/larderd.socket",
    "-rw-r--r-- usr/lib/sysusers.d/larder.conf",
    "-rw-r--r-- usr/share/bash-completion/completions/larder",
    "-rw-r--r-- usr/share/doc/larder/third-party-licences.gz",
    "-rw-r--r-- usr/share/fish/vendor_completions.d/larder.fish",
    "-rw-r--r-- usr/share/man/man1/larder-TOOL.1.gz",
    "-rw-r--r-- usr/share/man/man1/larder.1.gz",
    "-rw-r--r-- usr/share/man/man1/larderd.1.gz",
    "-rw-r--r-- usr/share/larder/grafana/larder.json",
    "-rw-r--r-- usr/share/larder/prometheus/larder.rules.yml",
];

const DEBIAN: [&str; 4] = [
    "-rw-r--r-- usr/share/doc/larder/changelog.Debian.gz",
    "-rw-r--r-- usr/share/doc/larder/changelog.gz",
    "-rw-r--r-- usr/share/doc/larder/copyright",
    "-rw-r--r-- usr/share/zsh/vendor-completions/_larder",
];

const RPM: [&str; 4] = [
    "-rw-r--r-- usr/share/doc/larder/CHANGELOG.md",
    "-rw-r--r-- usr/share/doc/larder/LICENSE-APACHE",
    "-rw-r--r-- usr/share/doc/larder/LICENSE-MIT",
    "-rw-r--r-- usr/share/zsh/site-functions/_larder",
];

const MEMCACHED: [&str; 3] = [
    "lrwxrwxrwx usr/bin/memcached -> larderd",
    "lrwxrwxrwx usr/lib/systemd/system/memcached.service -> larderd.service",
    "lrwxrwxrwx usr/share/man/man1/memcached.1.gz -> larderd.1.gz",
];
