//! A server, and its connections.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::{Instant, timeout_at};

use super::builder::Settings;
use super::connection::Connection;
use super::driver::drive;
use super::end::End;
use super::reply::{Failure, Reply};
use super::request::Request;
use super::share::Delivery;
use crate::error::Interruption;
use crate::policy::is_failure;
use crate::{Address, Error};

/// A server, and its connections.
#[derive(Debug)]
pub(super) struct Pool {
    pub address: Address,
    settings: Arc<Settings>,
    connections: Mutex<Vec<Arc<Connection>>>,
}

impl Pool {
    pub(super) fn new(address: Address, settings: Arc<Settings>) -> Self {
        Self { address, settings, connections: Mutex::default() }
    }

    /// Sends a request on one of the connections, once, and waits for the reply.
    pub(super) async fn ask(
        &self,
        request: &Arc<Request>,
        is_quiet: bool,
        values: Option<Delivery>,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let connection = self.connection();
        let permits = match connection.permits_now(request) {
            Some(permits) => Some(permits),
            // Those that have the room tell what is wrong with the server.
            None => timeout_at(deadline, connection.permits(request))
                .await
                .map_err(|_| Failure::new(Error::Timeout, false))?,
        };
        let had_time = Instant::now() < deadline;
        let pending =
            permits.and_then(|permits| connection.submit(Arc::clone(request), is_quiet, values, permits));
        let asked = match pending {
            Some(pending) => pending.wait(deadline).await,
            None => Err(Failure::new(connection.end_error(), false)),
        };
        asked.map_err(|mut failure| {
            failure.counts = match &failure.error {
                // A full connection is not read, whatever the server has sent.
                Error::Timeout => had_time && !connection.is_full(),
                error => is_failure(error) && connection.count_end(),
            };
            failure
        })
    }

    /// The connection with the fewest requests; a new one if all are busy and there may be more.
    fn connection(&self) -> Arc<Connection> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.has_ended());
        let idlest = connections.iter().min_by_key(|connection| connection.load());
        let may_open = connections.len() < self.settings.connections_max;
        if let Some(idlest) = idlest.filter(|idlest| idlest.load() == 0 || !may_open) {
            return Arc::clone(idlest);
        }
        let connection = Arc::new(Connection::new(self.settings.limits));
        connections.push(Arc::clone(&connection));
        let address = self.address.clone();
        tokio::spawn(drive(Arc::clone(&connection), address, Arc::clone(&self.settings)));
        connection
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let connections = self.connections.get_mut().unwrap_or_else(PoisonError::into_inner);
        for connection in connections.drain(..) {
            connection.end(End::Interrupted(Interruption::ClientDropped));
        }
    }
}
