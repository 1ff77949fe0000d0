//! Bugs on purpose: each must be found by the crash tests, or they test nothing.

use super::crash::{changes_of, crash_at};
use super::script::Script;
use crate::log::bugs::{Bug, plant};

/// The first thing that goes wrong with the bug.
fn found(bug: Bug) -> Option<String> {
    for seed in 0..12 {
        let script = Script::random(seed, 120, 8, seed % 2 == 0);
        plant(None);
        let changes = changes_of(&script);
        for point in 1..=changes + 1 {
            plant(Some(bug));
            let result = crash_at(&script, point, seed);
            plant(None);
            if let Err(what) = result {
                return Some(what);
            }
        }
    }
    None
}

#[test]
fn each_planted_bug_is_found() {
    for bug in [
        Bug::SkipDirSync,
        Bug::AcknowledgeBeforeSync,
        Bug::SyncNewestAlone,
        Bug::IgnoreGap,
        Bug::DropTombstones,
        Bug::IgnoreCommitMark,
    ] {
        let what = found(bug);
        assert!(what.is_some(), "{bug:?} is not found");
        println!("{bug:?}: {}", what.unwrap_or_default());
    }
}
