//! The simulator of the client over many seeds: no answer is wrong or late, and every planted bug is found.

use larder_sim::shared_client::ClientScenario;

/// The seeds of every test run.
const SEEDS: u64 = 1500;
/// A planted bug is found within so many.
const SEEDS_OF_BUG: u64 = 400;

#[test]
fn no_answer_is_wrong_or_late() {
    let all = larder_seeds::run_all::<ClientScenario>(0..SEEDS, None, None);
    let all = all.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{all:?}");
    // Otherwise the seeds show nothing.
    let totals = all.totals;
    assert_eq!(totals.right + totals.failed + totals.cancelled, totals.operations);
    assert!(totals.operations > 50_000 && totals.right > 40_000, "{totals:?}");
    assert!(totals.failed > 2_000 && totals.cancelled > 500, "{totals:?}");
}

#[test]
fn each_planted_bug_is_found() {
    larder_seeds::find_bugs::<ClientScenario>(0..SEEDS_OF_BUG).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    larder_seeds::repeat_all::<ClientScenario>(0..50).unwrap_or_else(|failure| panic!("{failure}"));
}
