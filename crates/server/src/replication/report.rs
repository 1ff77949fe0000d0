//! Replication in figures, at one moment: for statistics, metrics and the page.

use std::collections::BTreeSet;

use larder_policy::{Keep, Told};
use larder_replication::members::{Position, Standing};
use larder_replication::version::{unix_micros_of, unix_secs_of};

use super::publish::Behind;
use super::{PeerFigures, PullerFigures, Site};
use crate::namespaces::name_of;
use crate::shared::Shared;

/// A site in figures.
pub(crate) struct Report {
    /// Its number.
    pub(crate) site: u8,
    /// Its wall clock.
    pub(crate) unix_micros: u64,
    /// Reason why the site refuses changes of clients; empty: it takes them.
    pub(crate) refused: String,
    pub(crate) log_durable_sequence: u64,
    /// Every site has all changes up to then; 0: that is not known.
    pub(crate) horizon_unix_secs: u64,
    /// What it keeps of its log for others that are away.
    pub(crate) log_bytes_max: u64,
    /// When a site that says nothing is put out.
    pub(crate) silence_secs_max: u64,
    /// Namespaces that take no part.
    pub(crate) left_out: Vec<String>,
    /// Those that it pulls from, by address.
    pub(crate) peers: Vec<PeerReport>,
    /// The others that it knows, by number.
    pub(crate) sites: Vec<SiteReport>,
}

/// A peer that a site pulls from.
pub(crate) struct PeerReport {
    pub(crate) address: String,
    pub(crate) figures: PeerFigures,
    /// How old the newest version is that was applied of it; `None`: none was.
    pub(crate) lag_micros: Option<u64>,
}

/// Another site.
pub(crate) struct SiteReport {
    pub(crate) site: u8,
    /// `None`: it has pulled, and nothing more is known of it.
    pub(crate) position: Option<Position>,
    /// For how long nothing has arrived of it, at least. `None`: nobody waits for it.
    pub(crate) unheard_secs: Option<u64>,
    /// Sequence up to which it has this site's log durably.
    pub(crate) confirmed: u64,
    /// `None`: it never pulled since the start.
    pub(crate) puller: Option<PullerFigures>,
    /// Number of changes of this site's clients that it has not confirmed; `None`: it has not pulled since the start.
    pub(crate) entries_behind: Option<u64>,
    /// Files of the log that are kept for it.
    pub(crate) kept_bytes: u64,
}

impl Report {
    /// `None`: this server is not one of several sites.
    pub(crate) fn read(shared: &Shared) -> Option<Self> {
        let site = shared.persistence.as_ref()?.replication.get()?;
        let log_durable_sequence = site.durable_sequence();
        let horizon = site.horizon();
        let (positions, pullers) = (site.positions(), site.pullers());
        let known = positions.iter().map(|position| position.site).chain(pullers.keys().copied());
        let known: BTreeSet<u8> = known.filter(|other| *other != site.number()).collect();
        let peers = site.peers().into_iter().map(|(address, figures)| PeerReport {
            address,
            lag_micros: site.lag_micros(&figures),
            figures,
        });
        let confirmed_by = site.confirmed();
        let behind = Behind { shared, site };
        let sites = known.into_iter().map(|other| {
            let position = positions.iter().find(|position| position.site == other).copied();
            let puller = pullers.get(&other).cloned();
            let confirmed = confirmed_by.get(&other).map_or(0, |cursor| cursor.sequence);
            let is_waited_for = position.is_some_and(|position| !position.standing.is_out());
            SiteReport {
                site: other,
                position,
                unheard_secs: site.unheard_secs(other),
                entries_behind: puller.as_ref().map(|_| behind.after(confirmed)),
                confirmed,
                puller,
                kept_bytes: if is_waited_for { site.store.log_bytes_after(confirmed) } else { 0 },
            }
        });
        Some(Self {
            site: site.number(),
            unix_micros: site.now().unix_micros,
            refused: site.why_refused(),
            log_durable_sequence,
            horizon_unix_secs: if horizon == 0 { 0 } else { unix_secs_of(horizon) },
            log_bytes_max: site.log_bytes_max,
            silence_secs_max: site.silence_micros_max / 1_000_000,
            left_out: left_out(shared),
            peers: peers.collect(),
            sites: sites.collect(),
        })
    }
}

impl SiteReport {
    /// This site has all that the other one had changed by then, as the other one's clock says; 0: that is not known.
    pub(crate) fn applied_unix_micros(&self) -> u64 {
        let clock = self.position.map_or(0, |position| position.beat.clock);
        if clock == 0 { 0 } else { unix_micros_of(clock) }
    }

    pub(crate) fn is_pulling(&self) -> bool {
        self.puller.as_ref().is_some_and(|puller| puller.connections > 0)
    }
}

/// All that a site can be to another one, with its name.
pub(crate) const STANDINGS: [(Standing, &str); 5] = [
    (Standing::In, "in"),
    (Standing::Joining, "joining"),
    (Standing::Restored, "restored"),
    (Standing::Silent, "silent"),
    (Standing::Removed, "removed"),
];

pub(crate) fn standing_name(standing: Standing) -> &'static str {
    STANDINGS.iter().find(|(other, _)| *other == standing).map_or("", |(_, name)| name)
}

/// The namespaces that take no part: they are not kept in the store, and caches are told nothing of them.
pub(super) fn left_out(shared: &Shared) -> Vec<String> {
    let Some(table) = shared.namespaces.table() else { return Vec::new() };
    let is_left_out = |number: &u8| {
        let policy = table.policy(*number);
        policy.keep != Keep::Store && policy.told == Told::Nothing
    };
    table.numbers().filter(is_left_out).map(|number| name_of(table.prefix(number))).collect()
}

impl Site {
    fn unheard_secs(&self, other: u8) -> Option<u64> {
        let now_micros = self.now().micros;
        self.members().unheard_micros(other, now_micros).map(|micros| micros / 1_000_000)
    }
}
