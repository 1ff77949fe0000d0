//! The sockets of clients and operators: bound as the command line says, or passed by the process that started us.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;

use larder_protocol::Dialect;

use crate::net::listeners::{self, Listener};
use crate::startup::options::{EXIT_FAILURE, EXIT_OS_ERROR, Refusal};
use crate::startup::privileges::Target;
use crate::startup::protection;
use crate::startup::settings::Settings;
use crate::startup::systemd::Sockets;
use crate::web::Web;
use crate::{net::udp, observe::trace, startup::exposure};

/// Sockets that listen, before anything serves them.
pub struct Endpoints {
    /// For clients.
    pub listeners: Vec<Listener>,
    /// By worker.
    pub udp: Vec<Vec<udp::Socket>>,
    /// For operators.
    pub web: Option<Web>,
    /// Listener for other sites. Nonblocking.
    pub replication: Option<TcpListener>,
}

impl Endpoints {
    /// Takes the passed sockets, or else binds those of the settings. The settings then describe the passed ones. Unix
    /// sockets have no names yet: [`Endpoints::take_names`]. Errors: exit code 71, 64.
    pub fn open(settings: &mut Settings) -> Result<Self, Refusal> {
        let passed = Sockets::take(settings)?;
        let (mut listeners, udp) = if passed.serve_clients() {
            passed.describe(settings);
            (passed.listeners, udp::share(passed.udp, settings.threads))
        } else {
            (listeners::bind(settings)?, udp::bind(settings)?)
        };
        listeners.extend(listeners::bind_http_items(settings)?);
        let web = Web::bind(settings, passed.admin)?;
        let endpoints = Self { listeners, udp, web, replication: bind_replication(settings)? };
        protection::check(settings, &endpoints)?;
        Ok(endpoints)
    }

    /// The number of their descriptors.
    pub fn descriptors(&self) -> usize {
        let udp = self.udp.iter().map(Vec::len).sum::<usize>();
        self.listeners.len() + udp + self.web.as_ref().map_or(0, Web::descriptors)
    }

    /// Names the Unix sockets, for a server that will run as `user`, and writes the port file, if there is one. Call it
    /// after every lock has been taken and every limit checked: a server that cannot serve must not take names from one
    /// that does. Errors: exit code 71, 1.
    pub fn take_names(
        &self,
        settings: &Settings,
        user: Option<&Target>,
        port_file: Option<&Path>,
    ) -> Result<(), Refusal> {
        self.listeners
            .iter()
            .chain(self.admin())
            .try_for_each(|listener| listener.take_name(settings, user))?;
        port_file.map_or(Ok(()), |path| self.write_port_file(path, user))
    }

    fn write_port_file(&self, path: &Path, user: Option<&Target>) -> Result<(), Refusal> {
        listeners::write_port_file(path, &self.listeners, &self.datagram_addresses(), self.admin(), user)
            .map_err(|error| Refusal::new(EXIT_FAILURE, format!("Failed to write the port file: {error}")))
    }

    /// Logs them, and warns of those that are open to everybody.
    pub fn announce(&self, settings: &Settings, needs_login: bool) {
        let is_verbose = settings.journal.is_verbose(settings.verbosity);
        for listener in &self.listeners {
            let (address, tls) = (&listener.address, listener.tls.is_some());
            match listener.dialect {
                Some(Dialect::Http) => tracing::info!(%address, tls, "listening for HTTP"),
                _ => tracing::info!(%address, tls, "listening"),
            }
            if is_verbose {
                trace::listening(listener.fd.as_raw_fd(), listener.dialect);
            }
        }
        let datagrams = self.datagram_addresses();
        for address in &datagrams {
            tracing::info!(%address, "listening for datagrams");
        }
        if is_verbose {
            let sockets = self.udp.iter().flatten();
            sockets.for_each(|socket| trace::listening_for_datagrams(socket.as_fd().as_raw_fd()));
        }
        for listener in self.admin() {
            tracing::info!(address = %listener.address, tls = settings.admin.tls, "listening for admin HTTP");
        }
        let warnings = exposure::warnings(&self.listeners, &datagrams, needs_login);
        let http = exposure::http_warnings(&self.listeners, settings);
        let admin = exposure::admin_warnings(self.admin(), settings);
        let backups = exposure::backup_warnings(self.admin(), settings);
        let warnings = warnings.into_iter().chain(http).chain(admin).chain(backups);
        let unix = exposure::unix_warning(&self.listeners, settings).map(str::to_owned);
        let warnings = warnings.chain(unix);
        for warning in warnings.chain(exposure::certificate_warnings(&self.listeners, &settings.tls)) {
            tracing::warn!("{warning}");
        }
    }

    /// The addresses for clients, in one line.
    pub fn addresses(&self) -> String {
        let streams = self.listeners.iter().map(|listener| listener.address.to_string());
        let datagrams = self.datagram_addresses().into_iter().map(|address| format!("udp:{address}"));
        streams.chain(datagrams).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn admin(&self) -> &[Listener] {
        self.web.as_ref().map_or(&[], Web::listeners)
    }

    /// Each address once: several workers may have sockets of one address.
    fn datagram_addresses(&self) -> Vec<SocketAddr> {
        let mut addresses = Vec::new();
        for address in self.udp.iter().flatten().map(udp::Socket::address) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
    }
}

/// Binds `--replication-listen`. Errors: exit code 71.
fn bind_replication(settings: &Settings) -> Result<Option<TcpListener>, Refusal> {
    let replication = settings.store.as_ref().and_then(|store| store.replication.as_ref());
    let Some(address) = replication.and_then(|replication| replication.listen) else { return Ok(None) };
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok::<_, io::Error>(Some(listener))
    });
    bound.map_err(|error| {
        Refusal::new(EXIT_OS_ERROR, format!("failed to start: --replication-listen {address}: {error}"))
    })
}
