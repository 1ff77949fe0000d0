//! Checks pages that describe the crates: ARCHITECTURE.md names every module, and no type that no longer exists; it and
//! other pages say which crates contain unsafe code.

use std::collections::BTreeSet;

use super::{File, code_spans, defines};

/// A section of ARCHITECTURE.md about one crate.
struct Section {
    title: &'static str,
    of: &'static str,
    lists_modules: bool,
    /// It names only types of this crate.
    names_own_types: bool,
}

const SECTIONS: [Section; 5] = [
    Section { title: "The server's modules", of: "server", lists_modules: true, names_own_types: false },
    Section { title: "The engine's modules", of: "engine", lists_modules: true, names_own_types: true },
    Section { title: "The store's modules", of: "store", lists_modules: true, names_own_types: true },
    Section { title: "Replication's modules", of: "replication", lists_modules: true, names_own_types: true },
    Section { title: "The clients", of: "client", lists_modules: false, names_own_types: true },
];

/// Sentences that count or name the crates with unsafe code.
const UNSAFE: &[(&str, &str)] = &[
    ("README.md", "`unsafe` confined to a few small modules of {count} crates"),
    ("SECURITY.md", "`unsafe` is in {count} crates"),
    ("ARCHITECTURE.md", "`unsafe` code lives in {count} crates"),
    ("CONTRIBUTING.md", "`unsafe` is in {names} only"),
];

/// Checks that each section about a crate lists all its modules, and that the types it names exist.
pub(super) fn check_sections(files: &[File], wrong: &mut Vec<String>) {
    for Section { title, of, lists_modules, names_own_types } in SECTIONS {
        let Some(section) = section(files, title) else {
            wrong.push(format!("ARCHITECTURE.md: there is no section {title:?}"));
            continue;
        };
        let named: BTreeSet<&str> = section
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .filter(|word| !word.is_empty())
            .collect();
        for module in modules(files, of).iter().filter(|_| lists_modules) {
            if !named.contains(module.as_str()) {
                wrong.push(format!("ARCHITECTURE.md: {title:?} leaves {of}/{module} out"));
            }
        }
        let root = if names_own_types { format!("crates/{of}/src/") } else { "crates/".to_owned() };
        let code = || files.iter().filter(|file| file.is_source() && file.path.starts_with(&root));
        for name in code_spans(section).filter(|span| is_type(span)) {
            if !code().any(|file| defines(&file.text, name)) {
                wrong.push(format!("ARCHITECTURE.md: {title:?} names `{name}`, which {of} has not"));
            }
        }
    }
}

/// Checks that the pages about unsafe code name the right crates.
pub(super) fn check_unsafe_crates(files: &[File], crates: &BTreeSet<&str>, wrong: &mut Vec<String>) {
    const COUNTS: [&str; 7] = ["no", "one", "two", "three", "four", "five", "six"];
    let count = COUNTS.get(crates.len()).copied().unwrap_or("many");
    let names: Vec<_> = crates.iter().map(|name| format!("`crates/{name}`")).collect();
    let names = match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    };
    for (path, sentence) in UNSAFE {
        let sentence = sentence.replace("{count}", count).replace("{names}", &names);
        let text = files.iter().find(|file| file.path == *path).map_or("", |file| &file.text);
        if !text.split_whitespace().collect::<Vec<_>>().join(" ").contains(&sentence) {
            wrong.push(format!("{path}: it does not say that {sentence}"));
        }
    }
}

fn section<'f>(files: &'f [File], title: &str) -> Option<&'f str> {
    let document = files.iter().find(|file| file.path == "ARCHITECTURE.md")?;
    document.text.split("\n## ").find(|section| section.lines().next() == Some(title))
}

/// The modules at the root of a crate.
fn modules(files: &[File], of: &str) -> BTreeSet<String> {
    let root = format!("crates/{of}/src/");
    let module = |file: &File| {
        let module = file.path.strip_prefix(&root)?.split('/').next()?;
        Some(module.strip_suffix(".rs").unwrap_or(module).to_owned())
    };
    let modules = files.iter().filter_map(module);
    modules.filter(|module| !["lib", "main", "tests"].contains(&module.as_str())).collect()
}

/// True of `Guard`, but neither of `Guard::pin` nor of `TryAgain(..)`.
fn is_type(span: &str) -> bool {
    span.starts_with(|c: char| c.is_ascii_uppercase())
        && span.contains(|c: char| c.is_ascii_lowercase())
        && span.chars().all(|c| c.is_ascii_alphanumeric())
        && span != "Drop"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn what_is_left_out_and_what_is_gone_is_told() {
        let sections: String =
            SECTIONS.iter().map(|of| format!("\n## {}\n\n`log` `Gone`\n", of.title)).collect();
        let files = [
            file("ARCHITECTURE.md", &format!("# A{sections}")),
            file("crates/store/src/log.rs", "pub struct Log;"),
            file("crates/store/src/commit/journal.rs", "pub struct Gone;"),
            file("crates/engine/src/log/item.rs", "struct Kept;"),
        ];
        let mut wrong = Vec::new();
        check_sections(&files, &mut wrong);
        let gone =
            |title: &str, of: &str| format!("ARCHITECTURE.md: {title:?} names `Gone`, which {of} has not");
        let expected = [
            gone("The engine's modules", "engine"),
            "ARCHITECTURE.md: \"The store's modules\" leaves store/commit out".to_owned(),
            gone("Replication's modules", "replication"),
            gone("The clients", "client"),
        ];
        assert_eq!(wrong, expected);
    }

    #[test]
    fn pages_say_which_crates_are_unsafe() {
        let pages = [
            file("README.md", "with `unsafe` confined to a few\nsmall modules of two crates."),
            file("SECURITY.md", "`unsafe` is in two crates, in"),
            file("ARCHITECTURE.md", "- `unsafe` code lives in two crates"),
            file("CONTRIBUTING.md", "`unsafe` is in `crates/a` and `crates/b` only"),
        ];
        let mut wrong = Vec::new();
        check_unsafe_crates(&pages, &BTreeSet::from(["a", "b"]), &mut wrong);
        assert!(wrong.is_empty(), "{wrong:?}");
        check_unsafe_crates(&pages, &BTreeSet::from(["a", "b", "c"]), &mut wrong);
        assert_eq!(wrong.len(), 4);
        assert!(wrong[3].ends_with("`unsafe` is in `crates/a`, `crates/b` and `crates/c` only"), "{wrong:?}");
    }
}
