//! Stores every key once, before the clock starts.

use larder_client::codec::{Event, Outcome, Store};
use rustix::event::{Timespec, epoll};

use super::RunError;
use super::asked::Asked;
use super::control::Report;
use super::keys::KEY_BYTES_MAX;
use super::ledger::{Effect, Witness};
use super::popularity::Part;
use super::socket::Received;
use super::stamp;
use super::thread::Thread;
use crate::scenario::Kind;

/// Keys that one lane stores.
struct Share {
    /// Index of a key set and its keys, by index in the set.
    parts: Vec<(usize, Part)>,
    /// Index of a key set and number of a key that has to be stored once more.
    again: Vec<(usize, u64)>,
}

impl Thread {
    /// Stores this thread's share of the keys. What a server refuses or loses is tried again, as long as
    /// anything comes forward; but a connection that fails counts.
    pub(super) fn fill(&mut self) -> Result<(), RunError> {
        let mut shares: Vec<Share> = (0..self.lanes.len()).map(|lane| self.share(lane)).collect();
        let patience = (self.plan.truth().timeout_secs * 1e9) as u64;
        let mut progress_nanos = self.control.now_nanos();
        let mut told_nanos = progress_nanos;
        let mut untold = 0;
        let mut trouble = String::from("no answer");
        let mut events = Vec::with_capacity(self.sockets.len().min(1024));
        loop {
            for (lane, share) in shares.iter_mut().enumerate() {
                self.store_share(lane, share);
            }
            let is_idle = self.lanes.iter().all(|lane| lane.in_flight == 0);
            let is_over = is_idle && shares.iter().all(Share::is_done) || self.control.is_stopped();
            let now = self.control.now_nanos();
            if is_over || now - told_nanos > TELL_NANOS {
                told_nanos = now;
                // Nobody listens: see `run`.
                let _ = self.reports.send(Report::Filled(std::mem::take(&mut untold)));
            }
            if is_over {
                self.tally.keep_failures();
                return Ok(());
            }
            events.clear();
            match epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), Some(&WAIT)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(std::io::Error::from(error).into()),
            }
            let mut stored = 0;
            for event in &events {
                self.flush(event.data.u64() as usize);
                stored += self.take_stored(event.data.u64() as usize, &mut shares, &mut trouble);
            }
            let now = self.control.now_nanos();
            if stored > 0 {
                progress_nanos = now;
                untold += stored;
            } else if now - progress_nanos > patience {
                let address = self.address(0).to_owned();
                return Err(RunError::Server { address, reason: format!("cannot be filled: {trouble}") });
            }
            self.reopen_all(now);
        }
    }

    fn share(&self, lane: usize) -> Share {
        let lane = &self.lanes[lane];
        let group = &self.plan.groups[lane.group];
        // Keys of a trace come with it.
        let sets = group.key_sets.iter().enumerate().filter(|_| group.recording.is_none());
        let parts = sets.map(|(set, keys)| (set, Part::new(keys.keys.count, lane.share)));
        Share { parts: parts.collect(), again: Vec::new() }
    }

    /// Asks for as many stores as a lane has room for.
    fn store_share(&mut self, id: usize, share: &mut Share) {
        let lane = &mut self.lanes[id];
        let group = &self.plan.groups[lane.group];
        if lane.in_flight > 0 {
            return;
        }
        let now = self.control.now_nanos();
        let mut key = [0; KEY_BYTES_MAX];
        let mut number_text = itoa::Buffer::new();
        while lane.in_flight < DEPTH
            && let Some((set, number)) = share.next(group)
        {
            let sockets = group.tcp_sockets(true) + group.udp_sockets();
            let servers = self.plan.servers_of(number, Kind::Set, lane.random());
            let first = lane.first_socket;
            let ids = servers.map(|server| first + server * sockets);
            if ids.clone().any(|id| !self.sockets[id].has_room()) {
                share.again.push((set, number));
                break;
            }
            let keys = &group.key_sets[set];
            let values = &group.value_sets[keys.value_set];
            let value_bytes = values.value_bytes(number, lane.random());
            let mut witness = Witness::default();
            if let Some(ledger) = &keys.ledger {
                witness = ledger.begin(number, false, 0);
            }
            let is_stamped = self.plan.verifies() && !values.contents.is_number();
            let value = if is_stamped {
                self.check_scratch.clear();
                stamp::write(&mut self.check_scratch, number, witness.version, value_bytes);
                &self.check_scratch
            } else {
                values.contents.of(number, value_bytes, &mut number_text)
            };
            let store = Store {
                key: keys.maker.write(number, &mut key),
                value: &[value],
                client_flags: if is_stamped { stamp::client_flags(number) } else { 0 },
                ..Store::default()
            };
            let asked = Asked {
                number,
                witness,
                command: set as u16,
                kind: Kind::Set,
                is_own: false,
                ..Asked::own(now)
            };
            for id in ids {
                let socket = &mut self.sockets[id];
                socket.pipeline.store(&mut socket.output, &store, Some(asked));
                lane.in_flight += 1;
                if !std::mem::replace(&mut socket.is_dirty, true) {
                    self.dirty.push(id);
                }
            }
        }
        self.flush_dirty();
    }

    /// Takes what a socket answers. How many keys are stored.
    fn take_stored(&mut self, id: usize, shares: &mut [Share], trouble: &mut String) -> u64 {
        let socket = &mut self.sockets[id];
        let lane = &mut self.lanes[socket.lane];
        let share = &mut shares[socket.lane];
        let group = &self.plan.groups[lane.group];
        let mut stored = 0;
        let mut received = Ok(Received { answered_nanos: None, may_hold_more: true });
        while let Ok(Received { may_hold_more: true, .. }) = received {
            received = socket.receive(&mut self.input, &self.control, |_, _, _, event| {
                if let Event::Done(asked, outcome) = event {
                    lane.in_flight -= 1;
                    let ledger = &group.key_sets[usize::from(asked.command)].ledger;
                    let is_stored = matches!(outcome, Outcome::Stored { .. });
                    if let Some(ledger) = ledger {
                        let effect = if is_stored { Effect::Applied } else { Effect::MaybeGone };
                        ledger.end(asked.number, &asked.witness, effect);
                    }
                    if is_stored {
                        stored += 1;
                    } else {
                        *trouble = match outcome {
                            Outcome::Error(error) => error.to_string(),
                            _ => "a key was not stored".to_owned(),
                        };
                        share.again.push((asked.command.into(), asked.number));
                    }
                }
            });
        }
        if let Err(lost) = received {
            let address = self.address(id).to_owned();
            self.tally.fail(lost.failure, 1, || format!("{address}: {}", lost.why));
            *trouble = lost.why;
            let lane = self.sockets[id].lane;
            for asked in self.drop_socket(id) {
                shares[lane].again.push((asked.command.into(), asked.number));
            }
        }
        stored
    }

    fn reopen_all(&mut self, now: u64) {
        for id in 0..self.sockets.len() {
            if self.sockets[id].road.is_none() && now >= self.sockets[id].reopen_nanos {
                self.reopen(id, now);
            }
        }
    }
}

impl Share {
    /// The next key: its set and its number.
    fn next(&mut self, group: &super::plan::GroupPlan) -> Option<(usize, u64)> {
        if let Some(again) = self.again.pop() {
            return Some(again);
        }
        let (set, part) = self.parts.last_mut()?;
        let next = (*set, group.key_sets[*set].keys.first + part.begin);
        part.begin += 1;
        if part.begin == part.end {
            self.parts.pop();
        }
        Some(next)
    }

    fn is_done(&self) -> bool {
        self.parts.is_empty() && self.again.is_empty()
    }
}

/// Stores that a lane sends at once. It waits for all of them.
const DEPTH: usize = 64;
/// How often progress is reported.
const TELL_NANOS: u64 = 100_000_000;
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
