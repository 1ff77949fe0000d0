//! `stats replication` of a server, put in order.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::output;

/// The other sites, as a server sees them.
pub(super) struct View {
    pub(super) server: String,
    /// Its number.
    pub(super) site: u8,
    /// Its clock.
    pub(super) time_micros: u64,
    pub(super) left_out: String,
    own: Figures,
    /// What it pulls from, by address.
    peers: BTreeMap<String, Figures>,
    /// By number.
    pub(super) sites: BTreeMap<u8, Figures>,
}

/// Figures by their names.
#[derive(Default)]
pub(super) struct Figures(BTreeMap<String, String>);

/// Another site: as a peer, by its number, or as both.
#[derive(Clone, Copy)]
pub(super) struct Row<'v> {
    /// 0: not known yet.
    pub(super) site: u8,
    pub(super) address: Option<&'v str>,
    peer: Option<&'v Figures>,
    numbered: Option<&'v Figures>,
}

impl Figures {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

impl View {
    pub(super) fn of(server: String, stats: &[(String, String)]) -> Self {
        let (mut own, mut peers) = (Figures::default(), BTreeMap::<_, Figures>::new());
        let mut sites = BTreeMap::<_, Figures>::new();
        for (name, value) in stats {
            // An address has colons itself.
            let (figures, name) = match name.rsplit_once(':') {
                None => (&mut own, &name[..]),
                Some((whom, name)) => match whom.parse() {
                    Ok(site) => (sites.entry(site).or_default(), name),
                    Err(_) => (peers.entry(whom.to_owned()).or_default(), name),
                },
            };
            figures.0.insert(name.to_owned(), value.clone());
        }
        // Nobody waits for those any more.
        sites.retain(|_, figures| figures.text("standing") != Some("removed"));
        let site = own.text("site").and_then(|site| site.parse().ok()).unwrap_or_default();
        let left_out = own.text("left_out").unwrap_or_default().to_owned();
        let time_micros = own.number("time_us").unwrap_or_default();
        Self { server, site, time_micros, left_out, own, peers, sites }
    }

    /// Each other site: those that it pulls from, then those that only pull from it.
    pub(super) fn rows(&self) -> Vec<Row<'_>> {
        let number_of = |peer: &Figures| peer.text("site").and_then(|site| site.parse().ok()).unwrap_or(0);
        let peers = self.peers.iter().map(|(address, peer)| {
            let site = number_of(peer);
            Row { site, address: Some(address), peer: Some(peer), numbered: self.sites.get(&site) }
        });
        let is_no_peer = |site: &u8| self.peers.values().all(|peer| number_of(peer) != *site);
        let others = self.sites.iter().filter(|(site, _)| is_no_peer(site));
        let others = others.map(|(site, figures)| Row {
            site: *site,
            address: None,
            peer: None,
            numbered: Some(figures),
        });
        peers.chain(others).collect()
    }

    /// Whether a site is among those that the server sees, or may be at an address where nobody has answered yet.
    pub(super) fn may_know(&self, site: u8) -> bool {
        self.rows().iter().any(|row| row.site == site || row.site == 0)
    }

    /// What is wrong, each with the server's name.
    pub(super) fn troubles(&self, lag_secs_max: u32) -> Vec<String> {
        let refused = self.own.text("refused").filter(|refused| !refused.is_empty());
        let own = refused.map(|refused| format!("{}: it takes no changes: {}", self.server, shown(refused)));
        let others = self.rows().into_iter().filter_map(|row| {
            let trouble = row.trouble(lag_secs_max)?;
            Some(format!("{}: {}: {trouble}", self.server, row.name()))
        });
        own.into_iter().chain(others).collect()
    }

    pub(super) fn json(&self, lag_secs_max: u32) -> Value {
        let object = |figures: &Figures| -> Map<String, Value> {
            figures.0.iter().map(|(name, value)| (name.clone(), output::stat_value(value))).collect()
        };
        let row = |row: &Row<'_>| {
            let mut figures: Map<_, _> =
                row.peer.iter().chain(&row.numbered).flat_map(|f| object(f)).collect();
            figures.insert("site".into(), row.site.into());
            figures.insert("peer".into(), row.address.into());
            figures.insert("trouble".into(), row.trouble(lag_secs_max).into());
            Value::Object(figures)
        };
        let mut own = object(&self.own);
        own.insert("server".into(), self.server.clone().into());
        own.insert("sites".into(), self.rows().iter().map(row).collect());
        json!(own)
    }
}

impl Row<'_> {
    pub(super) fn name(&self) -> String {
        match (self.site, self.address) {
            (0, Some(address)) => address.to_owned(),
            (site, _) => format!("site {site}"),
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.peer.iter().chain(&self.numbered).find_map(|figures| figures.text(name))
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// How old the newest change is that was applied; `None`: none was.
    pub(super) fn lag_micros(&self) -> Option<u64> {
        self.number("lag_us").filter(|_| self.number("entries") != Some(0))
    }

    /// Delay of the last change in microseconds, or its age by now if it came too long ago for the delay to mean
    /// anything. `None`: nothing has come.
    pub(super) fn delay_micros(&self) -> Option<u64> {
        let age_micros = self.lag_micros()?;
        let delay_micros = self.number("delay_us").unwrap_or(age_micros);
        Some(if age_micros < BEATS_MICROS { delay_micros } else { age_micros })
    }

    /// The reason after a colon; empty if there is none.
    fn why(&self, name: &str) -> String {
        self.text(name)
            .filter(|why| !why.is_empty())
            .map(|why| format!(": {}", shown(why)))
            .unwrap_or_default()
    }

    /// What is wrong with it; `None`: nothing.
    pub(super) fn trouble(&self, lag_secs_max: u32) -> Option<String> {
        let standing = self.text("standing").unwrap_or("in");
        let is = |name, value| self.text(name) == Some(value);
        if self.number("ahead_us").is_some_and(|micros| micros > 0) {
            return Some("its clock is ahead, and its changes wait".into());
        }
        if self.peer.is_none() {
            return Some(
                "it pulls from this site, which is not told to pull from it (--peer, --peers-file)".into(),
            );
        }
        if is("connected", "no") {
            return Some(format!("not connected{}", self.why("last_error")));
        }
        if is("copying", "yes") {
            return Some("a copy of it is being taken".into());
        }
        if standing != "in" {
            return Some(format!("it is {standing}, and needs a copy"));
        }
        if !is("pulling", "yes") {
            return Some(format!("it does not pull from this site{}", self.why("failure")));
        }
        let is_late = self.lag_micros().is_some_and(|micros| micros > u64::from(lag_secs_max) * 1_000_000);
        is_late.then(|| format!("what was applied of it is more than {lag_secs_max} s old"))
    }
}

/// Escapes text from a server for display.
fn shown(text: &str) -> String {
    output::readable(text.as_bytes())
}

/// Two beats of an idle site, and a margin for the second one to arrive.
const BEATS_MICROS: u64 = 2_500_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn view(lines: &str) -> View {
        let stats = lines.lines().filter_map(|line| line.split_once(' '));
        View::of(
            "a:11211".into(),
            &stats.map(|(name, value)| (name.into(), value.into())).collect::<Vec<_>>(),
        )
    }

    const WELL: &str = "site 1\ntime_us 900\n[::1]:11312:site 2\n[::1]:11312:connected yes\n[::1]:11312:lag_us 500\n\
        [::1]:11312:entries 3\n2:standing in\n2:pulling yes\n2:applied_us 800";

    #[test]
    fn a_peer_and_its_number_are_one_row() {
        let view = view(WELL);
        let rows = view.rows();
        assert_eq!((rows.len(), rows[0].site, rows[0].address), (1, 2, Some("[::1]:11312")));
        assert_eq!((rows[0].lag_micros(), rows[0].number("applied_us")), (Some(500), Some(800)));
        assert_eq!(view.troubles(10), [""; 0]);
    }

    #[test]
    fn an_idle_site_is_not_late() {
        let delay = |lines: &str| view(&format!("{WELL}\n{lines}")).rows()[0].delay_micros();
        assert_eq!(delay("[::1]:11312:lag_us 900000\n[::1]:11312:delay_us 480"), Some(480));
        assert_eq!(delay("[::1]:11312:lag_us 7000000\n[::1]:11312:delay_us 480"), Some(7_000_000));
    }

    #[test]
    fn each_trouble_is_named() {
        for (line, trouble) in [
            ("[::1]:11312:connected no", "not connected"),
            ("[::1]:11312:copying yes", "a copy of it"),
            ("[::1]:11312:ahead_us 61000000", "its clock is ahead"),
            ("[::1]:11312:lag_us 10000001", "more than 10 s old"),
            ("refused the store is older", "a:11211: it takes no changes: the store is older"),
            ("2:pulling no\n2:failure it has more", "it does not pull from this site: it has more"),
            ("2:standing silent", "it is silent"),
            ("2:pulling no", "it does not pull"),
            ("3:pulling yes", "not told to pull from it"),
        ] {
            let troubles = view(&format!("{WELL}\n{line}")).troubles(10);
            assert_eq!(troubles.len(), 1, "{line}: {troubles:?}");
            assert!(troubles[0].contains(trouble), "{line}: {troubles:?}");
        }
    }
}
