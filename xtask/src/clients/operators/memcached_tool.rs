//! `memcached-tool`, which comes with memcached.

use std::process::Command;

use larder_conformance::Result;

use super::Target;
use super::view::View;
use crate::shell;

/// Its table of the classes: the heading as it is, and the items of all classes.
pub(super) fn display(target: &Target) -> Result<View> {
    let text = tool(target, "display")?;
    let (heading, rows) = text.split_once('\n').ok_or("display prints no heading")?;
    let mut view = View::default();
    view.add("heading", heading);
    let columns = heading.split_whitespace().count();
    let mut items = 0;
    for row in rows.lines() {
        let words: Vec<&str> = row.split_whitespace().collect();
        // "Full?" is yes or no, all other columns are numbers, some with a unit.
        let numbers = words.iter().filter(|word| word.starts_with(|first: char| first.is_ascii_digit()));
        if words.len() != columns || numbers.count() != columns - 1 {
            return Err(format!("display prints {row:?}").into());
        }
        items += words[4].parse::<u64>()?;
    }
    view.add("Count of all classes", items.to_string());
    Ok(view)
}

/// What it prints as a table of names and values.
pub(super) fn table(target: &Target, command: &str) -> Result<View> {
    let text = tool(target, command)?;
    let mut view = View::default();
    for line in text.lines().skip(1) {
        let (name, value) = line.trim().split_once(char::is_whitespace).unwrap_or_default();
        view.add(name, value.trim());
    }
    Ok(view)
}

/// Its dump: for every item an `add` command with the value behind it.
pub(super) fn dump(target: &Target) -> Result<View> {
    let now_secs = target.now_secs()?;
    let text = tool(target, "dump")?;
    let mut view = View::default();
    let mut lines = text.lines().skip_while(|line| !line.starts_with("add "));
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["add", key, flags, expires, bytes] = words[..] else {
            return Err(format!("dump prints {line:?}").into());
        };
        let minutes = match expires.parse::<u64>()? {
            0 => "never".to_owned(),
            // To the minute: the servers were filled one after the other.
            moment => format!("in {} min", (moment.saturating_sub(now_secs) + 30) / 60),
        };
        let value = lines.next().unwrap_or_default();
        view.add(key, format!("flags {flags}, expires {minutes}, {bytes} bytes: {value:.20}"));
    }
    Ok(view)
}

fn tool(target: &Target, command: &str) -> Result<String> {
    shell::output(Command::new(TOOL).arg(target.name()).arg(command))
}

/// Debian's place for it.
const TOOL: &str = "/usr/share/memcached/scripts/memcached-tool";
