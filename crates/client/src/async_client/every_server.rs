//! Requests to every server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::request::Request;
use super::topology::Topology;
use super::{Answer, AsyncClient, Reply, impossible};
use crate::Error;
use crate::check::{check_group, is_word};
use crate::client::ByServer;
use crate::codec::Protocol;
use crate::ttl::{RELATIVE_SECS_MAX, secs_rounded_up};

/// All servers at once. Each has its own result.
impl AsyncClient {
    /// Flushes every server, now or after a delay, rounded up to seconds. During a
    /// [warm-up](super::AsyncBuilder::warm_up) those as well, at the end, that have left the list: other processes may
    /// still read them.
    pub async fn flush_all(&self, delay: Duration) -> ByServer<()> {
        let delay_secs = delay_secs(delay);
        let is_ok = |reply: Reply| reply.made_or_sent(|answer| matches!(answer, Answer::Ok));
        self.flush("flush_all", delay_secs, || Ok(Request::FlushAll { delay_secs }), is_ok).await
    }

    /// Flushes the namespace of larderd with this prefix (`<null>`: the default) on every server, now or after a delay,
    /// rounded up to seconds, and servers that have left the list as [`AsyncClient::flush_all`]. `false`: the server
    /// has no such namespace. Not in the binary protocol, and with prefixes that are keys.
    pub async fn flush_prefix(&self, prefix: &str, delay: Duration) -> ByServer<bool> {
        let delay_secs = delay_secs(delay);
        let request = || {
            if self.protocol() == Protocol::Binary {
                return Err(Error::Unsupported("the binary protocol has no namespaces"));
            }
            if !is_word(prefix.as_bytes()) {
                return Err(Error::InvalidKey);
            }
            Ok(Request::FlushPrefix { prefix: prefix.to_owned(), delay_secs })
        };
        let is_flushed = |reply: Reply| match reply.answer {
            Answer::Ok => Ok(true),
            Answer::NotFound => Ok(false),
            _ => Err(impossible()),
        };
        self.flush("flush_prefix", delay_secs, request, is_flushed).await
    }

    async fn flush<R>(
        &self,
        name: &'static str,
        delay_secs: u32,
        request: impl Fn() -> Result<Request, Error>,
        read: impl Fn(Reply) -> Result<R, Error>,
    ) -> ByServer<R> {
        let deadline = self.deadline();
        let topology = loop {
            let topology = self.shared.topology();
            if let Some(warm_up) = topology.warming() {
                // What is flushed does not come back from an old place.
                warm_up.flush(deadline).await;
            }
            // The list may have changed meanwhile.
            if Arc::ptr_eq(&topology, &self.shared.topology()) {
                break topology;
            }
        };
        let flushing = self.flushing(delay_secs);
        let results = self.ask_servers_of(&topology, name, topology.left(), request, read, deadline).await;
        flushing.end(&results);
        results
    }

    /// Every server's version.
    pub async fn version(&self) -> ByServer<String> {
        let version = |reply: Reply| match reply.answer {
            Answer::Version(version) => Ok(version),
            _ => Err(impossible()),
        };
        self.ask_every_server("version", || Ok(Request::Version), version).await
    }

    /// Every server's statistics, by name: those of `group`, or the general ones if it is empty. A server that sends
    /// more than 256 MiB, counted with what they take here, breaks the protocol. [`Error::Unsupported`]: `group` has
    /// control characters, or more than 250 bytes.
    pub async fn stats(&self, group: &str) -> ByServer<Vec<(String, String)>> {
        let request = || {
            check_group(group)?;
            Ok(Request::Stats { group: group.to_owned(), wanted: &[] })
        };
        self.ask_every_server("stats", request, |reply| Ok(reply.stats)).await
    }

    async fn ask_every_server<R>(
        &self,
        name: &'static str,
        request: impl Fn() -> Result<Request, Error>,
        read: impl Fn(Reply) -> Result<R, Error>,
    ) -> ByServer<R> {
        self.ask_servers_of(&self.shared.topology(), name, None, request, read, self.deadline()).await
    }

    /// `left`: positions in another list, of servers that are asked as well.
    async fn ask_servers_of<R>(
        &self,
        topology: &Arc<Topology>,
        name: &'static str,
        left: Option<(Arc<Topology>, Vec<usize>)>,
        request: impl Fn() -> Result<Request, Error>,
        read: impl Fn(Reply) -> Result<R, Error>,
        deadline: Instant,
    ) -> ByServer<R> {
        let own = (0..topology.pools.len()).map(|server| (topology, server));
        let left = left.iter().flat_map(|(old, left)| left.iter().map(move |server| (old, *server)));
        let servers: Vec<_> = own.chain(left).collect();
        let ask = async |(topology, server): (&Arc<Topology>, usize)| {
            let request = request()?;
            if let Some(udp) = &self.shared.udp
                && let Some(reply) = udp.ask_server(topology, server, &request, deadline).await?
            {
                return read(reply);
            }
            topology.ask_directly(server, request, deadline).await.and_then(&read)
        };
        let asked = async {
            let results = join_all(servers.iter().copied().map(ask)).await;
            servers
                .iter()
                .map(|(topology, server)| topology.pools[*server].address.clone())
                .zip(results)
                .collect()
        };
        match self.observe_many(name, 0) {
            Some(observation) => observation.of_every_server(asked).await,
            None => asked.await,
        }
    }
}

/// Whole seconds, rounded up: more than the longest would be a Unix time.
fn delay_secs(delay: Duration) -> u32 {
    secs_rounded_up(delay).min(RELATIVE_SECS_MAX) as u32
}
