//! Simulated clusters over many seeds: all sites end with the same data, and every planted bug is found.

mod sim;

use sim::{Bug, Run, Scenario, run};

/// The seeds of every test run.
const SEEDS: u64 = 2000;
/// A planted bug is found within so many: most at once, those that need a rare order of events later.
const SEEDS_OF_BUG: u64 = 20_000;

#[test]
fn all_sites_end_with_the_same_data() {
    let mut all = Run::default();
    for seed in 0..SEEDS {
        let scenario = Scenario::of_seed(seed);
        match run(&scenario, None) {
            Ok(run) => {
                all.requests += run.requests;
                all.entries += run.entries;
                all.conflicts += run.conflicts;
                all.copies += run.copies;
                all.swept += run.swept;
                all.outs += run.outs;
                all.forgotten += run.forgotten;
                all.crashes += run.crashes;
                all.held += run.held;
                all.items += run.items;
            }
            Err(failure) => panic!("{scenario}\n{failure}"),
        }
    }
    println!("{all:?}");
    // Otherwise the seeds show nothing.
    assert!(all.requests > 100_000 && all.conflicts > 1000 && all.copies > 1000 && all.swept > 100);
    assert!(
        all.outs > 100 && all.forgotten > 1000 && all.crashes > 1000 && all.held > 10 && all.items > 1000
    );
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
