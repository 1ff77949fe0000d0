//! What goes along with requests, if it was asked for: the near cache, and the observer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::near_cache::{DOUBT, NearStore};
use super::request::Request;
use super::{Answer, AsyncClient, Reply, TIMEOUT_MAX, impossible};
use crate::client::{ByServer, Item};
use crate::{Error, Protocol};

impl AsyncClient {
    /// The near cache.
    pub(super) fn near(&self) -> Option<&Arc<NearStore>> {
        self.shared.near.as_ref()
    }

    /// Asks the server of a key, or those of its copies. Who has asked for nothing pays for nothing.
    pub(super) async fn ask_hooked(
        &self,
        deadline: Instant,
        key: &[u8],
        request: Request,
        is_quiet: bool,
    ) -> Result<Reply, Error> {
        if self.shared.near.is_none() && !self.shared.is_observed() {
            return self.ask_servers(deadline, key, request, is_quiet).await;
        }
        Box::pin(self.ask_with_hooks(deadline, key, request, is_quiet)).await
    }

    async fn ask_with_hooks(
        &self,
        deadline: Instant,
        key: &[u8],
        request: Request,
        is_quiet: bool,
    ) -> Result<Reply, Error> {
        let is_get = matches!(request, Request::Get { .. });
        let observation = self.shared.is_observed().then(|| self.observe(&request, key));
        let changing = self.near().filter(|_| request.changes_item());
        let time = self.timeout;
        let mut changing = changing.map(|near| Changing { near, key, time, is_certain: false });
        let asked = self.ask_servers(deadline, key, request, is_quiet);
        let result = match observation {
            Some(observation) => observation.of(asked, is_get).await,
            None => asked.await,
        };
        if let Some(changing) = &mut changing {
            changing.is_certain = !is_quiet && !result.as_ref().is_err_and(Error::is_unknown);
        }
        result
    }

    /// The value of a key, if the near cache has it.
    pub(super) fn near_hit(&self, key: &[u8]) -> Option<Item> {
        let item = self.near()?.get(key)?;
        if self.shared.is_observed() {
            self.observe_near_hit(key);
        }
        Some(item)
    }

    /// A get, with a near cache.
    pub(super) async fn get_near(&self, key: &[u8]) -> Result<Option<Item>, Error> {
        if let Some(item) = self.near_hit(key) {
            return Ok(Some(item));
        }
        let stamp = self.near().and_then(|near| near.stamp(key, &self.shared));
        let get = Request::Get { key: self.key(key)?, with_cas: false, exptime: None, recache: None };
        // Nothing is kept longer than it lives.
        let get = if self.protocol() == Protocol::Meta { get.with_ttl() } else { get };
        let reply = self.ask(key, get).await?;
        let Answer::Found = reply.answer else { return Err(impossible()) };
        if let (Some(near), Some(stamp), Some(found)) = (self.near(), stamp, &reply.found) {
            near.put(key, stamp, found);
        }
        // As without a near cache, which is not asked for it.
        Ok(reply.found.map(|found| Item {
            cas: found.item.cas.filter(|_| self.protocol() == Protocol::Binary),
            ..found.item
        }))
    }

    /// Nothing that is kept, or being computed, is valid any more.
    pub(super) fn clear_near(&self) {
        self.shared.flights.outdate_all();
        if let Some(near) = self.near() {
            near.clear();
        }
    }

    /// For a flush after a delay: to be dropped when it is asked for.
    pub(super) fn flushing(&self, delay_secs: u32) -> Flushing<'_> {
        self.shared.flights.outdate_all();
        let delay = Duration::from_secs(delay_secs.into());
        Flushing { client: self, began: Instant::now(), delay, is_certain: false }
    }
}

/// Every key is being changed.
pub(super) struct Flushing<'a> {
    client: &'a AsyncClient,
    began: Instant,
    delay: Duration,
    /// No server gets it later.
    is_certain: bool,
}

impl Flushing<'_> {
    /// These are its answers.
    pub(super) fn end<R>(mut self, results: &ByServer<R>) {
        self.is_certain = !results.iter().any(|(_, result)| result.as_ref().is_err_and(Error::is_unknown));
    }

    /// From when until when it takes effect, if it has ended now. `None`: it has.
    fn expected(&self, now: Instant) -> Option<(Instant, Instant)> {
        if self.is_certain && self.delay.is_zero() {
            return None;
        }
        let time = self.client.timeout.min(TIMEOUT_MAX) + DOUBT;
        let late = if self.is_certain { Duration::ZERO } else { time };
        let from = (self.began + self.delay).checked_sub(FLUSH_SPREAD).unwrap_or(self.began);
        Some((from, now + self.delay + late + FLUSH_SPREAD))
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        if let Some((from, to)) = self.expected(Instant::now())
            && let Some(near) = self.client.near()
        {
            near.expect_flush(from, to);
        }
        self.client.clear_near();
    }
}

/// A key is being changed. What was read before the change is done is not valid when it is.
struct Changing<'a> {
    near: &'a NearStore,
    key: &'a [u8],
    /// As long as this a request may live.
    time: Duration,
    /// The server has made the change, or never will.
    is_certain: bool,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if self.is_certain {
            self.near.invalidate(self.key);
        } else {
            self.near.doubt(self.key, self.time);
        }
    }
}

/// Servers count whole seconds: a flush takes effect so much earlier or later.
const FLUSH_SPREAD: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;
    use crate::async_client::{Coherence, NearCache};

    fn client(timeout: Duration) -> AsyncClient {
        let near = NearCache {
            entries_max: 10,
            bytes_max: 1 << 20,
            ttl: Duration::from_secs(60),
            coherence: Coherence::Ttl,
        };
        AsyncClient::builder().timeout(timeout).near_cache(near).build()
    }

    #[test]
    fn a_flush_is_expected_until_no_server_can_make_it_any_more() {
        let (secs, minute) = (Duration::from_secs, Duration::from_secs(60));
        let client = client(minute);
        let now = Instant::now() + minute;
        let results = |error: fn() -> Error| {
            let at = |port| Address::Inet { host: "a".into(), port };
            vec![(at(1), Ok(())), (at(2), Err(error()))]
        };
        let unknown: ByServer<()> = results(|| Error::Unknown(Box::new(Error::Closed)));
        let known: ByServer<()> = results(|| Error::Ejected(Address::Inet { host: "a".into(), port: 2 }));
        for (delay, results, expected) in [
            (0, Some(&known), None),
            (100, Some(&known), Some((98, 102))),
            // The request lives as long as its client waits.
            (0, Some(&unknown), Some((-2, 63))),
            (0, None, Some((-2, 63))),
            (100, None, Some((98, 163))),
        ] {
            let mut flushing = client.flushing(delay);
            flushing.began = now;
            if let Some(results) = results {
                flushing.is_certain =
                    !results.iter().any(|(_, result)| result.as_ref().is_err_and(Error::is_unknown));
            }
            let at = |offset: i64| match u64::try_from(offset) {
                Ok(after) => now + secs(after),
                Err(_) => now - secs(offset.unsigned_abs()),
            };
            let expected = expected.map(|(from, to)| (at(from), at(to)));
            assert_eq!(flushing.expected(now), expected, "{delay}");
        }
    }

    #[test]
    fn nothing_is_kept_of_a_time_when_all_may_be_flushed() {
        let client = client(Duration::from_secs(60));
        let near = client.near().expect("it has one");
        let now = Instant::now();
        let minute = Duration::from_secs(60);
        near.expect_flush(now + minute, now + minute * 2);
        assert!(near.stamp(b"k", &client.shared).is_some());
        near.expect_flush(now - minute, now + minute);
        assert!(near.stamp(b"k", &client.shared).is_none());
    }
}
