//! From a table of policies to engines: the one place where a policy decides what keeps the items of its namespace.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use larder_engine::{Backing, Engine};
use larder_policy::{DEFAULT, Durability, Keep, Policy, Table, Told};

use super::plan::{EnginePlan, Plan};
use super::warm::{WarmCache, WarmCaches};
use super::{Named, NamespaceCounters, NamespaceTotals, Namespaces};
use crate::startup::bounded_file;
use crate::startup::options::{EXIT_FAILURE, EXIT_OS_ERROR, Refusal};
use crate::startup::settings::Settings;

/// A file of namespaces that the server can honour.
#[derive(Debug)]
pub struct NamespacesFile {
    /// Absolute: the directory changes when the server goes to the background. `None`: there is no file, and the
    /// policy of everything comes from the command line (`--store`).
    pub(super) path: Option<PathBuf>,
    pub(super) table: Table,
}

impl NamespacesFile {
    /// The file of `--namespaces`, if there is one. Errors: it cannot be read, or asks for what this server cannot do.
    pub fn read(settings: &Settings) -> Result<Option<Self>, Refusal> {
        let Some(path) = &settings.namespaces_file else {
            let policy = settings.default_policy();
            // A cache needs no policy, in memory or in a file.
            let table = (policy.keep == Keep::Store).then(|| Table::of_default(policy));
            return Ok(table.map(|table| Self { path: None, table }));
        };
        let refuse = |error: String| {
            Refusal::new(EXIT_FAILURE, format!("larderd: namespaces {}: {error}", path.display()))
        };
        let table = read_table(path, settings, bounded_file::read).map_err(refuse)?;
        let shares = table.divide(settings.memory_bytes).map_err(|error| refuse(error.to_string()))?;
        check_shares(&table, &shares).map_err(refuse)?;
        let path = std::path::absolute(path).map_err(|error| refuse(error.to_string()))?;
        Ok(Some(Self { path: Some(path), table }))
    }

    /// Where it is.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

/// A namespace that is kept in a store, as what stands behind its engine needs it.
#[derive(Clone, Debug)]
pub struct StoredNamespace {
    /// Its number.
    pub number: u8,
    /// Empty: the default.
    pub prefix: Vec<u8>,
    /// The prefixes of the namespaces of the store that nest in it: a flush leaves them alone.
    pub nested: Arc<[Vec<u8>]>,
    /// When its changes are durable.
    pub durability: Durability,
    /// Its changes go to other sites, if this server is one.
    pub is_replicated: bool,
}

/// What stands behind the engine of a namespace that is kept in a store.
pub type BackingOf<'b> = &'b dyn Fn(&StoredNamespace) -> Arc<dyn Backing>;

/// The namespaces of a plan, with an engine for each: those that are kept in files are there already (`warm`).
/// `backing`, if there is a store, is [`Persistence::backing`](crate::persistence::Persistence::backing). Errors: the
/// system refuses the address space.
pub fn build(
    plan: Plan,
    settings: &Settings,
    backing: Option<BackingOf<'_>>,
    mut warm: WarmCaches,
) -> Result<Namespaces, Refusal> {
    let durability = settings.store.as_ref().map_or_else(Durability::default, |store| store.durability);
    let Plan { file, memory_bytes, engines } = plan;
    let table = file.as_ref().map(|file| &file.table);
    if let Some(table) = table {
        let shares: Vec<_> = engines.iter().map(|engine| engine.config.memory_bytes).collect();
        warn_of_shares(table, &shares);
    }
    let backing_of = |number: u8| {
        let (backing, table) = (backing?, table?);
        let policy = table.policy(number);
        (policy.keep == Keep::Store).then(|| backing(&stored(table, number, durability)))
    };
    let engine = |EnginePlan { number, config, reservation, .. }| {
        if let Some(WarmCache { engine, path }) = warm.take(number) {
            return Ok((engine, Some(path)));
        }
        let memory_bytes = config.memory_bytes;
        let engine = Engine::new_backed(config, reservation, backing_of(number)).map_err(|error| {
            let reason = format!("{error} (ulimit -v, vm.overcommit_memory)");
            Refusal::new(EXIT_OS_ERROR, format!("failed to reserve {memory_bytes} bytes of memory: {reason}"))
        })?;
        Ok((engine, None))
    };
    let engines = engines.into_iter().map(engine).collect::<Result<Vec<_>, _>>()?;
    let (engines, memory_files): (Vec<_>, Vec<_>) = engines.into_iter().unzip();
    let Some(NamespacesFile { path, table }) = file else { return Ok(Namespaces::new(engines, None)) };
    let counters = || engines.iter().map(|_| NamespaceCounters::default()).collect();
    let named = Named {
        path,
        durability,
        item_bytes_max: settings.item_bytes_max,
        memory_bytes: AtomicU64::new(memory_bytes),
        version: AtomicU32::new(1),
        memory_files: memory_files.into(),
        counters: (0..settings.threads).map(|_| counters()).collect(),
        baseline: Mutex::new(vec![NamespaceTotals::default(); engines.len()]),
        table: Mutex::new(Arc::new(table)),
    };
    Ok(Namespaces::new(engines, Some(named)))
}

/// A namespace of the store. `durability`: where its policy does not say.
fn stored(table: &Table, number: u8, durability: Durability) -> StoredNamespace {
    let prefix = table.prefix(number);
    StoredNamespace {
        number,
        prefix: prefix.to_vec(),
        nested: stored_below(table, prefix).into(),
        durability: table.policy(number).durability.unwrap_or(durability),
        is_replicated: is_replicated(table, number),
    }
}

/// The prefixes of the namespaces of the store that nest in this one.
pub(crate) fn stored_below(table: &Table, prefix: &[u8]) -> Vec<Vec<u8>> {
    let is_nested = |other: &u8| {
        let longer = table.prefix(*other);
        table.policy(*other).keep == Keep::Store && longer.len() > prefix.len() && longer.starts_with(prefix)
    };
    table.numbers().filter(is_nested).map(|other| table.prefix(other).to_vec()).collect()
}

/// True if the changes of a namespace go to other sites, if this server is one.
pub(crate) fn is_replicated(table: &Table, number: u8) -> bool {
    let policy = table.policy(number);
    policy.keep == Keep::Store && policy.is_replicated != Some(false)
}

/// Errors: the file cannot be read, is no table, or asks for what this server cannot do.
pub(super) fn read_table(
    path: &Path,
    settings: &Settings,
    read: bounded_file::Read,
) -> Result<Table, String> {
    let bytes = read(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    let text = std::str::from_utf8(&bytes).map_err(|_| "not UTF-8".to_owned())?;
    let table = Table::parse_over(text, settings.default_policy()).map_err(|error| error.to_string())?;
    for number in table.numbers() {
        if let Some(reason) = unsupported(table.policy(number), settings) {
            return Err(format!("{}: {reason}", name(&table, number)));
        }
    }
    Ok(table)
}

/// Why this server cannot honour a policy.
fn unsupported(policy: &Policy, settings: &Settings) -> Option<&'static str> {
    match policy {
        Policy { keep: Keep::Warm, .. } if settings.memory_file.is_none() => {
            Some("keep = \"warm\" needs a file, -e FILE")
        }
        Policy { keep: Keep::Store, .. } if settings.store.is_none() => {
            Some("keep = \"store\" needs --store")
        }
        Policy { is_replicated: Some(true), keep, .. } if *keep != Keep::Store => {
            Some("replicate = true needs keep = \"store\"")
        }
        Policy { is_replicated: Some(true), .. } if !settings.has_site() => {
            Some("replicate = true needs --site")
        }
        Policy { told: Told::Invalidations | Told::Values, .. } if !settings.has_site() => {
            Some("replicate = \"invalidations\" and \"values\" need --site")
        }
        // Without logins nobody has a name, so nobody could come in, or everybody would.
        Policy { users, .. } if users.are_limited() && settings.login_dialect().is_none() => {
            Some("users needs logins (-Y or -S)")
        }
        _ => None,
    }
}

/// Errors: items may be so large that a share has no room for two.
pub(super) fn check_shares(table: &Table, shares: &[u64]) -> Result<(), String> {
    for (number, share_bytes) in table.numbers().zip(shares) {
        let item_bytes_max = table.policy(number).item_bytes_max;
        if item_bytes_max.is_some_and(|item_bytes_max| u64::from(item_bytes_max) > share_bytes / 2) {
            let (name, mib) = (name(table, number), share_bytes >> 20);
            return Err(format!("{name}: item_bytes_max is more than half of its memory, {mib} MiB"));
        }
    }
    Ok(())
}

/// Warns of namespaces that get a large share of the memory only because no quota was set for them.
pub(super) fn warn_of_shares(table: &Table, shares: &[u64]) {
    let of_mib = shares.iter().sum::<u64>() >> 20;
    for (number, share_bytes) in large_shares(table, shares) {
        let (name, mib) = (name(table, number), share_bytes >> 20);
        tracing::warn!(
            "{name} takes {mib} MiB of {of_mib} MiB, an equal share of what the quotas leave: give it its memory"
        );
    }
}

/// Namespaces other than the default that have no memory quota and therefore get more than a quarter of the memory.
fn large_shares(table: &Table, shares: &[u64]) -> Vec<(u8, u64)> {
    let quarter_bytes = shares.iter().sum::<u64>() / 4;
    let others = table.numbers().zip(shares.iter().copied()).skip(1);
    let is_large = |(number, share_bytes): &(u8, u64)| {
        table.policy(*number).memory_bytes.is_none() && *share_bytes > quarter_bytes
    };
    others.filter(is_large).collect()
}

/// A namespace as the file names it.
pub(super) fn name(table: &Table, number: u8) -> String {
    match number {
        DEFAULT => "default".to_owned(),
        _ => format!("namespace.\"{}\"", table.prefix(number).escape_ascii()),
    }
}

/// Far more than [`larder_policy::NAMESPACES_MAX`] policies need.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_takes_much_without_a_quota_is_named() {
        let guide = "[namespace.\"session:\"]\nmemory = \"64m\"\n[namespace.\"page:\"]\nmemory = \"128m\"\n";
        let large = |text: &str| {
            let table = Table::parse(text).expect("it is a table");
            let shares = table.divide(512 << 20).expect("there is enough");
            let large = large_shares(&table, &shares).into_iter();
            large.map(|(number, bytes)| (name(&table, number), bytes >> 20)).collect::<Vec<_>>()
        };
        let without = large(&format!("{guide}[namespace.\"config:\"]\nread_only = true\n"));
        assert_eq!(without, [("namespace.\"config:\"".to_owned(), 160)]);
        assert_eq!(large(&format!("{guide}[namespace.\"config:\"]\nmemory = \"4m\"\n")), []);
        // Each gets a quarter.
        assert_eq!(large("[namespace.a]\n[namespace.b]\n[namespace.c]\n"), []);
    }
}
