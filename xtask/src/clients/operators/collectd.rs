//! collectd with its plugin `memcached`, which writes a file of numbers for each thing that it measures.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use larder_conformance::Result;
use larder_conformance::folder::Folder;

use super::Target;
use super::view::View;

/// Lets collectd measure a few times; returns the last value in each file.
pub(super) fn record(target: &Target) -> Result<View> {
    let folder = Folder::create();
    let config = folder.write("collectd.conf", config(folder.path(), target));
    let collectd = Command::new("/usr/sbin/collectd")
        .arg("-f")
        .arg("-C")
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("collectd: {error}"))?;
    let _running = Running(collectd);

    let deadline = Instant::now() + TIMEOUT;
    loop {
        let files = files(&folder);
        // All that it measures comes in one go, but what is a difference of two values.
        if files.iter().any(|(name, rows)| name == "uptime" && rows.len() > MEASUREMENTS) {
            let mut view = View::default();
            for (name, rows) in files {
                let value = rows.last().and_then(|row| row.split_once(',')).map_or("", |(_, value)| value);
                view.add(name, value);
            }
            return Ok(view);
        }
        if Instant::now() > deadline {
            return Err(format!("collectd has not measured often enough: {files:?}").into());
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn config(folder: &Path, target: &Target) -> String {
    let folder = folder.display();
    let (host, port) = (target.address.ip(), target.address.port());
    format!(
        r#"
BaseDir "{folder}"
PIDFile "{folder}/pid"
TypesDB "/usr/share/collectd/types.db"
Interval 0.25
Hostname "localhost"
FQDNLookup false
LoadPlugin csv
LoadPlugin memcached
<Plugin csv>
  DataDir "{folder}/csv"
</Plugin>
<Plugin memcached>
  <Instance "cache">
    Host "cache"
    Address "{host}"
    Port "{port}"
  </Instance>
</Plugin>
"#
    )
}

/// The files by name without their date, each with its lines, of which the first is a heading.
fn files(folder: &Folder) -> Vec<(String, Vec<String>)> {
    let Ok(entries) = fs::read_dir(folder.file("csv/cache/memcached-cache")) else { return Vec::new() };
    let read = |path: &Path| -> Option<(String, Vec<String>)> {
        let name = path.file_name()?.to_str()?;
        // NAME-YYYY-MM-DD
        let name = name.get(..name.len().checked_sub(DATE_BYTES)?)?;
        let text = fs::read_to_string(path).ok()?;
        Some((name.to_owned(), text.lines().map(str::to_owned).collect()))
    };
    entries.flatten().filter_map(|entry| read(&entry.path())).collect()
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const DATE_BYTES: usize = "-2000-01-01".len();
/// Of some things it tells the change since the last time, so twice at least.
const MEASUREMENTS: usize = 3;
const TIMEOUT: Duration = Duration::from_secs(60);
