//! Reads of one key.

use super::request::Request;
use super::{Answer, AsyncClient, impossible};
use crate::client::Item;
use crate::{Error, Ttl};

impl AsyncClient {
    /// The value of a key.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>, Error> {
        if self.shared.near.is_some() {
            return Box::pin(self.get_near(key.as_ref())).await;
        }
        self.get_with(key.as_ref(), false, None).await
    }

    /// The value of a key, with its CAS value.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn gets(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>, Error> {
        self.get_with(key.as_ref(), true, None).await
    }

    /// The value of a key, and a new time to live for it (`gat`). It is a change: it is not tried again if it may have
    /// been sent.
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn get_and_touch(
        &self,
        key: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<Option<Item>, Error> {
        self.get_with(key.as_ref(), false, Some(ttl.into())).await
    }

    /// [`AsyncClient::get_and_touch`], with the CAS value (`gats`).
    ///
    /// # Errors
    /// See [`AsyncClient`].
    pub async fn gets_and_touch(
        &self,
        key: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<Option<Item>, Error> {
        self.get_with(key.as_ref(), true, Some(ttl.into())).await
    }

    async fn get_with(&self, key: &[u8], with_cas: bool, ttl: Option<Ttl>) -> Result<Option<Item>, Error> {
        let exptime = ttl.map(Ttl::exptime);
        let request = Request::Get { key: self.key(key)?, with_cas, exptime, recache: None };
        let reply = self.ask(key, request).await?;
        match reply.answer {
            Answer::Found => Ok(reply.found.map(|found| found.item)),
            _ => Err(impossible()),
        }
    }
}
