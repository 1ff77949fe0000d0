//! `stats store`, larder's own: what the store of `--store` holds, and how fast its disk is (docs/store.md).

use larder_measure::Snapshot;
use larder_protocol::Error;

use super::{Lines, yes_no};
use crate::persistence::backups::Phase;
use crate::persistence::figures::{Figures, State};
use crate::persistence::meters::BATCH_BOUNDS;
use crate::shared::Shared;

/// `None`: there is no store.
pub(super) fn report(shared: &Shared, lines: &mut Lines) -> Option<()> {
    let figures = Figures::read(shared)?;
    let (store, measured, memory) = (&figures.store, &figures.measured, &figures.memory);
    lines.add("state", figures.state.name());
    lines.add("read_only", yes_no(figures.state == State::ReadOnly));
    lines.add_all([
        ("records", store.records),
        ("live_bytes", store.live_bytes),
        ("disk_bytes", store.disk_bytes),
        ("disk_free_bytes", figures.free_bytes.unwrap_or_default()),
        ("segments", store.segments),
        ("index_bytes", store.index_bytes),
        ("stored_bytes", measured.change_bytes),
        ("appended_bytes", store.appended_bytes),
        ("cleaned_bytes", store.cleaned_bytes),
        ("cleaning_debt_bytes", store.cleaning_debt_bytes),
    ]);
    lines.add("write_amplification", format!("{:.3}", figures.write_amplification().unwrap_or_default()));
    lines.add_all([
        ("disk_reads", store.reads),
        ("fsyncs", store.fsyncs),
        ("full_errors", store.full_errors),
        ("uncounted_records", store.uncounted_records),
        ("commit_errors", measured.errors),
        ("memory_limit_bytes", memory.limit_bytes),
        ("memory_used_bytes", memory.used_bytes),
        ("memory_items", memory.items),
        ("get_hits", memory.hits),
        ("get_misses", memory.misses),
    ]);
    lines.add("memory_hit_ratio", format!("{:.4}", figures.memory_hit_ratio().unwrap_or_default()));
    lines.add_all([
        ("lookups_found", measured.found.count()),
        ("lookups_absent", measured.absent.count()),
        ("lookups_failed", measured.failed),
        ("lookups_waiting", figures.lookups_waiting),
        ("journal_changes", figures.journal_changes),
        ("journal_bytes", figures.journal_bytes),
        ("batches", measured.batches()),
        ("changes", measured.changes),
    ]);
    let batches = BATCH_BOUNDS.iter().zip(&measured.batches).filter(|(_, count)| **count > 0);
    let batches: Vec<_> = batches.map(|(bound, count)| format!("{bound}={count}")).collect();
    lines.add("batch_buckets", batches.join(","));
    for (name, durations) in [
        ("commit", &measured.commit),
        ("append", &measured.append),
        ("fsync", &measured.fsync),
        ("lookup_found", &measured.found),
        ("lookup_absent", &measured.absent),
    ] {
        add_durations(name, durations, lines);
    }
    if let Some(backup) = &figures.backup {
        lines.add("backup", &backup.name);
        lines.add("backup_state", backup.phase.name());
        lines.add("backup_copied_bytes", backup.copied_bytes);
        match &backup.phase {
            Phase::Running => {}
            Phase::Done { last_sequence } => lines.add("backup_last_sequence", last_sequence),
            Phase::Failed(error) => lines.add("backup_error", error),
        }
    }
    Some(())
}

/// True for `stats store backup`, which begins a backup: as `stats detail on`, it does something.
pub(crate) fn is_backup(words: &[&[u8]]) -> bool {
    words.starts_with(&[b"store", b"backup"])
}

/// The token that `stats store backup` shows. No backup has a name with `=`.
pub(crate) fn backup_token<'w>(words: &[&'w [u8]]) -> Option<&'w [u8]> {
    words.last()?.strip_prefix(b"token=")
}

/// `stats store backup <name> [<earlier name>] [token=<token>]`: `words` follow `backup`. The caller has checked the
/// token.
pub(super) fn back_up(shared: &Shared, words: &[&[u8]]) -> Result<(), Error> {
    let persistence = shared.persistence.as_ref().ok_or(Error::BackupNotAllowed)?;
    let names = words.len() - usize::from(backup_token(words).is_some());
    match words[..names] {
        [name] => persistence.backups.begin(name, None),
        [name, since] => persistence.backups.begin(name, Some(since)),
        _ => Err(Error::BadBackupName),
    }
}

fn add_durations(name: &str, durations: &Snapshot, lines: &mut Lines) {
    lines.add(format!("{name}:count"), durations.count());
    for (figure, share) in [("p50_nanos", 0.5), ("p99_nanos", 0.99), ("p999_nanos", 0.999)] {
        lines.add(format!("{name}:{figure}"), durations.quantile_nanos(share).unwrap_or_default());
    }
}
