//! Memory per item, and items in a given memory.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use larder_bench::Scenario;
use larder_bench::scenario::{Command, Group, Keys, Sizes, Until, Values};
use larder_conformance::Result;
use larder_conformance::server::Server;
use larder_conformance::stats::Stats;
use serde_json::{Value, json};

/// Prints the table, and returns its figures.
pub(super) fn measure(programs: [(&str, &Path); 2]) -> Result<Value> {
    println!("\nkeys of {KEY_BYTES} B; overhead = resident memory of the process / items - key - value");
    println!(
        "  {:<10} {:>8} {:>10} {:>12} {:>10} {:>17} {:>10}",
        "", "value B", "items", "RSS B/item", "overhead", "held at -m 1024", "RSS MiB"
    );
    let mut figures = Vec::new();
    for (items, value_bytes) in [(2_000_000, 32), (1_000_000, 1024)] {
        for (name, program) in programs {
            let rss_per_item = rss_per_item(program, items, value_bytes)?;
            let overhead = rss_per_item - (KEY_BYTES + value_bytes) as f64;
            let (held, rss) = held_before_eviction(program, value_bytes)?;
            let rss_mib = rss as f64 / f64::from(1 << 20);
            println!(
                "  {name:<10} {value_bytes:>8} {items:>10} {rss_per_item:>12.1} {overhead:>10.1} {held:>17} {rss_mib:>10.0}",
            );
            figures.push(json!({
                "server": name,
                "value_bytes": value_bytes,
                "items": items,
                "rss_bytes_per_item": rss_per_item,
                "overhead_bytes_per_item": overhead,
                "items_held_at_1024_mib": held,
                "rss_bytes_at_1024_mib": rss,
            }));
        }
    }
    Ok(figures.into())
}

/// Resident memory of the whole process divided by its items, with room for all of them.
fn rss_per_item(program: &Path, items: u64, value_bytes: u64) -> Result<f64> {
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
    let keys = Keys { first, count, bytes: Sizes::Fixed(KEY_BYTES), ..Keys::default() };
    let values = Values { bytes: Sizes::Fixed(value_bytes), ..Values::default() };
    let group = Group {
        connections: 4,
        pipeline: 64,
        keys,
        values,
        commands: vec![Command::default()],
        ..Group::default()
    };
    let mut scenario = Scenario {
        threads: 1,
        fill: true,
        // A run asks something; what it is here for was done before.
        until: Until { requests: Some(1), ..Until::default() },
        groups: vec![group],
        ..Scenario::default()
    };
    scenario.target.servers = vec![server.address().to_string()];
    let outcome = larder_bench::run(&scenario, &mut (), &AtomicBool::new(false))?;
    match outcome.total.examples.first() {
        Some(example) => Err(example.as_str().into()),
        None => Ok(()),
    }
}

const KEY_BYTES: u64 = 24;
/// How many items are stored between two looks at the eviction counter: the error of that figure.
const FILL_STEP: usize = 20_000;
/// Far more items than 1024 MiB can hold with any value size of the memory figures.
const ITEMS_MAX: u64 = 30_000_000;
