//! The operator's side (`--admin-listen`): metrics, health, JSON and a live page over HTTP, on listeners and a thread
//! of its own.
//!
//! A request here reads counters that are there anyway and never meets a worker. Nothing here can reach a value; keys
//! are told by [`api`] alone, and only to those who may see them ([`door::AdminEndpoint::shows_keys`]).
//!
//! | module | what it is |
//! |---|---|
//! | [`settings`], [`token`], [`door`] | what was asked for, who is let in, and where |
//! | [`serve`] | connections: how many, how long, with TLS or without |
//! | [`router`] | a request and its response |
//! | [`renderer`] | one page at a time |
//! | [`state`], [`history`] | what there is to tell, now and over the last day |
//! | [`metrics`] | `/metrics`, for Prometheus |
//! | [`api`] | `/api/...`, in JSON |
//! | [`page`] | `/`, for people |

mod api;
mod endpoint;
mod history;
mod metrics;
mod page;
mod renderer;
mod router;
mod serve;
mod settings;
mod state;
mod token;

use std::io;
use std::sync::Arc;

pub use settings::WebSettings;
pub use token::TokenFile;

use crate::net::listeners::Listener;
use crate::net::worker_pool::WorkerPool;
use crate::shared::Shared;
use crate::startup::options::{EXIT_USAGE, Refusal};
use crate::startup::privileges::Target;
use crate::startup::settings::Settings;

/// Listeners that are bound: what must be done while the process still has its rights.
pub struct Web {
    listeners: Vec<Listener>,
    needs_login: bool,
}

impl Web {
    /// Binds what `--admin-listen` names, beside those listeners that were `passed` to us. `None`: nothing is asked
    /// for. Errors: exit code 71 for an address, 64 for TLS without certificates.
    pub fn bind(
        settings: &Settings,
        passed: Vec<Listener>,
        user: Option<&Target>,
    ) -> Result<Option<Self>, Refusal> {
        if settings.web.listen.is_empty() && passed.is_empty() {
            return Ok(None);
        }
        if settings.web.tls && !settings.tls.is_enabled {
            return Err(Refusal::new(EXIT_USAGE, "larderd: --admin-tls has no certificates without -Z"));
        }
        let mut listeners = passed;
        listeners.extend(endpoint::bind(settings, user)?);
        Ok(Some(Self { listeners, needs_login: settings.web.token_file.is_some() }))
    }

    /// The listeners.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// Is a token asked for?
    pub fn needs_login(&self) -> bool {
        self.needs_login
    }

    /// Descriptors that it may need.
    pub fn descriptors(&self) -> usize {
        // The runtime has an epoll, an eventfd and copies of both.
        self.listeners.len() + serve::CONNECTIONS_MAX + 8
    }

    /// Serves on a thread of its own, to the end of the process. Errors: no thread or no descriptor to be had.
    pub fn start(self, shared: Arc<Shared>, pool: Arc<WorkerPool>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let endpoints = endpoint::open(self.listeners, self.needs_login, &shared.settings);
        let state = Arc::new(state::State::new(shared, pool));
        let thread = std::thread::Builder::new().name("larder-admin".to_owned());
        thread.spawn(move || runtime.block_on(serve::run(endpoints, state)))?;
        Ok(())
    }
}
