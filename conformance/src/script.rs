//! A golden wire script: what clients send and what the server must answer.
//!
//! ```text
//! # Comments stand outside of the blocks. Options of the server come before the first block.
//! server: -M
//! recorded: memcached 1.6.18
//!
//! [a] set, then get
//! set key 0 0 3
//! abc
//! get key
//! ---
//! STORED
//! VALUE key 0 3
//! abc
//! END
//! larder differs: the reason, in one line
//! (and the reply of larder; the one above remains the reference's)
//!
//! [sleep 1.5]
//! ```
//!
//! A block is what one connection (`a`) sends, `---`, and what it must receive before the script goes on; an empty line
//! ends it. [`notation`](crate::notation) says how bytes are written. Further directives:
//!
//! - `reference server: ARGS`: other options for memcached, where it cannot take larder's or must not be still.
//! - `delivery: whole`: the outcome depends on how the bytes arrive; send each block in one piece only.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Result;
use crate::notation::Notation;
use crate::server::STILL_REFERENCE;

/// Which of two servers a script is played against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A real memcached.
    Reference,
    /// larderd.
    Larder,
}

impl Side {
    /// What its server is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reference => "memcached",
            Self::Larder => "larderd",
        }
    }
}

/// One script file.
pub struct Script {
    /// Its file.
    pub path: PathBuf,
    /// Which server the replies were taken from: the first line of its `-V`.
    pub recorded: Option<String>,
    /// Send each block only in one piece.
    pub is_whole: bool,
    server_args: Vec<String>,
    reference_server_args: Option<Vec<String>>,
    parts: Vec<Part>,
}

/// A part of the file, kept so that recording changes nothing but replies.
enum Part {
    /// A comment, an empty line, a directive.
    Line(String),
    Sleep(Duration),
    Exchange(Exchange),
}

/// What happens next in a script.
pub enum Step<'s> {
    /// Nothing, for so long.
    Sleep(Duration),
    /// A connection sends and receives.
    Exchange(&'s Exchange),
}

/// One block.
pub struct Exchange {
    /// The name of the connection.
    pub connection: String,
    /// What the block shows.
    pub title: String,
    /// Line number of the header, from 1.
    pub line: usize,
    /// What is sent.
    pub sent: Notation,
    sent_lines: Vec<String>,
    reply_lines: Vec<String>,
    difference: Option<Difference>,
}

struct Difference {
    reason: String,
    reply_lines: Vec<String>,
}

impl Script {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)?;
        Self::parse(path, &text).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self> {
        let mut script = Self {
            path: path.to_owned(),
            recorded: None,
            is_whole: false,
            server_args: Vec::new(),
            reference_server_args: None,
            parts: Vec::new(),
        };
        let mut lines = text.lines().enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            let is_block = line.starts_with('[');
            if let Some(secs) = line.strip_prefix("[sleep ").and_then(|rest| rest.strip_suffix(']')) {
                script.parts.push(Part::Sleep(Duration::from_secs_f64(secs.parse()?)));
            } else if is_block {
                let block =
                    std::iter::from_fn(|| lines.next_if(|(_, line)| !line.is_empty())).map(|(_, line)| line);
                let exchange = Exchange::parse(index + 1, line, block)
                    .map_err(|e| format!("line {}: {e}", index + 1))?;
                script.parts.push(Part::Exchange(exchange));
            } else {
                script.parse_directive(line).map_err(|error| format!("line {}: {error}", index + 1))?;
                script.parts.push(Part::Line(line.to_owned()));
            }
        }
        Ok(script)
    }

    fn parse_directive(&mut self, line: &str) -> Result<()> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let (word, value) =
            line.split_once(": ").ok_or_else(|| format!("neither comment nor directive: {line}"))?;
        let args = || value.split_whitespace().map(str::to_owned).collect();
        match word {
            "server" => self.server_args = args(),
            "reference server" => self.reference_server_args = Some(args()),
            "recorded" => self.recorded = Some(value.to_owned()),
            "delivery" if value == "whole" => self.is_whole = true,
            _ => return Err(format!("unknown directive: {line}").into()),
        }
        Ok(())
    }

    /// The options of the server.
    pub fn server_args(&self, side: Side) -> Vec<String> {
        match (side, &self.reference_server_args) {
            (Side::Larder, _) => self.server_args.clone(),
            (Side::Reference, Some(args)) => args.clone(),
            (Side::Reference, None) => self
                .server_args
                .iter()
                .map(String::as_str)
                .chain(STILL_REFERENCE)
                .map(str::to_owned)
                .collect(),
        }
    }

    /// What to do, in order.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        self.parts.iter().filter_map(|part| match part {
            Part::Line(_) => None,
            Part::Sleep(duration) => Some(Step::Sleep(*duration)),
            Part::Exchange(exchange) => Some(Step::Exchange(exchange)),
        })
    }

    /// Takes new replies of the reference, one for each exchange in order, and names where they come from.
    pub fn rerecord(&mut self, version: &str, replies: Vec<Vec<String>>) {
        let exchanges = self.parts.iter_mut().filter_map(|part| match part {
            Part::Exchange(exchange) => Some(exchange),
            _ => None,
        });
        for (exchange, reply) in exchanges.zip(replies) {
            exchange.reply_lines = reply;
        }
        self.recorded = Some(version.to_owned());
        let line = format!("recorded: {version}");
        let is_recorded = |part: &Part| matches!(part, Part::Line(line) if line.starts_with("recorded: "));
        let is_block = |part: &Part| !matches!(part, Part::Line(_));
        match self.parts.iter().position(is_recorded) {
            Some(index) => self.parts[index] = Part::Line(line),
            None => {
                let index = self.parts.iter().position(is_block).unwrap_or(self.parts.len());
                let is_spaced =
                    index > 0 && matches!(&self.parts[index - 1], Part::Line(line) if line.is_empty());
                let index = if is_spaced { index - 1 } else { index };
                self.parts.insert(index, Part::Line(line));
            }
        }
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Line(line) => text.push_str(line),
                Part::Sleep(duration) => text.push_str(&format!("[sleep {}]", duration.as_secs_f64())),
                Part::Exchange(exchange) => text.push_str(exchange.text().trim_end()),
            }
            text.push('\n');
        }
        text
    }
}

impl Exchange {
    fn parse<'t>(line: usize, header: &str, block: impl Iterator<Item = &'t str>) -> Result<Self> {
        let (connection, title) =
            header[1..].split_once(']').ok_or("a block header has the form [connection] title")?;
        let mut exchange = Self {
            connection: connection.to_owned(),
            title: title.trim().to_owned(),
            line,
            sent: Notation::parse(&[])?,
            sent_lines: Vec::new(),
            reply_lines: Vec::new(),
            difference: None,
        };
        let mut is_sent = true;
        for line in block {
            if is_sent && line == "---" {
                is_sent = false;
            } else if is_sent {
                exchange.sent_lines.push(line.to_owned());
            } else if let Some(reason) = line.strip_prefix(DIFFERS) {
                exchange.difference = Some(Difference { reason: reason.to_owned(), reply_lines: Vec::new() });
            } else {
                let difference = exchange.difference.as_mut().map(|difference| &mut difference.reply_lines);
                difference.unwrap_or(&mut exchange.reply_lines).push(line.to_owned());
            }
        }
        exchange.sent = Notation::parse(&exchange.sent_lines)?;
        exchange.expected(Side::Reference)?;
        exchange.expected(Side::Larder)?;
        Ok(exchange)
    }

    /// The reply that this side must give.
    pub fn expected(&self, side: Side) -> Result<Notation> {
        match (side, &self.difference) {
            (Side::Larder, Some(difference)) => Notation::parse(&difference.reply_lines),
            _ => Notation::parse(&self.reply_lines),
        }
    }

    /// The reference's reply as it stands in the file.
    pub fn reply_lines(&self) -> &[String] {
        &self.reply_lines
    }

    /// Whether a single line is sent.
    pub(crate) fn is_one_line(&self) -> bool {
        self.sent_lines.len() == 1
    }

    fn text(&self) -> String {
        let mut text = format!("[{}] {}\n", self.connection, self.title);
        let lines = self.sent_lines.iter().map(String::as_str).chain(["---"]);
        for line in lines.chain(self.reply_lines.iter().map(String::as_str)) {
            text.push_str(line);
            text.push('\n');
        }
        if let Some(difference) = &self.difference {
            text.push_str(&format!("{DIFFERS}{}\n", difference.reason));
            for line in &difference.reply_lines {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }
}

const DIFFERS: &str = "larder differs: ";

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# About.\nserver: -M -t 2\nrecorded: memcached 1.6.18\n\n[a] title\nget a\n---\nEND\nlarder differs: \
                        because\nERROR\n\n[sleep 1.5]\n\n[b]\nx\n---\n";

    #[test]
    fn text_survives_parsing() {
        let script = Script::parse(Path::new("x.script"), TEXT).expect("a valid script");
        assert_eq!(script.text(), TEXT.replace("[b]\n", "[b] \n"));
        assert_eq!(script.server_args(Side::Larder), ["-M", "-t", "2"]);
        assert_eq!(script.steps().count(), 3);
    }

    #[test]
    fn recording_changes_only_the_reference() {
        let mut script = Script::parse(Path::new("x.script"), TEXT).expect("a valid script");
        script.rerecord("memcached 1.6.45", vec![vec!["NEW".into()], vec![]]);
        assert!(script.text().contains("recorded: memcached 1.6.45\n"));
        assert!(script.text().contains("---\nNEW\nlarder differs: because\nERROR\n"));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for text in ["nonsense\n", "delivery: slow\n", "[a\nx\n", "[a] t\n{foo}\n---\n"] {
            assert!(Script::parse(Path::new("x.script"), text).is_err(), "{text}");
        }
    }
}
