//! Giving up rights and asking for resources, before the first thread starts.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, User, getgroups, setfsgid, setfsuid, setgid, setgroups, setuid};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use crate::startup::options::{EXIT_NO_USER, EXIT_OS_ERROR, Refusal};
use crate::startup::settings::Settings;

/// Whose rights the server is to run with.
#[derive(Clone, Debug)]
pub struct Target {
    name: String,
    uid: Uid,
    gid: Gid,
    was_asked_for: bool,
}

/// The user of `-u`, or `nobody`, if we run as root; `None` if there is nothing to give up. Errors: exit code 67.
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
    /// Gives a file that root has made where only root can (see [`at_path`]) to the user.
    pub fn own(&self, path: &Path) -> io::Result<()> {
        std::os::unix::fs::lchown(path, Some(self.uid.as_raw()), Some(self.gid.as_raw()))
    }

    /// Does something with the user's rights to files. Only while there is one thread.
    fn lend_rights<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
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

    /// initgroups, not just the user's own group: -u may name a user who reaches files by a group.
    fn join_groups(&self) -> nix::Result<()> {
        let name = CString::new(self.name.as_str()).unwrap_or_default();
        nix::unistd::initgroups(&name, self.gid).or_else(|_| setgroups(&[self.gid]))
    }

    /// Becomes the user, for good. To be called while there is one thread: the C library's setuid, which nix calls,
    /// would change all, but whatever runs meanwhile would run as root. Errors: exit code 71.
    pub fn assume(&self) -> Result<(), Refusal> {
        let refuse = |error| {
            Refusal::new(EXIT_OS_ERROR, format!("failed to assume identity of user {}: {error}", self.name))
        };
        self.join_groups().map_err(refuse)?;
        setgid(self.gid).map_err(refuse)?;
        setuid(self.uid).map_err(refuse)?;
        if !self.was_asked_for {
            tracing::warn!("started as root without -u: running as user {}", self.name);
        }
        Ok(())
    }
}

/// Whose rights a file is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Those that the process will have.
    Ours,
    /// Root's, which it gives up later.
    Roots,
}

/// Makes or replaces the file at `path` so that no link leads root astray: with the rights of the user that we are to
/// become, who could have planted it. Where that user may not, but root alone can have made every part of the way,
/// with root's: `act` is told, and gets the path without links in it. Only while there is one thread.
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

/// The path without links, if nobody but root can put something else in its place, or in the place of any folder or
/// link on the way.
fn roots_own(path: &Path) -> Option<PathBuf> {
    let (name, path) = (path.file_name()?, std::path::absolute(path).ok()?);
    // From the top: what is above cannot change any more when what is below is looked at.
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
            // Where a folder is sticky, nobody can take away what is root's.
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
            // An absolute one leads back to the top.
            Some(step) => folder.push(step),
            None => {}
        }
    }
    None
}

/// Folders and links on the way to a file at most.
const STEPS_MAX: usize = 256;

/// Raises the limit on descriptors to `wanted`, or as far as the system allows if that is `needed` at least: then the
/// last connections may find none left. Errors: the system allows fewer; exit code 71.
pub fn allow_descriptors(wanted: u64, needed: u64) -> Result<(), Refusal> {
    let limit = getrlimit(Resource::Nofile);
    // None: no limit.
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let raise = |current: u64| {
        let maximum = limit.maximum.map(|maximum| maximum.max(current));
        setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum })
    };
    if raise(wanted).is_ok() {
        return Ok(());
    }
    match limit.maximum {
        Some(maximum) if maximum >= needed && raise(maximum).is_ok() => {
            tracing::warn!(
                "the system allows {maximum} open files, fewer than the {wanted} that -c asks for"
            );
            Ok(())
        }
        _ => {
            let message = "failed to set rlimit for open files. Try starting as root or requesting smaller maxconns value.";
            Err(Refusal::new(EXIT_OS_ERROR, message))
        }
    }
}

/// Lets a crash leave a core file (`-r`), also after a change of user. Errors: exit code 71.
pub fn allow_core_dumps() -> Result<(), Refusal> {
    let unlimited = Rlimit { current: None, maximum: None };
    let maximum = getrlimit(Resource::Core).maximum;
    setrlimit(Resource::Core, unlimited)
        .or_else(|_| setrlimit(Resource::Core, Rlimit { current: maximum, maximum }))
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::Dumpable))
        .map_err(|error| Refusal::new(EXIT_OS_ERROR, format!("failed to ensure corefile creation: {error}")))
}

/// Asks for no limit on locked memory (`-k`): only root may, so this comes before another user is assumed.
pub fn allow_locked_memory() {
    // Where it is refused, whether there is a limit is seen when memory is locked.
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
}

/// Keeps resident what this process touches from now on (`-k`), and says so if the system does not allow it, as
/// memcached does. To be called as the user that serves.
///
/// Not what it never touches: most of what the engine reserves is address space for a limit that may be raised. And not
/// under a limit, which counts that address space: allocations would fail when it is reached.
pub fn lock_memory() {
    let is_unlimited = getrlimit(Resource::Memlock).current.is_none()
        || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if !is_unlimited {
        tracing::warn!("-k invalid, there is a limit on locked memory");
    } else if mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT).is_err() {
        tracing::warn!("-k invalid, mlockall() failed");
    }
}
