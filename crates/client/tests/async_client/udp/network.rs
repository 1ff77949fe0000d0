//! A way to a server by TCP and UDP, at one port. TCP is as it should be; UDP loses, repeats, turns, delays and cuts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_client::Address;
use larder_conformance::server::Server;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// What happens to a hundred datagrams.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Of either direction.
    pub lost: u8,
    /// Of replies, like all that follow.
    pub repeated: u8,
    /// It comes after the next one.
    pub turned: u8,
    /// An earlier one comes again.
    pub late: u8,
    pub cut: u8,
}

pub(crate) struct Network {
    pub address: Address,
    /// Connections by TCP so far.
    pub connections: Arc<AtomicU64>,
}

/// The replies to one client's socket.
struct Lane {
    random: fastrand::Rng,
    earlier: Vec<Vec<u8>>,
    held: Option<Vec<u8>>,
}

impl Network {
    pub(crate) async fn of(server: &Server, faults: Faults, seed: u64) -> Self {
        let udp = server.udp_address().expect("it was asked for");
        Self::to(server.address(), udp, faults, seed).await
    }

    pub(crate) async fn to(tcp: SocketAddr, udp: SocketAddr, faults: Faults, seed: u64) -> Self {
        let (listener, socket) = bind().await;
        let address = listener.local_addr().expect("it is bound").to_string().parse().expect("an address");
        let connections = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.expect("somebody connects");
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(tcp).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        tokio::spawn(pass_datagrams(Arc::new(socket), udp, faults, seed));
        Self { address, connections }
    }
}

/// A port for both.
pub(crate) async fn bind() -> (TcpListener, UdpSocket) {
    for _ in 0..100 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().expect("it is bound")).await {
            return (listener, socket);
        }
    }
    panic!("no port is free for both");
}

async fn pass_datagrams(front: Arc<UdpSocket>, server: SocketAddr, faults: Faults, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut lanes: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let Ok((bytes, client)) = front.recv_from(&mut buffer).await else { continue };
        if random.u8(..100) < faults.lost {
            continue;
        }
        let back = match lanes.entry(client) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(new) => {
                let back = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a port is free"));
                back.connect(server).await.expect("it is local");
                let lane = Lane { random: random.fork(), earlier: Vec::new(), held: None };
                tokio::spawn(pass_replies(Arc::clone(&back), Arc::clone(&front), client, faults, lane));
                Arc::clone(new.insert(back))
            }
        };
        let _ = back.send(&buffer[..bytes]).await;
    }
}

async fn pass_replies(
    back: Arc<UdpSocket>,
    front: Arc<UdpSocket>,
    client: SocketAddr,
    faults: Faults,
    mut lane: Lane,
) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let Ok(bytes) = back.recv(&mut buffer).await else { continue };
        for datagram in lane.outcome(&buffer[..bytes], faults) {
            let _ = front.send_to(&datagram, client).await;
        }
    }
}

impl Lane {
    /// What arrives in place of a datagram.
    fn outcome(&mut self, datagram: &[u8], faults: Faults) -> Vec<Vec<u8>> {
        let mut happens = |of_hundred| self.random.u8(..100) < of_hundred;
        let (is_lost, is_repeated) = (happens(faults.lost), happens(faults.repeated));
        let (is_turned, is_late, is_cut) =
            (happens(faults.turned), happens(faults.late), happens(faults.cut));
        let mut arriving = Vec::new();
        if is_late && !self.earlier.is_empty() {
            arriving.push(self.earlier[self.random.usize(..self.earlier.len())].clone());
        }
        let mut whole = datagram.to_vec();
        self.earlier.push(whole.clone());
        if is_cut {
            whole.truncate(self.random.usize(..whole.len()));
        }
        if is_repeated {
            arriving.push(whole.clone());
        }
        let held = self.held.take();
        if is_turned {
            self.held = Some(whole);
        } else if !is_lost {
            arriving.push(whole);
        }
        arriving.extend(held);
        arriving
    }
}
