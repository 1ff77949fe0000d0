//! Metrics of the store (`--store`): docs/store.md, "Watching it".

use super::text::{Metric, Text};
use crate::persistence::figures::{Figures, State};
use crate::persistence::meters::BATCH_BOUNDS;
use crate::web::state::State as Server;

/// Nothing without a store.
pub(super) fn write(server: &Server, text: &mut Text) {
    let Some(figures) = Figures::read(&server.shared) else { return };
    let mut samples =
        text.metric(&Metric::gauge("larder_store_state", "1 for the state that the store is in."));
    for state in State::ALL {
        samples.add(&[("state", state.name())], u8::from(state == figures.state));
    }
    sizes(&figures, text);
    work(&figures, text);
    look_ups(&figures, text);
}

fn sizes(figures: &Figures, text: &mut Text) {
    let (store, memory) = (&figures.store, &figures.memory);
    for (name, help, value) in [
        ("larder_store_records", "Items in the store, with some that have expired.", store.records),
        ("larder_store_live_bytes", "What these items take on the disk.", store.live_bytes),
        ("larder_store_disk_bytes", "What the store takes on the disk.", store.disk_bytes),
        ("larder_store_segments", "Files of the log.", store.segments),
        ("larder_store_index_bytes", "Memory of the index, beside -m.", store.index_bytes),
        (
            "larder_store_cleaning_debt_bytes",
            "What cleaning has to reclaim until the disk is within its bound.",
            store.cleaning_debt_bytes,
        ),
        ("larder_store_memory_limit_bytes", "Memory for items that are in the store.", memory.limit_bytes),
        ("larder_store_memory_items", "Items of the store that are in memory, too.", memory.items),
        ("larder_store_journal_changes", "Changes on their way to the log.", figures.journal_changes),
        ("larder_store_journal_bytes", "Memory of these changes.", figures.journal_bytes),
        ("larder_store_lookups_waiting", "Requests that wait for a reader.", figures.lookups_waiting),
    ] {
        text.single(&Metric::gauge(name, help), value);
    }
    if let Some(unix_secs) = figures.backed_up_unix_secs {
        let help = "When the last backup since the start was complete, in Unix time.";
        text.single(&Metric::gauge("larder_store_backup_timestamp_seconds", help), unix_secs);
    }
    if let (Some(free), Some(size)) = (figures.free_bytes, figures.size_bytes) {
        let help = "Room that the file system of the store has left.";
        text.single(&Metric::gauge("larder_store_filesystem_free_bytes", help), free);
        let help = "Size of the file system of the store.";
        text.single(&Metric::gauge("larder_store_filesystem_size_bytes", help), size);
    }
}

fn work(figures: &Figures, text: &mut Text) {
    let (store, measured) = (&figures.store, &figures.measured);
    for (name, help, value) in [
        (
            "larder_store_stored_bytes_total",
            "Keys and values of the changes that were appended.",
            measured.change_bytes,
        ),
        ("larder_store_appended_bytes_total", "Written to the log by changes.", store.appended_bytes),
        ("larder_store_cleaned_bytes_total", "Written to the log by cleaning.", store.cleaned_bytes),
        ("larder_store_disk_reads_total", "Reads of the log.", store.reads),
        ("larder_store_fsyncs_total", "Calls of fsync.", store.fsyncs),
        ("larder_store_full_errors_total", "Batches for which there was no room.", store.full_errors),
        (
            "larder_store_uncounted_records_total",
            "Records that could not be read to be counted for a namespace with a quota of disk.",
            store.uncounted_records,
        ),
        ("larder_store_commit_errors_total", "Batches that could not be appended.", measured.errors),
    ] {
        text.single(&Metric::counter(name, help), value);
    }
    for (name, help, durations) in [
        (
            "larder_store_commit_duration_seconds",
            "Time to append a batch and to make it durable.",
            &measured.commit,
        ),
        ("larder_store_append_duration_seconds", "Time to append a batch.", &measured.append),
        ("larder_store_fsync_duration_seconds", "Time of an fsync of the log.", &measured.fsync),
    ] {
        text.metric(&Metric::histogram(name, help)).add_durations(&[], durations);
    }
    let help = "Changes in a batch.";
    text.metric(&Metric::histogram("larder_store_batch_changes", help)).add_counts(
        &BATCH_BOUNDS,
        &measured.batches,
        measured.changes,
    );
}

fn look_ups(figures: &Figures, text: &mut Text) {
    let (measured, memory) = (&figures.measured, &figures.memory);
    let help = "Time to look up a key that is not in memory, without its wait for a reader.";
    let mut samples = text.metric(&Metric::histogram("larder_store_lookup_duration_seconds", help));
    samples.add_durations(&[("result", "found")], &measured.found);
    samples.add_durations(&[("result", "absent")], &measured.absent);
    let help = "Look-ups that failed: the disk, or no memory for the item.";
    text.single(&Metric::counter("larder_store_lookups_failed_total", help), measured.failed);
    let help = "Keys that were read of namespaces that are kept in the store.";
    let mut samples = text.metric(&Metric::counter("larder_store_gets_total", help));
    samples.add(&[("status", "hit")], memory.hits);
    samples.add(&[("status", "miss")], memory.misses);
    if let Some(ratio) = figures.memory_hit_ratio() {
        let help = "Share of the found keys that were in memory, since the start.";
        text.single(&Metric::gauge("larder_store_memory_hit_ratio", help), ratio);
    }
}
