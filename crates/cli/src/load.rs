//! `larder load`: stores the items of a dump on servers.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _};
use std::path::PathBuf;

use indicatif::ProgressBar;
use larder_bench::report::units::count;

use crate::Failure;
use crate::target::Target;
use crate::transfer::progress;
use crate::transfer::record::{Reader, Unreadable};
use crate::transfer::sink::{Counts, Mode, Sink};
use crate::transfer::tally::{Summary, Tally};

const AFTER_HELP: &str = "\
Each key goes to its server among all that are named: --distribution must be
that of the clients. Items keep their expiry as an absolute time; items that
have expired since the dump are left out.

Exit codes: 0 all items of a complete dump were loaded; 1 some were refused;
65 the dump is damaged or incomplete: the items before that were loaded;
69 a server cannot be reached: continue with --skip and the number printed.";

/// Store the items of a dump on servers
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Servers, instead of --servers
    #[arg(conflicts_with = "servers")]
    host: Option<String>,
    /// Read this file instead of standard input
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// Keep existing keys
    #[arg(long)]
    add: bool,
    /// Skip so many items
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// Print no progress bar and no summary
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
            Err(Failure::Usage("no dump to read: use --file or a pipe".into()))
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
    let mut tally = Tally::begin();
    // Items that were certainly processed.
    let mut flushed = args.skip;
    let loaded = loop {
        match reader.read() {
            Ok(Some(_)) if reader.records <= args.skip => {}
            Ok(Some(record)) => {
                tally.add(&record.value);
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
            flushed = flushed.max(reader.records);
            bar.set_position(reader.position_bytes);
        }
    };
    bar.finish_and_clear();
    let loaded = match loaded {
        Err(Failure::Unreachable(_)) => loaded,
        loaded => sink.flush().and(loaded),
    };
    if let Err(Failure::Unreachable(_)) = loaded {
        eprintln!("larder load: continue with --skip {flushed}");
        return loaded;
    }
    let told = report("load", &tally.end(), &sink.counts, args.quiet);
    loaded.and(told)
}

/// Prints how much was read and what became of it; fails if some items were refused.
pub(crate) fn report(tool: &str, summary: &Summary, counts: &Counts, quiet: bool) -> Result<(), Failure> {
    let Counts { stored, kept, expired, cut, refused, first_refusal } = counts;
    if !quiet {
        eprintln!("larder {tool}: {summary}");
        let [stored, kept, expired, refused] = [stored, kept, expired, refused].map(|&number| count(number));
        eprintln!(
            "larder {tool}: {stored} stored, {kept} kept as they were, {expired} had expired, {refused} refused"
        );
    }
    // This is a warning, not part of the summary: `--quiet` only omits what went well.
    if *cut > 0 {
        let cut = count(*cut);
        eprintln!(
            "larder {tool}: {cut} expire on 2038-01-19 instead of later: servers read 32 bits of a time"
        );
    }
    match first_refusal {
        None => Ok(()),
        Some(first) => Err(Failure::Failed(format!("{refused} items were refused; the first: {first}"))),
    }
}

/// Records between two positions from which an interrupted load can continue.
const FLUSH_RECORDS: u64 = 2_000;
