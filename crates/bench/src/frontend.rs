//! Command lines and files of older benchmarks, as scenarios, so that an old test runs unchanged.
//!
//! An option that cannot be supported is refused by name, with the reason. A difference that does not change the test
//! is a note for the user.

mod brutis;
mod crusher;
mod memaslap;
mod memslap;
mod servers;
mod words;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;

use crate::Scenario;

/// A benchmark whose command line is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// memaslap of libmemcached.
    Memaslap,
    /// memslap of libmemcached, memcslap in Debian.
    Memslap,
    /// mc-crusher.
    Crusher,
    /// Brutis 0.93 (options) and 2.0 (XML).
    Brutis,
}

/// The translation of an old command line.
#[derive(Clone, Debug)]
pub struct Translation {
    /// Runs, one after the other.
    pub scenarios: Vec<Scenario>,
    /// Differences from the old tool, one a line.
    pub notes: Vec<String>,
    /// The output format of the old tool.
    pub style: Style,
    /// Write every period to this file as CSV.
    pub csv_file: Option<String>,
    /// Write the outcome to this file as JSON.
    pub json_file: Option<String>,
}

/// A format of tables.
#[derive(Clone, Debug, PartialEq)]
pub enum Style {
    /// larder's own.
    Plain,
    /// memaslap's.
    Memaslap {
        /// Its `--stat_freq`.
        stat_freq_secs: Option<u64>,
    },
    /// memslap's: seconds only.
    Memslap {
        /// `get`, `mget` or `set`.
        test: &'static str,
        /// Its `--concurrency`.
        threads: u64,
    },
}

/// Why there is no translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Help was requested; this is the text.
    Help(String),
    /// An invalid or unsupported option or line, with the reason.
    Words(String),
    /// A file cannot be read.
    File {
        /// Its path.
        path: String,
        /// The error.
        reason: String,
    },
}

/// Inputs of a front end besides its arguments.
pub struct Surroundings<'a> {
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// A file's text.
    pub read_file: &'a dyn Fn(&Path) -> io::Result<String>,
}

impl Tool {
    /// Makes scenarios of `words`, the arguments after the tool's name.
    ///
    /// # Errors
    /// The arguments are invalid, or not supported.
    pub fn translate(
        self,
        words: &[OsString],
        surroundings: &Surroundings<'_>,
    ) -> Result<Translation, Refusal> {
        match self {
            Self::Memaslap => memaslap::translate(words, surroundings),
            Self::Memslap => memslap::translate(words, surroundings),
            Self::Crusher => crusher::translate(words, surroundings),
            Self::Brutis => brutis::translate(words, surroundings),
        }
    }
}

impl Translation {
    fn plain(scenarios: Vec<Scenario>, notes: Vec<String>) -> Self {
        Self { scenarios, notes, style: Style::Plain, csv_file: None, json_file: None }
    }
}

impl Surroundings<'_> {
    fn read(&self, path: &str) -> Result<String, Refusal> {
        (self.read_file)(Path::new(path))
            .map_err(|error| Refusal::File { path: path.into(), reason: error.to_string() })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Help(text) | Self::Words(text) => f.write_str(text),
            Self::File { path, reason } => write!(f, "{path}: {reason}"),
        }
    }
}

impl std::error::Error for Refusal {}

/// A run that the old tool would never end: a year.
const WITHOUT_END_SECS: f64 = 31_536_000.0;
