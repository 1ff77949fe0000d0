//! Logins of clients.

use std::fmt;
use std::io::{ErrorKind, Read, Write};

use crate::Error;
use crate::codec::{Event, Outcome, Pipeline, Protocol, Violation, ViolationKind};

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name. Servers read it up to the first space, or in the binary protocol up to the first NUL.
    pub user: String,
    /// The password. `Debug` does not show it.
    pub password: String,
}

impl Login {
    /// Logs in on a new blocking connection: by SASL's mechanism PLAIN in the binary protocol, else by memcached's
    /// ASCII authentication (`-Y`). Without TLS the network can see the password. How long a read or a write may take
    /// is the stream's.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server refuses the login, and the errors of any request.
    pub fn on(&self, stream: &mut (impl Read + Write), protocol: Protocol) -> Result<(), Error> {
        let (mut pipeline, output) = self.request(protocol);
        stream.write_all(&output).and_then(|()| stream.flush()).map_err(Error::of_io)?;
        let mut input = Vec::new();
        let mut part = [0; 512];
        while !is_accepted(&mut pipeline, &input)? {
            match stream.read(&mut part) {
                Ok(0) => return Err(Error::Closed),
                Ok(bytes) => input.extend_from_slice(&part[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::of_io(error)),
            }
        }
        Ok(())
    }

    /// What is sent, and the pipeline that expects the reply.
    pub(crate) fn request(&self, protocol: Protocol) -> (Pipeline<()>, Vec<u8>) {
        let mut pipeline = Pipeline::new(protocol);
        let mut output = Vec::new();
        pipeline.login(&mut output, &self.user, &self.password, ());
        (pipeline, output)
    }
}

/// True if the input is the reply, and the login was accepted. `false`: it is incomplete. Who connects asks for nothing
/// else before: more than a reply breaks the protocol.
pub(crate) fn is_accepted(pipeline: &mut Pipeline<()>, input: &[u8]) -> Result<bool, Error> {
    let mut rest = input;
    let unasked = |found| Err(Violation::new(ViolationKind::Unasked, found).into());
    match pipeline.receive(&mut rest)? {
        Some(Event::Done((), Outcome::Error(error))) => Err(error.into()),
        Some(_) if rest.is_empty() => Ok(true),
        Some(_) => unasked(rest),
        None if input.len() > REPLY_BYTES_MAX => unasked(input),
        None => Ok(false),
    }
}

/// More than any reply to a login.
const REPLY_BYTES_MAX: usize = 16 << 10;

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Sends what it has, one byte at a time, and is interrupted before each.
    struct Interrupted {
        unread: &'static [u8],
        is_due: bool,
    }

    impl Read for Interrupted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.is_due = !self.is_due;
            match self.is_due {
                true => Err(ErrorKind::Interrupted.into()),
                false => self.unread.read(&mut buffer[..1]),
            }
        }
    }

    impl Write for Interrupted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_signal_is_no_failure() {
        let login = Login { user: "ann".into(), password: "password".into() };
        let mut stream = Interrupted { unread: b"STORED\r\n", is_due: false };
        login.on(&mut stream, Protocol::Text).expect("it is accepted");
    }
}
