//! `stats namespaces`: larder's own. Empty without `--namespaces`.

use super::Lines;
use crate::namespaces::{Report, Rights};
use crate::shared::Shared;

pub(super) fn report(shared: &Shared, rights: Rights, lines: &mut Lines) {
    let reports = shared.namespaces.reports(shared.persistence.as_ref());
    for report in reports.into_iter().filter(|report| rights.may_read(report.number)) {
        let Report { engine, totals, .. } = &report;
        // A prefix has no space, so names stay one word.
        let prefix = report.name();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            lines.add(format_args!("namespace:{prefix}:{name}"), value);
        };
        line("keep", &report.keep);
        if let Some(file) = &report.memory_file {
            line("memory_file", &file.display());
        }
        line("read_only", &super::yes_no(report.is_read_only));
        for (name, value) in [
            ("limit_maxbytes", report.memory_limit_bytes),
            ("memory_used_bytes", engine.memory_used_bytes),
            ("curr_items", engine.items),
            ("total_items", engine.items_total),
            ("bytes", engine.bytes),
            ("cmd_get", totals.cmd_get),
            ("get_hits", totals.get_hits),
            ("get_misses", totals.get_misses),
            ("cmd_set", totals.cmd_set),
            ("store_too_large", totals.store_too_large),
            ("store_no_memory", totals.store_no_memory),
            ("refused_read_only", totals.refused_read_only),
            ("refused_user", totals.refused_user),
            ("refused_disk", totals.refused_disk),
            ("evictions", engine.evictions),
            ("evicted_unfetched", engine.evicted_unfetched),
            ("reclaimed", engine.reclaimed),
            ("expired_unfetched", engine.expired_unfetched),
        ] {
            line(name, &value);
        }
        if let Some(conflicts) = report.conflicts {
            line("conflicts", &conflicts);
        }
        if let Some(disk) = report.disk {
            line("disk_bytes", &disk.bytes);
            line("disk_counting", &super::yes_no(!disk.is_complete));
        }
        if let Some(limit_bytes) = report.disk_limit_bytes {
            line("disk_limit_bytes", &limit_bytes);
        }
    }
}
