//! Sending commands to a home.
//!
//! Each command has a last moment on the home's own clock ([`HomeClock`]): what this site has given up is not run
//! afterwards. Nothing here waits for the home to take what is sent, so one that stands still is given up in time.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_protocol::Error;
use larder_replication::link::{Subscriber, SubscriberAction};
use larder_replication::wire::Side;

use super::{Asked, DEADLINE, HomeReply, Homes, Lane};
use crate::replication::Site;
use crate::replication::outgoing::Outgoing;
use crate::replication::peers::PeerAddress;
use crate::replication::stream::{INPUT_BYTES, keep_connected};
use crate::replication::waiters::{Until, Waiter};
use crate::shared::Shared;

/// Sends commands to a peer whose home it is, those of a lane, until the site stops or the peer is none any more.
pub(in crate::replication) fn run(
    peer: &PeerAddress<'_>,
    lane: Lane,
    shared: &Shared,
    site: &Site,
    homes: &Homes,
) {
    let address = peer.address;
    // The site that was last there.
    let mut met = 0;
    keep_connected(peer, site, || {
        let known = match site.site_at(address) {
            0 => met,
            known => known,
        };
        if !homes.may_be(known) {
            return false;
        }
        let mut asker = Asker { peer, lane, homes, home: 0, clock: None, number: 0, sent: BTreeMap::new() };
        if let Err(error) = asker.serve(shared, site)
            && !site.is_stopping()
        {
            tracing::info!(address, "no commands go to the peer: {error}");
        }
        met = asker.home;
        let was_connected = asker.clock.is_some();
        asker.end();
        was_connected
    });
}

/// A connection to a home.
struct Asker<'a> {
    peer: &'a PeerAddress<'a>,
    lane: Lane,
    homes: &'a Homes,
    /// 0: not known yet.
    home: u8,
    /// Once it takes commands.
    clock: Option<HomeClock>,
    /// Of the last command.
    number: u64,
    /// Commands that are not answered yet, by their numbers.
    sent: BTreeMap<u64, Arc<Asked>>,
}

/// What a home's clock said, and when that arrived here. It was said before: so the home's clock is ahead of what is
/// computed from here, never behind.
#[derive(Clone, Copy)]
struct HomeClock {
    micros: u64,
    heard: Instant,
}

impl HomeClock {
    /// No later than the home's clock at this moment.
    fn at(self, moment: Instant) -> u64 {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        match moment.checked_duration_since(self.heard) {
            Some(after) => self.micros.saturating_add(micros(after)),
            None => self.micros.saturating_sub(micros(self.heard.duration_since(moment))),
        }
    }
}

impl Asker<'_> {
    fn serve(&mut self, shared: &Shared, site: &Site) -> io::Result<()> {
        let mut connection = Outgoing::connect(self.peer, shared, site)?;
        let mut output = VecDeque::new();
        loop {
            let Outgoing { subscriber, waiter, began_micros, .. } = &mut connection;
            self.perform(subscriber, &mut output, waiter, site, *began_micros)?;
            if subscriber.is_closed() {
                return Ok(());
            }
            let left = self.given_up().map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"));
            }
            let timeout = left.unwrap_or(Duration::MAX);
            connection.hear(&mut output, Until { position: 0, timeout })?;
        }
    }

    /// When the home is taken for gone: it has neither answered nor, if nothing is sent, taken the oldest command.
    fn given_up(&self) -> Option<Instant> {
        let sent = self.sent.values().next().map(|asked| asked.since);
        let waiting = self.clock.and_then(|_| self.homes.waiting_since(self.home, self.lane));
        Some(sent.into_iter().chain(waiting).min()? + DEADLINE)
    }

    /// Performs what is due, and adds commands as long as the socket has taken those before: what has not left the
    /// queue can be refused as such.
    fn perform(
        &mut self,
        subscriber: &mut Subscriber,
        output: &mut VecDeque<u8>,
        waiter: &Waiter<'_>,
        site: &Site,
        began_micros: u64,
    ) -> io::Result<()> {
        loop {
            while let Some(action) = subscriber.next_action() {
                match action {
                    SubscriberAction::Send(bytes) => output.extend(bytes),
                    SubscriberAction::Connected { site: home, run, .. } => {
                        if !self.peer.meet(site, subscriber, (home, run), began_micros)? {
                            continue;
                        }
                        self.home = home;
                        if !self.homes.may_be(home) {
                            return Err(io::Error::other("the site there is the home of no keys"));
                        }
                        subscriber.say(Side::OpenHome, &[], site.now());
                    }
                    SubscriberAction::Side(Side::HomeClock { clock_micros, command_bytes_max }, _) => {
                        let clock = HomeClock { micros: clock_micros, heard: Instant::now() };
                        if self.clock.replace(clock).is_none() {
                            let bytes_max = usize::try_from(command_bytes_max).unwrap_or(usize::MAX);
                            self.homes.connected(self.home, self.lane, waiter.waker(), bytes_max);
                        }
                    }
                    SubscriberAction::Side(Side::Answer { number }, body) => {
                        let reply =
                            HomeReply::decode(&body).ok_or_else(|| io::Error::other("an answer is none"))?;
                        if let Some(asked) = self.sent.remove(&number) {
                            let is_to = reply.is_to(&asked.command);
                            let reply = if is_to { reply } else { HomeReply::Error(Error::HomeSilent) };
                            self.homes.answer(&asked, reply);
                        }
                    }
                    SubscriberAction::Close(closed) => return Err(io::Error::other(closed.to_string())),
                    _ => return Err(io::Error::other("a message comes at the wrong time")),
                }
            }
            let Some(clock) = self.clock.filter(|_| output.len() < INPUT_BYTES) else { return Ok(()) };
            let Some(asked) = self.homes.take(self.home, self.lane) else { return Ok(()) };
            self.number += 1;
            let ask = Side::Ask { number: self.number, until_micros: clock.at(asked.since + DEADLINE) };
            subscriber.say(ask, &asked.command, site.now());
            self.sent.insert(self.number, asked);
        }
    }

    /// Nobody knows whether the home has run what it has not answered.
    fn end(self) {
        if self.clock.is_some() {
            self.homes.disconnected(self.home, self.lane);
        }
        self.sent.values().for_each(|asked| self.homes.answer(asked, HomeReply::Error(Error::HomeSilent)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::replication::home::tests::{WAITER, append, homes};
    use crate::replication::waiters::Waker;

    #[test]
    fn a_homes_clock_goes_on_from_what_it_said() {
        let heard = Instant::now() + Duration::from_secs(60);
        let clock = HomeClock { micros: 7_000_000, heard };
        assert_eq!(clock.at(heard), 7_000_000);
        assert_eq!(clock.at(heard + Duration::from_secs(5)), 12_000_000);
        assert_eq!(clock.at(heard - Duration::from_secs(3)), 4_000_000);
        assert_eq!(clock.at(heard - Duration::from_secs(9)), 0, "long before the home began");
    }

    /// The home has answered all, and takes nothing more: what waits for that has the same deadline.
    #[test]
    fn what_was_never_sent_has_a_deadline() {
        let (homes, has_to_end) = (homes(), AtomicBool::new(false));
        let peer = PeerAddress::of_nobody(&has_to_end);
        let clock = Some(HomeClock { micros: 0, heard: Instant::now() });
        let (lane, number) = (Lane::Small, 0);
        let mut asker =
            Asker { peer: &peer, lane, homes: &homes, home: 2, clock, number, sent: BTreeMap::new() };
        assert_eq!(asker.given_up(), None);
        homes.connected(2, lane, Waker::of_nobody(), 1 << 20);
        let ask = || homes.ask(2, WAITER, &append(b"b", b"x"), b"x").expect("it is there");
        let (first, second) = (ask(), ask());
        assert_eq!(asker.given_up(), Some(first.since + DEADLINE));
        asker.sent.insert(1, homes.take(2, lane).expect("it waits"));
        assert_eq!(asker.given_up(), Some(first.since + DEADLINE));
        asker.sent.clear();
        assert_eq!(asker.given_up(), Some(second.since + DEADLINE));
        asker.end();
        assert_eq!(second.answer_to(&append(b"b", b"x")), Some(HomeReply::Error(Error::HomeAway)));
    }
}
