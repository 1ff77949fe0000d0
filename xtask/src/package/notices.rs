//! The licences of the libraries that the programs contain. All ask that their texts go with the programs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

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
        "The programs larderd and larder contain these libraries, under these licences:\n\n".to_owned();
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
    Ok(notices)
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
    let is_program =
        |id: &&&str| ["larder-server", "larder-cli"].iter().any(|name| packages[**id]["name"] == *name);
    let mut waiting: Vec<&str> = packages.keys().filter(is_program).copied().collect();
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
