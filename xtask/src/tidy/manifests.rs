//! Checks the crate metadata that a registry shows.

use super::File;

/// Checks that every published crate has the metadata fields that a registry shows.
pub(super) fn check_manifests(files: &[File], wrong: &mut Vec<String>) {
    let manifests = files.iter().filter(|file| {
        file.path.starts_with("crates/")
            && file.path.ends_with("/Cargo.toml")
            && !file.text.contains("publish = false")
    });
    for manifest in manifests {
        for field in FIELDS {
            let has_field = manifest.text.lines().any(|line| {
                line.strip_prefix(field)
                    .is_some_and(|rest| rest.starts_with(" =") || rest == ".workspace = true")
            });
            if !has_field {
                wrong.push(format!("{}: {field} is missing", manifest.path));
            }
        }
    }
}

const FIELDS: [&str; 7] =
    ["description", "license", "homepage", "repository", "readme", "keywords", "categories"];
