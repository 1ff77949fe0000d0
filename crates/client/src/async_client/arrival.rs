//! What comes of a get of many keys, on its way to whoever asked.

use tokio::sync::mpsc;

use super::batch::Batch;
use super::connection::Credit;
use super::get_many::BulkFailure;
use crate::client::Item;

/// What has come of some keys.
#[derive(Debug)]
pub(super) enum Arrival {
    /// Values, and the room that they take until they are taken.
    Values(Batch, Credit),
    /// The value of a key that was asked for alone, and the position of the key.
    Value(usize, Item),
    Failure(BulkFailure),
}

/// Where it is sent to whoever asked, who may be gone. In boxes, since a channel has room for many.
#[derive(Clone, Debug)]
pub(super) struct Arrivals(mpsc::UnboundedSender<Box<Arrival>>);

impl Arrivals {
    pub(super) fn channel() -> (Self, mpsc::UnboundedReceiver<Box<Arrival>>) {
        let (sender, arrivals) = mpsc::unbounded_channel();
        (Self(sender), arrivals)
    }

    pub(super) fn send(&self, arrival: Arrival) {
        let _ = self.0.send(Box::new(arrival));
    }
}
