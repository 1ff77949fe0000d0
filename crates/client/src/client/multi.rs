//! Many keys at once, from all their servers in parallel.

use std::time::Instant;

use super::{Client, Connection, Item, is_doubtful};
use crate::codec::{Event, Get, Outcome};
use crate::policy::Route;
use crate::{Address, Error};

/// The result of a get of many keys.
#[derive(Debug, Default)]
pub struct MultiGet {
    /// One for each key, in order. `None`: not found, or not known: see `failures`.
    pub items: Vec<Option<Item>>,
    /// Servers that failed. Without an address: an invalid key, or no server at all.
    pub failures: Vec<(Option<Address>, Error)>,
}

/// The keys of one server.
struct Share {
    node: usize,
    /// Positions of its keys among all.
    places: Vec<usize>,
    /// How many of them have been requested.
    asked: usize,
}

/// Keys that were requested from a server.
struct Batch {
    node: usize,
    places: Vec<usize>,
    connection: Connection,
}

/// Keys that a server has not answered.
struct Lost {
    node: usize,
    places: Vec<usize>,
    error: Error,
}

impl Client {
    /// Gets the values of many keys. All requests are sent before the first reply is read, so that the servers work in
    /// parallel. If a server fails, the others' replies are still returned; its keys are asked for elsewhere if the
    /// [policy](crate::FailurePolicy::Failover) says so.
    pub fn multi_get<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> MultiGet {
        let mut result = MultiGet::default();
        result.items.resize_with(keys.len(), || None);
        let mut shares = self.share_out(keys, &mut result);
        let mut failed = Vec::new();
        while !shares.is_empty() {
            let (mut batches, mut lost) = (Vec::new(), Vec::new());
            // A server's time begins when it is asked, and connecting to the others may take longer.
            let connections: Vec<_> = shares.iter().map(|share| self.connection(share.node)).collect();
            for (share, connection) in shares.iter_mut().zip(connections) {
                match self.ask_for_some(keys, share, connection) {
                    Ok(batch) => batches.push(batch),
                    Err(failure) => lost.push(failure),
                }
            }
            let mut end = None;
            for batch in batches {
                lost.extend(self.receive_batch(batch, &mut end, &mut result.items).err());
            }
            for Lost { node, mut places, error } in lost {
                if let Some(place) = shares.iter().position(|share| share.node == node) {
                    let share = shares.swap_remove(place);
                    places.extend_from_slice(&share.places[share.asked..]);
                }
                if self.may_move(&error, true) {
                    failed.push(node);
                    places.retain(|place| result.items[*place].is_none());
                    if self.move_on(keys, places, &failed, &mut shares) {
                        continue;
                    }
                }
                self.fail(node, error, &mut result);
            }
            shares.retain(|share| share.asked < share.places.len());
        }
        result
    }

    /// Adds keys to the shares of the servers that are to be asked after some have failed. `false`: some have none.
    fn move_on<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        places: Vec<usize>,
        failed: &[usize],
        shares: &mut Vec<Share>,
    ) -> bool {
        let mut has_all = true;
        for place in places {
            let Route::Server(node) = self.router.route(keys[place].as_ref(), failed) else {
                has_all = false;
                continue;
            };
            match shares.iter_mut().find(|share| share.node == node) {
                Some(share) => share.places.push(place),
                None => shares.push(Share { node, places: vec![place], asked: 0 }),
            }
        }
        has_all
    }

    fn share_out<K: AsRef<[u8]>>(&mut self, keys: &[K], result: &mut MultiGet) -> Vec<Share> {
        let mut shares: Vec<_> =
            (0..self.nodes.len()).map(|node| Share { node, places: Vec::new(), asked: 0 }).collect();
        self.probe();
        for (place, key) in keys.iter().enumerate() {
            match self.node_of(key.as_ref(), &[]) {
                Ok(node) => shares[node].places.push(place),
                Err(error) if self.hides(&error) => {}
                Err(error) => result.failures.push((None, error)),
            }
        }
        shares.retain(|share| !share.places.is_empty());
        shares
    }

    /// Requests as many keys as fit into the buffers between client and server: a server may stop reading while nobody
    /// reads its replies.
    fn ask_for_some<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        share: &mut Share,
        connection: Result<Connection, Error>,
    ) -> Result<Batch, Lost> {
        let mut bytes = 0;
        let rest = &share.places[share.asked..];
        let fits = |place: &&usize| {
            bytes += keys[**place].as_ref().len() + KEY_OVERHEAD_BYTES;
            bytes <= BATCH_BYTES_MAX
        };
        let places: Vec<_> = rest.iter().take_while(fits).copied().collect();
        share.asked += places.len();
        let asked = connection.and_then(|mut connection| {
            let batch = places.iter().map(|place| keys[*place].as_ref());
            connection.send(|pipeline, output| pipeline.multi_get(output, &Get::default(), batch, ()))?;
            Ok(connection)
        });
        // An answer counts, and nothing before.
        let asked = if asked.is_err() { self.noted(share.node, asked) } else { asked };
        match asked {
            Ok(connection) => Ok(Batch { node: share.node, places, connection }),
            Err(error) => Err(Lost { node: share.node, places, error }),
        }
    }

    /// `end`: see [`Connection::receive_arrived`].
    fn receive_batch(
        &mut self,
        mut batch: Batch,
        end: &mut Option<Instant>,
        items: &mut [Option<Item>],
    ) -> Result<(), Lost> {
        let Batch { node, places, connection } = &mut batch;
        let node = *node;
        let mut told = Ok(());
        let received = connection.receive_arrived(end, |event| match event {
            Event::Value(value) => {
                if let Some(place) = places.get(value.index as usize) {
                    items[*place] = Some(Item::of(&value));
                }
            }
            Event::KeyFailed(error) | Event::Done((), Outcome::Error(error)) => told = Err(error.into()),
            _ => {}
        });
        let received = self.noted(node, received);
        let is_certain = received.is_ok() && !told.as_ref().is_err_and(is_doubtful);
        if is_certain {
            self.nodes[node].idle = Some(batch.connection);
        }
        received.and(told).map_err(|error| Lost { node, places: batch.places, error })
    }

    fn fail(&self, node: usize, error: Error, result: &mut MultiGet) {
        if self.hides(&error) {
            return;
        }
        result.failures.push((Some(self.nodes[node].server.address.clone()), error));
    }
}

/// At least one key of 250 bytes, and less than any system's socket buffer.
const BATCH_BYTES_MAX: usize = 16 << 10;
/// Bytes that a protocol adds to a key: 24 in the binary one.
const KEY_OVERHEAD_BYTES: usize = 24;
