//! The options.

use std::ffi::OsString;

use super::super::Refusal;
use super::super::words::{self, Given, Known};

/// What the options say; what they do not say is at its default.
pub(super) struct Options {
    pub(super) servers: Option<String>,
    pub(super) threads: usize,
    pub(super) connections: usize,
    pub(super) sockets: usize,
    pub(super) operations: Option<u64>,
    pub(super) run_secs: u64,
    pub(super) config_file: Option<String>,
    pub(super) window_keys: u64,
    pub(super) value_bytes: Option<u64>,
    pub(super) verify: f64,
    pub(super) keys_per_get: usize,
    pub(super) period_secs: Option<u64>,
    pub(super) expiry: f64,
    pub(super) overwrite: f64,
    pub(super) reconnect: bool,
    pub(super) udp: bool,
    pub(super) facebook: bool,
    pub(super) binary: bool,
    pub(super) operations_per_sec: Option<u64>,
    pub(super) replicas: usize,
}

const fn flag(short: char, long: &'static str) -> Known {
    Known { short: Some(short), long, has_value: false }
}

const fn with_value(short: char, long: &'static str) -> Known {
    Known { short: Some(short), long, has_value: true }
}

pub(in super::super) const TABLE: &[Known] = &[
    with_value('s', "servers"),
    with_value('T', "threads"),
    with_value('c', "concurrency"),
    with_value('n', "conn_sock"),
    with_value('x', "execute_number"),
    with_value('t', "time"),
    with_value('F', "cfg_cmd"),
    with_value('w', "win_size"),
    with_value('X', "fixed_size"),
    with_value('v', "verify"),
    with_value('d', "division"),
    with_value('S', "stat_freq"),
    with_value('e', "exp_verify"),
    with_value('o', "overwrite"),
    flag('R', "reconnect"),
    flag('U', "udp"),
    flag('a', "facebook"),
    flag('B', "binary"),
    with_value('P', "tps"),
    with_value('p', "rep_write"),
    flag('b', "verbose"),
    flag('h', "help"),
    flag('V', "version"),
];

const HELP: &str = "\
usage: larder bench memaslap -s HOST:PORT[,...] [options]

The options of memaslap (libmemcached), with its real defaults.

  -s, --servers=LIST        servers; else the variable MEMCACHED_SERVERS
  -T, --threads=N           threads (1)
  -c, --concurrency=N       connections, a multiple of the threads (16)
  -n, --conn_sock=N         TCP sockets of each connection (1)
  -t, --time=N[s|m|h|d]     how long (600s)
  -x, --execute_number=N    how many operations, instead
  -F, --cfg_cmd=FILE        lengths of keys and values, and proportions of commands
  -w, --win_size=N[k|m]     keys that each connection works on (10k)
  -X, --fixed_size=BYTES    length of values
  -d, --division=N          keys in a multi-get (1)
  -v, --verify=SHARE        share of the gets whose value is checked
  -e, --exp_verify=SHARE    share of the keys that live for 60 s, which is checked
  -o, --overwrite=SHARE     share of the sets that overwrite a key of the window
  -P, --tps=N[k]            operations a second
  -S, --stat_freq=N[s|m]    a table this often
  -U, --udp                 UDP for everything
  -a, --facebook            sets over TCP, multi-gets over UDP
  -B, --binary              the binary protocol
  -p, --rep_write=N         the first N servers are stored on, and all are read
  -R, --reconnect           always so here
  -b, --verbose             always so here: the first failures are told
";

const MAX_VALUE_BYTES: u64 = 1024 * 1024;

impl Options {
    pub(super) fn read(words: &[OsString]) -> Result<Self, Refusal> {
        let (given, others) = words::read(words, TABLE)?;
        if let Some(word) = others.first() {
            return Err(Refusal::Words(format!("{word}: memaslap takes options only")));
        }
        let mut options = Self {
            servers: None,
            threads: 1,
            connections: 16,
            sockets: 1,
            operations: None,
            run_secs: 600,
            config_file: None,
            window_keys: 10 * 1024,
            value_bytes: None,
            verify: 0.0,
            keys_per_get: 1,
            period_secs: None,
            expiry: 0.0,
            overwrite: 0.0,
            reconnect: false,
            udp: false,
            facebook: false,
            binary: false,
            operations_per_sec: None,
            replicas: 0,
        };
        for option in &given {
            options.set(option)?;
        }
        Ok(options)
    }

    fn set(&mut self, option: &Given) -> Result<(), Refusal> {
        match option.long {
            "servers" => self.servers = Some(option.value.clone()),
            "threads" => self.threads = option.count::<u16>()?.into(),
            "concurrency" => self.connections = option.count::<u32>()? as usize,
            "conn_sock" => self.sockets = option.count::<u16>()?.into(),
            "execute_number" => self.operations = Some(option.count()?),
            "time" => self.run_secs = secs(option)?,
            "cfg_cmd" => self.config_file = Some(option.value.clone()),
            "win_size" => self.window_keys = thousands(option)?,
            "fixed_size" => {
                let bytes = option.count()?;
                if bytes > MAX_VALUE_BYTES {
                    return Err(option.refuse("a value has at most 1 MiB"));
                }
                self.value_bytes = Some(bytes);
            }
            "verify" => self.verify = option.share()?,
            "division" => self.keys_per_get = option.count::<u16>()?.into(),
            "stat_freq" => self.period_secs = Some(secs(option)?),
            "exp_verify" => self.expiry = option.share()?,
            "overwrite" => self.overwrite = option.share()?,
            "reconnect" => self.reconnect = true,
            "udp" => self.udp = true,
            "facebook" => self.facebook = true,
            "binary" => self.binary = true,
            "tps" => self.operations_per_sec = Some(thousands(option)?),
            "rep_write" => self.replicas = option.count::<u16>()?.into(),
            "verbose" => {}
            "version" => return Err(Refusal::Help("larder bench, in place of memaslap v1.0\n".into())),
            _ => return Err(Refusal::Help(HELP.into())),
        }
        Ok(())
    }

    /// What memaslap refuses (ms_check_para, ms_setting_slapmode_init_post), and what it documents that it cannot do.
    pub(super) fn check(&self, servers: &[String]) -> Result<(), Refusal> {
        let replicates = self.replicas > 0;
        let rules = [
            (
                !self.connections.is_multiple_of(self.threads),
                "--concurrency: must be a multiple of --threads",
            ),
            (self.facebook && self.keys_per_get < 2, "--facebook: needs --division of at least 2"),
            (self.facebook && self.udp, "--facebook: not together with --udp"),
            (self.udp && self.sockets > 1, "--conn_sock: --udp has no TCP sockets"),
            (
                self.udp && self.binary,
                "--binary: memcached's UDP with it was never supported; leave out --udp",
            ),
            (self.facebook && self.binary, "--binary: not together with --facebook, whose gets go over UDP"),
            (replicates && servers.len() < 2, "--rep_write: needs at least two servers"),
            (self.replicas > servers.len(), "--rep_write: more than there are servers"),
            (replicates && self.udp, "--rep_write: not together with --udp"),
            (replicates && self.facebook, "--rep_write: not together with --facebook"),
        ];
        match rules.iter().find(|(is_broken, _)| *is_broken) {
            Some((_, rule)) => Err(Refusal::Words((*rule).into())),
            None => Ok(()),
        }
    }
}

/// `20s`, `2m`, `1h`, `1d`: the unit is needed.
fn secs(option: &Given) -> Result<u64, Refusal> {
    with_unit(option, &[('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)])
        .ok_or_else(|| option.refuse("a time with its unit is needed, as 20s, 2m, 1h, 1d"))
}

/// `10k`, `1m`: the unit is needed, and k is 1024.
fn thousands(option: &Given) -> Result<u64, Refusal> {
    with_unit(option, &[('k', 1 << 10), ('m', 1 << 20), ('g', 1 << 30)])
        .ok_or_else(|| option.refuse("a number with its unit is needed, as 10k, which is 10,240"))
}

fn with_unit(option: &Given, units: &[(char, u64)]) -> Option<u64> {
    let unit = option.value.chars().last()?.to_ascii_lowercase();
    let (_, factor) = units.iter().find(|(letter, _)| *letter == unit)?;
    let number: u64 = option.value[..option.value.len() - 1].parse().ok()?;
    number.checked_mul(*factor).filter(|product| *product > 0)
}
