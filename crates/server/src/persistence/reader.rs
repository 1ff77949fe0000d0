//! One that looks keys up in the store. A thread of the server, or a part of a simulation, calls it again and again.

use std::io;
use std::sync::Arc;

use super::Persistence;
use super::fetch::Fetching;
use crate::conn::waiter::Waiter;
use crate::namespaces::Handles;
use crate::shared::Shared;

/// Looks keys up in the store, for one parked request after the other.
pub struct Reader {
    shared: Arc<Shared>,
    handles: Handles,
    /// Its number among the readers, for its meter.
    number: usize,
    /// What it has begun.
    fetching: Option<Arc<Fetching>>,
}

impl Reader {
    /// Reader number `number`. Errors: no engine handle is left.
    pub fn new(shared: &Arc<Shared>, number: usize) -> io::Result<Self> {
        let handles = shared.namespaces.handles().ok_or_else(|| io::Error::other("no engine handle left"))?;
        Ok(Self { shared: Arc::clone(shared), handles, number, fetching: None })
    }

    /// Takes the look-ups that have waited longest, unless it has begun some already. False: there are none.
    pub fn begin(&mut self) -> bool {
        if self.fetching.is_none() {
            self.fetching = self.persistence().and_then(|persistence| persistence.fetches.try_next());
        }
        self.fetching.is_some()
    }

    /// Finishes the look-up that it has begun. Returns the connection to wake; `None`: nothing was begun, or memory has
    /// no room for it now.
    pub fn finish(&mut self) -> Option<Waiter> {
        let fetching = self.fetching.take()?;
        let persistence = self.shared.persistence.as_ref();
        let Some((persistence, store)) = persistence.and_then(|all| Some((all, all.store()?))) else {
            return Some(fetching.waiter());
        };
        let meter = persistence.meters.reader(self.number);
        let clock = &self.shared.clock;
        let is_done = persistence.fetches.serve(&fetching, &**store, clock, &mut self.handles, meter);
        self.handles.release();
        if !is_done {
            persistence.fetches.defer(fetching);
            return None;
        }
        Some(fetching.waiter())
    }

    /// Serves until the server stops. `signal` wakes the one who waits.
    pub(super) fn run(mut self, signal: impl Fn(Waiter)) {
        while let Some(fetching) = self.persistence().and_then(|persistence| persistence.fetches.next()) {
            self.fetching = Some(fetching);
            self.finish().into_iter().for_each(&signal);
        }
    }

    fn persistence(&self) -> Option<&Persistence> {
        self.shared.persistence.as_ref()
    }
}
