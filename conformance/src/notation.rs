//! How scripts write bytes down.
//!
//! A line of a script stands for itself and CRLF. Within it:
//!
//! | written | means |
//! |---|---|
//! | `\r` `\n` `\t` `\\` `\x1f` | that byte |
//! | `\` at the end of the line | no CRLF here |
//! | `<1000*A>` | 1000 times the letter A |
//! | `{hex 80 0a 0000}` | those bytes |
//! | `{number}` | in replies: a decimal number, whichever |
//! | `{cas}` | in replies: a cas unique, a decimal number other than 0 |
//! | `{cas8}` | in replies: a binary CAS value, 8 bytes that are not all 0 |
//! | `{word}` `{line}` | in replies: anything up to the next space, or the end of the line |
//! | `{cas:a}` | remember what stood here as `a`; where `a` is known already, here or in a request: that same text |
//! | `{closed}` | alone on the last line of a reply: the server closes the connection |
//! | `{half-close}` | alone on the last line of a request: the client shuts down its sending side |

use std::collections::HashMap;

use crate::Result;

/// Texts remembered during one run of a script, by name.
pub type Memory = HashMap<String, Vec<u8>>;

/// What script lines say: bytes with holes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notation {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Bytes(Vec<u8>),
    Hole { kind: Hole, name: Option<String> },
    Closed,
    HalfClose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hole {
    Number,
    Cas,
    Cas8,
    Word,
    Line,
}

/// How bytes received so far compare with what is expected.
#[derive(Debug, PartialEq, Eq)]
pub enum Match {
    /// The received bytes begin with all that is expected.
    Whole {
        /// How many bytes that took.
        len: usize,
    },
    /// So far it fits; more must come.
    Prefix,
    /// It differs.
    Differs {
        /// The offset of the first byte that does not fit.
        at: usize,
    },
}

impl Notation {
    /// Reads script lines.
    pub fn parse(lines: &[String]) -> Result<Self> {
        let mut parts = Vec::new();
        for line in lines {
            parse_line(line, &mut parts).map_err(|error| format!("{error} in the line: {line}"))?;
        }
        Ok(Self { parts })
    }

    /// The bytes to send, with remembered texts filled in.
    pub fn bytes(&self, memory: &Memory) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for part in &self.parts {
            match part {
                Part::Bytes(literal) => bytes.extend_from_slice(literal),
                Part::Hole { name: Some(name), .. } => {
                    bytes.extend_from_slice(
                        memory.get(name).ok_or_else(|| format!("nothing is remembered as {name}"))?,
                    );
                }
                Part::Hole { name: None, .. } => return Err("a request needs a name in its {...}".into()),
                Part::Closed => return Err("{closed} belongs into a reply".into()),
                Part::HalfClose => {}
            }
        }
        Ok(bytes)
    }

    /// Whether the lines end in `{half-close}`.
    pub fn half_closes(&self) -> bool {
        self.parts.last() == Some(&Part::HalfClose)
    }

    /// Whether the lines end in `{closed}`.
    pub fn is_closed(&self) -> bool {
        self.parts.last() == Some(&Part::Closed)
    }

    /// Compares received bytes; remembers named texts when all of it matched.
    pub fn compare(&self, received: &[u8], memory: &mut Memory) -> Match {
        let mut learned = Memory::new();
        let mut at = 0;
        for part in &self.parts {
            let rest = &received[at..];
            let known = match part {
                Part::Bytes(literal) => Some(literal),
                Part::Hole { name: Some(name), .. } => learned.get(name).or_else(|| memory.get(name)),
                _ => None,
            };
            if let Some(literal) = known {
                // What fits is compared at once: values of megabytes take seconds byte by byte.
                if rest.starts_with(literal) {
                    at += literal.len();
                    continue;
                }
                if literal.starts_with(rest) {
                    return Match::Prefix;
                }
                let common = literal.iter().zip(rest).take_while(|(a, b)| a == b).count();
                return Match::Differs { at: at + common };
            }
            let Part::Hole { kind, name } = part else { continue };
            let len = kind.len(rest);
            if kind.may_go_on(len) && at + len == received.len() {
                return Match::Prefix;
            }
            if !kind.accepts(&rest[..len]) {
                return Match::Differs { at };
            }
            if let Some(name) = name {
                learned.insert(name.clone(), rest[..len].to_vec());
            }
            at += len;
        }
        memory.extend(learned);
        Match::Whole { len: at }
    }
}

impl Hole {
    fn may_go_on(self, len: usize) -> bool {
        self != Self::Cas8 || len < 8
    }

    fn len(self, text: &[u8]) -> usize {
        if self == Self::Cas8 {
            return text.len().min(8);
        }
        let belongs = |byte: &&u8| match self {
            Self::Number => byte.is_ascii_digit() || **byte == b'-',
            Self::Cas => byte.is_ascii_digit(),
            Self::Cas8 => true,
            Self::Word => !b" \r\n".contains(byte),
            Self::Line => !b"\r\n".contains(byte),
        };
        text.iter().take_while(belongs).count()
    }

    fn accepts(self, text: &[u8]) -> bool {
        match self {
            Self::Number => {
                text.strip_prefix(b"-").unwrap_or(text).iter().all(u8::is_ascii_digit) && !text.is_empty()
            }
            Self::Cas => !text.is_empty() && text[0] != b'0',
            Self::Cas8 => text.iter().any(|byte| *byte != 0),
            Self::Word => !text.is_empty(),
            Self::Line => true,
        }
    }
}

fn parse_line(line: &str, parts: &mut Vec<Part>) -> Result<()> {
    if let Some((_, mark)) = MARKS.iter().find(|(text, _)| *text == line) {
        parts.push(mark.clone());
        return Ok(());
    }
    let mut literal = Vec::new();
    let mut rest = line;
    let mut ends_line = true;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '\\' if rest.len() == 1 => {
                ends_line = false;
                ""
            }
            '\\' => parse_escape(&rest[1..], &mut literal)?,
            '<' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => {
                parse_repeat(&rest[1..], &mut literal)?
            }
            '{' => {
                let (hole, after) = rest[1..].split_once('}').ok_or("a { without }")?;
                if let Some(digits) = hole.strip_prefix("hex ") {
                    parse_hex(digits, &mut literal)?;
                } else {
                    if !literal.is_empty() {
                        parts.push(Part::Bytes(std::mem::take(&mut literal)));
                    }
                    parts.push(parse_hole(hole)?);
                }
                after
            }
            _ => {
                literal.extend_from_slice(first.encode_utf8(&mut [0; 4]).as_bytes());
                &rest[first.len_utf8()..]
            }
        };
    }
    if ends_line {
        literal.extend_from_slice(b"\r\n");
    }
    if !literal.is_empty() {
        parts.push(Part::Bytes(literal));
    }
    Ok(())
}

fn parse_escape<'t>(text: &'t str, literal: &mut Vec<u8>) -> Result<&'t str> {
    let (byte, len) = match text.as_bytes() {
        [b'r', ..] => (b'\r', 1),
        [b'n', ..] => (b'\n', 1),
        [b't', ..] => (b'\t', 1),
        [b'\\', ..] => (b'\\', 1),
        [b'x', ..] => {
            let digits = text.get(1..3).ok_or("\\x without two digits")?;
            (u8::from_str_radix(digits, 16)?, 3)
        }
        _ => return Err("an unknown escape".into()),
    };
    literal.push(byte);
    Ok(&text[len..])
}

fn parse_hex(text: &str, literal: &mut Vec<u8>) -> Result<()> {
    for digits in text.split(' ') {
        for at in (0..digits.len()).step_by(2) {
            let byte = digits.get(at..at + 2).ok_or("an odd number of hexadecimal digits")?;
            literal.push(u8::from_str_radix(byte, 16)?);
        }
    }
    Ok(())
}

fn parse_repeat<'t>(text: &'t str, literal: &mut Vec<u8>) -> Result<&'t str> {
    let (repeat, rest) = text.split_once('>').ok_or("a < without >")?;
    let (count, unit) = repeat.split_once('*').ok_or("a <...> without *")?;
    literal.extend_from_slice(unit.repeat(count.parse()?).as_bytes());
    Ok(rest)
}

fn parse_hole(text: &str) -> Result<Part> {
    let (kind, name) = match text.split_once(':') {
        Some((kind, name)) => (kind, Some(name.to_owned())),
        None => (text, None),
    };
    let kind = match kind {
        "number" => Hole::Number,
        "cas" => Hole::Cas,
        "cas8" => Hole::Cas8,
        "word" => Hole::Word,
        "line" => Hole::Line,
        _ => return Err(format!("an unknown matcher {{{text}}}").into()),
    };
    Ok(Part::Hole { kind, name })
}

/// Writes received bytes as script lines, the inverse of [`Notation::parse`] but for the holes.
pub fn write(bytes: &[u8]) -> Vec<String> {
    bytes.split_inclusive(|&byte| byte == b'\n').map(write_line).collect()
}

fn write_line(line: &[u8]) -> String {
    let (text, has_crlf) = match line.strip_suffix(b"\r\n") {
        // An empty line of a script ends a block, so that of a reply is spelled out.
        Some(text) if !text.is_empty() => (text, true),
        _ => (line, false),
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let run = rest.iter().take_while(|&&byte| byte == first).count();
        if run >= RUN_MIN && first.is_ascii_alphanumeric() {
            out.push_str(&format!("<{run}*{}>", first as char));
            rest = &rest[run..];
            continue;
        }
        let begins_repeat = first == b'<' && rest.get(1).is_some_and(u8::is_ascii_digit);
        match first {
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' if first != b'{' && !begins_repeat => out.push(first as char),
            _ => out.push_str(&format!("\\x{first:02x}")),
        }
        rest = &rest[1..];
    }
    if !has_crlf {
        out.push('\\');
    }
    out
}

const MARKS: [(&str, Part); 2] = [("{closed}", Part::Closed), ("{half-close}", Part::HalfClose)];

/// From how many equal letters on a run is written as `<n*c>`.
const RUN_MIN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn notation(text: &str) -> Notation {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        Notation::parse(&lines).expect("valid notation")
    }

    #[test]
    fn lines_become_bytes() {
        let bytes = |text| notation(text).bytes(&Memory::new()).expect("no holes");
        assert_eq!(bytes("get a"), b"get a\r\n");
        assert_eq!(bytes("a\\x00\\t\\\\\\n\\"), b"a\0\t\\\n");
        assert_eq!(bytes("<3*ab>c\n{half-close}"), b"abababc\r\n");
        assert_eq!(bytes("{hex 80 0a0001 ff}x\\"), b"\x80\x0a\0\x01\xffx");
        assert!(notation("x\n{half-close}").half_closes());
    }

    #[test]
    fn writing_and_reading_are_inverse() {
        let all: Vec<u8> = (0..=255).chain(*b"\r\n").chain([b'x'; 100]).chain(*b"\r\n\r\nEND\r\n").collect();
        assert_eq!(
            Notation::parse(&write(&all)).expect("valid").bytes(&Memory::new()).expect("no holes"),
            all
        );
    }

    #[test]
    fn holes_match_and_remember() {
        let mut memory = Memory::new();
        let pattern = notation("VALUE a 0 1 {cas:a}\nx\nEND");
        assert_eq!(pattern.compare(b"VALUE a 0 1 1", &mut memory), Match::Prefix);
        assert_eq!(pattern.compare(b"VALUE a 0 1 0\r\nx\r\nEND\r\n", &mut memory), Match::Differs { at: 12 });
        assert_eq!(
            pattern.compare(b"VALUE a 0 1 17\r\nx\r\nEND\r\nmore", &mut memory),
            Match::Whole { len: 24 }
        );
        assert_eq!(notation("cas a 0 0 1 {cas:a}").bytes(&memory).expect("known"), b"cas a 0 0 1 17\r\n");
        assert_eq!(notation("{cas:a}").compare(b"18\r\n", &mut memory), Match::Differs { at: 1 });
        assert_eq!(notation("{cas8}\\").compare(b"\0\0\0\0\0\0\0\x01", &mut memory), Match::Whole { len: 8 });
        assert_eq!(notation("{cas8}\\").compare(&[0; 8], &mut memory), Match::Differs { at: 0 });
        assert_eq!(notation("{cas8}\\").compare(&[1; 7], &mut memory), Match::Prefix);
        assert_eq!(notation("t{number}").compare(b"t-1\r\n", &mut memory), Match::Whole { len: 5 });
    }
}
