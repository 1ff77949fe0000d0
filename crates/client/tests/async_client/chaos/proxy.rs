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
#[derive(Clone, Copy, Default)]
pub(crate) struct Plan {
    pub seed: u64,
    /// Ends after so many bytes of requests, or of replies.
    pub request_cut: Option<u64>,
    pub reply_cut: Option<u64>,
    /// Nothing comes after so many bytes of replies.
    pub stall: Option<u64>,
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
            0 if faults.cuts => plan.request_cut = Some(early(&mut random)),
            1 | 2 if faults.cuts => plan.reply_cut = Some(early(&mut random)),
            3 if faults.stalls => plan.stall = Some(early(&mut random)),
            4 | 5 if faults.repeats => plan.repeats = Some(random.u32(1..200)),
            6 if faults.repeats => plan.swaps = Some(random.u32(1..200)),
            _ => {}
        }
        plan
    }
}

/// A proxy before a server, until it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    counts: Arc<Counts>,
    listener: JoinHandle<()>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    request_bytes: AtomicU64,
    reply_bytes: AtomicU64,
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
        let counts = Arc::new(Counts::default());
        let counting = Arc::clone(&counts);
        let listener = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.expect("somebody connects");
                let plan = plan(counting.connections.fetch_add(1, Ordering::Relaxed));
                tokio::spawn(forward(client, server, protocol, plan, Arc::clone(&counting)));
            }
        });
        Self { address, counts, listener }
    }

    pub(crate) fn address(&self) -> Address {
        self.address.to_string().parse().expect("an address")
    }

    pub(crate) fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// Bytes of requests and of replies that have passed.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let count = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        (count(&self.counts.request_bytes), count(&self.counts.reply_bytes))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn forward(client: TcpStream, server: SocketAddr, protocol: Protocol, plan: Plan, counts: Arc<Counts>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    client.set_nodelay(true).expect("it is a socket");
    server.set_nodelay(true).expect("it is a socket");
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let requests = Lane {
        random: random.fork(),
        cut: plan.request_cut,
        stall: None,
        trickles: plan.trickles,
        passed: 0,
        output: to_server,
    };
    let replies = Lane {
        random: random.fork(),
        cut: plan.reply_cut,
        stall: plan.stall,
        trickles: plan.trickles,
        passed: 0,
        output: to_client,
    };
    // Either end is the end of both.
    tokio::select! {
        () = carry_requests(from_client, requests, &counts) => {}
        () = carry_replies(from_server, replies, protocol, plan, random, &counts) => {}
    }
}

async fn carry_requests(mut from: OwnedReadHalf, mut lane: Lane, counts: &Counts) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        counts.request_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
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
    counts: &Counts,
) {
    let mut buffer = vec![0; 64 << 10];
    let mut input: Vec<u8> = Vec::new();
    // A reply that waits for the next.
    let mut held: Vec<u8> = Vec::new();
    let mut one_in = |rate: Option<u32>| rate.is_some_and(|rate| random.u32(..rate) == 0);
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        counts.reply_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
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
    cut: Option<u64>,
    stall: Option<u64>,
    trickles: bool,
    passed: u64,
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
            for limit in [self.cut, self.stall].into_iter().flatten() {
                piece = piece.min(limit.saturating_sub(self.passed) as usize);
            }
            self.output.write_all(&bytes[..piece]).await.ok()?;
            self.passed += piece as u64;
            bytes = &bytes[piece..];
            if self.cut == Some(self.passed) {
                return None;
            }
            if self.stall == Some(self.passed) {
                // Until the client gives up.
                std::future::pending::<()>().await;
            }
        }
        Some(())
    }
}
