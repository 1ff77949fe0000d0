//! What is wrong with a file.

use std::fmt;

/// Why a text is no table of namespaces. Shown as `line 3: namespace."a:".memory: <reason>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The line, from 1 on.
    pub line: usize,
    /// The key, as a path from the root; empty if the text is no TOML.
    pub key: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Error {}
