//! The power goes at any moment of a real larderd with a store, calls fail, the disk is full.

use larder_conformance::crash::Durability;
use larder_conformance::crash::power_loss::{self, Options};
use larder_conformance::{Result, server};

/// Few items, so that much is overwritten; values of a segment's size are among them.
const SMALL: Options = Options {
    seed: 0,
    clients: 1,
    bursts: 15,
    starts: 4,
    points: None,
    keys: 24,
    value_bytes_max: 3_000,
    durability: Durability::Sync,
};

#[test]
fn every_moment_of_short_scripts() -> Result<()> {
    for seed in [1, 2] {
        let report = power_loss::run(&server::larderd()?, &Options { seed, ..SMALL })?;
        println!("short script: {report}");
        assert!(report.states > 1_000, "{report}");
    }
    Ok(())
}

#[test]
fn a_thousand_moments_of_a_long_script() -> Result<()> {
    let options = Options {
        seed: 3,
        clients: 3,
        bursts: 150,
        starts: 3,
        points: Some(1_000),
        keys: 60,
        value_bytes_max: 20_000,
        ..SMALL
    };
    let report = power_loss::run(&server::larderd()?, &options)?;
    println!("long script: {report}");
    assert!(report.states > 900, "{report}");
    Ok(())
}

#[test]
fn an_acknowledgement_before_the_sync_is_found() -> Result<()> {
    let options = Options { seed: 4, starts: 1, durability: Durability::Interval, ..SMALL };
    let error = power_loss::run(&server::larderd()?, &options).err().ok_or("nothing is found")?;
    assert!(error.to_string().contains("no moment"), "{error}");
    Ok(())
}
