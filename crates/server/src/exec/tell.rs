//! What other sites are told of a cache's items (`replicate`), and what the home of a key runs (`rmw = "home"`).
//!
//! With "invalidations" a deletion is told, a mark, and a flush; a value that is stored is not: it fills this site's
//! cache, and must not empty the others'. With "values" all changes are told.

use larder_engine::UPLOAD_BYTES_MIN;
use larder_policy::Told;
use larder_protocol::Error;
use larder_protocol::command::{Command, Invalidate, Mode, Store};

use super::Context;
use super::store_access::{StoreAccess, Unanswered};
use crate::conn::waiter::{Waiter, Waiting};
use crate::namespaces::Place;
use crate::replication::home::{HomeReply, Homes, encode_command};
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
        let exptime_secs = invalidate.exptime.map(|exptime| {
            let at = place.expiry(clock, exptime).secs();
            at.map_or(0, |secs| clock.wall_secs(secs).max(1).unsigned_abs())
        });
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
    /// The home's answer to a command, where another site is the home of its key. `None`: this site runs it.
    #[inline(always)]
    pub(super) fn ask_home(
        &mut self,
        place: &Place<'_>,
        command: &Command<'_>,
        value: &[u8],
    ) -> Result<Option<HomeReply>, Unanswered> {
        match place.namespace {
            Some(namespace) if namespace.policy.home.is_some() => self.ask_home_of(place, command, value),
            _ => Ok(None),
        }
    }

    /// True if another site is the home of a key.
    pub(super) fn is_away(&self, place: &Place<'_>) -> bool {
        other_home(self.cx, place).is_some()
    }

    #[inline(never)]
    fn ask_home_of(
        &mut self,
        place: &Place<'_>,
        command: &Command<'_>,
        value: &[u8],
    ) -> Result<Option<HomeReply>, Unanswered> {
        let Some((homes, home)) = other_home(self.cx, place) else { return Ok(None) };
        let refused = |error| Err(Unanswered::Refused(error));
        self.refuse_datagram()?;
        // What had memory of its own while it arrived is not copied from there, however it was cut into packets.
        let large_bytes = self.cx.shared.namespaces.engine(place.number()).large_value_bytes();
        let value_bytes = command.value_bytes().unwrap_or_default();
        if value_bytes as usize > UPLOAD_BYTES_MIN || value_bytes >= large_bytes {
            return refused(Error::HomeTooLarge);
        }
        let Some(command) = encode_command(command, value) else { return Ok(None) };
        if let Some(answer) = self.answer.take().filter(|answer| answer.command == command) {
            return Ok(Some(answer.reply));
        }
        let Ok(connection) = usize::try_from(self.cx.client.fd) else { return refused(Error::HomeAway) };
        match homes.ask(home, Waiter { worker: self.cx.worker, connection }, command) {
            Ok(asked) => {
                self.asked = Some(asked);
                Err(Unanswered::Wait(Waiting::Signal))
            }
            Err(error) => refused(error),
        }
    }
}

/// The home of a key, if that is another site.
fn other_home<'c>(cx: &Context<'c>, place: &Place<'_>) -> Option<(&'c Homes, u8)> {
    let homes = cx.shared.homes.as_ref()?;
    Some((homes, homes.other_home(place.namespace?.policy)?))
}
