//! `larder parse`: checks a list of servers, or a configuration of libmemcached.

use larder_client::{Client, Distribution, Servers};
use serde_json::{Map, Value, json};

use crate::{Failure, output};

/// Check a server list or a configuration string of libmemcached
///
/// Prints the servers with their weights and shares of the keys. Exit code 64: invalid.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// `a:11211,b:11211:3`, or `--SERVER=a:11211/?3 --DISTRIBUTION=consistent`
    #[arg(required = true, allow_hyphen_values = true, value_name = "CONFIGURATION")]
    words: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let words: Vec<_> = args.words.iter().flat_map(|words| words.split_whitespace()).collect();
    let parsed = if words.iter().any(|word| word.starts_with("--")) {
        configuration(&words)?
    } else {
        let servers =
            words.join(" ").parse::<Servers>().map_err(|wrong| Failure::Usage(wrong.to_string()))?;
        Parsed { servers, distribution: Distribution::Modula, options: Map::new() }
    };
    if parsed.servers.0.is_empty() && parsed.options.is_empty() {
        return Err(Failure::Usage("this names nothing".into()));
    }
    // Shares, computed as clients find the server of a key.
    let client = Client::builder().servers(parsed.servers.clone()).distribution(parsed.distribution).build();
    let mut keys = vec![0_u32; parsed.servers.0.len()];
    for n in 0..SAMPLE_KEYS {
        let owner = client.server_of(n.to_string());
        if let Some(at) = owner.and_then(|owner| parsed.servers.0.iter().position(|server| server == owner)) {
            keys[at] += 1;
        }
    }
    let servers = parsed.servers.0.iter().zip(keys).map(|(server, keys)| {
        let share = f64::from(keys) / f64::from(SAMPLE_KEYS);
        json!({"server": server.address.to_string(), "weight": server.weight, "share_of_keys": share})
    });
    let servers = Value::Array(servers.collect());
    output::write_json(&json!({"servers": servers, "options": parsed.options}))
}

struct Parsed {
    servers: Servers,
    distribution: Distribution,
    options: Map<String, Value>,
}

/// Source: libmemcached, "Configuring libmemcached".
fn configuration(words: &[&str]) -> Result<Parsed, Failure> {
    let mut list = Vec::new();
    let mut distribution = Distribution::Modula;
    let mut options = Map::new();
    for word in words {
        let wrong = |why: &str| Failure::Usage(format!("{word}: {why}"));
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (*word, None),
        };
        match (name, value) {
            ("--SERVER", Some(server)) => list.push(match server.split_once("/?") {
                Some((address, weight)) => format!("{address} {weight}"),
                None => server.to_owned(),
            }),
            ("--SOCKET", Some(path)) => {
                let path = path.trim_matches('"');
                list.push(path.replacen("/?", " ", usize::from(path.contains("/?"))));
            }
            ("--DISTRIBUTION", Some("modula")) => {}
            ("--DISTRIBUTION", Some("consistent" | "consistent,MD5" | "random")) => {
                distribution = Distribution::Ketama;
            }
            (name, None) if FLAGS.contains(&name) => {}
            (name, Some(value)) if NUMBERS.contains(&name) => {
                value.parse::<u64>().map_err(|_| wrong("a number follows"))?;
            }
            (name, Some(value)) if WORDS.contains(&name) && !value.is_empty() => {}
            (name, _) if FLAGS.contains(&name) => return Err(wrong("no value follows")),
            (name, _) if NUMBERS.contains(&name) || WORDS.contains(&name) => {
                return Err(wrong("a value is missing"));
            }
            ("--DISTRIBUTION", _) => return Err(wrong("modula, consistent or random follows")),
            _ => return Err(wrong("no such option")),
        }
        if !matches!(name, "--SERVER" | "--SOCKET") {
            options.insert(name.to_owned(), value.map_or(Value::Bool(true), output::stat_value));
        }
    }
    let servers = list.join(",").parse::<Servers>().map_err(|wrong| Failure::Usage(wrong.to_string()))?;
    Ok(Parsed { servers, distribution, options })
}

const FLAGS: [&str; 13] = [
    "--BINARY-PROTOCOL",
    "--BUFFER-REQUESTS",
    "--HASH-WITH-NAMESPACE",
    "--NOREPLY",
    "--RANDOMIZE-REPLICA-READ",
    "--SORT-HOSTS",
    "--SUPPORT-CAS",
    "--USE-UDP",
    "--VERIFY-KEY",
    "--TCP-NODELAY",
    "--TCP-KEEPALIVE",
    "--FETCH-VERSION",
    "--TCP-KEEPIDLE",
];
const NUMBERS: [&str; 14] = [
    "--CONNECT-TIMEOUT",
    "--IO-BYTES-WATERMARK",
    "--IO-KEY-PREFETCH",
    "--IO-MSG-WATERMARK",
    "--NUMBER-OF-REPLICAS",
    "--POLL-TIMEOUT",
    "--RCV-TIMEOUT",
    "--REMOVE-FAILED-SERVERS",
    "--RETRY-TIMEOUT",
    "--SND-TIMEOUT",
    "--SOCKET-RECV-SIZE",
    "--SOCKET-SEND-SIZE",
    "--POOL-MAX",
    "--POOL-MIN",
];
const WORDS: [&str; 3] = ["--HASH", "--NAMESPACE", "--CONFIGURE-FILE"];
/// Enough for shares in percent.
const SAMPLE_KEYS: u32 = 20_000;
