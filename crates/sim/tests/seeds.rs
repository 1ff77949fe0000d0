//! The simulator over many seeds: nothing is wrong with the server, and every planted bug is found.

use larder_sim::{Bug, Scenario, run};

/// The seeds of every test run.
const SEEDS: u64 = 2500;
/// A planted bug is found within so many.
const SEEDS_OF_BUG: u64 = 400;

#[test]
fn nothing_is_wrong() {
    let (mut evictions, mut fetches, mut restarts, mut held) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let scenario = Scenario::of_seed(seed);
        match run(&scenario, None) {
            Ok(run) => {
                evictions += run.evictions;
                fetches += run.fetches;
                restarts += run.restarts;
                held += run.held;
            }
            Err(failure) => panic!("{scenario}\n{failure}"),
        }
    }
    println!("{evictions} evictions, {fetches} reads of the store, {restarts} restarts, {held} replies held");
    // Otherwise the seeds show nothing.
    assert!(evictions > 1000 && fetches > 10_000 && restarts > 2000 && held > 10_000);
}

#[test]
fn each_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = (0..SEEDS_OF_BUG).find_map(|seed| {
            run(&Scenario::of_seed(seed).with_bug(Some(bug)), None).err().map(|failure| (seed, failure))
        });
        let Some((seed, failure)) = found else { panic!("{bug:?} is not found") };
        println!("{bug:?}: found by seed {seed}, {}", failure.what);
    }
}

/// A failing seed is of use only if it fails again.
#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in 0..50 {
        let scenario = Scenario::of_seed(seed);
        let mut lines = 0;
        let traced = run(&scenario, Some(&mut |_| lines += 1));
        assert_eq!(run(&scenario, None), traced, "{scenario}");
        assert!(lines > 100, "the trace says what happened: {lines} lines");
    }
}
