//! docs/troubleshooting.md explains each message that larderd writes to its log, to standard error or to clients, and
//! no other.

use super::File;

/// Compares the messages in the sources with those that the page explains.
pub(super) fn check_messages(files: &[File], wrong: &mut Vec<String>) {
    let page = files.iter().find(|file| file.path == PAGE).map_or("", |file| file.text.as_str());
    let explained: Vec<String> = bullets(page).iter().flat_map(|bullet| heads(bullet)).collect();
    let mut written = Vec::new();
    for file in files.iter().filter(|file| is_scanned(&file.path)) {
        for message in messages(&file.path, &file.text) {
            if !explained.iter().any(|head| message.fits(head)) {
                wrong.push(format!("{}: {PAGE} does not explain {:?}", file.path, message.text));
            }
            written.push(message);
        }
    }
    for head in explained.iter().filter(|head| !written.iter().any(|message| message.fits(head))) {
        wrong.push(format!("{PAGE}: larderd does not write {head:?}"));
    }
}

fn is_scanned(path: &str) -> bool {
    let is_source = path.starts_with("crates/server/src/") && path.ends_with(".rs");
    let others = [
        "crates/auth/src/file.rs",
        "crates/protocol/src/error.rs",
        "crates/protocol/src/http/refusal.rs",
        "crates/protocol/src/http/reply.rs",
    ];
    let is_other = others.contains(&path);
    (is_source && !path.ends_with("/tests.rs")) || is_other
}

/// A message as the source has it, with `{...}` where a value stands.
struct Message {
    text: String,
}

impl Message {
    /// Whether a line of the page shows this message, with words in capitals where values stand.
    fn fits(&self, head: &str) -> bool {
        let fixed = fixed_parts(&self.text);
        let Some((first, others)) = fixed.split_first() else { return false };
        let Some(mut rest) = head.strip_prefix(first.as_str()) else { return false };
        let Some((last, middle)) = others.split_last() else { return rest.is_empty() };
        for part in middle {
            let Some((_, after)) = rest.split_once(part.as_str()) else { return false };
            rest = after;
        }
        rest.ends_with(last.as_str())
    }
}

/// What stands before, between and after the values.
fn fixed_parts(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        parts.push(before.to_owned());
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    parts.push(rest.to_owned());
    parts
}

/// The messages of a source: strings in the calls that write or make them, and those that begin like one.
fn messages(path: &str, source: &str) -> Vec<Message> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String =
        code.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|l| [l, "\n"]).collect();
    let elsewhere = MAKERS_OF.iter().filter(|(part, _)| path.contains(part)).map(|(_, maker)| *maker);
    let mut found: Vec<String> = Vec::new();
    for maker in MAKERS.into_iter().chain(elsewhere) {
        for (start, _) in code.match_indices(maker) {
            let is_word = code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if !is_word {
                found.extend(strings(within(&code[start + maker.len()..])));
            }
        }
    }
    found.extend(strings(&code).into_iter().filter(|text| BEGINNINGS.iter().any(|b| text.starts_with(b))));
    let letters =
        |text: &String| fixed_parts(text).concat().chars().filter(char::is_ascii_alphabetic).count();
    found.retain(|text| letters(text) >= LETTERS_MIN);
    found.sort();
    found.dedup();
    found.into_iter().map(|text| Message { text }).collect()
}

/// The code up to the end of the call or the statement in which it begins.
fn within(code: &str) -> &str {
    let mut depth = 0;
    let mut is_string = false;
    let mut is_escaped = false;
    for (at, c) in code.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_string = !is_string,
            _ if is_string => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' | ';' if depth == 0 => return &code[..at],
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
    }
    code
}

/// The string literals in a piece of code, as they print.
fn strings(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = code.chars().peekable();
    while let Some(c) = chars.next() {
        // A quotation mark as a character is no string.
        if c == '\'' && chars.peek() == Some(&'"') {
            chars.next();
        } else if c == '"' {
            let mut text = String::new();
            while let Some(c) = chars.next().filter(|c| *c != '"') {
                match c {
                    '\\' => match chars.next() {
                        Some('n' | 'r') => text.push(' '),
                        Some('\n') => while chars.next_if(|c| c.is_whitespace()).is_some() {},
                        other => text.extend(other),
                    },
                    c => text.push(c),
                }
            }
            found.push(text.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    found
}

/// The items of lists, each in one line.
fn bullets(page: &str) -> Vec<String> {
    let mut bullets: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in page.lines() {
        if let Some(text) = line.strip_prefix("- ") {
            bullets.push(text.to_owned());
            is_open = true;
        } else if let (true, Some(text), Some(bullet)) =
            (is_open, line.strip_prefix("  "), bullets.last_mut())
        {
            *bullet += " ";
            *bullet += text.trim();
        } else {
            is_open = false;
        }
    }
    bullets
}

/// The messages at the beginning of an item: code, and more code after commas.
fn heads(bullet: &str) -> Vec<String> {
    let mut heads = Vec::new();
    let mut rest = bullet;
    while let Some((head, after)) = rest.strip_prefix('`').and_then(|rest| rest.split_once('`')) {
        heads.push(head.to_owned());
        rest = after.strip_prefix(", ").unwrap_or_default();
    }
    heads
}

const PAGE: &str = "docs/troubleshooting.md";
/// What takes messages as arguments, in any source of the server.
const MAKERS: [&str; 8] = [
    "Refusal::new(",
    "tracing::error!(",
    "tracing::warn!(",
    "tracing::info!(",
    "notes.push(",
    "let message =",
    "refuse(",
    "refuse_connection(",
];
/// The same, where the path of a source has this part.
const MAKERS_OF: [(&str, &str); 18] = [
    ("startup/options/", "number_in("),
    ("startup/options/", "number("),
    ("startup/options/", "number::<u32>("),
    ("startup/options/", "number::<u64>("),
    ("startup/options/", "kibibytes("),
    ("startup/exposure.rs", "format!("),
    ("net/listeners/entry.rs", "Err("),
    ("net/listeners/entry.rs", "ok_or("),
    ("access/token.rs", "Err("),
    ("net/listeners.rs", "ok_or("),
    ("web/peers/address.rs", "Err("),
    ("auth/src/file.rs", "Malformed("),
    ("protocol/src/error.rs", "=> "),
    ("protocol/src/http/refusal.rs", "=> "),
    ("protocol/src/http/refusal.rs", "&str ="),
    ("protocol/src/http/reply.rs", "=> ("),
    ("protocol/src/http/reply.rs", "&str ="),
    ("protocol/src/error.rs", "&str ="),
];
const BEGINNINGS: [&str; 5] = ["ERROR: ", "Cannot ", "larderd: ", "Error loading ", "failed to "];
/// Fewer letters join other messages.
const LETTERS_MIN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(source: &str, page: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [file("crates/server/src/a.rs", source), file(PAGE, page)];
        let mut wrong = Vec::new();
        check_messages(&files, &mut wrong);
        wrong
    }

    #[test]
    fn each_message_is_explained_and_each_explanation_has_a_message() {
        let source = r#"
            // tracing::warn!("in a comment");
            tracing::warn!(reason, times, "the system allows {maximum} files, \
                fewer than {}", wanted);
            let message = "no \"users\"";
            let other = "no message";
        "#;
        let page = "Text `with code`.\n- `the system allows MAXIMUM files,\n  fewer than WANTED`,\n  \
                    `no \"users\"`: why\n";
        assert_eq!(wrong(source, page), [] as [&str; 0]);
        for (from, to, says) in [
            ("fewer than WANTED", "fewer", "does not explain \"the system allows {maximum} files"),
            ("no \"users\"", "nobody", "does not explain \"no \\\"users\\\"\""),
            (": why", ": why\n- `no message`: why", "larderd does not write \"no message\""),
        ] {
            let wrong = wrong(source, &page.replace(from, to));
            assert!(wrong.iter().any(|line| line.contains(says)), "{wrong:?}");
        }
    }
}
