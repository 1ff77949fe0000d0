//! Operators' tools, unchanged: what each tells of a server is held against what it tells of a memcached with the same
//! history.

mod collectd;
mod exporter;
mod history;
mod libmemcached;
mod memcached_tool;
mod php;
mod view;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use larder_conformance::script::Side;
use larder_conformance::server::{self, Server};
use larder_conformance::{Result, stats::Stats};

use super::Tally;
use view::View;

/// Runs every tool against the server and against memcached, and judges what they tell. Of memcached beside itself they
/// tell the same, which shows that the comparison is right.
pub(super) fn run(
    tally: &mut Tally,
    exporter: &Path,
    program: &Path,
    side: Side,
    wanted: impl Fn(&str) -> bool,
) -> Result<()> {
    let tools: Vec<&Tool> =
        TOOLS.iter().filter(|tool| wanted(&format!("operators: {}", tool.name))).collect();
    if tools.is_empty() {
        return Ok(());
    }
    let reference = start(&server::memcached()?, Side::Reference)?;
    let server = start(program, side)?;
    for server in [&reference, &server] {
        history::play(server.address())?;
    }
    history::settle(reference.address())?;

    let target = |server: &Server| Target { address: server.address(), exporter: exporter.to_owned() };
    for tool in tools {
        let judged = (tool.look)(&target(&reference))
            .and_then(|expected| Ok((expected, (tool.look)(&target(&server))?)))
            .and_then(|(expected, told)| told.judge(&expected, side));
        tally.add(tool.name, judged.map(|names| format!("{}: {names} names and values", tool.name)));
    }
    if let (Side::Larder, Some(admin)) = (side, server.admin_address()) {
        let judged = exporter::held_against_metrics(&target(&server), admin);
        let name = "larderd's /metrics and memcached_exporter";
        tally.add(name, judged.map(|series| format!("{name} agree on {series} series")));
    }
    Ok(())
}

fn start(program: &Path, side: Side) -> Result<Server> {
    let mut command = server::command(program);
    if side == Side::Larder {
        command.args(["--admin-listen", "127.0.0.1:0"]);
    }
    Server::start_command(command)
}

/// What a tool looks at, and by what.
struct Target {
    address: SocketAddr,
    /// The program memcached_exporter.
    exporter: PathBuf,
}

struct Tool {
    name: &'static str,
    look: fn(&Target) -> Result<View>,
}

impl Target {
    /// `HOST:PORT`.
    fn name(&self) -> String {
        self.address.to_string()
    }

    /// The time of the server, in seconds since 1970.
    fn now_secs(&self) -> Result<u64> {
        Stats::of(self.address)?.get("time")
    }
}

/// Those that fetch values come after those that see what nobody fetched; what forgets everything comes last.
const TOOLS: [Tool; 17] = [
    Tool { name: "phpMemcachedAdmin's reader (sockets)", look: |target| php::read(target, "sockets") },
    Tool { name: "phpMemcachedAdmin's reader (php-memcache)", look: |target| php::read(target, "memcache") },
    Tool { name: "memcached-tool display", look: memcached_tool::display },
    Tool { name: "memcached-tool stats", look: |target| memcached_tool::table(target, "stats") },
    Tool { name: "memcached-tool settings", look: |target| memcached_tool::table(target, "settings") },
    Tool { name: "memcached-tool sizes", look: |target| memcached_tool::table(target, "sizes") },
    Tool { name: "memcstat", look: |target| libmemcached::stat(target, "") },
    Tool { name: "memcstat --args=settings", look: |target| libmemcached::stat(target, "settings") },
    Tool { name: "memcstat --args=items", look: |target| libmemcached::stat(target, "items") },
    Tool { name: "memcstat --args=slabs", look: |target| libmemcached::stat(target, "slabs") },
    Tool { name: "memcstat --args=sizes", look: |target| libmemcached::stat(target, "sizes") },
    Tool { name: "collectd's plugin memcached", look: collectd::record },
    Tool { name: "memcached_exporter", look: exporter::scrape },
    Tool { name: "memcdump", look: libmemcached::dump },
    // Before those that read items: memcached then moves them to a queue that `stats cachedump` does not show.
    Tool { name: "memcached-tool dump", look: memcached_tool::dump },
    Tool { name: "memccat, memcexist, memctouch, memccp, memcrm, memcping", look: libmemcached::commands },
    Tool { name: "memcflush", look: libmemcached::flush },
];
