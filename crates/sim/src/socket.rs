//! The server's end of a connection: what its socket and its worker do with it.

use std::io::IoSlice;
use std::sync::Arc;

use larder_server::access::Hosts;
use larder_server::conn::client::{Client, Peer};
use larder_server::conn::connection::Connection;
use larder_server::conn::output::Pieces;
use larder_server::conn::session::Session;

/// A connection, and the bytes that are on their way to it.
pub(crate) struct Socket {
    pub(crate) connection: Connection,
    pub(crate) client: Arc<Client>,
    pub(crate) worker: usize,
    /// Sent by the client, and not received.
    pub(crate) inbox: Vec<u8>,
    /// It continues without waiting for its socket.
    pub(crate) is_queued: bool,
    /// It waits for something other than its socket.
    pub(crate) is_parked: bool,
}

impl Socket {
    /// A connection that worker `worker` serves under this number.
    pub(crate) fn new(worker: usize, number: usize, now_secs: u32) -> Self {
        let fd = i32::try_from(number).unwrap_or(i32::MAX);
        Self {
            connection: Connection::new(Session::new(None)),
            client: Arc::new(Client::new(fd, Peer::Unix, 0, Hosts::Any, now_secs)),
            worker,
            inbox: Vec::new(),
            is_queued: false,
            is_parked: false,
        }
    }

    /// True if its worker has something to do for it.
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_parked
            && (self.is_queued || !self.inbox.is_empty() || self.connection.poll_output().is_some())
    }
}

/// The first `max_bytes` of these replies.
pub(crate) fn head_of(pieces: &(impl Pieces + ?Sized), max_bytes: usize) -> Option<Vec<u8>> {
    let wanted = pieces.len_bytes().min(max_bytes);
    let mut bytes = Vec::with_capacity(wanted);
    while bytes.len() < wanted {
        let mut slices = [IoSlice::new(&[]); 8];
        let filled = pieces.slices(bytes.len(), &mut slices)?;
        if filled == 0 {
            return None;
        }
        slices[..filled].iter().for_each(|slice| bytes.extend_from_slice(slice));
    }
    bytes.truncate(wanted);
    Some(bytes)
}
