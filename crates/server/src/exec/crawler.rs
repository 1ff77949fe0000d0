//! The search for expired items that `lru_crawler crawl` asks for. The engine looks for them by itself as well, a
//! little every second; this one goes through all items at once. The control thread does the work.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use larder_engine::{Guard, IndexScan};
use larder_protocol::Error;

use crate::observe::watch::Event;
use crate::shared::Shared;

/// What workers and the control thread know of the search.
#[derive(Debug, Default)]
pub struct Crawler {
    is_enabled: AtomicBool,
    is_running: AtomicBool,
    starts: AtomicU64,
}

/// A search under way.
#[derive(Default)]
pub(crate) struct Crawl {
    walk: IndexScan,
    begun_secs: Option<u32>,
    examined: u64,
    reclaimed: u64,
}

impl Crawler {
    /// One that may be asked, or not.
    pub fn new(is_enabled: bool) -> Self {
        Self { is_enabled: AtomicBool::new(is_enabled), ..Self::default() }
    }

    /// May it be asked?
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Relaxed)
    }

    /// Lets it be asked, or not; false if that was so already.
    pub fn enable(&self, is_enabled: bool) -> bool {
        self.is_enabled.swap(is_enabled, Relaxed) != is_enabled
    }

    /// Is it at work?
    pub fn is_running(&self) -> bool {
        self.is_running.load(Relaxed)
    }

    /// How often it was started.
    pub fn starts(&self) -> u64 {
        self.starts.load(Relaxed)
    }

    /// Asks for a search. To be told to the control thread.
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

    /// Goes on with the search for a while, and is done when all items were met.
    pub(crate) fn step(&self, shared: &Shared, crawl: &mut Crawl, guard: &Guard<'_>) {
        let begun_secs = *crawl.begun_secs.get_or_insert_with(|| guard.now().secs);
        for _ in 0..BUCKETS_PER_STEP {
            let swept = guard.scan_expired(&mut crawl.walk);
            crawl.examined += swept.examined;
            crawl.reclaimed += swept.reclaimed;
            if crawl.walk.is_done() {
                let Crawl { examined, reclaimed, .. } = mem::take(crawl);
                self.is_running.store(false, Relaxed);
                let elapsed_secs = guard.now().secs - begun_secs;
                return shared
                    .tell(shared.settings.threads, &Event::Crawl { elapsed_secs, examined, reclaimed });
            }
        }
    }
}

/// Buckets that are looked at before signals and other work have their turn.
const BUCKETS_PER_STEP: u32 = 1024;
