//! A server's items, read while it serves.
//!
//! First the server lists its keys (`lru_crawler metadump`); then they are requested in batches. memcached holds locks
//! while its list is read slowly, so the list is saved in a temporary file, which may be larger than memory. With the
//! meta protocol value, flags and time to live are read at the same time; otherwise the time to live is that of the
//! list.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};
use std::{env, process, thread};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_client::Address;

use super::record::{Record, read_key};
use super::{clock_skew_secs, speaks_meta};
use crate::Failure;
use crate::target::Target;
use crate::ttl::unix_now_secs;
use crate::wire::Wire;

/// A dump of all items of a server.
pub(crate) struct Source {
    listing: BufReader<File>,
    items: Wire,
    speaks_meta: bool,
    skew_secs: i64,
    /// The list has ended.
    is_over: bool,
    line: Vec<u8>,
    batch: Vec<Listed>,
    request: Vec<u8>,
    /// Listed keys whose items had disappeared when they were requested.
    pub gone: u64,
    /// Keys that need the meta protocol, on a server without it.
    pub unaskable: u64,
}

/// A listed key.
struct Listed {
    key: Vec<u8>,
    /// By our clock; 0: never.
    expires_at_secs: i64,
    /// With the server's overhead.
    item_bytes: u64,
}

impl Source {
    /// Lists the keys.
    pub(crate) fn open(target: &Target, address: &Address) -> Result<Self, Failure> {
        let mut items = Wire::open(target, address)?;
        let speaks_meta = speaks_meta(&mut items)?;
        Ok(Self {
            listing: list(target, address)?,
            items,
            speaks_meta,
            skew_secs: clock_skew_secs(target, address)?,
            is_over: false,
            line: Vec::new(),
            batch: Vec::new(),
            request: Vec::new(),
            gone: 0,
            unaskable: 0,
        })
    }

    /// Reads some items; false if there are no more. Skips keys for which `is_wanted` returns false. Has one batch in
    /// memory: a hundred items or a megabyte, or one larger item.
    pub(crate) fn read(
        &mut self,
        is_wanted: &mut dyn FnMut(&[u8]) -> bool,
        take: &mut dyn FnMut(Record) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        self.batch.clear();
        let mut batch_bytes = 0;
        while !self.is_over && self.batch.len() < BATCH_KEYS_MAX && batch_bytes < BATCH_BYTES_MAX {
            let Some(listed) = self.next_listed()? else { break };
            if is_wanted(&listed.key) {
                batch_bytes = listed.item_bytes.saturating_add(batch_bytes);
                self.batch.push(listed);
            }
        }
        let batch = std::mem::take(&mut self.batch);
        self.request.clear();
        for listed in &batch {
            self.ask(&listed.key);
        }
        self.items.send(&self.request)?;
        for listed in &batch {
            if self.is_askable(&listed.key) {
                match self.receive(listed)? {
                    Some(record) => take(record)?,
                    None => self.gone += 1,
                }
            } else {
                self.unaskable += 1;
            }
        }
        self.batch = batch;
        Ok(!self.is_over)
    }

    fn next_listed(&mut self) -> Result<Option<Listed>, Failure> {
        self.line.clear();
        self.listing.read_until(b'\n', &mut self.line).map_err(|error| cannot_spool(&error))?;
        let Some((_, line)) = self.line.split_last() else {
            self.is_over = true;
            return Ok(None);
        };
        match std::str::from_utf8(line).ok().and_then(Listed::read) {
            Some(mut listed) => {
                if listed.expires_at_secs != 0 {
                    listed.expires_at_secs = listed.expires_at_secs.saturating_sub(self.skew_secs);
                }
                Ok(Some(listed))
            }
            None => Err(self.items.broken(&self.line)),
        }
    }

    fn ask(&mut self, key: &[u8]) {
        if self.speaks_meta {
            self.request.extend_from_slice(b"mg ");
            if is_text(key) {
                self.request.extend_from_slice(key);
            } else {
                self.request.extend_from_slice(STANDARD.encode(key).as_bytes());
                self.request.extend_from_slice(b" b");
            }
            self.request.extend_from_slice(b" v f t\r\n");
        } else if is_text(key) {
            self.request.extend_from_slice(b"get ");
            self.request.extend_from_slice(key);
            self.request.extend_from_slice(b"\r\n");
        }
    }

    fn is_askable(&self, key: &[u8]) -> bool {
        self.speaks_meta || is_text(key)
    }

    fn receive(&mut self, listed: &Listed) -> Result<Option<Record>, Failure> {
        self.items.line(&mut self.line)?;
        let line = std::str::from_utf8(&self.line).unwrap_or_default();
        let words: Vec<_> = line.split(' ').collect();
        let key = listed.key.clone();
        let record = match words[..] {
            ["EN" | "END"] => return Ok(None),
            ["VA", value_bytes, client_flags, ttl_secs, ..] => {
                let numbers = (
                    value_bytes.parse(),
                    client_flags.strip_prefix('f').and_then(|text| text.parse().ok()),
                    ttl_secs.strip_prefix('t').and_then(|text| text.parse().ok()),
                );
                let (Ok(value_bytes), Some(client_flags), Some(ttl_secs)) = numbers else {
                    return Err(self.items.broken(&self.line));
                };
                let value = self.items.value(value_bytes)?;
                Record { key, client_flags, expires_at_secs: expiry(listed.expires_at_secs, ttl_secs), value }
            }
            ["VALUE", _, client_flags, value_bytes] => {
                let (Ok(client_flags), Ok(value_bytes)) = (client_flags.parse(), value_bytes.parse()) else {
                    return Err(self.items.broken(&self.line));
                };
                let value = self.items.value(value_bytes)?;
                self.items.line(&mut self.line)?;
                if self.line != b"END" {
                    return Err(self.items.broken(&self.line));
                }
                Record { key, client_flags, expires_at_secs: listed.expires_at_secs, value }
            }
            _ => return Err(self.items.broken(&self.line)),
        };
        Ok(Some(record))
    }
}

impl Listed {
    /// `key=foo exp=1700000000 la=1699999000 cas=5 fetch=no cls=1 size=63`, of which the key and `exp` (-1: never) are
    /// needed.
    fn read(line: &str) -> Option<Self> {
        let word = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name));
        let expires_at_secs = word("exp=")?.parse::<i64>().ok()?;
        Some(Self {
            key: read_key(word("key=")?)?,
            expires_at_secs: expires_at_secs.max(0),
            item_bytes: word("size=").and_then(|size| size.parse().ok()).unwrap_or(0),
        })
    }
}

/// The expiry of an item: that of the list, exact to the second, unless the item has changed since.
fn expiry(listed_secs: i64, ttl_secs: i64) -> i64 {
    if ttl_secs < 0 {
        return 0;
    }
    let told_secs = unix_now_secs().saturating_add(ttl_secs);
    if listed_secs.abs_diff(told_secs) <= 2 { listed_secs } else { told_secs }
}

/// Lists the keys, once no other client does so. By the hash table where the server supports it: a walk of the LRU can
/// miss items that move meanwhile, and reading moves items.
fn list(target: &Target, address: &Address) -> Result<BufReader<File>, Failure> {
    let deadline = Instant::now() + BUSY_MAX;
    let mut walk = "hash";
    loop {
        let mut wire = Wire::open(target, address)?;
        wire.send(format!("lru_crawler metadump {walk}\r\n").as_bytes())?;
        let mut first = Vec::new();
        wire.line(&mut first)?;
        // memcached 1.6.45 and larderd send this before they begin, memcached 1.6.18 does not.
        if first == b"OK" {
            wire.line(&mut first)?;
        }
        let refused = match &first[..] {
            line if line.starts_with(b"key=") || line == b"END" => return spool(wire, first),
            line if line.starts_with(b"BUSY") || line.starts_with(b"LOCKED") => {
                if Instant::now() < deadline {
                    thread::sleep(Duration::from_millis(100));
                    continue;
                }
                "somebody else is listing its keys".to_owned()
            }
            _ if walk == "hash" => {
                walk = "all";
                continue;
            }
            line => format!("it does not list its keys: {}", line.escape_ascii()),
        };
        return Err(Failure::Failed(format!("{address}: {refused}")));
    }
}

/// Reads a list to its end as fast as possible.
fn spool(mut wire: Wire, first: Vec<u8>) -> Result<BufReader<File>, Failure> {
    let mut spool = BufWriter::new(unnamed_file().map_err(|error| cannot_spool(&error))?);
    let mut line = first;
    while line != b"END" {
        spool.write_all(&line).and_then(|()| spool.write_all(b"\n")).map_err(|error| cannot_spool(&error))?;
        wire.line(&mut line)?;
    }
    let mut file = spool.into_inner().map_err(|error| cannot_spool(error.error()))?;
    file.rewind().map_err(|error| cannot_spool(&error))?;
    Ok(BufReader::new(file))
}

/// A private file that is deleted when it is closed.
fn unnamed_file() -> io::Result<File> {
    let path =
        env::temp_dir().join(format!("larder-keys-{}-{:x}", process::id(), RandomState::new().hash_one(0)));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

fn cannot_spool(error: &io::Error) -> Failure {
    Failure::Failed(format!("the list of keys in {}: {error}", env::temp_dir().display()))
}

/// True if the text protocol can transfer this key.
fn is_text(key: &[u8]) -> bool {
    key.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
}

const BATCH_KEYS_MAX: usize = 100;
const BATCH_BYTES_MAX: u64 = 1 << 20;
/// How long to wait while another client lists keys.
const BUSY_MAX: Duration = Duration::from_secs(30);
