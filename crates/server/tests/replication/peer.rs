//! A site that a test plays, on a connection that does not pull the log.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use larder_replication::link::{Now, Settings, Subscriber, SubscriberAction};
use larder_replication::wire::{Side, Token};

use crate::site::TOKEN;

pub(crate) struct Peer {
    stream: TcpStream,
    subscriber: Subscriber,
    start: Instant,
}

impl Peer {
    /// Connects as this site, and says that first.
    pub(crate) fn connect(address: SocketAddr, site: u8, first: Side) -> Self {
        let settings = Settings::new(site, 77, Token::new(TOKEN));
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
