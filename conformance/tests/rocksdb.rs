//! larderd with a store that RocksDB keeps: the golden scripts, deaths under load, and power loss.
//!
//! They are one test, since what it says of the larderd to test holds for the whole process.

use std::time::Duration;

use larder_conformance::crash::power_loss;
use larder_conformance::crash::{self, Durability};
use larder_conformance::script::Side;
use larder_conformance::{Result, server, suite};

#[test]
fn rocksdb_keeps_what_the_log_keeps() -> Result<()> {
    server::keep_with_rocksdb(true);
    scripts()?;
    deaths()?;
    power_losses()
}

fn scripts() -> Result<()> {
    server::keep_in_store(true);
    let report = suite::run(&server::larderd()?, Side::Larder, &suite::scripts("")?)?;
    server::keep_in_store(false);
    println!("scripts: {} passed, {} failed", report.passed, report.failures.len());
    assert!(report.failures.is_empty() && report.passed > 100, "{}", report.failures.join("\n"));
    Ok(())
}

fn deaths() -> Result<()> {
    let options = crash::Options {
        rounds: 20,
        seed: fastrand::u64(..),
        durability: Durability::Sync,
        promised: Durability::Sync,
        load_max: Duration::from_millis(500),
    };
    let report = crash::run(&server::larderd()?, &options)?;
    println!("deaths: {report}");
    assert_eq!(report.rounds, options.rounds);
    Ok(())
}

fn power_losses() -> Result<()> {
    let options = power_loss::Options {
        seed: 1,
        clients: 2,
        bursts: 60,
        starts: 3,
        points: Some(500),
        keys: 40,
        value_bytes_max: 3_000,
        durability: Durability::Sync,
    };
    let report = power_loss::run(&server::larderd()?, &options)?;
    println!("power loss: {report}");
    assert!(report.states > 400, "{report}");
    // What acknowledges before it is on disk does not pass.
    let early = power_loss::Options { durability: Durability::Interval, clients: 1, starts: 1, ..options };
    let error = power_loss::run(&server::larderd()?, &early).err().ok_or("nothing is found")?;
    assert!(error.to_string().contains("no moment"), "{error}");
    Ok(())
}
