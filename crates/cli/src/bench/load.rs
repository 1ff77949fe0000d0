//! Options of the load.

mod parse;

use std::fs;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use larder_bench::Scenario;
use larder_bench::presets::{self, PRESETS, Preset};
use larder_bench::scenario::{
    Arrival, Command, Content, Group, Kind, Login, Popularity, Protocol, Sizes, Spacing, Tls, Trace,
    TraceFormat, Transport,
};

use crate::Failure;

// Not comments of the fields: brackets would be links there.
const POPULARITY_HELP: &str = "Which keys are asked for: uniform, zipf:0.99, gaussian:0.1, sequential, reverse, \
                               hotspot:KEYS:REQUESTS[:SECS], window:KEYS[:OVERWRITE]";
const SERVERS_HELP: &str = "Servers: HOST[:PORT] or the path of a unix socket; several between commas";
const TRACE_HELP: &str = "Replay a trace: FILE.kv, FILE.kv.xz, or lines of MICROS COMMAND KEY [BYTES [TTL]]";

/// Each option is absent unless given, so that it changes only what it names.
#[derive(Args)]
pub(crate) struct LoadArgs {
    /// A scenario with a name; `larder bench presets` lists them
    #[arg(long, value_name = "NAME", conflicts_with = "scenario", help_heading = "What to ask")]
    preset: Option<String>,
    /// A scenario in a TOML file (see docs/bench.md)
    #[arg(long, value_name = "FILE", help_heading = "What to ask")]
    scenario: Option<PathBuf>,
    /// Commands by weight: get=90,set=10 (get gets gat set add replace append prepend cas delete incr decr touch)
    #[arg(long, value_name = "MIX", value_parser = parse::mix, help_heading = "What to ask")]
    mix: Option<parse::Mix>,
    /// Keys in every get
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = "What to ask")]
    multiget: Option<u64>,
    /// Ask for no reply where there need not be one
    #[arg(long, help_heading = "What to ask")]
    noreply: bool,
    /// What is stored lives so long: 60, or by weight 60=50,3600=50 (0: for ever)
    #[arg(long, value_name = "SECS", value_parser = parse::ttls, help_heading = "What to ask")]
    ttl: Option<parse::Ttls>,
    /// Store a key that a get missed, as a cache beside a database is used
    #[arg(long, help_heading = "What to ask")]
    look_aside: bool,
    #[arg(long, value_name = "FILE", help_heading = "What to ask", help = TRACE_HELP)]
    trace: Option<String>,
    /// Number of keys
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = "What to ask")]
    keys: Option<u64>,
    /// What every key begins with
    #[arg(long, value_name = "TEXT", help_heading = "What to ask")]
    key_prefix: Option<String>,
    /// Length of keys: 32, 16-64, by weight 16-32=80,33-250=20, or a file of `bytes weight` lines
    #[arg(long, value_name = "BYTES", value_parser = parse::sizes, help_heading = "What to ask")]
    key_bytes: Option<Sizes>,
    /// Length of values, as of keys; k is 1024
    #[arg(long, value_name = "BYTES", value_parser = parse::sizes, help_heading = "What to ask")]
    value_bytes: Option<Sizes>,
    /// What is in values
    #[arg(long, value_enum, help_heading = "What to ask")]
    content: Option<ContentArg>,
    #[arg(long, value_name = "SPREAD", value_parser = parse::popularity)]
    #[arg(help_heading = "What to ask", help = POPULARITY_HELP)]
    popularity: Option<Popularity>,
    /// Short for --popularity zipf:EXPONENT
    #[arg(long, value_name = "EXPONENT", conflicts_with = "popularity", help_heading = "What to ask")]
    zipf: Option<f64>,
    /// Store every key before the clock starts (as without preset and scenario)
    #[arg(long, help_heading = "What to ask")]
    fill: bool,
    /// Do not
    #[arg(long, conflicts_with = "fill", help_heading = "What to ask")]
    no_fill: bool,
    /// Flush the servers first
    #[arg(long, help_heading = "What to ask")]
    flush: bool,
    /// What is drawn at random begins from this number
    #[arg(long, value_name = "N", help_heading = "What to ask")]
    seed: Option<u64>,

    #[arg(short, long, value_name = "LIST", value_delimiter = ',', help_heading = "Whom to ask", help = SERVERS_HELP)]
    servers: Vec<String>,
    /// Dialect
    #[arg(short, long, value_enum, help_heading = "Whom to ask")]
    protocol: Option<ProtocolArg>,
    /// UDP for everything
    #[arg(long, conflicts_with_all = ["udp_gets", "tls"], help_heading = "Whom to ask")]
    udp: bool,
    /// UDP for gets, TCP for the rest
    #[arg(long, help_heading = "Whom to ask")]
    udp_gets: bool,
    /// TLS; whatever the server shows is accepted, unless there is a --tls-ca
    #[arg(long, help_heading = "Whom to ask")]
    tls: bool,
    /// Trust the certificates of this PEM file only (implies --tls)
    #[arg(long, value_name = "FILE", help_heading = "Whom to ask")]
    tls_ca: Option<String>,
    /// Show the certificate of this PEM file (implies --tls)
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Whom to ask")]
    tls_cert: Option<String>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Whom to ask")]
    tls_key: Option<String>,
    /// The name to ask for, instead of the server's address (implies --tls)
    #[arg(long, value_name = "NAME", help_heading = "Whom to ask")]
    tls_name: Option<String>,
    /// Log in as USER:PASSWORD, or with such a line in a file: @FILE
    #[arg(long, value_name = "USER:PASSWORD", help_heading = "Whom to ask")]
    login: Option<String>,

    /// Load threads (a core each, but for the first core)
    #[arg(short, long, value_name = "N", help_heading = "How hard")]
    threads: Option<usize>,
    /// Connections, over all threads
    #[arg(short, long, value_name = "N", help_heading = "How hard")]
    connections: Option<usize>,
    /// Requests in flight on each connection
    #[arg(short = 'P', long, value_name = "N", help_heading = "How hard")]
    pipeline: Option<usize>,
    /// Requests a second on a fixed schedule (open loop); k is 1000
    #[arg(long, value_name = "N", value_parser = parse::rate, help_heading = "How hard")]
    rate: Option<f64>,
    /// The rate at the end: it changes evenly over the run
    #[arg(long, value_name = "N", value_parser = parse::rate, requires = "rate", help_heading = "How hard")]
    ramp: Option<f64>,
    /// Even gaps between requests, instead of those of independent clients
    #[arg(long, requires = "rate", help_heading = "How hard")]
    even: bool,
    /// At most so many requests a second, each after an answer (closed loop)
    #[arg(long, value_name = "N", value_parser = parse::rate, conflicts_with = "rate", help_heading = "How hard")]
    pace: Option<f64>,
    /// Reopen a connection after so many requests on it
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = "How hard")]
    churn: Option<u64>,
    /// How long: 30, 30s, 2m (10 s, if nothing else ends the run)
    #[arg(long, value_name = "TIME", value_parser = parse::secs, help_heading = "How hard")]
    secs: Option<f64>,
    /// How many requests
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = "How hard")]
    requests: Option<u64>,
    /// Ask so long without counting
    #[arg(long, value_name = "TIME", value_parser = parse::secs, help_heading = "How hard")]
    warm_up: Option<f64>,

    /// Check the values of this share of the gets (all, without a share)
    #[arg(long, value_name = "SHARE", value_parser = parse::share, num_args = 0..=1, default_missing_value = "1",
        help_heading = "Truth")]
    verify: Option<f64>,
    /// Check for this share of the gets whether a key has lived as long as its TTL
    #[arg(long, value_name = "SHARE", value_parser = parse::share, num_args = 0..=1, default_missing_value = "1",
        help_heading = "Truth")]
    verify_expiry: Option<f64>,
    /// A key that was stored and is missing is a failure
    #[arg(long, help_heading = "Truth")]
    misses_fail: bool,
    /// No answer for so long is a failure
    #[arg(long, value_name = "TIME", value_parser = parse::secs, help_heading = "Truth")]
    timeout: Option<f64>,

    /// Length of a period, the step of tables and charts (1 s)
    #[arg(short = 'S', long, value_name = "TIME", value_parser = parse::secs, help_heading = "Output")]
    period: Option<f64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ProtocolArg {
    Text,
    Meta,
    Binary,
}

#[derive(Clone, Copy, ValueEnum)]
enum ContentArg {
    /// Bytes that do not compress
    Random,
    /// Text that compresses to about a third
    Text,
    /// A decimal number
    Number,
}

impl LoadArgs {
    /// The scenario of a file, of a preset, or of nothing, changed by the other options.
    pub(crate) fn scenario(&self) -> Result<Scenario, Failure> {
        let mut scenario = self.beginning()?;
        self.change_target(&mut scenario)?;
        self.change_run(&mut scenario);
        for group in &mut scenario.groups {
            self.change_group(group);
        }
        Ok(scenario)
    }

    fn beginning(&self) -> Result<Scenario, Failure> {
        let mut scenario = match (&self.scenario, &self.preset) {
            (Some(path), _) => {
                let refuse =
                    |error: &dyn std::fmt::Display| Failure::Failed(format!("{}: {error}", path.display()));
                let text = fs::read_to_string(path).map_err(|error| refuse(&error))?;
                Scenario::from_toml(&text).map_err(|error| refuse(&error))?
            }
            (None, Some(name)) => find_preset(name)?.scenario(),
            (None, None) => plain(),
        };
        if scenario.groups.is_empty() {
            scenario.groups = plain().groups;
        }
        if scenario.period_secs <= 0.0 {
            scenario.period_secs = 1.0;
        }
        Ok(scenario)
    }

    fn change_target(&self, scenario: &mut Scenario) -> Result<(), Failure> {
        let target = &mut scenario.target;
        if !self.servers.is_empty() {
            target.servers = self.servers.iter().map(|server| parse::server(server)).collect();
        }
        let wants_tls =
            self.tls || self.tls_ca.is_some() || self.tls_cert.is_some() || self.tls_name.is_some();
        if wants_tls {
            let tls = target.tls.get_or_insert_with(Tls::default);
            set(&mut tls.ca_file, self.tls_ca.clone().map(Some));
            set(&mut tls.certificate_file, self.tls_cert.clone().map(Some));
            set(&mut tls.key_file, self.tls_key.clone().map(Some));
            set(&mut tls.server_name, self.tls_name.clone().map(Some));
        }
        if let Some(login) = &self.login {
            target.login = Some(read_login(login)?);
        }
        Ok(())
    }

    fn change_run(&self, scenario: &mut Scenario) {
        set(&mut scenario.threads, self.threads);
        set(&mut scenario.seed, self.seed);
        set(&mut scenario.warm_up_secs, self.warm_up);
        set(&mut scenario.period_secs, self.period);
        if self.secs.is_some() || self.requests.is_some() {
            (scenario.until.secs, scenario.until.requests) = (self.secs, self.requests);
        }
        scenario.flush |= self.flush;
        scenario.fill = (scenario.fill || self.fill) && !self.no_fill;
        let truth = &mut scenario.truth;
        set(&mut truth.verify, self.verify);
        set(&mut truth.verify_expiry, self.verify_expiry);
        set(&mut truth.timeout_secs, self.timeout);
        truth.misses_fail |= self.misses_fail;
        if let Some(file) = &self.trace {
            // A trace is played to its end, and its keys cannot be stored beforehand.
            scenario.until.trace_ends = self.secs.is_none() && self.requests.is_none();
            scenario.fill = self.fill;
            let is_kv = [".kv", ".kv.xz"].iter().any(|ending| file.ends_with(ending));
            let format = if is_kv { TraceFormat::Kv } else { TraceFormat::Text };
            for group in &mut scenario.groups {
                group.trace = Some(Trace { file: file.clone(), format, repeat: 1 });
                group.commands.clear();
            }
        }
    }

    fn change_group(&self, group: &mut Group) {
        set(&mut group.connections, self.connections);
        set(&mut group.pipeline, self.pipeline);
        set(&mut group.reconnect_every, self.churn);
        set(&mut group.protocol, self.protocol.map(Protocol::from));
        if self.udp || self.udp_gets {
            group.transport = if self.udp { Transport::Udp } else { Transport::UdpGets };
        }
        if let Some(rate_per_sec) = self.rate {
            let spacing = if self.even { Spacing::Even } else { Spacing::Poisson };
            group.arrival = Arrival::Open { rate_per_sec, rate_end_per_sec: self.ramp, spacing };
        }
        if let Some(rate_per_sec) = self.pace {
            group.arrival = Arrival::Paced { rate_per_sec };
        }
        set(&mut group.keys.count, self.keys);
        set(&mut group.keys.prefix, self.key_prefix.clone());
        set(&mut group.keys.bytes, self.key_bytes.clone());
        set(&mut group.keys.popularity, self.popularity);
        set(&mut group.keys.popularity, self.zipf.map(|exponent| Popularity::Zipf { exponent }));
        set(&mut group.values.bytes, self.value_bytes.clone());
        set(&mut group.values.content, self.content.map(Content::from));
        group.look_aside |= self.look_aside;
        if let Some(mix) = &self.mix {
            group.commands = mix.commands();
        }
        for command in &mut group.commands {
            self.change_command(command);
        }
    }

    fn change_command(&self, command: &mut Command) {
        let is_get = matches!(command.kind, Kind::Get | Kind::Gets | Kind::Gat);
        if let Some(keys) = self.multiget
            && is_get
        {
            command.keys = usize::try_from(keys).unwrap_or(usize::MAX);
        }
        command.noreply |= self.noreply && may_be_quiet(command.kind);
        if let Some(ttls) = &self.ttl
            && has_ttl(command.kind)
        {
            command.ttl = ttls.0.clone();
        }
    }
}

/// 90 % gets of 100,000 keys that are stored beforehand.
fn plain() -> Scenario {
    let command = |kind, weight| Command { kind, weight, ..Command::default() };
    let mut group =
        Group { commands: vec![command(Kind::Get, 90.0), command(Kind::Set, 10.0)], ..Group::default() };
    group.keys.count = 100_000;
    Scenario { name: "plain".into(), fill: true, groups: vec![group], ..Scenario::default() }
}

/// The preset of that name.
pub(super) fn find_preset(name: &str) -> Result<Preset, Failure> {
    presets::find(name).ok_or_else(|| {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        Failure::Usage(format!("there is no preset {name}; there are {}", names.join(", ")))
    })
}

fn read_login(text: &str) -> Result<Login, Failure> {
    let line = match text.strip_prefix('@') {
        Some(path) => fs::read_to_string(path)
            .map_err(|error| Failure::Failed(format!("--login: {path}: {error}")))?
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
        None => text.to_owned(),
    };
    match line.split_once(':') {
        Some((user, password)) => Ok(Login { user: user.into(), password: password.into() }),
        None => Err(Failure::Usage("--login: USER:PASSWORD or @FILE is needed".into())),
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn may_be_quiet(kind: Kind) -> bool {
    !matches!(kind, Kind::Get | Kind::Gets | Kind::Gat | Kind::Cas | Kind::Version | Kind::Noop)
}

fn has_ttl(kind: Kind) -> bool {
    matches!(kind, Kind::Set | Kind::Add | Kind::Replace | Kind::Cas | Kind::Touch | Kind::Gat)
}

impl From<ProtocolArg> for Protocol {
    fn from(arg: ProtocolArg) -> Self {
        match arg {
            ProtocolArg::Text => Self::Text,
            ProtocolArg::Meta => Self::Meta,
            ProtocolArg::Binary => Self::Binary,
        }
    }
}

impl From<ContentArg> for Content {
    fn from(arg: ContentArg) -> Self {
        match arg {
            ContentArg::Random => Self::Random,
            ContentArg::Text => Self::Text,
            ContentArg::Number => Self::Number,
        }
    }
}
