//! How a client is to be.

use std::time::Duration;

use super::{Client, Node};
use crate::codec::Protocol;
use crate::ring::Ring;
use crate::{Distribution, Login, Server, Servers, Tls};

/// Says how a [`Client`] is to be.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    servers: Vec<Server>,
    distribution: Distribution,
    settings: Settings,
}

/// How to reach any server.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub protocol: Protocol,
    pub timeout: Option<Duration>,
    pub connect_timeout: Option<Duration>,
    pub tls: Option<Tls>,
    pub login: Option<Login>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            protocol: Protocol::Text,
            timeout: Some(Duration::from_secs(5)),
            connect_timeout: Some(Duration::from_secs(4)),
            tls: None,
            login: None,
        }
    }
}

impl Builder {
    /// One more server.
    #[must_use]
    pub fn server(mut self, server: impl Into<Server>) -> Self {
        self.servers.push(server.into());
        self
    }

    /// More servers.
    #[must_use]
    pub fn servers(mut self, servers: Servers) -> Self {
        self.servers.extend(servers.0);
        self
    }

    /// How keys are spread over the servers: [`Distribution::Modula`], unless said otherwise.
    #[must_use]
    pub fn distribution(mut self, distribution: Distribution) -> Self {
        self.distribution = distribution;
        self
    }

    /// What is spoken: [`Protocol::Text`], unless said otherwise.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.settings.protocol = protocol;
        self
    }

    /// How long a request may take, from sending it to the last byte of its answer: 5 seconds, unless said otherwise.
    /// `None`: any time.
    #[must_use]
    pub fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// How long connecting may take, and each step of a TLS handshake: 4 seconds, unless said otherwise. `None`: as
    /// long as the system tries.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Speak TLS.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.settings.tls = Some(tls);
        self
    }

    /// Log in on every connection.
    #[must_use]
    pub fn login(mut self, login: Login) -> Self {
        self.settings.login = Some(login);
        self
    }

    /// The client. It connects when it first has to.
    pub fn build(self) -> Client {
        Client {
            ring: Ring::new(&self.servers, self.distribution),
            nodes: self.servers.into_iter().map(|server| Node { server, idle: None }).collect(),
            settings: self.settings,
        }
    }
}
