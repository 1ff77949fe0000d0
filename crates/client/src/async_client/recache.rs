//! Items that one of many readers makes anew: the meta protocol's flags for it.

use std::time::Duration;

use super::key::WireKey;
use super::request::{self, Request};
use super::{Answer, AsyncClient, changes, impossible};
use crate::client::Item;
use crate::codec::{Mode, Protocol};
use crate::{Error, Ttl};

/// When a reader of an item is asked to make it anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recache {
    /// A missing item is created, empty, with this time to live, and its first reader wins (`N`): the time that it has
    /// to make it.
    pub create: Option<Ttl>,
    /// One reader wins once the item lives no longer than this (`R`).
    pub before_expiry: Option<Duration>,
}

/// An item, and who makes it anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaItem {
    /// The item, with its CAS value. Empty if it has just been created.
    pub item: Item,
    /// It is marked as stale ([`AsyncClient::invalidate`]): usable for a while, if need be.
    pub is_stale: bool,
    /// This reader has won: it is to make the item anew, and to store it by [`AsyncClient::cas`] with
    /// [`Item::cas`], which fails if somebody else has changed it since.
    pub has_won: bool,
    /// Another reader has won, and has not stored it yet.
    pub is_taken: bool,
    /// Its time to live. `None`: for ever.
    pub ttl: Option<Duration>,
}

impl AsyncClient {
    /// The value of a key, for readers of which one is to make it anew. Only in the meta protocol.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use larder_client::async_client::Recache;
    ///
    /// # async fn render() -> Vec<u8> { Vec::new() }
    /// # async fn example(client: larder_client::AsyncClient) -> Result<(), larder_client::Error> {
    /// let recache = Recache {
    ///     create: Some(Duration::from_secs(10).into()),
    ///     before_expiry: Some(Duration::from_secs(30)),
    /// };
    /// if let Some(found) = client.get_or_recache("page", recache).await?
    ///     && found.has_won
    ///     && let Some(cas) = found.item.cas
    /// {
    ///     client.cas("page", render().await, Duration::from_secs(600), cas).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`AsyncClient`]. It is a change, since it may win: [`Error::Unknown`] if it may have.
    pub async fn get_or_recache(
        &self,
        key: impl AsRef<[u8]>,
        recache: Recache,
    ) -> Result<Option<MetaItem>, Error> {
        self.require_meta()?;
        let key = key.as_ref();
        let recache = request::Recache {
            vivify: recache.create.map(Ttl::exptime),
            below_secs: recache.before_expiry.map(secs),
        };
        let request =
            Request::Get { key: self.key(key)?, with_cas: true, exptime: None, recache: Some(recache) };
        let reply = self.ask(key, request).await?;
        match (reply.answer, reply.found) {
            (Answer::Found, Some(found)) => Ok(Some(MetaItem::new(found.item, &found.meta_flags))),
            (Answer::Found, None) => Ok(None),
            _ => Err(impossible()),
        }
    }

    /// Marks an item as stale, perhaps with another time to live, so that the next reader of
    /// [`AsyncClient::get_or_recache`] wins, and the others get the stale value. `false`: the key does not exist. Only
    /// in the meta protocol.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn invalidate(&self, key: impl AsRef<[u8]>, ttl: Option<Ttl>) -> Result<bool, Error> {
        self.require_meta()?;
        let key = key.as_ref();
        let invalidate = Some(ttl.map(Ttl::exptime));
        let request = Request::Delete { key: self.key(key)?, compare: None, invalidate };
        changes::deleted(&self.ask(key, request).await?)
    }

    fn require_meta(&self) -> Result<(), Error> {
        match self.protocol() {
            Protocol::Meta => Ok(()),
            _ => Err(Error::Unsupported("only the meta protocol has stale items")),
        }
    }
}

/// Whole seconds, as servers read them.
pub(super) fn secs(time: Duration) -> i64 {
    time.as_secs().min(i32::MAX as u64) as i64
}

impl MetaItem {
    /// True if it can be stored elsewhere as it is: nobody is to make it anew, and it lives on.
    pub(super) fn is_whole(&self) -> bool {
        !self.is_stale && !self.has_won && !self.is_taken && self.ttl != Some(Duration::ZERO)
    }

    /// Adds it elsewhere, with the rest of its time to live. The reply tells its CAS value there.
    pub(super) fn into_add(self, key: WireKey) -> Request {
        let Item { value, client_flags, .. } = self.item;
        let exptime = self.ttl.map_or(Ttl::Never, Ttl::After).exptime();
        Request::Store { key, mode: Mode::Add, value, client_flags, exptime, compare: None, tells_cas: true }
    }

    pub(super) fn new(item: Item, flags: &[u8]) -> Self {
        let mut this = Self { item, is_stale: false, has_won: false, is_taken: false, ttl: None };
        for flag in flags.split(|byte| *byte == b' ') {
            match flag {
                b"X" => this.is_stale = true,
                b"W" => this.has_won = true,
                b"Z" => this.is_taken = true,
                [b't', secs @ ..] => {
                    this.ttl = larder_protocol::number::parse_u64(secs).map(Duration::from_secs);
                }
                _ => {}
            }
        }
        this
    }
}
