//! Random requests, mixed from all commands.

use std::collections::HashSet;
use std::time::Instant;

use super::client::{Client, How, NUMBERS, SHARED, Silence, Step, VALUES, count, shared_name};
use super::model::{self, Held, Life, VALUE_BYTES_MAX};

impl Client<'_> {
    /// Appends a random request. `None`: its key is in this batch already.
    pub(super) fn draw(&mut self, request: &mut Vec<u8>, taken: &mut HashSet<usize>) -> Option<Step> {
        match self.random.u32(0..1_000_000) {
            0 => return Some(self.draw_flush_all(request)),
            1..1_000 => {
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
        let key = self.take(NUMBERS..NUMBERS + VALUES, taken)?;
        Some(match self.random.u8(0..100) {
            0..15 => self.draw_get(request, key, taken),
            15..35 => self.draw_meta_get(request, key),
            35..37 => {
                push(request, &format!("me {}\r\n", self.name(key)));
                Step::Debug { key }
            }
            37..85 => self.draw_store(request, key),
            85..90 => self.draw_delete(request, key),
            90..94 => self.draw_stale(request, key),
            _ => self.draw_touch(request, key),
        })
    }

    /// A key of the range that this batch has not used yet, settled.
    fn take(&mut self, range: std::ops::Range<usize>, taken: &mut HashSet<usize>) -> Option<usize> {
        // Some keys are used much more often than others.
        let width = (range.end - range.start) as f64;
        let key = range.start + (self.random.f64().powi(2) * width) as usize;
        if !taken.insert(key) {
            return None;
        }
        let flush_sent = *self.shared.flush_sent.lock().ok()?;
        let entry = &mut self.entries[key];
        let was_held = entry.held.is_some();
        entry.settle(flush_sent);
        if was_held && entry.held.is_none() {
            count(&self.shared.tally.expired);
        }
        Some(key)
    }

    fn draw_get(&mut self, request: &mut Vec<u8>, key: usize, taken: &mut HashSet<usize>) -> Step {
        let mut keys = vec![key];
        while self.random.u8(0..4) > 0 && keys.len() < 8 {
            keys.extend(self.take(NUMBERS..NUMBERS + VALUES, taken));
        }
        let with_cas = self.random.bool();
        let touch = (self.random.u8(0..4) == 0).then(|| Life::draw(&mut self.random));
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
        let quiet = touch.is_none() && vivify.is_none() && self.random.u8(0..4) == 0;
        push(request, &format!("mg {} v s f c t h l k O{opaque}", self.name(key)));
        if let Some(life) = touch {
            push(request, &format!(" T{}", life.exptime()));
        }
        if let Some(life) = vivify {
            push(request, &format!(" N{}", life.exptime()));
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
        let mut value_bytes = model::draw_value_bytes(&mut self.random);
        let how = match (self.random.u8(0..20), cas) {
            (0..8, _) => How::Set,
            (8..11, _) => How::Add,
            (11..14, _) => How::Replace,
            (14..16, _) if held_bytes.unwrap_or(0) <= PIECED_BYTES_MAX => How::Append,
            (16..17, _) if held_bytes.unwrap_or(0) <= PIECED_BYTES_MAX => How::Prepend,
            (17.., Some(_)) if self.random.u8(0..4) == 0 => How::CasWrong,
            (17.., Some(_)) => How::CasRight,
            _ => How::Set,
        };
        let is_piece = matches!(how, How::Append | How::Prepend);
        if is_piece {
            value_bytes = value_bytes.min(PIECED_BYTES_MAX);
        }
        // A silent refusal would leave open which value the key has. These cannot be refused unseen.
        let may_be_silent = match how {
            How::Set | How::Replace => true,
            How::Add => held_bytes.is_none(),
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
        request.extend_from_slice(&value);
        push(request, if silence == Silence::None { "\r\n" } else { "\r\nmn\r\n" });
        Step::Store { key, how, new: Held::new(value, client_flags), life, silence }
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

    fn draw_stale(&mut self, request: &mut Vec<u8>, key: usize) -> Step {
        let life = self.random.bool().then(|| Life::Secs(self.random.u32(1..=30)));
        let lifetime = life.map_or_else(String::new, |life| format!(" T{}", life.exptime()));
        push(request, &format!("md {} I{lifetime}\r\n", self.name(key)));
        Step::Stale { key, life }
    }

    fn draw_touch(&mut self, request: &mut Vec<u8>, key: usize) -> Step {
        let life = Life::draw(&mut self.random);
        let silence = if self.random.u8(0..4) == 0 { Silence::Noreply } else { Silence::None };
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
        let mut silence = Silence::None;
        if meta {
            push(request, &format!("ma {name} v D{delta} M{}", if decrement { "D" } else { "I" }));
            if self.random.u8(0..3) == 0 {
                let number = u64::from(self.random.u32(..));
                initial = Some(number);
                push(request, &format!(" N0 J{number}"));
            }
        } else {
            push(request, &format!("{} {name} {delta}", if decrement { "decr" } else { "incr" }));
            if self.random.u8(0..4) == 0 {
                silence = Silence::Noreply;
                push(request, " noreply\r\nmn");
            }
        }
        push(request, "\r\n");
        Step::Count { key, delta, decrement, initial, meta, silence }
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
        let version = self.shared_versions.entry(key).or_default();
        *version += 1;
        let value_bytes = model::draw_value_bytes(&mut self.random).min(VALUE_BYTES_MAX - 64);
        let value = model::shared_content(&name, self.id, *version, value_bytes);
        if meta {
            push(request, &format!("ms {name} {} T10\r\n", value.len()));
        } else {
            push(request, &format!("set {name} 0 0 {}\r\n", value.len()));
        }
        request.extend_from_slice(&value);
        push(request, "\r\n");
        Some(Step::SharedStore)
    }

    fn draw_flush_all(&mut self, request: &mut Vec<u8>) -> Step {
        let silence = if self.random.bool() { Silence::Noreply } else { Silence::None };
        push(request, if silence == Silence::None { "flush_all\r\n" } else { "flush_all noreply\r\nmn\r\n" });
        // Earlier than it will be sent: nobody's write is taken for flushed that may not be.
        Step::FlushAll { sent: Instant::now(), silence }
    }
}

fn push(request: &mut Vec<u8>, text: &str) {
    request.extend_from_slice(text.as_bytes());
}

/// Values grow by appending up to twice this.
const PIECED_BYTES_MAX: usize = 32 * 1024;
