//! Columns, order, text.

use std::cmp::Ordering;
use std::io::{self, Write};

use clap::ValueEnum;
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

    pub(super) fn width(self) -> u16 {
        match self {
            Self::Server => 24,
            Self::Memory => 14,
            Self::Answer => 10,
            _ => 8,
        }
    }

    pub(super) fn text(self, rates: &Rates) -> String {
        match self {
            Self::Server => rates.server.clone(),
            _ if rates.trouble.is_some() => "-".to_owned(),
            Self::Gets => short(rates.gets),
            Self::Sets => short(rates.sets),
            Self::Hits => {
                rates.hit_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1}", ratio * 100.0))
            }
            Self::Evictions => short(rates.evictions),
            Self::In => short(rates.read_bytes),
            Self::Out => short(rates.written_bytes),
            Self::Connections => rates.connections.to_string(),
            Self::Items => short(rates.items as f64),
            Self::Memory => {
                format!("{} of {}", short(rates.used_bytes as f64), short(rates.limit_bytes as f64))
            }
            Self::P50 => micros(rates.p50_micros),
            Self::P99 => micros(rates.p99_micros),
            Self::Answer => format!("{:.2} ms", rates.answer_millis),
        }
    }

    /// The largest first; names from a to z.
    fn compare(self, a: &Rates, b: &Rates) -> Ordering {
        let key = |rates: &Rates| match self {
            Self::Server => 0.0,
            Self::Gets => rates.gets,
            Self::Sets => rates.sets,
            Self::Hits => rates.hit_ratio.unwrap_or(-1.0),
            Self::Evictions => rates.evictions,
            Self::In => rates.read_bytes,
            Self::Out => rates.written_bytes,
            Self::Connections => rates.connections as f64,
            Self::Items => rates.items as f64,
            Self::Memory => rates.used_bytes as f64,
            Self::P50 => rates.p50_micros.unwrap_or(-1.0),
            Self::P99 => rates.p99_micros.unwrap_or(-1.0),
            Self::Answer => rates.answer_millis,
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

pub(super) fn print(out: &mut dyn Write, rates: &[Rates]) -> io::Result<()> {
    let mut line = |texts: Vec<String>, trouble: Option<&str>| {
        let mut text = String::new();
        for (column, cell) in Column::ALL.into_iter().zip(texts) {
            let width = usize::from(column.width());
            match column {
                Column::Server => text += &format!("{cell:<width$}"),
                _ => text += &format!(" {cell:>width$}"),
            }
        }
        writeln!(out, "{text}{}", trouble.map(|why| format!("  {why}")).unwrap_or_default())
    };
    line(Column::ALL.map(|column| column.heading().to_owned()).to_vec(), None)?;
    for server in rates {
        line(Column::ALL.map(|column| column.text(server)).to_vec(), server.trouble.as_deref())?;
    }
    Ok(())
}

pub(super) fn json(rates: &Rates) -> Value {
    json!({
        "server": rates.server,
        "version": rates.version,
        "trouble": rates.trouble,
        "gets_per_sec": rates.gets,
        "sets_per_sec": rates.sets,
        "hit_ratio": rates.hit_ratio,
        "evictions_per_sec": rates.evictions,
        "read_bytes_per_sec": rates.read_bytes,
        "written_bytes_per_sec": rates.written_bytes,
        "connections": rates.connections,
        "items": rates.items,
        "used_bytes": rates.used_bytes,
        "limit_bytes": rates.limit_bytes,
        "p50_micros": rates.p50_micros,
        "p99_micros": rates.p99_micros,
        "answer_millis": rates.answer_millis,
    })
}

fn micros(micros: Option<f64>) -> String {
    match micros {
        None => "-".to_owned(),
        Some(micros) if micros < 9.95 => format!("{micros:.1} us"),
        Some(micros) if micros < 9999.5 => format!("{micros:.0} us"),
        Some(micros) => format!("{:.0} ms", micros / 1000.0),
    }
}

/// Three digits and a unit.
fn short(number: f64) -> String {
    let mut number = number;
    for unit in ["", "k", "M", "G", "T"] {
        if number < 999.5 {
            let decimals = if unit.is_empty() || number >= 99.95 { 0 } else { 1 };
            return format!("{number:.decimals$}{unit}");
        }
        number /= 1000.0;
    }
    format!("{number:.0}P")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (999.6, "1.0k"),
            (12_345.0, "12.3k"),
            (123_456.0, "123k"),
            (1.5e9, "1.5G"),
            (1e15, "1P"),
        ] {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn the_busiest_come_first() {
        let server = |name: &str, gets| Rates { server: name.into(), gets, ..Rates::default() };
        let mut rates = vec![server("b", 1.0), server("a", 1.0), server("c", 5.0)];
        sort(&mut rates, Column::Gets, false);
        assert_eq!(rates.iter().map(|rates| &rates.server[..]).collect::<String>(), "cab");
        sort(&mut rates, Column::Server, true);
        assert_eq!(rates.iter().map(|rates| &rates.server[..]).collect::<String>(), "cba");
    }
}
