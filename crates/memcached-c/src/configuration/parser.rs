//! What a configuration string says.

use std::ffi::CString;

use larder_client::address::DEFAULT_PORT;

use super::load;
use super::tls::TlsOptions;
use super::token::{Kind, Scanner, Token};
use crate::abi::{ConfigureSt, Flag, Memc, Return};
use crate::core::Distribution;
use crate::face::behaviors::{self, Behavior};
use crate::face::{callbacks, clients, fail, number, servers, session};

/// Applies a configuration string, but for its options of TLS, which go to `tls`. `depth`: how many files have
/// included the one that it is in.
pub(super) fn parse(memc: &Memc, string: &[u8], depth: u32, tls: &mut TlsOptions) -> Return {
    let scanner = Scanner::new(string);
    let mut parser = Parser { memc, depth, scanner, previous: None, has_hash: false, tls };
    match parser.statements() {
        Ok(()) => Return::SUCCESS,
        Err(text) => fail(memc, Return::PARSE_ERROR, &text),
    }
}

/// A file that includes itself ends here.
const DEPTH_MAX: u32 = 16;

struct Parser<'a> {
    memc: &'a Memc,
    depth: u32,
    scanner: Scanner<'a>,
    /// The last word that is not a name, a number or a mark.
    previous: Option<Token<'a>>,
    has_hash: bool,
    tls: &'a mut TlsOptions,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Token<'a> {
        let token = self.scanner.next();
        // Names of hash functions and distributions are not remembered.
        if token.kind == Kind::Word && !(305..=316).contains(&token.number) {
            self.previous = Some(token);
        }
        token
    }

    fn statements(&mut self) -> Result<(), String> {
        let mut next = self.next();
        loop {
            match (next.kind, next.name) {
                (Kind::Word, "END") => return Ok(()),
                _ => next = self.statement(next)?,
            }
            match (next.kind, next.text) {
                (Kind::End, _) => return Ok(()),
                (Kind::Mark, b" ") => next = self.next(),
                _ => return Err(self.unexpected(next, "end of file or ' '")),
            }
        }
    }

    /// Takes a statement that begins with this word. Returns the word after it.
    fn statement(&mut self, first: Token<'a>) -> Result<Token<'a>, String> {
        match (first.kind, first.name) {
            (Kind::Comment, _) | (Kind::Word, "PARSER_DEBUG" | "USER_DATA") => {}
            (Kind::Tls, _) => self.tls.take(first.text)?,
            (Kind::Word, "CSL_ERROR") => return Err("ERROR called directly".into()),
            (Kind::Word, "RESET") => {
                *self.tls = TlsOptions::default();
                if clients::reset(self.memc).is_failure() {
                    return Err(String::new());
                }
            }
            (Kind::Word, "INCLUDE") => {
                let space = self.next();
                if space.text != b" " {
                    return Err(self.unexpected(space, "' '"));
                }
                let file = self.string()?;
                let is_loaded =
                    self.depth < DEPTH_MAX && load(self.memc, &file, self.depth + 1, self.tls).is_success();
                if !is_loaded {
                    return Err("Failed to parse configuration file".into());
                }
            }
            (Kind::Word, "SERVER") => return self.server(),
            (Kind::Word, "CSL_SOCKET") => return self.socket(),
            (Kind::Word, "CONFIGURE_FILE") => {
                let file = self.string()?;
                if let Some((mut session, _)) = session(self.memc) {
                    session.core.configuration_file = Some(file);
                }
            }
            (Kind::Word, name @ ("POOL_MIN" | "POOL_MAX")) => {
                let number = self.number()? as u32;
                if let Some(settings) = self.memc.settings() {
                    let old = settings.configure.get();
                    settings.configure.set(match name {
                        "POOL_MIN" => ConfigureSt { initial_pool_size: number, ..old },
                        _ => ConfigureSt { max_pool_size: number, ..old },
                    });
                }
            }
            (Kind::Word, "NAMESPACE") => {
                let namespace = self.string()?;
                if self.memc.read(|core| core.namespace.is_some()).unwrap_or(false) {
                    return Err("--NAMESPACE can only be called once".into());
                }
                if callbacks::set_namespace(self.memc, Some(namespace.as_bytes())).is_failure() {
                    return Err(self.last_message());
                }
            }
            (Kind::Word, "FETCH_VERSION") => {
                if let Some(settings) = self.memc.settings() {
                    let mut flags = settings.flags.get();
                    flags.set(Flag::IsFetchingVersion, true);
                    settings.flags.set(flags);
                }
            }
            (Kind::Word, "DISTRIBUTION") => return self.distribution(),
            (Kind::Word, "HASH") => {
                let hash = self.hash()?;
                let is_set = behaviors::set(self.memc, Behavior::HASH, hash.into()).is_success();
                if self.has_hash || !is_set {
                    return Err("--HASH can only be set once".into());
                }
                self.has_hash = true;
            }
            (Kind::Word, name) => match behavior(name) {
                Some((behavior, true)) => {
                    let number = self.number()?;
                    if behaviors::set(self.memc, behavior, number).is_failure() {
                        return Err("Unable to set behavior".into());
                    }
                }
                Some((behavior, false)) => {
                    if behaviors::set(self.memc, behavior, 1).is_failure() {
                        let name = behavior.name_with_nul().trim_end_matches('\0');
                        return Err(format!("Could not set: {name}"));
                    }
                }
                None => return Err(self.unexpected(first, "")),
            },
            _ => return Err(self.unexpected(first, "")),
        }
        Ok(self.next())
    }

    fn server(&mut self) -> Result<Token<'a>, String> {
        self.scanner.expects_host = true;
        let host = self.next();
        if !matches!(host.kind, Kind::IpAddress | Kind::HostName) {
            return Err(self.unexpected(host, "IPADDRESS or HOSTNAME"));
        }
        let mut next = self.next();
        let mut port = u32::from(DEFAULT_PORT);
        if next.kind == Kind::Port {
            port = number(&next.text[1..]) as u32;
            next = self.next();
        }
        let (weight, next) = self.weight(next);
        self.scanner.expects_host = false;
        if servers::add_named(self.memc, host.text, port as u16, weight).is_failure() {
            let host = String::from_utf8_lossy(host.text);
            return Err(format!("Failed to add server: {host}:{port}"));
        }
        Ok(next)
    }

    fn socket(&mut self) -> Result<Token<'a>, String> {
        let path = self.string()?;
        let next = self.next();
        let (weight, next) = self.weight(next);
        if servers::add_path(self.memc, path.as_bytes(), weight).is_failure() {
            return Err(format!("Failed to add socket: {}", path.to_string_lossy()));
        }
        Ok(next)
    }

    /// The weight that this word is, or 1, and the word after it.
    fn weight(&mut self, next: Token<'a>) -> (u32, Token<'a>) {
        match next.kind {
            Kind::Weight => (number(&next.text[2..]) as u32, self.next()),
            _ => (1, next),
        }
    }

    fn distribution(&mut self) -> Result<Token<'a>, String> {
        let name = self.next();
        let distribution = match name.name {
            "CONSISTENT" => Distribution::CONSISTENT,
            "MODULA" => Distribution::MODULA,
            "RANDOM" => Distribution::RANDOM,
            _ => return Err(self.unexpected(name, "CONSISTENT or MODULA or RANDOM")),
        };
        behaviors::set_distribution(self.memc, distribution);
        let next = self.next();
        if next.text != b"," {
            return Ok(next);
        }
        let hash = self.hash()?;
        if behaviors::set(self.memc, Behavior::KETAMA_HASH, hash.into()).is_failure() {
            return Err("Unable to set the hash for the DISTRIBUTION requested".into());
        }
        Ok(self.next())
    }

    fn hash(&mut self) -> Result<u32, String> {
        let name = self.next();
        // The order of the tokens is that of the hash functions.
        match name.kind == Kind::Word && (305..=313).contains(&name.number) {
            true => Ok(name.number - 304),
            false => Err(self.unexpected(name, "")),
        }
    }

    fn string(&mut self) -> Result<CString, String> {
        let token = self.next();
        match token.kind {
            Kind::String | Kind::QuotedString => Ok(CString::new(token.text).unwrap_or_default()),
            _ => Err(self.unexpected(token, "STRING or QUOTED_STRING")),
        }
    }

    fn number(&mut self) -> Result<u64, String> {
        let token = self.next();
        match token.kind {
            Kind::Number => Ok(number(token.text)),
            _ => Err(self.unexpected(token, "NUMBER")),
        }
    }

    /// In libmemcached's words.
    fn unexpected(&self, token: Token<'_>, expected: &str) -> String {
        let expecting = if expected.is_empty() { String::new() } else { format!(", expecting {expected}") };
        let shown = if token.kind == Kind::End { "end of file" } else { token.name };
        let last = match (token.kind, self.previous) {
            (Kind::Unknown, Some(previous)) => previous,
            _ => token,
        };
        format!(
            "Error occured during parsing (syntax error, unexpected {shown}{expecting}): last_token={}({})",
            last.name, last.number
        )
    }

    fn last_message(&self) -> String {
        let message =
            self.memc.read(|core| core.errors.message().map(|text| text.to_string_lossy().into_owned()));
        message.flatten().unwrap_or_default()
    }
}

/// The behavior that a word sets, and whether it has a number.
fn behavior(name: &str) -> Option<(Behavior, bool)> {
    Some(match name {
        "REMOVE_FAILED_SERVERS" => (Behavior::REMOVE_FAILED_SERVERS, true),
        "CONNECT_TIMEOUT" => (Behavior::CONNECT_TIMEOUT, true),
        "IO_MSG_WATERMARK" => (Behavior::IO_MSG_WATERMARK, true),
        "IO_BYTES_WATERMARK" => (Behavior::IO_BYTES_WATERMARK, true),
        "IO_KEY_PREFETCH" => (Behavior::IO_KEY_PREFETCH, true),
        "NUMBER_OF_REPLICAS" => (Behavior::NUMBER_OF_REPLICAS, true),
        "POLL_TIMEOUT" => (Behavior::POLL_TIMEOUT, true),
        "RCV_TIMEOUT" => (Behavior::RCV_TIMEOUT, true),
        "RETRY_TIMEOUT" => (Behavior::RETRY_TIMEOUT, true),
        "SND_TIMEOUT" => (Behavior::SND_TIMEOUT, true),
        "SOCKET_RECV_SIZE" => (Behavior::SOCKET_RECV_SIZE, true),
        "SOCKET_SEND_SIZE" => (Behavior::SOCKET_SEND_SIZE, true),
        "BINARY_PROTOCOL" => (Behavior::BINARY_PROTOCOL, false),
        "BUFFER_REQUESTS" => (Behavior::BUFFER_REQUESTS, false),
        "HASH_WITH_NAMESPACE" => (Behavior::HASH_WITH_PREFIX_KEY, false),
        "NOREPLY" => (Behavior::NOREPLY, false),
        "RANDOMIZE_REPLICA_READ" => (Behavior::RANDOMIZE_REPLICA_READ, false),
        "SORT_HOSTS" => (Behavior::SORT_HOSTS, false),
        "SUPPORT_CAS" => (Behavior::SUPPORT_CAS, false),
        "_TCP_NODELAY" => (Behavior::TCP_NODELAY, false),
        "_TCP_KEEPALIVE" => (Behavior::TCP_KEEPALIVE, false),
        "_TCP_KEEPIDLE" => (Behavior::TCP_KEEPIDLE, false),
        "USE_UDP" => (Behavior::USE_UDP, false),
        "VERIFY_KEY" => (Behavior::VERIFY_KEY, false),
        _ => return None,
    })
}
