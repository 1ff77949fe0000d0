//! Comparisons between sites, and what gets lost silently so that they find it.

use std::ops::Bound;

use larder_replication::compare::{
    AskingStep, CompareRead, CompareStep, Finding, Listed, Ours, ScanRead, Votes, fingerprint, is_compared,
    judge, leaf_of, mend,
};
use larder_replication::entry::{Entries, Entry};
use larder_replication::merge::Replica as _;
use larder_replication::state::{Expiry, State};

use super::cluster::{Cluster, trace};
use super::data::{Data, Key};
use super::scenario::Bug;

/// A step of a scan looks at so many keys.
const STEP_KEYS: usize = 4;

impl Cluster<'_, '_> {
    /// A site that pulls begins to compare itself with the other one.
    pub(super) fn begin_comparison(&mut self, index: usize) {
        let (puller, sender) =
            (self.network.connections[index].puller, self.network.connections[index].sender);
        let now = self.now(puller);
        let horizon = match self.scenario.has(Bug::CompareAboveHorizon) {
            true => u64::MAX,
            false => self.site(puller).members.horizon(),
        };
        let subscriber = self.network.connections[index].subscriber.as_mut();
        if horizon != 0 && subscriber.is_some_and(|subscriber| subscriber.compare(horizon, now)) {
            trace!(self, "{puller} compares itself with {sender} at {horizon}");
            self.site(puller).votes.begin(sender);
        }
    }

    /// Performs a step of the side that asks.
    pub(super) fn compare(&mut self, index: usize, step: AskingStep) -> Result<(), String> {
        let (puller, sender) =
            (self.network.connections[index].puller, self.network.connections[index].sender);
        let now = self.now(puller);
        match step {
            AskingStep::Scan { horizon, position } => {
                let read = self.scan(puller, horizon, &position);
                self.subscriber(index)?.compare_scanned(read, now);
            }
            AskingStep::Judge { horizon, list } => {
                let mut wanted = Vec::new();
                for listed in AskingStep::listed(&list) {
                    if self.judge(puller, sender, horizon, &listed)? {
                        wanted.push(listed.key.to_vec());
                    }
                }
                self.subscriber(index)?.compare_judged(wanted, now);
            }
            AskingStep::Mend { body } => {
                self.mend(puller, &body);
                self.subscriber(index)?.compare_mended(now);
            }
            AskingStep::Ended(comparison) => {
                trace!(self, "{puller} has compared itself with {sender}: {comparison:?}");
                self.run.compared += 1;
            }
        }
        Ok(())
    }

    /// Performs a step of the side that answers.
    pub(super) fn answer_comparison(&mut self, index: usize, step: CompareStep) -> Result<(), String> {
        let sender = self.network.connections[index].sender;
        match step {
            CompareStep::Scan { horizon, position } => {
                let read = self.scan(sender, horizon, &position);
                self.publisher(index)?.compare_scanned(read);
            }
            CompareStep::List { horizon, position, leaves } => {
                let (page, next) = page(&self.site(sender).live, &position);
                let mut listed = Vec::new();
                for (key, state) in &page {
                    if leaves.contains(leaf_of(key))
                        && is_compared(state, horizon)
                        && let Some(fingerprint) = self.fingerprint(key, state)
                    {
                        let (version, expiry) = (state.version(), state.expiry);
                        listed.push(Listed { key, version, expiry, fingerprint });
                    }
                }
                self.publisher(index)?.compare_listed(listed, next);
            }
            CompareStep::Read { horizon, keys, bytes_max } => {
                let live = &self.site(sender).live;
                let mut read = CompareRead { count: 0, body: Vec::new() };
                for key in keys {
                    let state = live.known(&key);
                    if is_compared(&state, horizon) {
                        let state = state.as_ref().map(Vec::as_slice);
                        Entry::of_state(&key, &state).for_each(|entry| entry.encode(&mut read.body));
                    }
                    read.count += 1;
                    if read.body.len() >= bytes_max {
                        break;
                    }
                }
                self.publisher(index)?.compare_read(&read);
            }
        }
        Ok(())
    }

    fn scan(&mut self, number: u8, horizon: u64, position: &[u8]) -> ScanRead {
        let (page, position) = page(&self.site(number).live, position);
        let compared = page.iter().filter(|(_, state)| is_compared(state, horizon));
        let states = compared.filter_map(|(key, state)| Some((leaf_of(key), self.fingerprint(key, state)?)));
        ScanRead { states: states.collect(), position }
    }

    fn fingerprint(&self, key: &[u8], state: &State<Vec<u8>>) -> Option<u128> {
        if self.scenario.has(Bug::ExpiryNotCompared) {
            let version = state.version();
            let expiry = Expiry { value_version: version, version, exptime_secs: 0 };
            return fingerprint(key, &State { expiry, ..state.clone() });
        }
        fingerprint(key, state)
    }

    /// True if the state is to be asked for. Errors: a difference, where nothing was lost.
    fn judge(&mut self, puller: u8, sender: u8, horizon: u64, listed: &Listed<'_>) -> Result<bool, String> {
        let all_sites = usize::from(self.joined);
        let live = &self.sites[usize::from(puller) - 1].live;
        let state = live.known(listed.key);
        let ours = Ours::Known {
            fingerprint: self.fingerprint(listed.key, &state),
            newest_flush: live.newest_flush(listed.key),
            state: state.map(|_| ()),
        };
        let finding = judge(listed, &ours, horizon, puller, sender, all_sites);
        if finding == Finding::Nothing {
            return Ok(false);
        }
        let key = listed.key.escape_ascii().to_string();
        trace!(self, "{puller} finds {key} of {sender} to be {finding:?}: {listed:?}, {ours:?}");
        if self.planted.is_empty() {
            return Err(format!("{puller} finds {key} of {sender} to be {finding:?}, and nothing was lost"));
        }
        self.run.found += 1;
        if self.scenario.has(Bug::MendTheOther) && finding == Finding::TheirsToMend {
            return Ok(true);
        }
        let votes: &mut Votes = &mut self.site(puller).votes;
        let is_decided = finding == Finding::Disputed && votes.add(listed.fingerprint, sender, all_sites);
        Ok(is_decided || finding.is_mended())
    }

    fn mend(&mut self, puller: u8, body: &[u8]) {
        let mends_the_other = self.scenario.has(Bug::MendTheOther);
        let site = self.site(puller);
        let mut mended = 0;
        for entry in Entries::new(body).map_while(Result::ok) {
            let Some((key, theirs)) = entry.state() else { continue };
            let (ours, theirs) = (site.live.known(key), theirs.map(<[u8]>::to_vec));
            let theirs = theirs.flushed(site.live.newest_flush(key));
            let state = if mends_the_other { Some(theirs) } else { mend(ours, theirs) };
            if let Some(state) = state {
                site.live.put(key.to_vec(), state);
                mended += 1;
            }
        }
        self.run.mended += mended;
        trace!(self, "{puller} has mended {mended} keys");
    }

    /// A site loses a state that every site has, or has it altered, and nobody is told. Each key at one site: where two
    /// fail alike, the third one would be the one to doubt.
    pub(super) fn lose_silently(&mut self) {
        let number = self.any_site();
        let kind = self.rng.u32(..3);
        let joined = self.joined;
        let horizon = self.site(number).members.horizon();
        let site = &self.sites[usize::from(number) - 1];
        let candidates: Vec<(Key, State<Vec<u8>>)> = (site.live.states.keys())
            .map(|key| (key.clone(), site.live.known(key)))
            .filter(|(key, state)| is_compared(state, horizon) && site.disk.known(key) == *state)
            .filter(|(key, _)| !self.planted.contains(key))
            .collect();
        if candidates.is_empty() {
            return;
        }
        let (key, state) = candidates[self.rng.usize(..candidates.len())].clone();
        let maker = larder_replication::version::site_of(state.version());
        let altered = match kind {
            // Of two sites nobody can tell who is right.
            0 if joined > 2 => None,
            1 if joined > 2 || maker != number => {
                let mut altered = state;
                if let Some(item) = altered.value.as_mut().and_then(|register| register.item.as_mut()) {
                    item.value.push(b'0');
                }
                Some(altered)
            }
            _ if state.expiry.version > state.version() => {
                let version = state.version();
                Some(State { expiry: Expiry { value_version: version, version, exptime_secs: 0 }, ..state })
            }
            _ => return,
        };
        trace!(self, "{number} silently has {} as {altered:?}", key.escape_ascii());
        let site = self.site(number);
        for data in [&mut site.live, &mut site.disk] {
            data.replace_silently(&key, altered.clone());
        }
        self.planted.insert(key);
        self.run.lost += 1;
    }

    /// Every site compares itself with each other one, twice: what a majority decides is known then.
    pub(super) fn compare_all(&mut self) -> Result<(), String> {
        for time in 0..2 {
            for _ in 0..3 {
                self.round(true)?;
            }
            if time == 0 && self.scenario.has_silent_losses {
                (0..3).for_each(|_| self.lose_silently());
            }
            let ended = self.run.compared;
            let count = self.network.connections.len();
            (0..count).for_each(|index| self.begin_comparison(index));
            // A round is long enough for a step of a scan: there are 12 keys at most.
            for _ in 0..10 {
                self.round(false)?;
            }
            let pairs = u64::from(self.joined) * u64::from(self.joined - 1);
            if self.run.compared - ended < pairs {
                return Err(format!("{} of {pairs} comparisons have ended", self.run.compared - ended));
            }
        }
        Ok(())
    }
}

type Page = Vec<(Key, State<Vec<u8>>)>;

/// Some states behind a position, and the next one.
fn page(data: &Data, position: &[u8]) -> (Page, Option<Vec<u8>>) {
    let keys = data.states.range::<[u8], _>((Bound::Excluded(position), Bound::Unbounded));
    let page: Vec<_> = keys.take(STEP_KEYS).map(|(key, _)| (key.clone(), data.known(key))).collect();
    let last = page.last().map(|(key, _)| key.clone());
    let is_last = last.as_ref().is_none_or(|last| data.states.keys().next_back() == Some(last));
    (page, last.filter(|_| !is_last))
}
