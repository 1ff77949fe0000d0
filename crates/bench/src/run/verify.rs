//! Judges answers by what the ledger knows.

use larder_client::codec::{Outcome, Value};

use super::asked::Asked;
use super::ledger::{Effect, Expiry, Ledger, Witness};
use super::plan::ValueSet;
use super::stamp::{self, HEAD_BYTES};
use super::tally::ThreadTally;
use crate::outcome::Failure;
use crate::scenario::{Kind, Truth};

/// What is checked, and memory to check it with.
pub(crate) struct Judge<'a> {
    pub(crate) truth: &'a Truth,
    pub(crate) now_nanos: u64,
    pub(crate) scratch: &'a mut Vec<u8>,
}

impl Judge<'_> {
    /// A key was found with this value.
    #[expect(clippy::too_many_arguments, reason = "each is another thing")]
    pub(crate) fn found(
        &mut self,
        ledger: &Ledger,
        values: &ValueSet,
        number: u64,
        asked: &Asked,
        witness: &Witness,
        value: &Value<'_>,
        tally: &mut ThreadTally,
    ) {
        if witness.checks_value && witness.is_stored {
            tally.rest.verified += 1;
            let checked = if values.contents.is_number() {
                check_number(value.bytes).map_err(|why| (Failure::WrongValue, why))
            } else {
                self.check(ledger, number, witness, value)
            };
            if let Err((failure, why)) = checked {
                tally.fail(failure, 1, || format!("key number {number}: {why}"));
            }
        }
        self.check_expiry(ledger, number, asked, witness, true, tally);
        if asked.kind == Kind::Gat && asked.keys > 1 {
            ledger.end(number, witness, Effect::Nothing);
        }
    }

    /// A key was not found.
    pub(crate) fn missed(
        &mut self,
        ledger: &Ledger,
        number: u64,
        asked: &Asked,
        witness: &Witness,
        tally: &mut ThreadTally,
    ) {
        if self.truth.misses_fail && ledger.must_exist(number, witness.floor) {
            tally.fail(Failure::Lost, 1, || format!("key number {number} is missing"));
        }
        self.check_expiry(ledger, number, asked, witness, false, tally);
        if asked.kind == Kind::Gat && asked.keys > 1 {
            ledger.end(number, witness, Effect::Nothing);
        }
    }

    /// A change was answered.
    pub(crate) fn changed(&mut self, ledger: &Ledger, asked: &Asked, outcome: &Outcome<'_>) {
        let sets_expiry = match outcome {
            Outcome::Stored { .. } => {
                ledger.end(asked.number, &asked.witness, Effect::Applied);
                // Appending leaves the expiry as it is.
                matches!(asked.kind, Kind::Set | Kind::Add | Kind::Replace | Kind::Cas)
            }
            Outcome::Deleted => {
                ledger.end(asked.number, &asked.witness, Effect::Applied);
                false
            }
            Outcome::Error(_) => {
                ledger.end(asked.number, &asked.witness, Effect::MaybeGone);
                false
            }
            _ => {
                ledger.end(asked.number, &asked.witness, Effect::Nothing);
                matches!(outcome, Outcome::Touched | Outcome::Found { hits: 1.., .. })
            }
        };
        if sets_expiry && self.truth.verify_expiry > 0.0 {
            ledger.note_expiry(asked.number, &asked.witness, asked.sent_nanos, self.now_nanos);
        }
    }

    fn check(
        &mut self,
        ledger: &Ledger,
        number: u64,
        witness: &Witness,
        value: &Value<'_>,
    ) -> Result<(), (Failure, String)> {
        let started = ledger.started(number);
        // Some older ones as well, to tell a stale value from a wrong one.
        let candidates = (witness.floor.saturating_sub(STALE_VERSIONS).max(1)..=started).rev();
        let version = stamp::read(value.bytes, number, candidates.take(CANDIDATES_MAX), self.scratch)
            .map_err(|why| (Failure::WrongValue, why))?;
        let wrong = |why: String| Err((Failure::WrongValue, why));
        if value.client_flags != stamp::client_flags(number) {
            return wrong(format!("client flags {}", value.client_flags));
        }
        if version > started {
            return wrong(format!("version {version}, but only {started} have been stored"));
        }
        // Few bytes can agree by chance with those of another version.
        if version < witness.floor && value.bytes.len() >= HEAD_BYTES / 2 {
            let why = format!("version {version}, but version {} had been acknowledged", witness.floor);
            return Err((Failure::StaleValue, why));
        }
        Ok(())
    }

    fn check_expiry(
        &self,
        ledger: &Ledger,
        number: u64,
        asked: &Asked,
        witness: &Witness,
        is_found: bool,
        tally: &mut ThreadTally,
    ) {
        if !witness.checks_expiry {
            return;
        }
        let slack_nanos = (self.truth.expiry_slack_secs * 1e9) as u64;
        let times = (asked.sent_nanos, self.now_nanos);
        match ledger.judge_expiry(number, witness, is_found, times, slack_nanos) {
            Expiry::Unknown => return,
            Expiry::Right => {}
            Expiry::Late => {
                tally.fail(Failure::ExpiredLate, 1, || format!("key number {number} should be gone"));
            }
            Expiry::Early => {
                tally.fail(Failure::ExpiredEarly, 1, || format!("key number {number} should be there"));
            }
        }
        tally.rest.expiry_verified += 1;
    }
}

/// After incr and decr a number may have spaces behind it.
fn check_number(value: &[u8]) -> Result<(), String> {
    let digits = value.trim_ascii_end();
    if !digits.is_empty() && digits.len() <= 20 && digits.iter().all(u8::is_ascii_digit) {
        return Ok(());
    }
    Err(format!("{} is no number", value.escape_ascii()))
}

const STALE_VERSIONS: u32 = 16;
const CANDIDATES_MAX: usize = 4096;
