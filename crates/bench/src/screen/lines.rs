//! A line a period, where there is no terminal.

use std::io::Write;

use crate::outcome::{Period, Phase, Tally, Watcher};
use crate::report::units::{count, latency, percent};
use crate::report::words;

/// Writes what a screen would show, line by line.
#[derive(Debug)]
pub struct Lines<W> {
    out: W,
    phase: Option<&'static str>,
}

impl<W: Write> Lines<W> {
    /// To `out`.
    pub fn new(out: W) -> Self {
        Self { out, phase: None }
    }

    /// Whoever stopped reading has seen enough; the run goes on.
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{text}").and_then(|()| self.out.flush());
    }
}

impl<W: Write> Watcher for Lines<W> {
    fn turn(&mut self, server: &str, round: usize, rounds: usize) {
        self.phase = None;
        self.line(&format!("round {round} of {rounds}: {server}"));
    }

    fn phase(&mut self, phase: Phase) {
        let name = words::phase(phase);
        if self.phase.replace(name) != Some(name) {
            self.line(name);
        }
    }

    fn period(&mut self, period: &Period, _: &Tally) {
        let all = period.tally.all();
        let secs = period.secs.max(f64::MIN_POSITIVE);
        let at = |percentile| latency(all.latency_nanos.value_at_percentile(percentile) as f64);
        let ends = period.begins_secs + period.secs;
        let rate = count((all.requests as f64 / secs).round() as u64);
        let mut text = format!("{ends:6.1} s  {rate:>11}/s");
        if !all.latency_nanos.is_empty() {
            let [p50, p99, p999, max] = [50.0, 99.0, 99.9, 100.0].map(at);
            text += &format!("  p50 {p50:>7}  p99 {p99:>7}  p99.9 {p999:>7}  max {max:>7}");
        }
        if all.hits + all.misses > 0 {
            text += &format!("  hits {}", percent(all.hits as f64 / (all.hits + all.misses) as f64));
        }
        if let Some(cpu) = period.server_cpu_secs {
            text += &format!("  server {:.2} cores", cpu / secs);
        }
        if period.tally.has_failed() {
            text += &format!("  FAILED: {}", words::failures(&period.tally));
        }
        self.line(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{CommandTally, Failure};
    use crate::scenario::Kind;

    #[test]
    fn a_phase_and_a_period_are_a_line_each() {
        let mut figures = CommandTally { requests: 3000, hits: 2700, misses: 300, ..CommandTally::new() };
        figures.latency_nanos.record_n(1_000, 3000).expect("in range");
        let mut tally = Tally::default();
        tally.commands.insert(Kind::Get, figures);
        tally.failures.insert(Failure::Timeout, 2);
        let mut lines = Lines::new(Vec::new());
        lines.phase(Phase::Filling { done: 1, of: 2 });
        lines.phase(Phase::Filling { done: 2, of: 2 });
        lines.phase(Phase::Running);
        let period = Period { begins_secs: 2.0, secs: 2.0, tally, server_cpu_secs: Some(1.0) };
        lines.period(&period, &period.tally);
        let text = String::from_utf8(lines.out).expect("text");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..2], ["storing keys", "running"]);
        assert_eq!(
            lines[2],
            "   4.0 s        1,500/s  p50 1.00 µs  p99 1.00 µs  p99.9 1.00 µs  max 1.00 µs  hits 90.0 %  server 0.50 cores  FAILED: 2 timeouts"
        );
    }
}
