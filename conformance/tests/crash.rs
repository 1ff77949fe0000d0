//! larderd is killed under load, and has what it promised when it is started again.

use std::time::Duration;

use larder_conformance::crash::{self, Durability, Options};
use larder_conformance::{Result, server};

fn options(durability: Durability, rounds: usize) -> Options {
    let load_max = Duration::from_millis(800);
    Options { rounds, seed: fastrand::u64(..), durability, promised: durability, load_max }
}

/// Rounds of one durability.
fn rounds(durability: Durability, rounds: usize) -> Result<()> {
    let report = crash::run(&server::larderd()?, &options(durability, rounds))?;
    println!("{}: {report}", durability.name());
    assert_eq!(report.rounds, rounds);
    Ok(())
}

#[test]
fn what_was_acknowledged_survives_a_kill() -> Result<()> {
    rounds(Durability::Sync, 20)
}

#[test]
fn an_interval_at_most_is_lost_by_a_kill() -> Result<()> {
    rounds(Durability::Interval, 5)
}

#[test]
fn what_the_system_has_survives_a_kill() -> Result<()> {
    rounds(Durability::Os, 5)
}

/// What acknowledges before it is on disk does not pass for what does not.
#[test]
fn an_early_acknowledgement_is_found() -> Result<()> {
    let options = Options { promised: Durability::Sync, ..options(Durability::Os, 50) };
    let error = crash::run(&server::larderd()?, &options).err().ok_or("nothing was lost in 50 rounds")?;
    assert!(error.to_string().contains("no point of the"), "{error}");
    Ok(())
}
