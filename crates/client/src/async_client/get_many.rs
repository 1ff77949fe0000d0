//! Gets of many keys, of all their servers at once.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{error, fmt};

use futures_util::stream::{FuturesUnordered, Stream, StreamExt, iter};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::arrival::{Arrival, Arrivals};
use super::attempts::Attempts;
use super::batch::Batch;
use super::connection::Credit;
use super::key::{WireKey, written};
use super::observer::Observation;
use super::request::Request;
use super::share::{Delivery, SHARE_KEYS, Share, Shares};
use super::topology::Topology;
use super::{Answer, AsyncClient, Reply};
use crate::client::Item;
use crate::{Address, Error};

/// The values of many keys, in the order of their arrival: [`AsyncClient::get_many`].
///
/// A stream of each value with the position of its key, and of failures with the positions of theirs. A key that is in
/// neither is not found.
///
/// Take the values as they come: a connection on which
/// [`AsyncBuilder::buffered_bytes`](super::AsyncBuilder::buffered_bytes) of them wait is not read any more, and its
/// other requests wait as well. Keys that are asked for one by one are not held to that: with
/// [copies](super::AsyncBuilder::replication) or over UDP up to 512 values wait, and up to 2,048 of each server at old
/// places during a warm-up. Dropping it before its end cancels its requests (see [the module](super)).
#[must_use = "nothing is asked for until it is polled"]
pub struct GetMany {
    /// One for each server: asks for its keys.
    servers: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>,
    arrivals: mpsc::UnboundedReceiver<Box<Arrival>>,
    /// Values that have arrived together, and the room that they take until they are taken.
    values: Option<(Batch, Credit)>,
    keys: usize,
    observation: Option<Box<Observation>>,
}

/// Keys of which it is not known what the server has. Those before one that the server has refused, in the same
/// request, may be missing in truth.
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
        self.get_many_with(keys, false).observed("get_many", self)
    }

    /// [`AsyncClient::get_many`], with the CAS values.
    pub fn gets_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> GetMany {
        self.get_many_with(keys, true).observed("gets_many", self)
    }

    fn get_many_with<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>, with_cas: bool) -> GetMany {
        let deadline = self.deadline();
        let (sender, arrivals) = Arrivals::channel();
        let topology = self.shared.topology();
        // Over UDP, each key is a request by itself.
        if self.shared.settings.replication.is_some() || self.shared.udp.is_some() {
            return self.get_replicas(keys, with_cas, deadline);
        }
        topology.probe();
        let keys = keys.into_iter();
        let mut shares = Shares::new(keys.size_hint().0 / topology.pools.len().max(1));
        let mut ejected: HashMap<Address, Vec<usize>> = HashMap::new();
        let mut count = 0;
        let mut attempts = Attempts::new(0, true);
        for (place, key) in keys.enumerate() {
            count = place + 1;
            let key = key.as_ref();
            let routed = written(key, self.protocol())
                .and_then(|written| Ok((topology.route_now(key, &mut attempts)?, written)));
            match routed {
                Ok((server, (key, is_base64))) => shares.push(server, &key, is_base64, place),
                Err(error) if topology.hides(&error) => {}
                Err(Error::Ejected(address)) => ejected.entry(address).or_default().push(place),
                Err(error) => {
                    let failure = BulkFailure { places: vec![place], address: None, error };
                    sender.send(Arrival::Failure(failure));
                }
            }
        }
        for (address, places) in ejected {
            let error = Error::Ejected(address.clone());
            sender.send(Arrival::Failure(BulkFailure { places, address: Some(address), error }));
        }
        let servers = FuturesUnordered::new();
        for (server, mut shares) in shares.by_server() {
            let (client, topology, arrivals) = (self.clone(), Arc::clone(&topology), sender.clone());
            let bulk = Bulk { client, topology, with_cas, deadline, arrivals };
            let attempts = Attempts::new(self.shared.settings.retries, true);
            let asked: Pin<Box<dyn Future<Output = ()> + Send>> = match shares.pop() {
                Some(only) if shares.is_empty() => {
                    Box::pin(async move { bulk.ask_share(server, only, attempts).await })
                }
                last => Box::pin(async move {
                    let ask = |share| bulk.ask_share(server, share, attempts.continued());
                    let shares = iter(shares.into_iter().chain(last));
                    let mut asked = shares.map(ask).buffer_unordered(SHARES_AT_ONCE);
                    while let Some(()) = asked.next().await {}
                }),
            };
            servers.push(asked);
        }
        GetMany { servers, arrivals, values: None, keys: count, observation: None }
    }

    /// Each key by itself, at all its places, or over UDP.
    fn get_replicas<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        with_cas: bool,
        deadline: Instant,
    ) -> GetMany {
        let (arrivals, receiver) = Arrivals::channel();
        let keys: Vec<_> = keys.into_iter().map(|key| self.key(key.as_ref())).enumerate().collect();
        let (client, count) = (self.clone(), keys.len());
        let asked = async move {
            let bulk = Bulk { topology: client.shared.topology(), client, with_cas, deadline, arrivals };
            let ask = |(place, key)| bulk.ask_key(key, place);
            let mut asked = iter(keys).map(ask).buffer_unordered(KEYS_AT_ONCE);
            while let Some(()) = asked.next().await {}
        };
        let servers: FuturesUnordered<_> =
            [Box::pin(asked) as Pin<Box<dyn Future<Output = ()> + Send>>].into_iter().collect();
        GetMany { servers, arrivals: receiver, values: None, keys: count, observation: None }
    }
}

/// What is the same for all keys of a get of many.
struct Bulk {
    client: AsyncClient,
    topology: Arc<Topology>,
    with_cas: bool,
    deadline: Instant,
    arrivals: Arrivals,
}

impl Bulk {
    /// Asks for the keys of a share, again for those that are missing when a connection ends, elsewhere if the policy
    /// says so.
    async fn ask_share(&self, server: usize, share: Share, attempts: Attempts) {
        let mut waiting = vec![(server, share, attempts)];
        while let Some((server, share, mut attempts)) = waiting.pop() {
            let share = Arc::new(share);
            let failed_before = attempts.failed.len();
            let Err(error) = self.ask_server(server, &share, &mut attempts).await else {
                self.ask_old_servers(&share).await;
                continue;
            };
            let mut failed = Vec::new();
            if attempts.failed.len() > failed_before {
                waiting.extend(self.elsewhere(&share, &attempts, &mut failed));
            } else {
                failed.extend(share.give_up().into_iter().map(|(_, place)| place));
            }
            if failed.is_empty() || self.topology.hides(&error) {
                continue;
            }
            let address = Some(self.topology.pools[server].address.clone());
            self.arrivals.send(Arrival::Failure(BulkFailure { places: failed, address, error }));
        }
    }

    /// Looks for keys that were not found, and have moved, at their old places.
    async fn ask_old_servers(&self, share: &Share) {
        if self.topology.warming().is_none() {
            return;
        }
        let is_moved = |(key, _): &(WireKey, usize)| self.topology.may_be_at_old_place(&key.original());
        let moved: Vec<_> = share.give_up().into_iter().filter(is_moved).collect();
        let ask = |(key, place)| self.ask_key(Ok(key), place);
        let mut asked = iter(moved).map(ask).buffer_unordered(SHARE_KEYS);
        while let Some(()) = asked.next().await {}
    }

    /// Asks for a key alone.
    async fn ask_key(&self, key: Result<WireKey, Error>, place: usize) {
        let asked = async {
            let key = key?;
            let original = key.original().into_owned();
            let get = Request::Get { key, with_cas: self.with_cas, exptime: None, recache: None };
            self.client.ask_until(self.deadline, &original, get, false).await
        };
        let arrival = match asked.await {
            Ok(Reply { found: Some(found), .. }) => Arrival::Value(place, found.item),
            Ok(_) => return,
            Err(error) => Arrival::Failure(BulkFailure { places: vec![place], address: None, error }),
        };
        self.arrivals.send(arrival);
    }

    /// The keys that have not come, by the servers that are to be asked next. `failed`: the others.
    fn elsewhere(
        &self,
        share: &Share,
        attempts: &Attempts,
        failed: &mut Vec<usize>,
    ) -> Vec<(usize, Share, Attempts)> {
        let mut shares = Shares::new(1);
        for (key, place) in share.give_up() {
            let mut next = attempts.continued();
            match self.topology.route(&key.original(), &mut next) {
                Ok(server) => shares.push(server, &key.bytes, key.is_base64, place),
                Err(_) => failed.push(place),
            }
        }
        let shares = shares
            .by_server()
            .flat_map(|(server, shares)| shares.into_iter().map(move |share| (server, share)));
        shares.map(|(server, share)| (server, share, attempts.continued())).collect()
    }

    /// `Err`: some keys have not come, and are not to be asked for here again.
    async fn ask_server(
        &self,
        server: usize,
        share: &Arc<Share>,
        attempts: &mut Attempts,
    ) -> Result<(), Error> {
        loop {
            let positions = share.undelivered();
            if positions.is_empty() {
                return Ok(());
            }
            let delivery = Delivery {
                share: Arc::clone(share),
                positions: Arc::clone(&positions),
                arrivals: self.arrivals.clone(),
            };
            let request = Request::MultiGet { share: Arc::clone(share), positions, with_cas: self.with_cas };
            let request = Arc::new(request);
            match self.topology.ask_server(server, &request, false, Some(delivery), self.deadline).await {
                Ok(Reply { answer: Answer::Refused(kind, text), .. }) => {
                    return Err(Error::Refused { kind, text });
                }
                Ok(_) => return Ok(()),
                Err(failure) => {
                    self.topology.again(attempts, server, failure, self.deadline)?;
                    if let Some(error) = attempts.last.take() {
                        return Err(error);
                    }
                }
            }
        }
    }
}

impl GetMany {
    fn observed(mut self, name: &'static str, client: &AsyncClient) -> Self {
        self.observation = client.observe_many(name, self.keys);
        self
    }

    /// The next value, with the position of its key, or the next failure. `None`: there are no more.
    pub async fn next(&mut self) -> Option<Result<(usize, Item), BulkFailure>> {
        match self.next_value() {
            Some(value) => Some(Ok(value)),
            None => StreamExt::next(self).await,
        }
    }

    /// The next of the values that are here.
    fn next_value(&mut self) -> Option<(usize, Item)> {
        let (values, credit) = self.values.as_mut()?;
        let next = values.next();
        if let Some((_, _, room)) = &next {
            credit.release(*room);
        }
        if values.is_empty() {
            // The connection may go on, whenever this is polled again.
            self.values = None;
        }
        next.map(|(place, item, _)| (place, item))
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
            if let Some(value) = self.next_value() {
                return Poll::Ready(Some(Ok(value)));
            }
            let arrival = self.arrivals.poll_recv(cx);
            if let (Some(observation), Poll::Ready(arrival)) = (&mut self.observation, &arrival) {
                observation.arrived(arrival.as_deref());
            }
            match arrival.map(|arrival| arrival.map(|arrival| *arrival)) {
                Poll::Ready(Some(Arrival::Values(values, credit))) => {
                    self.values = Some((values, credit));
                    continue;
                }
                Poll::Ready(Some(Arrival::Value(place, item))) => {
                    return Poll::Ready(Some(Ok((place, item))));
                }
                Poll::Ready(Some(Arrival::Failure(failure))) => return Poll::Ready(Some(Err(failure))),
                // Every server is done.
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {}
            }
            match self.servers.poll_next_unpin(cx) {
                Poll::Ready(Some(())) => {}
                // What is settled has arrived. The task of a connection that is given up may take a while to end.
                Poll::Ready(None) if !self.arrivals.is_closed() => self.arrivals.close(),
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

/// Requests of one get of many keys that are under way to one server, so that others have their turn.
const SHARES_AT_ONCE: usize = 16;
/// Keys that are asked for one by one at a time.
const KEYS_AT_ONCE: usize = 512;
