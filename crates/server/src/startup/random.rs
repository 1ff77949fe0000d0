//! Random numbers from the system.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Unpredictable bytes. Errors: the system gives no random numbers.
pub fn bytes<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    if getrandom(&mut bytes, GetRandomFlags::empty())? < bytes.len() {
        return Err(io::Error::other("the system gives no random numbers"));
    }
    Ok(bytes)
}

/// An unpredictable key for hashes. Errors: the system gives no random numbers.
pub fn key() -> io::Result<[u64; 2]> {
    let number = u128::from_ne_bytes(bytes()?);
    Ok([(number >> 64) as u64, number as u64])
}
