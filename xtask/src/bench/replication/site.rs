//! Sites under measurement.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::Result;
use larder_conformance::folder::Folder;
use larder_conformance::server::{connect, free_port};
use larder_conformance::sites::link::{Link, Proxy};

use super::PATIENCE;
use crate::bench::pinned::{Pinned, on_core};
use crate::bench::store::disk_bytes;
use crate::cores::Cores;

/// What a server is told of other sites.
pub(super) struct Peer {
    site: u8,
    listen: SocketAddr,
    /// Where the other one is, if there is one yet.
    peer: Option<SocketAddr>,
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// A larderd with a store.
pub(super) struct Site {
    process: Pinned,
    address: SocketAddr,
    folder: Folder,
}

impl Site {
    pub(super) fn start(larderd: &Path, durability: &str, core: usize, peer: Option<&Peer>) -> Result<Self> {
        Self::start_in(Folder::create(), larderd, durability, core, peer)
    }

    fn start_in(
        folder: Folder,
        larderd: &Path,
        durability: &str,
        core: usize,
        peer: Option<&Peer>,
    ) -> Result<Self> {
        let address = loopback();
        let mut command = on_core(core, larderd);
        command.args(["-u", "root", "-l", "127.0.0.1", "-t", "1", "-m", "1024", "--durability", durability]);
        command
            .args(["-U", "0", "-p"])
            .arg(address.port().to_string())
            .arg("--store")
            .arg(folder.file("store"));
        if let Some(Peer { site, listen, peer }) = peer {
            folder.write("token", "all-sites-know-this-token-and-nobody-else\n");
            command.arg("--replication-token-file").arg(folder.file("token"));
            for (option, value) in
                [("--site", site.to_string()), ("--replication-listen", listen.to_string())]
            {
                command.args([option, &value]);
            }
            if let Some(peer) = peer {
                command.arg("--peer").arg(peer.to_string());
            }
        }
        let log = std::fs::File::create(folder.file("log"))?;
        command.stderr(log);
        let site = Self { process: Pinned::start(command)?, address, folder };
        let began = Instant::now();
        while connect(address).is_err() {
            if began.elapsed() > PATIENCE {
                return Err("larderd does not listen".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(site)
    }

    /// The first of a cluster is so once it has run without a peer. So it takes changes though the other one is not
    /// there yet.
    fn start_first(larderd: &Path, durability: &str, core: usize, peer: Peer) -> Result<Self> {
        let alone = Self::start(larderd, durability, core, Some(&Peer { peer: None, ..peer }))?;
        let (mut client, began) = (alone.client()?, Instant::now());
        while client.sum("stats replication", "log_durable_sequence")? == 0 {
            if began.elapsed() > PATIENCE {
                return Err("the first site has nothing in its log after a minute".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        let Self { process, folder, .. } = alone;
        drop(process);
        Self::start_in(folder, larderd, durability, core, Some(&peer))
    }

    /// A new one takes none before it has heard the other one.
    pub(super) fn wait_until_it_takes_changes(&self) -> Result<()> {
        let (mut client, began) = (self.client()?, Instant::now());
        while !client.says("stats replication", "takes_changes", "yes")? {
            if began.elapsed() > PATIENCE {
                return Err("the site takes no changes after a minute".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) fn client(&self) -> Result<Client> {
        let stream = connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client { stream: BufReader::with_capacity(64 << 10, stream), bytes: Vec::new() })
    }

    /// Blocks of its store.
    pub(super) fn disk_bytes(&self) -> Result<u64> {
        disk_bytes(&self.folder.file("store"))
    }

    /// Until cleaning has nothing to do.
    pub(super) fn settle(&self) -> Result<()> {
        let mut client = self.client()?;
        for _ in 0..60 {
            thread::sleep(Duration::from_millis(500));
            if client.sum("stats store", "cleaning_debt_bytes")? == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Two sites, with a link between them each way.
pub(super) struct Pair {
    first: Site,
    second: Option<Site>,
    larderd: PathBuf,
    durability: &'static str,
    core: usize,
    listens: [SocketAddr; 2],
    /// To the first one, and to the second.
    links: [Proxy; 2],
}

impl Pair {
    /// Both, connected.
    pub(super) fn start(larderd: &Path, durability: &'static str, cores: &Cores) -> Result<Self> {
        let mut pair = Self::start_first(larderd, durability, cores)?;
        pair.start_second()?;
        pair.second()?.wait_until_it_takes_changes()?;
        pair.wait_for_second()?;
        Ok(pair)
    }

    pub(super) fn start_first(larderd: &Path, durability: &'static str, cores: &Cores) -> Result<Self> {
        let listens = [loopback(), loopback()];
        let links = [Proxy::to(listens[0])?, Proxy::to(listens[1])?];
        let peer = Peer { site: 1, listen: listens[0], peer: Some(links[1].address()) };
        let first = Site::start_first(larderd, durability, cores.server, peer)?;
        let (larderd, core) = (larderd.to_owned(), cores.load);
        Ok(Self { first, second: None, larderd, durability, core, listens, links })
    }

    pub(super) fn start_second(&mut self) -> Result<()> {
        let peer = Peer { site: 2, listen: self.listens[1], peer: Some(self.links[0].address()) };
        self.second = Some(Site::start(&self.larderd, self.durability, self.core, Some(&peer))?);
        Ok(())
    }

    pub(super) fn first(&self) -> &Site {
        &self.first
    }

    pub(super) fn second(&self) -> Result<&Site> {
        self.second.as_ref().ok_or_else(|| "the second site has not been started".into())
    }

    /// Its store is gone, too.
    pub(super) fn kill_second(&mut self) {
        self.second = None;
    }

    pub(super) fn set_links(&self, link: Link) {
        self.links.iter().for_each(|proxy| proxy.set(link));
    }

    /// Until it has everything that the first one has now.
    pub(super) fn wait_for_second(&self) -> Result<()> {
        let mark = fastrand::u64(..);
        self.first.client()?.set_probe(mark)?;
        let mut client = self.second()?.client()?;
        let began = Instant::now();
        while !client.has_probe(mark)? {
            if began.elapsed() > PATIENCE {
                return Err("the second site is not there after a minute".into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

/// A connection.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
    bytes: Vec<u8>,
}

impl Client {
    pub(super) fn send_sets(&mut self, keys: &[u64], value_bytes: usize) -> Result<()> {
        self.bytes.clear();
        for key in keys {
            self.bytes.extend_from_slice(format!("set key:{key:012} 0 0 {value_bytes}\r\n").as_bytes());
            self.bytes.resize(self.bytes.len() + value_bytes, b'v');
            self.bytes.extend_from_slice(b"\r\n");
        }
        Ok(self.stream.get_mut().write_all(&self.bytes)?)
    }

    /// So many sets are answered.
    pub(super) fn stored(&mut self, sets: u64) -> Result<()> {
        (0..sets).try_for_each(|_| match self.line()?.as_str() {
            "STORED" => Ok(()),
            reply => Err(format!("a set is answered {reply}").into()),
        })
    }

    pub(super) fn set_all(&mut self, keys: Range<u64>, value_bytes: usize) -> Result<()> {
        let keys: Vec<u64> = keys.collect();
        keys.chunks(64).try_for_each(|keys| {
            self.send_sets(keys, value_bytes)?;
            self.stored(keys.len() as u64)
        })
    }

    /// How many of the keys are there.
    pub(super) fn count(&mut self, keys: Range<u64>) -> Result<u64> {
        let keys: Vec<u64> = keys.collect();
        let mut count = 0;
        for keys in keys.chunks(256) {
            let requests: String = keys.iter().map(|key| format!("mg key:{key:012}\r\n")).collect();
            self.stream.get_mut().write_all(requests.as_bytes())?;
            for _ in keys {
                count += u64::from(self.line()? == "HD");
            }
        }
        Ok(count)
    }

    pub(super) fn wait_for(&mut self, key: u64) -> Result<()> {
        let began = Instant::now();
        while self.count(key..key + 1)? == 0 {
            if began.elapsed() > PATIENCE {
                return Err("the peer does not have it after a minute".into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    pub(super) fn set_probe(&mut self, probe: u64) -> Result<()> {
        self.stream.get_mut().write_all(format!("set probe 0 0 20\r\n{probe:020}\r\n").as_bytes())?;
        self.stored(1)
    }

    pub(super) fn has_probe(&mut self, probe: u64) -> Result<bool> {
        self.stream.get_mut().write_all(b"mg probe v\r\n")?;
        if self.line()? == "EN" {
            return Ok(false);
        }
        let mut value = [0; 22];
        self.stream.read_exact(&mut value)?;
        Ok(value[..20] == *format!("{probe:020}").as_bytes())
    }

    /// Whether `stats replication` says that a copy is taken.
    pub(super) fn is_copying(&mut self) -> Result<bool> {
        self.says("stats replication", ":copying", "yes")
    }

    /// Whether one of these statistics whose names end so has this value.
    fn says(&mut self, command: &str, suffix: &str, wanted: &str) -> Result<bool> {
        let stats = self.stats(command)?;
        Ok(stats.iter().any(|(name, value)| name.ends_with(suffix) && value == wanted))
    }

    /// The sum of the numbers of these statistics whose names end so.
    pub(super) fn sum(&mut self, command: &str, suffix: &str) -> Result<u64> {
        let stats = self.stats(command)?;
        Ok(stats
            .iter()
            .filter(|(name, _)| name.ends_with(suffix))
            .filter_map(|(_, value)| value.parse::<u64>().ok())
            .sum())
    }

    fn stats(&mut self, command: &str) -> Result<Vec<(String, String)>> {
        self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        let mut stats = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) =
                line.strip_prefix("STAT ").map(|stat| stat.split_once(' ').unwrap_or((stat, "")))
            else {
                return Ok(stats);
            };
            stats.push((name.to_owned(), value.to_owned()));
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if line.is_empty() {
            return Err("the server has closed the connection".into());
        }
        Ok(line.trim_end().to_owned())
    }
}
