//! The tools of libmemcached, as Debian's libmemcached-tools has them.

use std::env;
use std::fs;
use std::process::Command;

use larder_conformance::Result;

use super::Target;
use super::view::View;
use crate::shell;

/// `memcstat`, of everything or of one sub-command.
pub(super) fn stat(target: &Target, what: &str) -> Result<View> {
    let mut command = Command::new("memcstat");
    command.arg(servers(target));
    if !what.is_empty() {
        command.arg(format!("--args={what}"));
    }
    let text = shell::output(&mut command)?;
    let mut view = View::default();
    for line in text.lines() {
        match line.trim().split_once(": ") {
            Some(("Server", _)) | None => {}
            // items:CLASS:NAME
            Some((name, value)) if what == "items" => {
                let name = name.splitn(3, ':').last().unwrap_or(name);
                view.add_of_class(name.to_owned(), value);
            }
            // CLASS:NAME, and two sums.
            Some((name, value)) if what == "slabs" => match name.split_once(':') {
                Some((_, name)) => view.add_of_class(name.to_owned(), value),
                None => view.add(name, value),
            },
            Some((name, value)) => view.add(name, value),
        }
    }
    Ok(view)
}

/// `memcdump`: all keys.
pub(super) fn dump(target: &Target) -> Result<View> {
    let text = shell::output(Command::new("memcdump").arg(servers(target)))?;
    let mut view = View::default();
    text.lines().for_each(|key| view.add(key, "is there"));
    Ok(view)
}

/// The tools for keys: how each ends and what it prints, for keys that are there and keys that are not.
pub(super) fn commands(target: &Target) -> Result<View> {
    let file = env::temp_dir().join(format!("larder-memccp-{}", target.address.port()));
    fs::write(&file, "a file\n")?;
    let path = file.display().to_string();
    // memccp stores a file under its name; the tools take several keys.
    let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
    let mut view = View::default();
    for words in [
        &["memccat", "user:3", "user:4", "count"][..],
        &["memccat", "--flags", "user:7"],
        &["memccat", "none"],
        &["memcexist", "user:3"],
        &["memcexist", "none"],
        &["memctouch", "--expire=600", "user:3"],
        &["memctouch", "--expire=600", "none"],
        &["memccp", &path],
        &["memccat", &name],
        &["memcrm", &name],
        &["memcrm", &name],
        &["memcexist", &name],
        &["memcping"],
    ] {
        let shown = words.join(" ").replace(&path, "FILE").replace(&name, "NAME");
        add_outcome(&mut view, target, words, &shown)?;
    }
    fs::remove_file(file)?;
    Ok(view)
}

/// `memcflush`, and whether what was there is found thereafter.
pub(super) fn flush(target: &Target) -> Result<View> {
    let mut view = View::default();
    for words in [&["memcexist", "user:3"][..], &["memcflush"], &["memcexist", "user:3"]] {
        add_outcome(&mut view, target, words, &words.join(" "))?;
    }
    Ok(view)
}

/// How a tool ends, and what it prints.
fn add_outcome(view: &mut View, target: &Target, words: &[&str], shown: &str) -> Result<()> {
    let output = Command::new(words[0]).arg(servers(target)).args(&words[1..]).output()?;
    let outcome = format!("{}, prints {}", output.status, String::from_utf8_lossy(&output.stdout));
    // Twice the same command is told apart by its number.
    view.add(format!("{}: {shown}", view.count()), outcome);
    Ok(())
}

fn servers(target: &Target) -> String {
    format!("--servers={}", target.name())
}
