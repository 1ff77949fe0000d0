//! Memory per item, and items in a given memory.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use larder_bench::Scenario;
use larder_bench::outcome::Tally;
use larder_bench::scenario::{Command, Group, Keys, Kind, Popularity, Sizes, Until, Values};
use larder_conformance::Result;
use larder_conformance::server::Server;
use larder_conformance::stats::Stats;
use serde_json::{Value, json};

use super::Measured;
use super::rows::Row;
use super::speed::Bench;
use super::summary::Line;

/// Prints the table, and returns its figures.
pub(super) fn measure(bench: &Bench, row: &Row) -> Result<Measured> {
    println!("  keys of {KEY_BYTES} B; overhead = resident memory of the process / items - key - value");
    println!(
        "  {:<10} {:>8} {:>10} {:>12} {:>10} {:>17} {:>10}",
        "", "value B", "items", "RSS B/item", "overhead", "held at -m 1024", "RSS MiB"
    );
    let (mut figures, mut lines) = (Vec::new(), Vec::new());
    for size in SIZES {
        let memcached = cost("memcached", &bench.memcached, &size)?;
        let larderd = cost("larderd", &bench.larderd, &size)?;
        figures.extend([memcached.json(), larderd.json()]);
        let line = |what: &str, unit, of: fn(&Cost) -> f64, goal: String, is_met| Line {
            what: format!("{} of {KEY_BYTES} + {} B", what, size.value_bytes),
            unit,
            memcached: Some(of(&memcached)),
            larderd: of(&larderd),
            floor: None,
            interval: None,
            goal,
            is_met: Some(is_met),
        };
        lines.push(line(
            "overhead of an item",
            "B",
            |cost| cost.overhead_bytes,
            format!("{} B", size.overhead_goal_bytes),
            larderd.overhead_bytes <= size.overhead_goal_bytes,
        ));
        lines.push(line(
            "items held at -m 1024,",
            "items",
            |cost| cost.held as f64,
            format!("{}, process at most 5 % over -m", size.held_goal),
            larderd.held >= size.held_goal && larderd.held_rss_bytes <= (1024 << 20) / 100 * 105,
        ));
    }
    println!("  ({})", row.goal);
    Ok(Measured { figures: figures.into(), lines })
}

/// A size of values, and what larderd is to reach with it.
struct Size {
    items: u64,
    value_bytes: u64,
    overhead_goal_bytes: f64,
    held_goal: u64,
}

/// What items of a size cost one server.
struct Cost {
    name: &'static str,
    value_bytes: u64,
    rss_bytes_per_item: f64,
    overhead_bytes: f64,
    held: u64,
    held_rss_bytes: u64,
}

impl Cost {
    fn json(&self) -> Value {
        json!({
            "server": self.name,
            "value_bytes": self.value_bytes,
            "rss_bytes_per_item": self.rss_bytes_per_item,
            "overhead_bytes_per_item": self.overhead_bytes,
            "items_held_at_1024_mib": self.held,
            "rss_bytes_at_1024_mib": self.held_rss_bytes,
        })
    }
}

fn cost(name: &'static str, program: &Path, size: &Size) -> Result<Cost> {
    let value_bytes = size.value_bytes;
    let rss_bytes_per_item = rss_per_item(program, size.items, value_bytes)?;
    let overhead_bytes = rss_bytes_per_item - (KEY_BYTES + value_bytes) as f64;
    let (held, held_rss_bytes) = held_before_eviction(program, value_bytes)?;
    let rss_mib = held_rss_bytes as f64 / f64::from(1 << 20);
    let items = size.items;
    println!(
        "  {name:<10} {value_bytes:>8} {items:>10} {rss_bytes_per_item:>12.1} {overhead_bytes:>10.1} {held:>17} {rss_mib:>10.0}"
    );
    Ok(Cost { name, value_bytes, rss_bytes_per_item, overhead_bytes, held, held_rss_bytes })
}

/// Resident memory of the whole process divided by its items, with room for all of them.
pub(super) fn rss_per_item(program: &Path, items: u64, value_bytes: u64) -> Result<f64> {
    let server = start(program, 2048)?;
    fill(&server, 0, items, value_bytes)?;
    let held = Stats::of(server.address())?.get("curr_items")?;
    if held != items {
        return Err(format!("{} holds {held} of {items} items", program.display()).into());
    }
    Ok(server.resident_bytes()? as f64 / items as f64)
}

/// Items in a server of 1024 MiB when it begins to evict, and its resident memory then.
fn held_before_eviction(program: &Path, value_bytes: u64) -> Result<(u64, u64)> {
    let server = start(program, 1024)?;
    let mut held = 0;
    for first in (0..ITEMS_MAX).step_by(FILL_STEP) {
        fill(&server, first, FILL_STEP as u64, value_bytes)?;
        let stats = Stats::of(server.address())?;
        held = stats.get("curr_items")?.max(held);
        if stats.get("evictions")? > 0 {
            return Ok((held, server.resident_bytes()?));
        }
    }
    Err(format!("{} evicts nothing though {ITEMS_MAX} items were stored at -m 1024", program.display())
        .into())
}

fn start(program: &Path, memory_mib: u32) -> Result<Server> {
    Server::start(program, &["-t", "1", "-c", "4096", "-m", &memory_mib.to_string()])
}

/// Stores keys `first` to `first + count` - 1, each once.
fn fill(server: &Server, first: u64, count: u64, value_bytes: u64) -> Result<()> {
    let keys = Keys { first, count, ..Keys::default() };
    let values = Values { bytes: Sizes::Fixed(value_bytes), ..Values::default() };
    // A run asks something; what it is here for was done before.
    let tally = ask(server, Kind::Get, keys, values, Requests { fill: true, count: 1 })?;
    match tally.examples.first() {
        Some(example) => Err(example.as_str().into()),
        None => Ok(()),
    }
}

/// Every key once with a set, if `fill`, and then so many requests.
pub(super) struct Requests {
    pub(super) fill: bool,
    pub(super) count: u64,
}

/// Sends them over few connections with many in flight (keys in order over one), and returns what came of them.
pub(super) fn ask(
    server: &Server,
    kind: Kind,
    keys: Keys,
    values: Values,
    requests: Requests,
) -> Result<Tally> {
    let connections = if keys.popularity == Popularity::Sequential { 1 } else { 4 };
    let commands = vec![Command { kind, ..Command::default() }];
    let mut scenario = Scenario {
        threads: 1,
        fill: requests.fill,
        until: Until { requests: Some(requests.count), ..Until::default() },
        groups: vec![Group { connections, pipeline: 64, keys, values, commands, ..Group::default() }],
        ..Scenario::default()
    };
    scenario.target.servers = vec![server.address().to_string()];
    Ok(larder_bench::run(&scenario, &mut (), &AtomicBool::new(false))?.total)
}

const SIZES: [Size; 2] = [
    Size { items: 2_000_000, value_bytes: 32, overhead_goal_bytes: 32.0, held_goal: 11_500_000 },
    Size { items: 1_000_000, value_bytes: 1024, overhead_goal_bytes: 40.0, held_goal: 975_000 },
];
pub(super) const KEY_BYTES: u64 = 24;
/// How many items are stored between two looks at the eviction counter: the error of that figure.
const FILL_STEP: usize = 20_000;
/// Far more items than 1024 MiB can hold with any value size of the memory figures.
const ITEMS_MAX: u64 = 30_000_000;
