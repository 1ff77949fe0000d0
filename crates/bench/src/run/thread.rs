//! A load thread: one epoll loop, its own lanes and sockets, its own tally. [`dispatch`] says who asks next; what fails
//! and how it ends is in [`upkeep`](super::upkeep).

mod connect;
mod dispatch;
mod group;
mod periods;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use fastrand::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::time::{ClockId, clock_gettime};

use super::answer::Answering;
use super::ask::Scratch;
use super::control::{Control, Order, Report, Reports};
use super::lane::Lane;
use super::mix;
use super::plan::Plan;
use super::schedule::Schedule;
use super::socket::{Lost, Socket};
use super::tally::ThreadTally;
use super::verify::Judge;

use group::GroupState;
use periods::Periods;

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

    /// When the load began, warm-up and all, on the clock of the run.
    load_nanos: u64,
    pub(super) periods: Periods,
    pub(super) sweep_nanos: u64,
    pub(super) last_nanos: u64,
    pub(super) is_ending: bool,
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
            groups.push(GroupState::new(group.group.arrival));
        }
        let active = lanes.len();
        let periods = Periods::new(plan.scenario.period_secs);
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
            load_nanos: 0,
            periods,
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
            if !self.periods.is_set() && self.control.begin_nanos() != u64::MAX {
                self.begin();
                cpu_at_begin = thread_cpu_secs();
            }
            if let Some(over) = self.periods.over(now) {
                self.send_period(over);
            }
            if !self.is_ending
                && (now >= self.periods.end_nanos || self.control.is_stopped() || self.is_through())
            {
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
            match self.wait(&mut events, timeout) {
                Ok(()) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                self.serve(event.data.u64() as usize, event.flags);
            }
        }
        self.send_period(self.periods.count + 1);
        Ok(thread_cpu_secs() - cpu_at_begin)
    }

    /// Waits for events. `epoll_wait` rounds the timeout up to milliseconds, which would send due requests late.
    fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Timespec) -> rustix::io::Result<()> {
        let mut rest = timeout;
        if self.groups.iter().any(|group| group.schedule.is_some()) {
            poll(&mut [PollFd::new(&self.poll, PollFlags::IN)], Some(&timeout))?;
            rest = Timespec { tv_sec: 0, tv_nsec: 0 };
        }
        epoll::wait(&self.poll, rustix::buffer::spare_capacity(events), Some(&rest)).map(drop)
    }

    /// Nothing is left to be asked.
    fn is_through(&self) -> bool {
        self.active == 0 || self.plan.scenario.until.trace_ends && self.control.traces_ended()
    }

    /// The warm-up is over: counting begins. What failed until now counts as well.
    fn begin(&mut self) {
        self.periods.begin_nanos = self.control.begin_nanos();
        self.periods.end_nanos = self.control.end_nanos();
        self.tally.keep_failures();
        self.start_groups(self.periods.begin_nanos);
    }

    /// Begins every group's load at `nanos`: once for the warm-up, once for the run.
    fn start_groups(&mut self, nanos: u64) {
        let plan = self.plan.clone();
        // A ramp begins with the run.
        let ramp_secs = plan.scenario.until.secs.filter(|_| self.periods.is_set());
        for (at, group) in plan.groups.iter().enumerate() {
            let mine = self.lanes.iter().filter(|lane| lane.group == at).count();
            let share = mine as f64 / group.group.connections as f64;
            let mut random = Rng::with_seed(mix(plan.scenario.seed ^ mix(at as u64 + 1)) ^ self.index as u64);
            let offset = (self.index as f64 + random.f64()) / plan.threads as f64;
            self.groups[at].schedule =
                Schedule::of(group.group.arrival, share, ramp_secs, offset, nanos, random);
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
            begin_nanos: self.periods.begin_nanos,
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

    #[inline]
    pub(super) fn flush(&mut self, id: usize) {
        match self.sockets[id].flush(&self.poll, id) {
            Ok(sent) => self.tally.rest.sent_bytes += sent as u64,
            Err(error) => self.lose(id, &Lost::closed(error)),
        }
    }

    /// How long nothing is to be done unless an answer comes.
    fn wait_nanos(&self, now: u64) -> u64 {
        if self.periods.is_between(now) {
            return self.periods.begin_nanos - now;
        }
        if !self.eager.is_empty() {
            return 0;
        }
        let mut next = self.sweep_nanos;
        if !self.is_ending {
            next = next.min(self.periods.end_nanos).min(self.periods.next_nanos());
            next = self.groups.iter().map(GroupState::next_nanos).fold(next, u64::min);
        }
        next.saturating_sub(now).min(if self.periods.is_set() { u64::MAX } else { WARM_UP_WAIT_NANOS })
    }

    /// Hands over what was counted since the last period was; `over` of them are over now.
    fn send_period(&mut self, over: usize) {
        let empty = self.returned.try_recv().unwrap_or_default();
        let tally = std::mem::replace(&mut self.tally, empty);
        let index = std::mem::replace(&mut self.periods.count, over);
        // Nobody listens: see `run`.
        let _ = self.reports.send(Report::Period { thread: self.index, index, periods: over, tally });
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
