//! A connection used line by line, for commands that are not requests of one key.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::time::{Duration, Instant};

use larder_client::codec::Protocol;
use larder_client::{Address, Error, Stream};

use crate::Failure;
use crate::target::Target;
use crate::transfer::record::VALUE_BYTES_MAX;

/// A connection. Failures name its server.
pub(crate) struct Wire {
    address: Address,
    stream: BufReader<Stream>,
    /// For a line, for each part of a value, and for a write.
    patience: Duration,
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
        let patience = target.timeout();
        let timeout = Some(patience);
        let stream = Stream::connect(address, target.tls()?.as_ref(), timeout)
            .map_err(|error| Failure::of(address, &Error::Connect(error)))?;
        stream.set_timeout(timeout).map_err(|error| Failure::of_io(address, &error))?;
        let stream = BufReader::with_capacity(READ_BYTES, stream);
        Ok(Self { address: address.clone(), stream, patience })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// True if it is open, and the server has sent nothing that was not read.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.stream.buffer().is_empty() && self.stream.get_mut().is_silent()
    }

    /// Limits the time of a line.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) -> Result<(), Failure> {
        self.patience = timeout;
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
        match self.line_or_close(line)? {
            true => Ok(()),
            false => Err(Failure::of_io(&self.address, &io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Reads the next line, without its end. False: the server closed the connection before it began.
    pub(crate) fn line_or_close(&mut self, line: &mut Vec<u8>) -> Result<bool, Failure> {
        line.clear();
        loop {
            match self.continue_line(line) {
                Ok(()) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && line.is_empty() => {
                    return Ok(false);
                }
                Err(error) => return Err(Failure::of_io(&self.address, &error)),
            }
        }
    }

    /// Continues reading a line. False if its end did not come within the timeout; `line` then has its beginning.
    pub(crate) fn poll_line(&mut self, line: &mut Vec<u8>) -> Result<bool, Failure> {
        match self.continue_line(line) {
            Ok(()) => Ok(true),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(false),
                _ => Err(Failure::of_io(&self.address, &error)),
            },
        }
    }

    /// Reads up to the end of a line, and takes the end off. After an error `line` has what was read. Errors: the time
    /// is over, however many bytes still come; the line is too long.
    fn continue_line(&mut self, line: &mut Vec<u8>) -> io::Result<()> {
        let mut deadline = None;
        loop {
            let read = self.stream.fill_buf()?;
            if read.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(read.len());
            if line.len() + taken > LINE_BYTES_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "an answer with a line without an end",
                ));
            }
            line.extend_from_slice(&read[..taken]);
            self.stream.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                line.pop_if(|byte| *byte == b'\r');
                return Ok(());
            }
            // Most lines come in one read.
            if Instant::now() >= *deadline.get_or_insert_with(|| Instant::now() + self.patience) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// A value of so many bytes, at most a GiB, and its CR LF. Memory grows with the received bytes.
    pub(crate) fn value(&mut self, value_bytes: u64) -> Result<Vec<u8>, Failure> {
        if value_bytes > VALUE_BYTES_MAX {
            return Err(self.broken(format!("a value of {value_bytes} bytes").as_bytes()));
        }
        let mut value = Vec::new();
        // At most a GiB.
        let whole_bytes = value_bytes as usize + b"\r\n".len();
        while value.len() < whole_bytes {
            let part_bytes = (value.len() + READ_BYTES).min(whole_bytes);
            let read = self.continue_value(&mut value, part_bytes);
            read.map_err(|error| Failure::of_io(&self.address, &error))?;
        }
        if !value.ends_with(b"\r\n") {
            return Err(self.broken(&value[value.len().saturating_sub(20)..]));
        }
        value.truncate(value.len() - 2);
        Ok(value)
    }

    /// Reads until `value` has so many bytes. Errors: as [`Wire::continue_line`].
    fn continue_value(&mut self, value: &mut Vec<u8>, part_bytes: usize) -> io::Result<()> {
        let deadline = Instant::now() + self.patience;
        while value.len() < part_bytes {
            let read = match self.stream.fill_buf() {
                Ok([]) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let taken = read.len().min(part_bytes - value.len());
            value.extend_from_slice(&read[..taken]);
            self.stream.consume(taken);
            if value.len() < part_bytes && Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// The failure for an unexpected reply.
    pub(crate) fn broken(&self, found: &[u8]) -> Failure {
        Failure::Failed(format!("{}: an answer that cannot be: {}", self.address, found.escape_ascii()))
    }
}

const READ_BYTES: usize = 64 << 10;
/// More than any line of a reply but a value.
const LINE_BYTES_MAX: usize = 64 << 10;
