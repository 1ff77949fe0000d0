//! A blocking connection that remembers what was said, for the report of a violation.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use larder_conformance::{Result, server};

/// One connection of a soak client.
pub(crate) struct Wire {
    reader: BufReader<TcpStream>,
    dialogue: VecDeque<String>,
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = server::connect(address)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        Ok(Self { reader: BufReader::with_capacity(64 * 1024, stream), dialogue: VecDeque::new() })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.reader.get_mut().write_all(bytes).map_err(|error| format!("cannot send: {error}").into())
    }

    /// Notes a request for the dialogue; it is sent with its whole batch.
    pub(crate) fn note_request(&mut self, request: &[u8]) {
        self.note('>', request);
    }

    /// The next reply line, without its CRLF. Errors: it does not end in CRLF, the connection ends, or nothing comes for
    /// [`SILENCE_MAX`].
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        let read = self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| format!("no reply: {error}"))?;
        self.note('<', &line);
        match line.strip_suffix(b"\r\n").and_then(|line| std::str::from_utf8(line).ok()) {
            Some(text) => Ok(text.to_owned()),
            None if line.is_empty() => Err("the server closed the connection".into()),
            None => Err("a reply line without CRLF".into()),
        }
    }

    /// A data block of `value_bytes`, without its CRLF.
    pub(crate) fn block(&mut self, value_bytes: usize) -> Result<Vec<u8>> {
        let mut block = vec![0; value_bytes + 2];
        self.reader.read_exact(&mut block).map_err(|error| format!("no data block: {error}"))?;
        self.note('<', &block);
        if !block.ends_with(b"\r\n") {
            return Err("a data block without CRLF".into());
        }
        block.truncate(value_bytes);
        Ok(block)
    }

    /// What was said last, long pieces cut: everything about `key`, and the end of the rest.
    pub(crate) fn dialogue(&self, key: &str) -> String {
        let recent = self.dialogue.len().saturating_sub(RECENT_LINES);
        let lines = self.dialogue.iter().enumerate();
        let told =
            lines.filter(|(at, line)| *at >= recent || line.contains(key)).map(|(_, line)| line.as_str());
        told.collect::<Vec<_>>().join("\n")
    }

    fn note(&mut self, direction: char, bytes: &[u8]) {
        if self.dialogue.len() == DIALOGUE_LINES {
            self.dialogue.pop_front();
        }
        let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
        let rest =
            if bytes.len() > SHOWN_BYTES { format!("... ({} bytes)", bytes.len()) } else { String::new() };
        self.dialogue.push_back(format!("{direction} {}{rest}", shown.escape_ascii()));
    }
}

/// A server that says nothing for this long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// Longer than any reply line to a soak request.
const LINE_BYTES_MAX: u64 = 2048;
const DIALOGUE_LINES: usize = 20_000;
const RECENT_LINES: usize = 40;
const SHOWN_BYTES: usize = 120;
