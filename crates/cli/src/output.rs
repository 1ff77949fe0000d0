//! Standard output: bytes for people and scripts, and JSON.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value, json};

use crate::Failure;

/// Writes to standard output, in large pieces.
pub(crate) fn write(fill: impl FnOnce(&mut dyn Write) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let filled = fill(&mut out);
    // Items that were found are printed, even if others were not.
    out.flush().map_err(Failure::of_output).and(filled)
}

/// Writes a JSON value, on one line or more.
pub(crate) fn write_json(value: &Value) -> Result<(), Failure> {
    write(|out| writeln!(out, "{}", plain_json(value)).map_err(Failure::of_output))
}

/// JSON without control characters: `serde_json` leaves DEL and U+0080 to U+009F as they are, and terminals obey some
/// of those.
fn plain_json(value: &Value) -> String {
    let json = format!("{value:#}");
    let mut plain = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_control() && c != '\n' {
            // Only strings have any, and each fits into four digits.
            let _ = write!(plain, "\\u{:04x}", u32::from(c));
        } else {
            plain.push(c);
        }
    }
    plain
}

/// Bytes for a terminal: text as it is, with its line feeds and tabs; all else with escapes, so that no byte controls
/// the terminal.
pub(crate) fn readable(bytes: &[u8]) -> String {
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(is_plain) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// Bytes in JSON: as text under `name`, or in base64 under `name_base64` if they are not text.
pub(crate) fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), json!(text)),
        Err(_) => object.insert(format!("{name}_base64"), json!(STANDARD.encode(bytes))),
    };
}

/// A statistic in JSON: a number if it is one.
pub(crate) fn stat_value(text: &str) -> Value {
    // A number that would change its form stays text: `007`, `+1`, a version.
    let is_plain =
        text == "0" || text.trim_start_matches('-').starts_with(|first| matches!(first, '1'..='9'));
    serde_json::from_str::<Number>(text).ok().filter(|_| is_plain).map_or_else(|| text.into(), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_commands_the_terminal() {
        assert_eq!(readable("na\u{ef}ve\n\ttext".as_bytes()), "na\u{ef}ve\n\ttext");
        assert_eq!(readable(b"\x1b[2J"), r"\x1b[2J");
        assert_eq!(readable("\u{9b}2J".as_bytes()), r"\xc2\x9b2J");
        assert_eq!(readable(&[0, 255]), r"\x00\xff");
        assert_eq!(plain_json(&json!("\u{1b}\u{7f}\u{9b}2J\u{ef}")), "\"\\u001b\\u007f\\u009b2J\u{ef}\"");
    }
}
