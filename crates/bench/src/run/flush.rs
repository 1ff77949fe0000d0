//! Empties the servers before a run.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::RunError;
use super::stream::Stream;
use crate::scenario::Target;

/// Flushes every server.
pub(crate) fn flush(target: &Target) -> Result<(), RunError> {
    for address in &target.servers {
        flush_one(address)
            .map_err(|error| RunError::Server { address: address.clone(), reason: error.to_string() })?;
    }
    Ok(())
}

fn flush_one(address: &str) -> std::io::Result<()> {
    let mut stream = Stream::connect(address, TIMEOUT)?;
    stream.write_all(b"flush_all\r\n")?;
    let mut reply = Vec::new();
    let deadline = Instant::now() + TIMEOUT;
    while !reply.ends_with(b"\n") {
        let mut buffer = [0; 256];
        match stream.read(&mut buffer) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => reply.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
    if reply == b"OK\r\n" {
        return Ok(());
    }
    Err(std::io::Error::other(format!("flush_all is answered by {}", reply.escape_ascii())))
}

const TIMEOUT: Duration = Duration::from_secs(5);
