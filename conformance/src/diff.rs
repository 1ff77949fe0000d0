//! Random requests, sent to larderd and to a real memcached side by side: what comes back must agree.
//!
//! A story ([`draw`]) is a few bursts of pipelined requests on a few connections, each cut in pieces at random. All
//! replies to a burst are read before the next is sent, so that the order of events is the same for both. Requests that
//! are answered differently on purpose ([`deliberate`]) are left out. When the answers part all the same, the story is
//! made as short as possible ([`minimise`]) and shown in the notation of golden scripts, to become one.

mod deliberate;
mod draw;
mod minimise;
mod pair;
mod replies;
mod request;
mod story;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

pub use self::draw::Dialects;
use self::draw::Draw;
use self::pair::Pair;
use self::story::Teller;
use crate::Result;
use crate::server::STILL_REFERENCE;

/// What to compare.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// At least how many requests.
    pub commands: u64,
    /// Where the draw begins: the same seed draws the same stories.
    pub seed: u64,
    /// Of which dialects.
    pub dialects: Dialects,
    /// After how many differences to stop.
    pub differences_max: usize,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// Requests sent to each server.
    pub commands: u64,
    /// Requests drawn and not sent, because they are answered differently on purpose: how many, and why.
    pub left_out: BTreeMap<&'static str, u64>,
    /// How long it took.
    pub elapsed: Duration,
    /// Every difference: the shortest story that shows it, as blocks of a golden script.
    pub differences: Vec<String>,
    /// Stories whose answers differed once and never again: what the reference did in its own time.
    pub once: Vec<String>,
}

/// Compares larderd with a memcached. Errors: a server does not start, or dies.
pub fn run(reference: &Path, larderd: &Path, options: &Options) -> Result<Report> {
    let reference_args: Vec<&str> = ["-m", "1024"].into_iter().chain(STILL_REFERENCE).collect();
    let pair = Pair::start((reference, &reference_args), (larderd, &["-m", "1024", "-t", "2"]))?;
    let mut teller = Teller::new(pair)?;
    let mut draw = Draw::new(options.seed, options.dialects);
    let mut report = Report::default();
    let start = Instant::now();
    while report.commands < options.commands && report.differences.len() < options.differences_max {
        let story = draw.story();
        report.commands += story.iter().map(|burst| burst.requests.len() as u64).sum::<u64>();
        let Some(parting) = teller.tell(&story)? else { continue };
        let Some(parting) = teller.tell_again(&story)? else {
            report.once.push(minimise::script(&story, &parting));
            continue;
        };
        let (story, parting) = minimise::minimise(&mut teller, story, parting)?;
        let script = minimise::script(&story, &parting);
        if !report.differences.contains(&script) {
            report.differences.push(script);
        }
    }
    report.left_out = draw.left_out;
    report.elapsed = start.elapsed();
    Ok(report)
}
