//! Columns, order, text.

use std::cmp::Ordering;
use std::io::{self, Write};

use clap::ValueEnum;
use larder_bench::report::units;
use serde_json::{Value, json};

use super::sample::Rates;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Column {
    #[default]
    Server,
    Gets,
    Sets,
    Hits,
    Evictions,
    In,
    Out,
    Connections,
    Items,
    Memory,
    P50,
    P99,
    Answer,
}

impl Column {
    pub(super) const ALL: [Self; 13] = [
        Self::Server,
        Self::Gets,
        Self::Sets,
        Self::Hits,
        Self::Evictions,
        Self::In,
        Self::Out,
        Self::Connections,
        Self::Items,
        Self::Memory,
        Self::P50,
        Self::P99,
        Self::Answer,
    ];

    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Server => "SERVER",
            Self::Gets => "GET/s",
            Self::Sets => "SET/s",
            Self::Hits => "HIT %",
            Self::Evictions => "EVICT/s",
            Self::In => "IN/s",
            Self::Out => "OUT/s",
            Self::Connections => "CONNS",
            Self::Items => "ITEMS",
            Self::Memory => "MEMORY",
            Self::P50 => "P50",
            Self::P99 => "P99",
            Self::Answer => "ANSWER",
        }
    }

    /// Its width in characters, with a space before it; `names` is the width of the longest server name.
    fn width(self, names: usize) -> usize {
        match self {
            Self::Server => names,
            Self::Memory => 17,
            Self::Answer | Self::In | Self::Out => 10,
            _ => 8,
        }
    }

    /// A text in its column: names to the left, numbers to the right.
    pub(super) fn pad(self, text: &str, names: usize) -> String {
        let width = self.width(names);
        match self {
            Self::Server => format!("{text:<width$}"),
            _ => format!("{text:>width$}"),
        }
    }

    pub(super) fn text(self, rates: &Rates) -> String {
        match self {
            Self::Server => rates.server.clone(),
            _ if rates.trouble.is_some() => "-".to_owned(),
            Self::Gets => units::short(rates.gets),
            Self::Sets => units::short(rates.sets),
            Self::Hits => {
                rates.hit_ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{:.1}", ratio * 100.0))
            }
            Self::Evictions => units::short(rates.evictions),
            Self::In => units::memory(rates.read_bytes),
            Self::Out => units::memory(rates.written_bytes),
            Self::Connections => rates.connections.to_string(),
            Self::Items => units::short(rates.items as f64),
            Self::Memory => units::memory_of(rates.used_bytes as f64, rates.limit_bytes as f64),
            Self::P50 => micros(rates.quantile_micros(0.5)),
            Self::P99 => micros(rates.quantile_micros(0.99)),
            Self::Answer => micros(Some(rates.answer_micros)),
        }
    }

    /// Largest first; names from a to z.
    fn compare(self, a: &Rates, b: &Rates) -> Ordering {
        let key = |rates: &Rates| match self {
            Self::Server => 0.0,
            Self::Gets => rates.gets,
            Self::Sets => rates.sets,
            Self::Hits => rates.hit_ratio().unwrap_or(-1.0),
            Self::Evictions => rates.evictions,
            Self::In => rates.read_bytes,
            Self::Out => rates.written_bytes,
            Self::Connections => rates.connections as f64,
            Self::Items => rates.items as f64,
            Self::Memory => rates.used_bytes as f64,
            Self::P50 => rates.quantile_micros(0.5).unwrap_or(-1.0),
            Self::P99 => rates.quantile_micros(0.99).unwrap_or(-1.0),
            Self::Answer => rates.answer_micros,
        };
        key(b).total_cmp(&key(a)).then_with(|| a.server.cmp(&b.server))
    }
}

pub(super) fn sort(rates: &mut [Rates], by: Column, is_reversed: bool) {
    rates.sort_by(|a, b| by.compare(a, b));
    if is_reversed {
        rates.reverse();
    }
}

/// The columns that fit into so many characters. The one that the rows are sorted by is among them.
pub(super) fn fitting(width: usize, names: usize, sort: Column) -> Vec<Column> {
    let mut columns = Column::ALL.to_vec();
    for spare in SPARE_FIRST {
        let taken: usize = columns.iter().map(|column| column.width(names)).sum();
        if taken <= width {
            break;
        }
        if spare != sort {
            columns.retain(|column| *column != spare);
        }
    }
    columns
}

/// Width of the longest name.
pub(super) fn names(rates: &[Rates]) -> usize {
    let names = rates.iter().map(|server| server.server.chars().count());
    names.chain([Column::Server.heading().len()]).max().unwrap_or_default()
}

/// A line for each server; with several, one for all of them.
pub(super) fn print(out: &mut dyn Write, rates: &[Rates]) -> io::Result<()> {
    let names = names(rates);
    let mut line = |text: fn(Column, &Rates) -> String, server: &Rates| {
        let cells = Column::ALL.map(|column| column.pad(&text(column, server), names)).concat();
        let trouble = server.why().map(|why| format!("  {why}"));
        writeln!(out, "{cells}{}", trouble.unwrap_or_default())
    };
    line(|column, _| column.heading().to_owned(), &Rates::default())?;
    rates.iter().try_for_each(|server| line(Column::text, server))?;
    match rates {
        [] | [_] => Ok(()),
        several => line(Column::text, &Rates::total(several)),
    }
}

pub(super) fn json(rates: &Rates) -> Value {
    json!({
        "server": rates.server,
        "version": rates.version,
        "trouble": rates.why(),
        "gets_per_sec": rates.gets,
        "sets_per_sec": rates.sets,
        "hit_ratio": rates.hit_ratio(),
        "evictions_per_sec": rates.evictions,
        "read_bytes_per_sec": rates.read_bytes,
        "written_bytes_per_sec": rates.written_bytes,
        "connections": rates.connections,
        "items": rates.items,
        "used_bytes": rates.used_bytes,
        "limit_bytes": rates.limit_bytes,
        "p50_micros": rates.quantile_micros(0.5),
        "p99_micros": rates.quantile_micros(0.99),
        "answer_micros": rates.answer_micros,
    })
}

fn micros(micros: Option<f64>) -> String {
    match micros {
        None => "-".to_owned(),
        Some(micros) => units::latency(micros * 1000.0),
    }
}

/// The order in which columns are left out, least important first.
const SPARE_FIRST: [Column; 11] = [
    Column::In,
    Column::Out,
    Column::Items,
    Column::P50,
    Column::Answer,
    Column::Connections,
    Column::P99,
    Column::Evictions,
    Column::Sets,
    Column::Memory,
    Column::Hits,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_come_first() {
        let server = |name: &str, gets| Rates { server: name.into(), gets, ..Rates::default() };
        let mut rates = vec![server("b", 1.0), server("a", 1.0), server("c", 5.0)];
        sort(&mut rates, Column::Gets, false);
        assert_eq!(rates.iter().map(|rates| &rates.server[..]).collect::<String>(), "cab");
        sort(&mut rates, Column::Server, true);
        assert_eq!(rates.iter().map(|rates| &rates.server[..]).collect::<String>(), "cba");
    }

    #[test]
    fn what_matters_least_goes_where_there_is_little_room() {
        let heading = |width, sort| {
            let columns = fitting(width, 15, sort);
            columns.iter().map(|column| column.pad(column.heading(), 15)).collect::<String>()
        };
        let all = heading(200, Column::Server);
        assert!(all.starts_with("SERVER            GET/s   SET/s") && all.ends_with("    ANSWER"), "{all}");
        assert_eq!(fitting(all.len(), 15, Column::Server).len(), Column::ALL.len());
        assert_eq!(
            heading(80, Column::Server),
            "SERVER            GET/s   SET/s   HIT % EVICT/s   CONNS           MEMORY     P99"
        );
        assert_eq!(heading(41, Column::In), "SERVER            GET/s   HIT %      IN/s");
        assert_eq!(heading(1, Column::Server), "SERVER            GET/s");
    }
}
