//! Lists of servers that are looked up.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout_at};

use super::socket::Socket;
use super::{AsyncClient, Settings};
use crate::discovery::{BadConfig, ClusterConfig, Discovery, servers_at, srv_servers};
use crate::{Address, Error, Servers};

/// A list of servers that is looked up again and again: [`AsyncClient::watch_servers`]. Dropping it ends that.
#[derive(Debug)]
#[must_use = "the list is watched until this is dropped"]
pub struct ServerWatch {
    task: JoinHandle<()>,
    failure: Arc<Mutex<Option<String>>>,
}

impl AsyncClient {
    /// Looks the list of servers up, and sets it ([`AsyncClient::set_servers`]). The list stays as it is if that fails,
    /// or finds no server.
    ///
    /// ```no_run
    /// use larder_client::AsyncClient;
    /// use larder_client::discovery::Discovery;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = AsyncClient::builder().build();
    /// client.discover(&Discovery::Dns { host: "memcached.default.svc".into(), port: 11211 }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Discovery`], [`Error::Timeout`], those of a connection, and those of [`AsyncClient::set_servers`].
    pub async fn discover(&self, source: &Discovery) -> Result<(), Error> {
        let found = look_up(source, &self.shared.settings, self.deadline()).await?;
        self.set_servers(&Servers(found.servers))
    }

    /// Looks the list of servers up at once and then every `interval`, in the background, until the watch or the last
    /// handle of the client is dropped. What cannot be looked up is tried again after the interval; the list stays as
    /// it is meanwhile. A configuration of a cluster that is older than the last one is a failure.
    pub fn watch_servers(&self, source: Discovery, interval: Duration) -> ServerWatch {
        let failure = Arc::new(Mutex::new(None));
        let shared = Arc::downgrade(&self.shared);
        let (timeout, told) = (self.timeout, Arc::clone(&failure));
        let task = tokio::spawn(async move {
            let mut version = 0;
            while let Some(shared) = shared.upgrade() {
                let client = Self { shared, timeout };
                let result = client.follow(&source, &mut version).await;
                *told.lock().unwrap_or_else(PoisonError::into_inner) =
                    result.err().map(|error| error.to_string());
                drop(client);
                sleep(interval.max(INTERVAL_MIN)).await;
            }
        });
        ServerWatch { task, failure }
    }

    async fn follow(&self, source: &Discovery, version: &mut u64) -> Result<(), Error> {
        let found = look_up(source, &self.shared.settings, self.deadline()).await?;
        if found.version < *version {
            // Told, since a cluster that was made anew begins again: it needs a new watch.
            return Err(Error::Discovery(format!("version {} is older than {version}", found.version)));
        }
        *version = found.version;
        self.set_servers(&Servers(found.servers))
    }
}

impl ServerWatch {
    /// Why the last look-up failed. `None`: it has not, or the first is not over.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ServerWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn look_up(source: &Discovery, settings: &Settings, deadline: Instant) -> Result<ClusterConfig, Error> {
    let found = timeout_at(deadline, async {
        match source {
            Discovery::Dns { host, port } => addresses(host, *port).await,
            Discovery::Srv { name, name_server } => srv(name.clone(), *name_server, deadline).await,
            Discovery::Cluster(address) => cluster(address, settings).await,
        }
    });
    found.await.unwrap_or(Err(Error::Timeout))
}

async fn addresses(host: &str, port: u16) -> Result<ClusterConfig, Error> {
    let found = lookup_host((host, port)).await.map(Iterator::collect);
    Ok(ClusterConfig { version: 0, servers: servers_at(host, port, found)? })
}

async fn srv(
    name: String,
    name_server: Option<SocketAddr>,
    deadline: Instant,
) -> Result<ClusterConfig, Error> {
    let look_up = move || srv_servers(&name, name_server, Some(deadline.into_std()));
    let servers = spawn_blocking(look_up).await.map_err(|error| Error::Discovery(error.to_string()))??;
    Ok(ClusterConfig { version: 0, servers })
}

async fn cluster(address: &Address, settings: &Settings) -> Result<ClusterConfig, Error> {
    match ask(address, settings, ClusterConfig::REQUEST).await? {
        // Servers before 1.4.14.
        Err(BadConfig::Refused(_)) => ask(address, settings, ClusterConfig::OLD_REQUEST).await?,
        config => config,
    }
    .map_err(|bad| Error::Discovery(format!("{address}: {bad}")))
}

/// On a connection of its own.
async fn ask(
    address: &Address,
    settings: &Settings,
    request: &[u8],
) -> Result<Result<ClusterConfig, BadConfig>, Error> {
    let mut socket = Socket::open(address, settings).await.map_err(|end| end.error())?;
    socket.send(request).await.map_err(|end| end.error())?;
    let mut reply = Vec::new();
    loop {
        socket.receive(&mut reply).await.map_err(|end| end.error())?;
        match ClusterConfig::parse(&reply) {
            Ok(None) => {}
            Ok(Some(config)) => return Ok(Ok(config)),
            Err(bad) => return Ok(Err(bad)),
        }
    }
}

/// More often no source is asked.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
