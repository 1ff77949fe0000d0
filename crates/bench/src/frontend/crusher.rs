//! mc-crusher's command line and configuration.
//!
//! A configuration is a line for each kind of connection: `send=ascii_get,recv=blind_read,conns=50,key_prefix=foo`.
//! Each line is a group here. mc-crusher never looks at an answer and prints nothing; here answers are read and
//! counted.

mod line;

use std::ffi::OsString;

use self::line::Line;
use super::words::{self, Known};
use super::{Refusal, Surroundings, Translation, WITHOUT_END_SECS, servers};
use crate::Scenario;
use crate::scenario::{
    Arrival, Command, Content, Group, Keys, Popularity, Sizes, Target, Ttl, Until, Values,
};

const fn option(long: &'static str) -> Known {
    Known { short: None, long, has_value: true }
}

const TABLE: &[Known] = &[
    option("ip"),
    option("port"),
    option("sock"),
    option("conf"),
    option("timeout"),
    option("zipf-n"),
    option("zipf-s"),
    Known { short: Some('h'), long: "help", has_value: false },
];

const HELP: &str = "\
usage: larder bench mc-crusher [options] --conf FILE

The options and configuration files of mc-crusher.

  --conf FILE       a line for each kind of connection, as send=ascii_get,recv=blind_read,conns=50
  --ip HOST         server (127.0.0.1)
  --port N          its port (11211)
  --sock PATH       a unix socket, instead
  --timeout SECS    how long; else until it is interrupted

Keys of a line: send recv conns expire flags key_prefix cmd_postfix value_size value mget_count live_rand
live_rand_zipf zipf_skew stop_after key_count host port usleep thread pipelines.
";

pub(super) fn translate(words: &[OsString], surroundings: &Surroundings<'_>) -> Result<Translation, Refusal> {
    let (given, others) = words::read(words, TABLE)?;
    let (mut host, mut port) = ("127.0.0.1".to_owned(), "11211".to_owned());
    let (mut socket, mut timeout_secs) = (None, None);
    // Before it had options, mc-crusher took the file as its only word.
    let mut file = others.first().cloned();
    for option in &given {
        match option.long {
            "ip" => host = option.value.clone(),
            "port" => port = option.value.clone(),
            "sock" => socket = Some(option.value.clone()),
            "conf" => file = Some(option.value.clone()),
            "timeout" => timeout_secs = Some(option.count::<u32>()?),
            "zipf-n" | "zipf-s" => {
                return Err(option.refuse("prints samples of mc-crusher's own generator, and asks no server"));
            }
            _ => return Err(Refusal::Help(HELP.into())),
        }
    }
    let file = file.ok_or_else(|| Refusal::Words("--conf: a configuration file is needed".into()))?;
    let mut notes = Vec::new();
    let lines = read_lines(&file, &surroundings.read(&file)?, &mut notes)?;
    let server = match socket {
        Some(path) => path,
        None => the_server(&file, &lines, &host, &port)?,
    };
    if timeout_secs.is_none() && lines.iter().any(|line| line.stop_after.is_none()) {
        notes.push("without --timeout, it runs until it is interrupted".into());
    }
    let scenario = Scenario {
        name: "mc-crusher".into(),
        description: file,
        target: Target { servers: vec![server], ..Target::default() },
        until: Until { secs: Some(timeout_secs.map_or(WITHOUT_END_SECS, f64::from)), ..Until::default() },
        threads: threads(&lines),
        period_secs: 1.0,
        groups: lines.iter().map(group).collect(),
        ..Scenario::default()
    };
    Ok(Translation::plain(vec![scenario], notes))
}

fn read_lines(path: &str, text: &str, notes: &mut Vec<String>) -> Result<Vec<Line>, Refusal> {
    let mut lines = Vec::new();
    for (index, text) in text.lines().enumerate() {
        if text.trim().is_empty() {
            continue;
        }
        let place = format!("line {}", index + 1);
        let (line, ignored) = Line::read(text)
            .map_err(|reason| Refusal::File { path: path.into(), reason: format!("{place}: {reason}") })?;
        if !ignored.is_empty() {
            notes.push(format!("{place}: without effect in mc-crusher, and here: {}", ignored.join(", ")));
        }
        lines.push(line);
    }
    match lines.is_empty() {
        true => Err(Refusal::File { path: path.into(), reason: "there is no line".into() }),
        false => Ok(lines),
    }
}

/// All lines must name the same one.
fn the_server(file: &str, lines: &[Line], host: &str, port: &str) -> Result<String, Refusal> {
    let server_of = |line: &Line| {
        let host = line.host.as_deref().unwrap_or(host);
        let port = line.port.as_deref().unwrap_or(port);
        servers::with_port(&if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        })
    };
    let mut servers: Vec<String> = lines.iter().map(server_of).collect::<Result<_, _>>()?;
    servers.dedup();
    match servers.len() {
        1 => Ok(servers.remove(0)),
        _ => Err(Refusal::File {
            path: file.into(),
            reason: format!(
                "host, port: lines name several servers ({}), and all groups of a run ask the same; run a file for each",
                servers.join(", ")
            ),
        }),
    }
}

/// Lines without `thread` share the first thread; each other has its own.
fn threads(lines: &[Line]) -> usize {
    let shared = lines.iter().any(|line| line.threads == 0);
    usize::from(shared) + lines.iter().map(|line| line.threads).sum::<usize>()
}

fn group(line: &Line) -> Group {
    let connections = line.connections * line.threads.max(1);
    let arrival = match line.sleep_micros {
        0 => Arrival::Closed,
        // Each connection sends so many requests, and sleeps.
        micros => {
            Arrival::Paced { rate_per_sec: (connections * line.pipelines) as f64 * 1e6 / micros as f64 }
        }
    };
    let (bytes, content) = match &line.value {
        Some(text) => (text.len() as u64, Content::Repeated(text.clone())),
        None => (line.value_bytes, Content::Repeated("\0".into())),
    };
    Group {
        name: format!("{} {}", line.send.name, line.key_prefix),
        connections,
        pipeline: line.pipelines,
        protocol: line.send.protocol,
        arrival,
        commands: vec![Command {
            kind: line.send.kind,
            keys: if line.send.is_multi_get { line.keys_per_get } else { 1 },
            noreply: line.send.is_quiet,
            ttl: if line.ttl_secs == 0 { Vec::new() } else { vec![Ttl { secs: line.ttl_secs, weight: 1.0 }] },
            client_flags: line.client_flags,
            meta_flags: line.meta_flags.clone(),
            ..Command::default()
        }],
        keys: Keys {
            count: line.keys,
            prefix: line.key_prefix.clone(),
            // As long as prefix and number are.
            bytes: Sizes::Fixed(1),
            popularity: match line.zipf_exponent {
                Some(exponent) => Popularity::Zipf { exponent },
                None if line.is_random => Popularity::Uniform,
                None => Popularity::Sequential,
            },
            ..Keys::default()
        },
        values: Values { bytes: Sizes::Fixed(bytes), content, ..Values::default() },
        // The lines of each thread count on their own.
        requests: line.stop_after.map(|count| count * line.threads.max(1) as u64),
        ..Group::default()
    }
}

#[cfg(test)]
mod tests;
