//! Which server is asked, and what is learned of it.

use std::time::Instant;

use super::Client;
use crate::Error;
use crate::codec::{Event, Pipeline};
use crate::policy::{FailurePolicy, Route, ServerState, is_failure};

impl Client {
    /// Whether requests go to each server, in order, and how it failed: see [`crate::policy`].
    pub fn server_states(&self) -> Vec<ServerState> {
        self.router.snapshot()
    }

    /// [`Client::ask`] of the server of a key, or of the next ones if the policy says so: a read, or a change of which
    /// nothing was sent. Nothing that a server has sent before it failed becomes a part of the result.
    pub(super) fn ask_server_of<R: Default>(
        &mut self,
        key: &[u8],
        is_read: bool,
        request: impl Fn(&mut Pipeline<()>, &mut Vec<u8>),
        gather: impl Fn(&mut R, &Event<'_, ()>),
    ) -> Result<R, Error> {
        let mut failed = Vec::new();
        let mut last = None;
        self.probe();
        loop {
            let node = match self.node_of(key, &failed) {
                Ok(node) => node,
                Err(error) => return Err(last.unwrap_or(error)),
            };
            match self.ask(node, &request, &gather) {
                Err(error) if self.may_move(&error, is_read) => {
                    failed.push(node);
                    last = Some(error);
                }
                asked => return asked,
            }
        }
    }

    /// The server that is to be asked for a key, which is checked first, after these have failed.
    pub(super) fn node_of(&self, key: &[u8], failed: &[usize]) -> Result<usize, Error> {
        self.check(key)?;
        match self.router.route(key, failed) {
            Route::Server(node) => Ok(node),
            Route::Ejected(node) => Err(Error::Ejected(self.nodes[node].server.address.clone())),
            Route::Nowhere => Err(Error::NoServers),
        }
    }

    /// Notes how a request went.
    pub(super) fn noted<T>(&self, node: usize, asked: Result<T, Error>) -> Result<T, Error> {
        self.router.told(node, asked.as_ref().map(|_| ()));
        asked
    }

    /// True if such an error of a read is no error.
    pub(super) fn hides(&self, error: &Error) -> bool {
        self.router.policy().hides(error)
    }

    pub(super) fn may_move(&self, error: &Error, is_read: bool) -> bool {
        let is_safe = is_read || matches!(error, Error::Connect(_));
        self.router.policy() == FailurePolicy::Failover && is_safe && is_failure(error)
    }

    /// Finds out whether a server is back: one for a request, which waits for that.
    pub(super) fn probe(&mut self) {
        if let Some(node) = self.router.claim_probe(Instant::now()) {
            let asked = self.connection(node).and_then(|mut connection| {
                connection.send(|pipeline, output| pipeline.version(output, ()))?;
                connection.receive(|_| {})?;
                Ok(connection)
            });
            self.router.probed(node, asked.is_ok(), Instant::now());
            self.nodes[node].idle = asked.ok();
        }
    }
}
