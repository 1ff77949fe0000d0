//! No dumps of the compiler, and no lines that are too long to read.

use super::File;
use super::names::blanked;

/// A compiler that crashed leaves `rustc-ice-*.txt` where it ran.
pub(super) fn check_dumps(files: &[File], wrong: &mut Vec<String>) {
    for file in files {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if name.starts_with("rustc-ice-") {
            wrong.push(format!("{}: a dump of the compiler", file.path));
        }
    }
}

/// Code and prose have lines of at most [`COLUMNS_MAX`] characters.
pub(super) fn check_width(files: &[File], wrong: &mut Vec<String>) {
    for file in files.iter().filter(|file| is_written_by_hand(&file.path)) {
        let is_long = |line: &str| line.chars().count() > COLUMNS_MAX;
        if !file.text.lines().any(is_long) {
            continue;
        }
        let without_strings = if file.is_source() { blanked(&file.text, false) } else { file.text.clone() };
        for ((number, line), bare) in file.numbered_lines().zip(without_strings.lines()) {
            if is_long(line) && !is_exempt(&file.path, line, bare) {
                wrong.push(format!("{}:{number}: more than {COLUMNS_MAX} columns", file.path));
            }
        }
    }
}

/// Golden scripts and recorded data are what goes over a wire; locks are written by programs.
fn is_written_by_hand(path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    HAND_WRITTEN.contains(&extension) && !path.ends_with("package-lock.json")
}

/// A row of a Markdown table, in a document or at the head of a module, cannot be wrapped, nor can a word: a URL, a
/// path, a key. A string of Rust, which is blank in `bare`, is what is sent or printed, and easier to compare in one
/// piece.
fn is_exempt(path: &str, line: &str, bare: &str) -> bool {
    let is_row = line.trim_start_matches([' ', '/', '!']).starts_with('|')
        && (path.ends_with(".md") || line.contains("//!"));
    let is_quoted = bare.split_whitespace().map(|word| word.chars().count() + 1).sum::<usize>()
        < COLUMNS_MAX / 2
        && line != bare;
    is_row || is_quoted || line.split_whitespace().any(|word| word.chars().count() > WORD_COLUMNS_MAX)
}

const COLUMNS_MAX: usize = 120;
/// Longer words may stand on a line of any length.
const WORD_COLUMNS_MAX: usize = 80;
const HAND_WRITTEN: [&str; 15] =
    ["rs", "md", "toml", "sh", "py", "js", "mjs", "yaml", "yml", "go", "java", "php", "pl", "css", "html"];

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong_of(path: &str, text: &str) -> usize {
        let mut wrong = Vec::new();
        let files = [File { path: path.to_owned(), text: text.to_owned() }];
        check_dumps(&files, &mut wrong);
        check_width(&files, &mut wrong);
        wrong.len()
    }

    #[test]
    fn long_lines_and_dumps_are_refused() {
        let words = "word ".repeat(24);
        assert_eq!(wrong_of("a.md", &words), 0);
        assert_eq!(wrong_of("a.md", &format!("{words}x")), 1);
        assert_eq!(wrong_of("a.rs", &format!("{words}x\n\n{words}é")), 2);
        // Rows, what programs write, and what cannot be broken.
        assert_eq!(wrong_of("a.md", &format!("| {words} |")), 0);
        assert_eq!(wrong_of("Cargo.lock", &format!("{words}x")), 0);
        assert_eq!(wrong_of("a.script", &format!("{words}x")), 0);
        assert_eq!(wrong_of("a.md", &format!("see {}", "x".repeat(130))), 0);
        assert_eq!(wrong_of("a.rs", &format!("    let a = \"{words}\";")), 0);
        assert_eq!(wrong_of("a.rs", &format!("    let a = \"b\"; // {words}")), 1);
        assert_eq!(wrong_of("crates/rustc-ice-1.txt", ""), 1);
    }
}
