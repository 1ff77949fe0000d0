//! The changes of one client in their order, as far as it is open which of them are on the disk.
//!
//! A store is one log: after a crash it has all changes up to some point, and none behind it. So the question is
//! whether there is a point, not before what was promised, at which every key was as it was found.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::item::{Found, Item};

/// What a key holds; `None`: nothing.
pub(super) type State = Option<Arc<Item>>;

/// The changes of one client, whose keys nobody else changes.
pub(super) struct History {
    /// What each key holds after all changes that must be there.
    base: Vec<State>,
    /// What each key holds after all changes.
    now: Vec<State>,
    /// Changes behind `base`.
    changes: VecDeque<Change>,
    /// How many changes `base` has.
    base_changes: usize,
    /// By key: the highest CAS value that was shown.
    pub(super) highest_cas: Vec<u64>,
    /// Changes that were acknowledged longer ago must be there.
    may_lose: Duration,
}

struct Change {
    /// `None`: all of them, by a flush.
    key: Option<usize>,
    state: State,
    acknowledged: Option<Instant>,
}

/// What a check came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Survived {
    /// Changes that were acknowledged, and are not there.
    pub(super) lost: usize,
    /// When the oldest of them was acknowledged.
    pub(super) lost_since: Option<Instant>,
    /// Changes that were not acknowledged, and are there.
    pub(super) unacknowledged: usize,
}

impl History {
    pub(super) fn new(keys: usize, may_lose: Duration) -> Self {
        Self {
            base: vec![None; keys],
            now: vec![None; keys],
            changes: VecDeque::new(),
            base_changes: 0,
            highest_cas: vec![0; keys],
            may_lose,
        }
    }

    /// What the key holds, if all that was sent was carried out.
    pub(super) fn now(&self, key: usize) -> &State {
        &self.now[key]
    }

    /// A change that is being sent.
    pub(super) fn change(&mut self, key: usize, state: State) {
        self.now[key].clone_from(&state);
        self.changes.push_back(Change { key: Some(key), state, acknowledged: None });
    }

    /// A flush of all keys that is being sent.
    pub(super) fn flush(&mut self) {
        self.now.fill(None);
        self.changes.push_back(Change { key: None, state: None, acknowledged: None });
    }

    /// How many changes there were so far.
    pub(super) fn len(&self) -> usize {
        self.base_changes + self.changes.len()
    }

    /// The number of the key's newest change, counted from 1; `None`: it is acknowledged.
    pub(super) fn newest_change(&self, key: usize) -> Option<usize> {
        let position =
            self.changes.iter().rposition(|change| change.key.is_none_or(|changed| changed == key))?;
        Some(self.base_changes + position + 1)
    }

    /// The first so many changes are acknowledged.
    pub(super) fn acknowledge(&mut self, changes: usize) {
        let now = Instant::now();
        for change in self.changes.iter_mut().take(changes.saturating_sub(self.base_changes)).rev() {
            if change.acknowledged.is_some() {
                break;
            }
            change.acknowledged = Some(now);
        }
        let may_lose = self.may_lose;
        let is_over = |change: &Change| {
            change.acknowledged.is_some_and(|at| at.checked_add(may_lose).is_some_and(|at| at <= now))
        };
        while self.changes.front().is_some_and(is_over) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some(change) = self.changes.pop_front() else { return };
        self.base_changes += 1;
        match change.key {
            Some(key) => self.base[key] = change.state,
            None => self.base.fill(None),
        }
    }

    /// Compares with what was found of each key after a crash at some moment. Errors: no point of the history is like
    /// that. Afterwards the history goes on from that point.
    pub(super) fn check(
        &mut self,
        found: &[Option<Found>],
        crashed: Instant,
        now_secs: f64,
        name: impl Fn(usize) -> String,
    ) -> Result<Survived, String> {
        let floor = (self.changes.iter())
            .take_while(|change| change.acknowledged.is_some_and(|at| at + self.may_lose <= crashed))
            .count();
        // By point: keys that are then as they were found.
        let mut fits = vec![0; self.changes.len() + 1];
        for (key, found) in found.iter().enumerate() {
            let mut state = &self.base[key];
            let mut fit = is_as_found(state, found.as_ref(), now_secs);
            for (point, count) in fits.iter_mut().enumerate() {
                if let Some(change) = point.checked_sub(1).map(|last| &self.changes[last])
                    && change.key.is_none_or(|changed| changed == key)
                {
                    state = &change.state;
                    fit = is_as_found(state, found.as_ref(), now_secs);
                }
                *count += usize::from(fit);
            }
        }
        let best = (floor..fits.len()).rev().max_by_key(|&point| fits[point]).unwrap_or(floor);
        if fits[best] < found.len() {
            return Err(self.describe(found, floor, best, now_secs, name));
        }
        let mut survived = Survived::default();
        for (position, change) in self.changes.iter().enumerate() {
            match change.acknowledged {
                Some(at) if position >= best => {
                    survived.lost += 1;
                    survived.lost_since.get_or_insert(at);
                }
                None if position < best => survived.unacknowledged += 1,
                _ => {}
            }
        }
        for _ in 0..best {
            self.forget_first();
        }
        self.changes.clear();
        for (key, found) in found.iter().enumerate() {
            self.adopt(key, found.as_ref()).map_err(|error| format!("{}: {error}", name(key)))?;
        }
        self.now.clone_from(&self.base);
        Ok(survived)
    }

    /// The key is as it was found: its CAS value, its marks after it was read, or it has expired.
    fn adopt(&mut self, key: usize, found: Option<&Found>) -> Result<(), String> {
        let Some(found) = found else {
            self.base[key] = None;
            return Ok(());
        };
        let Some(item) = &mut self.base[key] else { return Ok(()) };
        if item.cas().is_none() {
            // Of an item whose CAS value nobody was told. A lost one may have had a higher value.
            item.cas.store(found.cas, std::sync::atomic::Ordering::Relaxed);
        }
        self.highest_cas[key] = self.highest_cas[key].max(found.cas);
        if found.marks.contains('W') {
            *item = Arc::new(Item { is_token_held: true, ..(**item).clone() });
        }
        Ok(())
    }

    fn describe(
        &self,
        found: &[Option<Found>],
        floor: usize,
        best: usize,
        now_secs: f64,
        name: impl Fn(usize) -> String,
    ) -> String {
        let mut lines = vec![format!(
            "no point of the {} last changes is as found: {floor} of them must be there; at the best point, {best}:",
            self.changes.len()
        )];
        for (key, found) in found.iter().enumerate() {
            let states = |points: usize| {
                let mut changes = self.changes.iter().take(points).rev();
                changes
                    .find(|change| change.key.is_none_or(|changed| changed == key))
                    .map_or(&self.base[key], |change| &change.state)
            };
            if let Some(difference) = difference(states(best), found.as_ref(), now_secs) {
                let of_key = |change: &Change| change.key.is_none_or(|changed| changed == key);
                let like = (0..=self.changes.len())
                    .filter(|&point| point == 0 || of_key(&self.changes[point - 1]))
                    .filter(|&point| is_as_found(states(point), found.as_ref(), now_secs))
                    .map(|point| point.to_string())
                    .collect::<Vec<_>>();
                lines.push(format!(
                    "  {}: {difference} (like after changes [{}])",
                    name(key),
                    like.join(", ")
                ));
            }
        }
        lines.truncate(30);
        lines.join("\n")
    }
}

/// A place in a history of which nothing was forgotten: what each key holds after the first changes.
pub(super) struct Place {
    states: Vec<State>,
    changes: usize,
}

impl History {
    pub(super) fn keys(&self) -> usize {
        self.base.len()
    }

    pub(super) fn start(&self) -> Place {
        Place { states: self.base.clone(), changes: 0 }
    }

    /// Moves a place on, to behind so many changes.
    pub(super) fn advance(&self, place: &mut Place, changes: usize) {
        for change in self.changes.range(place.changes..changes.max(place.changes)) {
            match change.key {
                Some(key) => place.states[key].clone_from(&change.state),
                None => place.states.fill(None),
            }
        }
        place.changes = place.changes.max(changes);
    }

    /// Errors: at no place from this one to behind so many changes, every key is as it was found.
    pub(super) fn find(
        &self,
        place: &Place,
        changes: usize,
        found: &[Option<Found>],
        now_secs: f64,
        name: impl Fn(usize) -> String,
    ) -> Result<(), String> {
        let differs =
            |(state, found): (&State, &Option<Found>)| !is_as_found(state, found.as_ref(), now_secs);
        let mut wrong: Vec<bool> = place.states.iter().zip(found).map(differs).collect();
        if !wrong.contains(&true) {
            return Ok(());
        }
        let first_wrong = wrong.clone();
        for change in self.changes.range(place.changes..changes.max(place.changes)) {
            match change.key {
                Some(key) => wrong[key] = differs((&change.state, &found[key])),
                None => {
                    found.iter().zip(&mut wrong).for_each(|(found, wrong)| *wrong = differs((&None, found)))
                }
            }
            if !wrong.contains(&true) {
                return Ok(());
            }
        }
        let lines: Vec<String> = (0..found.len())
            .filter(|&key| first_wrong[key])
            .filter_map(|key| {
                let difference = difference(&place.states[key], found[key].as_ref(), now_secs)?;
                Some(format!("\n  {}: {difference}", name(key)))
            })
            .take(10)
            .collect();
        Err(format!(
            "no moment from change {} (acknowledged) to {changes} (sent) is as found; at the first:{}",
            place.changes,
            lines.concat()
        ))
    }
}

fn is_as_found(state: &State, found: Option<&Found>, now_secs: f64) -> bool {
    difference(state, found, now_secs).is_none()
}

/// What differs from what must be there.
pub(super) fn difference(state: &State, found: Option<&Found>, now_secs: f64) -> Option<String> {
    match (state, found) {
        (None, None) => None,
        (None, Some(found)) => Some(format!("there is a value {}", super::item::shown(&found.value))),
        (Some(item), None) if item.may_have_expired(now_secs) => None,
        (Some(item), None) => Some(format!("it is missing, a value {}", super::item::shown(&item.value))),
        (Some(item), Some(found)) => item.difference(found),
    }
}
