//! Options that select servers and protocol, for every tool that uses servers.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;
use std::{env, fs};

use clap::ValueEnum;
use larder_client::client::ByServer;
use larder_client::{Address, Client, Distribution, Error, Login, Server, Servers, Tls, codec};

use crate::Failure;
use crate::admin::BYTE_ORDER_MARK;
use crate::troubles::Troubles;

// Not a comment of the field: brackets would be links there.
const SERVERS_HELP: &str = "HOST[:PORT[:WEIGHT]], [IPV6]:PORT or the path of a unix socket, with commas between \
                            [default: MEMCACHED_SERVERS, or else 127.0.0.1:11211]";
/// A default and not an `env` of the option: that would be as if it were given, and conflict with a server named as an
/// argument.
static DEFAULT_SERVERS: LazyLock<String> =
    LazyLock::new(|| env::var("MEMCACHED_SERVERS").unwrap_or_else(|_| "127.0.0.1:11211".to_owned()));

/// Whom to ask, and how.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Servers")]
pub(crate) struct Target {
    #[arg(short, long, default_value = DEFAULT_SERVERS.as_str(), hide_default_value = true)]
    #[arg(value_name = "LIST", help = SERVERS_HELP)]
    servers: Servers,
    /// How keys are distributed over the servers, as in libmemcached
    #[arg(long, value_enum, default_value_t)]
    distribution: Spread,
    /// The protocol
    #[arg(long, value_enum, default_value_t)]
    protocol: Dialect,
    /// Limit for connecting, and for each reply
    #[arg(long, value_name = "SECS", default_value_t = 5.0, value_parser = seconds)]
    timeout: f64,
    /// Log in as this user (ASCII authentication; with --protocol binary SASL PLAIN)
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// The file whose first line is the password
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// Use TLS; without --tls-ca any certificate is accepted
    #[arg(long)]
    tls: bool,
    /// Trust the certificates of this PEM file only (implies --tls)
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Present the certificate of this PEM file (implies --tls)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The name that the server's certificate must have, instead of its address (implies --tls)
    #[arg(long, value_name = "NAME")]
    tls_name: Option<String>,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Spread {
    #[default]
    Modula,
    Ketama,
    KetamaWeighted,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dialect {
    #[default]
    Text,
    Meta,
    Binary,
}

impl Target {
    /// The same target with other servers, if any are given as words of the command line.
    pub(crate) fn or(&self, list: Option<&str>) -> Result<Self, Failure> {
        let Some(list) = list else { return Ok(self.clone()) };
        let servers = list.parse::<Servers>().map_err(|wrong| Failure::Usage(wrong.to_string()))?;
        Ok(Self { servers, ..self.clone() })
    }

    /// The same target with another protocol.
    pub(crate) fn speaking(&self, protocol: Dialect) -> Self {
        Self { protocol, ..self.clone() }
    }

    pub(crate) fn servers(&self) -> Result<&[Server], Failure> {
        match &self.servers.0[..] {
            [] => Err(Failure::Usage("no server: name one with --servers or MEMCACHED_SERVERS".into())),
            servers => Ok(servers),
        }
    }

    /// The server, if exactly one is needed.
    pub(crate) fn only_server(&self) -> Result<&Address, Failure> {
        match self.servers()? {
            [server] => Ok(&server.address),
            _ => Err(Failure::Usage("this needs exactly one server".into())),
        }
    }

    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.client_of(self.servers()?)
    }

    /// A client of these servers only.
    pub(crate) fn client_of(&self, servers: &[Server]) -> Result<Client, Failure> {
        let distribution = match self.distribution {
            Spread::Modula => Distribution::Modula,
            Spread::Ketama => Distribution::Ketama,
            Spread::KetamaWeighted => Distribution::KetamaWeighted,
        };
        let mut builder = Client::builder()
            .servers(Servers(servers.to_vec()))
            .distribution(distribution)
            .protocol(self.protocol())
            .timeout(Some(self.timeout()))
            .connect_timeout(Some(self.timeout()))
            // Tools copy what is there.
            .value_bytes_max(usize::MAX);
        if let Some(tls) = self.tls()? {
            builder = builder.tls(tls);
        }
        if let Some(login) = self.login()? {
            builder = builder.login(login);
        }
        Ok(builder.build())
    }

    pub(crate) fn protocol(&self) -> codec::Protocol {
        match self.protocol {
            Dialect::Text => codec::Protocol::Text,
            Dialect::Meta => codec::Protocol::Meta,
            Dialect::Binary => codec::Protocol::Binary,
        }
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout)
    }

    pub(crate) fn tls(&self) -> Result<Option<Tls>, Failure> {
        let wants_tls =
            self.tls || self.tls_ca.is_some() || self.tls_cert.is_some() || self.tls_name.is_some();
        if !wants_tls {
            return Ok(None);
        }
        let tls = || {
            let mut builder = match &self.tls_ca {
                Some(file) => Tls::trusting(file)?,
                None => Tls::accepting_anything()?,
            };
            if let Some(name) = &self.tls_name {
                builder = builder.server_name(name)?;
            }
            match (&self.tls_cert, &self.tls_key) {
                (Some(certificate), Some(key)) => builder.with_certificate(certificate, key),
                _ => Ok(builder.anonymous()),
            }
        };
        tls().map(Some).map_err(|error| Failure::Usage(error.to_string()))
    }

    pub(crate) fn login(&self) -> Result<Option<Login>, Failure> {
        let (Some(user), Some(file)) = (&self.user, &self.password_file) else { return Ok(None) };
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
        let text = text.trim_start_matches(BYTE_ORDER_MARK);
        let password = text.lines().next().unwrap_or_default().to_owned();
        Ok(Some(Login { user: user.clone(), password }))
    }
}

/// A failure of a request for a key, with the name of its server.
pub(crate) fn failure_about(client: &Client, key: &str, error: &Error) -> Failure {
    match client.server_of(key.as_bytes()) {
        Some(server) => Failure::of(format_args!("{}: {key}", server.address), error),
        None => Failure::of(key, error),
    }
}

/// Passes each server's reply to `each`. Fails if a server or `each` failed, but only after all replies have been
/// passed on.
pub(crate) fn answers<T>(
    tool: &'static str,
    said: ByServer<T>,
    mut each: impl FnMut(&Address, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut troubles = Troubles::of(tool);
    for (address, answer) in said {
        let answer = answer.map_err(|error| Failure::of(&address, &error));
        if let Err(failure) = answer.and_then(|answer| each(&address, answer)) {
            troubles.add(failure);
        }
    }
    troubles.end()
}

/// A positive, finite number of seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let secs: f64 = text.parse().map_err(|_| "a number of seconds".to_owned())?;
    if (0.001..=86_400.0).contains(&secs) { Ok(secs) } else { Err("0.001 to 86400 seconds".to_owned()) }
}
