//! Reads and writes that ask the socket once at most: who has a deadline looks at it before each. [`Read`] and
//! [`Write`] go on within TLS until a record is whole, however long each of its bytes takes.

use std::io::{self, BufRead, Read, Write};

use rustix::net::{RecvFlags, recv};
use rustls::{ClientConnection, StreamOwned};

use super::{QuietSocket, Stream};

impl Stream {
    /// Reads. `Interrupted`: no bytes yet, for a signal, or a record that is not whole.
    #[inline]
    pub(crate) fn read_step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self::Tls(tls) = self else { return self.read(buffer) };
        match tls.conn.reader().read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
        if tls.conn.wants_write() {
            // What the server has asked TLS for.
            tls.conn.write_tls(&mut tls.sock)?;
        } else if let Err(error) = read_records(&mut tls.conn, &mut tls.sock) {
            // The alert that says why.
            let _ = tls.conn.write_tls(&mut tls.sock);
            return Err(error);
        }
        Err(io::ErrorKind::Interrupted.into())
    }

    /// Writes, but asks the socket once at most. `Interrupted`: no bytes yet, for a signal, or those of before within
    /// TLS.
    ///
    /// # Errors
    /// Those of the socket.
    #[inline]
    pub fn write_step(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let tls = match self {
            Self::Tls(tls) => tls,
            // The system waits anew for each part that it makes of them.
            Self::Unix(_) => return self.write(&bytes[..bytes.len().min(UNIX_WRITE_BYTES_MAX)]),
            Self::Tcp(_) => return self.write(bytes),
        };
        match tls.conn.writer().write(bytes)? {
            // It has no room.
            0 => {
                tls.conn.write_tls(&mut tls.sock)?;
                Err(io::ErrorKind::Interrupted.into())
            }
            written => Ok(written),
        }
    }

    /// Sends a part of what is still inside TLS: [`Stream::has_unsent`].
    ///
    /// # Errors
    /// Those of the socket.
    pub fn flush_step(&mut self) -> io::Result<()> {
        if let Self::Tls(tls) = self {
            tls.conn.write_tls(&mut tls.sock)?;
        }
        Ok(())
    }
}

/// See [`Stream::is_silent`]. Records without data may have arrived, such as new tickets; but a server that goes on
/// sending them is not silent.
pub(super) fn is_silent_session(tls: &mut StreamOwned<ClientConnection, QuietSocket>) -> bool {
    for _ in 0..EMPTY_READS_MAX {
        match tls.conn.reader().fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return false,
        }
        if let Err(error) = read_records(&mut tls.conn, &mut NotWaiting(&tls.sock)) {
            return error.kind() == io::ErrorKind::WouldBlock;
        }
    }
    false
}

/// Reads once from the socket, and decrypts what is whole.
fn read_records(session: &mut ClientConnection, socket: &mut impl Read) -> io::Result<()> {
    // The session remembers an end.
    session.read_tls(socket)?;
    session.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(())
}

/// A socket whose reads return at once.
struct NotWaiting<'a>(&'a QuietSocket);

impl Read for NotWaiting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.0.0, buffer, RecvFlags::DONTWAIT)?.0)
    }
}

/// Systems make one part of so much.
const UNIX_WRITE_BYTES_MAX: usize = 16 << 10;
/// More than servers send after a handshake.
const EMPTY_READS_MAX: usize = 16;
