//! A log that HdrHistogram's own tools read (its interval log, format 1.3): for every period a line of all commands
//! together, and one for each command, tagged with its name. Values are nanoseconds; the column of maxima is in
//! milliseconds, as usual.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::words;
use crate::Outcome;

const NANOS_PER_MILLI: f64 = 1e6;

/// Writes the log.
pub fn write(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(outcome.started_unix_secs);
    let mut out = out;
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .with_start_time(started)
        .with_base_time(started)
        .with_max_value_divisor(NANOS_PER_MILLI)
        .begin_log_with(&mut out, &mut serializer)?;
    let mut failed = None;
    for period in &outcome.periods {
        let begins = Duration::try_from_secs_f64(period.begins_secs).unwrap_or_default();
        let length = Duration::try_from_secs_f64(period.secs).unwrap_or_default();
        let mut line = |nanos: &_, tag| {
            if let Err(error) = log.write_histogram(nanos, begins, length, tag) {
                failed.get_or_insert_with(|| io::Error::other(error.to_string()));
            }
        };
        line(&period.tally.all().latency_nanos, None);
        for (&kind, figures) in &period.tally.commands {
            line(&figures.latency_nanos, Tag::new(words::command(kind)));
        }
    }
    failed.map_or(Ok(()), Err)
}
