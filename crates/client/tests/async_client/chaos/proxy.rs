//! A proxy whose every connection has a plan of what goes wrong on it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_client::{Address, Protocol};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Faults that a network may have.
#[derive(Clone, Copy)]
pub(crate) struct Faults {
    /// Connections end in the middle.
    pub cuts: bool,
    /// Nothing comes any more, though the connection is open.
    pub stalls: bool,
    /// Replies come twice, or in another order.
    pub repeats: bool,
}

impl Faults {
    pub(crate) const ALL: Self = Self { cuts: true, stalls: true, repeats: true };
}

/// What goes wrong on a connection.
#[derive(Clone, Default)]
pub(crate) struct Plan {
    pub seed: u64,
    /// Ends after so many bytes of requests, or of replies.
    pub request_cut: Countdown,
    pub reply_cut: Countdown,
    /// Nothing comes after so many bytes of replies.
    pub stall: Countdown,
    /// Bytes come in small pieces, some of them late.
    pub trickles: bool,
    /// One reply in so many comes twice, or after the next.
    pub repeats: Option<u32>,
    pub swaps: Option<u32>,
}

impl Plan {
    /// Nothing goes wrong.
    pub(crate) fn clean() -> Self {
        Self::default()
    }

    /// Equal seeds are equal plans.
    pub(crate) fn random(seed: u64, number: u64, faults: Faults) -> Self {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let mut plan = Self { seed: random.u64(..), trickles: random.u8(..4) == 0, ..Self::default() };
        let early = |random: &mut fastrand::Rng| {
            let limit = 1 << random.u32(1..18);
            random.u64(..limit)
        };
        match random.u8(..8) {
            0 if faults.cuts => plan.request_cut = Countdown::after(early(&mut random)),
            1 | 2 if faults.cuts => plan.reply_cut = Countdown::after(early(&mut random)),
            3 if faults.stalls => plan.stall = Countdown::after(early(&mut random)),
            4 | 5 if faults.repeats => plan.repeats = Some(random.u32(1..200)),
            6 if faults.repeats => plan.swaps = Some(random.u32(1..200)),
            _ => {}
        }
        plan
    }
}

/// The bytes that still pass before something happens, once. All clones are the same.
#[derive(Clone)]
pub(crate) struct Countdown(Arc<AtomicU64>);

impl Countdown {
    const NEVER: u64 = u64::MAX;

    pub(crate) fn after(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// It happens after so many more.
    pub(crate) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::SeqCst);
    }

    /// It does not happen any more. False: it has happened.
    pub(crate) fn stop(&self) -> bool {
        self.0.swap(Self::NEVER, Ordering::SeqCst) != Self::NEVER
    }

    fn left(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// So many bytes have passed. True: it happens now.
    fn pass(&self, bytes: u64) -> bool {
        let left = self.left();
        let is_over = left == bytes;
        if left != Self::NEVER {
            self.set(if is_over { Self::NEVER } else { left - bytes });
        }
        is_over
    }
}

impl Default for Countdown {
    fn default() -> Self {
        Self::after(Self::NEVER)
    }
}

/// A proxy before a server, until it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
    listener: JoinHandle<()>,
}

impl Proxy {
    /// `plan` says what goes wrong on a connection, by its number from 0.
    pub(crate) async fn start(
        server: SocketAddr,
        protocol: Protocol,
        plan: impl Fn(u64) -> Plan + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let connections = Arc::<AtomicU64>::default();
        let counting = Arc::clone(&connections);
        let listener = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.expect("somebody connects");
                let plan = plan(counting.fetch_add(1, Ordering::Relaxed));
                tokio::spawn(forward(client, server, protocol, plan));
            }
        });
        Self { address, connections, listener }
    }

    pub(crate) fn address(&self) -> Address {
        self.address.to_string().parse().expect("an address")
    }

    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn forward(client: TcpStream, server: SocketAddr, protocol: Protocol, plan: Plan) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    // Or its port would be used up for a minute. The client is told by a FIN: that uses up the listener's port only.
    server.set_zero_linger().expect("it is a socket");
    client.set_nodelay(true).expect("it is a socket");
    server.set_nodelay(true).expect("it is a socket");
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let requests = Lane {
        random: random.fork(),
        cut: plan.request_cut.clone(),
        stall: Countdown::default(),
        trickles: plan.trickles,
        output: to_server,
    };
    let replies = Lane {
        random: random.fork(),
        cut: plan.reply_cut.clone(),
        stall: plan.stall.clone(),
        trickles: plan.trickles,
        output: to_client,
    };
    // Either end is the end of both.
    tokio::select! {
        () = carry_requests(from_client, requests) => {}
        () = carry_replies(from_server, replies, protocol, plan, random) => {}
    }
}

async fn carry_requests(mut from: OwnedReadHalf, mut lane: Lane) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        if lane.pass(&buffer[..bytes]).await.is_none() {
            return;
        }
    }
}

async fn carry_replies(
    mut from: OwnedReadHalf,
    mut lane: Lane,
    protocol: Protocol,
    plan: Plan,
    mut random: fastrand::Rng,
) {
    let mut buffer = vec![0; 64 << 10];
    let mut input: Vec<u8> = Vec::new();
    // A reply that waits for the next.
    let mut held: Vec<u8> = Vec::new();
    let mut one_in = |rate: Option<u32>| rate.is_some_and(|rate| random.u32(..rate) == 0);
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        input.extend_from_slice(&buffer[..bytes]);
        if plan.repeats.is_none() && plan.swaps.is_none() {
            if lane.pass(&input).await.is_none() {
                return;
            }
            input.clear();
            continue;
        }
        let mut output = Vec::new();
        while let Some(length) = reply_bytes(&input, protocol) {
            let reply: Vec<u8> = input.drain(..length).collect();
            if held.is_empty() && one_in(plan.swaps) {
                held = reply;
                continue;
            }
            output.extend_from_slice(&reply);
            output.append(&mut held);
            if one_in(plan.repeats) {
                output.extend_from_slice(&reply);
            }
        }
        if lane.pass(&output).await.is_none() {
            return;
        }
    }
}

/// The length of the reply at the head: a line and perhaps a value, or a packet. `None`: it is not complete.
fn reply_bytes(input: &[u8], protocol: Protocol) -> Option<usize> {
    let length = if protocol == Protocol::Binary {
        let body = input.get(8..12)?;
        24 + u32::from_be_bytes(body.try_into().expect("four bytes")) as usize
    } else {
        let line = input.windows(2).position(|end| end == b"\r\n")? + 2;
        let mut words = input[..line].split(|byte| byte.is_ascii_whitespace());
        let value = (words.next() == Some(b"VA")).then(|| words.next()).flatten();
        let value = value.and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse::<usize>().ok());
        line + value.map_or(0, |bytes| bytes + 2)
    };
    (input.len() >= length).then_some(length)
}

/// One direction.
struct Lane {
    random: fastrand::Rng,
    cut: Countdown,
    stall: Countdown,
    trickles: bool,
    output: OwnedWriteHalf,
}

impl Lane {
    /// Passes bytes on. `None`: that was the end.
    async fn pass(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            let mut piece = bytes.len();
            if self.trickles {
                piece = piece.min(self.random.usize(1..200));
                match self.random.u8(..40) {
                    0 => tokio::time::sleep(Duration::from_millis(self.random.u64(1..4))).await,
                    1..10 => tokio::task::yield_now().await,
                    _ => {}
                }
            }
            for limit in [&self.cut, &self.stall] {
                piece = piece.min(usize::try_from(limit.left()).unwrap_or(usize::MAX));
            }
            // Before they are sent: whoever receives them may set the countdown anew.
            let is_cut = self.cut.pass(piece as u64);
            let is_stalled = self.stall.pass(piece as u64);
            self.output.write_all(&bytes[..piece]).await.ok()?;
            bytes = &bytes[piece..];
            if is_cut {
                return None;
            }
            if is_stalled {
                // Until the client gives up.
                std::future::pending::<()>().await;
            }
        }
        Some(())
    }
}
