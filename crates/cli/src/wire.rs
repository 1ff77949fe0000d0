//! A connection used line by line, for commands that are not requests of one key.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::time::Duration;

use larder_client::codec::Protocol;
use larder_client::{Address, Error, Stream};

use crate::Failure;
use crate::target::Target;

/// A connection. Failures name its server.
pub(crate) struct Wire {
    address: Address,
    stream: BufReader<Stream>,
}

impl Wire {
    /// Connects and logs in.
    pub(crate) fn open(target: &Target, address: &Address) -> Result<Self, Failure> {
        Self::open_silently(target, address).and_then(|mut wire| {
            if let Some(login) = target.login()? {
                let stream = wire.stream.get_mut();
                login.on(stream, Protocol::Text).map_err(|error| Failure::of(address, &error))?;
            }
            Ok(wire)
        })
    }

    /// Connects without a login.
    pub(crate) fn open_silently(target: &Target, address: &Address) -> Result<Self, Failure> {
        let timeout = Some(target.timeout());
        let stream = Stream::connect(address, target.tls()?.as_ref(), timeout)
            .map_err(|error| Failure::of(address, &Error::Connect(error)))?;
        stream.set_timeout(timeout).map_err(|error| Failure::of_io(address, &error))?;
        Ok(Self { address: address.clone(), stream: BufReader::with_capacity(READ_BYTES, stream) })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// True if it is open, and the server has sent nothing that was not read.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.stream.buffer().is_empty() && self.stream.get_mut().is_silent()
    }

    /// Limits the time of a read.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) -> Result<(), Failure> {
        self.stream
            .get_ref()
            .set_timeout(Some(timeout))
            .map_err(|error| Failure::of_io(&self.address, &error))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let stream = self.stream.get_mut();
        let sent = stream.write_all(bytes).and_then(|()| stream.flush());
        sent.map_err(|error| Failure::of_io(&self.address, &error))
    }

    /// Reads the next line, without its end.
    pub(crate) fn line(&mut self, line: &mut Vec<u8>) -> Result<(), Failure> {
        line.clear();
        let read = (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', line);
        read.map_err(|error| Failure::of_io(&self.address, &error))?;
        match line[..] {
            [.., b'\r', b'\n'] => line.truncate(line.len() - 2),
            [.., b'\n'] => line.truncate(line.len() - 1),
            _ => return Err(Failure::of_io(&self.address, &io::ErrorKind::UnexpectedEof.into())),
        }
        Ok(())
    }

    /// Continues reading a line. False if its end did not come within the timeout; `line` then has its beginning.
    pub(crate) fn poll_line(&mut self, line: &mut Vec<u8>) -> Result<bool, Failure> {
        let room = LINE_BYTES_MAX.saturating_sub(line.len() as u64);
        match (&mut self.stream).take(room).read_until(b'\n', line) {
            Ok(_) if line.ends_with(b"\n") => {
                line.pop();
                line.pop_if(|byte| *byte == b'\r');
                Ok(true)
            }
            Ok(_) => Err(Failure::of_io(&self.address, &io::ErrorKind::UnexpectedEof.into())),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(Failure::of_io(&self.address, &error)),
        }
    }

    /// A value of so many bytes, at most a GiB, and its CR LF. Memory grows with the received bytes.
    pub(crate) fn value(&mut self, value_bytes: u64) -> Result<Vec<u8>, Failure> {
        if value_bytes > VALUE_BYTES_MAX {
            return Err(self.broken(format!("a value of {value_bytes} bytes").as_bytes()));
        }
        let mut value = Vec::new();
        let read = (&mut self.stream).take(value_bytes + 2).read_to_end(&mut value);
        read.map_err(|error| Failure::of_io(&self.address, &error))?;
        if !value.ends_with(b"\r\n") || value.len() as u64 != value_bytes + 2 {
            return Err(self.broken(&value[value.len().saturating_sub(20)..]));
        }
        value.truncate(value.len() - 2);
        Ok(value)
    }

    /// The failure for an unexpected reply.
    pub(crate) fn broken(&self, found: &[u8]) -> Failure {
        Failure::Failed(format!("{}: an answer that cannot be: {}", self.address, found.escape_ascii()))
    }
}

const READ_BYTES: usize = 64 << 10;
/// The largest -I of memcached.
const VALUE_BYTES_MAX: u64 = 1 << 30;
/// More than any line of a reply but a value.
const LINE_BYTES_MAX: u64 = 64 << 10;
