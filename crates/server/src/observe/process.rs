//! What the kernel tells of this process: memory, descriptors, threads, processor time, start.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::mem::MaybeUninit;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use rustix::fs::{RawDir, fstat, seek};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Files of /proc/self, opened ahead: the sandbox lets none be opened. What could not be opened is not told.
#[derive(Debug, Default)]
pub(crate) struct ProcessFiles {
    stat: Option<File>,
    descriptors: Option<File>,
    started_secs: Option<f64>,
}

/// The process at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Status {
    pub(crate) threads: u64,
    pub(crate) virtual_bytes: u64,
    pub(crate) resident_bytes: u64,
    /// Clock ticks from the system's start to that of the process.
    started_ticks: u64,
}

impl ProcessFiles {
    /// Opens them. Call it in the process that will serve: /proc/self is that of the process that opens it.
    pub(crate) fn open() -> Self {
        let stat = File::open("/proc/self/stat").ok();
        let started_secs = stat.as_ref().and_then(read_status).map(|status| {
            let now = |clock| {
                let time = clock_gettime(clock);
                time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
            };
            let age_secs =
                now(ClockId::Boottime) - status.started_ticks as f64 / clock_ticks_per_second() as f64;
            now(ClockId::Realtime) - age_secs
        });
        Self { stat, descriptors: File::open("/proc/self/fd").ok(), started_secs }
    }

    /// The number of files at most.
    pub(crate) const DESCRIPTORS: usize = 2;

    pub(crate) fn status(&self) -> Option<Status> {
        self.stat.as_ref().and_then(read_status)
    }

    /// Open descriptors.
    pub(crate) fn open_descriptors(&self) -> Option<u64> {
        let folder = self.descriptors.as_ref()?;
        // Linux before 6.2 tells no size.
        match fstat(folder).map_or(0, |stat| stat.st_size.cast_unsigned()) {
            0 => count_entries(folder).ok(),
            count => Some(count),
        }
    }

    /// When the process started, in Unix time.
    pub(crate) fn started_secs(&self) -> Option<f64> {
        self.started_secs
    }
}

/// Processor time of all threads, in the system and outside.
pub(crate) fn cpu_secs() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    Some((usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6)
}

/// The limit on open descriptors. `None`: there is none.
pub(crate) fn descriptors_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// The limit on address space. `None`: there is none.
pub(crate) fn virtual_bytes_max() -> Option<u64> {
    getrlimit(Resource::As).current
}

fn read_status(mut stat: &File) -> Option<Status> {
    let mut line = [0; STAT_BYTES_MAX];
    stat.seek(SeekFrom::Start(0)).ok()?;
    let bytes = stat.read(&mut line).ok()?;
    status_of(&String::from_utf8_lossy(&line[..bytes]), page_size() as u64)
}

/// proc_pid_stat(5). The name, the second field, may have spaces and brackets in it.
fn status_of(line: &str, page_bytes: u64) -> Option<Status> {
    let (_, fields) = line.rsplit_once(')')?;
    let fields: Vec<_> = fields.split_whitespace().collect();
    let number = |field: usize| fields.get(field - FIRST_FIELD)?.parse::<u64>().ok();
    Some(Status {
        threads: number(20)?,
        started_ticks: number(22)?,
        virtual_bytes: number(23)?,
        resident_bytes: number(24)?.saturating_mul(page_bytes),
    })
}

/// Counts what is in a directory. A directory that is opened by its descriptor would be opened anew.
fn count_entries(folder: &File) -> io::Result<u64> {
    seek(folder, rustix::fs::SeekFrom::Start(0))?;
    let mut buffer = [MaybeUninit::uninit(); 8 << 10];
    let mut entries = RawDir::new(folder, &mut buffer);
    let mut count = 0;
    while let Some(entry) = entries.next() {
        count += u64::from(!entry?.file_name().to_bytes().starts_with(b"."));
    }
    Ok(count)
}

/// The number of the field behind the name.
const FIRST_FIELD: usize = 3;
/// 52 numbers, most of them small.
const STAT_BYTES_MAX: usize = 2 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::startup::sandbox::sandbox;

    #[test]
    fn fields_are_found_behind_any_name() {
        let numbers: Vec<String> = (4..=52).map(|field: u32| field.to_string()).collect();
        let line = format!("7 (a) 1 2 (b)) R {}\n", numbers.join(" "));
        let status = Status { threads: 20, started_ticks: 22, virtual_bytes: 23, resident_bytes: 24 * 4096 };
        assert_eq!(status_of(&line, 4096), Some(status));
        for short in ["", "7 (a", "7 (a) R 1 2 3", "7 (a) R x x x x x x x x x x x x x x x x x x x x x x"] {
            assert_eq!(status_of(short, 4096), None, "{short}");
        }
    }

    /// By both ways: newer kernels tell the number, older ones list the descriptors. Other tests open and close
    /// descriptors meanwhile, so that both are seldom equal at once.
    #[test]
    fn descriptors_are_counted_in_the_sandbox() {
        let counted = std::thread::spawn(|| {
            let files = ProcessFiles::open();
            sandbox(&[], &[]).expect("the kernel can");
            let folder = files.descriptors.as_ref().expect("it was opened");
            let listed = || count_entries(folder).map_err(|error| error.to_string());
            assert!(files.status().is_some() && files.started_secs().is_some());
            (0..100_000).any(|_| Ok(files.open_descriptors().expect("it was opened")) == listed())
        });
        assert!(counted.join().expect("it does not panic"), "they never agree");
    }
}
