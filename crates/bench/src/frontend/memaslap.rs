//! memaslap's command line.
//!
//! Defaults are those of its code (ms_setting.c), not those of its help: 1 thread, 16 connections, 600 seconds, a
//! window of 10,240 keys, keys of 64 bytes, values of 1024, 10 % sets.
//!
//! memaslap counts each key of a multi-get as an operation: in its proportions of commands, its `--execute_number` and
//! its `--tps`. Here a multi-get is one request, so these are converted.

mod config;
mod options;

use std::ffi::OsString;

use self::config::Config;
use self::options::Options;
use super::{Refusal, Style, Surroundings, Translation, servers};
use crate::Scenario;
use crate::scenario::{
    Arrival, Command, Group, Keys, Kind, Popularity, Protocol, SizeRange, Sizes, Target, Transport, Truth,
    Ttl, Until, Values,
};

/// An item with a TTL has this one; it is checked with a slack of 5 seconds (ms_task.h).
const TTL_SECS: u32 = 60;
const TTL_SLACK_SECS: f64 = 5.0;
/// What memaslap puts into one datagram (ms_conn.h), and its header.
const DATAGRAM_BYTES_MAX: u64 = 1400;
const DATAGRAM_HEADER_BYTES: u64 = 8;
/// A proportion below this is none (ms_setting.h).
const SHARE_MIN: f64 = 0.001;

pub(super) fn translate(words: &[OsString], surroundings: &Surroundings<'_>) -> Result<Translation, Refusal> {
    let options = Options::read(words)?;
    let servers = servers::libmemcached(options.servers.as_deref(), surroundings)?;
    options.check(&servers)?;
    let mut notes = Vec::new();
    let config = read_config(&options, surroundings, &mut notes)?;
    check_datagrams(&options, &config)?;
    if servers.len() > 1 && options.replicas == 0 {
        notes.push(
            "a key goes to the server that its hash names; memaslap gives each thread one server".into(),
        );
    }
    if options.reconnect {
        notes.push("--reconnect: a connection that is lost is always opened again, and counted".into());
    }

    let scenario = scenario(&options, &config, servers);
    let style = Style::Memaslap { stat_freq_secs: options.period_secs };
    Ok(Translation { style, ..Translation::plain(vec![scenario], notes) })
}

/// The file of `--cfg_cmd`, or else ~/.memslap.cnf, where memaslap keeps its defaults, or else these.
fn read_config(
    options: &Options,
    surroundings: &Surroundings<'_>,
    notes: &mut Vec<String>,
) -> Result<Config, Refusal> {
    if let Some(path) = &options.config_file {
        return Config::read(path, &surroundings.read(path)?, options.binary);
    }
    let home = (surroundings.variable)("HOME").map(|home| format!("{home}/.memslap.cnf"));
    match home.map(|path| (surroundings.read(&path), path)) {
        Some((Ok(text), path)) => {
            notes.push(format!("keys, values and commands are those of {path}, as memaslap's are"));
            Config::read(&path, &text, options.binary)
        }
        _ => Ok(Config::default()),
    }
}

fn check_datagrams(options: &Options, config: &Config) -> Result<(), Refusal> {
    let key_bytes = config.keys.iter().map(|range| range.max).max().unwrap_or(0);
    let value_bytes =
        options.value_bytes.unwrap_or_else(|| config.values.iter().map(|range| range.max).max().unwrap_or(0));
    // "get", a space before each key, CRLF.
    let get_bytes = DATAGRAM_HEADER_BYTES + 5 + options.keys_per_get as u64 * (1 + key_bytes);
    if (options.udp || options.facebook) && get_bytes > DATAGRAM_BYTES_MAX {
        return Err(Refusal::Words(format!(
            "--division {}: a get of keys of up to {key_bytes} bytes does not fit into a datagram of {DATAGRAM_BYTES_MAX} bytes",
            options.keys_per_get
        )));
    }
    // "set", a key, flags, TTL and length in up to 12 bytes with their spaces, CRLF twice.
    let set_bytes = DATAGRAM_HEADER_BYTES + 20 + key_bytes + value_bytes;
    if options.udp && config.set_share >= SHARE_MIN && set_bytes > DATAGRAM_BYTES_MAX {
        return Err(Refusal::Words(format!(
            "--udp: a set of {value_bytes} bytes does not fit into a datagram of {DATAGRAM_BYTES_MAX} bytes; --facebook sets over TCP"
        )));
    }
    Ok(())
}

fn scenario(options: &Options, config: &Config, servers: Vec<String>) -> Scenario {
    let keys_per_get = options.keys_per_get as f64;
    let requests_per_operation =
        (config.set_share + config.get_share / keys_per_get) / (config.set_share + config.get_share);
    let command = |kind, weight| Command { kind, weight, ..Command::default() };
    let ttl = |secs, weight| Ttl { secs, weight };
    let mut commands = Vec::new();
    if config.set_share >= SHARE_MIN {
        let ttl = match options.expiry > 0.0 {
            true => vec![ttl(TTL_SECS, options.expiry), ttl(0, 1.0 - options.expiry)],
            false => Vec::new(),
        };
        commands.push(Command { ttl, ..command(Kind::Set, config.set_share) });
    }
    if config.get_share >= SHARE_MIN {
        let get = command(Kind::Get, config.get_share / keys_per_get);
        commands.push(Command { keys: options.keys_per_get, ..get });
    }
    let arrival = options.operations_per_sec.map_or(Arrival::Closed, |operations| Arrival::Paced {
        rate_per_sec: operations as f64 * requests_per_operation,
    });
    let transport = match (options.udp, options.facebook) {
        (true, _) => Transport::Udp,
        (_, true) => Transport::UdpGets,
        _ => Transport::Tcp,
    };
    Scenario {
        name: "memaslap".into(),
        target: Target {
            servers,
            replicate: options.replicas,
            servers_replicate: options.replicas > 0,
            ..Target::default()
        },
        until: Until {
            secs: options.operations.is_none().then_some(options.run_secs as f64),
            requests: options.operations.map(|count| (count as f64 * requests_per_operation).round() as u64),
            trace_ends: false,
        },
        threads: options.threads,
        period_secs: options.period_secs.unwrap_or(1) as f64,
        truth: Truth {
            verify: options.verify,
            verify_expiry: if options.expiry > 0.0 { 1.0 } else { 0.0 },
            expiry_slack_secs: TTL_SLACK_SECS,
            ..Truth::default()
        },
        // Without sets, every window is stored first.
        fill: config.set_share < SHARE_MIN,
        groups: vec![Group {
            connections: options.connections,
            sockets: options.sockets,
            protocol: if options.binary { Protocol::Binary } else { Protocol::Text },
            transport,
            arrival,
            commands,
            keys: Keys {
                count: options.connections as u64 * keys_per_connection(options, config),
                prefix: String::new(),
                bytes: sizes(&config.keys),
                popularity: Popularity::Window { keys: options.window_keys, overwrite: options.overwrite },
                ..Keys::default()
            },
            values: Values {
                bytes: options.value_bytes.map_or_else(|| sizes(&config.values), Sizes::Fixed),
                ..Values::default()
            },
            ..Group::default()
        }],
        ..Scenario::default()
    }
}

/// Every set stores a new key there. Here they are used again after so many.
fn keys_per_connection(options: &Options, config: &Config) -> u64 {
    match (config.set_share < SHARE_MIN, options.verify > 0.0 || options.expiry > 0.0) {
        // None is ever new.
        (true, _) => options.window_keys,
        // What was stored is remembered for every key.
        (false, true) => 16 * options.window_keys,
        (false, false) => (16 * options.window_keys).max(1 << 24),
    }
}

fn sizes(ranges: &[SizeRange]) -> Sizes {
    match ranges {
        [only] if only.min == only.max => Sizes::Fixed(only.min),
        _ => Sizes::Ranges(ranges.to_vec()),
    }
}

fn average_bytes(ranges: &[SizeRange]) -> f64 {
    ranges.iter().map(|range| range.weight * (range.min + range.max) as f64 / 2.0).sum()
}

#[cfg(test)]
mod tests;
