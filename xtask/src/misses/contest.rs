//! larderd beside memcached, at equal resident memory.

use std::path::Path;

use larder_conformance::Result;

use super::replay::{Tally, replay};
use super::workload::Workload;
use super::{Options, start};

/// What came of a server.
#[derive(Clone, Copy)]
struct Figures {
    memory_mib: u64,
    tally: Tally,
    resident_bytes: u64,
}

/// Prints a line for each workload and size, and the geometric mean of all.
pub(super) fn compare(options: &Options, reference: &Path, larderd: &Path) -> Result<()> {
    println!("| workload | memcached -m | RSS | misses | larderd -m | RSS | misses | ratio |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut logarithms: Vec<f64> = Vec::new();
    let mut worst: f64 = 0.0;
    for workload in options.workloads() {
        let workload = workload?;
        let mut of_workload = Vec::new();
        for memory_mib in options.memory_mib(&workload, &PARTS) {
            let theirs = measure(reference, memory_mib, &workload)?;
            let ours = measure_within(larderd, theirs.resident_bytes, &workload)?;
            let ratio = ours.tally.misses as f64 / theirs.tally.misses as f64;
            println!("| {} | {} | {} | {ratio:.3} |", workload.name, columns(&theirs), columns(&ours));
            of_workload.push(ratio.ln());
            worst = worst.max(ratio);
        }
        // Each workload counts alike, however many sizes it has.
        logarithms.push(mean(&of_workload));
    }
    println!("\ngeometric mean {:.3}, worst {worst:.3}", mean(&logarithms).exp());
    Ok(())
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

fn columns(figures: &Figures) -> String {
    let mib = figures.resident_bytes as f64 / f64::from(1 << 20);
    let ratio = 100.0 * figures.tally.miss_ratio();
    format!("{} | {mib:.1} | {} ({ratio:.2} %)", figures.memory_mib, figures.tally.misses)
}

fn measure(program: &Path, memory_mib: u64, workload: &Workload) -> Result<Figures> {
    let server = start(program, memory_mib, &[])?;
    let tally = replay(workload, server.address())?;
    Ok(Figures { memory_mib, tally, resident_bytes: server.resident_bytes()? })
}

/// Gives the program as much memory as it can have without more resident memory than `resident_bytes_max`.
fn measure_within(program: &Path, resident_bytes_max: u64, workload: &Workload) -> Result<Figures> {
    let whole_mib = |bytes: u64| bytes >> 20;
    let mut memory_mib = whole_mib(resident_bytes_max).saturating_sub(PROGRAM_MIB).max(1);
    let mut best: Option<Figures> = None;
    let mut tried = Vec::new();
    while !tried.contains(&memory_mib) {
        tried.push(memory_mib);
        let figures = measure(program, memory_mib, workload)?;
        if figures.resident_bytes > resident_bytes_max {
            let over_mib = whole_mib(figures.resident_bytes - resident_bytes_max) + 1;
            memory_mib = memory_mib.saturating_sub(over_mib).max(1);
            continue;
        }
        if best.is_none_or(|best| best.memory_mib < memory_mib) {
            best = Some(figures);
        }
        let room_mib = whole_mib(resident_bytes_max - figures.resident_bytes);
        if room_mib == 0 || figures.tally.misses <= workload.keys() || tried.len() == TRIES_MAX {
            break;
        }
        memory_mib += room_mib;
    }
    best.ok_or_else(|| format!("{} does not fit into {resident_bytes_max} bytes", program.display()).into())
}

/// Sizes of memcached, as parts of the footprint.
const PARTS: [u64; 3] = [12, 6, 3];
/// What larderd takes beside its -m, or a little more: where the search begins.
const PROGRAM_MIB: u64 = 8;
const TRIES_MAX: usize = 5;
