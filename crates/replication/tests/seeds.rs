//! Simulated clusters over many seeds: all sites end with the same data, and every planted bug is found.

mod sim;

use sim::Scenario;

/// The seeds of every test run.
const SEEDS: u64 = 2000;
/// A planted bug is found within so many: most at once, those that need a rare order of events later.
const SEEDS_OF_BUG: u64 = 20_000;

#[test]
fn all_sites_end_with_the_same_data() {
    let all =
        larder_seeds::run_all::<Scenario>(0..SEEDS, None, None).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{all:?}");
    // Otherwise the seeds show nothing.
    assert!(all.requests > 100_000 && all.conflicts > 1000 && all.copies > 1000 && all.swept > 100);
    assert!(all.renewed > 100, "older copies were found");
    assert!(all.compared > 5000 && all.lost > 200 && all.found > 200 && all.mended > 200);
    assert!(
        all.outs > 100 && all.forgotten > 1000 && all.crashes > 1000 && all.held > 10 && all.items > 1000
    );
}

#[test]
fn each_planted_bug_is_found() {
    larder_seeds::find_bugs::<Scenario>(0..SEEDS_OF_BUG).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    larder_seeds::repeat_all::<Scenario>(0..50).unwrap_or_else(|failure| panic!("{failure}"));
}
