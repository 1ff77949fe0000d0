//! Logins of clients.

use std::fmt;
use std::io::{Read, Write};

use crate::Error;
use crate::codec::{Event, Outcome, Pipeline, Protocol};

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub user: String,
    /// The password. `Debug` does not show it.
    pub password: String,
}

impl Login {
    /// Logs in on a new blocking connection: by SASL's mechanism PLAIN in the binary protocol, else by memcached's
    /// ASCII authentication (`-Y`). Without TLS the network can see the password.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server refuses the login, and the errors of any request.
    pub fn on(&self, stream: &mut (impl Read + Write), protocol: Protocol) -> Result<(), Error> {
        let (mut pipeline, output) = self.request(protocol);
        stream.write_all(&output).and_then(|()| stream.flush()).map_err(Error::of_io)?;
        let mut input = Vec::new();
        let mut part = [0; 512];
        loop {
            let bytes = stream.read(&mut part).map_err(Error::of_io)?;
            if bytes == 0 {
                return Err(Error::Closed);
            }
            input.extend_from_slice(&part[..bytes]);
            if is_answered(&mut pipeline, &mut &input[..])? {
                return Ok(());
            }
        }
    }

    /// What is sent, and the pipeline that expects the reply.
    pub(crate) fn request(&self, protocol: Protocol) -> (Pipeline<()>, Vec<u8>) {
        let mut pipeline = Pipeline::new(protocol);
        let mut output = Vec::new();
        pipeline.login(&mut output, &self.user, &self.password, ());
        (pipeline, output)
    }
}

/// True if this input has the reply, which it is moved past, and the login was accepted. `false`: it is incomplete.
pub(crate) fn is_answered(pipeline: &mut Pipeline<()>, input: &mut &[u8]) -> Result<bool, Error> {
    match pipeline.receive(input)? {
        Some(Event::Done((), Outcome::Error(error))) => Err(error.into()),
        Some(_) => Ok(true),
        None => Ok(false),
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}
