//! Documents: links lead somewhere, and a table of figures names the command that shows them.

use std::collections::{HashMap, HashSet};

use super::File;

/// Links between documents name files of the project, and headings that these have.
pub(super) fn check_links(files: &[File], wrong: &mut Vec<String>) {
    let headings: HashMap<&str, HashSet<String>> = files
        .iter()
        .filter(|file| file.path.ends_with(".md"))
        .map(|file| (file.path.as_str(), anchors(&file.text)))
        .collect();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (number, line) in file.numbered_lines() {
            for target in links(line) {
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let full = resolved(&file.path, path);
                let is_file = files.iter().any(|other| other.path == full);
                let is_folder = files.iter().any(|other| other.path.starts_with(&format!("{full}/")));
                let has_anchor =
                    anchor.is_empty() || headings.get(full.as_str()).is_some_and(|all| all.contains(anchor));
                if !(is_file || is_folder) || !has_anchor {
                    wrong.push(format!("{}:{number}: the link {target} leads nowhere", file.path));
                }
            }
        }
    }
}

/// A table of figures in README.md or docs/ stands in a section that names, or whose parent sections name, a command
/// that shows them: `cargo ...` or `larder ...`. docs/history/ tells of the past, where nothing can be shown.
pub(super) fn check_figures(files: &[File], wrong: &mut Vec<String>) {
    for file in files {
        let is_current = file.path.starts_with("docs/") && !file.path.starts_with("docs/history/");
        if file.path.ends_with(".md") && (is_current || file.path == "README.md") {
            for title in unproved(&file.text) {
                wrong.push(format!(
                    "{}: {title:?} has figures and names no command that shows them",
                    file.path
                ));
            }
        }
    }
}

/// The titles of sections with figures that no command shows.
fn unproved(text: &str) -> Vec<String> {
    // One for each level of headings: title, and whether a command is named.
    let mut sections: Vec<(usize, String, bool)> = vec![(0, String::new(), false)];
    let mut unproved = Vec::new();
    let mut is_code = false;
    let mut rows: Vec<&str> = Vec::new();
    let mut pending = false;
    let mut finish = |sections: &[(usize, String, bool)], pending: &mut bool| {
        if *pending && sections.iter().all(|(.., has_command)| !has_command) {
            unproved.push(sections.last().map(|(_, title, _)| title.clone()).unwrap_or_default());
        }
        *pending = false;
    };
    for line in text.lines().chain([""]) {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if !is_code && line.starts_with('#') {
            finish(&sections, &mut pending);
            let level = line.bytes().take_while(|&byte| byte == b'#').count();
            sections.retain(|(other, ..)| *other < level);
            sections.push((level, line.trim_start_matches('#').trim().to_owned(), false));
        }
        let names_command = COMMANDS.iter().any(|command| line.contains(&format!("`{command}")))
            || is_code && COMMANDS.iter().any(|command| line.trim_start_matches("$ ").starts_with(command));
        if let (true, Some((.., has_command))) = (names_command, sections.last_mut()) {
            *has_command = true;
        }
        if line.starts_with('|') {
            rows.push(line);
        } else {
            pending |= has_figures(&rows);
            rows.clear();
        }
    }
    finish(&sections, &mut pending);
    unproved
}

/// Is this a table of which most cells, but for those of its first column and its heading, are measured numbers?
fn has_figures(rows: &[&str]) -> bool {
    let cells: Vec<&str> = rows
        .iter()
        .skip(2)
        .flat_map(|row| row.trim_matches('|').split('|').skip(1))
        .map(|cell| cell.trim().trim_matches('*'))
        .filter(|cell| !cell.is_empty())
        .collect();
    // A fraction, or three digits and more: fewer count bytes of a frame, or options.
    let is_figure = |cell: &&&str| {
        let number = cell.chars().take_while(|c| c.is_ascii_digit() || ".,".contains(*c)).collect::<String>();
        number.len() >= 3
    };
    let figures = cells.iter().filter(is_figure).count();
    figures * 2 > cells.len() && cells.len() > 2
}

/// The targets of links to files, `[text](target)`, outside of code.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).filter(
        |target| {
            !target.contains("://")
                && !target.contains(' ')
                && !target.is_empty()
                && !target.starts_with("mailto:")
        },
    )
}

/// The path of a link, from the root.
fn resolved(from: &str, path: &str) -> String {
    if path.is_empty() {
        return from.to_owned();
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// What GitHub makes of headings.
fn anchors(text: &str) -> HashSet<String> {
    let mut is_code = false;
    let mut anchors = HashSet::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if !is_code && line.starts_with('#') {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
            anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    anchors
}

const COMMANDS: [&str; 2] = ["cargo ", "larder "];

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let files = [
            file(
                "README.md",
                "[a](docs/a.md) [b](docs/a.md#two-words-here) [c](docs) [d](https://example.com/x)",
            ),
            file("docs/a.md", "# Two words, here\n[up](../README.md) [self](#two-words-here)\n"),
        ];
        let mut wrong = Vec::new();
        check_links(&files, &mut wrong);
        assert_eq!(wrong, [] as [&str; 0]);
        for broken in ["[a](docs/b.md)", "[a](docs/a.md#three)", "[a](a.md)", "[a](#none)"] {
            let files = [file("README.md", broken), file("docs/a.md", "# Two words, here\n")];
            check_links(&files, &mut wrong);
            assert_eq!(wrong.len(), 1, "{broken}");
            wrong.clear();
        }
    }

    #[test]
    fn figures_name_a_command_in_their_section_or_above() {
        let table = "| a | b |\n|---|---|\n| x | 1.5 |\n| y | 2.5 µs |\n| z | 12,000 |\n";
        let words = "| a | b |\n|---|---|\n| x | that |\n| y | 2 |\n| z | other |\n";
        for (text, expected) in [
            (format!("# A\n{table}"), &["A"][..]),
            (format!("# A\n{table}\nAs `cargo xtask bench` shows.\n"), &[]),
            (format!("# A\n{table}```\n$ larder bench\n```\n"), &[]),
            (format!("# A\n`cargo xtask bench`\n## B\n{table}# C\n{table}"), &["C"]),
            (format!("# A\n## B\n`cargo xtask bench`\n## C\n{table}"), &["C"]),
            (format!("# A\n{words}"), &[]),
        ] {
            assert_eq!(unproved(&text), expected, "{text}");
        }
    }
}
