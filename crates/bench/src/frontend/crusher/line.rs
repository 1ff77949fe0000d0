//! A line of a configuration: keys and values between commas.

use super::super::words::nearest;
use crate::scenario::{Kind, Protocol};

/// What a line says; what it does not say is at its default.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) send: Send,
    pub(super) connections: usize,
    /// 0: on the thread that all such lines share.
    pub(super) threads: usize,
    pub(super) pipelines: usize,
    pub(super) sleep_micros: u64,
    pub(super) stop_after: Option<u64>,
    pub(super) host: Option<String>,
    pub(super) port: Option<String>,
    pub(super) key_prefix: String,
    pub(super) keys: u64,
    pub(super) keys_per_get: usize,
    pub(super) is_random: bool,
    pub(super) zipf_exponent: Option<f64>,
    pub(super) value_bytes: u64,
    pub(super) value: Option<String>,
    pub(super) ttl_secs: u32,
    pub(super) client_flags: u32,
    pub(super) meta_flags: String,
}

/// What a connection sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Send {
    pub(super) name: &'static str,
    pub(super) protocol: Protocol,
    pub(super) kind: Kind,
    pub(super) is_multi_get: bool,
    pub(super) is_quiet: bool,
}

const fn send(name: &'static str, protocol: Protocol, kind: Kind) -> Send {
    Send { name, protocol, kind, is_multi_get: false, is_quiet: false }
}

const SENDS: &[Send] = &[
    send("ascii_get", Protocol::Text, Kind::Get),
    send("ascii_set", Protocol::Text, Kind::Set),
    Send { is_multi_get: true, ..send("ascii_mget", Protocol::Text, Kind::Get) },
    send("ascii_incr", Protocol::Text, Kind::Incr),
    send("ascii_decr", Protocol::Text, Kind::Decr),
    send("ascii_delete", Protocol::Text, Kind::Delete),
    send("ascii_touch", Protocol::Text, Kind::Touch),
    send("ascii_mg", Protocol::Meta, Kind::Get),
    send("bin_get", Protocol::Binary, Kind::Get),
    // Gets that say nothing about a miss; a no-op after them tells that all are answered.
    Send { is_multi_get: true, ..send("bin_getq", Protocol::Binary, Kind::Get) },
    send("bin_set", Protocol::Binary, Kind::Set),
    Send { is_quiet: true, ..send("bin_setq", Protocol::Binary, Kind::Set) },
    send("bin_touch", Protocol::Binary, Kind::Touch),
];

const KEYS: &[&str] = &[
    "send",
    "recv",
    "conns",
    "expire",
    "flags",
    "key_prefix",
    "cmd_postfix",
    "value_size",
    "value",
    "mget_count",
    "live_rand",
    "live_rand_zipf",
    "zipf_skew",
    "stop_after",
    "key_count",
    "host",
    "port",
    "usleep",
    "thread",
    "pipelines",
];

/// Its parser reads them and does nothing, or knows them from earlier versions only.
const IGNORED: &[&str] = &[
    "time",
    "count",
    "key_len",
    "key_generate",
    "value_range",
    "value_range_step",
    "key_prealloc",
    "key_randomize",
    "sleep_every",
];

const VALUE_BYTES_MAX: u64 = 1024 * 1024;

impl Line {
    /// Returns the line, and its keys that mean nothing.
    pub(super) fn read(text: &str) -> Result<(Self, Vec<&str>), String> {
        let mut ignored = Vec::new();
        let mut found_send = None;
        let mut line = Self {
            send: SENDS[0],
            connections: 1,
            threads: 0,
            pipelines: 1,
            sleep_micros: 0,
            stop_after: None,
            host: None,
            port: None,
            key_prefix: "foo".into(),
            keys: 200_000,
            keys_per_get: 2,
            is_random: false,
            zipf_exponent: None,
            value_bytes: 0,
            value: None,
            ttl_secs: 0,
            client_flags: 0,
            meta_flags: String::new(),
        };
        let (mut has_zipf, mut skew) = (false, 0.25);
        for pair in text.trim().split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair}: KEY=VALUE is needed"))?;
            match key {
                "send" => found_send = Some(find_send(value)?),
                // mc-crusher has one way of reading, whatever its name.
                "recv" => {}
                "conns" => line.connections = number(key, value)?,
                "expire" => line.ttl_secs = number(key, value)?,
                "flags" => line.client_flags = number(key, value)?,
                "key_prefix" => line.key_prefix = value.into(),
                "cmd_postfix" => line.meta_flags = value.into(),
                "value_size" => line.value_bytes = number(key, value)?,
                "value" => line.value = Some(value.into()),
                "mget_count" => line.keys_per_get = number(key, value)?,
                "live_rand" => line.is_random = true,
                "live_rand_zipf" => has_zipf = true,
                "zipf_skew" => skew = number(key, value)?,
                "stop_after" => line.stop_after = Some(number(key, value)?).filter(|count| *count > 0),
                "key_count" => line.keys = number(key, value)?,
                "host" => line.host = Some(value.into()),
                "port" => line.port = Some(value.into()),
                "usleep" => line.sleep_micros = number(key, value)?,
                "thread" => line.threads = number(key, value)?,
                "pipelines" => line.pipelines = number(key, value)?,
                other => match IGNORED.iter().find(|ignored| **ignored == other) {
                    Some(name) => ignored.push(*name),
                    None => return Err(unknown(other)),
                },
            }
        }
        line.send = found_send.ok_or("send: what to send is needed")?;
        line.zipf_exponent = has_zipf.then_some(skew);
        line.check()?;
        Ok((line, ignored))
    }

    fn check(&self) -> Result<(), String> {
        let counts =
            [("conns", self.connections), ("pipelines", self.pipelines), ("mget_count", self.keys_per_get)];
        if let Some((key, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(format!("{key}=0: a number from 1 is needed"));
        }
        if self.keys == 0 {
            return Err("key_count=0: a number from 1 is needed".into());
        }
        if self.value_bytes > VALUE_BYTES_MAX {
            return Err(format!("value_size={}: at most {VALUE_BYTES_MAX}", self.value_bytes));
        }
        match self.zipf_exponent {
            Some(exponent) if !(0.01..=2.0).contains(&exponent) => {
                Err(format!("zipf_skew={exponent}: 0.01 to 2.0"))
            }
            _ => Ok(()),
        }
    }
}

fn find_send(name: &str) -> Result<Send, String> {
    SENDS.iter().find(|send| send.name == name).copied().ok_or_else(|| {
        let nearest = nearest(name, SENDS.iter().map(|send| send.name));
        let question = nearest.map_or_else(String::new, |nearest| format!("; {nearest}?"));
        format!("send={name}: there is no such command{question}")
    })
}

fn unknown(key: &str) -> String {
    let question =
        nearest(key, KEYS.iter().copied()).map_or_else(String::new, |nearest| format!("; {nearest}?"));
    format!("{key}: there is no such key{question}")
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.trim().parse().map_err(|_| format!("{key}={value}: a number is needed"))
}
