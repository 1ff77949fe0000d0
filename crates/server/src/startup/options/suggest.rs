//! Suggests a known option in place of an unknown name.

use super::extended::EXTENDED;
use super::table::COMMAND_LINE;

/// The end of the message about an unknown option, on the command line or of `-o`: `; did you mean --port?`. Empty: no
/// option has a similar name.
pub(super) fn did_you_mean(name: &str) -> String {
    let plain = |name: &str| name.replace('_', "-").to_ascii_lowercase();
    let distance = |known: &str| strsim::damerau_levenshtein(&plain(name), &plain(known));
    let command_line = COMMAND_LINE.iter().map(|row| (row, "--"));
    let known =
        command_line.chain(EXTENDED.iter().map(|row| (row, "-o "))).filter(|(row, _)| !row.is_refused());
    let nearest = known.map(|(row, dashes)| (distance(row.name), row, dashes)).min_by_key(|found| found.0);
    match nearest {
        Some((distance, row, dashes)) if distance <= NEAR_MAX.min(name.len() / 3) => {
            format!("; did you mean {dashes}{}?", row.name)
        }
        _ => String::new(),
    }
}

/// Maximum edit distance of a suggested name.
const NEAR_MAX: usize = 3;
