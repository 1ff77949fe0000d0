//! The scheduler: what happens next, step by step; and what has to be right at the end.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::AddAssign;

use fastrand::Rng;
use larder_replication::link::{LogRead, Now, Publisher, Subscriber};
use larder_replication::members::{Cursor, Position, SILENCE_MICROS_DEFAULT, Standing};
use larder_replication::merge::Replica;
use larder_replication::version::{site_of, unix_micros_of, unix_secs_of};
use larder_seeds::{Failure, Trace};

use super::data::{Data, Publishing};
use super::network::{Connection, Network, Work};
use super::scenario::{Bug, Scenario};
use super::site::Site;
use super::truth::Truth;

/// What a run did, if nothing was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Requests of clients.
    pub(crate) requests: u64,
    /// Entries that were merged.
    pub(crate) entries: u64,
    pub(crate) conflicts: u64,
    pub(crate) copies: u64,
    /// Items that a site dropped since it was out.
    pub(crate) swept: u64,
    /// Times that a site was put out.
    pub(crate) outs: u64,
    /// Deletions and other states that were forgotten.
    pub(crate) forgotten: u64,
    pub(crate) crashes: u64,
    /// Times that a change was held for its clock.
    pub(crate) held: u64,
    /// Comparisons that ended.
    pub(crate) compared: u64,
    /// States that were lost or altered silently; differences that were found; keys that were mended.
    pub(crate) lost: u64,
    pub(crate) found: u64,
    pub(crate) mended: u64,
    /// Number of times a store was found to be an older copy.
    pub(crate) renewed: u64,
    /// Number of items at the end.
    pub(crate) items: u64,
    /// Stands for all that happened: equal runs have equal ones.
    pub(crate) digest: u64,
}

impl AddAssign for Run {
    fn add_assign(&mut self, other: Self) {
        let Self {
            requests,
            entries,
            conflicts,
            copies,
            swept,
            outs,
            forgotten,
            crashes,
            held,
            compared,
            lost,
            found,
            mended,
            renewed,
            items,
            digest,
        } = other;
        self.requests += requests;
        self.entries += entries;
        self.conflicts += conflicts;
        self.copies += copies;
        self.swept += swept;
        self.outs += outs;
        self.forgotten += forgotten;
        self.crashes += crashes;
        self.held += held;
        self.compared += compared;
        self.lost += lost;
        self.found += found;
        self.mended += mended;
        self.renewed += renewed;
        self.items += items;
        self.digest ^= digest;
    }
}

/// A copy of a site's store that later takes the store's place, as if nothing had happened since.
struct OldCopy {
    site: u8,
    made: u32,
    back: u32,
    data: Option<Data>,
}

/// Runs a scenario to its end. Errors: the first thing that is wrong.
pub(super) fn run(scenario: &Scenario, trace: Option<Trace<'_>>) -> Result<Run, Failure> {
    let mut cluster = Cluster::new(scenario, trace);
    let result = cluster.run();
    result.map_err(|what| Failure { seed: scenario.seed, step: cluster.step.into(), what })?;
    Ok(cluster.run)
}

pub(super) struct Cluster<'s, 't> {
    pub(super) scenario: &'s Scenario,
    pub(super) rng: Rng,
    /// Of comparisons, so that they change nothing else of a seed.
    compare_rng: Rng,
    /// Random numbers for older copies, separate for the same reason.
    copy_rng: Rng,
    pub(super) micros: u64,
    step: u32,
    pub(super) sites: Vec<Site>,
    /// Sites that are part of the cluster: all but one that joins later.
    pub(super) joined: u8,
    pub(super) network: Network,
    truth: Truth,
    /// Sites whose changes may have been lost: away for longer than the bound, or restored.
    exempt: BTreeSet<u8>,
    /// Keys of which a site has silently lost the state, or has another one.
    pub(super) planted: BTreeSet<Vec<u8>>,
    pub(super) run: Run,
    pub(super) trace: Option<Trace<'t>>,
}

macro_rules! trace {
    ($cluster:expr, $($arg:tt)*) => {
        $cluster.note(format_args!($($arg)*))
    };
}
pub(super) use trace;

impl<'s, 't> Cluster<'s, 't> {
    fn new(scenario: &'s Scenario, trace: Option<Trace<'t>>) -> Self {
        // Another stream of choices than the one that made the scenario.
        let mut rng = Rng::with_seed(scenario.seed ^ 0x5DEE_CE66_D1CE_4E5B);
        let sites = (1..=scenario.sites).map(|number| Site::new(number, rng.u64(1..), scenario)).collect();
        let joined = scenario.sites - u8::from(scenario.has_newcomer);
        let mut cluster = Self {
            scenario,
            rng,
            compare_rng: Rng::with_seed(scenario.seed ^ 0x2545_F491_4F6C_DD1D),
            copy_rng: Rng::with_seed(scenario.seed ^ 0x1F83_D9AB_FB41_BD6B),
            micros: 0,
            step: 0,
            sites,
            joined,
            network: Network::default(),
            truth: Truth::default(),
            exempt: BTreeSet::new(),
            planted: BTreeSet::new(),
            run: Run { digest: 0xCBF2_9CE4_8422_2325, ..Run::default() },
            trace,
        };
        cluster.introduce();
        cluster
    }

    pub(super) fn note(&mut self, line: fmt::Arguments<'_>) {
        let (step, micros) = (self.step, self.micros);
        self.run.digest = (self.run.digest ^ micros).wrapping_mul(0x100_0000_01B3);
        if let Some(trace) = &mut self.trace {
            trace(format_args!("{step:>6} {:>12.6} s  {line}", micros as f64 / 1e6));
        }
    }

    pub(super) fn site(&mut self, number: u8) -> &mut Site {
        &mut self.sites[usize::from(number) - 1]
    }

    pub(super) fn now(&mut self, number: u8) -> Now {
        let micros = self.micros;
        self.site(number).now(micros)
    }

    pub(super) fn publisher(&mut self, index: usize) -> Result<&mut Publisher, String> {
        self.network.connections[index]
            .publisher
            .as_mut()
            .ok_or_else(|| "the sender's end is closed".to_owned())
    }

    pub(super) fn subscriber(&mut self, index: usize) -> Result<&mut Subscriber, String> {
        self.network.connections[index]
            .subscriber
            .as_mut()
            .ok_or_else(|| "the puller's end is closed".to_owned())
    }

    /// Keeps a position, durably.
    pub(super) fn keep(&mut self, number: u8, position: Position) {
        trace!(self, "{number} keeps {position:?}");
        self.run.outs += u64::from(position.standing.is_out());
        if position.standing.is_out() && self.scenario.has_bad_clock {
            // A site whose clock is ahead for days is held for as long.
            self.exempt.insert(position.site);
        }
        self.site(number).live.place(position);
        self.sync(number);
    }

    /// All of a site's log is durable now.
    pub(super) fn sync(&mut self, number: u8) {
        let micros = self.micros;
        let changes = self.site(number).sync(micros);
        for change in &changes {
            trace!(self, "{number} has durably made {change:?}");
        }
        self.truth.changes.extend(changes);
        let site = &self.sites[usize::from(number) - 1];
        for connection in &mut self.network.connections {
            if connection.sender == number
                && let Some(publisher) = &mut connection.publisher
            {
                publisher.durable(site.disk.last);
            }
            if connection.puller == number
                && let Some(subscriber) = &mut connection.subscriber
                && let Some(position) = site.disk.positions.get(&connection.sender)
            {
                subscriber.durable(position.cursor.sequence);
            }
        }
    }

    fn run(&mut self) -> Result<(), String> {
        let absence = self.moment(self.scenario.has_absence);
        let newcomer = self.moment(self.scenario.has_newcomer);
        let (backup, restore) =
            (self.moment(self.scenario.has_restore), self.moment(self.scenario.has_restore));
        let restored = self.rng.u8(1..=self.joined);
        let mut old_copies = self.old_copies();
        while self.step < self.scenario.steps {
            self.step += 1;
            self.replace_by_old_copies(&mut old_copies);
            if newcomer == Some(self.step) {
                self.join_newcomer();
            }
            if backup == Some(self.step) {
                let site = self.site(restored);
                site.backup = Some(site.disk.clone());
            }
            if restore == Some(self.step) {
                self.restore(restored);
            }
            if absence == Some(self.step) {
                self.leave()?;
            }
            self.act()?;
        }
        self.heal()?;
        if self.scenario.has_comparisons {
            self.compare_all()?;
        }
        self.check()?;
        self.check_forgetting()
    }

    /// Chooses the sites whose stores are replaced by older copies, and the steps at which each copy is made and comes
    /// back.
    fn old_copies(&mut self) -> Vec<OldCopy> {
        let mut old_copies = Vec::new();
        let (joined, steps) = (self.joined, self.scenario.steps);
        let mut rng = |to: u32| self.copy_rng.u32(1..=to);
        let count = if self.scenario.has_old_copy { [1, 1, 2, 3][rng(4) as usize - 1] } else { 0 };
        for _ in 0..count {
            let (site, made, back) = (rng(joined.into()) as u8, rng(steps), rng(steps));
            old_copies.push(OldCopy { site, made, back, data: None });
        }
        old_copies
    }

    fn replace_by_old_copies(&mut self, old_copies: &mut [OldCopy]) {
        for OldCopy { site: number, made, back, data } in old_copies {
            if *made == self.step {
                *data = Some(self.site(*number).disk.clone());
            }
            if *back == self.step
                && let Some(copy) = data.take()
            {
                trace!(self, "{number} goes on with an older copy, of {} records", copy.last);
                self.network.crash(*number);
                let micros = self.micros;
                self.site(*number).replace_by_copy(copy, micros);
                self.exempt.insert(*number);
                self.introduce();
            }
        }
    }

    /// Lets a site's log go on as another one, because another site has more of it, or other entries.
    pub(super) fn renew(&mut self, number: u8) {
        let (scenario, micros) = (self.scenario, self.micros);
        let incarnation = self.copy_rng.u64(1..);
        trace!(self, "{number} has an older copy, and goes on as another log");
        self.run.renewed += 1;
        self.network.crash(number);
        self.sync(number);
        let site = self.site(number);
        site.is_outdated = true;
        site.renew(incarnation, scenario, micros);
    }

    fn moment(&mut self, happens: bool) -> Option<u32> {
        let step = self.rng.u32(1..=self.scenario.steps);
        happens.then_some(step)
    }

    /// Every site that is part of the cluster knows each other one.
    fn introduce(&mut self) {
        for number in 1..=self.joined {
            let micros = self.micros;
            for other in 1..=self.joined {
                let site = self.site(number);
                if let Some(position) = site.members.add(other, micros) {
                    site.live.place(position);
                }
            }
            self.sync(number);
        }
    }

    fn join_newcomer(&mut self) {
        if self.joined < self.scenario.sites {
            self.joined = self.scenario.sites;
            let newcomer = self.joined;
            trace!(self, "{newcomer} joins");
            self.site(newcomer).is_newcomer = !self.scenario.has(Bug::HastyNewcomer);
            self.introduce();
        }
    }

    fn restore(&mut self, number: u8) {
        let (scenario, micros) = (self.scenario, self.micros);
        let incarnation = self.rng.u64(1..);
        if let Some(backup) = self.site(number).backup.take() {
            trace!(self, "{number} is restored from a backup of {} records", backup.last);
            self.network.crash(number);
            self.site(number).restore(backup, incarnation, scenario, micros);
            self.exempt.insert(number);
            // The configuration has not become older.
            self.introduce();
        }
    }

    /// A site is away for longer than the bound, while the others go on.
    fn leave(&mut self) -> Result<(), String> {
        let away = self.rng.u8(1..=self.joined);
        trace!(self, "{away} is cut off for days");
        // Of two sites, the higher one is put out, wherever the cut is.
        self.exempt.insert(if self.joined == 2 { 2 } else { away });
        self.network.heal();
        self.network.isolate(away, self.scenario.sites);
        for _ in 0..9 {
            self.micros += SILENCE_MICROS_DEFAULT / 7 - 1_000_000;
            for _ in 0..self.rng.u32(..10) {
                self.request();
            }
            for _ in 0..3 {
                self.round(true)?;
            }
            self.clean();
        }
        trace!(self, "{away} is back");
        self.network.heal();
        Ok(())
    }

    fn act(&mut self) -> Result<(), String> {
        self.micros += self.rng.u64(..20_000);
        let percent = self.rng.u32(..100);
        let requests = self.scenario.requests_percent;
        if percent < requests {
            self.request();
        } else if percent < requests + 8 {
            let number = self.any_site();
            self.sync(number);
        } else if percent < requests + 10 {
            self.misfortune();
        } else if percent < requests + 12 {
            self.clean();
        } else if percent < requests + 30 {
            self.work_any()?;
        } else {
            self.deliver_any()?;
        }
        self.connect();
        self.attend_comparisons();
        self.attend()?;
        self.network.collect();
        for number in 1..=self.joined {
            if self.micros - self.site(number).last_beat_micros > 1_000_000 {
                self.beat(number);
            }
        }
        Ok(())
    }

    fn attend_comparisons(&mut self) {
        let connections = self.network.connections.len();
        if self.scenario.has_comparisons && connections > 0 && self.compare_rng.u8(..10) == 0 {
            let index = self.compare_rng.usize(..connections);
            self.begin_comparison(index);
        }
        if self.scenario.has_silent_losses && self.compare_rng.u32(..self.scenario.steps / 3) == 0 {
            self.lose_silently();
        }
    }

    pub(super) fn any_site(&mut self) -> u8 {
        self.rng.u8(1..=self.joined)
    }

    fn beat(&mut self, number: u8) {
        let micros = self.micros;
        let site = self.site(number);
        for position in site.members.silent(micros, SILENCE_MICROS_DEFAULT) {
            self.keep(number, position);
        }
        self.site(number).beat(micros);
        self.sync(number);
    }

    /// A client changes something.
    fn request(&mut self) {
        let (number, micros) = (self.any_site(), self.micros);
        let key = self.key();
        let roll = self.rng.u32(..100);
        let exptime = [0, 0, 1, 2, 5, 86_400][self.rng.usize(..6)];
        let exceptions: Vec<Vec<u8>> = (0..self.rng.usize(..2)).map(|_| self.key()).collect();
        let prefix = [&b""[..], b"a", b"b"][self.rng.usize(..3)];
        let flushes = self.scenario.has_flushes;
        let site = self.site(number);
        if !site.takes_writes() {
            return;
        }
        let exptime_secs = if exptime == 0 { 0 } else { site.now_secs(micros) + exptime };
        let value = site.value(&key, micros);
        let number_in = |value: &[u8]| std::str::from_utf8(value).ok()?.parse::<u64>().ok();
        match (roll, value) {
            (0..3, _) if flushes => site.flush(prefix, exceptions, micros),
            (3..20, Some(_)) => site.delete(&key, micros),
            (20..35, Some(_)) => site.touch(&key, exptime_secs, micros),
            (35..60, Some(value)) => {
                let next = number_in(&value).unwrap_or(0) + 1;
                site.set(&key, next.to_string().into_bytes(), 0, micros);
            }
            _ => {
                let value = format!("{}", micros % 1000 * 10);
                site.set(&key, value.into_bytes(), exptime_secs, micros);
            }
        }
        self.run.requests += 1;
        let shown = self.site(number).live.known(&key);
        trace!(self, "client of {number}: {} is {shown:?}", key.escape_ascii());
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.rng.u32(..self.scenario.keys);
        format!("{}{number}", if number.is_multiple_of(2) { "a" } else { "b" }).into_bytes()
    }

    fn misfortune(&mut self) {
        let (number, other) = (self.any_site(), self.any_site());
        let Scenario { has_cuts, has_crashes, has_drift, has_bad_clock, has_trims, .. } = *self.scenario;
        match self.rng.u32(..9) {
            0 if has_cuts => {
                trace!(self, "{number} and {other} do not hear each other");
                self.network.cut(number, other);
                self.network.cut(other, number);
            }
            1 if has_cuts => {
                trace!(self, "{other} does not hear {number}");
                self.network.cut(number, other);
            }
            2 | 3 => self.network.heal(),
            4 if has_crashes => {
                trace!(self, "{number} crashes");
                self.run.crashes += 1;
                self.network.crash(number);
                let micros = self.micros;
                self.site(number).crash(micros);
            }
            5 if has_drift => {
                self.site(number).ahead_micros = self.rng.i64(-20_000_000..20_000_000);
            }
            6 if has_bad_clock => self.site(number).ahead_micros = self.rng.i64(-90_000_000..300_000_000),
            7 if has_trims => {
                let last = self.site(number).disk.last;
                let start = self.rng.u64(..=last);
                let site = self.site(number);
                site.log_start = site.log_start.max(start);
            }
            _ => {
                // A connection is reset: one end hears of it now, or both.
                if !self.network.connections.is_empty() {
                    let index = self.rng.usize(..self.network.connections.len());
                    let choice = self.rng.u8(..3);
                    let connection = &mut self.network.connections[index];
                    if choice < 2 {
                        connection.subscriber = None;
                        connection.to_puller.clear();
                    }
                    if choice > 0 {
                        connection.publisher = None;
                        connection.to_sender.clear();
                    }
                }
            }
        }
    }

    fn clean(&mut self) {
        let early = self.scenario.has(Bug::TombstoneDroppedEarly);
        let number = self.any_site();
        let site = self.site(number);
        let (horizon, confirmed) = (site.members.horizon(), site.members.confirmed());
        let forgotten = site.disk.clean(horizon, confirmed, early);
        site.live.clean(horizon, confirmed, early);
        self.run.forgotten += forgotten;
    }

    /// Pullers without a connection make one, where both ways are open.
    fn connect(&mut self) {
        for puller in 1..=self.joined {
            for sender in 1..=self.joined {
                if puller == sender
                    || self.network.has_puller(puller, sender)
                    || !self.network.connects(puller, sender)
                {
                    continue;
                }
                let confirmed = self.site(sender).members.confirmed_by(puller);
                let (now, durable) = (self.now(puller), self.site(sender).disk.last);
                let settings = self.site(puller).settings.clone();
                let subscriber = Subscriber::new(settings, [self.rng.u8(..); 32], now);
                let (now, settings) = (self.now(sender), self.site(sender).settings.clone());
                let publisher = Publisher::new(settings, [self.rng.u8(..); 32], durable, now);
                self.network.opened += 1;
                self.network.connections.push(Connection {
                    number: self.network.opened,
                    puller,
                    sender,
                    incarnation: 0,
                    run: 0,
                    confirmed,
                    subscriber: Some(subscriber),
                    publisher: Some(publisher),
                    to_sender: Default::default(),
                    to_puller: Default::default(),
                });
            }
        }
    }

    /// Every end of a connection does what is due.
    fn attend(&mut self) -> Result<(), String> {
        for index in 0..self.network.connections.len() {
            let Connection { puller, sender, .. } = self.network.connections[index];
            let (puller_now, sender_now) = (self.now(puller), self.now(sender));
            let connection = &mut self.network.connections[index];
            if let Some(subscriber) = &mut connection.subscriber {
                subscriber.tick(puller_now);
            }
            if let Some(publisher) = connection.publisher.as_mut()
                && publisher.deadline_micros() <= sender_now.micros
            {
                publisher.tick(sender_now);
            }
            self.serve(index)?;
            self.pull(index)?;
        }
        Ok(())
    }

    fn deliver_any(&mut self) -> Result<(), String> {
        let ways = self.network.deliverable();
        if ways.is_empty() {
            return Ok(());
        }
        let (index, is_at_sender) = ways[self.rng.usize(..ways.len())];
        let is_cut = self.rng.u8(..4) == 0;
        let cut = self.rng.usize(..64);
        self.deliver(index, is_at_sender, is_cut.then_some(cut))
    }

    /// What was sent first arrives, or some of it.
    fn deliver(&mut self, index: usize, is_at_sender: bool, cut: Option<usize>) -> Result<(), String> {
        let Connection { puller, sender, .. } = self.network.connections[index];
        let now = self.now(if is_at_sender { sender } else { puller });
        let connection = &mut self.network.connections[index];
        let pipe = if is_at_sender { &mut connection.to_sender } else { &mut connection.to_puller };
        let Some(mut bytes) = pipe.pop_front() else { return Ok(()) };
        if let Some(cut) = cut.filter(|cut| *cut < bytes.len()) {
            pipe.push_front(bytes.split_off(cut));
        }
        if is_at_sender {
            if let Some(publisher) = &mut connection.publisher {
                publisher.receive(&bytes, now);
            }
            self.serve(index)?;
            self.bound(index)
        } else {
            let mut peer = None;
            if let Some(subscriber) = &mut connection.subscriber {
                subscriber.receive(&bytes, now);
                peer = subscriber.peer().filter(|_| subscriber.is_pulling());
            }
            self.hear(puller, peer);
            self.pull(index)?;
            self.bound(index)
        }
    }

    fn hear(&mut self, number: u8, peer: Option<u8>) {
        let micros = self.micros;
        if let Some(peer) = peer {
            self.site(number).members.note_heard(peer, micros);
        }
    }

    /// No end keeps more than it may.
    fn bound(&mut self, index: usize) -> Result<(), String> {
        let connection = &self.network.connections[index];
        let window_bytes = self.sites[0].settings.window_bytes;
        // A batch ends behind the entry that fills it: here none has more than 200 bytes.
        let bytes_max = window_bytes + 2 * (self.sites[0].settings.batch_bytes + 200 + 100);
        let sent = connection.publisher.as_ref().map_or(0, |publisher| publisher.in_flight_bytes());
        let kept = connection.subscriber.as_ref().map_or(0, |subscriber| subscriber.buffered_bytes());
        if sent > bytes_max || kept > bytes_max {
            return Err(format!("{sent} bytes are in flight, {kept} kept, where {bytes_max} may be"));
        }
        Ok(())
    }

    fn work_any(&mut self) -> Result<(), String> {
        // Works of one connection are in order; those of several are not.
        let connections: BTreeSet<u64> = self.network.works.iter().map(|work| work.connection).collect();
        if connections.is_empty() {
            return Ok(());
        }
        let chosen = self.rng.usize(..connections.len());
        let chosen = connections.into_iter().nth(chosen);
        let index = self.network.works.iter().position(|work| Some(work.connection) == chosen);
        let Some(index) = index else { return Ok(()) };
        let work = self.network.works.remove(index);
        if self.rng.u8(..10) == 0 {
            // Once more: what is applied is applied.
            let again = &work;
            if let super::network::Task::Apply(_) = again.what {
                self.work_again(again)?;
            }
        }
        self.work(&work)
    }

    fn work_again(&mut self, work: &super::network::Work) -> Result<(), String> {
        let stale = super::network::Work { connection: 0, what: work.what.clone(), ..*work };
        self.work(&stale)
    }

    /// Everything that can happen at once happens: all that was sent arrives and is applied and durable.
    pub(super) fn round(&mut self, beats: bool) -> Result<(), String> {
        self.micros += 1_100_000;
        if beats {
            (1..=self.joined).for_each(|number| self.beat(number));
        }
        self.connect();
        for _ in 0..400 {
            self.attend()?;
            self.network.collect();
            let ways = self.network.deliverable();
            if ways.is_empty() && self.network.works.is_empty() {
                (1..=self.joined).for_each(|number| self.sync(number));
                self.attend()?;
                if self.network.deliverable().is_empty() {
                    return Ok(());
                }
            }
            for (index, is_at_sender) in ways {
                self.deliver(index, is_at_sender, None)?;
            }
            while let Some(work) = (!self.network.works.is_empty()).then(|| self.network.works.remove(0)) {
                self.work(&work)?;
            }
            (1..=self.joined).for_each(|number| self.sync(number));
        }
        Err("the sites never come to rest".to_owned())
    }

    /// No more faults; time passes until everybody has everything.
    fn heal(&mut self) -> Result<(), String> {
        trace!(self, "all is healed");
        self.network.heal();
        self.join_newcomer();
        self.micros += 20_000_000;
        for site in &mut self.sites {
            site.ahead_micros = 0;
        }
        // What a bad clock has made waits until the others get there.
        let highest = self.sites.iter().map(|site| site.live.highest().max(site.live.beat.clock)).max();
        let ahead =
            unix_micros_of(highest.unwrap_or(0)).saturating_sub(self.sites[0].unix_micros(self.micros));
        self.micros += ahead;
        for _ in 0..40 {
            self.round(true)?;
            self.round(false)?;
            if self.missing().is_none() {
                return Ok(());
            }
        }
        Err(self.missing().unwrap_or_default())
    }

    /// What a site lacks of another one's log.
    fn missing(&self) -> Option<String> {
        for puller in &self.sites {
            for sender in self.sites.iter().filter(|sender| sender.number != puller.number) {
                let (to, from) = (puller.number, sender.number);
                let position = puller.disk.positions.get(&from).copied().unwrap_or_default();
                let Cursor { incarnation, sequence, .. } = position.cursor;
                let publishing = Publishing {
                    site: Some(from),
                    newest: &sender.disk,
                    sends_flushed: false,
                    is_newest_only: false,
                };
                let rest = sender.disk.read(sequence, usize::MAX, publishing);
                if position.standing != Standing::In {
                    return Some(format!("{from} is {:?} at {to}", position.standing));
                }
                let is_all = matches!(rest, LogRead::Entries { ref body, .. } if body.is_empty());
                if incarnation != sender.settings.incarnation || !is_all {
                    return Some(format!("{to} does not get what {from} has after {sequence}"));
                }
            }
        }
        None
    }

    /// What a beat says is true: who has a site's log up to a beat has all own changes of the site up to the beat's
    /// clock, but for what is replaced. Not so of a site that was out: it sweeps what is old, and is given back what it
    /// had lost.
    pub(super) fn check_beat(&self, work: &Work) -> Result<(), String> {
        let Work { puller, sender, .. } = *work;
        if !self.planted.is_empty() || self.exempt.contains(&sender) || self.exempt.contains(&puller) {
            return Ok(());
        }
        let [ours, theirs] = [puller, sender].map(|number| &self.sites[usize::from(number) - 1]);
        let Some(position) = ours.live.positions.get(&sender) else { return Ok(()) };
        // What is older may be forgotten.
        let spoken_of = ours.live.beat.horizon + 1..=position.beat.clock;
        let is_told = |version: u64| site_of(version) == sender && spoken_of.contains(&version);
        let horizon = theirs.disk.beat.horizon;
        for key in theirs.disk.states.keys() {
            let told = theirs.disk.known(key);
            if told.is_obsolete(horizon, unix_secs_of(horizon)) {
                // A copy leaves it out.
                continue;
            }
            let has_value =
                |data: &Data| data.known(key).version().max(data.newest_flush(key)) >= told.version();
            let has_expiry = |data: &Data| {
                let (known, expiry) = (data.known(key), told.expiry);
                expiry.value_version < known.version().max(data.newest_flush(key))
                    || (expiry.value_version, expiry.version)
                        <= (known.expiry.value_version, known.expiry.version)
            };
            let is_replaced =
                |data: &Data| data.known(key).version().max(data.newest_flush(key)) > told.version();
            let lacks_value = is_told(told.version()) && !has_value(&ours.live);
            let lacks_expiry = is_told(told.expiry.version) && !has_expiry(&ours.live);
            if (lacks_value || lacks_expiry) && !self.sites.iter().any(|site| is_replaced(&site.disk)) {
                let (key, known) = (key.escape_ascii(), ours.live.known(key));
                return Err(format!("{puller} has a beat of {sender}, but {key} is {known:?}, not {told:?}"));
            }
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        let secs = self.sites.iter().map(|site| site.now_secs(self.micros)).max().unwrap_or(0);
        let shown: Vec<_> = self.sites.iter().map(|site| shown(site, secs)).collect();
        for (site, shown_here) in self.sites.iter().zip(&shown) {
            let first = &shown[0];
            let keys: BTreeSet<_> = first.keys().chain(shown_here.keys()).collect();
            for key in keys {
                let (one, other) = (first.get(key), shown_here.get(key));
                if one != other {
                    let (number, key) = (site.number, key.escape_ascii());
                    return Err(format!("{key} is {one:?} at 1, and {other:?} at {number}"));
                }
            }
        }
        self.run.items = shown[0].len() as u64;
        let all = self.truth.decisions(false, |_| true);
        if let Some(key) = shown[0].keys().find(|key| !all.contains_key(*key)) {
            return Err(format!("{} was never there", key.escape_ascii()));
        }
        let certain = self.truth.decisions(false, |site| !self.exempt.contains(&site));
        let with_sweeps = self.truth.decisions(true, |_| true);
        for (key, decision) in &all {
            let there = shown[0].get(key);
            // What a site has changed that was away for too long, or was restored, may be lost.
            let is_certain = certain.get(key) == Some(decision);
            let due = decision.shown(secs);
            if is_certain && there != due.as_ref() {
                return Err(format!("{} is {there:?} everywhere, and has to be {due:?}", key.escape_ascii()));
            }
            // But what was swept was swept at every site, and no more than that was lost; nor does a touch of such a
            // site bring back what had expired everywhere else.
            let Some(decision) = with_sweeps.get(key) else { continue };
            let due = decision.shown(secs);
            let is_due = !self.scenario.has_restore
                && !self.scenario.has_old_copy
                && !decision.is_touched_by(&self.exempt);
            if is_due && there != due.as_ref() {
                return Err(format!("{} is {there:?} everywhere, not {due:?}", key.escape_ascii()));
            }
        }
        Ok(())
    }

    /// Once everybody knows that everybody has everything, no deletion is kept.
    fn check_forgetting(&mut self) -> Result<(), String> {
        self.micros += 2_000_000;
        for _ in 0..4 {
            self.round(true)?;
        }
        for site in &mut self.sites {
            let (horizon, confirmed) = (site.members.horizon(), site.members.confirmed());
            self.run.forgotten += site.disk.clean(horizon, confirmed, false);
            site.live.clean(horizon, confirmed, false);
        }
        for site in &self.sites {
            let is_kept = |state: &larder_replication::state::State<Vec<u8>>| {
                state.value.as_ref().is_none_or(|register| register.item.is_none())
            };
            if let Some((key, (state, _))) = site.live.states.iter().find(|(_, (state, _))| is_kept(state)) {
                let (number, key) = (site.number, key.escape_ascii());
                return Err(format!("{number} keeps {key} for ever: {state:?}"));
            }
            if let Some(mark) = site.live.flushes.marks().first() {
                return Err(format!("{} keeps {mark:?} for ever", site.number));
            }
        }
        self.check()
    }
}

/// What clients see at a site.
fn shown(site: &Site, secs: u64) -> std::collections::BTreeMap<Vec<u8>, super::truth::Shown> {
    let keys = site.live.states.keys();
    keys.filter_map(|key| {
        let state = site.live.known(key);
        let item = state.item(secs)?;
        Some((key.clone(), (state.version(), item.value.clone(), state.expiry.exptime_secs)))
    })
    .collect()
}
