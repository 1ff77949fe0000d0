//! The options of the command line.

use std::time::Duration;

use larder_engine::LargePages;
use larder_policy::{Durability, Keep};
use larder_protocol::Dialect;

use super::Value::{Needed, None as NoValue, Possible};
use super::suggest::did_you_mean;
use super::{
    Act, EXIT_FAILURE, EXIT_USAGE, Program, Refusal, Row, Status, absolute, extended, number, number_in,
    port, print,
};
use crate::observe::journal;
use crate::persistence::Driver;
use crate::web::PeerAddress;

/// Finds an option by its letter.
pub(super) fn by_short(short: char) -> Result<&'static Row, Refusal> {
    COMMAND_LINE.iter().find(|row| row.short == Some(short)).ok_or_else(|| {
        let is_other_case = |row: &&Row| row.short.is_some_and(|own| own.eq_ignore_ascii_case(&short));
        let meant = COMMAND_LINE.iter().find(is_other_case).and_then(|row| row.short);
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean -{meant}?"));
        Refusal::new(EXIT_FAILURE, format!("larderd: invalid option -- '{short}'{meant}"))
    })
}

/// Finds an option by its long name, or by an unambiguous beginning, at least among memcached's.
pub(super) fn by_long(long: &str) -> Result<&'static Row, Refusal> {
    if let Some(row) = COMMAND_LINE.iter().find(|row| row.name == long) {
        return Ok(row);
    }
    let candidates: Vec<_> = COMMAND_LINE.iter().filter(|row| row.name.starts_with(long)).collect();
    // memcached's options have letters; larder's own have none, and must not make a beginning ambiguous that is not so
    // in memcached.
    let of_memcached: Vec<_> = candidates.iter().copied().filter(|row| row.short.is_some()).collect();
    match (&candidates[..], &of_memcached[..]) {
        ([row], _) | (_, [row]) => Ok(row),
        ([], _) => {
            let meant = did_you_mean(long);
            Err(Refusal::new(EXIT_FAILURE, format!("larderd: unrecognized option '--{long}'{meant}")))
        }
        _ => {
            let names: Vec<_> = candidates.iter().map(|row| format!("--{}", row.name)).collect();
            let names = names.join(", ");
            Err(Refusal::new(EXIT_FAILURE, format!("larderd: option '--{long}' is ambiguous: {names}")))
        }
    }
}

/// In the order of memcached's help; then larder's own.
pub(super) const COMMAND_LINE: &[Row] = &[
    Row::honoured(
        Some('p'),
        "port",
        Needed("<num>"),
        "11211",
        "TCP port; 0: none, -1: a free one",
        |d, v| {
            d.settings.tcp_port = port(v)?;
            d.tcp_port_given = true;
            Ok(())
        },
    ),
    Row::honoured(
        Some('U'),
        "udp-port",
        Needed("<num>"),
        "0",
        "UDP port, and TCP port unless -p says otherwise; 0: none, -1: one that is free",
        |d, v| {
            d.settings.udp_port = port(v)?;
            Ok(())
        },
    ),
    Row::honoured(
        Some('s'),
        "unix-socket",
        Needed("<file>"),
        "",
        "listen on this Unix socket, not on TCP",
        |d, v| {
            d.settings.unix_socket = Some(v.into());
            Ok(())
        },
    ),
    Row::honoured(
        Some('a'),
        "unix-mask",
        Needed("<mask>"),
        "700",
        "mode of the Unix socket, in octal",
        |d, v| {
            d.settings.unix_mode = u32::from_str_radix(v, 8)
                .ok()
                .filter(|mode| *mode <= 0o7777)
                .ok_or_else(|| Refusal::new(EXIT_FAILURE, format!("Invalid mode of the Unix socket: {v}")))?;
            Ok(())
        },
    ),
    Row::honoured(Some('A'), "enable-shutdown", NoValue, "", "allow the \"shutdown\" command", |d, _| {
        d.settings.shutdown_command = true;
        Ok(())
    }),
    Row::honoured(
        Some('l'),
        "listen",
        Needed("<addr>"),
        "all",
        "addresses: host or host:port, separated by commas",
        |d, v| {
            let entries = v.split([',', ';']).filter(|entry| !entry.is_empty());
            d.settings.listen.extend(entries.map(str::to_owned));
            Ok(())
        },
    ),
    Row::honoured(Some('d'), "daemon", NoValue, "", "run in the background", |d, _| {
        d.settings.daemon = true;
        Ok(())
    }),
    Row::honoured(Some('r'), "enable-coredumps", NoValue, "", "raise the limit on core files", |d, _| {
        d.settings.core_dumps = true;
        Ok(())
    }),
    Row::honoured(
        Some('u'),
        "user",
        Needed("<user>"),
        "nobody",
        "become this user if started as root",
        |d, v| {
            d.settings.user = Some(v.to_owned());
            Ok(())
        },
    ),
    Row::honoured(Some('m'), "memory-limit", Needed("<num>"), "64", "memory of the cache in MiB", |d, v| {
        let message = "Memory limit must be a number of mebibytes, at least 1";
        let mebibytes: u64 = number_in(v.trim_end_matches(['m', 'M']), 1..=1 << 30, message)?;
        d.settings.memory_bytes = mebibytes << 20;
        Ok(())
    }),
    Row::honoured(
        Some('M'),
        "disable-evictions",
        NoValue,
        "",
        "return errors when memory is used up, do not evict",
        |d, _| {
            d.settings.evict = false;
            Ok(())
        },
    ),
    Row::honoured(Some('c'), "conn-limit", Needed("<num>"), "1024", "open connections at most", |d, v| {
        let message = "Maximum connections must be greater than 0";
        d.settings.connections_max = number_in(v, 1..=i32::MAX as u32, message)?;
        Ok(())
    }),
    Row::honoured(
        Some('k'),
        "lock-memory",
        NoValue,
        "",
        "keep memory that was used resident, where locked memory has no limit",
        |d, _| {
            d.settings.lock_memory = true;
            Ok(())
        },
    ),
    Row::honoured(
        Some('v'),
        "verbose",
        Possible("<num>"),
        "0",
        "log more: -v is level info, -vv is debug",
        |d, v| {
            d.settings.verbosity = match v {
                "" => d.settings.verbosity.saturating_add(1),
                level => number(level, EXIT_FAILURE, "Verbosity must be a number")?,
            };
            Ok(())
        },
    ),
    printing(None, "help", "print the most useful options and exit", print::help),
    printing(Some('h'), "help-all", "print every option and exit", print::help_all),
    printing(Some('i'), "license", "print the licence and exit", print::license),
    printing(Some('V'), "version", "print the version and exit", print::version),
    Row::honoured(Some('P'), "pidfile", Needed("<file>"), "", "write the process id to this file", |d, v| {
        d.settings.pid_file = Some(v.into());
        Ok(())
    }),
    Row {
        short: Some('f'),
        name: "slab-growth-factor",
        value: Needed("<num>"),
        default: "1.25",
        help: "growth of slab classes",
        status: Status::Accepted(NO_SLABS),
        act: Act::Set(|d, v| {
            let factor: f64 = number(v, EXIT_FAILURE, "Factor must be greater than 1")?;
            if factor.is_nan() || factor <= 1.0 {
                return Err(Refusal::new(EXIT_FAILURE, "Factor must be greater than 1"));
            }
            d.settings.accepted.growth_factor = factor;
            Ok(())
        }),
    },
    Row {
        short: Some('n'),
        name: "slab-min-size",
        value: Needed("<bytes>"),
        default: "48",
        help: "room of the smallest slab class",
        status: Status::Accepted(NO_SLABS),
        act: Act::Set(|d, v| {
            d.settings.accepted.chunk_bytes = number_in(v, 1.., "Chunk size must be greater than 0")?;
            Ok(())
        }),
    },
    Row::honoured(
        Some('L'),
        "enable-largepages",
        NoValue,
        "",
        "large memory pages from the start, not only once they are full; rare pauses",
        |d, _| {
            d.settings.large_pages = LargePages::FromTheStart;
            Ok(())
        },
    ),
    Row::honoured(
        Some('D'),
        "stat-key-prefix",
        Needed("<char>"),
        ":",
        "character that ends a key's prefix; turns on \"stats detail\"",
        |d, v| {
            // Of several characters memcached takes the first, too.
            d.settings.prefix_delimiter = v.bytes().next().unwrap_or(b':');
            d.settings.detail = true;
            Ok(())
        },
    ),
    Row::honoured(Some('t'), "threads", Needed("<num>"), "4", "worker threads", |d, v| {
        d.settings.threads = number_in(v, 1.., "Number of threads must be greater than 0")?;
        if d.settings.threads > THREADS_MAX {
            return Err(Refusal::new(
                EXIT_FAILURE,
                format!("Number of threads must be at most {THREADS_MAX}"),
            ));
        }
        Ok(())
    }),
    Row::honoured(
        Some('R'),
        "max-reqs-per-event",
        Needed("<num>"),
        "128",
        "requests of one connection before others have their turn",
        |d, v| {
            let message = "Number of requests per event must be greater than 0";
            d.settings.requests_per_event = number_in(v, 1.., message)?;
            Ok(())
        },
    ),
    Row::honoured(Some('C'), "disable-cas", NoValue, "", "assign no CAS values", |d, _| {
        d.settings.cas = false;
        Ok(())
    }),
    Row::honoured(
        Some('b'),
        "listen-backlog",
        Needed("<num>"),
        "1024",
        "connections that may wait to be accepted",
        |d, v| {
            d.settings.backlog = number_in(v, 0.., "Listen backlog must be a number")?;
            Ok(())
        },
    ),
    Row::honoured(
        Some('B'),
        "protocol",
        Needed("<name>"),
        "auto",
        "protocol: ascii, binary or auto",
        |d, v| {
            d.protocol_given = true;
            d.settings.dialect = match v {
                "auto" => None,
                "ascii" => Some(Dialect::Text),
                "binary" => Some(Dialect::Binary),
                _ => {
                    let message = "Invalid value for binding protocol: ";
                    return Err(Refusal::new(
                        EXIT_USAGE,
                        format!("{message}{v}\n -- should be one of auto, binary, or ascii"),
                    ));
                }
            };
            Ok(())
        },
    ),
    Row::honoured(
        Some('I'),
        "max-item-size",
        Needed("<num>"),
        "1m",
        "largest item in bytes, or with k or m; 1k to 1024m",
        |d, v| {
            d.settings.item_bytes_max = item_size(v)?;
            d.item_size_given = true;
            Ok(())
        },
    ),
    Row::honoured(
        Some('S'),
        "enable-sasl",
        NoValue,
        "",
        "require a SASL login; binary protocol only",
        |d, _| {
            d.settings.sasl = true;
            Ok(())
        },
    ),
    Row::honoured(Some('F'), "disable-flush-all", NoValue, "", "disable the flush_all command", |d, _| {
        d.settings.flush_all = false;
        Ok(())
    }),
    Row::honoured(Some('X'), "disable-dumping", NoValue, "", "disable commands that dump keys", |d, _| {
        d.settings.dump = false;
        Ok(())
    }),
    Row::honoured(Some('W'), "disable-watch", NoValue, "", "disable the watch command", |d, _| {
        d.settings.watch = false;
        Ok(())
    }),
    Row::honoured(
        Some('Y'),
        "auth-file",
        Needed("<file>"),
        "",
        "require a login from this file; text protocol only",
        |d, v| {
            d.settings.auth_file = Some(v.into());
            Ok(())
        },
    ),
    Row::honoured(
        Some('e'),
        "memory-file",
        Needed("<file>"),
        "",
        "keep the cache in a file for the next start (docs/warm-restart.md)",
        |d, v| {
            d.settings.memory_file = Some(v.into());
            Ok(())
        },
    ),
    Row::honoured(Some('Z'), "enable-ssl", NoValue, "", "use TLS on TCP (docs/tls.md)", |d, _| {
        d.settings.tls.is_enabled = true;
        Ok(())
    }),
    Row::honoured(
        Some('o'),
        "extended",
        Needed("<list>"),
        "",
        "extended options, separated by commas",
        extended::apply,
    ),
    Row {
        short: Some('N'),
        name: "napi-ids",
        value: Needed("<num>"),
        default: "0",
        help: "number of NAPI ids",
        status: Status::Accepted("connections are spread by the load of the workers"),
        act: Act::Set(|d, v| {
            d.settings.accepted.napi_ids =
                number(v, EXIT_FAILURE, "Maximum number of NAPI IDs must be greater than 0")?;
            Ok(())
        }),
    },
    Row::honoured(
        None,
        "noreply-close-on-error",
        NoValue,
        "",
        "close a connection whose noreply command failed on the server's side",
        |d, _| {
            d.settings.noreply_close_on_error = true;
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "reload-secs",
        Needed("<num>"),
        "0",
        "read what SIGHUP reads again when its files have changed, looking every so many seconds; 0: never",
        |d, v| {
            let message = "larderd: --reload-secs: 0 to 31536000";
            d.settings.reload_secs = number_in(v, 0..=31_536_000, message)?;
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "udp-cookie",
        NoValue,
        "",
        "over UDP, send sources no more than they sent until they return a cookie",
        |d, _| {
            d.settings.udp_cookie = true;
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "namespaces",
        Needed("<file>"),
        "",
        "policies of key prefixes: quotas, TTLs, users; read again at SIGHUP (docs/guides/namespaces.md)",
        |d, v| {
            d.settings.namespaces_file = Some(v.into());
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "read-only",
        NoValue,
        "",
        "refuses changes, for maintenance, until larder read-only off (docs/guides/failover.md)",
        |d, _| {
            d.settings.read_only = true;
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "store",
        Needed("<dir>"),
        "",
        "keep items in this directory, with memory as their cache (docs/store.md)",
        |d, v| {
            d.store().directory = absolute(v)?;
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "keep",
        Needed("<where>"),
        "",
        "what keeps items that no policy names: cache, warm or store (docs/store.md)",
        |d, v| {
            d.settings.keep = Some(match v {
                "cache" => Keep::Cache,
                "warm" => Keep::Warm,
                "store" => Keep::Store,
                _ => {
                    let message = format!("larderd: --keep={v}: cache, warm or store");
                    return Err(Refusal::new(EXIT_USAGE, message));
                }
            });
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "durability",
        Needed("<when>"),
        "sync",
        "when a change is on disk: sync (before its reply), interval, or os (when the system writes it)",
        |d, v| {
            d.store().durability = match v {
                "sync" => Durability::Sync,
                "interval" => Durability::Interval,
                "os" => Durability::Os,
                _ => {
                    let error = format!("larderd: --durability={v}: sync, interval or os");
                    return Err(Refusal::new(EXIT_USAGE, error));
                }
            };
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "sync-interval",
        Needed("<ms>"),
        "1000",
        "durability interval: milliseconds until a change is on disk",
        |d, v| {
            let message = "larderd: --sync-interval: 1 to 60000 ms";
            d.store().interval = Duration::from_millis(number_in(v, 1..=60_000, message)?);
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "store-engine",
        Needed("<name>"),
        "log",
        "what keeps the store: log, memory (for tests)",
        |d, v| {
            d.store().driver = Driver::of_name(v).ok_or_else(|| {
                Refusal::new(EXIT_USAGE, format!("larderd: --store-engine={v}: log or memory"))
            })?;
            Ok(())
        },
    ),
    Row::honoured(None, "store-readers", Needed("<num>"), "4", "threads that read from the store", |d, v| {
        d.store().readers = number_in(v, 1..=256, "larderd: --store-readers: 1 to 256")?;
        Ok(())
    }),
    Row::honoured(
        None,
        "backup-dir",
        Needed("<dir>"),
        "",
        "let clients take backups of the store below this directory (larder backup; docs/store.md)",
        |d, v| {
            d.store().backup_directory = Some(absolute(v)?);
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "backup-token-file",
        Needed("<file>"),
        "",
        "let who has the token in this file take backups, also from --admin-listen",
        |d, v| {
            d.store().backup_token_file = Some(v.into());
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "store-segment-kib",
        Needed("<num>"),
        "65536",
        "length of a file of the store in KiB; four of them are what a small store uses on the disk",
        |d, v| {
            let kib: u64 = number_in(v, 4..=65_536, "larderd: --store-segment-kib: 4 to 65536")?;
            d.store().segment_bytes = kib << 10;
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "site",
        Needed("<num>"),
        "",
        "the number of this server among several that hold the same data, 1 to 255; needs --store (docs/replication.md)",
        |d, v| {
            d.replication().site = number_in(v, 1..=255, "larderd: --site: 1 to 255")?;
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "replication-listen",
        Needed("<addr>"),
        "",
        "where other sites pull this one's changes from: an IP address and a port; with TLS if -Z is on, else loopback only",
        |d, v| {
            d.replication().listen = Some(v.parse().map_err(|_| {
                let error = format!("larderd: --replication-listen={v}: an IP address and a port");
                Refusal::new(EXIT_USAGE, error)
            })?);
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "peer",
        Needed("<addr>"),
        "",
        "another site, host:port of its --replication-listen; can be given up to 7 times",
        |d, v| {
            d.replication().peers.push(v.to_owned());
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "peers-file",
        Needed("<file>"),
        "",
        "all other sites, a number and host:port a line; read again at SIGHUP",
        |d, v| {
            d.replication().peers_file = Some(v.into());
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "replication-token-file",
        Needed("<file>"),
        "",
        "a token that all sites know: a site lets in nobody who does not",
        |d, v| {
            d.replication().token_file = Some(v.into());
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "replication-silence-secs",
        Needed("<num>"),
        "604800",
        "seconds of silence after which others go on without a site",
        |d, v| {
            let message = "larderd: --replication-silence-secs: 1 to 31536000";
            d.replication().silence_secs_max = number_in(v, 1..=31_536_000, message)?;
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "replication-log-mib",
        Needed("<num>"),
        "4096",
        "MiB of the log that are kept for sites that are away",
        |d, v| {
            let mib: u64 = number_in(v, 1..=1_048_576, "larderd: --replication-log-mib: 1 to 1048576")?;
            d.replication().log_bytes_max = mib << 20;
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "replication-compare-hours",
        Needed("<num>"),
        "24",
        "hours between comparisons with a peer; 0: if asked only",
        |d, v| {
            let usage = "larderd: --replication-compare-hours: 0 to 8760";
            d.replication().compare_hours = number_in(v, 0..=8760, usage)?;
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "log-level",
        Needed("<level>"),
        "warn",
        "lowest severity on stderr: error, warn, info or debug (docs/logs.md)",
        |d, v| {
            let level = journal::level(v).ok_or_else(|| {
                Refusal::new(EXIT_USAGE, format!("larderd: --log-level={v}: error, warn, info or debug"))
            })?;
            d.settings.journal.level = Some(level);
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "log-format",
        Needed("<form>"),
        "text",
        "log as text, or as json: one object per line",
        |d, v| {
            d.settings.journal.form = match v {
                "text" => journal::Form::Text,
                "json" => journal::Form::Json,
                _ => {
                    return Err(Refusal::new(EXIT_USAGE, format!("larderd: --log-format={v}: text or json")));
                }
            };
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "admin-listen",
        Needed("<addr>"),
        "",
        "live page, metrics and health over HTTP on this host:port or Unix socket; may be repeated",
        |d, v| {
            d.settings.admin.listen.push(v.to_owned());
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "admin-peers",
        Needed("<addr,...>"),
        "",
        "show these servers on the page, too: their --admin-listen; may be repeated",
        |d, v| PeerAddress::add(&mut d.settings.admin_peers, v),
    ),
    Row::honoured(
        None,
        "admin-token-file",
        Needed("<file>"),
        "",
        "require the token in this file for metrics and data; changes over TCP need it",
        |d, v| {
            d.settings.admin.token_file = Some(v.into());
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "admin-tls",
        NoValue,
        "",
        "use TLS on these listeners, with the certificates of -Z",
        |d, _| {
            d.settings.admin.tls = true;
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "http-listen",
        Needed("<addr>"),
        "",
        "items over HTTP on this host:port or Unix socket; may be repeated",
        |d, v| {
            d.settings.http.listen.push(v.to_owned());
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "http-token-file",
        Needed("<file>"),
        "",
        "require the token in this file for items over HTTP",
        |d, v| {
            d.settings.http.token_file = Some(v.into());
            Ok(())
        },
    ),
    Row::honoured(
        None,
        "http-tls",
        NoValue,
        "",
        "use TLS for items over HTTP, with the certificates of -Z",
        |d, _| {
            d.settings.http.tls = true;
            Ok(())
        },
    ),
    printing(None, "man", "print the manual page (roff) and exit", print::manual),
    printing(None, "options-markdown", "print these tables in Markdown and exit", print::markdown),
];

/// More workers than any machine can use.
const THREADS_MAX: usize = 1024;

pub(super) const NO_SLABS: &str = "memory is a log of segments, there are no slab classes";

const fn printing(
    short: Option<char>,
    name: &'static str,
    help: &'static str,
    print: fn(Program) -> String,
) -> Row {
    Row { short, name, value: NoValue, default: "", help, status: Status::Honoured, act: Act::Print(print) }
}

/// Reads `-I`: bytes, or kibi- or mebibytes with suffix k or m.
fn item_size(value: &str) -> Result<u32, Refusal> {
    let (digits, shift) = match value.as_bytes().last() {
        Some(b'k' | b'K') => (&value[..value.len() - 1], 10),
        Some(b'm' | b'M') => (&value[..value.len() - 1], 20),
        _ => (value, 0),
    };
    let bytes =
        number::<u64>(digits, EXIT_USAGE, "Item max size must be a number of bytes, or with suffix k or m.")?;
    let bytes = bytes.saturating_mul(1 << shift);
    if bytes < 1024 {
        return Err(Refusal::new(EXIT_USAGE, "Item max size cannot be less than 1024 bytes."));
    }
    if bytes > 1 << 30 {
        return Err(Refusal::new(EXIT_USAGE, "Cannot set item size limit higher than a gigabyte."));
    }
    Ok(bytes as u32)
}
