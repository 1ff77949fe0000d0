//! Sites on this machine, with a link of its own from each one to each other one. They know each other from files,
//! which are read again when a site is added or removed.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::link::{Link, Proxy};
use super::{PATIENCE, ask, keys};
use crate::Result;
use crate::crash::{Durability, INTERVAL};
use crate::folder::Folder;
use crate::server::{self, Server, free_port};

/// Two or more sites.
pub(super) struct Cluster<'p> {
    program: &'p Path,
    durability: Durability,
    folder: Folder,
    listens: Vec<SocketAddr>,
    /// By the site that pulls, and the one that it pulls from.
    links: Vec<Vec<Proxy>>,
    servers: Vec<Option<Server>>,
    /// Is no part of the cluster now.
    removed: Option<usize>,
    /// Was started while another one was removed: it is not told of that one's caches, and does not tell it.
    is_outdated: Vec<bool>,
    /// MiB of the log that are kept for sites that are away.
    log_mib: u64,
    /// Where clients find each site; `None`: it is down.
    addresses: Vec<Arc<Mutex<Option<SocketAddr>>>>,
    starts: usize,
}

impl<'p> Cluster<'p> {
    /// Starts all of them. With few MiB of log a site that misses some has to take a copy.
    pub(super) fn start(
        program: &'p Path,
        sites: usize,
        durability: Durability,
        log_mib: u64,
    ) -> Result<Self> {
        let folder = Folder::create();
        folder.write("token", "all-sites-know-this-token-and-nobody-else\n");
        folder.write("namespaces.toml", keys::namespaces());
        let listens: Vec<_> = (0..sites).map(|_| SocketAddr::from(([127, 0, 0, 1], free_port()))).collect();
        let links = (0..sites)
            .map(|_| listens.iter().map(|listen| Proxy::to(*listen)).collect::<Result<Vec<_>>>())
            .collect::<Result<_>>()?;
        let mut cluster = Self {
            program,
            durability,
            folder,
            listens,
            links,
            servers: (0..sites).map(|_| None).collect(),
            removed: None,
            is_outdated: vec![false; sites],
            log_mib,
            addresses: (0..sites).map(|_| Arc::default()).collect(),
            starts: 0,
        };
        cluster.name_peers();
        (0..sites).try_for_each(|site| cluster.start_site(site))?;
        cluster.wait_until_all_are_in()?;
        Ok(cluster)
    }

    /// New sites take no changes before they have heard each other, and sites that come back a copy.
    pub(super) fn wait_until_all_are_in(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for site in 0..self.sites() {
            let others = (0..self.sites()).filter(|other| *other != site);
            let mut expected: Vec<_> = others.map(|other| format!("{}:standing in\n", other + 1)).collect();
            expected.push("takes_changes yes\n".to_owned());
            loop {
                let figures = ask::figures(self.address(site)?)?;
                let Some(lacking) = expected.iter().find(|line| !figures.contains(*line)) else { break };
                if Instant::now() > deadline {
                    let (site, lacking) = (site + 1, lacking.trim());
                    return Err(
                        format!("site {site} does not say `{lacking}` after a minute\n{figures}").into()
                    );
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Writes each site's file of peers.
    fn name_peers(&self) {
        for site in 0..self.sites() {
            let others = (0..self.sites()).filter(|other| *other != site && Some(*other) != self.removed);
            let lines = others.map(|other| format!("{} {}\n", other + 1, self.links[site][other].address()));
            self.folder.write(&peers_file(site), lines.collect::<String>());
        }
    }

    /// Ends a site that has all that the others have, and they what it has, and takes it out of the cluster.
    pub(super) fn remove(&mut self, site: usize) -> Result<()> {
        self.kill(site)?;
        self.removed = Some(site);
        self.name_peers();
        self.servers.iter().flatten().try_for_each(|server| server.signal(Signal::HUP))
    }

    /// Adds the removed site again, with its old store or an empty one. False: there is none.
    pub(super) fn add_removed(&mut self, keeps_store: bool) -> Result<bool> {
        let Some(site) = self.removed.take() else { return Ok(false) };
        self.name_peers();
        self.servers.iter().flatten().try_for_each(|server| server.signal(Signal::HUP))?;
        for outdated in 0..self.sites() {
            if std::mem::take(&mut self.is_outdated[outdated]) && self.servers[outdated].is_some() {
                self.kill(outdated)?;
                self.start_site(outdated)?;
            }
        }
        if !keeps_store {
            std::fs::remove_dir_all(self.folder.file(&store(site)))?;
        }
        self.start_site(site)?;
        Ok(true)
    }

    /// Starts a site that is down, unless it was removed. Its log goes to a file of its own beside the stores.
    pub(super) fn start_site(&mut self, site: usize) -> Result<()> {
        if self.servers[site].is_some() || self.removed == Some(site) {
            return Ok(());
        }
        self.is_outdated[site] = self.removed.is_some();
        self.starts += 1;
        let log = File::create(self.folder.file(&format!("site{}.{}.log", site + 1, self.starts)))?;
        let mut command = server::command(self.program);
        command.args(self.arguments(site)).stderr(log);
        let server = Server::start_command(command)?;
        self.set_address(site, Some(server.address()));
        self.servers[site] = Some(server);
        Ok(())
    }

    fn arguments(&self, site: usize) -> Vec<String> {
        let mut arguments: Vec<String> = ["-u", "root", "-m", "64", "-t", "2"].map(str::to_owned).to_vec();
        for (option, value) in [
            ("--store", self.folder.arg(&store(site))),
            ("--store-engine", "log".into()),
            ("--store-segment-kib", SEGMENT_KIB.to_string()),
            ("--durability", self.durability.name().into()),
            ("--sync-interval", INTERVAL.as_millis().to_string()),
            ("--namespaces", self.folder.arg("namespaces.toml")),
            ("--site", (site + 1).to_string()),
            ("--replication-listen", self.listens[site].to_string()),
            ("--replication-token-file", self.folder.arg("token")),
            ("--replication-log-mib", self.log_mib.to_string()),
            ("--peers-file", self.folder.arg(&peers_file(site))),
        ] {
            arguments.extend([option.to_owned(), value]);
        }
        arguments
    }

    /// With SIGKILL.
    pub(super) fn kill(&mut self, site: usize) -> Result<()> {
        let Some(server) = self.servers[site].take() else { return Ok(()) };
        self.set_address(site, None);
        server.kill()
    }

    /// The whole process stands still, or goes on.
    pub(super) fn pause(&self, site: usize, is_paused: bool) -> Result<()> {
        let Some(server) = &self.servers[site] else { return Ok(()) };
        server.signal(if is_paused { Signal::STOP } else { Signal::CONT })
    }

    /// Of what `site` pulls from `other`.
    pub(super) fn link(&self, site: usize, other: usize) -> &Proxy {
        &self.links[site][other]
    }

    /// Of all that `site` pulls, and that others pull from it.
    pub(super) fn set_links_of(&self, site: usize, link: Link) {
        for other in 0..self.sites() {
            self.link(site, other).set(link);
            self.link(other, site).set(link);
        }
    }

    /// Everything runs and passes.
    pub(super) fn heal(&mut self) -> Result<()> {
        self.add_removed(true)?;
        for site in 0..self.sites() {
            self.set_links_of(site, Link::Open);
            self.pause(site, false)?;
            self.start_site(site)?;
        }
        Ok(())
    }

    pub(super) fn sites(&self) -> usize {
        self.listens.len()
    }

    /// Where clients find the site while it runs.
    pub(super) fn shared_address(&self, site: usize) -> Arc<Mutex<Option<SocketAddr>>> {
        Arc::clone(&self.addresses[site])
    }

    pub(super) fn address(&self, site: usize) -> Result<SocketAddr> {
        let address = self.addresses[site].lock().unwrap_or_else(PoisonError::into_inner);
        address.ok_or_else(|| "the site is down".into())
    }

    fn set_address(&self, site: usize, address: Option<SocketAddr>) {
        *self.addresses[site].lock().unwrap_or_else(PoisonError::into_inner) = address;
    }

    /// What a site takes: resident memory, and blocks of its store on the disk; in MiB.
    pub(super) fn sizes_mib(&self, site: usize) -> Result<[u64; 2]> {
        let server = self.servers[site].as_ref().ok_or("the site is down")?;
        let mut disk_bytes = 0;
        for file in std::fs::read_dir(self.folder.file(&store(site)))? {
            // What is deleted meanwhile takes nothing.
            disk_bytes += file?.metadata().map_or(0, |metadata| metadata.blocks() * 512);
        }
        Ok([server.resident_bytes()? >> 20, disk_bytes >> 20])
    }

    /// What a site may take at most, in the same units. Memory: `-m`, changes on their way to the store and to others
    /// (a window of 4 MiB each, and a batch), the ring, the program. Disk: what lives is little; files that are being
    /// cleaned, and the log for sites that are away.
    pub(super) fn sizes_mib_max(&self) -> [u64; 2] {
        let others = self.sites() as u64 - 1;
        [64 + 32 + 16 + 16 * others + 24, self.log_mib + 16 * SEGMENT_KIB / 1024]
    }

    /// Keeps stores and logs.
    pub(super) fn keep(self) -> std::path::PathBuf {
        self.folder.keep()
    }
}

fn store(site: usize) -> String {
    format!("store{}", site + 1)
}

fn peers_file(site: usize) -> String {
    format!("peers{}", site + 1)
}

/// Small, so that files are cleaned all the time.
const SEGMENT_KIB: u64 = 1024;
