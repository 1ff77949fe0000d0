//! What larderd will do: it performs the actions of both ends of each connection.

use std::collections::BTreeSet;
use std::ops::Bound;

use larder_replication::entry::{Entries, Entry};
use larder_replication::lineage::Lineage;
use larder_replication::link::{
    Admission, Batch, CopyBegun, CopyPiece, CopyRead, CopyStart, LogRead, PublisherAction, SubscriberAction,
    Subscription, admit,
};
use larder_replication::members::{Cursor, Position, Standing, Trust};
use larder_replication::merge::{Fit, merge, sweep};
use larder_replication::state::State;
use larder_replication::version::unix_secs_of;
use larder_replication::wire::{CopyReason, Refusal};

use super::cluster::{Cluster, trace};
use super::data::{Publishing, entry_of};
use super::network::{Connection, Task, Work};
use super::scenario::Bug;
use super::site::Taken;
use super::truth::Change;

impl Cluster<'_, '_> {
    /// Performs what the sender's end of a connection asks for.
    pub(super) fn serve(&mut self, index: usize) -> Result<(), String> {
        loop {
            let connection = &mut self.network.connections[index];
            let (sender, confirmed) = (connection.sender, connection.confirmed);
            let Some(publisher) = &mut connection.publisher else { return Ok(()) };
            let Some(action) = publisher.next_action() else { return Ok(()) };
            match action {
                PublisherAction::Send(bytes) => connection.to_puller.push_back(bytes),
                PublisherAction::Admit { site, incarnation, cursor, .. } => {
                    if let Some(position) = self.site(sender).members.introduced(site, incarnation) {
                        self.keep(sender, position);
                    }
                    let by_number = self.scenario.has(Bug::CursorByNumber);
                    let of_log = self.site(sender);
                    of_log.note_run();
                    let (extent, durable) = (of_log.extent(), of_log.disk.last);
                    let lineage = match by_number {
                        true => Lineage::beginning(durable),
                        false => of_log.disk.lineage.clone(),
                    };
                    let cursor = if by_number { Cursor { run: 0, ..cursor } } else { cursor };
                    let asked = Subscription { site, cursor, confirmed };
                    let admission = admit(&of_log.members, asked, extent, &lineage);
                    trace!(self, "{sender} to {site}, at {}: {admission:?}", cursor.sequence);
                    let is_ahead = admission == Admission::Refused(Refusal::AheadOfLog);
                    self.publisher(index)?.admit(admission);
                    if is_ahead && !by_number {
                        self.renew(sender);
                    }
                }
                PublisherAction::ReadLog { after, bytes_max } => {
                    let read = self.read_log(sender, after, bytes_max);
                    let now = self.now(sender);
                    self.publisher(index)?.log_read(read, now);
                }
                PublisherAction::BeginCopy { site, interrupted } => {
                    let begun = self.begin_copy(sender, site, interrupted);
                    trace!(self, "{sender} begins a copy for {site}: {begun:?}");
                    self.publisher(index)?.copy_begun(begun);
                }
                PublisherAction::ReadCopy { position, horizon, bytes_max } => {
                    let read = self.read_copy(sender, &position, horizon, bytes_max);
                    self.publisher(index)?.copy_read(read);
                }
                PublisherAction::Confirmed { site, incarnation, sequence } => {
                    let of_log = self.site(sender);
                    let (own, run) = (of_log.settings.incarnation, of_log.settings.run);
                    let cursor = Cursor { incarnation: own, run, sequence };
                    of_log.members.note_confirmed(site, incarnation, cursor);
                }
                PublisherAction::CopyTaken { site } => {
                    if let Some(position) = self.site(sender).members.joined(site) {
                        self.keep(sender, position);
                    }
                }
                PublisherAction::Compare(step) => self.answer_comparison(index, step)?,
                PublisherAction::Side(side, _) => return Err(format!("{sender} hears {side:?}")),
                PublisherAction::Close(closed) => {
                    trace!(self, "{sender} closes: {closed}");
                    self.network.connections[index].publisher = None;
                    self.blame(closed.refusal, &closed.sentence)?;
                }
            }
        }
    }

    /// Performs what the puller's end of a connection asks for.
    pub(super) fn pull(&mut self, index: usize) -> Result<(), String> {
        loop {
            let connection = &mut self.network.connections[index];
            let (puller, sender, number) = (connection.puller, connection.sender, connection.number);
            let Some(subscriber) = &mut connection.subscriber else { return Ok(()) };
            let Some(action) = subscriber.next_action() else { return Ok(()) };
            let queue = |this: &mut Self, what| {
                let Connection { incarnation, run, .. } = this.network.connections[index];
                this.network.works.push(Work { connection: number, puller, sender, incarnation, run, what });
            };
            match action {
                SubscriberAction::Send(bytes) => connection.to_sender.push_back(bytes),
                SubscriberAction::Connected { site, incarnation, run } => {
                    (connection.incarnation, connection.run) = (incarnation, run);
                    if let Some(position) = self.site(puller).members.introduced(site, incarnation) {
                        self.keep(puller, position);
                    }
                    let position = self.site(puller).live.positions.get(&site).copied();
                    let cursor = position.map(|position| position.cursor);
                    let subscriber = self.subscriber(index)?;
                    match cursor {
                        Some(cursor) => subscriber.subscribe(cursor),
                        None => subscriber.stop(),
                    }
                }
                SubscriberAction::Started => {
                    let run = connection.run;
                    if self.site(puller).standing(sender) != Standing::In {
                        self.subscriber(index)?.stop();
                        continue;
                    }
                    let site = self.site(puller);
                    // The site is in again, with everything that the other one has.
                    site.is_outdated = false;
                    if let Some(position) = site.live.positions.get(&sender).copied() {
                        site.place(Position { cursor: Cursor { run, ..position.cursor }, ..position });
                    }
                }
                SubscriberAction::CopyNeeded(reason) => {
                    if reason == CopyReason::Silent {
                        let micros = self.micros;
                        self.site(puller).members.count_anew(micros);
                    }
                    match self.site(puller).members.trust(sender, reason) {
                        Trust::Full => {}
                        Trust::Yielded(position) => self.keep(puller, position),
                        Trust::None => {
                            self.subscriber(index)?.stop();
                            continue;
                        }
                    }
                    let taken = self.site(puller).taken.get(&sender);
                    let interrupted = taken.map(|taken| (taken.begun.cursor, taken.position.clone()));
                    let incarnation = self.network.connections[index].incarnation;
                    let interrupted = interrupted.filter(|(cursor, _)| cursor.incarnation == incarnation);
                    let asked =
                        interrupted.as_ref().map(|(cursor, position)| (cursor.sequence, &position[..]));
                    self.subscriber(index)?.copy(asked);
                }
                SubscriberAction::Apply(batch) => queue(self, Task::Apply(batch)),
                SubscriberAction::CopyBegun(begun) => {
                    self.run.copies += 1;
                    let taken = &mut self.site(puller).taken;
                    match taken.get_mut(&sender).filter(|_| begun.is_continued) {
                        Some(taken) => taken.begun = begun,
                        None => {
                            let (position, mentioned) = (Vec::new(), BTreeSet::new());
                            taken.insert(sender, Taken { begun, position, mentioned });
                        }
                    }
                }
                SubscriberAction::ApplyPiece(piece) => queue(self, Task::ApplyPiece(piece)),
                SubscriberAction::FinishCopy => {
                    let cursor = self.finish_copy(puller, sender)?;
                    self.subscriber(index)?.copy_taken(cursor);
                }
                SubscriberAction::Ahead { micros } => {
                    self.run.held += 1;
                    trace!(self, "{puller} holds {sender}, which is {micros} us ahead");
                }
                SubscriberAction::NoLongerAhead => {}
                SubscriberAction::Compare(step) => self.compare(index, step)?,
                SubscriberAction::Side(side, _) => return Err(format!("{puller} hears {side:?}")),
                SubscriberAction::Close(closed) => {
                    trace!(self, "{puller} closes: {closed}");
                    self.network.connections[index].subscriber = None;
                    self.blame(closed.refusal, &closed.sentence)?;
                    if closed.refusal == Refusal::OlderCopy {
                        self.renew(puller);
                    }
                }
            }
        }
    }

    /// Does what a connection's end has asked for a while ago.
    pub(super) fn work(&mut self, work: &Work) -> Result<(), String> {
        let index = self.network.connections.iter().position(|c| c.number == work.connection);
        let index = index.filter(|&index| self.network.connections[index].subscriber.is_some());
        match &work.what {
            Task::Apply(batch) => {
                let is_whole = self.apply(work, batch);
                self.check_beat(work)?;
                if let Some(index) = index {
                    let now = self.now(work.puller);
                    if is_whole {
                        self.subscriber(index)?.applied(batch.to, now);
                    } else {
                        self.subscriber(index)?.stop();
                    }
                    self.pull(index)?;
                }
            }
            Task::ApplyPiece(piece) => {
                let Some(index) = index else { return Ok(()) };
                self.apply_piece(work.puller, work.sender, piece)?;
                let now = self.now(work.puller);
                self.subscriber(index)?.piece_applied(piece.number, now);
                self.pull(index)?;
            }
        }
        Ok(())
    }

    /// False: the connection is of no use any more.
    fn apply(&mut self, work: &Work, batch: &Batch) -> bool {
        let Work { puller, sender, incarnation, run, .. } = *work;
        let position = self.site(puller).live.positions.get(&sender).copied().unwrap_or_default();
        match batch.fit(incarnation, run, position.cursor) {
            _ if position.standing != Standing::In => return false,
            Fit::Gap => return false,
            Fit::Known => return true,
            Fit::Next => {}
        }
        let by_arrival = self.scenario.has(Bug::ApplyByArrival);
        let loses_flushes = self.scenario.has(Bug::FlushLost);
        let site = self.site(puller);
        if by_arrival {
            for entry in Entries::new(&batch.body).map_while(Result::ok) {
                let Some((key, state)) = entry.state() else { continue };
                if state.value.is_some() {
                    site.live.put(key.to_vec(), state.map(<[u8]>::to_vec));
                }
            }
        }
        let Ok(mut merged) = merge(&site.live, &batch.body);
        if loses_flushes {
            merged.flushes.clear();
        }
        site.live.append(&merged);
        let cursor = Cursor { incarnation, run, sequence: batch.to };
        let position = Position { cursor, beat: merged.beat.unwrap_or(position.beat), ..position };
        let position = site.place(position);
        let (conflicts, entries) = (merged.conflicts.len() as u64, merged.entries);
        if self.scenario.has(Bug::CursorAheadOfData) {
            self.site(puller).disk.place(position);
        }
        self.run.conflicts += conflicts;
        self.run.entries += entries;
        trace!(self, "{puller} applies {}..{} of {sender}: {entries} entries", batch.from, batch.to);
        true
    }

    fn apply_piece(&mut self, puller: u8, sender: u8, piece: &CopyPiece) -> Result<(), String> {
        let site = self.site(puller);
        let Ok(merged) = merge(&site.live, &piece.body);
        site.live.append(&merged);
        let taken = site.taken.get_mut(&sender).ok_or("a piece of no copy")?;
        taken.position.clone_from(&piece.position);
        for entry in Entries::new(&piece.body).map_while(Result::ok) {
            if let Some((key, _)) = entry.state() {
                taken.mentioned.insert(key.to_vec());
            }
        }
        trace!(self, "{puller} applies piece {} of {sender}", piece.number);
        Ok(())
    }

    /// Drops what a copy does not have and its horizon has passed; then the copy's end is where this site is.
    fn finish_copy(&mut self, puller: u8, sender: u8) -> Result<Cursor, String> {
        let keeps_all = self.scenario.has(Bug::NoSweep);
        let micros = self.micros;
        let site = self.site(puller);
        let Taken { begun, mentioned, .. } = site.taken.remove(&sender).ok_or("no copy ends")?;
        let CopyBegun { cursor, horizon, others, .. } = begun;
        let unmentioned: Vec<_> =
            site.live.states.keys().filter(|key| !mentioned.contains(*key)).cloned().collect();
        let mut swept = 0;
        for key in unmentioned {
            let state = site.live.known(&key);
            let Some((version, base_version)) = sweep(&state, horizon, puller).filter(|_| !keeps_all) else {
                continue;
            };
            let deleted = State::deleted(version, base_version);
            site.live.put(key.clone(), state.join(deleted).0);
            site.pending.push(Change::Sweep { key, version });
            swept += 1;
        }
        site.promise(horizon);
        if horizon > 0 {
            site.members.count_anew(micros);
        }
        for theirs in others {
            if theirs.site == puller {
                site.promise(theirs.beat.clock);
            } else if let Some(ours) = site.live.positions.get(&theirs.site)
                && let Some(position) = ours.learn(theirs)
            {
                site.live.place(position);
            }
        }
        let position = site.live.positions.get(&sender).copied().unwrap_or_default();
        site.live.place(Position { cursor, ..position });
        site.beat(micros);
        self.sync(puller);
        self.run.swept += swept;
        trace!(self, "{puller} has a copy of {sender}, {swept} items swept up to {horizon}");
        Ok(cursor)
    }

    fn read_log(&mut self, sender: u8, after: u64, bytes_max: usize) -> LogRead {
        let own = (!self.scenario.has(Bug::Republish)).then_some(sender);
        let sends_early = self.scenario.has(Bug::SendBeforeDurable);
        let is_left_early = self.scenario.has(Bug::ReplacedBeforeDurable);
        let sends_flushed = self.scenario.has(Bug::SendFlushed);
        let is_newest_only = self.scenario.has(Bug::NewestPlaceOnly);
        let site = self.site(sender);
        if after < site.log_start {
            return LogRead::Gone;
        }
        let log = if sends_early { &site.live } else { &site.disk };
        let newest = if is_left_early { &site.live } else { log };
        log.read(after, bytes_max, Publishing { site: own, newest, sends_flushed, is_newest_only })
    }

    fn begin_copy(&mut self, sender: u8, taker: u8, interrupted: Option<(u64, Vec<u8>)>) -> CopyStart {
        if let Some(position) = self.site(sender).members.joining(taker) {
            self.keep(sender, position);
        }
        let site = self.site(sender);
        let log = site.extent();
        let (start, position) = interrupted.unzip();
        let (extent, is_continued) = site.members.begin_copy(taker, start, log);
        let position = position.filter(|_| is_continued).unwrap_or_default();
        CopyStart { extent, whole_bytes: 0, position }
    }

    fn read_copy(&mut self, sender: u8, position: &[u8], horizon: u64, bytes_max: usize) -> CopyRead {
        let skips_deletions = self.scenario.has(Bug::CopyWithoutDeletions);
        let live = &self.site(sender).live;
        let mut body = Vec::new();
        if position.is_empty() {
            live.flushes.marks().iter().for_each(|mark| entry_of(mark).encode(&mut body));
        }
        let (mut next, mut count) = (None, 0);
        for (key, _) in live.states.range::<[u8], _>((Bound::Excluded(position), Bound::Unbounded)) {
            if count > 0 && body.len() >= bytes_max {
                break;
            }
            let state = live.known(key);
            let is_deleted = state.value.as_ref().is_some_and(|register| register.item.is_none());
            let is_obsolete = state.is_obsolete(horizon, unix_secs_of(horizon));
            if !(is_obsolete || skips_deletions && is_deleted) {
                Entry::of_state(key, &state.as_ref().map(Vec::as_slice))
                    .for_each(|entry| entry.encode(&mut body));
            }
            (next, count) = (Some(key.clone()), count + 1);
        }
        let is_last = next.as_ref().is_none_or(|next| live.states.keys().next_back() == Some(next));
        CopyRead { body, position: next.filter(|_| !is_last), appended: live.last }
    }

    /// Nothing that honest sites say is a violation.
    fn blame(&self, refusal: Refusal, sentence: &str) -> Result<(), String> {
        match refusal {
            Refusal::TimedOut | Refusal::Unavailable | Refusal::UnknownSite => Ok(()),
            Refusal::AheadOfLog | Refusal::OlderCopy if self.scenario.has_old_copy => Ok(()),
            _ => Err(format!("a connection ends because {sentence}")),
        }
    }
}
