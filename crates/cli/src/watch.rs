//! `larder watch`: the events of servers, as they come.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use larder_bench::report::units::count;
use larder_client::Address;
use signal_hook::consts::SIGINT;

use crate::Failure;
use crate::events::{Events, Stream, skipped};
use crate::output::readable;
use crate::target::Target;
use crate::troubles::Troubles;

const AFTER_HELP: &str = "\
Examples:
  larder watch                              each look-up at 127.0.0.1:11211, until Ctrl-C
  larder watch mutations deletions -s cache-1,cache-2
  larder watch evictions --secs 60 | wc -l

Servers leave events out rather than wait for a slow reader: `skipped=` is their number. A server that was started with -W
refuses.";

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
    #[arg(long, value_name = "SECS")]
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
    let mut watched = Vec::new();
    for server in servers {
        watched.push((server.address.clone(), Events::open(&args.target, &server.address, &args.streams)?));
    }
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, stop.clone())
        .map_err(|error| Failure::Failed(format!("signals: {error}")))?;
    let (sender, receiver) = mpsc::sync_channel(QUEUE_EVENTS_MAX);
    let mut printer = Printer { args, names_servers: servers.len() > 1, printed: 0, skipped: 0 };
    let watched = thread::scope(|scope| {
        for (address, events) in watched {
            let (sender, stop) = (sender.clone(), &stop);
            scope.spawn(move || forward(&address, events, &sender, stop));
        }
        drop(sender);
        let printed = printer.print(&receiver, &stop);
        // Threads that wait for room in the queue end with it.
        drop(receiver);
        stop.store(true, Ordering::Relaxed);
        printed
    });
    if !args.quiet {
        let skipped = match printer.skipped {
            0 => String::new(),
            skipped => format!(", and {} that the servers skipped", count(skipped)),
        };
        eprintln!("larder watch: {} events{skipped}", count(printer.printed));
    }
    watched
}

/// Passes a server's events on until it fails or nobody wants them.
fn forward(address: &Address, mut events: Events, sender: &mpsc::SyncSender<Told>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let told = match events.next() {
            Ok(None) => continue,
            Ok(Some(line)) => Told::Event(address.clone(), line.to_vec()),
            Err(failure) => Told::Failed(failure),
        };
        let is_over = matches!(told, Told::Failed(_));
        if sender.send(told).is_err() || is_over {
            return;
        }
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
        let end = self.args.secs.map(|secs| Instant::now() + Duration::from_secs(secs));
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
                Ok(Told::Failed(failure)) => troubles.add(failure),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        out.flush().map_err(Failure::of_output)?;
        troubles.end()
    }

    fn event(&mut self, address: &Address, line: &[u8], out: &mut dyn Write) -> io::Result<()> {
        self.skipped += skipped(line).unwrap_or(0);
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

const QUEUE_EVENTS_MAX: usize = 10_000;
const STOP_CHECKED_EVERY: Duration = Duration::from_millis(100);
