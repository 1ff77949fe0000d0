//! What load generators cost: CPU for a million requests, all against the floor server.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use larder_bench::contestant::launch::{Launch, Running};
use larder_bench::contestant::{Contestant, Place};
use larder_bench::scenario::Scenario;
use larder_bench::statistics::median;
use larder_conformance::Result;
use larder_conformance::folder::Folder;
use larder_conformance::stats::Stats;
use lexopt::prelude::*;

use crate::cores::Cores;
use crate::{process, shell};

const HELP: &str = "\
Compares what load generators cost: larder bench, memaslap and memslap of libmemcached-tools, and mc-crusher and memtier_benchmark if
it is told where they are. All of them ask the floor server, which runs on a core of its own, from one thread on another: gets
of 100 bytes on 50 connections.

usage: cargo xtask generators [options]

  --secs S        length of a run (default 5)
  --rounds N      runs of each (default 3); the medians are printed
  --crusher PATH  mc-crusher
  --memtier PATH  memtier_benchmark

Requests are those that the floor server has counted; CPU is all of the generator's process, from its start to its end.";

/// Measures and prints. Errors: a generator or the floor server does not start.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (mut secs, mut rounds, mut crusher, mut memtier) = (5, 3, None, None);
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("secs") => secs = parser.value()?.parse::<u64>()?.max(1),
            Long("rounds") => rounds = parser.value()?.parse::<usize>()?.max(1),
            Long("crusher") => crusher = Some(PathBuf::from(parser.value()?)),
            Long("memtier") => memtier = Some(PathBuf::from(parser.value()?)),
            Long("help") => {
                println!("{HELP}");
                return Ok(());
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    let bed =
        Bed { cores: Cores::choose()?, folder: Folder::create(), larder: larder()?, secs, crusher, memtier };
    println!("| in flight | generator | CPU s / M requests | requests/s of a core | requests/s |");
    println!("|---|---|---|---|---|");
    for pipeline in [1, 32] {
        let generators = bed.generators(pipeline)?;
        let mut costs = vec![Vec::new(); generators.len()];
        for _ in 0..rounds {
            for (generator, costs) in generators.iter().zip(&mut costs) {
                costs.push(bed.measure(generator)?);
            }
        }
        for (generator, costs) in generators.iter().zip(&costs) {
            let cpu_secs = median(costs.iter().map(|cost| cost.cpu_secs / cost.requests as f64 * 1e6));
            let per_sec = median(costs.iter().map(|cost| cost.requests as f64 / cost.secs));
            println!(
                "| {pipeline} | {} | {cpu_secs:.2} | {:.0} | {per_sec:.0} |",
                generator.name,
                1e6 / cpu_secs
            );
        }
    }
    Ok(())
}

struct Bed {
    cores: Cores,
    folder: Folder,
    larder: PathBuf,
    secs: u64,
    crusher: Option<PathBuf>,
    memtier: Option<PathBuf>,
}

struct Generator {
    name: &'static str,
    program: PathBuf,
    /// `HOST:PORT` and `PORT` stand for the server's.
    words: Vec<String>,
}

/// Of one run.
#[derive(Clone)]
struct Cost {
    requests: u64,
    cpu_secs: f64,
    secs: f64,
}

impl Bed {
    /// Those that can have so many requests in flight on each connection.
    fn generators(&self, pipeline: usize) -> Result<Vec<Generator>> {
        let secs = self.secs;
        let mut generators = vec![Generator {
            name: "larder bench",
            program: self.larder.clone(),
            words: words(&format!(
                "bench -s HOST:PORT -c 50 -t 1 --secs {secs} --pipeline {pipeline} --mix get=1 --value-bytes 100 --no-fill \
                 --no-calibration --quiet"
            )),
        }];
        if pipeline == 1 {
            // Keys of 24 and values of 100 bytes, and nothing but gets once each connection has stored its keys.
            let file = self.folder.write("memaslap.cnf", "key\n24 24 1\nvalue\n100 100 1\ncmd\n0 0\n1 1\n");
            generators.push(Generator {
                name: "memaslap",
                program: "memcaslap".into(),
                words: words(&format!("-s HOST:PORT -T 1 -c 50 -t {secs}s -w 1k -F {}", file.display())),
            });
            // A thread for each connection; it stores as many keys first.
            generators.push(Generator {
                name: "memslap (50 threads)",
                program: "memcslap".into(),
                words: words(&format!("-s HOST:PORT -t get -c 50 -e {}", 400 * secs)),
            });
        }
        if let Some(program) = &self.crusher {
            // Keys of 19 to 24 bytes.
            let line = format!(
                "send=ascii_get,recv=blind_recv,conns=50,pipelines={pipeline},key_prefix=key:00000000000000,\
                 key_count=1000000,key_randomize=1\n"
            );
            let file = self.folder.write(&format!("crusher-{pipeline}.conf"), line);
            generators.push(Generator {
                name: "mc-crusher",
                program: program.clone(),
                words: words(&format!(
                    "--ip 127.0.0.1 --port PORT --conf {} --timeout {secs}",
                    file.display()
                )),
            });
        }
        if let Some(program) = &self.memtier {
            generators.push(Generator {
                name: "memtier_benchmark",
                program: program.clone(),
                words: words(&format!(
                    "-s 127.0.0.1 -p PORT -P memcache_text -t 1 -c 50 --test-time {secs} --pipeline {pipeline} --ratio 0:1 -d 100 \
                     --key-maximum 1000000 --hide-histogram"
                )),
            });
        }
        Ok(generators)
    }

    fn measure(&self, generator: &Generator) -> Result<Cost> {
        let floor = self.floor()?;
        let address = floor.addresses.first().ok_or("the floor server has no address")?;
        let (_, port) = address.rsplit_once(':').ok_or("the floor server has no port")?;
        let asked = || Stats::of(address.parse()?)?.get("requests");
        let before = asked()?;
        let mut command = Command::new("taskset");
        command.args(["-c", &self.cores.load.to_string()]).arg(&generator.program);
        command
            .args(generator.words.iter().map(|word| word.replace("HOST", "127.0.0.1").replace("PORT", port)));
        let started = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let cpu_secs = process::cpu_secs_at_end(&child)?;
        let secs = started.elapsed().as_secs_f64();
        let status = child.wait()?;
        if !status.success() {
            return Err(format!("{}: {status}", generator.name).into());
        }
        Ok(Cost { requests: asked()? - before, cpu_secs, secs })
    }

    fn floor(&self) -> Result<Running> {
        let floor = vec![env::current_exe()?.into(), "floor".into()];
        let launch = Launch { cores: vec![self.cores.server], floor };
        launch.start(&Contestant { name: "floor".into(), place: Place::Floor }, &Scenario::default())
    }
}

/// `$LARDER`, or else the one of this workspace.
pub(crate) fn larder() -> Result<PathBuf> {
    if let Some(path) = env::var_os("LARDER") {
        return Ok(path.into());
    }
    let mut build =
        shell::cargo(&["build", "--quiet", "--release", "--package", "larder-cli", "--target-dir"]);
    shell::run(build.arg(shell::target_dir()?))?;
    Ok(shell::target_dir()?.join("release/larder"))
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
