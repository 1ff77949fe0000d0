//! A connection that sends requests and reads replies line by line.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::{Result, server};

/// A connection.
pub struct Wire {
    reader: BufReader<TcpStream>,
}

impl Wire {
    /// Connects. A reply may take a minute.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let stream = server::connect(address)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(Self { reader: BufReader::with_capacity(64 << 10, stream) })
    }

    /// Sends these bytes.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.reader.get_mut().write_all(bytes)?)
    }

    /// The next line, without its end: a line break, for some lists of memcached without a carriage return.
    pub fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        let Some(line) = line.strip_suffix(b"\n") else { return Err("the connection was closed".into()) };
        Ok(String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned())
    }

    /// A value of this length, and the end of its line.
    pub fn value(&mut self, bytes: usize) -> Result<Vec<u8>> {
        let mut value = vec![0; bytes + 2];
        self.reader.read_exact(&mut value)?;
        value.truncate(bytes);
        Ok(value)
    }
}

/// How long a reply may take, with room for a busy machine.
const SILENCE_MAX: Duration = Duration::from_secs(60);
