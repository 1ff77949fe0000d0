//! Commands that look up: get and gat, mg, me.

use larder_engine::{Expiry, FetchError, Guard, Item, Miss};
use larder_measure::{Access, Footprint};
use larder_protocol::reply::{Detail, Hit, Peeked, Token};
use larder_protocol::{Error, Form, Key, Reply, command};

use super::store_access::{Intent, StoreAccess, Unanswered};
use super::{Answered, Done, Executor, ttl_secs};
use crate::conn::waiter::Waiting;
use crate::namespaces::{Place, Prepared, Right};
use crate::observe::trace;

impl<'t> Executor<'_, '_, '_, 't> {
    // get <key>, and END
    pub(super) fn get_one(
        &mut self,
        get: command::Get<'_>,
        prepared: Option<Prepared<'t>>,
        form: &Form<'_>,
    ) -> Done {
        for key in get.keys {
            let prepared = self.prepared(key.written(), prepared);
            match self.get_or_touch(key, prepared, get.exptime, form) {
                done @ Done::Wait(_) => return done,
                Done::Failed => return Done::Answered,
                _ => {}
            }
        }
        if self.cx.shared.observers.is_verbose() {
            trace::reply(self.cx.client.fd, form, &Reply::End);
        }
        self.answer(form, &Reply::End)
    }

    /// Looks up one key of a [`command::Get`] and writes its reply.
    #[inline]
    pub fn get_or_touch(
        &mut self,
        key: Key<'_>,
        prepared: Prepared<'t>,
        exptime: Option<i64>,
        form: &Form<'_>,
    ) -> Done {
        match exptime {
            None => self.get(key, prepared, form),
            Some(exptime) => self.get_and_touch(key, prepared, exptime, form),
        }
    }

    /// get
    #[inline(always)]
    pub fn get(&mut self, key: Key<'_>, prepared: Prepared<'t>, form: &Form<'_>) -> Done {
        match self.guards.only() {
            Some(guard) => self.get_at(key, Place::only(guard, prepared), form),
            None => self.get_in_namespace(key, prepared, form),
        }
    }

    /// Apart, so that nothing of it is on the path of a get without namespaces.
    #[inline(never)]
    fn get_in_namespace(&mut self, key: Key<'_>, prepared: Prepared<'t>, form: &Form<'_>) -> Done {
        self.get_at(key, self.guards.place(key.written(), Some(prepared)), form)
    }

    #[inline(always)]
    fn get_at(&mut self, key: Key<'_>, place: Place<'t>, form: &Form<'_>) -> Done {
        if let Err(error) = place.admit(self.rights, Right::Read) {
            return self.refuse_get(error, form);
        }
        let counters = self.cx.counters;
        let found = if StoreAccess::is_behind(&place) {
            match self.look_up_backed(key, &place) {
                Ok(found) => found,
                Err(unanswered) => return self.leave_get(unanswered, form),
            }
        } else {
            place.guard.get_hinted(key.written(), place.hash, place.hint)
        };
        counters.cmd_get.add(1);
        self.tap_read(&place, found.ok());
        place.count_get(found.is_ok());
        if self.cx.shared.observers.any() {
            self.observe_get(key.written(), found);
        }
        match found {
            Ok(item) => {
                counters.get_hits.add(1);
                form.encode(&Reply::Hit(self.hit(item)), self.out);
            }
            Err(miss) => {
                counters.get_misses.add(1);
                self.count_miss(miss);
                form.encode(&Reply::Miss, self.out);
            }
        }
        Done::Answered
    }

    #[inline(never)]
    fn look_up_backed(
        &mut self,
        key: Key<'_>,
        place: &Place<'t>,
    ) -> Result<Result<Item<'t>, Miss>, Unanswered> {
        let mut look_up = |guard: &'t Guard<'t>| guard.get_hinted(key.written(), place.hash, place.hint);
        self.store.operate_backed(place, key.written(), Intent::Read, &mut look_up)
    }

    /// Refuses one key of a list, and with it the rest of the list.
    #[cold]
    fn refuse_get(&mut self, error: Error, form: &Form<'_>) -> Done {
        if !matches!(form, Form::Http(form) if form.is_list()) {
            form.encode(&Reply::Error(error), self.out);
        }
        Done::Failed
    }

    /// A key of a list without a result.
    #[cold]
    fn leave_get(&mut self, unanswered: Unanswered, form: &Form<'_>) -> Done {
        match unanswered {
            Unanswered::Wait(waiting) => Done::Wait(waiting),
            Unanswered::Refused(error) => self.refuse_get(error, form),
        }
    }

    // gat
    fn get_and_touch(&mut self, key: Key<'_>, prepared: Prepared<'t>, exptime: i64, form: &Form<'_>) -> Done {
        let place = self.guards.place(key.written(), Some(prepared));
        if let Err(error) = self.admit_change().and_then(|()| place.admit(self.rights, Right::Both)) {
            return self.refuse_get(error, form);
        }
        let counters = self.cx.counters;
        let expiry = place.expiry(&self.cx.shared.clock, exptime);
        let touch = |guard: &'t Guard<'t>| guard.touch(key.written(), place.hash, expiry);
        let touched = match self.store.operate(&place, key.written(), Intent::Change, touch) {
            Ok(touched) => touched,
            Err(unanswered) => return self.leave_get(unanswered, form),
        };
        self.tap_read(&place, touched.as_ref().ok().copied());
        if self.cx.shared.observers.any()
            && let Some(found) = looked_up(touched)
        {
            self.observe_get(key.written(), found);
        }
        match touched {
            Ok(item) => {
                self.cx.tell_changed(&place, key.written());
                counters.cmd_touch.add(1);
                counters.touch_hits.add(1);
                place.count_get(true);
                form.encode(&Reply::Hit(self.hit(item)), self.out);
            }
            Err(FetchError::Miss(miss)) => {
                counters.cmd_touch.add(1);
                counters.touch_misses.add(1);
                place.count_get(false);
                self.count_miss(miss);
                form.encode(&Reply::Miss, self.out);
            }
            Err(FetchError::TryAgain) if !self.deadline_passed => return Done::Wait(Waiting::Memory),
            Err(FetchError::TryAgain | FetchError::OutOfMemory) => {
                form.encode(&Reply::Error(Error::OutOfMemory), self.out);
                return Done::Failed;
            }
        }
        Done::Answered
    }

    // mg
    pub(super) fn fetch(
        &mut self,
        fetch: command::Fetch<'_>,
        prepared: Option<Prepared<'t>>,
    ) -> Answered<'t> {
        let (cx, guards, counters, now) = (self.cx, self.guards, self.cx.counters, self.guards.now());
        let clock = &cx.shared.clock;
        let key = fetch.key.bytes(&mut self.key_buffer);
        let place = guards.place(key, prepared);
        let changes = fetch.touch.is_some() || fetch.vivify.is_some();
        if let Err(error) = place.admit(self.rights, if changes { Right::Both } else { Right::Read }) {
            return Ok(Reply::Error(error));
        }
        if fetch.vivify_cas.is_some() && cx.shared.is_replicated(place.number()) {
            return Ok(Reply::Error(Error::OwnVersion));
        }
        let touch = fetch.touch.map(|exptime| place.expiry(clock, exptime));
        let how = larder_engine::Fetch {
            touch,
            vivify: fetch.vivify.map(|exptime| place.expiry(clock, exptime)),
            vivify_cas: fetch.vivify_cas,
            recache_below_secs: fetch
                .recache
                .map(|exptime| ttl_secs(clock, clock.expiry(exptime, now), now).unwrap_or(0)),
            recache_after_touch: fetch.recache_after_touch,
            unnoticed: fetch.unnoticed,
            // The token is a change of the item.
            leaves_token: fetch.leaves_token || !self.store.may_change(&place),
            binary_key: fetch.key.is_binary(),
        };
        let intent = match (fetch.vivify, changes) {
            // An empty one.
            (Some(_), _) => Intent::Store { value_bytes: 0 },
            (None, true) => Intent::Change,
            (None, false) => Intent::Read,
        };
        let fetch_key = fetch.key;
        let fetch = |guard: &'t Guard<'t>| guard.fetch_hinted(key, place.hash, place.hint, &how);
        let fetched = match self.store.operate(&place, key, intent, fetch) {
            Ok(fetched) => fetched,
            Err(unanswered) => return unanswered.into_answer(),
        };
        self.tap_read(&place, fetched.as_ref().ok().map(|fetched| fetched.item));
        match fetched {
            Ok(fetched) => {
                if touch.is_some() || fetched.vivified {
                    cx.tell_changed(&place, fetch_key.bytes(&mut self.key_buffer));
                }
                place.count_get(true);
                if touch.is_some() {
                    counters.cmd_touch.add(1);
                    counters.touch_hits.add(1);
                } else {
                    counters.cmd_get.add(1);
                    counters.get_hits.add(1);
                }
                let detail = Detail {
                    ttl_before_secs: ttl_secs(clock, fetched.expiry_before, now),
                    ttl_secs: ttl_secs(clock, fetched.item.expiry(), now),
                    hit_before: fetched.hit_before,
                    idle_secs: fetched.idle_secs,
                    stale: fetched.stale,
                    token: match fetched.token {
                        larder_engine::Token::None => Token::None,
                        larder_engine::Token::Won => Token::Won,
                        larder_engine::Token::Held => Token::Held,
                    },
                };
                Ok(Reply::Fetched(self.hit(fetched.item), detail))
            }
            Err(FetchError::Miss(miss)) => {
                counters.cmd_get.add(1);
                counters.get_misses.add(1);
                place.count_get(false);
                self.count_miss(miss);
                Ok(Reply::Miss)
            }
            Err(FetchError::TryAgain) if !self.deadline_passed => Err(Done::Wait(Waiting::Memory)),
            Err(FetchError::TryAgain | FetchError::OutOfMemory) => Ok(Reply::Error(Error::OutOfMemory)),
        }
    }

    // me
    pub(super) fn peek(&mut self, key: Key<'_>, prepared: Option<Prepared<'t>>) -> Answered<'t> {
        let guards = self.guards;
        let key = key.bytes(&mut self.key_buffer);
        let place = guards.place(key, prepared);
        if let Err(error) = place.admit(self.rights, Right::Read) {
            return Ok(Reply::Error(error));
        }
        let peek = |guard: &'t Guard<'t>| guard.peek(key, place.hash);
        let peeked = match self.store.operate(&place, key, Intent::Read, peek) {
            Ok(peeked) => peeked,
            Err(unanswered) => return unanswered.into_answer(),
        };
        self.cx.counters.cmd_meta.add(1);
        Ok(match peeked {
            Ok(fetched) => Reply::Peeked(Peeked {
                key: fetched.item.key(),
                is_binary_key: fetched.item.is_binary_key(),
                ttl_secs: ttl_secs(&self.cx.shared.clock, fetched.item.expiry(), guards.now()),
                idle_secs: fetched.idle_secs,
                cas: self.cas(fetched.item),
                hit_before: fetched.hit_before,
                class: fetched.item.queue() + 1,
                item_bytes: fetched.item.accounted_bytes(),
            }),
            Err(_) => Reply::Miss,
        })
    }

    /// Passes a read to the hit-ratio curve, if that samples the key. The curve is that of the default namespace.
    #[inline]
    pub(super) fn tap_read(&self, place: &Place<'t>, found: Option<Item<'t>>) {
        let (tap, key) = (&self.cx.recorder.tap, place.hash.bits());
        if place.is_default() && tap.follows_read(key) {
            tap.tell(Access::Read { key, found: found.map(footprint_of) });
        }
    }

    #[inline]
    pub(super) fn hit(&self, item: Item<'t>) -> Hit<'t, Item<'t>> {
        Hit {
            key: item.key(),
            is_binary_key: item.is_binary_key(),
            client_flags: item.client_flags(),
            cas: self.cas(item),
            value: item,
            value_bytes: item.value().len(),
        }
    }

    pub(crate) fn count_miss(&self, miss: Miss) {
        match miss {
            Miss::Absent => {}
            Miss::Expired => self.cx.counters.get_expired.add(1),
            Miss::Flushed => self.cx.counters.get_flushed.add(1),
        }
    }
}

/// The result of a touch as that of a look-up. `None`: the touch is to be tried again, or found no memory.
fn looked_up<'t>(touched: Result<Item<'t>, FetchError>) -> Option<Result<Item<'t>, Miss>> {
    match touched {
        Ok(item) => Some(Ok(item)),
        Err(FetchError::Miss(miss)) => Some(Err(miss)),
        Err(FetchError::TryAgain | FetchError::OutOfMemory) => None,
    }
}

fn footprint_of(item: Item<'_>) -> Footprint {
    footprint(item.key().len(), item.value().len(), item.expiry())
}

/// What the hit-ratio curve needs to know of an item.
pub(super) fn footprint(key_bytes: usize, value_bytes: usize, expiry: Expiry) -> Footprint {
    let accounted = key_bytes + value_bytes + OVERHEAD_BYTES;
    Footprint {
        bytes: u32::try_from(accounted).unwrap_or(u32::MAX),
        expires_secs: expiry.secs().unwrap_or(0),
    }
}

/// What an item takes beside its key and value, including its share of the index and of unused memory
/// (docs/benchmarks.md).
const OVERHEAD_BYTES: usize = 32;
