//! A line a period and command, and `all` for the period. RFC 4180 with plain newlines; no cell needs quotes.

use std::io::{self, Write};

use super::words;
use crate::Outcome;
use crate::outcome::{CommandTally, Period};

/// The first line.
pub const HEADING: &str = "begins_secs,secs,command,requests,requests_per_sec,keys,hits,misses,value_bytes,mean_micros,\
stdev_micros,min_micros,p50_micros,p90_micros,p99_micros,p99.9_micros,p99.99_micros,max_micros,sent_bytes,received_bytes,\
failures,reconnects,server_cpu_secs,sent_late,unsent,client_late";

/// Writes all periods. What is counted for a whole period and not by command stands in its `all` line alone.
pub fn write(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{HEADING}")?;
    for period in &outcome.periods {
        for (&kind, figures) in &period.tally.commands {
            writeln!(out, "{},,,,,,,,", line(period, words::command(kind), figures))?;
        }
        let tally = &period.tally;
        let failures: u64 = tally.failures.values().sum();
        let cpu = period.server_cpu_secs.map(|secs| format!("{secs:.3}")).unwrap_or_default();
        let (late, unsent, client_late) = (tally.sent_late, tally.unsent, tally.client_late);
        let (sent, received, reconnects) = (tally.sent_bytes, tally.received_bytes, tally.reconnects);
        writeln!(
            out,
            "{},{sent},{received},{failures},{reconnects},{cpu},{late},{unsent},{client_late}",
            line(period, "all", &tally.all())
        )?;
    }
    Ok(())
}

/// The cells that every line has.
fn line(period: &Period, command: &str, figures: &CommandTally) -> String {
    let nanos = &figures.latency_nanos;
    let at = |percentile| nanos.value_at_percentile(percentile) as f64;
    let latencies = [
        nanos.mean(),
        nanos.stdev(),
        nanos.min() as f64,
        at(50.0),
        at(90.0),
        at(99.0),
        at(99.9),
        at(99.99),
        nanos.max() as f64,
    ];
    let latencies = if nanos.is_empty() { [0.0; 9] } else { latencies };
    let micros = latencies.map(|nanos| format!("{:.3}", nanos / 1000.0)).join(",");
    let rate = figures.requests as f64 / period.secs.max(f64::MIN_POSITIVE);
    format!(
        "{:.3},{:.3},{command},{},{rate:.1},{},{},{},{},{micros}",
        period.begins_secs,
        period.secs,
        figures.requests,
        figures.keys,
        figures.hits,
        figures.misses,
        figures.value_bytes
    )
}
