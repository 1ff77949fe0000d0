//! `larder watch`: the events of servers, as they come.

use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use larder_bench::report::units::count;
use larder_client::Address;

use crate::Failure;
use crate::events::{Events, Stream, skipped};
use crate::output::readable;
use crate::signals::stop_on_signals;
use crate::target::Target;
use crate::troubles::Troubles;

const AFTER_HELP: &str = "\
Examples:
  larder watch                              each look-up at 127.0.0.1:11211, until Ctrl-C
  larder watch mutations evictions -s cache-1,cache-2
  larder watch evictions --secs 60 | wc -l

Servers leave events out rather than wait for a slow reader: `skipped=` is their number. A server that was started \
with -W refuses. `deletions` needs larderd, or a newer memcached than 1.6.18.";

/// Show what clients do: events of servers as they come, until Ctrl-C
///
/// A line for each event, in the form of memcached's `watch` (docs/logs.md).
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Which events
    #[arg(value_name = "STREAM", value_enum, default_value = "fetchers")]
    streams: Vec<Stream>,
    /// Only events whose line contains this
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// End after so many events
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    secs: Option<u64>,
    /// Print no summary at the end
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    target: Target,
}

/// From the thread of a server.
enum Told {
    Event(Address, Vec<u8>),
    Failed(Failure),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let servers = args.target.servers()?;
    let stop = stop_on_signals()?;
    let (sender, receiver) = mpsc::sync_channel(QUEUE_EVENTS_MAX);
    let mut printer = Printer { args, names_servers: servers.len() > 1, printed: 0, skipped: 0 };
    let watched = thread::scope(|scope| {
        for server in servers {
            let (sender, stop) = (sender.clone(), &stop);
            scope.spawn(move || forward(args, &server.address, &sender, stop));
        }
        drop(sender);
        let printed = printer.print(&receiver, &stop);
        // Threads that wait for room in the queue end with it.
        drop(receiver);
        stop.store(true, Ordering::Relaxed);
        printed
    });
    // A tool that saw nothing but failures has said so.
    if !args.quiet && (watched.is_ok() || printer.printed > 0) {
        let skipped = match printer.skipped {
            0 => String::new(),
            skipped => format!(", and {} that the servers skipped", count(skipped)),
        };
        eprintln!("larder watch: {} events{skipped}", count(printer.printed));
    }
    watched
}

/// Passes a server's events on until it fails or nobody wants them.
fn forward(args: &Args, address: &Address, sender: &mpsc::SyncSender<Told>, stop: &AtomicBool) {
    let pass_on = || -> Result<(), Failure> {
        let mut events = Events::open(&args.target, address, &args.streams)?;
        while !stop.load(Ordering::Relaxed) {
            if let Some(line) = events.next()?
                && sender.send(Told::Event(address.clone(), line.to_vec())).is_err()
            {
                break;
            }
        }
        Ok(())
    };
    if let Err(failure) = pass_on() {
        // Nobody may be left to hear of it.
        let _ = sender.send(Told::Failed(failure));
    }
}

struct Printer<'a> {
    args: &'a Args,
    names_servers: bool,
    printed: u64,
    skipped: u64,
}

impl Printer<'_> {
    /// Until the time is over, enough was printed, all servers have failed, or `stop`.
    fn print(&mut self, receiver: &mpsc::Receiver<Told>, stop: &AtomicBool) -> Result<(), Failure> {
        // A time that no clock reaches is no end.
        let end = self.args.secs.and_then(|secs| Instant::now().checked_add(Duration::from_secs(secs)));
        let mut out = BufWriter::new(io::stdout().lock());
        let mut troubles = Troubles::of("watch");
        loop {
            let is_enough = self.args.count.is_some_and(|count| self.printed >= count);
            if is_enough || stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            let told = match receiver.try_recv() {
                Ok(told) => Ok(told),
                Err(_) => {
                    out.flush().map_err(Failure::of_output)?;
                    receiver.recv_timeout(STOP_CHECKED_EVERY)
                }
            };
            match told {
                Ok(Told::Event(address, line)) => {
                    self.event(&address, &line, &mut out).map_err(Failure::of_output)?;
                }
                Ok(Told::Failed(failure)) => troubles.report(&failure),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        out.flush().map_err(Failure::of_output)?;
        troubles.end()
    }

    fn event(&mut self, address: &Address, line: &[u8], out: &mut dyn Write) -> io::Result<()> {
        self.skipped = self.skipped.saturating_add(skipped(line).unwrap_or(0));
        let line = readable(line);
        if self.args.grep.as_ref().is_some_and(|text| !line.contains(text)) {
            return Ok(());
        }
        self.printed += 1;
        if self.names_servers {
            write!(out, "{address} ")?;
        }
        writeln!(out, "{line}")
    }
}

/// With the longest lines, which no server sends, some 60 MiB.
const QUEUE_EVENTS_MAX: usize = 1_000;
const STOP_CHECKED_EVERY: Duration = Duration::from_millis(100);
