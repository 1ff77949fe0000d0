//! Caches that are kept in files (`-e`): that of the default namespace in FILE, each other in a file of its own beside
//! it.
//!
//! They are taken up together, as the caches of one server:
//!
//! - They have one clock. Each file says which second it is, and those of one server agree. A file that does not is
//!   damaged or comes from elsewhere, and its times would be wrong: it starts empty.
//! - A key is in one of them, whatever the policies were before: a cache drops the items of keys that are not its own
//!   any more. Otherwise their values would come back, old, with the policies.
//! - For the same reason the files of namespaces that are not kept warm any more are removed. Each file notes which
//!   `-e` it belongs to ([`memory_file::family`]), and no other goes: another server may have a file of such a name.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use larder_engine::{CacheFile, Engine, Opened, Restored, Start};
use larder_policy::{DEFAULT, Keep};

use super::plan::{EnginePlan, Plan};
use crate::clock::{Clock, FIRST_SEC};
use crate::startup::memory_file::{self, Left, MemoryFile};
use crate::startup::options::{EXIT_OS_ERROR, Refusal};
use crate::startup::privileges::Target;

/// The engines of a server that lie in files, by the numbers of their namespaces.
#[derive(Default)]
pub struct WarmCaches(BTreeMap<u8, WarmCache>);

/// An engine, and its file.
pub(super) struct WarmCache {
    pub(super) engine: Arc<Engine>,
    pub(super) path: PathBuf,
}

impl WarmCaches {
    /// Takes up the caches of a plan that are kept in files, and returns the clock that goes on from them. `file` is
    /// that of `-e`; without it there are none, and the clock begins. Call it while there is one thread. Errors: a file
    /// cannot be used; exit code 71.
    pub fn open(plan: &Plan, file: Option<&Path>, user: Option<&Target>) -> Result<(Self, Clock), Refusal> {
        let Some(file) = file else { return Ok((Self::default(), Clock::start())) };
        let caches = find(plan, file, user)?;
        remove_left_over(file, &caches, user)?;
        check_space(&caches).map_err(|error| refuse(file, &error))?;
        if caches.is_empty() {
            tracing::warn!("-e {} has no effect: no namespace is kept warm", file.display());
        }
        // After the files were waited for: whoever had them told the time until then.
        let clock = Clock::start();
        let unix_secs = clock.wall_secs(FIRST_SEC).unsigned_abs();
        let opened = caches.into_iter().map(|cache| cache.open(plan, unix_secs)).collect::<Result<_, _>>()?;
        let caches = agree(opened, plan, unix_secs)?;
        let now_secs = caches.iter().map(|cache| cache.opened.now_secs).max().unwrap_or(FIRST_SEC);
        for OpenCache { opened, .. } in &caches {
            opened.engine.resume_at(now_secs, unix_secs);
        }
        let cache = |OpenCache { cache, opened, .. }: OpenCache| {
            let warm = WarmCache { engine: opened.engine, path: cache.file.path().to_owned() };
            (cache.plan.number, warm)
        };
        Ok((Self(caches.into_iter().map(cache).collect()), clock.resume(now_secs)))
    }

    pub(super) fn take(&mut self, number: u8) -> Option<WarmCache> {
        self.0.remove(&number)
    }
}

/// A cache that is to be taken up.
struct Found {
    file: MemoryFile,
    plan: EnginePlan,
    family: u64,
}

/// One that was.
struct OpenCache {
    cache: Found,
    opened: Opened,
}

impl Found {
    fn open(self, plan: &Plan, unix_secs: u64) -> Result<OpenCache, Refusal> {
        let begun = Instant::now();
        let opened = self.try_open(plan, unix_secs).map_err(|error| refuse(self.file.path(), &error))?;
        describe(self.file.path(), opened.start, begun);
        Ok(OpenCache { cache: self, opened })
    }

    fn try_open(&self, plan: &Plan, unix_secs: u64) -> io::Result<Opened> {
        let EnginePlan { number, config, reservation, .. } = &self.plan;
        let (file, family) = (self.file.share()?, self.family);
        let backing = CacheFile { file, unix_secs, first_secs: FIRST_SEC, family };
        let owns = |key: &[u8]| plan.table().is_none_or(|table| table.find(key) == *number);
        Engine::open_for(config.clone(), *reservation, backing, &owns)
    }
}

/// Opens the files, and locks them.
fn find(plan: &Plan, file: &Path, user: Option<&Target>) -> Result<Vec<Found>, Refusal> {
    let found = |plan_of_one: &EnginePlan| {
        let path = match (plan_of_one.number, plan.table()) {
            (DEFAULT, _) | (_, None) => Some(file.to_owned()),
            (number, Some(table)) => memory_file::of_namespace(file, table.prefix(number)),
        };
        let path = path.ok_or_else(|| refuse(file, &io::ErrorKind::IsADirectory.into()))?;
        let opened = MemoryFile::open(&path, user).map_err(|error| refuse(&path, &error))?;
        // Nobody has named this one: it must not be what another server uses, nor one whose values are old.
        let is_named = path == file;
        let family = memory_file::family(file);
        let owner = opened.family().map_err(|error| refuse(&path, &error))?;
        if !is_named && owner.is_some_and(|owner| owner != family) {
            let reason = "it belongs to another -e; name another, or remove it";
            return Err(refuse(&path, &io::Error::other(reason)));
        }
        Ok(Found { file: opened, plan: plan_of_one.clone(), family })
    };
    plan.engines.iter().filter(|plan| plan.keep == Keep::Warm).map(found).collect()
}

/// Removes the files of namespaces that are no longer kept warm, and that of the default if it is not. Errors: another
/// process has one, or the directory cannot be read.
fn remove_left_over(file: &Path, caches: &[Found], user: Option<&Target>) -> Result<(), Refusal> {
    let used: BTreeSet<_> = caches.iter().map(|cache| cache.file.path()).collect();
    let beside = memory_file::of_namespaces(file, user).map_err(|error| {
        let reason = format!("its directory cannot be searched for files of namespaces: {error}");
        refuse(file, &io::Error::other(reason))
    })?;
    for path in std::iter::once(file).chain(beside.iter().map(PathBuf::as_path)) {
        if used.contains(path) {
            continue;
        }
        let alone = |why: &str| tracing::info!("left {} alone: {why}", path.display());
        let left = match MemoryFile::open_left(path, memory_file::family(file), user) {
            Ok(Left::Ours(left)) => left,
            Ok(Left::Nothing) => continue,
            Ok(Left::Unknown) => {
                tracing::warn!(
                    "left {} alone: it does not say which -e it belongs to, as those of earlier versions; remove it \
                     if no server uses it, or old values may come back",
                    path.display()
                );
                continue;
            }
            Ok(Left::Others) => {
                alone("it belongs to another -e");
                continue;
            }
            Ok(Left::NotLarders) => {
                alone("it is not larder's");
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(refuse(path, &error)),
            // Nobody's who serves with these options.
            Err(error) => {
                alone(&error.to_string());
                continue;
            }
        };
        let mib = left.memory_bytes().unwrap_or_default() >> 20;
        left.remove(user).map_err(|error| refuse(path, &error))?;
        tracing::warn!(mib, "removed {}: its namespace is not kept warm any more", path.display());
    }
    Ok(())
}

/// Errors: the file system has too little memory for all caches together.
fn check_space(caches: &[Found]) -> io::Result<()> {
    let Some(first) = caches.first() else { return Ok(()) };
    let mut available_bytes = first.file.free_bytes()?;
    for cache in caches {
        available_bytes = available_bytes.saturating_add(cache.file.memory_bytes()?);
    }
    let wanted_bytes: u64 = caches.iter().map(|cache| cache.plan.config.memory_bytes).sum();
    // What a single file lies on, the engine examines.
    if caches.len() == 1 || available_bytes >= wanted_bytes {
        return Ok(());
    }
    let (available_mib, wanted_mib) = (available_bytes >> 20, wanted_bytes >> 20);
    let reason =
        format!("its file system has {available_mib} MiB of the {wanted_mib} MiB that are to be cached");
    Err(io::Error::new(io::ErrorKind::StorageFull, reason))
}

/// Empties the caches whose time is not that of most others.
fn agree(opened: Vec<OpenCache>, plan: &Plan, unix_secs: u64) -> Result<Vec<OpenCache>, Refusal> {
    let warm = || opened.iter().filter(|cache| matches!(cache.opened.start, Start::Warm(_)));
    let times: Vec<_> = warm().map(|cache| cache.opened.now_secs).collect();
    let Some(common_secs) = common(&times) else { return Ok(opened) };
    let agreed = |cache: OpenCache| {
        let OpenCache { cache, opened: Opened { engine, now_secs, start } } = cache;
        if !matches!(start, Start::Warm(_)) || now_secs.abs_diff(common_secs) <= SPREAD_SECS_MAX {
            return Ok(OpenCache { cache, opened: Opened { engine, now_secs, start } });
        }
        drop(engine);
        let path = cache.file.path().display();
        tracing::warn!(
            "the cache in {path} cannot be kept, it starts empty: its time is not that of the others"
        );
        cache.file.empty().map_err(|error| refuse(cache.file.path(), &error))?;
        cache.open(plan, unix_secs)
    };
    opened.into_iter().map(agreed).collect()
}

/// The time of most, of the first of them if there are as many of another.
fn common(times: &[u32]) -> Option<u32> {
    let votes = |time: &&u32| times.iter().filter(|other| time.abs_diff(**other) <= SPREAD_SECS_MAX).count();
    // The last of several is the first here.
    times.iter().rev().max_by_key(votes).copied()
}

/// Files of one server differ by the seconds in which it was killed.
const SPREAD_SECS_MAX: u32 = 60;

fn describe(path: &Path, start: Start, begun: Instant) {
    let name = path.display();
    match start {
        Start::New => tracing::info!("the cache is kept in {name}, which is new"),
        Start::Warm(Restored { items, is_clean, torn, expired, foreign }) => {
            let millis = begun.elapsed().as_millis() as u64;
            let was_killed = !is_clean;
            tracing::info!(items, expired, was_killed, millis, "went on with the cache in {name}");
            if torn > 0 {
                tracing::warn!("{torn} items of {name} were damaged, and are lost");
            }
            if foreign > 0 {
                tracing::warn!("{foreign} items of {name} belong to other namespaces now, and are dropped");
            }
        }
        Start::Cold(reason) => {
            tracing::warn!("the cache in {name} cannot be kept, it starts empty: {reason}")
        }
    }
}

fn refuse(path: &Path, error: &io::Error) -> Refusal {
    Refusal::new(EXIT_OS_ERROR, format!("larderd: -e {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_most_caches_counts() {
        assert_eq!(common(&[]), None);
        assert_eq!(common(&[7]), Some(7));
        assert_eq!(common(&[u32::MAX, 1000, 1003]), Some(1000));
        assert_eq!(common(&[1000, u32::MAX, 1060]), Some(1000));
        // The default's, of two.
        assert_eq!(common(&[1000, 5]), Some(1000));
        assert_eq!(common(&[5, 1000]), Some(5));
    }
}
