//! Random numbers from the system.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// A key for hashes that nobody outside may predict. Errors: the system gives no random numbers.
pub fn key() -> io::Result<[u64; 2]> {
    let mut bytes = [0; 16];
    if getrandom(&mut bytes, GetRandomFlags::empty())? < bytes.len() {
        return Err(io::Error::other("the system gives no random numbers"));
    }
    let number = u128::from_ne_bytes(bytes);
    Ok([(number >> 64) as u64, number as u64])
}
