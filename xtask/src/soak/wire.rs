//! A blocking connection that keeps the lines it read, for the report of a violation.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use larder_conformance::{Result, server};

use super::dialogue::shown;

/// One connection of a soak client.
pub(crate) struct Wire {
    reader: BufReader<TcpStream>,
    replies: Vec<String>,
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = server::connect(address)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        Ok(Self { reader: BufReader::with_capacity(64 * 1024, stream), replies: Vec::new() })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.reader.get_mut().write_all(bytes).map_err(|error| format!("cannot send: {error}").into())
    }

    /// The next reply line, without its CRLF. Errors: it does not end in CRLF, the connection ends, or nothing comes
    /// for [`SILENCE_MAX`].
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        let read = self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| format!("no reply: {error}"))?;
        self.replies.push(shown(&line));
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
        self.replies.push(shown(&block));
        if !block.ends_with(b"\r\n") {
            return Err("a data block without CRLF".into());
        }
        block.truncate(value_bytes);
        Ok(block)
    }

    /// What was read since the last call, as a report shows it.
    pub(crate) fn take_replies(&mut self) -> Vec<String> {
        std::mem::take(&mut self.replies)
    }
}

/// A server that says nothing for this long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// Longer than any reply line to a soak request.
const LINE_BYTES_MAX: u64 = 2048;
