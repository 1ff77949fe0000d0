//! How this server runs: the result of reading the command line, constant from then on.

use std::path::PathBuf;

use larder_engine::{Config, LargePages};
use larder_policy::{Keep, NAMESPACES_MAX, Policy};
use larder_protocol::Dialect;

use crate::access::HttpSettings;
use crate::net::tls::TlsSettings;
use crate::observe::journal::JournalSettings;
use crate::observe::measure::Measured;
use crate::persistence::StoreSettings;
use crate::web::PeerAddress;

/// The server's settings. Defaults are memcached's.
#[derive(Clone, Debug)]
pub struct Settings {
    // Where to listen.
    /// TCP port (`-p`).
    pub tcp_port: Port,
    /// UDP port (`-U`).
    pub udp_port: Port,
    /// Over UDP, a source gets no more bytes than it sent until it returns a cookie (`--udp-cookie`).
    pub udp_cookie: bool,
    /// `-l` as given, entries in order; empty: all addresses, IPv4 and IPv6.
    pub listen: Vec<String>,
    /// Unix socket instead of TCP (`-s`).
    pub unix_socket: Option<PathBuf>,
    /// Mode of the unix socket (`-a`).
    pub unix_mode: u32,
    /// The dialect of clients (`-B`), unless their listener sets another; `None`: their first byte selects it.
    pub dialect: Option<Dialect>,
    /// Connections the kernel queues before they are accepted (`-b`).
    pub backlog: i32,

    // Logins.
    /// Clients log in with the passwords of this file, by the text protocol (`-Y`).
    pub auth_file: Option<PathBuf>,
    /// Clients log in by SASL, by the binary protocol (`-S`).
    pub sasl: bool,

    /// TLS (`-Z`, `-o ssl_*`).
    pub tls: TlsSettings,

    /// HTTP for operators (`--admin-*`).
    pub admin: HttpSettings,
    /// Admin listeners of other servers, which the page shows beside this one (`--admin-peers`).
    pub admin_peers: Vec<PeerAddress>,

    /// HTTP for items (`--http-*`).
    pub http: HttpSettings,

    // Connections and workers.
    /// Open connections at most (`-c`).
    pub connections_max: u32,
    /// Refuse connections beyond the limit with an error line, instead of leaving them unaccepted.
    pub maxconns_fast: bool,
    /// Worker threads (`-t`).
    pub threads: usize,
    /// Requests of one connection before others have their turn (`-R`).
    pub requests_per_event: u32,
    /// Close TCP connections that send nothing for longer than this; 0: never.
    pub idle_timeout_secs: u32,

    // The cache.
    /// Memory of the cache (`-m`).
    pub memory_bytes: u64,
    /// The file that the cache is kept in (`-e`).
    pub memory_file: Option<PathBuf>,
    /// Evict when full; else stores fail (`-M`).
    pub evict: bool,
    /// Largest item (`-I`), by memcached's formula.
    pub item_bytes_max: u32,
    /// Items have CAS values (`-C` turns them off).
    pub cas: bool,
    /// log2 of the items that the index has room for at the start; `None`: computed from the memory.
    pub hash_power: Option<u8>,
    /// The policies of key prefixes (`--namespaces`).
    pub namespaces_file: Option<PathBuf>,
    /// Changes are refused from the start (`--read-only`).
    pub read_only: bool,
    /// The store (`--store`).
    pub store: Option<StoreSettings>,
    /// Where items are kept that no policy speaks of (`--keep`).
    pub keep: Option<Keep>,

    // Commands.
    /// `shutdown` is allowed (`-A`).
    pub shutdown_command: bool,
    /// `flush_all` is allowed (`-F` forbids).
    pub flush_all: bool,
    /// Dumps of keys are allowed (`-X` forbids).
    pub dump: bool,
    /// `watch` is allowed (`-W` forbids).
    pub watch: bool,
    /// Close the connection when a noreply command failed with a server-side error, because the client cannot see it.
    pub noreply_close_on_error: bool,
    /// Verbosity at the start (`-v`); `verbosity` changes the one in [`crate::shared::Shared`].
    pub verbosity: u8,
    /// What is logged on stderr, and how (`--log-*`).
    pub journal: JournalSettings,

    // The process.
    /// Run in the background (`-d`).
    pub daemon: bool,
    /// Where to write the process id (`-P`).
    pub pid_file: Option<PathBuf>,
    /// The user to run as when started as root (`-u`).
    pub user: Option<String>,
    /// Seconds between checks of the files that SIGHUP reads again; 0 means never (`--reload-secs`).
    pub reload_secs: u32,
    /// Let the kernel block what serving does not need (`-o drop_privileges`).
    pub drop_privileges: bool,
    /// Keep all memory resident (`-k`).
    pub lock_memory: bool,
    /// Large pages: from the start with `-L`, never with `-o no_large_pages`.
    pub large_pages: LargePages,
    /// Raise the limit on core files (`-r`).
    pub core_dumps: bool,

    // Statistics and watchers.
    /// The delimiter that ends the prefix of a key (`-D`).
    pub prefix_delimiter: u8,
    /// `stats detail` counts from the start (`-D` was given).
    pub detail: bool,
    /// `stats sizes` is answered (`-o track_sizes`).
    pub track_sizes: bool,
    /// Bytes that may wait for a watcher to read (`-o watcher_logbuf_size`).
    pub watcher_logbuf_bytes: u32,
    /// Bytes that a worker may have written and nobody sent (`-o worker_logbuf_size`).
    pub worker_logbuf_bytes: u32,
    /// Measurements beyond counters (`-o latency_histograms`, `hot_keys`, `hit_ratio_curve`).
    pub measured: Measured,

    /// The values of options without effect, for `stats settings`.
    pub accepted: Accepted,
    /// Why some of the given options have no effect; logged at the start with `-v`.
    pub notes: Vec<String>,
}

impl Settings {
    /// The policy of the default namespace, unless the file of namespaces has one. Without that file a store keeps
    /// everything, also beside `-e`: what is on disk must not be out of sight because of an option that is added.
    pub fn default_policy(&self) -> Policy {
        let keep = match (&self.store, &self.namespaces_file, &self.memory_file) {
            (Some(_), None, _) => Keep::Store,
            (_, _, Some(_)) => Keep::Warm,
            (_, _, None) => Keep::Cache,
        };
        Policy { keep: self.keep.unwrap_or(keep), ..Policy::default() }
    }

    /// The dialect that all clients must use because they have to log in; `None`: no login.
    pub fn login_dialect(&self) -> Option<Dialect> {
        match (&self.auth_file, self.sasl) {
            (Some(_), _) => Some(Dialect::Text),
            (None, true) => Some(Dialect::Binary),
            (None, false) => None,
        }
    }

    /// log2 of the buckets that the index starts with. memcached counts items, the engine buckets of eight slots.
    pub fn index_power(&self) -> Option<u8> {
        self.hash_power.map(|power| power.saturating_sub(BUCKET_POWER))
    }

    /// The engine of this server, with the key of its hashes. Large pages are as asked for, allowed or not.
    pub fn engine_config(&self, hash_key: [u64; 2]) -> Config {
        Config {
            memory_bytes: self.memory_bytes,
            item_bytes_max: self.item_bytes_max,
            evict: self.evict,
            // One for each worker, one for background work.
            handles_max: self.threads
                + 1
                + self.store.as_ref().map_or(0, StoreSettings::threads)
                + self.threads_beside_logs(),
            index_power: self.index_power(),
            large_pages: self.large_pages,
            hash_key,
        }
    }

    /// Threads that access the engines for other sites without pulling their logs, which only a file of namespaces asks
    /// for.
    fn threads_beside_logs(&self) -> usize {
        let replication = self.store.as_ref().and_then(|store| store.replication.as_ref());
        let replication = replication.filter(|_| self.namespaces_file.is_some());
        replication.map_or(0, |replication| THREADS_BESIDE_LOG * replication.pullers_max())
    }

    /// True if it is one of several sites (`--site`).
    pub fn has_site(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.replication.is_some())
    }

    /// The number of this site; 0: it is not one of several.
    pub(crate) fn site(&self) -> u8 {
        let replication = self.store.as_ref().and_then(|store| store.replication.as_ref());
        replication.map_or(0, |replication| replication.site)
    }

    /// Descriptors that the server needs besides those of its connections and listeners: stdio, signals and so on, a
    /// poller and an eventfd for each worker, a file for each cache that is kept in one, what a store
    /// has beside its segments, and one for a client while it is refused.
    pub fn own_descriptors(&self) -> usize {
        let of_store = self.store.as_ref().map_or(0, StoreSettings::descriptors);
        let of_caches = if self.memory_file.is_some() { 1 + NAMESPACES_MAX } else { 0 };
        16 + 2 * self.threads + of_store + of_caches
    }
}

/// log2 of the slots of an index bucket.
pub const BUCKET_POWER: u8 = 3;

/// A port to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Do not listen.
    Off,
    /// This one.
    Fixed(u16),
    /// One that the system assigns.
    Ephemeral,
}

/// Values of options that larder accepts for compatibility. They only affect what `stats` and `stats settings` print.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// `-f`.
    pub growth_factor: f64,
    /// `-n`.
    pub chunk_bytes: u32,
    /// `-N`.
    pub napi_ids: u32,
    /// `slab_reassign`; decides whether `stats` shows its lines.
    pub slab_reassign: bool,
    /// `slab_automove`.
    pub slab_automove: u8,
    /// `slab_automove_ratio`.
    pub slab_automove_ratio: f64,
    /// `slab_automove_window`.
    pub slab_automove_window: u32,
    /// `slab_chunk_max`.
    pub slab_chunk_bytes_max: u32,
    /// `lru_crawler`; decides whether `stats` shows its lines.
    pub lru_crawler: bool,
    /// `lru_crawler_sleep`.
    pub lru_crawler_sleep_micros: u32,
    /// `lru_crawler_tocrawl`.
    pub lru_crawler_tocrawl: u32,
    /// `tail_repair_time`.
    pub tail_repair_secs: u32,
    /// `lru_maintainer`; decides whether `stats` shows its lines.
    pub lru_maintainer: bool,
    /// `hot_lru_pct`.
    pub hot_lru_pct: u32,
    /// `warm_lru_pct`.
    pub warm_lru_pct: u32,
    /// `hot_max_factor`.
    pub hot_max_factor: f64,
    /// `warm_max_factor`.
    pub warm_max_factor: f64,
    /// `temporary_ttl`, if given.
    pub temporary_ttl: Option<u32>,
    /// `read_buf_mem_limit`.
    pub read_buf_bytes_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tcp_port: Port::Fixed(11211),
            udp_port: Port::Off,
            udp_cookie: false,
            listen: Vec::new(),
            unix_socket: None,
            unix_mode: 0o700,
            dialect: None,
            backlog: 1024,
            auth_file: None,
            sasl: false,
            tls: TlsSettings::default(),
            admin: HttpSettings::default(),
            admin_peers: Vec::new(),
            http: HttpSettings::default(),
            connections_max: 1024,
            maxconns_fast: true,
            threads: 4,
            requests_per_event: 128,
            idle_timeout_secs: 0,
            memory_bytes: 64 << 20,
            memory_file: None,
            evict: true,
            item_bytes_max: 1 << 20,
            cas: true,
            hash_power: None,
            namespaces_file: None,
            read_only: false,
            store: None,
            keep: None,
            shutdown_command: false,
            flush_all: true,
            dump: true,
            watch: true,
            noreply_close_on_error: false,
            reload_secs: 0,
            verbosity: 0,
            journal: JournalSettings::default(),
            daemon: false,
            pid_file: None,
            user: None,
            drop_privileges: false,
            lock_memory: false,
            large_pages: LargePages::Filled,
            core_dumps: false,
            prefix_delimiter: b':',
            detail: false,
            track_sizes: false,
            watcher_logbuf_bytes: 256 << 10,
            worker_logbuf_bytes: 64 << 10,
            measured: Measured::ALL,
            accepted: Accepted::default(),
            notes: Vec::new(),
        }
    }
}

impl Default for Accepted {
    fn default() -> Self {
        Self {
            growth_factor: 1.25,
            chunk_bytes: 48,
            napi_ids: 0,
            slab_reassign: true,
            slab_automove: 1,
            slab_automove_ratio: 0.8,
            slab_automove_window: 10,
            slab_chunk_bytes_max: 512 << 10,
            lru_crawler: true,
            lru_crawler_sleep_micros: 100,
            lru_crawler_tocrawl: 0,
            tail_repair_secs: 0,
            lru_maintainer: true,
            hot_lru_pct: 20,
            warm_lru_pct: 40,
            hot_max_factor: 0.2,
            warm_max_factor: 2.0,
            temporary_ttl: None,
            read_buf_bytes_max: 0,
        }
    }
}

/// For each peer: one follows its caches, one tells it of this server's, two run its commands; and as many as these
/// three for connections that have ended and are not closed yet.
const THREADS_BESIDE_LOG: usize = 7;
