//! `larder dump`: all items of servers, to a file or to other servers.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use larder_client::Address;

use crate::Failure;
use crate::load;
use crate::target::Target;
use crate::transfer::progress;
use crate::transfer::receipt::Receipt;
use crate::transfer::record::{Record, Writer};
use crate::transfer::resume::Kept;
use crate::transfer::sink::{Mode, Sink};
use crate::transfer::source::Source;
use crate::transfer::tally::{Summary, Tally};
use crate::troubles::Troubles;

const AFTER_HELP: &str = "\
Examples:
  larder dump cache-1 --file cache-1.dump          all items; after an interruption: with --resume
  larder dump cache-1 | ssh host larder load       from one to the other
  larder dump old-1,old-2 --to new-1,new-2,new-3   to other servers, each key to where it belongs
  larder dump old --to new --progress moved        run it again to continue after an interruption

The servers keep serving. Items that are stored, changed or deleted meanwhile may be in the dump or not; all others \
are, with value, client flags and expiry. docs/tools.md describes the format of the file.";

/// Write all items of servers to a file, to standard output, or to other servers
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Servers, instead of --servers
    #[arg(conflicts_with = "servers")]
    host: Option<String>,
    /// Write to this file instead of standard output
    #[arg(short, long, conflicts_with = "to")]
    file: Option<PathBuf>,
    /// Continue an interrupted dump to a file
    #[arg(long, requires = "file")]
    resume: bool,
    /// Store the items on these servers
    #[arg(long, value_name = "LIST")]
    to: Option<String>,
    /// With --to: record in this file what has been moved, and continue from it; removed at the end
    #[arg(long, value_name = "FILE", requires = "to")]
    progress: Option<PathBuf>,
    /// With --to: keep existing keys
    #[arg(long, requires = "to")]
    add: bool,
    /// Print no progress bar and no summary
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let target = args.target.or(args.host.as_deref())?;
    if let Some(list) = &args.to {
        return to_servers(args, &target, list);
    }
    match &args.file {
        Some(file) => to_file(args, &target, file),
        None if io::stdout().is_terminal() => {
            Err(Failure::Usage("a dump is not for a terminal: use --file, --to or a pipe".into()))
        }
        None => {
            let out = BufWriter::new(io::stdout().lock());
            let writer = Writer::begin(out).map_err(Failure::of_output)?;
            write(args, &target, &Kept::nothing(), writer, &Failure::of_output)
        }
    }
}

fn to_servers(args: &Args, target: &Target, list: &str) -> Result<(), Failure> {
    let mode = if args.add { Mode::Keep } else { Mode::Overwrite };
    let mut sink = Sink::open(&target.or(Some(list))?, mode)?;
    let mut moved = Kept::nothing();
    if let Some(path) = &args.progress {
        let (receipt, kept) = Receipt::open(path, list)?;
        sink.write_receipt(receipt);
        moved = kept;
    }
    let (summary, mut troubles) = walk(args, target, &moved, &mut |record| sink.store(&record))?;
    let counts = sink.finish(troubles.is_empty())?;
    if let Err(refused) = load::report("dump", &summary, &counts, args.quiet) {
        troubles.add(refused);
    }
    troubles.end()
}

fn to_file(args: &Args, target: &Target, path: &Path) -> Result<(), Failure> {
    let refuse = |error: io::Error| Failure::Failed(format!("{}: {error}", path.display()));
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    if !args.resume {
        let file = options.create(true).truncate(true).open(path).map_err(refuse)?;
        let writer = Writer::begin(BufWriter::new(file)).map_err(refuse)?;
        return write(args, target, &Kept::nothing(), writer, &refuse);
    }
    let mut file = options.open(path).map_err(refuse)?;
    let kept = Kept::read(&path.display().to_string(), &mut file)?;
    let writer = Writer::go_on(BufWriter::new(file), kept.records);
    if kept.is_complete {
        writer.end().map_err(refuse)?;
        return Err(Failure::Usage(format!("{}: this dump is complete", path.display())));
    }
    write(args, target, &kept, writer, &refuse)
}

fn write<W: Write>(
    args: &Args,
    target: &Target,
    kept: &Kept,
    mut writer: Writer<W>,
    refuse: &dyn Fn(io::Error) -> Failure,
) -> Result<(), Failure> {
    let (summary, troubles) = walk(args, target, kept, &mut |record| writer.write(&record).map_err(refuse))?;
    let records = if troubles.is_empty() { writer.end() } else { writer.leave_open() }.map_err(refuse)?;
    if !args.quiet {
        eprintln!("larder dump: {summary}");
        if kept.records > 0 {
            eprintln!("larder dump: {records} items in all, with those of the interrupted dump");
        }
    }
    if !troubles.is_empty() {
        let resume = if args.file.is_some() { ": run it again with --resume" } else { "" };
        eprintln!("larder dump: the dump is not complete{resume}");
    }
    troubles.end()
}

/// Dumps the servers one after the other. Returns what was dumped now, and what is missing.
fn walk(
    args: &Args,
    target: &Target,
    kept: &Kept,
    take: &mut dyn FnMut(Record) -> Result<(), Failure>,
) -> Result<(Summary, Troubles), Failure> {
    let bar = progress::items(count(target)?, args.quiet);
    bar.set_position(kept.records);
    let mut tally = Tally::begin();
    let mut troubles = Troubles::of("dump");
    for server in target.servers()? {
        // Once the output fails, the other servers need not be asked.
        let mut is_stuck = false;
        let walked = walk_server(target, &server.address, kept, &mut |record| {
            bar.inc(1);
            tally.add(&record.value);
            take(record).inspect_err(|_| is_stuck = true)
        });
        match walked {
            Err(failure) if is_stuck => return Err(failure),
            Err(failure) => troubles.add(failure),
            Ok(0) => {}
            Ok(keys) => troubles.add(Failure::Failed(format!(
                "{}: {keys} keys can be read by the meta protocol only, which is not there",
                server.address
            ))),
        }
    }
    bar.finish_and_clear();
    Ok((tally.end(), troubles))
}

fn walk_server(
    target: &Target,
    address: &Address,
    kept: &Kept,
    take: &mut dyn FnMut(Record) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let mut source = Source::open(target, address)?;
    while source.read(&mut |key| !kept.has(key), take)? {}
    Ok(source.unaskable)
}

/// Number of items on the servers that answer; `None` if one of them does not report it.
fn count(target: &Target) -> Result<Option<u64>, Failure> {
    let mut total = 0;
    for (_, stats) in target.client()?.stats("") {
        let Ok(stats) = stats else { continue };
        let items = stats.iter().find(|(name, _)| name == "curr_items");
        let Some(items) = items.and_then(|(_, value)| value.parse::<u64>().ok()) else { return Ok(None) };
        total += items;
    }
    Ok(Some(total))
}
