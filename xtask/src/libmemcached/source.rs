//! Sources of others: their test suites are in no package that can be installed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use larder_conformance::Result;

use super::library::work_dir;
use crate::shell;

/// Fetches the source of a Debian package, as its authors released it, and unpacks it; returns its folder. What is
/// fetched stays below the target directory, and so do apt's lists: a machine need not list sources.
pub(super) fn debian(package: &str) -> Result<PathBuf> {
    let folder = work_dir()?.join(package);
    if !folder.exists() {
        let unfinished = work_dir()?.join(format!("{package}.unfinished"));
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished)?;
        let options = sources()?;
        let apt = |words: &[&str]| {
            let mut apt = Command::new("apt-get");
            apt.arg("-qq").args(&options).args(words).current_dir(&unfinished);
            shell::output(&mut apt)
                .map_err(|error| format!("the source of {package} cannot be fetched: {error}"))
        };
        apt(&["update"])?;
        apt(&["source", "--download-only", "--tar-only", package])?;
        unpack(&unfinished)?;
        fs::rename(unfinished, &folder)?;
    }
    only_folder(folder)
}

/// Options of apt that name the sources of the Debian that this is.
fn sources() -> Result<Vec<String>> {
    let release = fs::read_to_string("/etc/os-release")?;
    let suite = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .ok_or("/etc/os-release names no VERSION_CODENAME")?;
    let folder = work_dir()?.join("apt");
    fs::create_dir_all(folder.join("lists/partial"))?;
    let list = folder.join("sources.list");
    fs::write(&list, format!("deb-src http://deb.debian.org/debian {suite} main\n"))?;
    let settings = [
        format!("Dir::Etc::SourceList={}", list.display()),
        "Dir::Etc::SourceParts=/dev/null".to_owned(),
        format!("Dir::State::Lists={}", folder.join("lists").display()),
        "APT::Sandbox::User=root".to_owned(),
    ];
    Ok(settings.into_iter().map(|setting| format!("-o{setting}")).collect())
}

fn unpack(folder: &PathBuf) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.to_string_lossy().contains(".tar.") {
            shell::output(Command::new("tar").arg("xf").arg(&path).current_dir(folder))?;
        }
    }
    Ok(())
}

/// What an archive has unpacked to.
fn only_folder(folder: PathBuf) -> Result<PathBuf> {
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.is_dir() {
            return Ok(path);
        }
    }
    Err(format!("{} has no folder", folder.display()).into())
}
