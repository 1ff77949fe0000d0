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
        Expected::Close => match next_or_close(wire)? {
            Some(line) => printer.line(&line)?,
            None => printer.print(DIM, "the server closed the connection")?,
        },
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
    anstream::eprintln!("{RED}{}{RED:#}", readable(why.as_bytes()));
}

fn values(wire: &mut Wire, keys: &[String], printer: &mut Printer<'_>) -> Result<(), Failure> {
    let mut found = Vec::new();
    loop {
        let line = next(wire)?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["VALUE", key, flags, value_bytes, ref cas @ ..] => {
                let Ok(value_bytes) = value_bytes.parse() else { return Err(wire.broken(line.as_bytes())) };
                if found.len() == keys.len() {
                    return Err(wire.broken(line.as_bytes()));
                }
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
    missing.into_iter().try_for_each(|key| printer.print(DIM, &format!("{key}: not found")))
}

fn stats(wire: &mut Wire, printer: &mut Printer<'_>) -> Result<(), Failure> {
    let mut stats: Vec<(String, String)> = Vec::new();
    let mut bytes = 0;
    loop {
        let line = next(wire)?;
        bytes += line.len() + STAT_BYTES;
        if bytes > STATS_BYTES_MAX {
            return Err(wire.broken(b"statistics without an end"));
        }
        let mut words = line.splitn(3, ' ');
        match words.next() {
            Some("STAT") => {
                let mut word = || words.next().unwrap_or_default().to_owned();
                stats.push((word(), word()));
            }
            Some("PREFIX" | "ITEM") => printer.print(PLAIN, &line)?,
            Some("END") => break,
            _ => return printer.line(&line),
        }
    }
    let width = stats.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    stats.iter().try_for_each(|(name, value)| {
        // Each by itself: an escape in one leaves the other as it is.
        let (name, value) = (readable(name.as_bytes()), readable(value.as_bytes()));
        printer.print(PLAIN, &format!("{name:<width$}  {value}"))
    })
}

fn keys(wire: &mut Wire, printer: &mut Printer<'_>) -> Result<(), Failure> {
    loop {
        let line = next(wire)?;
        match line.split(['=', ' ']).next() {
            Some("key" | "mg") => printer.print(PLAIN, &line)?,
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
        ["EN"] | ["NF", ..] => printer.print(DIM, &format!("{line}: not found")),
        _ => printer.line(line),
    }
}

fn next(wire: &mut Wire) -> Result<String, Failure> {
    let mut line = Vec::new();
    wire.line(&mut line)?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// `None`: the server closed the connection.
fn next_or_close(wire: &mut Wire) -> Result<Option<String>, Failure> {
    let mut line = Vec::new();
    Ok(wire.line_or_close(&mut line)?.then(|| String::from_utf8_lossy(&line).into_owned()))
}

struct Printer<'o> {
    out: &'o mut dyn Write,
    is_fine: bool,
}

impl Printer<'_> {
    /// Prints a line. What the server says in it does not control the terminal.
    fn print(&mut self, style: Style, text: &str) -> Result<(), Failure> {
        writeln!(self.out, "{style}{}{style:#}", readable(text.as_bytes())).map_err(Failure::of_output)
    }

    /// A line of the server; an error with what it means.
    fn line(&mut self, line: &str) -> Result<(), Failure> {
        let first = line.split(' ').next().unwrap_or_default();
        if !matches!(first, "ERROR" | "CLIENT_ERROR" | "SERVER_ERROR" | "SERVER_ERROR:" | "BUSY") {
            return self.print(PLAIN, line);
        }
        self.is_fine = false;
        self.print(RED, line)?;
        meaning(line).map_or(Ok(()), |meaning| self.print(DIM, meaning))
    }

    fn value(&mut self, key: &str, what: &str, value: &[u8]) -> Result<(), Failure> {
        write!(self.out, "{BOLD}{}{BOLD:#} ", readable(key.as_bytes())).map_err(Failure::of_output)?;
        self.print(DIM, what.trim_end())?;
        writeln!(self.out, "{}", readable(value)).map_err(Failure::of_output)
    }
}

/// What statistics may take until they are shown.
const STATS_BYTES_MAX: usize = 256 << 20;
/// What one takes besides its bytes.
const STAT_BYTES: usize = 2 * size_of::<String>() + 32;
const PLAIN: Style = Style::new();
const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const RED: Style = AnsiColor::Red.on_default();
