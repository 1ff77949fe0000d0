//! Running in the background (`-d`) and the file with the process id (`-P`).

use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use crate::startup::bounded_file;
use crate::startup::options::{EXIT_FAILURE, Refusal};
use crate::startup::privileges::{self, Target};
use crate::startup::settings::Settings;

/// Goes to the background: a new session, `/` as directory (not with `-r`, so that a core file is written to the first
/// directory), nothing on stdio (not with `-v` or `--log-level`). Call it while there is one thread. Errors: exit code
/// 1.
pub fn detach(settings: &Settings) -> Result<(), Refusal> {
    let keeps_stdio = settings.verbosity > 0 || settings.journal.level.is_some();
    nix::unistd::daemon(settings.core_dumps, keeps_stdio).map_err(|error| {
        Refusal::new(EXIT_FAILURE, format!("failed to daemon() in order to daemonize: {error}"))
    })
}

/// The file with our process id.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl PidFile {
    /// Writes it, with the rights of [`privileges::at_path`]. An error is logged and does not stop the start, as in
    /// memcached.
    pub fn write(path: &Path, user: Option<&Target>) -> Option<Self> {
        let written = privileges::at_path(user, path, |path, _| {
            if let Some(pid) = running(path)? {
                tracing::warn!("The pid file contained the following (running) pid: {pid}");
            }
            write_whole(path, ".tmp", &format!("{}\n", std::process::id()))
        });
        match written {
            Ok(file) => Some(Self { path: path.to_owned(), file }),
            Err(error) => {
                tracing::error!("Could not write the pid file {}: {error}", path.display());
                None
            }
        }
    }

    /// Removes the file, unless another server has put its own in its place. Errors: the directory does not allow it
    /// (any more).
    pub fn remove(self) -> io::Result<()> {
        let is_ours = identity(&self.path.symlink_metadata()?) == self.file;
        if is_ours { std::fs::remove_file(self.path) } else { Ok(()) }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Writes a file beside `path` and renames it to `path`, so that no reader sees half of it. Returns its device and
/// inode. A FIFO in the temporary file's place is an error, not a reason to wait.
pub(crate) fn write_whole(path: &Path, ending: &str, text: &str) -> io::Result<(u64, u64)> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(ending);
    let mut options = File::options();
    options.write(true).create(true).truncate(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let mut file = options.open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&unfinished, path)?;
    Ok(identity(&file.metadata()?))
}

/// The process that an old pid file names, if it runs. Errors: what is there is not a regular file.
fn running(path: &Path) -> io::Result<Option<u32>> {
    let content = match bounded_file::read_regular(path, FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
        content => content.unwrap_or_default(),
    };
    let pid: Option<u32> = str::from_utf8(&content).ok().and_then(|text| text.trim().parse().ok());
    Ok(pid.filter(|pid| Path::new("/proc").join(format!("{pid}")).exists()))
}

/// A number and a line end take less.
const FILE_BYTES_MAX: u64 = 64;
