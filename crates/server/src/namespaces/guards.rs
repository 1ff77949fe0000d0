//! The guards of a round, and the place of a key: the one way from a key to its engine and its policy.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use arrayvec::ArrayVec;
use larder_engine::{BATCH_MAX, Engine, Expiry, Guard, Handle, Hash, LookupHint, LookupHints, Now, Position};
use larder_policy::{DEFAULT, Policy, Told};
use larder_protocol::Error;

use super::handles::View;
use super::rights::Right;
use super::{NamespaceCounters, Rights};
use crate::clock::Clock;

/// Guards of all engines; those of namespaces are pinned when first used. While it lives, every item found under it
/// stays readable.
pub struct Guards<'h> {
    default: Guard<'h>,
    /// Not in place: with room for all namespaces it would be copied about, which costs more than the rest of a get.
    /// Without namespaces nothing is allocated.
    others: Box<[LaterGuard<'h>]>,
    view: Option<&'h View>,
}

/// A guard that is pinned when it is first needed.
struct LaterGuard<'h> {
    /// Until it is pinned.
    handle: Cell<Option<&'h mut Handle>>,
    guard: OnceCell<Guard<'h>>,
}

/// The hash of a request's key by the engine of its namespace, since others may hash differently; and a hint of where
/// its item lies.
pub type Prepared<'t> = (Hash, LookupHint<'t>);

/// Where the item of a key lives, and what applies to it.
#[derive(Clone, Copy)]
pub(crate) struct Place<'t> {
    /// Of its engine.
    pub(crate) guard: &'t Guard<'t>,
    pub(crate) hash: Hash,
    pub(crate) hint: LookupHint<'t>,
    /// `None` without `--namespaces`.
    pub(crate) namespace: Option<Namespace<'t>>,
}

/// A namespace as a worker sees it.
#[derive(Clone, Copy)]
pub(crate) struct Namespace<'t> {
    pub(crate) number: u8,
    pub(crate) policy: &'t Policy,
    pub(crate) counters: &'t NamespaceCounters,
}

impl<'h> Guards<'h> {
    pub(super) fn new(
        default: &'h mut Handle,
        others: &'h mut [Handle],
        view: Option<&'h View>,
        now: Now,
    ) -> Self {
        let others = if others.is_empty() { Box::default() } else { LaterGuard::all(others) };
        Self { default: default.pin(now), others, view }
    }

    /// The time that they were pinned with.
    #[inline]
    pub fn now(&self) -> Now {
        self.default.now()
    }

    /// Bytes of values written under them.
    #[inline]
    pub(crate) fn copied_bytes(&self) -> usize {
        let copied_bytes = self.default.copied_bytes();
        if self.others.is_empty() {
            return copied_bytes;
        }
        let others = self.others.iter().filter_map(|later| later.guard.get());
        copied_bytes + others.map(Guard::copied_bytes).sum::<usize>()
    }

    /// The guard of the only engine, while there are no namespaces.
    #[inline(always)]
    pub(crate) fn only(&self) -> Option<&Guard<'h>> {
        if self.view.is_none() { Some(&self.default) } else { None }
    }

    /// The highest position that a reply under these guards has to wait for; 0: none.
    #[inline]
    pub(crate) fn awaited(&self) -> Position {
        match self.view {
            Some(view) if view.syncs != 0 => self.awaited_of(view.syncs),
            _ => 0,
        }
    }

    /// The highest position to wait for among operations since the last call; 0: none.
    pub(crate) fn take_awaited(&self) -> Position {
        let position = self.awaited();
        if position != 0 {
            self.default.forget_position();
            self.others.iter().filter_map(|later| later.guard.get()).for_each(Guard::forget_position);
        }
        position
    }

    /// True if replies may have to wait for a position.
    #[inline]
    pub(crate) fn may_await(&self) -> bool {
        self.view.is_some_and(|view| view.syncs != 0)
    }

    fn awaited_of(&self, syncs: u64) -> Position {
        let position =
            |number: u8, guard: &Guard<'_>| if syncs >> number & 1 == 0 { 0 } else { guard.position() };
        let others = (1..).zip(&self.others);
        let others = others.filter_map(|(number, later)| Some(position(number, later.guard.get()?)));
        others.fold(position(DEFAULT, &self.default), Position::max)
    }

    /// True if there are policies (`--namespaces`).
    #[inline]
    pub(crate) fn are_named(&self) -> bool {
        self.view.is_some()
    }

    /// How many engines there are.
    pub(crate) fn count(&self) -> u8 {
        1 + self.others.len() as u8
    }

    /// The guard of a namespace; the default's of one that there is not.
    #[inline]
    pub(crate) fn guard(&self, number: u8) -> &Guard<'h> {
        match usize::from(number).checked_sub(1).and_then(|at| self.others.get(at)) {
            None => &self.default,
            Some(later) => later.get(self.now()).unwrap_or(&self.default),
        }
    }

    /// The guard of an engine.
    pub(crate) fn guard_of(&self, engine: &Arc<Engine>) -> &Guard<'h> {
        let engines = self.view.map_or(&[][..], |view| &view.engines);
        let number = engines.iter().position(|other| Arc::ptr_eq(other, engine));
        self.guard(number.map_or(DEFAULT, |number| number as u8))
    }

    /// The number of the namespace of a key.
    #[inline]
    pub(crate) fn number(&self, key: &[u8]) -> u8 {
        self.view.map_or(DEFAULT, |view| view.table.find(key))
    }

    /// Finds the namespace of a key, hashes it, and prefetches its index line. Returns the namespace's number, too.
    #[inline(always)]
    pub(crate) fn prepare(&self, key: &[u8]) -> (Hash, u8) {
        match self.only() {
            Some(guard) => (guard.prepare(key), DEFAULT),
            None => self.prepare_in_namespace(key),
        }
    }

    #[inline(never)]
    fn prepare_in_namespace(&self, key: &[u8]) -> (Hash, u8) {
        let number = self.number(key);
        (self.guard(number).prepare(key), number)
    }

    /// The place of a key.
    #[inline]
    pub(crate) fn place<'t>(&'t self, key: &[u8], prepared: Option<Prepared<'t>>) -> Place<'t> {
        let (hash, hint) = prepared.unwrap_or_else(|| (self.prepare(key).0, LookupHint::default()));
        match self.view {
            None => Place::only(&self.default, (hash, hint)),
            Some(view) => {
                let number = view.table.find(key);
                Place { guard: self.guard(number), hash, hint, namespace: Some(view.namespace(number)) }
            }
        }
    }

    /// The hints of a batch, from `hint` of each engine. `numbers` are those of the namespaces; none: all keys are the
    /// default's.
    #[inline]
    pub(crate) fn hints<'t>(
        &'t self,
        hashes: &[Hash],
        numbers: &[u8],
        hint: impl Fn(&'t Guard<'t>, &[Hash]) -> LookupHints<'t>,
    ) -> LookupHints<'t> {
        if numbers.iter().all(|number| *number == DEFAULT) {
            return hint(&self.default, hashes);
        }
        self.hints_of_several(hashes, numbers, hint)
    }

    #[inline(never)]
    fn hints_of_several<'t>(
        &'t self,
        hashes: &[Hash],
        numbers: &[u8],
        hint: impl Fn(&'t Guard<'t>, &[Hash]) -> LookupHints<'t>,
    ) -> LookupHints<'t> {
        let mut hints = [LookupHint::default(); BATCH_MAX];
        let mut left: ArrayVec<(usize, u8, Hash), BATCH_MAX> = ArrayVec::new();
        left.extend((0..BATCH_MAX).zip(numbers).zip(hashes).map(|((at, number), hash)| (at, *number, *hash)));
        while let Some(&(_, number, _)) = left.first() {
            let of_one = left.iter().filter(|(_, other, _)| *other == number);
            let batch: ArrayVec<Hash, BATCH_MAX> = of_one.clone().map(|(_, _, hash)| *hash).collect();
            let found = hint(self.guard(number), &batch);
            of_one.zip(found).for_each(|((at, _, _), hint)| hints[*at] = hint);
            left.retain(|(_, other, _)| *other != number);
        }
        hints
    }

    /// What a user may do. The version of the policies tells when to ask again.
    pub(crate) fn rights(&self, user: Option<&[u8]>) -> Rights {
        match self.view {
            Some(view) if view.limits_users => Rights::of(&view.table, user),
            _ => Rights::ALL,
        }
    }

    /// Whether a client may do that in a namespace. Errors: what to answer; it is counted.
    pub(crate) fn admit(&self, number: u8, rights: Rights, right: Right) -> Result<(), Error> {
        self.view.map_or(Ok(()), |view| view.namespace(number).admit(rights, right))
    }

    /// The version of the policies; 0 without any.
    pub(crate) fn version(&self) -> u32 {
        self.view.map_or(0, |view| view.version)
    }
}

impl<'h> LaterGuard<'h> {
    #[inline(never)]
    fn all(handles: &'h mut [Handle]) -> Box<[Self]> {
        let later = |handle| Self { handle: Cell::new(Some(handle)), guard: OnceCell::new() };
        handles.iter_mut().map(later).collect()
    }

    /// The guard. Always there: it is pinned when the handle is taken.
    fn get(&self, now: Now) -> Option<&Guard<'h>> {
        if let Some(handle) = self.handle.take() {
            let _ = self.guard.set(handle.pin(now));
        }
        self.guard.get()
    }
}

impl View {
    #[inline]
    fn namespace(&self, number: u8) -> Namespace<'_> {
        // There are counters for each namespace, since a table is only replaced by one with the same namespaces.
        let counters = &self.counters[usize::from(number).min(self.counters.len() - 1)];
        Namespace { number, policy: self.table.policy(number), counters }
    }
}

impl<'t> Place<'t> {
    /// The place of any key, while there are no namespaces: the guard is [`Guards::only`].
    #[inline(always)]
    pub(crate) fn only(guard: &'t Guard<'t>, (hash, hint): Prepared<'t>) -> Self {
        Self { guard, hash, hint, namespace: None }
    }

    /// When an item expires that is stored with this exptime: later than the policy allows it never is.
    #[inline]
    pub(crate) fn expiry(&self, clock: &Clock, exptime: i64) -> Expiry {
        let expiry = clock.expiry(exptime, self.guard.now());
        match self.namespace {
            None => expiry,
            Some(namespace) => namespace.expiry(clock, expiry, self.guard.now()),
        }
    }

    /// Longest time to live in the namespace, in seconds; `None`: no limit.
    pub(crate) fn ttl_max_secs(&self) -> Option<u32> {
        self.namespace.and_then(|namespace| namespace.policy.ttl_max_secs)
    }

    /// Whether a client may do that here. Errors: what to answer; it is counted.
    #[inline]
    pub(crate) fn admit(&self, rights: Rights, right: Right) -> Result<(), Error> {
        match &self.namespace {
            None => Ok(()),
            Some(namespace) => namespace.admit(rights, right),
        }
    }

    /// What other sites are told of it, where it is kept in a cache.
    #[inline(always)]
    pub(crate) fn told(&self) -> Told {
        self.namespace.map_or(Told::Nothing, |namespace| namespace.policy.told)
    }

    /// The number of its namespace.
    #[inline]
    pub(crate) fn number(&self) -> u8 {
        self.namespace.map_or(DEFAULT, |namespace| namespace.number)
    }

    /// The default namespace, or there are no others.
    #[inline]
    pub(crate) fn is_default(&self) -> bool {
        self.namespace.is_none_or(|namespace| namespace.number == DEFAULT)
    }

    /// Counts a look-up.
    #[inline]
    pub(crate) fn count_get(&self, is_hit: bool) {
        if let Some(Namespace { counters, .. }) = self.namespace {
            counters.cmd_get.add(1);
            if is_hit { counters.get_hits.add(1) } else { counters.get_misses.add(1) }
        }
    }
}

impl Namespace<'_> {
    fn admit(&self, rights: Rights, right: Right) -> Result<(), Error> {
        rights.check(self.number, self.policy, right).inspect_err(|error| match error {
            Error::ReadOnly => self.counters.refused_read_only.add(1),
            _ => self.counters.refused_user.add(1),
        })
    }

    fn expiry(&self, clock: &Clock, expiry: Expiry, now: Now) -> Expiry {
        let Policy { ttl_default_secs, ttl_max_secs, .. } = self.policy;
        let after = |ttl_secs: u32| Expiry::at(now.secs.saturating_add(ttl_secs));
        match (clock.secs_of(expiry), ttl_default_secs, ttl_max_secs) {
            (None, Some(ttl_secs), _) | (None, None, Some(ttl_secs)) => after(*ttl_secs),
            (Some(secs), _, Some(ttl_secs)) if secs > now.secs.saturating_add(*ttl_secs) => after(*ttl_secs),
            _ => expiry,
        }
    }
}
