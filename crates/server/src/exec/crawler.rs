//! The search for expired items that `lru_crawler crawl` starts, through all items at once. The engine also searches by
//! itself, a little every second. The control thread does the work.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use larder_engine::IndexScan;
use larder_protocol::Error;

use crate::namespaces::Guards;
use crate::observe::watch::Event;
use crate::shared::Shared;

/// The state of the search that workers and the control thread share.
#[derive(Debug, Default)]
pub struct Crawler {
    is_enabled: AtomicBool,
    is_running: AtomicBool,
    starts: AtomicU64,
}

/// The progress of a search.
#[derive(Default)]
pub(crate) struct Crawl {
    /// Of the engine that is being searched.
    number: u8,
    walk: IndexScan,
    begun_secs: Option<u32>,
    examined: u64,
    reclaimed: u64,
}

impl Crawler {
    /// A crawler that is enabled or not.
    pub fn new(is_enabled: bool) -> Self {
        Self { is_enabled: AtomicBool::new(is_enabled), ..Self::default() }
    }

    /// True if a search may be started.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Relaxed)
    }

    /// Enables or disables it. False: it already was.
    pub fn enable(&self, is_enabled: bool) -> bool {
        self.is_enabled.swap(is_enabled, Relaxed) != is_enabled
    }

    /// True while a search runs.
    pub fn is_running(&self) -> bool {
        self.is_running.load(Relaxed)
    }

    /// How many searches were started.
    pub fn starts(&self) -> u64 {
        self.starts.load(Relaxed)
    }

    /// Requests a search. The caller wakes the control thread.
    pub fn start(&self) -> Result<(), Error> {
        if !self.is_enabled() {
            return Err(Error::CrawlerDisabled);
        }
        if self.is_running.swap(true, Relaxed) {
            return Err(Error::CrawlerBusy);
        }
        self.starts.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Searches some more buckets, and ends the search after the last.
    pub(crate) fn step(&self, shared: &Shared, crawl: &mut Crawl, guards: &Guards<'_>) {
        let begun_secs = *crawl.begun_secs.get_or_insert_with(|| guards.now().secs);
        for _ in 0..BUCKETS_PER_STEP {
            let swept = guards.guard(crawl.number).scan_expired(&mut crawl.walk);
            crawl.examined += swept.examined;
            crawl.reclaimed += swept.reclaimed;
            if crawl.walk.is_done() && crawl.number + 1 < guards.count() {
                crawl.number += 1;
                crawl.walk = IndexScan::default();
            } else if crawl.walk.is_done() {
                let Crawl { examined, reclaimed, .. } = mem::take(crawl);
                self.is_running.store(false, Relaxed);
                let elapsed_secs = guards.now().secs - begun_secs;
                return shared
                    .tell(shared.settings.threads, &Event::Crawl { elapsed_secs, examined, reclaimed });
            }
        }
    }
}

/// Buckets per step, between which the control thread does its other work.
const BUCKETS_PER_STEP: u32 = 1024;
