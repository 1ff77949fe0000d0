//! Sockets that fail, hang, wear out; and the end of the load.

use std::io;

use super::asked::Asked;
use super::socket::{Lost, Transport};
use super::thread::{SWEEP_NANOS, Thread};
use crate::outcome::Failure;

impl Thread {
    /// Looks after sockets that have waited too long, and opens those that are closed.
    #[cold]
    pub(super) fn sweep(&mut self, now: u64) {
        let timeout_secs = self.plan.truth().timeout_secs;
        let timeout = (timeout_secs * 1e9) as u64;
        for id in 0..self.sockets.len() {
            let socket = &self.sockets[id];
            if socket.road.is_none() {
                if !self.is_ending && now >= socket.reopen_nanos {
                    self.reopen(id, now);
                }
                continue;
            }
            let Some(asked) = socket.front() else {
                // Requests without an answer are stuck, and only an answer can be missed.
                if socket.is_blocked {
                    self.ask_for_sign(id, now);
                }
                continue;
            };
            let waited = now.saturating_sub(asked.sent_nanos);
            if socket.is_udp && waited > timeout.min(UDP_PATIENCE_NANOS) {
                self.lose_datagrams(id);
            } else if waited > timeout {
                let why = format!("no answer for {timeout_secs} s");
                self.lose(id, &Lost { failure: Failure::Timeout, why, given_up: 0 });
            }
        }
        self.sweep_nanos = self.control.now_nanos() + SWEEP_NANOS;
    }

    /// A connection has failed: what was due on it will not come.
    #[cold]
    pub(super) fn lose(&mut self, id: usize, lost: &Lost) {
        let address = self.address(id).to_owned();
        self.lanes[self.sockets[id].lane].in_flight -= lost.given_up;
        let unanswered = (self.drop_socket(id).len() + lost.given_up) as u64;
        self.tally.fail(lost.failure, unanswered.max(1), || format!("{address}: {}", lost.why));
        let now = self.control.now_nanos();
        let socket = &mut self.sockets[id];
        socket.reopen_nanos = now + socket.patience_nanos;
        if socket.patience_nanos == 0 && !self.is_ending {
            self.reopen(id, now);
        }
    }

    /// A request or its answer got lost on the way, as datagrams do.
    fn lose_datagrams(&mut self, id: usize) {
        let socket = &mut self.sockets[id];
        let lost = socket.give_up();
        let lane = socket.lane;
        self.lanes[lane].in_flight -= lost;
        self.tally.rest.datagrams_lost += lost as u64;
        self.wake(lane);
    }

    /// Closes a connection that has had its requests, and opens it again.
    #[inline]
    pub(super) fn renew_if_worn(&mut self, id: usize) {
        let socket = &self.sockets[id];
        let every = self.plan.groups[self.lanes[socket.lane].group].group.reconnect_every;
        if every > 0 && socket.requests >= every && socket.is_idle() && !self.is_ending {
            self.drop_socket(id);
            self.reopen(id, self.control.now_nanos());
        }
    }

    pub(super) fn reopen(&mut self, id: usize, now: u64) {
        let patience = &mut self.sockets[id].patience_nanos;
        *patience = (*patience * 2).clamp(PATIENCE_NANOS_MIN, PATIENCE_NANOS_MAX);
        let patience = *patience;
        match self.open(id) {
            Ok(()) => {
                self.tally.rest.reconnects += 1;
                let lane = self.sockets[id].lane;
                self.wake(lane);
            }
            Err(error) => {
                self.sockets[id].reopen_nanos = now + patience;
                let address = self.address(id).to_owned();
                self.tally.fail(Failure::Connect, 1, || format!("{address}: {error}"));
            }
        }
    }

    /// Opens a connection.
    pub(super) fn open(&mut self, id: usize) -> io::Result<()> {
        let socket = &mut self.sockets[id];
        let road = if socket.is_udp {
            Transport::Udp(self.plan.roads.open_udp(socket.server)?)
        } else {
            Transport::Stream(self.plan.roads.open(socket.server, socket.pipeline.protocol())?)
        };
        socket.open(&self.poll, id, road)
    }

    /// Asks nothing more, and makes sure that what asks for no answer has been worked off, and that no answer comes
    /// twice.
    #[cold]
    pub(super) fn end(&mut self, now: u64) {
        self.is_ending = true;
        if now >= self.periods.end_nanos {
            // A server that fell silent before the end is not spared the rest of the time.
            self.last_nanos = self.last_nanos.max(self.periods.end_nanos);
        }
        for lane in &mut self.lanes {
            lane.is_done = true;
        }
        self.active = 0;
        for group in &mut self.groups {
            if let Some(schedule) = &mut group.schedule
                && group.is_open
            {
                self.tally.rest.unsent += schedule.overdue(now.min(self.periods.end_nanos));
            }
            group.schedule = None;
        }
        for id in 0..self.sockets.len() {
            let socket = &self.sockets[id];
            // Where answers are checked, one too many is found in front of the sign.
            let is_wanted = socket.memory.is_unconfirmed() || self.plan.verifies();
            if is_wanted && socket.road.is_some() && !socket.is_udp {
                self.ask_for_sign(id, now);
            }
        }
    }

    /// Sends a no-op: its answer shows that all before it has been worked off.
    fn ask_for_sign(&mut self, id: usize, now: u64) {
        let socket = &mut self.sockets[id];
        let quiet_mark = socket.memory.quiet_mark();
        socket.pipeline.noop(&mut socket.output, Asked { quiet_mark, ..Asked::own(now) });
        self.flush(id);
    }

    /// As in the scenario.
    pub(super) fn address(&self, id: usize) -> &str {
        &self.plan.scenario.target.servers[self.sockets[id].server]
    }

    /// Closes a connection. What was due on it.
    pub(super) fn drop_socket(&mut self, id: usize) -> Vec<Asked> {
        let socket = &mut self.sockets[id];
        let due = socket.close();
        let own = due.iter().filter(|asked| asked.is_own).count();
        self.lanes[socket.lane].in_flight -= due.len() - own;
        due
    }
}

/// After this a datagram counts as lost, even if `truth.timeout_secs` is longer.
const UDP_PATIENCE_NANOS: u64 = 500_000_000;
/// How long to wait before trying once more to connect: twice as long each time.
const PATIENCE_NANOS_MIN: u64 = 10_000_000;
const PATIENCE_NANOS_MAX: u64 = 1_000_000_000;
