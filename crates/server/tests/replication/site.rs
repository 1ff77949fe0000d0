//! Sites on this machine, each behind a link of its own from each other one.

use std::net::SocketAddr;
use std::path::Path;

use larder_conformance::folder::Folder;
use larder_conformance::server::{Server, eventually, free_port};

use crate::client::Client;
use crate::proxy::{Link, Proxy};

/// What keeps the stores.
pub(crate) const ENGINES: [&str; 2] = ["memory", "log"];

pub(crate) struct Cluster {
    folder: Folder,
    engine: &'static str,
    listens: Vec<SocketAddr>,
    /// By the site that pulls, and the one that it pulls from.
    links: Vec<Vec<Proxy>>,
    servers: Vec<Server>,
    killed: Option<usize>,
}

impl Cluster {
    pub(crate) fn of(sites: usize, engine: &'static str) -> Self {
        Self::of_planned(sites, sites, engine)
    }

    /// The first ones of the planned sites, connected with each other.
    pub(crate) fn of_planned(sites: usize, planned: usize, engine: &'static str) -> Self {
        let folder = Folder::create();
        folder.write("token", "all-sites-know-this-token-and-nobody-else\n");
        let listens: Vec<_> = (0..planned).map(|_| SocketAddr::from(([127, 0, 0, 1], free_port()))).collect();
        let links = (0..planned).map(|_| listens.iter().map(|listen| Proxy::to(*listen)).collect()).collect();
        let mut cluster = Self { folder, engine, listens, links, servers: Vec::new(), killed: None };
        cluster.servers = (0..sites).map(|site| cluster.start_site(site)).collect();
        for site in 0..sites {
            let mut client = cluster.client(site);
            eventually(|| client.stat(":cursor") > 0 || sites == 1);
        }
        cluster
    }

    pub(crate) fn start_site(&self, site: usize) -> Server {
        let number = (site + 1).to_string();
        let listen = self.listens[site].to_string();
        let (store, token) = (self.folder.arg(&format!("store{site}")), self.folder.arg("token"));
        let mut args: Vec<String> = [
            "-u",
            "root",
            "-m",
            "64",
            "--store",
            &store,
            "--store-engine",
            self.engine,
            "--durability",
            "interval",
            "--site",
            &number,
            "--replication-listen",
            &listen,
            "--replication-token-file",
            &token,
        ]
        .map(str::to_owned)
        .to_vec();
        for (other, link) in self.links[site].iter().enumerate() {
            if other != site {
                args.extend(["--peer".to_owned(), link.address.to_string()]);
            }
        }
        Server::start(Path::new(env!("CARGO_BIN_EXE_larderd")), &args).expect("larderd starts")
    }

    /// With SIGKILL. It is the last of the servers until it is started again.
    pub(crate) fn kill(&mut self, site: usize) {
        self.servers.remove(site).kill().expect("it runs");
        self.killed = Some(site);
    }

    pub(crate) fn start_again(&mut self, site: usize) {
        self.killed = None;
        let server = self.start_site(site);
        self.servers.insert(site, server);
    }

    pub(crate) fn add(&mut self, server: Server) {
        self.servers.push(server);
    }

    pub(crate) fn client(&self, site: usize) -> Client {
        let gone = usize::from(self.killed.is_some_and(|killed| killed < site));
        Client::of(&self.servers[site - gone])
    }

    /// Of what this site pulls.
    pub(crate) fn set_link(&self, site: usize, link: Link) {
        self.links[site].iter().for_each(|proxy| proxy.set(link));
    }

    pub(crate) fn set_links(&self, link: Link) {
        (0..self.links.len()).for_each(|site| self.set_link(site, link));
    }

    pub(crate) fn stat(&self, site: usize, suffix: &str) -> u64 {
        self.client(site).stat(suffix)
    }
}
