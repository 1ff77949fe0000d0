//! Keys that one server is asked for together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::connection::Credit;
use super::get_many::Arrival;
use super::key::WireKey;
use crate::client::Item;

/// Keys that one server is asked for together. All are written in the same way.
#[derive(Debug)]
pub(super) struct Share {
    keys: Vec<SharedKey>,
    pub is_base64: bool,
}

#[derive(Debug)]
struct SharedKey {
    key: WireKey,
    /// Its position among all keys.
    place: usize,
    /// Its value has been delivered, or it has been told as failed: exactly one of these happens, even if the driver of
    /// a connection that has been given up delivers at this moment.
    is_settled: AtomicBool,
}

impl Share {
    pub(super) fn new(is_base64: bool) -> Self {
        Self { keys: Vec::new(), is_base64 }
    }

    pub(super) fn push(&mut self, key: WireKey, place: usize) {
        self.keys.push(SharedKey { key, place, is_settled: AtomicBool::new(false) });
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Positions, in this share, of the keys whose values have not been delivered.
    pub(super) fn undelivered(&self) -> Arc<[usize]> {
        let is_open = |position: &usize| !self.keys[*position].is_settled.load(Ordering::Relaxed);
        (0..self.keys.len()).filter(is_open).collect()
    }

    /// Gives up all others, and returns them with their positions among all keys.
    pub(super) fn give_up(&self) -> Vec<(&WireKey, usize)> {
        self.keys.iter().filter(|key| key.settle()).map(|key| (&key.key, key.place)).collect()
    }

    /// The key at this position.
    pub(super) fn key(&self, position: usize) -> &[u8] {
        &self.keys[position].key.bytes
    }
}

impl SharedKey {
    /// `false`: it was settled before.
    fn settle(&self) -> bool {
        !self.is_settled.swap(true, Ordering::Relaxed)
    }
}

/// Takes the values of a share, as they arrive.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub share: Arc<Share>,
    /// For each key of the request, its position in the share.
    pub positions: Arc<[usize]>,
    pub arrivals: mpsc::UnboundedSender<Arrival>,
}

impl Delivery {
    /// Passes the value of a key on. Whoever waited for it may be gone.
    pub(super) fn deliver(&self, index: u32, item: Item, credit: Credit) {
        let Some(&position) = self.positions.get(index as usize) else { return };
        let Some(key) = self.share.keys.get(position) else { return };
        if key.settle() {
            let _ = self.arrivals.send(Arrival::Value(key.place, item, Some(credit)));
        }
    }
}
