//! Words of a command line, as getopt reads them.

use std::ffi::OsString;
use std::str::FromStr;

use lexopt::{Arg, Parser, ValueExt as _};

use super::Refusal;

/// An option that a tool has.
pub(super) struct Known {
    /// Its letter, if it has one.
    pub(super) short: Option<char>,
    /// Its name, without the dashes. May be shortened as long as it is one option's only. Empty: only the letter.
    pub(super) long: &'static str,
    /// Whether a value follows.
    pub(super) has_value: bool,
}

/// An option that was given.
pub(super) struct Given {
    /// The letter and the name of the table.
    pub(super) short: Option<char>,
    pub(super) long: &'static str,
    /// Empty if the option has none.
    pub(super) value: String,
}

/// Reads `words` by the table. Returns the options, and the words that are none.
pub(super) fn read(words: &[OsString], table: &[Known]) -> Result<(Vec<Given>, Vec<String>), Refusal> {
    let mut parser = Parser::from_args(words);
    let (mut options, mut others) = (Vec::new(), Vec::new());
    let refuse = |error: lexopt::Error| Refusal::Words(error.to_string());
    while let Some(arg) = parser.next().map_err(refuse)? {
        let known = match arg {
            Arg::Value(word) => {
                others.push(word.string().map_err(refuse)?);
                continue;
            }
            Arg::Short(letter) => find_short(table, letter)?,
            Arg::Long(name) => find_long(table, name)?,
        };
        let value = match known.has_value {
            true => parser.value().map_err(refuse)?.string().map_err(refuse)?,
            false => String::new(),
        };
        options.push(Given { short: known.short, long: known.long, value });
    }
    Ok((options, others))
}

fn find_short(table: &[Known], letter: char) -> Result<&Known, Refusal> {
    table
        .iter()
        .find(|known| known.short == Some(letter))
        .ok_or_else(|| Refusal::Words(format!("-{letter}: there is no such option")))
}

fn find_long<'t>(table: &'t [Known], name: &str) -> Result<&'t Known, Refusal> {
    if let Some(known) = table.iter().find(|known| known.long == name) {
        return Ok(known);
    }
    let mut beginnings = table.iter().filter(|known| known.long.starts_with(name));
    match (beginnings.next(), beginnings.next()) {
        (Some(known), None) => Ok(known),
        (Some(one), Some(other)) => {
            Err(Refusal::Words(format!("--{name}: --{} or --{}?", one.long, other.long)))
        }
        (None, _) => {
            let nearest = nearest(name, table.iter().map(|known| known.long));
            let question = nearest.map_or_else(String::new, |nearest| format!("; --{nearest}?"));
            Err(Refusal::Words(format!("--{name}: there is no such option{question}")))
        }
    }
}

/// The name that was meant, probably.
pub(super) fn nearest<'t>(word: &str, names: impl Iterator<Item = &'t str>) -> Option<&'t str> {
    names
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(similarity, _)| *similarity > 0.8)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

impl Given {
    /// As on the command line, for a person.
    pub(super) fn name(&self) -> String {
        match (self.short, self.long) {
            (Some(letter), "") => format!("-{letter}"),
            (_, name) => format!("--{name}"),
        }
    }

    /// What is wrong with this option.
    pub(super) fn refuse(&self, reason: impl std::fmt::Display) -> Refusal {
        match self.value.is_empty() {
            true => Refusal::Words(format!("{}: {reason}", self.name())),
            false => Refusal::Words(format!("{} {}: {reason}", self.name(), self.value)),
        }
    }

    /// A number from 1.
    pub(super) fn count<T: FromStr + From<u8> + PartialOrd>(&self) -> Result<T, Refusal> {
        self.value
            .trim()
            .parse()
            .ok()
            .filter(|count| *count >= T::from(1))
            .ok_or_else(|| self.refuse("a number from 1 is needed"))
    }

    /// More than 0, and at most 1.
    pub(super) fn share(&self) -> Result<f64, Refusal> {
        self.value
            .trim()
            .parse()
            .ok()
            .filter(|share| *share > 0.0 && *share <= 1.0)
            .ok_or_else(|| self.refuse("a share above 0 and up to 1 is needed, as 0.05"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Known] = &[
        Known { short: Some('s'), long: "servers", has_value: true },
        Known { short: Some('t'), long: "time", has_value: true },
        Known { short: Some('P'), long: "tps", has_value: true },
        Known { short: Some('U'), long: "udp", has_value: false },
    ];

    fn read_all(line: &str) -> Result<Vec<(&'static str, String)>, String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let (options, _) = read(&words, TABLE).map_err(|refusal| refusal.to_string())?;
        Ok(options.into_iter().map(|given| (given.long, given.value)).collect())
    }

    #[test]
    fn options_may_be_bundled_joined_and_shortened() {
        let expected = vec![("udp", String::new()), ("servers", "a:1".to_owned()), ("time", "2s".to_owned())];
        for line in ["-Usa:1 -t 2s", "--udp --serv=a:1 --time 2s", "--ud -s a:1 -t2s"] {
            assert_eq!(read_all(line), Ok(expected.clone()), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, message) in [
            ("--t=1", "--t: --time or --tps?"),
            ("--sevrers=1", "--sevrers: there is no such option; --servers?"),
            ("-z", "-z: there is no such option"),
            ("--nothing-like-it", "--nothing-like-it: there is no such option"),
        ] {
            assert_eq!(read_all(line), Err(message.to_owned()));
        }
    }
}
