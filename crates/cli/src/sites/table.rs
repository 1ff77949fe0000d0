//! The table of `larder sites`.

use std::io::{self, Write};

use larder_bench::report::units;

use super::view::{Row, View};
use crate::output::readable;

/// Writes what a server sees, in columns that are as wide as they have to be.
pub(super) fn write(out: &mut dyn Write, view: &View, lag_secs_max: u32) -> io::Result<()> {
    writeln!(out, "{}: site {}", view.server, view.site)?;
    if !view.left_out.is_empty() {
        writeln!(
            out,
            "  not replicated, since not kept in the store: {}",
            readable(view.left_out.as_bytes())
        )?;
    }
    let rows: Vec<_> = view.rows().iter().map(|row| cells(row, lag_secs_max)).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([HEADINGS[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let headings = HEADINGS.map(str::to_owned);
    for row in [&headings].into_iter().chain(&rows) {
        let padded = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0..=2 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        writeln!(out, "  {}", padded.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn cells(row: &Row<'_>, lag_secs_max: u32) -> [String; COLUMNS] {
    let number = |name| row.number(name).map_or_else(none, |number| number.to_string());
    let secs = |micros: u64| format!("{:.1} s", micros as f64 / 1e6);
    let state = match row.text("connected") {
        _ if row.text("copying") == Some("yes") => "copying",
        Some("yes") if row.trouble(lag_secs_max).is_none() => "well",
        Some("yes") => "connected",
        Some(_) => "away",
        None => "no peer",
    };
    let ahead_micros = row.number("ahead_us").unwrap_or_default();
    [
        if row.site == 0 { none() } else { row.site.to_string() },
        row.address.map_or_else(none, |address| readable(address.as_bytes())),
        state.to_owned(),
        row.text("standing").map_or_else(none, |standing| readable(standing.as_bytes())),
        row.delay_micros().map_or_else(none, |micros| units::latency(micros as f64 * 1e3)),
        number("cursor"),
        number("entries_behind"),
        row.number("log_kept_bytes").map_or_else(none, |bytes| units::memory(bytes as f64)),
        number("conflicts"),
        if ahead_micros == 0 { "right".to_owned() } else { format!("{} ahead", secs(ahead_micros)) },
    ]
}

fn none() -> String {
    "-".to_owned()
}

const COLUMNS: usize = 10;
const HEADINGS: [&str; COLUMNS] =
    ["SITE", "PEER", "STATE", "STANDING", "LAG", "CURSOR", "BEHIND", "KEPT", "CONFLICTS", "CLOCK"];
