//! The order in which logins that need an expensive check get it: one at a time, with a pause after each.
//!
//! First come, first served, with two exceptions. A connection on which a password was wrong waits behind those that
//! never tried. Addresses take turns (start-time fair queuing: Goyal, Vin and Cheng, 1996), so that one with many
//! logins delays others by one.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The logins that wait, and the pace of checks.
#[derive(Debug)]
pub(crate) struct LoginQueue {
    waiting: BTreeMap<Rank, Waiter>,
    /// How many wait of each address.
    by_origin: HashMap<Option<IpAddr>, u64>,
    /// The round of the last login that was called.
    round: u64,
    arrivals: u64,
    is_checking: bool,
    /// When the next check may begin; while one runs, when it is likely to end.
    next: Instant,
    /// How long a check takes, as a moving average.
    average: Duration,
}

/// A place in the queue: those that failed behind the others, then by round, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    has_failed: bool,
    round: u64,
    arrival: u64,
}

#[derive(Debug)]
struct Waiter {
    origin: Option<IpAddr>,
    /// When it may ask again.
    called: Instant,
}

/// A connection as the queue sees it. Dropping it leaves the queue.
#[derive(Debug, Default)]
pub(crate) struct LoginAttempt {
    has_failed: bool,
    place: Option<(Arc<Mutex<LoginQueue>>, Rank)>,
}

impl Default for LoginQueue {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            by_origin: HashMap::new(),
            round: 0,
            arrivals: 0,
            is_checking: false,
            next: Instant::now(),
            average: FIRST_CHECK,
        }
    }
}

impl LoginAttempt {
    /// Starts the check if it is this connection's turn; call [`LoginAttempt::finish`] after it. `Err`: when to ask
    /// again. `origin`: the client's address, if it has one.
    pub(crate) fn begin(
        &mut self,
        queue: &Arc<Mutex<LoginQueue>>,
        origin: Option<IpAddr>,
        now: Instant,
    ) -> Result<(), Instant> {
        let mut state = lock(queue);
        let state = &mut *state;
        let is_free = !state.is_checking && now >= state.next;
        let mut rank =
            self.place.as_ref().map(|(_, rank)| *rank).filter(|rank| state.waiting.contains_key(rank));
        if is_free {
            state.drop_late(rank, now);
        }
        if rank.is_none() && !(is_free && state.waiting.is_empty()) {
            rank = state.enter(origin, self.has_failed, now);
            self.place = rank.map(|rank| (Arc::clone(queue), rank));
            if rank.is_none() {
                return Err(state.moment(AHEAD_MAX, now));
            }
        }
        let Some(rank) = rank else {
            state.start(now);
            return Ok(());
        };
        let ahead = state.waiting.range(..rank).take(AHEAD_MAX).count();
        if is_free && ahead == 0 {
            state.remove(rank);
            self.place = None;
            state.round = state.round.max(rank.round);
            state.start(now);
            return Ok(());
        }
        let moment = state.moment(ahead, now);
        if let Some(waiter) = state.waiting.get_mut(&rank) {
            waiter.called = moment;
        }
        Err(moment)
    }

    /// The check that began at `start` has ended.
    pub(crate) fn finish(
        &mut self,
        queue: &Mutex<LoginQueue>,
        is_right: bool,
        start: Instant,
        took: Duration,
    ) {
        self.note(is_right);
        let mut state = lock(queue);
        state.is_checking = false;
        // A thread that loses its core in the midst of a check says nothing of the next.
        state.average = (state.average * 3 + took.min(state.average * 2)) / 4;
        state.next = start + took * (1 + PAUSE_FACTOR);
    }

    /// Remembers whether a password was right.
    pub(crate) fn note(&mut self, is_right: bool) {
        self.has_failed = !is_right;
    }
}

impl Drop for LoginAttempt {
    fn drop(&mut self) {
        if let Some((queue, rank)) = self.place.take() {
            lock(&queue).remove(rank);
        }
    }
}

impl LoginQueue {
    /// A place at the end of its address's. `None`: the queue is full.
    fn enter(&mut self, origin: Option<IpAddr>, has_failed: bool, now: Instant) -> Option<Rank> {
        if self.waiting.len() >= WAITING_MAX {
            return None;
        }
        let origin = origin.map(network);
        let waiting = self.by_origin.entry(origin).or_default();
        let rank = Rank { has_failed, round: self.round + *waiting, arrival: self.arrivals };
        *waiting += 1;
        self.arrivals += 1;
        self.waiting.insert(rank, Waiter { origin, called: now });
        Some(rank)
    }

    fn remove(&mut self, rank: Rank) {
        let Some(Waiter { origin, .. }) = self.waiting.remove(&rank) else { return };
        if let Some(waiting) = self.by_origin.get_mut(&origin) {
            *waiting -= 1;
            if *waiting == 0 {
                self.by_origin.remove(&origin);
            }
        }
    }

    /// Removes those before `rank` that were called and did not come: their clients may take no replies, and must not
    /// hold up the queue. They go to its end when they come.
    fn drop_late(&mut self, rank: Option<Rank>, now: Instant) {
        while let Some((&first, waiter)) = self.waiting.first_key_value()
            && Some(first) != rank
            && now.saturating_duration_since(waiter.called) > GRACE
        {
            self.remove(first);
        }
    }

    fn start(&mut self, now: Instant) {
        self.is_checking = true;
        self.next = now + self.average * (1 + PAUSE_FACTOR);
    }

    /// When a login with `ahead` others before it should ask again. With many ahead it asks more than once, because the
    /// duration of checks may change.
    fn moment(&self, ahead: usize, now: Instant) -> Instant {
        let slots = u32::try_from(ahead).unwrap_or(u32::MAX);
        // A check that is running may take longer than those before.
        self.next.max(now + RETRY) + self.average * (1 + PAUSE_FACTOR) * slots
    }
}

/// An IPv6 host usually has a /64 (RFC 6177).
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
    }
}

fn lock(queue: &Mutex<LoginQueue>) -> MutexGuard<'_, LoginQueue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pause after an expensive check, as a multiple of its duration.
const PAUSE_FACTOR: u32 = 4;
/// The assumed duration of the first expensive check.
const FIRST_CHECK: Duration = Duration::from_millis(5);
/// How long to wait for a check that takes longer than the last one.
const RETRY: Duration = Duration::from_millis(1);
/// How late the first may come before the next goes: longer than a worker is busy with others.
const GRACE: Duration = Duration::from_millis(20);
/// Places in the queue. A login beyond that tries again.
const WAITING_MAX: usize = 1024;
/// No estimate reaches further than so many checks.
const AHEAD_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = FIRST_CHECK;

    struct Clock {
        queue: Arc<Mutex<LoginQueue>>,
        now: Instant,
    }

    impl Clock {
        /// A check runs, so all others wait.
        fn busy() -> (Self, LoginAttempt) {
            let now = Instant::now() + Duration::from_secs(1);
            let clock = Self { queue: Arc::default(), now };
            let mut first = LoginAttempt::default();
            assert_eq!(first.begin(&clock.queue, None, now), Ok(()));
            (clock, first)
        }

        fn wait(&self, attempt: &mut LoginAttempt, origin: u8) {
            assert!(attempt.begin(&self.queue, address(origin), self.now).is_err());
        }

        /// Ends the check that runs, and lets all ask in the order given until all have had theirs. The order in which
        /// they had it.
        fn serve(&mut self, mut running: LoginAttempt, waiting: &mut [(u8, LoginAttempt)]) -> Vec<usize> {
            running.finish(&self.queue, false, self.now, TOOK);
            let mut order = Vec::new();
            for _ in 0..waiting.len() {
                self.now += TOOK * (1 + PAUSE_FACTOR);
                let mut served = None;
                for (number, (origin, attempt)) in waiting.iter_mut().enumerate() {
                    if order.contains(&number) {
                        continue;
                    }
                    if attempt.begin(&self.queue, address(*origin), self.now).is_ok() {
                        assert!(served.is_none(), "two at a time");
                        served = Some(number);
                    }
                }
                let number = served.expect("somebody's turn");
                waiting[number].1.finish(&self.queue, true, self.now, TOOK);
                order.push(number);
            }
            order
        }
    }

    fn address(origin: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, origin]))
    }

    #[test]
    fn first_come_first_served() {
        let (mut clock, running) = Clock::busy();
        let mut waiting: Vec<_> = (0..20).map(|_| (1, LoginAttempt::default())).collect();
        for (_, attempt) in waiting.iter_mut().rev() {
            clock.wait(attempt, 1);
        }
        let expected: Vec<_> = (0..20).rev().collect();
        assert_eq!(clock.serve(running, &mut waiting), expected);
        let queue = lock(&clock.queue);
        assert!(queue.waiting.is_empty() && queue.by_origin.is_empty());
    }

    #[test]
    fn failed_logins_wait_behind_new_ones() {
        let (mut clock, running) = Clock::busy();
        let mut waiting: Vec<_> = (0..4).map(|_| (1, LoginAttempt::default())).collect();
        waiting[0].1.note(false);
        waiting[1].1.note(false);
        for (origin, attempt) in &mut waiting {
            clock.wait(attempt, *origin);
        }
        assert_eq!(clock.serve(running, &mut waiting), [2, 3, 0, 1]);
    }

    #[test]
    fn addresses_take_turns() {
        let (mut clock, running) = Clock::busy();
        let mut waiting: Vec<_> =
            [1, 1, 1, 1, 2, 2, 3].map(|origin| (origin, LoginAttempt::default())).into();
        for (origin, attempt) in &mut waiting {
            clock.wait(attempt, *origin);
        }
        assert_eq!(clock.serve(running, &mut waiting), [0, 4, 6, 1, 5, 2, 3]);
    }

    #[test]
    fn a_login_that_leaves_or_is_late_delays_no_other() {
        let (mut clock, mut running) = Clock::busy();
        let [mut gone, mut late, mut third] = [(); 3].map(|()| LoginAttempt::default());
        for attempt in [&mut gone, &mut late, &mut third] {
            clock.wait(attempt, 1);
        }
        drop(gone);
        running.finish(&clock.queue, false, clock.now, TOOK);
        clock.now += TOOK * (1 + PAUSE_FACTOR);
        assert!(third.begin(&clock.queue, address(1), clock.now).is_err(), "the second is before it");
        clock.now += 10 * TOOK * (1 + PAUSE_FACTOR);
        assert_eq!(third.begin(&clock.queue, address(1), clock.now), Ok(()));
        clock.wait(&mut late, 1);
        third.finish(&clock.queue, true, clock.now, TOOK);
        clock.now += TOOK * (1 + PAUSE_FACTOR);
        assert_eq!(late.begin(&clock.queue, address(1), clock.now), Ok(()));
    }

    #[test]
    fn the_queue_is_bounded() {
        let (clock, _running) = Clock::busy();
        let mut waiting: Vec<_> = (0..WAITING_MAX + 10).map(|_| LoginAttempt::default()).collect();
        for attempt in &mut waiting {
            clock.wait(attempt, 1);
        }
        assert_eq!(lock(&clock.queue).waiting.len(), WAITING_MAX);
        assert!(waiting[WAITING_MAX].place.is_none());
        waiting.remove(0);
        clock.wait(&mut waiting[WAITING_MAX], 1);
        assert!(waiting[WAITING_MAX].place.is_some());
    }

    #[test]
    fn a_network_is_one_origin() {
        let [one, other]: [IpAddr; 2] =
            ["2001:db8::1", "2001:db8::ffff:1"].map(|text| text.parse().expect("an address"));
        assert_eq!(network(one), network(other));
        assert_ne!(network(one), network("2001:db8:0:1::1".parse().expect("an address")));
    }
}
