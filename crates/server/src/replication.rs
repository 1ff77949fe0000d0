//! One of several sites that hold the same data, all of which take writes (`--site`): what `larder-replication`
//! decides, performed with sockets, threads and the store. docs/replication-protocol.md has the rules.
//!
//! - Each site pulls the log of each peer, by a thread for each ([`subscribe`]), and applies what it reads ([`apply`]):
//!   memory drops the key, and the store gets the newer state.
//! - A thread accepts the peers, and starts one for each that pulls ([`publish`]).
//! - The thread that pulls also compares this site with the peer at times ([`compare`]).
//! - Once a second another one notes in the log how far this site is ([`beat`]).
//! - What caches have changed is kept in a [`ring`], and told ([`tell`]) to peers that follow it ([`follow`]).
//! - Commands of keys whose home is another site are run there ([`home`]). Both use connections of their own
//!   ([`aside`]), since one that pulls the log may be busy with a copy for minutes.
//! - A copy is taken in [`copy`], with what it has named in [`named`].
//! - All of them share the [`Site`].

mod apply;
mod aside;
mod beat;
mod compare;
mod copy;
mod follow;
pub(crate) mod home;
mod named;
mod note;
mod outgoing;
mod peers;
mod publish;
pub(crate) mod report;
pub(crate) mod ring;
mod site;
mod stream;
mod subscribe;
mod tell;
mod waiters;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use larder_replication::members::SILENCE_MICROS_DEFAULT;
use larder_replication::wire::Token;
use larder_store::Store;

pub(crate) use self::compare::CompareFigures;
use self::peers::{Peer, Peers};
pub use self::site::Site;
pub(crate) use self::site::{PeerFigures, PullerFigures};
use crate::net::worker_pool::WorkerPool;
use crate::shared::Shared;

/// One site of several (`--site` and what belongs to it).
#[derive(Clone, Debug)]
pub struct ReplicationSettings {
    /// Its number, 1 to 255; 0: it was not given.
    pub site: u8,
    /// Where peers connect to.
    pub listen: Option<SocketAddr>,
    /// Peers that it pulls from: host and port.
    pub peers: Vec<String>,
    /// Or a file that has them, by site, and is read again at SIGHUP.
    pub peers_file: Option<PathBuf>,
    /// What all sites know.
    pub token_file: Option<PathBuf>,
    /// A site that was not heard of for so long is put out.
    pub silence_secs_max: u64,
    /// What is kept of the log for sites that are away.
    pub log_bytes_max: u64,
    /// Between two comparisons with a peer; 0: none unless an operator asks.
    pub compare_hours: u32,
}

impl ReplicationSettings {
    /// How many peers it may pull from.
    pub fn pullers_max(&self) -> usize {
        if self.peers_file.is_some() { PEERS_MAX } else { self.peers.len() }
    }

    /// Checks that the site can begin with this store. Errors: a sentence for the operator.
    pub(crate) fn check(&self, store: &dyn Store) -> io::Result<()> {
        self.named_peers()?;
        self.check_store(store)
    }

    /// Peers in `peers_file`. Errors: a sentence for the operator.
    fn named_peers(&self) -> io::Result<Option<Peers>> {
        self.peers_file.as_ref().map(|path| peers::read(path, self.site)).transpose()
    }

    /// Errors: the store is that of another site; a sentence for the operator.
    fn check_store(&self, store: &dyn Store) -> io::Result<()> {
        match store.note(note::OWN).and_then(|bytes| note::decode_own(&bytes)) {
            Some((site, _)) if site != self.site => Err(io::Error::other(format!(
                "the store is that of site {site}, and --site says {}",
                self.site
            ))),
            _ => Ok(()),
        }
    }
}

impl Default for ReplicationSettings {
    fn default() -> Self {
        Self {
            site: 0,
            listen: None,
            peers: Vec::new(),
            peers_file: None,
            token_file: None,
            silence_secs_max: SILENCE_MICROS_DEFAULT / 1_000_000,
            log_bytes_max: 4 << 30,
            compare_hours: COMPARE_HOURS,
        }
    }
}

/// Often enough that a second loss of the same key before the first one is found is rare.
const COMPARE_HOURS: u32 = 24;

/// The most peers: there are 2 to 8 sites.
pub const PEERS_MAX: usize = 7;
/// Maximum number of descriptors of a site. Each connection, accepted or made, needs a socket, a copy of it and an
/// eventfd; each peer has one connection for its log and others beside it.
pub(crate) const DESCRIPTORS_MAX: usize = 3 * (publish::CONNECTIONS_MAX + 3 * PEERS_MAX) + 8;

/// Tells the log which namespaces take no part because they are not kept in the store.
fn say_left_out(shared: &Shared) {
    let left_out = report::left_out(shared);
    let all = shared.namespaces.table().map_or(0, |table| table.numbers().count());
    let namespaces = left_out.join(" ");
    if left_out.len() == all {
        tracing::warn!(namespaces, "no namespace is kept in the store, so this site replicates nothing");
    } else if !left_out.is_empty() {
        tracing::info!(namespaces, "these namespaces are not kept in the store, and are not replicated");
    }
}

/// The threads of replication.
pub struct Threads {
    site: Arc<Site>,
    threads: Vec<JoinHandle<()>>,
    peers: Vec<Peer>,
}

impl Threads {
    /// Starts the threads. `listener` is that of [`ReplicationSettings::listen`], nonblocking. Call once, when the
    /// store is open. Errors: a sentence for the operator.
    pub fn start(
        shared: &Arc<Shared>,
        pool: &Arc<WorkerPool>,
        settings: &ReplicationSettings,
        token: Option<Token>,
        listener: Option<TcpListener>,
    ) -> io::Result<Self> {
        let named = settings.named_peers()?;
        let peers: Vec<String> =
            named.iter().flat_map(|named| named.values()).chain(&settings.peers).cloned().collect();
        let site = Arc::new(Site::open(shared, settings, &peers, token)?);
        let persistence = shared.persistence.as_ref().ok_or_else(|| io::Error::other("there is no store"))?;
        if persistence.replication.set(Arc::clone(&site)).is_err() {
            return Err(io::Error::other("replication has begun already"));
        }
        say_left_out(shared);
        let mut threads = Vec::new();
        let mut spawn = |name: String, work: Box<dyn FnOnce() + Send>| {
            threads.push(Builder::new().name(name).spawn(work)?);
            Ok::<_, io::Error>(())
        };
        if let Some(listener) = listener {
            let (shared, site) = (Arc::clone(shared), Arc::clone(&site));
            spawn("larder-publish".into(), Box::new(move || publish::accept(&listener, &shared, &site)))?;
        }
        if let Some(homes) = &shared.homes {
            homes.set_pool(pool);
        }
        let running = settings.peers.iter().map(|peer| Peer::start(shared, &site, peer, 0));
        let running = running.collect::<io::Result<_>>()?;
        if let Some((path, named)) = settings.peers_file.clone().zip(named) {
            let (shared, site) = (Arc::clone(shared), Arc::clone(&site));
            spawn("larder-peers".into(), Box::new(move || peers::run(&path, named, &shared, &site)))?;
        }
        {
            let (shared, site) = (Arc::clone(shared), Arc::clone(&site));
            spawn("larder-beat".into(), Box::new(move || beat::run(&shared, &site)))?;
        }
        Ok(Self { site, threads, peers: running })
    }

    /// Ends them. Call while the store's threads still run.
    pub fn stop(self) {
        self.site.stop();
        for thread in self.threads {
            thread.thread().unpark();
            let _ = thread.join();
        }
        self.peers.into_iter().for_each(|peer| peer.end(&self.site));
    }
}
