//! The command lines and files of older benchmarks, as scenarios, so that an old test runs as it is.
//!
//! What cannot be honoured is refused by its name, with the reason. What is done otherwise without changing the test is
//! a note, for the person to read.

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

/// A benchmark whose words are understood.
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

/// What an old command line asks for.
#[derive(Clone, Debug)]
pub struct Translation {
    /// To be run one after another.
    pub scenarios: Vec<Scenario>,
    /// What is done otherwise than the old tool did it, a line each.
    pub notes: Vec<String>,
    /// How the old tool would print what came.
    pub style: Style,
    /// Write every period to this file, as CSV.
    pub csv_file: Option<String>,
    /// Write all of it to this file, as JSON.
    pub json_file: Option<String>,
}

/// A form of tables.
#[derive(Clone, Debug, PartialEq)]
pub enum Style {
    /// larder's own.
    Plain,
    /// memaslap's.
    Memaslap {
        /// Its `--stat_freq`.
        stat_freq_secs: Option<u64>,
    },
    /// memslap's: seconds, and nothing else.
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
    /// Help was asked for: this is it.
    Help(String),
    /// An option or a line cannot be understood or honoured: which one, and why.
    Words(String),
    /// A file cannot be read.
    File {
        /// Its path.
        path: String,
        /// Why not.
        reason: String,
    },
}

/// What a front end reads besides its words.
pub struct Surroundings<'a> {
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// A file's text.
    pub read_file: &'a dyn Fn(&Path) -> io::Result<String>,
}

impl Tool {
    /// Makes scenarios of `words`, which follow the tool's name.
    ///
    /// # Errors
    /// The words cannot be understood, or ask for what cannot be honoured.
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

/// A run that the old tool would never end by itself: a year.
const WITHOUT_END_SECS: f64 = 31_536_000.0;
