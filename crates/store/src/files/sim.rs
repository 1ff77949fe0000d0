//! A simulated disk: a directory in memory that forgets, tears and refuses as disks do, the same way for the same seed.
//!
//! What is durable is what [`Files`] promises and no more: the bytes of a file at its last `sync`, the names at the
//! last
//! `sync_dir`. [`SimDisk::power_loss`] returns the directory as it could be found afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use super::{File, Files, Lock};

/// A sector: the disk writes it whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// What a power loss leaves of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerLoss {
    /// Nothing.
    Drop,
    /// Of each file any of its writes, of the names any of their changes.
    Part,
    /// Of each file any of its sectors, as any of its writes left them; of the names any of their changes.
    Torn,
    /// All names, no bytes.
    NamesAhead,
    /// All bytes, no names.
    NamesLost,
    /// All of it: the process died, not the machine.
    Nothing,
}

impl PowerLoss {
    /// All that the log survives: whoever survives them needs no order from the file system.
    pub const ALL: [Self; 6] =
        [Self::Drop, Self::Part, Self::Torn, Self::NamesAhead, Self::NamesLost, Self::Nothing];
}

/// What is to go wrong. Counts begin with 1, from the making of the disk on.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFaults {
    /// From this change on (write, allocate, truncate, create, rename, remove, sync), nothing has an effect: the power
    /// is off.
    pub power_off_at: Option<u64>,
    /// This change other than a sync fails once. A write then leaves a part of its bytes.
    pub fail_change_at: Option<u64>,
    /// This sync (of a file or of the directory) fails once. What it would have made durable stays uncertain.
    pub fail_sync_at: Option<u64>,
    /// Failed calls report a shortage of memory, and may succeed later.
    pub can_pass: bool,
    /// The room for all files together.
    pub capacity_bytes: Option<u64>,
    /// This allocation (a growing write, an allocate) finds no room, once.
    pub full_at: Option<u64>,
    /// Each change and each read takes so long.
    pub delay: Option<Duration>,
    /// For what a failed write leaves.
    pub seed: u64,
}

/// A directory in memory. Clones are the same directory.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<SimInode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    /// Changes of names that are durable.
    synced_names: usize,
    locks: BTreeSet<String>,
    faults: DiskFaults,
    counts: DiskCounts,
}

/// What a disk has been asked to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// All changes, syncs included.
    pub changes: u64,
    /// Changes without syncs.
    pub writes: u64,
    /// Syncs of files and of the directory.
    pub syncs: u64,
    /// Growing writes and allocations.
    pub allocations: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
}

#[derive(Debug, Default)]
struct SimInode {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<ByteChange>,
    /// Changes that are durable.
    synced_changes: usize,
    /// A read that touches one of these bytes fails, each time.
    unreadable: Vec<u64>,
}

#[derive(Clone, Debug)]
enum ByteChange {
    Write { offset: usize, bytes: Vec<u8> },
    Length { bytes: usize },
}

impl ByteChange {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if image.len() < end {
                    image.resize(end, 0);
                }
                image[*offset..end].copy_from_slice(bytes);
            }
            Self::Length { bytes } => image.resize(*bytes, 0),
        }
    }
}

/// Atomic: all of it happens, or none.
#[derive(Clone, Debug)]
struct NameChange {
    removed: Option<String>,
    made: Option<(String, usize)>,
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        if let Some(name) = &self.removed {
            names.remove(name);
        }
        if let Some((name, inode)) = &self.made {
            names.insert(name.clone(), *inode);
        }
    }
}

impl State {
    fn has_power(&self) -> io::Result<()> {
        match self.faults.power_off_at {
            Some(at) if self.counts.changes >= at => Err(Errno::IO.into()),
            _ => Ok(()),
        }
    }

    fn change(&mut self) -> io::Result<()> {
        self.counts.changes += 1;
        self.has_power()
    }

    /// Counts a change that is no sync; true if it is to fail.
    fn write(&mut self) -> io::Result<bool> {
        self.change()?;
        self.counts.writes += 1;
        Ok(self.faults.fail_change_at == Some(self.counts.writes))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.change()?;
        self.counts.syncs += 1;
        if self.faults.fail_sync_at == Some(self.counts.syncs) {
            return Err(self.failure());
        }
        Ok(())
    }

    fn failure(&self) -> io::Error {
        if self.faults.can_pass { Errno::NOMEM } else { Errno::IO }.into()
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().map(|&inode| self.files[inode].now.len() as u64).sum()
    }

    /// The room for all files that is left.
    fn room_bytes(&self) -> Option<usize> {
        let capacity_bytes = self.faults.capacity_bytes?;
        Some(capacity_bytes.saturating_sub(self.used_bytes()) as usize)
    }

    /// Is there room for a file to grow by this much?
    fn grow(&mut self, bytes: usize) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.counts.allocations += 1;
        let full = self.faults.full_at == Some(self.counts.allocations);
        match self.faults.capacity_bytes {
            _ if full => Err(Errno::NOSPC.into()),
            Some(capacity) if self.used_bytes() + bytes as u64 > capacity => Err(Errno::NOSPC.into()),
            _ => Ok(()),
        }
    }

    fn push(&mut self, inode: usize, change: ByteChange) {
        change.apply(&mut self.files[inode].now);
        self.files[inode].pending.push(change);
    }

    fn rename(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }

    /// Makes durable the changes of names before the one of this number.
    fn sync_names(&mut self, changes: usize) {
        let count = changes.saturating_sub(self.synced_names).min(self.pending_names.len());
        for change in self.pending_names.drain(..count) {
            change.apply(&mut self.durable_names);
        }
        self.synced_names += count;
    }

    fn inode(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| Errno::NOENT.into())
    }
}

impl SimDisk {
    /// An empty disk without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty disk with faults.
    pub fn with_faults(faults: DiskFaults) -> Self {
        let disk = Self::new();
        disk.set_faults(faults);
        disk
    }

    /// Other faults from now on. Counts go on.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.lock().faults = faults;
    }

    /// What it has been asked to do.
    pub fn counts(&self) -> DiskCounts {
        self.lock().counts
    }

    /// Bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.lock().used_bytes()
    }

    /// The disk as it could be found after a power loss now: without faults, all of it durable, no locks.
    pub fn power_loss(&self, loss: PowerLoss, seed: u64) -> Self {
        let state = self.lock();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut names = state.durable_names.clone();
        for change in &state.pending_names {
            let survives = match loss {
                PowerLoss::Drop | PowerLoss::NamesLost => false,
                PowerLoss::Part | PowerLoss::Torn => random.bool(),
                PowerLoss::NamesAhead | PowerLoss::Nothing => true,
            };
            if survives {
                change.apply(&mut names);
            }
        }
        let mut after = State::default();
        for (name, inode) in names {
            let bytes = state.files[inode].after(loss, &mut random);
            after.durable_names.insert(name, after.files.len());
            after.files.push(SimInode { now: bytes.clone(), durable: bytes, ..SimInode::default() });
        }
        after.names = after.durable_names.clone();
        Self { state: Arc::new(Mutex::new(after)) }
    }

    /// Begins a sync of a file, or of the names, that takes its time: see [`SimSync::finish`].
    pub fn begin_sync(&self, file: Option<&str>) -> io::Result<SimSync> {
        let state = self.lock();
        let inode = file.map(|name| state.inode(name)).transpose()?;
        let changes = match inode {
            Some(inode) => state.files[inode].synced_changes + state.files[inode].pending.len(),
            None => state.synced_names + state.pending_names.len(),
        };
        Ok(SimSync { disk: self.clone(), inode, changes })
    }

    /// A byte of a file can no longer be read, as one of a bad sector.
    pub fn spoil(&self, name: &str, offset: u64) -> io::Result<()> {
        let mut state = self.lock();
        let inode = state.inode(name)?;
        state.files[inode].unreadable.push(offset);
        Ok(())
    }

    /// Inverts one bit of a file, as a failing disk does.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) -> io::Result<()> {
        let mut state = self.lock();
        let inode = state.inode(name)?;
        let file = &mut state.files[inode];
        for image in [&mut file.now, &mut file.durable] {
            if let Some(byte) = image.get_mut(offset as usize) {
                *byte ^= 1 << (bit % 8);
            }
        }
        Ok(())
    }

    /// All bytes of a file.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let state = self.lock();
        Ok(state.files[state.inode(name)?].now.clone())
    }

    /// Gives a file these bytes, durably.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.lock();
        let inode = state.files.len();
        state.files.push(SimInode { now: bytes.clone(), durable: bytes, ..SimInode::default() });
        state.names.insert(name.to_owned(), inode);
        state.durable_names.insert(name.to_owned(), inode);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn be_slow(&self) {
        let delay = self.lock().faults.delay;
        if let Some(delay) = delay {
            std::thread::sleep(delay);
        }
    }

    fn file(&self, inode: usize) -> Arc<dyn File> {
        Arc::new(SimFile { disk: self.clone(), inode })
    }
}

/// A sync that has begun.
#[derive(Debug)]
pub struct SimSync {
    disk: SimDisk,
    /// `None`: of the names.
    inode: Option<usize>,
    /// It covers so many changes, counted from the making of the disk.
    changes: usize,
}

impl SimSync {
    /// It has succeeded: what was changed before it began is durable.
    pub fn finish(self) {
        let mut state = self.disk.lock();
        match self.inode {
            Some(inode) => state.files[inode].sync(self.changes),
            None => state.sync_names(self.changes),
        }
    }
}

impl SimInode {
    /// Makes durable what was changed before the change of this number.
    fn sync(&mut self, changes: usize) {
        let count = changes.saturating_sub(self.synced_changes).min(self.pending.len());
        for change in self.pending.drain(..count) {
            change.apply(&mut self.durable);
        }
        self.synced_changes += count;
    }

    fn after(&self, loss: PowerLoss, random: &mut fastrand::Rng) -> Vec<u8> {
        let mut image = self.durable.clone();
        match loss {
            PowerLoss::Drop | PowerLoss::NamesAhead => {}
            PowerLoss::Nothing | PowerLoss::NamesLost => image.clone_from(&self.now),
            PowerLoss::Part => {
                let keep_percent = *random.choice([10, 50, 90].as_slice()).unwrap_or(&50);
                for change in &self.pending {
                    if random.u32(0..100) < keep_percent {
                        change.apply(&mut image);
                    }
                }
            }
            PowerLoss::Torn => {
                // The length as any of the changes left it, then each sector as any of them left it.
                let steps = random.usize(0..=self.pending.len());
                let versions: Vec<Vec<u8>> = (self.pending.iter().take(steps))
                    .scan(image.clone(), |version, change| {
                        change.apply(version);
                        Some(version.clone())
                    })
                    .collect();
                if let Some(last) = versions.last() {
                    let before = std::mem::take(&mut image);
                    image.resize(last.len(), 0);
                    for start in (0..image.len()).step_by(SECTOR_BYTES) {
                        let version = match random.usize(0..=versions.len()) {
                            0 => &before,
                            step => &versions[step - 1],
                        };
                        let end = (start + SECTOR_BYTES).min(image.len()).min(version.len());
                        if start < end {
                            image[start..end].copy_from_slice(&version[start..end]);
                        }
                    }
                }
            }
        }
        image
    }
}

impl Files for SimDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.be_slow();
        let mut state = self.lock();
        if state.write()? {
            return Err(Errno::IO.into());
        }
        if state.names.contains_key(name) {
            return Err(Errno::EXIST.into());
        }
        let inode = state.files.len();
        state.files.push(SimInode::default());
        state.rename(NameChange { removed: None, made: Some((name.to_owned(), inode)) });
        Ok(self.file(inode))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let inode = self.lock().inode(name)?;
        Ok(self.file(inode))
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.open(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.be_slow();
        let mut state = self.lock();
        if state.write()? {
            return Err(Errno::IO.into());
        }
        let inode = state.inode(from)?;
        state.rename(NameChange { removed: Some(from.to_owned()), made: Some((to.to_owned(), inode)) });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.be_slow();
        let mut state = self.lock();
        if state.write()? {
            return Err(Errno::IO.into());
        }
        state.inode(name)?;
        state.rename(NameChange { removed: Some(name.to_owned()), made: None });
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.be_slow();
        let mut state = self.lock();
        state.sync()?;
        state.sync_names(usize::MAX);
        Ok(())
    }

    fn lock(&self, name: &str) -> io::Result<Box<dyn Lock>> {
        if !Self::lock(self).locks.insert(name.to_owned()) {
            return Err(Errno::WOULDBLOCK.into());
        }
        Ok(Box::new(SimLock { disk: self.clone(), name: name.to_owned() }))
    }

    fn describe(&self) -> String {
        "simulated disk".to_owned()
    }
}

struct SimFile {
    disk: SimDisk,
    inode: usize,
}

impl File for SimFile {
    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.disk.be_slow();
        let mut bytes = pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<u8>>();
        let mut state = self.disk.lock();
        let offset = offset as usize;
        let fails = state.write()?;
        if fails {
            let mut random = fastrand::Rng::with_seed(state.faults.seed ^ state.counts.writes);
            bytes.truncate(random.usize(0..=bytes.len()));
        }
        let end = offset + bytes.len();
        let len = self.len_in(&state);
        state.grow(end.saturating_sub(len))?;
        state.counts.written_bytes += bytes.len() as u64;
        state.push(self.inode, ByteChange::Write { offset, bytes });
        if fails { Err(Errno::IO.into()) } else { Ok(()) }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.be_slow();
        let mut state = self.disk.lock();
        state.has_power()?;
        state.counts.reads += 1;
        let wanted = offset..offset + buffer.len() as u64;
        if state.files[self.inode].unreadable.iter().any(|byte| wanted.contains(byte)) {
            return Err(Errno::IO.into());
        }
        let bytes = state.files[self.inode].now.get(offset as usize..).unwrap_or_default();
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        state.counts.read_bytes += count as u64;
        Ok(count)
    }

    fn try_read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.be_slow();
        let mut state = self.disk.lock();
        state.sync()?;
        state.files[self.inode].sync(usize::MAX);
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.disk.be_slow();
        let mut state = self.disk.lock();
        if state.write()? {
            return Err(Errno::IO.into());
        }
        let len = self.len_in(&state);
        if let Err(error) = state.grow((bytes as usize).saturating_sub(len)) {
            // As ext4 does: what there was is taken.
            let room = state.room_bytes().unwrap_or(0).min(bytes as usize - len);
            if room > 0 {
                state.push(self.inode, ByteChange::Length { bytes: len + room });
            }
            return Err(error);
        }
        if len < bytes as usize {
            state.push(self.inode, ByteChange::Length { bytes: bytes as usize });
        }
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.disk.be_slow();
        let mut state = self.disk.lock();
        if state.write()? {
            return Err(Errno::IO.into());
        }
        state.push(self.inode, ByteChange::Length { bytes: bytes as usize });
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len_in(&self.disk.lock()) as u64)
    }
}

impl SimFile {
    fn len_in(&self, state: &State) -> usize {
        state.files[self.inode].now.len()
    }
}

struct SimLock {
    disk: SimDisk,
    name: String,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.lock().locks.remove(&self.name);
    }
}
