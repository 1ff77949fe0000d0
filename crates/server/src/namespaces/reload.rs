//! The file of namespaces, read again while the server runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use larder_policy::Table;

use super::build::{check_shares, name, read_table, warn_of_shares};
use super::{Named, Namespaces};
use crate::persistence::Persistence;
use crate::startup::bounded_file;
use crate::startup::settings::Settings;

impl Namespaces {
    /// The file that [`Namespaces::reload`] reads.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.named.as_ref()?.path.as_deref()
    }

    /// Reads the file again, if there is one. If it cannot be used everything stays as it is, and the journal says why.
    /// Workers read the new policies in their next round.
    pub(crate) fn reload(&self, settings: &Settings, persistence: Option<&Persistence>) {
        let Some(named) = &self.named else { return };
        let Some(path) = &named.path else { return };
        let file = path.display();
        match self.try_reload(named, path, settings, persistence) {
            Ok(()) => tracing::info!(file = %file, "namespaces read again"),
            Err(error) => tracing::error!("namespaces {file}: {error}; the old ones stay"),
        }
    }

    fn try_reload(
        &self,
        named: &Named,
        path: &Path,
        settings: &Settings,
        persistence: Option<&Persistence>,
    ) -> Result<(), String> {
        let new = read_table(path, settings, bounded_file::read_regular)?;
        let mut current = named.lock_table();
        check_prefixes(&current, &new)?;
        check_keeps(&current, &new)?;
        let shares = named.divide(&new).map_err(|error| error.to_string())?;
        check_shares(&new, &shares)?;
        warn_of_shares(&new, &shares);
        for (number, (engine, share)) in new.numbers().zip(self.engines.iter().zip(&shares)) {
            if *share > engine.memory_limit_max() {
                let (name, mib_max) = (name(&new, number), engine.memory_limit_max() >> 20);
                return Err(format!("{name}: more than {mib_max} MiB need a restart"));
            }
        }
        persistence.map_or(Ok(()), |persistence| persistence.set_disk_quotas(&new))?;
        self.set_memory_limits(&shares);
        for (number, engine) in new.numbers().zip(self.engines.iter()) {
            engine.set_item_bytes_max(new.policy(number).item_bytes_max.unwrap_or(named.item_bytes_max));
        }
        *current = Arc::new(new);
        named.version.fetch_add(1, Release);
        Ok(())
    }
}

/// Errors: a namespace would be kept elsewhere, and its engine does not change that.
fn check_keeps(current: &Table, new: &Table) -> Result<(), String> {
    let kept = |table: &Table, number: u8| {
        let policy = table.policy(number);
        (policy.keep, policy.durability, policy.is_replicated, policy.told, policy.rmw, policy.home)
    };
    match new.numbers().find(|number| kept(current, *number) != kept(new, *number)) {
        Some(number) => Err(format!(
            "{}: another keep, durability, replicate, rmw or home needs a restart",
            name(new, number)
        )),
        None => Ok(()),
    }
}

/// Errors: a namespace came or went, and engines do neither.
fn check_prefixes(current: &Table, new: &Table) -> Result<(), String> {
    let missing = |from: &Table, of: &Table| {
        from.numbers().skip(1).find(|number| of.named(from.prefix(*number)).is_none())
    };
    if let Some(number) = missing(new, current) {
        return Err(format!("{} is new: that needs a restart", name(new, number)));
    }
    match missing(current, new) {
        Some(number) => Err(format!("{} is gone: that needs a restart", name(current, number))),
        None => Ok(()),
    }
}
