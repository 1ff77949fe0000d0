//! Drops privileges and raises resource limits, before the first thread starts.

use std::ffi::{CString, OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, User, getgrouplist, getgroups, setfsgid, setfsuid, setgid, setgroups, setuid};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_thread_gid, set_thread_groups, set_thread_uid};

use crate::startup::options::{EXIT_NO_USER, EXIT_OS_ERROR, Refusal};
use crate::startup::settings::Settings;

/// The user that the server will run as.
#[derive(Clone, Debug)]
pub struct Target {
    name: String,
    uid: Uid,
    gid: Gid,
    was_asked_for: bool,
}

/// The user of `-u`, or `nobody`, if we run as root; `None` if there are no privileges to drop. Errors: exit code 67.
///
/// memcached does not start as root without `-u`.
pub fn target(settings: &Settings) -> Result<Option<Target>, Refusal> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let name = settings.user.as_deref().unwrap_or("nobody");
    match User::from_name(name) {
        Ok(Some(user)) => Ok(Some(Target {
            name: name.to_owned(),
            uid: user.uid,
            gid: user.gid,
            was_asked_for: settings.user.is_some(),
        })),
        _ => Err(Refusal::new(EXIT_NO_USER, format!("can't find the user {name} to switch to"))),
    }
}

impl Target {
    /// Gives a file that root created in a directory of root's (see [`at_path`]) to the user.
    pub fn own(&self, path: &Path) -> io::Result<()> {
        std::os::unix::fs::lchown(path, Some(self.uid.as_raw()), Some(self.gid.as_raw()))
    }

    /// The user's number.
    pub fn uid(&self) -> Uid {
        self.uid
    }

    /// Runs `act` with the user's rights to files. Call it while there is one thread.
    pub(crate) fn lend_rights<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let groups = getgroups()?;
        self.join_groups()?;
        let gid = setfsgid(self.gid);
        let uid = setfsuid(self.uid);
        let done = act();
        setfsuid(uid);
        setfsgid(gid);
        setgroups(&groups)?;
        done
    }

    /// initgroups, not only the user's own group: the user of -u may have access to files by another group.
    fn join_groups(&self) -> nix::Result<()> {
        let name = CString::new(self.name.as_str()).unwrap_or_default();
        nix::unistd::initgroups(&name, self.gid).or_else(|_| setgroups(&[self.gid]))
    }

    /// Makes the calling thread alone the user's, permanently. Errors: those of [`assume`](Self::assume).
    pub(crate) fn assume_in_thread(&self) -> Result<(), Refusal> {
        let name = CString::new(self.name.as_str()).unwrap_or_default();
        let groups = getgrouplist(&name, self.gid).unwrap_or_else(|_| vec![self.gid]);
        let groups: Vec<_> = groups.iter().map(|gid| rustix::process::Gid::from_raw(gid.as_raw())).collect();
        set_thread_groups(&groups)
            .and_then(|()| set_thread_gid(rustix::process::Gid::from_raw(self.gid.as_raw())))
            .and_then(|()| set_thread_uid(rustix::process::Uid::from_raw(self.uid.as_raw())))
            .map_err(|error| self.refusal(error))
    }

    fn refusal(&self, error: impl Display) -> Refusal {
        Refusal::new(EXIT_OS_ERROR, format!("failed to assume identity of user {}: {error}", self.name))
    }

    /// Becomes the user, permanently. Call it while there is one thread: the C library's setuid, which nix calls,
    /// changes all threads, but one that runs meanwhile runs as root. Errors: exit code 71.
    pub fn assume(&self) -> Result<(), Refusal> {
        let refuse = |error| self.refusal(error);
        self.join_groups().map_err(refuse)?;
        setgid(self.gid).map_err(refuse)?;
        setuid(self.uid).map_err(refuse)
    }

    /// Logs the user that the server becomes, if the operator did not name one. Call it while stderr is connected.
    pub fn announce(&self) {
        if !self.was_asked_for {
            tracing::warn!("started as root without -u: running as user {}", self.name);
        }
    }
}

/// With whose rights a file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// With those that the process will have.
    Ours,
    /// With root's, which are dropped later.
    Roots,
}

/// Creates or replaces the file at `path` without following a link that the future user could have planted: with that
/// user's rights. If that user may not, but only root can change every part of the path, with root's rights. `act` gets
/// the rights, and the path without links. Call it while there is one thread.
pub fn at_path<T>(
    user: Option<&Target>,
    path: &Path,
    act: impl Fn(&Path, Rights) -> io::Result<T>,
) -> io::Result<T> {
    let Some(user) = user else { return act(path, Rights::Ours) };
    match user.lend_rights(|| act(path, Rights::Ours)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => match roots_own(path) {
            Some(path) => act(&path, Rights::Roots),
            None => Err(error),
        },
        done => done,
    }
}

/// The path without links, if only root can replace the file and every directory and link of its path.
fn roots_own(path: &Path) -> Option<PathBuf> {
    let (name, path) = (path.file_name()?, std::path::absolute(path).ok()?);
    // From the top: an upper part cannot change any more when a lower part is checked.
    let mut folder = PathBuf::from("/");
    let mut ahead: Vec<OsString> = path.parent()?.iter().rev().map(OsStr::to_owned).collect();
    for _ in 0..STEPS_MAX {
        let found = folder.symlink_metadata().ok().filter(|found| found.uid() == 0)?;
        if found.is_symlink() {
            let target = folder.read_link().ok()?;
            ahead.extend(target.iter().rev().map(OsStr::to_owned));
            folder.pop();
        } else {
            let is_closed = found.is_dir() && found.mode() & 0o022 == 0;
            // In a sticky directory nobody can remove root's files.
            let is_sticky = found.is_dir() && found.mode() & 0o1000 != 0;
            if ahead.is_empty() {
                return is_closed.then(|| folder.join(name));
            }
            if !is_closed && !is_sticky {
                return None;
            }
        }
        match ahead.pop() {
            Some(step) if step == ".." => drop(folder.pop()),
            Some(step) if step == "." => {}
            // An absolute link starts again at the top.
            Some(step) => folder.push(step),
            None => {}
        }
    }
    None
}

/// Directories and links of a path at most.
const STEPS_MAX: usize = 256;

/// Raises the limit of descriptors: for `connections`, for the `own` ones that the server needs besides, and for `more`
/// that its store may come to need. If the system allows fewer, connections get what the server leaves: clients that
/// open every connection they may take nothing from the store. Returns the allowed number of connections. Errors: the
/// system allows fewer than the connections that were asked for, or leaves none; exit code 71.
pub fn allow_descriptors(connections: u32, own: usize, more: usize) -> Result<u32, Refusal> {
    let limit = getrlimit(Resource::Nofile);
    let own = own as u64;
    let wanted = u64::from(connections) + own + more as u64;
    // None: no limit.
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(connections);
    }
    let raise = |current: u64| {
        let maximum = limit.maximum.map(|maximum| maximum.max(current));
        setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum })
    };
    if raise(wanted).is_ok() {
        return Ok(connections);
    }
    let maximum = limit.maximum.unwrap_or(0);
    if maximum < connections.into() || raise(maximum).is_err() {
        let message =
            "failed to set rlimit for open files. Try starting as root or requesting smaller maxconns value.";
        return Err(Refusal::new(EXIT_OS_ERROR, message));
    }
    let left = maximum.saturating_sub(own);
    if left == 0 {
        let message = format!(
            "the system allows {maximum} open files, and the server needs {own} beside its connections"
        );
        return Err(Refusal::new(EXIT_OS_ERROR, message));
    }
    if left < connections.into() {
        tracing::warn!(
            "the system allows {maximum} open files, of which the server needs {own}: -c is lowered to {left}"
        );
    } else if more > 0 {
        let segments = left - u64::from(connections);
        tracing::warn!("the system allows {maximum} open files, so the store may grow by {segments} files");
    }
    // The result never exceeds the number asked for.
    Ok(left.min(connections.into()) as u32)
}

/// Allows core files (`-r`), also after a change of user. Errors: exit code 71.
pub fn allow_core_dumps() -> Result<(), Refusal> {
    let unlimited = Rlimit { current: None, maximum: None };
    let maximum = getrlimit(Resource::Core).maximum;
    setrlimit(Resource::Core, unlimited)
        .or_else(|_| setrlimit(Resource::Core, Rlimit { current: maximum, maximum }))
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::Dumpable))
        .map_err(|error| Refusal::new(EXIT_OS_ERROR, format!("failed to ensure corefile creation: {error}")))
}

/// Removes the limit on locked memory (`-k`). Only root may, so call it before the user changes.
pub fn allow_locked_memory() {
    // If this is refused, locking the memory shows whether there is a limit.
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
}

/// Keeps all memory that is touched from now on resident (`-k`). Logs if the system does not allow it, as memcached
/// does. Call it as the user that serves.
///
/// Untouched memory is not locked: most of what the engine reserves is address space for a limit that may be raised.
/// Nothing is locked if there is a limit: it counts that address space, so allocations would fail.
pub fn lock_memory() {
    let is_unlimited = getrlimit(Resource::Memlock).current.is_none()
        || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if !is_unlimited {
        tracing::warn!("-k invalid, there is a limit on locked memory");
    } else if mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT).is_err() {
        tracing::warn!("-k invalid, mlockall() failed");
    }
}
