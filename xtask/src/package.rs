//! `cargo xtask package`: Debian packages, RPMs and an archive of what a release build makes.
//!
//! The same commit and compiler make the same bytes: paths of the machine are left out of the programs, all files are
//! as old as the last commit, and the tools of the formats are told so (`SOURCE_DATE_EPOCH`, reproducible-builds.org).

mod archive;
mod c_library;
mod deb;
mod notices;
mod rpm;
mod tree;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::Result;
use lexopt::{Arg, Parser, ValueExt as _};

pub(crate) use self::notices::STANDARD_LIBRARY;
use self::tree::Tree;
use crate::{needs, shell};

/// `cargo xtask package`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut suffix = String::new();
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("version-suffix") => suffix = parser.value()?.string()?,
            _ => return Err(USAGE.into()),
        }
    }
    let version = version(&suffix)?;
    needs::install_only(&NEEDS)?;
    let folder = shell::root().join("target/package");
    let built = build(&folder.join("build"))?;
    step(3, "the packages");
    for package in make(&built, &version, SMALL, &folder)?.all() {
        println!("{}", package.display());
    }
    Ok(())
}

/// The two programs and the library for C, as cargo has built them.
pub(crate) struct Built {
    pub(crate) larderd: PathBuf,
    pub(crate) larder: PathBuf,
    pub(crate) c_library: PathBuf,
}

/// The packages that were made.
pub(crate) struct Packages {
    pub(crate) deb: PathBuf,
    pub(crate) deb_memcached: PathBuf,
    pub(crate) deb_c_library: PathBuf,
    pub(crate) deb_c_library_dev: PathBuf,
    pub(crate) rpm: PathBuf,
    pub(crate) rpm_memcached: PathBuf,
    pub(crate) archive: PathBuf,
}

impl Packages {
    pub(crate) fn all(&self) -> [&Path; 7] {
        let [deb, deb_memcached, deb_c_library, deb_c_library_dev] = self.debs();
        [deb, deb_memcached, deb_c_library, deb_c_library_dev, &self.rpm, &self.rpm_memcached, &self.archive]
    }

    /// Those for Debian.
    pub(crate) fn debs(&self) -> [&Path; 4] {
        [&self.deb, &self.deb_memcached, &self.deb_c_library, &self.deb_c_library_dev]
    }
}

/// The workspace's version with a suffix, such as `~rc1` (sorts before the version) or `+git20260102` (after it), which
/// every kind of package takes in this form.
pub(crate) fn version(suffix: &str) -> Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".+~".contains(c);
    let is_good = suffix.is_empty() || suffix.starts_with(['.', '+', '~']) && suffix.chars().all(is_plain);
    if !is_good {
        return Err(
            "a suffix of the version begins with one of .+~, and has only these, letters and digits".into()
        );
    }
    Ok(format!("{}{suffix}", env!("CARGO_PKG_VERSION")))
}

/// Packages `built` into `folder`; what is made on the way stays in its folder `staging`. `level` is that of the
/// compression, from 0 (fast) to 9 (small).
pub(crate) fn make(built: &Built, version: &str, level: u8, folder: &Path) -> Result<Packages> {
    let staging = folder.join("staging");
    if staging.exists() {
        fs::remove_dir_all(&staging)?;
    }
    fs::create_dir_all(&staging)?;
    let content = Content {
        parts: Parts::prepare(built, &staging.join("parts"))?,
        version: version.to_owned(),
        memcached_version: memcached_version(built, &staging)?,
        epoch_secs: epoch_secs()?,
        level,
        staging,
        output: folder.to_owned(),
    };
    let [deb, deb_memcached, deb_c_library, deb_c_library_dev] = deb::make(&content)?;
    let (rpm, rpm_memcached) = rpm::make(&content)?;
    let archive = archive::make(&content)?;
    Ok(Packages { deb, deb_memcached, deb_c_library, deb_c_library_dev, rpm, rpm_memcached, archive })
}

/// Contents and names of the packages.
struct Content {
    parts: Parts,
    version: String,
    /// The version of memcached that larderd is compatible with.
    memcached_version: String,
    /// How old all files are, in seconds since 1970.
    epoch_secs: u64,
    /// Of the compression, from 0 to 9.
    level: u8,
    staging: PathBuf,
    output: PathBuf,
}

impl Content {
    /// A tool of a package format, told how old everything is.
    fn tool(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SOURCE_DATE_EPOCH", self.epoch_secs.to_string());
        // What it prints is read.
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    /// Installs what every kind of package has below `prefix`, which is `usr` or nothing.
    fn install(&self, tree: &Tree, prefix: &str, zsh_folder: &str) -> Result<()> {
        let to = |path: &str| Path::new(prefix).join(path);
        for program in ["larderd", "larder"] {
            tree.copy(&self.parts.file(program), to("bin").join(program), 0o755)?;
        }
        for page in self.parts.pages()? {
            tree.copy(&self.parts.file("man").join(&page), to("share/man/man1").join(page), 0o644)?;
        }
        let systemd = shell::root().join("packaging/systemd");
        for unit in ["larderd.service", "larderd.socket"] {
            tree.copy(&systemd.join(unit), to("lib/systemd/system").join(unit), 0o644)?;
        }
        tree.copy(&systemd.join("larder.sysusers"), to("lib/sysusers.d/larder.conf"), 0o644)?;
        for (shell, path) in [
            ("bash", Path::new("bash-completion/completions/larder").to_owned()),
            ("fish", Path::new("fish/vendor_completions.d/larder.fish").to_owned()),
            ("zsh", Path::new("zsh").join(zsh_folder).join("_larder")),
        ] {
            tree.copy(&self.parts.file(shell), to("share").join(path), 0o644)?;
        }
        for file in ["prometheus/larder.rules.yml", "grafana/larder.json"] {
            tree.copy(&shell::root().join("packaging").join(file), to("share/larder").join(file), 0o644)?;
        }
        for page in documents()? {
            tree.copy(&shell::root().join(&page), to("share/doc/larder").join(&page), 0o644)?;
        }
        tree.copy(
            &self.parts.file("third-party-licences.gz"),
            to("share/doc/larder/third-party-licences.gz"),
            0o644,
        )
    }

    /// larderd under memcached's names, in packages of their own.
    fn install_memcached(tree: &Tree) -> Result<()> {
        tree.link("larderd", "usr/bin/memcached")?;
        tree.link("larderd.1.gz", "usr/share/man/man1/memcached.1.gz")?;
        tree.link("larderd.service", "usr/lib/systemd/system/memcached.service")
    }

    /// The options of larderd under systemd, which an upgrade leaves as they are.
    fn install_default(tree: &Tree) -> Result<()> {
        let options = shell::root().join("packaging/systemd/larderd.default");
        tree.copy(&options, "etc/default/larderd", 0o644)
    }
}

/// The pages for operators and the files that they show, as paths below the root.
fn documents() -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = vec!["README.md".into(), "SECURITY.md".into()];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(shell::root().join(&folder))? {
            let entry = entry?;
            let found = if entry.file_type()?.is_dir() { &mut folders } else { &mut files };
            found.push(folder.join(entry.file_name()));
        }
    }
    files.sort();
    Ok(files)
}

/// Home page of larder.
pub(crate) const HOMEPAGE: &str = env!("CARGO_PKG_HOMEPAGE");

/// A folder with files that are the same in every kind of package: stripped programs, and what they print.
struct Parts(PathBuf);

impl Parts {
    fn prepare(built: &Built, folder: &Path) -> Result<Self> {
        let parts = Self(folder.to_owned());
        let pages = parts.file("man");
        fs::create_dir_all(&pages)?;
        for (name, file) in
            [("larderd", &built.larderd), ("larder", &built.larder), (c_library::FILE, &built.c_library)]
        {
            let mut strip = Command::new("strip");
            strip.args(["--strip-unneeded", "--remove-section=.comment", "-o"]);
            shell::run(strip.arg(parts.file(name)).arg(file))?;
        }
        let larder = || Command::new(parts.file("larder"));
        for shell in ["bash", "fish", "zsh"] {
            fs::write(parts.file(shell), shell::output(larder().args(["completions", shell]))?)?;
        }
        shell::run(larder().arg("man").arg(&pages))?;
        let page = shell::output(Command::new(parts.file("larderd")).arg("--man"))?;
        fs::write(pages.join("larderd.1"), page)?;
        for page in parts.pages()? {
            compress(&pages.join(page))?;
        }
        fs::write(parts.file("third-party-licences"), notices::collect()?)?;
        compress(&parts.file("third-party-licences"))?;
        Ok(parts)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names of the manual pages.
    fn pages(&self) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        for page in fs::read_dir(self.file("man"))? {
            names.push(page?.file_name());
        }
        names.sort();
        Ok(names)
    }
}

/// Prints the step that begins.
fn step(number: u32, name: &str) {
    println!("== {number} of 3: {name}");
}

/// Builds programs and library for a release, with the names of the machine's folders left out.
fn build(target: &Path) -> Result<Built> {
    let home = |variable: &str, folder: &str| match env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(folder),
    };
    let flags = [
        format!("--remap-path-prefix={}=cargo", home("CARGO_HOME", ".cargo").display()),
        format!("--remap-path-prefix={}=larder", shell::root().display()),
    ];
    let build = |profile: &str, packages: &[&str]| {
        let mut build = shell::cargo(&["build", "--locked", "--profile", profile]);
        build.args(packages.iter().flat_map(|package| ["--package", package]));
        // Whatever flags the caller has set would be in the programs.
        build.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        shell::run(build.arg("--target-dir").arg(target))
    };
    step(1, "larderd and larder; each is optimized as a whole at the end, for some minutes");
    build("release", &["larder-server", "larder-cli"])?;
    step(
        2,
        "liblarder_memcached; cargo compiles what it shares with the programs again: a panic ends them, and must not \
         end a program that uses the library",
    );
    build(C_LIBRARY_PROFILE, &["larder-memcached-c"])?;
    let program = |name| target.join("release").join(name);
    let c_library = target.join(C_LIBRARY_PROFILE).join("liblarder_memcached.so");
    Ok(Built { larderd: program("larderd"), larder: program("larder"), c_library })
}

/// `$SOURCE_DATE_EPOCH`, or else the time of the last commit.
fn epoch_secs() -> Result<u64> {
    let text = match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            shell::output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(shell::root()))
                .map_err(|error| format!("without git, set SOURCE_DATE_EPOCH: {error}"))?
        }
    };
    Ok(text.trim().parse().map_err(|error| format!("SOURCE_DATE_EPOCH: {error}"))?)
}

/// What larderd prints first with -V when it is started as `memcached`.
fn memcached_version(built: &Built, staging: &Path) -> Result<String> {
    let link = staging.join("memcached");
    std::os::unix::fs::symlink(&built.larderd, &link)?;
    let text = shell::output(Command::new(link).arg("-V"))?;
    let version = text.lines().next().and_then(|line| line.strip_prefix("memcached "));
    Ok(version.ok_or("larderd does not tell memcached's version")?.to_owned())
}

/// Puts `PATH.gz` in the place of a file, without its name and time.
fn compress(path: &Path) -> Result<()> {
    shell::run(Command::new("gzip").args(["--force", "--no-name", "--best"]).arg(path))
}

/// The level of compression of what is given away: those of dpkg-deb and rpmbuild.
const SMALL: u8 = 6;

/// The library's own: a bug in it ends no program of others.
pub(crate) const C_LIBRARY_PROFILE: &str = "c-library";

/// Debian's names of what makes packages; `strip` comes with the second.
const NEEDS: [&str; 3] = ["dpkg-dev", "build-essential", "rpm"];

const USAGE: &str = "usage: cargo xtask package [--version-suffix SUFFIX]
Builds larderd and larder for a release and packages them in target/package: larder_VERSION-1_ARCH.deb,
larder-VERSION-1.ARCH.rpm, each with a larder-memcached that takes memcached's place, and larder-VERSION-TARGET.tar.gz;
and liblarder_memcached: liblarder-memcached_VERSION-1_ARCH.deb, and liblarder-memcached-dev.
  --version-suffix  appended to the version of the workspace: ~rc1, say, or +git20260102";

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn suffixes_fit_every_kind_of_package() {
        let own = env!("CARGO_PKG_VERSION");
        for good in ["", "~rc1", "+git20260102", ".1~x"] {
            assert_eq!(version(good).ok(), Some(format!("{own}{good}")));
        }
        // A hyphen would begin Debian's revision, and is refused by RPM; a digit would be part of the number before.
        for bad in ["-rc1", "~rc-1", "1", "~a b", "~a/../b", "%{x}"] {
            assert!(version(bad).is_err(), "{bad}");
        }
    }
}
