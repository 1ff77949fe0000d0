//! Commands that read before they write, of namespaces whose home is another site (`rmw = "home"`): that site runs
//! them, and no other, so that none is lost.
//!
//! The walk of a command: the worker finds that another site is the key's home, leaves the command in [`Homes`] and
//! parks the connection; a thread ([`ask`]) sends it to the home, over a connection beside that which pulls its log;
//! there a thread runs it ([`mod@run`]) as a worker would; the answer wakes the connection, and the worker executes the
//! command again, with that answer.
//!
//! Large commands have a connection of their own ([`Lane`]): what is short does not wait until they are across.
//! Commands of one client stay in order all the same: each of them is answered before the next one is sent.

mod ask;
mod codec;
mod run;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use larder_policy::{Policy, Rmw, Table};
use larder_protocol::{Command, Error};

pub(super) use self::ask::run;
pub(crate) use self::codec::HomeReply;
use self::codec::{command_bytes, push_head};
pub(super) use self::run::{Order, Runner};
use super::site::lock;
use super::waiters::Waker;
use crate::conn::waiter::Waiter;
use crate::net::worker_pool::WorkerPool;

/// The homes that are other sites, and the commands on their way there.
pub(crate) struct Homes {
    /// This one.
    site: u8,
    /// The homes that are not this one.
    others: BTreeSet<u8>,
    queues: Mutex<BTreeMap<(u8, Lane), Queue>>,
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
    /// Commands of others that came too late, and were not run.
    pub(crate) late: u64,
}

/// Commands for a home that share a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Of at most [`SMALL_BYTES_MAX`].
    Small,
    Large,
}

impl Lane {
    pub(super) const ALL: [Self; 2] = [Self::Small, Self::Large];

    fn of(command_bytes: usize) -> Self {
        if command_bytes <= SMALL_BYTES_MAX { Self::Small } else { Self::Large }
    }
}

#[derive(Default)]
struct Queue {
    /// While it is connected: what wakes the thread that sends.
    waker: Option<Waker>,
    /// The longest command that it takes.
    command_bytes_max: usize,
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
    /// The answer, if it is that to this command, whose value has been sent; `None`: it is under way, or another one's.
    pub(crate) fn answer_to(&self, command: &Command<'_>) -> Option<HomeReply> {
        let mut head = Vec::new();
        push_head(command, &mut head)?;
        let is_of_it =
            self.command.starts_with(&head) && command_bytes(command, head.len()) == self.command.len();
        lock(&self.answer).take_if(|_| is_of_it)
    }

    /// True once there is an answer, until it is taken.
    pub(crate) fn is_answered(&self) -> bool {
        lock(&self.answer).is_some()
    }
}

impl Homes {
    /// For a site; `None`: no namespace has a home.
    pub(crate) fn of(table: Option<&Table>, site: u8) -> Option<Self> {
        let table = table.filter(|_| site != 0)?;
        let homes: BTreeSet<u8> =
            table.numbers().filter_map(|number| home_of(table.policy(number))).collect();
        (!homes.is_empty()).then(|| Self {
            site,
            others: homes.into_iter().filter(|home| *home != site).collect(),
            queues: Mutex::default(),
            pool: OnceLock::new(),
            counts: Mutex::default(),
        })
    }

    /// True if a peer may be the home of some keys; 0: one whose number is not known.
    pub(super) fn may_be(&self, peer: u8) -> bool {
        if peer == 0 { !self.others.is_empty() } else { self.others.contains(&peer) }
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
    pub(crate) fn ask(
        &self,
        home: u8,
        waiter: Waiter,
        command: &Command<'_>,
        value: &[u8],
    ) -> Result<Arc<Asked>, Error> {
        let mut bytes = Vec::new();
        push_head(command, &mut bytes).ok_or(Error::UnknownCommand)?;
        let command_bytes = bytes.len() + value.len();
        let admit = |queue: &Queue| match &queue.waker {
            None => Err(Error::HomeAway),
            Some(_) if command_bytes > queue.command_bytes_max => Err(Error::HomeTooLarge),
            Some(_) if queue.unanswered_bytes >= UNANSWERED_BYTES_MAX => Err(Error::HomeBusy),
            Some(_) => Ok(()),
        };
        let lane = (home, Lane::of(command_bytes));
        let admitted = admit(lock(&self.queues).entry(lane).or_default());
        admitted.inspect_err(|_| self.count(|counts| counts.refused += 1))?;
        // Not with the queues locked: it may be long.
        if bytes.try_reserve_exact(value.len()).is_err() {
            return Err(Error::OutOfMemory);
        }
        bytes.extend_from_slice(value);
        let mut queues = lock(&self.queues);
        let queue = queues.entry(lane).or_default();
        admit(queue).inspect_err(|_| self.count(|counts| counts.refused += 1))?;
        queue.unanswered_bytes += COMMAND_BYTES + command_bytes;
        let (command, since) = (bytes, Instant::now());
        let asked = Arc::new(Asked { waiter, home, command, since, answer: Mutex::new(None) });
        queue.waiting.push_back(Arc::clone(&asked));
        // Who finds one in the queue takes the others, too.
        if queue.waiting.len() == 1
            && let Some(waker) = &queue.waker
        {
            waker.wake();
        }
        Ok(asked)
    }

    /// Takes the next command for a home, of those that share this connection.
    fn take(&self, home: u8, lane: Lane) -> Option<Arc<Asked>> {
        lock(&self.queues).get_mut(&(home, lane))?.waiting.pop_front()
    }

    /// Since when the first of those that have not been taken waits.
    fn waiting_since(&self, home: u8, lane: Lane) -> Option<Instant> {
        Some(lock(&self.queues).get(&(home, lane))?.waiting.front()?.since)
    }

    /// A home can be asked from now on, by one of its connections.
    fn connected(&self, home: u8, lane: Lane, waker: Waker, command_bytes_max: usize) {
        let mut queues = lock(&self.queues);
        let queue = queues.entry((home, lane)).or_default();
        (queue.waker, queue.command_bytes_max) = (Some(waker), command_bytes_max);
    }

    /// A connection to a home is gone: what waits for it is refused.
    fn disconnected(&self, home: u8, lane: Lane) {
        let waiting = {
            let mut queues = lock(&self.queues);
            let queue = queues.entry((home, lane)).or_default();
            queue.waker = None;
            std::mem::take(&mut queue.waiting)
        };
        waiting.iter().for_each(|asked| self.answer(asked, HomeReply::Error(Error::HomeAway)));
    }

    /// Wakes the connection that waits for this.
    fn answer(&self, asked: &Asked, reply: HomeReply) {
        let lane = (asked.home, Lane::of(asked.command.len()));
        if let Some(queue) = lock(&self.queues).get_mut(&lane) {
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

    /// The homes that are other sites, and whether they can be asked, whatever the command.
    pub(crate) fn are_connected(&self) -> Vec<(u8, bool)> {
        let queues = lock(&self.queues);
        let has_lane = |lane: (u8, Lane)| queues.get(&lane).is_some_and(|queue| queue.waker.is_some());
        let is_connected = |home: &u8| Lane::ALL.into_iter().all(|lane| has_lane((*home, lane)));
        self.others.iter().map(|home| (*home, is_connected(home))).collect()
    }
}

/// The home site of a namespace's keys, if it has one.
fn home_of(policy: &Policy) -> Option<u8> {
    policy.home.filter(|_| policy.rmw == Some(Rmw::HomeMaster))
}

/// What a link that is worth having takes in a moment; counters and locks are far smaller.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Of commands that share a connection, and are not answered: beyond that clients are refused.
const UNANSWERED_BYTES_MAX: usize = 16 << 20;
/// What a command takes beside its bytes, about.
const COMMAND_BYTES: usize = 256;
/// A command that is not answered after this time is given up, and the home taken for gone.
const DEADLINE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use larder_protocol::Key;
    use larder_protocol::command::{Mode, Store};

    use super::*;

    pub(super) const WAITER: Waiter = Waiter { worker: 0, connection: 1 };

    pub(super) fn append(key: &'static [u8], value: &[u8]) -> Command<'static> {
        let key = Key::new(key).expect("a key");
        Command::Store(Store { mode: Mode::Append, ..Store::set(key, 0, 0, value.len() as u32) })
    }

    pub(super) fn homes() -> Homes {
        let table = |home: u8| format!("rmw = \"home\"\nhome = {home}\nkeep = \"store\"\nreplicate = true\n");
        let text = format!("[namespace.a]\n{}[namespace.b]\n{}", table(1), table(2));
        Homes::of(Some(&Table::parse(&text).expect("a table")), 1).expect("there are homes")
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let homes = homes();
        assert!(homes.may_be(0) && homes.may_be(2) && !homes.may_be(1) && !homes.may_be(3));
        let ask = |value: &[u8]| homes.ask(2, WAITER, &append(b"b", value), value).map(drop);
        assert_eq!(ask(b"x"), Err(Error::HomeAway));
        homes.connected(2, Lane::Large, Waker::of_nobody(), 8 << 20);
        let large = vec![b'x'; 8 << 20];
        assert_eq!((ask(&large), ask(b"x")), (Err(Error::HomeTooLarge), Err(Error::HomeAway)));
        assert_eq!(homes.are_connected(), [(2, false)]);
        homes.connected(2, Lane::Small, Waker::of_nobody(), 8 << 20);
        assert_eq!(homes.are_connected(), [(2, true)]);
        for length in [7 << 20, 7 << 20, 3 << 20] {
            assert_eq!(ask(&large[..length]), Ok(()));
        }
        // Only what is large waits for what is.
        assert_eq!((ask(&large[..1 << 20]), ask(b"x")), (Err(Error::HomeBusy), Ok(())));
        assert_eq!(homes.counts().refused, 4);
        homes.disconnected(2, Lane::Large);
        assert_eq!(homes.counts().refused, 7);
        assert_eq!((ask(&large[..1 << 20]), ask(b"x")), (Err(Error::HomeAway), Ok(())));
        homes.disconnected(2, Lane::Small);
        assert_eq!((homes.counts().refused, ask(b"x")), (10, Err(Error::HomeAway)));
    }

    #[test]
    fn an_answer_is_for_the_command_that_asked() {
        let homes = homes();
        homes.connected(2, Lane::Small, Waker::of_nobody(), 1 << 20);
        let asked = homes.ask(2, WAITER, &append(b"b", b"xy"), b"xy").expect("it is there");
        assert!(!asked.is_answered() && asked.answer_to(&append(b"b", b"xy")).is_none());
        homes.answer(&homes.take(2, Lane::Small).expect("it waits"), HomeReply::NotStored);
        for other in [append(b"b", b"xyz"), append(b"c", b"xy"), Command::Noop] {
            assert!(asked.is_answered() && asked.answer_to(&other).is_none());
        }
        assert_eq!(asked.answer_to(&append(b"b", b"xy")), Some(HomeReply::NotStored));
        assert!(!asked.is_answered() && asked.answer_to(&append(b"b", b"xy")).is_none());
    }
}
