//! The hit ratio at other sizes: predicted by a server, and measured with servers of these sizes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use larder_conformance::Result;
use serde_json::Value;

use super::replay::replay;
use super::workload::Workload;
use super::{Options, start};

/// Prints a line for each size. Errors: a prediction is further off than [`OFF_MAX`].
pub(super) fn compare(options: &Options, larderd: &Path) -> Result<()> {
    println!("| workload | -m | predicted, % of reads | measured | off by |");
    println!("|---|---|---|---|---|");
    let mut worst: f64 = 0.0;
    for workload in options.workloads() {
        let mut workload = workload?;
        // The server samples what it has time for: at a pace at which it would be used.
        workload.requests_per_sec.get_or_insert(REQUESTS_PER_SEC);
        for memory_mib in options.memory_mib(&workload, &[6]) {
            let predicted = predict(larderd, memory_mib, &workload)?;
            for (factor, of) in [(0.5, predicted[0]), (1.0, predicted[1]), (2.0, predicted[2])] {
                let mib = (memory_mib as f64 * factor).round() as u64;
                let server = start(larderd, mib, &[])?;
                let measured = 1.0 - replay(&workload, server.address())?.miss_ratio();
                let off = 100.0 * (of - measured);
                worst = worst.max(off.abs());
                println!(
                    "| {} | {mib} | {:.1} | {:.1} | {off:+.1} |",
                    workload.name,
                    100.0 * of,
                    100.0 * measured,
                );
            }
        }
    }
    let verdict = format!("worst {worst:.1} points, {OFF_MAX} are allowed");
    println!("\n{verdict}");
    if worst > OFF_MAX { Err(verdict.into()) } else { Ok(()) }
}

/// What a server of so much memory says of half of it, of it, and of double.
fn predict(larderd: &Path, memory_mib: u64, workload: &Workload) -> Result<[f64; 3]> {
    let server = start(larderd, memory_mib, &["--admin-listen", "127.0.0.1:0"])?;
    replay(workload, server.address())?;
    // It plays its sample once a second.
    thread::sleep(Duration::from_millis(2_500));
    let admin = server.admin_address().ok_or("larderd does not name its admin port")?;
    let curve = get_json(admin, "/api/curve")?;
    let hit_ratio = |factor: f64| {
        let points = curve["points"].as_array().into_iter().flatten();
        let point = points.into_iter().find(|point| point["factor"].as_f64() == Some(factor));
        point.and_then(|point| point["hit_ratio"].as_f64()).ok_or_else(|| format!("no prediction in {curve}"))
    };
    Ok([hit_ratio(0.5)?, hit_ratio(1.0)?, hit_ratio(2.0)?])
}

fn get_json(address: SocketAddr, path: &str) -> Result<Value> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or("no HTTP")?;
    Ok(serde_json::from_str(body)?)
}

/// Percentage points.
const OFF_MAX: f64 = 2.0;
const REQUESTS_PER_SEC: f64 = 40_000.0;
