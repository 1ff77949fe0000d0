//! `larder load`: stores the items of a dump on servers.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _};
use std::path::PathBuf;

use indicatif::ProgressBar;

use crate::Failure;
use crate::target::Target;
use crate::transfer::progress;
use crate::transfer::record::{Reader, Unreadable};
use crate::transfer::sink::{Counts, Mode, Sink};

const AFTER_HELP: &str = "\
Each key goes to the server that it belongs to among all that are named: --distribution must be that of the clients. Items
keep their expiry as an absolute time; what has expired since the dump is left out.

Exit codes: 0 all items of a complete dump have been dealt with; 1 some were refused; 65 the dump is broken, or is not complete:
what is there has been loaded; 69 a server cannot be reached. After an interruption, --skip with the number that was told.";

/// Store the items of a dump on servers
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Servers, instead of --servers
    host: Option<String>,
    /// Read this instead of standard input
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// Keep what is there
    #[arg(long)]
    add: bool,
    /// Pass over so many items
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// No progress bar, no summary
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let target = args.target.or(args.host.as_deref())?;
    let mut sink = Sink::open(&target, if args.add { Mode::Keep } else { Mode::Overwrite })?;
    match &args.file {
        Some(path) => {
            let refuse = |error: io::Error| Failure::Failed(format!("{}: {error}", path.display()));
            let file = File::open(path).map_err(refuse)?;
            let total_bytes = file.metadata().map_err(refuse)?.len();
            let bar = progress::bytes(Some(total_bytes), args.quiet);
            load(args, &path.display().to_string(), BufReader::new(file), &bar, &mut sink)
        }
        None if io::stdin().is_terminal() => {
            Err(Failure::Usage("where is the dump? --file names it, or a pipe brings it".into()))
        }
        None => {
            let bar = progress::bytes(None, args.quiet);
            load(args, "standard input", io::stdin().lock(), &bar, &mut sink)
        }
    }
}

fn load(
    args: &Args,
    name: &str,
    input: impl BufRead,
    bar: &ProgressBar,
    sink: &mut Sink,
) -> Result<(), Failure> {
    let refuse = |unreadable| match unreadable {
        Unreadable::Cut => {
            Failure::Data(format!("{name}: the dump is not complete: what is there has been loaded"))
        }
        Unreadable::Malformed(why) => Failure::Data(format!("{name}: {why}")),
        Unreadable::Io(error) => Failure::Failed(format!("{name}: {error}")),
    };
    let mut reader = Reader::begin(input).map_err(refuse)?;
    // Items that were certainly processed.
    let mut flushed = 0;
    let loaded = loop {
        match reader.read() {
            Ok(Some(_)) if reader.records <= args.skip => {}
            Ok(Some(record)) => {
                if let Err(failure) = sink.store(&record) {
                    break Err(failure);
                }
            }
            Ok(None) => break Ok(()),
            Err(unreadable) => break Err(refuse(unreadable)),
        }
        if reader.records.is_multiple_of(FLUSH_RECORDS) {
            if let Err(failure) = sink.flush() {
                break Err(failure);
            }
            flushed = reader.records;
            bar.set_position(reader.position_bytes);
        }
    };
    bar.finish_and_clear();
    match loaded {
        Err(failure @ Failure::Unreachable(_)) => {
            eprintln!("larder load: go on with --skip {flushed}");
            Err(failure)
        }
        loaded => {
            sink.flush()?;
            let told = summary("load", &sink.counts, args.quiet);
            loaded.and(told)
        }
    }
}

/// Prints the numbers of items; fails if some were refused.
pub(crate) fn summary(tool: &str, counts: &Counts, quiet: bool) -> Result<(), Failure> {
    let Counts { stored, kept, expired, refused, first_refusal } = counts;
    if !quiet {
        eprintln!(
            "larder {tool}: {stored} stored, {kept} kept as they were, {expired} had expired, {refused} refused"
        );
    }
    match first_refusal {
        None => Ok(()),
        Some(first) => Err(Failure::Failed(format!("{refused} items were refused; the first: {first}"))),
    }
}

/// Records between two positions from which an interrupted load can continue.
const FLUSH_RECORDS: u64 = 2_000;
