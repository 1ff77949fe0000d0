//! The crate memcache: one client for all threads, with a pool of connections to each server.

use super::{Client, Result, run_threads};
use crate::load::Load;

pub(super) fn run(servers: &str, load: &'static Load, threads: &[usize]) -> Result<()> {
    let urls: Vec<String> = servers.split(',').map(|server| format!("memcache://{server}")).collect();
    let connections = threads.iter().copied().max().unwrap_or_default().max(super::PREPARING);
    let client = memcache::Client::with_pool_size(urls, connections as u32)?;
    run_threads(load, threads, || Ok(Pooled(client.clone())))
}

struct Pooled(memcache::Client);

impl Client for Pooled {
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        Ok(self.0.set(key, value, 0)?)
    }

    fn get(&mut self, keys: &[&str]) -> Result<usize> {
        if let [key] = keys {
            return Ok(usize::from(self.0.get::<String>(key)?.is_some()));
        }
        Ok(self.0.gets::<String>(keys)?.len())
    }
}
