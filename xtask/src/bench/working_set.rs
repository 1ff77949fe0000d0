//! What a get costs when neither the index nor the items fit into the CPU's caches. Batches give a server the chance to
//! fetch memory ahead; how well it does shows in how much dearer a large set is.

use larder_bench::compare::Metric;
use larder_bench::scenario::{Keys, Sizes, Values};
use larder_conformance::Result;
use serde_json::json;

use super::Measured;
use super::rows::{Row, gets, scenario};
use super::speed::{Bench, middle};
use super::summary::Line;

pub(super) fn measure(bench: &Bench, row: &Row) -> Result<Measured> {
    let (mut figures, mut lines) = (Vec::new(), Vec::new());
    for (what, pipeline, keys) in [("32 in flight", 32, 1), ("gets of 100 keys", 1, 100)] {
        let cost = |count: u64| -> Result<[f64; 2]> {
            let mut group = gets(pipeline, keys);
            group.keys = Keys { count, ..Keys::default() };
            group.values = Values { bytes: Sizes::Fixed(VALUE_BYTES), ..Values::default() };
            let standings = bench.compare(&scenario(row.name, group))?.standings;
            Ok([0, 1].map(|at| middle(&standings[at], Metric::ServerCpuSecsPerMillion)))
        };
        let (small, large) = (cost(SMALL)?, cost(LARGE)?);
        for (at, name) in ["memcached", "larderd"].into_iter().enumerate() {
            println!(
                "  {name:<10} {what:<18} {:.3} us a key of {SMALL} items, {:.3} of {LARGE}: {:.2}",
                small[at],
                large[at],
                large[at] / small[at]
            );
            figures.push(json!({
                "server": name,
                "batch": what,
                "cpu_micros_small": small[at],
                "cpu_micros_large": large[at],
            }));
        }
        let ratio = |at: usize| large[at] / small[at];
        lines.push(Line {
            what: format!("{}: {what}", row.what),
            unit: "times the small set's CPU",
            memcached: Some(ratio(0)),
            larderd: ratio(1),
            floor: None,
            interval: None,
            goal: row.goal.to_string(),
            is_met: Some(ratio(1) <= GOAL),
        });
    }
    Ok(Measured { figures: figures.into(), lines })
}

const SMALL: u64 = 10_000;
const LARGE: u64 = 10_000_000;
const VALUE_BYTES: u64 = 32;
const GOAL: f64 = 1.3;
