//! Servers of a comparison: running ones, and ones that are started for it.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::str::FromStr;

use larder_client::Address;
use serde::{Deserialize, Serialize};

use crate::scenario::{Scenario, Truth};

pub mod launch;
mod mean;

/// A server with a name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Contestant {
    /// Its name in tables.
    pub name: String,
    /// How it is reached.
    #[serde(flatten)]
    pub place: Place,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A running server: `host:port`, or the path of a Unix socket; several for a cluster.
    Contacted(Vec<String>),
    /// A program and its arguments, as for memcached. It gets a port on 127.0.0.1, and is killed at the end.
    Started(Vec<String>),
    /// The floor server: the same socket calls, without a cache.
    Floor,
}

impl Contestant {
    /// The scenario for this server, with its addresses. The floor server stores nothing, so its values cannot be
    /// checked; it has neither TLS nor logins.
    pub fn asked(&self, scenario: &Scenario, addresses: &[String]) -> Scenario {
        let mut scenario = scenario.clone();
        scenario.target.servers = addresses.to_vec();
        if self.place == Place::Floor {
            scenario.truth = Truth { timeout_secs: scenario.truth.timeout_secs, ..Truth::default() };
            (scenario.target.tls, scenario.target.login) = (None, None);
        }
        scenario
    }
}

/// Adapts `scenario` for a server that has had it before: its keys are stored, and need not be stored again, unless the
/// checks depend on that.
pub(crate) fn ask_again(scenario: &mut Scenario) {
    let truth = &scenario.truth;
    let is_checked = truth.verify > 0.0 || truth.verify_expiry > 0.0;
    if !(is_checked || truth.misses_fail || truth.compare_replicas) {
        (scenario.fill, scenario.flush) = (false, false);
    }
}

impl FromStr for Contestant {
    type Err = String;

    /// Parses `[NAME=]PLACE`. The place is `floor`, addresses separated by commas, or a command line:
    /// `127.0.0.1:11211`, `old=/run/memcached.sock`, `new=larderd -t 4 -m 1024`. The default name is that of the
    /// program, or the address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A later `=` belongs to the command line.
        let (name, place) = match text.split_once('=') {
            Some((name, place)) if is_name(name) => (Some(name), place),
            _ => (None, text),
        };
        if place == "floor" {
            return Ok(Self { name: name.unwrap_or("floor").to_owned(), place: Place::Floor });
        }
        let addresses: Vec<&str> = place.split(',').collect();
        if addresses.iter().all(|address| is_address(address)) {
            let place = Place::Contacted(addresses.iter().map(|&address| address.to_owned()).collect());
            return Ok(Self { name: name.unwrap_or(text).to_owned(), place });
        }
        let words = shlex::split(place).ok_or_else(|| format!("{place:?}: a quotation mark has no end"))?;
        let program = words.first().ok_or_else(|| format!("{text:?} names no server"))?;
        if words.len() == 1 && program.contains(':') && !program.contains('/') {
            let bad = addresses.iter().find_map(|address| address.parse::<Address>().err());
            return Err(bad.map_or_else(|| format!("{place}: this is no HOST:PORT"), |bad| bad.to_string()));
        }
        let program_name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = name.map_or(program_name, str::to_owned);
        Ok(Self { name, place: Place::Started(words) })
    }
}

/// Parses contestants and makes their names unique: the second `larderd` is `larderd-2`.
pub fn parse_all<S: AsRef<str>>(texts: &[S]) -> Result<Vec<Contestant>, String> {
    let mut contestants: Vec<Contestant> = Vec::new();
    for text in texts {
        let mut contestant: Contestant = text.as_ref().parse()?;
        let plain_name = contestant.name.clone();
        let mut number = 1;
        while contestants.iter().any(|other| other.name == contestant.name) {
            number += 1;
            contestant.name = format!("{plain_name}-{number}");
        }
        contestants.push(contestant);
    }
    Ok(contestants)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "._-+".contains(c))
}

/// `host:port`, or the path of an existing socket.
fn is_address(text: &str) -> bool {
    let is_host_and_port = text.contains(':')
        && !text.contains(char::is_whitespace)
        && matches!(text.parse(), Ok(Address::Inet { .. }));
    is_host_and_port || fs::metadata(text).is_ok_and(|file| file.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contestant(text: &str) -> (String, Place) {
        let contestant: Contestant = text.parse().expect("a contestant");
        (contestant.name, contestant.place)
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn addresses_are_contacted() {
        assert_eq!(
            contestant("127.0.0.1:11211"),
            ("127.0.0.1:11211".into(), Place::Contacted(words(&["127.0.0.1:11211"])))
        );
        assert_eq!(
            contestant("both=a:1,[::1]:2"),
            ("both".into(), Place::Contacted(words(&["a:1", "[::1]:2"])))
        );
    }

    #[test]
    fn command_lines_are_started() {
        assert_eq!(
            contestant("/usr/bin/memcached -t 1"),
            ("memcached".into(), Place::Started(words(&["/usr/bin/memcached", "-t", "1"])))
        );
        assert_eq!(
            contestant("new=larderd -o 'hashpower=20'"),
            ("new".into(), Place::Started(words(&["larderd", "-o", "hashpower=20"])))
        );
        assert_eq!(
            contestant("larderd -o hashpower=20"),
            ("larderd".into(), Place::Started(words(&["larderd", "-o", "hashpower=20"])))
        );
    }

    #[test]
    fn the_floor_has_a_name_of_its_own() {
        assert_eq!(contestant("floor"), ("floor".into(), Place::Floor));
        assert_eq!(contestant("nothing=floor"), ("nothing".into(), Place::Floor));
    }

    #[test]
    fn names_are_made_to_differ() {
        let names: Vec<String> = parse_all(&["larderd", "larderd -t 2", "floor", "larderd -t 4"])
            .expect("contestants")
            .into_iter()
            .map(|contestant| contestant.name)
            .collect();
        assert_eq!(names, ["larderd", "larderd-2", "floor", "larderd-3"]);
    }

    #[test]
    fn what_names_no_server_is_refused() {
        for text in ["", "   ", "larderd 'one", "cache-1:99999", "cache-1:x", "a:1,b:0"] {
            assert!(text.parse::<Contestant>().is_err(), "{text:?}");
        }
    }
}
