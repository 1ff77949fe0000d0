//! The bytes that come back, and how they are shown.

use std::io::Write;

use anstyle::{AnsiColor, Style};

use super::request::{Expected, Request};
use crate::Failure;
use crate::error::meaning;
use crate::output::readable;
use crate::wire::Wire;

/// Receives a reply and prints it; false if it is an error.
pub(super) fn show(wire: &mut Wire, request: &Request, out: &mut dyn Write) -> Result<bool, Failure> {
    let mut printer = Printer { out, is_fine: true };
    match request.expected {
        Expected::Nothing => {}
        Expected::Values => values(wire, &request.keys, &mut printer)?,
        Expected::Stats => stats(wire, &mut printer)?,
        Expected::Keys => keys(wire, &mut printer)?,
        Expected::Line => printer.line(&next(wire)?)?,
        Expected::Meta => {
            let line = next(wire)?;
            meta(wire, &line, &mut printer)?;
        }
        Expected::MetaBatch => loop {
            let line = next(wire)?;
            if line == "MN" {
                break;
            }
            meta(wire, &line, &mut printer)?;
        },
    }
    printer.out.flush().map_err(Failure::of_output)?;
    Ok(printer.is_fine)
}

/// A failure of the shell itself, on standard error.
pub(super) fn show_failure(why: &str) {
    anstream::eprintln!("{RED}{why}{RED:#}");
}

fn values(wire: &mut Wire, keys: &[String], printer: &mut Printer<'_>) -> Result<(), Failure> {
    let mut found = Vec::new();
    loop {
        let line = next(wire)?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["VALUE", key, flags, value_bytes, ref cas @ ..] => {
                let Ok(value_bytes) = value_bytes.parse() else { return Err(wire.broken(line.as_bytes())) };
                let value = wire.value(value_bytes)?;
                let cas: String = cas.iter().map(|cas| format!(", cas {cas}")).collect();
                printer.value(key, &format!("{value_bytes} bytes, flags {flags}{cas}"), &value)?;
                found.push(key.to_owned());
            }
            ["END"] => break,
            _ => return printer.line(&line),
        }
    }
    let missing = keys.iter().filter(|key| !found.contains(key));
    missing.into_iter().try_for_each(|key| printer.print(format_args!("{DIM}{key}: not found{DIM:#}")))
}

fn stats(wire: &mut Wire, printer: &mut Printer<'_>) -> Result<(), Failure> {
    let mut stats: Vec<(String, String)> = Vec::new();
    loop {
        let line = next(wire)?;
        let mut words = line.splitn(3, ' ');
        match words.next() {
            Some("STAT") => {
                let mut word = || words.next().unwrap_or_default().to_owned();
                stats.push((word(), word()));
            }
            Some("PREFIX" | "ITEM") => printer.print(format_args!("{}", readable(line.as_bytes())))?,
            Some("END") => break,
            _ => return printer.line(&line),
        }
    }
    let width = stats.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    stats.iter().try_for_each(|(name, value)| {
        let (name, value) = (readable(name.as_bytes()), readable(value.as_bytes()));
        printer.print(format_args!("{name:<width$}  {value}"))
    })
}

fn keys(wire: &mut Wire, printer: &mut Printer<'_>) -> Result<(), Failure> {
    loop {
        let line = next(wire)?;
        match line.split(['=', ' ']).next() {
            Some("key" | "mg") => printer.print(format_args!("{}", readable(line.as_bytes())))?,
            // Some servers send it before they begin.
            Some("OK") => {}
            Some("END" | "EN") => return Ok(()),
            _ => return printer.line(&line),
        }
    }
}

fn meta(wire: &mut Wire, line: &str, printer: &mut Printer<'_>) -> Result<(), Failure> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["VA", value_bytes, ref flags @ ..] => {
            let Ok(bytes) = value_bytes.parse() else { return Err(wire.broken(line.as_bytes())) };
            let value = wire.value(bytes)?;
            printer.value("VA", &format!("{value_bytes} bytes {}", flags.join(" ")), &value)
        }
        ["EN"] | ["NF", ..] => printer.print(format_args!("{DIM}{line}: not found{DIM:#}")),
        _ => printer.line(line),
    }
}

fn next(wire: &mut Wire) -> Result<String, Failure> {
    let mut line = Vec::new();
    wire.line(&mut line)?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}

struct Printer<'o> {
    out: &'o mut dyn Write,
    is_fine: bool,
}

impl Printer<'_> {
    fn print(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), Failure> {
        writeln!(self.out, "{text}").map_err(Failure::of_output)
    }

    /// A line of the server; an error with what it means.
    fn line(&mut self, line: &str) -> Result<(), Failure> {
        let text = readable(line.as_bytes());
        let first = line.split(' ').next().unwrap_or_default();
        if !matches!(first, "ERROR" | "CLIENT_ERROR" | "SERVER_ERROR" | "SERVER_ERROR:" | "BUSY") {
            return self.print(format_args!("{text}"));
        }
        self.is_fine = false;
        self.print(format_args!("{RED}{text}{RED:#}"))?;
        meaning(line).map_or(Ok(()), |meaning| self.print(format_args!("{DIM}{meaning}{DIM:#}")))
    }

    fn value(&mut self, key: &str, what: &str, value: &[u8]) -> Result<(), Failure> {
        self.print(format_args!(
            "{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}",
            readable(key.as_bytes()),
            what.trim_end()
        ))?;
        self.print(format_args!("{}", readable(value)))
    }
}

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const RED: Style = AnsiColor::Red.on_default();
