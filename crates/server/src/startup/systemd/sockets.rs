//! Sockets that were opened before we started: sd_listen_fds(3). Clients can connect while larderd restarts, and
//! larderd needs no right to bind.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use listenfd::ListenFd;

use crate::net::listeners::{Address, Listener};
use crate::net::tls::ClientCertificates;
use crate::net::udp;
use crate::startup::options::{EXIT_OS_ERROR, EXIT_USAGE, Refusal};
use crate::startup::settings::{Port, Settings};

/// The passed sockets.
#[derive(Default)]
pub struct Sockets {
    /// For clients.
    pub listeners: Vec<Listener>,
    /// UDP, for clients as well.
    pub udp: Vec<udp::Socket>,
    /// Those with `FileDescriptorName=admin`, for HTTP.
    pub admin: Vec<Listener>,
}

impl Sockets {
    /// Takes the passed sockets; usually there are none. Call it once, while there is one thread. Errors: a socket that
    /// cannot be served, exit code 71; UDP where clients have to log in, exit code 64.
    pub fn take(settings: &Settings) -> Result<Self, Refusal> {
        let mut passed = ListenFd::from_env();
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut sockets = Self::default();
        for index in 0..passed.len() {
            let is_admin = names.next() == Some(ADMIN);
            let refuse = |reason: &dyn std::fmt::Display| {
                Refusal::new(EXIT_OS_ERROR, format!("larderd: socket {index} that was passed: {reason}"))
            };
            let Some(fd) = stream(&mut passed, index) else {
                let socket = passed.take_udp_socket(index).ok().flatten();
                let socket = socket.ok_or_else(|| refuse(&"neither TCP, UDP, nor a Unix stream socket"))?;
                if settings.login_dialect().is_some() {
                    let message = "larderd: nobody can log in over UDP: leave its socket out";
                    return Err(Refusal::new(EXIT_USAGE, message));
                }
                if settings.tls.client_certificates() == ClientCertificates::Required {
                    let message = "larderd: nobody can show a certificate over UDP: leave its socket out";
                    return Err(Refusal::new(EXIT_USAGE, message));
                }
                sockets
                    .udp
                    .push(udp::Socket::passed(socket.into(), settings.dialect).map_err(|e| refuse(&e))?);
                continue;
            };
            let listener = Listener::passed(fd, settings).map_err(|error| refuse(&error))?;
            if is_admin { &mut sockets.admin } else { &mut sockets.listeners }.push(listener);
        }
        sockets.warn_of_options(settings);
        Ok(sockets)
    }

    /// True if they replace `-l` and `-p`.
    pub fn serve_clients(&self) -> bool {
        !self.listeners.is_empty() || !self.udp.is_empty()
    }

    /// Makes the settings describe the passed sockets instead of the given options, for `stats settings`.
    pub(crate) fn describe(&self, settings: &mut Settings) {
        let tcp = self.listeners.iter().filter_map(|listener| match &listener.address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        });
        let port_of = |address: Option<SocketAddr>| address.map_or(Port::Off, |a| Port::Fixed(a.port()));
        settings.tcp_port = port_of(tcp.clone().next());
        settings.udp_port = port_of(self.udp.first().map(udp::Socket::address));
        settings.listen = tcp.map(|address| address.to_string()).collect();
        settings.unix_socket = self.listeners.iter().find_map(|listener| match &listener.address {
            Address::Unix(path) => Some(path.clone()),
            Address::Tcp(_) => None,
        });
    }

    fn warn_of_options(&self, settings: &Settings) {
        let default = Settings::default();
        let names = [
            ("-l", !settings.listen.is_empty()),
            ("-p", settings.tcp_port != default.tcp_port),
            ("-U", settings.udp_port != default.udp_port),
            ("-s", settings.unix_socket.is_some()),
        ];
        let without_effect: Vec<_> =
            names.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name).collect();
        if self.serve_clients() && !without_effect.is_empty() {
            let options = without_effect.join(" ");
            tracing::warn!(options, "without effect: the sockets are those that were passed by LISTEN_FDS");
        }
    }
}

fn stream(passed: &mut ListenFd, index: usize) -> Option<OwnedFd> {
    let tcp = passed.take_tcp_listener(index).ok().flatten().map(OwnedFd::from);
    let fd = tcp.or_else(|| passed.take_unix_listener(index).ok().flatten().map(OwnedFd::from))?;
    // inetd passes a connection, which cannot accept anything.
    let is_listening = rustix::net::sockopt::socket_acceptconn(fd.as_fd());
    is_listening.is_ok_and(|is_listening| is_listening).then_some(fd)
}

const ADMIN: &str = "admin";
