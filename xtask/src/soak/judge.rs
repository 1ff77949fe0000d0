//! What every reply may be, given what is known of its key.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Instant;

use larder_conformance::Result;

use super::client::{
    Answer, Client, Count, How, Invalidate, NUMBERS, Silence, Step, Stub, count, shared_name,
};
use super::model::{self, Held, Life};
use super::wire::Wire;

impl Client<'_> {
    pub(super) fn judge(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Get { keys, with_cas, touch } => self.judge_get(&keys, with_cas, touch),
            Step::MetaGet { key, opaque, touch, vivify, quiet } => {
                self.judge_meta_get(key, opaque, touch, vivify, quiet)
            }
            Step::Debug { key } => {
                self.judged = self.name(key);
                let line = self.wire.line()?;
                let is_shown = line.starts_with(&format!("ME {} ", self.judged));
                match line.as_str() {
                    line if self.lacked_memory(line) => {}
                    "EN" => self.entries[key].held = None,
                    _ if is_shown && self.entries[key].held.is_some() => {}
                    _ => return Err(unexpected(&line)),
                }
                Ok(())
            }
            Step::Store { key, how, new, life, silence } => self.judge_store(key, how, new, life, silence),
            Step::Delete { key, silence } => {
                self.judged = self.name(key);
                let is_held = self.entries[key].held.is_some();
                match (self.answer(silence)?, silence) {
                    (Answer::Done, _) | (Answer::Nothing, Silence::Quiet) if !is_held => {
                        return Err("deleted a key that must be a miss".into());
                    }
                    (Answer::Done | Answer::NotFound | Answer::Nothing, _) => self.entries[key].held = None,
                    (answer, _) => return Err(unexpected(&format!("{answer:?}"))),
                }
                Ok(())
            }
            Step::Invalidate { key, how } => self.judge_invalidate(key, how),
            Step::Touch { key, life, silence } => {
                self.judged = self.name(key);
                match (self.answer(silence)?, self.entries[key].held.is_some()) {
                    (Answer::Done | Answer::Nothing, true) => self.entries[key].touch(life, self.sent),
                    (Answer::NotFound, _) => self.entries[key].held = None,
                    (Answer::Nothing, false) | (Answer::OutOfMemory, true) => {}
                    (answer, _) => return Err(unexpected(&format!("{answer:?}"))),
                }
                Ok(())
            }
            Step::Count { key, how } => self.judge_count(key, how),
            Step::SharedGet { key, meta } => self.judge_shared_get(key, meta),
            Step::SharedStore { key } => {
                self.judged = shared_name(key);
                match self.answer(Silence::None)? {
                    Answer::Done | Answer::OutOfMemory => Ok(()),
                    answer => Err(unexpected(&format!("{answer:?}"))),
                }
            }
            Step::FlushAll { sent, delay_secs, silence } => {
                let expected = if silence == Silence::None { "OK" } else { "MN" };
                let line = self.wire.line()?;
                if line != expected {
                    return Err(unexpected(&line));
                }
                count(&self.shared.tally.flushes);
                self.shared.flushes.lock().map_err(|_| "another client failed")?.end(sent, delay_secs);
                Ok(())
            }
            Step::Version => {
                let line = self.wire.line()?;
                if line.starts_with("VERSION ") { Ok(()) } else { Err(unexpected(&line)) }
            }
        }
    }

    fn judge_get(&mut self, keys: &[usize], with_cas: bool, touch: Option<Life>) -> Result<()> {
        let mut keys_left = keys.iter();
        loop {
            let line = self.wire.line()?;
            if self.lacked_memory(&line) {
                return Ok(());
            }
            let words: Vec<&str> = line.split(' ').collect();
            let hit = match words[..] {
                ["END"] => None,
                ["VALUE", name, client_flags, value_bytes] if !with_cas => {
                    Some((name, client_flags.parse()?, value_bytes.parse()?, None))
                }
                ["VALUE", name, client_flags, value_bytes, cas] if with_cas => {
                    Some((name, client_flags.parse()?, value_bytes.parse()?, Some(cas.parse()?)))
                }
                _ => return Err(unexpected(&line)),
            };
            // Keys before the one that was hit are misses.
            loop {
                let key = keys_left.next();
                let Some(&key) = key else {
                    if hit.is_some() {
                        return Err("a value that was not asked for".into());
                    }
                    return Ok(());
                };
                self.judged = self.name(key);
                if let Some((_, client_flags, value_bytes, cas)) = hit.filter(|hit| hit.0 == self.judged) {
                    let value = self.wire.block(value_bytes)?;
                    self.judge_value(key, &value, client_flags, cas)?;
                    if let Some(life) = touch {
                        self.entries[key].touch(life, self.sent);
                    }
                    break;
                }
                self.judge_miss(key)?;
            }
        }
    }

    /// A read of an item that is in the store alone may find no memory for it, in a namespace of a few megabytes.
    /// Nothing has changed then. At the end of the soak it is judged how often that was.
    fn lacked_memory(&self, line: &str) -> bool {
        let lacked = self.shared.keeps && line.starts_with("SERVER_ERROR out of memory");
        if lacked {
            count(&self.shared.tally.out_of_memory);
        }
        lacked
    }

    /// A read has found nothing: where the server keeps what it was given, time or a flush must have taken it.
    fn judge_miss(&mut self, key: usize) -> Result<()> {
        count(&self.shared.tally.misses);
        let held = self.entries[key].held.take();
        let Some(held) = held.filter(|held| self.shared.keeps && held.is_certain) else { return Ok(()) };
        let lives = held.death.is_none_or(|death| death.from > Instant::now());
        let flushes = self.shared.flushes.lock().unwrap_or_else(PoisonError::into_inner);
        if lives && flushes.spare(held.written) {
            drop(flushes);
            let mut again = Wire::connect(self.shared.address)?;
            again.send(format!("mg {} f t c s\r\n", self.judged).as_bytes())?;
            let now = again.line()?;
            return Err(format!("a miss, though nothing took it away; asked again: {now}").into());
        }
        Ok(())
    }

    /// A read gave this value: it must be the last one written.
    fn judge_value(&mut self, key: usize, value: &[u8], client_flags: u32, cas: Option<u64>) -> Result<()> {
        count(&self.shared.tally.hits);
        let Some(held) = &mut self.entries[key].held else {
            return Err("a value, where there must be a miss".into());
        };
        // A counter that was written in place keeps its old length, filled up with spaces.
        let shown = if key < NUMBERS { value.trim_ascii_end() } else { value };
        if shown != held.value {
            let head = |bytes: &[u8]| bytes[..bytes.len().min(80)].escape_ascii().to_string();
            return Err(format!(
                "not the last value written: {} bytes, \"{}\", expected {} bytes, \"{}\"",
                shown.len(),
                head(shown),
                held.value.len(),
                head(&held.value)
            )
            .into());
        }
        if client_flags != held.client_flags {
            return Err(format!("client flags {client_flags}, expected {}", held.client_flags).into());
        }
        let known = held.cas.or(cas);
        if cas.is_some() && cas != known {
            return Err(format!("CAS value {cas:?}, expected {known:?}").into());
        }
        held.cas = known;
        held.is_certain = true;
        Ok(())
    }

    fn judge_meta_get(
        &mut self,
        key: usize,
        opaque: u32,
        touch: Option<Life>,
        vivify: Option<Stub>,
        quiet: bool,
    ) -> Result<()> {
        self.judged = self.name(key);
        let line = self.wire.line()?;
        let miss = format!("EN k{} O{opaque}", self.judged);
        // Before 1.6.22 or so, memcached sent a bare EN even if k and O were asked for.
        if line == "EN" || line == miss || (quiet && line == "MN") {
            if vivify.is_some() || (quiet && line != "MN") {
                return Err(unexpected(&line));
            }
            return self.judge_miss(key);
        }
        if vivify.is_none() && self.lacked_memory(&line) {
            return if quiet && self.wire.line()? != "MN" { Err(unexpected(&line)) } else { Ok(()) };
        }
        if line.starts_with("SERVER_ERROR out of memory") && vivify.is_some() {
            count(&self.shared.tally.out_of_memory);
            self.entries[key].held = None;
            return Ok(());
        }

        let mut words = line.split(' ');
        let (Some("VA"), Some(value_bytes)) = (words.next(), words.next()) else {
            return Err(unexpected(&line));
        };
        let value_bytes: usize = value_bytes.parse()?;
        let value = self.wire.block(value_bytes)?;
        if quiet && self.wire.line()? != "MN" {
            return Err("no MN after a quiet hit".into());
        }
        let flags: HashMap<char, &str> =
            words.filter_map(|word| Some((word.chars().next()?, word.get(1..)?))).collect();
        let flag = |letter: char| flags.get(&letter).copied().ok_or_else(|| unexpected(&line));
        if flag('k')? != self.judged
            || flag('O')? != opaque.to_string()
            || flag('s')? != value_bytes.to_string()
        {
            return Err(unexpected(&line));
        }
        let (has_won, is_stale, is_held_by_other) =
            (flags.contains_key(&'W'), flags.contains_key(&'X'), flags.contains_key(&'Z'));

        if let (Some(made), true, false) = (vivify, has_won, is_stale) {
            // There was none, and this request made an empty one.
            let mut stub = Held::new(Vec::new(), 0);
            stub.is_token_out = true;
            stub.cas = made.cas;
            self.entries[key].put(stub, made.life, self.sent);
        } else if let Some(held) = &mut self.entries[key].held {
            let expected = (held.is_stale && !held.is_token_out, held.is_stale, held.is_token_out);
            if (has_won, is_stale, is_held_by_other) != expected {
                return Err(format!("{line:?}: W, X, Z should be {expected:?}").into());
            }
            held.is_token_out |= has_won;
        }
        self.judge_value(key, &value, flag('f')?.parse()?, Some(flag('c')?.parse()?))?;
        // `t` stands before T in the request: the lifetime before the touch. Not judged for stubs made just now.
        if let (Some(held), false) = (&self.entries[key].held, has_won && !is_stale) {
            let ttl_secs: i64 = flag('t')?.parse()?;
            let left = held.death.map(|death| death.by.saturating_duration_since(self.sent).as_secs() as i64);
            let is_right = left.map_or(ttl_secs == -1, |left| (0..=left + 2).contains(&ttl_secs));
            if !is_right {
                return Err(format!("{line:?}: t should be about {left:?}").into());
            }
        }
        if let Some(life) = touch {
            self.entries[key].touch(life, self.sent);
        }
        Ok(())
    }

    fn judge_store(&mut self, key: usize, how: How, new: Held, life: Life, silence: Silence) -> Result<()> {
        self.judged = self.name(key);
        let answer = match self.answer(silence)? {
            Answer::Nothing => Answer::Done,
            answer => answer,
        };
        let is_memcached = self.shared.is_memcached;
        // With noreply, nothing tells whether a condition held; a replace without an item did nothing.
        let entry = &mut self.entries[key];
        if silence == Silence::Noreply && how == How::Replace && entry.held.is_none() {
            return Ok(());
        }
        match (how, answer, entry.held.as_ref()) {
            (How::Set | How::Add, Answer::Done, _)
            | (How::Replace | How::CasRight, Answer::Done, Some(_)) => {
                entry.put(Held { is_certain: how == How::Set, ..new }, life, self.sent);
            }
            (How::Append | How::Prepend, Answer::Done, Some(held)) => {
                let (first, second) =
                    if how == How::Append { (&held.value, &new.value) } else { (&new.value, &held.value) };
                let value = [first.as_slice(), second.as_slice()].concat();
                let death = held.death;
                entry.held = Some(Held { cas: new.cas, death, ..Held::new(value, held.client_flags) });
            }
            (How::Add, Answer::NotStored, Some(_)) | (How::CasWrong, Answer::Exists, Some(_)) => {}
            // An append is also refused when there is no memory for the whole.
            (How::Append | How::Prepend, Answer::NotStored, _) => {}
            (How::Replace, Answer::NotStored, _) | (How::CasRight | How::CasWrong, Answer::NotFound, _) => {
                entry.held = None;
            }
            // A set that finds no memory takes the old value away; so may the others in the meta dialect. In memcached
            // the value stays if memory runs out while it reads.
            (How::Set, Answer::OutOfMemory, _) if !is_memcached => entry.held = None,
            (_, Answer::OutOfMemory, _) => {}
            (how, answer, held) => {
                let state = if held.is_some() { "may be held" } else { "must be a miss" };
                return Err(format!("{how:?} was answered with {answer:?}, and the key {state}").into());
            }
        }
        Ok(())
    }

    fn judge_invalidate(&mut self, key: usize, how: Invalidate) -> Result<()> {
        self.judged = self.name(key);
        let answer = self.answer(Silence::None)?;
        let entry = &mut self.entries[key];
        match (answer, &mut entry.held) {
            (Answer::Done, Some(held)) => {
                // The blank item is a new one, without marks, but for its CAS value.
                if let Some(client_flags) = how.blank {
                    *held =
                        Held { cas: held.cas, written: held.written, ..Held::new(Vec::new(), client_flags) };
                }
                if how.stale {
                    held.cas = None;
                    held.is_stale = true;
                    held.is_token_out = false;
                }
                held.cas = how.cas.or(held.cas);
                if let Some(life) = how.life {
                    entry.touch(life, self.sent);
                }
            }
            (Answer::NotFound, _) => entry.held = None,
            (Answer::OutOfMemory, Some(_)) => {}
            (answer, _) => return Err(unexpected(&format!("{answer:?}"))),
        }
        Ok(())
    }

    fn judge_count(&mut self, key: usize, how: Count) -> Result<()> {
        let Count { delta, decrement, initial, cas, meta, silence } = how;
        self.judged = self.name(key);
        let entry = &mut self.entries[key];
        let counted =
            entry.held.as_ref().and_then(|held| std::str::from_utf8(&held.value).ok()?.parse().ok()).map(
                |number: u64| {
                    if decrement { number.saturating_sub(delta) } else { number.wrapping_add(delta) }
                },
            );
        let line = self.wire.line()?;
        let number = if silence == Silence::Noreply {
            if line != "MN" {
                return Err(unexpected(&line));
            }
            counted
        } else if matches!(line.as_str(), "NOT_FOUND" | "NF") {
            if initial.is_some() {
                return Err("not found, though it was to be created".into());
            }
            None
        } else if line.starts_with("SERVER_ERROR out of memory") {
            count(&self.shared.tally.out_of_memory);
            return Ok(());
        } else if meta {
            let value_bytes = line.strip_prefix("VA ").ok_or_else(|| unexpected(&line))?.parse()?;
            Some(std::str::from_utf8(&self.wire.block(value_bytes)?)?.parse::<u64>()?)
        } else {
            Some(line.parse::<u64>().map_err(|_| unexpected(&line))?)
        };

        let entry = &mut self.entries[key];
        let Some(number) = number else {
            entry.held = None;
            return Ok(());
        };
        if Some(number) == counted {
            if let Some(held) = &mut entry.held {
                held.value = number.to_string().into_bytes();
                held.cas = cas;
                held.written = Instant::now();
                // Without an answer, a flush may have come before.
                held.is_certain &= silence != Silence::Noreply;
            }
        } else if Some(number) == initial {
            entry.put(
                Held { cas, ..Held::new(number.to_string().into_bytes(), 0) },
                Life::Forever,
                self.sent,
            );
        } else {
            return Err(format!(
                "the count is {number}, expected {counted:?}, or {initial:?} if it was gone"
            )
            .into());
        }
        Ok(())
    }

    fn judge_shared_get(&mut self, key: usize, meta: bool) -> Result<()> {
        let name = shared_name(key);
        self.judged.clone_from(&name);
        let line = self.wire.line()?;
        if self.lacked_memory(&line) {
            return Ok(());
        }
        let words: Vec<&str> = line.split(' ').collect();
        let value_bytes: usize = match words[..] {
            ["END"] if !meta => return Ok(()),
            ["EN"] if meta => return Ok(()),
            ["VALUE", shown, "0", value_bytes] if !meta && shown == name => value_bytes.parse()?,
            ["VA", value_bytes] if meta => value_bytes.parse()?,
            _ => return Err(unexpected(&line)),
        };
        let value = self.wire.block(value_bytes)?;
        if !meta && self.wire.line()? != "END" {
            return Err("no END after the value".into());
        }
        let Some((writer, version)) = model::shared_origin(&name, &value) else {
            return Err("a shared value that nobody wrote like that".into());
        };
        let newest = self.shared_seen.entry((key, writer)).or_default();
        if version < *newest {
            return Err(format!("version {version} of client {writer}, after its version {newest}").into());
        }
        *newest = version;
        Ok(())
    }

    /// Reads a one-line reply, and the `MN` behind it where something is held back.
    fn answer(&mut self, silence: Silence) -> Result<Answer> {
        let line = self.wire.line()?;
        if silence != Silence::None && line == "MN" {
            return Ok(Answer::Nothing);
        }
        let answer = match line.as_str() {
            "STORED" | "DELETED" | "TOUCHED" => Answer::Done,
            "HD" if silence == Silence::None => Answer::Done,
            "NOT_STORED" | "NS" => Answer::NotStored,
            "EXISTS" | "EX" => Answer::Exists,
            "NOT_FOUND" | "NF" => Answer::NotFound,
            line if line.to_ascii_lowercase().starts_with("server_error out of memory") => {
                count(&self.shared.tally.out_of_memory);
                Answer::OutOfMemory
            }
            line => return Err(unexpected(line)),
        };
        match silence {
            Silence::None => Ok(answer),
            Silence::Quiet if self.wire.line()? == "MN" => Ok(answer),
            Silence::Quiet | Silence::Noreply => Err(unexpected(&line)),
        }
    }
}

fn unexpected(line: &str) -> larder_conformance::Error {
    format!("unexpected reply {line:?}").into()
}
