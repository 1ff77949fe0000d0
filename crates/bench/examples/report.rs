//! Makes every report of invented runs, to be looked at: `cargo run --example report DIRECTORY`.

#[path = "../tests/sample/mod.rs"]
mod sample;

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use larder_bench::report;
use larder_bench::scenario::Arrival;

fn main() -> io::Result<()> {
    let directory = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "target/report".into()));
    fs::create_dir_all(&directory)?;
    let outcome = sample::outcome("etc", 60, 90_000, Arrival::Closed);
    report::print(&outcome, &mut io::stdout())?;
    println!("\n----");
    report::print(&sample::failed(), &mut io::stdout())?;
    fs::write(directory.join("run.json"), report::json(&outcome).to_string())?;
    report::csv(&outcome, &mut File::create(directory.join("run.csv"))?)?;
    report::hdr_log(&outcome, &mut File::create(directory.join("run.hlog"))?)
}
