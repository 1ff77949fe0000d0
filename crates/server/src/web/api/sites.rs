//! `/api/sites`: this site, and the others. `null` without `--site`.

use larder_replication::members::Standing;
use serde::Serialize;

use crate::replication::report::{PeerReport, Report, SiteReport, standing_name};
use crate::web::state::State;

#[derive(Serialize)]
pub(super) struct Sites {
    site: u8,
    log_durable_sequence: u64,
    /// Every site has all changes up to then; 0: that is not known.
    horizon_unix_secs: u64,
    log_kept_bytes_max: u64,
    unheard_secs_max: u64,
    /// Namespaces that take no part.
    left_out: Vec<String>,
    /// By their numbers; those that never were connected come first, as site 0.
    sites: Vec<Site>,
}

/// Another site. What is known of it as a peer is `null` if this site is not told to pull from it.
#[derive(Serialize)]
struct Site {
    /// 0: not known yet.
    site: u8,
    address: Option<String>,
    is_connected: Option<bool>,
    lag_micros: Option<u64>,
    conflicts: Option<u64>,
    ahead_micros: Option<u64>,
    is_copying: Option<bool>,
    copied_bytes: Option<u64>,
    last_error: Option<String>,
    standing: Option<&'static str>,
    is_pulling: bool,
    entries_behind: Option<u64>,
    log_kept_bytes: u64,
    unheard_secs: Option<u64>,
}

pub(super) fn sites(state: &State) -> Option<Sites> {
    let report = Report::read(&state.shared)?;
    let unknown =
        report.peers.iter().filter(|peer| peer.figures.site == 0).map(|peer| Site::of(Some(peer), None));
    let is_removed =
        |site: &&SiteReport| site.position.is_some_and(|position| position.standing == Standing::Removed);
    let known = report.sites.iter().filter(|site| !is_removed(site)).map(|site| {
        let peer = report.peers.iter().find(|peer| peer.figures.site == site.site);
        Site::of(peer, Some(site))
    });
    Some(Sites {
        site: report.site,
        log_durable_sequence: report.log_durable_sequence,
        horizon_unix_secs: report.horizon_unix_secs,
        log_kept_bytes_max: report.log_bytes_max,
        unheard_secs_max: report.silence_secs_max,
        sites: unknown.chain(known).collect(),
        left_out: report.left_out,
    })
}

impl Site {
    fn of(peer: Option<&PeerReport>, site: Option<&SiteReport>) -> Self {
        let figures = peer.map(|peer| &peer.figures);
        Self {
            site: site.map_or(0, |site| site.site),
            address: peer.map(|peer| peer.address.clone()),
            is_connected: figures.map(|figures| figures.is_connected),
            lag_micros: peer.and_then(|peer| peer.lag_micros),
            conflicts: figures.map(|figures| figures.conflicts),
            ahead_micros: figures.map(|figures| figures.ahead_micros),
            is_copying: figures.map(|figures| figures.is_copying),
            copied_bytes: figures.map(|figures| figures.copied_bytes),
            last_error: figures.map(|figures| figures.last_error.clone()).filter(|error| !error.is_empty()),
            standing: site.and_then(|site| Some(standing_name(site.position?.standing))),
            is_pulling: site.is_some_and(SiteReport::is_pulling),
            entries_behind: site.and_then(|site| site.entries_behind),
            log_kept_bytes: site.map_or(0, |site| site.kept_bytes),
            unheard_secs: site.and_then(|site| site.unheard_secs),
        }
    }
}
