//! The hot keys of the fleet, while they are shown: watching costs the servers time for each request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use larder_client::Address;

use crate::Failure;
use crate::events::{Events, Stream};
use crate::hotkeys::sample::{Hot, Sample, Sum};
use crate::output::readable;
use crate::target::Target;

/// Threads that count the look-ups of servers until it is dropped.
pub(super) struct HotKeys {
    counts: Vec<Arc<Mutex<Count>>>,
    is_over: Arc<AtomicBool>,
}

/// What is known of a server's keys.
struct Count {
    sample: Sample,
    /// Why it does not show them.
    trouble: Option<String>,
}

impl HotKeys {
    pub(super) fn start(target: &Target) -> Result<Self, Failure> {
        let is_over = Arc::new(AtomicBool::new(false));
        let count = |address: &Address| {
            let count = Arc::new(Mutex::new(Count { sample: Sample::empty(), trouble: None }));
            let (target, address, is_over) = (target.clone(), address.clone(), is_over.clone());
            let counted = count.clone();
            // It ends by itself within the time of a poll.
            thread::spawn(move || {
                if let Err(failure) = run(&target, &address, &counted, &is_over) {
                    lock(&counted).trouble = Some(readable(failure.message().as_bytes()));
                }
            });
            count
        };
        let counts = target.servers()?.iter().map(|server| count(&server.address)).collect();
        Ok(Self { counts, is_over })
    }

    /// The keys most frequent at present, of all servers together, and why some servers do not tell.
    pub(super) fn look(&self, keys_max: usize) -> (Vec<Hot>, Vec<String>) {
        let mut counts: Vec<_> = self.counts.iter().map(|count| lock(count)).collect();
        let hot = Sum::of(counts.iter().map(|count| &count.sample), keys_max).hot;
        let troubles = counts.iter().filter_map(|count| count.trouble.clone()).collect();
        counts.iter_mut().for_each(|count| count.sample.fade());
        (hot, troubles)
    }
}

impl Drop for HotKeys {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn run(
    target: &Target,
    address: &Address,
    count: &Mutex<Count>,
    is_over: &AtomicBool,
) -> Result<(), Failure> {
    let mut events = Events::open(target, address, &[Stream::Fetchers])?;
    while !is_over.load(Ordering::Relaxed) {
        if let Some(line) = events.next()? {
            lock(count).sample.count(line);
        }
    }
    Ok(())
}

fn lock(count: &Mutex<Count>) -> std::sync::MutexGuard<'_, Count> {
    count.lock().unwrap_or_else(PoisonError::into_inner)
}
