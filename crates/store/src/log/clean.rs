//! Getting back the room of dead records.
//!
//! A victim is the sealed segment with the least that lives. Its live records are copied to the cold streams, each with
//! its sequence and version; then a manifest without it is made durable, and its file removed. Until then both copies
//! are there, and a crash at any moment leaves one of the two states.
//!
//! What must not come back: an older put of a key lies dead in some segment while the record that made it dead is
//! dropped. So the index counts the *stale* puts of each key, wherever they lie, and this holds at all times:
//!
//! > stale = the puts of the key on the disk, but for the one that the index names
//!
//! In a replicated store, a tombstone also stays until all sites have it, whatever else is on the disk, an item that
//! has expired stays whole as long, and segments of the log stay that other sites have not read (`retain`).
//!
//! A tombstone is dropped when there is none but in the victim itself. A put that has expired or was flushed is dropped
//! likewise; else a tombstone takes its place, with its sequence.

use std::io::{self, IoSlice};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, MutexGuard, PoisonError};

use super::LogStore;
use super::account::Account;
use super::append::{note_durable, tombstone_of, uncount};
use super::bugs::{Bug, is_planted};
use super::digest::Digest;
use super::index::{IndexEntry, Location};
use super::next::{self, SegmentFile};
use super::record::{Header, Kind, pad};
use super::retain::{is_needed, left_of, log_floor};
use super::segment::{FooterEntry, Segment, Stream, cold_number_below, footer_bytes, take_number};
use super::sync::{begin_sync, sync};
use super::window::Window;
use super::writer::{WriteError, Writer};
use crate::error::{Error, Result};
use crate::files::allocate;
use crate::history::Retention;
use crate::store::{Budget, Headroom, Progress};
use crate::usage::PrefixUsage;

/// Room that is set aside, so that cleaning can begin on a full disk.
const RESERVE_TO_CLEAN: &str = "RESERVE-CLEAN";
/// Room that is set aside for deletions and flushes on a full disk, without which cleaning would find nothing.
pub(super) const RESERVE_TO_DELETE: &str = "RESERVE-DELETE";
/// Copies are collected up to this, and written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// So many sealed segments of less than a quarter of a segment's size may lie around.
const SMALL_SEGMENTS_MAX: usize = 8;
/// A segment of which more lives is not worth copying.
const LIVE_SHARE_MAX: f64 = 0.95;

/// What the background thread is at.
#[derive(Default)]
pub(crate) struct Cleaner {
    job: Option<Job>,
    streams: [ColdStream; 2],
    /// While items are being counted for their prefixes: the segments that are left. `None`: all.
    to_count: Option<Vec<Arc<Segment>>>,
    /// The segments in which items that have expired are looked for, to make room for a prefix.
    to_sweep: Vec<Arc<Segment>>,
    /// The last job was not a cleaning job.
    has_counted: bool,
    /// A record that could not be counted has been reported; later ones only raise the counter.
    has_told_uncounted: bool,
}

impl Cleaner {
    /// Other prefixes are counted from now on. Jobs that know the earlier ones by their numbers end.
    pub(super) fn count_anew(&mut self) {
        let knows_none =
            |job: &Job| matches!(job.kind, JobKind::Clean { .. } | JobKind::ForgetTombstones { .. });
        self.job.take_if(|job| !knows_none(job));
        self.to_count = None;
    }
}

/// A stream of copies.
#[derive(Default)]
struct ColdStream {
    writer: Option<Writer>,
    buffer: Vec<u8>,
    moves: Vec<Move>,
}

/// A copy that readers do not find yet.
struct Move {
    from: Location,
    /// Of the copy; its offset counts from the start of the buffer.
    entry: FooterEntry,
    highest_version: u64,
}

/// One segment, looked at record by record.
struct Job {
    segment: Arc<Segment>,
    entries: Vec<FooterEntry>,
    next: usize,
    window: Window,
    kind: JobKind,
}

enum JobKind {
    Clean {
        /// The digests of all its puts, sorted.
        puts: Vec<Digest>,
        /// Records that the index names, and that nobody needs.
        drops: Vec<(Digest, Location, bool)>,
    },
    /// Which of its puts were flushed by a prefix? Up to this flush.
    CountFlushed {
        newest_flush: u64,
        /// By counted prefix the newest flush, where that is the same for all its keys.
        of_prefixes: Vec<Option<u64>>,
    },
    /// Which of its puts have expired?
    MarkExpired,
    /// Which of its tombstones does nobody need any more? With the highest version of the others.
    ForgetTombstones { left_version: u64 },
    /// For which prefix does each of its puts count?
    CountPrefixes(Arc<PrefixUsage>),
}

pub(super) fn lock(store: &LogStore) -> MutexGuard<'_, Cleaner> {
    store.cleaner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Estimates, without reading the disk, how much of each segment is live and which segments cleaning can reclaim.
struct Liveness {
    retention: Retention,
    /// All records up to this sequence have been flushed.
    flushed_all: u64,
    now_unix_secs: u64,
    log_floor: u64,
}

impl Liveness {
    /// Takes the segments in the order of their numbers.
    fn of(store: &LogStore, segments: &[Arc<Segment>], now_unix_secs: u64) -> Self {
        let retention = store.retention();
        let log_floor = log_floor(&retention, segments);
        Self { flushed_all: store.flushes.read().newest_of_all(), log_floor, retention, now_unix_secs }
    }

    /// True if cleaning may take the segment.
    fn can_go(&self, segment: &Segment) -> bool {
        segment.sealed.load(Relaxed)
            && !segment.damaged.load(Relaxed)
            && !segment.retired.load(Relaxed)
            && !is_needed(segment, self.log_floor)
    }

    /// Live share of a sealed segment.
    fn share(&self, segment: &Segment) -> f64 {
        if segment.max_sequence.load(Relaxed) < self.flushed_all {
            return 0.0;
        }
        let Retention { is_replicated, deletions_above_version: horizon, .. } = self.retention;
        if is_replicated && segment.kept_version.load(Relaxed) > horizon {
            return segment.live_share();
        }
        segment.live_share() * (1.0 - segment.expired_share(self.retention.expired_by(self.now_unix_secs)))
    }

    /// Live bytes in the data of a sealed segment.
    fn live_bytes(&self, segment: &Segment) -> f64 {
        segment.record_bytes() as f64 * self.share(segment)
    }
}

/// Bytes by which the disk usage exceeds 1.5 times the live bytes plus four segments; negative: it is below that. The
/// four segments are one that is sealed, and the open ones: that of the log, whose file counts as it fills, its footer
/// included, and those of both cold streams.
fn excess_bytes(store: &LogStore, segments: &[Arc<Segment>]) -> i64 {
    let liveness = Liveness::of(store, segments, store.now_unix_secs.load(Relaxed));
    let (mut disk_bytes, mut live_bytes) = (0, 0.0);
    for segment in segments {
        if !segment.sealed.load(Relaxed) {
            let is_log = segment.stream == Stream::Log;
            disk_bytes += if is_log { segment.filled_bytes() } else { segment.file_bytes.load(Relaxed) };
            live_bytes += segment.live_bytes() as f64;
        } else if segment.retired.load(Relaxed) {
            // Its file is about to be removed.
            disk_bytes += segment.file_bytes.load(Relaxed);
        } else if liveness.can_go(segment) {
            disk_bytes += segment.file_bytes.load(Relaxed);
            live_bytes += liveness.live_bytes(segment);
        }
    }
    disk_bytes as i64 - (live_bytes * 1.5) as i64 - 4 * store.options.segment_bytes as i64
}

/// Bytes to reclaim until the disk usage is within its bound.
pub(super) fn debt_bytes(store: &LogStore, segments: &[Arc<Segment>]) -> u64 {
    excess_bytes(store, segments).max(0) as u64
}

/// Space left within the bound of six segments: four of them are in the excess, and one is for the allocated but
/// unfilled part of the log's open segment.
pub(super) fn room(store: &LogStore) -> Headroom {
    let excess_bytes = excess_bytes(store, &store.segments.all());
    let removed_bytes = store.counters.removed_bytes.load(Relaxed);
    Headroom {
        bytes: store.options.segment_bytes as i64 - excess_bytes,
        reclaimed_bytes: removed_bytes.saturating_sub(store.counters.cleaned_bytes.load(Relaxed)),
    }
}

pub(super) fn maintain(store: &LogStore, budget: Budget, now_unix_secs: u64) -> Result<Progress> {
    if store.read_only.is_set() {
        return Ok(Progress::default());
    }
    let mut cleaner = lock(store);
    // Before a sweep takes the appender's lock: what is appended later and has expired by now is not counted.
    store.now_unix_secs.store(now_unix_secs, Relaxed);
    // If the appender is busy, a later step does it.
    if let Some(mut appender) = store.try_appender() {
        note_durable(store, &mut appender)?;
    }
    keep_reserve(store, RESERVE_TO_CLEAN);
    keep_reserve(store, RESERVE_TO_DELETE);
    next::roll(store)?;
    let mut done = 0;
    loop {
        if cleaner.job.is_none() {
            cleaner.job = choose(store, &mut cleaner, now_unix_secs)?;
            // Its footer was read.
            done += cleaner.job.as_ref().map_or(0, |job| footer_bytes(job.entries.len()));
        }
        let Some(mut job) = cleaner.job.take() else {
            return Ok(Progress { bytes: done, more: false });
        };
        match job.run(store, &mut cleaner, &mut done, budget.bytes, now_unix_secs) {
            Ok(true) => {}
            Ok(false) => cleaner.job = Some(job),
            Err(error) => {
                let is_damaged = matches!(error, Error::Corrupt { .. });
                if is_damaged {
                    job.segment.damaged.store(true, Relaxed);
                }
                // Counting leaves out what is damaged, cleaning the whole segment.
                if !is_damaged || !matches!(job.kind, JobKind::Clean { .. }) {
                    cleaner.job = Some(job);
                }
                return Err(error);
            }
        }
        if done >= budget.bytes {
            return Ok(Progress { bytes: done, more: true });
        }
    }
}

/// Ends the cold streams: their data is durable then.
pub(super) fn seal_all(store: &LogStore, cleaner: &mut Cleaner) -> Result<()> {
    for stream in &mut cleaner.streams {
        stream.flush(store)?;
        stream.seal(store)?;
    }
    Ok(())
}

/// Chooses the next segment to look at. Cleaning and counting take turns, so that neither waits for all of the other.
fn choose(store: &LogStore, cleaner: &mut Cleaner, now_unix_secs: u64) -> Result<Option<Job>> {
    let mut job = None;
    if std::mem::take(&mut cleaner.has_counted) {
        job = choose_to_clean(store, cleaner, now_unix_secs)?;
    }
    if job.is_none() {
        job = choose_to_count(store, cleaner, now_unix_secs)?;
        cleaner.has_counted = job.is_some();
    }
    if job.is_none() {
        job = choose_to_clean(store, cleaner, now_unix_secs)?;
    }
    Ok(job)
}

/// Chooses the next segment about which more has to be known.
fn choose_to_count(store: &LogStore, cleaner: &mut Cleaner, now_unix_secs: u64) -> Result<Option<Job>> {
    let usage = store.usage();
    if let Some(usage) = &usage
        && let Some(job) = choose_for_usage(store, cleaner, usage, now_unix_secs)?
    {
        return Ok(Some(job));
    }
    let all = store.segments.all();
    let Liveness { retention, flushed_all, log_floor, .. } = Liveness::of(store, &all, now_unix_secs);
    let newest_flush = store.flushes.newest();
    // Where prefixes are counted, in open segments too. A segment of which all was flushed is cleaned without a look.
    let is_counting = usage.is_some() || flushed_all < newest_flush;
    let is_whole = |segment: &Segment| !segment.damaged.load(Relaxed) && !segment.retired.load(Relaxed);
    let uncounted = all.iter().find(|segment| {
        let oldest = segment.min_sequence.load(Relaxed);
        oldest < newest_flush
            && match segment.sealed.load(Relaxed) {
                true => {
                    let goes_soon =
                        segment.max_sequence.load(Relaxed) < flushed_all && !is_needed(segment, log_floor);
                    is_counting && !goes_soon
                }
                false => usage.is_some(),
            }
            && is_whole(segment)
            && segment.counted_flush.load(Relaxed) < newest_flush
    });
    if let Some(segment) = uncounted {
        let of_prefixes = usage.as_deref().map(|usage| newest_of_prefixes(store, usage)).unwrap_or_default();
        let kind = JobKind::CountFlushed { newest_flush, of_prefixes };
        let is_older = |entry: &FooterEntry| entry.is_put && entry.sequence < newest_flush;
        return Job::new(store, cleaner, segment, kind, is_older).map(Some);
    }

    let horizon = retention.deletions_above_version;
    let may_forget = |segment: &&Arc<Segment>| {
        segment.sealed.load(Relaxed)
            && is_whole(segment)
            && (1..=horizon).contains(&segment.tombstone_version.load(Relaxed))
    };
    if retention.is_replicated
        && let Some(segment) = all.iter().find(may_forget)
    {
        segment.tombstone_version.store(0, Relaxed);
        let kind = JobKind::ForgetTombstones { left_version: 0 };
        return Job::new(store, cleaner, segment, kind, |entry| !entry.is_put).map(Some);
    }
    Ok(None)
}

/// Chooses the next segment that is worth cleaning: its live records would be copied.
fn choose_to_clean(store: &LogStore, cleaner: &Cleaner, now_unix_secs: u64) -> Result<Option<Job>> {
    let all = store.segments.all();
    let liveness = Liveness::of(store, &all, now_unix_secs);
    let can_go: Vec<_> = all.iter().filter(|segment| liveness.can_go(segment)).collect();
    let share = |segment: &Segment| liveness.share(segment);
    let Some(emptiest) = can_go.iter().min_by(|one, other| share(one).total_cmp(&share(other))) else {
        return Ok(None);
    };
    let disk_bytes: u64 = can_go.iter().map(|segment| segment.file_bytes.load(Relaxed)).sum();
    let live_bytes: f64 = can_go.iter().map(|segment| liveness.live_bytes(segment)).sum();
    let bound =
        live_bytes * f64::from(store.options.disk_percent) / 100.0 + store.options.segment_bytes as f64;
    let victim = if share(emptiest) == 0.0 || (disk_bytes as f64 > bound && share(emptiest) < LIVE_SHARE_MAX)
    {
        Some(*emptiest)
    } else {
        let small_bytes = store.options.segment_bytes / 4;
        let mut small: Vec<_> =
            can_go.iter().filter(|segment| segment.file_bytes.load(Relaxed) < small_bytes).collect();
        small.sort_unstable_by_key(|segment| segment.file_bytes.load(Relaxed));
        small.first().filter(|_| small.len() > SMALL_SEGMENTS_MAX).map(|segment| **segment)
    };
    let Some(victim) = victim else { return Ok(None) };
    let kind = JobKind::Clean { puts: Vec::new(), drops: Vec::new() };
    Job::new(store, cleaner, victim, kind, |_| true).map(Some)
}

/// Chooses the next segment to look at for the usage of prefixes.
fn choose_for_usage(
    store: &LogStore,
    cleaner: &mut Cleaner,
    usage: &Arc<PrefixUsage>,
    now_unix_secs: u64,
) -> Result<Option<Job>> {
    let is_whole = |segment: &Segment| !segment.damaged.load(Relaxed) && !segment.retired.load(Relaxed);
    if !usage.is_complete() {
        let left = cleaner.to_count.get_or_insert_with(|| store.segments.all());
        left.retain(|segment| is_whole(segment));
        if let Some(segment) = left.pop() {
            let kind = JobKind::CountPrefixes(Arc::clone(usage));
            return Job::new(store, cleaner, &segment, kind, |entry| entry.is_put).map(Some);
        }
        usage.set_complete(true);
    }
    let now_unix_secs = store.retention().expired_by(now_unix_secs);
    if usage.take_wants_room() && cleaner.to_sweep.is_empty() {
        cleaner.to_sweep = store.segments.all();
    }
    while let Some(segment) = cleaner.to_sweep.pop() {
        if is_whole(&segment) && segment.may_have_expired_since_sweep(now_unix_secs) {
            let swept_secs = segment.swept_secs.swap(now_unix_secs, Relaxed);
            let has_expired = |entry: &FooterEntry| {
                let secs = u64::from(entry.exptime_secs);
                entry.is_put && secs != 0 && swept_secs < secs && secs <= now_unix_secs
            };
            return Job::new(store, cleaner, &segment, JobKind::MarkExpired, has_expired).map(Some);
        }
    }
    Ok(None)
}

/// By counted prefix the newest flush, where that is the same for all keys that count for it.
fn newest_of_prefixes(store: &LogStore, usage: &PrefixUsage) -> Vec<Option<u64>> {
    let table = store.flushes.read();
    let newest = |(nth, prefix)| table.newest_below(prefix, |longer| usage.find(longer) != Some(nth));
    usage.prefixes().enumerate().map(newest).collect()
}

/// The entries of a segment for which `is_wanted`, from its footer, or of an open one from its writer.
fn entries_of(
    store: &LogStore,
    cleaner: &Cleaner,
    segment: &Segment,
    is_wanted: impl Fn(&FooterEntry) -> bool,
) -> Result<Vec<FooterEntry>> {
    if !segment.sealed.load(Acquire) {
        let appender = store.appender();
        let prepared = store.prepared();
        let cold = cleaner.streams.iter().filter_map(|stream| stream.writer.as_ref());
        let mut writers =
            cold.chain(appender.full.as_deref()).chain(&appender.writer).chain(prepared.as_ref());
        if let Some(writer) = writers.find(|writer| writer.segment.number == segment.number) {
            return Ok(writer.entries().iter().copied().filter(is_wanted).collect());
        }
    }
    let mut entries = segment.read_footer().inspect_err(|error| {
        if matches!(error, Error::Corrupt { .. }) {
            segment.damaged.store(true, Relaxed);
        }
    })?;
    entries.retain(is_wanted);
    Ok(entries)
}

impl Job {
    /// A job about the entries for which `is_wanted`.
    fn new(
        store: &LogStore,
        cleaner: &Cleaner,
        segment: &Arc<Segment>,
        mut kind: JobKind,
        is_wanted: impl Fn(&FooterEntry) -> bool,
    ) -> Result<Self> {
        let segment = Arc::clone(segment);
        let entries = entries_of(store, cleaner, &segment, is_wanted)?;
        if let JobKind::Clean { puts, .. } = &mut kind {
            puts.extend(entries.iter().filter(|entry| entry.is_put).map(|entry| entry.digest));
            puts.sort_unstable();
        }
        Ok(Self { window: Window::new(segment.clone()), segment, entries, next: 0, kind })
    }

    /// Goes on until the budget is used up. True if the job is done.
    fn run(
        &mut self,
        store: &LogStore,
        cleaner: &mut Cleaner,
        done: &mut u64,
        budget_bytes: u64,
        now_unix_secs: u64,
    ) -> Result<bool> {
        while let Some(&entry) = self.entries.get(self.next) {
            if *done >= budget_bytes {
                return Ok(false);
            }
            let read_before = self.window.read_bytes;
            let written = match self.kind {
                JobKind::Clean { .. } => {
                    self.count_before_it_moves(store, &entry, now_unix_secs)?;
                    self.clean_record(store, cleaner, &entry, now_unix_secs)?
                }
                JobKind::CountFlushed { .. } => {
                    let counted = self.count_if_flushed(store, &entry);
                    self.pass_uncounted(store, cleaner, counted)?;
                    0
                }
                JobKind::MarkExpired => {
                    self.mark_if_expired(store, &entry, now_unix_secs)?;
                    0
                }
                JobKind::ForgetTombstones { .. } => {
                    self.forget_tombstone(store, &entry)?;
                    0
                }
                JobKind::CountPrefixes(ref usage) => {
                    let usage = Arc::clone(usage);
                    let counted = self.count_for_prefix(store, &usage, &entry, now_unix_secs);
                    self.pass_uncounted(store, cleaner, counted)?;
                    0
                }
            };
            // Looking at a record costs something even if it is dead.
            *done += written + self.window.read_bytes - read_before + 8;
            self.next += 1;
        }
        match &self.kind {
            JobKind::Clean { .. } => self.finish(store, cleaner)?,
            JobKind::CountFlushed { newest_flush, .. } => {
                self.segment.counted_flush.store(*newest_flush, Relaxed);
            }
            JobKind::ForgetTombstones { left_version } => {
                self.segment.tombstone_version.fetch_max(*left_version, Relaxed);
            }
            JobKind::MarkExpired | JobKind::CountPrefixes(_) => {}
        }
        Ok(true)
    }

    /// Goes on behind a record that cannot be read: the rest is to be counted, and cleaned, all the same. Errors: that
    /// of the first such record.
    fn pass_uncounted(&mut self, store: &LogStore, cleaner: &mut Cleaner, counted: Result<()>) -> Result<()> {
        let Err(error) = counted else { return Ok(()) };
        store.counters.uncounted_records.fetch_add(1, Relaxed);
        if matches!(error, Error::Corrupt { .. }) {
            self.segment.damaged.store(true, Relaxed);
        }
        if cleaner.has_told_uncounted {
            return Ok(());
        }
        cleaner.has_told_uncounted = true;
        self.next += 1;
        Err(error)
    }

    /// What the index says of the record, and how many stale puts its key has; `None` if a newer one is named.
    fn look_up(&self, store: &LogStore, entry: &FooterEntry) -> Option<(IndexEntry, u64)> {
        let shard = store.index.read(entry.digest);
        let known = shard.get(entry.digest.tag)?;
        (known.location == self.segment.location(entry.offset))
            .then(|| (known, shard.stale(entry.digest.tag)))
    }

    fn count_if_flushed(&mut self, store: &LogStore, entry: &FooterEntry) -> Result<()> {
        let JobKind::CountFlushed { of_prefixes, .. } = &self.kind else { return Ok(()) };
        let Some((known, _)) = self.look_up(store, entry).filter(|(known, _)| known.is_live()) else {
            return Ok(());
        };
        let of_prefix = of_prefixes.get(known.account.prefix()).filter(|_| !known.account.is_none());
        let is_flushed = match of_prefix {
            Some(Some(newest)) => entry.sequence < *newest,
            _ => {
                let found = self.window.record_at(entry.offset)?;
                let found = found.map_err(|bad| self.segment.bad_header(entry.offset, bad))?;
                store.flushes.covers(found.key, found.header.sequence, found.header.version)
            }
        };
        if is_flushed {
            self.mark_dead(store, entry);
        }
        Ok(())
    }

    fn mark_if_expired(&mut self, store: &LogStore, entry: &FooterEntry, now_unix_secs: u64) -> Result<()> {
        if self.look_up(store, entry).is_none() {
            return Ok(());
        }
        let retention = store.retention();
        if retention.is_replicated {
            let found = self.window.record_at(entry.offset)?;
            let header = found.map_err(|bad| self.segment.bad_header(entry.offset, bad))?.header;
            if !is_forgotten(&retention, &header, now_unix_secs) {
                return Ok(());
            }
        }
        self.mark_dead(store, entry);
        Ok(())
    }

    fn forget_tombstone(&mut self, store: &LogStore, entry: &FooterEntry) -> Result<()> {
        // One that older puts need is looked at again once they are gone.
        if self.look_up(store, entry).is_none_or(|(_, stale)| stale > 0) {
            return Ok(());
        }
        let found = self.window.record_at(entry.offset)?;
        let header = found.map_err(|bad| self.segment.bad_header(entry.offset, bad))?.header;
        let version = header.highest_version();
        if version > store.retention().deletions_above_version {
            if let JobKind::ForgetTombstones { left_version } = &mut self.kind {
                *left_version = version.max(*left_version);
            }
            return Ok(());
        }
        let location = self.segment.location(entry.offset);
        if let Some(forgotten) = store.index.write(entry.digest).remove_at(entry.digest.tag, location) {
            self.segment.count_live(forgotten.class, -1);
            store.counters.tombstones.fetch_sub(1, Relaxed);
        }
        Ok(())
    }

    fn count_for_prefix(
        &mut self,
        store: &LogStore,
        usage: &PrefixUsage,
        entry: &FooterEntry,
        now_unix_secs: u64,
    ) -> Result<()> {
        let is_uncounted = |known: &IndexEntry| known.is_live() && known.account.is_none();
        if self.look_up(store, entry).is_none_or(|(known, _)| !is_uncounted(&known)) {
            return Ok(());
        }
        let found =
            self.window.record_at(entry.offset)?.map_err(|bad| self.segment.bad_header(entry.offset, bad))?;
        let header = found.header;
        if is_forgotten(&store.retention(), &header, now_unix_secs)
            || store.flushes.covers(found.key, header.sequence, header.version)
        {
            self.mark_dead(store, entry);
        } else if let Some(prefix) = usage.find(found.key) {
            let account = Account::new(prefix, entry.class, header.padded_bytes());
            let location = self.segment.location(entry.offset);
            if store.index.write(entry.digest).set_account(entry.digest.tag, location, account) {
                usage.add(prefix, account.bytes(entry.class));
            }
        }
        Ok(())
    }

    /// Counts the record before it is moved: the counter does not look at its new place.
    fn count_before_it_moves(
        &mut self,
        store: &LogStore,
        entry: &FooterEntry,
        now_unix_secs: u64,
    ) -> Result<()> {
        match store.usage().filter(|usage| !usage.is_complete()) {
            Some(usage) if entry.is_put => self.count_for_prefix(store, &usage, entry, now_unix_secs),
            _ => Ok(()),
        }
    }

    /// The item of this record is gone, if the record still is the newest of its key.
    fn mark_dead(&self, store: &LogStore, entry: &FooterEntry) {
        let location = self.segment.location(entry.offset);
        let marked = store.index.write(entry.digest).mark_dead(entry.digest.tag, location);
        if let Some(before) = marked {
            self.segment.count_live(before.class, -1);
            store.counters.records.fetch_sub(1, Relaxed);
            uncount(store.usage().as_deref(), &before);
        }
    }

    /// Copies a record if somebody needs it. Returns the bytes that will be written.
    fn clean_record(
        &mut self,
        store: &LogStore,
        cleaner: &mut Cleaner,
        entry: &FooterEntry,
        now_unix_secs: u64,
    ) -> Result<u64> {
        let Some((known, stale)) = self.look_up(store, entry) else { return Ok(0) };
        let JobKind::Clean { puts, drops } = &mut self.kind else { return Ok(0) };
        // Of the stale puts, those that go with the victim. All its puts of this key are stale, but for this one.
        let from = puts.partition_point(|digest| *digest < entry.digest);
        let here = puts[from..].iter().take_while(|digest| **digest == entry.digest).count() as u64;
        let stale_elsewhere = (stale + u64::from(entry.is_put)).saturating_sub(here);
        let is_needed = stale_elsewhere > 0 && !is_planted(Bug::DropTombstones);

        let retention = store.retention();
        let now_unix_secs = retention.expired_by(now_unix_secs);
        let expired_by_footer = entry.exptime_secs != 0
            && entry.exptime_secs != u32::MAX
            && u64::from(entry.exptime_secs) <= now_unix_secs;
        // Of a replicated store, a record has to be read for its versions.
        let is_dead = (!retention.is_replicated && (!entry.is_put || known.dead || expired_by_footer))
            || entry.sequence < store.flushes.read().newest_of_all();
        if is_dead && !is_needed {
            drops.push((entry.digest, known.location, entry.is_put));
            return Ok(0);
        }
        let found =
            self.window.record_at(entry.offset)?.map_err(|bad| self.segment.bad_header(entry.offset, bad))?;
        let header = found.header;
        let left = if is_dead { None } else { left_of(store, &retention, &header, found.key, now_unix_secs) };
        if left.is_none() && !is_needed {
            drops.push((entry.digest, known.location, entry.is_put));
            return Ok(0);
        }
        let copy = left.unwrap_or_else(|| tombstone_of(&header));
        let key = found.key.to_vec();
        // The tombstone may be durable at any moment from now on. What killed the item must be so before.
        if copy.kind == Kind::Delete && store.flushes.newest() > store.durable_sequence.load(Relaxed) {
            sync(store)?;
        }
        let is_expiring = copy.kind == Kind::Put && copy.exptime_secs != 0;
        let stream = &mut cleaner.streams[usize::from(is_expiring)];
        let kind = if is_expiring { Stream::ColdExpiring } else { Stream::Cold };
        stream.make_room(store, kind, &copy, self.segment.number)?;
        if is_expiring
            && copy.meta().is_expired(now_unix_secs)
            && let Some(writer) = &stream.writer
        {
            writer.segment.kept_version.fetch_max(copy.highest_version(), Relaxed);
        }
        stream.copy(store, &mut self.window, entry, known.location, &copy, &key)?;
        Ok(copy.padded_bytes() as u64)
    }

    /// Everything that is needed has been copied: the victim goes.
    fn finish(&mut self, store: &LogStore, cleaner: &mut Cleaner) -> Result<()> {
        for stream in &mut cleaner.streams {
            stream.flush(store)?;
            stream.sync(store)?;
        }
        self.segment.retired.store(true, Relaxed);
        if self.segment.stream == Stream::Log {
            store.log_start.fetch_max(self.segment.max_sequence.load(Relaxed) + 1, Release);
        }
        let appender = store.appender();
        let (image, sync) = (store.capture(&appender), begin_sync(store, &appender));
        let mut manifest = store.manifest();
        drop(appender);
        sync.finish(store)?;
        let published = store.publish(&mut manifest, image);
        drop(manifest);
        if matches!(published, Err(Error::Full { .. })) {
            let _ = store.files.remove(RESERVE_TO_CLEAN);
        }
        published?;

        let JobKind::Clean { drops, .. } = &mut self.kind else { return Ok(()) };
        let usage = store.usage();
        let mut dropped_puts = Vec::new();
        for (digest, location, is_put) in drops.drain(..) {
            let removed = store.index.write(digest).remove_at(digest.tag, location);
            if let Some(entry) = removed {
                uncount(usage.as_deref(), &entry);
                store.counters.records.fetch_sub(i64::from(entry.is_live()), Relaxed);
                store.counters.tombstones.fetch_sub(i64::from(entry.tombstone), Relaxed);
                if is_put {
                    dropped_puts.push((digest, location.offset));
                }
            }
        }
        dropped_puts.sort_unstable();
        let keeps_tombstones = store.retention().is_replicated;
        for entry in self.entries.iter().filter(|entry| entry.is_put) {
            if dropped_puts.binary_search(&(entry.digest, entry.offset)).is_ok() {
                continue;
            }
            let needless = store.index.write(entry.digest).forget_stale(entry.digest.tag, keeps_tombstones);
            let Some(needless) = needless else { continue };
            let segment = store.segments.get(needless.location.slot);
            match segment {
                Some(segment) if keeps_tombstones => {
                    segment.tombstone_version.fetch_max(1, Relaxed);
                }
                Some(segment) => {
                    segment.count_live(needless.class, -1);
                    store.counters.tombstones.fetch_sub(1, Relaxed);
                }
                None => {}
            }
        }
        store.segments.remove(self.segment.slot);
        store.counters.removed_bytes.fetch_add(self.segment.file_bytes.load(Relaxed), Relaxed);
        // If it stays, the next opening removes it.
        let _ = store.files.remove(&self.segment.name());
        let oldest = store.segments.all().iter().map(|segment| segment.min_sequence.load(Relaxed)).min();
        store.flushes.change(|table| table.forget_below(oldest.unwrap_or(u64::MAX)));
        Ok(())
    }
}

/// Has the item of this record expired, so that nobody needs it?
fn is_forgotten(retention: &Retention, header: &Header, now_unix_secs: u64) -> bool {
    let now_unix_secs = retention.expired_by(now_unix_secs);
    let may_go = !retention.is_replicated || header.highest_version() <= retention.deletions_above_version;
    may_go && header.meta().is_expired(now_unix_secs)
}

/// Sets room aside, if there is any: for a segment, and for a manifest that names it.
fn keep_reserve(store: &LogStore, name: &str) {
    let manifest_bytes = (8 << 10) + 128 * store.segments.read().len() as u64;
    let bytes = store.options.segment_bytes + manifest_bytes.next_power_of_two();
    match store.files.open(name) {
        // A file that is too short still serves, even if the disk has no room for a longer one.
        Ok(file) => {
            if file.len().is_ok_and(|length| length < bytes) {
                let _ = allocate(&*file, bytes);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if store.files.create(name).and_then(|file| file.allocate(bytes)).is_err() {
                let _ = store.files.remove(name);
            }
        }
        // There may be one, but no descriptor is left to check.
        Err(_) => {}
    }
}

impl ColdStream {
    /// Makes sure that a copy fits the stream's segment, and that this one comes after the victim: a scan goes from
    /// segment to segment, and would not meet what moves behind it.
    fn make_room(&mut self, store: &LogStore, stream: Stream, copy: &Header, victim: u64) -> Result<()> {
        let bytes = (self.buffer.len() + copy.padded_bytes()) as u64;
        let fits = self.writer.as_ref().is_some_and(|writer| {
            writer.segment.number > victim
                && writer.has_room(bytes, self.moves.len() + 1)
                && !writer.is_too_far(copy.sequence)
        });
        if fits {
            return Ok(());
        }
        self.flush(store)?;
        self.seal(store)?;
        let file_bytes =
            store.options.segment_bytes.max(Writer::file_bytes_for(copy.padded_bytes() as u64, 1));
        let made = open_segment(store, stream, file_bytes);
        self.writer = Some(match made {
            Err(Error::Full { .. }) if store.files.remove(RESERVE_TO_CLEAN).is_ok() => {
                open_segment(store, stream, file_bytes)?
            }
            other => other?,
        });
        Ok(())
    }

    /// Appends a copy of the record at `entry` with another header.
    fn copy(
        &mut self,
        store: &LogStore,
        window: &mut Window,
        entry: &FooterEntry,
        from: Location,
        copy: &Header,
        key: &[u8],
    ) -> Result<()> {
        let damaged =
            |window: &Window| window.corrupt(entry.offset, "the checksum of a value does not match");
        let highest_version = copy.highest_version();
        let moved =
            |offset| Move { from, entry: FooterEntry::of(copy, entry.digest, offset), highest_version };
        let Some(seed) = self.writer.as_ref().map(|writer| writer.segment.seed) else { return Ok(()) };
        let is_large = copy.value_bytes > BUFFER_BYTES / 2;
        if is_large || self.buffer.len() + copy.padded_bytes() > BUFFER_BYTES {
            self.flush(store)?;
        }
        let start = self.buffer.len();
        copy.encode(key, seed, &mut self.buffer);
        if !is_large {
            if copy.kind == Kind::Put {
                let buffer = &mut self.buffer;
                let is_whole = window.copy_value(entry.offset, copy, |piece| {
                    buffer.extend_from_slice(piece);
                    Ok(())
                })?;
                if !is_whole {
                    self.buffer.truncate(start);
                    return Err(damaged(window));
                }
            }
            pad(copy.record_bytes(), &mut self.buffer);
            self.moves.push(moved(start as u64));
            return Ok(());
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let mut ahead = 0;
        let head = std::mem::take(&mut self.buffer);
        let failed = |error| Error::io("copying a record", error);
        writer.write_ahead(&[IoSlice::new(&head)], &mut ahead).map_err(failed)?;
        let is_whole = window.copy_value(entry.offset, copy, |piece| {
            writer.write_ahead(&[IoSlice::new(piece)], &mut ahead).map_err(failed)
        })?;
        if !is_whole {
            return Err(damaged(window));
        }
        // The padding may be longer than 0 bytes; what was allocated is zero.
        self.moves.push(moved(0));
        self.accept(store, copy.padded_bytes() as u64);
        Ok(())
    }

    /// Writes the buffer, and lets readers find the copies.
    fn flush(&mut self, store: &LogStore) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let result = writer.write(&[IoSlice::new(&self.buffer)]);
        let name = writer.segment.name();
        result.map_err(|error| Error::io(format!("writing {name}"), error))?;
        let bytes = self.buffer.len() as u64;
        self.buffer.clear();
        self.accept(store, bytes);
        Ok(())
    }

    fn accept(&mut self, store: &LogStore, bytes: u64) {
        let Some(writer) = &mut self.writer else { return };
        let start = writer.end;
        let mut entries = Vec::with_capacity(self.moves.len());
        for copy in &mut self.moves {
            copy.entry.offset += start;
            entries.push(copy.entry);
        }
        let sequences = entries.iter().map(|entry| entry.sequence);
        let range = sequences.clone().min().zip(sequences.max());
        writer.accept(bytes, &entries, range);
        store.counters.cleaned_bytes.fetch_add(bytes, Relaxed);
        let usage = store.usage();
        for copy in self.moves.drain(..) {
            let digest = copy.entry.digest;
            let to = super::append::index_entry(&writer.segment, &copy.entry);
            let before = store.index.write(digest).relocate(digest.tag, copy.from, &to);
            if let Some(before) = before {
                writer.segment.count_live(to.class, 1);
                if !before.dead
                    && let Some(old) = store.segments.get(before.location.slot)
                {
                    old.count_live(before.class, -1);
                }
                let tombstones = i64::from(to.tombstone) - i64::from(before.tombstone);
                store.counters.tombstones.fetch_add(tombstones, Relaxed);
                if to.tombstone {
                    uncount(usage.as_deref(), &before);
                    store.counters.records.fetch_sub(i64::from(before.is_live()), Relaxed);
                    writer.segment.tombstone_version.fetch_max(copy.highest_version.max(1), Relaxed);
                } else {
                    // Found dead before other sites were to be asked.
                    store.counters.records.fetch_add(i64::from(before.dead), Relaxed);
                }
            }
        }
    }

    fn sync(&mut self, store: &LogStore) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        store.counters.fsyncs.fetch_add(u64::from(writer.is_unsynced()), Relaxed);
        let name = writer.segment.name();
        writer.sync().map_err(|error| store.write_failed(format!("writing {name}"), error))
    }

    fn seal(&mut self, store: &LogStore) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        store.counters.fsyncs.fetch_add(1, Relaxed);
        let name = writer.segment.name();
        writer.seal().map_err(|error: WriteError| store.write_failed(format!("sealing {name}"), error))?;
        self.writer = None;
        Ok(())
    }
}

/// A new segment of a cold stream, in the table and in the manifest.
fn open_segment(store: &LogStore, stream: Stream, file_bytes: u64) -> Result<Writer> {
    let number = take_cold_number(store)?;
    let file = SegmentFile::create(store, number, stream, 0, file_bytes)?;
    match file.publish(store, |_| false)? {
        Some((writer, _)) => Ok(writer),
        None => Err(Error::Full { doing: format!("making segment {number}") }),
    }
}

fn take_cold_number(store: &LogStore) -> Result<u64> {
    let appender = store.appender();
    let open = appender.writer.as_ref().map(|writer| writer.segment.number);
    let open = open.or_else(|| store.prepared().as_ref().map(|writer| writer.segment.number));
    let Some(open) = open else {
        // The log goes on in a segment that gets a higher number.
        return take_number(&mut store.manifest().next_number);
    };
    drop(appender);
    let number = cold_number_below(open, store.last_cold_number.load(Relaxed))?;
    store.last_cold_number.store(number, Relaxed);
    Ok(number)
}
