//! Metrics of replication (`--site`): docs/replication.md, "What to watch".

use super::text::{Metric, Samples, Text};
use crate::replication::PeerFigures;
use crate::replication::report::{PeerReport, Report, STANDINGS, SiteReport};
use crate::web::state::State;

/// Nothing where this server is not one of several sites.
pub(super) fn write(state: &State, text: &mut Text) {
    let Some(report) = Report::read(&state.shared) else { return };
    let help = "Always 1; the label is the number of this site.";
    let number = report.site.to_string();
    text.metric(&Metric::gauge("larder_replication_info", help)).add(&[("site", &number)], 1);
    for (name, help, value) in [
        (
            "larder_replication_log_durable_sequence",
            "Up to here this site's log is durable.",
            report.log_durable_sequence,
        ),
        (
            "larder_replication_horizon_timestamp_seconds",
            "Every site has all changes up to this time; 0: not known yet.",
            report.horizon_unix_secs,
        ),
        (
            "larder_replication_log_limit_bytes",
            "What this site keeps of its log for others that are away.",
            report.log_bytes_max,
        ),
        (
            "larder_replication_silence_limit_seconds",
            "A site of which nothing is heard for so long is put out.",
            report.silence_secs_max,
        ),
    ] {
        text.single(&Metric::gauge(name, help), value);
    }
    peers(&report.peers, text);
    sites(&report.sites, text);
}

/// Those that this site pulls from.
fn peers(peers: &[PeerReport], text: &mut Text) {
    let mut by_peer = |metric: Metric, add: &dyn Fn(&PeerReport, Sample<'_, '_>)| {
        if peers.is_empty() {
            return;
        }
        let mut samples = text.metric(&metric);
        for peer in peers {
            let site = peer.figures.site.to_string();
            let labels = [("peer", peer.address.as_str()), ("site", site.as_str())];
            add(peer, Sample { samples: &mut samples, labels: &labels });
        }
    };
    let help = "1 while this site pulls from the peer. Site 0: it is not known yet.";
    by_peer(Metric::gauge("larder_replication_connected", help), &|peer, sample| {
        sample.is(u8::from(peer.figures.is_connected));
    });
    if peers.iter().any(|peer| peer.lag_micros.is_some()) {
        let help = "How old the newest change or beat is that was applied of the peer.";
        by_peer(Metric::gauge("larder_replication_lag_seconds", help), &|peer, sample| {
            if let Some(micros) = peer.lag_micros {
                sample.is(micros as f64 / 1e6);
            }
        });
    }
    let help = "How far changes of the peer that wait are ahead of this site's clock; 0: none waits.";
    by_peer(Metric::gauge("larder_replication_ahead_seconds", help), &|peer, sample| {
        sample.is(peer.figures.ahead_micros as f64 / 1e6);
    });
    let help = "1 while a copy of the peer is taken.";
    by_peer(Metric::gauge("larder_replication_copying", help), &|peer, sample| {
        sample.is(u8::from(peer.figures.is_copying));
    });
    for (name, help, of) in [
        (
            "larder_replication_entries_total",
            "Entries of the peer that were applied.",
            (|figures| figures.entries) as fn(&PeerFigures) -> u64,
        ),
        ("larder_replication_bytes_total", "Bytes of these entries.", |figures| figures.bytes),
        (
            "larder_replication_conflicts_total",
            "Concurrent changes of which one was lost, as far as this site met both.",
            |figures| figures.conflicts,
        ),
        (
            "larder_replication_gaps_total",
            "Connections that were given up since the peer's log did not follow.",
            |figures| figures.gaps,
        ),
        ("larder_replication_copies_total", "Copies of the peer that were taken whole.", |figures| {
            figures.copies
        }),
        ("larder_replication_copied_bytes_total", "Bytes of copies of the peer.", |figures| {
            figures.copied_bytes
        }),
        (
            "larder_replication_compare_found_total",
            "Keys that comparisons found missing here, or otherwise than at the peer.",
            |figures| figures.compare.found,
        ),
        (
            "larder_replication_compare_mended_total",
            "Of these, those that were taken from the peer.",
            |figures| figures.compare.mended,
        ),
        (
            "larder_replication_compare_unexplained_total",
            "Of these, those of which nobody can tell which site is right.",
            |figures| figures.compare.unexplained,
        ),
    ] {
        by_peer(Metric::counter(name, help), &|peer, sample| sample.is(of(&peer.figures)));
    }
}

/// The others, which pull from this site.
fn sites(sites: &[SiteReport], text: &mut Text) {
    let mut by_site = |name: &'static str, help: &'static str, of: &dyn Fn(&SiteReport) -> Option<u64>| {
        if sites.iter().all(|site| of(site).is_none()) {
            return;
        }
        let mut samples = text.metric(&Metric::gauge(name, help));
        for site in sites {
            if let Some(value) = of(site) {
                samples.add(&[("site", &site.site.to_string())], value);
            }
        }
    };
    let help = "How far this site is in the other one's log.";
    by_site("larder_replication_cursor", help, &|site| Some(site.position?.cursor.sequence));
    let help = "1 while the other site pulls from this one.";
    by_site("larder_replication_pulling", help, &|site| Some(site.is_pulling().into()));
    let help = "Changes of this site's clients that the other one has not confirmed.";
    by_site("larder_replication_entries_behind", help, &|site| site.entries_behind);
    let help = "Files of this site's log that are kept for the other one.";
    by_site("larder_replication_log_kept_bytes", help, &|site| Some(site.kept_bytes));
    let help = "Sent to the other site, and not applied there yet.";
    by_site("larder_replication_in_flight_bytes", help, &|site| Some(site.puller.as_ref()?.in_flight_bytes));
    let help = "How long nothing was heard of the other site, since the start at most.";
    by_site("larder_replication_unheard_seconds", help, &|site| site.unheard_secs);
    let known = || sites.iter().filter_map(|site| Some((site.site.to_string(), site.position?.standing)));
    if known().next().is_none() {
        return;
    }
    let help = "1 for what the other site is to this one.";
    let mut samples = text.metric(&Metric::gauge("larder_replication_standing", help));
    for (site, standing) in known() {
        for (other, name) in STANDINGS {
            samples.add(&[("site", &site), ("standing", name)], u8::from(other == standing));
        }
    }
}

/// A sample that has its labels.
struct Sample<'s, 't> {
    samples: &'s mut Samples<'t>,
    labels: &'s [(&'s str, &'s str)],
}

impl Sample<'_, '_> {
    fn is(self, value: impl std::fmt::Display) {
        self.samples.add(self.labels, value);
    }
}
