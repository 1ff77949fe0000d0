//! What became of each key: the changes in the order in which the engine made them.
//!
//! Time is counted in *ticks*: each event (a change, a request sent, a reply received, a second that begins) has its
//! own. So "between the request and its reply" is a range of ticks, and at each tick a key has one state.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A moment.
pub(crate) type Tick = u64;
/// A place in the order of changes of all runs of the server, one after the other.
pub(crate) type Place = u64;
pub(crate) type Key = Arc<[u8]>;

/// An item.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) value: Arc<[u8]>,
    pub(crate) client_flags: u32,
    /// Unix time; `None`: never.
    pub(crate) expires_at: Option<i64>,
    pub(crate) version: u64,
    pub(crate) is_stale: bool,
    pub(crate) is_token_held: bool,
}

/// Who made a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A request of this connection, which no reply was found for yet.
    Request(u32),
    /// The same, once the request is known.
    Claimed,
    /// A removal by a store of this connection that failed, or by a deletion behind it.
    Failed(u32),
    /// A flush, a loss, or a restart.
    Other,
}

/// What a key has from some tick on.
pub(crate) struct State {
    pub(crate) from: Tick,
    pub(crate) place: Place,
    pub(crate) item: Option<Item>,
    pub(crate) cause: Cause,
    /// It was lost: it survives no crash.
    pub(crate) is_lost: bool,
}

/// The states of a key, in order; at first it is absent.
pub(crate) struct History {
    pub(crate) states: Vec<State>,
    /// The highest version that it had.
    version_max: u64,
    /// The highest that was in a reply.
    version_shown: u64,
}

/// A flush, or the note that one is due later.
pub(crate) struct Flush {
    pub(crate) tick: Tick,
    pub(crate) place: Place,
    /// `Some(Some(second))`: due at this Unix time. `Some(None)`: none is due any more. `None`: now.
    pub(crate) due: Option<Option<i64>>,
    pub(crate) cause: Cause,
    is_lost: bool,
}

/// All that happened.
pub(crate) struct Witness {
    pub(crate) histories: BTreeMap<Key, History>,
    pub(crate) flushes: Vec<Flush>,
    tick: Tick,
    /// Unix time from some tick on, as the server has it.
    seconds: Vec<(Tick, i64)>,
    /// The connection whose requests are executed now.
    pub(crate) actor: Option<u32>,
    /// What the places of this run of the server count from.
    base: Place,
    /// The last place given.
    pub(crate) last_place: Place,
    /// The highest place of what anybody was shown, if nothing shown may be lost.
    pub(crate) shown: Place,
    /// When a flush is due, as far as the server has been told.
    pub(crate) flush_due: Option<i64>,
    /// The first thing that is wrong by itself.
    pub(crate) wrong: Option<String>,
    /// For a trace: what happened since it was taken last.
    pub(crate) notes: Option<Vec<String>>,
}

impl Witness {
    pub(crate) fn new() -> Self {
        Self {
            histories: BTreeMap::new(),
            flushes: Vec::new(),
            tick: 0,
            seconds: vec![(0, 0)],
            actor: None,
            base: 0,
            last_place: 0,
            shown: 0,
            flush_due: None,
            wrong: None,
            notes: None,
        }
    }

    /// A tick of its own.
    pub(crate) fn next_tick(&mut self) -> Tick {
        self.tick += 1;
        self.tick
    }

    /// The server's clock shows this Unix time from now on.
    pub(crate) fn set_second(&mut self, second: i64) {
        if self.seconds.last().is_none_or(|(_, last)| *last != second) {
            let tick = self.next_tick();
            self.seconds.push((tick, second));
        }
    }

    /// The Unix time at a tick.
    pub(crate) fn second_at(&self, tick: Tick) -> i64 {
        let after = self.seconds.partition_point(|(from, _)| *from <= tick);
        self.seconds[after.saturating_sub(1)].1
    }

    pub(crate) fn second(&self) -> i64 {
        self.second_at(self.tick)
    }

    /// A change that the engine has made, at this position of the journal.
    pub(crate) fn on_change(&mut self, key: &[u8], position: u64, item: Option<Item>) {
        let place = self.place(position);
        let cause = self.cause();
        let tick = self.next_tick();
        self.note(|| format!("change {place}: {} is {}", key.escape_ascii(), describe(item.as_ref())));
        let history = history(&mut self.histories, key);
        if let Some(item) = &item {
            let last = history.states.last().and_then(|state| state.item.as_ref());
            let is_kept = last.is_some_and(|last| last.version == item.version && last.value == item.value);
            if !is_kept && item.version <= history.version_max {
                let max = history.version_max;
                self.wrong.get_or_insert_with(|| {
                    format!("{} has version {}, and had {max} before", key.escape_ascii(), item.version)
                });
            }
            history.version_max = history.version_max.max(item.version);
        }
        history.states.push(State { from: tick, place, item, cause, is_lost: false });
    }

    pub(crate) fn on_flush(&mut self, position: u64) {
        let place = self.place(position);
        let cause = self.cause();
        let tick = self.next_tick();
        self.note(|| format!("change {place}: all is flushed"));
        for history in self.histories.values_mut() {
            if history.item().is_some() {
                let state = State { from: tick, place, item: None, cause: Cause::Other, is_lost: false };
                history.states.push(state);
            }
        }
        self.flush_due = None;
        self.flushes.push(Flush { tick, place, due: None, cause, is_lost: false });
    }

    pub(crate) fn on_schedule(&mut self, position: u64, due: Option<i64>) {
        let place = self.place(position);
        let cause = self.cause();
        let tick = self.next_tick();
        self.note(|| format!("change {place}: a flush is due at {due:?}"));
        self.flush_due = due;
        self.flushes.push(Flush { tick, place, due: Some(due), cause, is_lost: false });
    }

    /// The journal has lost the changes of this key behind `applied`: the key has what the store has.
    pub(crate) fn on_lost(&mut self, key: &[u8], applied: Place, kept: Option<&Item>, is_promised: bool) {
        let tick = self.next_tick();
        let shown = self.shown;
        self.note(|| format!("a change of {} is lost: it is {}", key.escape_ascii(), describe(kept)));
        let history = history(&mut self.histories, key);
        let is_kept = |state: &State| !state.is_lost && state.place <= applied && state.item.as_ref() == kept;
        let Some(at) = history.states.iter().rposition(is_kept) else {
            self.wrong.get_or_insert_with(|| {
                format!("the store has of {} what was never written", key.escape_ascii())
            });
            return;
        };
        let place = history.states[at].place;
        let lost = &mut history.states[at + 1..];
        if is_promised && lost.iter().any(|state| !state.is_lost && state.place <= shown) {
            self.wrong.get_or_insert_with(|| format!("{} was shown, and is lost", key.escape_ascii()));
        }
        lost.iter_mut().for_each(|state| state.is_lost = true);
        history.push_kept(tick, place, kept.cloned());
    }

    /// The store has made the first removal of this key behind `applied` that counted as lost, although a change before
    /// it was lost.
    pub(crate) fn on_kept_removal(&mut self, key: &[u8], applied: Place) {
        let tick = self.next_tick();
        let history = history(&mut self.histories, key);
        let is_it = |state: &&mut State| state.is_lost && state.place > applied && state.item.is_none();
        if let Some(kept) = history.states.iter_mut().find(is_it) {
            kept.is_lost = false;
        }
        let place = history.states.iter().map(|state| state.place).max().unwrap_or_default();
        history.push_kept(tick, place, None);
    }

    /// The store has made a flush, although a change before it was lost, and has these items now.
    pub(crate) fn on_kept_flush(&mut self, applied: Place, store: &BTreeMap<Key, Item>) {
        let keys: Vec<Key> = self.histories.keys().filter(|key| !store.contains_key(*key)).cloned().collect();
        keys.iter().for_each(|key| self.on_kept_removal(key, applied));
    }

    /// The journal has lost a flush, or the note that one is due; the store has all up to `applied`.
    pub(crate) fn on_lost_flush(
        &mut self,
        due: Option<Option<i64>>,
        applied: Place,
        store: &BTreeMap<Key, Item>,
        is_promised: bool,
    ) {
        let is_it = |flush: &&mut Flush| !flush.is_lost && flush.place > applied && flush.due == due;
        if let Some(flush) = self.flushes.iter_mut().find(is_it) {
            flush.is_lost = true;
        }
        if due.is_none() {
            let keys: Vec<Key> = self.histories.keys().cloned().collect();
            for key in keys {
                self.on_lost(&key, applied, store.get(&key), is_promised);
            }
        }
    }

    /// The server has started again, over a store with these items and this delayed flush. All up to `required` must be
    /// there. `are_versions_kept`: a version that was shown does not come again, also of an item that is lost. Errors:
    /// what is wrong.
    pub(crate) fn on_restart(
        &mut self,
        store: &BTreeMap<Key, Item>,
        flush_due: Option<i64>,
        required: Place,
        are_versions_kept: bool,
    ) -> Result<(), String> {
        for key in store.keys() {
            history(&mut self.histories, key);
        }
        let kept = self.find_prefix(store, flush_due)?;
        if kept < required {
            let lost = self.histories.iter().find_map(|(key, history)| {
                let lost = |state: &&State| !state.is_lost && state.place > kept && state.place <= required;
                let state = history.states.iter().find(lost)?;
                Some(format!("{} is not {}", key.escape_ascii(), describe(state.item.as_ref())))
            });
            return Err(format!(
                "after the restart all changes up to {kept} are there, not up to {required}: {}",
                lost.unwrap_or_else(|| "a flush is lost".to_owned())
            ));
        }
        let tick = self.next_tick();
        for (key, history) in &mut self.histories {
            let item = store.get(key);
            // Of what need not be there nobody knows whether it was before it was replaced.
            history.states.iter_mut().for_each(|state| state.is_lost |= state.place > required);
            let is_changed =
                history.states.last().is_none_or(|state| state.is_lost || state.item.as_ref() != item);
            if !are_versions_kept {
                history.version_shown = 0;
            }
            if is_changed {
                history.push_kept(tick, kept, item.cloned());
            }
            history.forget_lost_versions(required);
        }
        self.flushes.iter_mut().for_each(|flush| flush.is_lost |= flush.place > kept);
        self.flush_due = flush_due;
        self.base = self.last_place;
        self.shown = self.shown.min(kept);
        Ok(())
    }

    /// The highest place such that the store has all up to it, and nothing after it.
    fn find_prefix(&self, store: &BTreeMap<Key, Item>, flush_due: Option<i64>) -> Result<Place, String> {
        let mut places: Vec<Place> = vec![0, self.last_place];
        for history in self.histories.values() {
            places.extend(history.states.iter().filter(|state| !state.is_lost).map(|state| state.place));
        }
        places.extend(self.flushes.iter().filter(|flush| !flush.is_lost).map(|flush| flush.place));
        places.sort_unstable();
        places.dedup();
        let mut first_wrong: Option<(usize, Place, String)> = None;
        // What was lost before is nowhere: a prefix reaches up to the next change that was not.
        let mut end = self.last_place;
        for place in places.into_iter().rev() {
            match self.compare(store, flush_due, place) {
                Ok(()) => return Ok(end),
                Err(wrong) => {
                    // The one of the place that explains most.
                    let is_better = first_wrong.as_ref().is_none_or(|(count, ..)| wrong.0 < *count);
                    if is_better {
                        first_wrong = Some((wrong.0, place, wrong.1));
                    }
                }
            }
            end = place.saturating_sub(1);
        }
        let (_, place, wrong) = first_wrong.unwrap_or_default();
        Err(format!("the store has no prefix of the changes; up to {place}, but {wrong}"))
    }

    fn compare(
        &self,
        store: &BTreeMap<Key, Item>,
        flush_due: Option<i64>,
        place: Place,
    ) -> Result<(), (usize, String)> {
        let mut wrong: Option<(usize, String)> = None;
        let mut note = |what: String| match &mut wrong {
            None => wrong = Some((1, what)),
            Some((count, _)) => *count += 1,
        };
        let mut due = None;
        for flush in self.flushes.iter().filter(|flush| !flush.is_lost && flush.place <= place) {
            due = flush.due.flatten();
        }
        if due != flush_due {
            note(format!("a flush is due at {flush_due:?}, not {due:?}"));
        }
        for (key, history) in &self.histories {
            let at = history.states.iter().rfind(|state| !state.is_lost && state.place <= place);
            let expected = at.and_then(|state| state.item.as_ref());
            let found = store.get(key);
            if expected != found {
                note(format!("{} is {}, not {}", key.escape_ascii(), describe(found), describe(expected)));
            }
        }
        wrong.map_or(Ok(()), Err)
    }

    /// The ticks in a range at which a key may begin to look different, the first of the range included.
    pub(crate) fn moments(&self, key: &[u8], lo: Tick, hi: Tick) -> Vec<Tick> {
        let mut moments = vec![lo];
        if let Some(history) = self.histories.get(key) {
            let from = history.states.partition_point(|state| state.from <= lo);
            moments
                .extend(history.states[from..].iter().map(|state| state.from).take_while(|tick| *tick <= hi));
        }
        let from = self.seconds.partition_point(|(tick, _)| *tick <= lo);
        moments.extend(self.seconds[from..].iter().map(|(tick, _)| *tick).take_while(|tick| *tick <= hi));
        moments.sort_unstable();
        moments
    }

    /// What a key has at a tick, and the state that says so; `None`: nobody has ever changed it.
    pub(crate) fn look(&self, key: &[u8], tick: Tick) -> (Option<&Item>, Option<&State>) {
        let Some(history) = self.histories.get(key) else { return (None, None) };
        let after = history.states.partition_point(|state| state.from <= tick);
        let state = &history.states[after - 1];
        (state.item.as_ref().filter(|item| !item.is_past(self.second_at(tick))), Some(state))
    }

    /// The version of a key is in a reply.
    pub(crate) fn note_version(&mut self, key: &[u8], version: u64) {
        let history = history(&mut self.histories, key);
        history.version_shown = history.version_shown.max(version);
    }

    /// What a key has now.
    pub(crate) fn look_now(&self, key: &[u8]) -> Option<&Item> {
        self.look(key, self.tick).0
    }

    /// The first change of a key with this cause in a range: its number.
    pub(crate) fn find(&self, key: &[u8], cause: Cause, lo: Tick, hi: Tick) -> Option<usize> {
        let history = self.histories.get(key)?;
        let from = history.states.partition_point(|state| state.from < lo);
        let is_its = |state: &State| state.cause == cause && state.from <= hi;
        history.states[from..].iter().position(is_its).map(|at| from + at)
    }

    /// A change, and what was there right before it.
    pub(crate) fn transition(&self, key: &[u8], number: usize) -> (Option<&Item>, &State) {
        let states = &self.histories[key].states;
        let (before, state) = (&states[number - 1], &states[number]);
        (before.item.as_ref().filter(|item| !item.is_past(self.second_at(state.from))), state)
    }

    /// True if a change does no more than to give the token of a stale item, which may have expired.
    pub(crate) fn gives_token(&self, key: &[u8], number: usize) -> bool {
        let states = &self.histories[key].states;
        let Some((before, after)) = states[number - 1].item.as_ref().zip(states[number].item.as_ref()) else {
            return false;
        };
        before.is_stale && !before.is_token_held && *after == Item { is_token_held: true, ..before.clone() }
    }

    pub(crate) fn set_cause(&mut self, key: &[u8], number: usize, cause: Cause) {
        if let Some(history) = self.histories.get_mut(key) {
            history.states[number].cause = cause;
        }
    }

    /// The requests of this connection will not be answered any more: its changes need no reply.
    pub(crate) fn forget(&mut self, connection: u32) {
        for history in self.histories.values_mut() {
            let of_it =
                history.states.iter_mut().rev().filter(|state| state.cause == Cause::Request(connection));
            of_it.for_each(|state| state.cause = Cause::Other);
        }
        let of_it = self.flushes.iter_mut().filter(|flush| flush.cause == Cause::Request(connection));
        of_it.for_each(|flush| flush.cause = Cause::Other);
    }

    /// A change that no request explains.
    pub(crate) fn unexplained(&self) -> Option<String> {
        self.histories.iter().find_map(|(key, history)| {
            let state = history
                .states
                .iter()
                .find(|state| matches!(state.cause, Cause::Request(_)) && !state.is_lost)?;
            let what = describe(state.item.as_ref());
            Some(format!("nobody has made {} {what} (change {})", key.escape_ascii(), state.place))
        })
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(notes) = &mut self.notes {
            notes.push(what());
        }
    }

    fn place(&mut self, position: u64) -> Place {
        let place = self.base + position;
        self.last_place = self.last_place.max(place);
        place
    }

    /// The place of a position of this run's journal.
    pub(crate) fn place_of(&self, position: u64) -> Place {
        self.base + position
    }

    fn cause(&self) -> Cause {
        self.actor.map_or(Cause::Other, Cause::Request)
    }
}

impl History {
    fn item(&self) -> Option<&Item> {
        self.states.last().and_then(|state| state.item.as_ref())
    }

    fn push_kept(&mut self, from: Tick, place: Place, item: Option<Item>) {
        self.states.push(State { from, place, item, cause: Cause::Other, is_lost: false });
    }

    /// After a loss: versions that nobody has seen may come again, but for those up to this place.
    fn forget_lost_versions(&mut self, kept: Place) {
        let last = self.states.len() - 1;
        let is_kept = |at: usize, state: &State| !state.is_lost && (state.place <= kept || at == last);
        let kept =
            self.states.iter().enumerate().filter(|(at, state)| is_kept(*at, state)).map(|(_, state)| state);
        let versions = kept.filter_map(|state| Some(state.item.as_ref()?.version));
        self.version_max = versions.fold(self.version_shown, u64::max);
    }
}

impl Item {
    pub(crate) fn is_past(&self, second: i64) -> bool {
        self.expires_at.is_some_and(|at| at <= second)
    }
}

fn history<'w>(histories: &'w mut BTreeMap<Key, History>, key: &[u8]) -> &'w mut History {
    histories.entry(key.into()).or_insert_with(|| {
        let absent = State { from: 0, place: 0, item: None, cause: Cause::Other, is_lost: false };
        History { states: vec![absent], version_max: 0, version_shown: 0 }
    })
}

/// In a few words.
pub(crate) fn describe(item: Option<&Item>) -> String {
    let Some(item) = item else { return "absent".to_owned() };
    let head = &item.value[..item.value.len().min(24)];
    let mut text = format!("\"{}\"", head.escape_ascii());
    if item.value.len() > head.len() {
        text += &format!(".. of {} bytes", item.value.len());
    }
    text += &format!(" flags {} version {}", item.client_flags, item.version);
    if let Some(at) = item.expires_at {
        text += &format!(" until {at}");
    }
    if item.is_stale {
        text += " stale";
    }
    if item.is_token_held {
        text += " token";
    }
    text
}
