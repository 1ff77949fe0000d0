//! What a thread holds of the namespaces: a handle of each engine, and the policies as it last read them.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use larder_engine::{Engine, Handle, Now};
use larder_policy::{Durability, Keep, Table};

use super::{Guards, NamespaceCounters, Namespaces};

/// A thread's access to all engines.
pub struct Handles {
    default: Handle,
    /// Of namespace 1 and so on.
    others: Vec<Handle>,
    view: Option<View>,
}

/// The policies as a worker last read them, and its counters.
pub(crate) struct View {
    pub(super) table: Arc<Table>,
    pub(super) version: u32,
    /// Some namespace is not for all users.
    pub(super) limits_users: bool,
    /// By number: replies that depend on its items wait until these are durable.
    pub(super) syncs: u64,
    pub(super) counters: Arc<[NamespaceCounters]>,
    pub(super) engines: Box<[Arc<Engine>]>,
}

impl Namespaces {
    /// Handles for worker number `worker`. `None`: one of the engines has none left.
    pub fn handles_of(&self, worker: usize) -> Option<Handles> {
        let counters = self.named.as_ref().and_then(|named| named.counters.get(worker).map(Arc::clone));
        self.handles_that_count(counters)
    }

    /// Handles that know the policies, for who executes commands and is no worker: what it does in the namespaces is
    /// not counted. `None`: one of the engines has none left.
    pub(crate) fn handles_apart(&self) -> Option<Handles> {
        self.handles_that_count(Some(self.engines.iter().map(|_| NamespaceCounters::default()).collect()))
    }

    fn handles_that_count(&self, counters: Option<Arc<[NamespaceCounters]>>) -> Option<Handles> {
        let mut handles = self.handles()?;
        handles.view = self.named.as_ref().zip(counters).map(|(named, counters)| View {
            table: Arc::clone(&named.lock_table()),
            // Read again before the first request.
            version: 0,
            limits_users: false,
            syncs: 0,
            counters,
            engines: self.engines.clone(),
        });
        handles.refresh(self);
        Some(handles)
    }

    /// Handles for work that needs no policies. `None`: one of the engines has none left.
    pub(crate) fn handles(&self) -> Option<Handles> {
        let others = self.engines[1..].iter().map(Engine::handle).collect::<Option<_>>()?;
        Some(Handles { default: self.engines[0].handle()?, others, view: None })
    }
}

impl Handles {
    /// Reads the policies again if they have changed. For each round.
    #[inline(always)]
    pub(crate) fn refresh(&mut self, namespaces: &Namespaces) {
        if self.view.is_some() {
            self.refresh_view(namespaces);
        }
    }

    #[inline(never)]
    fn refresh_view(&mut self, namespaces: &Namespaces) {
        let (Some(view), Some(named)) = (&mut self.view, &namespaces.named) else { return };
        let version = named.version.load(Acquire);
        if version != view.version {
            view.table = Arc::clone(&named.lock_table());
            view.version = version;
            view.limits_users =
                view.table.numbers().any(|number| view.table.policy(number).users.are_limited());
            let is_sync = |number: &u8| {
                let policy = view.table.policy(*number);
                policy.keep == Keep::Store
                    && policy.durability.unwrap_or(named.durability) == Durability::Sync
            };
            view.syncs = view.table.numbers().filter(is_sync).fold(0, |syncs, number| syncs | 1 << number);
        }
    }

    /// Pins the default's engine, and the others as they are needed.
    pub fn pin(&mut self, now: Now) -> Guards<'_> {
        Guards::new(&mut self.default, &mut self.others, self.view.as_ref(), now)
    }

    /// The handle of a namespace's engine. `None`: there is no such namespace.
    pub(crate) fn handle_mut(&mut self, number: u8) -> Option<&mut Handle> {
        match usize::from(number).checked_sub(1) {
            None => Some(&mut self.default),
            Some(at) => self.others.get_mut(at),
        }
    }

    /// Passes segments that others may need on, before a time without guards.
    pub fn release(&mut self) {
        let release = |handle: &mut Handle| {
            if handle.is_holding() {
                handle.release();
            }
        };
        release(&mut self.default);
        self.others.iter_mut().for_each(release);
    }

    /// True if evictions are recorded: by all handles, or by none.
    pub(crate) fn record_evictions(&self) -> bool {
        self.default.records_evictions()
    }

    /// The handles, by the numbers of the namespaces.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Handle> {
        iter::once(&mut self.default).chain(&mut self.others)
    }
}
