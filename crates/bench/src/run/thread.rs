//! A load thread: one epoll loop, its own lanes and sockets, its own tally.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use fastrand::Rng;
use rustix::event::{Timespec, epoll};
use rustix::time::{ClockId, clock_gettime};

use super::RunError;
use super::answer::Answering;
use super::ask::{Asking, Scratch, When};
use super::control::{Control, Order, Report, Reports};
use super::lane::Lane;
use super::mix;
use super::plan::{GroupPlan, Plan};
use super::schedule::Schedule;
use super::socket::{Lost, Socket};
use super::tally::ThreadTally;
use super::verify::Judge;
use crate::scenario::{Arrival, Kind, Spacing};

/// All that one thread has.
pub(crate) struct Thread {
    index: usize,
    pub(super) plan: Arc<Plan>,
    pub(super) control: Arc<Control>,
    pub(super) reports: Reports,
    /// Tallies that the main thread has read.
    returned: Receiver<Box<ThreadTally>>,

    pub(super) poll: OwnedFd,
    pub(super) lanes: Vec<Lane>,
    pub(super) sockets: Vec<Socket>,
    pub(super) groups: Vec<GroupState>,

    pub(super) tally: Box<ThreadTally>,
    scratch: Scratch,
    pub(super) check_scratch: Vec<u8>,
    pub(super) input: Box<[u8]>,
    /// Sockets with something to send.
    pub(super) dirty: Vec<usize>,
    /// Lanes that may ask more although nothing will be answered to them.
    eager: Vec<usize>,
    /// Lanes that are not done.
    pub(super) active: usize,

    period_nanos: u64,
    /// See [`Control`].
    load_nanos: u64,
    begin_nanos: u64,
    pub(super) end_nanos: u64,
    /// Periods handed over.
    periods: usize,
    pub(super) sweep_nanos: u64,
    pub(super) last_nanos: u64,
    pub(super) is_ending: bool,
}

/// What a thread has of a group.
pub(super) struct GroupState {
    pub(super) schedule: Option<Schedule>,
    /// With a schedule: lanes that have room, in the order in which they got it.
    ready: VecDeque<usize>,
    /// Requests that may be asked without claiming more.
    claimed: u64,
    pub(super) is_open: bool,
}

impl Thread {
    /// Thread `index`, with every n-th lane of each group.
    pub(crate) fn new(
        index: usize,
        plan: Arc<Plan>,
        control: Arc<Control>,
        reports: Reports,
        returned: Receiver<Box<ThreadTally>>,
    ) -> io::Result<Self> {
        let mut lanes = Vec::new();
        let mut sockets = Vec::new();
        let mut groups = Vec::new();
        let mut counter = 0;
        for (at, group) in plan.groups.iter().enumerate() {
            for lane in 0..group.group.connections {
                let mine = counter % plan.threads == index;
                counter += 1;
                if !mine {
                    continue;
                }
                let id = lanes.len();
                lanes.push(Lane::new(&plan, at, lane, sockets.len()));
                for server in 0..plan.servers() {
                    let tcp_sockets = group.tcp_sockets(plan.scenario.fill);
                    for socket in 0..tcp_sockets + group.udp_sockets() {
                        let is_udp = socket >= tcp_sockets;
                        sockets.push(Socket::new(id, server, group.group.protocol, is_udp));
                    }
                }
            }
            groups.push(GroupState {
                schedule: None,
                ready: VecDeque::new(),
                claimed: 0,
                is_open: matches!(group.group.arrival, Arrival::Open { .. }),
            });
        }
        let active = lanes.len();
        let period_nanos = (plan.scenario.period_secs * 1e9) as u64;
        Ok(Self {
            index,
            plan,
            control,
            reports,
            returned,
            poll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            lanes,
            sockets,
            groups,
            tally: Box::default(),
            scratch: Scratch::new(),
            check_scratch: Vec::new(),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            dirty: Vec::new(),
            eager: Vec::new(),
            active,
            period_nanos,
            load_nanos: 0,
            begin_nanos: u64::MAX,
            end_nanos: u64::MAX,
            periods: 0,
            sweep_nanos: 0,
            last_nanos: 0,
            is_ending: false,
        })
    }

    /// Connects, and does what it is told. Ends when the main thread is gone, too.
    pub(crate) fn run(mut self, orders: &Receiver<Order>) {
        let reports = self.reports.clone();
        let report = |report| {
            // Nobody listens: the run has failed elsewhere, and this thread ends with the next order.
            let _ = reports.send(report);
        };
        match self.connect() {
            Ok(()) => report(Report::Connected),
            Err(error) => return report(Report::Failed(error)),
        }
        while let Ok(order) = orders.recv() {
            match order {
                Order::Fill => match self.fill() {
                    Ok(()) => report(Report::FillDone),
                    Err(error) => return report(Report::Failed(error)),
                },
                Order::Load => match self.load() {
                    Ok(cpu_secs) => {
                        return report(Report::Finished {
                            thread: self.index,
                            last_nanos: self.last_nanos,
                            cpu_secs,
                        });
                    }
                    Err(error) => return report(Report::Failed(error.into())),
                },
            }
        }
    }

    fn connect(&mut self) -> Result<(), RunError> {
        for id in 0..self.sockets.len() {
            self.open(id).map_err(|error| {
                let address = self.address(id).into();
                RunError::Server { address, reason: error.to_string() }
            })?;
        }
        Ok(())
    }

    /// Asks until the end, and waits for the answers. CPU seconds since counting began.
    fn load(&mut self) -> io::Result<f64> {
        // Timers are to be exact: a schedule lives on them.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        self.load_nanos = self.control.now_nanos();
        self.sweep_nanos = self.load_nanos + SWEEP_NANOS;
        self.start_groups(self.load_nanos);
        let mut cpu_at_begin = thread_cpu_secs();
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let mut now = self.control.now_nanos();
            if self.begin_nanos == u64::MAX && self.control.begin_nanos() != u64::MAX {
                self.begin();
                cpu_at_begin = thread_cpu_secs();
            }
            self.hand_over(now);
            if !self.is_ending && (now >= self.end_nanos || self.control.is_stopped() || self.is_through()) {
                self.end(now);
            }
            if self.is_ending && self.sockets.iter().all(Socket::is_idle) {
                break;
            }
            if now >= self.sweep_nanos {
                self.sweep(now);
                now = self.control.now_nanos();
            }
            self.ask_eager(now);
            self.ask_scheduled(now);

            let timeout = self.wait_nanos(now);
            let timeout = Timespec {
                tv_sec: (timeout / 1_000_000_000) as i64,
                tv_nsec: (timeout % 1_000_000_000) as i64,
            };
            events.clear();
            match epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                self.serve(event.data.u64() as usize, event.flags);
            }
        }
        self.send_period(self.periods + 1);
        Ok(thread_cpu_secs() - cpu_at_begin)
    }

    /// Nothing is left to be asked.
    fn is_through(&self) -> bool {
        self.active == 0 || self.plan.scenario.until.trace_ends && self.control.traces_ended()
    }

    /// The warm-up is over: counting begins. What failed until now counts as well.
    fn begin(&mut self) {
        self.begin_nanos = self.control.begin_nanos();
        self.end_nanos = self.control.end_nanos();
        self.tally.keep_failures();
        self.start_groups(self.begin_nanos);
    }

    /// Begins every group's load at `nanos`: once for the warm-up, once for the run.
    fn start_groups(&mut self, nanos: u64) {
        let plan = self.plan.clone();
        for (at, group) in plan.groups.iter().enumerate() {
            let mine = self.lanes.iter().filter(|lane| lane.group == at).count();
            let share = mine as f64 / group.group.connections as f64;
            let mut random = Rng::with_seed(mix(plan.scenario.seed ^ mix(at as u64 + 1)) ^ self.index as u64);
            let offset = (self.index as f64 + random.f64()) / plan.threads as f64;
            self.groups[at].schedule = match group.group.arrival {
                _ if mine == 0 => None,
                Arrival::Closed => None,
                Arrival::Paced { rate_per_sec } => {
                    Some(Schedule::new(rate_per_sec * share, None, Spacing::Even, offset, nanos, random))
                }
                Arrival::Open { rate_per_sec, rate_end_per_sec, spacing } => {
                    let ramp = rate_end_per_sec.filter(|_| self.begin_nanos != u64::MAX);
                    let ramp = ramp.map(|rate| rate * share).zip(plan.scenario.until.secs);
                    Some(Schedule::new(rate_per_sec * share, ramp, spacing, offset, nanos, random))
                }
            };
        }
        for lane in 0..self.lanes.len() {
            self.wake(lane);
        }
    }

    /// A socket can be read or written.
    fn serve(&mut self, id: usize, flags: epoll::EventFlags) {
        if flags.contains(epoll::EventFlags::OUT) {
            self.flush(id);
        }
        if !flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            return self.refill(self.sockets[id].lane);
        }
        let socket = &mut self.sockets[id];
        let lane = &mut self.lanes[socket.lane];
        let mut answering = Answering {
            group: &self.plan.groups[lane.group],
            begin_nanos: self.begin_nanos,
            is_open: self.groups[lane.group].is_open,
            lane,
            tally: &mut self.tally,
            judge: Judge { truth: self.plan.truth(), now_nanos: 0, scratch: &mut self.check_scratch },
        };
        loop {
            let received = socket.receive(&mut self.input, &self.control, |memory, now, front, event| {
                answering.take(memory, now, front, event);
            });
            answering.tally.rest.received_bytes += std::mem::take(&mut socket.received_bytes);
            answering.tally.rest.datagrams_disordered += socket.take_disordered();
            let received = match received {
                Ok(received) => received,
                Err(lost) => return self.lose(id, &lost),
            };
            if let Some(now) = received.answered_nanos {
                self.last_nanos = now;
                socket.patience_nanos = 0;
            }
            // What holds more says so with every piece; nothing at all is the end.
            if !received.may_hold_more {
                break;
            }
        }
        let lane = socket.lane;
        self.renew_if_worn(id);
        self.refill(lane);
    }

    /// Lets a lane ask as much as it has room for.
    #[inline]
    fn refill(&mut self, id: usize) {
        let now = self.control.now_nanos();
        if self.groups[self.lanes[id].group].schedule.is_some() {
            while !self.lanes[id].follow_ups.is_empty() && self.ask(id, now, now) {}
            self.queue(id);
        } else {
            // A whole batch at a time, as soon as the last one is answered: topped up one by one, batches would wear down to
            // single requests, and cost a system call each.
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
    pub(super) fn wake(&mut self, id: usize) {
        if self.lanes[id].in_flight == 0 || self.groups[self.lanes[id].group].schedule.is_some() {
            self.queue(id);
        }
    }

    /// Puts a lane that has room among those that may ask.
    #[inline]
    fn queue(&mut self, id: usize) {
        let lane = &mut self.lanes[id];
        let group = &mut self.groups[lane.group];
        let has_room = lane.in_flight < self.plan.groups[lane.group].group.pipeline;
        if lane.is_queued || lane.is_done || !has_room {
            return;
        }
        lane.is_queued = true;
        if group.schedule.is_some() { group.ready.push_back(id) } else { self.eager.push(id) }
    }

    /// Lanes of a closed loop that wait for no answer.
    #[inline]
    fn ask_eager(&mut self, now: u64) {
        if self.eager.is_empty() || now < self.begin_nanos && self.begin_nanos != u64::MAX {
            return;
        }
        for id in std::mem::take(&mut self.eager) {
            self.lanes[id].is_queued = false;
            self.refill(id);
        }
    }

    /// Asks what is due by now.
    #[inline]
    fn ask_scheduled(&mut self, now: u64) {
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
                let due = if group.is_open { due } else { now };
                self.lanes[lane].is_queued = false;
                if !self.ask(lane, due, now) {
                    continue;
                }
                if now - due > LATE_NANOS && due >= self.begin_nanos {
                    self.tally.rest.sent_late += 1;
                }
                if let Some(schedule) = &mut self.groups[at].schedule {
                    schedule.take();
                }
                self.queue(lane);
            }
        }
        self.flush_dirty();
    }

    /// A lane asks one request. `false`: it has none, or cannot send it now.
    #[inline]
    fn ask(&mut self, lane_id: usize, due_nanos: u64, now: u64) -> bool {
        let lane = &mut self.lanes[lane_id];
        let group = &mut self.groups[lane.group];
        if lane.is_done {
            return false;
        }
        let is_counted = now >= self.begin_nanos;
        let group_plan = &self.plan.groups[lane.group];
        // A trace has one beginning: the warm-up plays none of it.
        if !is_counted && group_plan.recording.is_some() {
            return false;
        }
        if is_counted && group.claimed == 0 {
            let wanted = self.control.claim_size(lane.group, self.plan.threads);
            group.claimed = self.control.claim(lane.group, wanted);
            if group.claimed == 0 {
                lane.is_done = true;
                self.active -= 1;
                return false;
            }
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
    pub(super) fn flush_dirty(&mut self) {
        while let Some(id) = self.dirty.pop() {
            self.sockets[id].is_dirty = false;
            self.flush(id);
        }
    }

    #[inline]
    pub(super) fn flush(&mut self, id: usize) {
        match self.sockets[id].flush(&self.poll, id) {
            Ok(sent) => self.tally.rest.sent_bytes += sent as u64,
            Err(error) => self.lose(id, &Lost::closed(error)),
        }
    }

    /// How long nothing is to be done unless an answer comes.
    fn wait_nanos(&self, now: u64) -> u64 {
        if now < self.begin_nanos && self.begin_nanos != u64::MAX {
            return self.begin_nanos - now;
        }
        if !self.eager.is_empty() {
            return 0;
        }
        let mut next = self.sweep_nanos.min(self.end_nanos).min(self.period_end());
        for group in &self.groups {
            if let Some(schedule) = &group.schedule
                && !group.ready.is_empty()
            {
                next = next.min(schedule.next_nanos());
            }
        }
        let next = if self.is_ending { self.sweep_nanos } else { next };
        next.saturating_sub(now).min(if self.begin_nanos == u64::MAX { WARM_UP_WAIT_NANOS } else { u64::MAX })
    }

    /// Hands the tally over when a period is over.
    #[inline]
    fn hand_over(&mut self, now: u64) {
        if now >= self.period_end() && self.periods < self.last_period() {
            let periods = ((now - self.begin_nanos) / self.period_nanos) as usize;
            self.send_period(periods.min(self.last_period()));
        }
    }

    fn period_end(&self) -> u64 {
        self.begin_nanos.saturating_add(self.period_nanos.saturating_mul(self.periods as u64 + 1))
    }

    /// What is answered after the end belongs to the last period.
    fn last_period(&self) -> usize {
        match self.end_nanos {
            u64::MAX => usize::MAX,
            end => (end - self.begin_nanos).div_ceil(self.period_nanos) as usize - 1,
        }
    }

    /// Hands over what was counted since the last period was; `periods` are over now.
    fn send_period(&mut self, periods: usize) {
        let empty = self.returned.try_recv().unwrap_or_default();
        let tally = std::mem::replace(&mut self.tally, empty);
        let index = std::mem::replace(&mut self.periods, periods);
        // Nobody listens: see `run`.
        let _ = self.reports.send(Report::Period { thread: self.index, index, periods, tally });
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

/// What the kernel has counted for this thread.
fn thread_cpu_secs() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

const INPUT_BYTES: usize = 256 << 10;
const EVENTS_MAX: usize = 1024;
/// How often timeouts and closed sockets are looked at.
pub(super) const SWEEP_NANOS: u64 = 50_000_000;
/// So often the end of the warm-up is looked for.
const WARM_UP_WAIT_NANOS: u64 = 5_000_000;
/// A paced loop makes up for no more than this.
const PACE_SLACK_NANOS: u64 = 100_000_000;
/// See [`crate::outcome::Tally::sent_late`].
const LATE_NANOS: u64 = 1_000_000;
