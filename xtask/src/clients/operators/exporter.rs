//! memcached_exporter, of Prometheus.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::Result;
use larder_conformance::script::Side;
use larder_conformance::server;

use super::Target;
use super::view::{View, varies};
use crate::exposition;

/// All that the exporter tells of a server.
pub(super) fn scrape(target: &Target) -> Result<View> {
    let mut view = View::default();
    for (name, labels, value) in series(&run(target)?)? {
        let is_of_class = labels.iter().any(|label| label.starts_with("slab="));
        // Of larder's version there is nothing to compare but that it is told.
        let labels: Vec<&str> = labels
            .iter()
            .map(String::as_str)
            .filter(|label| !label.starts_with("slab=") && !label.starts_with("version="))
            .collect();
        // `stats` has no such beginning, and names are compared in one way.
        let name = name.trim_start_matches("memcached_");
        let series = format!("{{{}}} {name}", labels.join(","));
        if is_of_class { view.add_of_class(series, &value) } else { view.add(series, value) }
    }
    Ok(view)
}

/// Whether larderd's own metrics are what the exporter tells of larderd; returns how many series both have.
pub(super) fn held_against_metrics(target: &Target, admin: SocketAddr) -> Result<usize> {
    let (exported, own) = (series(&run(target)?)?, series(&exposition::get(admin)?)?);
    let mut differences = Vec::new();
    let mut count = 0;
    for (name, labels, expected) in exported {
        if name == "memcached_exporter_build_info" {
            continue;
        }
        count += 1;
        // Counters end in `_total` here, as Prometheus recommends, even where the exporter omits it.
        let is_it = |series: &str| series == name || series.strip_suffix("_total") == Some(&name);
        match own.iter().find(|series| is_it(&series.0) && series.1 == labels) {
            None => differences.push(format!("{name} {labels:?} is missing")),
            Some((.., value))
                if *value == expected || varies(name.trim_start_matches("memcached_"), Side::Reference) => {}
            Some((.., value)) => {
                differences.push(format!("{name} {labels:?} is {value}, not {expected}"));
            }
        }
    }
    if differences.is_empty() { Ok(count) } else { Err(differences.join("; ").into()) }
}

/// Starts the exporter and asks it once.
fn run(target: &Target) -> Result<String> {
    // The exporter does not say which port it took.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server::free_port()));
    let exporter = Command::new(&target.exporter)
        .arg(format!("--memcached.address={}", target.name()))
        .arg(format!("--web.listen-address={address}"))
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", target.exporter.display()))?;
    let _running = Running(exporter);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match exposition::get(address) {
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(20)),
            Ok(text) => return Ok(text),
        }
    }
}

/// The series of memcached_exporter: name, sorted labels, value.
fn series(text: &str) -> Result<Vec<(String, Vec<String>, String)>> {
    let samples = exposition::samples(text)?.into_iter();
    let of_memcached = samples.filter(|sample| sample.name.starts_with("memcached_"));
    // One form for what is printed as 64, 64.0 or 6.4e1.
    Ok(of_memcached.map(|sample| (sample.name, sample.labels, sample.value.to_string())).collect())
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const TIMEOUT: Duration = Duration::from_secs(60);
