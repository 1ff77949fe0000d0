//! Brutis: the options of 0.93, and the XML of 2.0.
//!
//! `-t` tells which: 0.93 is given seconds, 2.0 the file of a test.

mod job;
mod options;
mod xml;

use std::ffi::OsString;

use super::words::{self, Given, Known};
use super::{Refusal, Surroundings, Translation, WITHOUT_END_SECS, servers};

const fn flag(letter: char) -> Known {
    Known { short: Some(letter), long: "", has_value: false }
}

const fn with_value(letter: char) -> Known {
    Known { short: Some(letter), long: "", has_value: true }
}

/// Of both versions.
const TABLE: &[Known] = &[
    with_value('x'),
    with_value('t'),
    with_value('o'),
    with_value('F'),
    with_value('c'),
    with_value('w'),
    flag('X'),
    flag('v'),
    flag('h'),
    // 0.93 only.
    with_value('k'),
    with_value('z'),
    with_value('a'),
    with_value('p'),
    with_value('r'),
    with_value('n'),
    with_value('m'),
    with_value('f'),
    with_value('s'),
    with_value('b'),
    with_value('i'),
    with_value('R'),
    flag('P'),
    flag('d'),
    flag('D'),
];

const HELP: &str = "\
usage: larder bench brutis -t TEST.xml -x HOST[:PORT],... [options]     as Brutis 2.0
       larder bench brutis -x HOST[:TCP[:UDP]],... [options]            as Brutis 0.93

  -x LIST   servers
  -o FILE   write every period (CSV), or with -F json all of it
  -F csv|json
  -v        always so here
  -X, -D    no collector: always so here

As Brutis 0.93:
  -t SECS   how long (172800)             -n N     how many operations of each client, instead
  -f N      clients (1)                   -m N     connection pools of each (1)
  -k N      keys (1000000)                -z N     number of the first (0)
  -p TEXT   what a key begins with (brutis-)
  -r S:G    sets and gets (1:10)          -a P:P   their order, S in turn or R at random (S:R)
  -b N      keys of a get (1)             -s BYTES length of a value (256)
  -d        check values                  -i SECS  how often figures are written (2)
  -P        connections stay: always so here
";

pub(super) fn translate(words: &[OsString], surroundings: &Surroundings<'_>) -> Result<Translation, Refusal> {
    let (given, others) = words::read(words, TABLE)?;
    if let Some(word) = others.first() {
        return Err(Refusal::Words(format!("{word}: brutis takes options only")));
    }
    let mut common = Common::default();
    let mut rest = Vec::new();
    for option in given {
        if !common.set(&option)? {
            rest.push(option);
        }
    }
    let servers = match common.servers.take() {
        Some(list) => servers_of(&list)?,
        None => return Err(Refusal::Words("-x: servers are needed".into())),
    };
    let mut notes = Vec::new();
    let scenarios = match common.test.take() {
        Some(file) if file.parse::<u64>().is_err() => {
            if let Some(option) = rest.first() {
                return Err(option.refuse("an option of Brutis 0.93; with a test file there is none"));
            }
            let test = xml::read(&file, &surroundings.read(&file)?)?;
            job::scenarios(&file, test, &servers, &mut notes)?
        }
        secs => vec![options::scenario(secs.as_deref(), &rest, servers, &mut notes)?],
    };
    let (csv_file, json_file) = match common.is_json {
        true => (None, common.output_file),
        false => (common.output_file, None),
    };
    Ok(Translation { csv_file, json_file, ..Translation::plain(scenarios, notes) })
}

/// Options that both versions have.
#[derive(Default)]
struct Common {
    servers: Option<String>,
    test: Option<String>,
    output_file: Option<String>,
    is_json: bool,
}

impl Common {
    /// Whether `option` is one of these.
    fn set(&mut self, option: &Given) -> Result<bool, Refusal> {
        match option.short {
            Some('x') => self.servers = Some(option.value.clone()),
            Some('t') => self.test = Some(option.value.clone()),
            Some('o') => self.output_file = Some(option.value.clone()),
            Some('F') => {
                self.is_json = match option.value.to_ascii_lowercase().as_str() {
                    "json" => true,
                    "csv" => false,
                    _ => return Err(option.refuse("the formats are csv and json")),
                };
            }
            Some('v' | 'X' | 'D') => {}
            Some('h') => return Err(Refusal::Help(HELP.into())),
            Some('c') => {
                return Err(option.refuse(
                    "Brutis's collector speaks serialized PHP; larder bench agent and collect join several machines",
                ));
            }
            Some('w') => {
                return Err(
                    option.refuse("BrutisWeb never existed; --html FILE of larder bench writes a page")
                );
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// `host`, `host:tcp`, or `host:tcp:udp` with a UDP port of 0.
fn servers_of(list: &str) -> Result<Vec<String>, Refusal> {
    list.split(',')
        .map(str::trim)
        .filter(|server| !server.is_empty())
        .map(|server| match server.split(':').collect::<Vec<_>>()[..] {
            [host] => servers::with_port(host),
            [host, port] | [host, port, "0"] => servers::with_port(&format!("{host}:{port}")),
            [_, tcp, udp] if tcp == udp => Err(Refusal::Words(format!(
                "-x {server}: a UDP port of 0 is needed; larder bench --udp asks over UDP"
            ))),
            _ => Err(Refusal::Words(format!("-x {server}: HOST, HOST:PORT or HOST:PORT:0 is needed"))),
        })
        .collect()
}

#[cfg(test)]
mod tests;
