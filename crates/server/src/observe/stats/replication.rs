//! `stats replication`, larder's own: this site, and the others (docs/replication.md).

use std::fmt::Display;

use larder_replication::version::unix_secs_of;

use super::{Lines, yes_no};
use crate::namespaces::Rights;
use crate::replication::CompareFigures;
use crate::replication::report::{Report, standing_name};
use crate::shared::Shared;

/// True for `stats replication compare`, which begins comparisons: as `stats store backup`, it does something.
pub(crate) fn is_compare(words: &[&[u8]]) -> bool {
    words.starts_with(&[b"replication", b"compare"])
}

/// `stats replication compare`. `None`: this server is not one of several sites.
pub(super) fn compare(shared: &Shared) -> Option<()> {
    shared.persistence.as_ref()?.replication.get()?.ask_for_comparisons();
    Some(())
}

/// `None`: this server is not one of several sites.
pub(super) fn report(shared: &Shared, rights: Rights, lines: &mut Lines) -> Option<()> {
    let report = Report::read(shared)?;
    lines.add("site", report.site);
    lines.add("takes_changes", yes_no(report.refused.is_empty()));
    lines.add("refused", &report.refused);
    lines.add("log_durable_sequence", report.log_durable_sequence);
    lines.add("horizon_time", report.horizon_unix_secs);
    lines.add("time_us", report.unix_micros);
    let may_read = |name: &&str| {
        let number = shared.namespaces.named(name.as_bytes());
        number.is_some_and(|number| rights.may_read(number))
    };
    let left_out: Vec<_> = report.left_out.iter().map(String::as_str).filter(may_read).collect();
    lines.add("left_out", left_out.join(","));
    for peer in &report.peers {
        let (address, figures) = (&peer.address, &peer.figures);
        let mut line = |name: &str, value: &dyn Display| lines.add(format!("{address}:{name}"), value);
        line("site", &figures.site);
        line("connected", &yes_no(figures.is_connected));
        line("lag_us", &peer.lag_micros.unwrap_or_default());
        line("delay_us", &figures.delay_micros);
        line("entries", &figures.entries);
        line("bytes", &figures.bytes);
        line("conflicts", &figures.conflicts);
        line("gaps", &figures.gaps);
        line("ahead_us", &figures.ahead_micros);
        line("copying", &yes_no(figures.is_copying));
        line("copies", &figures.copies);
        line("copied_pieces", &figures.copied_pieces);
        line("copied_bytes", &figures.copied_bytes);
        line("copy_bytes", &figures.copy_bytes);
        line("copy_whole_bytes", &figures.copy_whole_bytes);
        line("last_error", &figures.last_error);
        report_comparisons(&figures.compare, &mut line);
    }
    for other in &report.sites {
        let number = other.site;
        let mut line = |name: &str, value: &dyn Display| lines.add(format!("{number}:{name}"), value);
        if let Some(position) = other.position {
            line("cursor", &position.cursor.sequence);
            line("standing", &standing_name(position.standing));
            line("applied_us", &other.applied_unix_micros());
        }
        if let Some(unheard_secs) = other.unheard_secs {
            line("unheard_secs", &unheard_secs);
        }
        if let Some(puller) = &other.puller {
            line("pulling", &yes_no(other.is_pulling()));
            line("confirmed_sequence", &other.confirmed);
            line("entries_behind", &other.entries_behind.unwrap_or_default());
            line("bytes_in_flight", &puller.in_flight_bytes);
            line("failure", &puller.failure);
        }
        line("log_kept_bytes", &other.kept_bytes);
    }
    report_caches(shared, lines);
    report_homes(shared, lines);
    Some(())
}

/// What comparisons with a peer have found.
fn report_comparisons(compare: &CompareFigures, line: &mut dyn FnMut(&str, &dyn Display)) {
    let last = compare.last;
    line("compare_running", &yes_no(compare.is_running));
    line("comparisons", &compare.comparisons);
    line("compare_time", &compare.ended_secs);
    line("compare_horizon_time", &if last.horizon == 0 { 0 } else { unix_secs_of(last.horizon) });
    line("compare_keys", &last.states);
    line("compare_ranges", &last.ranges);
    line("compare_unreadable", &last.unreadable);
    line("compare_found", &last.found);
    line("compare_mended", &last.mended);
    line("compare_unexplained", &last.unexplained);
    line("compare_mended_total", &compare.mended);
}

/// What caches tell each other.
fn report_caches(shared: &Shared, lines: &mut Lines) {
    let Some(ring) = &shared.ring else { return };
    lines.add("ring_bytes", ring.bytes());
    for (address, peer) in ring.followed() {
        let mut line = |name: &str, value: &dyn Display| lines.add(format!("{address}:caches_{name}"), value);
        line("connected", &yes_no(peer.is_connected));
        line("applied", &peer.applied);
        line("outdated", &peer.outdated);
        line("gaps", &peer.gaps);
        line("flushes", &peer.flushes);
    }
    for (number, follower) in ring.followers() {
        let mut line = |name: &str, value: &dyn Display| lines.add(format!("{number}:caches_{name}"), value);
        line("following", &yes_no(follower.connections > 0));
        line("told", &follower.told);
        line("missed", &follower.gaps);
        line("too_large", &follower.too_large);
    }
}

/// What became of commands for the homes of their keys.
fn report_homes(shared: &Shared, lines: &mut Lines) {
    let Some(homes) = &shared.homes else { return };
    let counts = homes.counts();
    lines.add("home_answered", counts.answered);
    lines.add("home_refused", counts.refused);
    lines.add("home_silent", counts.silent);
    lines.add("home_run", counts.run);
    lines.add("home_late", counts.late);
    for (number, is_connected) in homes.are_connected() {
        lines.add(format!("{number}:home_connected"), yes_no(is_connected));
    }
}
