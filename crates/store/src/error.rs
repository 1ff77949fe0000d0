//! Why a store could not do what it was asked.

use std::{fmt, io};

use rustix::io::Errno;

/// What a call of a store returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a store could not do what it was asked. Displayed, each is a sentence for the operator.
#[derive(Debug)]
pub enum Error {
    /// There is no room. Nothing of the batch is visible or will be. Reads go on, and appending works again when
    /// there is room.
    Full {
        /// What had no room.
        doing: String,
    },
    /// The store writes no more until it is opened again; reads go on. After a failed fsync nobody knows what is on the
    /// disk, and a second one would say nothing.
    ReadOnly {
        /// What failed.
        reason: String,
    },
    /// Bytes on the disk are not what was written.
    Corrupt {
        /// The file.
        file: String,
        /// Where in the file, in bytes.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// Another process has the store open.
    Locked {
        /// The lock file.
        file: String,
    },
    /// The store was written by a newer larder.
    NewerFormat {
        /// The file.
        file: String,
        /// Its format, `major.minor`.
        format: String,
    },
    /// The directory to restore to has something in it that is no store.
    NotEmpty {
        /// A file there.
        file: String,
    },
    /// A restore to this directory is under way, or was interrupted.
    Unrestored,
    /// The directory holds a store that an earlier larder kept with RocksDB.
    OfRocksDb,
    /// The entry cannot be kept: a key that is empty or too long, a value that is too long.
    Invalid {
        /// Which limit.
        what: &'static str,
    },
    /// Entries of the log that were asked for are gone.
    TooFarBehind {
        /// The first that is there, or will be.
        oldest_sequence: u64,
    },
    /// The sink gave no place for the value.
    Declined,
    /// This driver cannot do it.
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// A system call failed. Of an `append`: nothing of the batch is visible.
    Io {
        /// What was done, and to which file.
        doing: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> Self {
        let doing = doing.into();
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            Self::Full { doing }
        } else {
            Self::Io { doing, source }
        }
    }

    /// True of an error that only says that a resource was short at the moment: the same call may succeed later.
    pub(crate) fn can_pass(error: &io::Error) -> bool {
        const SHORT: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR, Errno::AGAIN];
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            || error.raw_os_error().is_some_and(|code| SHORT.iter().any(|short| short.raw_os_error() == code))
    }

    pub(crate) fn corrupt(file: &str, offset: u64, what: impl Into<String>) -> Self {
        Self::Corrupt { file: file.to_owned(), offset, what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { doing } => write!(f, "no space left on the disk of the store ({doing})"),
            Self::ReadOnly { reason } => {
                write!(f, "the store is read-only until it is opened again, because {reason}")
            }
            Self::Corrupt { file, offset, what } => write!(
                f,
                "{file} is damaged at byte {offset}: {what}; `larder check --repair` cuts what is broken and says \
                 what is lost"
            ),
            Self::Locked { file } => write!(f, "another process has this store open (it holds {file})"),
            Self::NewerFormat { file, format } => {
                write!(f, "{file} has format {format}, which is newer than this larder reads")
            }
            Self::NotEmpty { file } => {
                write!(f, "the directory to restore to is not empty: it has {file}; name a new one")
            }
            Self::Unrestored => f.write_str(
                "a backup is being restored to this directory; if nobody does, remove it and restore again",
            ),
            Self::OfRocksDb => f.write_str(
                "the directory has a store of the engine rocksdb, which this larder no longer has; move its items \
                 with `larder dump` of the version that wrote it, or name another directory",
            ),
            Self::Invalid { what } => write!(f, "the store cannot keep this entry: {what}"),
            Self::TooFarBehind { oldest_sequence } => {
                write!(f, "the log before sequence {oldest_sequence} is gone")
            }
            Self::Declined => f.write_str("the reader gave no place for the value"),
            Self::Unsupported { what } => write!(f, "this store has no {what}"),
            Self::Io { doing, source } => write!(f, "{doing}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
