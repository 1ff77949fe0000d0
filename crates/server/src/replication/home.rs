//! Commands that read before they write, of namespaces whose home is another site (`rmw = "home"`): that site runs
//! them, and no other, so that none is lost.
//!
//! The walk of a command: the worker finds that another site is the key's home, leaves the command in [`Homes`] and
//! parks the connection; a thread ([`ask`]) sends it to the home, over a connection beside that which pulls its log;
//! there a thread runs it ([`run`]) as a worker would; the answer wakes the connection, and the worker executes the
//! command again, with that answer.

mod ask;
mod codec;
mod run;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use larder_policy::{Policy, Rmw, Table};
use larder_protocol::Error;

pub(super) use self::ask::run;
pub(crate) use self::codec::{HomeReply, encode_command};
pub(super) use self::run::Runner;
use super::site::lock;
use crate::conn::waiter::Waiter;
use crate::net::worker_pool::WorkerPool;

/// The homes that are other sites, and the commands on their way there.
pub(crate) struct Homes {
    /// This one.
    site: u8,
    /// By site.
    queues: Mutex<BTreeMap<u8, Queue>>,
    /// Something was queued.
    wake: Condvar,
    /// Set before the first request.
    pool: OnceLock<Arc<WorkerPool>>,
    counts: Mutex<Counts>,
}

/// Since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Commands that homes answered.
    pub(crate) answered: u64,
    /// Commands that were refused, and not run.
    pub(crate) refused: u64,
    /// Commands of which nobody knows whether they were run.
    pub(crate) silent: u64,
    /// Commands that this site ran for others.
    pub(crate) run: u64,
}

#[derive(Default)]
struct Queue {
    is_connected: bool,
    /// Of commands that are not answered.
    unanswered_bytes: usize,
    waiting: VecDeque<Arc<Asked>>,
}

/// A command on its way, of a connection that is parked.
pub(crate) struct Asked {
    waiter: Waiter,
    home: u8,
    command: Vec<u8>,
    since: Instant,
    answer: Mutex<Option<HomeReply>>,
}

impl Asked {
    /// The answer; `None`: it is under way.
    pub(crate) fn take_answer(&self) -> Option<Answer> {
        let reply = lock(&self.answer).take()?;
        Some(Answer { command: self.command.clone(), reply })
    }
}

/// The answer to a command.
pub(crate) struct Answer {
    pub(crate) command: Vec<u8>,
    pub(crate) reply: HomeReply,
}

impl Homes {
    /// For a site; `None`: no namespace has a home.
    pub(crate) fn of(table: Option<&Table>, site: u8) -> Option<Self> {
        let table = table.filter(|_| site != 0)?;
        table.numbers().any(|number| home_of(table.policy(number)).is_some()).then(|| Self {
            site,
            queues: Mutex::default(),
            wake: Condvar::new(),
            pool: OnceLock::new(),
            counts: Mutex::default(),
        })
    }

    /// Whom to wake by; once, before the first request.
    pub(super) fn set_pool(&self, pool: &Arc<WorkerPool>) {
        let _ = self.pool.set(Arc::clone(pool));
    }

    /// The home that a policy names, if that is another site.
    pub(crate) fn other_home(&self, policy: &Policy) -> Option<u8> {
        home_of(policy).filter(|home| *home != self.site)
    }

    /// Leaves a command for its home. Errors: what to answer instead.
    pub(crate) fn ask(&self, home: u8, waiter: Waiter, command: Vec<u8>) -> Result<Arc<Asked>, Error> {
        let mut queues = lock(&self.queues);
        let queue = queues.entry(home).or_default();
        let refused = match queue.is_connected {
            false => Some(Error::HomeAway),
            true if queue.unanswered_bytes >= UNANSWERED_BYTES_MAX => Some(Error::HomeBusy),
            true => None,
        };
        if let Some(error) = refused {
            drop(queues);
            self.count(|counts| counts.refused += 1);
            return Err(error);
        }
        queue.unanswered_bytes += COMMAND_BYTES + command.len();
        let asked =
            Arc::new(Asked { waiter, home, command, since: Instant::now(), answer: Mutex::new(None) });
        queue.waiting.push_back(Arc::clone(&asked));
        self.wake.notify_all();
        Ok(asked)
    }

    /// Takes what waits for a home. Waits so long for it.
    fn take(&self, home: u8, timeout: Duration) -> VecDeque<Arc<Asked>> {
        let is_idle =
            |queues: &mut BTreeMap<u8, Queue>| queues.get(&home).is_none_or(|queue| queue.waiting.is_empty());
        let queues = lock(&self.queues);
        let waited = self.wake.wait_timeout_while(queues, timeout, is_idle);
        let (mut queues, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queues.get_mut(&home).map(|queue| std::mem::take(&mut queue.waiting)).unwrap_or_default()
    }

    /// The connection to a home is there, or gone: then what waits is refused.
    fn set_connected(&self, home: u8, is_connected: bool) {
        let waiting = {
            let mut queues = lock(&self.queues);
            let queue = queues.entry(home).or_default();
            queue.is_connected = is_connected;
            if is_connected { VecDeque::new() } else { std::mem::take(&mut queue.waiting) }
        };
        waiting.iter().for_each(|asked| self.answer(asked, HomeReply::Error(Error::HomeAway)));
    }

    /// Wakes the connection that waits for this.
    fn answer(&self, asked: &Asked, reply: HomeReply) {
        if let Some(queue) = lock(&self.queues).get_mut(&asked.home) {
            queue.unanswered_bytes =
                queue.unanswered_bytes.saturating_sub(COMMAND_BYTES + asked.command.len());
        }
        *lock(&asked.answer) = Some(reply);
        self.count(|counts| match reply {
            HomeReply::Error(Error::HomeAway | Error::HomeBusy) => counts.refused += 1,
            HomeReply::Error(Error::HomeSilent) => counts.silent += 1,
            _ => counts.answered += 1,
        });
        if let Some(pool) = self.pool.get() {
            pool.signal(asked.waiter);
        }
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut lock(&self.counts));
    }

    /// What became of the commands.
    pub(crate) fn counts(&self) -> Counts {
        *lock(&self.counts)
    }

    /// The sites that can be asked, and those that could.
    pub(crate) fn connected(&self) -> Vec<(u8, bool)> {
        lock(&self.queues).iter().map(|(site, queue)| (*site, queue.is_connected)).collect()
    }
}

/// The home site of a namespace's keys, if it has one.
fn home_of(policy: &Policy) -> Option<u8> {
    policy.home.filter(|_| policy.rmw == Some(Rmw::HomeMaster))
}

/// Of commands for a home that are not answered: beyond that clients are refused.
const UNANSWERED_BYTES_MAX: usize = 16 << 20;
/// What a command takes beside its bytes, about.
const COMMAND_BYTES: usize = 256;
/// A home that does not answer for so long is taken for gone.
const DEADLINE: Duration = Duration::from_secs(5);
