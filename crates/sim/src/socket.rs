//! The server's end of a connection: what its socket and its worker do with it.

use std::io::IoSlice;
use std::sync::Arc;

use fastrand::Rng;
use larder_server::access::Hosts;
use larder_server::conn::client::{Client, Peer};
use larder_server::conn::connection::Connection;
use larder_server::conn::output::{Output, Pieces};
use larder_server::conn::session::{CloseReason, Context, Next, Session, Window};
use larder_server::conn::waiter::{Turns, Waiting};
use larder_server::shared::Shared;

use crate::rng::Choose as _;
use crate::site::Worker;

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

    /// Receives, executes and sends. Returns what the connection wants then, and what was sent. `holds`: replies wait
    /// for what they show. `executing` is told when commands begin and end.
    pub(crate) fn exchange(
        &mut self,
        shared: &Arc<Shared>,
        worker: &mut Worker,
        rng: &mut Rng,
        holds: bool,
        mut executing: impl FnMut(bool),
    ) -> (Next, Vec<u8>) {
        let mut sent = Vec::new();
        let connection = &mut self.connection;
        if let Err(next) = connection.release(shared) {
            return (next, sent);
        }
        while let Some(unsent) = connection.poll_output() {
            let guards = worker.handles.pin(shared.clock.now());
            let max_bytes = if rng.percent(80) { usize::MAX } else { rng.usize(1..5000) };
            let bytes = head_of(&unsent.guarded(&guards), max_bytes);
            drop(guards);
            let Some(bytes) = bytes else {
                return (Next::Close(CloseReason::Error), sent);
            };
            connection.on_output_sent(bytes.len());
            sent.extend_from_slice(&bytes);
            if connection.poll_output().is_some() {
                worker.handles.release();
                return (Next::Send, sent);
            }
        }
        let mut received = 0;
        match connection.next() {
            Next::Read if self.inbox.is_empty() => return (Next::Read, sent),
            Next::Read => {
                received = if rng.percent(70) { self.inbox.len() } else { rng.usize(1..=self.inbox.len()) };
                received = received.min(RECEIVED_BYTES_MAX);
            }
            Next::Wait(_) => {}
            next => return (next, sent),
        }
        let mut input: Vec<u8> = self.inbox.drain(..received).collect();
        let mut filled = 0;
        while filled < input.len() && connection.is_receiving_value() {
            let guards = worker.handles.pin(shared.clock.now());
            match connection.window(&guards) {
                Window::Fill(window) => {
                    let n = window.len().min(input.len() - filled);
                    window[..n].copy_from_slice(&input[filled..filled + n]);
                    connection.on_window_filled(n);
                    filled += n;
                }
                Window::None => break,
                Window::TryAgain => {
                    let rest = input.split_off(filled);
                    self.inbox.splice(..0, rest);
                    return (Next::Wait(Waiting::Memory), sent);
                }
            }
        }
        let mut rest = &input[filled..];
        if received > 0 && rest.is_empty() {
            return (connection.next(), sent);
        }
        let context = Context {
            shared,
            counters: &shared.counters[self.worker],
            recorder: &worker.recorder,
            worker: self.worker,
            client: &self.client,
            turns: &Turns::new(2),
        };
        let guards = worker.handles.pin(shared.clock.now());
        let mut output = Output::default();
        executing(true);
        let requests_max = shared.settings.requests_per_event;
        connection.on_bytes(&context, &guards, &mut rest, None, &mut output, requests_max);
        executing(false);
        if !holds || !connection.hold(shared, &output) {
            let max_bytes = if rng.percent(80) { usize::MAX } else { rng.usize(..5000) };
            let bytes = head_of(&output, max_bytes).unwrap_or_default();
            connection.on_sent(&shared.buffers, &output, bytes.len());
            sent.extend_from_slice(&bytes);
        }
        drop(guards);
        // An error is answered with a line, and the connection ends; no request is so long.
        let _ = connection.keep_input(&shared.buffers, rest);
        worker.handles.release();
        (connection.next(), sent)
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

/// What a worker receives in one read.
const RECEIVED_BYTES_MAX: usize = 64 << 10;
