//! Entries in any order, twice, in batches of any size and over any way come to the same, and to what a plain account
//! of them says.

use std::collections::BTreeMap;
use std::convert::Infallible;

use fastrand::Rng;
use larder_replication::entry::{Beat, Entries, Entry, Put};
use larder_replication::flushes::Flushes;
use larder_replication::merge::{Replica, Source, merge};
use larder_replication::state::{Expiry, State};

/// A site's data, as a map.
#[derive(Clone, Debug, Default, PartialEq)]
struct Map {
    states: BTreeMap<Vec<u8>, State<Vec<u8>>>,
    flushes: Flushes,
}

impl Replica for Map {
    type Error = Infallible;

    fn state(&self, key: &[u8]) -> Result<State<()>, Infallible> {
        Ok(self.known(key).map(|_| ()))
    }

    fn newest_flush(&self, key: &[u8]) -> u64 {
        self.flushes.newest(key)
    }
}

impl Map {
    fn known(&self, key: &[u8]) -> State<Vec<u8>> {
        self.states.get(key).cloned().unwrap_or_default().flushed(self.flushes.newest(key))
    }

    /// How many states changed.
    fn apply(&mut self, body: &[u8]) -> usize {
        let Ok(merged) = merge(self, body);
        let changed = merged.states.len();
        for (key, state) in merged.states {
            let kept = self.known(key).value.and_then(|register| register.item).map(|item| item.value);
            let state = state.map(|source| match source {
                Source::Given(value) => value.to_vec(),
                Source::Kept => kept.expect("a value that is kept is there"),
            });
            self.states.insert(key.to_vec(), state);
        }
        merged.flushes.into_iter().for_each(|mark| {
            self.flushes.add(mark);
        });
        changed
    }

    /// Without what is flushed.
    fn settled(mut self) -> Self {
        let keys: Vec<Vec<u8>> = self.states.keys().cloned().collect();
        for key in keys {
            let state = self.known(&key);
            if state.is_unknown() {
                self.states.remove(&key);
            } else {
                self.states.insert(key, state);
            }
        }
        self
    }

    /// All of it, as entries.
    fn encoded(&self) -> Vec<Vec<u8>> {
        let mut entries = Vec::new();
        let mut push = |entry: Entry<'_>| {
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            entries.push(bytes);
        };
        for (key, state) in &self.states {
            Entry::of_state(key, &state.as_ref().map(Vec::as_slice)).for_each(&mut push);
        }
        for mark in self.flushes.marks() {
            let exceptions = mark.exceptions.iter().map(Vec::as_slice).collect();
            push(Entry::Flush { prefix: &mark.prefix, exceptions, version: mark.version });
        }
        entries
    }
}

/// Random entries, each with a version of its own.
fn entries(rng: &mut Rng) -> Vec<Vec<u8>> {
    let count = rng.u64(1..40);
    let mut versions: Vec<u64> = (1..=count).map(|step| step << 8 | rng.u64(1..=5)).collect();
    rng.shuffle(&mut versions);
    let entry = |version: u64, rng: &mut Rng| {
        let key = [b'a' + rng.u8(..3), b'0' + rng.u8(..2)];
        let base_version = rng.u64(..version);
        let exptime_secs = rng.u64(..3) * 1000;
        let value = version.to_string().into_bytes();
        let entry = match rng.u8(..10) {
            0..4 => Entry::Put(Put {
                key: &key,
                version,
                base_version,
                expiry: Expiry { value_version: version, version, exptime_secs },
                client_flags: version as u32,
                marks: 0,
                value: &value,
            }),
            4..6 => Entry::Delete { key: &key, version, base_version },
            6..8 => {
                let value_version = base_version >> 8 << 8 | 1;
                Entry::Touch { key: &key, expiry: Expiry { value_version, version, exptime_secs } }
            }
            8 => {
                let exceptions = if rng.bool() { vec![&key[..]] } else { vec![] };
                Entry::Flush { prefix: &key[..rng.usize(..2)], exceptions, version }
            }
            _ => Entry::Beat(Beat { clock: version, stable: 0, horizon: 0 }),
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        bytes
    };
    versions.into_iter().map(|version| entry(version, rng)).collect()
}

/// Applies entries in batches of random sizes.
fn apply_all(map: &mut Map, entries: &[Vec<u8>], rng: &mut Rng) {
    let mut rest = entries;
    while !rest.is_empty() {
        let (batch, others) = rest.split_at(rng.usize(1..=rest.len().min(8)));
        map.apply(&batch.concat());
        rest = others;
    }
}

/// Version, value and exptime of each key that has an item.
type Items = BTreeMap<Vec<u8>, (u64, Vec<u8>, u64)>;

/// The newest of each register and flush, found by looking at all entries.
fn account(entries: &[Vec<u8>]) -> Items {
    let bytes = entries.concat();
    let all: Vec<Entry<'_>> = Entries::new(&bytes).map(|entry| entry.expect("it is well-formed")).collect();
    let keys = all.iter().filter_map(|entry| match entry {
        Entry::Put(Put { key, .. }) | Entry::Delete { key, .. } | Entry::Touch { key, .. } => Some(*key),
        _ => None,
    });
    let mut account = BTreeMap::new();
    for wanted in keys {
        let (mut value, mut expiry, mut flushed) = ((0, None), (0, 0, 0), 0);
        for entry in &all {
            match entry {
                Entry::Put(put) if put.key == wanted => {
                    value = value.max((put.version, Some(put.value.to_vec())));
                    expiry =
                        expiry.max((put.expiry.value_version, put.expiry.version, put.expiry.exptime_secs));
                }
                Entry::Delete { key, version, .. } if *key == wanted => value = value.max((*version, None)),
                Entry::Touch { key, expiry: touch } if *key == wanted => {
                    expiry = expiry.max((touch.value_version, touch.version, touch.exptime_secs));
                }
                Entry::Flush { prefix, exceptions, version } => {
                    let is_kept = exceptions.iter().any(|exception| wanted.starts_with(exception));
                    if wanted.starts_with(prefix)
                        && !is_kept
                        && !exceptions.iter().any(|e| prefix.starts_with(e))
                    {
                        flushed = flushed.max(*version);
                    }
                }
                _ => {}
            }
        }
        if let (version, Some(value)) = value
            && version > flushed
        {
            account.insert(wanted.to_vec(), (version, value, expiry.2));
        }
    }
    account
}

fn shown(map: &Map) -> Items {
    let keys = map.states.keys();
    keys.filter_map(|key| {
        let state = map.known(key);
        let register = state.value?;
        Some((key.clone(), (register.version, register.item?.value, state.expiry.exptime_secs)))
    })
    .collect()
}

#[test]
fn any_order_and_repetition_comes_to_the_same() {
    for seed in 0..3000 {
        let mut rng = Rng::with_seed(seed);
        let mut entries = entries(&mut rng);
        let mut first = Map::default();
        apply_all(&mut first, &entries, &mut rng);
        assert_eq!(shown(&first), account(&entries), "seed {seed}");
        entries.extend_from_within(..rng.usize(..=entries.len()));
        rng.shuffle(&mut entries);
        let mut second = Map::default();
        apply_all(&mut second, &entries, &mut rng);
        assert_eq!(second.settled(), first.clone().settled(), "seed {seed}");
        assert_eq!(first.clone().apply(&entries.concat()), 0, "seed {seed}: what is known changes nothing");
    }
}

#[test]
fn what_is_flushed_in_the_same_batch_is_not_appended() {
    let mut body = Vec::new();
    let (put, flush) = (2 << 8 | 1, 3 << 8 | 2);
    Entry::Touch { key: b"a1", expiry: Expiry { value_version: put, version: put, exptime_secs: 5 } }
        .encode(&mut body);
    Entry::Delete { key: b"b1", version: put, base_version: 0 }.encode(&mut body);
    Entry::Flush { prefix: b"a", exceptions: vec![], version: flush }.encode(&mut body);
    let Ok(merged) = merge(&Map::default(), &body);
    assert_eq!(merged.states.keys().copied().collect::<Vec<_>>(), [b"b1"]);
    assert_eq!((merged.flushes.len(), merged.entries), (1, 3));
}

/// Sites that got parts of it, and then tell each other all that they know.
#[test]
fn parts_that_meet_are_the_whole() {
    for seed in 0..2000 {
        let mut rng = Rng::with_seed(seed);
        let entries = entries(&mut rng);
        let mut sites = vec![Map::default(); rng.usize(2..5)];
        for entry in &entries {
            let to = rng.usize(..sites.len());
            sites[to].apply(entry);
            if rng.u8(..3) == 0 {
                let also = rng.usize(..sites.len());
                sites[also].apply(entry);
            }
        }
        for _ in 0..2 {
            for from in 0..sites.len() {
                for to in 0..sites.len() {
                    let mut copy = sites[from].encoded();
                    rng.shuffle(&mut copy);
                    let site = &mut sites[to];
                    apply_all(site, &copy, &mut rng);
                }
            }
        }
        for site in &sites {
            assert_eq!(shown(site), account(&entries), "seed {seed}");
            assert_eq!(site.clone().settled(), sites[0].clone().settled(), "seed {seed}");
        }
    }
}
