//! Sites on this machine, each behind a link of its own from each other one.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use larder_conformance::folder::Folder;
use larder_conformance::server::{Server, command, eventually, free_port};
use larder_conformance::sites::link::{Link, Proxy};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::client::Client;

/// What all sites know.
pub(crate) const TOKEN: &str = "all-sites-know-this-token-and-nobody-else";
/// In place of an option: peers are named in a file.
pub(crate) const PEERS_FILE: &str = "--peers-file";
/// In place of an option: what larderd says goes to a file.
pub(crate) const LOG_FILE: &str = "--log-file";
/// What keeps the stores.
pub(crate) const ENGINES: [&str; 2] = ["memory", "log"];

const NAMESPACES: &str = "[default]
keep = \"store\"
[namespace.\"rep:\"]
keep = \"store\"
[namespace.\"own:\"]
keep = \"store\"
replicate = false
";

pub(crate) struct Cluster {
    folder: Folder,
    engine: &'static str,
    /// The connections between sites have TLS.
    is_encrypted: bool,
    listens: Vec<SocketAddr>,
    /// By the site that pulls, and the one that it pulls from.
    links: Vec<Vec<Proxy>>,
    servers: Vec<Server>,
    killed: Option<usize>,
    /// Peers are named in a file.
    has_files: bool,
    /// What larderd says goes to a file.
    has_logs: bool,
    /// Of each site, beside those of all tests.
    options: Vec<String>,
}

impl Cluster {
    pub(crate) fn of(sites: usize, engine: &'static str) -> Self {
        Self::of_planned(sites, sites, engine)
    }

    /// The same, with TLS between the sites.
    pub(crate) fn encrypted(sites: usize, engine: &'static str) -> Self {
        Self::build(sites, sites, engine, true, &[], NAMESPACES)
    }

    /// The first ones of the planned sites, connected with each other. They have known each other before the others
    /// were planned, so the store has to outlive a start.
    pub(crate) fn of_planned(sites: usize, planned: usize, engine: &'static str) -> Self {
        Self::build(sites, planned, engine, false, &[], NAMESPACES)
    }

    /// Sites with this file of namespaces.
    pub(crate) fn with_namespaces(sites: usize, engine: &'static str, namespaces: &str) -> Self {
        Self::build(sites, sites, engine, false, &[], namespaces)
    }

    /// Whose larderd have these options, too.
    pub(crate) fn with_options(sites: usize, planned: usize, engine: &'static str, options: &[&str]) -> Self {
        Self::build(sites, planned, engine, false, options, NAMESPACES)
    }

    pub(crate) fn build(
        sites: usize,
        planned: usize,
        engine: &'static str,
        is_encrypted: bool,
        options: &[&str],
        namespaces: &str,
    ) -> Self {
        let folder = Folder::create();
        folder.write("token", format!("{TOKEN}\n"));
        let listens: Vec<_> = (0..planned).map(|_| SocketAddr::from(([127, 0, 0, 1], free_port()))).collect();
        folder.write("namespaces.toml", namespaces);
        let proxy = |listen: &SocketAddr| Proxy::to(*listen).expect("a port is free");
        let links = (0..planned).map(|_| listens.iter().map(proxy).collect()).collect();
        if is_encrypted {
            write_certificates(&folder, "");
        }
        let has_files = options.contains(&PEERS_FILE);
        let has_logs = options.contains(&LOG_FILE);
        let options = options.iter().filter(|option| ![PEERS_FILE, LOG_FILE].contains(option));
        let options = options.map(|option| (*option).to_owned()).collect();
        let mut cluster = Self {
            folder,
            engine,
            is_encrypted,
            listens,
            links,
            servers: Vec::new(),
            killed: None,
            has_files,
            has_logs,
            options,
        };
        (0..sites).for_each(|site| cluster.name_peers(site, &(0..sites).collect::<Vec<_>>()));
        cluster.servers = (0..sites).map(|site| cluster.start_site_with(site, sites, "")).collect();
        for site in 0..sites {
            let mut client = cluster.client(site);
            eventually(|| client.takes_changes());
        }
        if planned > sites && !cluster.has_files {
            for server in cluster.servers.drain(..) {
                server.stop().expect("it runs");
            }
            cluster.servers = (0..sites).map(|site| cluster.start_site(site)).collect();
        }
        cluster
    }

    pub(crate) fn start_site(&self, site: usize) -> Server {
        self.start_site_with(site, self.listens.len(), "")
    }

    /// Starts a server in place of a site, with the number and a copy of the store of another site, which is stopped or
    /// killed.
    pub(crate) fn start_twin(&self, site: usize, of: usize) -> Server {
        copy_directory(&self.store(of), &self.store(site));
        self.start_server(site, of + 1, self.listens.len(), "", &[])
    }

    /// Starts a site with additional options.
    pub(crate) fn start_with(&self, site: usize, extra: &[&str]) -> Server {
        let extra: Vec<_> = extra.iter().map(|option| (*option).to_owned()).collect();
        self.start_server(site, site + 1, self.listens.len(), "", &extra)
    }

    /// With the first ones as peers, and certificates whose names begin so.
    fn start_site_with(&self, site: usize, sites: usize, identity: &str) -> Server {
        self.start_server(site, site + 1, sites, identity, &[])
    }

    fn start_server(
        &self,
        site: usize,
        number: usize,
        sites: usize,
        identity: &str,
        extra: &[String],
    ) -> Server {
        let number = number.to_string();
        let listen = self.listens[site].to_string();
        let (store, token) = (self.folder.arg(&format!("store{site}")), self.folder.arg("token"));
        let namespaces = self.folder.arg("namespaces.toml");
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
            "--namespaces",
            &namespaces,
            "--admin-listen",
            "127.0.0.1:0",
            "--site",
            &number,
            "--replication-listen",
            &listen,
            "--replication-token-file",
            &token,
            "--admin-token-file",
            &token,
        ]
        .map(str::to_owned)
        .to_vec();
        if self.has_files {
            args.extend(["--peers-file".to_owned(), self.folder.arg(&format!("peers{site}"))]);
        }
        let links = self.links[site].iter().take(sites).enumerate();
        for (other, link) in links.filter(|_| !self.has_files) {
            if other != site {
                args.extend(["--peer".to_owned(), link.address().to_string()]);
            }
        }
        args.extend(self.options.iter().chain(extra).cloned());
        if self.is_encrypted {
            let [chain, key, authority] = ["chain.pem", "key.pem", "authority.pem"]
                .map(|name| self.folder.arg(&format!("{identity}{name}")));
            let files = format!("ssl_chain_cert={chain},ssl_key={key},ssl_ca_cert={authority}");
            let options = ["-Z", "-o", &files, "-o", "ssl_verify_mode=2", "-l", "notls:127.0.0.1"];
            args.extend(options.map(str::to_owned));
        }
        let mut command = command(Path::new(env!("CARGO_BIN_EXE_larderd")));
        if self.has_logs {
            let log = File::options().create(true).append(true).open(self.folder.file(&format!("log{site}")));
            command.stderr(log.expect("it can be made"));
        }
        command.args(&args);
        Server::start_command(command).expect("larderd starts")
    }

    /// Stops a site, and starts it with certificates of an authority that the others do not know.
    pub(crate) fn start_as_stranger(&mut self, site: usize) {
        write_certificates(&self.folder, "strange-");
        self.servers.remove(site).stop().expect("it runs");
        let server = self.start_site_with(site, self.listens.len(), "strange-");
        self.servers.insert(site, server);
    }

    /// Lets a site refuse changes, or take them again: `state` is `on` or `off`.
    pub(crate) fn set_read_only(&self, site: usize, state: &str) {
        let address = self.servers[site].admin_address().expect("it listens");
        let mut stream = TcpStream::connect(address).expect("it listens");
        let head = format!("POST /api/read-only?state={state} HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n");
        stream
            .write_all(format!("{head}Host: {address}\r\nContent-Length: 0\r\n\r\n").as_bytes())
            .expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("it answers");
        assert!(response.contains(" 200 "), "{response}");
    }

    /// What a site has said since it was started first.
    pub(crate) fn log(&self, site: usize) -> String {
        std::fs::read_to_string(self.folder.file(&format!("log{site}"))).expect("it is text")
    }

    /// Writes the file of a site's peers.
    pub(crate) fn name_peers(&self, site: usize, sites: &[usize]) {
        let line = |other: &usize| format!("{} {}\n", other + 1, self.links[site][*other].address());
        let lines: String = sites.iter().filter(|other| **other != site).map(line).collect();
        self.folder.write(&format!("peers{site}"), lines);
    }

    pub(crate) fn server(&self, site: usize) -> &Server {
        &self.servers[site]
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// All links of a site, in both directions.
    pub(crate) fn set_links_of(&self, site: usize, link: Link) {
        self.set_link(site, link);
        self.links.iter().for_each(|links| links[site].set(link));
    }

    /// Where a site listens for the others.
    pub(crate) fn listen(&self, site: usize) -> SocketAddr {
        self.listens[site]
    }

    /// With SIGKILL. It is the last of the servers until it is started again.
    pub(crate) fn kill(&mut self, site: usize) {
        self.servers.remove(site).kill().expect("it runs");
        self.killed = Some(site);
    }

    /// The same in good order: its store can be opened then.
    pub(crate) fn stop(&mut self, site: usize) {
        self.servers.remove(site).stop().expect("it runs");
        self.killed = Some(site);
    }

    /// The directory of a site's store.
    pub(crate) fn store(&self, site: usize) -> PathBuf {
        self.folder.file(&format!("store{site}"))
    }

    pub(crate) fn start_again(&mut self, site: usize) {
        self.killed = None;
        let server = self.start_site(site);
        self.servers.insert(site, server);
    }

    /// Takes all running servers.
    pub(crate) fn take_servers(&mut self) -> Vec<Server> {
        self.killed = None;
        std::mem::take(&mut self.servers)
    }

    pub(crate) fn put_servers(&mut self, servers: Vec<Server>) {
        (self.servers, self.killed) = (servers, None);
    }

    pub(crate) fn add(&mut self, server: Server) {
        self.servers.push(server);
    }

    pub(crate) fn client(&self, site: usize) -> Client {
        let gone = usize::from(self.killed.is_some_and(|killed| killed < site));
        Client::of(&self.servers[site - gone])
    }

    /// Of what a site pulls from another one.
    pub(crate) fn link(&self, site: usize, other: usize) -> &Proxy {
        &self.links[site][other]
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

/// Copies the files of a directory to another one, which is emptied first.
pub(crate) fn copy_directory(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).expect("it can be made");
    for file in std::fs::read_dir(from).expect("it is there") {
        let file = file.expect("it can be read");
        std::fs::copy(file.path(), to.join(file.file_name())).expect("it can be copied");
    }
}

/// An authority, and a certificate of it for 127.0.0.1 with its key.
fn write_certificates(folder: &Folder, identity: &str) {
    let key = || KeyPair::generate().expect("a key");
    let (authority_key, own_key) = (key(), key());
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = authority.self_signed(&authority_key).expect("a certificate");
    let issuer = Issuer::new(authority, authority_key);
    let own = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
    let chain = own.signed_by(&own_key, &issuer).expect("a certificate");
    folder.write(&format!("{identity}chain.pem"), chain.pem());
    folder.write(&format!("{identity}key.pem"), own_key.serialize_pem());
    folder.write(&format!("{identity}authority.pem"), certificate.pem());
}
