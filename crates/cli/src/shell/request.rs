//! A typed line, and the bytes to send.

use super::commands;
use crate::transfer::record::VALUE_BYTES_MAX;

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Empty,
    Quit,
    /// `help`, with a command or without.
    Help(String),
    Request(Request),
    /// The value follows.
    Upload(Upload),
    /// It cannot be sent, for this reason.
    Wrong(String),
}

/// Bytes to send, and the form of their reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub bytes: Vec<u8>,
    pub expected: Expected,
    /// Of a get: to tell which were not found.
    pub keys: Vec<String>,
}

/// A request without its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Upload {
    /// The words before the size, and those behind it.
    words: (String, String),
    expected: Expected,
    /// As the line says; `None`: the value is a line.
    pub value_bytes: Option<usize>,
}

/// The form of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// `VALUE` blocks until `END`.
    Values,
    /// `STAT` lines until `END`, or one line.
    Stats,
    /// A line for each key until `END` or `EN`.
    Keys,
    /// One line.
    Line,
    /// One line, with a value behind `VA`.
    Meta,
    /// Any number of meta replies, until that of `mn`.
    MetaBatch,
    /// The server closes the connection; one line if it refuses.
    Close,
    /// None.
    Nothing,
}

impl Upload {
    /// The request with this value. Errors: another size than the line says.
    pub(super) fn with(&self, value: &[u8]) -> Result<Request, String> {
        if let Some(value_bytes) = self.value_bytes.filter(|bytes| *bytes != value.len()) {
            return Err(format!("the value has {} bytes, and {value_bytes} were announced", value.len()));
        }
        let (before, behind) = &self.words;
        let mut bytes = format!("{before} {}{behind}\r\n", value.len()).into_bytes();
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
        if self.expected == Expected::MetaBatch {
            bytes.extend_from_slice(b"mn\r\n");
        }
        Ok(Request { bytes, expected: self.expected, keys: Vec::new() })
    }
}

/// Reads a line.
pub(super) fn read(line: &str) -> Line {
    let line = line.trim();
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let Some((name, rest)) = words.split_first() else { return Line::Empty };
    match (*name, rest) {
        ("quit" | "exit", []) => return Line::Quit,
        ("help" | "?", rest) => return Line::Help(rest.join(" ")),
        ("watch", _) => {
            return Line::Wrong("watch takes a connection for itself: larder watch shows events".to_owned());
        }
        ("set" | "add" | "replace" | "append" | "prepend", rest) => return store(line, name, rest),
        ("cas", &[key, flags, exptime, value_bytes, ref behind @ ..]) => {
            let words = (format!("cas {key} {flags} {exptime}"), tail(behind));
            return upload(words, value_bytes, expected_of_store(behind));
        }
        ("ms", &[key, value_bytes, ref flags @ ..]) => {
            let expected = if flags.contains(&"q") { Expected::MetaBatch } else { Expected::Meta };
            return upload((format!("ms {key}"), tail(flags)), value_bytes, expected);
        }
        ("cas" | "ms", _) => {
            let usage = commands::find(name).map_or("", |command| command.usage);
            return Line::Wrong(format!("usage: {name} {usage}"));
        }
        _ => {}
    }
    let known = commands::find(name).map_or(Expected::Line, |command| command.expected);
    let expected = match (known, rest) {
        (Expected::Meta, flags) if flags.contains(&"q") => Expected::MetaBatch,
        (Expected::Line, ["metadump" | "mgdump", ..]) if *name == "lru_crawler" => Expected::Keys,
        (Expected::Line, [.., "noreply"]) => Expected::Nothing,
        (expected, _) => expected,
    };
    let mut bytes = format!("{}\r\n", words.join(" ")).into_bytes();
    if expected == Expected::MetaBatch {
        bytes.extend_from_slice(b"mn\r\n");
    }
    let keys = match (*name, rest) {
        ("get" | "gets", keys) | ("gat" | "gats", [_, keys @ ..]) => keys,
        _ => &[],
    };
    Line::Request(Request { bytes, expected, keys: keys.iter().map(|&key| key.to_owned()).collect() })
}

/// `NAME KEY VALUE`, `NAME KEY "VALUE"`, `NAME KEY FLAGS EXPTIME [BYTES [noreply]]`.
fn store(line: &str, name: &str, rest: &[&str]) -> Line {
    let quoted = line.split_once(char::is_whitespace).and_then(|(_, rest)| {
        let (key, value) = rest.trim_start().split_once(char::is_whitespace)?;
        Some((key, value.trim_start().strip_prefix('"')?))
    });
    let at_once = |key: &str, value: &[u8]| {
        let words = (format!("{name} {key} 0 0"), String::new());
        match (Upload { words, expected: Expected::Line, value_bytes: None }).with(value) {
            Ok(request) => Line::Request(request),
            Err(why) => Line::Wrong(why),
        }
    };
    match (quoted, rest) {
        (Some((key, value)), _) => match unquote(value) {
            Some(value) => at_once(key, &value),
            None => {
                Line::Wrong("the value must end with a double quote; \\\" and \\\\ are escapes".to_owned())
            }
        },
        (None, [key, value]) => at_once(key, value.as_bytes()),
        (None, [key, flags, exptime]) => {
            let words = (format!("{name} {key} {flags} {exptime}"), String::new());
            Line::Upload(Upload { words, expected: Expected::Line, value_bytes: None })
        }
        (None, [key, flags, exptime, value_bytes, behind @ ..]) => {
            let words = (format!("{name} {key} {flags} {exptime}"), tail(behind));
            upload(words, value_bytes, expected_of_store(behind))
        }
        _ => Line::Wrong(format!("usage: {name} KEY VALUE, or {name} KEY FLAGS EXPTIME [BYTES]")),
    }
}

fn upload(words: (String, String), value_bytes: &str, expected: Expected) -> Line {
    match value_bytes.parse::<usize>() {
        Ok(bytes) if bytes as u64 <= VALUE_BYTES_MAX => {
            Line::Upload(Upload { words, expected, value_bytes: Some(bytes) })
        }
        _ => Line::Wrong(format!("{value_bytes}: the size of the value in bytes is needed")),
    }
}

fn expected_of_store(behind: &[&str]) -> Expected {
    if behind.last() == Some(&"noreply") { Expected::Nothing } else { Expected::Line }
}

fn tail(words: &[&str]) -> String {
    words.iter().map(|word| format!(" {word}")).collect()
}

/// The bytes of a text up to its double quote, which must be its end.
fn unquote(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    loop {
        match rest.next()? {
            b'"' => return rest.next().is_none().then_some(bytes),
            b'\\' => bytes.push(match rest.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'0' => 0,
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                byte @ (b'"' | b'\\') => byte,
                _ => return None,
            }),
            byte => bytes.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(line: &str) -> (String, Expected) {
        match read(line) {
            Line::Request(request) => {
                (String::from_utf8_lossy(&request.bytes).into_owned(), request.expected)
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn commands_are_sent_as_typed() {
        for (line, bytes, expected) in [
            ("get a  b", "get a b\r\n", Expected::Values),
            (" stats items ", "stats items\r\n", Expected::Stats),
            ("mg a v t", "mg a v t\r\n", Expected::Meta),
            ("mg a v q", "mg a v q\r\nmn\r\n", Expected::MetaBatch),
            ("delete a noreply", "delete a noreply\r\n", Expected::Nothing),
            ("lru_crawler metadump all", "lru_crawler metadump all\r\n", Expected::Keys),
            ("nonsense", "nonsense\r\n", Expected::Line),
            ("set a hello", "set a 0 0 5\r\nhello\r\n", Expected::Line),
            (r#"set a "two words\n\x00""#, "set a 0 0 11\r\ntwo words\n\0\r\n", Expected::Line),
            (r#"append a """#, "append a 0 0 0\r\n\r\n", Expected::Line),
        ] {
            assert_eq!(sent(line), (bytes.to_owned(), expected), "{line}");
        }
    }

    #[test]
    fn values_follow_where_the_protocol_says_so() {
        let with = |line: &str, value: &str| match read(line) {
            Line::Upload(upload) => upload
                .with(value.as_bytes())
                .map(|request| String::from_utf8_lossy(&request.bytes).into_owned()),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(with("set a 7 60 5", "hello").as_deref(), Ok("set a 7 60 5\r\nhello\r\n"));
        assert_eq!(with("set a 7 60", "hello").as_deref(), Ok("set a 7 60 5\r\nhello\r\n"));
        assert_eq!(with("set a 0 0 1 noreply", "x").as_deref(), Ok("set a 0 0 1 noreply\r\nx\r\n"));
        assert_eq!(with("cas a 0 0 1 99", "x").as_deref(), Ok("cas a 0 0 1 99\r\nx\r\n"));
        assert_eq!(with("ms a 2 T60", "hi").as_deref(), Ok("ms a 2 T60\r\nhi\r\n"));
        assert!(with("set a 0 0 5", "hello!").is_err());
    }

    #[test]
    fn what_cannot_be_sent_is_told() {
        for line in
            ["set", "set a", r#"set a "open"#, r#"set a "x" y"#, "set a 0 0 x", "cas a 1", "ms a", "watch"]
        {
            assert!(matches!(read(line), Line::Wrong(_)), "{line}");
        }
        assert_eq!(read("  "), Line::Empty);
        assert_eq!(read("exit"), Line::Quit);
        assert_eq!(read("help set"), Line::Help("set".to_owned()));
    }
}
