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
    let page = |name: &str, page: String| fs::write(directory.join(name), page);
    page("run.html", report::html(std::slice::from_ref(&outcome)))?;
    page("open.html", report::html(&[sample::outcome("a very long run", 2000, 900, sample::open(1000.0))]))?;
    page("failed.html", report::html(&[sample::failed()]))?;
    let rates = [10_000, 20_000, 40_000, 80_000];
    let runs = rates.map(|rate| sample::outcome(&format!("{rate}/s"), 20, rate, sample::open(rate as f64)));
    page("several.html", report::html(&runs))?;
    page("comparison.html", report::html::comparison(&sample::contests::comparison(100_000.0)))?;
    page("sweep.html", report::html::sweep(&sample::contests::sweep()))?;
    page("search.html", report::html::search(&sample::contests::search()))?;
    fs::write(directory.join("run.json"), report::json(&outcome).to_string())?;
    report::csv(&outcome, &mut File::create(directory.join("run.csv"))?)?;
    report::hdr_log(&outcome, &mut File::create(directory.join("run.hlog"))?)
}
