//! The simulator over many seeds: nothing is wrong with the server, and every planted bug is found.

use larder_sim::Scenario;

/// The seeds of every test run.
const SEEDS: u64 = 2500;
/// A planted bug is found within so many.
const SEEDS_OF_BUG: u64 = 400;

#[test]
fn nothing_is_wrong() {
    let all =
        larder_seeds::run_all::<Scenario>(0..SEEDS, None, None).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{all:?}");
    // Otherwise the seeds show nothing.
    assert!(all.evictions > 1000 && all.fetches > 10_000 && all.restarts > 2000 && all.held > 10_000);
}

#[test]
fn each_planted_bug_is_found() {
    larder_seeds::find_bugs::<Scenario>(0..SEEDS_OF_BUG).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    larder_seeds::repeat_all::<Scenario>(0..50).unwrap_or_else(|failure| panic!("{failure}"));
}
