//! Random requests, mixed from all commands.

use std::collections::HashSet;
use std::time::Instant;

use super::client::{
    Client, Count, How, Invalidate, NUMBERS, SHARED, Silence, Step, Stub, VALUES, count, shared_name,
};
use super::model::{self, Held, Life};

impl Client<'_> {
    /// Appends a random request. `None`: its key is in this batch already, or it would meet another client's flush.
    pub(super) fn draw(&mut self, request: &mut Vec<u8>, taken: &mut HashSet<usize>) -> Option<Step> {
        match self.random.u32(0..1_000_000) {
            // In a store, data is to become more than memory.
            nth @ 0..4 if nth == 0 || !self.shared.keeps => return self.draw_flush_all(request),
            0..1_000 => {
                request.extend_from_slice(b"version\r\n");
                return Some(Step::Version);
            }
            1_000..80_000 => return self.draw_shared(request, taken),
            80_000..200_000 => {
                let key = self.take(0..NUMBERS, taken)?;
                return Some(self.draw_number(request, key));
            }
            _ => {}
        }
        let key = self.take(self.value_keys(), taken)?;
        Some(match self.random.u8(0..100) {
            0..15 => self.draw_get(request, key, taken),
            15..35 => self.draw_meta_get(request, key),
            35..37 => {
                push(request, &format!("me {}\r\n", self.name(key)));
                Step::Debug { key }
            }
            37..85 => self.draw_store(request, key),
            85..90 => self.draw_delete(request, key),
            90..94 => self.draw_invalidate(request, key),
            _ => self.draw_touch(request, key),
        })
    }

    fn draw_value_bytes(&mut self) -> usize {
        self.shared.sizes.draw(&mut self.random, self.start.elapsed())
    }

    /// The keys of values that are in use now.
    fn value_keys(&self) -> std::ops::Range<usize> {
        NUMBERS..NUMBERS + self.shared.sizes.keys(self.start.elapsed(), VALUES)
    }

    /// A key of the range that this batch has not used yet, settled.
    fn take(&mut self, range: std::ops::Range<usize>, taken: &mut HashSet<usize>) -> Option<usize> {
        // Some keys are used much more often than others.
        let width = (range.end - range.start) as f64;
        let key = range.start + (self.random.f64().powi(2) * width) as usize;
        if !taken.insert(key) {
            return None;
        }
        let gone_before = self.shared.flushes.lock().ok()?.gone_before();
        let entry = &mut self.entries[key];
        let was_held = entry.held.is_some();
        entry.settle(gone_before);
        if was_held && entry.held.is_none() {
            count(&self.shared.tally.expired);
        }
        Some(key)
    }

    fn draw_get(&mut self, request: &mut Vec<u8>, key: usize, taken: &mut HashSet<usize>) -> Step {
        let mut keys = vec![key];
        while self.random.u8(0..4) > 0 && keys.len() < 8 {
            keys.extend(self.take(self.value_keys(), taken));
        }
        let with_cas = self.random.bool();
        let touch = (self.random.u8(0..4) == 0).then(|| Life::draw(&mut self.random));
        if touch.is_some() && self.shared.keeps {
            // A read that finds no memory for one of them would leave open which were touched.
            keys.truncate(1);
        }
        push(
            request,
            match (touch, with_cas) {
                (None, false) => "get",
                (None, true) => "gets",
                (Some(_), false) => "gat",
                (Some(_), true) => "gats",
            },
        );
        if let Some(life) = touch {
            push(request, &format!(" {}", life.exptime()));
        }
        for &key in &keys {
            push(request, &format!(" {}", self.name(key)));
        }
        push(request, "\r\n");
        Step::Get { keys, with_cas, touch }
    }

    fn draw_meta_get(&mut self, request: &mut Vec<u8>, key: usize) -> Step {
        let opaque = self.random.u32(..);
        let touch = (self.random.u8(0..4) == 0).then(|| Life::draw(&mut self.random));
        // Which lifetime a stub gets when both are given differs between versions of memcached.
        let vivify =
            (touch.is_none() && self.random.u8(0..6) == 0).then(|| Life::Secs(self.random.u32(1..=10)));
        let vivify = vivify.map(|life| Stub { life, cas: self.draw_cas() });
        let quiet = touch.is_none() && vivify.is_none() && self.random.u8(0..4) == 0;
        push(request, &format!("mg {} v s f c t h l k O{opaque}", self.name(key)));
        if let Some(life) = touch {
            push(request, &format!(" T{}", life.exptime()));
        }
        if let Some(stub) = vivify {
            push(request, &format!(" N{}", stub.life.exptime()));
            push_cas(request, stub.cas);
        }
        push(request, if quiet { " q\r\nmn\r\n" } else { "\r\n" });
        Step::MetaGet { key, opaque, touch, vivify, quiet }
    }

    fn draw_store(&mut self, request: &mut Vec<u8>, key: usize) -> Step {
        let name = self.name(key);
        let held = self.entries[key].held.as_ref();
        let held_bytes = held.map(|held| held.value.len());
        let cas = held.and_then(|held| held.cas);
        let meta = self.random.bool();
        let mut value_bytes = self.draw_value_bytes();
        let pieced_bytes_max = self.shared.sizes.pieced_bytes_max();
        let how = match (self.random.u8(0..20), cas) {
            (0..8, _) => How::Set,
            (8..11, _) => How::Add,
            (11..14, _) => How::Replace,
            (14..16, _) if held_bytes.unwrap_or(0) <= pieced_bytes_max => How::Append,
            (16..17, _) if held_bytes.unwrap_or(0) <= pieced_bytes_max => How::Prepend,
            (17.., Some(_)) if self.random.u8(0..4) == 0 => How::CasWrong,
            (17.., Some(_)) => How::CasRight,
            _ => How::Set,
        };
        let is_piece = matches!(how, How::Append | How::Prepend);
        if is_piece {
            value_bytes = value_bytes.min(pieced_bytes_max);
        }
        // A silent refusal would leave open which value the key has. These cannot be refused unseen, or if they are,
        // for want of memory, then there is no value.
        let may_be_silent = match how {
            How::Set => !self.shared.is_memcached || value_bytes <= UNCHUNKED_BYTES_MAX,
            How::Add | How::Replace => held_bytes.is_none(),
            How::Append | How::Prepend | How::CasRight | How::CasWrong => false,
        };
        let silence = match self.random.u8(0..4) {
            0 if meta => Silence::Quiet,
            0 if may_be_silent => Silence::Noreply,
            _ => Silence::None,
        };
        let life = if is_piece { Life::Forever } else { Life::draw(&mut self.random) };

        self.entries[key].version += 1;
        let value = model::content(&name, self.entries[key].version, value_bytes);
        let client_flags = if self.random.bool() { self.random.u32(..) } else { 0 };
        let cas = cas.map(|cas| if how == How::CasWrong { cas.wrapping_add(1) } else { cas });
        let cas = cas.filter(|_| matches!(how, How::CasRight | How::CasWrong));
        let exptime = life.exptime();
        let mut new = Held::new(value, client_flags);
        if meta {
            let mode = match how {
                How::Set | How::CasRight | How::CasWrong => "S",
                How::Add => "E",
                How::Replace => "R",
                How::Append => "A",
                How::Prepend => "P",
            };
            push(request, &format!("ms {name} {value_bytes} M{mode} F{client_flags} T{exptime}"));
            if let Some(cas) = cas {
                push(request, &format!(" C{cas}"));
            }
            new.cas = self.draw_cas();
            push_cas(request, new.cas);
            push(request, if silence == Silence::Quiet { " q\r\n" } else { "\r\n" });
        } else {
            let command = match how {
                How::Set => "set",
                How::Add => "add",
                How::Replace => "replace",
                How::Append => "append",
                How::Prepend => "prepend",
                How::CasRight | How::CasWrong => "cas",
            };
            push(request, &format!("{command} {name} {client_flags} {exptime} {value_bytes}"));
            if let Some(cas) = cas {
                push(request, &format!(" {cas}"));
            }
            push(request, if silence == Silence::Noreply { " noreply\r\n" } else { "\r\n" });
        }
        request.extend_from_slice(&new.value);
        push(request, if silence == Silence::None { "\r\n" } else { "\r\nmn\r\n" });
        Step::Store { key, how, new, life, silence }
    }

    fn draw_delete(&mut self, request: &mut Vec<u8>, key: usize) -> Step {
        let name = self.name(key);
        let (line, silence) = match self.random.u8(0..4) {
            0 => (format!("delete {name}\r\n"), Silence::None),
            1 => (format!("delete {name} noreply\r\nmn\r\n"), Silence::Noreply),
            2 => (format!("md {name}\r\n"), Silence::None),
            _ => (format!("md {name} q\r\nmn\r\n"), Silence::Quiet),
        };
        push(request, &line);
        Step::Delete { key, silence }
    }

    fn draw_invalidate(&mut self, request: &mut Vec<u8>, key: usize) -> Step {
        let blanks = !self.shared.is_memcached && self.random.bool();
        let how = Invalidate {
            stale: !blanks || self.random.bool(),
            blank: blanks.then(|| if self.random.bool() { self.random.u32(..) } else { 0 }),
            life: self.random.bool().then(|| Life::Secs(self.random.u32(1..=30))),
            cas: self.draw_cas(),
        };
        push(request, &format!("md {}", self.name(key)));
        if how.stale {
            push(request, " I");
        }
        if let Some(client_flags) = how.blank {
            push(request, " x");
            if client_flags != 0 {
                push(request, &format!(" F{client_flags}"));
            }
        }
        if let Some(life) = how.life {
            push(request, &format!(" T{}", life.exptime()));
        }
        push_cas(request, how.cas);
        push(request, "\r\n");
        Step::Invalidate { key, how }
    }

    fn draw_touch(&mut self, request: &mut Vec<u8>, key: usize) -> Step {
        let life = Life::draw(&mut self.random);
        // A first time of expiry may take memory: whether there was any must be seen.
        let held = self.entries[key].held.as_ref();
        let may_be_silent = held.is_none_or(|held| held.death.is_some());
        let is_silent = may_be_silent && self.random.u8(0..4) == 0;
        let silence = if is_silent { Silence::Noreply } else { Silence::None };
        let tail = if silence == Silence::None { "\r\n" } else { " noreply\r\nmn\r\n" };
        push(request, &format!("touch {} {}{tail}", self.name(key), life.exptime()));
        Step::Touch { key, life, silence }
    }

    fn draw_number(&mut self, request: &mut Vec<u8>, key: usize) -> Step {
        let name = self.name(key);
        let choice = self.random.u8(0..20);
        if choice == 0 {
            return self.draw_delete(request, key);
        }
        if choice < 4 {
            push(request, &format!("gets {name}\r\n"));
            return Step::Get { keys: vec![key], with_cas: true, touch: None };
        }
        if choice < 8 && self.entries[key].held.is_none() {
            // Below 2^63: memcached 1.6.18 at times takes greater numbers for non-numeric.
            let digits = self.random.u64(..) >> self.random.u32(2..64);
            let value = digits.to_string().into_bytes();
            push(request, &format!("add {name} 7 0 {}\r\n{digits}\r\n", value.len()));
            let new = Held::new(value, 7);
            return Step::Store { key, how: How::Add, new, life: Life::Forever, silence: Silence::None };
        }
        let delta = self.random.u64(..) >> self.random.u32(20..64);
        let decrement = self.random.bool();
        let meta = self.random.bool();
        let mut initial = None;
        let mut cas = None;
        let mut silence = Silence::None;
        if meta {
            push(request, &format!("ma {name} v D{delta} M{}", if decrement { "D" } else { "I" }));
            if self.random.u8(0..3) == 0 {
                let number = u64::from(self.random.u32(..));
                initial = Some(number);
                push(request, &format!(" N0 J{number}"));
            }
            cas = self.draw_cas();
            push_cas(request, cas);
        } else {
            push(request, &format!("{} {name} {delta}", if decrement { "decr" } else { "incr" }));
            if self.random.u8(0..4) == 0 {
                silence = Silence::Noreply;
                push(request, " noreply\r\nmn");
            }
        }
        push(request, "\r\n");
        Step::Count { key, how: Count { delta, decrement, initial, cas, meta, silence } }
    }

    fn draw_shared(&mut self, request: &mut Vec<u8>, taken: &mut HashSet<usize>) -> Option<Step> {
        let key = self.random.usize(0..SHARED);
        if !taken.insert(usize::MAX - key) {
            return None;
        }
        let name = shared_name(key);
        let meta = self.random.bool();
        if self.random.u8(0..3) > 0 {
            let (command, flags) = if meta { ("mg", " v") } else { ("get", "") };
            push(request, &format!("{command} {name}{flags}\r\n"));
            return Some(Step::SharedGet { key, meta });
        }
        let value_bytes = self.draw_value_bytes().min(self.shared.sizes.bytes_max() - 64);
        let version = self.shared_versions.entry(key).or_default();
        *version += 1;
        let value = model::shared_content(&name, self.id, *version, value_bytes);
        if meta {
            push(request, &format!("ms {name} {} T10\r\n", value.len()));
        } else {
            push(request, &format!("set {name} 0 0 {}\r\n", value.len()));
        }
        request.extend_from_slice(&value);
        push(request, "\r\n");
        Some(Step::SharedStore { key })
    }

    fn draw_flush_all(&mut self, request: &mut Vec<u8>) -> Option<Step> {
        if !self.shared.flushes.lock().ok()?.begin() {
            return None;
        }
        let silence = if self.random.bool() { Silence::Noreply } else { Silence::None };
        let delay_secs_max = if self.shared.is_memcached { 1 } else { 5 };
        let delay_secs = if self.random.bool() { 0 } else { self.random.u32(1..=delay_secs_max) };
        push(request, "flush_all");
        if delay_secs > 0 {
            push(request, &format!(" {delay_secs}"));
        }
        push(request, if silence == Silence::None { "\r\n" } else { " noreply\r\nmn\r\n" });
        // Earlier than it will be sent: nobody's write is taken for flushed that may not be.
        Some(Step::FlushAll { sent: Instant::now(), delay_secs, silence })
    }

    /// Now and then a CAS value to be installed (the meta flag E).
    fn draw_cas(&mut self) -> Option<u64> {
        let is_drawn = !self.shared.is_memcached && self.random.u8(0..8) == 0;
        is_drawn.then(|| self.random.u64(1..1 << 63))
    }
}

fn push_cas(request: &mut Vec<u8>, cas: Option<u64>) {
    if let Some(cas) = cas {
        push(request, &format!(" E{cas}"));
    }
}

fn push(request: &mut Vec<u8>, text: &str) {
    request.extend_from_slice(text.as_bytes());
}

/// memcached keeps larger values in chunks, which may run out while it reads; the old value then stays.
const UNCHUNKED_BYTES_MAX: usize = 480 * 1024;
