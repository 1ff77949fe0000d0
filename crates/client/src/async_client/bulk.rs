//! Many keys at once, of all their servers at once.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{error, fmt};

use futures_util::stream::{FuturesUnordered, Stream, StreamExt, iter};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::changes::{StoreOptions, deleted, store_outcome};
use super::connection::Credit;
use super::request::Request;
use super::share::{Delivery, Share};
use super::{Answer, AsyncClient, Attempts, Reply};
use crate::client::{Item, StoreOutcome};
use crate::{Address, Error, Ttl};

/// The values of many keys, in the order of their arrival: [`AsyncClient::get_many`].
///
/// A stream of each value with the position of its key, and of failures with the positions of theirs. A key that is in
/// neither is not found.
///
/// Take the values as they come: a connection on which
/// [`AsyncBuilder::buffered_bytes`](super::AsyncBuilder::buffered_bytes) of them wait is not read any more, and its
/// other requests wait as well. Dropping it before its end cancels its requests (see [the module](super)).
#[must_use = "nothing is asked for until it is polled"]
pub struct GetMany {
    /// One for each server: asks for its keys.
    servers: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    keys: usize,
}

/// What has come of some keys.
#[derive(Debug)]
pub(super) enum Arrival {
    /// The position of a key, its value, and the room that it takes until it is taken.
    Value(usize, Item, Credit),
    Failure(BulkFailure),
}

/// Keys of which it is not known what the server has.
#[derive(Debug)]
pub struct BulkFailure {
    /// Positions of the keys.
    pub places: Vec<usize>,
    /// Their server. `None`: the key is invalid, or there is no server.
    pub address: Option<Address>,
    /// The reason.
    pub error: Error,
}

/// The result of a get of many keys.
#[derive(Debug, Default)]
pub struct Found {
    /// One for each key, in order. `None`: not found, or in a failure.
    pub items: Vec<Option<Item>>,
    /// Keys of which nothing is known.
    pub failures: Vec<BulkFailure>,
}

impl AsyncClient {
    /// Gets the values of many keys, of all servers at once, in the order of their arrival.
    ///
    /// ```no_run
    /// # async fn example(client: larder_client::AsyncClient) {
    /// let keys = ["colour", "shape"];
    /// let mut values = client.get_many(keys);
    /// while let Some(arrival) = values.next().await {
    ///     match arrival {
    ///         Ok((place, item)) => println!("{}: {} bytes", keys[place], item.value.len()),
    ///         Err(failure) => eprintln!("{failure}"),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// The time of the operation begins with this call.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> GetMany {
        self.get_many_with(keys, false)
    }

    /// [`AsyncClient::get_many`], with the CAS values.
    pub fn gets_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> GetMany {
        self.get_many_with(keys, true)
    }

    fn get_many_with<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>, with_cas: bool) -> GetMany {
        let deadline = self.deadline();
        let (sender, arrivals) = mpsc::unbounded_channel();
        // By server, and by how keys are written.
        let mut shares: HashMap<usize, [Vec<Share>; 2]> = HashMap::new();
        let mut count = 0;
        for (place, key) in keys.into_iter().enumerate() {
            let key = key.as_ref();
            count = place + 1;
            let server = self.shared.ring.server_of(key).ok_or(Error::NoServers);
            match self.key(key).and_then(|key| Ok((key, server?))) {
                Ok((key, server)) => {
                    let shares = &mut shares.entry(server).or_default()[usize::from(key.is_base64)];
                    match shares.last_mut().filter(|share| share.len() < SHARE_KEYS) {
                        Some(share) => share.push(key, place),
                        None => {
                            let mut share = Share::new(key.is_base64);
                            share.push(key, place);
                            shares.push(share);
                        }
                    }
                }
                Err(error) => {
                    let failure = BulkFailure { places: vec![place], address: None, error };
                    let _ = sender.send(Arrival::Failure(failure));
                }
            }
        }
        let servers = FuturesUnordered::new();
        for (server, shares) in shares {
            let (client, sender) = (self.clone(), sender.clone());
            servers.push(Box::pin(async move {
                let ask = |share| client.ask_share(server, share, with_cas, deadline, &sender);
                let mut asked = iter(shares.into_iter().flatten()).map(ask).buffer_unordered(SHARES_AT_ONCE);
                while let Some(()) = asked.next().await {}
            }) as Pin<Box<dyn Future<Output = ()> + Send>>);
        }
        GetMany { servers, arrivals, keys: count }
    }

    /// Asks for the keys of a share, again for those that are missing when a connection ends.
    async fn ask_share(
        &self,
        server: usize,
        share: Share,
        with_cas: bool,
        deadline: Instant,
        arrivals: &mpsc::UnboundedSender<Arrival>,
    ) {
        let pool = &self.shared.pools[server];
        let share = Arc::new(share);
        let mut attempts = Attempts::new(self.shared.settings.retries, true);
        let error = loop {
            let positions = share.undelivered();
            if positions.is_empty() {
                return;
            }
            let delivery = Delivery {
                share: Arc::clone(&share),
                positions: Arc::clone(&positions),
                arrivals: arrivals.clone(),
            };
            let request = Arc::new(Request::MultiGet { share: Arc::clone(&share), positions, with_cas });
            match pool.ask(&request, false, Some(delivery), deadline).await {
                Ok(Reply { answer: Answer::Refused(kind, text), .. }) => break Error::Refused { kind, text },
                Ok(_) => return,
                Err(failure) => {
                    if let Err(error) = attempts.again(failure) {
                        break error;
                    }
                }
            }
        };
        let address = Some(pool.server.address.clone());
        let failure = BulkFailure { places: share.fail(), address, error };
        let _ = arrivals.send(Arrival::Failure(failure));
    }

    /// Stores many values, unconditionally, on all servers at once. The results are in the order of the items, which
    /// are taken from the iterator as there is room for them. One time limit holds for all of them together.
    pub async fn set_many<K: AsRef<[u8]>, V: Into<Vec<u8>>>(
        &self,
        items: impl IntoIterator<Item = (K, V)>,
        ttl: impl Into<Ttl>,
    ) -> Vec<Result<(), Error>> {
        let options = StoreOptions { ttl: ttl.into(), ..StoreOptions::default() };
        let requests = items.into_iter().map(|(key, value)| {
            let key = key.as_ref();
            self.store_request(key, value.into(), options)
                .and_then(|request| Ok((self.server_index(key)?, request)))
        });
        let stored = |reply: &Reply| match store_outcome(reply)? {
            StoreOutcome::Stored => Ok(()),
            _ => Err(super::impossible()),
        };
        self.ask_for_all(requests, stored).await
    }

    /// Deletes many keys, on all servers at once. The results are in the order of the keys; `false`: it does not exist.
    /// One time limit holds for all of them together.
    pub async fn delete_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<bool, Error>> {
        let requests = keys.into_iter().map(|key| {
            let request = Request::Delete { key: self.key(key.as_ref())?, compare: None, invalidate: None };
            Ok((self.server_index(key.as_ref())?, request))
        });
        self.ask_for_all(requests, deleted).await
    }

    fn server_index(&self, key: &[u8]) -> Result<usize, Error> {
        self.shared.ring.server_of(key).ok_or(Error::NoServers)
    }

    /// Sends all requests, each to its server. The results are in their order.
    async fn ask_for_all<R>(
        &self,
        requests: impl Iterator<Item = Result<(usize, Request), Error>>,
        read: fn(&Reply) -> Result<R, Error>,
    ) -> Vec<Result<R, Error>> {
        let deadline = self.deadline();
        let ask = |(index, request): (usize, Result<(usize, Request), Error>)| async move {
            let result = match request {
                Ok((server, request)) => {
                    let pool = &self.shared.pools[server];
                    self.ask_until(deadline, pool, request, false).await.and_then(|reply| read(&reply))
                }
                Err(error) => Err(error),
            };
            (index, result)
        };
        let at_once = CHANGES_AT_ONCE * self.shared.pools.len().max(1);
        let mut results: Vec<_> =
            iter(requests.enumerate()).map(ask).buffer_unordered(at_once).collect().await;
        results.sort_unstable_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

impl GetMany {
    /// The next value, with the position of its key, or the next failure. `None`: there are no more.
    pub async fn next(&mut self) -> Option<Result<(usize, Item), BulkFailure>> {
        StreamExt::next(self).await
    }

    /// Waits for all of them.
    pub async fn collect(mut self) -> Found {
        let mut found = Found::default();
        found.items.resize_with(self.keys, || None);
        while let Some(arrival) = self.next().await {
            match arrival {
                Ok((place, item)) => found.items[place] = Some(item),
                Err(failure) => found.failures.push(failure),
            }
        }
        found
    }
}

impl Stream for GetMany {
    type Item = Result<(usize, Item), BulkFailure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.arrivals.poll_recv(cx) {
                Poll::Ready(Some(Arrival::Value(place, item, _credit))) => {
                    return Poll::Ready(Some(Ok((place, item))));
                }
                Poll::Ready(Some(Arrival::Failure(failure))) => return Poll::Ready(Some(Err(failure))),
                // Every server is done.
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {}
            }
            match self.servers.poll_next_unpin(cx) {
                Poll::Ready(Some(())) => {}
                // Where all are done, tokio has told the task to give others a turn before it receives.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl fmt::Debug for GetMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetMany").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl fmt::Display for BulkFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.places.len();
        match &self.address {
            Some(address) => write!(f, "{address}: {} ({keys} keys)", self.error),
            None => write!(f, "{} ({keys} keys)", self.error),
        }
    }
}

impl error::Error for BulkFailure {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Keys of one request: at most 16 KiB of them.
const SHARE_KEYS: usize = 64;
/// Requests of one get of many keys that are under way to one server, so that others have their turn.
const SHARES_AT_ONCE: usize = 16;
/// The same of changes of many keys, for each server.
const CHANGES_AT_ONCE: usize = 512;
