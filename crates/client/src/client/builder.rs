//! Settings of a client.

use std::time::Duration;

use larder_protocol::command::VALUE_BYTES_MAX;

use super::{Client, Node};
use crate::codec::Protocol;
use crate::policy::{CircuitBreaker, FailurePolicy, Router};
use crate::{Distribution, Login, Placement, Server, Servers, Tls};

/// Builds a [`Client`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    servers: Vec<Server>,
    placement: Placement,
    policy: FailurePolicy,
    breaker: Option<CircuitBreaker>,
    settings: Settings,
}

/// Settings for all servers.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub protocol: Protocol,
    pub timeout: Option<Duration>,
    pub connect_timeout: Option<Duration>,
    pub value_bytes_max: usize,
    pub tls: Option<Tls>,
    pub login: Option<Login>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            protocol: Protocol::Text,
            timeout: Some(Duration::from_secs(5)),
            connect_timeout: Some(Duration::from_secs(4)),
            value_bytes_max: 64 << 20,
            tls: None,
            login: None,
        }
    }
}

impl Builder {
    /// Adds a server.
    #[must_use]
    pub fn server(mut self, server: impl Into<Server>) -> Self {
        self.servers.push(server.into());
        self
    }

    /// Adds servers.
    #[must_use]
    pub fn servers(mut self, servers: Servers) -> Self {
        self.servers.extend(servers.0);
        self
    }

    /// Sets how keys are distributed over the servers. Default: [`Distribution::Modula`].
    #[must_use]
    pub fn distribution(self, distribution: Distribution) -> Self {
        self.placement(distribution)
    }

    /// Sets how keys are placed, as [another client](crate::placement) places them. It sets the distribution as well.
    #[must_use]
    pub fn placement(mut self, placement: impl Into<Placement>) -> Self {
        self.placement = placement.into();
        self
    }

    /// Sets what becomes of requests while their server is away. Default: [`FailurePolicy::Error`]. With any other a
    /// server that fails is ejected for a while, as [`Builder::circuit_breaker`] says. Each server that is tried has
    /// the whole time of [`Builder::timeout`].
    #[must_use]
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets when a server is ejected, and for how long, so that one that is away does not cost each request its time.
    /// Default: [`CircuitBreaker::default`] with a [failure policy](Builder::failure_policy), and none without. The
    /// probe is the request `version`, before the request during which it is due.
    #[must_use]
    pub fn circuit_breaker(mut self, breaker: CircuitBreaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// Sets the protocol. Default: [`Protocol::Text`].
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.settings.protocol = protocol;
        self
    }

    /// Limits the time of a request, from sending it to the last byte of its reply. A login has as much, and so has
    /// each batch of keys of [`Client::multi_get`], which connects to one server after the other and then waits for
    /// them together. Default: 5 seconds. `None`: no limit. A wait may end an eighth of what is left too late, so that
    /// not each costs system calls.
    #[must_use]
    pub fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Limits the time for connecting to each address of a server, and that of a TLS handshake. The look-up of its name
    /// has the system's limit, and a login that of [`Builder::timeout`]. Default: 4 seconds. `None`: the system's
    /// limit.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Limits the size of a value that is sent or accepted. Default: 64 MiB.
    #[must_use]
    pub fn value_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.value_bytes_max = bytes.min(VALUE_BYTES_MAX as usize);
        self
    }

    /// Enables TLS.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.settings.tls = Some(tls);
        self
    }

    /// Sets a login for every connection.
    #[must_use]
    pub fn login(mut self, login: Login) -> Self {
        self.settings.login = Some(login);
        self
    }

    /// Builds the client. It connects at the first request.
    pub fn build(self) -> Client {
        let breaker = self.policy.breaker(self.breaker);
        Client {
            router: Router::new(&self.servers, self.placement, self.policy, breaker),
            nodes: self.servers.into_iter().map(|server| Node { server, idle: None }).collect(),
            settings: self.settings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::KeyHash;

    #[test]
    fn a_client_places_keys_as_it_is_told() {
        let servers: Servers = "a,b,c,d,e,f,g,h".parse().expect("servers");
        let builder = Client::builder().servers(servers).distribution(Distribution::Ketama);
        let placed = builder.placement(Placement::from(Distribution::Modula).hash(KeyHash::Crc)).build();
        // CRC-32 of `123456789` is 0xCBF43926, of which 0x4BF4 is hashed: 4 modulo 8.
        let server = placed.server_of("123456789").expect("there are servers");
        assert_eq!(server.address.to_string(), "e:11211");
    }
}
