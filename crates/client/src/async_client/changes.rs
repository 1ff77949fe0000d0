//! Changes of one key.

use super::request::Request;
use super::{Answer, AsyncClient, Reply, impossible};
use crate::check::{check_compare, check_value};
use crate::client::StoreOutcome;
use crate::codec::{Mode, Protocol};
use crate::{Error, Ttl};

/// A store, with all options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// What to do with an existing item.
    pub mode: Mode,
    /// The item's time to live.
    pub ttl: Ttl,
    /// Returned with the value; opaque to the server.
    pub client_flags: u32,
    /// Only if the CAS value is this one. With [`Mode::Set`] only.
    pub compare: Option<u64>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { mode: Mode::Set, ttl: Ttl::Never, client_flags: 0, compare: None }
    }
}

/// Changes. An error that is not [`Error::Unknown`] says that the change was not made. But a server that has no memory
/// for a new value, or finds it too large, may have deleted the old one: memcached does, so that no stale value stays.
impl AsyncClient {
    /// Stores a value unconditionally.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
        ttl: impl Into<Ttl>,
    ) -> Result<(), Error> {
        let options = StoreOptions { ttl: ttl.into(), ..StoreOptions::default() };
        self.set_with(key.as_ref(), value.into(), options).await
    }

    /// Stores unconditionally, without a reply if the client sends so.
    pub(super) async fn set_with(
        &self,
        key: &[u8],
        value: Vec<u8>,
        options: StoreOptions,
    ) -> Result<(), Error> {
        let request = self.store_request(key, value, options)?;
        stored(&self.ask_until(self.deadline(), key, request, self.is_fire_and_forget()).await?)
    }

    /// Stores a value if the key does not exist.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn add(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
        ttl: impl Into<Ttl>,
    ) -> Result<StoreOutcome, Error> {
        let options = StoreOptions { mode: Mode::Add, ttl: ttl.into(), ..StoreOptions::default() };
        self.store(key, value, options).await
    }

    /// Stores a value if the key exists.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
        ttl: impl Into<Ttl>,
    ) -> Result<StoreOutcome, Error> {
        let options = StoreOptions { mode: Mode::Replace, ttl: ttl.into(), ..StoreOptions::default() };
        self.store(key, value, options).await
    }

    /// Appends bytes to an existing value.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn append(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
    ) -> Result<StoreOutcome, Error> {
        self.store(key, value, StoreOptions { mode: Mode::Append, ..StoreOptions::default() }).await
    }

    /// Prepends bytes to an existing value.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn prepend(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
    ) -> Result<StoreOutcome, Error> {
        self.store(key, value, StoreOptions { mode: Mode::Prepend, ..StoreOptions::default() }).await
    }

    /// Stores a value if it has not changed since [`AsyncClient::gets`] returned `cas`.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn cas(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
        ttl: impl Into<Ttl>,
        cas: u64,
    ) -> Result<StoreOutcome, Error> {
        let options = StoreOptions { ttl: ttl.into(), compare: Some(cas), ..StoreOptions::default() };
        self.store(key, value, options).await
    }

    /// Stores, with all options.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn store(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
        options: StoreOptions,
    ) -> Result<StoreOutcome, Error> {
        let key = key.as_ref();
        let reply = self.ask(key, self.store_request(key, value.into(), options)?).await?;
        store_outcome(&reply)
    }

    /// The request, once key and value are checked.
    pub(super) fn store_request(
        &self,
        key: &[u8],
        value: Vec<u8>,
        options: StoreOptions,
    ) -> Result<Request, Error> {
        check_value(value.len(), self.shared.settings.value_bytes_max)?;
        let StoreOptions { mode, ttl, client_flags, compare } = options;
        check_compare(mode, compare)?;
        let (key, exptime) = (self.key(key)?, ttl.exptime());
        Ok(Request::Store { key, mode, value, client_flags, exptime, compare, tells_cas: false })
    }

    /// Deletes a key. `false`: it does not exist.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = key.as_ref();
        let request = Request::Delete { key: self.key(key)?, compare: None, invalidate: None };
        deleted(&self.ask(key, request).await?)
    }

    /// Adds to a decimal number, modulo 2^64. Returns the sum; `None`: the key does not exist.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn incr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.arith(key.as_ref(), delta, false, None).await
    }

    /// Subtracts from a decimal number, down to 0. Returns the difference; `None`: the key does not exist.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn decr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.arith(key.as_ref(), delta, true, None).await
    }

    /// Adds to a decimal number, or creates it with this value and this time to live. Not in the text protocol.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn incr_or_create(
        &self,
        key: impl AsRef<[u8]>,
        delta: u64,
        initial: u64,
        ttl: impl Into<Ttl>,
    ) -> Result<u64, Error> {
        if self.protocol() == Protocol::Text {
            return Err(Error::Unsupported("the text protocol creates no numbers"));
        }
        let initial = Some((initial, ttl.into().exptime()));
        self.arith(key.as_ref(), delta, false, initial).await?.ok_or_else(impossible)
    }

    async fn arith(
        &self,
        key: &[u8],
        delta: u64,
        decrement: bool,
        initial: Option<(u64, i64)>,
    ) -> Result<Option<u64>, Error> {
        let request = Request::Arith { key: self.key(key)?, delta, decrement, initial };
        match self.ask(key, request).await?.answer {
            Answer::Number(number) => Ok(Some(number)),
            Answer::NotFound => Ok(None),
            _ => Err(impossible()),
        }
    }

    /// Sets a new time to live. `false`: the key does not exist.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn touch(&self, key: impl AsRef<[u8]>, ttl: impl Into<Ttl>) -> Result<bool, Error> {
        let key = key.as_ref();
        let request = Request::Touch { key: self.key(key)?, exptime: ttl.into().exptime() };
        match self.ask(key, request).await?.answer {
            Answer::Touched => Ok(true),
            Answer::NotFound => Ok(false),
            _ => Err(impossible()),
        }
    }
}

pub(super) fn store_outcome(reply: &Reply) -> Result<StoreOutcome, Error> {
    match reply.answer {
        Answer::Stored(_) => Ok(StoreOutcome::Stored),
        Answer::NotStored => Ok(StoreOutcome::NotStored),
        Answer::Exists => Ok(StoreOutcome::Exists),
        Answer::NotFound => Ok(StoreOutcome::NotFound),
        _ => Err(impossible()),
    }
}

/// Of a plain store.
pub(super) fn stored(reply: &Reply) -> Result<(), Error> {
    reply.made_or_sent(|answer| matches!(answer, Answer::Stored(_)))
}

pub(super) fn deleted(reply: &Reply) -> Result<bool, Error> {
    match reply.answer {
        Answer::Deleted => Ok(true),
        Answer::NotFound => Ok(false),
        _ => Err(impossible()),
    }
}
