//! Options of the output.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use larder_bench::{Outcome, report};
use serde_json::Value;

use crate::Failure;

#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Everything, as JSON; it can be read again
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// A line a period and command, as CSV
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Latencies as a log for HdrHistogram's tools
    #[arg(long, value_name = "FILE")]
    pub(super) hdr: Option<PathBuf>,
    /// One page with charts
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// No tables
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Do not find out what this client could ask of a server that does no work (a second more, behind the run)
    #[arg(long)]
    pub(super) no_calibration: bool,
    /// No live screen, but a line a period
    #[arg(long)]
    pub(super) no_screen: bool,
}

impl OutputArgs {
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

/// Creates a file, if one is requested.
pub(super) fn write(
    path: Option<&Path>,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
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
