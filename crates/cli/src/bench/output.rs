//! Options of the output, and writing it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anstream::AutoStream;
use clap::Args;
use larder_bench::{Outcome, report};
use serde_json::Value;

use crate::Failure;

#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Write everything as JSON, which can be read again; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write a line for each period and command, as CSV; `-` is standard output
    #[arg(long, value_name = "FILE")]
    #[arg(hide_short_help = true)]
    pub(super) csv: Option<PathBuf>,
    /// Write the latencies as a log for HdrHistogram's tools; `-` is standard output
    #[arg(long, value_name = "FILE")]
    #[arg(hide_short_help = true)]
    pub(super) hdr: Option<PathBuf>,
    /// Write one page with charts; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Print no tables
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Do not measure what this client could send to a server that does no work (a second more, after the run)
    #[arg(long)]
    #[arg(hide_short_help = true)]
    pub(super) no_calibration: bool,
    /// Print a line for each period instead of the live screen
    #[arg(long)]
    #[arg(hide_short_help = true)]
    pub(super) no_screen: bool,
}

impl OutputArgs {
    /// Before a run: fails if a file could not be written afterwards. An old file stays as it is until then.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let files = [&self.json, &self.csv, &self.hdr, &self.html];
        if files.iter().filter(|file| is_stdout(file.as_deref())).count() > 1 {
            return Err(Failure::Usage("only one report can go to standard output".into()));
        }
        let files = files.into_iter().flatten().filter(|file| !is_stdout(Some(file)));
        files.into_iter().try_for_each(|path| {
            check_file(path).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
        })
    }

    /// True if a report goes to standard output: everything else then goes to standard error.
    pub(super) fn has_stdout(&self) -> bool {
        [&self.json, &self.csv, &self.hdr, &self.html].into_iter().any(|file| is_stdout(file.as_deref()))
    }

    /// Prints tables, unless nobody wants them. Colours are left out where there is no terminal, and with NO_COLOR.
    pub(super) fn print(&self, tables: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        let printed = if self.has_stdout() {
            tables(&mut AutoStream::auto(io::stderr()).lock())
        } else {
            tables(&mut AutoStream::auto(io::stdout()).lock())
        };
        printed.map_err(Failure::of_output)
    }

    /// Writes the requested files.
    pub(super) fn write_files(&self, outcome: &Outcome) -> Result<(), Failure> {
        write(self.json.as_deref(), |out| write_json(&report::json(outcome), out))?;
        write(self.csv.as_deref(), |out| report::csv(outcome, out))?;
        write(self.hdr.as_deref(), |out| report::hdr_log(outcome, out))?;
        write(self.html.as_deref(), |out| {
            out.write_all(report::html(std::slice::from_ref(outcome)).as_bytes())
        })
    }
}

fn is_stdout(path: Option<&Path>) -> bool {
    path == Some(Path::new("-"))
}

/// Opens a file for writing, and leaves everything as it was. Pipes and devices are not opened: that could wait.
fn check_file(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => OpenOptions::new().write(true).open(path).map(drop),
        Ok(_) => Ok(()),
        Err(_) => {
            OpenOptions::new().write(true).create_new(true).open(path)?;
            fs::remove_file(path)
        }
    }
}

/// Writes a file or standard output, if one is requested.
pub(super) fn write(
    path: Option<&Path>,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    if is_stdout(Some(path)) {
        return crate::output::write(|out| content(out).map_err(Failure::of_output));
    }
    let written = File::create(path).map(BufWriter::new).and_then(|mut file| {
        content(&mut file)?;
        file.flush()
    });
    written.map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
}

pub(super) fn write_json(value: &Value, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}
