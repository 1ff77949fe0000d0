//! Listeners: binds the TCP addresses or the Unix socket of the command line.

mod entry;
mod unix;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use larder_protocol::Dialect;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

pub(crate) use self::entry::{ListenSpec, host_and_port, listen_specs, needs_certificate};
use self::entry::{TlsPrefix, listen_spec};
use crate::access::{Hosts, ListenerAccess};
use crate::conn::client;
use crate::net::tls::ClientCertificates;
use crate::startup::daemon;
use crate::startup::options::{EXIT_OS_ERROR, EXIT_USAGE, Refusal};
use crate::startup::privileges::{self, Target};
use crate::startup::settings::{Port, Settings};

/// A socket that clients connect to. Nonblocking.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub fd: OwnedFd,
    /// What it listens on.
    pub address: Address,
    /// The dialect of its clients. `None`: their first byte tells.
    pub dialect: Option<Dialect>,
    /// Whether it asks clients for certificates. `None`: it does not speak TLS.
    pub tls: Option<ClientCertificates>,
    /// Over HTTP: the hosts that requests may be for.
    pub hosts: Hosts,
    /// It was opened by another process, which set its owner.
    pub is_passed: bool,
}

impl Listener {
    /// A listener that another process opened. Its clients follow the options that apply to all listeners. Errors: the
    /// system knows no address of it.
    pub(crate) fn passed(fd: OwnedFd, settings: &Settings) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let bound = rustix::net::getsockname(&fd)?;
        let address = match SocketAddr::try_from(bound.clone()) {
            Ok(address) => {
                accept_eagerly(&fd)?;
                Address::Tcp(address)
            }
            Err(_) => Address::Unix(unix_name(&SocketAddrUnix::try_from(bound)?)),
        };
        let has_tls = settings.tls.is_enabled && matches!(address, Address::Tcp(_));
        let tls = has_tls.then(|| settings.tls.client_certificates());
        Ok(Self { fd, address, dialect: settings.dialect, tls, hosts: Hosts::Any, is_passed: true })
    }

    /// Creates the listener of a Unix socket, which does not take its name yet. Errors: exit code 71.
    fn unnamed(path: &Path, dialect: Option<Dialect>) -> Result<Self, Refusal> {
        let fd = unix::unnamed().map_err(|error| refuse_unix(path, &error))?;
        let address = Address::Unix(path.to_owned());
        Ok(Self { fd, address, dialect, tls: None, hosts: Hosts::Any, is_passed: false })
    }

    /// Gives a Unix socket its name, for a server that will run as `user`; other listeners are left alone. Call it
    /// once, when nothing else can fail any more. Errors: exit code 71.
    pub(crate) fn take_name(&self, settings: &Settings, user: Option<&Target>) -> Result<(), Refusal> {
        match &self.address {
            Address::Unix(path) if !self.is_passed => {
                unix::take_name(&self.fd, path, settings, user).map_err(|error| refuse_unix(path, &error))
            }
            _ => Ok(()),
        }
    }
}

/// What a listener listens on.
#[derive(Clone, Debug)]
pub enum Address {
    /// TCP, with the actual port.
    Tcp(SocketAddr),
    /// A Unix socket. Its file stays when the server ends, and the next server replaces it.
    Unix(PathBuf),
}

impl Address {
    /// True if only this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

/// In memcached's notation.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(&client::tcp_name(*address)),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Binds all addresses of the settings. The result may be empty (`-p 0`). Unix sockets have no names yet:
/// [`Listener::take_name`]. Errors: exit code 71.
pub fn bind(settings: &Settings) -> Result<Vec<Listener>, Refusal> {
    if let Some(path) = &settings.unix_socket {
        return Ok(vec![Listener::unnamed(path, settings.dialect)?]);
    }
    let speaking = |tls| move |listener| Listener { tls, ..listener };
    let tls_default = settings.tls.is_enabled.then(|| settings.tls.client_certificates());
    if settings.listen.is_empty() {
        return bind_host("*", settings.tcp_port, settings.dialect, settings.backlog)
            .map(|bound| bound.into_iter().map(speaking(tls_default)).collect())
            .map_err(|error| Refusal::new(EXIT_OS_ERROR, format!("failed to listen on TCP port: {error}")));
    }
    let mut listeners = Vec::new();
    for entry in &settings.listen {
        let refuse = |error: String| {
            Refusal::new(EXIT_OS_ERROR, format!("failed to listen on one of interface(s) {entry}: {error}"))
        };
        let ListenSpec { tls, protocol, host, port } = listen_spec(entry).map_err(refuse)?;
        let tls = match tls {
            None => tls_default,
            Some(_) if !settings.tls.is_enabled => {
                return Err(refuse("notls:, btls: and mtls: are valid only when SSL is enabled".to_owned()));
            }
            Some(TlsPrefix::None) => None,
            Some(TlsPrefix::Basic) => Some(ClientCertificates::Ignored),
            Some(TlsPrefix::Mutual) => Some(ClientCertificates::Required),
        };
        let dialect = protocol.dialect(settings);
        if settings.login_dialect().is_some_and(|needed| dialect != Some(needed)) {
            let message =
                format!("{entry}: clients could not log in by this protocol (-Y: ascii, -S: binary)");
            return Err(Refusal::new(EXIT_USAGE, message));
        }
        let port = port.unwrap_or(settings.tcp_port);
        let bound =
            bind_host(host, port, dialect, settings.backlog).map_err(|error| refuse(error.to_string()))?;
        listeners.extend(bound.into_iter().map(speaking(tls)));
    }
    Ok(listeners)
}

/// Binds the addresses of `--http-listen`. Errors: exit code 71.
pub fn bind_http_items(settings: &Settings) -> Result<Vec<Listener>, Refusal> {
    let bound = bind_http("--http-listen", &settings.http.listen, settings)?;
    let listener = |listener: Listener| {
        let access = ListenerAccess::of(&listener.address, &settings.http, &settings.tls);
        let ListenerAccess { tls, hosts, .. } = access;
        Listener { dialect: Some(Dialect::Http), tls, hosts, ..listener }
    };
    Ok(bound.into_iter().map(listener).collect())
}

/// Binds the addresses of an option for HTTP: `host:port`, or the path of a Unix socket, whose name is not taken yet.
/// Errors: exit code 71.
pub(crate) fn bind_http(
    option: &str,
    entries: &[String],
    settings: &Settings,
) -> Result<Vec<Listener>, Refusal> {
    let mut listeners = Vec::new();
    for entry in entries {
        if entry.starts_with('/') {
            listeners.push(Listener::unnamed(entry.as_ref(), None)?);
            continue;
        }
        let bound = host_and_port(entry).and_then(|(host, port)| {
            let port = port.ok_or("a port is missing")?;
            bind_host(host, port, None, settings.backlog).map_err(|error| error.to_string())
        });
        listeners.extend(
            bound.map_err(|error| {
                Refusal::new(EXIT_OS_ERROR, format!("larderd: {option} {entry}: {error}"))
            })?,
        );
    }
    Ok(listeners)
}

/// Writes one line for each TCP and UDP address to `path`, with the rights of [`privileges::at_path`]. The file appears
/// complete: `TCP INET: <port>`, `TCP INET6: <port>`, the same with UDP, with HTTP for `--http-listen`, and with ADMIN
/// for `--admin-listen`.
///
/// memcached, environment variable MEMCACHED_PORT_FILENAME.
pub fn write_port_file(
    path: &Path,
    listeners: &[Listener],
    udp: &[SocketAddr],
    admin: &[Listener],
    user: Option<&Target>,
) -> io::Result<()> {
    let tcp = |name| {
        move |listener: &Listener| match (&listener.address, listener.dialect) {
            (Address::Tcp(address), Some(Dialect::Http)) => Some(("HTTP", *address)),
            (Address::Tcp(address), _) => Some((name, *address)),
            (Address::Unix(_), _) => None,
        }
    };
    let udp = udp.iter().map(|address| ("UDP", *address));
    let addresses =
        listeners.iter().filter_map(tcp("TCP")).chain(udp).chain(admin.iter().filter_map(tcp("ADMIN")));
    let mut lines = String::new();
    for (transport, address) in addresses {
        let family = if address.is_ipv4() { "INET" } else { "INET6" };
        lines += &format!("{transport} {family}: {}\n", address.port());
    }
    privileges::at_path(user, path, |path, _| daemon::write_whole(path, ".lck", &lines)).map(drop)
}

/// The addresses of a host, with a port. Empty if the port is off.
pub(crate) fn addresses(host: &str, port: Port) -> io::Result<Vec<SocketAddr>> {
    let port = match port {
        Port::Off => return Ok(Vec::new()),
        Port::Fixed(port) => port,
        Port::Ephemeral => 0,
    };
    if host.is_empty() || host == "*" {
        let any = [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
        return Ok(any.map(|ip| (ip, port).into()).to_vec());
    }
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Binds every address of a host. Skips a family that this system does not have, as long as another address could be
/// bound.
pub(crate) fn bind_host(
    host: &str,
    port: Port,
    dialect: Option<Dialect>,
    backlog: i32,
) -> io::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    let mut absent = None;
    for address in addresses(host, port)? {
        match bind_tcp(address, dialect, backlog) {
            Ok(listener) => listeners.push(listener),
            Err(error) if is_absent_family(&error) => absent = Some(error),
            Err(error) => return Err(io::Error::new(error.kind(), format!("{address}: {error}"))),
        }
    }
    match absent {
        Some(error) if listeners.is_empty() => Err(error),
        _ => Ok(listeners),
    }
}

fn bind_tcp(address: SocketAddr, dialect: Option<Dialect>, backlog: i32) -> io::Result<Listener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = stream_socket(family)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    accept_eagerly(&fd)?;
    rustix::net::bind(&fd, &address)?;
    rustix::net::listen(&fd, backlog)?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&fd)?)?;
    Ok(Listener { fd, address: Address::Tcp(bound), dialect, tls: None, hosts: Hosts::Any, is_passed: false })
}

/// Sets options of TCP connections on the listener, from which Linux copies them to those that are accepted.
fn accept_eagerly(fd: &OwnedFd) -> io::Result<()> {
    sockopt::set_socket_keepalive(fd, true)?;
    Ok(sockopt::set_tcp_nodelay(fd, true)?)
}

/// The path of a Unix socket; an abstract name with `@` in front.
fn unix_name(address: &SocketAddrUnix) -> PathBuf {
    let path = address.path_bytes().map(|path| OsStr::from_bytes(path).into());
    path.unwrap_or_else(|| {
        let name = [b"@", address.abstract_name().unwrap_or_default()].concat();
        OsString::from_vec(name).into()
    })
}

fn refuse_unix(path: &Path, error: &io::Error) -> Refusal {
    let message = format!("failed to listen on UNIX socket: {}: {error}", path.display());
    Refusal::new(EXIT_OS_ERROR, message)
}

fn stream_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

pub(crate) fn is_absent_family(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL]
        .map(|errno| Some(errno.raw_os_error()))
        .contains(&error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_may_say_what_it_wants_of_tls() {
        let mut settings = Settings { tcp_port: Port::Ephemeral, ..Settings::default() };
        settings.listen =
            ["", "notls:", "btls:", "mtls:proto[ascii]:"].map(|p| p.to_owned() + "127.0.0.1").into();
        assert_eq!(bind(&settings).expect_err("there is no TLS").exit_code, EXIT_OS_ERROR);
        settings.tls.is_enabled = true;
        settings.tls.verify_mode = 1;
        let listeners = bind(&settings).expect("loopback can be bound");
        let tls: Vec<_> = listeners.iter().map(|listener| listener.tls).collect();
        let (requested, ignored) = (ClientCertificates::Requested, ClientCertificates::Ignored);
        assert_eq!(tls, [Some(requested), None, Some(ignored), Some(ClientCertificates::Required)]);
    }

    #[test]
    fn a_bound_port_is_reported() {
        let settings = Settings {
            tcp_port: Port::Ephemeral,
            listen: vec!["127.0.0.1".to_owned()],
            ..Settings::default()
        };
        let listeners = bind(&settings).expect("loopback can be bound");
        let [Listener { address: Address::Tcp(address), .. }] = &listeners[..] else {
            panic!("{listeners:?}")
        };
        assert_ne!(address.port(), 0);
        let taken = Settings { tcp_port: Port::Fixed(address.port()), ..settings };
        assert_eq!(bind(&taken).expect_err("the port is taken").exit_code, EXIT_OS_ERROR);
    }
}
