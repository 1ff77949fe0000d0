//! Commands that change items: the stores, deletes, touches and numbers.

use larder_engine::{
    Compare, Counted, Deleted, Expiry, FetchError, Guard, Item, Mode, Store, Stored, Upload, WriteError,
};
use larder_measure::Access;
use larder_protocol::{Error, Form, Key, Reply, Request, command};

use super::read::footprint;
use super::store_access::{Intent, StoreAccess, Unanswered};
use super::tell::reads_before;
use super::{Answered, Done, Executor, Refused, Value, ttl_secs};
use crate::clock::Clock;
use crate::conn::waiter::Waiting;
use crate::namespaces::{Place, Prepared, Right};

impl<'t> Executor<'_, '_, '_, 't> {
    /// A plain set, while nobody observes requests.
    #[inline]
    pub(crate) fn set(
        &mut self,
        store: command::Store<'_>,
        prepared: Prepared<'t>,
        value: &[u8],
        form: &Form<'_>,
    ) -> Done {
        match self.guards.only() {
            Some(guard) => self.set_at(store, Place::only(guard, prepared), value, form),
            None => self.set_in_namespace(store, prepared, value, form),
        }
    }

    /// Apart, so that nothing of it is on the path of a set without namespaces.
    #[inline(never)]
    fn set_in_namespace(
        &mut self,
        store: command::Store<'_>,
        prepared: Prepared<'t>,
        value: &[u8],
        form: &Form<'_>,
    ) -> Done {
        self.set_at(store, self.guards.place(store.key.written(), Some(prepared)), value, form)
    }

    #[inline(always)]
    fn set_at(&mut self, store: command::Store<'_>, place: Place<'t>, value: &[u8], form: &Form<'_>) -> Done {
        match self.store_at(store, place, Value::Whole(value)) {
            // A branch of its own: most replies to a store are this one.
            Ok(reply @ Reply::Stored { .. }) => {
                form.encode(&reply, self.out);
                Done::Answered
            }
            Ok(reply) => self.answer(form, &reply),
            Err(done) => done,
        }
    }

    // set, add, replace, append, prepend, cas, ms
    pub(super) fn store(
        &mut self,
        store: command::Store<'_>,
        prepared: Option<Prepared<'t>>,
        value: Value<'_>,
    ) -> Answered<'t> {
        let guards = self.guards;
        let place = guards.place(store.key.bytes(&mut self.key_buffer), prepared);
        self.store_at(store, place, value)
    }

    #[inline(always)] // A caller that passes a plain set drops most of this code.
    fn store_at(
        &mut self,
        store: command::Store<'_>,
        place: Place<'t>,
        mut value: Value<'_>,
    ) -> Answered<'t> {
        let counters = self.cx.counters;
        let Place { guard, hash, hint, .. } = place;
        if let Err(error) = place.admit(self.rights, Right::Write) {
            return Ok(Reply::Error(error));
        }
        if store.cas.is_some() && self.cx.shared.is_replicated(place.number()) {
            return Ok(Reply::Error(Error::OwnVersion));
        }
        if reads_before(&store)
            && StoreAccess::has_home(&place)
            && let Some(answered) = self.store_at_home(store, &place, &mut value)
        {
            return answered;
        }
        let key = store.key.bytes(&mut self.key_buffer);
        let expiry = Expiries::of(&store, &place, &self.cx.shared.clock);
        let cas_is_on = self.cx.shared.settings.cas;
        let intent = Intent::Store { value_bytes: store.value_bytes.into() };
        let stored = match value {
            Value::Whole(value) => {
                let terms = terms(&store, key, value, expiry, cas_is_on);
                if StoreAccess::is_behind(&place) {
                    let mut store = |guard: &'t Guard<'t>| guard.store_hinted(hash, &terms, hint);
                    match self.store.operate_backed(&place, key, intent, &mut store) {
                        Ok(stored) => stored,
                        Err(unanswered) => return unanswered.into_answer(),
                    }
                } else {
                    guard.store_hinted(hash, &terms, hint)
                }
            }
            Value::Uploaded(upload) => {
                let terms = terms(&store, key, &[], expiry, cas_is_on);
                let commit = |guard: &'t Guard<'t>| guard.commit(hash, &terms, upload);
                match self.store.operate(&place, key, intent, commit) {
                    Ok(stored) => stored,
                    Err(unanswered) => return unanswered.into_answer(),
                }
            }
        };
        let reply = match stored {
            Stored::Stored { cas, value_bytes, expiry, is_new } => {
                self.cx.tell_changed(&place, key);
                let (tap, key_hash) = (&self.cx.recorder.tap, hash.bits());
                if place.is_default()
                    && tap.follows(key_hash)
                    && !self.cx.shared.clock.is_past(expiry, guard.now())
                {
                    let item = footprint(key.len(), value_bytes as usize, expiry);
                    tap.tell(Access::Write { key: key_hash, item, is_new });
                }
                let cas = if self.cx.shared.settings.cas { cas } else { 0 };
                Reply::Stored { cas, value_bytes, is_new }
            }
            Stored::NotStored => Reply::NotStored,
            Stored::NotExtended(_) if !store.explains_refusal => Reply::NotStored,
            Stored::NotExtended(WriteError::TooLarge) => {
                return Ok(self.refuse(store, &place, Error::TooLarge));
            }
            Stored::Exists => Reply::Exists,
            Stored::NotFound => Reply::NotFound,
            Stored::TooLarge => return Ok(self.refuse(store, &place, Error::TooLarge)),
            Stored::TryAgain if !self.deadline_passed => return Err(Done::Wait(Waiting::Memory)),
            Stored::TryAgain | Stored::OutOfMemory | Stored::NotExtended(_) => {
                return Ok(self.refuse(store, &place, Error::OutOfMemoryStoring));
            }
        };
        counters.cmd_set.add(1);
        if let Some(namespace) = place.namespace {
            namespace.counters.cmd_set.add(1);
        }
        if store.compare.is_some() {
            match reply {
                Reply::Stored { .. } => counters.cas_hits.add(1),
                Reply::Exists => counters.cas_badval.add(1),
                Reply::NotFound => counters.cas_misses.add(1),
                _ => {}
            }
        }
        Ok(reply)
    }

    /// The answer of the key's home to a store that looks at what is there. `None`: this site is the home.
    #[inline(never)]
    fn store_at_home(
        &mut self,
        store: command::Store<'_>,
        place: &Place<'t>,
        value: &mut Value<'_>,
    ) -> Option<Answered<'t>> {
        if !self.store.is_away(place) {
            return None;
        }
        let command = command::Command::Store(store);
        if let Some(reply) = self.store.take_answer(&command) {
            return Some(Ok(reply.into_reply()));
        }
        // However it was cut into packets.
        let key = store.key.bytes(&mut self.key_buffer);
        let expiry = Expiries::of(&store, place, &self.cx.shared.clock);
        let terms = terms(&store, key, &[], expiry, self.cx.shared.settings.cas);
        if place.guard.admit_value(&terms, store.value_bytes) == Err(WriteError::TooLarge) {
            return Some(self.refuse_unasked(store, place, Error::TooLarge).map_err(Done::Wait));
        }
        let bytes = match value {
            Value::Whole(bytes) => Some(*bytes),
            Value::Uploaded(upload) => upload.as_ref().and_then(|upload| place.guard.uploaded(upload)),
        };
        let Some(bytes) = bytes else {
            return Some(self.refuse_unasked(store, place, Error::OutOfMemoryStoring).map_err(Done::Wait));
        };
        match self.store.ask_home(place, &command, bytes) {
            Ok(reply) => reply.map(|reply| Ok(reply.into_reply())),
            Err(unanswered) => {
                if let (Unanswered::Wait(_), Value::Uploaded(upload)) = (unanswered, value) {
                    // It is on its way: its memory here is of no use any more.
                    **upload = None;
                }
                Some(unanswered.into_answer())
            }
        }
    }

    /// Refuses a store whose value is still to come, where any value of that size would be refused. Errors: with this
    /// reply; or it is to be tried again after this wait.
    pub fn admit_value(&mut self, store: command::Store<'_>) -> Result<(), Refused<'t>> {
        self.admit_change().map_err(|error| Ok(Reply::Error(error)))?;
        let guards = self.guards;
        let key = store.key.bytes(&mut self.key_buffer);
        let place = guards.place(key, None);
        if let Err(error) = place.admit(self.rights, Right::Write) {
            return Err(Ok(Reply::Error(error)));
        }
        let expiry = Expiries::of(&store, &place, &self.cx.shared.clock);
        let terms = terms(&store, key, &[], expiry, self.cx.shared.settings.cas);
        match place.guard.admit_value(&terms, store.value_bytes) {
            Ok(()) => Ok(()),
            Err(WriteError::TooLarge) => Err(self.refuse_unasked(store, &place, Error::TooLarge)),
            Err(WriteError::TryAgain) if !self.deadline_passed => Err(Err(Waiting::Memory)),
            Err(WriteError::TryAgain | WriteError::OutOfMemory) => {
                Err(self.refuse_unasked(store, &place, Error::OutOfMemoryStoring))
            }
        }
    }

    /// Reserves memory in the cache for a value of which a part has arrived. Returns the number of its namespace, too.
    pub fn reserve(&mut self, store: command::Store<'_>) -> Result<(Upload, u8), WriteError> {
        let guards = self.guards;
        let key = store.key.bytes(&mut self.key_buffer);
        let number = guards.number(key);
        let place = guards.place(key, None);
        let expiry = Expiries::of(&store, &place, &self.cx.shared.clock);
        let terms = terms(&store, key, &[], expiry, self.cx.shared.settings.cas);
        place.guard.reserve(&terms, store.value_bytes).map(|upload| (upload, number))
    }

    /// Values of this many bytes and more have memory of their own, under this key.
    pub(crate) fn large_value_bytes(&mut self, key: Key<'_>) -> u32 {
        let number = self.guards.number(key.bytes(&mut self.key_buffer));
        self.cx.shared.namespaces.engine(number).large_value_bytes()
    }

    /// Answers a store whose value ran out of memory while it was arriving.
    pub fn refuse_for_memory(&mut self, request: &Request<'_>) -> Done {
        let command::Command::Store(store) = request.command else { return Done::Answered };
        let reply = match self.refusal_for_memory(store) {
            Ok(reply) => reply,
            Err(waiting) => return Done::Wait(waiting),
        };
        if self.cx.shared.observers.any() {
            self.observe(&request.command, &request.form, None, &reply);
        }
        self.answer(&request.form, &reply)
    }

    /// The reply to a store whose value gets no memory, or what to wait for.
    pub fn refusal_for_memory(&mut self, store: command::Store<'_>) -> Refused<'t> {
        if let Err(error) = self.admit_change() {
            return Ok(Reply::Error(error));
        }
        let guards = self.guards;
        let place = guards.place(store.key.bytes(&mut self.key_buffer), None);
        match place.admit(self.rights, Right::Write) {
            Ok(()) => self.refuse_unasked(store, &place, Error::OutOfMemoryStoring),
            Err(error) => Ok(Reply::Error(error)),
        }
    }

    /// The same as [`refuse`](Self::refuse) where nobody has asked yet whether a change may be made.
    #[cold]
    fn refuse_unasked(&mut self, store: command::Store<'_>, place: &Place<'t>, error: Error) -> Refused<'t> {
        if store.removes_on_refusal && StoreAccess::is_behind(place) {
            match self.store.admit(place.number(), Intent::Remove) {
                Ok(()) => {}
                Err(Unanswered::Wait(waiting)) => return Err(waiting),
                Err(Unanswered::Refused(error)) => return Ok(Reply::Error(error)),
            }
        }
        Ok(self.refuse(store, place, error))
    }

    /// Refuses a store. Removes the old value too where the command asks for that: its owner meant it to be gone.
    #[cold]
    fn refuse(&mut self, store: command::Store<'_>, place: &Place<'t>, error: Error) -> Reply<'t, Item<'t>> {
        let counters = self.cx.counters;
        match error {
            Error::TooLarge => counters.store_too_large.add(1),
            _ => counters.store_no_memory.add(1),
        }
        if let Some(namespace) = place.namespace {
            match error {
                Error::TooLarge => namespace.counters.store_too_large.add(1),
                _ => namespace.counters.store_no_memory.add(1),
            }
        }
        if store.removes_on_refusal {
            // Also where memory has not got it, and a store may have, or another site.
            let key = store.key.bytes(&mut self.key_buffer);
            place.guard.remove(key, place.hash);
            self.cx.tell_gone(place, key);
        }
        Reply::Error(error)
    }

    // delete, md
    pub(super) fn delete(
        &mut self,
        delete: command::Delete<'_>,
        prepared: Option<Prepared<'t>>,
    ) -> Answered<'t> {
        let guards = self.guards;
        let compare = delete.compare.map(|cas| self.comparable(cas));
        let key = delete.key.bytes(&mut self.key_buffer);
        let place = guards.place(key, prepared);
        if let Err(error) = place.admit(self.rights, Right::Write) {
            return Ok(Reply::Error(error));
        }
        let delete = |guard: &'t Guard<'t>| guard.delete(key, place.hash, compare);
        let deleted = match self.store.operate(&place, key, Intent::Remove, delete) {
            Ok(deleted) => deleted,
            // The store has an item that memory has no room for, or that it cannot read, which says enough.
            Err(Unanswered::Refused(Error::OutOfMemoryFetching | Error::StoreUnreadable))
                if compare.is_none() =>
            {
                place.guard.remove(key, place.hash);
                Deleted::Deleted
            }
            Err(unanswered) => return unanswered.into_answer(),
        };
        if deleted == Deleted::Deleted {
            self.cx.counters.delete_hits.add(1);
        }
        if deleted != Deleted::Exists {
            self.cx.tell_gone(&place, key);
        }
        // A larger cache might have had an item that this one has not.
        let (tap, key) = (&self.cx.recorder.tap, place.hash.bits());
        if place.is_default() && deleted != Deleted::Exists && tap.follows(key) {
            tap.tell(Access::Delete { key });
        }
        Ok(self.deleted(deleted))
    }

    // md with I or x
    pub(super) fn invalidate(
        &mut self,
        invalidate: command::Invalidate<'_>,
        prepared: Option<Prepared<'t>>,
    ) -> Answered<'t> {
        let (cx, guards) = (self.cx, self.guards);
        let compare = invalidate.compare.map(|cas| self.comparable(cas));
        let key = invalidate.key.bytes(&mut self.key_buffer);
        let place = guards.place(key, prepared);
        if let Err(error) = place.admit(self.rights, Right::Write) {
            return Ok(Reply::Error(error));
        }
        if invalidate.cas.is_some() && self.cx.shared.is_replicated(place.number()) {
            return Ok(Reply::Error(Error::OwnVersion));
        }
        let how = larder_engine::Invalidate {
            compare,
            stale: invalidate.stale,
            blank: invalidate.blank,
            expiry: invalidate.exptime.map(|exptime| place.expiry(&cx.shared.clock, exptime)),
            cas: invalidate.cas,
        };
        let mark = |guard: &'t Guard<'t>| guard.invalidate(key, place.hash, &how);
        let marked = match self.store.operate(&place, key, Intent::Change, mark) {
            Ok(marked) => marked,
            Err(unanswered) => return unanswered.into_answer(),
        };
        match marked {
            Ok(deleted) => {
                if deleted != Deleted::Exists {
                    self.cx.tell_marked(&place, key, &invalidate);
                }
                if deleted == Deleted::Deleted && !invalidate.stale {
                    self.cx.counters.delete_hits.add(1);
                }
                Ok(self.deleted(deleted))
            }
            Err(WriteError::TryAgain) if !self.deadline_passed => Err(Done::Wait(Waiting::Memory)),
            Err(_) => Ok(Reply::Error(Error::OutOfMemory)),
        }
    }

    fn deleted(&self, deleted: Deleted) -> Reply<'t, Item<'t>> {
        let counters = self.cx.counters;
        match deleted {
            Deleted::Deleted => Reply::Deleted,
            Deleted::NotFound(miss) => {
                counters.delete_misses.add(1);
                self.count_miss(miss);
                Reply::NotFound
            }
            Deleted::Exists => {
                counters.delete_misses.add(1);
                Reply::Exists
            }
        }
    }

    // touch
    pub(super) fn touch(
        &mut self,
        touch: command::Touch<'_>,
        prepared: Option<Prepared<'t>>,
    ) -> Answered<'t> {
        let (guards, counters) = (self.guards, self.cx.counters);
        let key = touch.key.bytes(&mut self.key_buffer);
        let place = guards.place(key, prepared);
        if let Err(error) = place.admit(self.rights, Right::Write) {
            return Ok(Reply::Error(error));
        }
        let expiry = place.expiry(&self.cx.shared.clock, touch.exptime);
        let touch = |guard: &'t Guard<'t>| guard.touch(key, place.hash, expiry);
        let touched = match self.store.operate(&place, key, Intent::Change, touch) {
            Ok(touched) => touched,
            Err(unanswered) => return unanswered.into_answer(),
        };
        match touched {
            Ok(item) => {
                self.cx.tell_changed(&place, key);
                counters.cmd_touch.add(1);
                counters.touch_hits.add(1);
                Ok(Reply::Touched { client_flags: item.client_flags(), cas: self.cas(item) })
            }
            Err(FetchError::Miss(miss)) => {
                counters.cmd_touch.add(1);
                counters.touch_misses.add(1);
                self.count_miss(miss);
                Ok(Reply::NotFound)
            }
            Err(FetchError::TryAgain) if !self.deadline_passed => Err(Done::Wait(Waiting::Memory)),
            Err(FetchError::TryAgain | FetchError::OutOfMemory) => Ok(Reply::Error(Error::OutOfMemory)),
        }
    }

    // incr, decr, ma
    pub(super) fn arith(
        &mut self,
        arith: command::Arith<'_>,
        prepared: Option<Prepared<'t>>,
    ) -> Answered<'t> {
        let (guards, counters, now) = (self.guards, self.cx.counters, self.guards.now());
        let clock = &self.cx.shared.clock;
        let compare = arith.compare.map(|cas| self.comparable(cas));
        let key = arith.key.bytes(&mut self.key_buffer);
        let place = guards.place(key, prepared);
        // It shows the number.
        if let Err(error) = place.admit(self.rights, Right::Both) {
            return Ok(Reply::Error(error));
        }
        if arith.cas.is_some() && self.cx.shared.is_replicated(place.number()) {
            return Ok(Reply::Error(Error::OwnVersion));
        }
        if StoreAccess::has_home(&place) {
            match self.store.ask_home(&place, &command::Command::Arith(arith), &[]) {
                Ok(None) => {}
                Ok(Some(reply)) => return Ok(reply.into_reply()),
                Err(unanswered) => return unanswered.into_answer(),
            }
        }
        let touch = arith.exptime.map(|exptime| place.expiry(clock, exptime));
        let how = larder_engine::Arith {
            delta: arith.delta,
            decrement: arith.decrement,
            compare,
            initial: arith
                .initial
                .map(|(number, exptime)| (number, touch.unwrap_or_else(|| place.expiry(clock, exptime)))),
            expiry: touch,
            cas: arith.cas,
            binary_key: arith.key.is_binary(),
        };
        let (hits, misses) = if arith.decrement {
            (&counters.decr_hits, &counters.decr_misses)
        } else {
            (&counters.incr_hits, &counters.incr_misses)
        };
        let count = |guard: &'t Guard<'t>| guard.arith(key, place.hash, &how);
        let counted =
            match self.store.operate(&place, key, Intent::Store { value_bytes: NUMBER_BYTES_MAX }, count) {
                Ok(counted) => counted,
                Err(unanswered) => return unanswered.into_answer(),
            };
        match counted {
            Counted::Number { number, cas, expiry_before, expiry, created } => {
                self.cx.tell_changed(&place, key);
                if !created {
                    hits.add(1);
                }
                let before = if created { expiry } else { expiry_before };
                Ok(Reply::Number {
                    number,
                    cas: if self.cx.shared.settings.cas { cas } else { 0 },
                    ttl_before_secs: ttl_secs(clock, before, now),
                    ttl_secs: ttl_secs(clock, expiry, now),
                })
            }
            Counted::NotFound(miss) => {
                misses.add(1);
                self.count_miss(miss);
                Ok(Reply::NotFound)
            }
            Counted::Exists => Ok(Reply::Exists),
            Counted::NonNumeric => Ok(Reply::Error(Error::NonNumeric)),
            Counted::TryAgain if !self.deadline_passed => Err(Done::Wait(Waiting::Memory)),
            Counted::TryAgain | Counted::OutOfMemory => Ok(Reply::Error(Error::OutOfMemory)),
        }
    }
}

/// Digits of the highest number.
const NUMBER_BYTES_MAX: u64 = 20;

/// The expiry times that a store names.
#[derive(Clone, Copy)]
struct Expiries {
    item: Expiry,
    vivify: Option<Expiry>,
}

impl Expiries {
    #[inline]
    fn of(store: &command::Store<'_>, place: &Place<'_>, clock: &Clock) -> Self {
        Self {
            item: place.expiry(clock, store.exptime),
            vivify: store.vivify.map(|exptime| place.expiry(clock, exptime)),
        }
    }
}

/// A store in the engine's terms.
#[inline]
fn terms<'a>(
    store: &command::Store<'_>,
    key: &'a [u8],
    value: &'a [u8],
    expiry: Expiries,
    cas_is_on: bool,
) -> Store<'a> {
    Store {
        key,
        value,
        client_flags: store.client_flags,
        expiry: expiry.item,
        mode: match store.mode {
            command::Mode::Set => Mode::Set,
            command::Mode::Add => Mode::Add,
            command::Mode::Replace => Mode::Replace,
            command::Mode::Append => Mode::Append,
            command::Mode::Prepend => Mode::Prepend,
        },
        compare: store.compare.map(|cas| match cas {
            0 => Compare::Equal(0),
            _ if !cas_is_on => Compare::Equal(0),
            _ if store.or_stale => Compare::EqualOrStale(cas),
            _ => Compare::Equal(cas),
        }),
        cas: store.cas,
        vivify: expiry.vivify,
        binary_key: store.key.is_binary(),
    }
}
