//! UDP: requests that are one datagram each, served by the worker that receives them.
//!
//! The walk of a datagram: the worker's poller reports a socket; [`UdpEndpoint::serve`] receives a batch ([`inbox`])
//! and prefetches its keys ([`first_key`]); the [`gate`] decides how much may be sent in reply; a session of its own
//! executes it ([`Session::feed`]); the replies of the whole batch are sent together ([`outbox`]). Nothing of a
//! datagram outlives its reply. New datagrams of a socket have a connection's share of a round ([`Share`]). One that
//! needs more joins the [`backlog`], which has a share of its own: a client does not wait until the long datagrams of
//! others are served. There hosts have their turns, a bounded room each, and a second.
//!
//! Each command's reply is a message of its own, numbered from 0, as in memcached. A get of many keys is one command:
//! its hits and END are one message, as doc/protocol.txt says and memcached did up to 1.5. Threat model, defaults and
//! cookies: docs/udp.md.

mod backlog;
mod budget;
mod cookie;
mod gate;
mod host;
mod inbox;
mod outbox;
mod socket;

use std::net::SocketAddr;
use std::{io, mem};

use arrayvec::ArrayVec;
use larder_engine::Now;
use larder_protocol::{Dialect, Error, Reply, udp};

use self::backlog::{Backlog, Turn};
use self::budget::Allowance;
use self::gate::{Admitted, Gate};
use self::inbox::{BATCH_DATAGRAMS_MAX, Inbox};
use self::outbox::Outbox;
pub use self::socket::{Socket, bind, share};
use crate::clock::Moment;
use crate::conn::batch::{Frame, Prefetched};
use crate::conn::client::Client;
use crate::conn::output::{COPIED_BYTES_MAX, Output};
use crate::conn::session::{Next, Session};
use crate::conn::waiter::Waiting;
use crate::namespaces::Handles;
use crate::net::socket::WorkerContext;
use crate::net::worker::yield_core;
use crate::observe::counters::Counters;
use crate::observe::measure::Transport;
use crate::startup::random;
use crate::startup::settings::Settings;

/// A worker's UDP sockets, with the buffers to serve them.
pub(crate) struct UdpEndpoint {
    sockets: Vec<SocketInbox>,
    /// Stands for all clients of these sockets.
    client: Client,
    responder: Responder,
}

/// A socket, and what was received from it.
struct SocketInbox {
    socket: Socket,
    inbox: Inbox,
    /// When the inbox was filled.
    received: Moment,
    /// Datagrams of the inbox that were served.
    served: usize,
    backlog: Backlog,
}

/// What new datagrams, or those of the backlog, may still do in a round: as much as a connection.
struct Share {
    requests: u32,
    /// Of replies, or of values written.
    bytes: usize,
}

/// What is left to do of a datagram that was admitted.
struct Work {
    source: SocketAddr,
    request_id: u16,
    dialect: Dialect,
    /// Where the next command begins in the datagram.
    from: usize,
    allowance: Allowance,
    /// To be sent in place of a reply that the allowance does not cover.
    cookie: Option<u64>,
    /// Bytes of values that its commands have written.
    copied_bytes: usize,
}

/// Executes datagrams.
struct Responder {
    gate: Gate,
    /// The reply in progress.
    reply: Message,
    outbox: Outbox,
}

/// The reply to one command.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
    /// The reply is longer than what may be sent.
    is_too_large: bool,
}

impl UdpEndpoint {
    /// Opens the endpoint on the thread that will serve it. The kernel routes all datagrams of a client to the same
    /// worker, so each worker may have a key of its own. Errors: no random numbers.
    pub(crate) fn open(sockets: Vec<Socket>, settings: &Settings) -> io::Result<Self> {
        let responder = Responder {
            gate: Gate::new(random::key()?, settings.udp_cookie, known_bytes(settings)),
            reply: Message::default(),
            outbox: Outbox::default(),
        };
        let received = Moment::now();
        let socket = |socket| SocketInbox {
            socket,
            inbox: Inbox::new(),
            received,
            served: 0,
            backlog: Backlog::default(),
        };
        let sockets = sockets.into_iter().map(socket).collect();
        Ok(Self { sockets, client: Client::of_datagrams(), responder })
    }

    /// True if there is work left of the datagrams that were received: call [`UdpEndpoint::go_on`] in the next round.
    pub(crate) fn is_waiting(&self) -> bool {
        self.sockets.iter().any(SocketInbox::is_waiting)
    }

    /// Serves what earlier calls left over.
    pub(crate) fn go_on(&mut self, cx: &mut WorkerContext<'_>) {
        for socket in self.sockets.iter_mut().filter(|socket| socket.is_waiting()) {
            socket.serve(&self.client, &mut self.responder, cx);
        }
    }

    /// Serves the datagrams that wait at a socket, up to a few batches or as much work as a connection does in a round;
    /// the poller reports the rest again. Nothing if [`UdpEndpoint::go_on`] has left some over.
    pub(crate) fn serve(&mut self, socket: usize, cx: &mut WorkerContext<'_>) {
        let Some(socket) = self.sockets.get_mut(socket) else { return };
        if !socket.is_waiting() {
            socket.serve(&self.client, &mut self.responder, cx);
        }
    }
}

impl SocketInbox {
    fn is_waiting(&self) -> bool {
        self.served < self.inbox.len() || !self.backlog.is_empty()
    }

    fn serve(&mut self, client: &Client, responder: &mut Responder, cx: &mut WorkerContext<'_>) {
        self.serve_backlog(client, responder, cx);
        self.serve_new(client, responder, cx);
    }

    /// Serves the backlog.
    fn serve_backlog(&mut self, client: &Client, responder: &mut Responder, cx: &mut WorkerContext<'_>) {
        let Self { socket, backlog, .. } = self;
        let buffers = &cx.shared.buffers;
        let mut share = Share::of_round(cx);
        while !share.is_used() {
            cx.received = Moment::now();
            while let Some(work) = backlog.drop_late(cx.received, buffers) {
                responder.give_up(work, cx.counters);
            }
            let Some(Turn { source, datagram, work }) = backlog.begin_turn() else { return };
            let work = work.or_else(|| responder.admit(datagram, source, socket, cx));
            let rest = work.and_then(|work| responder.answer(client, datagram, work, None, &mut share, cx));
            cx.counters.conn_yields.add(u64::from(rest.is_some()));
            backlog.end_turn(rest, buffers);
            cx.counters.bytes_written.add(responder.outbox.send(socket) as u64);
        }
    }

    fn serve_new(&mut self, client: &Client, responder: &mut Responder, cx: &mut WorkerContext<'_>) {
        let Self { socket, inbox, received, served, backlog } = self;
        let mut share = Share::of_round(cx);
        let mut has_yielded = false;
        for _ in 0..BATCHES_PER_EVENT {
            let is_new = *served == inbox.len();
            if is_new {
                inbox.receive(socket);
                *served = 0;
            }
            cx.received = Moment::now();
            if is_new {
                *received = cx.received;
            }
            let now = cx.shared.clock.at(cx.received);
            let mut prefetched = if is_new {
                first_key(inbox, socket.dialect(), cx.handles, now).into_iter()
            } else {
                ArrayVec::new().into_iter()
            };
            for (datagram, source) in inbox.datagrams().skip(*served) {
                let prefetched = prefetched.next().flatten();
                *served += 1;
                cx.counters.bytes_read.add(datagram.len() as u64);
                let is_behind = backlog.is_ahead_of(source);
                let rest = if is_behind {
                    None
                } else {
                    let work = responder.admit(datagram, source, socket, cx);
                    work.and_then(|work| responder.answer(client, datagram, work, prefetched, &mut share, cx))
                };
                if is_behind || rest.is_some() {
                    has_yielded |= rest.is_some();
                    let pushed = backlog.push(source, datagram, *received, rest, &cx.shared.buffers);
                    if let Err(rest) = pushed {
                        responder.give_up(rest, cx.counters);
                    }
                }
                if responder.outbox.is_full() {
                    cx.counters.bytes_written.add(responder.outbox.send(socket) as u64);
                }
                if share.is_used() {
                    break;
                }
            }
            cx.counters.bytes_written.add(responder.outbox.send(socket) as u64);
            if *served < inbox.len() || has_yielded {
                cx.counters.conn_yields.add(1);
                return;
            }
            // Datagrams that arrive one by one mostly find no other.
            if inbox.len() < 2 || share.is_used() {
                return;
            }
        }
    }
}

impl Share {
    fn of_round(cx: &WorkerContext<'_>) -> Self {
        Self { requests: cx.shared.settings.requests_per_event, bytes: COPIED_BYTES_MAX }
    }

    fn use_up(&mut self, requests: u32, bytes: usize) {
        self.requests = self.requests.saturating_sub(requests);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn is_used(&self) -> bool {
        self.requests == 0 || self.bytes == 0
    }
}

impl Work {
    /// The first byte of the commands gives the dialect, unless the listener sets it.
    fn of(datagram: &[u8], asked: Admitted<'_>, dialect: Option<Dialect>) -> Self {
        let Admitted { source, request_id, payload, allowance, cookie } = asked;
        let from = datagram.len() - payload.len();
        let first = payload.first().copied().unwrap_or_default();
        let dialect = dialect.unwrap_or_else(|| Dialect::of_first_byte(first));
        Self { source, request_id, dialect, from, allowance, cookie, copied_bytes: 0 }
    }
}

/// The first key of each datagram, where finding it is cheap, with its memory being fetched. Includes datagrams that
/// will be dropped: this is a hint, and sends no reply. A datagram that begins with a cookie has none.
fn first_key<'i>(
    inbox: &'i Inbox,
    dialect: Option<Dialect>,
    handles: &mut Handles,
    now: Now,
) -> ArrayVec<Option<Prefetched<'i>>, BATCH_DATAGRAMS_MAX> {
    // A single key would wait for this as long as for its memory.
    if inbox.len() < 2 {
        return ArrayVec::new();
    }
    let guards = handles.pin(now);
    let mut numbers = ArrayVec::<_, BATCH_DATAGRAMS_MAX>::new();
    let first_key = |(datagram, _): (&'i [u8], _)| {
        let (_, payload) = udp::request(datagram)?;
        let first = *payload.first()?;
        let dialect = dialect.unwrap_or_else(|| Dialect::of_first_byte(first));
        let key = &payload[dialect.first_key(payload)?];
        let (hash, number) = guards.prepare(key);
        numbers.push(number);
        Some(Prefetched { key, hash })
    };
    let prefetched: ArrayVec<_, BATCH_DATAGRAMS_MAX> = inbox.datagrams().map(first_key).collect();
    let hashes: ArrayVec<_, BATCH_DATAGRAMS_MAX> = prefetched.iter().flatten().map(|key| key.hash).collect();
    guards.hints(&hashes, &numbers, |guard, hashes| guard.hint_gets(hashes));
    prefetched
}

impl Responder {
    /// Decides whether a datagram is served.
    fn admit(
        &mut self,
        datagram: &[u8],
        source: SocketAddr,
        socket: &Socket,
        cx: &WorkerContext<'_>,
    ) -> Option<Work> {
        let now_secs = cx.shared.clock.at(cx.received).secs;
        let admitted = self.gate.admit(datagram, source, socket.address().port(), now_secs);
        let counter = if admitted.is_some() { &cx.counters.udp_requests } else { &cx.counters.udp_dropped };
        counter.add(1);
        admitted.map(|asked| Work::of(datagram, asked, socket.dialect()))
    }

    /// Executes the commands of a datagram. A partial request is not answered, nor what follows when the datagram has
    /// written too much. Returns what is left once the share of the round is used.
    fn answer(
        &mut self,
        client: &Client,
        datagram: &[u8],
        mut asked: Work,
        mut prefetched: Option<Prefetched<'_>>,
        share: &mut Share,
        cx: &mut WorkerContext<'_>,
    ) -> Option<Work> {
        let payload = &datagram[asked.from..];
        let dialect = asked.dialect;
        if payload.is_empty() {
            // The client asks for its cookie and nothing else.
            self.challenge(&mut asked);
            self.gate.keep(&asked.allowance);
            share.use_up(1, 0);
            return None;
        }
        let context = cx.context(client);
        let mut session = Session::of_datagram(Some(dialect));
        // Where the current command begins, and where the input that was not fed yet begins.
        let (mut start, mut from) = (0, 0);
        let mut tries = 0;
        while from < payload.len() {
            if asked.copied_bytes >= DATAGRAM_COPIED_BYTES_MAX {
                cx.counters.udp_dropped.add(1);
                break;
            }
            // Between commands nothing is kept of the last.
            if share.is_used() && start == from && tries == 0 {
                asked.from += from;
                return Some(asked);
            }
            let begun = if tries == 0 && from == 0 { cx.received } else { Moment::now() };
            let guards = cx.handles.pin(cx.shared.clock.at(begun));
            let mut output = Output::new(mem::take(&mut self.reply.bytes));
            let fed = session.feed(&context, &guards, &payload[from..], prefetched.take(), &mut output, 1);
            from += fed.consumed;
            if fed.requests > 0 && cx.recorder.measured().latency {
                let took_nanos = Moment::now().nanos_since(begun);
                cx.recorder.finish(Transport::Udp, took_nanos, guards.now().secs);
            }
            self.reply.take_back(output, asked.allowance.bytes());
            asked.copied_bytes += guards.copied_bytes();
            // What is tried in vain costs as much.
            share.use_up(fed.requests.max(1), guards.copied_bytes());
            drop(guards);

            // What follows in a list of keys makes its reply no shorter.
            let passed_bytes = match fed.requests {
                0 if self.reply.is_too_large => frame_bytes(dialect, &payload[start..]),
                _ => None,
            };
            if let Some(bytes) = passed_bytes {
                from = start + bytes;
                session = Session::of_datagram(Some(dialect));
            }
            if fed.requests > 0 || passed_bytes.is_some() {
                share.use_up(0, self.reply.bytes.len());
                if !self.send(&mut asked) {
                    cx.counters.udp_withheld.add(1);
                    if !self.challenge(&mut asked) {
                        self.reply.refuse(dialect, &payload[start..]);
                        self.send(&mut asked);
                    }
                }
                self.reply.clear();
                (start, tries) = (from, 0);
            }
            if passed_bytes.is_some() {
                continue;
            }
            match fed.next {
                Next::Wait(Waiting::Yield) => {}
                Next::Wait(Waiting::Memory) if tries < TRIES_MAX => {
                    tries += 1;
                    yield_core();
                }
                // The session refuses `watch` over UDP. Other waits drop the datagram: its client asks again.
                _ => break,
            }
        }
        self.reply.clear();
        self.gate.keep(&asked.allowance);
        None
    }

    /// Drops a datagram, or what is left of one that was begun.
    fn give_up(&mut self, rest: Option<Work>, counters: &Counters) {
        counters.udp_dropped.add(1);
        if let Some(work) = rest {
            self.gate.keep(&work.allowance);
        }
    }

    /// Sends the reply. False if it may not be sent.
    fn send(&mut self, asked: &mut Work) -> bool {
        let Message { bytes, is_too_large } = &self.reply;
        let may_be_sent = !is_too_large && asked.allowance.spend(udp::framed_bytes(bytes.len()));
        if may_be_sent {
            self.outbox.push_reply(asked.source, asked.request_id, bytes);
        }
        may_be_sent
    }

    /// Sends the cookie that is due, if any. False if it may not be sent.
    fn challenge(&mut self, asked: &mut Work) -> bool {
        let Some(cookie) = asked.cookie.filter(|_| asked.allowance.spend(udp::CHALLENGE_BYTES)) else {
            return false;
        };
        asked.cookie = None;
        self.outbox.push(asked.source, &udp::challenge(asked.request_id, cookie));
        true
    }
}

impl Message {
    /// Takes the buffer back, with the replies appended to it. At most `bytes_max` may be sent in all; more is not
    /// copied.
    fn take_back(&mut self, output: Output<'_>, bytes_max: usize) {
        self.is_too_large |= output.whole_bytes() > bytes_max;
        self.bytes = if self.is_too_large { output.into_buffer() } else { output.into_whole_buffer() };
    }

    /// Turns into the error that replaces a reply that may not be sent. The command is at the head of `input`.
    fn refuse(&mut self, dialect: Dialect, input: &[u8]) {
        self.clear();
        let Frame::Whole { request, .. } = Frame::of(dialect, input, 0) else { return };
        let mut output = Output::new(mem::take(&mut self.bytes));
        request.form.encode(&Reply::Error(Error::TooLargeForUdp), &mut output);
        self.bytes = output.into_whole_buffer();
    }

    fn clear(&mut self) {
        self.bytes.clear();
        // Large replies are rare.
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.is_too_large = false;
    }
}

/// Size of the request at the head of `input`, if it is whole.
fn frame_bytes(dialect: Dialect, input: &[u8]) -> Option<usize> {
    match Frame::of(dialect, input, 0) {
        Frame::Whole { bytes, .. } => Some(bytes),
        Frame::Head { .. } | Frame::NoHead | Frame::Close => None,
    }
}

/// What may be sent in answer to one datagram of a source that is known: several MiB, or any one item; and no reply
/// of more datagrams than can be numbered.
fn known_bytes(settings: &Settings) -> usize {
    const BYTES_MAX: usize = u16::MAX as usize * udp::PAYLOAD_BYTES_MAX;
    let item = udp::framed_bytes(settings.item_bytes_max as usize + ITEM_OVERHEAD_BYTES);
    item.clamp(KNOWN_BYTES_MIN, BYTES_MAX)
}

const KNOWN_BYTES_MIN: usize = 4 << 20;
/// Command line, key, flags and END around a value.
const ITEM_OVERHEAD_BYTES: usize = 4 << 10;
/// The buffer space that is kept from one reply to the next.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// Batches that are received from a socket before the worker serves others.
const BATCHES_PER_EVENT: u32 = 4;
/// What the commands of one datagram may write in all; one value may exceed it. More than the datagram holds, and
/// far less than thousands of appends to one large value write.
const DATAGRAM_COPIED_BYTES_MAX: usize = 4 << 20;
/// How often a command that waits for memory is tried. Then its datagram is dropped, as datagrams may be: waiting would
/// delay all clients of the worker.
const TRIES_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use larder_protocol::Sink as _;

    use super::*;

    /// A get of thousands of keys is answered in parts. If one datagram names them all, no more is kept than may be
    /// sent.
    #[test]
    fn a_reply_in_parts_grows_no_larger_than_may_be_sent() {
        let mut reply = Message::default();
        for _ in 0..100 {
            let mut output = Output::new(mem::take(&mut reply.bytes));
            output.bytes(b"part");
            reply.take_back(output, 10);
            assert!(reply.bytes.len() <= 10, "{}", reply.bytes.len());
        }
        assert!(reply.is_too_large);
    }

    /// What a source has earned it may spend on its next datagram.
    #[test]
    fn what_is_left_of_the_allowance_of_a_datagram_is_kept_when_it_is_dropped() {
        let mut responder = Responder {
            gate: Gate::new([1, 2], false, 4 << 20),
            reply: Message::default(),
            outbox: Outbox::default(),
        };
        let counters = Counters::default();
        let source = "192.0.2.1:5000".parse().expect("an address and a port");
        let begin = |responder: &mut Responder| {
            let datagram = &b"\0\x07\0\0\0\x01\0\0mn\r\n"[..];
            let asked = responder.gate.admit(datagram, source, 4000, 5).expect("let in");
            Work::of(datagram, asked, None)
        };
        let work = begin(&mut responder);
        let bytes = work.allowance.bytes();
        responder.give_up(Some(work), &counters);
        responder.give_up(None, &counters);
        assert_eq!(begin(&mut responder).allowance.bytes(), 2 * bytes);
        assert_eq!(counters.udp_dropped.get(), 2);
    }

    /// A client that sends the shortest get must get the advice to use TCP.
    #[test]
    fn a_refusal_may_always_be_sent() {
        let shortest = udp::HEADER_BYTES + b"get k\r\n".len();
        let refusal = udp::framed_bytes(Error::TooLargeForUdp.line().len() + b"\r\n".len());
        let mut allowance = budget::Budget::new([1, 2], 0).grant([192, 0, 2, 1].into(), shortest, 5);
        assert!(allowance.spend(refusal));
    }
}
