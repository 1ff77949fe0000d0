//! HTTP for operators (`--admin-listen`): metrics, health, JSON and a live page, on separate listeners and a separate
//! thread.
//!
//! A request reads counters that exist anyway and does not involve a worker. No path shows values but that of
//! [`backup`], which has a token of its own. Only [`api`] shows keys, and only where
//! [`endpoint::AdminEndpoint::shows_keys`] allows it.
//!
//! | module | contents |
//! |---|---|
//! | [`endpoint`] | listeners; options and access are in [`crate::access`] |
//! | [`serve`] | connections: their number, their time, TLS |
//! | [`router`] | a request and its response |
//! | [`renderer`] | one page at a time |
//! | [`state`], [`history`] | the data, now and over the last day |
//! | [`peers`] | the other servers of `--admin-peers` |
//! | [`metrics`] | `/metrics`, for Prometheus |
//! | [`api`] | `/api/...`, in JSON |
//! | [`backup`] | `/api/backup`, a backup as a stream |
//! | [`page`] | `/`, for people |

mod api;
mod backup;
mod endpoint;
mod history;
mod metrics;
mod page;
mod peers;
mod renderer;
mod router;
mod serve;
mod state;

use std::io;
use std::sync::Arc;

pub use peers::PeerAddress;

use crate::net::listeners::{self, Listener};
use crate::net::worker_pool::WorkerPool;
use crate::observe::process::ProcessFiles;
use crate::persistence::StoreSettings;
use crate::shared::Shared;
use crate::startup::options::{EXIT_USAGE, Refusal};
use crate::startup::settings::Settings;

/// Bound listeners. They must be bound before privileges are dropped.
pub struct Web {
    listeners: Vec<Listener>,
    /// The number of other servers that it asks.
    peers: usize,
    process_files: ProcessFiles,
}

impl Web {
    /// Binds the addresses of `--admin-listen`, in addition to the `passed` listeners. `None`: there are none. Errors:
    /// exit code 71 for an address, 64 for peers that cannot be asked.
    pub fn bind(settings: &Settings, passed: Vec<Listener>) -> Result<Option<Self>, Refusal> {
        if settings.admin.listen.is_empty() && passed.is_empty() {
            if !settings.admin_peers.is_empty() {
                return Err(Refusal::new(EXIT_USAGE, "larderd: --admin-peers needs --admin-listen"));
            }
            let is_unused =
                |store: &StoreSettings| store.backup_token_file.is_some() && store.backup_directory.is_none();
            if settings.store.as_ref().is_some_and(is_unused) {
                return Err(Refusal::new(
                    EXIT_USAGE,
                    "larderd: --backup-token-file needs --admin-listen or --backup-dir",
                ));
            }
            return Ok(None);
        }
        peers::check(settings)?;
        let mut listeners = passed;
        listeners.extend(listeners::bind_http("--admin-listen", &settings.admin.listen, settings)?);
        let (peers, process_files) = (settings.admin_peers.len(), ProcessFiles::default());
        Ok(Some(Self { listeners, peers, process_files }))
    }

    /// Opens the files of /proc that metrics are read from. Call it in the process that serves, before its sandbox.
    pub fn open_process_files(&mut self) {
        self.process_files = ProcessFiles::open();
    }

    /// The listeners.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// Descriptors that it needs at most.
    pub fn descriptors(&self) -> usize {
        // The runtime has an epoll, an eventfd, and duplicates of both.
        let look_ups = 2 * LOOKUPS_MAX;
        self.listeners.len() + serve::CONNECTIONS_MAX + ProcessFiles::DESCRIPTORS + self.peers + look_ups + 8
    }

    /// Serves on a thread of its own until the process ends. Errors: no thread or no descriptor left.
    pub fn start(self, shared: Arc<Shared>, pool: Arc<WorkerPool>) -> io::Result<()> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().enable_time().max_blocking_threads(LOOKUPS_MAX).build()?;
        let endpoints = endpoint::open(self.listeners, &shared.settings);
        let state = Arc::new(state::State::new(shared, pool, self.process_files)?);
        let thread = std::thread::Builder::new().name("larder-admin".to_owned());
        thread.spawn(move || runtime.block_on(serve::run(endpoints, state)))?;
        Ok(())
    }
}

/// Threads that look up names of peers. The runtime starts them when there is a name to look up.
const LOOKUPS_MAX: usize = 2;
