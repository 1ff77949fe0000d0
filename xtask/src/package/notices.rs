//! The licences of the libraries that the programs contain, and of Rust's standard library. All ask that their texts go
//! with the programs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use larder_conformance::Result;
use serde_json::Value;

use crate::shell;

/// Every library with its version and licence, then every text with the libraries that have it.
pub(super) fn collect() -> Result<String> {
    let mut metadata = shell::cargo(&["metadata", "--locked", "--format-version=1", "--filter-platform"]);
    let metadata: Value = serde_json::from_str(&shell::output(metadata.arg(super::archive::target()?))?)?;
    let packages: HashMap<&str, &Value> = by_id(&metadata["packages"]);
    let nodes = by_id(&metadata["resolve"]["nodes"]);

    let mut libraries = BTreeMap::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for id in linked(&packages, &nodes) {
        let package = packages[id];
        // The workspace's own crates have no source.
        if package["source"].is_null() {
            continue;
        }
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} {}", field("name"), field("version"));
        let folder = Path::new(field("manifest_path")).parent().ok_or("a package has no folder")?;
        for text in licence_texts(folder)? {
            texts.entry(text).or_default().insert(name.clone());
        }
        libraries.insert(name, field("license"));
    }

    let mut notices =
        "larderd, larder and liblarder_memcached contain these libraries, under these licences:\n\n"
            .to_owned();
    for (name, licence) in &libraries {
        writeln!(notices, "{name}: {licence}")?;
    }
    // In the order of their libraries, so that an update of one moves little.
    let mut texts: Vec<(BTreeSet<String>, String)> =
        texts.into_iter().map(|(text, names)| (names, text)).collect();
    texts.sort();
    for (names, text) in texts {
        let names: Vec<String> = names.into_iter().collect();
        writeln!(notices, "\n{}\n{}:\n\n{text}", "-".repeat(80), names.join(", "))?;
    }
    let sysroot = shell::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let text = standard_library(Path::new(sysroot.trim()))?;
    writeln!(notices, "\n{}\n{STANDARD_LIBRARY}:\n\n{text}", "-".repeat(80))?;
    Ok(notices)
}

/// The notices of the standard library that a compiler brings with it, and the licences that they refer to by name.
/// The compilers of distributions may bring none.
fn standard_library(sysroot: &Path) -> Result<String> {
    let folder = sysroot.join("share/doc/rust");
    let file = folder.join("COPYRIGHT-library.html");
    let mut text = match fs::read_to_string(&file) {
        Ok(html) => text_of(&html),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!(
                "{} is missing: the packages name the licence of the standard library only",
                file.display()
            );
            return Ok(STANDARD_LIBRARY_LICENCE.to_owned());
        }
        Err(error) => return Err(format!("{}: {error}", file.display()).into()),
    };
    let named: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("License: "))
        .flat_map(|line| line.split([' ', '(', ')']))
        .collect();
    let mut licences = String::new();
    for name in named {
        if let Ok(licence) = fs::read_to_string(folder.join("licenses").join(format!("{name}.txt"))) {
            write!(licences, "\n\n{name}:\n\n{}", licence.trim())?;
        }
    }
    text.push_str(&licences);
    Ok(text)
}

/// HTML without its tags, and with one empty line where it has several.
fn text_of(html: &str) -> String {
    let mut text = String::new();
    for (number, part) in html.split('<').enumerate() {
        // Before the first tag there is nothing but text.
        text.push_str(if number == 0 { part } else { part.split_once('>').map_or("", |(_, text)| text) });
    }
    // `&` is the last, or what it makes would be read once more.
    for (name, code, character) in
        [("lt", 60, "<"), ("gt", 62, ">"), ("quot", 34, "\""), ("apos", 39, "'"), ("amp", 38, "&")]
    {
        text = text.replace(&format!("&{name};"), character).replace(&format!("&#{code};"), character);
    }
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.dedup_by(|line, before| line.trim().is_empty() && before.trim().is_empty());
    lines.join("\n").trim().to_owned()
}

fn by_id(list: &Value) -> HashMap<&str, &Value> {
    let values = list.as_array().into_iter().flatten();
    values.filter_map(|value| Some((value["id"].as_str()?, value))).collect()
}

/// Every package that is reached from the programs without what is only built or tested with.
fn linked<'a>(
    packages: &HashMap<&'a str, &'a Value>,
    nodes: &HashMap<&'a str, &'a Value>,
) -> BTreeSet<&'a str> {
    let is_shipped = |id: &&&str| {
        ["larder-server", "larder-cli", "larder-memcached-c"]
            .iter()
            .any(|name| packages[**id]["name"] == *name)
    };
    let mut waiting: Vec<&str> = packages.keys().filter(is_shipped).copied().collect();
    let mut found = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !found.insert(id) {
            continue;
        }
        for dependency in nodes[id]["deps"].as_array().into_iter().flatten() {
            let kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
            if kinds.into_iter().any(|kind| kind["kind"].is_null()) {
                waiting.extend(dependency["pkg"].as_str());
            }
        }
    }
    found
}

fn licence_texts(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        let name = file.file_name().to_string_lossy().to_uppercase();
        let is_licence = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"]
            .iter()
            .any(|word| name.starts_with(word));
        if is_licence && file.file_type()?.is_file() {
            texts.push(fs::read_to_string(file.path())?.replace('\r', "").trim().to_owned());
        }
    }
    Ok(texts)
}

/// The heading of its part.
pub(crate) const STANDARD_LIBRARY: &str = "Rust's standard library";

const STANDARD_LIBRARY_LICENCE: &str = "MIT OR Apache-2.0
Copyright The Rust Project Developers (see https://thanks.rust-lang.org)
The texts of both licences, and those of its parts: https://github.com/rust-lang/rust/tree/HEAD/LICENSES";

#[cfg(test)]
mod tests {
    use larder_conformance::folder::Folder;

    use super::*;

    #[test]
    fn tags_are_left_out_and_text_is_not() {
        let html = "<!DOCTYPE html>\n<p class=\"x\">\n\n\n<b>License:</b> MIT &amp;lt; &lt;a&#62;</p>\n<pre>\n  1\n\n  2</pre>";
        assert_eq!(text_of(html), "License: MIT &lt; <a>\n\n  1\n\n  2");
    }

    #[test]
    fn without_its_notices_the_licence_is_named() {
        let sysroot = Folder::create();
        let licence = standard_library(sysroot.path()).expect("a compiler may bring none");
        assert!(licence.starts_with("MIT OR Apache-2.0\n"), "{licence}");
        fs::create_dir_all(sysroot.file("share/doc/rust")).expect("a folder");
        sysroot.write("share/doc/rust/COPYRIGHT-library.html", "<p>License: (A AND MIT)</p>");
        assert_eq!(standard_library(sysroot.path()).expect("it has some"), "License: (A AND MIT)");
        fs::create_dir_all(sysroot.file("share/doc/rust/licenses")).expect("a folder");
        sysroot.write("share/doc/rust/licenses/MIT.txt", "Permission\n");
        sysroot.write("share/doc/rust/licenses/B.txt", "No permission\n");
        let expected = "License: (A AND MIT)\n\nMIT:\n\nPermission";
        assert_eq!(standard_library(sysroot.path()).expect("it has some"), expected);
    }
}
