//! Keys that one server is asked for together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::arrival::{Arrival, Arrivals};
use super::batch::Batch;
use super::connection::{Connection, Credit};
use super::key::WireKey;

/// Keys that one server is asked for together. All are written in the same way.
#[derive(Debug)]
pub(super) struct Share {
    /// As written, one after the other.
    bytes: Vec<u8>,
    keys: Vec<SharedKey>,
    /// Of each key whether its value has been delivered, or it has been told as failed: exactly one of these happens,
    /// even if the driver of a connection that has been given up delivers at this moment. It delivers under the lock:
    /// what is settled has arrived.
    settled: Mutex<Vec<bool>>,
    pub is_base64: bool,
}

#[derive(Debug)]
struct SharedKey {
    /// Where it ends in the bytes.
    end: usize,
    /// Its position among all keys.
    place: usize,
}

impl Share {
    /// For about so many keys, of about so many bytes.
    pub(super) fn new(is_base64: bool, keys: usize, key_bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(keys * key_bytes),
            keys: Vec::with_capacity(keys),
            settled: Mutex::default(),
            is_base64,
        }
    }

    /// Adds a key as it is written.
    #[inline]
    pub(super) fn push(&mut self, key: &[u8], place: usize) {
        self.bytes.extend_from_slice(key);
        self.keys.push(SharedKey { end: self.bytes.len(), place });
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Positions, in this share, of the keys whose values have not been delivered.
    pub(super) fn undelivered(&self) -> Arc<[usize]> {
        let settled = self.settled();
        let mut open = Vec::with_capacity(self.keys.len());
        open.extend((0..self.keys.len()).filter(|position| !settled[*position]));
        open.into()
    }

    /// Gives up all others, and returns them with their positions among all keys.
    pub(super) fn give_up(&self) -> Vec<(WireKey, usize)> {
        let mut settled = self.settled();
        let open = self.keys.iter().enumerate().filter(|(position, _)| settle(&mut settled, *position));
        open.map(|(position, key)| (self.wire_key(position), key.place)).collect()
    }

    fn settled(&self) -> MutexGuard<'_, Vec<bool>> {
        // Nothing under the lock panics halfway.
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        settled.resize(self.keys.len(), false);
        settled
    }

    /// The key at this position, as written.
    #[inline]
    pub(super) fn key(&self, position: usize) -> &[u8] {
        let start = position.checked_sub(1).map_or(0, |before| self.keys[before].end);
        &self.bytes[start..self.keys[position].end]
    }

    /// The bytes of the keys at these positions, each of which comes once.
    pub(super) fn key_bytes(&self, positions: &[usize]) -> usize {
        if positions.len() == self.keys.len() {
            return self.bytes.len();
        }
        positions.iter().map(|position| self.key(*position).len()).sum()
    }

    fn wire_key(&self, position: usize) -> WireKey {
        WireKey { bytes: self.key(position).into(), is_base64: self.is_base64 }
    }
}

/// `false`: it was settled before.
fn settle(settled: &mut [bool], position: usize) -> bool {
    !std::mem::replace(&mut settled[position], true)
}

/// Keys by server, and by how they are written.
pub(super) struct Shares {
    by_server: Vec<[Vec<Share>; 2]>,
    /// About so many keys there will be of each server.
    keys: usize,
}

impl Shares {
    pub(super) fn new(keys: usize) -> Self {
        Self { by_server: Vec::new(), keys: keys.clamp(1, SHARE_KEYS) }
    }

    #[inline]
    pub(super) fn push(&mut self, server: usize, key: &[u8], is_base64: bool, place: usize) {
        if self.by_server.len() <= server {
            self.by_server.resize_with(server + 1, Default::default);
        }
        let shares = &mut self.by_server[server][usize::from(is_base64)];
        match shares.last_mut().filter(|share| share.len() < SHARE_KEYS) {
            Some(share) => share.push(key, place),
            None => {
                let mut share = Share::new(is_base64, self.keys, key.len());
                share.push(key, place);
                shares.push(share);
            }
        }
    }

    /// Those of the servers that have keys.
    pub(super) fn by_server(self) -> impl Iterator<Item = (usize, Vec<Share>)> {
        let shares = self.by_server.into_iter().map(|[mut plain, mut base64]| {
            plain.append(&mut base64);
            plain
        });
        shares.enumerate().filter(|(_, shares)| !shares.is_empty())
    }
}

/// Takes the values of a share, as they arrive.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub share: Arc<Share>,
    /// For each key of the request, its position in the share.
    pub positions: Arc<[usize]>,
    pub arrivals: Arrivals,
}

impl Delivery {
    /// Passes values on. Whoever waited for them may be gone.
    pub(super) fn deliver(&self, mut values: Batch, connection: &Arc<Connection>) {
        let mut bytes = 0;
        let mut settled = self.share.settled();
        values.place(|index, value_bytes| {
            let position = *self.positions.get(index)?;
            let key = self.share.keys.get(position)?;
            settle(&mut settled, position).then(|| {
                bytes += value_bytes;
                key.place
            })
        });
        if !values.is_empty() {
            let credit = Credit::new(connection, bytes);
            self.arrivals.send(Arrival::Values(values, credit));
        }
    }
}

/// Keys of one request: at most 32 KiB of them.
pub(super) const SHARE_KEYS: usize = 128;
