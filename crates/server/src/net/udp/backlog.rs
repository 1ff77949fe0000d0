//! Datagrams that need more than a share of a round, and those that the same clients sent after them.
//!
//! Turns go round by host, and within a host by client; the datagrams of a client are served in order. So nobody waits
//! for more than one turn of each other host, whatever that sends and from however many ports. A host has room of its
//! own, and no host has more than it leaves free for others (as in [`crate::conn::buffer_budget`]).
//!
//! A datagram that has waited for too long is dropped when its turn comes: its client has given up by then, and may
//! have written something newer. What is to be begun must be younger than what is to be finished. Otherwise a client
//! that always sends too much would have each datagram begun at the last moment, and few finished.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use super::Work;
use super::host::Host;
use crate::clock::Moment;
use crate::conn::buffer_budget::{BufferBudget, BufferCharge};
use crate::heap;

/// The backlog of a socket.
#[derive(Default)]
pub(super) struct Backlog {
    /// The first has the next turn.
    hosts: VecDeque<HostQueue>,
    /// Of all hosts.
    clients: usize,
    bytes: usize,
    charge: BufferCharge,
}

/// A host's clients: at least one. The first has the host's next turn.
struct HostQueue {
    host: Host,
    clients: VecDeque<ClientQueue>,
    bytes: usize,
}

/// A client's datagrams: at least one.
struct ClientQueue {
    source: SocketAddr,
    datagrams: VecDeque<Datagram>,
    /// What is left of the first one, once it was begun.
    work: Option<Work>,
}

struct Datagram {
    bytes: Vec<u8>,
    received: Moment,
}

/// The datagram whose turn it is.
pub(super) struct Turn<'b> {
    pub(super) source: SocketAddr,
    pub(super) datagram: &'b [u8],
    /// What is left of it, if it was begun.
    pub(super) work: Option<Work>,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// True if a new datagram of this client has to join: if others of the client are waiting, or, once many clients
    /// are, others of its host. Else a host could begin a datagram from each of its ports before those of others.
    pub(super) fn is_ahead_of(&self, source: SocketAddr) -> bool {
        !self.is_empty()
            && self
                .find(source)
                .is_some_and(|(_, client)| client.is_some() || self.clients >= CLIENTS_BEGUN_MAX)
    }

    /// Adds a copy of a datagram behind those of its client. `work`: what is left of it, if it was begun; then none of
    /// its client is waiting. Errors: there is no room; the work is given back.
    pub(super) fn push(
        &mut self,
        source: SocketAddr,
        datagram: &[u8],
        received: Moment,
        work: Option<Work>,
        buffers: &Arc<BufferBudget>,
    ) -> Result<(), Option<Work>> {
        let found = self.find(source);
        let is_new = found.is_none_or(|(_, client)| client.is_none());
        let cost = cost(datagram) + if is_new { CLIENT_BYTES } else { 0 };
        let bytes = self.bytes + cost;
        let host_bytes = cost + found.map_or(0, |(host, _)| self.hosts[host].bytes);
        let host_bytes_max = BYTES_MAX.saturating_sub(bytes).min(HOST_BYTES_MAX);
        if host_bytes > host_bytes_max || found.is_none() && self.hosts.len() == HOSTS_MAX {
            return Err(work);
        }
        let Some(copy) = heap::copy(datagram) else { return Err(work) };
        if !self.charge.resize(buffers, bytes) {
            return Err(work);
        }
        self.bytes = bytes;
        let datagram = Datagram { bytes: copy, received };
        let host = match found {
            Some((host, _)) => host,
            None => {
                self.hosts.push_back(HostQueue {
                    host: Host::of(source.ip()),
                    clients: VecDeque::new(),
                    bytes: 0,
                });
                self.hosts.len() - 1
            }
        };
        let host = &mut self.hosts[host];
        host.bytes = host_bytes;
        match found.and_then(|(_, client)| client) {
            Some(client) => host.clients[client].datagrams.push_back(datagram),
            None => {
                host.clients.push_back(ClientQueue { source, datagrams: [datagram].into(), work });
                self.clients += 1;
            }
        }
        Ok(())
    }

    /// Drops the datagram whose turn it is if it has waited for too long, and returns what was left of it, if it was
    /// begun. The turn remains. `None`: it may be served.
    pub(super) fn drop_late(&mut self, now: Moment, buffers: &Arc<BufferBudget>) -> Option<Option<Work>> {
        let client = self.hosts.front_mut()?.clients.front_mut()?;
        let waited_nanos = now.nanos_since(client.datagrams.front()?.received);
        let nanos_max = if client.work.is_some() { FINISH_NANOS_MAX } else { BEGIN_NANOS_MAX };
        if waited_nanos <= nanos_max {
            return None;
        }
        let work = client.work.take();
        self.drop_first(buffers);
        Some(work)
    }

    /// The datagram whose turn it is. End the turn by [`Backlog::end_turn`].
    pub(super) fn begin_turn(&mut self) -> Option<Turn<'_>> {
        let ClientQueue { source, datagrams, work } = self.hosts.front_mut()?.clients.front_mut()?;
        Some(Turn { source: *source, datagram: &datagrams.front()?.bytes, work: work.take() })
    }

    /// `rest`: what is left of the datagram whose turn it was; `None`: nothing is.
    pub(super) fn end_turn(&mut self, rest: Option<Work>, buffers: &Arc<BufferBudget>) {
        let Some(host) = self.hosts.front_mut() else { return };
        let (host_was, clients) = (host.host, host.clients.len());
        if rest.is_some() {
            host.clients[0].work = rest;
        } else {
            self.drop_first(buffers);
        }
        // A queue that is empty now has left already.
        let Some(host) = self.hosts.front_mut().filter(|host| host.host == host_was) else { return };
        if host.clients.len() == clients {
            host.clients.rotate_left(1);
        }
        self.hosts.rotate_left(1);
    }

    /// Drops the first datagram of the client whose turn it is, and queues that are empty then.
    fn drop_first(&mut self, buffers: &Arc<BufferBudget>) {
        let Some(host) = self.hosts.front_mut() else { return };
        let Some(client) = host.clients.front_mut() else { return };
        let mut freed_bytes = client.datagrams.pop_front().map_or(0, |datagram| cost(&datagram.bytes));
        if client.datagrams.is_empty() {
            host.clients.pop_front();
            self.clients -= 1;
            freed_bytes += CLIENT_BYTES;
            shorten(&mut host.clients);
        } else {
            shorten(&mut client.datagrams);
        }
        host.bytes -= freed_bytes;
        if host.clients.is_empty() {
            self.hosts.pop_front();
        }
        self.bytes -= freed_bytes;
        self.charge.force(buffers, self.bytes);
    }

    /// Where the queue of a source's host is, and in that the queue of the source.
    fn find(&self, source: SocketAddr) -> Option<(usize, Option<usize>)> {
        let host = Host::of(source.ip());
        let at = self.hosts.iter().position(|queue| queue.host == host)?;
        Some((at, self.hosts[at].clients.iter().position(|client| client.source == source)))
    }
}

/// Keeps a queue's capacity within four times its length, as its charge presumes.
fn shorten<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > 4 * queue.len() {
        queue.shrink_to(2 * queue.len());
    }
}

/// With what the allocator and the queue add.
fn cost(datagram: &[u8]) -> usize {
    datagram.len() + DATAGRAM_BYTES
}

/// Three of the longest datagrams, or hundreds of short ones. Includes what its clients cost, so they are bounded.
const HOST_BYTES_MAX: usize = 256 << 10;
/// Sixteen times a host's.
const BYTES_MAX: usize = 4 << 20;
/// Few enough to look for a host among all.
const HOSTS_MAX: usize = 256;
/// While so many clients are waiting, no host that is waiting begins another datagram out of turn.
const CLIENTS_BEGUN_MAX: usize = 64;
/// What a client costs besides its datagrams, and its host if it is the only one.
const CLIENT_BYTES: usize = 1 << 10;
const _: () =
    assert!(CLIENT_BYTES >= 4 * size_of::<ClientQueue>() + 2 * size_of::<HostQueue>() + 2 * MALLOC_BYTES);
/// What a datagram costs besides its bytes.
const DATAGRAM_BYTES: usize = 4 * size_of::<Datagram>() + MALLOC_BYTES;
/// What the allocator adds to what it is asked for.
const MALLOC_BYTES: usize = 32;
/// A datagram that is older when its turn comes is dropped.
const FINISH_NANOS_MAX: u64 = 1_000_000_000;
/// The same for one that was not begun.
const BEGIN_NANOS_MAX: u64 = FINISH_NANOS_MAX / 2;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use larder_protocol::Dialect;

    use super::super::budget::Allowance;
    use super::*;

    /// A backlog, and the budget that it is charged to.
    struct Fixture {
        backlog: Backlog,
        buffers: Arc<BufferBudget>,
        now: Moment,
    }

    impl Fixture {
        fn new() -> Self {
            let buffers = Arc::new(BufferBudget::new(64 << 20, 0));
            Self { backlog: Backlog::default(), buffers, now: Moment::now() }
        }

        /// Adds a datagram of one byte. False: refused.
        fn push(&mut self, source: &str, byte: u8) -> bool {
            self.push_all(source, &[byte])
        }

        fn push_all(&mut self, source: &str, datagram: &[u8]) -> bool {
            self.backlog.push(address(source), datagram, self.now, None, &self.buffers).is_ok()
        }

        fn drop_late(&mut self, waited_nanos: u64) -> Option<Option<Work>> {
            self.backlog.drop_late(self.now.after(waited_nanos), &self.buffers)
        }

        /// Serves a datagram, and returns its source and its first byte.
        fn serve(&mut self) -> Option<(String, u8)> {
            let turn = self.backlog.begin_turn()?;
            let served = (turn.source.to_string(), turn.datagram[0]);
            self.backlog.end_turn(None, &self.buffers);
            Some(served)
        }

        /// Serves all, and returns the first bytes.
        fn served(&mut self) -> Vec<u8> {
            std::iter::from_fn(|| self.serve()).map(|(_, byte)| byte).collect()
        }

        #[track_caller]
        fn assert_is_empty(&self) {
            assert!(self.backlog.is_empty());
            assert_eq!((self.backlog.clients, self.backlog.bytes, self.buffers.used_bytes()), (0, 0, 0));
        }
    }

    fn address(source: &str) -> SocketAddr {
        source.parse().expect("an address and a port")
    }

    fn work(from: usize) -> Work {
        let source = address("192.0.2.1:5000");
        let allowance = Allowance::even(from);
        Work { source, request_id: 7, dialect: Dialect::Text, from, allowance, cookie: None, copied_bytes: 0 }
    }

    #[test]
    fn the_datagrams_of_a_client_are_served_in_order() {
        let mut fixture = Fixture::new();
        for byte in 0..100 {
            assert!(fixture.push("192.0.2.1:5000", byte));
        }
        assert_eq!(fixture.served(), (0..100).collect::<Vec<u8>>());
        fixture.assert_is_empty();
    }

    #[test]
    fn hosts_have_turns_and_within_a_host_its_clients() {
        let mut fixture = Fixture::new();
        for (source, byte) in [
            ("192.0.2.1:5000", b'a'),
            ("192.0.2.1:5000", b'b'),
            ("192.0.2.1:5001", b'A'),
            ("192.0.2.1:5001", b'B'),
            ("192.0.2.1:5002", b'+'),
            ("192.0.2.2:5000", b'1'),
            ("[2001:db8::1]:5000", b'6'),
            ("[2001:db8::2]:5000", b'x'),
            ("192.0.2.2:5000", b'2'),
            ("192.0.2.2:5000", b'3'),
        ] {
            assert!(!fixture.backlog.is_ahead_of(address(source)) || byte.is_ascii_alphanumeric());
            assert!(fixture.push(source, byte));
            assert!(fixture.backlog.is_ahead_of(address(source)));
        }
        assert!(!fixture.backlog.is_ahead_of(address("192.0.2.1:5003")));
        assert_eq!(String::from_utf8_lossy(&fixture.served()), "a16A2x+3bB");
        fixture.assert_is_empty();
    }

    #[test]
    fn once_many_clients_are_waiting_their_hosts_begin_nothing_out_of_turn() {
        let mut fixture = Fixture::new();
        let (one, other) = (address("192.0.2.1:5000"), address("192.0.2.2:5000"));
        for port in 1..=CLIENTS_BEGUN_MAX {
            assert!(!fixture.backlog.is_ahead_of(one) && !fixture.backlog.is_ahead_of(other));
            assert!(fixture.push(&format!("192.0.2.1:{}", 5000 + port), b'1'));
        }
        assert!(fixture.backlog.is_ahead_of(one) && !fixture.backlog.is_ahead_of(other));
        assert!(fixture.push("192.0.2.2:5001", b'2') && fixture.backlog.is_ahead_of(other));
        assert!(fixture.serve().is_some() && fixture.serve().is_some());
        assert!(!fixture.backlog.is_ahead_of(one) && !fixture.backlog.is_ahead_of(other));
        assert_eq!(fixture.served().len(), CLIENTS_BEGUN_MAX - 1);
        fixture.assert_is_empty();
    }

    /// Its next turn comes after one of each other host.
    #[test]
    fn what_is_left_of_a_datagram_waits_for_its_next_turn() {
        let mut fixture = Fixture::new();
        let (one, other) = (address("192.0.2.1:5000"), address("192.0.2.2:5000"));
        let Fixture { backlog, buffers, now } = &mut fixture;
        backlog.push(one, b"1", *now, Some(work(3)), buffers).map_err(drop).expect("there is room");
        backlog.push(other, b"2", *now, None, buffers).map_err(drop).expect("there is room");
        let mut turns = Vec::new();
        for from in [4, 5, 6] {
            let turn = backlog.begin_turn().expect("two are waiting");
            turns.push((turn.source, turn.work.map(|work| work.from)));
            backlog.end_turn((turns.len() < 3).then(|| work(from)), buffers);
        }
        assert_eq!(turns, [(one, Some(3)), (other, None), (one, Some(4))]);
        assert!(!backlog.is_ahead_of(one) && backlog.is_ahead_of(other));
        assert_eq!(fixture.served(), b"2");
        fixture.assert_is_empty();
    }

    #[test]
    fn a_host_beyond_its_bytes_is_refused_and_others_are_not() {
        let mut fixture = Fixture::new();
        let long = [b'1'; 64 << 10];
        let pushed = (0..20).filter(|_| fixture.push_all("192.0.2.1:5000", &long)).count();
        assert_eq!(pushed, 3, "with what they cost besides, four are more than 256 KiB");
        assert!(!fixture.push_all("192.0.2.1:5001", &long), "of another port");
        assert!(fixture.push_all("192.0.2.2:5000", &[b'2'; 64 << 10]));
        assert_eq!(fixture.served(), b"1211");
        fixture.assert_is_empty();
    }

    #[test]
    fn the_clients_of_a_host_are_bounded_by_its_bytes() {
        let mut fixture = Fixture::new();
        let pushed =
            (0..2000).filter(|port| fixture.push(&format!("192.0.2.1:{}", 2000 + port), b'1')).count();
        let used_bytes: usize = fixture.backlog.hosts.iter().map(memory_bytes).sum();
        assert!((200..256).contains(&pushed), "{pushed} clients");
        assert!(used_bytes <= fixture.backlog.bytes, "{used_bytes} of {}", fixture.backlog.bytes);
        assert!(fixture.push("192.0.2.2:5000", b'2'));
        assert_eq!(fixture.served().len(), pushed + 1);
        fixture.assert_is_empty();
    }

    /// What a host takes, without what the allocator adds.
    fn memory_bytes(host: &HostQueue) -> usize {
        let client_bytes = |client: &ClientQueue| {
            let bytes: usize = client.datagrams.iter().map(|datagram| datagram.bytes.capacity()).sum();
            bytes + client.datagrams.capacity() * size_of::<Datagram>()
        };
        let clients_bytes: usize = host.clients.iter().map(client_bytes).sum();
        size_of::<HostQueue>() + host.clients.capacity() * size_of::<ClientQueue>() + clients_bytes
    }

    /// Queues that were long keep no more than what is charged.
    #[test]
    fn the_charge_covers_the_memory() {
        let mut fixture = Fixture::new();
        for port in 5000..5003 {
            while fixture.push(&format!("192.0.2.1:{port}"), b'1') && fixture.backlog.bytes < 80 << 10 {}
        }
        for port in 6000..6200 {
            let _ = fixture.push(&format!("192.0.2.1:{port}"), b'2');
        }
        while fixture.serve().is_some() {
            let used_bytes: usize = fixture.backlog.hosts.iter().map(memory_bytes).sum();
            assert!(used_bytes <= fixture.backlog.bytes, "{used_bytes} of {}", fixture.backlog.bytes);
        }
        fixture.assert_is_empty();
    }

    /// Sixteen would have all if each had what a host may have.
    #[test]
    fn hosts_that_send_as_much_as_they_can_leave_room() {
        let mut fixture = Fixture::new();
        for host in 1..=16 {
            while fixture.push_all(&format!("192.0.2.{host}:5000"), &[b'1'; 1000]) {}
        }
        assert!(fixture.push_all("192.0.2.17:5000", &[b'2'; 32 << 10]));
        while fixture.push_all("192.0.2.17:5000", &[b'1'; 1000]) {}
        assert!(fixture.backlog.bytes < BYTES_MAX);
        while fixture.serve().is_some() {}
        fixture.assert_is_empty();
    }

    #[test]
    fn hosts_are_bounded() {
        let mut fixture = Fixture::new();
        let mut push =
            |host: u32| fixture.push(&format!("{}:5000", Ipv4Addr::from_bits(10 << 24 | host)), b'1');
        assert_eq!((1..1000).filter(|host| push(*host)).count(), HOSTS_MAX);
        assert!(push(1), "a host that has datagrams waiting");
        assert_eq!(fixture.served().len(), HOSTS_MAX + 1);
        fixture.assert_is_empty();
    }

    #[test]
    fn the_buffer_budget_is_kept_to() {
        let mut fixture = Fixture { buffers: Arc::new(BufferBudget::new(64 << 10, 0)), ..Fixture::new() };
        while fixture.push_all("192.0.2.1:5000", &[b'1'; 1000]) {}
        assert!((1..=32 << 10).contains(&fixture.buffers.used_bytes()));
        let given_back = fixture.backlog.push(
            address("192.0.2.2:5000"),
            &[b'2'; 1000],
            fixture.now,
            Some(work(3)),
            &fixture.buffers,
        );
        assert_eq!(given_back.err().flatten().map(|work| work.from), Some(3));
        while fixture.serve().is_some() {}
        fixture.assert_is_empty();
    }

    #[test]
    fn what_was_not_begun_in_time_is_dropped() {
        let mut fixture = Fixture::new();
        assert!(fixture.push("192.0.2.1:5000", b'1') && fixture.push("192.0.2.1:5000", b'2'));
        fixture.now = fixture.now.after(5);
        assert!(fixture.push("192.0.2.1:5000", b'3') && fixture.push("192.0.2.2:5000", b'4'));
        assert!(fixture.drop_late(BEGIN_NANOS_MAX - 5).is_none());
        assert!(matches!(fixture.drop_late(BEGIN_NANOS_MAX - 4), Some(None)));
        assert!(matches!(fixture.drop_late(BEGIN_NANOS_MAX), Some(None)));
        assert!(fixture.drop_late(BEGIN_NANOS_MAX).is_none());
        assert_eq!(fixture.served(), b"34");
        assert!(fixture.drop_late(BEGIN_NANOS_MAX + 1).is_none());
        fixture.assert_is_empty();
    }

    /// Else those who always send too much would have everything begun, and little finished.
    #[test]
    fn what_was_begun_may_take_a_second() {
        let mut fixture = Fixture::new();
        assert!(fixture.push("192.0.2.1:5000", b'1'));
        assert!(fixture.backlog.begin_turn().is_some_and(|turn| turn.work.is_none()));
        fixture.backlog.end_turn(Some(work(3)), &fixture.buffers);
        assert!(fixture.drop_late(FINISH_NANOS_MAX).is_none());
        let dropped = fixture.drop_late(FINISH_NANOS_MAX + 1).flatten();
        assert_eq!(dropped.map(|work| work.from), Some(3));
        fixture.assert_is_empty();
    }
}
