//! Power loss of a real larderd: every change that it makes to the files of its store is recorded, together with what
//! its clients are told; then the directory is rebuilt as it could be found had the power gone at any moment, and the
//! store is opened there. What was not synced is dropped, kept in part, or torn in sectors, names of files likewise
//! ([`PowerLoss`]).
//!
//! In each such directory the items must be as after some moment of each client's history, not before the last change
//! that was acknowledged by then and not behind the last one that was sent; also if the power goes again while the
//! store recovers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs, thread};

use larder_store::files::sim::{DiskFaults, PowerLoss, SimDisk, SimSync};
use larder_store::files::{File, Files};
use larder_store::{Budget, LogOptions, LogStore, Marks, Store, VecSink};

use super::Durability;
use super::client::{Client, End, Load};
use super::history::Place;
use super::item::{Found, unix_secs};
use super::recording::{self, Event, Recording};
use crate::folder::Folder;
use crate::server::{self, Server};
use crate::wire::Wire;
use crate::{Error, Result};

/// A recorder, and the directory whose changes it records.
pub struct Recorder {
    folder: Folder,
    library: PathBuf,
}

impl Recorder {
    /// For an empty directory.
    pub fn new() -> Result<Self> {
        let folder = Folder::create();
        let library = recording::build()?;
        fs::create_dir(folder.file("store"))?;
        fs::set_permissions(folder.file("store"), fs::metadata(folder.path())?.permissions())?;
        Ok(Self { folder, library })
    }

    /// The directory.
    pub fn directory(&self) -> PathBuf {
        self.folder.file("store")
    }

    /// While a file of this name is there, no file of the directory grows.
    pub fn full(&self) -> PathBuf {
        self.folder.file("full")
    }

    /// While a file of this name is there, no sync ends.
    pub fn hold(&self) -> PathBuf {
        self.folder.file("hold")
    }

    /// How many writes and syncs were recorded so far.
    pub fn counts(&self) -> Result<(usize, usize)> {
        let events = recording::read(&self.log())?;
        let count = |is_so: fn(&Event) -> bool| events.iter().filter(|event| is_so(event)).count();
        Ok((
            count(|event| matches!(event, Event::Write { .. })),
            count(|event| matches!(event, Event::SyncBegin { .. } | Event::NamesBegin { .. })),
        ))
    }

    fn log(&self) -> PathBuf {
        self.folder.file("log")
    }

    /// Starts a larderd that keeps its items in the directory. `variables`: as `powerloss/recorder.c` describes them.
    pub fn start(&self, program: &Path, args: &[&str], variables: &[(&str, &str)]) -> Result<Server> {
        let mut command = server::command(program);
        command.arg("--store").arg(self.directory()).args(args);
        command.env("LD_PRELOAD", &self.library).env("RECORD_DIR", self.directory());
        command.env("RECORD_LOG", self.log()).env("RECORD_FULL", self.full());
        command.env("RECORD_HOLD", self.hold());
        command.envs(variables.iter().copied());
        Server::start_command(command)
    }
}

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Of all that is random.
    pub seed: u64,
    /// Clients, each with a connection.
    pub clients: usize,
    /// How many bursts of requests each client sends between two restarts.
    pub bursts: usize,
    /// How often the server is started. In between it is stopped in order, or killed.
    pub starts: usize,
    /// Of the moments at which the power may go: so many; `None`: all, in all ways.
    pub points: Option<usize>,
    /// Keys of each client.
    pub keys: usize,
    /// The longest value.
    pub value_bytes_max: usize,
    /// How the server is started. What is expected is `sync`.
    pub durability: Durability,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Changes that the process made to its files, syncs included.
    pub file_changes: usize,
    /// Changes that clients made to items.
    pub item_changes: usize,
    /// Directories that were rebuilt and opened.
    pub states: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file_changes, item_changes, states } = self;
        write!(f, "{item_changes} changes of items, {file_changes} changes of files, {states} directories")
    }
}

/// Records a load, and looks at each state that a power loss may leave. Errors: what is wrong in one of them.
pub fn run(program: &Path, options: &Options) -> Result<Report> {
    let recorder = Recorder::new()?;
    let clients = record(program, &recorder, options)?;
    let events = recording::read(&recorder.log())?;
    let mut replay = Replay::new(&clients);
    let mut report = Report {
        file_changes: events.iter().filter(|event| event.is_of_files()).count(),
        item_changes: clients.iter().map(|client| client.history.len()).sum(),
        states: 0,
    };
    let now_secs = unix_secs().floor();
    let mut random = fastrand::Rng::with_seed(options.seed);
    for (nth, event) in events.iter().enumerate() {
        replay.feed(event).map_err(|error| format!("event {nth}, {}: {error}", event.name()))?;
        if !event.is_of_files() {
            continue;
        }
        let losses = match options.points {
            None => PowerLoss::ALL.to_vec(),
            Some(points) if random.usize(0..report.file_changes) < points => {
                vec![PowerLoss::ALL[random.usize(0..PowerLoss::ALL.len())]]
            }
            Some(_) => continue,
        };
        for loss in losses {
            let seed = random.u64(..);
            report.states += replay.check(loss, seed, now_secs).map_err(|error| {
                format!("seed {}, after event {nth} ({}), {loss:?}: {error}", options.seed, event.name())
            })?;
        }
    }
    replay.compare(&recorder.directory())?;
    Ok(report)
}

/// Lets clients change items of a larderd that is recorded.
fn record(program: &Path, recorder: &Recorder, options: &Options) -> Result<Vec<Client>> {
    let load = Load {
        keys: options.keys,
        value_bytes_max: options.value_bytes_max,
        stores_large: false,
        flushes: options.clients == 1,
    };
    let mut clients = Vec::new();
    for id in 0..options.clients {
        let client = Client::new(id, options.seed, Duration::MAX, load);
        clients.push(client.traced(Recording::open(&recorder.log())?));
    }
    let args = [
        "-m",
        "64",
        "-t",
        "2",
        "--store-segment-kib",
        SEGMENT_KIB,
        "--durability",
        options.durability.name(),
    ];
    for start in 0..options.starts {
        let server = recorder.start(program, &args, &[])?;
        let address = server.address();
        thread::scope(|scope| {
            let load: Vec<_> = clients
                .iter_mut()
                .map(|client| {
                    scope.spawn(move || {
                        let mut wire = Wire::connect(address)?;
                        for _ in 0..options.bursts {
                            match client.burst(&mut wire) {
                                None => {}
                                Some(End::Closed) => return Err(Error::from("the connection was closed")),
                                Some(End::Wrong(what)) => return Err(what.into()),
                            }
                        }
                        // Also what has no reply is acknowledged by then.
                        client.settle(&mut wire)
                    })
                })
                .collect();
            load.into_iter().try_for_each(|client| client.join().map_err(|_| "a client panicked")?)
        })?;
        if start.is_multiple_of(2) {
            // What it has done to a file is recorded, then.
            let log = fs::File::open(recorder.log())?;
            rustix::fs::flock(&log, rustix::fs::FlockOperation::LockExclusive)?;
            server.kill()?;
        } else {
            server.stop()?;
        }
    }
    Ok(clients)
}

/// A recording, on its way over a simulated disk.
struct Replay<'c> {
    clients: &'c [Client],
    disk: SimDisk,
    files: HashMap<u64, (String, Arc<dyn File>)>,
    syncs: HashMap<u64, SimSync>,
    /// By client: what must be there, and how many of its changes were sent.
    places: Vec<(Place, usize)>,
}

impl<'c> Replay<'c> {
    fn new(clients: &'c [Client]) -> Self {
        Self {
            clients,
            disk: SimDisk::new(),
            files: HashMap::new(),
            syncs: HashMap::new(),
            places: clients.iter().map(|client| (client.history.start(), 0)).collect(),
        }
    }

    fn file(&self, file: u64) -> Result<&(String, Arc<dyn File>)> {
        self.files.get(&file).ok_or_else(|| "a file that nobody has made".into())
    }

    fn feed(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Create { file, name } => {
                let made = self.disk.create(name)?;
                self.files.insert(*file, (name.clone(), made));
            }
            Event::Write { file, offset, bytes } => {
                self.file(*file)?.1.write_at(&[std::io::IoSlice::new(bytes)], *offset)?;
            }
            Event::Length { file, bytes } => self.file(*file)?.1.truncate(*bytes)?,
            Event::Rename { from, to } => {
                self.disk.rename(from, to)?;
                for (name, _) in self.files.values_mut().filter(|(name, _)| name == from) {
                    name.clone_from(to);
                }
            }
            Event::Remove { name } => self.disk.remove(name)?,
            Event::SyncBegin { file, number } => {
                let sync = self.disk.begin_sync(Some(&self.file(*file)?.0))?;
                self.syncs.insert(*number, sync);
            }
            Event::NamesBegin { number } => {
                self.syncs.insert(*number, self.disk.begin_sync(None)?);
            }
            Event::SyncEnd { number } | Event::NamesEnd { number } => {
                self.syncs.remove(number).ok_or("a sync that nobody has begun")?.finish();
            }
            Event::Sent { client, changes } => self.places[*client].1 = *changes,
            Event::Acknowledged { client, changes } => {
                self.clients[*client].history.advance(&mut self.places[*client].0, *changes);
            }
        }
        Ok(())
    }

    /// Looks at what this power loss leaves, and at what another one leaves while the store recovers.
    fn check(&self, loss: PowerLoss, seed: u64, now_secs: f64) -> Result<usize> {
        let after = self.disk.power_loss(loss, seed);
        self.look(&after, now_secs)?;
        let again = self.disk.power_loss(loss, seed);
        again.set_faults(DiskFaults { power_off_at: Some(1 + seed % 12), ..DiskFaults::default() });
        if let Ok(store) = open_log(&again) {
            let _ = store.maintain(Budget { bytes: 1 << 20 }, now_secs as u64);
        }
        let again = again.power_loss(PowerLoss::ALL[(seed >> 8) as usize % PowerLoss::ALL.len()], seed);
        self.look(&again, now_secs).map_err(|error| format!("twice: {error}"))?;
        Ok(2)
    }

    fn look(&self, disk: &SimDisk, now_secs: f64) -> Result<()> {
        let store = &open_log(disk)?;
        for (client, (place, sent)) in self.clients.iter().zip(&self.places) {
            let keys = client.history.keys();
            let found =
                (0..keys).map(|key| find(store, &client.name(key), now_secs)).collect::<Result<Vec<_>>>()?;
            client
                .history
                .find(place, *sent, &found, now_secs, |key| client.describe(key))
                .map_err(Error::from)?;
        }
        Ok(())
    }

    /// Whether nothing has escaped the recorder.
    fn compare(&self, directory: &Path) -> Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            names.push(entry?.file_name().into_string().map_err(|_| "a name that is not UTF-8")?);
        }
        names.sort_unstable();
        let replayed = self.disk.list()?;
        if names != replayed {
            return Err(format!("the directory has {names:?}, the recording {replayed:?}").into());
        }
        match names.iter().find(|name| fs::read(directory.join(name)).ok() != self.disk.read(name).ok()) {
            None => Ok(()),
            Some(name) => Err(format!("{name} is not as the recording has it").into()),
        }
    }
}

fn open_log(disk: &SimDisk) -> Result<LogStore> {
    let options = LogOptions { segment_bytes: SEGMENT_KIB.parse::<u64>()? << 10, ..LogOptions::default() };
    Ok(LogStore::open_files(Arc::new(disk.clone()), options)?)
}

/// What the store has of a key, as `mg` would show it.
fn find(store: &dyn Store, key: &str, now_secs: f64) -> Result<Option<Found>> {
    let mut sink = VecSink::default();
    let Some(meta) = store.get(key.as_bytes(), now_secs as u64, &mut sink)? else { return Ok(None) };
    let marks = match (meta.marks.contains(Marks::STALE), meta.marks.contains(Marks::TOKEN)) {
        (false, false) => "",
        (true, false) => "WX",
        (true, true) => "XZ",
        (false, true) => "Z",
    };
    Ok(Some(Found {
        value: sink.into_value(),
        client_flags: meta.client_flags,
        ttl_secs: if meta.exptime_secs == 0 { -1 } else { meta.exptime_secs as i64 - now_secs as i64 },
        cas: meta.version,
        marks: marks.to_owned(),
        asked_secs: now_secs,
        told_secs: now_secs,
    }))
}

/// Small, so that segments are sealed and cleaned.
const SEGMENT_KIB: &str = "16";
