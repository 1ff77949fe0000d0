//! What other sites are told of a cache's items (`replicate`), and what the home of a key runs (`rmw = "home"`).
//!
//! With "invalidations" a deletion is told, a mark, and a flush; a value that is stored is not: it fills this site's
//! cache, and must not empty the others'. With "values" all changes are told.

use larder_policy::Told;
use larder_protocol::Error;
use larder_protocol::command::{Command, Invalidate, Mode, Store};

use super::Context;
use super::store_access::{StoreAccess, Unanswered};
use crate::conn::waiter::{Waiter, Waiting};
use crate::namespaces::Place;
use crate::replication::home::{HomeReply, Homes};
use crate::replication::ring::Change;

impl Context<'_> {
    /// The key has another value, or expires at another time.
    #[inline(always)]
    pub(super) fn tell_changed(&self, place: &Place<'_>, key: &[u8]) {
        if place.told() == Told::Values {
            self.tell_cold(place, Change::Changed(key.into()));
        }
    }

    /// The key was deleted, whether it was here or not: other sites may have it.
    #[inline(always)]
    pub(super) fn tell_gone(&self, place: &Place<'_>, key: &[u8]) {
        if place.told() != Told::Nothing {
            self.tell_cold(place, Change::Gone(key.into()));
        }
    }

    /// The item was marked, or would have been.
    pub(super) fn tell_marked(&self, place: &Place<'_>, key: &[u8], invalidate: &Invalidate<'_>) {
        if place.told() == Told::Nothing {
            return;
        }
        let clock = &self.shared.clock;
        let exptime_secs = invalidate.exptime.map(|exptime| clock.exptime_secs(place.expiry(clock, exptime)));
        let (is_stale, blank) = (invalidate.stale, invalidate.blank);
        self.tell_cold(place, Change::Marked { key: key.into(), is_stale, blank, exptime_secs });
    }

    #[cold]
    #[inline(never)]
    fn tell_cold(&self, place: &Place<'_>, change: Change) {
        if let Some(ring) = &self.shared.ring {
            ring.note(place.number(), place.hash.bits(), change);
        }
    }
}

/// True for a store that looks at what is there.
#[inline(always)]
pub(super) fn reads_before(store: &Store<'_>) -> bool {
    store.mode != Mode::Set || store.compare.is_some()
}

impl StoreAccess<'_, '_> {
    /// True if a site is the home of a key, be it this one.
    #[inline(always)]
    pub(super) fn has_home(place: &Place<'_>) -> bool {
        matches!(place.namespace, Some(namespace) if namespace.policy.home.is_some())
    }

    /// True if another site is.
    pub(super) fn is_away(&self, place: &Place<'_>) -> bool {
        other_home(self.cx, place).is_some()
    }

    /// What the home has answered to this command, which has waited for that.
    pub(super) fn take_answer(&mut self, command: &Command<'_>) -> Option<HomeReply> {
        self.answered.take()?.answer_to(command)
    }

    /// The home's answer to a command, where another site is the home of its key. `None`: this site runs it.
    #[inline(never)]
    pub(super) fn ask_home(
        &mut self,
        place: &Place<'_>,
        command: &Command<'_>,
        value: &[u8],
    ) -> Result<Option<HomeReply>, Unanswered> {
        let Some((homes, home)) = other_home(self.cx, place) else { return Ok(None) };
        if let Some(reply) = self.take_answer(command) {
            return Ok(Some(reply));
        }
        self.refuse_datagram()?;
        let Ok(connection) = usize::try_from(self.cx.client.fd) else {
            return Err(Unanswered::Refused(Error::HomeAway));
        };
        let waiter = Waiter { worker: self.cx.worker, connection };
        self.asked = Some(homes.ask(home, waiter, command, value).map_err(Unanswered::Refused)?);
        Err(Unanswered::Wait(Waiting::Signal))
    }
}

/// The home of a key, if that is another site.
fn other_home<'c>(cx: &Context<'c>, place: &Place<'_>) -> Option<(&'c Homes, u8)> {
    let homes = cx.shared.homes.as_ref()?;
    Some((homes, homes.other_home(place.namespace?.policy)?))
}
