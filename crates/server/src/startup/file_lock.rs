//! Locks of files and directories (flock), which end when their descriptors are closed.

use std::fs::File;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Locks a file, waiting at most `wait_max` for another process that holds it. Errors: `ResourceBusy`.
pub(crate) fn take(file: &File, wait_max: Duration) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if begun.elapsed() < wait_max => thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process is using it"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

const PAUSE: Duration = Duration::from_millis(10);
