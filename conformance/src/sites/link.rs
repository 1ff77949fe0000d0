//! A link between two sites that fails on demand.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;

/// How a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Link {
    /// It passes everything on.
    Open,
    /// Connections are reset, and no new one is made.
    Cut,
    /// Everything arrives [`DELAY`] later.
    Slow,
    /// What the listening side says is lost.
    Deaf,
    /// What the connecting side says is lost.
    Mute,
    /// In each direction all connections together get [`NARROW_BYTES_PER_SEC`].
    Narrow,
}

impl Link {
    /// All that a link of a run may be; over a narrow one nobody could keep up.
    pub const ALL: [Self; 5] = [Self::Open, Self::Cut, Self::Slow, Self::Deaf, Self::Mute];

    fn loses(self) -> bool {
        matches!(self, Self::Deaf | Self::Mute)
    }
}

/// Of a slow link, one way.
pub const DELAY: Duration = Duration::from_millis(200);

/// Of a narrow link, one way.
pub const NARROW_BYTES_PER_SEC: u32 = 256 << 10;

/// Listens, and passes connections on as its link is.
pub struct Proxy {
    address: SocketAddr,
    link: Arc<AtomicU8>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

/// A link, of all its connections.
struct Shared {
    link: Arc<AtomicU8>,
    /// Until when what the connecting side says, and what the listening one does, takes all of a narrow link.
    busy_until: [Mutex<Instant>; 2],
}

impl Proxy {
    /// A proxy whose connections go to `target`, through an open link.
    pub fn to(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let link = Arc::new(AtomicU8::new(Link::Open as u8));
        let streams = Arc::new(Mutex::new(Vec::new()));
        let proxy = Self { address, link: Arc::clone(&link), streams: Arc::clone(&streams) };
        let shared = Arc::new(Shared { link, busy_until: [(); 2].map(|()| Mutex::new(Instant::now())) });
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Who fails here has lost its connection, as on any link.
                let _ = connect(client, target, &shared, &streams);
            }
        });
        Ok(proxy)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From here on the link is so. Connections that have lost bytes are reset once nothing is lost any more.
    pub fn set(&self, link: Link) {
        let before = self.link.swap(link as u8, SeqCst);
        let has_lost = [Link::Deaf, Link::Mute].iter().any(|link| *link as u8 == before);
        if link == Link::Cut || (has_lost && !link.loses()) {
            self.reset();
        }
    }

    /// Resets every connection: what is on its way is lost, and is sent again through the next one.
    pub fn reset(&self) {
        for stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn connect(
    client: TcpStream,
    target: SocketAddr,
    shared: &Arc<Shared>,
    streams: &Mutex<Vec<TcpStream>>,
) -> Result<()> {
    let link = &shared.link;
    if is(link, Link::Cut) {
        return Ok(());
    }
    let server = TcpStream::connect(target)?;
    // The delay is the link's alone.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut known = streams.lock().unwrap_or_else(PoisonError::into_inner);
    // A cut that came meanwhile has not seen this one.
    if is(link, Link::Cut) {
        return Ok(());
    }
    known.extend([client.try_clone()?, server.try_clone()?]);
    pass(client.try_clone()?, server.try_clone()?, Link::Mute, shared);
    pass(server, client, Link::Deaf, shared);
    Ok(())
}

/// A piece, and when it arrives.
type Piece = (Instant, Vec<u8>);

/// Passes on one direction, which `loss` silences.
fn pass(from: TcpStream, to: TcpStream, loss: Link, shared: &Arc<Shared>) {
    let (sender, receiver) = sync_channel(PIECES_MAX);
    let (link, shared) = (Arc::clone(&shared.link), Arc::clone(shared));
    thread::spawn(move || receive(from, loss, &link, &sender));
    let direction = usize::from(loss == Link::Deaf);
    thread::spawn(move || deliver(to, &receiver, &shared, direction));
}

fn receive(mut from: TcpStream, loss: Link, link: &AtomicU8, sender: &SyncSender<Piece>) {
    let mut bytes = vec![0; PIECE_BYTES];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if is(link, loss) {
            continue;
        }
        let delay = if is(link, Link::Slow) { DELAY } else { Duration::ZERO };
        if sender.send((Instant::now() + delay, bytes[..count].to_vec())).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
}

fn deliver(mut to: TcpStream, receiver: &Receiver<Piece>, shared: &Shared, direction: usize) {
    for (due, bytes) in receiver {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if is(&shared.link, Link::Narrow) {
            let taken = Duration::from_secs(bytes.len() as u64) / NARROW_BYTES_PER_SEC;
            let mut busy_until = shared.busy_until[direction].lock().unwrap_or_else(PoisonError::into_inner);
            *busy_until = busy_until.max(Instant::now()) + taken;
            let until = *busy_until;
            drop(busy_until);
            thread::sleep(until.saturating_duration_since(Instant::now()));
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn is(link: &AtomicU8, state: Link) -> bool {
    link.load(SeqCst) == state as u8
}

const PIECE_BYTES: usize = 16 << 10;
/// On their way in one direction of a connection.
const PIECES_MAX: usize = 256;
