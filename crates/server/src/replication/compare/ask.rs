//! This site compares itself with a peer.

use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use larder_replication::compare::{AskingStep, Comparison, Finding, Listed, Ours, fingerprint, judge};
use larder_replication::entry::Entries;
use larder_replication::link::Subscriber;
use larder_store::VecSink;

use super::super::Site;
use super::super::apply::Applier;
use super::super::publish::{is_told, state_of};
use super::super::site::lock;
use super::answer::is_damage;
use super::figures::CompareResult;
use super::scan;
use crate::observe::journal;
use crate::shared::Shared;

/// Compares this site with one peer, again and again. Survives connections.
pub(in super::super) struct Comparer<'s> {
    address: &'s str,
    shared: &'s Shared,
    site: &'s Site,
    /// `None`: only when an operator asks.
    interval: Option<Duration>,
    due: Instant,
    /// How often operators had asked when the last comparison began.
    asked: u64,
    pace: Pace,
    /// Of the comparison under way.
    result: CompareResult,
    warnings: u32,
}

impl<'s> Comparer<'s> {
    pub(in super::super) fn new(address: &'s str, shared: &'s Shared, site: &'s Site) -> Self {
        let interval = site.compare_interval;
        Self {
            address,
            shared,
            site,
            interval,
            due: Instant::now() + interval.unwrap_or_default().min(RETRY),
            asked: 0,
            pace: Pace::default(),
            result: CompareResult::default(),
            warnings: 0,
        }
    }

    /// Begins a comparison, if it is time to, and the connection can.
    pub(in super::super) fn begin_if_due(&mut self, subscriber: &mut Subscriber) {
        let asked = self.site.compares_asked.load(SeqCst);
        let is_due = self.interval.is_some() && Instant::now() >= self.due;
        let is_asked = asked != self.asked && self.pace.may_begin(Instant::now());
        if !(is_due || is_asked) || subscriber.is_comparing() || !subscriber.is_pulling() {
            return;
        }
        let (horizon, peer) = (self.site.horizon(), subscriber.peer().unwrap_or_default());
        if horizon == 0 || !subscriber.compare(horizon, self.site.now()) {
            // It may not be able to: not at each look.
            self.due = Instant::now() + RETRY;
            return;
        }
        self.asked = asked;
        self.pace.begin(Instant::now());
        self.due = Instant::now() + self.interval.unwrap_or_default().min(RETRY);
        (self.result, self.warnings) = (CompareResult { horizon, ..CompareResult::default() }, 0);
        lock(&self.site.votes).begin(peer);
        self.site.with_peer(self.address, |figures| figures.compare.is_running = true);
    }

    /// The connection is over, and with it the comparison.
    pub(in super::super) fn connection_ended(&mut self) {
        self.pace.end(Instant::now());
        self.site.with_peer(self.address, |figures| figures.compare.is_running = false);
    }

    /// Performs a step.
    pub(in super::super) fn perform(
        &mut self,
        step: AskingStep,
        subscriber: &mut Subscriber,
        applier: &mut Applier<'_>,
    ) -> io::Result<()> {
        let site = self.site;
        match step {
            AskingStep::Scan { horizon, position } => {
                let table = self.shared.namespaces.table();
                let unreadable = &mut self.result.unreadable;
                let read = scan(&*site.store, table.as_deref(), horizon, &position, unreadable)?;
                subscriber.compare_scanned(read, site.now());
            }
            AskingStep::Judge { horizon, list } => {
                let peer = subscriber.peer().unwrap_or_default();
                let (mut wanted, table) = (Vec::new(), self.shared.namespaces.table());
                // Without those that were removed.
                let all_sites = site.members().positions().count() + 1;
                for listed in AskingStep::listed(&list) {
                    let is_known = listed.key.len() <= larder_engine::KEY_BYTES_MAX;
                    if is_known
                        && is_told(table.as_deref(), listed.key)
                        && self.is_wanted(&listed, horizon, peer, all_sites)?
                    {
                        wanted.push(listed.key.to_vec());
                    }
                }
                subscriber.compare_judged(wanted, site.now());
            }
            AskingStep::Mend { body } => {
                applier.mend(&body).map_err(|error| io::Error::other(error.to_string()))?;
                let mended = Entries::new(&body).count() as u64;
                self.result.mended += mended;
                site.with_peer(self.address, |figures| figures.compare.mended += mended);
                subscriber.compare_mended(site.now());
            }
            AskingStep::Ended(comparison) => self.end(&comparison),
        }
        Ok(())
    }

    fn end(&mut self, comparison: &Comparison) {
        self.pace.end(Instant::now());
        self.result.states = comparison.states;
        self.result.ranges = comparison.ranges;
        self.due = Instant::now() + self.interval.unwrap_or_default();
        let (result, ended_secs) = (self.result, self.site.now().unix_micros / 1_000_000);
        self.site.with_peer(self.address, |figures| {
            let compare = &mut figures.compare;
            (compare.is_running, compare.ended_secs, compare.last) = (false, ended_secs, result);
            compare.comparisons += 1;
        });
        let CompareResult { found, mended, unexplained, unreadable, .. } = result;
        if found > 0 || unreadable > 0 {
            tracing::warn!(
                address = self.address,
                found,
                mended,
                unexplained,
                unreadable,
                "this site differed from the peer"
            );
        }
    }

    /// True if the state of a key is to be asked for.
    fn is_wanted(
        &mut self,
        listed: &Listed<'_>,
        horizon: u64,
        peer: u8,
        all_sites: usize,
    ) -> io::Result<bool> {
        let site = self.site;
        let Some(ours) = self.ours(listed.key, peer)? else { return Ok(false) };
        let finding = judge(listed, &ours, horizon, site.number(), peer, all_sites);
        if matches!(finding, Finding::Nothing | Finding::TheirsToMend) {
            return Ok(false);
        }
        self.result.found += 1;
        let is_decided =
            finding == Finding::Disputed && lock(&site.votes).add(listed.fingerprint, peer, all_sites);
        let is_wanted = is_decided || finding.is_mended();
        self.result.unexplained += u64::from(!is_wanted);
        site.with_peer(self.address, |figures| {
            figures.compare.found += 1;
            figures.compare.unexplained += u64::from(!is_wanted);
        });
        self.warn(listed, peer, finding, is_wanted);
        Ok(is_wanted)
    }

    /// What this site has of a key. `None`: it changes just now.
    fn ours(&self, key: &[u8], peer: u8) -> io::Result<Option<Ours>> {
        let store = &self.site.store;
        let newest_flush = store.newest_flush_version(key);
        let state = match store.state(key) {
            Ok(state) => state.unwrap_or_default(),
            Err(error) if is_damage(&error) => {
                let confirmed = self.site.members().confirmed_by(peer).sequence;
                let is_confirmed = store.sequence_bound(key).is_some_and(|bound| bound <= confirmed);
                return Ok(Some(Ours::Unreadable { is_confirmed }));
            }
            Err(error) => return Err(io::Error::other(error)),
        };
        let mut sink = VecSink::default();
        if state.item.is_some() {
            match store.get(key, 0, &mut sink) {
                Ok(Some(meta)) if meta.version == state.version => {}
                Ok(_) => return Ok(None),
                Err(error) if is_damage(&error) => {
                    let state = state_of(&state, &[]).map(|_| ());
                    return Ok(Some(Ours::Damaged { state, newest_flush }));
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        let value = sink.into_value();
        let state = state_of(&state, &value);
        let fingerprint = fingerprint(key, &state);
        Ok(Some(Ours::Known { state: state.map(|_| ()), fingerprint, newest_flush }))
    }

    fn warn(&mut self, listed: &Listed<'_>, peer: u8, finding: Finding, is_mended: bool) {
        self.warnings += 1;
        if self.warnings > WARNINGS_MAX {
            return;
        }
        let key_sha256 = journal::key_digest(listed.key);
        let (site, version) = (peer, listed.version);
        if is_mended {
            tracing::warn!(key_sha256, site, version, "the peer's item differs and is taken: {finding}");
        } else {
            tracing::error!(
                key_sha256,
                site,
                version,
                "the peer has an item that this site lacks, cannot read or has otherwise, and nobody can tell which is \
                 right: set the key again at the peer if the item is right, or delete it there"
            );
        }
    }
}

/// How often operators may have the stores compared: whoever asks all the time, and however large the stores are, a
/// comparison goes on for a fifth of the time at most.
#[derive(Debug, Default)]
struct Pace {
    /// Of the comparison under way.
    began: Option<Instant>,
    rest_until: Option<Instant>,
}

impl Pace {
    fn may_begin(&self, now: Instant) -> bool {
        self.rest_until.is_none_or(|until| now >= until)
    }

    fn begin(&mut self, now: Instant) {
        self.began = Some(now);
    }

    /// It has ended, or was cut off; or there was none.
    fn end(&mut self, now: Instant) {
        if let Some(began) = self.began.take() {
            self.rest_until = now.checked_add(now.saturating_duration_since(began) * RESTS);
        }
    }
}

/// So many times as long as a comparison took none is begun for an operator.
const RESTS: u32 = 4;
/// The first comparison after the start begins at the latest after this time, and one that was cut off again.
const RETRY: Duration = Duration::from_secs(600);
/// Of one comparison. The figures count all.
const WARNINGS_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_all_the_time_gets_a_fifth_of_it() {
        let (start, mut pace) = (Instant::now(), Pace::default());
        let (mut busy_secs, mut left_secs) = (0, 0);
        for second in 0..1000 {
            let now = start + Duration::from_secs(second);
            if left_secs > 0 {
                (busy_secs, left_secs) = (busy_secs + 1, left_secs - 1);
                if left_secs == 0 {
                    pace.end(now + Duration::from_secs(1));
                }
            } else if pace.may_begin(now) {
                pace.begin(now);
                left_secs = 10;
            }
        }
        assert!((150..=200).contains(&busy_secs), "{busy_secs}");
        // One that was cut off counts as far as it came.
        let (mut pace, second) = (Pace::default(), Duration::from_secs(1));
        pace.begin(start);
        pace.end(start + second);
        pace.end(start + 2 * second);
        assert!(!pace.may_begin(start + 4 * second) && pace.may_begin(start + 5 * second));
    }
}
