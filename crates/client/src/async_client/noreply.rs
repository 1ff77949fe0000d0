//! Changes without a reply.

use super::AsyncClient;
use super::changes::StoreOptions;
use super::request::Request;
use crate::codec::Protocol;
use crate::{Error, Ttl};

/// Changes whose success is not reported: [`AsyncClient::noreply`].
///
/// Each returns once the system has taken all bytes of it. That says nothing about the server: it may refuse the
/// change, or never get it. A failure that a server does report closes the connection, and so the other requests on it
/// fail ([`Error::Interrupted`]): nobody is left who could be told, and in the text protocol it could be taken for the
/// failure of the next request. There is no order among these and other requests, which may go over other connections.
///
/// Errors are as with replies: [`Error::Unknown`] if a part may have been sent.
#[derive(Clone, Copy, Debug)]
pub struct Noreply<'a>(&'a AsyncClient);

impl AsyncClient {
    /// Changes without a reply, for what may be lost.
    pub fn noreply(&self) -> Noreply<'_> {
        Noreply(self)
    }
}

impl Noreply<'_> {
    /// Stores a value unconditionally.
    ///
    /// # Errors
    /// See [`Noreply`].
    pub async fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
        ttl: impl Into<Ttl>,
    ) -> Result<(), Error> {
        self.store(key, value, StoreOptions { ttl: ttl.into(), ..StoreOptions::default() }).await
    }

    /// Stores, with all options. A condition that does not hold is a failure in the meta and binary protocols, which
    /// closes the connection.
    ///
    /// # Errors
    /// See [`Noreply`].
    pub async fn store(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
        options: StoreOptions,
    ) -> Result<(), Error> {
        let key = key.as_ref();
        self.send(key, self.0.store_request(key, value.into(), options)?).await
    }

    /// Deletes a key. A missing one is no failure, though servers report it in the meta and binary protocols.
    ///
    /// # Errors
    /// See [`Noreply`].
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        let key = key.as_ref();
        let request = Request::Delete { key: self.0.key(key)?, compare: None, invalidate: None };
        self.send(key, request).await
    }

    /// Adds to a decimal number, modulo 2^64. It should exist: in the meta and binary protocols a missing one is a
    /// failure that closes the connection.
    ///
    /// # Errors
    /// See [`Noreply`].
    pub async fn incr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<(), Error> {
        self.arith(key.as_ref(), delta, false).await
    }

    /// Subtracts from a decimal number, down to 0. It should exist: see [`Noreply::incr`].
    ///
    /// # Errors
    /// See [`Noreply`].
    pub async fn decr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<(), Error> {
        self.arith(key.as_ref(), delta, true).await
    }

    async fn arith(&self, key: &[u8], delta: u64, decrement: bool) -> Result<(), Error> {
        self.send(key, Request::Arith { key: self.0.key(key)?, delta, decrement, initial: None }).await
    }

    /// Sets a new time to live. Only in the text protocol: the others have no such request without a reply.
    ///
    /// # Errors
    /// See [`Noreply`].
    pub async fn touch(&self, key: impl AsRef<[u8]>, ttl: impl Into<Ttl>) -> Result<(), Error> {
        if self.0.protocol() != Protocol::Text {
            return Err(Error::Unsupported("only the text protocol has touches without a reply"));
        }
        let key = key.as_ref();
        let request = Request::Touch { key: self.0.key(key)?, exptime: ttl.into().exptime() };
        self.send(key, request).await
    }

    async fn send(&self, key: &[u8], request: Request) -> Result<(), Error> {
        self.0.ask_until(self.0.deadline(), key, request, true).await.map(|_| ())
    }
}
