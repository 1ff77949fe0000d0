//! memaslap's own tables: what it prints every `-S` seconds and at the end, as version 1.0 of libmemcached's tools
//! does.
//!
//! Two of its habits are not kept. Its means are whole numbers, and its deviations are taken from these; ours are
//! exact. And its older versions print the network rate of the period beside `Global`, and that of the whole run beside
//! `Period`.

use std::io::{self, Write};

use hdrhistogram::Histogram;

use crate::Outcome;
use crate::outcome::{CommandTally, Failure, Period, Phase, Tally, Watcher};
use crate::scenario::{Kind, Popularity, Scenario, Sizes, Transport};

const MIB: f64 = 1024.0 * 1024.0;

/// Which of its lines memaslap would print, and with what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    /// `-v` was given.
    pub verify: bool,
    /// `-e` was given.
    pub expiry: bool,
    /// `-U` or `-a` was given.
    pub udp: bool,
    /// `-S` was given: how often, in whole seconds.
    pub stat_freq_secs: Option<u64>,
    /// Mean length of a key.
    pub key_bytes: f64,
    /// Mean length of a value.
    pub value_bytes: f64,
}

impl Form {
    /// What the scenario's first group and checks ask for.
    pub fn of(scenario: &Scenario, stat_freq_secs: Option<u64>) -> Self {
        let group = scenario.groups.first().cloned().unwrap_or_default();
        Self {
            verify: scenario.truth.verify > 0.0,
            expiry: scenario.truth.verify_expiry > 0.0,
            udp: group.transport != Transport::Tcp,
            stat_freq_secs,
            key_bytes: mean(&group.keys.bytes),
            value_bytes: mean(&group.values.bytes),
        }
    }

    fn object_bytes(&self) -> f64 {
        self.key_bytes + self.value_bytes
    }
}

/// What memaslap prints before it begins.
pub fn heading(scenario: &Scenario, threads: usize, out: &mut dyn Write) -> io::Result<()> {
    let group = scenario.groups.first().cloned().unwrap_or_default();
    writeln!(out, "servers: {}", scenario.target.servers.join(","))?;
    writeln!(out, "threads count: {threads}")?;
    writeln!(out, "concurrency: {}", group.connections)?;
    // Each key of a multi-get is an operation.
    let weight = |wanted: &dyn Fn(Kind) -> bool| -> f64 {
        let commands = group.commands.iter().filter(|command| wanted(command.kind));
        commands.map(|command| command.weight * command.keys as f64).sum()
    };
    let all = weight(&|_| true).max(f64::MIN_POSITIVE);
    match (scenario.until.requests, scenario.until.secs) {
        (Some(requests), None) => {
            let requests_weight: f64 = group.commands.iter().map(|command| command.weight).sum();
            let operations = requests as f64 * all / requests_weight.max(f64::MIN_POSITIVE);
            writeln!(out, "execute number: {operations:.0}")?;
        }
        (_, secs) => writeln!(out, "run time: {:.0}s", secs.unwrap_or(10.0))?,
    }
    if let Popularity::Window { keys, .. } = group.keys.popularity {
        writeln!(out, "windows size: {}k", keys / 1024)?;
    }
    writeln!(out, "set proportion: set_prop={:.2}", weight(&|kind| kind == Kind::Set) / all)?;
    writeln!(out, "get proportion: get_prop={:.2}", weight(&is_get) / all)
}

/// The tables of a period, and of the run until its end.
pub fn period(form: &Form, period: &Period, so_far: &Tally, out: &mut dyn Write) -> io::Result<()> {
    const CLEAR_SCREEN: &str = "\x1b[1;1H\x1b[2J";
    writeln!(out, "{CLEAR_SCREEN}")?;
    let run_secs = period.begins_secs + period.secs;
    for ((name, now), (_, all)) in parts(&period.tally).iter().zip(&parts(so_far)) {
        if all.latency_nanos.is_empty() {
            continue;
        }
        writeln!(out, "{name} Statistics")?;
        writeln!(
            out,
            "{:<8} {:<8} {:<12} {:<12} {:<10} {:<10} {:<8} {:<10} {:<10} {:<10} {:<10}",
            "Type",
            "Time(s)",
            "Ops",
            "TPS(ops/s)",
            "Net(M/s)",
            "Get_miss",
            "Min(us)",
            "Max(us)",
            "Avg(us)",
            "Std_dev",
            "Geo_dist"
        )?;
        row("Period", now, period.secs, form, out)?;
        row("Global", all, run_secs, form, out)?;
        writeln!(out)?;
    }
    out.flush()
}

fn row(name: &str, figures: &CommandTally, secs: f64, form: &Form, out: &mut dyn Write) -> io::Result<()> {
    let micros = &figures.latency_nanos;
    let events = micros.len() as f64;
    let secs = secs.max(f64::MIN_POSITIVE);
    writeln!(
        out,
        "{name:<8} {:<8.0} {:<12} {:<12.0} {:<10.1} {:<10} {:<8} {:<10} {:<10.0} {:<10.2} {:.2}",
        secs,
        micros.len(),
        (events / secs).floor(),
        events * form.object_bytes() / MIB / secs,
        figures.misses,
        micros.min().div_ceil(1000),
        micros.max() / 1000,
        micros.mean() / 1000.0,
        micros.stdev() / 1000.0,
        geometric_mean_micros(micros),
    )
}

/// What memaslap prints at the end.
pub fn print(form: &Form, outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let total = &outcome.total;
    let [(_, gets), (_, sets), _] = parts(total);
    if form.stat_freq_secs.is_some() {
        for (name, figures) in parts(total) {
            distribution(name, &figures.latency_nanos, out)?;
        }
    }
    let failed =
        |kinds: &[Failure]| -> u64 { kinds.iter().filter_map(|kind| total.failures.get(kind)).sum() };
    writeln!(out, "cmd_get: {}", gets.keys)?;
    writeln!(out, "cmd_set: {}", sets.requests)?;
    writeln!(out, "get_misses: {}", gets.misses)?;
    if form.verify {
        writeln!(out, "verify_misses: {}", failed(&[Failure::Lost]))?;
        writeln!(out, "verify_failed: {}", failed(&[Failure::WrongValue, Failure::StaleValue]))?;
    }
    if form.expiry {
        writeln!(out, "expired_get: {}", failed(&[Failure::ExpiredLate]))?;
        writeln!(out, "unexpired_unget: {}", failed(&[Failure::ExpiredEarly]))?;
    }
    writeln!(out, "written_bytes: {}", total.sent_bytes)?;
    writeln!(out, "read_bytes: {}", total.received_bytes)?;
    let object_bytes = sets.value_bytes as f64 + sets.requests as f64 * form.key_bytes;
    writeln!(out, "object_bytes: {object_bytes:.0}")?;
    if form.udp {
        writeln!(out, "packet_disorder: {}", total.datagrams_disordered)?;
        writeln!(out, "packet_drop: {}", total.datagrams_lost)?;
        writeln!(out, "udp_timeout: {}", failed(&[Failure::Timeout]))?;
    }
    let operations = gets.keys + sets.requests;
    let secs = outcome.elapsed_secs.max(f64::MIN_POSITIVE);
    writeln!(
        out,
        "\nRun time: {secs:.1}s Ops: {operations} TPS: {:.0} Net_rate: {:.1}M/s",
        operations as f64 / secs,
        (total.sent_bytes + total.received_bytes) as f64 / MIB / secs,
    )
}

fn distribution(name: &str, nanos: &Histogram<u64>, out: &mut dyn Write) -> io::Result<()> {
    if nanos.is_empty() {
        return Ok(());
    }
    writeln!(out, "{name} Statistics ({} events)", nanos.len())?;
    writeln!(out, "   Min:  {:>8}", nanos.min().div_ceil(1000))?;
    writeln!(out, "   Max:  {:>8}", nanos.max() / 1000)?;
    writeln!(out, "   Avg:  {:>8.0}", nanos.mean() / 1000.0)?;
    writeln!(out, "   Geo:  {:>8.2}", geometric_mean_micros(nanos))?;
    if nanos.len() > 1 {
        writeln!(out, "   Std:  {:>8.2}", nanos.stdev() / 1000.0)?;
    }
    write!(out, "   Log2 Dist:")?;
    let buckets = log2_buckets(nanos);
    let last = buckets.iter().rposition(|&events| events > 0).unwrap_or(0);
    // Empty groups of four at the beginning are left out; if all are empty but the last four buckets, none is.
    let is_used = |&first: &usize| buckets[first..first + 4].iter().any(|&events| events > 0);
    let first = (0..).step_by(4).take_while(|first| first + 4 <= last).find(is_used).unwrap_or(0);
    for (place, events) in buckets.iter().enumerate().take(last + 1).skip(first) {
        if place % 4 == 0 {
            write!(out, "\n      {place:2}:")?;
        }
        write!(out, "   {events:>6}")?;
    }
    writeln!(out, "\n")
}

/// Events by whole microseconds: bucket b holds those above 2^(b-1), up to 2^b.
fn log2_buckets(nanos: &Histogram<u64>) -> [u64; 64] {
    let mut buckets = [0; 64];
    for step in nanos.iter_recorded() {
        let micros = step.value_iterated_to() / 1000;
        let bucket = micros.max(1).next_power_of_two().trailing_zeros() as usize;
        buckets[bucket.min(63)] += step.count_at_value();
    }
    buckets
}

/// The exponential of the mean of the logarithms of whole microseconds, without those of 0.
fn geometric_mean_micros(nanos: &Histogram<u64>) -> f64 {
    let logs = nanos.iter_recorded().map(|step| {
        let micros = (step.value_iterated_to() / 1000).max(1) as f64;
        micros.ln() * step.count_at_value() as f64
    });
    if nanos.is_empty() { 0.0 } else { (logs.sum::<f64>() / nanos.len() as f64).exp() }
}

/// What memaslap tells apart: gets, sets, and both.
fn parts(tally: &Tally) -> [(&'static str, CommandTally); 3] {
    let sum = |wanted: &dyn Fn(Kind) -> bool| {
        let mut sum = CommandTally::new();
        tally.commands.iter().filter(|&(&kind, _)| wanted(kind)).for_each(|(_, figures)| sum.add(figures));
        sum
    };
    let is_set = |kind| kind == Kind::Set;
    [("Get", sum(&is_get)), ("Set", sum(&is_set)), ("Total", sum(&|kind| is_get(kind) || is_set(kind)))]
}

fn is_get(kind: Kind) -> bool {
    matches!(kind, Kind::Get | Kind::Gets | Kind::Gat)
}

/// Mean of lengths; 0 for what memaslap's files cannot say.
fn mean(sizes: &Sizes) -> f64 {
    match sizes {
        Sizes::Fixed(bytes) => *bytes as f64,
        Sizes::Ranges(ranges) => {
            let weights: f64 = ranges.iter().map(|range| range.weight).sum();
            let sum: f64 =
                ranges.iter().map(|range| (range.min + range.max) as f64 / 2.0 * range.weight).sum();
            sum / weights.max(f64::MIN_POSITIVE)
        }
        Sizes::Distribution(_) | Sizes::File { .. } => 0.0,
    }
}

/// Prints the tables of every period: memaslap's `-S`.
#[derive(Debug)]
pub struct Tables<W> {
    form: Form,
    out: W,
}

impl<W: Write> Tables<W> {
    /// A watcher that prints nothing unless the form has `stat_freq_secs`; that must be the scenario's `period_secs`.
    pub fn new(form: Form, out: W) -> Self {
        Self { form, out }
    }
}

impl<W: Write> Watcher for Tables<W> {
    fn phase(&mut self, _: Phase) {}

    fn period(&mut self, period: &Period, so_far: &Tally) {
        if self.form.stat_freq_secs.is_some() {
            // Whoever stopped reading has seen enough; the run goes on.
            let _ = self::period(&self.form, period, so_far, &mut self.out);
        }
    }
}
