//! The administrative commands that steer the cache or look into it: `cache_memlimit`, `lru`, `lru_crawler`, `slabs`,
//! `watch` and `debugtime`. Text alone; source of the grammar: memcached, doc/protocol.txt.

use crate::command::{Command, Malformed};
use crate::{Error, number};

/// An administrative command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admin {
    /// cache_memlimit: the memory of the cache, in MiB.
    MemoryLimit(u32),
    /// lru_crawler.
    Crawler(Crawler),
    /// A setting of something that this server does not have, well-formed (lru, slabs automove).
    Unneeded,
    /// slabs reassign, and why nothing is moved.
    Reassign(Error),
    /// watch.
    Watch(Streams),
    /// debugtime.
    Clock(Clock),
}

/// lru_crawler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crawler {
    /// Let it look for expired items.
    Enable,
    /// Let it rest.
    Disable,
    /// How it is to go about that; larder's needs no telling (sleep, tocrawl).
    Unneeded,
    /// Look for expired items now.
    Crawl(Result<Classes, Error>),
    /// Tell of all items.
    Dump(Dump, Result<Classes, Error>),
}

/// What a dump tells of each item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// Everything but the value (metadump).
    Metadata,
    /// A command that gets it (mgdump).
    Commands,
}

/// Classes of items, as `stats items` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes(u64);

/// Kinds of events that `watch` tells of, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams(u16);

/// A change of the server's clock, for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Goes forward by so many seconds, or back.
    Shift(i32),
    /// Stands still.
    Pause,
    /// Goes on.
    Resume,
}

impl Classes {
    /// All there are.
    pub const ALL: Self = Self(!0);

    /// Is this one among them?
    pub fn has(self, class: usize) -> bool {
        class < CLASSES && self.0 & (1 << class) != 0
    }

    /// `all`, `hash` (all, each item once) or numbers with commas between them.
    fn parse(word: &[u8]) -> Result<Self, Error> {
        if word == b"all" || word == b"hash" {
            return Ok(Self::ALL);
        }
        let mut numbers = word.split(|byte| *byte == b',').filter(|number| !number.is_empty());
        numbers.try_fold(Self(0), |Self(classes), class| match number::parse_u32(class) {
            Some(class) if (1..CLASSES).contains(&(class as usize)) => Ok(Self(classes | 1 << class)),
            _ => Err(Error::BadClass),
        })
    }
}

impl Streams {
    /// No events.
    pub const NONE: Self = Self(0);
    /// Look-ups.
    pub const FETCHERS: Self = Self(1);
    /// Stores.
    pub const MUTATIONS: Self = Self(1 << 1);
    /// Evictions.
    pub const EVICTIONS: Self = Self(1 << 2);
    /// Connections that come and go.
    pub const CONNECTIONS: Self = Self(1 << 3);
    /// Deletions.
    pub const DELETIONS: Self = Self(1 << 4);
    /// Background work.
    pub const SYSTEM: Self = Self(1 << 5);
    /// Conflicts between sites, and what becomes of the other sites.
    pub const REPLICATION: Self = Self(1 << 6);

    /// The set as bits, for a place where many threads look.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// The set of [`Streams::bits`].
    pub fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Both sets.
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Do the sets have anything in common?
    pub fn meets(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// By their names; none at all means look-ups.
    fn parse(words: &[&[u8]]) -> Option<Self> {
        if words.is_empty() {
            return Some(Self::FETCHERS);
        }
        words.iter().try_fold(Self::NONE, |streams, word| {
            let stream = match *word {
                b"fetchers" => Self::FETCHERS,
                b"mutations" => Self::MUTATIONS,
                b"evictions" => Self::EVICTIONS,
                b"connevents" => Self::CONNECTIONS,
                b"deletions" => Self::DELETIONS,
                b"sysevents" => Self::SYSTEM,
                b"replication" => Self::REPLICATION,
                // Of memcached's debugging and of its proxy: nothing ever happens there.
                b"rawcmds" | b"proxyreqs" | b"proxyevents" | b"proxyuser" => Self::NONE,
                _ => return None,
            };
            Some(streams.and(stream))
        })
    }
}

/// `cache_memlimit <megabytes>`
pub(crate) fn memory_limit(arguments: &[&[u8]]) -> Command<'static> {
    match arguments.first().and_then(|word| number::parse_u32(word)) {
        None => refusal(Error::UnknownCommand),
        Some(..MEGABYTES_MIN) => refusal(Error::MemoryTooSmall),
        Some(megabytes @ ..=MEGABYTES_MAX) => Command::Admin(Admin::MemoryLimit(megabytes)),
        Some(_) => refusal(Error::MemoryInBytes),
    }
}

/// `lru tune <hot %> <warm %> <hot factor> <warm factor>`, `lru mode <flat|segmented>`, `lru temp_ttl <seconds>`
pub(crate) fn lru(arguments: &[&[u8]]) -> Command<'static> {
    match arguments {
        [b"tune", hot, warm, hot_factor, warm_factor, ..] => {
            let (Some(hot), Some(warm)) = (number::parse_u32(hot), number::parse_u32(warm)) else {
                return refusal(Error::UnknownCommand);
            };
            let (Some(hot_factor), Some(warm_factor)) = (float(hot_factor), float(warm_factor)) else {
                return refusal(Error::UnknownCommand);
            };
            if hot.saturating_add(warm) > 80 {
                refusal(Error::LruShares)
            } else if hot_factor <= 0.0 || warm_factor <= 0.0 {
                refusal(Error::LruFactors)
            } else {
                Command::Admin(Admin::Unneeded)
            }
        }
        [b"mode", b"flat" | b"segmented", ..] => Command::Admin(Admin::Unneeded),
        [b"temp_ttl", secs, ..] if number::parse_i32(secs).is_some() => Command::Admin(Admin::Unneeded),
        _ => refusal(Error::UnknownCommand),
    }
}

/// `lru_crawler <enable|disable>`, `lru_crawler <sleep|tocrawl> <n>`, `lru_crawler <crawl|metadump|mgdump> <classes>`
pub(crate) fn crawler(arguments: &[&[u8]]) -> Command<'static> {
    let crawler = match arguments {
        [b"enable"] => Crawler::Enable,
        [b"disable"] => Crawler::Disable,
        [b"sleep", micros] => match number::parse_u32(micros) {
            Some(..=1_000_000) => Crawler::Unneeded,
            Some(_) => return refusal(Error::CrawlerSleep),
            None => return refusal(Error::BadFormat),
        },
        [b"tocrawl", items] if number::parse_u32(items).is_some() => Crawler::Unneeded,
        [b"tocrawl", _] => return refusal(Error::BadFormat),
        [b"crawl", b"hash"] => Crawler::Crawl(Err(Error::CrawlByHash)),
        [b"crawl", classes] => Crawler::Crawl(Classes::parse(classes)),
        [b"metadump", classes] => Crawler::Dump(Dump::Metadata, Classes::parse(classes)),
        [b"mgdump", classes] => Crawler::Dump(Dump::Commands, Classes::parse(classes)),
        _ => return refusal(Error::UnknownCommand),
    };
    Command::Admin(Admin::Crawler(crawler))
}

/// `slabs reassign <source class> <dest class>`, `slabs automove <0|1|2>`, `slabs automove <ratio|freeratio> <float>`,
/// `slabs automove window <n>`
pub(crate) fn slabs(arguments: &[&[u8]]) -> Command<'static> {
    match arguments {
        [b"reassign", from, to] => match (number::parse_i32(from), number::parse_i32(to)) {
            (Some(from), Some(to)) => Command::Admin(Admin::Reassign(why_not_reassign(from, to))),
            _ => refusal(Error::BadFormat),
        },
        [b"automove", b"ratio" | b"freeratio", ratio, ..] if float(ratio).is_some() => {
            Command::Admin(Admin::Unneeded)
        }
        [b"automove", b"ratio" | b"freeratio", ..] => refusal(Error::UnknownCommand),
        [b"automove", b"window", window, ..] => match number::parse_u32(window) {
            Some(3..=1800) => Command::Admin(Admin::Unneeded),
            Some(_) => refusal(Error::AutomoveWindow),
            None => refusal(Error::UnknownCommand),
        },
        [b"automove", mode, ..] => match number::parse_u32(mode) {
            Some(0..=2) => Command::Admin(Admin::Unneeded),
            Some(_) => refusal(Error::UnknownCommand),
            None => refusal(Error::BadFormat),
        },
        _ => refusal(Error::UnknownCommand),
    }
}

/// Memory goes where it is needed by itself, so nothing is ever spare to be moved by hand.
fn why_not_reassign(from: i32, to: i32) -> Error {
    let is_class = |class| (0..CLASSES as i32).contains(&class);
    if from == to {
        Error::SameClass
    } else if !is_class(from) || !is_class(to) {
        Error::BadClasses
    } else {
        Error::NoSparePages
    }
}

/// `watch <fetchers|mutations|evictions|...>*`
pub(crate) fn watch(arguments: &[&[u8]]) -> Command<'static> {
    Streams::parse(arguments)
        .map_or_else(|| refusal(Error::UnknownCommand), |streams| Command::Admin(Admin::Watch(streams)))
}

/// debugtime <seconds|p|r>
pub(crate) fn clock(arguments: &[&[u8]]) -> Command<'static> {
    let clock = match arguments {
        [b"p"] => Some(Clock::Pause),
        [b"r"] => Some(Clock::Resume),
        [secs] => number::parse_i32(secs.strip_prefix(b"+").unwrap_or(secs)).map(Clock::Shift),
        _ => None,
    };
    clock.map_or_else(|| refusal(Error::UnknownCommand), |clock| Command::Admin(Admin::Clock(clock)))
}

fn float(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
}

fn refusal(error: Error) -> Command<'static> {
    Command::Malformed(Malformed { error, swallow_bytes: 0 })
}

/// Numbers of classes, 0 included.
const CLASSES: usize = 64;
/// The least memory that may be asked for.
const MEGABYTES_MIN: u32 = 8;
/// Whoever asks for more means bytes.
const MEGABYTES_MAX: u32 = 1_000_000_000;
