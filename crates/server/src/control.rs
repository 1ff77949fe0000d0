//! The control plane: the work of the main thread while the workers serve. Never on the path of a request.
//!
//! It waits for signals, and for work from commands (`shutdown`, `lru_crawler crawl`, `watch`). Once a second it runs
//! the cache's background step.

use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::exec::crawler::Crawl;
use crate::namespaces::Handles;
use crate::net::worker_pool::WorkerPool;
use crate::observe::forecast::Forecaster;
use crate::observe::watch::Watchers;
use crate::shared::Shared;
use crate::startup::signals::{Request, Signals};
use crate::startup::systemd::Supervisor;
use crate::startup::watched_files::WatchedFiles;

/// How the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At once.
    Now = 1,
    /// After the workers have finished their requests.
    Gracefully = 2,
}

/// Runs until a signal or the `shutdown` command stops the server. Errors: waiting fails.
pub fn run(
    shared: &Shared,
    pool: &WorkerPool,
    signals: &Signals,
    supervisor: &mut Supervisor,
) -> io::Result<Stop> {
    let handles = shared.namespaces.handles();
    let mut handles = handles.ok_or_else(|| io::Error::other("no engine handle left"))?;
    let mut forecaster = Forecaster::new(shared);
    let mut maintained_secs = 0;
    let mut crawl = Crawl::default();
    let mut watchers = Watchers::new(shared);
    let mut watched_files = WatchedFiles::new(shared);
    let mut limit_bytes = shared.namespaces.memory_limit();
    loop {
        let mut watched =
            vec![PollFd::new(signals, PollFlags::IN), PollFd::new(shared.control_wake(), PollFlags::IN)];
        watched.extend(watchers.polled());
        let pause = match () {
            () if shared.crawler.is_running() => &AT_ONCE,
            () if !watchers.is_empty() => &LOG_INTERVAL,
            () => &MAINTENANCE_INTERVAL,
        };
        match poll(&mut watched, Some(pause)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !watched[1].revents().is_empty() {
            shared.control_wake().drain();
        }
        drop(watched);
        supervisor.live();
        watchers.serve(shared, pool);
        // Under a lower limit, others may need the segments that idle workers hold.
        if limit_bytes != shared.namespaces.memory_limit() {
            limit_bytes = shared.namespaces.memory_limit();
            pool.wake_all();
        }
        while let Some(asked) = signals.next() {
            match asked {
                Request::Stop(signal) => return Ok(stopping(Stop::Now, signal, supervisor)),
                Request::StopGracefully(signal) => return Ok(stopping(Stop::Gracefully, signal, supervisor)),
                Request::Reload => reload(shared, pool, supervisor),
            }
        }
        if let Some(stop) = shared.requested_shutdown() {
            return Ok(stopping(stop, "the shutdown command", supervisor));
        }
        if shared.crawler.is_running() {
            shared.crawler.step(shared, &mut crawl, &handles.pin(shared.clock.now()));
        }
        if let Some(forecaster) = &mut forecaster {
            forecaster.step(shared);
        }
        let now_secs = shared.clock.now().secs;
        if now_secs != maintained_secs {
            maintained_secs = now_secs;
            shared.observe_wall();
            maintain(shared, &mut handles);
            if watched_files.as_mut().is_some_and(|files| files.have_changed(now_secs)) {
                reload(shared, pool, supervisor);
            }
            if now_secs.is_multiple_of(FADE_SECS) {
                shared.measures.fade();
            }
            shared.tell_evictions(shared.settings.threads, &mut handles);
        }
    }
}

fn stopping(stop: Stop, reason: &str, supervisor: &Supervisor) -> Stop {
    supervisor.stopping();
    match stop {
        Stop::Now => tracing::info!(reason, "Stopping"),
        Stop::Gracefully => tracing::info!(reason, "Gracefully stopping"),
    }
    stop
}

/// Reads the files again that may change while the server runs.
fn reload(shared: &Shared, pool: &WorkerPool, supervisor: &Supervisor) {
    supervisor.reloading();
    if let Some(authenticator) = &shared.authenticator {
        authenticator.reload();
    }
    for token in shared.admin_token.iter().chain(&shared.backup_token).chain(&shared.http_token) {
        token.reload();
    }
    if let Some(tls) = &shared.tls {
        // An error is logged there, and changes nothing.
        let _ = tls.reload();
    }
    if let Some(site) = shared.persistence.as_ref().and_then(|persistence| persistence.replication.get()) {
        site.reload_peers();
    }
    shared.namespaces.reload(&shared.settings, shared.persistence.as_ref());
    // Workers wake to read the new policies, and to give up what lower quotas leave no room for.
    pool.wake_all();
    supervisor.reloaded();
}

/// Runs background work of the cache, in bounded steps, so that a signal does not wait long.
fn maintain(shared: &Shared, handles: &mut Handles) {
    for handle in handles.iter_mut() {
        for _ in 0..MAINTENANCE_STEPS_MAX {
            if !handle.maintain(shared.clock.now(), MAINTENANCE_ITEMS) {
                break;
            }
        }
    }
    handles.release();
}

/// How long a line waits for others before it is sent to watchers.
const LOG_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// After so many seconds a request counts half among the busiest keys.
const FADE_SECS: u32 = 30;
const MAINTENANCE_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Items of a step: some hundred microseconds of work.
const MAINTENANCE_ITEMS: usize = 1024;
const MAINTENANCE_STEPS_MAX: u32 = 256;
