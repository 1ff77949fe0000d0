//! Events of requests for observers: watchers, `stats detail` and the verbose log. Nothing here runs without an
//! observer ([`crate::observe::observer_flags`]).

use larder_engine::{Guard, Item, Miss};
use larder_protocol::admin::Streams;
use larder_protocol::command::{self, Command};
use larder_protocol::{Form, Key, Reply};

use crate::exec::Executor;
use crate::exec::store_access::Intent;
use crate::namespaces::Prepared;
use crate::observe::prefixes::Operation;
use crate::observe::trace;
use crate::observe::watch::Event;

/// The item that a command found under its key before it ran.
#[derive(Clone, Copy)]
pub(crate) struct Before<'t> {
    found: Result<Item<'t>, Miss>,
    class: usize,
}

impl<'t> Executor<'_, '_, '_, 't> {
    /// Looks up the item before a command runs.
    #[cold]
    pub(crate) fn look_before(
        &mut self,
        command: &Command<'_>,
        prepared: Option<Prepared<'t>>,
    ) -> Option<Before<'t>> {
        if !self.cx.shared.observers.wants(Streams::FETCHERS.and(Streams::DELETIONS)) {
            return None;
        }
        let guards = self.guards;
        let key = key_of(command)?.bytes(&mut self.key_buffer);
        let place = guards.place(key, prepared);
        let peek = |guard: &'t Guard<'t>| guard.peek(key, place.hash).map(|fetched| fetched.item);
        // Items on disk count as found, too. If that takes a disk read, the command itself has to wait, and is looked
        // at when it runs again.
        let Ok(found) = self.store.operate(&place, key, Intent::Read, peek) else {
            self.store.take_wanted();
            return None;
        };
        if let Err(miss) = found
            && !matches!(command, Command::Store(_) | Command::Peek(_))
        {
            // This look-up removed an expired item, so the command itself would count no expiry.
            self.count_miss(miss);
        }
        let class = found.map_or(0, |item| item.queue() + 1);
        Some(Before { found, class })
    }

    /// Reports a command that ran.
    #[cold]
    pub(crate) fn observe(
        &mut self,
        command: &Command<'_>,
        form: &Form<'_>,
        before: Option<Before<'t>>,
        reply: &Reply<'t, Item<'t>>,
    ) {
        let (guards, shared) = (self.guards, self.cx.shared);
        // memcached does not log statistics.
        if shared.observers.is_verbose() && !matches!(reply, Reply::End) {
            trace::reply(self.cx.client.fd, form, reply);
        }
        let Some(key) = key_of(command) else { return };
        let key = key.bytes(&mut self.key_buffer);
        if let Some(before) = before {
            self.cx.tell(&Event::Lookup {
                key,
                status: status(before.found.map(|_| ())),
                class: before.class,
                client: self.cx.client,
                value_bytes: before.found.map_or(0, |item| item.value().len()),
            });
        }
        if shared.observers.counts_prefixes() && !matches!(form, Form::Meta(_)) {
            let operation = match command {
                Command::Store(_) => Some(Operation::Set),
                Command::Delete(_) => Some(Operation::Delete),
                Command::Fetch(_) => Some(Operation::Get { is_hit: matches!(reply, Reply::Fetched(..)) }),
                _ => None,
            };
            if let Some(operation) = operation {
                shared.prefixes.count(self.cx.worker, guards.number(key), key, operation);
            }
        }
        match (command, reply) {
            (Command::Store(store), _) if shared.observers.wants(Streams::MUTATIONS) => {
                let place = guards.place(key, None);
                let stored = place.guard.peek(key, place.hash).ok().map(|fetched| fetched.item);
                let stored = stored.filter(|_| matches!(reply, Reply::Stored { .. }));
                let expiry =
                    stored.map_or_else(|| place.expiry(&shared.clock, store.exptime), |item| item.expiry());
                let engine = shared.namespaces.engine(guards.number(key));
                let is_large = store.value_bytes >= engine.large_value_bytes();
                self.cx.tell(&Event::Store {
                    key,
                    status: store_status(reply),
                    command: store_name(store),
                    ttl_secs: match shared.clock.secs_of(expiry) {
                        None => 0,
                        Some(at) if at <= guards.now().secs => -1,
                        Some(at) => (at - guards.now().secs).into(),
                    },
                    class: stored.map_or(if is_large { 3 } else { 1 }, |item| item.queue() + 1),
                    client: self.cx.client,
                    value_bytes: match reply {
                        Reply::Stored { value_bytes, .. } => *value_bytes,
                        _ => store.value_bytes,
                    },
                });
            }
            (Command::Delete(_), Reply::Deleted) if !matches!(form, Form::Binary(_)) => {
                let Some(Before { found: Ok(item), class }) = before else { return };
                self.cx.tell(&Event::Deletion {
                    key,
                    command: if matches!(form, Form::Meta(_)) { "md" } else { "delete" },
                    class,
                    value_bytes: item.value().len(),
                });
            }
            _ => {}
        }
    }

    /// Reports a look-up by get or a similar command.
    #[cold]
    pub(crate) fn observe_get(&self, key: &[u8], found: Result<Item<'t>, Miss>) {
        let shared = self.cx.shared;
        self.cx.tell(&Event::Lookup {
            key,
            status: status(found.map(|_| ())),
            class: found.map_or(0, |item| item.queue() + 1),
            client: self.cx.client,
            value_bytes: found.map_or(0, |item| item.value().len()),
        });
        if shared.observers.counts_prefixes() {
            let operation = Operation::Get { is_hit: found.is_ok() };
            shared.prefixes.count(self.cx.worker, self.guards.number(key), key, operation);
        }
        if found.is_ok() && shared.observers.is_verbose() {
            trace::hit(self.cx.client.fd, key);
        }
    }
}

fn key_of<'a>(command: &Command<'a>) -> Option<Key<'a>> {
    match command {
        Command::Fetch(fetch) => Some(fetch.key),
        Command::Peek(key) => Some(*key),
        Command::Store(store) => Some(store.key),
        Command::Delete(delete) => Some(delete.key),
        Command::Invalidate(invalidate) => Some(invalidate.key),
        Command::Touch(touch) => Some(touch.key),
        Command::Arith(arith) => Some(arith.key),
        _ => None,
    }
}

fn status(found: Result<(), Miss>) -> &'static str {
    match found {
        Ok(()) => "found",
        Err(Miss::Absent) => "not_found",
        Err(Miss::Expired) => "expired",
        Err(Miss::Flushed) => "flushed",
    }
}

fn store_status<V>(reply: &Reply<'_, V>) -> &'static str {
    match reply {
        Reply::Stored { .. } => "stored",
        Reply::Exists => "exists",
        Reply::NotFound => "not_found",
        Reply::Error(larder_protocol::Error::TooLarge) => "too_large",
        Reply::Error(
            larder_protocol::Error::ReadOnly
            | larder_protocol::Error::Maintenance
            | larder_protocol::Error::StoreFull
            | larder_protocol::Error::StoreReadOnly
            | larder_protocol::Error::StoreFailed
            | larder_protocol::Error::NotForUser,
        ) => "not_stored",
        Reply::Error(_) => "no_memory",
        _ => "not_stored",
    }
}

fn store_name(store: &command::Store<'_>) -> &'static str {
    match store.mode {
        _ if store.compare.is_some() => "cas",
        command::Mode::Set => "set",
        command::Mode::Add => "add",
        command::Mode::Replace => "replace",
        command::Mode::Append => "append",
        command::Mode::Prepend => "prepend",
    }
}
