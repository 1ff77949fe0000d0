//! Names that the code does not use, because the field has others.

use super::File;

/// Refused identifiers, and what to use instead, one a line.
const REFUSED: &[(&str, &str)] = &[
    ("Apart", "CachePadded"),
    ("Books", "Usage"),
    ("Bursts", "SampleTap"),
    ("CLAIMED", "RECLAIMING"),
    ("Crew", "WorkerPool"),
    ("Door", "Endpoint"),
    ("Doorkeeper", "ConnectionLimiter"),
    ("Doors", "Endpoints"),
    ("Follower", "Tap"),
    ("Foreseen", "Prefetched"),
    ("Guess", "LookupHint"),
    ("Guest", "AllocRequest"),
    ("Home", "SegmentRef"),
    ("Lack", "AllocError"),
    ("Lesson", "Adaptation"),
    ("Letter", "PendingSend"),
    ("Newcomer", "Accepted"),
    ("NoPlace", "NoSpace"),
    ("Novelty", "InsertPriority"),
    ("Patience", "RetryDeadline"),
    ("Prey", "ReclaimScope"),
    ("Raw", "ItemRef"),
    ("Road", "Transport"),
    ("Room", "Allocation"),
    ("Roster", "ConnectionTable"),
    ("Seen", "Lookup"),
    ("Slack", "OverProvisioning"),
    ("Survey", "SegmentReport"),
    ("Threadable", "PendingRefill"),
    ("Treatment", "ReclaimMode"),
    ("WAITING", "SEALED"),
    ("bury", "account_dead"),
    ("doom", "free_on_unpin"),
    ("foresee", "first_key"),
];

/// Identifiers of Rust in `crates/` are none of the refused ones. Comments and strings may say what they like.
pub(super) fn check_names(files: &[File], wrong: &mut Vec<String>) {
    check(files, REFUSED, wrong);
}

fn check(files: &[File], refused: &[(&str, &str)], wrong: &mut Vec<String>) {
    for file in files.iter().filter(|file| file.is_source() && file.path.starts_with("crates/")) {
        let code = code_only(&file.text);
        for (index, line) in code.lines().enumerate() {
            for word in line.split(|c: char| !c.is_alphanumeric() && c != '_') {
                if let Some((name, instead)) = refused.iter().find(|(name, _)| *name == word) {
                    wrong.push(format!("{}:{}: {name} is called {instead}", file.path, index + 1));
                }
            }
        }
    }
}

/// The text with blanks for comments, strings and characters. Line ends stay.
fn code_only(text: &str) -> String {
    blanked(text, true)
}

/// The text with blanks for strings and characters, and, if asked for, for comments.
pub(super) fn blanked(text: &str, blanks_comments: bool) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after_word = code.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        let bytes = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => end_of_comment(rest),
            'r' if !after_word || code.ends_with('b') => end_of_raw_string(rest).unwrap_or(0),
            '"' => end_of_quoted(rest, '"').unwrap_or(rest.len()),
            // A lifetime has no second quote right behind a character.
            '\'' => end_of_character(rest).unwrap_or(0),
            _ => 0,
        };
        let (skipped, kept) = rest.split_at(bytes);
        let stays = first == '/' && !blanks_comments;
        code.extend(skipped.chars().map(|c| if stays || c == '\n' { c } else { ' ' }));
        rest = kept;
        if bytes == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

/// Comments nest.
fn end_of_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// `r"..."`, `r#"..."#` and so on.
fn end_of_raw_string(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|&byte| byte == b'#').count();
    let inner = text[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    inner.find(&end).map(|at| 2 + hashes + at + end.len())
}

fn end_of_quoted(text: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().skip(1).find_map(|(at, c)| {
        let ends = c == quote && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends.then_some(at + 1)
    })
}

fn end_of_character(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    match chars.next()? {
        (_, '\\') => end_of_quoted(text, '\''),
        _ => chars.next().filter(|&(_, c)| c == '\'').map(|(at, _)| at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[(&str, &str)] = &[("Blorb", "Guard"), ("frobnicate", "pin")];

    fn wrong_of(path: &str, text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        check(&[File { path: path.to_owned(), text: text.to_owned() }], LIST, &mut wrong);
        wrong
    }

    #[test]
    fn refused_names_are_found_in_code_as_whole_words() {
        let text = "fn a(blorb: &Blorb) {\n    blorb.frobnicate();\n}\n";
        assert_eq!(
            wrong_of("crates/x/src/a.rs", text),
            ["crates/x/src/a.rs:1: Blorb is called Guard", "crates/x/src/a.rs:2: frobnicate is called pin"]
        );
        for other in [
            "struct BlorbMap; fn frobnicated() {} // Blorb",
            "/* Blorb /* nested */ Blorb */ fn a() {}",
            "let a = \"Blorb \\\" frobnicate\"; let b = r#\"Blorb\"#; let c = br\"Blorb\";",
            "fn a<'a>(c: &'a char) -> bool { *c == '\"' || *c == '\\'' } // \"Blorb",
        ] {
            assert_eq!(wrong_of("crates/x/src/a.rs", other), [] as [&str; 0], "{other}");
        }
        assert_eq!(wrong_of("crates/x/src/a.rs", "let a = ('\"', Blorb);").len(), 1);
        assert!(wrong_of("xtask/src/a.rs", text).is_empty() && wrong_of("crates/x/a.md", text).is_empty());
    }
}
