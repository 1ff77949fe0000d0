//! `stats replication`, larder's own: this site, and the others (docs/replication.md).

use larder_replication::members::Standing;
use larder_replication::version::unix_secs_of;

use super::{Lines, yes_no};
use crate::shared::Shared;

/// True for `stats replication compare`, which begins comparisons: as `stats store backup`, it does something.
pub(super) fn is_compare(words: &[&[u8]]) -> bool {
    words.starts_with(&[b"replication", b"compare"])
}

/// `stats replication compare`. `None`: this server is not one of several sites.
pub(super) fn compare(shared: &Shared) -> Option<()> {
    shared.persistence.as_ref()?.replication.get()?.ask_for_comparisons();
    Some(())
}

/// `None`: this server is not one of several sites.
pub(super) fn report(shared: &Shared, lines: &mut Lines) -> Option<()> {
    let site = shared.persistence.as_ref()?.replication.get()?;
    lines.add("site", site.number());
    let durable = site.durable_sequence();
    lines.add("log_durable_sequence", durable);
    let horizon = site.horizon();
    lines.add("horizon_time", if horizon == 0 { 0 } else { unix_secs_of(horizon) });
    for (address, peer) in site.peers() {
        let mut line =
            |name: &str, value: &dyn std::fmt::Display| lines.add(format!("{address}:{name}"), value);
        line("site", &peer.site);
        line("connected", &yes_no(peer.is_connected));
        line("lag_us", &site.lag_micros(&peer).unwrap_or_default());
        line("entries", &peer.entries);
        line("bytes", &peer.bytes);
        line("conflicts", &peer.conflicts);
        line("ahead_us", &peer.ahead_micros);
        line("copying", &yes_no(peer.is_copying));
        line("copied_pieces", &peer.copied_pieces);
        line("copied_bytes", &peer.copied_bytes);
        line("last_error", &peer.last_error);
        let compare = peer.compare;
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
    for position in site.positions() {
        let number = position.site;
        let mut line =
            |name: &str, value: &dyn std::fmt::Display| lines.add(format!("{number}:{name}"), value);
        line("cursor", &position.cursor.sequence);
        let standing = match position.standing {
            Standing::In => "in",
            Standing::Joining => "joining",
            Standing::Restored => "restored",
            Standing::Silent => "silent",
        };
        line("standing", &standing);
    }
    for (number, puller) in site.pullers() {
        let mut line =
            |name: &str, value: &dyn std::fmt::Display| lines.add(format!("{number}:{name}"), value);
        line("pulling", &yes_no(puller.connections > 0));
        line("confirmed_sequence", &puller.confirmed);
        line("entries_behind", &durable.saturating_sub(puller.confirmed));
        line("bytes_in_flight", &puller.in_flight_bytes);
    }
    Some(())
}
