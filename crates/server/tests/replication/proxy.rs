//! A link that fails on demand.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Link {
    Open,
    /// Connections end, and no new one is made.
    Cut,
    /// Each piece takes a while.
    Slow,
    /// What the server sends is dropped. Connections that were deaf stay so until they end.
    Deaf,
}

/// Passes connections on, as its link is.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    link: Arc<AtomicU8>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let link = Arc::new(AtomicU8::new(Link::Open as u8));
        let streams = Arc::new(Mutex::new(Vec::new()));
        {
            let (link, streams) = (Arc::clone(&link), Arc::clone(&streams));
            std::thread::spawn(move || {
                for client in listener.incoming().flatten() {
                    if link.load(SeqCst) == Link::Cut as u8 {
                        continue;
                    }
                    let Ok(server) = TcpStream::connect(target) else { continue };
                    let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor is left");
                    let mut known = streams.lock().expect("nobody panics with it");
                    known.extend([copy(&client), copy(&server)]);
                    for (from, to, can_be_deaf) in
                        [(copy(&client), copy(&server), false), (server, client, true)]
                    {
                        let link = Arc::clone(&link);
                        std::thread::spawn(move || pass(from, to, can_be_deaf, &link));
                    }
                }
            });
        }
        Self { address, link, streams }
    }

    pub(crate) fn set(&self, link: Link) {
        self.link.store(link as u8, SeqCst);
        // A connection that lost bytes is of no use.
        if matches!(link, Link::Cut | Link::Open) {
            let mut streams = self.streams.lock().expect("nobody panics with it");
            for stream in streams.drain(..) {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, can_be_deaf: bool, link: &AtomicU8) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        match link.load(SeqCst) {
            slow if slow == Link::Slow as u8 => std::thread::sleep(Duration::from_millis(20)),
            deaf if deaf == Link::Deaf as u8 && can_be_deaf => continue,
            _ => {}
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(std::net::Shutdown::Both), to.shutdown(std::net::Shutdown::Both));
}
