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
use larder_client::Servers;

use crate::Failure;

// Not comments of the fields: brackets would be links there.
const POPULARITY_HELP: &str = "How keys are chosen: uniform, zipf:0.99, gaussian:0.1, sequential, reverse, \
                               hotspot:KEYS:REQUESTS[:SECS], window:KEYS[:OVERWRITE] [default: uniform]";
const SERVERS_HELP: &str = "HOST[:PORT] or the path of a unix socket, with commas between \
                            [default: MEMCACHED_SERVERS, or else 127.0.0.1:11211]";
const TRACE_HELP: &str = "Replay a trace: FILE.kv, FILE.kv.xz, or lines of MICROS COMMAND KEY [BYTES [TTL]]";

/// Each option is absent unless given, so that it changes only what it names.
#[derive(Args)]
pub(crate) struct LoadArgs {
    /// Use a published workload; `larder bench presets` lists them
    #[arg(long, value_name = "NAME", conflicts_with = "scenario", help_heading = "Workload")]
    preset: Option<String>,
    /// Use the scenario of a TOML file (see docs/bench.md)
    #[arg(long, value_name = "FILE", help_heading = "Workload")]
    #[arg(hide_short_help = true)]
    scenario: Option<PathBuf>,
    /// Commands by weight: get=90,set=10 (get gets gat set add replace append prepend cas delete incr decr touch)
    /// [default: get=90,set=10]
    #[arg(long, value_name = "MIX", value_parser = parse::mix, help_heading = "Workload")]
    mix: Option<parse::Mix>,
    /// Keys in every get [default: 1]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = "Workload")]
    #[arg(hide_short_help = true)]
    multiget: Option<u64>,
    /// Ask for no reply where the protocol allows it
    #[arg(long, help_heading = "Workload")]
    #[arg(hide_short_help = true)]
    noreply: bool,
    /// Time to live of stored values in seconds: 60, or by weight 60=50,3600=50; 0: no expiry [default: 0]
    #[arg(long, value_name = "SECS", value_parser = parse::ttls, help_heading = "Workload")]
    ttl: Option<parse::Ttls>,
    /// Store a key after a get missed it, as a cache beside a database is used
    #[arg(long, help_heading = "Workload")]
    look_aside: bool,
    #[arg(long, value_name = "FILE", help_heading = "Workload", help = TRACE_HELP)]
    #[arg(hide_short_help = true)]
    trace: Option<String>,
    /// Number of keys [default: 100000]
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = "Workload")]
    keys: Option<u64>,
    /// First characters of every key [default: key:]
    #[arg(long, value_name = "TEXT", help_heading = "Workload")]
    #[arg(hide_short_help = true)]
    key_prefix: Option<String>,
    /// Length of keys: 32, 16-64, by weight 16-32=80,33-250=20, or a file of `bytes weight` lines [default: 24]
    #[arg(long, value_name = "BYTES", value_parser = parse::sizes, help_heading = "Workload")]
    #[arg(hide_short_help = true)]
    key_bytes: Option<Sizes>,
    /// Length of values, in the same form; k is 1024 [default: 100]
    #[arg(long, value_name = "BYTES", value_parser = parse::sizes, help_heading = "Workload")]
    value_bytes: Option<Sizes>,
    /// Content of values [default: random]
    #[arg(long, value_enum, help_heading = "Workload")]
    #[arg(hide_short_help = true)]
    content: Option<ContentArg>,
    #[arg(long, value_name = "SPREAD", value_parser = parse::popularity)]
    #[arg(help_heading = "Workload", help = POPULARITY_HELP)]
    #[arg(hide_short_help = true)]
    popularity: Option<Popularity>,
    /// Short for --popularity zipf:EXPONENT
    #[arg(long, value_name = "EXPONENT", conflicts_with = "popularity", help_heading = "Workload")]
    zipf: Option<f64>,
    /// Store every key before the measurement (the default without --preset and --scenario)
    #[arg(long, help_heading = "Workload")]
    #[arg(hide_short_help = true)]
    fill: bool,
    /// Do not store every key before the measurement
    #[arg(long, conflicts_with = "fill", help_heading = "Workload")]
    #[arg(hide_short_help = true)]
    no_fill: bool,
    /// Flush the servers first
    #[arg(long, help_heading = "Workload")]
    #[arg(hide_short_help = true)]
    flush: bool,
    /// Seed of the random numbers: the same seed sends the same requests [default: 0]
    #[arg(long, value_name = "N", help_heading = "Workload")]
    #[arg(hide_short_help = true)]
    seed: Option<u64>,

    #[arg(short, long, value_name = "LIST", value_parser = parse::servers)]
    #[arg(help_heading = "Servers", help = SERVERS_HELP)]
    servers: Vec<Servers>,
    /// Protocol [default: text]
    #[arg(short, long, value_enum, help_heading = "Servers")]
    protocol: Option<ProtocolArg>,
    /// Use UDP for everything
    #[arg(long, conflicts_with_all = ["udp_gets", "tls"], help_heading = "Servers")]
    #[arg(hide_short_help = true)]
    udp: bool,
    /// Use UDP for gets, TCP for the rest
    #[arg(long, help_heading = "Servers")]
    #[arg(hide_short_help = true)]
    udp_gets: bool,
    /// Use TLS; without --tls-ca any certificate is accepted
    #[arg(long, help_heading = "Servers")]
    tls: bool,
    /// Trust the certificates of this PEM file only (implies --tls)
    #[arg(long, value_name = "FILE", help_heading = "Servers")]
    #[arg(hide_short_help = true)]
    tls_ca: Option<String>,
    /// Present the certificate of this PEM file (implies --tls)
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Servers")]
    #[arg(hide_short_help = true)]
    tls_cert: Option<String>,
    /// The key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Servers")]
    #[arg(hide_short_help = true)]
    tls_key: Option<String>,
    /// The name that the server's certificate must have, instead of its address (implies --tls)
    #[arg(long, value_name = "NAME", help_heading = "Servers")]
    #[arg(hide_short_help = true)]
    tls_name: Option<String>,
    /// Log in as USER:PASSWORD, or with such a line in a file: @FILE
    #[arg(long, value_name = "USER:PASSWORD", help_heading = "Servers")]
    login: Option<String>,

    /// Load threads [default: one for each core but the first]
    #[arg(short, long, value_name = "N", help_heading = "Load")]
    threads: Option<usize>,
    /// Connections, over all threads [default: 50]
    #[arg(short, long, value_name = "N", help_heading = "Load")]
    connections: Option<usize>,
    /// Requests in flight on each connection [default: 1]
    #[arg(short = 'P', long, value_name = "N", help_heading = "Load")]
    pipeline: Option<usize>,
    /// Requests per second on a fixed schedule (open loop); k is 1000 [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse::rate, help_heading = "Load")]
    rate: Option<f64>,
    /// The rate at the end: it changes evenly over the run
    #[arg(long, value_name = "N", value_parser = parse::rate, requires = "rate", help_heading = "Load")]
    #[arg(hide_short_help = true)]
    ramp: Option<f64>,
    /// Make the gaps between requests equal, instead of random as of independent clients
    #[arg(long, requires = "rate", help_heading = "Load")]
    #[arg(hide_short_help = true)]
    even: bool,
    /// Limit requests per second (closed loop)
    #[arg(long, value_name = "N", value_parser = parse::rate, conflicts_with = "rate", help_heading = "Load")]
    #[arg(hide_short_help = true)]
    pace: Option<f64>,
    /// Reopen a connection after so many requests on it
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = "Load")]
    #[arg(hide_short_help = true)]
    churn: Option<u64>,
    /// Length of the run: 30, 30s, 2m [default: 10s, if nothing else ends the run]
    #[arg(long, value_name = "TIME", value_parser = parse::secs, help_heading = "Load")]
    secs: Option<f64>,
    /// Number of requests
    #[arg(long, value_name = "N", value_parser = parse::count, help_heading = "Load")]
    #[arg(hide_short_help = true)]
    requests: Option<u64>,
    /// Send load for this long before the measurement begins [default: 0]
    #[arg(long, value_name = "TIME", value_parser = parse::secs, help_heading = "Load")]
    #[arg(hide_short_help = true)]
    warm_up: Option<f64>,

    /// Check the values of this share of the gets; of all, without a share [default: 0]
    #[arg(long, value_name = "SHARE", value_parser = parse::share, num_args = 0..=1, default_missing_value = "1",
        help_heading = "Checks")]
    verify: Option<f64>,
    /// Check for this share of the gets that keys live as long as their TTL; of all, without a share [default: 0]
    #[arg(long, value_name = "SHARE", value_parser = parse::share, num_args = 0..=1, default_missing_value = "1",
        help_heading = "Checks")]
    #[arg(hide_short_help = true)]
    verify_expiry: Option<f64>,
    /// Count a stored key that is missing as a failure
    #[arg(long, help_heading = "Checks")]
    #[arg(hide_short_help = true)]
    misses_fail: bool,
    /// Count a reply that does not come in this time as a failure [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse::secs, help_heading = "Checks")]
    #[arg(hide_short_help = true)]
    timeout: Option<f64>,

    /// Length of a period, the step of tables and charts [default: 1s]
    #[arg(short = 'S', long, value_name = "TIME", value_parser = parse::secs, help_heading = "Output")]
    #[arg(hide_short_help = true)]
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
    /// The same load for other servers: a list as of --servers. Errors: a bad port, no server.
    pub(crate) fn for_servers(mut self, list: &str) -> Result<Self, Failure> {
        self.servers = vec![parse::servers(list).map_err(Failure::Usage)?];
        Ok(self)
    }

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
            target.servers = addresses(&self.servers);
        } else if self.scenario.is_none() {
            let servers =
                Servers::from_env().map_err(|bad| Failure::Usage(format!("MEMCACHED_SERVERS: {bad}")))?;
            if !servers.0.is_empty() {
                target.servers = addresses(&[servers]);
            }
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

fn addresses(lists: &[Servers]) -> Vec<String> {
    lists.iter().flat_map(|Servers(servers)| servers).map(|server| server.address.to_string()).collect()
}

/// 90 % gets of 100,000 keys that are stored beforehand.
fn plain() -> Scenario {
    let command = |kind, weight| Command { kind, weight, ..Command::default() };
    let mut group =
        Group { commands: vec![command(Kind::Get, 90.0), command(Kind::Set, 10.0)], ..Group::default() };
    group.keys.count = 100_000;
    Scenario { fill: true, groups: vec![group], ..Scenario::default() }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// `larder bench --help` names the values of a run without options.
    #[test]
    fn the_defaults_of_the_help_are_those_of_the_scenario() {
        let command = LoadArgs::augment_args(clap::Command::new("bench"));
        let default = |option: &str| {
            let argument = command.get_arguments().find(|argument| argument.get_id() == option);
            let help = argument.and_then(|argument| argument.get_help()).expect(option).to_string();
            let (_, default) = help.rsplit_once("[default: ").expect(option);
            default.trim_end_matches(']').to_owned()
        };
        let scenario = plain();
        let [group] = &scenario.groups[..] else { panic!("one group") };
        let of = |sizes: &Sizes| match sizes {
            Sizes::Fixed(bytes) => bytes.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(parse::mix(&default("mix")).map(|mix| mix.commands()), Ok(group.commands.clone()));
        assert_eq!(default("multiget"), group.commands[0].keys.to_string());
        assert_eq!(default("keys"), group.keys.count.to_string());
        assert_eq!(default("key_prefix"), group.keys.prefix);
        assert_eq!(default("key_bytes"), of(&group.keys.bytes));
        assert_eq!(default("value_bytes"), of(&group.values.bytes));
        assert_eq!(parse::popularity(&default("popularity")), Ok(group.keys.popularity));
        assert_eq!(default("connections"), group.connections.to_string());
        assert_eq!(default("pipeline"), group.pipeline.to_string());
        assert_eq!(default("seed"), scenario.seed.to_string());
        assert_eq!(parse::secs(&default("timeout")), Ok(scenario.truth.timeout_secs));
        assert_eq!(default("servers").rsplit(' ').next(), Some(&scenario.target.servers[0][..]));
    }
}
