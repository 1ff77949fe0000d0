//! Writes that raise no signal if the other end is closed. Rust's programs ignore the signal; a library in a program of
//! another language cannot rely on that.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::os::fd::AsFd;

use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

/// A TCP socket whose writes raise no signal, as those of the standard library with several parts do.
#[derive(Debug)]
pub struct QuietSocket(pub TcpStream);

impl Deref for QuietSocket {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.0
    }
}

impl Read for QuietSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for QuietSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send_quietly(&self.0, bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut no_descriptors = SendAncillaryBuffer::default();
        Ok(sendmsg(&self.0, parts, &mut no_descriptors, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends bytes.
pub(super) fn send_quietly(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(send(socket, bytes, SendFlags::NOSIGNAL)?)
}
