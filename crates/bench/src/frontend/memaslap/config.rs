//! The file of `--cfg_cmd`: lengths of keys and of values, and commands.
//!
//! ```text
//! key
//! 16 64 0.5        from, to, proportion
//! 65 250 0.5
//! value
//! 1024 1024 1
//! cmd
//! 0 0.1            0 is set, 1 is get
//! 1 0.9
//! ```
//! `#` begins a comment. memaslap takes the first line of `cmd` for sets, whatever its number; here the number counts.

use super::super::Refusal;
use crate::scenario::SizeRange;

/// What a file says.
#[derive(Debug, PartialEq)]
pub(super) struct Config {
    /// Weights sum up to 1.
    pub(super) keys: Vec<SizeRange>,
    /// Weights sum up to 1.
    pub(super) values: Vec<SizeRange>,
    pub(super) set_share: f64,
    pub(super) get_share: f64,
}

impl Default for Config {
    fn default() -> Self {
        let all = |bytes| vec![SizeRange { min: bytes, max: bytes, weight: 1.0 }];
        Self { keys: all(64), values: all(1024), set_share: 0.1, get_share: 0.9 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Key,
    Value,
    Command,
}

/// What ms_setting.h allows, in bytes.
const KEY_BYTES: (u64, u64) = (16, 250);
const VALUE_BYTES: (u64, u64) = (1, 1024 * 1024);

impl Config {
    pub(super) fn read(path: &str, text: &str, is_binary: bool) -> Result<Self, Refusal> {
        let (mut keys, mut values, mut shares) = (Vec::new(), Vec::new(), [0.0; 2]);
        let mut section = None;
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let refuse = |reason: &str| Refusal::File {
                path: path.into(),
                reason: format!("line {}: {reason}", index + 1),
            };
            if line.is_empty() {
                continue;
            }
            if let Some(begun) = Section::of(line) {
                section = Some(begun);
                continue;
            }
            match section {
                None => return Err(refuse("a section is needed: key, value or cmd")),
                Some(Section::Key) => {
                    keys.push(range(line, KEY_BYTES, is_binary).map_err(|reason| refuse(&reason))?)
                }
                Some(Section::Value) => {
                    values.push(range(line, VALUE_BYTES, false).map_err(|reason| refuse(&reason))?)
                }
                Some(Section::Command) => {
                    let (number, share) = command(line).map_err(|reason| refuse(&reason))?;
                    shares[number] = share;
                }
            }
        }
        let lacks = |section: &str| Refusal::File {
            path: path.into(),
            reason: format!("there is no section {section}"),
        };
        if shares.iter().sum::<f64>() <= 0.0 {
            return Err(lacks("cmd"));
        }
        Ok(Self {
            keys: filled_up(keys).ok_or_else(|| lacks("key"))?,
            values: filled_up(values).ok_or_else(|| lacks("value"))?,
            set_share: shares[0],
            get_share: shares[1],
        })
    }
}

impl Section {
    /// memaslap looks at the beginning of a line only.
    fn of(line: &str) -> Option<Self> {
        let sections = [("key", Self::Key), ("value", Self::Value), ("cmd", Self::Command)];
        sections.into_iter().find(|(word, _)| line.starts_with(word)).map(|(_, section)| section)
    }
}

fn range(line: &str, (min, max): (u64, u64), has_no_end: bool) -> Result<SizeRange, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let parsed = match words[..] {
        [from, to, share] => from.parse().ok().zip(to.parse().ok()).zip(share.parse().ok()),
        _ => None,
    };
    let ((from, to), weight): ((u64, u64), f64) =
        parsed.ok_or("needed are the least length, the greatest and a proportion")?;
    if from > to {
        return Err(format!("{from} is more than {to}"));
    }
    if from < min || (to > max && !has_no_end) {
        return Err(format!("lengths are {min} to {max} bytes"));
    }
    match weight > 0.0 && weight <= 1.0 {
        true => Ok(SizeRange { min: from, max: to, weight }),
        false => Err("a proportion is above 0 and at most 1".into()),
    }
}

fn command(line: &str) -> Result<(usize, f64), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [number, share] = words[..] else {
        return Err("needed are a command (0 set, 1 get) and a proportion".into());
    };
    let number = match number {
        "0" => 0,
        "1" => 1,
        other => return Err(format!("command {other}: there are 0 (set) and 1 (get)")),
    };
    let share = share.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.map(|share| (number, share)).ok_or_else(|| "a proportion is 0 to 1".into())
}

/// What the proportions leave has the average length, as in ms_build_distr.
fn filled_up(mut ranges: Vec<SizeRange>) -> Option<Vec<SizeRange>> {
    let sum: f64 = ranges.iter().map(|range| range.weight).sum();
    let average = super::average_bytes(&ranges) as u64;
    if ranges.is_empty() {
        return None;
    }
    if sum < 1.0 - 1e-9 {
        ranges.push(SizeRange { min: average, max: average, weight: 1.0 - sum });
    }
    Some(ranges)
}
