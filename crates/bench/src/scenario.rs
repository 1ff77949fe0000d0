//! What is asked of a server, in the form of a TOML file.
//!
//! A scenario has one or more groups of connections. All groups run at the same time; each has commands, keys and values of
//! its own. Every field has a default, so that a file says only what is unlike the default.

use serde::{Deserialize, Serialize};

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// What it is called in tables and reports.
    pub name: String,
    /// What it is for, in a line or two.
    pub description: String,
    /// Where the servers are, and how they are spoken to.
    pub target: Target,
    /// When to stop. Whatever comes first; without any, after ten seconds.
    pub until: Until,
    /// Load threads; each has a share of every group's connections. 0: one for every core but the first.
    pub threads: usize,
    /// Seconds of load before the clock starts.
    pub warm_up_secs: f64,
    /// Length of a period, the step of tables and charts.
    pub period_secs: f64,
    /// What draws keys, sizes and commands begins from this number. Two runs with the same seed ask the same.
    pub seed: u64,
    /// What is checked of the answers.
    pub truth: Truth,
    /// Flush the servers first.
    pub flush: bool,
    /// Store every key of every group once before the clock starts.
    pub fill: bool,
    /// Connections and what they ask.
    #[serde(rename = "group")]
    pub groups: Vec<Group>,
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// What is wrong, and in which line, for a person.
    pub fn from_toml(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Writes a scenario file. A password is left out.
    ///
    /// # Panics
    /// Never: every field has a form in TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).unwrap_or_else(|error| panic!("a scenario as TOML: {error}"))
    }
}

/// Where the servers are.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Target {
    /// `host:port`, or the path of a unix socket. A key goes to the server that its hash names (modulo their number),
    /// unless `replicate` says otherwise.
    pub servers: Vec<String>,
    /// Store on the first so many servers, and read from any of them: replicas. 0: keys are shared out. Each copy of a store
    /// counts as a request in tables; for `until.requests` and the like all of them are one.
    pub replicate: usize,
    /// With `replicate`: the servers copy among themselves. Each store goes to one of the first `replicate` servers, drawn at
    /// random, and each get to any of all servers: memaslap's `--rep_write`. A copy may lag, so a check of values takes any version
    /// that was ever stored, and neither expiries nor misses are checked.
    pub servers_replicate: bool,
    /// TLS over TCP.
    pub tls: Option<Tls>,
    /// Log in with this name and password before anything else.
    pub login: Option<Login>,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            servers: vec!["127.0.0.1:11211".into()],
            replicate: 0,
            servers_replicate: false,
            tls: None,
            login: None,
        }
    }
}

/// TLS to the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Certificates that are trusted, a PEM file. `None`: whatever the server shows is accepted, since a benchmark measures.
    pub ca_file: Option<String>,
    /// A certificate of our own, a PEM file, and its key.
    pub certificate_file: Option<String>,
    /// The key of `certificate_file`.
    pub key_file: Option<String>,
    /// The name to ask for; that of the server's address by default.
    pub server_name: Option<String>,
}

/// Name and password: SASL PLAIN in the binary protocol, else memcached's ASCII authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// The password. It is never written to a report, so a scenario that was read from one has none.
    #[serde(default, skip_serializing)]
    pub password: String,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Until {
    /// After so many seconds, warm-up not counted.
    pub secs: Option<f64>,
    /// After so many requests of all groups together.
    pub requests: Option<u64>,
    /// When every trace has been played to its end.
    pub trace_ends: bool,
}

/// What is checked. Each failure counts by its kind, and any makes the run fail.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Truth {
    /// Share of the gets (0 to 1) whose value is checked: it names its key and its version, the checksum is right, flags and length
    /// are as stored, and the version is one that could be read: not older than the last that was acknowledged before
    /// the get was sent, not newer than the last that was sent.
    pub verify: f64,
    /// Share of the gets of keys with a TTL that check it: found after it should be gone, or gone before it should.
    /// `expiry_slack_secs` is forgiven on both sides.
    pub verify_expiry: f64,
    /// See `verify_expiry`. memcached's clock ticks once a second, so less than 2 is not to be had.
    pub expiry_slack_secs: f64,
    /// A key that was stored, has not expired and was not deleted is missing: a failure. For runs that fit into the server's memory.
    pub misses_fail: bool,
    /// At the end, ask every replica for every key and compare (with `target.replicate`). What differs has `expiry_slack_secs` to
    /// settle. Keys whose last changes overlapped are passed over: replicas may have taken these in any order.
    pub compare_replicas: bool,
    /// No answer for so long is a failure, and the connection is opened anew.
    pub timeout_secs: f64,
}

impl Default for Truth {
    fn default() -> Self {
        Self {
            verify: 0.0,
            verify_expiry: 0.0,
            expiry_slack_secs: 2.0,
            misses_fail: false,
            compare_replicas: false,
            timeout_secs: 10.0,
        }
    }
}

/// Connections that ask the same.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Group {
    /// What it is called in tables.
    pub name: String,
    /// Connections, over all threads. Each stands for a client: with several servers it has a socket to each of them.
    pub connections: usize,
    /// Requests in flight on each connection.
    pub pipeline: usize,
    /// How the server is spoken to.
    pub protocol: Protocol,
    /// By which road.
    pub transport: Transport,
    /// When requests are sent.
    pub arrival: Arrival,
    /// What is asked, drawn by weight.
    #[serde(rename = "command")]
    pub commands: Vec<Command>,
    /// Which keys.
    pub keys: Keys,
    /// What is stored.
    pub values: Values,
    /// Replay this file instead of drawing commands and keys.
    pub trace: Option<Trace>,
    /// Store the key after a get that missed, and count hits and misses: how a cache beside a database is used.
    pub look_aside: bool,
    /// Close and open a connection after so many requests on it. 0: never.
    pub reconnect_every: u64,
    /// TCP sockets of each connection. They are used in turn, one request each; `pipeline` still bounds what a connection has in
    /// flight over all of them: memaslap's `--conn_sock`.
    pub sockets: usize,
    /// The group is done after so many requests of its own. The run ends when every group is.
    pub requests: Option<u64>,
    /// In which order commands are drawn.
    pub order: Order,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            name: "all".into(),
            connections: 50,
            pipeline: 1,
            protocol: Protocol::default(),
            transport: Transport::default(),
            arrival: Arrival::default(),
            commands: Vec::new(),
            keys: Keys::default(),
            values: Values::default(),
            trace: None,
            look_aside: false,
            reconnect_every: 0,
            sockets: 1,
            requests: None,
            order: Order::default(),
        }
    }
}

/// In which order a connection asks its group's commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Drawn at random, by weight.
    #[default]
    Random,
    /// One after the other as they are listed, each as many times as its weight says (a whole number), then again from the first.
    Turn,
}

/// A dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The classic text commands.
    #[default]
    Text,
    /// `mg`, `ms`, `md`, `ma`, `mn`.
    Meta,
    /// The binary protocol.
    Binary,
}

/// A road to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP, with TLS if the target says so. A server that is a path is a unix socket.
    #[default]
    Tcp,
    /// UDP for everything.
    Udp,
    /// UDP for gets, TCP for the rest: what Facebook did, memaslap's `-a`.
    UdpGets,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(tag = "loop", rename_all = "lowercase", deny_unknown_fields)]
pub enum Arrival {
    /// The next request when the last one is answered: as fast as the server answers. With a `pipeline` of n, n requests in one write, and
    /// the next n when all of them are answered.
    #[default]
    Closed,
    /// A closed loop with at most so many requests a second in the whole group. Latency counts from the sending: see `Open`.
    Paced {
        /// Requests a second.
        rate_per_sec: f64,
    },
    /// A fixed schedule, whether or not earlier requests are answered. Latency counts from the scheduled time, so a server that stalls is
    /// charged for every request that it kept waiting (Tene's "coordinated omission").
    Open {
        /// Requests a second in the whole group, at the start.
        rate_per_sec: f64,
        /// The rate at the end: it changes evenly over the run (a ramp). `None`: it stays.
        #[serde(default)]
        rate_end_per_sec: Option<f64>,
        /// How the times are spread.
        #[serde(default)]
        spacing: Spacing,
    },
}

/// How the times of an open loop are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// As independent clients would: exponential gaps.
    #[default]
    Poisson,
    /// Even gaps.
    Even,
}

/// A command and how often it is drawn.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Command {
    /// Which one.
    pub kind: Kind,
    /// Its share is its weight by the sum of all weights.
    pub weight: f64,
    /// Keys in a get. Text: one line; meta and binary: quiet gets, ended by a no-op.
    pub keys: usize,
    /// Ask for no reply (text `noreply`, meta `q`, binary quiet opcodes). It counts as done when it is sent; a no-op (text: `version`)
    /// at the end makes sure that the server has worked it off.
    pub noreply: bool,
    /// What it stores lives so long; drawn by weight. Empty: for ever.
    pub ttl: Vec<Ttl>,
    /// Client flags of what it stores. With `truth.verify` they are chosen by the key, and checked.
    pub client_flags: u32,
    /// What incr and decr change by.
    pub delta: u64,
    /// Meta only: flags appended to the command as they stand.
    pub meta_flags: String,
    /// Keys of this command alone, instead of the group's. Where `popularity` is `sequential`, it goes through them on its own.
    pub key_set: Option<Keys>,
    /// Values of this command alone, instead of the group's.
    pub value_set: Option<Values>,
}

impl Default for Command {
    fn default() -> Self {
        Self {
            kind: Kind::Get,
            weight: 1.0,
            keys: 1,
            noreply: false,
            ttl: Vec::new(),
            client_flags: 0,
            delta: 1,
            meta_flags: String::new(),
            key_set: None,
            value_set: None,
        }
    }
}

/// A time to live with its weight. 0 seconds: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Ttl {
    /// Whole seconds.
    pub secs: u32,
    /// Its share.
    pub weight: f64,
}

/// A command of any dialect, by its text name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `get`.
    Get,
    /// `gets`: with CAS.
    Gets,
    /// `gat`: get and touch.
    Gat,
    /// `set`.
    Set,
    /// `add`.
    Add,
    /// `replace`.
    Replace,
    /// `append`.
    Append,
    /// `prepend`.
    Prepend,
    /// `gets`, then `cas` with what it told: counts as two.
    Cas,
    /// `delete`.
    Delete,
    /// `incr`.
    Incr,
    /// `decr`.
    Decr,
    /// `touch`.
    Touch,
    /// `version`.
    Version,
    /// A no-op (text: `version`).
    Noop,
}

impl Kind {
    /// Whether it may change what a server holds.
    pub fn changes(self) -> bool {
        !matches!(self, Self::Get | Self::Gets | Self::Version | Self::Noop)
    }
}

/// Which keys are asked for.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Keys {
    /// How many there are, numbered from `first`.
    pub count: u64,
    /// Number of the first.
    pub first: u64,
    /// What every key begins with.
    pub prefix: String,
    /// Length of a key. The same key always has the same length. Shorter than prefix and number: as long as these.
    pub bytes: Sizes,
    /// Which are asked for how often.
    pub popularity: Popularity,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            count: 1_000_000,
            first: 0,
            prefix: "key:".into(),
            bytes: Sizes::Fixed(24),
            popularity: Popularity::default(),
        }
    }
}

/// Which keys are asked for how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(tag = "spread", rename_all = "lowercase", deny_unknown_fields)]
pub enum Popularity {
    /// All alike.
    #[default]
    Uniform,
    /// The key of rank r with weight 1 / r^exponent. Ranks are shuffled over the key numbers.
    Zipf {
        /// The exponent, from 0.01; 0.99 is YCSB's.
        exponent: f64,
    },
    /// Around the middle of the keys.
    Gaussian {
        /// Standard deviation, in shares of the number of keys.
        deviation: f64,
    },
    /// One after the other, each connection its own part.
    Sequential,
    /// As `Sequential`, from the last to the first.
    Reverse,
    /// A share of the requests goes to a few hot keys; which ones changes with time.
    Hotspot {
        /// Hot keys, in shares of the number of keys.
        hot_keys: f64,
        /// Share of the requests that ask for them.
        hot_requests: f64,
        /// Seconds after which other keys are hot. 0: never.
        moves_every_secs: f64,
    },
    /// memaslap's: each connection owns a part of the keys, stores them one after the other, and asks at random for those that it
    /// stored last. A window of the whole part counts as stored: see [`Scenario::fill`].
    Window {
        /// Keys in the window of each connection.
        keys: u64,
        /// Share of the sets that overwrite a key of the window, instead of storing the next one.
        overwrite: f64,
    },
}

/// What is stored.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Values {
    /// Length of a value. Drawn by the key's number, so that a key keeps its length, unless `redraw`.
    pub bytes: Sizes,
    /// Draw a new length at each store.
    pub redraw: bool,
    /// What is in a value, where it is not verified.
    pub content: Content,
}

impl Default for Values {
    fn default() -> Self {
        Self { bytes: Sizes::Fixed(100), redraw: false, content: Content::Random }
    }
}

/// What is in a value.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Bytes that do not compress.
    #[default]
    Random,
    /// Text that compresses to about a third.
    Text,
    /// These bytes, again and again.
    Repeated(String),
    /// A decimal number, for incr and decr.
    Number,
}

/// Lengths in bytes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sizes {
    /// All alike. In a file a plain number will do.
    #[serde(untagged)]
    Fixed(u64),
    /// Ranges, each with its share; even within a range.
    #[serde(untagged)]
    Ranges(Vec<SizeRange>),
    /// A named distribution.
    #[serde(untagged)]
    Distribution(Distribution),
    /// A file with a `bytes weight` pair on each line; `#` begins a comment.
    #[serde(untagged)]
    File {
        /// Its path.
        file: String,
    },
}

/// Lengths from `min` to `max`, both included, with a weight.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SizeRange {
    /// The least.
    pub min: u64,
    /// The greatest.
    pub max: u64,
    /// Its share is its weight by the sum of weights.
    pub weight: f64,
}

/// A distribution with parameters, cut to `min..=max`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "distribution", rename_all = "lowercase", deny_unknown_fields)]
pub enum Distribution {
    /// Normal.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        deviation: f64,
        /// Cut.
        min: u64,
        /// Cut.
        max: u64,
    },
    /// Exponential.
    Exponential {
        /// Mean.
        mean: f64,
        /// Cut.
        min: u64,
        /// Cut.
        max: u64,
    },
    /// Generalised Pareto, as Atikoglu et al. (SIGMETRICS 2012) fitted ETC's values.
    Pareto {
        /// Location.
        location: f64,
        /// Scale.
        scale: f64,
        /// Shape.
        shape: f64,
        /// Cut.
        min: u64,
        /// Cut.
        max: u64,
    },
    /// Generalised extreme value, as the same paper fitted ETC's keys.
    Gev {
        /// Location.
        location: f64,
        /// Scale.
        scale: f64,
        /// Shape.
        shape: f64,
        /// Cut.
        min: u64,
        /// Cut.
        max: u64,
    },
}

/// A recorded sequence of requests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trace {
    /// Its path. A name that ends in `.xz` is unpacked by the program `xz`.
    pub file: String,
    /// Its form.
    pub format: TraceFormat,
    /// Play it so many times.
    pub repeat: u32,
}

impl Default for Trace {
    fn default() -> Self {
        Self { file: String::new(), format: TraceFormat::Kv, repeat: 1 }
    }
}

/// Form of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceFormat {
    /// Records of 12 bytes, little endian: u64 number of the key, u32 length of its value. Each is a get, with a set if it misses.
    #[default]
    Kv,
    /// Lines of `<micros since the start> <command> <key> [<value bytes> [<ttl secs>]]`.
    Text,
}
