//! Requests to every server.

use super::{ByServer, Client, Statistics};
use crate::Error;
use crate::check::{check_group, is_word};
use crate::codec::{Event, Outcome, Pipeline, Protocol};
use crate::ttl::RELATIVE_SECS_MAX;

/// One server after the other. Each has its own result.
impl Client {
    /// Flushes every server, now or in `delay_secs`, at most 30 days.
    pub fn flush_all(&mut self, delay_secs: u32) -> ByServer<()> {
        let request = |pipeline: &mut Pipeline<()>, output: &mut Vec<u8>| {
            pipeline.flush_all(output, sent_delay(delay_secs), Some(()));
        };
        self.each_server(|| Ok(()), request, |(), _| {})
    }

    /// Flushes the namespace with this prefix (`<null>`: the default) on every server, now or in `delay_secs`, at most
    /// 30 days. `false`: the server has no such namespace. Not by the binary protocol, and with prefixes that are keys:
    /// [`Error::InvalidKey`] otherwise.
    pub fn flush_prefix(&mut self, prefix: &str, delay_secs: u32) -> ByServer<bool> {
        let is_namespace = self.settings.protocol != Protocol::Binary && is_word(prefix.as_bytes());
        self.each_server(
            || if is_namespace { Ok(()) } else { Err(Error::InvalidKey) },
            |pipeline, output| {
                pipeline.flush_prefix(output, prefix.as_bytes(), sent_delay(delay_secs), Some(()))
            },
            |is_flushed, event| *is_flushed = matches!(event, Event::Done((), Outcome::Ok)),
        )
    }

    /// Every server's version.
    pub fn version(&mut self) -> ByServer<String> {
        self.each_server(
            || Ok(()),
            |pipeline, output| pipeline.version(output, ()),
            |version, event| {
                if let Event::Done((), Outcome::Version(text)) = event {
                    *version = String::from_utf8_lossy(text).into_owned();
                }
            },
        )
    }

    /// Every server's statistics, by name: those of `group`, or the general ones if it is empty. A server that sends
    /// more than 256 MiB, counted with what they take here, breaks the protocol. [`Error::Unsupported`]: `group` has
    /// control characters, or more than 250 bytes.
    pub fn stats(&mut self, group: &str) -> ByServer<Vec<(String, String)>> {
        let told = self.each_server(
            || check_group(group),
            |pipeline, output| pipeline.stats(output, group.as_bytes(), ()),
            |told: &mut Statistics, event| {
                if let Event::Stat(name, value) = event {
                    told.add(name, value);
                }
            },
        );
        told.into_iter().map(|(address, told)| (address, told.and_then(Statistics::whole))).collect()
    }

    /// Sends a request to one server after the other, if `check` allows it, and collects what `gather` makes of the
    /// events of each.
    fn each_server<R: Default>(
        &mut self,
        check: impl Fn() -> Result<(), Error>,
        request: impl Fn(&mut Pipeline<()>, &mut Vec<u8>),
        gather: impl Fn(&mut R, &Event<'_, ()>),
    ) -> ByServer<R> {
        (0..self.nodes.len())
            .map(|node| {
                let asked = check().and_then(|()| self.ask(node, &request, &gather));
                (self.nodes[node].server.address.clone(), asked)
            })
            .collect()
    }
}

/// More than the longest would be a Unix time.
fn sent_delay(delay_secs: u32) -> u32 {
    delay_secs.min(RELATIVE_SECS_MAX as u32)
}
