//! A site that a test plays: on a connection that does not pull the log, or as one that is copied.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use larder_replication::link::{
    Admission, CopyRead, CopyStart, Now, Publisher, PublisherAction, Settings, Subscriber, SubscriberAction,
};
use larder_replication::members::CopyExtent;
use larder_replication::wire::{CopyReason, Side, Token};

use crate::site::TOKEN;

pub(crate) struct Peer {
    stream: TcpStream,
    subscriber: Subscriber,
    start: Instant,
}

impl Peer {
    /// Connects as this site, and says that first.
    pub(crate) fn connect(address: SocketAddr, site: u8, first: Side) -> Self {
        let settings = Settings::new(site, 77, 7, Token::new(TOKEN));
        let subscriber = Subscriber::new(Arc::new(settings), [site; 32], Now::default());
        let stream = TcpStream::connect(address).expect("larderd listens");
        let mut peer = Self { stream, subscriber, start: Instant::now() };
        let connected = peer.next_action();
        assert!(matches!(connected, SubscriberAction::Connected { .. }), "{connected:?}");
        peer.say(first, b"");
        peer
    }

    fn now(&self) -> Now {
        Now { micros: self.start.elapsed().as_micros() as u64, unix_micros: 0 }
    }

    pub(crate) fn say(&mut self, side: Side, body: &[u8]) {
        let now = self.now();
        self.subscriber.say(side, body, now);
    }

    /// What larderd says next, with its body.
    pub(crate) fn next(&mut self) -> (Side, Vec<u8>) {
        match self.next_action() {
            SubscriberAction::Side(side, body) => (side, body),
            other => panic!("{other:?}"),
        }
    }

    fn next_action(&mut self) -> SubscriberAction {
        let mut input = [0; 4096];
        loop {
            match self.subscriber.next_action() {
                Some(SubscriberAction::Send(bytes)) => self.stream.write_all(&bytes).expect("larderd reads"),
                Some(action) => return action,
                None => {
                    let count = self.stream.read(&mut input).expect("larderd answers");
                    assert_ne!(count, 0, "larderd hung up");
                    let now = self.now();
                    self.subscriber.receive(&input[..count], now);
                    self.subscriber.tick(now);
                }
            }
        }
    }
}

/// Gives a larderd that connects a copy as site 2: one piece of these states, up to this horizon, and an empty one.
/// Hangs up when it says that it has it, or hangs up. Returns where it wanted to go on.
pub(crate) fn give_copy(listener: &TcpListener, states: &[u8], horizon: u64) -> Option<(u64, Vec<u8>)> {
    let (mut stream, _) = listener.accept().expect("larderd connects");
    let start = Instant::now();
    let now = || Now { micros: start.elapsed().as_micros() as u64, unix_micros: 0 };
    let settings = Settings::new(2, 77, 7, Token::new(TOKEN));
    let mut publisher = Publisher::new(Arc::new(settings), [7; 32], 100, now());
    let (mut wanted, mut input) = (None, [0; 4096]);
    loop {
        match publisher.next_action() {
            Some(PublisherAction::Send(bytes)) => stream.write_all(&bytes).expect("larderd reads"),
            Some(PublisherAction::Admit { .. }) => publisher.admit(Admission::Copy(CopyReason::Silent)),
            Some(PublisherAction::BeginCopy { interrupted, .. }) => {
                wanted = interrupted;
                let position = wanted.clone().unwrap_or_default().1;
                let extent = CopyExtent { start: 50, horizon, others: Vec::new() };
                publisher.copy_begun(CopyStart { extent, whole_bytes: 1000, position });
            }
            Some(PublisherAction::ReadCopy { position, .. }) => {
                let is_first = position.is_empty();
                let body = if is_first { states.to_vec() } else { Vec::new() };
                let position = is_first.then(|| b"behind".to_vec());
                publisher.copy_read(CopyRead { body, position, appended: 0 });
            }
            Some(PublisherAction::CopyTaken { .. }) => return wanted,
            Some(other) => panic!("{other:?}"),
            None => {
                let count = stream.read(&mut input).unwrap_or_default();
                if count == 0 {
                    return wanted;
                }
                publisher.receive(&input[..count], now());
                publisher.tick(now());
            }
        }
    }
}
