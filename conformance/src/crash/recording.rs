//! What a process did to the files of its store, and what its clients were told meanwhile, in one order:
//! `powerloss/recorder.c` appends records of the one kind, clients of the other.

use std::env;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::Result;

/// Where records of clients go.
pub(super) struct Recording {
    file: File,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Create {
        file: u64,
        name: String,
    },
    Write {
        file: u64,
        offset: u64,
        bytes: Vec<u8>,
    },
    Length {
        file: u64,
        bytes: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    SyncBegin {
        file: u64,
        number: u64,
    },
    SyncEnd {
        number: u64,
    },
    NamesBegin {
        number: u64,
    },
    NamesEnd {
        number: u64,
    },
    /// A client has sent so many of its changes.
    Sent {
        client: usize,
        changes: usize,
    },
    /// So many of them are acknowledged.
    Acknowledged {
        client: usize,
        changes: usize,
    },
}

impl Recording {
    pub(super) fn open(log: &Path) -> Result<Self> {
        Ok(Self { file: File::options().append(true).create(true).open(log)? })
    }

    pub(super) fn note_sent(&mut self, client: usize, changes: usize) {
        self.note(SENT, client, changes);
    }

    pub(super) fn note_acknowledged(&mut self, client: usize, changes: usize) {
        self.note(ACKNOWLEDGED, client, changes);
    }

    fn note(&mut self, kind: u32, client: usize, changes: usize) {
        let mut record = Vec::new();
        for word in [kind, 0, 0, 0] {
            record.extend_from_slice(&word.to_le_bytes());
        }
        for number in [client as u64, changes as u64] {
            record.extend_from_slice(&number.to_le_bytes());
        }
        self.file.write_all(&record).expect("the recording can be written");
    }
}

impl Event {
    /// Whether the process did something to a file.
    pub(super) fn is_of_files(&self) -> bool {
        !matches!(self, Self::Sent { .. } | Self::Acknowledged { .. })
    }

    /// For messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Write { file, offset, bytes } => {
                format!("write of {} bytes at {offset} to file {file}", bytes.len())
            }
            other => format!("{other:?}"),
        }
    }
}

/// Reads a recording. One whose process was killed may end in the middle of a record.
pub(super) fn read(log: &Path) -> Result<Vec<Event>> {
    let bytes = fs::read(log)?;
    let mut events = Vec::new();
    let mut rest = &bytes[..];
    while let Some((event, after)) = next(rest)? {
        events.push(event);
        rest = after;
    }
    Ok(events)
}

fn next(bytes: &[u8]) -> Result<Option<(Event, &[u8])>> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else { return Ok(None) };
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| header[at + n]));
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| header[at + n]));
    let (kind, name_bytes, data_bytes) = (word(0), word(4) as usize, word(8) as usize);
    let (file, number) = (number(16), number(24));
    let Some((name, rest)) = rest.split_at_checked(name_bytes) else { return Ok(None) };
    let Some((data, rest)) = rest.split_at_checked(data_bytes) else { return Ok(None) };
    let name = String::from_utf8(name.to_vec())?;
    let event = match kind {
        1 => Event::Create { file, name },
        2 => Event::Write { file, offset: number, bytes: data.to_vec() },
        3 => Event::Length { file, bytes: number },
        4 => Event::Rename { from: name, to: String::from_utf8(data.to_vec())? },
        5 => Event::Remove { name },
        6 => Event::SyncBegin { file, number },
        7 => Event::SyncEnd { number },
        8 => Event::NamesBegin { number },
        9 => Event::NamesEnd { number },
        SENT => Event::Sent { client: file as usize, changes: number as usize },
        ACKNOWLEDGED => Event::Acknowledged { client: file as usize, changes: number as usize },
        _ => return Err(format!("the recorder cannot record this: {name}").into()),
    };
    Ok(Some((event, rest)))
}

/// The recorder, built beside the program that runs.
pub(super) fn build() -> Result<PathBuf> {
    static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(|| compile().map_err(|error| error.to_string())).clone().map_err(Into::into)
}

fn compile() -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("powerloss/recorder.c");
    let library = env::current_exe()?.with_extension("recorder.so");
    let unfinished = library.with_extension(format!("so.{}", std::process::id()));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&unfinished).arg(source);
    if !cc.args(["-ldl", "-lpthread"]).status()?.success() {
        return Err("cc cannot build the recorder".into());
    }
    fs::rename(unfinished, &library)?;
    Ok(library)
}

const HEADER_BYTES: usize = 32;
const SENT: u32 = 100;
const ACKNOWLEDGED: u32 = 101;
