//! Sites on this machine, with a link of its own from each one to each other one.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::link::{Link, Proxy};
use super::{PATIENCE, PREFIXES, client};
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
    /// Where clients find each site; `None`: it is down.
    addresses: Vec<Arc<Mutex<Option<SocketAddr>>>>,
    starts: usize,
}

impl<'p> Cluster<'p> {
    /// Starts all of them.
    pub(super) fn start(program: &'p Path, sites: usize, durability: Durability) -> Result<Self> {
        let folder = Folder::create();
        folder.write("token", "all-sites-know-this-token-and-nobody-else\n");
        let namespaces: String =
            (0..PREFIXES).map(|prefix| format!("[namespace.\"p{prefix}:\"]\nkeep = \"store\"\n")).collect();
        folder.write("namespaces.toml", format!("[default]\nkeep = \"store\"\n{namespaces}"));
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
            addresses: (0..sites).map(|_| Arc::default()).collect(),
            starts: 0,
        };
        (0..sites).try_for_each(|site| cluster.start_site(site))?;
        (0..sites).try_for_each(|site| cluster.wait_until_it_takes_changes(site))?;
        Ok(cluster)
    }

    /// New sites take none before they have heard each other.
    fn wait_until_it_takes_changes(&self, site: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !client::figures(self.address(site)?)?.contains("takes_changes yes\n") {
            if Instant::now() > deadline {
                return Err(format!("site {} takes no changes after a minute", site + 1).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Starts a site that is down. Its log goes to a file of its own beside the stores.
    pub(super) fn start_site(&mut self, site: usize) -> Result<()> {
        if self.servers[site].is_some() {
            return Ok(());
        }
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
            ("--store", self.folder.arg(&format!("store{}", site + 1))),
            ("--store-engine", "log".into()),
            ("--durability", self.durability.name().into()),
            ("--sync-interval", INTERVAL.as_millis().to_string()),
            ("--namespaces", self.folder.arg("namespaces.toml")),
            ("--site", (site + 1).to_string()),
            ("--replication-listen", self.listens[site].to_string()),
            ("--replication-token-file", self.folder.arg("token")),
        ] {
            arguments.extend([option.to_owned(), value]);
        }
        for (_, link) in self.links[site].iter().enumerate().filter(|(other, _)| *other != site) {
            arguments.extend(["--peer".to_owned(), link.address().to_string()]);
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

    /// Keeps stores and logs.
    pub(super) fn keep(self) -> std::path::PathBuf {
        self.folder.keep()
    }
}
