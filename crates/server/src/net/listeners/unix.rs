//! Unix sockets. They are created first and get their names last, when nothing else can fail any more: a server that
//! cannot serve must not take the name of one that does.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix};

use super::stream_socket;
use crate::startup::file_lock;
use crate::startup::privileges::{self, Rights, Target};
use crate::startup::settings::Settings;

/// Creates a socket without a name.
pub(super) fn unnamed() -> io::Result<OwnedFd> {
    stream_socket(AddressFamily::UNIX)
}

/// Binds a socket to a path, with the rights of [`privileges::at_path`], and listens. The socket file is then owned by
/// `user`. A socket file left by a dead server is removed. Errors include a server that still listens there.
pub(super) fn take_name(
    socket: &OwnedFd,
    path: &Path,
    settings: &Settings,
    user: Option<&Target>,
) -> io::Result<()> {
    privileges::at_path(user, path, |path, rights| {
        // If two servers start at once, the second one must look again after the first one listens.
        let _lock = lock_directory(path)?;
        remove_stale(path)?;
        rustix::net::bind(socket, &SocketAddrUnix::new(path)?)?;
        // Nobody can connect before `listen`, so the mode that the umask left is never used.
        rustix::fs::chmod(path, Mode::from_raw_mode(settings.unix_mode))?;
        if let (Some(user), Rights::Roots) = (user, rights) {
            user.own(path)?;
        }
        Ok(rustix::net::listen(socket, settings.backlog)?)
    })
}

/// Keeps out others who would take a name in the directory of `path`. `None`: it may not be read, or somebody who does
/// not take a name has locked it, as everybody who may read it can.
fn lock_directory(path: &Path) -> io::Result<Option<File>> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = match File::open(directory.unwrap_or_else(|| Path::new("."))) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        directory => directory?,
    };
    match file_lock::take(&directory, LOCK_WAIT_MAX) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(None),
        taken => taken.map(|()| Some(directory)),
    }
}

/// Removes a socket that no server listens on. Any other file in this place is somebody's data, and makes bind fail.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = |mode| FileType::from_raw_mode(mode) == FileType::Socket;
    if !rustix::fs::lstat(path).is_ok_and(|found| is_socket(found.st_mode)) {
        return Ok(());
    }
    match rustix::net::connect(unnamed()?, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        Err(Errno::NOENT) => Ok(()),
        // The socket is of another type, or its queue of waiting connections is full.
        Ok(()) | Err(Errno::PROTOTYPE | Errno::AGAIN) => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "another server is listening on it"))
        }
        Err(error) => {
            let error = io::Error::from(error);
            let reason = format!("whether another server is listening on it cannot be told: {error}");
            Err(io::Error::new(error.kind(), reason))
        }
    }
}

/// Longest wait for another server that starts: it holds the directory for a few system calls.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);
