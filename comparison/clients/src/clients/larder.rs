//! larder-client: one client for all tasks, or one for each thread that blocks. Values are written and read as the
//! Whalin client keeps strings, compressed from 30,720 bytes on.

use std::time::Duration;

use larder_client::codec::Store;
use larder_client::value::{Dialect, Transcoder, Value};
use larder_client::{Distribution, Protocol, Servers};

use super::{AsyncClient, Client, Result, run_tasks, run_threads};
use crate::load::Load;

pub(super) fn run(protocol: Protocol, servers: &str, load: &'static Load, tasks: &[usize]) -> Result<()> {
    let servers: Servers = servers.parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = larder_client::AsyncClient::builder()
            .servers(servers)
            .protocol(protocol)
            .distribution(Distribution::Ketama)
            .timeout(Duration::from_secs(60))
            .build();
        run_tasks(load, tasks, async || Ok(Shared { client: client.clone(), transcoder: transcoder() })).await
    })
}

pub(super) fn run_blocking(servers: &str, load: &'static Load, threads: &[usize]) -> Result<()> {
    let servers: Servers = servers.parse()?;
    run_threads(load, threads, || {
        let client = larder_client::Client::builder()
            .servers(servers.clone())
            .distribution(Distribution::Ketama)
            .timeout(Some(Duration::from_secs(60)))
            .build();
        Ok(Blocking { client, transcoder: transcoder() })
    })
}

fn transcoder() -> Transcoder {
    Transcoder::new(Dialect::Whalin)
}

struct Shared {
    client: larder_client::AsyncClient,
    transcoder: Transcoder,
}

impl AsyncClient for Shared {
    async fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let encoded = self.transcoder.encode(&Value::Text(value.to_owned()))?;
        let options = larder_client::async_client::StoreOptions {
            client_flags: encoded.client_flags,
            ..Default::default()
        };
        self.client.store(key, encoded.bytes, options).await?;
        Ok(())
    }

    async fn get(&mut self, keys: &[&str]) -> Result<usize> {
        if let [key] = keys {
            let Some(item) = self.client.get(key).await? else { return Ok(0) };
            self.transcoder.decode(item.value, item.client_flags)?;
            return Ok(1);
        }
        let mut values = self.client.get_many(keys);
        let mut found = 0;
        while let Some(arrival) = values.next().await {
            let (_, item) = arrival?;
            self.transcoder.decode(item.value, item.client_flags)?;
            found += 1;
        }
        Ok(found)
    }
}

struct Blocking {
    client: larder_client::Client,
    transcoder: Transcoder,
}

impl Client for Blocking {
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let encoded = self.transcoder.encode(&Value::Text(value.to_owned()))?;
        self.client.store(&Store {
            key: key.as_bytes(),
            value: &[&encoded.bytes],
            client_flags: encoded.client_flags,
            ..Store::default()
        })?;
        Ok(())
    }

    fn get(&mut self, keys: &[&str]) -> Result<usize> {
        let items = match keys {
            [key] => vec![self.client.get(key)?],
            keys => {
                let found = self.client.multi_get(keys);
                if let Some((_, error)) = found.failures.into_iter().next() {
                    return Err(error.into());
                }
                found.items
            }
        };
        let mut found = 0;
        for item in items.into_iter().flatten() {
            self.transcoder.decode(item.value, item.client_flags)?;
            found += 1;
        }
        Ok(found)
    }
}
