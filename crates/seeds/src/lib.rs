//! What simulators share: a run follows from its seed, planted bugs have to be found, a failure names its seed.
//!
//! A simulator implements [`Scenario`] and [`Bug`]; [`main()`] is its command line, and [`run_all`], [`find_bugs`] and
//! [`repeat_all`] are its tests.

#![forbid(unsafe_code)]

mod command_line;

pub use command_line::main;

use std::fmt::{self, Debug, Display};
use std::ops::{AddAssign, Range};

/// A bug on purpose, planted around the code under test.
pub trait Bug: Copy + Debug + PartialEq + 'static {
    /// All of them.
    const ALL: &'static [Self];

    /// Its name on the command line.
    fn name(self) -> &'static str;
}

/// What is simulated.
pub trait Scenario: Debug + Display + Sized {
    /// What can be planted.
    type Bug: Bug;
    /// What a run did, if nothing was wrong. The sum is of several runs.
    type Run: AddAssign + Debug + Default + PartialEq;

    /// The command that runs [`main()`].
    const COMMAND: &'static str;

    /// What this seed stands for.
    fn of_seed(seed: u64) -> Self;

    /// The same with a bug, and with what shows it.
    fn with_bug(self, bug: Option<Self::Bug>) -> Self;

    /// Runs it to its end, the same each time. Errors: the first thing that is wrong.
    fn run(&self, trace: Option<Trace<'_>>) -> Result<Self::Run, Failure>;
}

/// Receives the lines of a trace.
pub type Trace<'t> = &'t mut dyn FnMut(fmt::Arguments<'_>);

/// What was wrong, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Of the scenario.
    pub seed: u64,
    /// The step of the scheduler.
    pub step: u64,
    /// A sentence.
    pub what: String,
}

/// Runs the scenarios of these seeds. The trace receives each scenario, and what happens in it. Errors: the first
/// failure, as a text for who reads the test's output.
pub fn run_all<S: Scenario>(
    seeds: Range<u64>,
    bug: Option<S::Bug>,
    mut trace: Option<Trace<'_>>,
) -> Result<S::Run, String> {
    let mut all = S::Run::default();
    for seed in seeds {
        let scenario = S::of_seed(seed).with_bug(bug);
        if let Some(trace) = &mut trace {
            trace(format_args!("{scenario:#?}"));
        }
        let run = match &mut trace {
            Some(trace) => scenario.run(Some(&mut **trace)),
            None => scenario.run(None),
        };
        all += run.map_err(|Failure { seed, step, what }| {
            let command = S::COMMAND;
            format!("{scenario}\nseed {seed}, step {step}: {what}\nreplay: {command} --seed {seed} --trace")
        })?;
    }
    Ok(all)
}

/// Looks for each planted bug, and says which seed finds it. Errors: none of these seeds does.
pub fn find_bugs<S: Scenario>(seeds: Range<u64>) -> Result<(), String> {
    for bug in S::Bug::ALL {
        let found = seeds.clone().find_map(|seed| S::of_seed(seed).with_bug(Some(*bug)).run(None).err());
        let Some(Failure { seed, what, .. }) = found else { return Err(format!("{bug:?} is not found")) };
        println!("{bug:?}: found by seed {seed}, {what}");
    }
    Ok(())
}

/// Runs the scenarios of these seeds twice, once with a trace: a failing seed is of use only if it fails again. Errors:
/// a run that differs, or whose trace does not say what happened.
pub fn repeat_all<S: Scenario>(seeds: Range<u64>) -> Result<(), String> {
    for seed in seeds {
        let scenario = S::of_seed(seed);
        let mut lines = 0;
        let traced = scenario.run(Some(&mut |_| lines += 1));
        let repeated = scenario.run(None);
        if traced != repeated {
            return Err(format!("{scenario}\n{traced:?}\n{repeated:?}"));
        }
        if lines <= TRACE_LINES_MIN {
            return Err(format!("{scenario}\nits trace has {lines} lines"));
        }
    }
    Ok(())
}

const TRACE_LINES_MIN: u32 = 100;
