//! Files of passwords: one `user:password` a line.
//!
//! memcached, doc/protocol.txt, "Authentication"; what it takes is taken here. New is that the password may be a
//! [`Verifier`].

use std::fmt;

use crate::Verifier;
use crate::verifier::PREFIX;

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The user: not empty, without colon.
    pub user: Vec<u8>,
    /// How the password is known.
    pub password: Password,
}

/// How a password is known.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// As it is. Not empty.
    Plain(Vec<u8>),
    /// By what can be derived from it.
    Hashed(Verifier),
}

/// Never prints a password.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("Plain(...)"),
            Self::Hashed(verifier) => write!(f, "Hashed({verifier:?})"),
        }
    }
}

/// Why a file cannot be used. The message names lines and never shows what they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads a password file. Lines end with LF or CRLF; the last one may lack the line ending, and empty lines are
/// skipped. The user name ends at the first colon; the password may hold spaces and colons. A user may be listed with
/// several passwords, so that clients can move from one to the next. A UTF-8 byte order mark at the start is not part
/// of the first user name: some editors write it, and it is invisible.
pub fn parse(bytes: &[u8]) -> Result<Vec<Entry>, Malformed> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let mut entries = Vec::<Entry>::new();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let refuse = |why: &str| Malformed(format!("line {number}: {why}"));
        // All of them: a line that ends in one could not be written as it was read.
        let end = line.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1);
        let line = &line[..end];
        if line.is_empty() {
            continue;
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(refuse("too long"));
        }
        let colon =
            line.iter().position(|byte| *byte == b':').ok_or_else(|| refuse("no colon after the user"))?;
        let (user, password) = (&line[..colon], &line[colon + 1..]);
        if user.is_empty() || password.is_empty() {
            return Err(refuse("an empty user or password"));
        }
        if line.contains(&0) {
            return Err(refuse("a zero byte"));
        }
        let password = if password.starts_with(PREFIX.as_bytes()) {
            Password::Hashed(
                Verifier::parse(password).ok_or_else(|| refuse("a verifier that cannot be read"))?,
            )
        } else {
            Password::Plain(password.to_vec())
        };
        if entries.len() == ENTRIES_MAX {
            return Err(refuse("too many entries"));
        }
        entries.push(Entry { user: user.to_vec(), password });
    }
    if entries.is_empty() {
        return Err(Malformed("it holds no entry".to_owned()));
    }
    Ok(entries)
}

/// Writes entries as [`parse`] reads them.
pub fn render(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Entry { user, password } in entries {
        bytes.extend_from_slice(user);
        bytes.push(b':');
        match password {
            Password::Plain(password) => bytes.extend_from_slice(password),
            Password::Hashed(verifier) => bytes.extend_from_slice(verifier.to_string().as_bytes()),
        }
        bytes.push(b'\n');
    }
    bytes
}

/// Whether this can stand in a file as a user, and be said in every way to log in: text logins end the user at a space.
pub fn is_user(user: &[u8]) -> bool {
    (1..=USER_BYTES_MAX).contains(&user.len())
        && !user.iter().any(|byte| byte.is_ascii_control() || b": ".contains(byte))
}

/// memcached stops at 8, the size of its table. The table here grows; what a bound is still for is the time that a
/// login, which is compared to every entry, and a reload take.
pub const ENTRIES_MAX: usize = 1024;
/// memcached: 255. A verifier alone has about 130.
pub const LINE_BYTES_MAX: usize = 1024;
const USER_BYTES_MAX: usize = 128;
/// The byte order mark in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
