//! What a client asks for: requests drawn at random, and the replies that they must have.

use std::sync::Arc;

use super::client::{Client, Expected, line, put};
use super::item::Item;

impl Client {
    /// Adds a request. Returns what its reply must be, and whether that acknowledges all changes so far; `None`: there
    /// is no reply.
    pub(super) fn draw(&mut self, key: usize, output: &mut Vec<u8>) -> Option<(Expected, bool)> {
        let name = self.name(key);
        if self.load.flushes && self.random.u8(..) == 0 {
            line(output, "flush_all");
            self.history.flush();
            Some((Expected::Line("OK"), true))
        } else if key < self.load.numbers() {
            self.draw_number(key, &name, output)
        } else if key < self.load.numbers_and_short() {
            self.draw_short(key, &name, output)
        } else {
            self.draw_value(key, &name, output)
        }
    }

    fn draw_value(&mut self, key: usize, name: &str, output: &mut Vec<u8>) -> Option<(Expected, bool)> {
        let now = self.history.now(key).clone();
        let is_marked = now.as_ref().is_some_and(|item| item.is_marked());
        let ttl_secs = self.ttl_secs();
        let choice = self.random.u8(0..100);
        match (choice, now) {
            (0..20, _) => Some(self.set(key, name, "set", ttl_secs, output)),
            (20..26, None) => Some(self.set(key, name, "add", ttl_secs, output)),
            (20..26, Some(_)) => Some(self.refused(name, "add", output)),
            (26..32, Some(_)) => Some(self.set(key, name, "replace", ttl_secs, output)),
            (26..32, None) => Some(self.refused(name, "replace", output)),
            (32..38, _) => {
                // Without an answer.
                let item = self.new_item(ttl_secs);
                put(
                    output,
                    &format!("set {name} {} {ttl_secs} {} noreply", item.client_flags, item.value.len()),
                    &item.value,
                );
                self.history.change(key, Some(item));
                None
            }
            (38..44, Some(item)) => Some(match item.cas() {
                Some(cas) if self.random.bool() => {
                    let new = self.new_item(ttl_secs);
                    let (flags, bytes) = (new.client_flags, new.value.len());
                    put(output, &format!("cas {name} {flags} {ttl_secs} {bytes} {cas}"), &new.value);
                    self.history.change(key, Some(new));
                    (Expected::Line("STORED"), true)
                }
                _ => {
                    put(output, &format!("cas {name} 0 0 1 7"), b"x");
                    (Expected::Line("EXISTS"), false)
                }
            }),
            (44..52, Some(item)) if !is_marked && item.value.len() < JOINED_BYTES_MAX => {
                let piece = self.value(500);
                let is_append = self.random.bool();
                let joined: Vec<u8> = if is_append {
                    [&item.value[..], &piece[..]].concat()
                } else {
                    [&piece[..], &item.value[..]].concat()
                };
                let command = if is_append { "append" } else { "prepend" };
                put(output, &format!("{command} {name} 0 0 {}", piece.len()), &piece);
                self.history.change(key, Some(Arc::new(item.with_value(joined.into()))));
                Some((Expected::Line("STORED"), true))
            }
            (52..58, Some(item)) if !is_marked => {
                self.history.change(key, Some(Arc::new(item.touched(ttl_secs))));
                if self.random.bool() {
                    line(output, &format!("touch {name} {ttl_secs}"));
                    Some((Expected::Line("TOUCHED"), true))
                } else {
                    line(output, &format!("gat {ttl_secs} {name}"));
                    Some((Expected::Value(key, item, false), true))
                }
            }
            (52..58, None) => {
                line(output, &format!("touch {name} {ttl_secs}"));
                Some((Expected::Line("NOT_FOUND"), false))
            }
            (58..64, Some(_)) => {
                self.history.change(key, None);
                if self.random.u8(0..3) == 0 {
                    line(output, &format!("delete {name} noreply"));
                    return None;
                }
                line(output, &format!("delete {name}"));
                Some((Expected::Line("DELETED"), true))
            }
            (58..64, None) => {
                line(output, &format!("delete {name}"));
                Some((Expected::Line("NOT_FOUND"), false))
            }
            (64..68, Some(item)) => {
                line(output, &format!("md {name} I T{ttl_secs}"));
                self.history.change(key, Some(Arc::new(item.invalidated(ttl_secs))));
                Some((Expected::Line("HD"), true))
            }
            (68..80, now) => self.meta_set(key, name, ttl_secs, now, output),
            (80..84, None) => {
                // Vivified: whoever asks first is to make the item.
                line(output, &format!("mg {name} v f t c N{ttl_secs}"));
                let item = Item { is_token_held: true, ..Item::new(Arc::from([]), 0, ttl_secs) };
                self.history.change(key, Some(Arc::new(item.clone())));
                let shown = Arc::new(Item { is_token_held: false, ..item });
                Some((Expected::Meta(key, shown), true))
            }
            (80..84, Some(item)) if !is_marked => {
                line(output, &format!("mg {name} T{ttl_secs} v f t c"));
                let item = Arc::new(item.touched(ttl_secs));
                self.history.change(key, Some(Arc::clone(&item)));
                Some((Expected::Meta(key, item), true))
            }
            (84..92, Some(item)) => {
                line(output, &format!("mg {name} v f t c"));
                if item.is_stale && !item.is_token_held {
                    // The token goes to us, and to nobody else.
                    let held = Item { is_token_held: true, ..(*item).clone() };
                    self.history.change(key, Some(Arc::new(held)));
                    return Some((Expected::Meta(key, item), true));
                }
                Some((Expected::Meta(key, item), false))
            }
            (_, Some(item)) => {
                let with_cas = self.random.bool();
                line(output, &format!("{} {name}", if with_cas { "gets" } else { "get" }));
                Some((Expected::Value(key, item, with_cas), false))
            }
            (_, None) => {
                line(output, &format!("get {name}"));
                Some((Expected::Line("END"), false))
            }
        }
    }

    /// `ms` in all modes. `None` as state: there is no item.
    fn meta_set(
        &mut self,
        key: usize,
        name: &str,
        ttl_secs: u32,
        now: Option<Arc<Item>>,
        output: &mut Vec<u8>,
    ) -> Option<(Expected, bool)> {
        let new = self.new_item(ttl_secs);
        let (flags, bytes) = (new.client_flags, new.value.len());
        let stored = |client: &mut Self, item: Arc<Item>| {
            client.history.change(key, Some(Arc::clone(&item)));
            Some((Expected::Stored(key, item), true))
        };
        match (self.random.u8(0..6), now) {
            (0, Some(item)) if !item.is_marked() && item.value.len() < JOINED_BYTES_MAX => {
                let piece = self.value(500);
                put(output, &format!("ms {name} {} c MA", piece.len()), &piece);
                let joined = [&item.value[..], &piece[..]].concat();
                stored(self, Arc::new(item.with_value(joined.into())))
            }
            (1, None) => {
                // Appends to nothing, and makes it.
                put(output, &format!("ms {name} {bytes} c F{flags} MA N{ttl_secs}"), &new.value);
                stored(self, new)
            }
            (2, None) => {
                put(output, &format!("ms {name} {bytes} c T{ttl_secs} F{flags} ME"), &new.value);
                stored(self, new)
            }
            (2, Some(_)) => {
                put(output, &format!("ms {name} 1 ME"), b"x");
                Some((Expected::Line("NS"), false))
            }
            (3, Some(_)) => {
                put(output, &format!("ms {name} {bytes} c T{ttl_secs} F{flags} MR"), &new.value);
                stored(self, new)
            }
            (4, Some(item)) if item.cas().is_some_and(|cas| cas > 1) => {
                // An older CAS value: stored and stale at once, with the life and the token that the item has.
                put(output, &format!("ms {name} {bytes} c T{ttl_secs} F{flags} I C1"), &new.value);
                let Item { expiry, is_token_held, .. } = *item;
                stored(self, Arc::new(Item { expiry, is_stale: true, is_token_held, ..(*new).clone() }))
            }
            (5, _) => {
                put(output, &format!("ms {name} {bytes} T{ttl_secs} F{flags} q"), &new.value);
                self.history.change(key, Some(new));
                None
            }
            _ => {
                put(output, &format!("ms {name} {bytes} c T{ttl_secs} F{flags}"), &new.value);
                stored(self, new)
            }
        }
    }

    fn draw_number(&mut self, key: usize, name: &str, output: &mut Vec<u8>) -> Option<(Expected, bool)> {
        let delta = u64::from(self.random.u16(..));
        let Some(item) = self.history.now(key).clone() else {
            let number = self.random.u32(..).to_string();
            let item = Arc::new(Item::new(number.as_bytes().into(), 0, 0));
            if self.random.bool() {
                line(output, &format!("ma {name} N0 J{number} v"));
                self.history.change(key, Some(item));
                return Some((Expected::Number(number.parse().unwrap_or(0)), true));
            }
            put(output, &format!("set {name} 0 0 {}", number.len()), number.as_bytes());
            self.history.change(key, Some(item));
            return Some((Expected::Line("STORED"), true));
        };
        let number: u64 = String::from_utf8_lossy(&item.value).trim_end().parse().unwrap_or(0);
        let choice = self.random.u8(0..10);
        let (new, command) = match choice {
            0..4 => (number.wrapping_add(delta), "incr"),
            4..7 => (number.saturating_sub(delta), "decr"),
            7..9 => (number.wrapping_add(delta), "ma"),
            _ => {
                self.history.change(key, None);
                line(output, &format!("delete {name}"));
                return Some((Expected::Line("DELETED"), true));
            }
        };
        // As memcached does: a number that becomes shorter keeps its length, filled with blanks.
        let mut digits = new.to_string();
        while digits.len() < item.value.len() {
            digits.push(' ');
        }
        self.history.change(key, Some(Arc::new(item.with_value(digits.as_bytes().into()))));
        match command {
            "ma" => line(output, &format!("ma {name} D{delta} v")),
            command if choice == 0 => {
                line(output, &format!("{command} {name} {delta} noreply"));
                return None;
            }
            command => line(output, &format!("{command} {name} {delta}")),
        }
        Some((Expected::Number(new), true))
    }

    /// Items that expire while they are looked at: they are replaced whole only, whether they are there or not.
    fn draw_short(&mut self, key: usize, name: &str, output: &mut Vec<u8>) -> Option<(Expected, bool)> {
        match self.history.now(key).clone() {
            Some(item) if self.random.bool() => {
                line(output, &format!("get {name}"));
                Some((Expected::Short(key, item), false))
            }
            _ => {
                let ttl_secs = self.random.u32(3..6);
                let item = Arc::new(Item::new(self.value(1000), self.random.u32(..), ttl_secs));
                let (flags, bytes) = (item.client_flags, item.value.len());
                put(output, &format!("set {name} {flags} {ttl_secs} {bytes}"), &item.value);
                self.history.change(key, Some(item));
                Some((Expected::Line("STORED"), true))
            }
        }
    }

    pub(super) fn set(
        &mut self,
        key: usize,
        name: &str,
        command: &str,
        ttl_secs: u32,
        output: &mut Vec<u8>,
    ) -> (Expected, bool) {
        let item = self.new_item(ttl_secs);
        let (flags, bytes) = (item.client_flags, item.value.len());
        put(output, &format!("{command} {name} {flags} {ttl_secs} {bytes}"), &item.value);
        self.history.change(key, Some(item));
        (Expected::Line("STORED"), true)
    }

    fn refused(&mut self, name: &str, command: &str, output: &mut Vec<u8>) -> (Expected, bool) {
        put(output, &format!("{command} {name} 0 0 1"), b"x");
        (Expected::Line("NOT_STORED"), false)
    }

    fn new_item(&mut self, ttl_secs: u32) -> Arc<Item> {
        let most_bytes = match self.random.u8(0..100) {
            0..40 => 100,
            40..75 => 10_000,
            75..92 => 100_000,
            99 if self.load.stores_large && self.random.u8(0..4) == 0 => 3_000_000,
            _ => 600_000,
        };
        let most_bytes =
            if most_bytes < 1_000_000 { most_bytes.min(self.load.value_bytes_max) } else { most_bytes };
        Arc::new(Item::new(self.value(most_bytes), self.random.u32(..), ttl_secs))
    }

    /// A value that no other write has.
    fn value(&mut self, most_bytes: usize) -> Arc<[u8]> {
        self.writes += 1;
        let bytes = if most_bytes > 1_000_000 { most_bytes } else { self.random.usize(1..=most_bytes) };
        let mut value = format!("{}.{}.{:x}.", self.id, self.writes, self.random.u32(..)).into_bytes();
        let pattern: [u8; 61] = std::array::from_fn(|_| self.random.alphanumeric() as u8);
        while value.len() < bytes {
            let place = value.len().to_string();
            value.extend_from_slice(&pattern);
            value.extend_from_slice(place.as_bytes());
        }
        value.truncate(bytes);
        value.into()
    }

    /// None, or so long that it does not end before the test.
    fn ttl_secs(&mut self) -> u32 {
        if self.random.bool() { 0 } else { self.random.u32(3_600..100_000) }
    }
}

/// Longer values are not appended to.
const JOINED_BYTES_MAX: usize = 500_000;
