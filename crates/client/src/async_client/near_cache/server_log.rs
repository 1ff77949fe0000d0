//! What servers say of changes: `watch mutations deletions`. memcached 1.6.18 knows no stream of deletions: there they
//! are counted.
//!
//! The end of a log is seen by the connection, or by keep-alive. Lines that a server leaves out are told by a line
//! (`skipped=`) if the connection was too slow, and by a counter in `stats` alone if a worker was too fast; flushes are
//! not told at all, but counted as well.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, sleep, timeout};

use super::NearStore;
use crate::Address;
use crate::async_client::Shared;
use crate::async_client::request::Request;
use crate::async_client::socket::Socket;

/// The logs of all servers that keys were asked of.
#[derive(Default)]
pub(super) struct ServerLogs {
    by_address: Mutex<HashMap<Address, Arc<ServerLog>>>,
}

/// The log of a server.
#[derive(Default)]
pub(super) struct ServerLog {
    /// Odd while each line arrives. What was read at another number may have changed since.
    losses: AtomicU64,
}

impl ServerLogs {
    fn by_address(&self) -> MutexGuard<'_, HashMap<Address, Arc<ServerLog>>> {
        // Nothing under the lock panics.
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log of a key's server, and its number. `None`: it has none now; it is begun if need be.
    pub(super) fn of(&self, key: &[u8], shared: &Arc<Shared>) -> Option<(Arc<ServerLog>, u64)> {
        let topology = shared.topology();
        let server = topology.router.locator().server_of(key)?;
        let address = &topology.pools.get(server)?.address;
        let mut logs = self.by_address();
        if let Some(log) = logs.get(address) {
            let losses = log.losses.load(Ordering::SeqCst);
            return (losses % 2 == 1).then(|| (Arc::clone(log), losses));
        }
        let log = Arc::new(ServerLog::default());
        logs.insert(address.clone(), Arc::clone(&log));
        drop(logs);
        tokio::spawn(follow(Arc::downgrade(shared), address.clone(), log));
        None
    }

    /// How many are whole at this moment.
    pub(super) fn whole(&self) -> usize {
        self.by_address().values().filter(|log| log.losses.load(Ordering::SeqCst) % 2 == 1).count()
    }
}

impl ServerLog {
    /// True if no line was lost since it had this number.
    pub(super) fn is_whole_since(&self, losses: u64) -> bool {
        self.losses.load(Ordering::SeqCst) == losses
    }

    fn begin(&self) {
        self.losses.fetch_add(1, Ordering::SeqCst);
    }

    /// Lines were lost, and the next will arrive.
    fn skip(&self, near: &NearStore) {
        self.losses.fetch_add(2, Ordering::SeqCst);
        near.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// A log while it is read. However that ends, it is lost.
struct Whole<'a> {
    log: &'a ServerLog,
    near: &'a NearStore,
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        self.log.losses.fetch_add(1, Ordering::SeqCst);
        self.near.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// Removes a log that nobody reads any more, so that another is begun when it is needed.
struct Listed<'a> {
    shared: &'a Weak<Shared>,
    address: &'a Address,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        if let Some(near) = self.shared.upgrade().and_then(|shared| shared.near.clone())
            && let Some(logs) = &near.logs
        {
            logs.by_address().remove(self.address);
        }
    }
}

/// Reads the log of a server, until the client is gone or has this server no more.
async fn follow(shared: Weak<Shared>, address: Address, log: Arc<ServerLog>) {
    let _listed = Listed { shared: &shared, address: &address };
    let mut pause = PAUSE_MIN;
    while let Some(near) = near_of(&shared, &address) {
        let began = Instant::now();
        // Why it has ended makes no difference.
        let _ = read(&shared, &address, &log, &near).await;
        drop(near);
        pause = if began.elapsed() > PAUSE_MAX { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        sleep(pause).await;
    }
}

/// The near cache, as long as the client has this server.
fn near_of(shared: &Weak<Shared>, address: &Address) -> Option<Arc<NearStore>> {
    let shared = shared.upgrade()?;
    shared.topology().pools.iter().any(|pool| pool.address == *address).then(|| shared.near.clone())?
}

/// Reads one connection to its end. `None`: it has ended.
async fn read(shared: &Weak<Shared>, address: &Address, log: &ServerLog, near: &NearStore) -> Option<()> {
    let settings = Arc::clone(&shared.upgrade()?.settings);
    let mut socket = Socket::open(address, &settings).await.ok()?;
    keep_alive(&socket);
    let mut lines = Lines::default();
    let accepted = async {
        let tells_deletions = lines.request(&mut socket, b"watch mutations deletions\r\n").await?;
        let is_watched = tells_deletions || lines.request(&mut socket, b"watch mutations\r\n").await?;
        is_watched.then_some(tells_deletions)
    };
    let tells_deletions = timeout(settings.connect_timeout, accepted).await.ok()??;
    let mut counters = Counters::ask(shared, address, tells_deletions).await?;
    log.begin();
    let _whole = Whole { log, near };
    let ask = || async {
        sleep(COUNTERS_INTERVAL).await;
        Counters::ask(shared, address, tells_deletions).await
    };
    let mut asked = pin!(ask());
    loop {
        if lines.tell(near).is_none() {
            log.skip(near);
        }
        // A server that is slow to count tells meanwhile, and one that tells without a pause is asked as well.
        match select(asked.as_mut(), pin!(lines.receive(&mut socket))).await {
            Either::Left((now, _)) => {
                let now = now?;
                if now != counters {
                    log.skip(near);
                }
                counters = now;
                asked.set(ask());
            }
            Either::Right((received, _)) => received?,
        }
    }
}

/// What a server counts, and does not tell.
#[derive(PartialEq)]
struct Counters {
    dropped: Option<String>,
    flushes: Option<String>,
    /// `None`: they are told.
    deletions: Option<String>,
}

impl Counters {
    async fn ask(shared: &Weak<Shared>, address: &Address, tells_deletions: bool) -> Option<Self> {
        let (topology, deadline) = {
            let shared = shared.upgrade()?;
            (shared.topology(), Instant::now() + shared.settings.timeout.min(COUNTERS_TIME_MAX))
        };
        let server = topology.pools.iter().position(|pool| pool.address == *address)?;
        let request = Request::Stats { group: String::new(), wanted: &[DROPPED, FLUSHES, DELETIONS] };
        let stats = topology.ask_directly(server, request, deadline).await.ok()?.stats;
        let of = |name: &str| stats.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
        Some(Self {
            dropped: of(DROPPED),
            flushes: of(FLUSHES),
            deletions: if tells_deletions { None } else { of(DELETIONS) },
        })
    }
}

/// Lines that have arrived, and the part of one.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
}

impl Lines {
    /// `None`: the connection has ended, or has no lines.
    async fn receive(&mut self, socket: &mut Socket) -> Option<()> {
        if self.bytes.len() > LINE_BYTES_MAX {
            return None;
        }
        let filled = self.bytes.len();
        self.bytes.resize(filled + READ_BYTES, 0);
        // A read that is given up has taken nothing.
        let mut shrink = Shrink { bytes: &mut self.bytes, filled };
        let received = poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut shrink.bytes[filled..]);
            let read = Pin::new(&mut *socket).poll_read(cx, &mut buffer);
            read.map_ok(|()| buffer.filled().len())
        });
        let received = received.await.ok().filter(|received| *received > 0)?;
        shrink.filled += received;
        Some(())
    }

    /// `false`: the server knows no such streams, or allows no watchers.
    async fn request(&mut self, socket: &mut Socket, request: &[u8]) -> Option<bool> {
        socket.send(request).await.ok()?;
        while !self.bytes.contains(&b'\n') {
            self.receive(socket).await?;
        }
        let is_accepted = self.bytes.starts_with(b"OK\r\n");
        self.bytes.drain(..=self.bytes.iter().position(|byte| *byte == b'\n')?);
        Some(is_accepted)
    }

    /// Tells of the lines that are complete. `None`: what some said is lost.
    fn tell(&mut self, near: &NearStore) -> Option<()> {
        let mut is_understood = Some(());
        let complete = self.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        for line in self.bytes[..complete].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match key_of(line) {
                Some(key) => near.invalidate(&key),
                None => is_understood = None,
            }
        }
        self.bytes.drain(..complete);
        is_understood
    }
}

/// Removes the room that was made for a read.
struct Shrink<'a> {
    bytes: &'a mut Vec<u8>,
    filled: usize,
}

impl Drop for Shrink<'_> {
    fn drop(&mut self) {
        self.bytes.truncate(self.filled);
    }
}

/// The key of a line. `None`: it has none, such as `skipped=12`.
fn key_of(line: &[u8]) -> Option<Vec<u8>> {
    let key = line.split(|byte| *byte == b' ').find_map(|field| field.strip_prefix(b"key="))?;
    let mut decoded = Vec::with_capacity(key.len());
    let mut rest = key;
    while let Some((byte, after)) = rest.split_first() {
        rest = match (byte, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |digit: u8| char::from(digit).to_digit(16);
                decoded.push((digit(*high)? * 16 + digit(*low)?) as u8);
                after
            }
            (b'%', _) => return None,
            (byte, after) => {
                decoded.push(*byte);
                after
            }
        };
    }
    Some(decoded)
}

/// A server that is gone without a word is noticed.
fn keep_alive(socket: &Socket) {
    use rustix::net::sockopt;
    if let Some(socket) = socket.tcp() {
        // Where the system has no such option, the time to live is left.
        let _ = sockopt::set_socket_keepalive(socket, true);
        let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(2));
        let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(1));
        let _ = sockopt::set_tcp_keepcnt(socket, 3);
    }
}

const DROPPED: &str = "log_worker_dropped";
const FLUSHES: &str = "cmd_flush";
const DELETIONS: &str = "delete_hits";
const READ_BYTES: usize = 16 << 10;
/// Keys are encoded, three bytes for one.
const LINE_BYTES_MAX: usize = 8 << 10;
/// How often a server is asked what it has left out.
const COUNTERS_INTERVAL: Duration = Duration::from_secs(1);
const COUNTERS_TIME_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of memcached 1.6.38 and of its documents.
    #[test]
    fn keys_are_read_from_lines() {
        let key = |line: &str| key_of(line.as_bytes()).map(|key| String::from_utf8_lossy(&key).into_owned());
        let line = "ts=1795275101.127 gid=3 type=item_store key=a%20b%0A status=stored cmd=set ttl=60 clsid=1 cfd=16";
        assert_eq!(key(line).as_deref(), Some("a b\n"));
        assert_eq!(key("ts=1.5 gid=4 type=deleted key=k cmd=delete clsid=1 size=5").as_deref(), Some("k"));
        for lost in ["skipped=12", "", "ts=1.5 gid=4 type=deleted key=a%2", "type=deleted key=%zz"] {
            assert_eq!(key(lost), None, "{lost}");
        }
    }
}
