//! Which lane asks next, and when: in a closed loop as soon as it has its answers, else when the schedule says so.

use super::Thread;
use crate::run::ask::{Asking, When};
use crate::run::lane::Lane;
use crate::run::plan::{GroupPlan, Plan};
use crate::run::socket::Socket;
use crate::scenario::Kind;

impl Thread {
    /// Lanes of a closed loop that wait for no answer.
    #[inline]
    pub(super) fn ask_eager(&mut self, now: u64) {
        if self.eager.is_empty() || self.periods.is_between(now) {
            return;
        }
        for id in std::mem::take(&mut self.eager) {
            self.lanes[id].is_queued = false;
            self.refill(id);
        }
    }

    /// Asks what is due by now.
    #[inline]
    pub(super) fn ask_scheduled(&mut self, now: u64) {
        for at in 0..self.groups.len() {
            loop {
                let group = &mut self.groups[at];
                let Some(schedule) = &mut group.schedule else { break };
                if !group.is_open {
                    schedule.skip_to(now.saturating_sub(PACE_SLACK_NANOS));
                }
                let due = schedule.next_nanos();
                if due > now {
                    break;
                }
                let Some(lane) = group.ready.pop_front() else { break };
                let ready_nanos = group.ready_nanos;
                let due = if group.is_open { due } else { now };
                self.lanes[lane].is_queued = false;
                if !self.ask(lane, due, now) {
                    continue;
                }
                if due >= self.periods.begin_nanos {
                    // Before a connection was free nobody could send it; from then on this thread could have.
                    if ready_nanos > due + LATE_NANOS {
                        self.tally.rest.sent_late += 1;
                    } else if now > due + LATE_NANOS {
                        self.tally.rest.client_late += 1;
                    }
                }
                if let Some(schedule) = &mut self.groups[at].schedule {
                    schedule.take();
                }
                self.queue(lane, ready_nanos);
            }
        }
        self.flush_dirty();
    }

    /// Lets a lane ask as much as it has room for.
    #[inline]
    pub(super) fn refill(&mut self, id: usize) {
        let now = self.control.now_nanos();
        if self.groups[self.lanes[id].group].schedule.is_some() {
            while !self.lanes[id].follow_ups.is_empty() && self.ask(id, now, now) {}
            self.queue(id, now);
        } else {
            // A whole batch at a time, as soon as the last one is answered: topped up one by one, batches would wear
            // down to single requests, and cost a system call each.
            let batch = self.plan.groups[self.lanes[id].group].group.pipeline;
            if self.lanes[id].in_flight == 0 {
                let asked = (0..batch).take_while(|_| self.ask(id, now, now)).count();
                if asked == batch {
                    self.wake(id);
                }
            }
        }
        self.flush_dirty();
    }

    /// Lets a lane ask that waits for no answer.
    pub(crate) fn wake(&mut self, id: usize) {
        if self.lanes[id].in_flight == 0 || self.groups[self.lanes[id].group].schedule.is_some() {
            self.queue(id, self.control.now_nanos());
        }
    }

    /// Queues a lane that has had room since `nanos` among those that may send.
    #[inline]
    fn queue(&mut self, id: usize, nanos: u64) {
        let lane = &mut self.lanes[id];
        let group = &mut self.groups[lane.group];
        let has_room = lane.in_flight < self.plan.groups[lane.group].group.pipeline;
        if lane.is_queued || lane.is_done || !has_room {
            return;
        }
        lane.is_queued = true;
        if group.schedule.is_none() {
            return self.eager.push(id);
        }
        if group.ready.is_empty() {
            group.ready_nanos = nanos;
        }
        group.ready.push_back(id);
    }

    /// A lane asks one request. `false`: it has none, or cannot send it now.
    #[inline]
    fn ask(&mut self, lane_id: usize, due_nanos: u64, now: u64) -> bool {
        let lane = &mut self.lanes[lane_id];
        let group = &mut self.groups[lane.group];
        if lane.is_done {
            return false;
        }
        let is_counted = now >= self.periods.begin_nanos;
        let group_plan = &self.plan.groups[lane.group];
        // A trace has one beginning: the warm-up plays none of it.
        if !is_counted && group_plan.recording.is_some() {
            return false;
        }
        if is_counted && !group.may_ask(&self.control, lane.group, self.plan.threads) {
            lane.is_done = true;
            self.active -= 1;
            return false;
        }
        let elapsed_nanos = now - self.load_nanos;
        let request = match lane.held.take().or_else(|| lane.follow_ups.pop_front()) {
            Some(request) => request,
            None => match lane.draw(group_plan, elapsed_nanos) {
                Some(request) => request,
                // What is in flight may be followed by more.
                None if lane.in_flight > 0 => return false,
                None => {
                    lane.is_done = true;
                    self.active -= 1;
                    self.control.end_trace();
                    return false;
                }
            },
        };
        let servers = self.plan.servers_of(request.number, request.kind, lane.random());
        let place = |server: usize, lane: &Lane, sockets: &[Socket]| {
            place(&self.plan, &self.plan.groups[lane.group], sockets, lane, server, request.kind)
        };
        if servers.clone().any(|server| !self.sockets[place(server, lane, &self.sockets)].has_room()) {
            lane.held = Some(request);
            return false;
        }
        if is_counted {
            group.claimed -= 1;
        }
        let when = When { elapsed_nanos, due_nanos, sent_nanos: now, is_counted };
        let random = lane.random().clone();
        let mut begun = None;
        for server in servers {
            // Whatever is drawn for it, each copy is the same.
            *lane.random() = random.clone();
            let id = place(server, lane, &self.sockets);
            let socket = &mut self.sockets[id];
            let (plan, scratch, tally, begun) = (&self.plan, &mut self.scratch, &mut self.tally, &mut begun);
            let is_answered = socket.ask(|pipeline, output, memory| {
                let lane = &mut *lane;
                Asking { plan, lane, pipeline, output, memory, scratch, tally, when, begun }.ask(&request)
            });
            if is_answered {
                lane.in_flight += 1;
            }
            if !std::mem::replace(&mut socket.is_dirty, true) {
                self.dirty.push(id);
            }
        }
        lane.turn = lane.turn.wrapping_add(1);
        true
    }

    #[inline]
    pub(crate) fn flush_dirty(&mut self) {
        while let Some(id) = self.dirty.pop() {
            self.sockets[id].is_dirty = false;
            self.flush(id);
        }
    }
}

/// Which socket takes a lane's next request to this server.
#[inline]
fn place(
    plan: &Plan,
    group: &GroupPlan,
    sockets: &[Socket],
    lane: &Lane,
    server: usize,
    kind: Kind,
) -> usize {
    let tcp_sockets = group.tcp_sockets(plan.scenario.fill);
    let udp_sockets = group.udp_sockets();
    let first = lane.first_socket + server * (tcp_sockets + udp_sockets);
    if group.goes_by_udp(kind) {
        let mut all = first + tcp_sockets..first + tcp_sockets + udp_sockets;
        all.find(|&id| sockets[id].is_idle()).unwrap_or(first + tcp_sockets)
    } else if tcp_sockets == 1 {
        first
    } else {
        first + lane.turn % tcp_sockets
    }
}

/// A paced loop makes up for no more than this.
const PACE_SLACK_NANOS: u64 = 100_000_000;
/// See [`crate::outcome::Tally::sent_late`].
const LATE_NANOS: u64 = 1_000_000;
