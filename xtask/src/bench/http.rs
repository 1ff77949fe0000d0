//! Items over HTTP, beside nginx that serves files of the same size.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use larder_bench::statistics::{median, paired_ratio};
use larder_conformance::Result;
use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server};
use serde_json::json;

use super::Measured;
use super::pinned::{Pinned, cpu_secs, on_core};
use super::rows::Row;
use super::speed::{Bench, CONFIDENCE};
use crate::{needs, shell};

/// Prints the table, and returns its figures.
pub(super) fn measure(bench: &Bench, row: &Row) -> Result<Measured> {
    needs::install_extra(&["nginx-light", "wrk"])?;
    println!("  {:<10} {:>8} {:>12} {:>10}", "", "value B", "cpu us each", "gets / s");
    let mut figures = Vec::new();
    for value_bytes in VALUE_BYTES {
        let larderd = Larderd::start(bench, value_bytes)?;
        let nginx = Nginx::start(bench, value_bytes)?;
        let contestants =
            [("nginx", nginx.process.pid(), nginx.url()), ("larderd", larderd.0.pid(), larderd.url()?)];
        let mut rounds: [Vec<Round>; 2] = Default::default();
        for number in 0..bench.rounds {
            for turn in 0..2 {
                // The order changes, so that neither always follows the other.
                let at = (number + turn) % 2;
                let (_, pid, url) = &contestants[at];
                rounds[at].push(round(bench, *pid, url)?);
            }
        }
        let cpu = |at: usize| rounds[at].iter().map(|round| round.cpu_micros).collect::<Vec<f64>>();
        for (at, (name, _, _)) in contestants.iter().enumerate() {
            let cpu_micros = median(cpu(at));
            let gets_per_sec = median(rounds[at].iter().map(|round| round.gets_per_sec));
            println!("  {name:<10} {value_bytes:>8} {cpu_micros:>12.2} {gets_per_sec:>10.0}");
            figures.push(json!({
                "server": name,
                "value_bytes": value_bytes,
                "cpu_micros": cpu_micros,
                "gets_per_sec": gets_per_sec,
            }));
        }
        if let Some(ratio) = paired_ratio(&cpu(0), &cpu(1), CONFIDENCE) {
            let (ratio, low, high) = (ratio.ratio, ratio.low, ratio.high);
            println!("  larderd's CPU is {ratio:.2} ({low:.2} - {high:.2}) of nginx's");
        }
    }
    println!("  ({})", row.goal);
    Ok(Measured { figures: figures.into(), lines: Vec::new() })
}

struct Round {
    /// The server's, for a get.
    cpu_micros: f64,
    gets_per_sec: f64,
}

/// Loads one server; its CPU time includes what the first connections cost.
fn round(bench: &Bench, pid: u32, url: &str) -> Result<Round> {
    let secs = bench.round_secs.ceil().max(1.0);
    let begin = cpu_secs(pid)?;
    let mut wrk = on_core(bench.cores.load, "wrk");
    wrk.args(["--threads", "1", "--connections", "50", "--duration", &format!("{secs}s"), url]);
    let printed = shell::output(&mut wrk)?;
    if printed.contains("Non-2xx") || printed.contains("Socket errors") {
        return Err(format!("{url} answers wrongly: {printed}").into());
    }
    let gets = printed
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))
        .and_then(|(number, _)| number.parse::<f64>().ok())
        .ok_or_else(|| format!("wrk counts no requests: {printed}"))?;
    Ok(Round { cpu_micros: (cpu_secs(pid)? - begin) * 1e6 / gets, gets_per_sec: gets / secs })
}

struct Larderd(Server);

impl Larderd {
    fn start(bench: &Bench, value_bytes: usize) -> Result<Self> {
        let larderd = server::command(&bench.larderd);
        let mut command = on_core(bench.cores.server, &bench.larderd);
        command.args(larderd.get_args()).args(["-t", "1", "--http-listen", "127.0.0.1:0"]);
        let server = Server::start_command(command)?;
        let mut stream = server.connect()?;
        write!(stream, "set {KEY} 0 0 {value_bytes}\r\n{}\r\n", "v".repeat(value_bytes))?;
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply)?;
        if reply == "STORED\r\n" {
            Ok(Self(server))
        } else {
            Err(format!("larderd answers {reply:?}").into())
        }
    }

    fn url(&self) -> Result<String> {
        let address = self.0.http_address().ok_or("larderd names no address for HTTP")?;
        Ok(format!("http://{address}/v1/items/{KEY}"))
    }
}

struct Nginx {
    process: Pinned,
    address: SocketAddr,
    /// Its configuration and the file that it serves.
    _folder: Folder,
}

impl Nginx {
    /// One process, which keeps the file open and writes no log.
    fn start(bench: &Bench, value_bytes: usize) -> Result<Self> {
        let folder = Folder::create();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server::free_port()));
        folder.write(KEY, "v".repeat(value_bytes));
        let configuration = folder.write("nginx.conf", configuration(folder.path(), address));
        let mut command = on_core(bench.cores.server, NGINX);
        command.arg("-c").arg(configuration).arg("-p").arg(folder.path()).args(["-e", "stderr"]);
        let process = Pinned::start(command)?;
        server::eventually(|| server::connect(address).is_ok());
        Ok(Self { process, address, _folder: folder })
    }

    fn url(&self) -> String {
        format!("http://{}/{KEY}", self.address)
    }
}

fn configuration(folder: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {folder}/pid;
error_log stderr;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  sendfile on;
  open_file_cache max=16;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ listen {address}; root {folder}; }}
}}
"
    )
}

/// Debian's.
const NGINX: &str = "/usr/sbin/nginx";
const KEY: &str = "value";
const VALUE_BYTES: [usize; 2] = [100, 10_240];
