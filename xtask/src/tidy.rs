//! `cargo xtask tidy`: hygiene that no compiler checks.

mod architecture;
mod documents;
mod lines;
mod manifests;
mod messages;
mod names;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path};
use std::process::Command;

use larder_conformance::Result;

use crate::shell;

/// Checks the tracked files of the workspace, and lists everything that is wrong.
pub(crate) fn run(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        return Err("usage: cargo xtask tidy".into());
    }
    let files = tracked_files()?;
    let mut wrong = Vec::new();
    check_walks(&files, &mut wrong);
    check_purity(&files, &mut wrong);
    check_store(&files, &mut wrong);
    check_walls(&files, &mut wrong);
    check_unsafe(&files, &mut wrong);
    architecture::check_sections(&files, &mut wrong);
    check_leftovers(&files, &mut wrong);
    check_paths(&files, &mut wrong);
    lines::check_dumps(&files, &mut wrong);
    lines::check_width(&files, &mut wrong);
    manifests::check_manifests(&files, &mut wrong);
    names::check_names(&files, &mut wrong);
    documents::check_links(&files, &mut wrong);
    documents::check_figures(&files, &mut wrong);
    messages::check_messages(&files, &mut wrong);
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

/// A file under version control; its path is relative to the root. A binary file has no text.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

fn tracked_files() -> Result<Vec<File>> {
    let list = shell::output(Command::new("git").args(["ls-files", "-z"]).current_dir(shell::root()))?;
    let mut files = Vec::new();
    for path in list.split_terminator('\0') {
        let full = shell::root().join(path);
        // A file may have gone from the work tree.
        if let Ok(bytes) = fs::read(full) {
            files.push(File { path: path.to_owned(), text: String::from_utf8(bytes).unwrap_or_default() });
        }
    }
    Ok(files)
}

/// All pages in Markdown.
pub(crate) fn pages() -> Result<Vec<File>> {
    Ok(tracked_files()?.into_iter().filter(|file| file.path.ends_with(".md")).collect())
}

/// The walks through the code name functions and types: all of them still exist.
fn check_walks(files: &[File], wrong: &mut Vec<String>) {
    let code: Vec<&str> =
        files.iter().filter(|file| file.is_source()).map(|file| file.text.as_str()).collect();
    for (path, walk) in walks(files) {
        for name in code_spans(&walk).filter_map(item_name) {
            if !code.iter().any(|text| defines(text, name)) {
                wrong.push(format!("{path}: the walk names `{name}`, which no code defines"));
            }
        }
    }
    for path in ["ARCHITECTURE.md", SESSION] {
        if !walks(files).iter().any(|(walk, _)| walk == path) {
            wrong.push(format!("{path}: there is no walk"));
        }
    }
}

/// The head of session.rs, and the sections of ARCHITECTURE.md whose title says "walk".
fn walks(files: &[File]) -> Vec<(String, String)> {
    let mut walks = Vec::new();
    for file in files {
        if file.path == SESSION {
            let head: Vec<&str> = file.text.lines().map_while(|line| line.strip_prefix("//!")).collect();
            walks.push((file.path.clone(), head.join("\n")));
        } else if file.path == "ARCHITECTURE.md" {
            let sections = file.text.split("\n#").skip(1);
            let is_walk =
                |section: &&str| section.lines().next().unwrap_or_default().to_lowercase().contains("walk");
            walks.extend(sections.filter(is_walk).map(|section| (file.path.clone(), section.to_owned())));
        }
    }
    walks
}

/// What stands between backticks, and each line of a fenced block word by word.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").enumerate().flat_map(|(index, part)| {
        let is_fenced = index % 2 == 1;
        let spans = part.split('`').skip(1).step_by(2).filter(move |_| !is_fenced);
        let calls = part
            .split_whitespace()
            .filter(move |word| is_fenced && (word.contains("::") || word.contains("()")));
        spans.chain(calls)
    })
}

/// `Guard::prepare` and `prepare()` name the item `prepare`; other spans name none.
fn item_name(span: &str) -> Option<&str> {
    let path = span.split_once('(').map_or(span, |(path, _)| path).trim_end_matches([',', '.', ';']);
    let is_path = path.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let name = path.rsplit("::").next()?;
    // Shouted words are commands and constants of the protocol; a lone lower-case word may be one, too.
    let is_item = path.contains("::") || span.contains('(') || name.contains('_');
    (is_path && is_item && !name.is_empty()).then_some(name)
}

fn defines(text: &str, name: &str) -> bool {
    ["fn ", "struct ", "enum ", "trait ", "type ", "mod ", "const "].iter().any(|keyword| {
        text.match_indices(&format!("{keyword}{name}")).any(|(index, found)| {
            let after = text[index + found.len()..].chars().next();
            !after.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    }) || text.lines().any(|line| {
        line.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with([',', '(', ' ', '{']))
    })
}

/// Modules of the engine and of `memcached-c` that allow unsafe code, except tests, are those that ARCHITECTURE.md
/// lists (the latter as `memcached-c/...`). The other crates forbid it.
fn check_unsafe(files: &[File], wrong: &mut Vec<String>) {
    let document = files.iter().find(|file| file.path == "ARCHITECTURE.md").map_or("", |file| &file.text);
    let section = document.split("\n## ").find(|section| section.starts_with("Unsafe code\n"));
    let rows =
        section.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next());
    let listed: Vec<&str> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    let allowed: Vec<String> = files
        .iter()
        .filter_map(|file| {
            let path = file.path.strip_prefix("crates/")?.strip_suffix(".rs")?;
            let (of, path) = path.split_once('/')?;
            let module = path.strip_prefix("src/")?;
            let module = match of {
                "engine" => module.to_owned(),
                "memcached-c" => format!("{of}/{module}"),
                _ => return None,
            };
            (!module.ends_with("tests") && file.allows_unsafe()).then_some(module)
        })
        .collect();
    for module in allowed.iter().filter(|module| !listed.contains(&module.as_str())) {
        wrong.push(format!("ARCHITECTURE.md: unsafe code in {module} is not listed"));
    }
    for module in listed.iter().filter(|module| !allowed.iter().any(|allowed| allowed == *module)) {
        wrong.push(format!("ARCHITECTURE.md: there is no unsafe code in {module}"));
    }
    let crates: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.allows_unsafe())
        .filter_map(|file| file.path.strip_prefix("crates/")?.split_once('/'))
        .filter(|(_, path)| path.starts_with("src/"))
        .map(|(of, _)| of)
        .collect();
    architecture::check_unsafe_crates(files, &crates, wrong);
}

/// The protocol, the engine and the measures know neither sockets nor clocks; replication, which is a state machine,
/// no files and no threads either. The cache of Rust programs, which stands on the engine, takes times to live as a
/// `Duration` and tells the engine the time.
fn check_purity(files: &[File], wrong: &mut Vec<String>) {
    for file in files.iter().filter(|file| file.is_source() && !file.path.starts_with(CACHE)) {
        let Some((_, modules)) = PURE.iter().find(|(dir, _)| file.path.starts_with(dir)) else { continue };
        for (number, line) in file.numbered_lines() {
            let code = line.split("//").next().unwrap_or_default();
            for module in modules.iter().filter(|module| code.contains(**module)) {
                wrong.push(format!("{}:{number}: {module} has no place here", file.path));
            }
        }
    }
}

/// The store depends on no other part of larder, and reads no clock: its callers pass the time.
fn check_store(files: &[File], wrong: &mut Vec<String>) {
    for file in files.iter().filter(|file| file.path.starts_with("crates/store/")) {
        let is_manifest = file.path.ends_with("Cargo.toml");
        let is_module = file.is_source() && file.path.starts_with("crates/store/src/");
        for (number, line) in file.numbered_lines() {
            let code = line.split("//").next().unwrap_or_default();
            let has_name = code.contains("larder-") && !code.contains("larder-store");
            if is_manifest && has_name || is_module && code.contains("larder_") {
                wrong.push(format!("{}:{number}: the store depends on no other crate of larder", file.path));
            }
            for clock in ["SystemTime", "Instant"] {
                if is_module && code.contains(clock) {
                    wrong.push(format!("{}:{number}: {clock} has no place here", file.path));
                }
            }
        }
    }
}

/// Connections do no I/O: bytes come in and go out by the hands of whoever owns the socket.
fn check_walls(files: &[File], wrong: &mut Vec<String>) {
    for file in files.iter().filter(|file| file.is_source() && file.path.starts_with(CONNECTIONS)) {
        for (number, line) in file.numbered_lines() {
            let code = line.split("//").next().unwrap_or_default();
            for word in SOCKETS.iter().filter(|word| code.contains(**word)) {
                wrong.push(format!("{}:{number}: {word} has no place in a connection", file.path));
            }
        }
    }
}

/// Nothing unfinished, nothing left from debugging.
fn check_leftovers(files: &[File], wrong: &mut Vec<String>) {
    for file in files.iter().filter(|file| file.is_source() && !file.path.starts_with("xtask/src/tidy")) {
        for (number, line) in file.numbered_lines() {
            for word in ["todo!(", "unimplemented!(", "dbg!(", "TODO", "FIXME", "XXX"] {
                if line.contains(word) {
                    wrong.push(format!("{}:{number}: {word} is left over", file.path));
                }
            }
        }
    }
    for file in files {
        if [".orig", ".rej", ".bak", "~"].iter().any(|ending| file.path.ends_with(ending)) {
            wrong.push(format!("{}: a left-over file", file.path));
        }
        if file.text.contains("\n<<<<<<< ") || file.text.contains("\n>>>>>>> ") {
            wrong.push(format!("{}: an unresolved merge", file.path));
        }
    }
}

/// No path of the machine that somebody works at, and none that leaves the project.
fn check_paths(files: &[File], wrong: &mut Vec<String>) {
    for file in files {
        let dir = Path::new(&file.path).parent().unwrap_or_else(|| Path::new(""));
        for (number, line) in file.numbered_lines() {
            for word in line.split(|c: char| c.is_whitespace() || "\"'`()[]<>,;=|".contains(c)) {
                let root = word.strip_prefix('/').and_then(|path| path.split_once('/')).map(|(root, _)| root);
                let is_foreign = root.is_some_and(|root| is_name(root) && !SYSTEM_ROOTS.contains(&root));
                if is_foreign || leaves_project(dir, word) {
                    wrong.push(format!("{}:{number}: {word} is a path outside of the project", file.path));
                }
            }
        }
    }
}

fn leaves_project(dir: &Path, word: &str) -> bool {
    if !word.starts_with("../") {
        return false;
    }
    let mut depth = dir.components().count() as isize;
    for component in Path::new(word).components() {
        depth += if component == Component::ParentDir { -1 } else { 1 };
        if depth < 0 {
            return true;
        }
    }
    false
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
}

impl File {
    /// True if it contains unsafe code outside its tests.
    fn allows_unsafe(&self) -> bool {
        let code = self.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        self.is_source() && ["allow(unsafe_code", "expect(unsafe_code"].iter().any(|text| code.contains(text))
    }

    fn is_source(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn numbered_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

const SESSION: &str = "crates/server/src/conn/session.rs";

/// Crates that leave to their callers what these modules do.
const PURE: [(&str, &[&str]); 4] = [
    ("crates/protocol/src/", &["std::net", "std::time"]),
    ("crates/engine/src/", &["std::net", "std::time"]),
    ("crates/measure/src/", &["std::net", "std::time"]),
    (
        "crates/replication/src/",
        &[
            "std::net",
            "std::time",
            "std::fs",
            "std::io",
            "std::os",
            "std::thread",
            "std::process",
            "std::env",
        ],
    ),
];
/// Part of the engine's crate, and its user.
const CACHE: &str = "crates/engine/src/cache";

const CONNECTIONS: &str = "crates/server/src/conn/";
/// What opens, reads or waits for sockets.
const SOCKETS: [&str; 8] =
    ["crate::net", "rustix", "nix::", "std::os", "TcpStream", "TcpListener", "UdpSocket", "UnixStream"];

/// Directories that every machine has, those that examples use, and the root of our JSON.
const SYSTEM_ROOTS: [&str; 18] = [
    "api",
    "bin",
    "dev",
    "etc",
    // Of the systems in which xtask runs packages and documents.
    "job",
    "lib",
    "nonexistent",
    "opt",
    "path",
    "proc",
    "run",
    "sbin",
    "srv",
    "sys",
    "tmp",
    "usr",
    // Items over HTTP.
    "v1",
    "var",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_name_items() {
        let names = |text| code_spans(text).filter_map(item_name).collect::<Vec<_>>();
        assert_eq!(names("`Turn::get` and [`Session::feed`], `get` and `GET` and `a.rs`"), ["get", "feed"]);
        assert_eq!(names("```\nsession.feed(bytes) -> serve() -> text::parse(&rx)\n```"), ["serve", "parse"]);
        assert!(defines("pub fn serve<'a>(", "serve") && !defines("fn serves(", "serve"));
    }

    #[test]
    fn pure_crates_do_no_io() {
        let wrong_of = |path: &str, text: &str| {
            let mut wrong = Vec::new();
            check_purity(&[File { path: path.to_owned(), text: text.to_owned() }], &mut wrong);
            wrong.len()
        };
        let text = "use std::time::Instant;\nuse std::fs::File;\nuse std::thread;\n// std::net\n";
        assert_eq!(wrong_of("crates/replication/src/link.rs", text), 3);
        assert_eq!(wrong_of("crates/engine/src/log.rs", text), 1);
        assert_eq!(wrong_of("crates/engine/src/cache/ttl.rs", text), 0);
        assert_eq!(wrong_of("crates/replication/tests/link.rs", text), 0);
    }

    #[test]
    fn paths_that_leave() {
        assert!(leaves_project(Path::new("docs"), "../../other"));
        assert!(!leaves_project(Path::new("docs"), "../README.md"));
    }
}
