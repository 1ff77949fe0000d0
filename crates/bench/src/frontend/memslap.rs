//! memslap's command line (Debian calls it memcslap).
//!
//! It stores, or gets, the same number of keys on every thread, as fast as it can, and tells how long that took.

use std::ffi::OsString;

use super::words::{self, Given, Known};
use super::{Refusal, Style, Surroundings, Translation, memaslap, servers};
use crate::Scenario;
use crate::scenario::{
    Command, Content, Group, Keys, Kind, Login, Popularity, Protocol, SizeRange, Sizes, Target, Transport,
    Until, Values,
};

const fn flag(short: char, long: &'static str) -> Known {
    Known { short: Some(short), long, has_value: false }
}

const fn with_value(short: char, long: &'static str) -> Known {
    Known { short: Some(short), long, has_value: true }
}

const TABLE: &[Known] = &[
    flag('h', "help"),
    flag('V', "version"),
    flag('v', "verbose"),
    flag('d', "debug"),
    flag('q', "quiet"),
    with_value('s', "servers"),
    with_value('u', "username"),
    with_value('p', "password"),
    flag('b', "binary"),
    flag('B', "buffer"),
    flag('n', "non-blocking"),
    flag('N', "tcp-nodelay"),
    with_value('H', "hash"),
    flag('R', "noreply"),
    flag('U', "udp"),
    flag('F', "flush"),
    with_value('t', "test"),
    with_value('c', "concurrency"),
    with_value('e', "execute-number"),
    with_value('l', "initial-load"),
];

const HELP: &str = "\
usage: larder bench memslap -s HOST:PORT[,...] [options]

The options of memslap (libmemcached; Debian's memcslap). With an option that only memaslap has
(-T, -S, -w, -x, -X, -P, -o, -a, or their long names), all options are read as memaslap's.

  -s, --servers=LIST        servers; else the variable MEMCACHED_SERVERS
  -t, --test=TEST           set (default), get, or mget: all keys in one get
  -c, --concurrency=N       threads, each with a connection (1)
  -e, --execute-number=N    keys that each thread asks for (10000)
  -l, --initial-load=N      read, and no more: --execute-number says how many keys there are
  -F, --flush               flush the servers first
  -R, --noreply             sets ask for no reply
  -b, --binary              the binary protocol
  -U, --udp                 UDP
  -u, --username, -p, --password   log in with SASL; needs --binary
  -n, --non-blocking, -N, --tcp-nodelay   always so here
  -q, --quiet, -v, --verbose, -d, --debug
";

/// Letters and names that only memaslap has.
const MEMASLAP_LETTERS: &str = "TSwxXPoa";
const MEMASLAP_NAMES: &[&str] = &[
    "threads",
    "conn_sock",
    "execute_number",
    "time",
    "cfg_cmd",
    "win_size",
    "fixed_size",
    "verify",
    "division",
    "stat_freq",
    "exp_verify",
    "overwrite",
    "reconnect",
    "facebook",
    "tps",
    "rep_write",
];

pub(super) fn translate(words: &[OsString], surroundings: &Surroundings<'_>) -> Result<Translation, Refusal> {
    if let Some(word) = words.iter().filter_map(|word| word.to_str()).find(|word| is_memaslap_s(word)) {
        let mut translation = memaslap::translate(words, surroundings)?;
        translation.notes.insert(0, format!("{word} is an option of memaslap: all are read as memaslap's"));
        return Ok(translation);
    }
    let (given, others) = words::read(words, TABLE)?;
    if let Some(word) = others.first() {
        return Err(Refusal::Words(format!("{word}: memslap takes options only")));
    }
    let options = Options::read(&given)?;
    let servers = servers::libmemcached(options.servers.as_deref(), surroundings)?;
    let mut notes = Vec::new();
    if options.test != "get" && options.threads > 1 {
        notes.push(
            "each thread goes through its own part of the keys; memslap's all go through all of them".into(),
        );
    }
    if options.has_initial_load {
        notes
            .push("--initial-load: memslap reads it, and loads as many keys as --execute-number says".into());
    }
    let style = Style::Memslap { test: options.test, threads: options.threads };
    Ok(Translation { style, ..Translation::plain(vec![options.scenario(servers)?], notes) })
}

fn is_memaslap_s(word: &str) -> bool {
    match (word.strip_prefix("--"), word.strip_prefix('-')) {
        (Some(long), _) => {
            let name = long.split('=').next().unwrap_or_default();
            MEMASLAP_NAMES.contains(&name)
        }
        (None, Some(letters)) => letters.starts_with(|letter| MEMASLAP_LETTERS.contains(letter)),
        _ => false,
    }
}

struct Options {
    servers: Option<String>,
    user: Option<String>,
    password: Option<String>,
    binary: bool,
    noreply: bool,
    udp: bool,
    flush: bool,
    test: &'static str,
    threads: u64,
    keys: u64,
    has_initial_load: bool,
}

impl Options {
    fn read(given: &[Given]) -> Result<Self, Refusal> {
        let mut options = Self {
            servers: None,
            user: None,
            password: None,
            binary: false,
            noreply: false,
            udp: false,
            flush: false,
            test: "set",
            threads: 1,
            keys: 10_000,
            has_initial_load: false,
        };
        for option in given {
            options.set(option)?;
        }
        Ok(options)
    }

    fn set(&mut self, option: &Given) -> Result<(), Refusal> {
        match option.long {
            "servers" => self.servers = Some(option.value.clone()),
            "username" => self.user = Some(option.value.clone()),
            "password" => self.password = Some(option.value.clone()),
            "binary" => self.binary = true,
            "noreply" => self.noreply = true,
            "udp" => self.udp = true,
            "flush" => self.flush = true,
            "test" => {
                let tests = ["get", "mget", "set"];
                let test = tests.into_iter().find(|test| *test == option.value);
                self.test = test.ok_or_else(|| option.refuse("the tests are get, mget and set"))?;
            }
            "concurrency" => self.threads = u64::from(option.count::<u16>()?),
            "execute-number" => self.keys = u64::from(option.count::<u32>()?),
            "initial-load" => self.has_initial_load = option.count::<u32>().map(|_| true)?,
            "buffer" => {
                return Err(option.refuse(
                    "libmemcached then keeps requests back, and no answer has a time of its own; \
                     larder bench --pipeline N has several requests in flight",
                ));
            }
            "hash" => return Err(option.refuse("keys are shared out by larder's own hash")),
            "non-blocking" | "tcp-nodelay" | "verbose" | "debug" | "quiet" => {}
            "version" => return Err(Refusal::Help("larder bench, in place of memslap 1.1\n".into())),
            _ => return Err(Refusal::Help(HELP.into())),
        }
        Ok(())
    }

    fn scenario(self, servers: Vec<String>) -> Result<Scenario, Refusal> {
        let login = match (self.user, self.password) {
            (None, None) => None,
            (Some(_), _) if !self.binary => {
                return Err(Refusal::Words(
                    "--username: SASL is part of the binary protocol: --binary".into(),
                ));
            }
            (Some(user), password) => Some(Login { user, password: password.unwrap_or_default() }),
            (None, Some(_)) => return Err(Refusal::Words("--password: needs --username".into())),
        };
        let command = match self.test {
            "set" => Command { kind: Kind::Set, noreply: self.noreply, ..Command::default() },
            "mget" => Command { kind: Kind::Get, keys: self.keys as usize, ..Command::default() },
            _ => Command { kind: Kind::Get, ..Command::default() },
        };
        let popularity = if self.test == "get" { Popularity::Uniform } else { Popularity::Sequential };
        let requests = if self.test == "mget" { self.threads } else { self.threads * self.keys };
        Ok(Scenario {
            name: format!("memslap --test={}", self.test),
            target: Target { servers, login, ..Target::default() },
            until: Until { requests: Some(requests), ..Until::default() },
            threads: self.threads as usize,
            period_secs: 1.0,
            flush: self.flush,
            fill: self.test != "set",
            groups: vec![Group {
                connections: self.threads as usize,
                protocol: if self.binary { Protocol::Binary } else { Protocol::Text },
                transport: if self.udp { Transport::Udp } else { Transport::Tcp },
                commands: vec![command],
                keys: Keys {
                    count: self.keys,
                    prefix: "memslap-".into(),
                    // 20 to 60 bytes, and values of 50 to 5000 that repeat the key.
                    bytes: Sizes::Ranges(vec![SizeRange { min: 20, max: 60, weight: 1.0 }]),
                    popularity,
                    ..Keys::default()
                },
                values: Values {
                    bytes: Sizes::Ranges(vec![SizeRange { min: 50, max: 5000, weight: 1.0 }]),
                    content: Content::Repeated("memslap-0123456789abcdefghijklmnopqrstuv".into()),
                    ..Values::default()
                },
                ..Group::default()
            }],
            ..Scenario::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translation_of(line: &str) -> Result<Translation, String> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let variable = |name: &str| (name == "MEMCACHED_SERVERS").then(|| "cache-1, cache-2:5".to_owned());
        let read_file = |_: &std::path::Path| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
        let surroundings = Surroundings { variable: &variable, read_file: &read_file };
        translate(&words, &surroundings).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn its_tests() {
        for (line, requests, keys_per_get, fill) in [
            ("", 10_000, 1, false),
            ("-c 4 -e 500 -R", 2000, 1, false),
            ("--test=get -c 2 --execute-number 100", 200, 1, true),
            ("-t mget -e 100 -c 3 -F -n -N", 3, 100, true),
        ] {
            let translation = translation_of(line).expect("it is understood");
            let scenario = &translation.scenarios[0];
            assert_eq!(scenario.target.servers, ["cache-1:11211", "cache-2:5"]);
            assert_eq!(scenario.until.requests, Some(requests), "{line}");
            assert_eq!((scenario.groups[0].commands[0].keys, scenario.fill), (keys_per_get, fill), "{line}");
        }
    }

    #[test]
    fn options_of_memaslap_are_recognised() {
        let translation = translation_of("--servers 127.0.0.1 -S 1s -T 8 -c 64 -U --win_size=1k")
            .expect("it is understood");
        assert!(matches!(translation.style, Style::Memaslap { .. }));
        assert_eq!(translation.notes[0], "-S is an option of memaslap: all are read as memaslap's");
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        for (line, message) in [
            ("--test=put", "--test put: the tests are get, mget and set"),
            ("-u ann -p x", "--username: SASL is part of the binary protocol: --binary"),
            ("-H md5", "--hash md5: keys are shared out by larder's own hash"),
            ("-c 0", "--concurrency 0: a number from 1 is needed"),
        ] {
            assert_eq!(translation_of(line).map(|_| ()), Err(message.to_owned()));
        }
        assert!(translation_of("-B").is_err_and(|message| message.starts_with("--buffer: ")));
    }
}
