//! What is simulated, as a seed has it.

use std::fmt;

use fastrand::Rng;
use larder_seeds::{Failure, Trace};

use super::cluster::{Run, run};

/// A bug on purpose, planted in the simulated larderd around the crate's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// What arrives replaces what is there.
    ApplyByArrival,
    /// A deletion is forgotten although not every site has it.
    TombstoneDroppedEarly,
    /// A site sends on what others have made.
    Republish,
    /// The cursor is durable before what it stands for.
    CursorAheadOfData,
    /// Flushes of other sites are not kept.
    FlushLost,
    /// What is not durable is sent.
    SendBeforeDurable,
    /// A site that was out keeps what the copy does not have.
    NoSweep,
    /// A copy leaves deletions out.
    CopyWithoutDeletions,
    /// What a flush has covered is sent.
    SendFlushed,
    /// A site gives versions that its beats have promised not to.
    BrokenPromise,
    /// A newcomer takes writes before it knows the horizons of the others.
    HastyNewcomer,
    /// What a later record repeats is sent at its place, which may be behind a beat that speaks of it.
    NewestPlaceOnly,
    /// What is not sent any more was replaced by what is not durable.
    ReplacedBeforeDurable,
    /// What is under way is compared.
    CompareAboveHorizon,
    /// A site that compares itself takes what the other one has to mend.
    MendTheOther,
    /// Digests leave out when an item expires.
    ExpiryNotCompared,
    /// Cursors are checked by their sequence alone, without the run.
    CursorByNumber,
}

impl larder_seeds::Bug for Bug {
    const ALL: &'static [Self] = &[
        Self::ApplyByArrival,
        Self::TombstoneDroppedEarly,
        Self::Republish,
        Self::CursorAheadOfData,
        Self::FlushLost,
        Self::SendBeforeDurable,
        Self::NoSweep,
        Self::CopyWithoutDeletions,
        Self::SendFlushed,
        Self::BrokenPromise,
        Self::HastyNewcomer,
        Self::NewestPlaceOnly,
        Self::ReplacedBeforeDurable,
        Self::CompareAboveHorizon,
        Self::MendTheOther,
        Self::ExpiryNotCompared,
        Self::CursorByNumber,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ApplyByArrival => "apply-by-arrival",
            Self::TombstoneDroppedEarly => "tombstone-dropped-early",
            Self::Republish => "republish",
            Self::CursorAheadOfData => "cursor-ahead-of-data",
            Self::FlushLost => "flush-lost",
            Self::SendBeforeDurable => "send-before-durable",
            Self::NoSweep => "no-sweep",
            Self::CopyWithoutDeletions => "copy-without-deletions",
            Self::SendFlushed => "send-flushed",
            Self::BrokenPromise => "broken-promise",
            Self::HastyNewcomer => "hasty-newcomer",
            Self::NewestPlaceOnly => "newest-place-only",
            Self::ReplacedBeforeDurable => "replaced-before-durable",
            Self::CompareAboveHorizon => "compare-above-horizon",
            Self::MendTheOther => "mend-the-other",
            Self::ExpiryNotCompared => "expiry-not-compared",
            Self::CursorByNumber => "cursor-by-number",
        }
    }
}

/// What is simulated.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// The seed of all choices.
    pub(crate) seed: u64,
    pub(crate) sites: u8,
    pub(crate) keys: u32,
    /// Steps of the scheduler before all is healed.
    pub(crate) steps: u32,
    /// Of a hundred steps, how many are requests of clients.
    pub(crate) requests_percent: u32,
    /// Links are cut, in both directions or in one.
    pub(crate) has_cuts: bool,
    pub(crate) has_crashes: bool,
    /// Clocks are set by some seconds.
    pub(crate) has_drift: bool,
    /// A clock is set far ahead.
    pub(crate) has_bad_clock: bool,
    /// Cleaning passes cursors.
    pub(crate) has_trims: bool,
    /// The last site joins late, with nothing.
    pub(crate) has_newcomer: bool,
    /// A site is away for longer than the bound.
    pub(crate) has_absence: bool,
    /// A site is restored from a backup.
    pub(crate) has_restore: bool,
    /// The store of one or several sites is replaced by an older copy. Never combined with wrong clocks, which would
    /// give the same version twice.
    pub(crate) has_old_copy: bool,
    pub(crate) has_flushes: bool,
    /// What a connection keeps is little.
    pub(crate) is_tight: bool,
    /// Sites compare themselves with each other.
    pub(crate) has_comparisons: bool,
    /// Sites lose states that nobody hears of. Not together with what lets a site take a copy of another one's losses.
    pub(crate) has_silent_losses: bool,
    pub(crate) bug: Option<Bug>,
}

impl larder_seeds::Scenario for Scenario {
    type Bug = Bug;
    type Run = Run;

    const COMMAND: &str = "cargo run -p larder-replication --example simulate --";

    fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut percent = |percent| rng.u32(..100) < percent;
        let (has_cuts, has_crashes, has_drift) = (percent(60), percent(50), percent(50));
        let (has_bad_clock, has_trims, has_newcomer) = (percent(10), percent(40), percent(20));
        let (has_absence, has_restore, has_flushes) = (percent(20), percent(12), percent(60));
        let is_tight = percent(50);
        let sites = rng.u8(2..=5);
        let (keys, steps, requests_percent) = (rng.u32(1..=12), rng.u32(300..=1200), rng.u32(5..=30));
        let (has_comparisons, has_silent_losses) = (rng.u32(..100) < 30, rng.u32(..100) < 60);
        let has_old_copy = rng.u32(..100) < 15;
        Self {
            seed,
            sites,
            keys,
            steps,
            requests_percent,
            has_cuts,
            has_crashes,
            has_drift,
            has_bad_clock,
            has_trims,
            has_newcomer: has_newcomer && sites > 2,
            has_absence,
            has_restore,
            has_old_copy,
            has_flushes,
            is_tight,
            has_comparisons,
            has_silent_losses,
            bug: None,
        }
        .settled()
    }

    fn with_bug(self, bug: Option<Bug>) -> Self {
        let is = |bugs: &[Bug]| bug.is_some_and(|bug| bugs.contains(&bug));
        let has_newcomer = self.has_newcomer || is(&[Bug::HastyNewcomer]);
        Self {
            sites: if has_newcomer { self.sites.max(3) } else { self.sites },
            has_newcomer,
            has_crashes: self.has_crashes || is(&[Bug::ReplacedBeforeDurable]),
            has_absence: self.has_absence || is(&[Bug::SendFlushed, Bug::NoSweep, Bug::HastyNewcomer]),
            has_flushes: self.has_flushes || is(&[Bug::SendFlushed]),
            has_drift: self.has_drift || is(&[Bug::BrokenPromise]),
            has_bad_clock: self.has_bad_clock || is(&[Bug::BrokenPromise, Bug::HastyNewcomer]),
            has_old_copy: self.has_old_copy || is(&[Bug::CursorByNumber]),
            // Else they would mend what a bug has done before it is seen.
            has_comparisons: self.has_comparisons && bug.is_none() || is(&Bug::OF_COMPARISONS),
            has_silent_losses: self.has_silent_losses && bug.is_none()
                || is(&[Bug::MendTheOther, Bug::ExpiryNotCompared]),
            bug,
            ..self
        }
        .settled()
    }

    fn run(&self, trace: Option<Trace<'_>>) -> Result<Run, Failure> {
        run(self, trace)
    }
}

impl Bug {
    const OF_COMPARISONS: [Self; 3] =
        [Self::CompareAboveHorizon, Self::MendTheOther, Self::ExpiryNotCompared];
}

impl Scenario {
    /// Without what does not go together.
    fn settled(self) -> Self {
        let has_silent_losses = self.has_silent_losses && self.has_comparisons;
        // Older copies are left out when another bug is sought that depends on other faults.
        let is_of_another = self.bug.is_some_and(|bug| bug != Bug::CursorByNumber);
        let has_old_copy = self.has_old_copy && !has_silent_losses && !is_of_another;
        Self {
            has_silent_losses,
            has_trims: self.has_trims && !has_silent_losses,
            has_newcomer: self.has_newcomer && !has_silent_losses,
            has_absence: self.has_absence && !has_silent_losses,
            has_restore: self.has_restore && !has_silent_losses && !has_old_copy,
            has_old_copy,
            has_drift: self.has_drift && !has_old_copy,
            has_bad_clock: self.has_bad_clock && !has_old_copy,
            ..self
        }
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {} sites, {} keys, {} steps", self.seed, self.sites, self.keys, self.steps)
    }
}
