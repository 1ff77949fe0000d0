//! collectd with its plugin `memcached`, which writes a file of numbers for each thing that it measures.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use larder_conformance::Result;

use super::Target;
use super::view::View;

/// Lets collectd measure a few times; returns the last value in each file.
pub(super) fn record(target: &Target) -> Result<View> {
    let folder = Folder::make(target)?;
    let config = folder.0.join("collectd.conf");
    fs::write(&config, folder.config(target))?;
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
        let files = folder.files();
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

struct Folder(PathBuf);
struct Running(Child);

impl Folder {
    fn make(target: &Target) -> Result<Self> {
        let name = format!("larder-collectd-{}-{}", process::id(), target.address.port());
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    fn config(&self, target: &Target) -> String {
        let folder = self.0.display();
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
    fn files(&self) -> Vec<(String, Vec<String>)> {
        let Ok(entries) = fs::read_dir(self.0.join("csv/cache/memcached-cache")) else { return Vec::new() };
        let read = |path: &Path| -> Option<(String, Vec<String>)> {
            let name = path.file_name()?.to_str()?;
            // NAME-YYYY-MM-DD
            let name = name.get(..name.len().checked_sub(DATE_BYTES)?)?;
            let text = fs::read_to_string(path).ok()?;
            Some((name.to_owned(), text.lines().map(str::to_owned).collect()))
        };
        entries.flatten().filter_map(|entry| read(&entry.path())).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const DATE_BYTES: usize = "-2000-01-01".len();
/// Of some things it tells the change since the last time, so twice at least.
const MEASUREMENTS: usize = 3;
const TIMEOUT: Duration = Duration::from_secs(20);
