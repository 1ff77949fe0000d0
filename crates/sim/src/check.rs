//! Whether a reply is the one of a moment between its request and itself.

use std::sync::Arc;

use larder_client::codec::{ErrorKind, Mode, Outcome};

use crate::request::Op;
use crate::witness::{Cause, Item, Key, Place, Tick, Witness, describe};

/// An outcome that owns what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Found,
    Stored {
        version: Option<u64>,
    },
    NotStored,
    Exists,
    NotFound,
    Deleted,
    Touched,
    /// `None`: any.
    Number(Option<u64>),
    Ok,
    Error(ErrorKind),
}

/// A value of a reply.
pub(crate) struct Found {
    pub(crate) index: u32,
    pub(crate) value: Vec<u8>,
    pub(crate) client_flags: u32,
    pub(crate) version: Option<u64>,
    /// Of the meta protocol: those that say whether the item is stale, and who has the token.
    pub(crate) marks: Option<ShownMarks>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShownMarks {
    pub(crate) is_stale: bool,
    pub(crate) is_won: bool,
    pub(crate) is_held: bool,
}

/// The request of a connection that is answered, and when that may have happened.
pub(crate) struct Check<'w> {
    pub(crate) witness: &'w mut Witness,
    pub(crate) connection: u32,
    /// From here on.
    pub(crate) lo: Tick,
    /// Up to here.
    pub(crate) hi: Tick,
    /// The reply shows something: what it shows must stay.
    pub(crate) is_shown: bool,
    /// The disk had faults: the server may refuse.
    pub(crate) is_disk_faulty: bool,
    /// Keys of a list that have an error in place of a value. The reply does not say which.
    pub(crate) failed_keys: usize,
}

type Verdict = Result<Tick, String>;

impl Answer {
    pub(crate) fn of(outcome: &Outcome<'_>) -> Self {
        match *outcome {
            Outcome::Found { .. } => Self::Found,
            Outcome::Stored { cas } => Self::Stored { version: cas },
            Outcome::NotStored => Self::NotStored,
            Outcome::Exists => Self::Exists,
            Outcome::NotFound => Self::NotFound,
            Outcome::Deleted => Self::Deleted,
            Outcome::Touched => Self::Touched,
            Outcome::Number(number) => Self::Number(Some(number)),
            Outcome::Ok | Outcome::Version(_) | Outcome::LoggedIn => Self::Ok,
            Outcome::Error(error) => Self::Error(error.kind),
        }
    }
}

impl Check<'_> {
    /// Finds the earliest moment at which the reply fits. Errors: there is none.
    pub(crate) fn check(&mut self, op: &Op, answer: Answer, found: &[Found]) -> Verdict {
        if let Answer::Error(kind) = answer {
            return self.error(op, kind);
        }
        let verdict = match op {
            Op::Get { keys, exptime, vivify } => self.get(keys, *exptime, *vivify, found),
            Op::Store { mode, key, value, client_flags, exptime, compare } => {
                self.store(*mode, key, value, *client_flags, *exptime, *compare, answer)
            }
            Op::Delete { key, compare } => self.delete(key, *compare, answer),
            Op::Invalidate { key, exptime } => self.invalidate(key, *exptime, answer),
            Op::Arith { key, delta, decrement, initial } => {
                self.arith(key, *delta, *decrement, *initial, answer)
            }
            Op::Touch { key, exptime } => self.touch(key, *exptime, answer),
            Op::Flush { delay_secs } => self.flush(*delay_secs),
            Op::Noop => Ok(self.lo),
        };
        verdict.map_err(|wrong| format!("{answer:?} to {}: {wrong}", op_in_words(op)))
    }

    /// The same for a request whose success has no reply, and whose failure may have none.
    pub(crate) fn check_quiet(&mut self, op: &Op) -> Verdict {
        let success = match op {
            Op::Store { .. } => Answer::Stored { version: None },
            Op::Arith { .. } => Answer::Number(None),
            Op::Flush { .. } => Answer::Ok,
            _ => Answer::Deleted,
        };
        let wrong = match self.check(op, success, &[]) {
            Ok(tick) => return Ok(tick),
            Err(wrong) => wrong,
        };
        if self.is_disk_faulty {
            return Ok(self.lo);
        }
        let failures =
            [Answer::NotStored, Answer::Exists, Answer::NotFound, Answer::Error(ErrorKind::NonNumeric)];
        // Which of them it was nobody knows: the earliest leaves most room for what follows.
        let earliest = failures.into_iter().filter_map(|answer| self.check(op, answer, &[]).ok()).min();
        earliest.ok_or_else(|| format!("a request without a reply had no effect: {wrong}"))
    }

    fn get(&mut self, keys: &[Key], exptime: Option<i64>, vivify: Option<i64>, found: &[Found]) -> Verdict {
        let mut point = self.lo;
        // A key without a value may be one that failed, whose reply shows nothing.
        let shows_absence = self.is_shown && self.failed_keys == 0;
        for (index, key) in keys.iter().enumerate() {
            self.lo = point;
            point = match found.iter().find(|found| found.index as usize == index) {
                Some(found) => self.hit(key, exptime, vivify, found),
                None => {
                    let is_shown = std::mem::replace(&mut self.is_shown, shows_absence);
                    let verdict = self.absent(key);
                    self.is_shown = is_shown;
                    match verdict {
                        Err(_) if self.failed_keys > 0 => {
                            self.failed_keys -= 1;
                            Ok(self.lo)
                        }
                        verdict => verdict,
                    }
                }
            }
            .map_err(|wrong| format!("{}: {wrong}", key.escape_ascii()))?;
        }
        Ok(point)
    }

    fn hit(&mut self, key: &[u8], exptime: Option<i64>, vivify: Option<i64>, found: &Found) -> Verdict {
        if let Some(version) = found.version {
            self.witness.note_version(key, version);
        }
        let marks = found.marks.unwrap_or_default();
        let fits = |item: &Item| {
            *item.value == found.value[..]
                && item.client_flags == found.client_flags
                && found.version.is_none_or(|version| version == item.version)
                && found.marks.is_none_or(|marks| marks.is_stale == item.is_stale)
                && found.marks.is_none_or(|marks| marks.is_won || marks.is_held == item.is_token_held)
        };
        let mut point = None;
        if let Some(exptime) = exptime
            && let Some(number) = self.unclaimed(key)
        {
            let claimed = self.claim(key, number, |check, before, after, tick| {
                let before = before.ok_or("there was nothing to touch")?;
                let touched = Item { expires_at: after.and_then(|after| after.expires_at), ..before.clone() };
                if !fits(before) || after != Some(&touched) || !check.expires(&touched, exptime, tick) {
                    return Err("the touch did something else");
                }
                Ok(())
            });
            point = Some(claimed?);
        }
        if marks.is_won {
            let number = self.unclaimed(key).ok_or_else(|| format!("nobody gave the token: {marks:?}"))?;
            if let Some(point) = point.filter(|_| self.witness.gives_token(key, number)) {
                self.witness.set_cause(key, number, Cause::Claimed);
                return Ok(point);
            }
            return self.claim(key, number, |check, before, after, tick| {
                let after = after.filter(|after| after.is_token_held).ok_or("the token was not given")?;
                match (before, vivify) {
                    (Some(before), _) => {
                        let given = Item { is_token_held: true, ..before.clone() };
                        let is_given = fits(before) && before.is_stale && *after == given;
                        if is_given { Ok(()) } else { Err("something else was changed") }
                    }
                    (None, Some(exptime)) => {
                        let is_made =
                            fits(after) && after.value.is_empty() && check.expires(after, exptime, tick);
                        if is_made { Ok(()) } else { Err("something else was made") }
                    }
                    (None, None) => Err("there was nothing"),
                }
            });
        }
        if let Some(tick) = point {
            return Ok(tick);
        }
        self.moment(key, |item| item.is_some_and(|item| fits(item) && exptime.is_none())).ok_or_else(|| {
            let head = &found.value[..found.value.len().min(24)];
            let shown = format!("\"{}\" version {:?} {marks:?}", head.escape_ascii(), found.version);
            format!("{shown} was shown, but it was {}", self.course(key))
        })
    }

    fn absent(&mut self, key: &[u8]) -> Verdict {
        self.moment(key, |item| item.is_none())
            .ok_or_else(|| format!("a miss was shown, but it was {}", self.course(key)))
    }

    fn present(&mut self, key: &[u8], fits: impl Fn(&Item) -> bool) -> Verdict {
        self.moment(key, |item| item.is_some_and(&fits))
            .ok_or_else(|| format!("no item of that kind was there, it was {}", self.course(key)))
    }

    #[allow(clippy::too_many_arguments)] // Those of a store.
    fn store(
        &mut self,
        mode: Mode,
        key: &[u8],
        value: &[u8],
        client_flags: u32,
        exptime: i64,
        compare: Option<u64>,
        answer: Answer,
    ) -> Verdict {
        let Answer::Stored { version } = answer else {
            return match (answer, mode) {
                (Answer::NotStored, Mode::Add) => self.present(key, |_| true),
                (Answer::NotStored, _) if compare.is_none() && mode != Mode::Set => self.absent(key),
                // Binary: the status says why.
                (Answer::Exists, Mode::Add) => self.present(key, |_| true),
                (Answer::Exists, _) => {
                    let compare = compare.ok_or("it compares nothing")?;
                    self.present(key, |item| item.version != compare)
                }
                (Answer::NotFound, mode) if compare.is_some() || mode != Mode::Set => self.absent(key),
                _ => Err("no such reply to that".to_owned()),
            };
        };
        if let Some(version) = version {
            self.witness.note_version(key, version);
        }
        let number = self.unclaimed(key).ok_or_else(|| format!("it did nothing: {}", self.course(key)))?;
        self.claim(key, number, |check, before, after, tick| {
            let after = after.ok_or("it deleted the item")?;
            if version.is_some_and(|version| version != after.version) {
                return Err("it has another version");
            }
            if after.is_stale || after.is_token_held {
                return Err("it has marks");
            }
            let wanted: Arc<[u8]> = match (mode, before) {
                (Mode::Add, Some(_)) => return Err("it was there before"),
                (Mode::Replace | Mode::Append | Mode::Prepend, None) => {
                    return Err("it was not there before");
                }
                (Mode::Append, Some(before)) => [&before.value, value].concat().into(),
                (Mode::Prepend, Some(before)) => [value, &before.value].concat().into(),
                _ => value.into(),
            };
            if after.value != wanted {
                return Err("it has another value");
            }
            if let Some(compare) = compare
                && before.is_none_or(|before| before.version != compare)
            {
                return Err("it replaced another version");
            }
            match before.filter(|_| matches!(mode, Mode::Append | Mode::Prepend)) {
                Some(before) => {
                    let is_kept =
                        (before.client_flags, before.expires_at) == (after.client_flags, after.expires_at);
                    if is_kept { Ok(()) } else { Err("flags or expiry changed") }
                }
                None if after.client_flags != client_flags => Err("it has other flags"),
                None if !check.expires(after, exptime, tick) => Err("it expires at another time"),
                None => Ok(()),
            }
        })
    }

    fn delete(&mut self, key: &[u8], compare: Option<u64>, answer: Answer) -> Verdict {
        match answer {
            Answer::Deleted => {
                let number = self
                    .unclaimed_removal(key)
                    .ok_or_else(|| format!("it did nothing: {}", self.course(key)))?;
                self.claim(key, number, |_, before, after, _| {
                    let before = before.ok_or("there was nothing")?;
                    if after.is_some() {
                        return Err("it is there still");
                    }
                    let is_it = compare.is_none_or(|compare| compare == before.version);
                    if is_it { Ok(()) } else { Err("it deleted another version") }
                })
            }
            Answer::NotFound => self.absent(key),
            Answer::Exists => {
                let compare = compare.ok_or("it compares nothing")?;
                self.present(key, |item| item.version != compare)
            }
            _ => Err("no such reply to that".to_owned()),
        }
    }

    fn invalidate(&mut self, key: &[u8], exptime: Option<i64>, answer: Answer) -> Verdict {
        match answer {
            Answer::Deleted => {
                let number =
                    self.unclaimed(key).ok_or_else(|| format!("it did nothing: {}", self.course(key)))?;
                self.claim(key, number, |check, before, after, tick| {
                    let (before, after) = before.zip(after).ok_or("there was nothing to mark")?;
                    let marked = Item {
                        is_stale: true,
                        is_token_held: false,
                        version: after.version,
                        expires_at: exptime.map_or(before.expires_at, |_| after.expires_at),
                        ..before.clone()
                    };
                    if *after != marked || after.version <= before.version {
                        return Err("something else was changed");
                    }
                    let is_due = exptime.is_none_or(|exptime| check.expires(after, exptime, tick));
                    if is_due { Ok(()) } else { Err("it expires at another time") }
                })
            }
            Answer::NotFound => self.absent(key),
            _ => Err("no such reply to that".to_owned()),
        }
    }

    fn arith(
        &mut self,
        key: &[u8],
        delta: u64,
        decrement: bool,
        initial: Option<(u64, i64)>,
        answer: Answer,
    ) -> Verdict {
        match answer {
            Answer::Number(shown) => {
                let number =
                    self.unclaimed(key).ok_or_else(|| format!("it did nothing: {}", self.course(key)))?;
                self.claim(key, number, |check, before, after, tick| {
                    let after = after.ok_or("it was deleted")?;
                    let (result, is_expected) = match (before, initial) {
                        (None, None) => return Err("there was nothing"),
                        (None, Some((initial, exptime))) => {
                            let is_made = *after.value == *initial.to_string().as_bytes()
                                && after.client_flags == 0
                                && check.expires(after, exptime, tick);
                            (initial, is_made)
                        }
                        (Some(before), _) => {
                            let number = number_of(&before.value).ok_or("it was no number")?;
                            let result = if decrement {
                                number.saturating_sub(delta)
                            } else {
                                number.wrapping_add(delta)
                            };
                            let mut text = result.to_string().into_bytes();
                            // A number written over the old one leaves the item as it was.
                            let is_kept = text.len() <= before.value.len();
                            text.resize(text.len().max(before.value.len()), b' ');
                            let counted = Item {
                                value: text.into(),
                                version: after.version,
                                is_stale: before.is_stale && is_kept,
                                is_token_held: before.is_token_held && is_kept,
                                ..before.clone()
                            };
                            (result, *after == counted && after.version > before.version)
                        }
                    };
                    if shown.is_some_and(|shown| shown != result) {
                        return Err("another number was shown");
                    }
                    if is_expected { Ok(()) } else { Err("something else was changed") }
                })
            }
            Answer::NotFound => self.absent(key),
            _ => Err("no such reply to that".to_owned()),
        }
    }

    fn touch(&mut self, key: &[u8], exptime: i64, answer: Answer) -> Verdict {
        match answer {
            Answer::NotFound => self.absent(key),
            Answer::Touched => {
                let number =
                    self.unclaimed(key).ok_or_else(|| format!("it did nothing: {}", self.course(key)))?;
                let tick = self.claim(key, number, |check, before, after, tick| {
                    let before = before.ok_or("there was nothing to touch")?;
                    let touched =
                        Item { expires_at: after.and_then(|after| after.expires_at), ..before.clone() };
                    let is_touched = after == Some(&touched) && check.expires(&touched, exptime, tick);
                    if is_touched { Ok(()) } else { Err("the touch did something else") }
                })?;
                // `mg` takes the token of a stale item in the same moment, also of one that it has made expire.
                let at_once = self.witness.find(key, Cause::Request(self.connection), tick + 1, tick + 1);
                if let Some(number) = at_once.filter(|number| self.witness.gives_token(key, *number)) {
                    self.witness.set_cause(key, number, Cause::Claimed);
                }
                self.lo = tick;
                Ok(self.lo)
            }
            _ => Err("no such reply to that".to_owned()),
        }
    }

    fn flush(&mut self, delay_secs: u32) -> Verdict {
        let seconds: Vec<i64> =
            self.witness.flushes.iter().map(|flush| self.witness.second_at(flush.tick)).collect();
        let (connection, lo, hi) = (self.connection, self.lo, self.hi);
        let flush = self.witness.flushes.iter_mut().zip(seconds).find(|(flush, second)| {
            let due = (delay_secs != 0).then(|| Some(second + i64::from(delay_secs)));
            flush.cause == Cause::Request(connection) && (lo..=hi).contains(&flush.tick) && flush.due == due
        });
        let Some((flush, _)) = flush else { return Err("nothing was flushed".to_owned()) };
        flush.cause = Cause::Claimed;
        let (tick, place) = (flush.tick, flush.place);
        self.show(place);
        Ok(tick)
    }

    /// The server refused: whatever it did, it is not told.
    fn error(&mut self, op: &Op, kind: ErrorKind) -> Verdict {
        // The change of a request that failed may have been made, and lost.
        for key in op.keys() {
            if let Some(number) = self.unclaimed(key)
                && self.witness.transition(key, number).1.is_lost
            {
                self.witness.set_cause(key, number, Cause::Claimed);
            }
        }
        match (kind, op) {
            (ErrorKind::NonNumeric, Op::Arith { key, .. }) => {
                self.present(key, |item| number_of(&item.value).is_none())
            }
            // A store that gets no memory may remove what it was to replace.
            (ErrorKind::OutOfMemory | ErrorKind::TooLarge, Op::Store { key, .. }) => {
                if let Some(number) = self.unclaimed(key)
                    && self.witness.transition(key, number).1.item.is_none()
                {
                    self.witness.set_cause(key, number, Cause::Failed(self.connection));
                }
                Ok(self.lo)
            }
            (ErrorKind::OutOfMemory, _) => Ok(self.lo),
            (ErrorKind::Server, _) if self.is_disk_faulty => Ok(self.lo),
            _ => Err(format!("{kind:?} to {}", op_in_words(op))),
        }
    }

    /// The first change of this connection that no request was found for yet.
    fn unclaimed(&self, key: &[u8]) -> Option<usize> {
        self.witness.find(key, Cause::Request(self.connection), self.lo, self.hi)
    }

    /// The same for a removal, which may have been taken for that of a store that failed.
    fn unclaimed_removal(&self, key: &[u8]) -> Option<usize> {
        let number = self.unclaimed(key);
        let is_removal = |number: &usize| self.witness.transition(key, *number).1.item.is_none();
        let of_failed = || self.witness.find(key, Cause::Failed(self.connection), self.lo, self.hi);
        number.filter(is_removal).or_else(of_failed).or(number)
    }

    /// Takes a change for this request, if it is what the request asked for.
    fn claim(
        &mut self,
        key: &[u8],
        number: usize,
        fits: impl FnOnce(&Self, Option<&Item>, Option<&Item>, Tick) -> Result<(), &'static str>,
    ) -> Verdict {
        let (before, state) = self.witness.transition(key, number);
        let (tick, place) = (state.from, state.place);
        fits(self, before, state.item.as_ref(), tick).map_err(|wrong| {
            let (before, after) = (describe(before), describe(state.item.as_ref()));
            format!("{wrong}: {before} became {after} (change {place})")
        })?;
        if self.is_shown && state.is_lost {
            return Err(format!("it was acknowledged, and change {place} is lost"));
        }
        self.witness.set_cause(key, number, Cause::Claimed);
        self.show(place);
        Ok(tick)
    }

    /// The first moment at which a key looks like this.
    fn moment(&mut self, key: &[u8], fits: impl Fn(Option<&Item>) -> bool) -> Option<Tick> {
        let moments = self.witness.moments(key, self.lo, self.hi);
        // What is lost must not be shown, if that is promised.
        let fitting = moments.into_iter().filter_map(|tick| {
            let (item, state) = self.witness.look(key, tick);
            let is_lost = self.is_shown && state.is_some_and(|state| state.is_lost);
            (!is_lost && fits(item)).then(|| (tick, state.map_or(0, |state| state.place)))
        });
        let fitting: Vec<(Tick, Place)> = fitting.collect();
        let place = fitting.iter().map(|(_, place)| *place).min()?;
        self.show(place);
        fitting.first().map(|(tick, _)| *tick)
    }

    fn show(&mut self, place: Place) {
        if self.is_shown && place > self.witness.shown {
            self.witness.shown = place;
            self.witness.note(|| format!("change {place} was shown"));
        }
    }

    /// True if an item that was made at this tick expires when the client wished.
    fn expires(&self, item: &Item, exptime: i64, tick: Tick) -> bool {
        let second = self.witness.second_at(tick);
        match exptime {
            0 => item.expires_at.is_none(),
            ..0 => item.is_past(second),
            1..=RELATIVE_SECS_MAX => item.expires_at == Some(second + exptime),
            _ => item.expires_at == Some(exptime),
        }
    }

    /// What a key was in this range.
    fn course(&self, key: &[u8]) -> String {
        let moments = self.witness.moments(key, self.lo, self.hi);
        let states: Vec<String> =
            moments.into_iter().map(|tick| describe(self.witness.look(key, tick).0)).collect();
        states.join(", then ")
    }
}

/// As incr and decr see it: digits, then nothing or a space.
fn number_of(value: &[u8]) -> Option<u64> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_end = value.get(digits).is_none_or(|byte| *byte == b' ');
    std::str::from_utf8(&value[..digits]).ok()?.parse().ok().filter(|_| is_end)
}

pub(crate) fn op_in_words(op: &Op) -> String {
    match op {
        Op::Store { mode, key, value, client_flags, exptime, compare } => {
            let head = value[..value.len().min(12)].escape_ascii();
            let compare = compare.map_or_else(String::new, |compare| format!(" compare {compare}"));
            let key = key.escape_ascii();
            format!(
                "{mode:?} {key} \"{head}\" ({} bytes) flags {client_flags} exptime {exptime}{compare}",
                value.len()
            )
        }
        Op::Get { keys, exptime, vivify } => {
            let keys: Vec<String> = keys.iter().map(|key| key.escape_ascii().to_string()).collect();
            format!("Get {} exptime {exptime:?} vivify {vivify:?}", keys.join(" "))
        }
        Op::Delete { key, compare } => format!("Delete {} compare {compare:?}", key.escape_ascii()),
        Op::Invalidate { key, exptime } => format!("Invalidate {} exptime {exptime:?}", key.escape_ascii()),
        Op::Arith { key, delta, decrement, initial } => {
            let sign = if *decrement { '-' } else { '+' };
            format!("Arith {} {sign}{delta} initial {initial:?}", key.escape_ascii())
        }
        Op::Touch { key, exptime } => format!("Touch {} exptime {exptime}", key.escape_ascii()),
        Op::Flush { delay_secs } => format!("Flush in {delay_secs} s"),
        Op::Noop => "Noop".to_owned(),
    }
}

/// The longest exptime that counts from now: 30 days.
const RELATIVE_SECS_MAX: i64 = 60 * 60 * 24 * 30;
