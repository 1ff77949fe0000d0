//! The file that the cache is kept in (`-e`): opened with the rights of who will serve, and what is said of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use larder_engine::{CacheFile, Config, Engine, Opened, Reservation, Restored, Start};
use nix::fcntl::OFlag;
use nix::unistd::Uid;

use crate::clock::{Clock, FIRST_SEC};
use crate::startup::options::{EXIT_OS_ERROR, Refusal};
use crate::startup::privileges::{self, Rights, Target};

/// The cache in that file, and a clock that goes on from it. Errors: the file cannot be used; exit code 71.
pub fn open(
    path: &Path,
    user: Option<&Target>,
    config: Config,
    reservation: Reservation,
) -> Result<(Arc<Engine>, Clock), Refusal> {
    let refuse =
        |error: io::Error| Refusal::new(EXIT_OS_ERROR, format!("larderd: -e {}: {error}", path.display()));
    let file = open_file(path, user).map_err(refuse)?;
    let begun = Instant::now();
    let (Opened { engine, now_secs, start }, clock) = loop {
        let clock = Clock::start();
        let unix_secs = clock.wall_secs(FIRST_SEC).unsigned_abs();
        let backing = CacheFile { file: file.try_clone().map_err(refuse)?, unix_secs, first_secs: FIRST_SEC };
        match Engine::open(config.clone(), reservation, backing) {
            // A process that is just ending may have it for a moment longer.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && begun.elapsed() < LOCK_WAIT_MAX => {
                thread::sleep(LOCK_PAUSE);
            }
            opened => break (opened.map_err(refuse)?, clock),
        }
    };
    let name = path.display();
    match start {
        Start::New => tracing::info!("the cache is kept in {name}, which is new"),
        Start::Warm(Restored { items, is_clean, torn, expired }) => {
            let millis = begun.elapsed().as_millis() as u64;
            let was_killed = !is_clean;
            tracing::info!(items, expired, was_killed, millis, "went on with the cache in {name}");
            if torn > 0 {
                tracing::warn!("{torn} items of {name} were damaged, and are lost");
            }
        }
        Start::Cold(reason) => {
            tracing::warn!("the cache in {name} cannot be kept, it starts empty: {reason}")
        }
    }
    Ok((engine, clock.resume(now_secs)))
}

/// Opens or creates the file. Nobody but the user who serves may own it, or write to it: what it says is what clients
/// get.
fn open_file(path: &Path, user: Option<&Target>) -> io::Result<File> {
    let mut options = File::options();
    // No link, which others might have planted, and no wait for the other end of a FIFO.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags.bits());
    let file = privileges::at_path(user, path, |path, rights| {
        let file = options.open(path)?;
        let found = file.metadata()?;
        // Root has just created it.
        if let (Rights::Roots, Some(user)) = (rights, user)
            && found.uid() == 0
            && found.len() == 0
        {
            user.own(path)?;
        }
        Ok(file)
    });
    let file = file.map_err(|error| match error.raw_os_error().map(nix::errno::Errno::from_raw) {
        Some(nix::errno::Errno::ELOOP) => io::Error::other("it is a symbolic link"),
        Some(nix::errno::Errno::EISDIR) => io::Error::other("it is a directory"),
        _ => error,
    })?;
    let found = file.metadata()?;
    let own = user.map_or_else(Uid::effective, Target::uid);
    // What is no file the engine refuses.
    if found.is_file() && found.uid() != own.as_raw() {
        let (owner, own) = (found.uid(), own.as_raw());
        return Err(io::Error::other(format!("it belongs to user {owner}, and larderd runs as user {own}")));
    }
    if found.is_file() && found.mode() & 0o022 != 0 {
        let mode = found.mode() & 0o777;
        return Err(io::Error::other(format!("others may write to it (mode {mode:o})")));
    }
    Ok(file)
}

/// How long the file of another process is waited for.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(10);
