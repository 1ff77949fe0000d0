//! What is asked.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::Path;

/// A get; if it misses, an insert follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) key: u64,
    pub(crate) value_bytes: u32,
}

const RECORD_BYTES: usize = 12;

/// Reads records of twelve bytes. Errors: the file cannot be read, or has none.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Request>> {
    let file = File::open(path)?;
    let count = usize::try_from(file.metadata()?.len()).unwrap_or(0) / RECORD_BYTES;
    // In small pieces: a large buffer that is freed would change how the allocator of C takes memory from the system.
    let mut reader = BufReader::with_capacity(RECORD_BYTES << 10, file);
    let mut requests = Vec::with_capacity(count);
    for _ in 0..count {
        let (mut key, mut value_bytes) = ([0; 8], [0; 4]);
        reader.read_exact(&mut key)?;
        reader.read_exact(&mut value_bytes)?;
        requests.push(Request { key: u64::from_le_bytes(key), value_bytes: u32::from_le_bytes(value_bytes) });
    }
    if requests.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no requests"));
    }
    Ok(requests)
}
