//! The peers, and the threads that connect to them: those of `--peer`, or of a file that is read again at SIGHUP
//! (`--peers-file`).
//!
//! A file has the number of each site beside its address. So it says which sites there are: one that is new there holds
//! the horizon at once, and one that is no longer there is not waited for any more.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use larder_replication::link::Subscriber;
use larder_replication::wire::Refusal;

use super::apply::Applier;
use super::stream::Refused;
use super::{PEERS_MAX, Site, follow, home, subscribe};
use crate::shared::Shared;
use crate::startup::bounded_file;

/// Addresses by site.
pub(super) type Peers = BTreeMap<u8, String>;

/// Reads a file of peers. Errors: a sentence for the operator.
pub(super) fn read(path: &Path, own_site: u8) -> io::Result<Peers> {
    let told = |error: String| io::Error::other(format!("--peers-file: {}: {error}", path.display()));
    let content =
        bounded_file::read_regular(path, FILE_BYTES_MAX).map_err(|error| told(error.to_string()))?;
    let text = String::from_utf8(content).map_err(|_| told("not UTF-8".to_owned()))?;
    parse(&text, own_site).map_err(told)
}

/// Lines of a number and an address, or of a comment behind `#`. Errors: what is wrong, with the number of the line.
fn parse(text: &str, own_site: u8) -> Result<Peers, String> {
    let mut peers = Peers::new();
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let wrong = |what: &str| Err(format!("line {}: {what}", index + 1));
        let (number, address) = match words[..] {
            [] => continue,
            [number, address] => (number, address),
            _ => return wrong("the number of a site, and its host:port"),
        };
        let Some(site) = digits(number).filter(|site| *site != 0) else {
            return wrong("the number of a site is 1 to 255");
        };
        let is_address =
            |(host, port): (&str, &str)| !host.is_empty() && digits(port).is_some_and(|port: u16| port != 0);
        if !address.rsplit_once(':').is_some_and(is_address) {
            return wrong("the address of a site is host:port");
        }
        if site == own_site {
            return wrong("that is the number of this site: name the others");
        }
        if peers.values().any(|known| known == address) || peers.insert(site, address.to_owned()).is_some() {
            return wrong("each site, and each address, stands there once");
        }
        if peers.len() > PEERS_MAX {
            return wrong("a site has up to 7 peers");
        }
    }
    Ok(peers)
}

/// A number without a sign.
fn digits<N: FromStr>(text: &str) -> Option<N> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A peer, as its threads have it.
pub(super) struct PeerAddress<'p> {
    pub(super) address: &'p str,
    /// The site that has to be there; 0: any.
    pub(super) number: u8,
    has_to_end: &'p AtomicBool,
}

impl<'p> PeerAddress<'p> {
    #[cfg(test)]
    pub(super) fn of_nobody(has_to_end: &'p AtomicBool) -> Self {
        Self { address: "", number: 0, has_to_end }
    }

    /// It is no peer any more, or the site stops.
    pub(super) fn is_over(&self, site: &Site) -> bool {
        site.is_stopping() || self.has_to_end.load(SeqCst)
    }

    /// Notes a site once both sides know the token, over a connection that was made no earlier than `began_micros`.
    /// False: the connection ends, since there are two servers with its number. Errors: another site is there than is
    /// expected.
    pub(super) fn meet(
        &self,
        site: &Site,
        subscriber: &mut Subscriber,
        (number, run): (u8, u64),
        began_micros: u64,
    ) -> io::Result<bool> {
        if self.number != 0 && self.number != number {
            let error = format!("--peers-file has site {} there, and it is site {number}", self.number);
            return Err(Refused(error).into());
        }
        let met = site.meet(number, run, (self.address, true), began_micros);
        if let Err(two) = &met {
            subscriber.refuse(Refusal::SameSite, two);
        }
        Ok(met.is_ok())
    }
}

/// A peer, and the threads that connect to it: one pulls its log; one follows its caches, if there are any that take
/// part; two send it commands, short ones and large ones, if it may be the home of some keys.
pub(super) struct Peer {
    address: String,
    has_to_end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Peer {
    /// Starts them. `number`: the site that has to be there; 0: any. Errors: there is no thread or engine handle left.
    pub(super) fn start(
        shared: &Arc<Shared>,
        site: &Arc<Site>,
        address: &str,
        number: u8,
    ) -> io::Result<Self> {
        let mut peer = Self { address: address.to_owned(), has_to_end: Arc::default(), threads: Vec::new() };
        match peer.start_threads(shared, site, number) {
            Ok(()) => Ok(peer),
            Err(error) => {
                peer.end(site);
                Err(error)
            }
        }
    }

    fn start_threads(&mut self, shared: &Arc<Shared>, site: &Arc<Site>, number: u8) -> io::Result<()> {
        let handles = || shared.namespaces.handles().ok_or_else(|| io::Error::other("no engine handle left"));
        let pulling = handles()?;
        self.spawn("larder-pull", shared, site, number, move |peer, shared, site| {
            subscribe::run(peer, shared, site, &mut Applier::new(shared, site, peer, pulling));
        })?;
        if shared.ring.is_some() {
            let mut following = handles()?;
            self.spawn("larder-follow", shared, site, number, move |peer, shared, site| {
                if let Some(ring) = &shared.ring {
                    follow::run(peer, shared, site, ring, &mut following);
                }
            })?;
        }
        if shared.homes.as_ref().is_some_and(|homes| homes.may_be(number)) {
            for lane in home::Lane::ALL {
                self.spawn("larder-ask", shared, site, number, move |peer, shared, site| {
                    if let Some(homes) = &shared.homes {
                        home::run(peer, lane, shared, site, homes);
                    }
                })?;
            }
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        name: &str,
        shared: &Arc<Shared>,
        site: &Arc<Site>,
        number: u8,
        work: impl FnOnce(&PeerAddress<'_>, &Shared, &Site) + Send + 'static,
    ) -> io::Result<()> {
        let (shared, site, has_to_end) = (Arc::clone(shared), Arc::clone(site), Arc::clone(&self.has_to_end));
        let address = self.address.clone();
        self.threads.push(Builder::new().name(name.into()).spawn(move || {
            let peer = PeerAddress { address: &address, number, has_to_end: &has_to_end };
            work(&peer, &shared, &site);
        })?);
        Ok(())
    }

    /// Ends them, and waits for that.
    pub(super) fn end(self, site: &Site) {
        self.has_to_end.store(true, SeqCst);
        site.wake_all();
        for thread in self.threads {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Connects to the peers of a file until the site stops.
pub(super) fn run(path: &Path, first: Peers, shared: &Arc<Shared>, site: &Arc<Site>) {
    let mut running = BTreeMap::new();
    change(&mut running, &first, shared, site);
    while !site.is_stopping() {
        if site.takes_reload() {
            match read(path, site.number()) {
                Ok(peers) => change(&mut running, &peers, shared, site),
                Err(error) => tracing::error!("the peers stay as they are: {error}"),
            }
        }
        std::thread::park_timeout(RELOAD_PAUSE);
    }
    running.into_values().for_each(|peer: Peer| peer.end(site));
}

/// Makes these the peers, and no others.
fn change(running: &mut BTreeMap<u8, Peer>, peers: &Peers, shared: &Arc<Shared>, site: &Arc<Site>) {
    let is_other =
        |(number, peer): (&u8, &Peer)| (peers.get(number) != Some(&peer.address)).then_some(*number);
    let others: Vec<u8> = running.iter().filter_map(is_other).collect();
    for number in others {
        let Some(peer) = running.remove(&number) else { continue };
        let address = peer.address.clone();
        peer.end(site);
        site.forget_peer(&address);
        if let Some(ring) = &shared.ring {
            ring.forget_followed(&address);
        }
    }
    let known: Vec<u8> = site.members().positions().map(|position| position.site).collect();
    for number in known.into_iter().filter(|number| !peers.contains_key(number)) {
        let removed = site.members().removed(number);
        if let Some(position) = removed {
            tracing::warn!(
                site = number,
                "the site is no longer part of the cluster, and not waited for any more"
            );
            site.forget_copy(number);
            // Before the file is read again: whether a site is back is asked of what is durable.
            if let Err(error) = site.keep_standing_durably(position) {
                tracing::error!(site = number, "the site is not removed yet: {error}");
            }
        }
    }
    for (number, address) in peers {
        let added = site.members().add(*number, site.now().micros);
        if let Some(position) = added {
            tracing::warn!(site = number, address, "the site is part of the cluster from now on");
            site.keep_standing(position);
        }
        if !running.contains_key(number) {
            match Peer::start(shared, site, address, *number) {
                Ok(peer) => _ = running.insert(*number, peer),
                Err(error) => tracing::error!(site = number, "the peer cannot be pulled from: {error}"),
            }
        }
    }
    site.end_being_new_if_all_are_heard();
}

/// Far more than seven lines, with comments.
const FILE_BYTES_MAX: u64 = 1 << 20;
const RELOAD_PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads the file again must not wait for somebody who writes it.
    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let fifo = std::env::temp_dir().join(format!("larder-peers-{}", std::process::id()));
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("it can be made");
        let refused = read(&fifo, 1).map_err(|error| error.to_string());
        std::fs::remove_file(&fifo).expect("it can be removed");
        let refused = refused.expect_err("it is no file");
        assert!(refused.ends_with("not a regular file"), "{refused}");
    }

    #[test]
    fn a_file_has_a_number_and_an_address_a_line() {
        let peers = parse("# sites\n\n2 b.example:11311 # spare\n  7\t[::1]:1\n", 1).expect("it is right");
        let expected = [(2, "b.example:11311".to_owned()), (7, "[::1]:1".to_owned())];
        assert_eq!(peers, Peers::from(expected));
        assert_eq!(parse("", 1), Ok(Peers::new()));
        let eight: String = (2..10).map(|number| format!("{number} a:{number}\n")).collect();
        for (text, error) in [
            ("b:1", "line 1: the number of a site, and its host:port"),
            ("2 b:1 c:1", "line 1: the number of a site, and its host:port"),
            ("\n256 b:1", "line 2: the number of a site is 1 to 255"),
            ("0 b:1", "line 1: the number of a site is 1 to 255"),
            ("2 b", "line 1: the address of a site is host:port"),
            ("2 b:0", "line 1: the address of a site is host:port"),
            ("2 :1", "line 1: the address of a site is host:port"),
            ("2 b:+1", "line 1: the address of a site is host:port"),
            ("+2 b:1", "line 1: the number of a site is 1 to 255"),
            ("1 a:1", "line 1: that is the number of this site: name the others"),
            ("2 b:1\n2 c:1", "line 2: each site, and each address, stands there once"),
            ("2 b:1\n3 b:1", "line 2: each site, and each address, stands there once"),
            (&eight, "line 8: a site has up to 7 peers"),
        ] {
            assert_eq!(parse(text, 1), Err(error.to_owned()), "{text}");
        }
    }
}
