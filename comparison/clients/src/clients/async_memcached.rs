//! The crate async-memcached: a client is a connection to one server, so each task has one.

use async_memcached::{AsciiProtocol as _, Client as Connection};

use super::{AsyncClient, Result, run_tasks};
use crate::load::Load;

pub(super) fn run(server: &str, load: &'static Load, tasks: &[usize]) -> Result<()> {
    if server.contains(',') {
        return Err("async-memcached knows one server".into());
    }
    let server = format!("tcp://{server}");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run_tasks(load, tasks, async || Ok(Connected(Connection::new(&server).await?))))
}

struct Connected(Connection);

impl AsyncClient for Connected {
    async fn set(&mut self, key: &str, value: &str) -> Result<()> {
        Ok(self.0.set(key, value, None, None).await?)
    }

    async fn get(&mut self, keys: &[&str]) -> Result<usize> {
        if let [key] = keys {
            return Ok(usize::from(self.0.get(key).await?.is_some()));
        }
        Ok(self.0.get_multi(keys).await?.len())
    }
}
