//! Changes of many keys, on all their servers at once.

use futures_util::stream::{StreamExt, iter};

use super::changes::{StoreOptions, deleted, stored};
use super::request::Request;
use super::{AsyncClient, Reply};
use crate::{Error, Ttl};

impl AsyncClient {
    /// Stores many values, unconditionally, on all servers at once. The results are in the order of the items, which
    /// are taken from the iterator as there is room for them. One time limit holds for all of them together.
    pub async fn set_many<K: AsRef<[u8]>, V: Into<Vec<u8>>>(
        &self,
        items: impl IntoIterator<Item = (K, V)>,
        ttl: impl Into<Ttl>,
    ) -> Vec<Result<(), Error>> {
        let options = StoreOptions { ttl: ttl.into(), ..StoreOptions::default() };
        let requests = items.into_iter().map(|(key, value)| {
            let key = key.as_ref();
            self.store_request(key, value.into(), options).map(|request| (key.to_vec(), request))
        });
        self.ask_for_all(requests, self.is_fire_and_forget(), stored).await
    }

    /// Deletes many keys, on all servers at once. The results are in the order of the keys; `false`: it does not exist.
    /// One time limit holds for all of them together.
    pub async fn delete_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<bool, Error>> {
        let requests = keys.into_iter().map(|key| {
            let request = Request::Delete { key: self.key(key.as_ref())?, compare: None, invalidate: None };
            Ok((key.as_ref().to_vec(), request))
        });
        self.ask_for_all(requests, false, deleted).await
    }

    /// Sends all requests, each to its server. The results are in their order.
    async fn ask_for_all<R>(
        &self,
        requests: impl Iterator<Item = Result<(Vec<u8>, Request), Error>>,
        is_quiet: bool,
        read: fn(&Reply) -> Result<R, Error>,
    ) -> Vec<Result<R, Error>> {
        let deadline = self.deadline();
        let ask = |(index, request): (usize, Result<(Vec<u8>, Request), Error>)| async move {
            let result = match request {
                Ok((key, request)) => {
                    self.ask_until(deadline, &key, request, is_quiet).await.and_then(|reply| read(&reply))
                }
                Err(error) => Err(error),
            };
            (index, result)
        };
        let at_once = CHANGES_AT_ONCE * self.shared.topology().pools.len().max(1);
        let mut results: Vec<_> =
            iter(requests.enumerate()).map(ask).buffer_unordered(at_once).collect().await;
        results.sort_unstable_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// Changes that are under way at a time, for each server, so that others have their turn.
const CHANGES_AT_ONCE: usize = 512;
