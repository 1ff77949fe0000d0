//! The command line: memcached's, and a few long options of larder's own.
//!
//! Two tables, [`table::COMMAND_LINE`] and [`extended::EXTENDED`] (`-o`), define it: which options are read, and what
//! `--help`, the manual page and docs/options.md print. Source: memcached 1.6.45, `memcached -h`.

mod extended;
mod print;
mod suggest;
mod table;
#[cfg(test)]
mod tests;
mod tls;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use larder_policy::Keep;
use larder_protocol::Dialect;

use crate::net::listeners;
use crate::net::tls::ClientCertificates;
use crate::persistence::StoreSettings;
use crate::replication::{PEERS_MAX, ReplicationSettings};
use crate::startup::settings::{Port, Settings};

/// Exit code for an invalid value (memcached: EXIT_FAILURE).
pub const EXIT_FAILURE: u8 = 1;
/// Exit code for options that exclude each other, and for words that are not options (sysexits.h: EX_USAGE).
pub const EXIT_USAGE: u8 = 64;
/// Exit code of an unknown user (sysexits.h: EX_NOUSER).
pub const EXIT_NO_USER: u8 = 67;
/// Exit code when the system refuses something, such as an address to listen on (sysexits.h: EX_OSERR).
pub const EXIT_OS_ERROR: u8 = 71;

/// What the command line asks for.
#[derive(Debug)]
pub enum Outcome {
    /// Serve.
    Serve(Box<Settings>),
    /// Print this on stdout and exit 0 (`-h`, `-V`, ...).
    Print(String),
}

/// Why the server does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For `exit`.
    pub exit_code: u8,
    /// For stderr; one or more lines without the last LF.
    pub message: String,
}

impl Refusal {
    /// A refusal with this exit code and message.
    pub fn new(exit_code: u8, message: impl Into<String>) -> Self {
        Self { exit_code, message: message.into() }
    }
}

/// The name that the program was started under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Larderd,
    /// By a link, for instance of a package that replaces memcached.
    Memcached,
}

impl Program {
    fn of(path: &str) -> Self {
        let name = Path::new(path).file_name();
        if name.is_some_and(|name| name == "memcached") { Self::Memcached } else { Self::Larderd }
    }
}

/// Reads the command line, which begins with the program's name, from left to right. The first wrong option refuses the
/// start; the first that prints (`-h`, `-V`, `-i`) wins over all that follow. Words that are not options are refused,
/// unlike in memcached: such a word is usually an option without its dash, and without that option the server may be
/// open to everybody.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Outcome, Refusal> {
    let mut draft = Draft::default();
    let mut parser = lexopt::Parser::from_iter(args);
    let program = Program::of(parser.bin_name().unwrap_or_default());
    while let Some(arg) = parser.next().map_err(unreadable)? {
        let (row, is_long) = match arg {
            lexopt::Arg::Short(short) => (table::by_short(short)?, false),
            lexopt::Arg::Long(long) => (table::by_long(long)?, true),
            lexopt::Arg::Value(word) => {
                let message = format!("larderd: unexpected argument {word:?}: there are only options");
                return Err(Refusal::new(EXIT_USAGE, message));
            }
        };
        let value = match row.value {
            Value::Needed(_) => text(parser.value().map_err(unreadable)?)?,
            // A letter has none: -vv is -v twice.
            Value::Possible(_) if is_long => {
                parser.optional_value().map_or_else(|| Ok(String::new()), text)?
            }
            Value::Possible(_) | Value::None => String::new(),
        };
        if let Act::Print(print) = row.act {
            return Ok(Outcome::Print(print(program)));
        }
        row.apply(&mut draft, &value)?;
    }
    draft.finish().map(|settings| Outcome::Serve(Box::new(settings)))
}

/// One option: of the command line, or of `-o`.
struct Row {
    /// The letter, if it has one.
    short: Option<char>,
    /// The long name; the only name of an `-o` option.
    name: &'static str,
    value: Value,
    /// The default in the help; empty: none.
    default: &'static str,
    help: &'static str,
    status: Status,
    act: Act,
}

/// Whether an option takes a value, and its name in the help.
#[derive(Clone, Copy)]
enum Value {
    None,
    Needed(&'static str),
    Possible(&'static str),
}

/// The effect of an option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    /// The same as in memcached.
    Honoured,
    /// None, for this reason.
    Accepted(&'static str),
    /// The server does not start, for this reason: ignoring the option would open access or lose data.
    Refused(&'static str),
}

#[derive(Clone, Copy)]
enum Act {
    /// Sets the value. It is empty if there is none.
    Set(fn(&mut Draft, &str) -> Result<(), Refusal>),
    /// Prints something instead of serving.
    Print(fn(Program) -> String),
    /// Does nothing, or refuses, according to the status.
    Nothing,
}

impl Row {
    const fn honoured(
        short: Option<char>,
        name: &'static str,
        value: Value,
        default: &'static str,
        help: &'static str,
        set: fn(&mut Draft, &str) -> Result<(), Refusal>,
    ) -> Self {
        Self { short, name, value, default, help, status: Status::Honoured, act: Act::Set(set) }
    }

    /// Applies the option: refuses it, notes that it has no effect, or acts.
    fn apply(&self, draft: &mut Draft, value: &str) -> Result<(), Refusal> {
        let missing = matches!(self.value, Value::Needed(_)) && value.is_empty();
        match self.status {
            // An option may be refused for some values only: then `act` refuses.
            Status::Refused(reason) if !matches!(self.act, Act::Set(_)) => {
                return Err(Refusal::new(EXIT_USAGE, format!("larderd: {}: {reason}", self.name)));
            }
            _ if missing => {
                return Err(Refusal::new(EXIT_FAILURE, format!("Missing argument for {}", self.name)));
            }
            Status::Accepted(reason) => {
                draft.settings.notes.push(format!("{} has no effect: {reason}", self.name))
            }
            _ => {}
        }
        match self.act {
            Act::Set(set) => set(draft, value),
            Act::Print(_) | Act::Nothing => Ok(()),
        }
    }
}

/// The settings while options are still being read.
#[derive(Default)]
struct Draft {
    settings: Settings,
    item_size_given: bool,
    tcp_port_given: bool,
    protocol_given: bool,
    /// Names of the `-o ssl_*` options that were given.
    ssl_given: Vec<&'static str>,
}

impl Draft {
    /// The settings of the store, of which one was given.
    fn store(&mut self) -> &mut StoreSettings {
        self.settings.store.get_or_insert_default()
    }

    /// The settings of replication, of which one was given.
    fn replication(&mut self) -> &mut ReplicationSettings {
        self.store().replication.get_or_insert_default()
    }

    /// What a site needs, and what cannot be had with one.
    fn settle_replication(&self) -> Result<(), Refusal> {
        let refuse = |error: &str| Err(Refusal::new(EXIT_USAGE, format!("larderd: {error}")));
        let Some(store) = &self.settings.store else { return Ok(()) };
        let Some(replication) = &store.replication else { return Ok(()) };
        let ReplicationSettings { site, listen, peers, peers_file, token_file, .. } = replication;
        let has_peers = !peers.is_empty() || peers_file.is_some();
        if *site == 0 {
            return refuse("--peer, --peers-file and those that begin with --replication- need --site");
        }
        if (listen.is_some() || has_peers) && token_file.is_none() {
            return refuse("--replication-listen, --peer and --peers-file need --replication-token-file");
        }
        if !peers.is_empty() && peers_file.is_some() {
            return refuse("--peer and --peers-file cannot be combined: the file has all peers");
        }
        if peers.len() > PEERS_MAX {
            return refuse("--peer can be given up to 7 times");
        }
        let tls = &self.settings.tls;
        if listen.is_some_and(|address| !address.ip().is_loopback()) && !tls.is_enabled {
            return refuse(
                "--replication-listen: other machines may see only what TLS encrypts: it needs -Z, or an address of \
                 the loopback interface",
            );
        }
        if tls.is_enabled && has_peers && tls.ca_file.is_none() {
            return refuse(
                "--peer and --peers-file with -Z need -o ssl_ca_cert=<file>, to check the peer's certificate",
            );
        }
        if self.settings.drop_privileges {
            return refuse("--site and -o drop_privileges cannot be combined: a site connects to others");
        }
        Ok(())
    }

    /// Options of the store without a store, and what cannot be had with one.
    fn settle_store(&mut self) -> Result<(), Refusal> {
        let refuse = |error: &str| Err(Refusal::new(EXIT_USAGE, format!("larderd: {error}")));
        if self.settings.keep == Some(Keep::Warm) && self.settings.memory_file.is_none() {
            return refuse("--keep=warm needs a file, -e FILE");
        }
        match &self.settings.store {
            None if self.settings.keep == Some(Keep::Store) => refuse("--keep=store needs --store"),
            Some(store) if store.directory.as_os_str().is_empty() => refuse(
                "--durability, --sync-interval, --backup-dir, --backup-token-file, --site, --peer, --peers-file and \
                 those that begin with --store- or --replication- need --store",
            ),
            Some(_) if !self.settings.cas => {
                refuse("--store and -C cannot be combined: versions are CAS values")
            }
            Some(_) if !self.settings.evict => {
                refuse("--store and -M cannot be combined: memory is a cache of the store")
            }
            _ => Ok(()),
        }
    }

    /// The checks that need all options.
    fn finish(mut self) -> Result<Settings, Refusal> {
        self.settle_login()?;
        self.settle_http()?;
        self.settle_store()?;
        self.settle_replication()?;
        self.settle_tls()?;
        let mut settings = self.settings;
        if settings.udp_port != Port::Off && !self.tcp_port_given {
            settings.tcp_port = settings.udp_port;
        }
        // memcached also checks its default size, so it cannot start with -m 1. Here only a given size is checked.
        if self.item_size_given && u64::from(settings.item_bytes_max) > settings.memory_bytes / 2 {
            return Err(Refusal::new(
                EXIT_USAGE,
                "Cannot set item size limit higher than 1/2 of memory max.",
            ));
        }
        if settings.tls.is_enabled && settings.unix_socket.is_none() && settings.tcp_port == Port::Off {
            return Err(Refusal::new(EXIT_USAGE, "ERROR: You cannot enable SSL without a TCP port."));
        }
        settings.tls.check()?;
        let accepted = &settings.accepted;
        if accepted.hot_lru_pct + accepted.warm_lru_pct > 80 {
            return Err(Refusal::new(
                EXIT_FAILURE,
                "hot_lru_pct + warm_lru_pct cannot be more than 80% combined",
            ));
        }
        if accepted.temporary_ttl.is_some() && !accepted.lru_maintainer {
            return Err(Refusal::new(EXIT_USAGE, "temporary_ttl requires lru_maintainer to be enabled"));
        }
        Ok(settings)
    }

    /// Refuses options that would not protect clients although they were given for that.
    fn settle_tls(&self) -> Result<(), Refusal> {
        let refuse = |message: String| Err(Refusal::new(EXIT_USAGE, message));
        let Settings { tls, admin_peers, listen, http, udp_port, .. } = &self.settings;
        if let Some(name) = self.ssl_given.first().filter(|_| !tls.is_enabled) {
            return refuse(format!("larderd: -o {name} needs -Z: without it clients are served without TLS"));
        }
        let asks_no_certificate = tls.verify_mode == 0 && !self.ssl_given.contains(&"ssl_verify_mode");
        let has_other_use = !admin_peers.is_empty()
            || self.settings.has_site()
            || listen.iter().any(|entry| listeners::needs_certificate(entry));
        if tls.ca_file.is_some() && asks_no_certificate && !has_other_use {
            return refuse(
                "larderd: -o ssl_ca_cert has no effect without ssl_verify_mode: 2 requires certificates of clients, \
                 0 says that none are wanted"
                    .to_owned(),
            );
        }
        if tls.client_certificates() == ClientCertificates::Required {
            if *udp_port != Port::Off {
                return refuse(
                    "larderd: nobody can show a certificate over UDP (-U 0 to disable)".to_owned(),
                );
            }
            let is_tcp = |entry: &String| !entry.starts_with('/');
            if http.listen.iter().any(is_tcp) && !http.tls && http.token_file.is_none() {
                return refuse(
                    "larderd: --http-listen would let in clients without a certificate (ssl_verify_mode): it needs \
                     --http-tls or --http-token-file"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }

    /// HTTP has no logins but the token, and no certificates but those of `-Z`.
    fn settle_http(&self) -> Result<(), Refusal> {
        let Settings { admin, http, tls, .. } = &self.settings;
        for (option, needs_tls) in [("--admin-tls", admin.tls), ("--http-tls", http.tls)] {
            if needs_tls && !tls.is_enabled {
                let message = format!("larderd: {option} has no certificates without -Z");
                return Err(Refusal::new(EXIT_USAGE, message));
            }
        }
        let needs_login = self.settings.login_dialect().is_some();
        if needs_login && !http.listen.is_empty() && http.token_file.is_none() {
            let message = "larderd: --http-listen would let in clients without a login (-Y, -S): \
                           it needs --http-token-file";
            return Err(Refusal::new(EXIT_USAGE, message));
        }
        Ok(())
    }

    /// If clients have to log in, they must use the one dialect that has a login, on every listener.
    fn settle_login(&mut self) -> Result<(), Refusal> {
        let settings = &mut self.settings;
        let Some(dialect) = settings.login_dialect() else { return Ok(()) };
        let (protocol_conflict, udp_conflict) = match dialect {
            Dialect::Text => (
                "ERROR: You cannot allow the BINARY protocol while using ascii authentication tokens.",
                "Cannot use UDP with ascii authentication enabled (-U 0 to disable)",
            ),
            Dialect::Binary | Dialect::Http => (
                "ERROR: You cannot allow the ASCII protocol while using SASL.",
                "ERROR: Cannot enable UDP while using binary SASL authentication.",
            ),
        };
        if settings.auth_file.is_some() && settings.sasl {
            return Err(Refusal::new(EXIT_USAGE, "larderd: -Y and -S exclude each other"));
        }
        if self.protocol_given && settings.dialect != Some(dialect) {
            return Err(Refusal::new(EXIT_USAGE, protocol_conflict));
        }
        if settings.udp_port != Port::Off {
            // UDP has no login, so it would bypass the password.
            return Err(Refusal::new(EXIT_USAGE, udp_conflict));
        }
        settings.dialect = Some(dialect);
        Ok(())
    }
}

/// Reads a decimal number, or refuses with `message`.
fn number<T: std::str::FromStr>(value: &str, exit_code: u8, message: &str) -> Result<T, Refusal> {
    value.trim().parse().map_err(|_| Refusal::new(exit_code, message))
}

/// Reads a decimal number within bounds, or refuses with `message`.
fn number_in<T>(value: &str, bounds: impl std::ops::RangeBounds<T>, message: &str) -> Result<T, Refusal>
where
    T: std::str::FromStr + PartialOrd,
{
    let number = number(value, EXIT_FAILURE, message)?;
    if bounds.contains(&number) { Ok(number) } else { Err(Refusal::new(EXIT_FAILURE, message)) }
}

/// Reads a port: 0 is none, -1 one that the system assigns.
fn port(value: &str) -> Result<Port, Refusal> {
    match value.trim().parse::<i64>() {
        Ok(-1) => Ok(Port::Ephemeral),
        Ok(0) => Ok(Port::Off),
        number => number
            .ok()
            .and_then(|number| u16::try_from(number).ok())
            .map(Port::Fixed)
            .ok_or_else(|| Refusal::new(EXIT_USAGE, format!("ERROR: Invalid port number {value}."))),
    }
}

fn text(value: OsString) -> Result<String, Refusal> {
    value.into_string().map_err(|value| {
        Refusal::new(EXIT_FAILURE, format!("larderd: not UTF-8: {}", value.to_string_lossy()))
    })
}

fn unreadable(error: lexopt::Error) -> Refusal {
    Refusal::new(EXIT_FAILURE, format!("larderd: {error}"))
}

/// Makes a path absolute: the working directory changes when the server goes to the background.
fn absolute(path: &str) -> Result<PathBuf, Refusal> {
    std::path::absolute(path)
        .map_err(|error| Refusal::new(EXIT_FAILURE, format!("larderd: file {path}: {error}")))
}
